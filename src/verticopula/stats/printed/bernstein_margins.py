"""Margins of Eq. (9): a monotone spline through a distribution function, Bernstein coefficients, Laplace noise.

A discrete column is treated as the numbers of its categories. Its values are whole, so the inverse is rounded.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator, PPoly
from scipy.special import comb

from verticopula.privacy.noise import Noise
from verticopula.schema.columns import Column
from verticopula.schema.printed_choices import PrintedChoices
from verticopula.stats.margin_cells import cell_count
from verticopula.stats.marginals import Marginal, iterate_bernstein

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GRID = np.linspace(0.0, 1.0, 4097)
_UNIT = 2.0**40  # noise is drawn in whole numbers of 2^-40: finer than anybody can see, and no floating-point Laplace
_HALVINGS = 50


@dataclass(frozen=True)
class MonotoneSpline:
    """A distribution function through points: the monotone interpolating spline of Fritsch and Carlson.

    Attributes
    ----------
    knots : increasing values
    heights : the distribution function there, never falling
    smooth : False for straight lines through the same points
    """

    knots: Floats
    heights: Floats
    smooth: bool = True

    @cached_property
    def _spline(self) -> PPoly:
        if self.smooth:
            return PchipInterpolator(self.knots, self.heights)
        slopes = np.diff(self.heights) / np.diff(self.knots)
        return PPoly(np.stack([0.0 * slopes, 0.0 * slopes, slopes, self.heights[:-1]]), self.knots)

    def at(self, values: Floats) -> Floats:
        """The distribution function: 0 below the first knot, that of the last knot above it."""
        inside = np.clip(values, self.knots[0], self.knots[-1])
        heights = np.full(values.shape, self.heights[0]) if self.knots.size == 1 else self._spline(inside)
        return np.where(values < self.knots[0], 0.0, heights)

    def inverse(self, grades: Floats) -> Floats:
        """The smallest value with at least this grade, from the first knot to the last; by bisection."""
        if self.knots.size == 1:
            return np.full(grades.shape, self.knots[0])
        place = np.clip(np.searchsorted(self.heights, grades), 1, self.knots.size - 1)
        inside = _invert_cubics(grades, place, self.knots, self._spline.c)
        first = grades <= self.heights[0]
        return np.asarray(np.where(first, self.knots[0], np.where(grades > self.heights[-1], self.knots[-1], inside)))


@njit(cache=True, nogil=True)
def _invert_cubics(grades: Floats, places: Ints, knots: Floats, coefficients: Floats) -> Floats:
    """For each grade, the smallest value between two knots where their cubic has reached it; by bisection.

    Parameters
    ----------
    places : of the knot behind each value
    coefficients : (4, knots - 1) of the cubics in the distance from their first knot, the highest power first
    """
    ends, cubics = np.empty((2, grades.size)), np.empty((6, grades.size))
    for i in range(grades.size):
        k = places[i] - 1
        ends[0, i], ends[1, i] = knots[k + 1], knots[k]
        cubics[0, i], cubics[5, i] = knots[k], grades[i]
        for power in range(4):
            cubics[1 + power, i] = coefficients[power, k]
    for _ in range(_HALVINGS):
        _halve_all(ends, cubics)
    found: Floats = ends[0]
    return found


@njit(cache=True, nogil=True)
def _halve_all(ends: Floats, cubics: Floats) -> None:
    """One step of all bisections: without branches, because that is what vectorises.

    Parameters
    ----------
    ends : (2, n) where a grade is reached, and where it is not
    cubics : (6, n) first knots, coefficients and grades
    """
    for i in range(ends.shape[1]):
        true_end, false_end = ends[0, i], ends[1, i]
        middle = 0.5 * (true_end + false_end)
        along = middle - cubics[0, i]
        height = ((cubics[1, i] * along + cubics[2, i]) * along + cubics[3, i]) * along + cubics[4, i]
        reached = height >= cubics[5, i]
        ends[0, i] = middle if reached else true_end
        ends[1, i] = false_end if reached else middle


def ecdf_spline(values: Floats, *, smooth: bool = True) -> MonotoneSpline:
    """The spline through the empirical distribution function of these values."""
    knots, counts = np.unique(values, return_counts=True)
    return MonotoneSpline(knots, np.cumsum(counts) / values.size, smooth)


def choose_degree(n: int, epsilon: float, choices: PrintedChoices) -> int:
    """l of Corollary 1: max(1, (εn / log(1/δ))^(1/(h+1))), to the nearest whole number."""
    degree: float = (epsilon * n / math.log(1.0 / choices.failure_chance)) ** (1.0 / (choices.bernstein_order + 1))
    return max(1, round(degree))


def release_coefficients(
    curve: MonotoneSpline,
    low: float,
    high: float,
    n: int,
    epsilon: float,
    choices: PrintedChoices,
    noise: Noise,
    *label: str,
) -> Floats:
    """(l+1,) noisy Bernstein coefficients F(v/l) + Lap((l+1)/(nε)) of a curve on [low, high].

    Privacy
    -------
    Leaves the party, with `low` and `high`. Given a range that no value decides, the coefficients of an empirical
    distribution function are ε-differentially private for one person's value: each moves by at most 1/n. The paper
    takes the range from the data. That has no epsilon, and is priced as infinite.
    """
    degree = choose_degree(n, epsilon, choices)
    exact = curve.at(low + (high - low) * np.arange(degree + 1) / degree)
    scale = (degree + 1) / (n * epsilon)
    noisy = noise.discrete_laplace(np.rint(exact * _UNIT).astype(np.int64), scale * _UNIT, *label)
    return np.asarray(noisy / _UNIT)


def evaluate_bernstein(coefficients: Floats, order: int) -> Floats:
    """The iterated Bernstein operator of these coefficients at the points of `GRID`. Implements Eq. (9)."""
    return np.asarray(_bernstein_basis(coefficients.size - 1) @ iterate_bernstein(coefficients, order))


def make_rise(heights: Floats, choices: PrintedChoices) -> Floats:
    """Heights of a polynomial on the grid as those of a distribution function, kept in [0, 1]."""
    risen = np.maximum.accumulate(heights) if choices.running_maximum else np.sort(heights)
    return np.asarray(np.clip(risen, 0.0, 1.0))


@lru_cache(maxsize=4)
def _bernstein_basis(degree: int) -> Floats:
    """(points, l+1) values of the basis polynomials at the points of `GRID`."""
    v = np.arange(degree + 1)
    return np.asarray(comb(degree, v) * GRID[:, None] ** v * (1.0 - GRID[:, None]) ** (degree - v))


@dataclass(frozen=True)
class BernsteinMargin(Marginal):
    """A margin from noisy Bernstein coefficients on a range.

    `probabilities`, over the column's public cells, follow from it: they are what reports show.

    Attributes
    ----------
    low, high : the range that was rescaled to [0, 1]
    coefficients : (l+1,) noisy
    choices : how open points were read
    """

    low: float
    high: float
    coefficients: Floats
    choices: PrintedChoices

    @classmethod
    def build(
        cls,
        column: Column,
        n_observed: int,
        epsilon: float,
        low: float,
        high: float,
        coefficients: Floats,
        choices: PrintedChoices,
    ) -> BernsteinMargin:
        """From what a party sent."""
        cells = np.zeros(cell_count(column, n_observed, epsilon))
        raw = evaluate_bernstein(coefficients, choices.bernstein_order)
        repair = float(np.max(np.abs(make_rise(raw, choices) - raw)))
        found = cls(column, cells, repair, low, high, coefficients, choices)
        shares = np.diff(found.cdf(found.upper_ends()), prepend=0.0)
        return cls(column, shares, repair, low, high, coefficients, choices)

    @cached_property
    def _curve(self) -> Floats:
        """The polynomial on the grid as a distribution function."""
        return make_rise(evaluate_bernstein(self.coefficients, self.choices.bernstein_order), self.choices)

    def cdf(self, values: Floats) -> Floats:
        """The distribution function of what `quantile` gives at uniform grades."""
        shift = 0.0
        if self.column.is_discrete:
            values, shift = np.floor(values), 0.0 if self.choices.round_up else 0.5
        position = (values + shift - self.low) / (self.high - self.low) if self.high > self.low else values - self.low
        inside = np.interp(position, GRID, self._curve)
        return np.where(values >= self.high, 1.0, np.where(values < self.low, 0.0, inside))

    def quantile(self, u: Floats) -> Floats:
        """The smallest value with at least this grade, on the range; whole for a discrete column."""
        rising = (1.0 - 1e-9) * self._curve + 1e-9 * GRID  # strictly, so that flat stretches invert
        values = self.low + (self.high - self.low) * np.interp(u, rising, GRID)
        return round_values(values, self.column, self.choices)


def round_values(values: Floats, column: Column, choices: PrintedChoices) -> Floats:
    """Values that the column can hold: whole numbers of a discrete one, and the schema's decimals."""
    if column.is_discrete:
        return np.asarray(np.ceil(values - 1e-9) if choices.round_up else np.rint(values))
    return values if column.decimals is None else np.round(values, column.decimals)
