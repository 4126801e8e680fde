"""From replications to the tables' cells: means, our own standard errors, the paper's figure beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from experiments.draws import Cell
from experiments.judge import JUDGE_NAMES, JudgeName, name_score
from experiments.methods import (
    HEADLINE,
    METHODS,
    ORACLE,
    ORIGINAL,
    PAPERS_OWN,
    REFINED,
    TABLES,
    UNPROTECTED,
    find_row,
)
from experiments.metrics import direction
from experiments.paper import COMPLETE, Printed, PrintedKey
from experiments.store import Replication, name_entry, read
from experiments.study import Spent
from reporting.records import write_text
from reporting.tables import csv_number, mean, standard_error, to_csv

Verdict = Literal["better", "equal", "worse", ""]
WITHIN = 2.0  # standard errors
NEAR = 0.15  # of the printed RMSE: as near as a reproduction should be
SETS_OF_HEADLINE, SETS_OF_OTHERS = 100, 30  # data sets of a cell in `make tables`
NOISELESS = 70.0  # half of it per comparison: one coin in 10^15 flips; `experiments missing` has such runs


@dataclass(frozen=True)
class Figure:
    """One number of ours.

    Attributes
    ----------
    key : its place in the tables; the method says whether ours or as printed
    judge : who found it
    error : standard error of the mean over replications; NaN with fewer than two
    failures : data sets on which there is no answer; they are left out
    spent : the largest epsilon over the replications; None for yardsticks
    printed : the paper's, None if it has none
    oracle : median of maximum likelihood on the true support: a few logistic data sets, in which that all but
        diverges, would decide its mean
    original : mean of what the same judge finds on the complete real data, NaN if that was not measured
    """

    key: PrintedKey
    judge: JudgeName
    mean: float
    error: float
    replications: int
    failures: int
    spent: Spent | None
    printed: Printed | None
    oracle: float
    original: float = math.nan

    @property
    def ahead(self) -> float:
        """By how much we are better than printed; NaN if the paper has no figure."""
        if self.printed is None:
            return math.nan
        return direction(self.key.metric) * (self.mean - self.printed.mean)

    def ahead_of(self, other: Figure) -> float:
        """By how much this is better than another figure of the same measure."""
        return direction(self.key.metric) * (self.mean - other.mean)

    @property
    def verdict(self) -> Verdict:
        """Against the printed figure, two standard errors either way counting as equal."""
        if math.isnan(self.ahead) or math.isnan(self.error):
            return ""
        if abs(self.ahead) <= WITHIN * self.error:
            return "equal"
        return "better" if self.ahead > 0.0 else "worse"

    @property
    def off_by(self) -> float:
        """The mean as a share of the printed one, less 1; NaN if there is none."""
        return math.nan if self.printed is None else self.mean / self.printed.mean - 1.0

    @property
    def is_out_of_reach(self) -> bool:
        """Printed better than what the same judge finds on the complete real data, in our reading of the design."""
        if self.printed is None or math.isnan(self.original):
            return False
        return direction(self.key.metric) * (self.printed.mean - self.original) > 0.0


@dataclass(frozen=True)
class CellRows:
    """All replications of a design cell."""

    cell: Cell
    rows: Sequence[Replication]

    def values(self, entry: str, score: str) -> list[float]:
        """What the data sets with an answer have for one score, such as `paper rmse`."""
        return [
            r.entries[entry].scores[score] for r in self.rows if entry in r.entries and score in r.entries[entry].scores
        ]

    def failures(self, entry: str, score: str) -> int:
        """Data sets without an answer."""
        found = [r.entries[entry] for r in self.rows if entry in r.entries]
        return sum(bool(e.failure) and score not in e.scores for e in found)

    def spent(self, entry: str) -> Spent | None:
        """The largest at every unit."""
        found = [s for r in self.rows if entry in r.entries and (s := r.entries[entry].spent) is not None]
        if not found:
            return None
        return Spent(*(max(getattr(s, unit) for s in found) for unit in ("client", "block", "person")), found[0].note)


def read_cells(folder: Path, record: Callable[[Cell], Mapping[str, Any]] | None = None) -> list[CellRows]:
    """Everything that is kept, by model, mechanism and size; SettingsError if it was not made as `record` says."""
    cells = []
    for path in sorted((folder / "replications").glob("*-*")):
        model, _, rest = path.name.partition("-")
        mechanism, _, n = rest.rpartition("-")
        cell = Cell(model, mechanism, int(n))  # type: ignore[arg-type]
        settings = None if record is None else record(cell)
        rows = [row for file in sorted(path.glob("[0-9]*.json")) if (row := read(file, settings)) is not None]
        cells.append(CellRows(cell, rows))
    mechanisms = (COMPLETE, "MCAR", "MAR-simple", "MAR-complex")
    return sorted(cells, key=lambda c: (c.cell.model, mechanisms.index(c.cell.mechanism), c.cell.n_subjects))


def complete_shares(cells: Iterable[CellRows]) -> dict[str, float]:
    """The mean share of complete cases by how blocks go missing."""
    shares: dict[str, list[float]] = {}
    for found in cells:
        shares.setdefault(found.cell.mechanism, []).extend(row.complete_cases for row in found.rows)
    return {mechanism: mean(values) for mechanism, values in shares.items() if mechanism != COMPLETE}


def summarise(
    table: str,
    cells: Iterable[CellRows],
    paper: Mapping[PrintedKey, Printed],
    judges: Sequence[JudgeName] = JUDGE_NAMES,
) -> list[Figure]:
    """All of one table's figures that there are replications for, by every judge."""
    design, figures = TABLES[table], []
    for found in cells:
        model, mechanism, n = found.cell
        if model not in design.models or mechanism not in design.mechanisms:
            continue
        epsilons = _epsilons_of(found, design.methods) or list(design.epsilons)
        for metric in design.metrics:
            for epsilon in epsilons:
                for method in (*design.methods, ORIGINAL, ORACLE):
                    key = PrintedKey(table, model, mechanism, n, epsilon, method, metric)
                    figures += [f for judge in judges if (f := _summarise_one(found, key, judge, paper)) is not None]
    return figures


def _summarise_one(
    found: CellRows, key: PrintedKey, judge: JudgeName, paper: Mapping[PrintedKey, Printed]
) -> Figure | None:
    """None where there is nothing."""
    fixed = key.method in UNPROTECTED or key.method not in METHODS
    entry, score = name_entry(key.method, None if fixed else key.epsilon), name_score(judge, key.metric)
    values, failures = found.values(entry, score), found.failures(entry, score)
    if not values and not failures:
        return None
    return Figure(
        key,
        judge,
        mean(values),
        standard_error(values),
        len(values),
        failures,
        found.spent(entry),
        paper.get(key._replace(method=find_row(key.method))),
        median(found.values(ORACLE, score)),
        mean(found.values(ORIGINAL, score)),
    )


def _epsilons_of(found: CellRows, methods: Sequence[str]) -> list[float]:
    names = {name for row in found.rows for name in row.entries}
    found_at = {float(e) for m, _, e in (name.partition("@") for name in names) if e and m in methods}
    return sorted(epsilon for epsilon in found_at if epsilon < NOISELESS)


def median(values: Sequence[float]) -> float:
    """NaN of nothing."""
    return float(np.median(values)) if len(values) else math.nan


def sum_hours(cells: Iterable[CellRows], *, in_full: bool = False) -> dict[str, float]:
    """Processor hours behind each table; Tables 1 to 3 share what stands at Table 1.

    Parameters
    ----------
    in_full : what `make tables` takes for all data sets, by the last one of every method: earlier ones may have been
        measured with slower code
    """
    hours = dict.fromkeys(TABLES, 0.0)
    for found in cells:
        for name, design in TABLES.items():
            if name in ("table2", "table3") or found.cell.model not in design.models:
                continue
            if found.cell.mechanism in design.mechanisms:
                hours[name] += _sum_seconds(found.rows, design.methods, in_full=in_full) / 3600.0
    return {name: value for name, value in hours.items() if value}


def _sum_seconds(rows: Sequence[Replication], methods: Sequence[str], *, in_full: bool) -> float:
    """Of these methods in one cell; noiseless runs, which are no part of the tables, count only as spent."""
    seconds: dict[str, list[float]] = {}
    for row in rows:
        for name, entry in row.entries.items():
            if name.partition("@")[0] in methods:
                seconds.setdefault(name, []).append(entry.seconds)
    if not in_full:
        return sum(map(sum, seconds.values()))
    tables = {name: own for name, own in seconds.items() if float(name.partition("@")[2] or 0.0) < NOISELESS}
    return sum(own[-1] * _count_in_full(name.partition("@")[0]) for name, own in tables.items())


def _count_in_full(method: str) -> int:
    return SETS_OF_HEADLINE if method in HEADLINE else SETS_OF_OTHERS


def write_csv(path: Path, figures: Sequence[Figure]) -> None:
    """Tidy: the columns of the paper's tables, who judged, and how many replications there were."""
    complete = all(figure.key.mechanism == COMPLETE for figure in figures)
    head = ["table", "model", *([] if complete else ["mechanism"]), "N", "epsilon", "method", "judge", "metric"]
    rows = []
    for figure in figures:
        key = figure.key
        where = [key.table, key.model, *([] if complete else [key.mechanism]), key.n_subjects, f"{key.epsilon:g}"]
        numbers = [csv_number(figure.mean), csv_number(figure.error)]
        rows.append([*where, key.method, figure.judge, key.metric, *numbers, figure.replications])
    write_text(path, to_csv([*head, "mean", "se", "replications"], rows))


def count_verdicts(figures: Iterable[Figure]) -> dict[str, int]:
    """How many cells are better, equal within error and worse; and how many of the worse ones are out of reach."""
    judged = [figure for figure in count_once(figures) if figure.verdict]
    counts = {verdict: sum(f.verdict == verdict for f in judged) for verdict in ("better", "equal", "worse")}
    return counts | {"out of reach": sum(f.verdict == "worse" and f.is_out_of_reach for f in judged)}


def count_once(figures: Iterable[Figure]) -> list[Figure]:
    """Without repetitions: the paper prints what has no protection beside every epsilon."""
    seen: set[tuple[PrintedKey, JudgeName]] = set()
    kept = []
    for figure in figures:
        key = figure.key._replace(epsilon=math.inf), figure.judge
        if figure.key.method not in UNPROTECTED or key not in seen:
            kept.append(figure)
        seen.add(key)
    return kept


def count_near(figures: Iterable[Figure]) -> tuple[int, int]:
    """Cells whose RMSE is within 15 % of the printed one, and all that have a printed one."""
    off = [abs(f.off_by) for f in figures if f.key.metric == "rmse" and not math.isnan(f.off_by)]
    return sum(value <= NEAR for value in off), len(off)


def count_refined(figures: Iterable[Figure], paper: Mapping[PrintedKey, Printed]) -> dict[tuple[str, str], list[bool]]:
    """By model and method, cell by cell: is the refined method better than the best of the paper's own?

    Blocks missing at random; every measure of every size is a cell.
    """
    found: dict[tuple[str, str], list[bool]] = {}
    for figure in figures:
        key = figure.key
        if key.method not in REFINED or not key.mechanism.startswith("MAR") or math.isnan(figure.mean):
            continue
        sign = direction(key.metric)
        where = (key.model, key.mechanism, key.n_subjects, key.epsilon, key.metric)
        own = [
            sign * printed.mean
            for k, printed in paper.items()
            if (k.model, k.mechanism, k.n_subjects, k.epsilon, k.metric) == where and k.method in PAPERS_OWN
        ]
        if own:
            found.setdefault((key.model, key.method), []).append(sign * figure.mean > max(own))
    return found
