"""One plain sentence about a forecast, with the number of subjects or the epsilon that would change it.

A pair's error is that of a mean product of two noisy grades: (v_j + 1/12)(v_k + 1/12) over their common
subjects, v the coins' variance. How v moves with N and epsilon is known, so no simulation is needed. In a strict study
noise on a mean product is in proportion to the square of how long a record may be, over mu N.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.forecasting.expected_errors import Expected
from verticopula.privacy.budget import ColumnBudget
from verticopula.privacy.gaussian_dp import mu_of
from verticopula.privacy.root_finding import bisect
from verticopula.schema.columns import ColumnKey
from verticopula.schema.methods import METHODS, STRICT
from verticopula.schema.units import Unit

_SPREAD = 1.0 / 12.0
_BRIDGE = math.pi / 3.0  # from Spearman's to latent correlations, near zero
_MOST = 1e12
_MOST_EPSILON = 1e6


@dataclass(frozen=True)
class AdviceTuning:
    """Errors, over the correlations' assumed size, at which advice changes. Chosen by hand, not tuned.

    Attributes
    ----------
    usable : up to here; an eighth of the correlations' mean square is lost
    mostly_noise : from here; half of it is. `check` and `run` say so before a study, `forecast` in its sentence
    """

    usable: float = 0.35
    mostly_noise: float = 0.7


ADVICE_TUNING = AdviceTuning()


@dataclass(frozen=True)
class ScalingLaw(ABC):
    """How a typical pair's standard error moves with the number of subjects and epsilon, at one unit."""

    unit: Unit
    n_subjects: int
    epsilon: float
    delta: float

    @abstractmethod
    def error(self, n_subjects: float, epsilon: float) -> float:
        """The standard error of a typical pair before shrinkage."""

    def subjects_for(self, target: float) -> float:
        """Number of subjects at which the error is `target`."""
        return _solve(lambda n: self.error(n, self.epsilon), target, float(self.n_subjects))

    def epsilon_for(self, target: float) -> float:
        """Epsilon at which the error is `target`; infinite if sampling alone is worse."""
        return _solve(lambda e: self.error(self.n_subjects, e), target, self.epsilon)


@dataclass(frozen=True)
class ErrorLaw(ScalingLaw):
    """Of a method that ranks.

    Attributes
    ----------
    shares : (p,) of the cohort that has each column
    coins : (p,) epsilon per comparison at `n_subjects` and `epsilon`
    """

    shares: NDArray[np.float64]
    coins: NDArray[np.float64]

    def error(self, n_subjects: float, epsilon: float) -> float:
        """Root mean square over pairs, of continuous columns."""
        coins = self.coins * self._rise(epsilon) / self._rise(self.epsilon)
        if self.unit.needs_delta:  # a person is compared with everybody
            coins = coins * math.sqrt(self.n_subjects / n_subjects)
        noise = 1.0 / (4.0 * np.sinh(np.minimum(coins, 100.0) / 2.0) ** 2) / (n_subjects * self.shares)
        products = np.outer(noise + _SPREAD, noise + _SPREAD) / (n_subjects * np.outer(self.shares, self.shares))
        pairs = ~np.eye(self.shares.size, dtype=bool)
        return _BRIDGE * 12.0 * math.sqrt(float(np.mean(products[pairs]))) if pairs.any() else 0.0

    def _rise(self, epsilon: float) -> float:
        """What a coin's epsilon is proportional to; for block and person by zero-concentrated privacy."""
        if not self.unit.needs_delta:
            return epsilon
        slack = math.log(1.0 / self.delta)
        return math.sqrt(epsilon / 2.0 + slack) - math.sqrt(slack)


@dataclass(frozen=True)
class StrictLaw(ScalingLaw):
    """How the errors of a strict study scale with subjects and epsilon.

    Attributes
    ----------
    sampling : variance without any noise, times the number of subjects
    noise : standard error by noise alone at `n_subjects` and `epsilon`
    mu : of the sums there
    """

    sampling: float
    noise: float
    mu: float

    def error(self, n_subjects: float, epsilon: float) -> float:
        """Of sampling and noise."""
        epsilon = min(epsilon, _MOST_EPSILON)
        rise = mu_of(epsilon, self.delta) / mu_of(self.epsilon, self.delta)
        noise = self.noise * self.n_subjects / n_subjects / rise
        return math.hypot(math.sqrt(self.sampling / n_subjects), noise)


def _solve(falling: Callable[[float], float], target: float, start: float) -> float:
    """Where a falling function has fallen to the target, from `start` on; infinite if it does not fall that far."""
    enough = start
    while falling(enough) > target:
        enough *= 2.0
        if enough > _MOST:
            return math.inf
    return bisect(lambda x: falling(x) <= target, enough, start, steps=50)


def law_of(
    unit: str,
    budgets: Mapping[ColumnKey, ColumnBudget],
    shares: Mapping[str, float],
    n_subjects: int,
    epsilon: float,
    delta: float,
) -> ErrorLaw:
    """The law of a planned study."""
    known = np.array([shares[key.party] for key in budgets])
    coins = np.array([budget.epsilon_ranks for budget in budgets.values()])
    return ErrorLaw(Unit.parse(unit), n_subjects, epsilon, delta, known, coins)


def strict_law_of(
    unit: str, raw: float, mu: float, shares: Mapping[str, float], n_subjects: int, epsilon: float, delta: float
) -> StrictLaw:
    """The law of a strict study in which a typical pair has the standard error `raw`, and the sums `mu`."""
    known = np.array(list(shares.values()))
    sampling = min(float(np.median(1.0 / np.outer(known, known))), raw**2 * n_subjects)
    noise = math.sqrt(max(raw**2 - sampling / n_subjects, 0.0))
    return StrictLaw(Unit.parse(unit), n_subjects, epsilon, delta, sampling, noise, mu)


def advise(
    rows: Sequence[Expected],
    laws: Mapping[tuple[str, str], ScalingLaw],
    typical_correlation: float,
    *,
    strict_possible: bool = False,
) -> str:
    """The strictest unit that works with the better method, and what the next one would take.

    Parameters
    ----------
    laws : by method and unit
    strict_possible : whether this federation could have a strict study; it is named where it was not asked about
    """
    units = dict.fromkeys(row.unit for row in rows)
    best = [min((row for row in rows if row.unit == unit), key=lambda row: row.after) for unit in units]
    works = [row.after <= ADVICE_TUNING.usable * typical_correlation for row in best]
    last = max((k for k, usable in enumerate(works) if usable), default=-1)
    parts = []
    if last >= 0:
        row = best[last]
        parts.append(
            f"at unit {row.unit} with method {row.method} the correlations are good to about {row.after:.2g}, where "
            f"{typical_correlation:g} is their assumed size"
        )
    if last + 1 < len(best):
        row = best[last + 1]
        law = laws[row.method, row.unit]
        now = law.error(law.n_subjects, law.epsilon)
        kind = "mostly noise" if row.after > ADVICE_TUNING.mostly_noise * typical_correlation else "rough"
        remedy = _remedy(law, min(now / 2.0, ADVICE_TUNING.usable * typical_correlation))
        how = f"at unit {row.unit} with method {row.method}" if not METHODS[row.method].ranks else f"at unit {row.unit}"
        parts.append(f"{how} they would be {kind} (error {row.after:.2g}), and usable from about {remedy}")
    else:
        law = laws[best[last].method, best[last].unit]
        parts.append(f"about {_remedy(law, law.error(law.n_subjects, law.epsilon) / 2.0)} would halve the error")
    if strict_possible and _misses_strict(best[last + 1 :]):
        parts.append(f"method {STRICT.name} is made for units block and person, where ranks are mostly noise")
    sentence = "; ".join(parts) + "."
    return sentence[0].upper() + sentence[1:]


def _misses_strict(worse: Sequence[Expected]) -> bool:
    """Whether a unit that strict mode has is among those that do not work, without it."""
    return any(Unit.parse(row.unit).needs_delta and METHODS[row.method].ranks for row in worse)


def _remedy(law: ScalingLaw, target: float) -> str:
    """The number of subjects, or the epsilon, at which a typical pair's error is the target."""
    subjects, epsilon = law.subjects_for(target), law.epsilon_for(target)
    if math.isinf(epsilon):
        return f"N = {_round(subjects)} (no epsilon makes up for a small sample)"
    return f"N = {_round(subjects)} or epsilon = {_round(epsilon)}"


def _round(value: float) -> str:
    """The number with two significant digits."""
    rounded = round(value, 1 - math.floor(math.log10(value)))
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"
