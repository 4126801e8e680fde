"""Secure sums for the audit to judge: as they should be, as they are tolerated, and broken in three ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.mpc.sums_plan import SumsPlan, code_scores, own_mask, own_rows
from verticopula.privacy.noise import Keystream, Noise
from verticopula.protocol.party.sums_handler import SumsHandler

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Weakened:
    """A compute party's noise, of another scale; none with a scale of 0."""

    def __init__(self, source: Noise, factor: float) -> None:
        self._source, self._factor = source, factor
        self.is_private = source.is_private

    def stream(self, *label: str) -> Keystream:
        return self._source.stream(*label)

    def discrete_laplace(self, values: Ints, scale: float, *label: str) -> Ints:
        return self._source.discrete_laplace(values, scale, *label)

    def discrete_gaussian(self, values: Ints, scale: float, *label: str) -> Ints:
        if self._factor == 0.0:
            return values
        return self._source.discrete_gaussian(values, self._factor * scale, *label)


def none(source: Noise) -> Noise:
    return Weakened(source, 0.0)


def half(source: Noise) -> Noise:
    return Weakened(source, 0.5)


class Unchecked(SumsHandler):
    """Shares whatever scores it has, however long they are."""

    def _checked_scores(self, plan: SumsPlan) -> Ints:
        assert self._scores is not None
        return self._scores(plan)


def unclipped(plan: SumsPlan, party: str, scores: Floats) -> Ints:
    """Rounded, and nothing else."""
    asked = np.where(own_mask(plan, party), scores[own_rows(plan, party)], 0.0)
    return np.rint(asked * 2.0**plan.bits).astype(np.int64)


@dataclass(frozen=True)
class SumsCase:
    """How the parties behave, and whether the claim covers it."""

    name: str
    keeps_it: bool
    noises: Mapping[str, Callable[[Noise], Noise]] = field(default_factory=dict)
    code: Callable[[SumsPlan, str, Floats], Ints] = code_scores
    handler: type[SumsHandler] = SumsHandler

    def settings(self) -> dict[str, Any]:
        return {"noises": self.noises, "code": self.code, "handler": self.handler}


CASES = (
    SumsCase("three noises", True),
    SumsCase("one compute party adds none", True, {"b": none}),
    SumsCase("two compute parties add none", False, {"a": none, "b": none}),
    SumsCase("all noise halved", False, dict.fromkeys("abc", half)),
    SumsCase("clipping switched off", False, code=unclipped, handler=Unchecked),
)
