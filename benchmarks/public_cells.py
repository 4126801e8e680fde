"""The public grid: which cells it has, and where each is kept.

A cell is one table, cut among so many parties, complete or with blocks missing, and rows of one source at one epsilon
with one seed. A file belongs to one data set (`public/<setting>/<seed>.json`) and has one entry per source and epsilon:
whole or not there, so that a run that was interrupted goes on.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reporting.records import Record

CODED = ("nltcs", "acs", "br2000", "adult")
MIXED = ("adult_raw", "shoppers", "bean", "magic", "sba")
TABLES = (*CODED, *MIXED)
TUNED_ON = ("bean", "magic")  # constants of the tilted copula were chosen on them (stats/tilting/tuning_tilted.py)
LOOKED_AT = ("shoppers", "sba")  # with seed 0, which is reported, and 10 and 11, before a rule was thought of
EPSILONS = (0.2, 0.8, 3.2, 10.0)
CURATOR_EPSILONS = (0.8, 3.2)
DELTA = 1e-5
AREA_BUDGET = (3.0, 1e-6)  # that of the numbers to reach for models
PARTIES = (2, 4)
MISSING = 0.3

STRICT, INDEPENDENT, RESAMPLED, REAL, SDV = "strict", "independent", "resampled", "real", "sdv"
RELATIONS = ("added", "replaced", "shares")
AIM = tuple(f"aim-{relation}" for relation in RELATIONS)
MST = tuple(f"mst-{relation}" for relation in RELATIONS)
IMPUTED, COMPLETE_CASES = "aim-imputed", "aim-complete"
CURATORS = (*AIM, *MST, IMPUTED, COMPLETE_CASES)
VERTIMRF = "vertimrf"  # of two parties without a curator; its authors' code is for the columns of NLTCS alone
SOURCES = (REAL, RESAMPLED, INDEPENDENT, SDV, STRICT, *CURATORS, VERTIMRF)


@dataclass(frozen=True)
class PublicSetting:
    """A table, among how many parties it is cut, and whether blocks of people are missing."""

    table: str
    parties: int
    missing: bool

    @property
    def name(self) -> str:
        return f"{self.table}-{self.parties}-{'missing' if self.missing else 'complete'}"


@dataclass(frozen=True)
class PublicCell:
    """One measurement; `epsilon` is None where no privacy is."""

    setting: PublicSetting
    source: str
    epsilon: float | None
    seed: int

    @property
    def entry(self) -> str:
        return self.source if self.epsilon is None else f"{self.source}@{self.epsilon:g}"

    @property
    def delta(self) -> float:
        return AREA_BUDGET[1] if self.epsilon == AREA_BUDGET[0] else DELTA


def list_epsilons(setting: PublicSetting, source: str) -> tuple[float | None, ...]:
    """At which a source is asked for in a setting; none where it has nothing to say there."""
    if source in (REAL, RESAMPLED, SDV):
        return (None,)
    if source in (IMPUTED, COMPLETE_CASES):
        return CURATOR_EPSILONS if setting.table in CODED and setting.parties == 2 and setting.missing else ()
    if source == VERTIMRF:
        return CURATOR_EPSILONS if setting == PublicSetting("nltcs", 2, False) else ()
    if source in CURATORS:
        return CURATOR_EPSILONS if setting.table in CODED and setting.parties == 2 and not setting.missing else ()
    asked = setting.table in MIXED and setting.parties == 4 and setting.missing
    return (*EPSILONS, AREA_BUDGET[0]) if asked else EPSILONS


def list_cells(
    tables: Sequence[str],
    sources: Sequence[str],
    *,
    seeds: int,
    parties: Sequence[int] = PARTIES,
    missing: Sequence[bool] = (False, True),
    epsilons: Sequence[float] | None = None,
) -> Iterator[PublicCell]:
    """All cells, the first seed of each first."""
    for seed in range(seeds):
        for source in sources:
            for table in tables:
                for setting in (PublicSetting(table, k, gaps) for k in parties for gaps in missing):
                    for epsilon in list_epsilons(setting, source):
                        if epsilon is None or epsilons is None or epsilon in epsilons:
                            yield PublicCell(setting, source, epsilon, seed)


def locate(folder: Path, setting: PublicSetting, seed: int) -> Path:
    """Where a data set's entries are kept."""
    return folder / "public" / setting.name / f"{seed:04d}.json"


def read_entries(folder: Path, setting: PublicSetting, seed: int) -> dict[str, Mapping[str, Any]]:
    """What is kept of a data set, by entry."""
    path = locate(folder, setting, seed)
    return dict(Record.read(path).results["entries"]) if path.exists() else {}


def write_entry(folder: Path, cell: PublicCell, found: Mapping[str, Any]) -> None:
    """Keep one cell beside the others of its data set."""
    path = locate(folder, cell.setting, cell.seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    settings = {"missing": MISSING if cell.setting.missing else 0.0, "seed": cell.seed}
    with open(
        path.parent / ".lock", "w", encoding="utf-8"
    ) as lock:  # two runs may measure other sources of one data set
        fcntl.flock(lock, fcntl.LOCK_EX)
        entries = read_entries(folder, cell.setting, cell.seed) | {cell.entry: found}
        Record(cell.setting.name, settings, {"entries": dict(sorted(entries.items()))}).save(path)


def read_all(folder: Path, setting: PublicSetting, entry: str) -> list[Mapping[str, Any]]:
    """What all seeds found for one entry, in their order."""
    kept = sorted((folder / "public" / setting.name).glob("*.json"))
    found = (Record.read(path).results["entries"].get(entry) for path in kept)
    return [one for one in found if one is not None]
