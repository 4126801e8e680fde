"""Step functions of a latent normal: the public score of every cell.

A score is a function of one record alone: the mean latent normal of its cell under the *observed* noisy margin, capped,
with mean 0 and variance 1 there. Three or more unordered categories have one latent each, whose score is the category's
standardised indicator. Parties and coordinator compute scores from the same releases, so no table of scores travels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from verticopula.stats.marginals import Marginal
from verticopula.stats.strict.tuning import STRICT_TUNING as TUNING

Floats = NDArray[np.float64]

_FARTHEST = 6.0
_NO_MASS = 1e-9


@dataclass(frozen=True)
class LatentScore:
    """One latent's score.

    Attributes
    ----------
    thresholds : (C-1,) increasing; latent values among the observed where the score steps; finite
    scores : (C,) of the cells
    """

    thresholds: Floats
    scores: Floats

    @classmethod
    def of(cls, marginal: Marginal) -> LatentScore:
        """For an ordered column's margin, or that of one category's indicator."""
        p = marginal.probabilities
        thresholds = np.clip(ndtri(np.clip(np.cumsum(p)[:-1], 0.0, 1.0)), -_FARTHEST, _FARTHEST)
        density = _density(np.concatenate([[-np.inf], thresholds, [np.inf]]))
        # Where there is no mass there is no mean: the place between the neighbours.
        middle = np.clip(ndtri(np.clip(np.cumsum(p) - 0.5 * p, 0.0, 1.0)), -_FARTHEST, _FARTHEST)
        means = np.where(p > _NO_MASS, (density[:-1] - density[1:]) / np.maximum(p, _NO_MASS), middle)
        capped = np.clip(means, -TUNING.score_cap, TUNING.score_cap)
        centred = capped - p @ capped
        least = abs(float(capped[-1] - capped[0])) * math.sqrt(TUNING.rarest_value * (1.0 - TUNING.rarest_value))
        deviation = max(math.sqrt(float(p @ centred**2)), least)
        return cls(thresholds, centred / deviation if deviation > 0.0 else np.zeros_like(centred))

    @property
    def is_flat(self) -> bool:
        """Whether one cell has (all but) all of the mass: nothing can be learnt of such a latent."""
        return self.moments()[1] < TUNING.flat_variance

    def shares(self, shift: float = 0.0, scale: float = 1.0) -> Floats:
        """(C,) chance of each cell for a latent N(shift, scale^2)."""
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

    @property
    def length(self) -> float:
        """What the score is multiplied by before it is shared.

        Noise of the same size on every product is an error of 1/(length_j slope_j length_k slope_k) in a latent
        correlation; for records of a given length, length^2 = 1/slope makes the sum of their squares least.
        """
        return 1.0 / math.sqrt(max(self.slope(), TUNING.weakest_slope))


def latent_scores(marginal: Marginal) -> list[LatentScore]:
    """One per latent of a column."""
    return [LatentScore.of(latent) for latent in marginal.latents()]


def score_table(marginal: Marginal) -> Floats:
    """(C, L) the public scores of every cell of a column with L latents."""
    found = latent_scores(marginal)
    if len(found) == 1:
        return found[0].scores[:, None]
    table = np.tile([score.scores[0] for score in found], (len(found), 1))
    np.fill_diagonal(table, [score.scores[1] for score in found])
    return table


def _density(x: Floats) -> Floats:
    return np.asarray(np.exp(-0.5 * x**2) / math.sqrt(2.0 * math.pi))
