"""Epsilon at every unit, by exact composition of coins.

Every release here is a set of biased coins, or no worse than one: a comparison flipped with
probability 1/(1+e^ε) is one coin of ε, and a mechanism that is ε-differentially private for one
person's value (the noisy marginal) is dominated by one coin of ε (Kairouz, Oh and Viswanath
2015). So a change of data that touches m coins of ε has the privacy loss ε(2B - m) with
B ~ Binomial(m, e^ε/(1+e^ε)), and its δ at any ε' is a finite sum. Coins of different ε add up by
convolving their losses.

Gaussian noise that a change of data moves by mu standard deviations has the loss N(mu²/2, mu²). It
composes with itself in closed form (`privacy/gaussian_dp.py`), and with coins by convolution too.

Replacing one person's value moves that person past at most n-1 others in a column: n-1 coins,
all of which flip their meaning when a record goes from lowest to highest. That is the worst case
and it is attained, so these figures are not only bounds (see `tests/privacy`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import fft
from scipy.special import ndtr

from verticopula.errors import SettingsError
from verticopula.privacy.gaussian_dp import gaussian_delta, gaussian_epsilon
from verticopula.privacy.root_finding import bisect

_TAIL_DEVIATIONS = 40.0  # beyond them a binomial has less than 1e-300 of its mass
_GRID = 1 << 18
_MOST_COINS = 10**11  # more of one kind are added up one after the other: never below the truth
_FURTHEST = 1e9  # losses beyond it are added up likewise: a grid of floats has no room for them
LEAST_COUNTED = 1e-100  # coins and mu of less count as this, so that no square becomes 0
_LARGEST = 1e100  # beyond it the answer is infinite: whoever asks that much hides nothing
_FFT_SLACK = 1e-12  # more mass than the rounding of one FFT can misplace; counted as lost
_FINEST = 64  # grid points between two losses of the finest coins, if the grid has room
_GAUSSIAN_DEVIATIONS = 12.0  # beyond them a normal has less than 2e-33 of its mass
_GAUSSIAN_FINEST = 1024  # grid points to a standard deviation, if the grid has room


@dataclass(frozen=True)
class Coins:
    """`count` independent coins of `epsilon` each, all of which one change of data may touch."""

    epsilon: float
    count: int


def composed_epsilon(coins: Iterable[Coins], delta: float, mu: float = 0.0) -> float:
    """Smallest ε such that touching all these coins is (ε, δ)-indistinguishable.

    Exact for coins of one ε, and for Gaussian noise alone. For mixed coins the losses are rounded up to a grid, so
    the answer is an upper bound; the rounding is below a 64th of the finest loss per kind of coin, and a 1024th of
    mu, where the grid has room for that.

    Parameters
    ----------
    mu : Gaussian noise that the same change moves by so many standard deviations, all of it together
    """
    return _composed_epsilon(tuple(_merge(coins)), delta, _checked_mu(mu, delta))


@lru_cache(maxsize=4096)  # a study asks for the same price in its plan, ledger, summary and report
def _composed_epsilon(merged: tuple[Coins, ...], delta: float, mu: float) -> float:
    if mu <= 0.0 and not merged:
        return 0.0
    pure = _pure(merged)
    if mu > _LARGEST or pure > _LARGEST:  # sums and squares would leave what a float can hold
        return math.inf
    if delta <= 0.0:
        return math.inf if mu > 0.0 else pure
    total = pure + (gaussian_epsilon(mu, delta) if mu > 0.0 else 0.0)  # in sequence: never below the truth
    if not merged or not _fits_grid(merged, mu):
        return total
    loss, mass, lost = _loss_distribution(merged, mu)
    if lost >= delta or _delta_at(0.0, loss, mass, lost) <= delta:
        return total if lost >= delta else 0.0
    return bisect(lambda e: _delta_at(e, loss, mass, lost) <= delta, total, 0.0, relative=1e-10, absolute=1e-22)


def composed_delta(coins: Iterable[Coins], epsilon: float, mu: float = 0.0) -> float:
    """Smallest δ such that touching all these coins, and moving Gaussian noise by mu, is (ε, δ)-indistinguishable."""
    merged = _merge(coins)
    mu = _checked_mu(mu, epsilon)
    if mu <= 0.0 and not merged:
        return 0.0
    if mu > _LARGEST or _pure(merged) > _LARGEST:
        return 1.0
    if not merged:
        return gaussian_delta(mu, epsilon)
    if not _fits_grid(merged, mu):
        return 1.0
    loss, mass, lost = _loss_distribution(merged, mu)
    return _delta_at(epsilon, loss, mass, lost)


def calibrate(coins_at: Callable[[float], list[Coins]], epsilon: float, delta: float, *, largest: float) -> float:
    """Largest scale in (0, largest] (to 1e-5, from below) whose coins stay within (ε, δ).

    `coins_at` must grow with the scale.
    """
    if composed_epsilon(coins_at(largest), delta) <= epsilon:
        return largest
    return bisect(
        lambda scale: composed_epsilon(coins_at(scale), delta) <= epsilon,
        0.0,
        largest,
        relative=1e-5,
        steps=60,
        geometric=True,
    )


def _merge(coins: Iterable[Coins]) -> list[Coins]:
    """Those that cost something, by epsilon; SettingsError for what is no number or below 0: it would hide a cost."""
    counts: defaultdict[float, int] = defaultdict(int)
    for c in coins:
        if not (c.epsilon >= 0.0 and c.count >= 0):
            raise SettingsError("coins have an epsilon and a number that are not below 0")
        if c.count > 0 and c.epsilon > 0.0:
            counts[max(c.epsilon, LEAST_COUNTED)] += c.count
    return [Coins(epsilon, count) for epsilon, count in sorted(counts.items())]


def _pure(merged: Sequence[Coins]) -> float:
    """What all coins cost at δ = 0; infinite where a float cannot hold it, or their number."""
    try:
        return math.fsum(c.epsilon * float(c.count) for c in merged)
    except OverflowError:
        return math.inf


def _fits_grid(merged: Sequence[Coins], mu: float) -> bool:
    return max(mu, mu * mu, _pure(merged)) <= _FURTHEST and all(c.count <= _MOST_COINS for c in merged)


def _checked_mu(mu: float, other: float) -> float:
    """The mu to count with; SettingsError for what is no number or below 0."""
    if math.isnan(mu) or mu < 0.0 or math.isnan(other):
        raise SettingsError("mu, epsilon and delta are numbers, and mu is not below 0")
    return max(mu, LEAST_COUNTED) if mu > 0.0 else 0.0


def _binomial_window(coins: Coins) -> tuple[int, NDArray[np.float64], float]:
    """First count kept, masses from there on, and the mass above the window.

    Mass below the window is moved up to its first count, which can only raise the loss.
    """
    from scipy.stats import binom  # only here: reading a policy or a ledger takes half a second less without it

    honest = 1.0 / (1.0 + math.exp(-coins.epsilon))
    spread = math.sqrt(coins.count * honest * (1.0 - honest)) + 1.0
    centre = coins.count * honest
    first = max(0, math.floor(centre - _TAIL_DEVIATIONS * spread))
    last = min(coins.count, math.ceil(centre + _TAIL_DEVIATIONS * spread))
    mass = binom.pmf(np.arange(first, last + 1), coins.count, honest)
    if first > 0:
        mass[0] += binom.cdf(first - 1, coins.count, honest)
    above = float(binom.sf(last, coins.count, honest)) if last < coins.count else 0.0
    return first, mass, above


def _loss_distribution(
    merged: Sequence[Coins], mu: float = 0.0
) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """Losses, their masses, and the mass counted as unbounded loss."""
    windows = [_binomial_window(c) for c in merged]
    if len(merged) == 1 and mu <= 0.0:
        first, mass, above = windows[0]
        counts = np.arange(first, first + mass.size)
        return np.asarray(merged[0].epsilon * (2.0 * counts - merged[0].count)), mass, above
    width = sum(2.0 * c.epsilon * w[1].size for c, w in zip(merged, windows, strict=True))
    fine = 2.0 * merged[0].epsilon / _FINEST
    if mu > 0.0:
        width += 2.0 * _GAUSSIAN_DEVIATIONS * mu
        fine = min(fine, mu / _GAUSSIAN_FINEST)
    step = max(fine, width / _GRID)
    total = np.ones(1)
    offset = 0
    lost = 0.0
    for c, (first, mass, above) in zip(merged, windows, strict=True):
        losses = c.epsilon * (2.0 * np.arange(first, first + mass.size) - c.count)
        cells = np.ceil(losses / step - 1e-12).astype(np.int64)
        spread = np.zeros(int(cells[-1] - cells[0]) + 1)
        np.add.at(spread, cells - cells[0], mass)
        total = _convolve(total, spread)
        offset += int(cells[0])
        lost += above + _FFT_SLACK
    if mu > 0.0:
        lowest, spread, above = _gaussian_cells(mu, step)
        total = _convolve(total, spread)
        offset += lowest
        lost += above + _FFT_SLACK
    return np.asarray(step * (offset + np.arange(total.size))), total, lost


def _gaussian_cells(mu: float, step: float) -> tuple[int, NDArray[np.float64], float]:
    """N(mu²/2, mu²) on the grid: the first cell, masses from there on, and the mass above.

    A cell holds what lies between the one below and itself, so every loss is rounded up; the first one holds all
    that lies below it too.
    """
    reach = _GAUSSIAN_DEVIATIONS * mu
    lowest, highest = math.floor((mu * mu / 2.0 - reach) / step), math.ceil((mu * mu / 2.0 + reach) / step)
    ends = (step * np.arange(lowest, highest + 1) - mu * mu / 2.0) / mu
    # From above where that is where the mass is small, so that nothing is lost to rounding near 1.
    mass = np.where(ends <= 0.0, np.diff(ndtr(ends), prepend=0.0), -np.diff(ndtr(-ends), prepend=1.0))
    return lowest, np.maximum(mass, 0.0), float(ndtr(-ends[-1]))


def _convolve(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Masses of a sum, by FFT; rounding below zero is cut."""
    size = first.size + second.size - 1
    padded = fft.next_fast_len(size, real=True)
    product = fft.irfft(fft.rfft(first, padded) * fft.rfft(second, padded), padded)
    return np.maximum(product[:size], 0.0)


def _delta_at(epsilon: float, loss: NDArray[np.float64], mass: NDArray[np.float64], lost: float) -> float:
    kept = loss > epsilon
    return float(np.sum(mass[kept] * -np.expm1(epsilon - loss[kept]))) + lost
