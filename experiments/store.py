"""What finished replications found, one small JSON file each: whole or not there, so that a run can be taken up again.

A file belongs to one data set (`<folder>/<cell>/<replication>.json`) and has one entry per method and epsilon.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from experiments.draws import Cell
from experiments.study import Spent
from verticopula.errors import SettingsError

FORMAT = 1


@dataclass(frozen=True)
class Entry:
    """One method's answer on one data set.

    Attributes
    ----------
    scores : by measure; empty where the method failed
    failure : why
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
    entries: dict[str, Entry] = field(default_factory=dict)


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
    raw = read_json(path, settings)
    if raw.get("format") != FORMAT:
        raise SettingsError(f"{path} was made by another version: take another --out")
    entries = {
        name: Entry(e["scores"], _read_spent(e["spent"]), e["failure"], e["seconds"])
        for name, e in raw["entries"].items()
    }
    return Replication(raw["settings"], raw["complete_cases"], entries)


def read_json(path: Path, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """An object that `write_text` wrote; SettingsError if it is none, or was made with other `settings` than these."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raw = None
    if not isinstance(raw, dict):
        raise SettingsError(f"{path} is damaged: delete it, and it is made again")
    if settings is not None and raw.get("settings") != settings:
        raise SettingsError(f"{path} was made with other settings ({raw.get('settings')}): take another --out")
    return raw


def write(path: Path, found: Replication) -> None:
    """Keep a replication; a reader sees the old file or the new one, never a part."""
    raw = {
        "format": FORMAT,
        "settings": found.settings,
        "complete_cases": found.complete_cases,
        "entries": {
            name: {
                "scores": {measure: round(value, 6) for measure, value in entry.scores.items()},
                "spent": None if entry.spent is None else {k: _plain(v) for k, v in asdict(entry.spent).items()},
                "failure": entry.failure,
                "seconds": round(entry.seconds, 3),
            }
            for name, entry in sorted(found.entries.items())
        },
    }
    write_text(path, json.dumps(raw, separators=(",", ":"), allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def _plain(value: Any) -> Any:
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def _read_spent(raw: Mapping[str, Any] | None) -> Spent | None:
    if raw is None:
        return None
    return Spent(*(float(raw[unit]) for unit in ("client", "block", "person")), raw["note"])
