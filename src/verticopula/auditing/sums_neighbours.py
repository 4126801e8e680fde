"""Two data sets that the opened sums tell apart as well as their bounds allow.

One pattern of a plan, a few people, and one of them replaced. D = x x' - y y' is largest when x and y are orthogonal
and of full length ([docs/explanation/strict.md]). All scores of such a person have the same size within a party, so
only signs are to be chosen, and a record that is too long still has the same direction after it has been clipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from verticopula.auditing.mechanism_audit import Neighbours
from verticopula.errors import SettingsError
from verticopula.mpc.sums_plan import SumsPlan, block_factor, own_columns, pattern_bound
from verticopula.schema.units import Unit

Floats = NDArray[np.float64]
Scores = Mapping[str, Floats]  # party -> (n, p_k)

SUBJECTS = 8
TOO_LONG = 2.0  # the replaced person's scores, in units of the longest that may be shared


@dataclass(frozen=True)
class SumsNeighbours:
    """Two data sets and what is claimed of them.

    Attributes
    ----------
    plan : one pattern
    pair : scores of its subjects; the first one differs
    unit : `person` or `block`
    mu : what is claimed for that unit
    """

    plan: SumsPlan
    pair: Neighbours[Scores]
    unit: Unit
    mu: float


def replaced_record(plan: SumsPlan, *, pattern: int = 0, subjects: int = SUBJECTS) -> SumsNeighbours:
    """One person of a pattern becomes another one, at all parties."""
    one = cut_plan(plan, pattern, subjects)
    weights = _squares(one)
    sides = np.ones((2, weights.size))
    sides[1] = _signs(weights, -1.0)  # with the appended 1 the two records are orthogonal
    return SumsNeighbours(one, _pair(one, sides), Unit.PERSON, one.mu)


def replaced_block(plan: SumsPlan, party: str, *, pattern: int = 0, subjects: int = SUBJECTS) -> SumsNeighbours:
    """One person's part at one party becomes another one; the rest stays."""
    one = cut_plan(plan, pattern, subjects)
    if one.bounds[0, one.parties.index(party)] == 0:
        raise SettingsError(f"party {party!r} has no part in this pattern")
    weights, own = _squares(one), np.zeros(sum(one.widths), dtype=np.bool_)
    own[own_columns(one, party)] = True
    sides = np.ones((2, weights.size))
    sides[1, own] = _signs(weights[own], -1.0 - float(weights[~own].sum()))
    return SumsNeighbours(one, _pair(one, sides), Unit.BLOCK, one.mu * block_factor(one, party))


def cut_plan(plan: SumsPlan, pattern: int, subjects: int) -> SumsPlan:
    """One pattern with so many subjects; bounds, bits and mu stay as they are."""
    if not 0 <= pattern < plan.columns.shape[0] or subjects < 1:
        raise SettingsError("the plan has no such pattern, or nobody would be in it")
    return replace(
        plan,
        pattern_of=np.zeros(subjects, dtype=np.int64),
        columns=plan.columns[[pattern]],
        bounds=plan.bounds[[pattern]],
    )


def repeat_plan(plan: SumsPlan, copies: int) -> SumsPlan:
    """So many patterns, each like the plan's only one: independent trials of the same sums in one study."""
    subjects = plan.pattern_of.size
    return replace(
        plan,
        pattern_of=np.repeat(np.arange(copies), subjects),
        columns=np.repeat(plan.columns, copies, axis=0),
        bounds=np.repeat(plan.bounds, copies, axis=0),
    )


def claimed_deviations(plan: SumsPlan) -> tuple[float, float]:
    """Standard deviations that the claim needs, off and on the diagonal, in units of the scores' products."""
    needed = pattern_bound(plan, 0) / plan.mu / 4.0**plan.bits
    return needed, float(np.sqrt(2.0) * needed)


def _squares(plan: SumsPlan) -> Floats:
    """The square of every column's score in a record of full length; 0 where the pattern has no column."""
    squares = np.zeros(sum(plan.widths))
    for number, party in enumerate(plan.parties):
        place = own_columns(plan, party)
        here = plan.columns[0, place]
        squares[place] = here * (plan.bounds[0, number] / 4.0**plan.bits / max(int(here.sum()), 1))
    return squares


def _signs(weights: Floats, target: float) -> Floats:
    """Signs with which the weights add up to nearly `target`: the largest first, each towards what is left."""
    signs, left = np.ones(weights.size), target
    for place in np.argsort(-weights, kind="stable"):
        signs[place] = 1.0 if left >= 0.0 else -1.0
        left -= signs[place] * float(weights[place])
    return signs


def _pair(plan: SumsPlan, sides: Floats) -> Neighbours[Scores]:
    """The others are the same in both data sets; what they are does not matter."""
    others = np.random.default_rng(0).standard_normal((plan.pattern_of.size, sum(plan.widths)))
    long = TOO_LONG * np.sqrt(_squares(plan))
    tables = []
    for signs in sides:
        whole = others.copy()
        whole[0] = signs * long
        whole[:, ~plan.columns[0]] = np.nan
        tables.append({party: whole[:, own_columns(plan, party)] for party in plan.parties})
    return Neighbours(tables[0], tables[1])
