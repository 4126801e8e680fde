"""What the two openings say: a noisy Gram matrix of features, and noisy tables of chosen pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from verticopula.mpc.gram_noise import gram_scales
from verticopula.mpc.table_noise import row_sensitivity
from verticopula.mpc.verified_cells import N_COMPUTE

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SHARES_FACTOR = math.sqrt(N_COMPUTE / 2.0)  # two of three shares of the noise suffice


@dataclass(frozen=True)
class OpenedGram:
    """The first opening: sums over people of weighted products of features.

    Attributes
    ----------
    matrix : (f, f) with noise; the diagonal is not used
    deviation : standard deviation of the noise on one of them, off the diagonal
    totals : (K, K) for two parties, the sum of u_a u_b over those who have both: public
    people : (K, K) how many people of weight 1 these are worth
    deviations : (f, f) of every one of them, where opened tables have contributed; None where all have `deviation`
    """

    matrix: Floats
    deviation: float
    totals: Floats
    people: Floats
    deviations: Floats | None = None

    def noise_at(self, rows: Ints, columns: Ints) -> Floats:
        """Standard deviations of the noise on the products of some features with others."""
        if self.deviations is None:
            return np.full((rows.size, columns.size), self.deviation)
        return np.asarray(self.deviations[np.ix_(rows, columns)])


@dataclass(frozen=True)
class OpenedTable:
    """One table of the second opening.

    Attributes
    ----------
    pair : the two columns
    shares : (c_a, c_b) counts of pooled cells among those who have both, with noise, over how many they are
    deviation : standard deviation of the noise on each share
    people : those who have both: public
    """

    pair: tuple[int, int]
    shares: Floats
    deviation: float
    people: int


def gram_deviation(bound: float, mu: float) -> float:
    """Standard deviation of the noise on a product off the diagonal, for records of squared length <= `bound`."""
    return SHARES_FACTOR * gram_scales(bound, mu)[0]


def count_noise(n_tables: int, mu: float) -> float:
    """Standard deviation of the noise on one count, for so many tables."""
    return SHARES_FACTOR * row_sensitivity(n_tables) / mu


def feature_places(widths: Sequence[int]) -> list[slice]:
    """Where each column's features stand in a record."""
    ends = np.cumsum([0, *widths]).tolist()
    return [slice(start, stop) for start, stop in pairwise(ends)]
