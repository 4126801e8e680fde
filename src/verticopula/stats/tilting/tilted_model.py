"""The tilted copula p(x) = copula(x) times exp theta_ab[x_a, x_b] over its tables, and synthetic rows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from verticopula.stats.tilting.category_shifts import solve_discriminants
from verticopula.stats.tilting.gibbs_kernel import GibbsTables, RowSweeper
from verticopula.stats.tilting.pooling import PooledColumn, restore_cells
from verticopula.stats.tilting.table_prior import latent_cuts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Pair = tuple[int, int]

_UNUSED = 8.0


@dataclass(frozen=True)
class TiltedCopula:
    """A copula of ordered columns, tilts of margins, and tables.

    Attributes
    ----------
    columns : their pooled cells, with released margins
    latent_of : (p,) a column's latent, -1 for none
    correlation : (q, q) of the latents
    tilts : (c,) for every column, the logarithm of what each of its cells counts beside the copula
    tables : pair (a, b) -> (c_a, c_b) theta
    shifts : nominal column -> (c, q) covariances of its indicators with the latents (`category_shifts`)
    """

    columns: tuple[PooledColumn, ...]
    latent_of: Ints
    correlation: Floats
    tilts: tuple[Floats, ...]
    tables: Mapping[Pair, Floats]
    shifts: Mapping[int, Floats] = field(default_factory=dict)

    def compile(self) -> GibbsTables:
        """The model in flat arrays."""
        p, most = len(self.columns), max(column.n_cells for column in self.columns)
        cells = np.array([column.n_cells for column in self.columns], dtype=np.int64)
        cuts, weights = np.full((p, most + 1), _UNUSED), np.zeros((p, most))
        empty = np.zeros(p, dtype=np.bool_)
        solved = solve_discriminants(self.columns, self.correlation, self.shifts)
        for j, column in enumerate(self.columns):
            shares, filled = column.shares, column.n_filled
            tilt = np.exp(self.tilts[j])
            if self.latent_of[j] >= 0:
                empty[j] = column.empty
                cuts[j, : filled + 1] = latent_cuts(column)
                weights[j, : cells[j]] = tilt
                weights[j, :filled] *= shares[:filled].sum()
                weights[j, filled : cells[j]] *= shares[filled:]
            else:
                weights[j, : cells[j]] = tilt * shares * np.exp(solved.starts.get(j, 0.0))
        precision = np.diag(solved.precision)
        slopes = -solved.precision / precision[:, None] if precision.size else solved.precision
        slopes = slopes - np.diag(np.diag(slopes))
        shifting = np.array(list(solved.discriminants), dtype=np.int64)
        discriminant_of = np.full(p, -1, dtype=np.int64)
        discriminant_of[shifting] = np.cumsum([0, *(len(own) for own in solved.discriminants.values())])[:-1]
        discriminants = np.vstack([np.zeros((0, precision.size)), *solved.discriminants.values()])
        links: list[list[tuple[int, int, int]]] = [[] for _ in range(p)]
        factors, place = [], 0
        for (a, b), theta in self.tables.items():
            links[a].append((b, place, place + theta.size))
            links[b].append((a, place + theta.size, place))
            factors += [np.exp(theta.T).ravel(), np.exp(theta).ravel()]
            place += 2 * theta.size
        flat = [link for own in links for link in own]
        return GibbsTables(
            cells=cells,
            latent_of=self.latent_of.astype(np.int64),
            cuts=cuts,
            empty=empty,
            weights=weights,
            slopes=np.ascontiguousarray(slopes, dtype=np.float32),
            deviations=1.0 / np.sqrt(precision),
            starts=np.cumsum([0, *(len(own) for own in links)]).astype(np.int64),
            others=np.array([other for other, _, _ in flat], dtype=np.int64),
            places=np.array([start for _, start, _ in flat], dtype=np.int64),
            factors=np.concatenate(factors).astype(np.float32) if factors else np.ones(1, dtype=np.float32),
            mirrors=np.array([mirror for _, _, mirror in flat], dtype=np.int64),
            shifting=shifting,
            discriminant_of=discriminant_of,
            discriminants=np.ascontiguousarray(discriminants, dtype=np.float32),
            mean_shifts=np.ascontiguousarray((discriminants / precision).T, dtype=np.float32),
        )


def start_rows(
    model: TiltedCopula,
    n_rows: int,
    rng: np.random.Generator,
    threads: int = 1,
    *,
    spread: bool = True,
    latents: Floats | None = None,
) -> RowSweeper:
    """Rows of the copula without tables, to be swept.

    Parameters
    ----------
    spread : whether cells of columns without a latent come as often as their shares say, without sampling error
    latents : (n, q) those to begin with; None to draw them
    """
    q = len(model.correlation)
    if latents is None:
        root = np.linalg.cholesky(model.correlation) if q else np.zeros((0, 0))
        latents = rng.standard_normal((n_rows, q)) @ root.T
    z = latents.astype(np.float32)
    y = np.zeros((n_rows, len(model.columns)), dtype=np.uint8)
    solved = solve_discriminants(model.columns, model.correlation, model.shifts)
    for j, column in enumerate(model.columns):
        shares = column.shares
        if j in solved.discriminants:
            logits = (
                z @ solved.discriminants[j].T.astype(np.float32) + np.log(np.maximum(shares, 1e-12)) + solved.starts[j]
            )
            ends = np.cumsum(np.exp(logits), axis=1)
            y[:, j] = np.sum(rng.random(n_rows)[:, None] * ends[:, -1:] > ends[:, :-1], axis=1)
            continue
        drawn = (_spread_cells if spread else _draw_cells)(shares / shares.sum(), n_rows, rng)
        k = model.latent_of[j]
        if k >= 0:
            filled = np.searchsorted(latent_cuts(column)[1:-1], z[:, k], side="right")
            drawn = np.where(drawn == column.n_filled, drawn, filled) if column.empty else filled
        y[:, j] = drawn
    return RowSweeper(y, np.ascontiguousarray(z), rng, threads)


def _spread_cells(shares: Floats, n_rows: int, rng: np.random.Generator) -> Ints:
    """(n,) cells in random order, each as often as its share says."""
    ends = np.cumsum(shares)
    ends[-1] = 1.0
    drawn = np.searchsorted(ends, (np.arange(n_rows) + rng.random()) / n_rows, side="right")
    return np.asarray(rng.permutation(np.minimum(drawn, shares.size - 1)), dtype=np.int64)


def _draw_cells(shares: Floats, n_rows: int, rng: np.random.Generator) -> Ints:
    """(n,) cells, each drawn by itself."""
    return np.asarray(rng.choice(shares.size, n_rows, p=shares), dtype=np.int64)


def calibrate_rows(
    model: TiltedCopula, rows: RowSweeper, wanted: Mapping[Pair, Floats], sweeps: int, gain: float
) -> None:
    """Sweep rows with a correction towards these tables, so that they have next to no sampling error in them.

    Parameters
    ----------
    wanted : pair -> (c_a, c_b) shares; a pair without theta counts with 0
    """
    zeros = {pair: np.zeros(table.shape) for pair, table in wanted.items() if pair not in model.tables}
    whole = replace(model, tables={**{pair: model.tables[pair] for pair in wanted if pair in model.tables}, **zeros})
    flat = [part for pair in whole.tables for part in (wanted[pair].T.ravel(), wanted[pair].ravel())]
    compiled = whole.compile()
    for _ in range(sweeps if flat else 0):
        rows.calibrate(compiled, np.concatenate(flat), gain)


def decode_rows(
    model: TiltedCopula, rows: RowSweeper, rng: np.random.Generator, restored: Sequence[PooledColumn] | None = None
) -> tuple[Ints, Floats]:
    """(n, p) public cells, and positions in (0, 1) inside of each, of pooled rows.

    Parameters
    ----------
    restored : columns by whose margins public cells come back inside of pooled ones; None for the model's
    """
    cells = np.zeros(rows.y.shape, dtype=np.int64)
    inside = np.zeros(rows.y.shape)
    for j, column in enumerate(model.columns):
        pooled = rows.y[:, j].astype(np.int64)
        position = rng.random(pooled.size)
        k = model.latent_of[j]
        if k >= 0:
            ends = ndtr(latent_cuts(column))
            filled = pooled < column.n_filled
            low, high = ends[np.minimum(pooled, column.n_filled - 1)], ends[np.minimum(pooled + 1, column.n_filled)]
            along = (ndtr(rows.z[:, k].astype(np.float64)) - low) / np.maximum(high - low, 1e-12)
            position = np.where(filled, np.clip(along, 1e-9, 1.0 - 1e-9), position)
        cells[:, j], inside[:, j] = restore_cells(column if restored is None else restored[j], pooled, position)
    return cells, inside


def pairs_of(tables: Sequence[Pair]) -> tuple[Ints, Ints]:
    """The first and the second columns of pairs."""
    return np.array([a for a, _ in tables], dtype=np.int64), np.array([b for _, b in tables], dtype=np.int64)
