"""Rows of a tilted copula that meet conditions, and rows whose empty values are filled.

A condition on a column with a latent is an interval of the latent; on any other column it is what share of each pooled
cell meets it. Sweeps then draw as always, within these limits. An empty value is filled by drawing its cell alone, the
rest of the row given, until it is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from verticopula.stats.conditional_draws import CONDITION_TUNING, LatentRegion, draw_given
from verticopula.stats.tilting.gibbs_kernel import GibbsTables, RowSweeper
from verticopula.stats.tilting.table_prior import latent_cuts
from verticopula.stats.tilting.tilted_model import TiltedCopula, start_rows

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CellCondition:
    """What one column of the rows has to be.

    Attributes
    ----------
    met : (c,) the share of every pooled cell that meets it
    latents : both ends of the latent; None for a column without one
    """

    met: Floats
    latents: tuple[float, float] | None = None

    @property
    def is_point(self) -> bool:
        """Whether the latent has one value, and nothing is to be drawn."""
        return self.latents is not None and self.latents[0] == self.latents[1]


def rows_given(
    model: TiltedCopula,
    asked: Mapping[int, CellCondition],
    region: LatentRegion,
    n_rows: int,
    *,
    rng: np.random.Generator,
    threads: int = 1,
) -> RowSweeper:
    """Rows, independent of each other, that meet these conditions.

    Parameters
    ----------
    asked : column -> its condition
    region : of the latents of these columns
    """
    latents = draw_given(model.correlation, region, n_rows, rng)
    rows = start_rows(model, n_rows, rng, threads, spread=False, latents=latents)
    for j, own in asked.items():
        column = model.columns[j]
        if own.latents is None:
            shares = column.shares * own.met
            rows.y[:, j] = rng.choice(shares.size, n_rows, p=shares / shares.sum())
        else:
            inner, allowed = latent_cuts(column)[1:-1], np.flatnonzero(own.met)
            cells = np.searchsorted(inner, latents[:, model.latent_of[j]], side="right")
            rows.y[:, j] = np.clip(cells, allowed[0], allowed[-1])
    free = np.ones(rows.y.shape, dtype=np.bool_)
    free[:, [j for j, own in asked.items() if own.is_point]] = False
    compiled = restrict_cells(model, asked)
    for _ in range(CONDITION_TUNING.tilted_sweeps):
        rows.sweep(compiled, free)
    return rows


def restrict_cells(model: TiltedCopula, asked: Mapping[int, CellCondition]) -> GibbsTables:
    """The model in flat arrays, in which only what meets the conditions can be drawn."""
    compiled = model.compile()
    cuts, weights = compiled.cuts.copy(), compiled.weights.copy()
    for j, own in asked.items():
        column = model.columns[j]
        if own.latents is None:
            weights[j, : column.n_cells] *= own.met
        else:
            cuts[j, : column.n_filled + 1] = np.clip(latent_cuts(column), *own.latents)
            weights[j, column.n_filled : column.n_cells] = 0.0
    return replace(compiled, cuts=cuts, weights=weights)


def fill_rows(model: TiltedCopula, rows: RowSweeper, rng: np.random.Generator) -> None:
    """Draw values for all cells that are empty, given the rest of their rows."""
    compiled, free = model.compile(), np.zeros(rows.y.shape, dtype=np.bool_)
    weights = compiled.weights.copy()
    for j, column in enumerate(model.columns):
        if column.empty:
            filled = column.n_filled
            weights[j, filled : column.n_cells] = 0.0
            free[:, j] = rows.y[:, j] == filled
            shares = column.shares[:filled] / column.shares[:filled].sum()
            rows.y[free[:, j], j] = rng.choice(filled, int(free[:, j].sum()), p=shares)
    compiled = replace(compiled, weights=weights)
    for _ in range(CONDITION_TUNING.filling_sweeps if free.any() else 0):
        rows.sweep(compiled, free)
