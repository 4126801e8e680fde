"""What the coordinator keeps of its studies on disk: one folder each, and what it last saw of every party's ledger."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from verticopula.errors import SettingsError, VerticopulaError
from verticopula.network.connection.control_messages import StewardWait, StudyState, SubmitRequest
from verticopula.protocol.study_messages import SignedAsking
from verticopula.schema.methods import METHODS, RAW_REGRESSION
from verticopula.schema.setting_choices import Alignment
from verticopula.storage.blobs import write_atomically
from verticopula.storage.record_store import FolderRecords

State = Literal["queued", "running", "waiting", "failed", "cancelled", "done"]
OPEN_STATES: tuple[State, ...] = ("queued", "running", "waiting")  # of a study that is not over

RECORD_FILE = "record.json"
ROUNDS_FILE = "rounds.journal"
RESULT_FOLDER = "result"
COMPUTE_FOLDER = "desk"  # the name that running coordinators have on disk
WITNESS_FILE = "ledger-heads.json"

_STUDY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")


@dataclass(frozen=True)
class StudyRecord:
    """One study: what was asked for, and how far it is.

    Attributes
    ----------
    server_seed : of the coordinator's own draws, which protect nobody; kept so that they can be repeated
    witnesses : where the parties' ledgers ended when the study was begun; they must still contain that
    requester, purpose : who asks, and why
    conditions, missing : what the synthetic rows are to have, and their gaps, as the lead's request says it
    token : the lead's own name for its request; the same token again is the same study
    lead : whose study it is
    contact, use, signature : what else the lead said, and their signature, in hex
    stewards : party -> when its stewards were asked, in seconds since 1970, for those who have to decide
    federation : fingerprint of the federation file that it has; "" in records of before there could be several
    """

    study: str
    kind: Literal["synthesis", "regression"]
    settings: Mapping[str, Any]
    rows: int | None
    aligned: bool
    deadline: float
    token: str
    server_seed: int
    created: str
    witnesses: Mapping[str, tuple[int, str]]
    alignment: Alignment = "hash"
    state: State = "queued"
    rounds: int = 0
    note: str = ""
    requester: str = ""
    purpose: str = ""
    lead: str = "lead"
    contact: str = ""
    use: str = ""
    signature: str = ""
    stewards: Mapping[str, float] = field(default_factory=dict)
    conditions: tuple[str, ...] = ()
    missing: str = ""
    federation: str = ""

    @classmethod
    def new(
        cls,
        federation_name: str,
        request: SubmitRequest,
        settings: Mapping[str, Any],
        witnesses: Mapping[str, tuple[int, str]],
        lead: str = "lead",
    ) -> StudyRecord:
        stem = re.sub(r"[^A-Za-z0-9_-]+", "-", federation_name).strip("-") or "study"
        return cls(
            f"{stem[:60]}-{secrets.token_hex(8)}",
            request.kind,
            settings,
            request.rows,
            request.aligned,
            request.deadline,
            request.token,
            secrets.randbits(63),
            datetime.now(UTC).isoformat(timespec="milliseconds"),
            witnesses,
            request.alignment,
            requester=request.requester,
            purpose=request.purpose,
            conditions=request.conditions,
            missing=request.missing,
            lead=lead,
            federation=request.federation,
            contact="" if request.asking is None else request.asking.contact,
            use="" if request.asking is None else request.asking.use,
            signature="" if request.asking is None else request.asking.signature.hex(),
        )

    @property
    def asking(self) -> SignedAsking | None:
        """What the lead has signed, for the parties."""
        if not self.signature:
            return None
        return SignedAsking(self.lead, self.token, self.contact, self.use, bytes.fromhex(self.signature))

    @property
    def method(self) -> str:
        return str(self.settings["method"]) if self.kind == "synthesis" else RAW_REGRESSION

    @property
    def needs_keys(self) -> bool:
        """Whether the coordinator may need to sign a public key of its own."""
        return self.method in METHODS and not METHODS[self.method].ranks

    def describe(self, number: int, waiting_for: tuple[str, ...]) -> StudyState:
        stewards = tuple(StewardWait(party, since) for party, since in self.stewards.items())
        names = waiting_for or tuple(self.stewards)
        return StudyState(self.study, self.method, self.state, max(number, self.rounds), names, self.note, stewards)


class StudyStore:
    """The coordinator's folder of studies."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def all(self) -> list[StudyRecord]:
        """All studies, from old to new."""
        found = [self._read(path) for path in self.folder.glob(f"*/{RECORD_FILE}")]
        return sorted(found, key=lambda record: (record.created, record.study))

    def get(self, study: str) -> StudyRecord:
        if not _STUDY_NAME.fullmatch(study) or not (self.folder / study / RECORD_FILE).is_file():
            raise SettingsError("no study of that name; `verticopula status` lists them")
        return self._read(self.folder / study / RECORD_FILE)

    def save(self, record: StudyRecord) -> None:
        folder = self.folder / record.study
        folder.mkdir(exist_ok=True)
        write_atomically(folder / RECORD_FILE, json.dumps(asdict(record), indent=1).encode())

    def change(self, study: str, **changes: Any) -> StudyRecord:
        changed = replace(self.get(study), **changes)
        self.save(changed)
        return changed

    def journal_path(self, study: str) -> Path:
        return self.folder / study / ROUNDS_FILE

    def compute_records(self, study: str) -> FolderRecords:
        """What the coordinator keeps as a compute party, in a strict study of two parties."""
        return FolderRecords(self.folder / study / COMPUTE_FOLDER)

    def result_folder(self, study: str) -> Path:
        return self.folder / study / RESULT_FOLDER

    def witnesses(self) -> dict[str, tuple[int, str]]:
        """Party -> where its ledger ended when it was last seen."""
        path = self.folder / WITNESS_FILE
        if not path.is_file():
            return {}
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            return {name: (int(count), str(head)) for name, (count, head) in raw.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            raise VerticopulaError(f"{path} cannot be read") from None

    def remember_witnesses(self, heads: Mapping[str, tuple[int, str]]) -> None:
        write_atomically(self.folder / WITNESS_FILE, json.dumps({**self.witnesses(), **heads}).encode())

    @staticmethod
    def _read(path: Path) -> StudyRecord:
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            raw["witnesses"] = {name: (int(count), str(head)) for name, (count, head) in raw["witnesses"].items()}
            return StudyRecord(**{**raw, "conditions": tuple(raw.get("conditions", ()))})
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            raise VerticopulaError(f"{path} cannot be read as a study's record") from None
