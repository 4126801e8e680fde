"""A party's policy as its file has it at this moment: a rule that is tightened on disk holds from the next request."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol

from verticopula.errors import PolicyRefused, SchemaError, SettingsError
from verticopula.privacy.policy import Caps, Policy
from verticopula.privacy.release import Release
from verticopula.schema.setting_choices import Alignment

logger = logging.getLogger(__name__)


class RuleStore(Protocol):
    """Where rules are remembered; a vault has such a store."""

    def get(self, name: str) -> dict[str, Any] | None: ...

    def put(self, name: str, record: dict[str, Any]) -> None: ...


def remember_rules(
    records: RuleStore,
    table: str,
    rules: Mapping[str, Any],
    where: str,
    dropped: Collection[str] = (),
    prefix: str = "",
    *,
    is_whole: bool = True,
    overlapping: Collection[str] = (),
    keep: bool = True,
) -> None:
    """Keep a policy's rules in a vault; SettingsError if some are gone that the vault remembers.

    A file that is cut off in the middle is a good policy with fewer rules, and fewer rules allow more. So a rule is
    given up by its name, or not at all.

    Parameters
    ----------
    table : whose rules they are, as the vault names it (`TableAccount`)
    rules : as `Policy.rules` has them
    where : the file, for messages; "" where no policy was given at all
    dropped : names of rules that are given up
    prefix : what `--drop-rule` has in front of a rule's name
    is_whole : whether the file's last line has an end
    overlapping : other tables with some of these people; whose rules are to be kept, too, unless they were given up
        for this table
    keep : whether they are kept; otherwise they are only compared
    """
    names = [f"policy:{name}" for name in table.split("+")]
    seen = [record for name in names if (record := records.get(name)) is not None]
    known = {name: value for record in seen for name, value in record["rules"].items()}
    # What was given up for this table, which the rules of other tables with some of its people do not bring back.
    given_up = {name for record in seen for name in record.get("given_up", ())}
    met = [record["rules"] for name in overlapping if (record := records.get(f"policy:{name}")) is not None]
    others = dict.fromkeys(name for one in met for name in one if name not in given_up)
    lost = [name for name in {**known, **others} if name not in rules]
    if unnamed := [name for name in lost if name not in dropped]:
        options = " ".join(f"--drop-rule {prefix}{name}" for name in unnamed)
        if not where:
            raise SettingsError(
                f"party {prefix.removesuffix('.')!r} has rules that the vault remembers: {', '.join(unnamed)}. Give "
                f"its policy (--policies); or, to do without from now on, run with {options}"
            )
        raise SettingsError(
            f"{where} has no {', '.join(unnamed)}, which it had when it was last used for these people: it may be "
            f"half written. Put it back; or, to do without from now on, add {options}"
        )
    if kept := [name for name in dropped if name not in lost]:
        raise SettingsError(
            f"--drop-rule {prefix}{kept[0]}: {where or 'the policy'} has lost no such rule; leave this option away"
        )
    if seen and known != rules and not is_whole:
        raise SettingsError(f"{where} has changed, and ends in the middle of a line: complete it, or end the line")
    record = {"rules": dict(rules), "given_up": sorted((given_up | set(dropped)) - set(rules))}
    for name in names:
        if keep and records.get(name) != record:
            records.put(name, record)


class _Memory(dict[str, dict[str, Any]]):
    """Records of a party without a vault."""

    put = dict.__setitem__


class PolicyFile:
    """What a `Policy` answers, read from its file for every question.

    A file that cannot be read refuses everything until it can. So does one that has lost a rule, or that has changed
    and ends in the middle of a line: a file that is being written is cut off for a moment, and an empty policy allows
    everything. Which rules it had is remembered by the vault, too (`remember`).

    Parameters
    ----------
    path : the TOML file; SchemaError lists every problem that it has at the beginning
    party : for messages
    dropped : names of rules that the vault remembers and that are given up
    """

    def __init__(self, path: Path, party: str, dropped: Collection[str] = ()) -> None:
        self._path, self._party, self._dropped = path, party, tuple(dropped)
        self._last = Policy.from_toml(path)
        self._is_whole = has_end(path.read_text(encoding="utf-8"))
        self._records: RuleStore = _Memory()  # until there is a vault
        self._table = ""
        self._one_at_a_time = threading.Lock()
        remember_rules(self._records, self._table, self._last.rules(), path.name)

    def remember(self, records: RuleStore, table: str, overlapping: Collection[str] = ()) -> None:
        """Compare with the rules that a vault remembers, and keep them there; SettingsError if some are gone.

        Parameters
        ----------
        records, table, overlapping : as `remember_rules` has them
        """
        rules, where = self._last.rules(), self._path.name
        remember_rules(records, table, rules, where, self._dropped, is_whole=self._is_whole, overlapping=overlapping)
        self._records, self._table = records, table

    def current(self) -> Policy:
        """The policy as it stands on disk; PolicyRefused if it cannot be read, and only the party's log says why."""
        with self._one_at_a_time:
            return self._read()

    def _read(self) -> Policy:
        try:
            text = self._path.read_text(encoding="utf-8")
            found = Policy.from_text(text, self._path.name)
        except (OSError, ValueError, SchemaError) as error:
            logger.error("policy: %s", error)
            raise PolicyRefused(
                f"party {self._party!r}: its policy file cannot be read; nothing is released until it can"
            ) from None
        rules = found.rules()
        if rules == self._last.rules():
            return found
        try:
            remember_rules(self._records, self._table, rules, self._path.name, is_whole=has_end(text))
        except SettingsError as error:
            logger.error("policy: it may be half written, and nothing is released until it is whole: %s", error)
            raise PolicyRefused(
                f"party {self._party!r}: its policy file seems half written; nothing is released until it is whole"
            ) from None
        logger.warning("policy: %s has changed; it is used from now on", self._path.name)
        self._last = found
        return found

    @property
    def columns(self) -> tuple[str, ...] | None:
        return self.current().columns

    @property
    def methods(self) -> tuple[str, ...] | None:
        return self.current().methods

    @property
    def alignments(self) -> tuple[Alignment, ...] | None:
        return self.current().alignments

    @property
    def caps(self) -> Caps:
        return self.current().caps

    @property
    def delta(self) -> float:
        return self.current().delta

    @property
    def min_subjects(self) -> int:
        return self.current().min_subjects

    @property
    def synthetic(self) -> Literal["lead", "keep"]:
        return self.current().synthetic

    @property
    def review(self) -> Literal["nothing", "releases", "everything"]:
        return self.current().review

    @property
    def approvals(self) -> int:
        return self.current().approvals

    @property
    def stewards(self) -> dict[str, str]:
        return self.current().stewards

    @property
    def consent_days(self) -> float:
        return self.current().consent_days

    @property
    def retention_days(self) -> float | None:
        return self.current().retention_days

    @property
    def open_studies(self) -> int:
        return self.current().open_studies

    @property
    def new_studies(self) -> int:
        return self.current().new_studies

    @property
    def allow_seeded(self) -> bool:
        return self.current().allow_seeded

    @property
    def allow_as_printed(self) -> bool:
        return self.current().allow_as_printed

    def check_columns(self, party: str, columns: Iterable[str]) -> None:
        """As `Policy.check_columns`.

        Parameters
        ----------
        party, columns : as there
        """
        self.current().check_columns(party, columns)

    def check_printed(self, party: str) -> None:
        """As `Policy.check_printed`.

        Parameters
        ----------
        party : as there
        """
        self.current().check_printed(party)

    def check(
        self,
        party: str,
        method: str,
        proposed: Iterable[Release],
        spent: Iterable[Release],
        about_people: Iterable[Release] | None = None,
    ) -> None:
        """As `Policy.check`.

        Parameters
        ----------
        party, method, proposed, spent, about_people : as there
        """
        self.current().check(party, method, proposed, spent, about_people)


def has_end(text: str) -> bool:
    """Whether a file's last line has an end.

    Parameters
    ----------
    text : what is in the file
    """
    return not text or text.endswith("\n")
