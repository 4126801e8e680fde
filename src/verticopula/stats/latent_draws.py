"""Draws of latent normals for the subjects themselves: rank-constrained, conditional, posterior.

Everything is a function of releases and of the coordinator's own randomness. A draw belongs to a
subject, so a table made from it is a noisy copy of the cohort: see `aligned` in docs/explanation/privacy.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from verticopula.stats.em import Pattern
from verticopula.stats.matrix_repair import clipped_root

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_INSIDE = 1e-6  # how far inside an interval a draw stays, as a share of its width
SMALLEST_VARIANCE = 1e-9  # of a drawn direction
_LEAST_CHANCE = 1e-12
_BLOCK = 1 << 20  # subjects times cells weighed at once
_KEPT = 1 << 17  # subjects times cells whose likelihood is kept: a megabyte for a latent
_STRONGEST_LINK = 1.0 - 1e-6
_NO_MASS = 1e-290


@dataclass(frozen=True)
class LatentDrawTuning:
    """Length of the chain of latents. Chosen by hand, not tuned.

    Attributes
    ----------
    sweeps : over all columns
    """

    sweeps: int = 5


LATENT_DRAW_TUNING = LatentDrawTuning()


def order_by_ranks(ranks: Ints, rng: np.random.Generator) -> Ints:
    """Positions in increasing order of noisy ranks, equal ones in random order.

    Noisy ranks crowd into the middle of 1..n with many ties. Re-ranking them to 1..n keeps the tails.
    """
    return np.argsort(ranks + rng.random(ranks.size))


def draw_truncated(mean: Floats, deviation: float, low: Floats, high: Floats, rng: np.random.Generator) -> Floats:
    """Normal draws strictly inside (low, high)."""
    a, b = (low - mean) / deviation, (high - mean) / deviation
    mirrored = a > 0.0  # in the upper tail the distribution function has no digits left
    a, b = np.where(mirrored, -b, a), np.where(mirrored, -a, b)
    bottom, top = ndtr(a), ndtr(b)
    uniform = rng.random(mean.size)
    with np.errstate(divide="ignore"):
        drawn = ndtri(bottom + (top - bottom) * uniform)
        # Far below the mean nothing is left of an interval in floating point. The normal is an
        # exponential there, crowded at the upper end.
        far = np.flatnonzero(top < _NO_MASS)
        drawn[far] = np.maximum(b[far] + np.log(uniform[far]) / np.maximum(-b[far], 1.0), a[far])
    drawn = mean + deviation * np.where(mirrored, -drawn, drawn)
    width = np.where(np.isfinite(high - low), high - low, 1.0)
    return np.clip(drawn, low + _INSIDE * width, high - _INSIDE * width)


def adjust_to_order(start: Floats, mean: Floats, deviation: float, rng: np.random.Generator) -> Floats:
    """Redraw increasing values from N(mean, deviation^2), each between its neighbours. Implements Eq. (6).

    Every second position is drawn given its two neighbours, then the others: the order holds
    exactly, in O(n).
    """
    padded = np.concatenate([[-np.inf], start, [np.inf]])
    for first in (1, 0):
        at = np.arange(first, start.size, 2)
        padded[at + 1] = draw_truncated(mean[at], deviation, padded[at], padded[at + 2], rng)
    return padded[1:-1]


def draw_constrained(correlation: Floats, observed: Bools, ranks: Sequence[Ints], rng: np.random.Generator) -> Floats:
    """(N, q) latents in the order of the noisy ranks. Implements lines 7 to 14 of Algorithm 2.

    Column by column, conditional on the columns before it: observed subjects in the order of their
    noisy ranks, the others unconstrained: `evcds.prepare_missing` draws those again.
    """
    root = np.linalg.cholesky(correlation)
    n_subjects, q = observed.shape
    # Column by column in memory, as they are used.
    latents = np.empty((n_subjects, q), order="F")
    innovations = np.zeros((n_subjects, q), order="F")
    for j in range(q):
        mean = innovations[:, :j] @ root[j, :j]
        deviation = float(root[j, j])
        column = mean + deviation * rng.standard_normal(n_subjects)
        rows = np.flatnonzero(observed[:, j])
        ordered = rows[order_by_ranks(ranks[j], rng)]
        start = np.sort(rng.standard_normal(ordered.size))
        column[ordered] = adjust_to_order(start, mean[ordered], deviation, rng) if j else start
        latents[:, j] = column
        innovations[:, j] = (column - mean) / deviation
    return latents


def draw_posterior(
    readings: Floats,
    patterns: Sequence[Pattern],
    correlation: Floats,
    loading: Floats,
    error: Floats,
    rng: np.random.Generator,
) -> Floats:
    """(N, q) latents given noisy readings, reading = loading @ latent + error; zero for subjects in no pattern.

    Parameters
    ----------
    loading : (q, q)
    error : (q, q) covariance of the errors
    """
    covariance = loading @ correlation @ loading.T + error
    with_latents = loading @ correlation  # Cov(reading, latent)
    drawn = np.zeros(readings.shape)
    for pattern in patterns:
        seen = pattern.observed
        weights = np.linalg.solve(covariance[np.ix_(seen, seen)], with_latents[seen]).T
        left = correlation - weights @ with_latents[seen]
        noise = rng.standard_normal((pattern.rows.size, correlation.shape[0])) @ clipped_root(left, SMALLEST_VARIANCE).T
        drawn[pattern.rows] = readings[pattern.rows][:, seen] @ weights.T + noise
    return drawn


@dataclass(frozen=True)
class CellEvidence:
    """Noisy grades of a discrete latent: grade = middle of the subject's cell + error.

    Attributes
    ----------
    rows : (n,) subjects with a value
    grades : (n,) their noisy grades
    middles : (C,) each cell's mid-grade among the observed
    width : standard deviation of the error
    bounds : (C+1,) latent values where the cells begin and end, infinite at both ends
    """

    rows: Ints
    grades: Floats
    middles: Floats
    width: float
    bounds: Floats

    def draw(self, mean: Floats, deviation: float, rng: np.random.Generator) -> Floats:
        """Latents from N(mean, deviation^2) given the noisy grades: the cell first, then the latent in it."""
        uniform = rng.random(mean.size)
        cells = np.empty(mean.size, dtype=np.int64)
        step = max(_BLOCK // self.middles.size, 1)
        for start in range(0, mean.size, step):
            block = slice(start, start + step)
            chances = np.cumsum(self._weigh_cells(mean[block], deviation, block), axis=1)
            cells[block] = ((uniform[block] * chances[:, -1])[:, None] > chances[:, :-1]).sum(axis=1)
        return draw_truncated(mean, deviation, self.bounds[cells], self.bounds[cells + 1], rng)

    def _weigh_cells(self, mean: Floats, deviation: float, block: slice) -> Floats:
        """(n, C) chance of each cell given the other latents and the noisy grade, up to a factor per subject."""
        below = ndtr((self.bounds - mean[:, None]) / deviation)
        few = self.grades.size * self.middles.size <= _KEPT
        likelihood = self._likelihood[block] if few else self._find_likelihood(self.grades[block])
        # A cell that the other latents all but rule out may still be the one that was observed.
        return np.asarray(np.maximum(np.diff(below, axis=1), _LEAST_CHANCE) * likelihood)

    @cached_property
    def _likelihood(self) -> Floats:
        """Of all subjects: no sweep changes it."""
        return self._find_likelihood(self.grades)

    def _find_likelihood(self, grades: Floats) -> Floats:
        """(n, C) how well each cell explains the noisy grade, the best one 1."""
        exponent = -0.5 * ((grades[:, None] - self.middles) / self.width) ** 2
        return np.asarray(np.exp(exponent - exponent.max(axis=1)[:, None]))


@dataclass(frozen=True)
class ReadingEvidence:
    """Readings of a continuous latent, reading = link * latent + error of variance 1 - link^2."""

    rows: Ints
    readings: Floats
    link: float

    def draw(self, mean: Floats, deviation: float, rng: np.random.Generator) -> Floats:
        """Latents from N(mean, deviation^2) given the readings."""
        link = min(self.link, _STRONGEST_LINK)
        error = 1.0 - link**2
        precision = deviation**-2 + link**2 / error
        centre = (mean * deviation**-2 + self.readings * (link / error)) / precision
        return np.asarray(centre + rng.standard_normal(mean.size) / np.sqrt(precision))


def sweep_latents(
    latents: Floats,
    correlation: Floats,
    evidence: Mapping[int, CellEvidence | ReadingEvidence],
    rng: np.random.Generator,
    *,
    sweeps: int = LATENT_DRAW_TUNING.sweeps,
) -> Floats:
    """Gibbs sampling from a start: each latent with evidence in turn, given all others and what was seen of it.

    `draw_posterior` takes readings for normal, and a discrete column's are not: its draws put subjects
    into other cells than their own even where nothing is noisy. Started from them, a few sweeps are enough.
    Latents without an entry in `evidence` stay.
    """
    precision = np.linalg.inv(correlation)
    drawn = np.array(latents, order="F")
    for _ in range(sweeps):
        for j, seen in evidence.items():
            mean = drawn[:, j] - drawn @ (precision[:, j] / precision[j, j])
            deviation = float(precision[j, j] ** -0.5)
            column = mean + deviation * rng.standard_normal(mean.size)
            column[seen.rows] = seen.draw(mean[seen.rows], deviation, rng)
            drawn[:, j] = column
    return drawn
