"""Step functions of a latent normal: the public score of every pooled cell of an ordered column.

A score is a function of one record's cell alone: the mean latent normal of the cell under the *observed* noisy margin,
capped, with mean 0 and variance 1 there. Parties and coordinator compute all of it from the same releases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from verticopula.mpc.verified_cells import N_COMPUTE
from verticopula.stats.marginals import NO_MASS
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING as TUNING

Floats = NDArray[np.float64]

_FARTHEST = 6.0
_CAPS = 19


@dataclass(frozen=True)
class LatentScore:
    """One latent's score.

    Attributes
    ----------
    thresholds : (c-1,) increasing; latent values among the observed where the score steps; finite
    scores : (c,) of the cells
    """

    thresholds: Floats
    scores: Floats

    @classmethod
    def of(cls, p: Floats, cap: float = _FARTHEST) -> LatentScore:
        """For the probabilities of an ordered column's cells."""
        thresholds = np.clip(ndtri(np.clip(np.cumsum(p)[:-1], 0.0, 1.0)), -_FARTHEST, _FARTHEST)
        density = _density(np.concatenate([[-np.inf], thresholds, [np.inf]]))
        # Where there is no mass there is no mean: the place between the neighbours.
        middle = np.clip(ndtri(np.clip(np.cumsum(p) - 0.5 * p, 0.0, 1.0)), -_FARTHEST, _FARTHEST)
        means = np.where(p > NO_MASS, (density[:-1] - density[1:]) / np.maximum(p, NO_MASS), middle)
        capped = np.clip(means, -cap, cap)
        centred = capped - p @ capped
        least = abs(float(capped[-1] - capped[0])) * math.sqrt(TUNING.rarest_value * (1.0 - TUNING.rarest_value))
        deviation = max(math.sqrt(float(p @ centred**2)), least)
        return cls(thresholds, centred / deviation if deviation > 0.0 else np.zeros_like(centred))

    @property
    def is_flat(self) -> bool:
        """Whether one cell has (all but) all of the mass: nothing can be learnt of such a latent."""
        return self.moments()[1] < TUNING.flat_variance

    def shares(self, shift: float = 0.0, scale: float = 1.0) -> Floats:
        """(c,) chance of each cell for a latent N(shift, scale^2)."""
        return np.diff(ndtr((self.thresholds - shift) / scale), prepend=0.0, append=1.0)

    def moments(self, shift: float = 0.0, scale: float = 1.0) -> tuple[float, float]:
        """Mean and variance of the score for a latent N(shift, scale^2)."""
        shares = self.shares(shift, scale)
        mean = float(shares @ self.scores)
        return mean, max(float(shares @ self.scores**2) - mean**2, 0.0)

    def slope(self, shift: float = 0.0) -> float:
        """Covariance of score and latent, for a latent N(shift, 1)."""
        return float(np.diff(self.scores) @ _density(self.thresholds - shift))

    def read(self, latent: Floats) -> Floats:
        """The scores of these latents."""
        return np.asarray(self.scores[np.searchsorted(self.thresholds, latent)])


def choose_cap(mu: float, n_subjects: int, n_columns: int) -> float:
    """The cap of scores, in standard deviations of the latent normal: from public quantities.

    A score capped at c has the slope s = 2 Phi(c) - 1 and, among v, the efficiency s^2/v. Records of such columns have
    a bound in proportion to k = c/s each, and noise on a correlation has a standard deviation in proportion to k^2.
    The cap is the one for which noise and sampling together are least, for a pair that everybody has.
    """
    caps = np.linspace(*TUNING.score_caps, _CAPS)
    slope = 2.0 * ndtr(caps) - 1.0
    variance = slope - 2.0 * caps * _density(caps) + 2.0 * caps**2 * ndtr(-caps)
    noise = math.sqrt(N_COMPUTE / 2.0) * n_columns * (caps / slope) ** 2 / (mu * n_subjects)
    sampling = variance**2 / slope**4 / n_subjects
    return float(caps[int(np.argmin(noise**2 + sampling))])


def solve_shift(score: LatentScore, mean: float) -> float:
    """Where a latent of variance 1 must be for its score to have that mean; within two standard deviations."""
    if score.is_flat:
        return 0.0
    low, high = (score.moments(x)[0] - mean for x in (-TUNING.farthest_shift, TUNING.farthest_shift))
    if low >= 0.0 or high <= 0.0:
        return -TUNING.farthest_shift if low >= 0.0 else TUNING.farthest_shift
    return float(brentq(lambda x: score.moments(x)[0] - mean, -TUNING.farthest_shift, TUNING.farthest_shift, xtol=1e-4))


def _density(x: Floats) -> Floats:
    return np.asarray(np.exp(-0.5 * x**2) / math.sqrt(2.0 * math.pi))
