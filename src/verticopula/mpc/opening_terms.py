"""A compute party's terms of both openings, from its shares of proven cells.

**The first opening** is X'X over everybody, where a record is made of rows of public tables (`verified_sums.py`).

**The second opening** has a table for each chosen pair of columns: T = sum over people of x_a x_b', where x_a and x_b
are the one-hot rows of the two columns. T counts those who are in cell i of one and in cell j of the other. Both rows
are shared as S_0 + S_1 + S_2, the last indicator as 1 less the others, so a compute party's term is

    both_a'both_b - second_a'second_b,    both = S_i + S_(i+1),    second = S_(i+1),

as in the first opening. Elements are split into limbs, and products go through floating point and stay exact
(`prime_field.py`). Rows of people whom one of the two parties does not know are 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numba import njit
from numpy.typing import NDArray

from verticopula.errors import ProtocolError
from verticopula.mpc.prime_field import (
    BLOCK_ROWS,
    BLOCKS_AT_ONCE,
    LIMB_BITS,
    LIMB_MASK,
    LIMBS,
    PRIME_WORD,
    Field,
    add,
    add_one,
    element,
    multiply,
    subtract,
)
from verticopula.mpc.proof_rounds import VerifiedCells
from verticopula.mpc.sums_plan import SumsPlan, own_features, own_places, own_rows
from verticopula.mpc.table_noise import check_pairs, table_bits
from verticopula.mpc.verified_cells import column_starts, held_indices
from verticopula.mpc.verified_sums import gram_term, make_map, map_records

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_RECORD_ROWS = 8 * BLOCK_ROWS  # records that are made at a time
_TABLE_ROWS = BLOCK_ROWS // 8  # rows whose limbs of all columns stay in the processor's cache


def products_term(plan: SumsPlan, cells: Mapping[str, VerifiedCells]) -> Field:
    """A compute party's term of the first opening, without noise.

    Parameters
    ----------
    cells : party -> its proven cells, as the compute party holds them, of every party that knows somebody
    """
    return gram_term(_record_blocks(plan, cells))


def _record_blocks(plan: SumsPlan, cells: Mapping[str, VerifiedCells]) -> Iterator[tuple[Field, Field]]:
    """Both shares of some whole records at a time."""
    maps = {
        party: make_map(held.held.statement, own_features(plan, party)) for party, held in _dealt(plan, cells).items()
    }
    places = {party: own_places(plan, party) for party in maps}
    widths = [sum(table.shape[1] for table in own_features(plan, party)) for party in plan.parties]
    offsets = dict(zip(plan.parties, np.cumsum([0, *widths]).tolist(), strict=False))
    for start in range(0, plan.pattern_of.size, _RECORD_ROWS):
        patterns = plan.pattern_of[start : start + _RECORD_ROWS]
        shares = tuple(np.zeros((patterns.size, plan.width), dtype=np.uint64) for _ in range(2))
        for party, chosen in maps.items():
            held = cells[party].held
            weights = plan.weights[patterns, plan.parties.index(party)]
            here = places[party][start : start + _RECORD_ROWS]
            for out, number, share in zip(shares, held_indices(held.index), (held.first, held.second), strict=True):
                map_records(share, number, here, weights, chosen, out, offsets[party])
        yield shares[0], shares[1]


def _dealt(plan: SumsPlan, cells: Mapping[str, VerifiedCells]) -> dict[str, VerifiedCells]:
    """The proven cells of every party that knows somebody; ProtocolError where some are missing."""
    dealers = [party for party in plan.parties if own_rows(plan, party).any()]
    if set(dealers) != set(cells):
        raise ProtocolError("sums are taken of the proven cells of every party that knows somebody")
    return {party: cells[party] for party in dealers}


def tables_term(plan: SumsPlan, cells: Mapping[str, VerifiedCells], pairs: Ints) -> Field:
    """A compute party's term of the second opening, without noise: the tables' counts, one table after another.

    Counts are multiplied by 2^`table_bits`, so that noise in whole numbers can be finer than a person.

    Parameters
    ----------
    cells : as above
    pairs : (m, 2) columns of each table
    """
    check_pairs(pairs, len(plan.features), plan.most_tables)
    dealt = _dealt(plan, cells)
    columns = {column for column in np.unique(pairs).tolist() if plan.parties[plan.owners[column]] in dealt}
    wanted = [(a, b) for a, b in pairs.tolist() if a in columns and b in columns]
    whole = {pair: np.zeros(_limb_shape(plan, pair), dtype=np.uint64) for pair in wanted}  # of both shares' sum
    last = {pair: np.zeros(_limb_shape(plan, pair), dtype=np.uint64) for pair in wanted}  # of the second share
    places = {party: own_places(plan, party) for party in dealt}
    limbs = {column: np.empty((2, _TABLE_ROWS, LIMBS * len(plan.features[column]))) for column in columns}
    for number, start in enumerate(range(0, plan.pattern_of.size, _TABLE_ROWS)):
        rows = min(_TABLE_ROWS, plan.pattern_of.size - start)
        for column in columns:
            party = plan.parties[plan.owners[column]]
            _split_column(plan, column, dealt[party], places[party][start : start + rows], limbs[column])
        for pair in wanted:
            first, second = limbs[pair[0]], limbs[pair[1]]
            whole[pair] += (first[0, :rows].T @ second[0, :rows]).astype(np.uint64)
            last[pair] += (first[1, :rows].T @ second[1, :rows]).astype(np.uint64)
        if number % BLOCKS_AT_ONCE == BLOCKS_AT_ONCE - 1:
            for total in (*whole.values(), *last.values()):
                total %= PRIME_WORD
    scale = element(1 << table_bits(plan.pattern_of.size, plan.mu_tables))
    terms = []
    for a, b in pairs.tolist():
        if (a, b) in whole:
            counts = subtract(_join_limbs(whole[a, b]), _join_limbs(last[a, b]))
        else:  # a party that knows nobody has no cells
            counts = np.zeros((len(plan.features[a]), len(plan.features[b])), dtype=np.uint64)
        terms.append(multiply(counts, scale).reshape(-1))
    return np.concatenate(terms)


def _limb_shape(plan: SumsPlan, pair: tuple[int, int]) -> tuple[int, int]:
    return LIMBS * len(plan.features[pair[0]]), LIMBS * len(plan.features[pair[1]])


def _join_limbs(parts: Field) -> Field:
    """Sums of products of elements from those of their limbs."""
    rows, columns = parts.shape[0] // LIMBS, parts.shape[1] // LIMBS
    blocks = (parts % PRIME_WORD).reshape(LIMBS, rows, LIMBS, columns)
    out = np.zeros((rows, columns), dtype=np.uint64)
    for a in range(LIMBS):
        for b in range(LIMBS):
            out = add(out, multiply(np.ascontiguousarray(blocks[a, :, b]), element(1 << LIMB_BITS * (a + b))))
    return out


def _split_column(plan: SumsPlan, column: int, cells: VerifiedCells, places: Ints, out: Floats) -> None:
    """Limbs of the one-hot rows of one column: of both shares' sum, and of the second share."""
    held = cells.held
    start = column_starts(held.statement)[column - sum(plan.n_columns[: int(plan.owners[column])])]
    first, second = held_indices(held.index)
    _split_rows(held.first, held.second, places, start, len(plan.features[column]), first == 0, second == 0, out)


@njit(cache=True, nogil=True)
def _split_rows(
    first: Field,
    second: Field,
    places: Ints,
    start: int,
    n_cells: int,
    first_is_zeroth: bool,
    second_is_zeroth: bool,
    out: Floats,
) -> None:
    zero, one = np.uint64(0), np.uint64(1)
    for row in range(places.size):
        left_both = one if first_is_zeroth or second_is_zeroth else zero
        left_last = one if second_is_zeroth else zero
        place = places[row]
        for cell in range(n_cells):
            both, last = zero, zero
            if place >= 0:
                if cell < n_cells - 1:
                    last = second[place, start + cell]
                    both = add_one(first[place, start + cell], last)
                    left_both = left_both - both if left_both >= both else left_both + (PRIME_WORD - both)
                    left_last = left_last - last if left_last >= last else left_last + (PRIME_WORD - last)
                else:
                    both, last = left_both, left_last
            for limb in range(2):
                shift = np.uint64(limb * LIMB_BITS)
                out[0, row, limb * n_cells + cell] = np.float64(np.int64((both >> shift) & LIMB_MASK))
                out[1, row, limb * n_cells + cell] = np.float64(np.int64((last >> shift) & LIMB_MASK))
            shift = np.uint64(2 * LIMB_BITS)
            out[0, row, 2 * n_cells + cell] = np.float64(np.int64(both >> shift))
            out[1, row, 2 * n_cells + cell] = np.float64(np.int64(last >> shift))
