"""What a forecast presumes of data nobody has seen: ordinary margins, and correlations of a given strength.

Everything here follows from the public schema and a seed. The assumptions, also in docs/planning.md:

- continuous: around the middle of the public range on its public scale, which is 6 to 12 standard deviations wide;
  normal or skewed, up to a lognormal of shape 0.6
- count: a rounded-down lognormal around the square root of the range
- ordinal and nominal: shares that differ by a factor of two or three
- binary: 10 to 50 % in the second category
- correlations: normal around zero with the given root mean square; two thirds of their mean square from three
  factors, the rest without structure
- blocks missing at random: presence depends on a mixture of the response party's columns, by about one unit of log odds
  per standard deviation
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri
from scipy.stats import multivariate_normal

from verticopula.copula import Layout
from verticopula.correlation import nearest_correlation
from verticopula.marginals import count_ranges
from verticopula.nominal import choose_category, solve_thresholds
from verticopula.schema import Column, ColumnKey, Federation

Floats = NDArray[np.float64]

TYPICAL_CORRELATION = 0.25
_FACTORS = 3
_FACTOR_SHARE = 2.0 / 3.0
_SMALLEST_EIGENVALUE = 0.02
_PULL = 0.5  # correlation of presence and score: about one unit of log odds per standard deviation


@dataclass(frozen=True)
class PresumedMargin:
    """A column's margin: a location and a spread, or the probabilities of its categories.

    Attributes
    ----------
    column : its kind and public range
    middle, spread : of the position in [0, 1] for a continuous column; of the logarithm for a count
    skew : shape of the lognormal that a continuous column's position follows; about normal where it is small
    shares : of the categories; empty for the others
    """

    column: Column
    middle: float = 0.0
    spread: float = 1.0
    skew: float = 1e-3
    shares: Floats = field(default_factory=lambda: np.empty(0))

    @classmethod
    def draw(cls, column: Column, rng: np.random.Generator) -> PresumedMargin:
        if column.kind == "continuous":
            return cls(column, rng.uniform(0.4, 0.6), 1.0 / rng.uniform(6.0, 12.0), rng.uniform(1e-3, 0.6))
        if column.kind == "count":
            low, high = column.bounds or (0.0, 1.0)
            return cls(column, 0.5 * math.log(high - low + 1.0) - 0.2, rng.uniform(0.5, 1.0))
        if column.kind == "binary" or len(column.categories or ()) == 2:
            share = rng.uniform(0.1, 0.5)
            return cls(column, shares=np.array([1.0 - share, share]))
        return cls(column, shares=rng.dirichlet(np.full(len(column.categories or ()), 6.0)))

    def values(self, latents: Floats) -> Floats:
        """(n,) positions, counts above the lowest, or category codes from (n, latents) normals."""
        if latents.shape[1] > 1:
            return choose_category(latents, solve_thresholds(self.shares)).astype(np.float64)
        z = latents[:, 0]
        if self.column.kind == "continuous":
            return np.clip(self.middle + self.spread * np.expm1(self.skew * z) / self.skew, 0.0, 1.0)
        if self.column.kind == "count":
            low, high = self.column.bounds or (0.0, 1.0)
            return np.minimum(np.floor(np.exp(self.middle + self.spread * z)), high - low)
        return np.searchsorted(np.cumsum(self.shares)[:-1], ndtr(z)).astype(np.float64)

    def below(self, cuts: Floats) -> Floats:
        """Probability of a value below each cut; positions, or counts above the lowest."""
        if self.column.kind == "count":
            with np.errstate(divide="ignore"):
                return ndtr((np.log(cuts) - self.middle) / self.spread)
        with np.errstate(divide="ignore"):
            inside = np.maximum(1.0 + self.skew * (cuts - self.middle) / self.spread, 0.0)
            return ndtr(np.log(inside) / self.skew)

    def cell_probabilities(self, n_cells: int) -> Floats:
        """Of the column's public cells."""
        if self.shares.size:
            return self.shares
        cumulative = self.below(self.inner_cuts(n_cells))
        return np.diff(cumulative, prepend=0.0, append=1.0)

    def cells(self, values: Floats, n_cells: int) -> NDArray[np.int64]:
        """Cell of each value."""
        if self.shares.size:
            return values.astype(np.int64)
        return np.searchsorted(self.inner_cuts(n_cells), values, side="right")

    def inner_cuts(self, n_cells: int) -> Floats:
        """Where the public cells of a continuous or count column meet."""
        if self.column.kind == "count":
            low, high = self.column.bounds or (0.0, 1.0)
            return np.asarray(count_ranges(int(low), int(high))[1:-1] - low, dtype=np.float64)
        return np.arange(1, n_cells) / n_cells


@dataclass(frozen=True)
class Presumed:
    """A truth to rehearse a study on."""

    layout: Layout
    margins: Mapping[ColumnKey, PresumedMargin]
    correlation: Floats

    @classmethod
    def draw(cls, federation: Federation, strength: float, rng: np.random.Generator) -> Presumed:
        """Margins and correlations for the federation's schema; `strength` is the root mean square correlation."""
        layout = Layout.of({key: federation.column(key) for key in federation.keys})
        margins = {key: PresumedMargin.draw(federation.column(key), rng) for key in federation.keys}
        return cls(layout, margins, _draw_correlation(layout, strength, rng))


def _draw_correlation(layout: Layout, strength: float, rng: np.random.Generator) -> Floats:
    """Factors plus unstructured rest, scaled to the strength where that is possible."""
    q = len(layout.labels)
    loadings = rng.standard_normal((q, _FACTORS))
    rest = rng.standard_normal((q, 4 * q))
    free = ~layout.nominal_blocks() & ~np.eye(q, dtype=bool)
    structured = loadings @ loadings.T
    unstructured = rest @ rest.T
    matrix = np.zeros((q, q))
    if free.any():
        for part, share in ((structured, _FACTOR_SHARE), (unstructured, 1.0 - _FACTOR_SHARE)):
            matrix += strength * math.sqrt(share) * part / math.sqrt(float(np.mean(part[free] ** 2)))
    # Off the diagonal only; where the factors would explain more than there is, the repair takes it back.
    matrix = np.clip(matrix, -0.95, 0.95)
    return respect_nominal(matrix, layout)


def respect_nominal(matrix: Floats, layout: Layout) -> Floats:
    """A correlation matrix in which categories' latents are independent, and only their differences matter."""
    centre = np.eye(matrix.shape[0])
    for part in layout.slices:
        width = part.stop - part.start
        if width > 1:
            centre[part, part] -= 1.0 / width
    centred = centre @ matrix @ centre.T
    centred[layout.nominal_blocks()] = 0.0
    np.fill_diagonal(centred, 1.0)
    return nearest_correlation(centred, floor=_SMALLEST_EIGENVALUE).correlation


# ---- who is known to whom ------------------------------------------------------------------


@dataclass(frozen=True)
class Presence:
    """How blocks are presumed to be missing.

    Attributes
    ----------
    shares : (K,) of the cohort that each party knows
    together : two parties' numbers -> share that both know; others are independent given the score
    at_random : whether presence depends on what the response's party holds (missing at random), or on nothing
    """

    shares: Floats
    together: Mapping[tuple[int, int], float]
    at_random: bool

    def draw(self, score: Floats, rng: np.random.Generator) -> NDArray[np.bool_]:
        """(n, K) masks; `score` (n,) is of unit variance, from the response party's latents."""
        thresholds = ndtri(np.clip(self.shares, 1e-12, 1.0 - 1e-12))
        pull = _PULL * rng.choice([-1.0, 1.0], self.shares.size) if self.at_random else np.zeros(self.shares.size)
        link = np.eye(self.shares.size)
        for (j, k), both in self.together.items():
            if max(self.shares[j], self.shares[k]) < 1.0:
                wanted = _link(float(thresholds[j]), float(thresholds[k]), both) - pull[j] * pull[k]
                link[j, k] = link[k, j] = wanted / math.sqrt((1.0 - pull[j] ** 2) * (1.0 - pull[k] ** 2))
        root = np.linalg.cholesky(nearest_correlation(np.clip(link, -1.0, 1.0), floor=1e-6).correlation)
        own = rng.standard_normal((score.size, self.shares.size)) @ root.T
        masks = (pull * score[:, None] + np.sqrt(1.0 - pull**2) * own <= thresholds) | (self.shares >= 1.0)
        for lonely in np.flatnonzero(masks.sum(axis=0) < 2):  # a study needs somebody
            masks[rng.permutation(score.size)[:2], lonely] = True
        return np.asarray(masks)


def _link(first: float, second: float, both: float) -> float:
    """Correlation of two normals that are both below their thresholds with that probability."""

    def miss(r: float) -> float:
        return float(multivariate_normal.cdf([first, second], cov=[[1.0, r], [r, 1.0]])) - both

    if miss(-0.999) >= 0.0 or miss(0.999) <= 0.0:
        return -0.999 if miss(-0.999) >= 0.0 else 0.999
    return float(brentq(miss, -0.999, 0.999, xtol=1e-4))
