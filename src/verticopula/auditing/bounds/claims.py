"""What a release promises, in the form in which it can be refuted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from verticopula.privacy.accounting import Coins, composed_delta

_POINTS = 12
_FURTHEST = 6.0  # a bound much above log(trials) cannot be measured
_HOPELESS = 0.95  # a claimed delta that no test can exceed by a measurable amount


@dataclass(frozen=True)
class Claim:
    """(ε, δ)-indistinguishability of two data sets that differ in one `change`.

    Attributes
    ----------
    unit : the unit of privacy it belongs to
    epsilon, delta : what is claimed at that unit
    coins : what the accounting composes; they say which epsilon is claimed at every other delta too
    """

    unit: str
    epsilon: float
    delta: float = 0.0
    coins: tuple[Coins, ...] = ()

    @classmethod
    def pure(cls, unit: str, epsilon: float) -> Claim:
        """The claim of ε without a δ: as good as one coin of ε.

        Parameters
        ----------
        unit : the unit of privacy it belongs to
        epsilon : what is claimed at that unit
        """
        return cls(unit, epsilon, 0.0, (Coins(epsilon, 1),))

    @cached_property
    def curve(self) -> tuple[tuple[float, float], ...]:
        """Other pairs (ε, δ) that are claimed as well, where a measurement could contradict them."""
        if sum(c.count for c in self.coins) < 2 or math.isinf(self.epsilon):
            return ()  # one coin is best attacked at its own delta of zero
        furthest = min(self.epsilon, _FURTHEST)
        if composed_delta(self.coins, furthest) > _HOPELESS:
            return ()
        grid = [furthest * k / _POINTS for k in range(_POINTS)]
        points = [(epsilon, composed_delta(self.coins, epsilon)) for epsilon in grid]
        return tuple((epsilon, delta) for epsilon, delta in points if self.delta < delta < _HOPELESS)
