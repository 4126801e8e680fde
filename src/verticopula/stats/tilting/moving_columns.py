"""The columns that rows have to be swept through: of many columns often few are in a table.

p(x) is a copula times exp theta of some tables. All columns that are in no table can be summed out: what is left is the
copula of the others, with the block of the correlations that belongs to them, times the same tables. So sweeps go
through those columns alone, and the latents of all others are drawn once, given theirs: one normal distribution.
Where categories shift latents all columns move, because a category's chance depends on all latents.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from verticopula.stats.tilting.gibbs_kernel import GibbsTables, RowSweeper
from verticopula.stats.tilting.table_prior import latent_cuts
from verticopula.stats.tilting.tilted_model import Pair, TiltedCopula
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING as TUNING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class MovingColumns:
    """Some of a model's columns.

    Attributes
    ----------
    columns : their numbers, in order
    latents : those of their latents
    whole : whether they are all
    """

    columns: Ints
    latents: Ints
    whole: bool

    @classmethod
    def of(cls, model: TiltedCopula) -> MovingColumns:
        """All columns, or those of the tables where the others need not move and their tables are not calibrated."""
        p = len(model.columns)
        whole = bool(model.shifts) or p * (p - 1) // 2 - len(model.tables) <= TUNING.most_calibrated
        columns = np.arange(p) if whole else np.unique(np.fromiter(chain(*model.tables), dtype=np.int64))
        latents = model.latent_of[columns]
        return cls(columns.astype(np.int64), np.sort(latents[latents >= 0]), whole)

    def restrict(self, model: TiltedCopula) -> TiltedCopula:
        """The model of these columns alone."""
        if self.whole:
            return model
        latent_of = model.latent_of[self.columns]
        return TiltedCopula(
            tuple(model.columns[j] for j in self.columns.tolist()),
            np.where(latent_of >= 0, np.searchsorted(self.latents, latent_of), -1),
            model.correlation[np.ix_(self.latents, self.latents)],
            tuple(model.tilts[j] for j in self.columns.tolist()),
            self.renumber(model.tables),
        )

    def renumber(self, tables: Mapping[Pair, Floats]) -> dict[Pair, Floats]:
        """Tables of these columns, by their numbers among them."""
        pairs = np.array(list(tables), dtype=np.int64).reshape(-1, 2)
        places = np.searchsorted(self.columns, pairs).tolist()
        return {(a, b): table for (a, b), table in zip(places, tables.values(), strict=True)}

    def compile(self, model: TiltedCopula) -> GibbsTables:
        """The model of these columns in flat arrays."""
        return self.restrict(model).compile()

    def take(self, rows: RowSweeper) -> RowSweeper:
        """The rows' part in these columns, with the rows' own random numbers."""
        return rows if self.whole else rows.narrow(self.columns, self.latents)

    def put(self, part: RowSweeper, rows: RowSweeper) -> None:
        """Write a part back into the rows."""
        if not self.whole:
            rows.y[:, self.columns], rows.z[:, self.latents] = part.y, part.z

    def draw_others(self, model: TiltedCopula, rows: RowSweeper, rng: np.random.Generator) -> None:
        """Draw the latents of all other columns given those of these, and with them their cells."""
        others = np.setdiff1d(np.arange(len(model.correlation)), self.latents)
        if self.whole or not others.size:
            return
        own = model.correlation[np.ix_(self.latents, self.latents)]
        across = model.correlation[np.ix_(self.latents, others)]
        slopes = np.linalg.solve(own, across) if self.latents.size else across
        root = np.linalg.cholesky(model.correlation[np.ix_(others, others)] - across.T @ slopes).astype(np.float32)
        noise = rng.standard_normal((len(rows.y), others.size), dtype=np.float32)
        rows.z[:, others] = noise @ root.T + rows.z[:, self.latents] @ slopes.astype(np.float32)
        for j in np.flatnonzero(np.isin(model.latent_of, others)).tolist():
            column = model.columns[j]
            inner = latent_cuts(column)[1:-1].astype(np.float32)
            filled = np.searchsorted(inner, rows.z[:, model.latent_of[j]], side="right").astype(np.uint8)
            empty = rows.y[:, j] == column.n_filled if column.empty else False
            rows.y[:, j] = np.where(empty, rows.y[:, j], filled)


def sweep_rows(model: TiltedCopula, rows: RowSweeper, sweeps: int, rng: np.random.Generator) -> None:
    """Sweep rows through a model that does not change."""
    if not model.tables:
        return
    moving = MovingColumns.of(model)
    part, compiled = moving.take(rows), moving.compile(model)
    for _ in range(sweeps):
        part.sweep(compiled)
    moving.put(part, rows)
    moving.draw_others(model, rows, rng)
