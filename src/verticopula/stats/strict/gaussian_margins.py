"""Margins with Gaussian noise: the mechanism of one column, and what becomes of its noisy cells."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from verticopula.mpc.gram_noise import SMOOTHING
from verticopula.privacy.noise import Noise
from verticopula.schema.federation import Column
from verticopula.stats.marginals import (
    MARGIN_TUNING,
    Marginal,
    cell_count,
    project_to_simplex,
    settle_tails,
)

Ints = NDArray[np.int64]


def cell_sensitivity(n_cells: int) -> float:
    """How far replacing one person moves the counted cells: from one to another, or in and out of the first of two."""
    return 1.0 if n_cells == 2 else math.sqrt(2.0)


def gaussian_cell_count(column: Column, n_observed: int, deviation: float) -> int:
    """Number of public cells of a column whose counts get noise of that standard deviation.

    As `marginals.continuous_cell_count`, whose Laplace noise has standard deviation 2 sqrt(2)/epsilon.
    """
    if column.kind != "continuous":
        return cell_count(column, n_observed, 1.0)
    return MARGIN_TUNING.continuous_cells(2.0 * math.sqrt(2.0) * n_observed / deviation)


def margin_mu(column: Column, n_observed: int, deviation: float) -> float:
    """How many standard deviations of that noise one person moves the column's cell counts."""
    return cell_sensitivity(gaussian_cell_count(column, n_observed, deviation)) / deviation


def release_gaussian_cells(cells: Ints, n_cells: int, deviation: float, noise: Noise, *label: str) -> Ints:
    """Noisy number of subjects in each cell.

    Privacy
    -------
    Leaves the party. mu-Gaussian differentially private with mu = `cell_sensitivity` / `deviation` for one person's
    value in this column: replacing it moves one subject from one cell to another, a Euclidean distance of sqrt(2), or
    of 1 where there are two cells and only the first is counted (the number of observed subjects is public). The
    discrete Gaussian of variance `deviation`^2 + 9 is post-processing of the continuous one (`mpc.gram_noise`).
    """
    scale = math.sqrt(deviation**2 + SMOOTHING**2) * (1.0 + 2.0**-50)
    counts = np.bincount(cells, minlength=n_cells).astype(np.int64)
    if n_cells == 2:
        first = noise.discrete_gaussian(counts[:1], scale, *label)
        return np.array([first[0], cells.size - first[0]], dtype=np.int64)
    return noise.discrete_gaussian(counts, scale, *label)


def settle_margin(column: Column, noisy: Ints, n_observed: int, deviation: float) -> Marginal:
    """The observed subjects' margin from noisy cells: tails settled, then the nearest probabilities."""
    if n_observed == 0:
        return Marginal.unknown(column, noisy.size)
    raw, scale = noisy / n_observed, math.sqrt(deviation**2 + SMOOTHING**2)
    settled = raw
    if column.kind in ("continuous", "count"):
        settled = settle_tails(raw, scale / n_observed)
    probabilities = project_to_simplex(settled)
    rarest = MARGIN_TUNING.rarest_share(n_observed, scale)
    return Marginal(column, probabilities, float(np.sum(np.abs(probabilities - raw))), rarest=rarest)
