"""Cells to noisy cells, and those to a distribution function and its inverse; `margin_cells.py` has the cells.

One mechanism serves every kind of column: count the observed values in cells whose cuts are
public, and add discrete Laplace noise to the counts. What happens afterwards is post-processing.

- A discrete column's marginal is its cell probabilities (the noisy counts, projected to the
  simplex). Counts with a wide range share cells that grow with the value.
- A continuous column's cells are `degree` equal pieces of its public range on its public scale;
  their running sums are the Bernstein coefficients F(v/degree), and the iterated Bernstein
  operator of Eq. (9) turns them into a smooth distribution function.

Conventions: `cells` are integer codes 0..C-1; `u` are grades in (0, 1); `t` is a position in
[0, 1] on a column's public scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression
from scipy.stats import binom

from verticopula.privacy.noise import Noise
from verticopula.schema.columns import Column
from verticopula.stats.interpolation import interpolate
from verticopula.stats.margin_cells import MARGIN_TUNING, Piece, count_cells, from_unit, scale_pieces, to_unit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NO_MASS = 1e-9  # a cell with less is left out where thresholds are computed: they would be infinite
CURVE_GRID = np.linspace(0.0, 1.0, 1025)
_REFINEMENTS = 5  # of a search on that grid: as many digits as a float has


# ---- the mechanism -----------------------------------------------------------------------


def release_cells(cells: Ints, n_cells: int, epsilon: float, noise: Noise, *label: str) -> Ints:
    """Noisy number of subjects in each cell.

    Privacy
    -------
    Leaves the party. ε-differentially private for one person's value in this column: replacing
    it moves one subject from one cell to another, an L1 distance of 2, or of 1 where there are
    two cells and only the first is counted (the number of observed subjects is public).
    """
    return release_counted(np.bincount(cells, minlength=n_cells).astype(np.int64), epsilon, noise, *label)


def release_counted(counts: Ints, epsilon: float, noise: Noise, *label: str) -> Ints:
    """The same of subjects that are counted already.

    Privacy
    -------
    As `release_cells`.
    """
    if counts.size == 2:
        first = noise.discrete_laplace(counts[:1], 1.0 / epsilon, *label)
        return np.array([first[0], counts.sum() - first[0]], dtype=np.int64)
    return noise.discrete_laplace(counts, 2.0 / epsilon, *label)


# ---- post-processing ---------------------------------------------------------------------


def project_to_simplex(weights: Floats) -> Floats:
    """Nearest probabilities (in squared distance) to any real numbers."""
    weights = weights - weights.max()  # same projection, and no digits lost to large numbers
    ordered = np.sort(weights)[::-1]
    excess = (np.cumsum(ordered) - 1.0) / np.arange(1, weights.size + 1)
    cut = excess[np.nonzero(ordered > excess)[0][-1]]
    projected = np.maximum(weights - cut, 0.0)
    return np.asarray(projected / projected.sum())


def smooth_tails(counts: Floats, deviation: float) -> Floats:
    """Noisy counts with the outer cells, as far as they may be empty, made to rise towards the inside.

    From either end, cells belong to the tail while their running sum stays within three standard
    deviations of the noise. Their sum is kept, but noise far out, which a public range wider than the
    data always leaves, averages away instead of turning into far-out synthetic values.
    """
    smoothed = counts.astype(np.float64)
    for view in (smoothed, smoothed[::-1]):
        within = np.cumsum(view) <= MARGIN_TUNING.tail_deviations * deviation * np.sqrt(np.arange(1, view.size + 1))
        tail = int(np.argmin(within)) if not within.all() else 0
        if tail > 1:
            view[:tail] = isotonic_regression(view[:tail]).x
    return smoothed


@lru_cache(maxsize=64)
def _bernstein_matrix(degree: int, at_grid: bool) -> Floats:
    """b_{v,degree}(x) for x on the fine grid, or on the coefficients' own points v/degree."""
    points = CURVE_GRID if at_grid else np.arange(degree + 1) / degree
    matrix = np.asarray(binom.pmf(np.arange(degree + 1)[None, :], degree, points[:, None]))
    matrix.flags.writeable = False
    return matrix


def iterate_bernstein(coefficients: Floats, order: int) -> Floats:
    """Coefficients g with sum_v g_v b_v = the iterated Bernstein operator of `coefficients`.

    Implements Eq. (9). With M the operator's action on coefficients, M_wv = b_v(w/l), the sum
    over i of C(h,i)(-1)^(i-1) M^(i-1) equals I + (I-M) + ... + (I-M)^(h-1).
    """
    matrix = _bernstein_matrix(coefficients.size - 1, False)
    rest = coefficients
    total = np.zeros_like(coefficients)
    for _ in range(order):
        total = total + rest
        rest = rest - matrix @ rest
    return total


@dataclass(frozen=True)
class CdfOnGrid:
    """A distribution function on 1025 equally spaced positions, and how much was repaired."""

    values: Floats
    repair: float


def smooth_cdf(probabilities: Floats, order: int = MARGIN_TUNING.bernstein_order) -> CdfOnGrid:
    """Distribution function from cell probabilities.

    The iterated operator can overshoot; a running maximum within [0, 1] makes it a distribution
    function again, and `repair` is the largest change that made.
    """
    coefficients = np.concatenate([[0.0], np.cumsum(probabilities)])
    raw = _bernstein_matrix(probabilities.size, True) @ iterate_bernstein(coefficients, order)
    valid = np.clip(np.maximum.accumulate(raw), 0.0, 1.0)
    valid[0], valid[-1] = 0.0, 1.0
    return CdfOnGrid(valid, float(np.max(np.abs(valid - raw))))


@dataclass(frozen=True)
class Marginal:
    """A column's privatized marginal: its cell probabilities, and what follows from them.

    Attributes
    ----------
    probabilities : (C,) over the column's public cells
    repair : total absolute change of the probabilities by settling the tails and the projection to the simplex
    rarest : share below which a category cannot be told from an empty one, or has too few people to learn from
    empty : share of empty values among those whom the party knows; `probabilities` are of the others
    """

    column: Column
    probabilities: Floats
    repair: float
    rarest: float = field(default=0.0, kw_only=True)
    empty: float = field(default=0.0, kw_only=True)

    @classmethod
    def from_release(cls, column: Column, noisy_counts: Ints, n_observed: int, epsilon: float) -> Marginal:
        """From what a party sent, at that epsilon per value."""
        if n_observed == 0:
            return cls.unknown(column, noisy_counts.size)
        raw = noisy_counts / n_observed
        smoothed = raw
        if column.kind in ("continuous", "count"):
            smoothed = smooth_tails(raw, math.sqrt(2.0) * 2.0 / epsilon / n_observed)
        probabilities = project_to_simplex(smoothed)
        rarest = MARGIN_TUNING.rarest_share(n_observed, math.sqrt(2.0) * 2.0 / epsilon)
        return cls(column, probabilities, float(np.sum(np.abs(probabilities - raw))), rarest=rarest)

    @classmethod
    def unknown(cls, column: Column, n_cells: int) -> Marginal:
        """That of a column in which nobody has a value: every cell alike. Noise around nothing is not used."""
        return cls(column, np.full(n_cells, 1.0 / n_cells), 0.0)

    def latents(self) -> list[Marginal]:
        """One marginal per latent: this one, or one binary marginal per category of a nominal column."""
        if self.column.kind != "nominal" or self.probabilities.size == 2:
            return [self]
        binary = Column(name=self.column.name, kind="binary")
        return [Marginal(binary, np.array([1.0 - p, p]), 0.0) for p in self.probabilities]

    @property
    def grade_steps(self) -> tuple[Floats, Floats]:
        """Grades at which a discrete column's latent crosses to the next cell, and the jumps of
        the mid-grade there; cells without mass are skipped. Empty for a continuous column without atoms."""
        if not self.column.has_ties:
            return np.empty(0), np.empty(0)
        kept = self.fine_probabilities()
        return np.cumsum(kept)[:-1], (kept[1:] + kept[:-1]) / 2.0

    @property
    def tied_share(self) -> float:
        """Share of pairs of subjects with the same value; of a continuous column, in its atoms."""
        return float(np.sum(self.probabilities**2 / self._widths())) if self.column.has_ties else 0.0

    @property
    def grade_variance(self) -> float:
        """Variance of the mid-grades: 1/12, less for ties."""
        tied = float(np.sum(self.probabilities**3 / self._widths() ** 2)) if self.column.has_ties else 0.0
        return (1.0 - tied) / 12.0

    def upper_ends(self) -> Floats:
        """The largest value of each cell (codes for categories)."""
        if self.column.kind == "continuous":
            ends = [
                piece.low + np.arange(1, piece.size + 1) / piece.size * (piece.high - piece.low)
                for piece in scale_pieces(self.column, self.probabilities.size)
            ]
            return from_unit(np.concatenate(ends), self.column)
        return self._firsts()[1:] - 1.0

    def cdf(self, values: Floats) -> Floats:
        """Privatized distribution function at the given values (codes for categories)."""
        if self.column.kind == "continuous":
            t = to_unit(values, self.column)
            total = np.zeros(np.shape(values))
            for piece, mass, smooth in self._smooth_pieces():
                if piece.atom is not None:
                    total = total + mass * (values >= piece.atom)
                else:
                    total = total + mass * np.interp((t - piece.low) / (piece.high - piece.low), CURVE_GRID, smooth)
            return total
        cumulative = np.concatenate([[0.0], np.cumsum(self.probabilities)])
        firsts = self._firsts()
        index = np.clip(np.searchsorted(firsts, np.floor(values), side="right") - 1, -1, self.probabilities.size - 1)
        inside = np.clip((np.floor(values) - firsts[index] + 1.0) / np.diff(firsts)[index], 0.0, 1.0)
        return np.where(index < 0, 0.0, cumulative[index] + inside * self.probabilities[index])

    def quantile(self, u: Floats) -> Floats:
        """Values (codes for categories) at the given grades: the privatized inverse."""
        if self.column.kind == "continuous":
            return self._smooth_quantile(u)
        cumulative = np.cumsum(self.probabilities)
        index = np.minimum(np.searchsorted(cumulative, u, side="right"), int(np.flatnonzero(self.probabilities)[-1]))
        firsts = self._firsts()
        if firsts.size == firsts[-1] - firsts[0] + 1.0:  # one value in every cell
            return np.asarray(firsts[index])
        width = np.diff(firsts)[index]
        below = np.where(index > 0, cumulative[index - 1], 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = np.nan_to_num((u - below) / self.probabilities[index])
        return firsts[index] + np.minimum(np.floor(np.clip(inside, 0.0, 1.0) * width), width - 1)

    def _smooth_pieces(self) -> Iterator[tuple[Piece, float, Floats]]:
        """A continuous column's pieces, with their mass and the distribution function inside of them."""
        for piece in scale_pieces(self.column, self.probabilities.size):
            own = self.probabilities[piece.start : piece.stop]
            mass = float(own.sum()) if self.column.atoms else 1.0
            yield piece, mass, smooth_cdf(own / mass).values if mass > 0.0 else CURVE_GRID

    def _smooth_quantile(self, u: Floats) -> Floats:
        found, below = np.full(np.shape(u), np.nan), 0.0
        for piece, mass, smooth in self._smooth_pieces():
            here = u >= below
            if mass == 0.0:
                continue
            if piece.atom is not None:
                found = np.where(here, piece.atom, found)
            else:
                # The tilt makes the function strictly increasing, so that flat stretches invert.
                rising = (1.0 - 1e-9) * smooth + 1e-9 * CURVE_GRID
                t = interpolate((u - below) / mass, rising, CURVE_GRID)
                found = np.where(here, from_unit(piece.low + t * (piece.high - piece.low), self.column), found)
            below += mass
        return found

    def grades_between(self, low: float, high: float) -> tuple[float, float]:
        """Where grades begin and end whose values lie from `low` to `high`; both the same where no grade is between."""
        return self._first_grade(lambda values: values >= low), self._first_grade(lambda values: values > high)

    def _first_grade(self, is_beyond: Callable[[Floats], NDArray[np.bool_]]) -> float:
        """The smallest grade whose value is beyond something; 1 if none is."""
        low, high = 0.0, 1.0
        for _ in range(_REFINEMENTS):
            grades = np.linspace(low, high, CURVE_GRID.size)
            beyond = is_beyond(self.quantile(grades))
            if not beyond.any():
                return high
            at = int(np.argmax(beyond))
            if at == 0:
                return low
            low, high = float(grades[at - 1]), float(grades[at])
        return high

    def fine_probabilities(self) -> Floats:
        """Probabilities of single values: a cell of many counts is cut into equal parts.

        Ranks are of values, not of cells. Parts of a 64th of the mass are as good as a continuum.
        """
        parts = np.clip(np.ceil(64.0 * self.probabilities), 1.0, self._widths()).astype(np.int64)
        fine = np.repeat(self.probabilities / parts, parts)
        kept = fine[fine > NO_MASS]
        return np.asarray(kept / kept.sum())

    def values_per_cell(self) -> Floats:
        """(C,) how many values each cell has; infinitely many in a continuous column."""
        return np.full(self.probabilities.size, np.inf) if self.column.kind == "continuous" else self._widths()

    def _widths(self) -> Floats:
        """Number of values in each cell; without end in those of a continuum."""
        if self.column.kind == "continuous":
            widths = np.full(self.probabilities.size, np.inf)
            widths[[p.start for p in scale_pieces(self.column, widths.size) if p.atom is not None]] = 1.0
            return widths
        return np.diff(self._firsts())

    def _firsts(self) -> Floats:
        if self.column.kind == "count":
            return count_cells(self.column).astype(np.float64)
        return np.arange(self.probabilities.size + 1, dtype=np.float64)
