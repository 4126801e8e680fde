"""Sums of products of scores that are public maps of verified cells, modulo p = 2^61 - 1, opened with noise.

A public table gives each cell of a column a whole number for each of the column's features (a score in fixed point,
indicators). A record has one row of each column's table, times the public weight of its dealer there: no record is
clipped, and

    B = sum over dealers of weight^2 times the sum over columns of the largest squared norm of a row of the table

bounds a record's squared norm by arithmetic, whatever its dealer would like. The map is affine in the cells
(`verified_cells.py`), so every compute party applies it to its own shares; the constant goes to S_0. With a sixth root
of unity w, so that w + 1/w = 1, and the combined shares Z_i = S_i + S_(i+1)/w, a compute party's term of X'X is

    w Z_i'Z_i = w S_i'S_i + S_i'S_(i+1) + S_(i+1)'S_i + S_(i+1)'S_(i+1)/w.

All three terms have every product of two shares once, w S_i'S_i and S_i'S_i/w together, so they add up to X'X.

It adds noise and a share of zero from keys that every two of them have in common, so that two of the three terms say
nothing but their sum. What a dishonest compute party changes in
its own term is a number that it knows, added to the opened sum, and tells nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from verticopula.errors import ProtocolError, SettingsError
from verticopula.mpc.fixed_point import FEWEST_BITS, MOST_BITS, bound_of, needed_room
from verticopula.mpc.gram_noise import gram_scales, share_scale
from verticopula.mpc.limb_products import GramSum
from verticopula.mpc.prime_field import (
    HALF,
    PRIME,
    PRIME_WORD,
    Field,
    Ints,
    add,
    add_multiple,
    decode_signed,
    element,
    encode_signed,
    expand_field,
    invert,
    multiply,
    multiply_one,
    subtract,
)
from verticopula.mpc.verified_cells import N_COMPUTE, CellsStatement, column_starts, held_indices
from verticopula.privacy.noise import Noise

FeatureTables = Sequence[Ints]

LARGEST_ENTRY = 2**31  # entries of tables are below it, so their differences and squares are exact
TERM_FACTOR = pow(7, (PRIME - 1) // 6, PRIME)  # w: 7 is a generator, so w is a sixth root of unity, and w + 1/w = 1
_SECOND_FACTOR = element(invert(TERM_FACTOR))
_PEOPLE_AT_ONCE = 64  # whose numbers stay in the processor's cache


# ---- combined shares ---------------------------------------------------------------------


def combine_shares(first: Field, second: Field) -> Field:
    """S_i + S_(i+1)/w, written over S_i."""
    return add_multiple(first, second, _SECOND_FACTOR)


def weight_of_zeroth(index: int) -> np.uint64:
    """What share 0, to which constants go, is multiplied by in the combined share of compute party `index`."""
    first, second = held_indices(index)
    return element(1 if first == 0 else int(_SECOND_FACTOR) if second == 0 else 0)


# ---- public maps -------------------------------------------------------------------------


def check_features(statement: CellsStatement, tables: FeatureTables) -> None:
    """ProtocolError unless there is a table of whole numbers for every column, with a row for every cell."""
    if len(tables) != len(statement.cells):
        raise ProtocolError(f"the map of {statement.dealer!r}'s cells needs a table for each column")
    for table, cells in zip(tables, statement.cells, strict=True):
        if table.dtype != np.int64 or table.ndim != 2 or table.shape[0] != cells:
            raise ProtocolError(f"the map of {statement.dealer!r}'s cells needs a row of integers for each cell")
        if table.size and max(int(table.max()), -int(table.min())) >= LARGEST_ENTRY:
            raise ProtocolError(f"the map of {statement.dealer!r}'s cells has numbers that are too large")


def features_bound(tables: FeatureTables) -> int:
    """The largest squared norm that the features of one dealer's part of a record can have."""
    largest = 0
    for table in tables:
        rows = (sum(int(value) ** 2 for value in row) for row in table.tolist())
        largest += max(rows, default=0)
    return largest


@dataclass(frozen=True)
class CellMap:
    """A dealer's tables as an affine map of what it shares: features = slopes'x + constant.

    Attributes
    ----------
    starts : (columns + 1,) where each column's shared numbers begin in a row
    ends : (columns + 1,) where each column's features begin in a record's part
    slopes : (numbers, most features of a column), signed, below 2^32 in absolute value
    constant : (features,)
    """

    starts: Ints
    ends: Ints
    slopes: Ints
    constant: Field


def make_map(statement: CellsStatement, tables: FeatureTables) -> CellMap:
    """The map of a dealer's cells to features."""
    check_features(statement, tables)
    starts = np.array((*column_starts(statement), statement.width), dtype=np.int64)
    ends = np.concatenate([[0], np.cumsum([table.shape[1] for table in tables])]).astype(np.int64)
    slopes = np.zeros((statement.width, max(table.shape[1] for table in tables)), dtype=np.int64)
    for table, start, stop in zip(tables, starts[:-1], starts[1:], strict=True):
        slopes[start:stop, : table.shape[1]] = table[:-1] - table[-1]
    return CellMap(starts, ends, slopes, encode_signed(np.concatenate([table[-1] for table in tables])))


def map_records(
    share: Field, places: Ints, weights: Ints, chosen: CellMap, out: Field, offset: int, one: np.uint64
) -> None:
    """Write a share, or a combined one, of one dealer's part of records into `out`; what is there for others stays.

    Parameters
    ----------
    share : (n, numbers)
    places : (rows,) the dealer's row of each record; -1 where it has none
    weights : (rows,) what its part is multiplied by
    out : (rows, features of a whole record)
    offset : where the part begins in a record
    one : what a constant of 1 is in this share: 1 in share 0, 0 in the others
    """
    constants = multiply(chosen.constant, one)
    weights_there = encode_signed(weights)
    _map_rows(share, places, weights_there, chosen.starts, chosen.ends, chosen.slopes, constants, out, offset)


@njit(cache=True, nogil=True)
def _map_rows(
    share: Field,
    places: Ints,
    weights: Field,
    starts: Ints,
    ends: Ints,
    slopes: Ints,
    constant: Field,
    out: Field,
    offset: int,
) -> None:
    """Some people at a time, whose numbers stay in the processor's cache."""
    numbers = np.empty((np.diff(starts).max(), _PEOPLE_AT_ONCE), dtype=np.uint64)
    total, here = np.empty(_PEOPLE_AT_ONCE, dtype=np.uint64), np.empty(_PEOPLE_AT_ONCE, dtype=np.uint64)
    flat, width = share.reshape(-1), share.shape[1]
    for first in range(0, places.size, _PEOPLE_AT_ONCE):
        people = min(_PEOPLE_AT_ONCE, places.size - first)
        for row in range(people):
            here[row] = np.uint64(max(places[first + row], 0) * width)
        for column in range(starts.size - 1):
            for number in range(starts[column + 1] - starts[column]):
                place, own = np.uint64(starts[column] + number), numbers[number]
                for row in range(people):
                    own[row] = flat[here[row] + place]  # places are not counted from the end: they have no sign
            for feature in range(ends[column + 1] - ends[column]):
                total[:people] = constant[ends[column] + feature]
                for number in range(starts[column + 1] - starts[column]):
                    slope = slopes[starts[column] + number, feature]
                    if slope != 0:  # public, like all of the map
                        _add_products(total[:people], numbers[number, :people], slope)
                for row in range(people):
                    if places[first + row] >= 0:
                        whole = total[row] - PRIME_WORD if total[row] >= PRIME_WORD else total[row]
                        out[first + row, offset + ends[column] + feature] = multiply_one(whole, weights[first + row])


@njit(cache=True, nogil=True)
def _add_products(total: Field, numbers: Field, factor: int) -> None:
    """total + factor * numbers, written over `total`, for a factor below 2^32: without products of 128 bits.

    Totals are elements, or up to 1 more than an element can be. A number is z_0 + 2^31 z_1.
    """
    size, low, middle = np.uint64(abs(factor)), np.uint64(2**31 - 1), np.uint64(2**30 - 1)
    for row in range(total.size):
        below, above = (numbers[row] & low) * size, (numbers[row] >> np.uint64(31)) * size
        product = below + ((above & middle) << np.uint64(31)) + (above >> np.uint64(30))
        product = (product & PRIME_WORD) + (product >> np.uint64(61))
        if factor < 0:
            product = PRIME_WORD + PRIME_WORD - product
        product += total[row]
        total[row] = (product & PRIME_WORD) + (product >> np.uint64(61))


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
    width : features of a whole record
    bound : of a whole record's squared norm
    """
    off, diagonal = (share_scale(scale) for scale in gram_scales(bound, mu))
    rows, columns = np.triu_indices(width)
    return np.where(rows == columns, diagonal, off)


def draw_term_noise(noise: Noise, scales: NDArray[np.float64], *label: str) -> Ints:
    """One compute party's noise. It is drawn once for one set of shares, and stored before the term leaves."""
    drawn = np.zeros(scales.size, dtype=np.int64)
    for number, scale in enumerate(np.unique(scales)):
        chosen = scales == scale
        drawn[chosen] = noise.discrete_gaussian(drawn[chosen], float(scale), *label, str(number))
    return drawn


def gram_term(width: int, blocks: Iterable[tuple[Ints, Field]]) -> Field:
    """One compute party's term of X'X: its upper triangle, row by row.

    Parameters
    ----------
    width : features of a whole record
    blocks : some records at a time: which features they have, the others being 0, and the combined share of them
    """
    whole, empty = GramSum(width), True
    for columns, records in blocks:
        whole.add(records, columns)
        empty = False
    if empty:
        raise ProtocolError("there are no records to add up")
    return multiply(whole.total()[np.triu_indices(width)], element(TERM_FACTOR))


def zero_term(index: int, keys: Mapping[int, bytes], size: int) -> Field:
    """Compute party `index`'s share of a vector of zeros, uniform to everybody who lacks one of its keys.

    Parameters
    ----------
    keys : other compute party -> a key that the two have in common, for this vector only
    """
    if set(keys) != set(range(N_COMPUTE)) - {index}:
        raise ProtocolError("a compute party has a key in common with each of the two others")
    total = np.zeros(size, dtype=np.uint64)
    for other, key in keys.items():
        drawn = expand_field(key, (size,))
        total = add(total, drawn) if index < other else subtract(total, drawn)
    return total


def noised_term(index: int, term: Field, keys: Mapping[int, bytes], noise: Ints) -> Field:
    """What compute party `index` sends: its term of the sums, with its noise and its share of zero.

    Parameters
    ----------
    term : what its shares add up to
    keys, noise : for this term only

    Privacy
    -------
    To the coordinator, which gets all three: their sum, with noise, and nothing else. Any two of the noises cover one
    person.
    """
    if noise.shape != term.shape:
        raise ProtocolError("the noise does not have the shape of the term")
    return add(add(term, encode_signed(noise)), zero_term(index, keys, term.size))


def open_terms(terms: Sequence[Field]) -> Ints:
    """The sum of all three compute parties' terms, as signed numbers."""
    if len(terms) != N_COMPUTE or any(term.dtype != np.uint64 or term.shape != terms[0].shape for term in terms):
        raise ProtocolError(f"sums are opened with {N_COMPUTE} terms of one shape")
    if any(term.size and int(term.max()) >= PRIME for term in terms):
        raise ProtocolError("a number is not an element of the field")
    return decode_signed(add(add(terms[0], terms[1]), terms[2]))
