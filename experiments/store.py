"""What finished replications found, one small JSON file each: whole or not there, so that a run can be taken up again.

A file belongs to one data set (`<folder>/<cell>/<replication>.json`) and has one entry per method and epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from experiments.draws import Cell
from experiments.study import Spent
from reporting.records import Record


@dataclass(frozen=True)
class MethodScores:
    """One method's answer on one data set.

    Attributes
    ----------
    scores : by judge and measure (`paper rmse`); without those of a judge that failed or was not asked
    failure : why scores are missing
    seconds : of processor time, judging included
    """

    scores: Mapping[str, float]
    spent: Spent | None = None
    failure: str = ""
    seconds: float = 0.0


@dataclass
class Replication:
    """One data set: how much of it is missing, and what every method found."""

    settings: Mapping[str, Any]
    complete_cases: float = 1.0
    entries: dict[str, MethodScores] = field(default_factory=dict)


def name_entry(method: str, epsilon: float | None) -> str:
    """The key of an entry: `VCDS@1`, or the method alone where epsilon does not matter."""
    return method if epsilon is None else f"{method}@{epsilon:g}"


def locate(folder: Path, cell: Cell, replication: int) -> Path:
    """Where a replication is kept."""
    return folder / "replications" / cell.name / f"{replication:04d}.json"


def read(path: Path, settings: Mapping[str, Any] | None = None) -> Replication | None:
    """What is there, None if nothing is; SettingsError if it was made with other settings than these."""
    if not path.exists():
        return None
    record = Record.read(path, settings)
    entries = {
        name: MethodScores(e["scores"], _read_spent(e["spent"]), e["failure"], e["seconds"])
        for name, e in record.results["entries"].items()
    }
    return Replication(record.settings, record.results["complete_cases"], entries)


def write(path: Path, found: Replication) -> None:
    """Keep a replication."""
    entries = {
        name: {
            "scores": {measure: round(value, 6) for measure, value in entry.scores.items()},
            "spent": None if entry.spent is None else plain_spent(entry.spent),
            "failure": entry.failure,
            "seconds": round(entry.seconds, 3),
        }
        for name, entry in sorted(found.entries.items())
    }
    results = {"complete_cases": found.complete_cases, "entries": entries}
    Record(path.parent.name, found.settings, results).save(path)


def plain_spent(spent: Spent) -> dict[str, Any]:
    """For JSON, which has no infinity."""
    return {name: "inf" if value == math.inf else value for name, value in asdict(spent).items()}


def _read_spent(raw: Mapping[str, Any] | None) -> Spent | None:
    if raw is None:
        return None
    return Spent(*(float(raw[unit]) for unit in ("client", "block", "person")), raw["note"])
