"""From counts of right and wrong guesses to a lower bound on epsilon that holds with a stated confidence.

(ε, δ)-indistinguishability of two data sets says P(E | one) <= e^ε P(E | other) + δ for every event E, in both
directions. So an event whose probabilities break that for some ε proves that the true epsilon is larger.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

Floats = NDArray[np.float64]


def clopper_pearson(hits: ArrayLike, trials: int, alpha: float) -> tuple[Floats, Floats]:
    """Exact bounds of a probability: each of the two is wrong with probability at most `alpha`."""
    k = np.asarray(hits, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        low = np.where(k > 0, betaincinv(np.maximum(k, 1.0), trials - k + 1.0, alpha), 0.0)
        high = np.where(k < trials, betaincinv(k + 1.0, np.maximum(trials - k, 1.0), 1.0 - alpha), 1.0)
    return low, high


def two_sided(hits: int, trials: int, confidence: float) -> tuple[float, float]:
    """The exact confidence interval of a share."""
    low, high = clopper_pearson(hits, trials, (1.0 - confidence) / 2.0)
    return float(low), float(high)


def epsilon_low(
    likely: ArrayLike, likely_trials: int, unlikely: ArrayLike, unlikely_trials: int, delta: float, alpha: float
) -> Floats:
    """log((P_low - δ)/P'_high), the largest epsilon that these counts refute; never below zero.

    Parameters
    ----------
    likely, unlikely : how often the event happened under each of the two data sets
    alpha : probability with which the bound may be wrong; half goes to each of the two probabilities
    """
    low, _ = clopper_pearson(likely, likely_trials, alpha / 2.0)
    _, high = clopper_pearson(unlikely, unlikely_trials, alpha / 2.0)
    excess = low - delta
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.where(excess > 0.0, np.log(np.maximum(excess, 1e-300) / high), 0.0)
    return np.maximum(found, 0.0)


def highest_visible(trials: int, delta: float, alpha: float) -> float:
    """The bound that so many trials of each data set would give if every guess were right."""
    return float(epsilon_low(trials, trials, 0, trials, delta, alpha))
