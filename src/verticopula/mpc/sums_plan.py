"""The public plan of secure sums: whose rows, which columns, bounds on records, and how many numbers are opened."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import ProtocolError, SettingsError
from verticopula.mpc.fixed_point import FEWEST_BITS, MOST_BITS
from verticopula.mpc.gram_noise import gram_scales, share_scale, slack_of
from verticopula.mpc.prime_field import ELEMENT_BYTES, HALF, Field
from verticopula.mpc.proof_rounds import VerifiedCells
from verticopula.mpc.verified_cells import COMPUTE, CellsStatement
from verticopula.mpc.verified_sums import (
    LARGEST_ENTRY,
    check_field_room,
    map_cells,
    stack_records,
    term_scales,
)
from verticopula.schema.study_settings import COORDINATOR

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MACHINE_TOLERANCE = 1e-6  # relative: by how much a number may differ that two machines compute from the same inputs
MOST_BODIES = 2**30 - 2**26  # bytes of all corrections: one compute party may be sent all of them in one message


@dataclass(frozen=True)
class SumsPlan:
    """Which sums are opened, and with how much noise. All of it is public.

    Attributes
    ----------
    parties, widths : who has columns, and how many scores of them each
    compute : the three that hold shares and add noise; they need not have columns
    pattern_of : (N,) every subject's pattern; -1 for none
    columns : (P, q) which scores a pattern's sums are about, the parties' scores side by side
    tables : for every column (P, cells, scores) what stands for each of its cells in a pattern's records, as whole
        numbers in units of 2^-bits; 0 where the pattern is without the column
    bits : fractional bits of a score
    cap : of scores, in standard deviations; says how cells are pooled
    mu : Gaussian differential privacy of everything that is opened, as long as one compute party at most is not honest
    """

    parties: tuple[str, ...]
    widths: tuple[int, ...]
    compute: tuple[str, str, str]
    pattern_of: NDArray[np.int64]
    columns: NDArray[np.bool_]
    tables: tuple[NDArray[np.int64], ...]
    bits: int
    cap: float
    mu: float

    @cached_property
    def bounds(self) -> Ints:
        """(P, K) largest squared norm that a party's part of a record can have, in units of 4^-bits: exact."""
        squares = [
            sum((table * table).sum(axis=2).max(axis=1) for table in own_tables(self, party)) for party in self.parties
        ]
        return np.column_stack(squares)


def choose_compute(parties: Sequence[str], third: str = COORDINATOR) -> tuple[str, str, str]:
    """The first three parties, or both and a third without data."""
    if len(parties) < COMPUTE - 1 or third in parties:
        raise SettingsError("secure sums need at least two parties, none of them named as the third without data")
    first, second, last, *_ = (*parties, third)
    return first, second, last


def check_plan(plan: SumsPlan) -> None:
    """ProtocolError where the plan contradicts itself; SettingsError where its sums would not fit in 61 bits."""
    n_parties, n_columns, n_patterns = len(plan.parties), sum(plan.widths), plan.columns.shape[0]
    named = len(set(plan.parties)) == n_parties > 0 and len(plan.widths) == n_parties and min(plan.widths) > 0
    if not named or not len(plan.compute) == COMPUTE == len(set(plan.compute)):
        raise ProtocolError("secure sums need parties with columns, and three compute parties")
    shapes = plan.columns.ndim == 2 and plan.columns.shape[1] == n_columns
    if not shapes or plan.pattern_of.ndim != 1 or n_patterns == 0 or plan.pattern_of.size == 0:
        raise ProtocolError("the plan of secure sums has arrays of the wrong shape")
    if plan.pattern_of.min() < -1 or plan.pattern_of.max() >= n_patterns:
        raise ProtocolError("the plan of secure sums names a pattern that it does not have")
    _check_tables(plan)
    if not plan.columns.any(axis=1).all():
        raise ProtocolError("the plan of secure sums has a pattern without columns")
    if not FEWEST_BITS <= plan.bits <= MOST_BITS:
        raise ProtocolError(f"scores have {FEWEST_BITS} to {MOST_BITS} fractional bits")
    counts = np.bincount(plan.pattern_of[plan.pattern_of >= 0], minlength=n_patterns)
    if counts.min() == 0:
        raise ProtocolError("the plan of secure sums has a pattern without subjects")
    for index, count in enumerate(counts):
        check_field_room(int(count), pattern_bound(plan, index), plan.mu)
    plan_slack(plan)
    numbers = sum(int(np.prod(own_statement(plan, "", "", party).shape)) for party in plan.parties)
    check_bodies(numbers)


def check_bodies(numbers: int) -> None:
    """SettingsError if this many shared numbers do not fit in one message."""
    size = ELEMENT_BYTES * numbers
    if size > MOST_BODIES:
        raise SettingsError(
            f"{numbers:,} shared numbers do not fit in one message ({size:,} bytes; {MOST_BODIES:,} fit): use fewer "
            f"columns, or at most {100 * MOST_BODIES // size} % of the subjects"
        )


def _check_tables(plan: SumsPlan) -> None:
    """ProtocolError unless every column has a table for every pattern, which is 0 where the pattern is without it."""
    ends = np.cumsum([table.shape[-1] for table in plan.tables]).tolist()
    if not set(np.cumsum(plan.widths).tolist()) <= set(ends) or ends[-1:] != [sum(plan.widths)]:
        raise ProtocolError("the plan of secure sums has other tables than columns")
    longest = np.zeros(plan.columns.shape[0])
    for table, end in zip(plan.tables, ends, strict=True):
        if table.ndim != 3 or table.shape[0] != plan.columns.shape[0] or min(table.shape) < 1 or table.shape[1] < 2:
            raise ProtocolError("the plan of secure sums has a table of the wrong shape")
        if max(int(table.max()), -int(table.min())) >= LARGEST_ENTRY:
            raise ProtocolError("the plan of secure sums has numbers that are too large")
        longest += (table.astype(np.float64) ** 2).sum(axis=2).max(axis=1)
        here = plan.columns[:, end - table.shape[2] : end]
        if (here != here[:, :1]).any() or table[~here[:, 0]].any():
            raise ProtocolError("the plan of secure sums has a table for a pattern without the column")
    if longest.max() >= HALF:  # exact bounds would not fit in 64 bits
        raise SettingsError("the records of secure sums do not fit in 61 bits")


def same_plan(plan: SumsPlan, other: SumsPlan, tolerance: float = MACHINE_TOLERANCE) -> bool:
    """Whether two plans are equal: tables and mu, which come from floating-point numbers, up to a tolerance."""
    roles = (plan.parties, plan.widths, plan.compute) == (other.parties, other.widths, other.compute)
    arrays = np.array_equal(plan.pattern_of, other.pattern_of) and np.array_equal(plan.columns, other.columns)
    near = [table.shape for table in plan.tables] == [table.shape for table in other.tables]
    near = near and all(
        int(np.abs(mine - theirs).max()) <= 1.0 + tolerance * float(np.abs(theirs).max())
        for mine, theirs in zip(plan.tables, other.tables, strict=True)
    )
    near = near and math.isclose(plan.mu, other.mu, rel_tol=tolerance)
    # The cap is a point of a fixed grid, and decides how cells are pooled: whether another one is refused would depend
    # on what a party's people have.
    return roles and (plan.bits, plan.cap) == (other.bits, other.cap) and arrays and near


def own_columns(plan: SumsPlan, party: str) -> slice:
    """The slice of a party's scores among all scores."""
    index = plan.parties.index(party)
    start = sum(plan.widths[:index])
    return slice(start, start + plan.widths[index])


def own_tables(plan: SumsPlan, party: str) -> tuple[Ints, ...]:
    """The tables of a party's columns."""
    place, found, end = own_columns(plan, party), [], 0
    for table in plan.tables:
        end += table.shape[2]
        if place.start < end <= place.stop:
            found.append(table)
    return tuple(found)


def own_rows(plan: SumsPlan, party: str) -> Bools:
    """(N,) the subjects whose cells this party shares; in the cohort's order."""
    takes_part = np.asarray(plan.columns[:, own_columns(plan, party)].any(axis=1))
    return np.asarray((plan.pattern_of >= 0) & takes_part[plan.pattern_of])


def own_mask(plan: SumsPlan, party: str) -> Bools:
    """(n_k, columns) whether a column of the party has a part in each of `own_rows`."""
    ends = np.cumsum([table.shape[2] for table in own_tables(plan, party)])
    columns = plan.columns[:, own_columns(plan, party)][:, ends - 1]
    return np.asarray(columns[plan.pattern_of[own_rows(plan, party)]])


def own_statement(plan: SumsPlan, study: str, digest: str, party: str) -> CellsStatement:
    """What a party proves about the cells that it shares.

    `digest` : of the plan and all keys
    """
    cells = tuple(table.shape[1] for table in own_tables(plan, party))
    return CellsStatement(study, digest, party, plan.compute, 0, int(own_rows(plan, party).sum()), cells)


def score_cells(plan: SumsPlan, party: str, codes: Ints) -> Ints:
    """(n_k, scores) the whole numbers that a party's cells stand for: what the maps of the sums make of them.

    `codes` : (n_k, columns) cells of `own_rows`
    """
    patterns = plan.pattern_of[own_rows(plan, party)]
    tables = own_tables(plan, party)
    return np.hstack([table[patterns, codes[:, index]] for index, table in enumerate(tables)])


def pattern_bound(plan: SumsPlan, pattern: int) -> int:
    """Largest squared norm of a whole record with its 1, in units of 4^-bits."""
    return sum(map(int, plan.bounds[pattern])) + (1 << 2 * plan.bits)  # not in 64 bits: they could wrap around


def block_factor(plan: SumsPlan, party: str) -> float:
    """What replacing one party's part of a record moves, relative to a whole record: its mu is plan.mu times this.

    The rest of the record stays: x = (u, w) becomes y = (u, v) with |u|^2 <= A = B - B_k and |w|^2, |v|^2 <= B_k. Then
    |x x' - y y'|^2 = 2 |u|^2 |w - v|^2 + |w w' - v v'|^2, which is largest for full lengths and, with c the cosine
    between w and v, 4 A B_k (1 - c) + 2 B_k^2 (1 - c^2). If B_k <= A that is 8 A B_k, at c = -1; otherwise 2 B^2, at
    c = -A/B_k. A whole record moves it by 2 B^2, so the factor is sqrt(4 f (1 - f)) with f = B_k/B, or 1. From exact
    integers, rounded up.
    """
    index, largest = plan.parties.index(party), 0.0
    for pattern in range(plan.columns.shape[0]):
        part, whole = int(plan.bounds[pattern, index]), pattern_bound(plan, pattern)
        squared = 4 * part * (whole - part) / whole**2 if 2 * part <= whole else 1.0
        largest = max(largest, squared)
    return min(math.sqrt(largest) * (1.0 + 2.0**-50), 1.0)


def person_mu(plan: SumsPlan, *, rows_agreed: bool) -> float:
    """The plan's mu for everything about one person.

    Where the parties do not know that rows of one person stand in one place, a coordinator may have put each party's
    block into another row. Replacing the person then moves several records, each by its block: at most the sum.
    """
    blocks = math.fsum(block_factor(plan, party) for party in plan.parties)
    return plan.mu if rows_agreed else plan.mu * max(1.0, blocks) * (1.0 + 2.0**-50)


def pattern_size(plan: SumsPlan, pattern: int) -> int:
    """How many numbers are opened: the upper triangle with the appended 1, without the public corner."""
    width = int(plan.columns[pattern].sum())
    return width * (width + 1) // 2 + width


def share_scales(plan: SumsPlan, pattern: int) -> NDArray[np.float64]:
    """The scale of one compute party's noise on each of those numbers; two shares suffice for the plan's mu."""
    return term_scales(int(plan.columns[pattern].sum()) + 1, pattern_bound(plan, pattern), plan.mu)


def plan_slack(plan: SumsPlan) -> float:
    """What whole numbers and noise in shares add to epsilon, for any one person: for `gaussian_dp.gaussian_epsilon`."""
    return max(
        slack_of(pattern_size(plan, index), float(share_scales(plan, index).min()))
        for index in range(plan.columns.shape[0])
    )


def pattern_records(
    plan: SumsPlan, pattern: int, index: int, cells: Mapping[str, VerifiedCells], places: Mapping[str, Ints]
) -> tuple[Field, Field]:
    """Compute party `index`'s two shares of one pattern's records, the appended 1 in the last column.

    `places` : party -> (N,) where a subject's row is among those that the party shared
    """
    subjects = np.flatnonzero(plan.pattern_of == pattern)
    everybody = np.ones(subjects.size, dtype=np.bool_)
    parts = []
    for party in plan.parties:
        here = np.asarray(plan.columns[pattern, own_columns(plan, party)])
        if here.any():
            starts = np.cumsum([0, *(table.shape[2] for table in own_tables(plan, party))])[:-1]
            tables = [
                table[pattern] if here[start] else table[pattern, :, :0]
                for table, start in zip(own_tables(plan, party), starts, strict=True)
            ]
            parts.append((everybody, map_cells(cells[party], tables, rows=places[party][subjects])))
    return stack_records(index, parts, 1 << plan.bits)


def noise_deviation(plan: SumsPlan, pattern: int) -> tuple[float, float]:
    """Standard deviations off and on the diagonal once all three compute parties have added their shares, in scores."""
    factor = math.sqrt(COMPUTE) / 4.0**plan.bits
    off, diagonal = (share_scale(scale) for scale in gram_scales(pattern_bound(plan, pattern), plan.mu))
    return factor * off, factor * diagonal
