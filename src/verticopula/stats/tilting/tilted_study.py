"""The copula of a fitted study where tables tilt it: synthetic rows in a column's own values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.schema.federation import ColumnKey
from verticopula.stats.copula import FittedCopula
from verticopula.stats.marginals import Marginal
from verticopula.stats.tilting.gibbs_kernel import RowSweeper
from verticopula.stats.tilting.pooling import PooledColumn
from verticopula.stats.tilting.tilted_fit import draw_rows
from verticopula.stats.tilting.tilted_model import Pair, TiltedCopula, decode_rows, start_rows
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING as TUNING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROWS_AT_ONCE = 1 << 16
_MOST_THREADS = 8
_INSIDE = 1e-9


@dataclass(frozen=True)
class TiltedStudyCopula(FittedCopula):
    """A tilted copula with its columns' margins, ready to sample.

    Attributes
    ----------
    marginals : of values; how many are empty stands in `model`
    correlation : latent correlations that go with the model, for readers; rows follow `model`
    model : cells of all columns, latents, tables
    targets : pair -> the table that was believed
    """

    model: TiltedCopula
    targets: Mapping[Pair, Floats]

    def sample(self, n_rows: int, rng: np.random.Generator) -> dict[ColumnKey, Floats]:
        """Synthetic rows with next to no sampling error in their tables: values, or codes; not a number for empty."""
        return self._draw(n_rows, rng, settled=True)

    def draw_people(self, n_rows: int, rng: np.random.Generator) -> dict[ColumnKey, Floats]:
        """Rows that are independent of each other, as people are."""
        return self._draw(n_rows, rng, settled=False)

    def _draw(self, n_rows: int, rng: np.random.Generator, *, settled: bool) -> dict[ColumnKey, Floats]:
        out = {key: np.empty(n_rows) for key in self.layout.keys}
        for start in range(0, n_rows, _ROWS_AT_ONCE):
            n = min(_ROWS_AT_ONCE, n_rows - start)
            rows = self._rows(n, rng, settled=settled)
            cells, inside = decode_rows(self.model, rows, rng)
            for j, key in enumerate(self.layout.keys):
                column, marginal = self.model.columns[j], self.marginals[key]
                out[key][start : start + n] = values_of(column, marginal, cells[:, j], inside[:, j])
        return out

    def _rows(self, n_rows: int, rng: np.random.Generator, *, settled: bool) -> RowSweeper:
        threads = usable_threads()
        if settled:
            return draw_rows(self.model, self.targets, n_rows, rng=rng, threads=threads)
        rows = start_rows(self.model, n_rows, rng, threads, spread=False)
        compiled = self.model.compile()
        for _ in range(TUNING.fresh_sweeps if self.model.tables else 0):
            rows.sweep(compiled)
        return rows


def values_of(column: PooledColumn, marginal: Marginal, cells: Ints, inside: Floats) -> Floats:
    """Values, or codes, of public cells and positions inside of them; not a number for the cell of an empty value.

    An ordered column's value stands in its margin where cell and position stand in the model's: the two may differ.
    """
    n_cells = marginal.probabilities.size
    filled = np.minimum(cells, n_cells - 1)
    if marginal.column.kind in ("continuous", "count"):
        shares = np.maximum(column.probabilities[:n_cells], 0.0)
        ends = np.cumsum(shares) / max(float(shares.sum()), 1e-12)
        below = np.where(filled > 0, ends[filled - 1], 0.0)
        grades = below + np.clip(inside, _INSIDE, 1.0 - _INSIDE) * (ends[filled] - below)
        values = marginal.quantile(np.clip(grades, _INSIDE, 1.0 - _INSIDE))
    else:
        values = filled.astype(np.float64)
    return np.where(cells < n_cells, values, np.nan)


def usable_threads() -> int:
    """Processors that this process may use, at most eight."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(own, _MOST_THREADS)
