"""Gaussian differential privacy: mu is a distance in standard deviations of the noise (Dong, Roth and Su 2022).

delta(eps) is that of the analytic Gaussian mechanism (Balle and Wang 2018), and releases about the same people compose
to mu^2 = mu_1^2 + mu_2^2 + ..., also where a later one is chosen after an earlier one was seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from scipy.special import log_ndtr

from verticopula.errors import SettingsError
from verticopula.privacy.root_finding import bisect

_NEAR_ENOUGH = 1e-7  # far above what two machines' arithmetic differs by, so that both stop at the same point


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Smallest delta such that mu-Gaussian DP is (epsilon, delta)."""
    if mu <= 0.0:
        return 0.0
    first = float(log_ndtr(mu / 2.0 - epsilon / mu))
    second = epsilon + float(log_ndtr(-mu / 2.0 - epsilon / mu))
    return max(0.0, -math.exp(first) * math.expm1(min(second - first, 0.0)))


def gaussian_epsilon(mu: float, delta: float, slack: float = 0.0) -> float:
    """Smallest epsilon (from above, to 1e-12) such that mu-Gaussian DP is (epsilon, delta).

    `slack`: what `gram_noise.slack_of` says about the release; 0 for continuous noise.
    """
    _check_delta(delta)
    if mu < 0.0 or math.isnan(mu) or slack < 0.0:
        raise SettingsError("mu and slack are not below 0")
    if math.isinf(mu):
        return math.inf
    target = delta * math.exp(-slack)
    if gaussian_delta(mu, 0.0) <= target:
        return 2.0 * slack
    enough = mu * mu / 2.0 + mu * math.sqrt(-2.0 * math.log(target))  # by way of zCDP: not below the truth
    found = bisect(lambda epsilon: gaussian_delta(mu, epsilon) <= target, enough, 0.0, relative=1e-12, absolute=1e-12)
    return found + 2.0 * slack


def mu_of(epsilon: float, delta: float) -> float:
    """Largest mu (from below) such that mu-Gaussian DP is (epsilon, delta); 1/4.2247 for (1, 1e-6)."""
    _check_delta(delta)
    if not (math.isfinite(epsilon) and epsilon > 0.0):
        raise SettingsError("epsilon must be positive")
    low, high = 0.0, 1.0
    while gaussian_delta(high, epsilon) <= delta:
        low, high = high, 2.0 * high
    return bisect(lambda mu: gaussian_delta(mu, epsilon) <= delta, low, high, relative=_NEAR_ENOUGH)


def compose(mus: Iterable[float]) -> float:
    """The mu of several releases about the same people; infinite where a float cannot hold it."""
    known = list(mus)
    if not all(mu >= 0.0 for mu in known):
        raise SettingsError("mu is a number that is not below 0")
    return math.hypot(*known)


def _check_delta(delta: float) -> None:
    if not 0.0 < delta < 1.0:
        raise SettingsError("delta lies between 0 and 1")
