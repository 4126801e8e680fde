"""Fixed points of slow iterations, sooner than by repetition.

`AndersonMixer` (Anderson 1965; type II of Fang and Saad 2009) is the one mixing. `extrapolate_geometric` is
Aitken's method for iterations whose state may only move along its own last step, as curves that must stay increasing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MixingSettings:
    """How far to trust what was learnt of a map.

    Attributes
    ----------
    memory : differences of states and steps that are kept
    damping : share of a plain step that is taken
    ridge : of the least squares for the shares, relative to the trace
    most_growth : a step this many times as long as the one before undoes the mixing; infinite to never undo it
    """

    memory: int
    damping: float
    ridge: float
    most_growth: float = math.inf


@dataclass(frozen=True)
class AndersonMixer:
    """Anderson's mixing of the last few steps of a map x -> x + step(x).

    Immutable: `next_state` returns the mixer to use next.
    """

    settings: MixingSettings
    _last: tuple[Floats, Floats] | None = None  # a state and its plain step
    _states: tuple[Floats, ...] = ()  # differences of consecutive states, and of their steps
    _steps: tuple[Floats, ...] = ()
    _products: Floats = field(default_factory=lambda: np.zeros((0, 0)))  # inner products of `_steps`

    def forget(self) -> AndersonMixer:
        """The mixer without any memory."""
        return AndersonMixer(self.settings)

    def change_map(self) -> AndersonMixer:
        """The mixer for another map with much the same slopes, whose steps are not compared with those before."""
        return replace(self, _last=None)

    def next_state(self, state: Floats, step: Floats) -> tuple[Floats, AndersonMixer]:
        """Where to go from a state whose plain step is known, and the mixer that has learnt from it."""
        damping, shape = self.settings.damping, state.shape
        state, step = state.reshape(-1), step.reshape(-1)
        learnt = self
        if self._last is not None:
            old, old_step = self._last
            if self._steps and self._grew_too_much(step, old_step):
                return (old + damping * old_step).reshape(shape), self.forget()
            learnt = self._remember(state - old, step - old_step)
        learnt = replace(learnt, _last=(state, step))
        mixed = state + damping * step - learnt._correction(step)
        return np.asarray(mixed.reshape(shape)), learnt

    def _grew_too_much(self, step: Floats, old_step: Floats) -> bool:
        """Whether a step is longer than allowed, or no number."""
        if math.isinf(self.settings.most_growth):
            return False
        return not np.linalg.norm(step) <= self.settings.most_growth * np.linalg.norm(old_step)

    def _remember(self, d_state: Floats, d_step: Floats) -> AndersonMixer:
        kept = slice(1, None) if len(self._steps) == self.settings.memory else slice(None)
        steps = (*self._steps[kept], d_step)
        grown = np.zeros((len(steps), len(steps)))
        grown[:-1, :-1] = self._products[kept, kept]
        grown[-1] = grown[:, -1] = [d @ d_step for d in steps]
        return replace(self, _states=(*self._states[kept], d_state), _steps=steps, _products=grown)

    def _correction(self, step: Floats) -> Floats:
        """What mixing takes off the damped step."""
        if not self._steps:
            return np.zeros_like(step)
        along = np.array([d @ step for d in self._steps])
        ridge = self.settings.ridge * np.trace(self._products) * np.eye(len(self._products))
        shares = np.linalg.lstsq(self._products + ridge, along, rcond=None)[0]
        correction = np.zeros_like(step)
        for share, d_state, d_step in zip(shares, self._states, self._steps, strict=True):
            correction += share * (d_state + self.settings.damping * d_step)
        return correction


def extrapolate_geometric(move: Floats, last_move: Floats, most_ratio: float) -> float:
    """How many more times the last move steady moves would still add up to; 0 where they are not steady (Aitken).

    Moves that shrink by the same ratio r each time add up to r/(1 - r) times the last one.
    """
    ratio = min(float(move @ last_move) / max(float(last_move @ last_move), 1e-300), most_ratio)
    return ratio / (1.0 - ratio) if ratio > 0.0 else 0.0
