"""What a party remembers of a study that it has joined."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.storage.record_store import RecordStore

_AGREED = ("method", "alignment", "seed", "table", "federation", "requester", "purpose", "lead", "contact", "use")


@dataclass(frozen=True)
class JoinedStudy:
    """What was agreed about one study.

    Attributes
    ----------
    table : digest of the table the study began with
    mask : the party's secret for `psi`, in hex; "" otherwise
    masked : party -> digest of its list that was masked for it; there is one list a party
    listed : the cohort's size as the response party signed it, for `psi`; 0 before it is known
    n_subjects : size of the cohort; 0 before it is known
    positions : (n_k,) place of each row, in the order of the ids; empty before it is known
    cohort : digest of the cohort's list; "" before it is known
    federation : fingerprint of the federation file
    requester, purpose : who asked when the study began, and why
    lead, contact, use : who signed that the study is asked for, how to reach them, what the tables will be used for
    withdrawals : as of how many lines of the vault's history of withdrawals it began; 0 before there was one
    begun : when it began, in seconds since 1970; 0 where an earlier version began it
    closed : when the coordinator said that nothing more is asked, in seconds since 1970; 0 before
    removed : when what was stored of it was removed, because it had ended long ago; 0 before
    keeps : whether the coordinator was told that the synthetic block stays here; None if an earlier version told it
    """

    method: str
    alignment: str
    seed: int | None
    table: str
    mask: str = ""
    masked: Mapping[str, str] = field(default_factory=dict)
    n_subjects: int = 0
    positions: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    cohort: str = ""
    federation: str = ""
    requester: str = ""
    purpose: str = ""
    listed: int = 0
    keeps: bool | None = None
    lead: str = ""
    contact: str = ""
    use: str = ""
    withdrawals: int = 0
    begun: float = 0.0
    closed: float = 0.0
    removed: float = 0.0

    @staticmethod
    def record_name(party: str, study: str) -> str:
        """The name under which it is kept; an organisation may be several parties of a study, with one vault."""
        return f"study:{party}/{study}"

    def as_removed(self, now: float) -> JoinedStudy:
        """The mark that is left of it once what was stored is removed.

        Parameters
        ----------
        now : seconds since 1970
        """
        return JoinedStudy(self.method, self.alignment, None, "", federation=self.federation, removed=now)

    def agrees(self, other: JoinedStudy) -> bool:
        """Whether the same was agreed, wherever the rows are."""
        return all(getattr(self, name) == getattr(other, name) for name in _AGREED)

    def is_same_place(self, other: JoinedStudy) -> bool:
        """Whether the rows stand in the same places of the same cohort."""
        same = (self.n_subjects, self.cohort) == (other.n_subjects, other.cohort)
        return same and np.array_equal(self.positions, other.positions)

    @property
    def is_placed(self) -> bool:
        return self.n_subjects > 0 and self.cohort != ""  # earlier versions did not check the cohort

    def to_dict(self) -> dict[str, Any]:
        places = base64.b64encode(self.positions.astype("<i8").tobytes()).decode("ascii")
        return {**vars(self), "positions": places}

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> JoinedStudy:
        places = np.frombuffer(base64.b64decode(raw["positions"]), dtype="<i8").astype(np.int64)
        return cls(**{**raw, "positions": places})


def begun_under(records: RecordStore, party: str, study: str) -> str | None:
    """Fingerprint of the federation file that a study began with at a party; None for a study that it does not know.

    Parameters
    ----------
    records : the vault's
    party, study : names
    """
    raw = records.get(JoinedStudy.record_name(party, study))
    return None if raw is None else str(raw.get("federation", ""))


def subjects_of(records: RecordStore, party: str, study: str) -> int | None:
    """How many people a study has, 0 before that is known; None for a study that a party does not know.

    Parameters
    ----------
    records : the vault's
    party, study : names
    """
    raw = records.get(JoinedStudy.record_name(party, study))
    return None if raw is None else int(raw.get("n_subjects", 0))
