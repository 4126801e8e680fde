"""Margins with Gaussian noise: the mechanism of one column, and what becomes of its noisy cells."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from verticopula.data.column_encoding import EncodedColumn
from verticopula.mpc.gram_noise import SMOOTHING
from verticopula.privacy.noise import Noise
from verticopula.schema.columns import Column
from verticopula.stats.margin_cells import MARGIN_TUNING, add_atoms, cell_count, to_cells
from verticopula.stats.marginals import Marginal, project_to_simplex, smooth_tails

Ints = NDArray[np.int64]


def cell_sensitivity(n_cells: int) -> float:
    """How far replacing one person moves the counted cells: from one to another, or in and out of the first of two."""
    return 1.0 if n_cells == 2 else math.sqrt(2.0)


def gaussian_cell_count(column: Column, n_observed: int, deviation: float) -> int:
    """Number of public cells of a column whose counts get noise of that standard deviation.

    As `margin_cells.continuous_cell_count`, whose Laplace noise has standard deviation 2 sqrt(2)/epsilon.
    """
    if column.kind != "continuous":
        return cell_count(column, n_observed, 1.0)
    return add_atoms(column, MARGIN_TUNING.continuous_cells(2.0 * math.sqrt(2.0) * n_observed / deviation))


def margin_mu(column: Column, n_known: int, deviation: float, *, may_be_empty: bool = False) -> float:
    """How many standard deviations of that noise one person moves the column's cell counts.

    Parameters
    ----------
    n_known : people that the column's party knows
    deviation : of the noise on a count
    may_be_empty : whether an empty value is one more cell
    """
    return cell_sensitivity(gaussian_cell_count(column, n_known, deviation) + may_be_empty) / deviation


def code_values(
    encoded: EncodedColumn, column: Column, known: NDArray[np.bool_], n_cells: int, *, may_be_empty: bool
) -> Ints:
    """(n_known,) the public cells of those whom the party knows.

    An empty value has the cell `n_cells` where there may be one, and otherwise the first: a column that the schema
    calls required has no cell for it, and that somebody has none must not show.
    """
    codes = np.full(int(known.sum()), n_cells if may_be_empty else 0, dtype=np.int64)
    filled = encoded.observed[known]
    codes[filled] = to_cells(encoded.values[known][filled], column, n_cells)
    return codes


def release_gaussian_cells(cells: Ints, n_cells: int, deviation: float, noise: Noise, *label: str) -> Ints:
    """Noisy number of subjects in each cell.

    Privacy
    -------
    Leaves the party. mu-Gaussian differentially private with mu = `cell_sensitivity` / `deviation` for one person's
    value in this column: replacing it moves one subject from one cell to another, a Euclidean distance of sqrt(2), or
    of 1 where there are two cells and only the first is counted (the number of observed subjects is public). The
    discrete Gaussian of variance `deviation`^2 + 9 is post-processing of the continuous one (`mpc.gram_noise`).
    """
    scale = count_deviation(deviation) * (1.0 + 2.0**-50)
    counts = np.bincount(cells, minlength=n_cells).astype(np.int64)
    if n_cells == 2:
        first = noise.discrete_gaussian(counts[:1], scale, *label)
        return np.array([first[0], cells.size - first[0]], dtype=np.int64)
    return noise.discrete_gaussian(counts, scale, *label)


def estimate_margin(
    column: Column, noisy: Ints, n_known: int, deviation: float, *, may_be_empty: bool = False
) -> Marginal:
    """The margin of those whom the party knows from noisy cells: tails smoothed, then the nearest probabilities.

    Parameters
    ----------
    noisy : (C,) counts, those of empty values last where there may be some
    n_known : people
    deviation : of the noise on a count
    """
    n_cells = noisy.size - may_be_empty
    if n_known == 0:
        return Marginal.unknown(column, n_cells)
    raw, scale = noisy / n_known, count_deviation(deviation)
    smoothed = raw.copy()
    if column.kind in ("continuous", "count"):
        smoothed[:n_cells] = smooth_tails(raw[:n_cells], scale / n_known)
    probabilities = project_to_simplex(smoothed)
    repair, rarest = float(np.sum(np.abs(probabilities - raw))), MARGIN_TUNING.rarest_share(n_known, scale)
    filled = float(probabilities[:n_cells].sum())
    values = probabilities[:n_cells] / filled if filled > 0.0 else np.full(n_cells, 1.0 / n_cells)
    return Marginal(column, values, repair, rarest=rarest, empty=1.0 - filled if may_be_empty else 0.0)


def margin_shares(margin: Marginal, *, may_be_empty: bool) -> NDArray[np.float64]:
    """(C,) shares of all public cells, that of empty values last where there may be some."""
    values = (1.0 - margin.empty) * margin.probabilities
    return np.append(values, margin.empty) if may_be_empty else values


def count_deviation(deviation: float) -> float:
    """Standard deviation of the whole numbers that are added to counts."""
    return math.sqrt(deviation * deviation + SMOOTHING * SMOOTHING)
