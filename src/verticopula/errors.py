"""Every exception verticopula raises on purpose, in one tree; and its warnings.

::

    VerticopulaError
    ├── SchemaError            the federation file or a table does not fit; lists every problem
    ├── SettingsError          a method, unit, epsilon or option that makes no sense
    │   └── InputTypeError     a table or response of a type that cannot be read; a TypeError too
    ├── BudgetExceeded         a release would overspend; raised before anything is drawn
    ├── EngineError            the cluster that computes for a party does not answer, or cannot do what is asked
    ├── LedgerError            a ledger that was altered or cannot be read
    └── ProtocolError          something between coordinator and party
        ├── PartyUnavailable   a party did not answer
        ├── PolicyRefused      a party's own policy says no
        ├── ConsentPending     a party's stewards were asked, and have not decided yet
        ├── VersionMismatch    the two sides speak different message versions
        └── WireError          bytes that are not a message expected here

Five more stand where they are raised, because nobody else catches them: StudyNotFittedError (estimators; it is also
scikit-learn's NotFittedError, which is slow to import), StewardsAsked and StudyCancelled (the coordinator's),
TooManyTries and BodyTooLarge (the console's).

Messages name the party and the column, and what was expected.
They never contain a cell value: an error message leaves the house as easily as a file does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal


class VerticopulaError(Exception):
    """Base of all errors that verticopula raises on purpose.

    *What to do:* the message says what was expected. If none of the kinds below fits, it is about a file or a program
    on this machine.
    """


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, and where.

    Attributes
    ----------
    where : file, party, column
    what : what is wrong, and what was expected
    is_open : nothing is wrong, but a question is not answered yet
    """

    where: str
    what: str
    is_open: bool = False

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class SchemaError(VerticopulaError, ValueError):
    """A federation file or a table that does not fit, with every problem found.

    *What to do:* mend the file that each line names. `verticopula check` looks again, and spends nothing.

    Parameters
    ----------
    problems : all that was found, kept as the attribute `problems`
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        head = "1 problem" if count == 1 else f"{count} problems"
        super().__init__("\n".join([f"{head} found:", *(f"  - {p}" for p in self.problems)]))


class SettingsError(VerticopulaError, ValueError):
    """A setting that makes no sense: unknown method or unit, epsilon not positive, delta missing.

    *What to do:* change the option or the argument that the message names. Nothing was spent.
    """


class InputTypeError(SettingsError, TypeError):
    """A table or response of a type that cannot be read, such as a sparse matrix.

    *What to do:* give data frames (pandas, polars or pyarrow), or what the message names.
    """


class BudgetExceeded(VerticopulaError):
    """The requested releases would spend more than a party allows. Nothing was drawn.

    *What to do:* ask for less epsilon, or ask the party's steward. What was spent never comes back.

    Parameters
    ----------
    message : which party and which cap
    unit : at which unit; between organisations that is all that leaves a party, and the numbers stay in its log
    """

    def __init__(self, message: str, unit: str = "") -> None:
        super().__init__(message)
        self.unit = unit


class LedgerError(VerticopulaError):
    """A ledger that was altered, misses lines before its end, or cannot be read.

    *What to do:* put back the newest copy of the whole folder. Never mend a ledger by hand.
    """


class EngineError(VerticopulaError):
    """The cluster that computes for a party does not answer, does not fit, or cannot do what is asked.

    *What to do:* what the message says about scheduler and workers; or run the study with the local engine. What the
    ledger has stays spent, and nothing more is.
    """


class ProtocolError(VerticopulaError):
    """Something went wrong between the coordinator and a party.

    *What to do:* look at the log of the party that is named. An honest coordinator and an honest party of one version
    never cause most of these: somebody changed a message, a table or a file while the study ran.
    """


class PartyUnavailable(ProtocolError):
    """A party did not answer.

    *What to do:* start the party again, then `verticopula submit ... --resume NAME`. Nothing is lost or charged twice.
    """


class PolicyRefused(ProtocolError):
    """A party refused a request: its policy does not allow it, or no honest coordinator would send it.

    *What to do:* ask the party's steward. A policy can be changed at any time, and the study asked for again.
    """


class ConsentPending(ProtocolError):
    """A party's stewards were asked, and have not decided yet. Nothing is wrong.

    *What to do:* wait. `verticopula status` says for whom; the study goes on by itself once they have decided.

    Parameters
    ----------
    message : whose stewards were asked
    since : when they were asked, in seconds since 1970
    """

    def __init__(self, message: str, since: float = 0.0) -> None:
        super().__init__(message)
        self.since = since


class VersionMismatch(ProtocolError):
    """Coordinator and party speak different versions of the messages.

    *What to do:* install the same version of verticopula everywhere.
    """


class WireError(ProtocolError):
    """Bytes that are not a message expected here, or a message that cannot be written as bytes.

    *What to do:* as for `VersionMismatch`. If versions agree, somebody else is talking on this connection.
    """


# ---- warnings ----------------------------------------------------------------------------


class NotPrivateWarning(UserWarning):
    """A result that must not leave the house.

    *What to do:* run again without a seed, and with public bounds, before anything is passed on.
    """


class WeakPrivacyWarning(UserWarning):
    """A delta that would allow everything about somebody to be told.

    *What to do:* take a delta well below one over the number of people.
    """


class WeakResultWarning(UserWarning):
    """Correlations, or some of them, that noise hides at this budget.

    *What to do:* look at `summary()`. Rest no conclusion on what it names; more subjects, fewer columns or a larger
    epsilon would help.
    """


class AlignedWarning(UserWarning):
    """Synthetic rows that follow the cohort's own subjects one by one.

    *What to do:* sample without `aligned` for anything that leaves the house.
    """


class CellsWarning(UserWarning):
    """Cells that do not fit their columns: told to the table's holder only, because it depends on single people.

    *What to do:* look at the rows that are named. Mend the table, or the bounds or categories in the federation file.
    """


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
