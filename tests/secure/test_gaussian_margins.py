"""The noise on a margin's cells: how much of it a deviation means, and what one person moves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from verticopula.mpc.gram_noise import SMOOTHING
from verticopula.privacy.noise import SecureNoise
from verticopula.schema.columns import Column
from verticopula.stats.strict.gaussian_margins import (
    cell_sensitivity,
    gaussian_cell_count,
    margin_mu,
    release_gaussian_cells,
)

COLUMNS = [
    Column(name="binary", kind="binary"),
    Column(name="nominal", kind="nominal", categories=("x", "y", "z")),
    Column(name="count", kind="count", bounds=(0, 9)),
    Column(name="continuous", kind="continuous", bounds=(-6, 6)),
]


class Measured(SecureNoise):
    """Notes the scale it was asked for."""

    scale = 0.0

    def discrete_gaussian(self, values: NDArray[np.int64], scale: float, *label: str) -> NDArray[np.int64]:
        self.scale = scale
        return values


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name)
@pytest.mark.parametrize("deviation", [0.5, 3.0, 40.0])
def test_a_replaced_value_moves_the_continuous_noise_by_mu_at_most(column: Column, deviation: float) -> None:
    """The discrete Gaussian is post-processing of a continuous one whose variance is smaller by the smoothing."""
    n_cells, noise, furthest = gaussian_cell_count(column, 60, deviation), Measured(), 0.0
    cells = np.arange(60) % n_cells
    before = release_gaussian_cells(cells, n_cells, deviation, noise)
    for place in range(n_cells):
        after = release_gaussian_cells(np.concatenate([[place], cells[1:]]), n_cells, deviation, noise)
        moved = (after - before)[: 1 if n_cells == 2 else None]  # the second of two follows from the first
        furthest = max(furthest, math.sqrt(float(moved @ moved)))
    continuous = math.sqrt(noise.scale**2 - SMOOTHING**2)
    assert continuous == pytest.approx(deviation)
    assert continuous >= deviation * (1.0 - 1e-12)
    assert furthest == pytest.approx(cell_sensitivity(n_cells))
    assert furthest / continuous == pytest.approx(margin_mu(column, 60, deviation))
