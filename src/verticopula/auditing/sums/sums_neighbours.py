"""Two data sets that both openings tell apart as well as their bounds allow.

One presence pattern of a plan, a few people, and one of them replaced. D = x x' - y y' is largest when x and y are
orthogonal and of full length (docs/explanation/strict-proof.md). In every column one of the two is in the cell of the
longest scores; the other is there as well, or in the cell whose scores point the other way. The tables that are opened
are of pairs with a column in which the two differ: every one of them moves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from verticopula.auditing.bounds.mechanism_audit import Neighbours
from verticopula.errors import SettingsError
from verticopula.mpc.sums_plan import SumsPlan, block_factor, own_columns
from verticopula.mpc.table_noise import block_sensitivities, tables_sensitivity
from verticopula.privacy.gaussian_dp import compose
from verticopula.schema.units import Unit

Ints = NDArray[np.int64]
Cells = Mapping[str, Ints]  # party -> (n, columns); no rows where it knows nobody

SUBJECTS = 8
PAIRS = 6  # tables that are opened in an attack


def no_pairs() -> Ints:
    """(0, 2) chosen pairs: none, so that the first opening is attacked alone."""
    return np.zeros((0, 2), dtype=np.int64)


@dataclass(frozen=True)
class SumsNeighbours:
    """Two data sets and what is claimed of them.

    Attributes
    ----------
    plan : one pattern
    pair : cells of its subjects; the first one differs
    unit : `person` or `block`
    mu : what is claimed for that unit, of both openings together
    pairs : whose tables are opened
    """

    plan: SumsPlan
    pair: Neighbours[Cells]
    unit: Unit
    mu: float
    pairs: Ints = field(default_factory=no_pairs)


def replaced_record(plan: SumsPlan, *, pattern: int = 0, subjects: int = SUBJECTS) -> SumsNeighbours:
    """Two data sets in which one person of a pattern becomes another one, at all parties.

    Parameters
    ----------
    plan : of the study's sums
    pattern : which of the plan's presence patterns
    subjects : people in either data set
    """
    one = cut_plan(plan, pattern, subjects)
    columns = [_opposites(one, number) for number in range(len(one.features))]
    moved = _choose(columns, 0.0)  # the two records are orthogonal
    pairs = _moving_pairs(one, moved)
    return SumsNeighbours(one, _pair(one, columns, moved), Unit.PERSON, _person_mu(one, pairs), pairs)


def replaced_block(plan: SumsPlan, party: str, *, pattern: int = 0, subjects: int = SUBJECTS) -> SumsNeighbours:
    """Two data sets in which one person's part at one party becomes another one; the rest stays.

    Parameters
    ----------
    plan : of the study's sums
    party : whose part
    pattern : which of the plan's presence patterns
    subjects : people in either data set
    """
    one = cut_plan(plan, pattern, subjects)
    index = one.parties.index(party)
    if one.parts[0, index] == 0:
        raise SettingsError(f"party {party!r} has no part in this pattern")
    columns = [_opposites(one, number) for number in range(len(one.features))]
    own = one.owners == index
    rest = int(one.parts[0].sum()) - int(one.parts[0, index])
    moved = np.zeros(own.size, dtype=np.bool_)
    moved[own] = _choose([column for column, is_own in zip(columns, own, strict=True) if is_own], -float(rest))
    pairs = _moving_pairs(one, moved)
    mu = one.mu * block_factor(one, party)
    if len(pairs):
        share = block_sensitivities(pairs, one.owners, len(one.parties))[index] / _sensitivity(one, pairs)
        mu = compose([mu, one.mu_tables * share])
    return SumsNeighbours(one, _pair(one, columns, moved), Unit.BLOCK, mu, pairs)


def without_tables(neighbours: SumsNeighbours, party: str | None = None) -> SumsNeighbours:
    """The same two data sets, of which the first opening alone is seen.

    Parameters
    ----------
    party : whose block is replaced; None for a person
    """
    plan = neighbours.plan
    mu = plan.mu if party is None else plan.mu * block_factor(plan, party)
    return replace(neighbours, pairs=no_pairs(), mu=mu)


def _person_mu(plan: SumsPlan, pairs: Ints) -> float:
    return compose([plan.mu, plan.mu_tables]) if len(pairs) else plan.mu


def _sensitivity(plan: SumsPlan, pairs: Ints) -> float:
    return tables_sensitivity(pairs, plan.owners, several_rows=plan.several_rows)


def _moving_pairs(plan: SumsPlan, moved: NDArray[np.bool_]) -> Ints:
    """Pairs of columns that the people have, with a column in which the two data sets differ."""
    known = plan.weights[0, plan.owners] > 0
    found = [(a, b) for b in range(len(known)) for a in range(b) if known[a] and known[b] and (moved[a] or moved[b])]
    return np.array(found[: min(PAIRS, plan.most_tables)], dtype=np.int64).reshape(-1, 2)


def cut_plan(plan: SumsPlan, pattern: int, subjects: int) -> SumsPlan:
    """One pattern with so many subjects; tables, weights, bits and mu stay as they are."""
    if not 0 <= pattern < len(plan.weights) or subjects < 1:
        raise SettingsError("the plan has no such pattern, or nobody would be in it")
    return replace(
        plan,
        pattern_of=np.zeros(subjects, dtype=np.int64),
        weights=plan.weights[[pattern]],
        selecting=np.zeros_like(plan.selecting),
        base=np.zeros_like(plan.base),
        mu_selection=0.0,
    )


def repeat_subjects(plan: SumsPlan, copies: int) -> SumsPlan:
    """So many times the plan's people, in its only pattern."""
    return replace(plan, pattern_of=np.zeros(copies * plan.pattern_of.size, dtype=np.int64))


def claimed_deviations(plan: SumsPlan, pairs: Ints) -> tuple[float, float, float]:
    """Standard deviations that the claim needs: of products off and on the diagonal, and of counts."""
    needed = plan.bound / plan.mu / 4.0**plan.bits
    counts = _sensitivity(plan, pairs) / plan.mu_tables if len(pairs) else 1.0
    return needed, float(np.sqrt(2.0) * needed), counts


@dataclass(frozen=True)
class _Opposites:
    """The cell with the longest scores, the one that points furthest the other way, and products with the first."""

    longest: int
    other: int
    same: float
    opposite: float


def _opposites(plan: SumsPlan, number: int) -> _Opposites:
    """Of a column in the plan's only pattern."""
    table = plan.features[number].astype(np.float64) * float(plan.weights[0, plan.owners[number]])
    products = table @ table.T
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
    others = np.column_stack([rng.integers(0, len(table), plan.pattern_of.size) for table in plan.features])
    first = np.array([column.longest for column in columns])
    second = np.where(moved, [column.other for column in columns], first)
    sides = []
    for record in (first, second):
        whole = others.copy()
        whole[0] = record
        sides.append(
            {
                party: whole[: len(whole) * int(plan.weights[0, k] > 0), list(own_columns(plan, party))]
                for k, party in enumerate(plan.parties)
            }
        )
    return Neighbours(sides[0], sides[1])
