"""Who withdrew consent, in a party's vault: later studies are made as if the party did not know these people.

The file only grows and is one chain (`chained_file.py`). A line says when, why and how many; whom it is about stands
there as keyed hashes, which only the holder of the vault's secret can compare with ids. Any process may append while
another one uses the vault. How many lines there were is remembered in the vault's records (`Vault`), so that a file
that is lost, or put back from an old copy, is noticed.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.data.column_table import ColumnTable
from verticopula.data.engine_table import EngineTable
from verticopula.data.id_checks import texts_in_parts
from verticopula.data.tables import RawTable
from verticopula.engine.chunk_task import Secret
from verticopula.errors import LedgerError, SettingsError
from verticopula.schema.id_rules import apply_id_rules
from verticopula.storage.chained_file import ChainedFile, Line
from verticopula.storage.engine_accounts import find_staying
from verticopula.storage.id_sketch import hash_withdrawn
from verticopula.storage.steward_requests import REASON_LENGTH

WITHDRAWALS_FILE = "withdrawals.jsonl"
SECRET_FILE = "secret"

Step = Literal["withdrawn", "restored"]
Table = TypeVar("Table", pl.DataFrame, EngineTable, pl.DataFrame | EngineTable, RawTable)

_PURPOSE = b"verticopula: who withdrew"  # the secret has other uses, which it must not be mixed up with


@dataclass(frozen=True)
class WithdrawalEvent:
    """One line of the history, for readers.

    Attributes
    ----------
    time : seconds since 1970
    what : whether people withdrew, or are taken in again
    people : how many
    by : the account of whoever recorded it
    """

    time: float
    what: Step
    people: int
    reason: str
    by: str


class Withdrawals:
    """The people of one vault who withdrew.

    Parameters
    ----------
    folder : the vault's
    clock : seconds since 1970
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self._folder, self._clock = folder, clock
        self.file = ChainedFile(folder / WITHDRAWALS_FILE)

    def record(self, what: Step, ids: Iterable[str], reason: str, by: str) -> int:
        """For how many people this is news; it is on disk when this returns. Others have withdrawn, or not, already.

        Parameters
        ----------
        what : whether they withdraw, or are taken in again
        ids : in any spelling
        reason : for the record, without names
        by : who records it
        """
        if len(reason) > REASON_LENGTH:
            raise SettingsError(f"a reason has at most {REASON_LENGTH} characters")
        hashes, news = self._hash(ids), list[str]()

        def add(lines: list[dict[str, Any]]) -> Line | None:
            known = _people(lines)
            news.extend(sorted({one for one in hashes if (one in known) == (what == "restored")}))
            said = {"time": self._clock(), "what": what, "people": len(news), "reason": reason, "by": by}
            return (said, news) if news else None

        self.file.append(add)
        return len(news)

    def events(self) -> list[WithdrawalEvent]:
        """The history, from old to new; LedgerError where it was altered."""
        return [event_of(line) for line in self.file.lines()]

    def people(self, until: int | None = None) -> frozenset[str]:
        """The keyed hashes of everybody who has withdrawn and was not taken in again.

        Parameters
        ----------
        until : as of so many lines of the history; None for all of them
        """
        return _people(self.file.lines()[:until])

    def leave_out(self, table: Table, column: str, until: int | None = None) -> Table:
        """The table without the rows of those who withdrew.

        Ids are compared as canonical ids (`canonical_id`): spelling, case and leading zeros do not count. Two people
        whose ids differ in nothing else are left out together.

        Parameters
        ----------
        table : as it was read
        column : the one with ids; a table without it is returned as it is
        until : as `people` has it
        """
        people = self.people(until)
        if not people or column not in table.columns:
            return table
        if isinstance(table, pl.DataFrame):
            return self._leave_out(table, column, people)
        if isinstance(table, ColumnTable):
            return table.with_rows(self._staying(table[column], people))
        return table.with_rows(np.concatenate(table.run(find_staying, column, Secret(self._key()), people)))

    def versions(self, table: pl.DataFrame, column: str) -> list[pl.DataFrame]:
        """The table as studies may have read it: without those who had withdrawn at each moment of the history.

        Parameters
        ----------
        table, column : as `leave_out` has them
        """
        lines, found = self.file.lines(), [table]
        for until in range(1, len(lines) + 1):
            then = self._leave_out(table, column, _people(lines[:until]))
            if not any(then.height == known.height and then.equals(known) for known in found):
                found.append(then)
        return found

    def _leave_out(self, table: pl.DataFrame, column: str, people: frozenset[str]) -> pl.DataFrame:
        if not people or column not in table.columns:
            return table
        return table.filter(pl.Series(self._staying(table[column], people)))

    def _staying(self, ids: pl.Series, people: frozenset[str]) -> NDArray[np.bool_]:
        """(rows,) whose rows belong to nobody who withdrew."""
        known = apply_id_rules(ids, ()).fill_null("")  # what lacks an id is refused later
        stays = (one not in people for part in texts_in_parts(known) for one in self._hash(part))
        return np.fromiter(stays, dtype=bool, count=len(ids))

    def _hash(self, ids: Iterable[str]) -> list[str]:
        return hash_withdrawn(ids, self._key())

    def _key(self) -> bytes:
        try:
            secret = (self._folder / SECRET_FILE).read_bytes()
        except OSError:
            raise LedgerError(f"{SECRET_FILE} is missing or cannot be read, so nobody can be recognised") from None
        return hmac.digest(secret, _PURPOSE, "sha256")


def event_of(line: dict[str, Any]) -> WithdrawalEvent:
    """A line of the history; LedgerError where it is none.

    Parameters
    ----------
    line : as `ChainedFile.lines` has it
    """
    try:
        return WithdrawalEvent(
            float(line["time"]), line["what"], int(line["people"]), str(line["reason"]), str(line["by"])
        )
    except (KeyError, TypeError, ValueError):
        raise LedgerError(f"{WITHDRAWALS_FILE} has a line of a later version of verticopula") from None


def count_left_out(events: Iterable[WithdrawalEvent]) -> int:
    """How many people later studies leave out, after these events."""
    return sum(event.people if event.what == "withdrawn" else -event.people for event in events)


def _people(lines: Iterable[dict[str, Any]]) -> frozenset[str]:
    found: set[str] = set()
    for line in lines:
        if "held" not in line:
            raise LedgerError(f"{WITHDRAWALS_FILE} is a copy for an auditor: it does not say who withdrew")
        if event_of(line).what == "withdrawn":
            found |= set(line["held"])
        else:
            found -= set(line["held"])
    return frozenset(found)
