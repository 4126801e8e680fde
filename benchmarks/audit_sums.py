"""Secure sums for the audit to judge: as they should be, as they are tolerated, and with planted faults."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from verticopula.mpc import proof_rounds, sums_plan
from verticopula.mpc.cell_proofs import PieceOpening, ProofCoefficients, draw_coefficients, is_accepted
from verticopula.mpc.prime_field import PRIME, multiply
from verticopula.mpc.sums_plan import SumsPlan
from verticopula.mpc.verified_cells import CellsStatement
from verticopula.mpc.verified_sums import term_scales
from verticopula.privacy.noise import Keystream, Noise
from verticopula.protocol.party import sums_handler

Ints = NDArray[np.int64]
Plant = Callable[[], AbstractContextManager[Any]]  # the product has the fault as long as the context lasts


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


def halve_scales() -> AbstractContextManager[Any]:
    """Compute parties draw half the noise that the bound asks for."""
    return patch.object(sums_plan, "term_scales", lambda *of: term_scales(*of) / 2.0)


def understate_bounds() -> AbstractContextManager[Any]:
    """Bounds of records from the mean square over cells, in place of the largest."""

    def bound(plan: SumsPlan) -> int:
        squares = np.array([float((table * table).sum(axis=1).mean()) for table in plan.features])
        parts = np.bincount(plan.owners, weights=squares, minlength=len(plan.parties))
        return int((plan.weights.astype(np.float64) ** 2 @ parts).max())

    return patch.object(SumsPlan, "bound", property(bound))


def noise_for_one_table() -> AbstractContextManager[Any]:
    """Tables have the noise of one, however many they are."""
    return patch.object(sums_handler, "tables_sensitivity", lambda *pairs, **rows: math.sqrt(2.0))


def tables_without_noise() -> AbstractContextManager[Any]:
    """Nobody adds noise to the tables."""
    return patch.object(sums_handler, "table_scale", lambda *of: 0.0)


@dataclass(frozen=True)
class SumsCase:
    """How the parties behave, what is planted in the code, and whether the claim covers it."""

    name: str
    keeps_it: bool
    noises: Mapping[str, Callable[[Noise], Noise]] = field(default_factory=dict)
    plant: Plant = nullcontext

    def settings(self) -> dict[str, Any]:
        return {"noises": self.noises}


CASES = (
    SumsCase("three noises", True),
    SumsCase("one compute party adds none", True, {"b": none}),
    SumsCase("two compute parties add none", False, {"a": none, "b": none}),
    SumsCase("all noise halved", False, dict.fromkeys("abc", half)),
    SumsCase("mean squares for the bound, one adds none", False, {"b": none}, understate_bounds),
    SumsCase("noise of one table on all, one adds none", False, {"b": none}, noise_for_one_table),
    SumsCase("tables without noise", False, {}, tables_without_noise),
)


# ---- faults in the check of shared cells ---------------------------------------------------


@dataclass(frozen=True)
class ProofFault:
    """A check that is not made, and the name of the forgery that it lets through."""

    name: str
    forgery: str
    plant: Plant


def _accept_any_difference(openings: tuple[PieceOpening, ...], coefficients: ProofCoefficients) -> bool:
    return is_accepted(tuple(replace(opening, difference=0) for opening in openings), coefficients)


def _accept_any_value(openings: tuple[PieceOpening, ...], coefficients: ProofCoefficients) -> bool:
    return sum(opening.difference for opening in openings) % PRIME == 0


def _accept(change: Callable[..., bool]) -> Plant:
    return lambda: patch.object(proof_rounds, "is_accepted", change)


def _draw(change: Callable[[ProofCoefficients], ProofCoefficients]) -> Plant:
    """Coefficients that are not what they should be, at dealer and verifiers alike."""

    def drawn(statement: CellsStatement, seed: bytes) -> ProofCoefficients:
        return change(draw_coefficients(statement, seed))

    return lambda: patch.object(proof_rounds, "draw_coefficients", drawn)


def _equal_weights(drawn: ProofCoefficients) -> ProofCoefficients:
    ones = np.ones_like(drawn.weights)
    return replace(drawn, weights=ones, squares=multiply(ones, ones))


def _equal_within(drawn: ProofCoefficients) -> ProofCoefficients:
    return replace(drawn, within=np.ones_like(drawn.within))


def _equal_across(drawn: ProofCoefficients) -> ProofCoefficients:
    return replace(drawn, across=np.ones_like(drawn.across))


def _without_group(place: int) -> Callable[[ProofCoefficients], ProofCoefficients]:
    def change(drawn: ProofCoefficients) -> ProofCoefficients:
        across = drawn.across.copy()
        across[place] = 0
        return replace(drawn, across=across)

    return change


PROOF_FAULTS = (
    ProofFault("cells are not checked", "an entry of 1000", _accept(lambda *openings: True)),
    ProofFault(
        "verdicts are not looked at",
        "an entry of 1000",
        lambda: patch.object(proof_rounds, "_check_verdicts", lambda *verdicts: None),
    ),
    ProofFault("d is not compared with 0", "an entry of 1000", _accept(_accept_any_difference)),
    ProofFault("Q(t) is not compared with the folds", "an entry of 1000 with d = 0", _accept(_accept_any_value)),
    ProofFault("the first group is left out", "an entry of 1000 in the first group alone", _draw(_without_group(0))),
    ProofFault("the last group is left out", "an entry of 1000 in the last group alone", _draw(_without_group(-1))),
    ProofFault("r is 1 everywhere", "entries that cancel in a row", _draw(_equal_weights)),
    ProofFault("λ is 1 everywhere", "rows that cancel in a group", _draw(_equal_within)),
    ProofFault("σ is 1 everywhere", "rows that cancel across groups", _draw(_equal_across)),
)
