"""Every exception verticopula raises on purpose, in one tree; and its warnings.

::

    VerticopulaError
    ├── SchemaError            the federation file or a table does not fit; lists every problem
    ├── SettingsError          a method, unit, epsilon or option that makes no sense
    │   └── InputTypeError     a table or response of a type that cannot be read; a TypeError too
    ├── BudgetExceeded         a release would overspend; raised before anything is drawn
    ├── LedgerError            a ledger that was altered or cannot be read
    └── ProtocolError          something between coordinator and party
        ├── PartyUnavailable   a party did not answer
        ├── PolicyRefused      a party's own policy says no
        ├── VersionMismatch    the two sides speak different message versions
        └── WireError          bytes that are not a message expected here

Messages name the party and the column, and what was expected.
They never contain a cell value: an error message leaves the house as easily as a file does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal


class VerticopulaError(Exception):
    """Base of all errors that verticopula raises on purpose."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and where."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class SchemaError(VerticopulaError, ValueError):
    """A federation file or a table that does not fit, with every problem found."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        head = "1 problem" if count == 1 else f"{count} problems"
        super().__init__("\n".join([f"{head} found:", *(f"  - {p}" for p in self.problems)]))


class SettingsError(VerticopulaError, ValueError):
    """A setting that makes no sense: unknown method or unit, epsilon not positive, delta missing."""


class InputTypeError(SettingsError, TypeError):
    """A table or response of a type that cannot be read, such as a sparse matrix."""


class BudgetExceeded(VerticopulaError):
    """The requested releases would spend more than a party allows. Nothing was drawn.

    `unit` : at which unit; between organisations that is all that leaves a party, and the numbers stay in its log
    """

    def __init__(self, message: str, unit: str = "") -> None:
        super().__init__(message)
        self.unit = unit


class LedgerError(VerticopulaError):
    """A ledger that was altered, misses lines before its end, or cannot be read."""


class ProtocolError(VerticopulaError):
    """Something went wrong between the coordinator and a party."""


class PartyUnavailable(ProtocolError):
    """A party did not answer."""


class PolicyRefused(ProtocolError):
    """A party refused a request: its policy does not allow it, or no honest coordinator would send it."""


class VersionMismatch(ProtocolError):
    """Coordinator and party speak different versions of the messages."""


class WireError(ProtocolError):
    """Bytes that are not a message expected here, or a message that cannot be written as bytes."""


# ---- warnings ----------------------------------------------------------------------------


class NotPrivateWarning(UserWarning):
    """A result that must not leave the house."""


class WeakPrivacyWarning(UserWarning):
    """A delta that would allow everything about somebody to be told."""


class AlignedWarning(UserWarning):
    """Synthetic rows that follow the cohort's own subjects one by one."""


class CellsWarning(UserWarning):
    """Cells that do not fit their columns: told to the table's holder only, because it depends on single people."""


@dataclass(frozen=True)
class StudyWarning:
    """What a reader of a study must know: the same in a summary, on the report's page and in Python.

    Attributes
    ----------
    code : its name, which never changes
    level : `stop` (do not share or publish as it is), `care` (results may mislead), `note` (good to know)
    title, meaning, action : what is the case, what it means, and what to do about it
    """

    code: str
    level: Literal["stop", "care", "note"]
    title: str
    meaning: str
    action: str

    def __str__(self) -> str:
        return f"{self.title}. {self.meaning} {self.action}"
