"""One plain sentence about a forecast, with the number of subjects or the epsilon that would change it.

A pair's error is that of a mean product of two noisy grades: (v_j + 1/12)(v_k + 1/12) over their common
subjects, v the coins' variance. How v moves with N and epsilon is known, so no rehearsal is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from verticopula.privacy.budget import ColumnBudget
from verticopula.privacy.units import Unit
from verticopula.schema import ColumnKey

if TYPE_CHECKING:
    from verticopula.forecast import Expected

USABLE = 0.35  # error over the correlations' presumed size: an eighth of their mean square is lost
NOISE = 0.7  # half of it is
_SPREAD = 1.0 / 12.0
_BRIDGE = math.pi / 3.0  # from Spearman's to latent correlations, near zero
_MOST = 1e12


@dataclass(frozen=True)
class ErrorLaw:
    """How a typical pair's standard error moves with the number of subjects and epsilon, at one unit.

    Attributes
    ----------
    shares : (p,) of the cohort that has each column
    coins : (p,) epsilon per comparison at `n_subjects` and `epsilon`
    """

    unit: Unit
    n_subjects: int
    epsilon: float
    delta: float
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

    def subjects_for(self, target: float) -> float:
        """Number of subjects at which the error is `target`."""
        return _solve(lambda n: self.error(n, self.epsilon), target, float(self.n_subjects))

    def epsilon_for(self, target: float) -> float:
        """Epsilon at which the error is `target`; infinite if sampling alone is worse."""
        return _solve(lambda e: self.error(self.n_subjects, e), target, self.epsilon)


def _solve(falling: Callable[[float], float], target: float, start: float) -> float:
    low = high = start
    while falling(high) > target:
        high *= 2.0
        if high > _MOST:
            return math.inf
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if falling(middle) > target else (low, middle)
    return high


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


def advise(rows: Sequence[Expected], laws: Mapping[str, ErrorLaw], strength: float) -> str:
    """The strictest unit that works with the better method, and what the next one would take."""
    units = dict.fromkeys(row.unit for row in rows)
    best = [min((row for row in rows if row.unit == unit), key=lambda row: row.after) for unit in units]
    usable = [row for row in best if row.after <= USABLE * strength]
    worse = [row for row in best if row.after > USABLE * strength]
    parts = []
    if usable:
        row = usable[-1]
        parts.append(
            f"at unit {row.unit} with method {row.method} the correlations are good to about {row.after:.2g}, where "
            f"{strength:g} is their presumed size"
        )
    if worse:
        row, law = worse[0], laws[worse[0].unit]
        now = law.error(law.n_subjects, law.epsilon)
        kind = "mostly noise" if row.after > NOISE * strength else "rough"
        remedy = _remedy(law, min(now / 2.0, USABLE * strength))
        parts.append(f"at unit {row.unit} they would be {kind} (error {row.after:.2g}), and usable from about {remedy}")
    elif usable:
        law = laws[usable[-1].unit]
        parts.append(f"about {_remedy(law, law.error(law.n_subjects, law.epsilon) / 2.0)} would halve the error")
    sentence = "; ".join(parts) + "."
    return sentence[0].upper() + sentence[1:]


def _remedy(law: ErrorLaw, target: float) -> str:
    """The number of subjects, or the epsilon, at which a typical pair's error is the target."""
    subjects, epsilon = law.subjects_for(target), law.epsilon_for(target)
    if math.isinf(epsilon):
        return f"N = {_round(subjects)} (no epsilon makes up for a small sample)"
    return f"N = {_round(subjects)} or epsilon = {_round(epsilon)}"


def _round(value: float) -> str:
    """Two digits."""
    rounded = round(value, 1 - math.floor(math.log10(value)))
    return f"{rounded:,.0f}" if rounded >= 10 else f"{rounded:g}"
