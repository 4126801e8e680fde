"""Secure sums for the audit to judge: as they should be, as they are tolerated, and broken in two ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.privacy.noise import Keystream, Noise

Ints = NDArray[np.int64]


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


@dataclass(frozen=True)
class SumsCase:
    """How the parties behave, and whether the claim covers it."""

    name: str
    keeps_it: bool
    noises: Mapping[str, Callable[[Noise], Noise]] = field(default_factory=dict)

    def settings(self) -> dict[str, Any]:
        return {"noises": self.noises}


CASES = (
    SumsCase("three noises", True),
    SumsCase("one compute party adds none", True, {"b": none}),
    SumsCase("two compute parties add none", False, {"a": none, "b": none}),
    SumsCase("all noise halved", False, dict.fromkeys("abc", half)),
)
