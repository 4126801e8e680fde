"""The copula of a fitted study where tables tilt it: synthetic rows in a column's own values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from verticopula.schema.columns import ColumnKey
from verticopula.schema.conditions import Condition, Conditions
from verticopula.stats.conditional_draws import RegionBuilder
from verticopula.stats.copula import NO_CONDITIONS, ROWS_AT_ONCE, FittedCopula, check_mass, find_interval
from verticopula.stats.marginals import Marginal
from verticopula.stats.tilting.conditional_rows import CellCondition, fill_rows, rows_given
from verticopula.stats.tilting.gibbs_kernel import RowSweeper
from verticopula.stats.tilting.moving_columns import sweep_rows
from verticopula.stats.tilting.pooling import PooledColumn
from verticopula.stats.tilting.table_prior import latent_cuts
from verticopula.stats.tilting.tilted_fit import draw_rows
from verticopula.stats.tilting.tilted_model import Pair, TiltedCopula, decode_rows, start_rows
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING as TUNING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_THREADS = 8
_INSIDE = 1e-9


@dataclass(frozen=True)
class AskedColumn:
    """A condition on one column, in values and in the model's terms.

    Attributes
    ----------
    spread : for a column without a latent, the grades of its pooled cells and both ends of the condition's
    """

    condition: Condition
    cells: CellCondition
    spread: tuple[Floats, float, float] | None = None

    def keep(self, values: Floats, pooled: NDArray[np.uint8], margin: Marginal, rng: np.random.Generator) -> Floats:
        """Drawn values as the condition has them: inside of a pooled cell it may hold for a part only."""
        if self.spread is not None and not self.condition.is_single:
            grades, low, high = self.spread
            first, last = np.maximum(grades[pooled], low), np.minimum(grades[pooled + 1], high)
            values = margin.quantile(first + (last - first) * rng.random(pooled.size))
        return np.clip(values, self.condition.low, self.condition.high)


NOTHING_ASKED: Mapping[ColumnKey, AskedColumn] = MappingProxyType({})


@dataclass(frozen=True)
class TiltedStudyCopula(FittedCopula):
    """A tilted copula with its columns' margins, ready to sample.

    Attributes
    ----------
    margins : of values; how many are empty stands in `model`
    correlation : latent correlations that go with the model, for readers; rows follow `model`
    model : cells of all columns, latents, tables
    targets : pair -> the posterior table
    """

    model: TiltedCopula
    targets: Mapping[Pair, Floats]

    def sample(
        self,
        n_rows: int,
        rng: np.random.Generator,
        conditions: Conditions = NO_CONDITIONS,
        *,
        complete: bool = False,
    ) -> dict[ColumnKey, Floats]:
        """Synthetic rows: values, or codes; not a number for empty.

        Without conditions they have next to no sampling error in their tables; with some they are independent.

        Parameters
        ----------
        conditions : what rows have in some columns
        complete : whether values are drawn for what would be empty
        """
        asked = {key: self._ask(key, own) for key, own in conditions.items()}
        return self._draw(n_rows, rng, calibrated=True, asked=asked, complete=complete)

    def draw_people(self, n_rows: int, rng: np.random.Generator) -> dict[ColumnKey, Floats]:
        """Rows that are independent of each other, as people are."""
        return self._draw(n_rows, rng, calibrated=False)

    def _draw(
        self,
        n_rows: int,
        rng: np.random.Generator,
        *,
        calibrated: bool,
        asked: Mapping[ColumnKey, AskedColumn] = NOTHING_ASKED,
        complete: bool = False,
    ) -> dict[ColumnKey, Floats]:
        out = {key: np.empty(n_rows) for key in self.layout.keys}
        restored = [
            without_empties(column, self.margins[key]) if complete or key in asked else column
            for key, column in zip(self.layout.keys, self.model.columns, strict=True)
        ]
        for start in range(0, n_rows, ROWS_AT_ONCE):
            n = min(ROWS_AT_ONCE, n_rows - start)
            rows = self._rows_given(asked, n, rng) if asked else self._rows(n, rng, calibrated=calibrated)
            if complete:
                fill_rows(self.model, rows, rng)
            cells, inside = decode_rows(self.model, rows, rng, restored)
            for j, key in enumerate(self.layout.keys):
                values = values_of(self.model.columns[j], self.margins[key], cells[:, j], inside[:, j])
                if key in asked:
                    values = asked[key].keep(values, rows.y[:, j], self.margins[key], rng)
                out[key][start : start + n] = values
        return out

    def _ask(self, key: ColumnKey, condition: Condition) -> AskedColumn:
        """A condition in the model's terms; SettingsError if the fitted margin does not allow it."""
        j, margin = self.layout.keys.index(key), self.margins[key]
        column, latent = self.model.columns[j], self.model.latent_of[j]
        grades = pooled_grades(column, margin)
        if margin.column.kind == "nominal":
            check_mass(key, float(margin.probabilities[int(condition.low)]))
            cell = int(column.groups[int(condition.low)])
            low, high = grades[cell], grades[cell + 1]
        else:
            low, high = find_interval(key, margin, condition)
        met = np.zeros(column.n_cells)
        if low < high:
            overlap = np.minimum(grades[1:], high) - np.maximum(grades[:-1], low)
            met[: column.n_filled] = np.maximum(overlap, 0.0) / np.maximum(np.diff(grades), 1e-12)
        else:
            met[min(int(np.searchsorted(grades[1:], low, side="right")), column.n_filled - 1)] = 1.0
        if latent < 0:
            return AskedColumn(condition, CellCondition(met), (grades, low, high))
        ends = ndtri(np.interp([low, high], grades, ndtr(latent_cuts(column))))
        return AskedColumn(condition, CellCondition(met, (float(ends[0]), float(ends[1]))))

    def _rows_given(self, asked: Mapping[ColumnKey, AskedColumn], n_rows: int, rng: np.random.Generator) -> RowSweeper:
        columns = {self.layout.keys.index(key): own.cells for key, own in asked.items()}
        region = RegionBuilder()
        for j, own in columns.items():
            if own.latents is not None:
                region.bound_or_fix(int(self.model.latent_of[j]), *own.latents)
        return rows_given(self.model, columns, region.build(), n_rows, rng=rng, threads=usable_threads())

    def _rows(self, n_rows: int, rng: np.random.Generator, *, calibrated: bool) -> RowSweeper:
        threads = usable_threads()
        if calibrated:
            return draw_rows(self.model, self.targets, n_rows, rng=rng, threads=threads)
        rows = start_rows(self.model, n_rows, rng, threads, spread=False)
        sweep_rows(self.model, rows, TUNING.fresh_sweeps, rng)
        return rows


def values_of(column: PooledColumn, margin: Marginal, cells: Ints, inside: Floats) -> Floats:
    """Values, or codes, of public cells and positions inside of them; not a number for the cell of an empty value.

    An ordered column's value stands in its margin where cell and position stand in the model's: the two may differ.
    """
    n_cells = margin.probabilities.size
    filled = np.minimum(cells, n_cells - 1)
    if margin.column.kind in ("continuous", "count"):
        shares = np.maximum(column.probabilities[:n_cells], 0.0)
        ends = np.cumsum(shares) / max(float(shares.sum()), 1e-12)
        below = np.where(filled > 0, ends[filled - 1], 0.0)
        grades = below + np.clip(inside, _INSIDE, 1.0 - _INSIDE) * (ends[filled] - below)
        values = margin.quantile(np.clip(grades, _INSIDE, 1.0 - _INSIDE))
    else:
        values = filled.astype(np.float64)
    return np.where(cells < n_cells, values, np.nan)


def without_empties(column: PooledColumn, margin: Marginal) -> PooledColumn:
    """The column without empty values that are pooled with others."""
    p = column.probabilities.copy()
    p[margin.probabilities.size :] = 0.0
    return replace(column, probabilities=p)


def pooled_grades(column: PooledColumn, margin: Marginal) -> Floats:
    """(filled + 1,) grades of the values between which the pooled cells of an ordered column lie."""
    n = margin.probabilities.size
    mass = np.bincount(column.groups[:n], weights=np.maximum(column.probabilities[:n], 0.0), minlength=column.n_filled)
    ends = np.cumsum(mass) / max(float(mass.sum()), 1e-12)
    return np.concatenate([[0.0], ends[:-1], [1.0]])


def usable_threads() -> int:
    """Processors that this process may use, at most eight."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(own, _MOST_THREADS)
