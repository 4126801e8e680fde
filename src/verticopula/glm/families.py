"""Families of Eq. (3): gaussian, binomial and poisson with their canonical links.

`eta` is the linear predictor, one entry per row; a loss is the mean negative log-likelihood up to
a constant, f of Eq. (3), for gaussian half the mean squared error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import expit, logit, xlogy

from verticopula.errors import SettingsError
from verticopula.privacy.root_finding import newton_step
from verticopula.schema.setting_choices import FamilyName

Floats = NDArray[np.float64]

_NEWTON_STEPS = 100
_LAST_STEP = 1e-7  # Newton squares its error: after a step this small there is nothing left to gain
_LAST_HALVING = 1e-15
_FARTHEST_INTERCEPT = 500.0  # from where the search begins
_LARGEST_EXPONENT = 30.0  # beyond it a mean is 1e13 times its scale: a fit that has run off


class Family(ABC):
    """What the solvers need of a likelihood."""

    name: ClassVar[FamilyName]
    needs: ClassVar[str]  # what a response must look like, for messages

    @abstractmethod
    def fits(self, y: Floats) -> bool:
        """Whether these can be responses of this family."""

    @abstractmethod
    def mean(self, eta: Floats) -> Floats:
        """E(y | eta)."""

    @abstractmethod
    def curvature(self, eta: Floats) -> Floats:
        """psi''(eta): the variance of y, up to the dispersion."""

    @abstractmethod
    def losses(self, eta: Floats, y: Floats) -> Floats:
        """Each row's part of the loss."""

    @abstractmethod
    def saturated(self, y: Floats) -> Floats:
        """Each row's loss under a perfect fit."""

    @abstractmethod
    def link(self, mean: float) -> float:
        """The eta of a mean."""

    @abstractmethod
    def minimise_near(self, centre: Floats, y: Floats, rho: float, start: Floats) -> Floats:
        """Row by row, the eta that minimises loss(eta, y) + rho (eta - centre)^2 / 2: Eq. (6-2)."""

    def check(self, y: Floats) -> None:
        """SettingsError unless the response suits the family and varies."""
        if not np.isfinite(y).all():
            raise SettingsError("the response has empty, NaN or infinite entries")
        if not self.fits(y):
            raise SettingsError(f"a {self.name} response must be {self.needs}")
        if np.ptp(y) == 0.0:
            raise SettingsError("the response is constant: there is nothing to explain")

    def loss(self, eta: Floats, y: Floats) -> float:
        """f of Eq. (3)."""
        return float(np.mean(self.losses(eta, y)))

    def residual(self, eta: Floats, y: Floats) -> Floats:
        """The derivative of each row's loss: mean(eta) - y."""
        return self.mean(eta) - y

    def deviance(self, eta: Floats, y: Floats) -> float:
        """Twice the loss above a perfect fit's, per row."""
        return 2.0 * float(np.mean(self.losses(eta, y) - self.saturated(y)))

    def best_intercept(self, offset: Floats, y: Floats, start: float = 0.0) -> float:
        """The b that minimises the loss at offset + b: Newton's method, kept inside a bracket."""
        low, high, b, moved = start - _FARTHEST_INTERCEPT, start + _FARTHEST_INTERCEPT, start, np.inf
        for _ in range(_NEWTON_STEPS):
            eta = offset + b
            gradient = float(np.mean(self.residual(eta, y)))
            slope = max(float(np.mean(self.curvature(eta))), 1e-12)
            low, high = (low, b) if gradient > 0.0 else (b, high)
            target, newton = newton_step(b, gradient, slope, low, high, 0.5 * moved)
            moved, b = abs(target - b), target
            if moved <= (_LAST_STEP if newton else _LAST_HALVING) * (1.0 + abs(b)):
                break
        return b


class Gaussian(Family):
    """Normal errors of any variance."""

    name = "gaussian"
    needs = "numbers"

    def fits(self, y: Floats) -> bool:
        return True

    def mean(self, eta: Floats) -> Floats:
        return eta

    def curvature(self, eta: Floats) -> Floats:
        return np.ones_like(eta)

    def losses(self, eta: Floats, y: Floats) -> Floats:
        return 0.5 * (y - eta) ** 2

    def saturated(self, y: Floats) -> Floats:
        return np.zeros_like(y)

    def link(self, mean: float) -> float:
        return mean

    def minimise_near(self, centre: Floats, y: Floats, rho: float, start: Floats) -> Floats:
        return (y + rho * centre) / (1.0 + rho)

    def best_intercept(self, offset: Floats, y: Floats, start: float = 0.0) -> float:
        return float(np.mean(y - offset))


class Binomial(Family):
    """Yes or no, with the logistic link."""

    name = "binomial"
    needs = "0 or 1 (or False and True), with both present"

    def fits(self, y: Floats) -> bool:
        return bool(np.isin(y, (0.0, 1.0)).all())

    def mean(self, eta: Floats) -> Floats:
        return np.asarray(expit(eta))

    def curvature(self, eta: Floats) -> Floats:
        return np.asarray(expit(eta) * expit(-eta))

    def losses(self, eta: Floats, y: Floats) -> Floats:
        return np.maximum(eta, 0.0) + np.log1p(np.exp(-np.abs(eta))) - y * eta  # faster than np.logaddexp

    def saturated(self, y: Floats) -> Floats:
        return np.zeros_like(y)

    def link(self, mean: float) -> float:
        return float(logit(mean))

    def minimise_near(self, centre: Floats, y: Floats, rho: float, start: Floats) -> Floats:
        return np.asarray(_binomial_near(centre, y, rho, start))


class Poisson(Family):
    """Counts or rates, with the logarithmic link."""

    name = "poisson"
    needs = "numbers of at least 0"

    def fits(self, y: Floats) -> bool:
        return bool((y >= 0.0).all())

    def mean(self, eta: Floats) -> Floats:
        return np.exp(np.minimum(eta, _LARGEST_EXPONENT))

    def curvature(self, eta: Floats) -> Floats:
        return self.mean(eta)

    def losses(self, eta: Floats, y: Floats) -> Floats:
        over = np.maximum(eta - _LARGEST_EXPONENT, 0.0)  # linear from there on, so that nothing overflows
        return self.mean(eta) * (1.0 + over) - y * eta

    def saturated(self, y: Floats) -> Floats:
        return y - np.asarray(xlogy(y, y))

    def link(self, mean: float) -> float:
        return float(np.log(mean))

    def minimise_near(self, centre: Floats, y: Floats, rho: float, start: Floats) -> Floats:
        return np.asarray(_poisson_near(centre, y, rho, start))


FAMILIES: dict[str, Family] = {family.name: family for family in (Gaussian(), Binomial(), Poisson())}


def find_family(name: str) -> Family:
    """By name; SettingsError names the known ones."""
    if name not in FAMILIES:
        raise SettingsError(f"unknown family {name!r}; known: {', '.join(FAMILIES)}")
    return FAMILIES[name]


# Both equations psi'(eta) - y + rho (eta - centre) = 0 have one root, and a bracket for it is known.


@njit(cache=True, nogil=True)
def _mean_and_slope(eta: float, binomial: bool) -> tuple[float, float]:
    """The mean response at a linear predictor, and its derivative; of poisson, if not of binomial."""
    if not binomial:
        mean = np.exp(min(eta, _LARGEST_EXPONENT))
        return mean, mean
    small = np.exp(-abs(eta))
    mean = 1.0 / (1.0 + small) if eta >= 0.0 else small / (1.0 + small)
    return mean, mean * (1.0 - mean)


@njit(cache=True, nogil=True)
def _minimise_between(
    low: float, high: float, start: float, centre: float, y: float, rho: float, binomial: bool
) -> float:
    """Where loss(eta) + rho/2 (eta - centre)^2 is smallest, by Newton steps that a bisection guards."""
    eta, moved = min(max(start, low), high), 2.0 * (high - low)
    for _ in range(_NEWTON_STEPS):
        mean, slope = _mean_and_slope(eta, binomial)
        gradient = mean - y + rho * (eta - centre)
        if gradient > 0.0:
            high = eta
        else:
            low = eta
        target, newton = newton_step(eta, gradient, slope + rho, low, high, 0.5 * moved)
        moved, eta = abs(target - eta), target
        if moved <= (_LAST_STEP if newton else _LAST_HALVING) * (1.0 + abs(eta)):
            break
    return eta


@njit(cache=True, nogil=True)
def _binomial_near(centre: Floats, y: Floats, rho: float, start: Floats) -> Floats:
    found = np.empty_like(centre)
    for i in range(centre.size):
        low, high = centre[i] - 1.0 / rho, centre[i] + 1.0 / rho
        found[i] = _minimise_between(low, high, start[i], centre[i], y[i], rho, True)
    return found


@njit(cache=True, nogil=True)
def _poisson_near(centre: Floats, y: Floats, rho: float, start: Floats) -> Floats:
    found = np.empty_like(centre)
    for i in range(centre.size):
        # Between the centre and log y the two terms have opposite signs.
        if y[i] > 0.0:
            low, high = min(centre[i], np.log(y[i])), max(centre[i], np.log(y[i]))
        else:
            low, high = centre[i] - np.exp(min(centre[i], _LARGEST_EXPONENT)) / rho, centre[i]
        found[i] = _minimise_between(low, high, start[i], centre[i], y[i], rho, False)
    return found
