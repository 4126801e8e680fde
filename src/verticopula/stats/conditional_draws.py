"""Latent normals given that some of them have a value, lie in an interval, or make a category win.

Those with a value are regressed on. Those in a region come from the truncated normal: by its inverse where it is one
interval, otherwise by rejection, which is exact, and where the region is too rare for that by sweeps of Gibbs draws,
which start inside of it. All others are normal given these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from verticopula.stats.em import regress
from verticopula.stats.matrix_repair import clipped_root

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_FARTHEST = 8.0


@dataclass(frozen=True)
class ConditionTuning:
    """Chosen by hand, not tuned.

    Attributes
    ----------
    proposals : for each row that is wanted, before sweeps take over: regions of one row in 64 are drawn exactly
    sweeps : of rows in rarer regions
    tilted_sweeps : of rows of a tilted copula, which begin as those of the copula do
    filling_sweeps : of empty values that are filled
    """

    proposals: int = 64
    sweeps: int = 100
    tilted_sweeps: int = 40
    filling_sweeps: int = 10


CONDITION_TUNING = ConditionTuning()


@dataclass(frozen=True)
class LatentRegion:
    """Where some latents have to be.

    Attributes
    ----------
    points, values : (k,) latents that have one value, and which
    latents : (s,) those in a region
    rows : (m, s) of the inequalities low <= rows @ z <= high
    low, high : (m,)
    start : (s,) inside of the region
    """

    points: Ints
    values: Floats
    latents: Ints
    rows: Floats
    low: Floats
    high: Floats
    start: Floats

    def holds(self, z: Floats) -> NDArray[np.bool_]:
        """(n,) which of the (n, s) draws lie in the region."""
        along = z @ self.rows.T
        return np.asarray(((along >= self.low) & (along <= self.high)).all(axis=1))


class RegionBuilder:
    """Collects what is asked of each column's latents."""

    def __init__(self) -> None:
        self._points: list[tuple[int, float]] = []
        self._latents: list[int] = []
        self._inequalities: list[tuple[dict[int, float], float, float]] = []
        self._start: list[float] = []

    def bound_or_fix(self, latent: int, low: float, high: float) -> None:
        """One latent lies in an interval, or has one value where both ends are the same."""
        low, high = (min(max(end, -_FARTHEST), _FARTHEST) for end in (low, high))
        if low == high:
            self._points.append((latent, low))
            return
        self._latents.append(latent)
        self._inequalities.append(({latent: 1.0}, low, high))
        self._start.append((low + high) / 2.0)

    def win(self, first: int, thresholds: Floats, category: int) -> None:
        """Of latents from `first` on, that of a category has the largest margin over its threshold."""
        for other, threshold in enumerate(thresholds):
            self._latents.append(first + other)
            self._start.append(float(threshold) + (1.0 if other == category else 0.0))
            if other != category:
                least = float(thresholds[category] - threshold)
                self._inequalities.append(({first + category: 1.0, first + other: -1.0}, least, np.inf))

    def build(self) -> LatentRegion:
        """The region of latents in which all that was said so far holds."""
        place = {latent: s for s, latent in enumerate(self._latents)}
        rows = np.zeros((len(self._inequalities), len(place)))
        for m, (weights, _, _) in enumerate(self._inequalities):
            for latent, weight in weights.items():
                rows[m, place[latent]] = weight
        return LatentRegion(
            np.array([latent for latent, _ in self._points], dtype=np.int64),
            np.array([value for _, value in self._points], dtype=np.float64),
            np.array(self._latents, dtype=np.int64),
            rows,
            np.array([low for _, low, _ in self._inequalities]),
            np.array([high for _, _, high in self._inequalities]),
            np.array(self._start),
        )


def draw_given(correlation: Floats, region: LatentRegion, n_rows: int, rng: np.random.Generator) -> Floats:
    """(n, q) latents in the region.

    Parameters
    ----------
    correlation : (q, q) positive definite
    """
    points, bounded = region.points, region.latents
    given = np.concatenate([points, bounded])
    rest = np.setdiff1d(np.arange(len(correlation)), given)
    mean, covariance = _condition(correlation, points, region.values[None], bounded)
    z = np.empty((n_rows, len(correlation)))
    z[:, points] = region.values
    if bounded.size:
        z[:, bounded] = draw_in_region(mean[0], covariance, region, n_rows, rng)
    means, left = _condition(correlation, given, z[:, given], rest)
    z[:, rest] = means + rng.standard_normal((n_rows, rest.size)) @ clipped_root(left, 0.0).T
    return z


def _condition(correlation: Floats, given: Ints, values: Floats, wanted: Ints) -> tuple[Floats, Floats]:
    """(n, w) means and (w, w) covariance of some latents where others have these (n, g) values."""
    weights = regress(correlation, given, wanted)
    return values @ weights.T, correlation[np.ix_(wanted, wanted)] - weights @ correlation[np.ix_(given, wanted)]


def draw_in_region(
    mean: Floats, covariance: Floats, region: LatentRegion, n_rows: int, rng: np.random.Generator
) -> Floats:
    """(n, s) draws of a normal that is truncated to the region.

    Parameters
    ----------
    mean, covariance : (s,) and (s, s), before it is truncated
    """
    if mean.size == 1:
        deviation = np.full(n_rows, np.sqrt(covariance[0, 0]))
        return _draw_between(np.full(n_rows, mean[0]), deviation, region.low[0], region.high[0], rng)[:, None]
    root, kept, found = clipped_root(covariance, 0.0), [], 0
    for _ in range(CONDITION_TUNING.proposals):
        proposed = mean + rng.standard_normal((n_rows, mean.size)) @ root.T
        accepted = proposed[region.holds(proposed)][: n_rows - found]
        kept.append(accepted)
        found += len(accepted)
        if found == n_rows:
            break
    if found < n_rows:
        kept.append(_sweep(mean, covariance, region, n_rows - found, rng))
    return np.concatenate(kept)


def _sweep(mean: Floats, covariance: Floats, region: LatentRegion, n_rows: int, rng: np.random.Generator) -> Floats:
    """The same by Gibbs sweeps: each latent in turn given all others, between the ends that the region leaves it."""
    precision = np.linalg.inv(covariance + 1e-9 * np.eye(mean.size))
    z = np.tile(region.start, (n_rows, 1))
    for _ in range(CONDITION_TUNING.sweeps):
        for s in range(mean.size):
            own = region.rows[:, s]
            met = np.flatnonzero(own)
            others = (z @ region.rows[met].T) - z[:, s, None] * own[met]
            ends = np.stack([(region.low[met] - others) / own[met], (region.high[met] - others) / own[met]])
            low, high = ends.min(axis=0).max(axis=1), ends.max(axis=0).min(axis=1)
            rest = (z - mean) @ precision[s] - (z[:, s] - mean[s]) * precision[s, s]
            centre = mean[s] - rest / precision[s, s]
            z[:, s] = _draw_between(centre, np.full(n_rows, precision[s, s] ** -0.5), low, high, rng)
    return z


def _draw_between(
    mean: Floats, deviation: Floats, low: Floats | float, high: Floats | float, rng: np.random.Generator
) -> Floats:
    """(n,) normals between two ends; drawn in the lower tail, where grades keep their digits."""
    first, second = (low - mean) / deviation, (high - mean) / deviation
    mirrored = first + second > 0.0
    first, second = np.where(mirrored, -second, first), np.where(mirrored, -first, second)
    below, above = ndtr(first), ndtr(second)
    drawn = ndtri(below + (above - below) * rng.random(mean.size))
    drawn = np.clip(drawn, first, second)  # both ends may be too far out for digits
    return np.clip(mean + deviation * np.where(mirrored, -drawn, drawn), low, high)
