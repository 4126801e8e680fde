"""What a table of two columns is expected to look like, and how it deviates from that.

A table T (shares) is E + deviation. E is the model's own table. The deviation of cell (i, j) is S_ij g_ij, where S
is about E and g a Gaussian process of variance tau^2: neighbouring cells of ordered columns deviate alike, categories
each for themselves, and margins do not deviate. Noise of known variance then says how much of an opened table is
used (`posterior_table`), and how likely it is that a table deviates at all (`read_deviation_variance`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtri

from verticopula.stats.tilting.pooling import PooledColumn
from verticopula.stats.tilting.table_kernels import TINY, integrate_rectangles, likeliest_variance, scale_to_margins
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING as TUNING

Floats = NDArray[np.float64]

DEVIATION_SPREADS = np.geomspace(1e-3, 1e2, 41)  # tau^2
ROUNDS, ROUNDS_NEARBY = 20, 3  # of proportional fitting, where margins are far off and where they are not


def normal_rectangles(cuts_a: Floats, cuts_b: Floats, r: float) -> Floats:
    """(a-1, b-1) chances of rectangles between these cuts for a pair of standard normals of correlation r."""
    out = np.empty((cuts_a.size - 1, cuts_b.size - 1))
    integrate_rectangles(np.asarray(cuts_a), np.asarray(cuts_b), float(r), out)
    return out


def latent_cuts(column: PooledColumn) -> Floats:
    """(filled + 1,) ends of the intervals of an ordered column's pooled cells, under its released margin."""
    shares = column.shares[: column.n_filled]
    ends = np.cumsum(shares)[:-1] / max(float(shares.sum()), TINY)
    return np.concatenate([[-8.0], np.clip(ndtri(np.clip(ends, 0.0, 1.0)), -8.0, 8.0), [8.0]])


def copula_table(first: PooledColumn, second: PooledColumn, r: float) -> Floats:
    """(c_a, c_b) the copula's own table of two columns with latent correlation r; 0 where one has no latent."""
    table = np.outer(first.shares, second.shares)
    if r != 0.0:
        inside = normal_rectangles(latent_cuts(first), latent_cuts(second), r)
        a, b = first.n_filled, second.n_filled
        table[:a, :b] = inside / max(float(inside.sum()), TINY) * table[:a, :b].sum()
    return fit_margins(table, first.shares, second.shares)


def fit_margins(table: Floats, rows: Floats, columns: Floats, rounds: int = ROUNDS) -> Floats:
    """The table scaled to these margins, by rows and columns in turn (iterative proportional fitting)."""
    fitted = np.array(table, dtype=np.float64)
    scale_to_margins(fitted, np.asarray(rows), np.asarray(columns), rounds)
    return fitted


def cell_kernel(column: PooledColumn) -> Floats:
    """(c, c) correlations of deviations of a column's cells."""
    filled, kernel = column.n_filled, np.eye(column.n_cells)
    if column.ordered and filled > 2:
        values = column.shares[:filled] / max(float(column.shares[:filled].sum()), TINY)
        grade = np.cumsum(values) - 0.5 * values
        near = np.exp(-np.abs(grade[:, None] - grade) / TUNING.smooth_length)
        kernel[:filled, :filled] = (1.0 - TUNING.own_part) * near + TUNING.own_part * np.eye(filled)
    return kernel


def _centre(kernel: Floats, shares: Floats) -> Floats:
    """The kernel without margins, which do not deviate, such that a deviation has variance 1 on average over people."""
    centre = np.eye(shares.size) - shares / max(float(shares.sum()), TINY)
    centred = centre @ kernel @ centre.T
    return np.asarray(centred / max(float(shares @ np.diag(centred)) / max(float(shares.sum()), TINY), 1e-6))


@dataclass(frozen=True)
class DeviationVariance:
    """How much a pair deviates.

    Attributes
    ----------
    squared : tau^2 of the largest likelihood; 0 where there is no sign of any deviation
    evidence : the log likelihood that it gains over none
    """

    squared: float
    evidence: float


def fit_deviation_variance(squares: Floats, sizes: Floats, noise: Floats | float) -> DeviationVariance:
    """tau^2 of numbers with variances tau^2 * sizes + noise."""
    flat = np.ravel(squares), np.ravel(sizes), np.broadcast_to(noise, np.shape(squares)).ravel()
    return DeviationVariance(*likeliest_variance(*flat, DEVIATION_SPREADS))


@dataclass(frozen=True)
class TableReading:
    """Noisy linear functions left' T right of a pair's table T: all of its cells, or products of features.

    Attributes
    ----------
    pair : the two columns
    values : (k_a, k_b)
    left, right : (c_a, k_a) and (c_b, k_b)
    deviation : standard deviation of the noise on a value, or (k_a, k_b) on each
    people : those behind it
    opened : whether it is a table of the second opening
    """

    pair: tuple[int, int]
    values: Floats
    left: Floats
    right: Floats
    deviation: Floats | float
    people: float
    opened: bool

    def missed(self, expected: Floats) -> Floats:
        """What is read beyond an expected table."""
        return np.asarray(self.values - self.left.T @ expected @ self.right)

    def noise(self, shares_a: Floats, shares_b: Floats, more_people: float = np.inf) -> Floats:
        """(k_a, k_b) variance of the values: noise, and sampling of people and of as many synthetic rows."""
        sampling = np.outer(feature_variances(self.left, shares_a), feature_variances(self.right, shares_b))
        return np.asarray(self.deviation**2 + sampling * (1.0 / max(self.people, 1.0) + 1.0 / more_people))


def feature_variances(features: Floats, shares: Floats) -> Floats:
    """(k,) variances of features of a column's cells."""
    return np.maximum(shares @ features**2 - (shares @ features) ** 2, 0.0)


@dataclass(frozen=True)
class ColumnSide:
    """One column's side of a table: how deviations of its cells go together.

    Attributes
    ----------
    kernel : (c, c) correlations of deviations
    sizes, vectors : (k,) and (k, k) combinations of the features that are read whose deviations are independent
    """

    kernel: Floats
    sizes: Floats
    vectors: Floats

    @classmethod
    def of(cls, column: PooledColumn, features: Floats) -> ColumnSide:
        """For features (c, k) of its cells; the unit matrix for cells themselves."""
        kernel, spread = cell_kernel(column), features * column.shares[:, None]
        sizes, vectors = np.linalg.eigh(spread.T @ _centre(kernel, column.shares) @ spread)
        return cls(kernel, np.maximum(sizes, 0.0), vectors)


Sides = tuple[ColumnSide, ColumnSide]


class SideCache:
    """Sides of a study's columns, each made once: for products of features, and for opened tables."""

    def __init__(self, columns: Sequence[PooledColumn]) -> None:
        self._columns = columns
        self._made: dict[tuple[int, bool], ColumnSide] = {}

    def of(self, reading: TableReading) -> Sides:
        """Both sides of a reading; a column has the same features in all that are not opened."""
        for j, features in zip(reading.pair, (reading.left, reading.right), strict=True):
            if (j, reading.opened) not in self._made:
                self._made[j, reading.opened] = ColumnSide.of(self._columns[j], features)
        return self._made[reading.pair[0], reading.opened], self._made[reading.pair[1], reading.opened]


@dataclass(frozen=True)
class _Rotated:
    """What a reading has beyond an expected table, in directions whose deviations are independent."""

    left: Floats
    right: Floats
    values: Floats
    sizes: Floats
    noise: Floats


def _rotate(reading: TableReading, expected: Floats, sides: Sides, noise: Floats) -> _Rotated:
    """Scales of deviations are taken from the columns' margins."""
    left, right = sides[0].vectors, sides[1].vectors
    values = left.T @ reading.missed(expected) @ right
    return _Rotated(left, right, values, np.outer(sides[0].sizes, sides[1].sizes), (left.T**2) @ noise @ right**2)


def read_deviation_variance(reading: TableReading, expected: Floats, sides: Sides, noise: Floats) -> DeviationVariance:
    """How much a pair deviates from an expected table."""
    rotated = _rotate(reading, expected, sides, noise)
    return fit_deviation_variance(rotated.values**2, rotated.sizes, rotated.noise)


def posterior_table(reading: TableReading, expected: Floats, sides: Sides, noise: Floats, squared: float) -> Floats:
    """A positive table with the expected margins: what is expected, and as much of a reading as its noise allows.

    Margins do not deviate. Products of features say something about them, too: sums over rows and columns are therefore
    read beside, as 0.

    Parameters
    ----------
    noise : (k_a, k_b) variances of the reading's values
    squared : tau^2
    """
    if squared <= 0.0:
        return expected
    rows, columns = expected.sum(axis=1), expected.sum(axis=0)
    product = np.outer(rows, columns)
    scale = (1.0 - TUNING.product_part) * expected + TUNING.product_part * product
    if reading.opened:
        missed = remove_margins(reading.missed(expected)).ravel()
        covariance = squared * np.kron(sides[0].kernel, sides[1].kernel) * np.outer(scale, scale)
        weights = cho_solve(cho_factor(covariance + np.diag(noise.ravel()), lower=True), missed)
        deviation = np.asarray(covariance @ weights, dtype=np.float64).reshape(expected.shape)
    else:
        rotated = _rotate(reading, expected, sides, noise)
        kept = rotated.values * squared * rotated.sizes / (squared * rotated.sizes + rotated.noise)
        missed = (rotated.left @ kept @ rotated.right.T).ravel()
        read = np.einsum("ia,jb->abij", reading.left, reading.right).reshape(missed.size, *expected.shape)
        maps = np.concatenate([read, _margin_maps(*expected.shape)]) * scale
        smoothed = np.einsum("ik,mkl,lj->mij", sides[0].kernel, maps, sides[1].kernel, optimize=True)
        covariance = np.tensordot(maps, smoothed, axes=([1, 2], [1, 2]))
        sizes = np.maximum(np.diag(covariance), TINY**2)
        wanted = np.append(missed, np.zeros(len(maps) - missed.size))
        weights = np.asarray(np.linalg.solve(covariance + np.diag(1e-6 * sizes), wanted), dtype=np.float64)
        deviation = scale * np.tensordot(weights, smoothed, axes=(0, 0))
    least = TUNING.least_ratio * np.minimum(expected, product)
    return fit_margins(np.maximum(expected + deviation, least), rows, columns)


def _margin_maps(rows: int, columns: int) -> Floats:
    """(rows + columns - 1, rows, columns) sums over rows and columns, none of which follows from the others."""
    by_row = np.einsum("mi,j->mij", np.eye(rows), np.ones(columns))
    by_column = np.einsum("i,mj->mij", np.ones(rows), np.eye(columns)[:-1])
    return np.concatenate([by_row, by_column])


def remove_margins(deviation: Floats) -> Floats:
    """The deviation less what it says about margins."""
    return np.asarray(deviation - deviation.mean(axis=0)[None, :] - deviation.mean(axis=1)[:, None] + deviation.mean())
