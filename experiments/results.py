"""From replications to the tables' cells: means, our own standard errors, the paper's figure beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from experiments.draws import Cell
from experiments.methods import ORACLE, TABLES, UNPROTECTED
from experiments.metrics import direction
from experiments.paper import COMPLETE, Printed, PrintedKey
from experiments.store import Replication, name_entry, read
from experiments.study import Spent
from reporting.records import write_text
from reporting.tables import csv_number, mean, standard_error, to_csv

Verdict = Literal["better", "equal", "worse", ""]
WITHIN = 2.0  # standard errors
PAPERS_OWN = ("VCDS", "EVCDS", "IEVCDS")
REFINED = ("Refined", "Refined-aligned")
NOISELESS = 70.0  # half of it per comparison: one coin in 10^15 flips; `experiments missing` has such runs


@dataclass(frozen=True)
class Figure:
    """One number of ours.

    Attributes
    ----------
    error : standard error of the mean over replications; NaN with fewer than two
    failures : data sets on which the method gave no answer; they are left out
    spent : the largest epsilon over the replications; None for the oracle
    printed : the paper's, None if it has none
    oracle : median of maximum likelihood on the true support: a few logistic data sets, in which that all but
        diverges, would decide its mean
    """

    key: PrintedKey
    mean: float
    error: float
    replications: int
    failures: int
    spent: Spent | None
    printed: Printed | None
    oracle: float

    @property
    def lead(self) -> float:
        """By how many of our standard errors we are better than printed; NaN if that cannot be said.

        Infinite where all replications agree (an FDR of 0 in each) and the paper has another figure.
        """
        if self.printed is None or math.isnan(self.error):
            return math.nan
        sign = direction(self.key.metric)
        ahead = sign * (self.mean - self.printed.mean)
        if self.error > 0.0 or ahead == 0.0:
            return ahead / (self.error or 1.0)
        return math.copysign(math.inf, ahead)

    @property
    def verdict(self) -> Verdict:
        """Against the printed figure, two standard errors either way counting as equal."""
        if math.isnan(self.lead):
            return ""
        if abs(self.lead) <= WITHIN:
            return "equal"
        return "better" if self.lead > 0.0 else "worse"

    @property
    def beyond_oracle(self) -> bool:
        """Printed better than the oracle, in our reading of the design."""
        if self.printed is None or math.isnan(self.oracle):
            return False
        sign = direction(self.key.metric)
        return sign * (self.printed.mean - self.oracle) > 0.0

    @property
    def as_good(self) -> bool:
        """At least as good as the printed figure, or as the oracle where that is worse, within two standard errors."""
        if self.printed is None or math.isnan(self.error):
            return False
        sign = direction(self.key.metric)
        bars = [sign * self.printed.mean] + ([] if math.isnan(self.oracle) else [sign * self.oracle])
        return sign * self.mean >= min(bars) - WITHIN * self.error


@dataclass(frozen=True)
class CellRows:
    """All replications of a design cell."""

    cell: Cell
    rows: Sequence[Replication]

    def values(self, entry: str, metric: str) -> list[float]:
        return [r.entries[entry].scores[metric] for r in self.rows if entry in r.entries and r.entries[entry].scores]

    def failures(self, entry: str) -> int:
        return sum(entry in r.entries and bool(r.entries[entry].failure) for r in self.rows)

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


def summarise(table: str, cells: Iterable[CellRows], paper: dict[PrintedKey, Printed]) -> list[Figure]:
    """All of one table's figures that there are replications for."""
    design, figures = TABLES[table], []
    for found in cells:
        model, mechanism, n = found.cell
        if model not in design.models or mechanism not in design.mechanisms:
            continue
        epsilons = _epsilons_of(found, design.methods) or list(design.epsilons)
        for metric in design.metrics:
            oracle = median(found.values(ORACLE, metric))
            for epsilon in epsilons:
                for method in (*design.methods, ORACLE):
                    entry = name_entry(method, None if method in (*UNPROTECTED, ORACLE) else epsilon)
                    values = found.values(entry, metric)
                    if not values and not found.failures(entry):
                        continue
                    key = PrintedKey(table, model, mechanism, n, epsilon, method, metric)
                    figures.append(
                        Figure(
                            key,
                            mean(values),
                            standard_error(values),
                            len(values),
                            found.failures(entry),
                            found.spent(entry),
                            paper.get(key),
                            oracle,
                        )
                    )
    return figures


def _epsilons_of(found: CellRows, methods: Sequence[str]) -> list[float]:
    names = {name for row in found.rows for name in row.entries}
    found_at = {float(e) for m, _, e in (name.partition("@") for name in names) if e and m in methods}
    return sorted(epsilon for epsilon in found_at if epsilon < NOISELESS)


def median(values: Sequence[float]) -> float:
    return float(np.median(values)) if len(values) else math.nan


def write_csv(path: Path, figures: Sequence[Figure]) -> None:
    """Tidy: the columns of the paper's tables, and how many replications there were."""
    complete = all(figure.key.mechanism == COMPLETE for figure in figures)
    head = ["table", "model", *([] if complete else ["mechanism"]), "N", "epsilon", "method", "metric"]
    rows = []
    for figure in figures:
        key = figure.key
        where = [key.table, key.model, *([] if complete else [key.mechanism]), key.n_subjects, f"{key.epsilon:g}"]
        numbers = [csv_number(figure.mean), csv_number(figure.error)]
        rows.append([*where, key.method, key.metric, *numbers, figure.replications])
    write_text(path, to_csv([*head, "mean", "se", "replications"], rows))


def count_verdicts(figures: Iterable[Figure]) -> dict[str, int]:
    """How many cells are better, equal within error and worse; and how many of these are printed beyond the oracle."""
    judged = [figure for figure in count_once(figures) if figure.verdict]
    counts = {verdict: sum(f.verdict == verdict for f in judged) for verdict in ("better", "equal", "worse")}
    return counts | {"beyond oracle": sum(f.verdict == "worse" and f.beyond_oracle for f in judged)}


def count_once(figures: Iterable[Figure]) -> list[Figure]:
    """Without repetitions: the paper prints what has no protection beside every epsilon."""
    seen: set[PrintedKey] = set()
    kept = []
    for figure in figures:
        key = figure.key._replace(epsilon=math.inf)
        if key.method not in UNPROTECTED or key not in seen:
            kept.append(figure)
        seen.add(key)
    return kept


def count_by_method(figures: Iterable[Figure]) -> dict[str, dict[str, int]]:
    """The verdicts of every method that the paper has, and how many of its cells are as good as they can be."""
    by_method: dict[str, list[Figure]] = {}
    for figure in count_once(figures):
        if figure.verdict:
            by_method.setdefault(figure.key.method, []).append(figure)
    return {
        method: {"cells": len(own), **count_verdicts(own), "as good": sum(f.as_good for f in own)}
        for method, own in by_method.items()
    }


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
