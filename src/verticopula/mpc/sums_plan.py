"""The public plan of a study's secure sums: whose rows, what stands for each cell, bounds, noise, and how many tables.

There are two openings over the same proven cells. The first is one Gram matrix of everybody's records. A record has the
features of one cell of each column, times the weight of the party in the person's presence pattern, and 0 where the
party does not know the person. The second is tables of counts of chosen pairs of columns (`opening_terms.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import ProtocolError, SettingsError
from verticopula.mpc.fixed_point import FEWEST_BITS, MOST_BITS
from verticopula.mpc.gram_noise import gram_scales, share_scale, slack_of
from verticopula.mpc.prime_field import ELEMENT_BYTES, HALF
from verticopula.mpc.table_noise import MOST_PAIRS, check_table_room, table_scale
from verticopula.mpc.verified_cells import N_COMPUTE, CellsStatement
from verticopula.mpc.verified_sums import LARGEST_ENTRY, check_field_room, term_scales
from verticopula.schema.defaults import LARGEST_MESSAGE_GIB
from verticopula.schema.study_settings import COORDINATOR

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_BESIDE_BODIES = 2**26  # bytes of a message for what goes with them
MOST_BODIES = LARGEST_MESSAGE_GIB * 2**30 - _BESIDE_BODIES  # bytes of all corrections: one may be sent all in a message
_LEAST_BOUND = 2**24  # shorter records count as this long, so that noise is never too small for whole numbers
_ROUNDED_UP = 1.0 + 2.0**-45  # more than what rounding takes from a few products of 64-bit numbers


@dataclass(frozen=True)
class SumsPlan:
    """Which sums are opened, and with how much noise. All of it is public.

    Attributes
    ----------
    parties, n_columns : who has columns, and how many each
    compute : the three that hold shares and add noise; they need not have columns
    pattern_of : (N,) every subject's presence pattern
    weights : (P, K) what a party's part of a record of that pattern is multiplied by; 0 where it does not know them
    features : for every column (cells, features) what stands for each of its cells, in units of 2^-bits
    groups : for every column (public cells,) the cell that stands for each of its public cells, an empty value's last
    bits : fractional bits of the features
    cap : of scores, in standard deviations
    selecting : (K,) parties that know some people only, whose people base parties release their features of
    base : (K,) parties that release them; none where there is nothing to release
    most_tables : of the second opening
    several_rows : whether the tables' noise covers a person whose blocks stand in different rows
    mu : of the first opening, for a whole record, as long as one compute party at most is not honest
    mu_tables : of the second opening, for a person; 0 where there is none
    mu_selection : of what base parties release, for a person; 0 where they release nothing
    """

    parties: tuple[str, ...]
    n_columns: tuple[int, ...]
    compute: tuple[str, str, str]
    pattern_of: NDArray[np.int64]
    weights: NDArray[np.int64]
    features: tuple[NDArray[np.int64], ...]
    groups: tuple[NDArray[np.int64], ...]
    bits: int
    cap: float
    selecting: NDArray[np.bool_]
    base: NDArray[np.bool_]
    most_tables: int
    several_rows: bool
    mu: float
    mu_tables: float
    mu_selection: float

    @cached_property
    def owners(self) -> Ints:
        """(p,) the number of every column's party."""
        return np.repeat(np.arange(len(self.parties)), self.n_columns)

    @cached_property
    def longest(self) -> tuple[int, ...]:
        """(K,) largest squared norm of a party's features before weights: exact."""
        largest = [int((table * table).sum(axis=1).max()) for table in self.features]
        return tuple(
            sum(square for square, owner in zip(largest, self.owners, strict=True) if owner == k)
            for k in range(len(self.parties))
        )

    @cached_property
    def parts(self) -> Ints:
        """(P, K) largest squared norm that a party's part of a record can have: exact."""
        return np.asarray(self.weights**2 * np.array(self.longest, dtype=np.int64))

    @cached_property
    def bound(self) -> int:
        """Largest squared norm that any record can have: exact."""
        return max(int(self.parts.sum(axis=1).max()), _LEAST_BOUND)

    @cached_property
    def width(self) -> int:
        """Features of a whole record."""
        return sum(table.shape[1] for table in self.features)

    @cached_property
    def counts(self) -> Ints:
        """(P,) people of every pattern."""
        return np.bincount(self.pattern_of, minlength=len(self.weights)).astype(np.int64)


def choose_compute(parties: Sequence[str], third: str = COORDINATOR) -> tuple[str, str, str]:
    """The first three parties, or both and a third without data."""
    if len(parties) < N_COMPUTE - 1 or third in parties:
        raise SettingsError("secure sums need at least two parties, none of them named as the third without data")
    first, second, last, *_ = (*parties, third)
    return first, second, last


# ---- checks ------------------------------------------------------------------------------


def check_plan(plan: SumsPlan) -> None:
    """ProtocolError where the plan contradicts itself; SettingsError where its sums would not fit in 61 bits."""
    n_parties = len(plan.parties)
    named = len(set(plan.parties)) == n_parties > 0 and len(plan.n_columns) == n_parties and min(plan.n_columns) > 0
    if not named or not len(plan.compute) == N_COMPUTE == len(set(plan.compute)):
        raise ProtocolError("secure sums need parties with columns, and three compute parties")
    shapes = plan.weights.ndim == 2 and plan.weights.shape[1] == n_parties and plan.weights.shape[0] > 0
    shapes = shapes and plan.selecting.shape == plan.base.shape == (n_parties,)
    if not shapes or plan.pattern_of.ndim != 1 or plan.pattern_of.size == 0:
        raise ProtocolError("the plan of secure sums has arrays of the wrong shape")
    if plan.pattern_of.min() < 0 or plan.pattern_of.max() >= plan.weights.shape[0] or plan.counts.min() == 0:
        raise ProtocolError("the plan of secure sums names a pattern that it does not have, or that nobody has")
    _check_features(plan)
    if not FEWEST_BITS <= plan.bits <= MOST_BITS:
        raise ProtocolError(f"features have {FEWEST_BITS} to {MOST_BITS} fractional bits")
    if not 0 <= plan.most_tables <= MOST_PAIRS or _has_odd_roles(plan):
        raise ProtocolError("the plan of secure sums has too many tables, or parties of two kinds")
    if not (_is_price(plan.mu_tables, bool(plan.most_tables)) and _is_price(plan.mu_selection, bool(plan.base.any()))):
        raise ProtocolError("the plan of secure sums has a price without a release, or a release without a price")
    check_field_room(plan.pattern_of.size, plan.bound, plan.mu)
    plan_slack(plan)
    if plan.most_tables:
        check_table_room(plan.pattern_of.size, plan.mu_tables)
    check_bodies(sum(int(np.prod(own_statement(plan, "", "", party).shape)) for party in plan.parties))


def _has_odd_roles(plan: SumsPlan) -> bool:
    """Whether a party is both a base and selecting, or there is one kind without the other."""
    return bool((plan.base & plan.selecting).any() or (plan.base.any() and not plan.selecting.any()))


def _is_price(mu: float, wanted: bool) -> bool:
    return (math.isfinite(mu) and mu > 0.0) if wanted else mu == 0.0


def check_bodies(numbers: int, message_bytes: int | None = None) -> None:
    """SettingsError if this many shared numbers do not fit in one message, of `message_bytes` where that is given."""
    size = ELEMENT_BYTES * numbers
    room = MOST_BODIES if message_bytes is None else min(MOST_BODIES, message_bytes - _BESIDE_BODIES)
    if size > room:
        raise SettingsError(
            f"{numbers:,} shared numbers do not fit in one message ({size:,} bytes; {room:,} fit): use fewer columns, "
            f"or at most {100 * room // size} % of the subjects, or a larger message_gib in the federation file"
        )


def _check_features(plan: SumsPlan) -> None:
    """ProtocolError unless every column has features and groups that name its cells, and all numbers are in range."""
    if not len(plan.features) == len(plan.groups) == sum(plan.n_columns):
        raise ProtocolError("the plan of secure sums has other tables than columns")
    longest = np.zeros(len(plan.parties))
    for table, groups, owner in zip(plan.features, plan.groups, plan.owners, strict=True):
        if table.ndim != 2 or table.shape[0] < 2 or table.shape[1] < 1 or groups.ndim != 1:
            raise ProtocolError("the plan of secure sums has a table of the wrong shape")
        if not np.array_equal(np.unique(groups), np.arange(table.shape[0])):
            raise ProtocolError("the plan of secure sums pools cells into others than its tables have")
        if _largest(table) >= LARGEST_ENTRY:
            raise ProtocolError("the plan of secure sums has numbers that are too large")
        longest[owner] += (table.astype(np.float64) ** 2).sum(axis=1).max()
    if int(plan.weights.min()) < 0 or _largest(plan.weights) >= LARGEST_ENTRY:
        raise ProtocolError("the plan of secure sums has weights that are out of range")
    if (plan.weights.astype(np.float64) ** 2 @ longest).max() >= HALF:  # exact bounds would not fit in 64 bits
        raise SettingsError("the records of secure sums do not fit in 61 bits")


def _largest(values: Ints) -> int:
    return max(int(values.max()), -int(values.min())) if values.size else 0


# ---- a party's part ----------------------------------------------------------------------


def own_columns(plan: SumsPlan, party: str) -> range:
    """The numbers of a party's columns among all."""
    index = plan.parties.index(party)
    start = sum(plan.n_columns[:index])
    return range(start, start + plan.n_columns[index])


def own_features(plan: SumsPlan, party: str) -> tuple[Ints, ...]:
    """What stands for the cells of a party's columns."""
    return tuple(plan.features[j] for j in own_columns(plan, party))


def own_rows(plan: SumsPlan, party: str) -> Bools:
    """(N,) the subjects whose cells this party shares; in the cohort's order."""
    return np.asarray((plan.weights[:, plan.parties.index(party)] > 0)[plan.pattern_of])


def count_rows(plan: SumsPlan, party: str) -> int:
    """How many subjects these are."""
    return int(plan.counts[plan.weights[:, plan.parties.index(party)] > 0].sum())


def own_statement(plan: SumsPlan, study: str, digest: str, party: str) -> CellsStatement:
    """What a party proves about the cells that it shares.

    `digest` : of the plan and all keys
    """
    cells = tuple(table.shape[0] for table in own_features(plan, party))
    return CellsStatement(study, digest, party, plan.compute, 0, count_rows(plan, party), cells)


def features_of_cells(plan: SumsPlan, party: str, codes: Ints) -> Ints:
    """(n_k, features) the whole numbers that a party's cells stand for in records, weights and all.

    `codes` : (n_k, columns) cells of `own_rows`
    """
    weights = plan.weights[plan.pattern_of[own_rows(plan, party)], plan.parties.index(party)]
    tables = own_features(plan, party)
    return np.asarray(weights[:, None] * np.hstack([table[codes[:, index]] for index, table in enumerate(tables)]))


# ---- prices ------------------------------------------------------------------------------


def block_factor(plan: SumsPlan, party: str) -> float:
    """What replacing one party's part of a record moves the first opening by, relative to mu.

    The rest of the record stays: x = (u, w) becomes y = (u, v) with |u|^2 <= A and |w|^2, |v|^2 <= B_k, where A + B_k =
    S is the longest that a record of the person's pattern can be. Then |x x' - y y'|^2 = 2 |u|^2 |w - v|^2 +
    |w w' - v v'|^2, which is largest for full lengths and, with c the cosine between w and v, 4 A B_k (1 - c) +
    2 B_k^2 (1 - c^2). If B_k <= A that is 8 A B_k, at c = -1; otherwise 2 S^2, at c = -A/B_k. The noise is for 2 B^2
    with B the longest of all patterns, so the factor is the largest over patterns of sqrt(4 A B_k)/B or S/B. Rounded
    up.
    """
    part = plan.parts[:, plan.parties.index(party)]
    whole = plan.parts.sum(axis=1)
    rest = (whole - part).astype(np.float64)
    squared = np.where(2 * part <= whole, 4.0 * part * rest, whole.astype(np.float64) ** 2)
    return min(math.sqrt(float(squared.max())) / plan.bound * _ROUNDED_UP, 1.0)


def person_mu(plan: SumsPlan, *, rows_agreed: bool) -> float:
    """The first opening's mu for everything about one person.

    Where the parties do not know that rows of one person stand in one place, a coordinator may have put each party's
    block into another row. Replacing the person then moves several records, each by its block: at most the sum.
    """
    blocks = math.fsum(block_factor(plan, party) for party in plan.parties)
    return plan.mu if rows_agreed else plan.mu * max(1.0, blocks) * _ROUNDED_UP


def tables_person_mu(plan: SumsPlan, *, rows_agreed: bool) -> float:
    """The second opening's mu for everything about one person, whatever pairs are chosen.

    A block of party k moves m_k of m tables by sqrt(2) each. Noise of sqrt(2 m)/mu makes that mu sqrt(m_k/m); a table
    has columns of two parties at most, so sum m_k <= 2 m, and K blocks in rows of their own cost mu sqrt(2 K) at most.
    """
    if rows_agreed or plan.several_rows:
        return plan.mu_tables
    most = len(plan.parties)
    return plan.mu_tables * min(float(most), math.sqrt(2.0 * most)) * _ROUNDED_UP


def selection_sensitivity(longest: float, n_selecting: int) -> float:
    """How far replacing a person moves sums of features over those whom each of some parties knows.

    It moves a record by twice its length at most, in the sum of every selecting party that knows the person.

    Parameters
    ----------
    longest : largest squared length of a record of these features
    n_selecting : how many parties know some people only
    """
    return 2.0 * math.sqrt(float(longest) * float(n_selecting))


def selection_deviation(plan: SumsPlan) -> float:
    """Standard deviation of the noise on a base party's sum of a feature, in units of 2^-bits."""
    longest = sum(own for own, here in zip(plan.longest, plan.base, strict=True) if here)
    return selection_sensitivity(max(longest, 1), int(plan.selecting.sum())) / plan.mu_selection * _ROUNDED_UP


def selection_mu(plan: SumsPlan, party: str) -> float:
    """What a base party's release about its own columns costs a block; 0 for other parties."""
    index = plan.parties.index(party)
    if not plan.base[index]:
        return 0.0
    own = selection_sensitivity(max(plan.longest[index], 1), int(plan.selecting.sum()))
    return own / selection_deviation(plan) * _ROUNDED_UP


# ---- noise -------------------------------------------------------------------------------


def gram_size(plan: SumsPlan) -> int:
    """How many numbers the first opening has: the upper triangle."""
    return plan.width * (plan.width + 1) // 2


def share_scales(plan: SumsPlan) -> NDArray[np.float64]:
    """The scale of one compute party's noise on each of those numbers; two shares suffice for the plan's mu."""
    return term_scales(plan.width, plan.bound, plan.mu)


def plan_slack(plan: SumsPlan) -> float:
    """What whole numbers and noise in shares add to epsilon, for any one person: for `gaussian_dp.gaussian_epsilon`."""
    slack = slack_of(gram_size(plan), share_scale(gram_scales(plan.bound, plan.mu)[0]))
    if plan.most_tables:
        cells = max(table.shape[0] for table in plan.features)
        scale = table_scale(plan.pattern_of.size, plan.mu_tables, math.sqrt(2.0))
        slack += slack_of(plan.most_tables * cells * cells, share_scale(scale))
    return slack


def noise_deviation(plan: SumsPlan) -> float:
    """Standard deviation off the diagonal once all three compute parties have added their shares.

    In units of the tables times the weights, which are whole numbers.
    """
    off, _ = gram_scales(plan.bound, plan.mu)
    return math.sqrt(N_COMPUTE) / 4.0**plan.bits * share_scale(off)
