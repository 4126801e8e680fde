"""What a vault has removed of studies that ended long ago, by line of its history (`chained_file.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from verticopula.errors import LedgerError

REMOVALS_FILE = "removed.jsonl"


@dataclass(frozen=True)
class RemovalEvent:
    """One study whose replies were removed.

    Attributes
    ----------
    time : seconds since 1970
    stored : how many replies there were
    requests : the ledger's names of all requests that are never answered again
    by : who removed them
    """

    time: float
    party: str
    study: str
    stored: int
    requests: tuple[str, ...]
    by: str


def read_removal(line: Mapping[str, Any]) -> RemovalEvent:
    """A line of the history; LedgerError where it is none.

    Parameters
    ----------
    line : as `ChainedFile.lines` has it
    """
    try:
        own = float(line["time"]), str(line["party"]), str(line["study"]), int(line["stored"])
        return RemovalEvent(*own, tuple(map(str, line["requests"])), str(line["by"]))
    except (KeyError, TypeError, ValueError):
        raise LedgerError(f"{REMOVALS_FILE} has a line of a later version of verticopula") from None


def removed_keys(lines: Iterable[Mapping[str, Any]]) -> set[str]:
    """The requests that are never answered again, after these lines."""
    return {key for line in lines for key in read_removal(line).requests}
