"""Sums of products of scores that are public maps of verified cells, modulo p = 2^61 - 1, opened with noise.

A public table gives each cell of a column a whole number for each of the column's features (a score in fixed point,
±1 sketches). A record's features are then one row of each column's table: no record is clipped, and

    B = sum over columns of the largest squared norm of a row of its table

bounds a record's squared norm by arithmetic, whatever its dealer would like. The map is affine in the cells
(`verified_cells.py`), so every compute party applies it to its own shares; the constant goes to S_0. With both = S_i +
S_(i+1) a compute party's term of X'X is

    S_i'S_i + S_i'S_(i+1) + S_(i+1)'S_i = both'both - S_(i+1)'S_(i+1).

It adds noise and a share of zero from keys that every two of them have in common, so that two of the three terms say
nothing but their sum. What a dishonest compute party changes in
its own term is a number that it knows, added to the opened sum, and tells nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from verticopula.errors import ProtocolError, SettingsError
from verticopula.mpc.fixed_point import FEWEST_BITS, MOST_BITS, bound_of, needed_room
from verticopula.mpc.gram_noise import gram_scales, share_scale
from verticopula.mpc.prime_field import (
    HALF,
    PRIME,
    Field,
    Ints,
    add,
    add_one,
    decode_signed,
    encode_signed,
    expand_field,
    gram,
    multiply_one,
    subtract,
)
from verticopula.mpc.proof_rounds import VerifiedCells
from verticopula.mpc.verified_cells import COMPUTE, CellsStatement, column_starts, held_indices
from verticopula.privacy.noise import Noise

Bools = NDArray[np.bool_]
ScoreTables = Sequence[Ints]

LARGEST_ENTRY = 2**31  # entries of tables are below it, so their differences and squares are exact


# ---- public maps -------------------------------------------------------------------------


def check_tables(statement: CellsStatement, tables: ScoreTables) -> None:
    """ProtocolError unless there is a table of whole numbers for every column, with a row for every cell."""
    if len(tables) != len(statement.cells):
        raise ProtocolError(f"the map of {statement.dealer!r}'s cells needs a table for each column")
    for table, cells in zip(tables, statement.cells, strict=True):
        if table.dtype != np.int64 or table.ndim != 2 or table.shape[0] != cells:
            raise ProtocolError(f"the map of {statement.dealer!r}'s cells needs a row of integers for each cell")
        if table.size and max(int(table.max()), -int(table.min())) >= LARGEST_ENTRY:
            raise ProtocolError(f"the map of {statement.dealer!r}'s cells has numbers that are too large")


def tables_bound(tables: ScoreTables) -> int:
    """The largest squared norm that the features of one dealer's part of a record can have."""
    largest = 0
    for table in tables:
        rows = (sum(int(value) ** 2 for value in row) for row in table.tolist())
        largest += max(rows, default=0)
    return largest


def map_cells(cells: VerifiedCells, tables: ScoreTables, rows: Ints | None = None) -> tuple[Field, Field]:
    """(n, q) a compute party's two shares of the features, the columns' features side by side.

    Parameters
    ----------
    tables : for each column (cells, features)
    rows : which rows, in this order; all of them where it is None
    """
    held = cells.held
    statement = held.statement
    check_tables(statement, tables)
    starts = np.array((*column_starts(statement), statement.width), dtype=np.int64)
    ends = np.concatenate([[0], np.cumsum([table.shape[1] for table in tables])]).astype(np.int64)
    slopes = np.zeros((statement.width, max((table.shape[1] for table in tables), default=0)), dtype=np.uint64)
    for table, start, stop in zip(tables, starts[:-1], starts[1:], strict=True):
        slopes[start:stop, : table.shape[1]] = encode_signed(table[:-1] - table[-1])
    constant = encode_signed(np.concatenate([table[-1] for table in tables]))
    shares = []
    chosen = np.arange(statement.rows) if rows is None else rows
    for index, share in zip(held_indices(held.index), (held.first, held.second), strict=True):
        mapped = np.zeros((chosen.size, int(ends[-1])), dtype=np.uint64)
        _map_rows(share, chosen, starts, ends, slopes, mapped)
        if index == 0:
            mapped = add(mapped, constant)
        shares.append(mapped)
    return shares[0], shares[1]


@njit(cache=True, nogil=True)
def _map_rows(share: Field, chosen: Ints, starts: Ints, ends: Ints, slopes: Field, out: Field) -> None:
    for row in range(chosen.size):
        for column in range(starts.size - 1):
            for place in range(starts[column], starts[column + 1]):
                x = share[chosen[row], place]
                for feature in range(ends[column + 1] - ends[column]):
                    here = ends[column] + feature
                    out[row, here] = add_one(out[row, here], multiply_one(x, slopes[place, feature]))


def stack_records(index: int, parts: Sequence[tuple[Bools, tuple[Field, Field]]], unit: int) -> tuple[Field, Field]:
    """(N, q + 1) compute party `index`'s shares of whole records: 0 for a missing part, `unit` in the last column.

    Parameters
    ----------
    parts : for each dealer the (N,) rows that it shares and its features' two shares, of these rows in this order
    """
    if not 0 < unit < LARGEST_ENTRY:
        raise ProtocolError("the appended number is out of range")
    whole: list[Field] = []
    for place, number in enumerate(held_indices(index)):
        columns = []
        for rows, shares in parts:
            if shares[place].shape[0] != int(rows.sum()):
                raise ProtocolError("a dealer has shared other rows than the plan says")
            filled = np.zeros((rows.size, shares[place].shape[1]), dtype=np.uint64)
            filled[rows] = shares[place]
            columns.append(filled)
        last = np.full((columns[0].shape[0], 1), unit if number == 0 else 0, dtype=np.uint64)
        whole.append(np.concatenate([*columns, last], axis=1))
    return whole[0], whole[1]


# ---- room --------------------------------------------------------------------------------


def check_field_room(n_subjects: int, bound: int, mu: float) -> None:
    """SettingsError unless every noised sum is below p/2 in absolute value; to be called before anything is dealt.

    Privacy never depends on it: wrapping around is post-processing. The result does.
    """
    if not (math.isfinite(mu) and mu > 0.0):
        raise SettingsError("mu must be positive")
    if needed_room(n_subjects, bound, mu) >= HALF:
        raise SettingsError(
            f"the sums over {n_subjects} subjects do not fit in 61 bits with this bound and noise: use fewer "
            "fractional bits, or a smaller bound"
        )


def choose_field_bits(n_subjects: int, bound: float, mu: float) -> int:
    """The most fractional bits for which sums over records of squared norm `bound` fit; at most 20."""
    for bits in range(MOST_BITS, FEWEST_BITS - 1, -1):
        if needed_room(n_subjects, bound_of(bound, bits), mu) < HALF:
            return bits
    raise SettingsError(
        f"{n_subjects} subjects with squared norms of up to {bound:g} leave fewer than {FEWEST_BITS} fractional bits "
        "in 61-bit sums: the noise is too large, or the cohort"
    )


# ---- terms -------------------------------------------------------------------------------


def term_scales(width: int, bound: int, mu: float) -> NDArray[np.float64]:
    """The scale of one compute party's noise on each opened number; two shares suffice for `mu`.

    Parameters
    ----------
    width : columns of a whole record, the appended one among them
    bound : of a whole record's squared norm
    """
    off, diagonal = (share_scale(scale) for scale in gram_scales(bound, mu))
    rows, columns = np.triu_indices(width)
    return np.where(rows == columns, diagonal, off)[:-1]


def draw_term_noise(noise: Noise, scales: NDArray[np.float64], *label: str) -> Ints:
    """One compute party's noise. It is drawn once for one set of shares, and stored before the term leaves."""
    drawn = np.zeros(scales.size, dtype=np.int64)
    for number, scale in enumerate(np.unique(scales)):
        chosen = scales == scale
        drawn[chosen] = noise.discrete_gaussian(drawn[chosen], float(scale), *label, str(number))
    return drawn


def gram_term(first: Field, second: Field) -> Field:
    """One compute party's term of X'X: its upper triangle, row by row, without the corner that everybody knows."""
    if first.shape != second.shape:
        raise ProtocolError("the two shares of a matrix have the same shape")
    whole = subtract(gram(add(first, second)), gram(second))
    return np.asarray(whole[np.triu_indices(first.shape[1])][:-1])


def zero_term(index: int, keys: Mapping[int, bytes], size: int) -> Field:
    """Compute party `index`'s share of a vector of zeros, uniform to everybody who lacks one of its keys.

    Parameters
    ----------
    keys : other compute party -> a key that the two have in common, for this vector only
    """
    if set(keys) != set(range(COMPUTE)) - {index}:
        raise ProtocolError("a compute party has a key in common with each of the two others")
    total = np.zeros(size, dtype=np.uint64)
    for other, key in keys.items():
        drawn = expand_field(key, (size,))
        total = add(total, drawn) if index < other else subtract(total, drawn)
    return total


def noised_term(index: int, records: tuple[Field, Field], keys: Mapping[int, bytes], noise: Ints) -> Field:
    """What compute party `index` sends: its term of X'X, with its noise and its share of zero.

    Privacy
    -------
    To the coordinator, which gets all three: their sum, a Gram matrix with noise, and nothing else. Any two of the
    noises cover a person's whole record.
    """
    term = gram_term(*records)
    if noise.shape != term.shape:
        raise ProtocolError("the noise does not have the shape of the term")
    return add(add(term, encode_signed(noise)), zero_term(index, keys, term.size))


def open_terms(terms: Sequence[Field]) -> Ints:
    """The sum of all three compute parties' terms, as signed numbers."""
    if len(terms) != COMPUTE or any(term.dtype != np.uint64 or term.shape != terms[0].shape for term in terms):
        raise ProtocolError(f"sums are opened with {COMPUTE} terms of one shape")
    if any(term.size and int(term.max()) >= PRIME for term in terms):
        raise ProtocolError("a number is not an element of the field")
    return decode_signed(add(add(terms[0], terms[1]), terms[2]))
