"""Privacy filters: what releases may cost together when each one is chosen after the earlier ones were seen.

Exact composition (`accounting.py`) is for releases whose prices are fixed in advance. A cap holds over studies, and
whoever asks for the next study has seen the last one. Both measures here add up under such adaptive choice, as long
as the sum never passes a limit that was fixed in advance:

- zero-concentrated differential privacy, rho (Feldman and Zrnic 2021; Whitehouse, Ramdas, Rogers and Wu 2023);
- Gaussian differential privacy, mu squared (Smith and Thakurta 2022).

A limit on rho or mu is the same as one on epsilon at a fixed delta, because both conversions grow with their argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from scipy.special import ndtri_exp

from verticopula.errors import SettingsError
from verticopula.privacy.accounting import LEAST_COUNTED, Coins
from verticopula.privacy.gaussian_dp import compose, gaussian_epsilon

_LARGEST_MU = 1e100  # beyond it the answer is infinite
_LINEAR_UP_TO = 1e-3  # below it a coin's mu is bounded by its tangent: the quantile would lose digits
_ROUNDING = 1e-12  # more than the conversions can lose to rounding
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def coin_rho(epsilon: float) -> float:
    """The rho of one pure epsilon: min(epsilon, epsilon^2 / 2).

    A mechanism that is epsilon-differentially private has Renyi divergence of order a at most a epsilon^2 / 2 (Bun and
    Steinke 2016, Proposition 3.3), and never more than epsilon, which is less than a epsilon for every order a > 1.
    """
    known = _price(epsilon)
    return known if known >= 2.0 else known * known / 2.0


def gaussian_rho(mu: float) -> float:
    """The rho of Gaussian noise that is moved by mu standard deviations: mu^2 / 2."""
    known = _price(mu)
    return known * known / 2.0


def coin_mu(epsilon: float) -> float:
    """The mu of one pure epsilon: 2 Phi^-1(e^epsilon / (1 + e^epsilon)).

    The trade-off function of a coin is two lines that meet where both errors are 1 / (1 + e^epsilon). The convex
    curve of mu-Gaussian differential privacy lies below them as soon as it passes below that point.
    """
    known = _price(epsilon)
    if math.isinf(known):
        return math.inf
    tangent = known * math.sqrt(math.pi / 2.0) * (1.0 + _ROUNDING)
    if known <= _LINEAR_UP_TO:
        return tangent
    log_error = -known - math.log1p(math.exp(-known))
    return min(tangent, -2.0 * float(ndtri_exp(log_error)) * (1.0 + 1e-9))


def add_rho(coins: Iterable[Coins], mus: Iterable[float]) -> float:
    """The rho of all coins and all Gaussian noise together; infinite where a float cannot hold it."""
    try:
        parts = [coin_rho(c.epsilon) * _count(c.count) for c in coins if c.epsilon != 0.0 and c.count != 0]
        return math.fsum([*parts, *(gaussian_rho(mu) for mu in mus)])
    except OverflowError:
        return math.inf


def add_mu(coins: Iterable[Coins], mus: Iterable[float]) -> float:
    """The mu of all coins and all Gaussian noise together; infinite where a float cannot hold it."""
    try:
        parts = [coin_mu(c.epsilon) * math.sqrt(_count(c.count)) for c in coins if c.epsilon != 0.0 and c.count != 0]
    except OverflowError:
        return math.inf
    return compose([*parts, *(_price(mu) for mu in mus)])


def rho_epsilon(rho: float, delta: float) -> float:
    """An epsilon such that rho-zero-concentrated differential privacy is (epsilon, delta); infinite if none is finite.

    Canonne, Kamath and Steinke (2020), Corollary 13: for every order a > 1,
    epsilon = a rho + log(1 / (a delta)) / (a - 1) + log(1 - 1 / a). It is written in t = a - 1 here, so that no digit
    is lost near 1. Any t gives a bound; the least is searched for, from above.
    """
    _check(rho, delta)
    if rho == 0.0:
        return 0.0
    if math.isinf(rho):
        return math.inf
    budget = -math.log(delta)

    def bound(log_t: float) -> float:
        t = math.exp(log_t)
        spent = rho * (1.0 + t)
        paid = (budget - math.log1p(t)) / t
        left = log_t - math.log1p(t)
        return spent + paid + left + _ROUNDING * (spent + (budget + math.log1p(t)) / t + abs(left))

    centre = 0.5 * (math.log(budget) - math.log(rho))  # where a rho + log(1 / delta) / (a - 1) is least
    return max(0.0, _least(bound, centre - 12.0, centre + 12.0))


def mu_epsilon(mu: float, delta: float) -> float:
    """The epsilon such that mu-Gaussian differential privacy is (epsilon, delta); infinite for a mu above 1e100."""
    _check(mu, delta)
    if mu == 0.0:
        return 0.0
    return math.inf if mu > _LARGEST_MU else gaussian_epsilon(mu, delta)


def _least(bound: Callable[[float], float], low: float, high: float) -> float:
    """The least value that golden-section search meets; the bound falls to one side and grows to the other.

    Not `scipy.optimize.minimize_scalar`: how near that comes changes with rho, so that a larger rho could have a
    smaller epsilon in the last digits. Here every rho is searched for in the same steps around its centre.
    """
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = bound(left), bound(right)
    found = min(at_left, at_right)
    for _ in range(60):
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = bound(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = bound(right)
        found = min(found, at_left, at_right)
    return found


def _price(value: float) -> float:
    """What is counted for an epsilon or a mu above 0; SettingsError for what is no number or below 0."""
    if not value >= 0.0:
        raise SettingsError("an epsilon or a mu is a number that is not below 0")
    return max(value, LEAST_COUNTED)


def _count(count: int) -> float:
    if count < 0:
        raise SettingsError("the number of coins is not below 0")
    return float(count)


def _check(spent: float, delta: float) -> None:
    if not spent >= 0.0:
        raise SettingsError("what was spent is a number that is not below 0")
    if not 0.0 < delta < 1.0:
        raise SettingsError("delta lies between 0 and 1")
