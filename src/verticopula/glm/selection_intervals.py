"""Intervals of coefficients that are shown because they were large: conditional on the selection.

A criterion keeps a column where its estimate X is further than a cut c from zero. Given that, X ~ N(theta, 1) is a
normal number outside [-c, c], and the interval holds every theta under which X is neither among the smallest nor among
the largest of those (Weinstein, Fithian and Benjamini 2013). It covers at its level for every theta. Far above the cut
it is the usual one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr
from scipy.stats import norm

Floats = NDArray[np.float64]

_FURTHEST = 40.0  # standard errors; beyond, tails cannot be told from nothing


def interval_outside(estimate: float, cut: float, confidence: float) -> tuple[float, float]:
    """Ends of the interval of theta, for an estimate that is shown because it is no nearer to 0 than `cut`.

    Parameters
    ----------
    estimate : in standard errors
    cut : likewise, at least 0; an estimate that is nearer to 0 is taken as cut at itself
    confidence : confidence level
    """
    x, c = abs(estimate), min(cut, abs(estimate))
    if c == 0.0 or x - c > _FURTHEST or x > _FURTHEST:
        reach = float(norm.ppf(0.5 + confidence / 2.0))
        return estimate - reach, estimate + reach
    tail = 0.5 - confidence / 2.0
    low, high = (
        float(brentq(lambda theta, p=p: log_chance_beyond(x, c, theta) - np.log(p), -x - _FURTHEST, x + _FURTHEST))
        for p in (tail, 1.0 - tail)
    )
    return (low, high) if estimate > 0.0 else (-high, -low)


def log_chance_beyond(x: float, cut: float, theta: float) -> float:
    """log P(X > x) for a normal number around theta that is known to lie outside [-cut, cut]; x >= cut."""
    return float(log_ndtr(theta - x) - np.logaddexp(log_ndtr(-cut - theta), log_ndtr(theta - cut)))


def selection_cuts(estimate: Floats, covariance: Floats, groups: NDArray[np.int64], charge: float) -> Floats:
    """(s,) how near to 0 each coefficient could have come before a criterion would have dropped its column.

    A group of d coefficients stays where b' V^-1 b exceeds d times the charge. Given what is independent of
    one of them, that is a bound on its own square.

    Parameters
    ----------
    estimate : (s,) coefficients, the intercept left out
    covariance : (s, s) as the criterion believes it
    groups : (s,) the number of every coefficient's column
    charge : of one coefficient, log n for BIC
    """
    cuts = np.zeros(estimate.size)
    for group in np.unique(groups):
        places = np.flatnonzero(groups == group)
        own = covariance[np.ix_(places, places)]
        if not np.diagonal(own).all():
            continue  # of a perfect fit: known without error, and kept however near to 0
        wald = float(estimate[places] @ np.linalg.pinv(own, hermitian=True) @ estimate[places])
        variance = np.diagonal(own)
        others = wald - estimate[places] ** 2 / variance
        cuts[places] = np.sqrt(np.maximum(places.size * charge - others, 0.0) * variance)
    return cuts
