"""Two data sets that the opened sums tell apart as well as their bounds allow.

One pattern of a plan, a few people, and one of them replaced. D = x x' - y y' is largest when x and y are orthogonal
and of full length ([docs/explanation/strict.md]). In every column one of the two is in the cell of the longest scores;
the other is there as well, or in the cell whose scores point the other way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from verticopula.auditing.mechanism_audit import Neighbours
from verticopula.errors import SettingsError
from verticopula.mpc.sums_plan import SumsPlan, block_factor, own_tables, pattern_bound
from verticopula.schema.units import Unit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Cells = Mapping[str, Ints]  # party -> (n, columns)

SUBJECTS = 8


@dataclass(frozen=True)
class SumsNeighbours:
    """Two data sets and what is claimed of them.

    Attributes
    ----------
    plan : one pattern
    pair : cells of its subjects; the first one differs
    unit : `person` or `block`
    mu : what is claimed for that unit
    """

    plan: SumsPlan
    pair: Neighbours[Cells]
    unit: Unit
    mu: float


def replaced_record(plan: SumsPlan, *, pattern: int = 0, subjects: int = SUBJECTS) -> SumsNeighbours:
    """One person of a pattern becomes another one, at all parties."""
    one = cut_plan(plan, pattern, subjects)
    columns = [_opposites(table[0]) for table in one.tables]
    moved = _choose(columns, -float(4**one.bits))  # with the appended 1 the two records are orthogonal
    return SumsNeighbours(one, _pair(one, columns, moved), Unit.PERSON, one.mu)


def replaced_block(plan: SumsPlan, party: str, *, pattern: int = 0, subjects: int = SUBJECTS) -> SumsNeighbours:
    """One person's part at one party becomes another one; the rest stays."""
    one = cut_plan(plan, pattern, subjects)
    if one.bounds[0, one.parties.index(party)] == 0:
        raise SettingsError(f"party {party!r} has no part in this pattern")
    columns = [_opposites(table[0]) for table in one.tables]
    own = np.concatenate([np.full(len(own_tables(one, name)), name == party) for name in one.parties])
    rest = pattern_bound(one, 0) - int(one.bounds[0, one.parties.index(party)])
    moved = np.zeros(own.size, dtype=np.bool_)
    moved[own] = _choose([column for column, is_own in zip(columns, own, strict=True) if is_own], -float(rest))
    return SumsNeighbours(one, _pair(one, columns, moved), Unit.BLOCK, one.mu * block_factor(one, party))


def cut_plan(plan: SumsPlan, pattern: int, subjects: int) -> SumsPlan:
    """One pattern with so many subjects; tables, bits and mu stay as they are."""
    if not 0 <= pattern < plan.columns.shape[0] or subjects < 1:
        raise SettingsError("the plan has no such pattern, or nobody would be in it")
    return replace(
        plan,
        pattern_of=np.zeros(subjects, dtype=np.int64),
        columns=plan.columns[[pattern]],
        tables=tuple(table[[pattern]] for table in plan.tables),
    )


def repeat_plan(plan: SumsPlan, copies: int) -> SumsPlan:
    """So many patterns, each like the plan's only one: independent trials of the same sums in one study."""
    subjects = plan.pattern_of.size
    return replace(
        plan,
        pattern_of=np.repeat(np.arange(copies), subjects),
        columns=np.repeat(plan.columns, copies, axis=0),
        tables=tuple(np.repeat(table, copies, axis=0) for table in plan.tables),
    )


def claimed_deviations(plan: SumsPlan) -> tuple[float, float]:
    """Standard deviations that the claim needs, off and on the diagonal, in units of the scores' products."""
    needed = pattern_bound(plan, 0) / plan.mu / 4.0**plan.bits
    return needed, float(np.sqrt(2.0) * needed)


@dataclass(frozen=True)
class _Opposites:
    """The cell with the longest scores, the one that points furthest the other way, and products with the first."""

    longest: int
    other: int
    same: float
    opposite: float


def _opposites(table: Ints) -> _Opposites:
    """`table` : (cells, scores)"""
    products = table.astype(np.float64) @ table.T.astype(np.float64)
    longest = int(np.argmax(np.diag(products)))
    other = int(np.argmin(products[longest]))
    return _Opposites(longest, other, float(products[longest, longest]), float(products[longest, other]))


def _choose(columns: list[_Opposites], target: float) -> NDArray[np.bool_]:
    """In which columns to move so that products add up to nearly `target`: the largest steps first."""
    moved = np.zeros(len(columns), dtype=np.bool_)
    left = target - math.fsum(column.same for column in columns)  # below 0: as far as moving has to go
    for place in sorted(range(len(columns)), key=lambda k: columns[k].opposite - columns[k].same):
        step = columns[place].opposite - columns[place].same
        if abs(left - step) < abs(left):
            moved[place] = True
            left -= step
    return moved


def _pair(plan: SumsPlan, columns: list[_Opposites], moved: NDArray[np.bool_]) -> Neighbours[Cells]:
    """The others are the same in both data sets; what they are does not matter."""
    rng = np.random.default_rng(0)
    others = np.column_stack([rng.integers(0, table.shape[1], plan.pattern_of.size) for table in plan.tables])
    first = np.array([column.longest for column in columns])
    second = np.where(moved, [column.other for column in columns], first)
    ends = np.cumsum([len(own_tables(plan, party)) for party in plan.parties])[:-1]
    sides = []
    for record in (first, second):
        whole = others.copy()
        whole[0] = record
        sides.append(dict(zip(plan.parties, np.hsplit(whole, ends), strict=True)))
    return Neighbours(sides[0], sides[1])
