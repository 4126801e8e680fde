"""A compute party's terms of both openings, from its shares of proven cells.

**The first opening** is X'X over everybody, where a record is made of rows of public tables (`verified_sums.py`).

**The second opening** has a table for each chosen pair of columns: T = sum over people of x_a x_b', where x_a and x_b
are the one-hot rows of the two columns. T counts those who are in cell i of one and in cell j of the other. Both rows
are shared as S_0 + S_1 + S_2, the last indicator as 1 less the others, so a compute party's term is w Z_a'Z_b of its
combined shares, as in the first opening. Products go through floating point and stay exact (`limb_products.py`). Rows
of people whom one of the two parties does not know are 0.

Shares are made some people at a time, and what has been added up is forgotten. Of these people, those of one presence
pattern stand together, and nothing is multiplied where a party does not know them. Sums of elements depend on no order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from verticopula.errors import ProtocolError
from verticopula.mpc.limb_products import (
    BLOCKS_AT_ONCE,
    PLANE_ROWS,
    PLANES,
    TILE,
    add_products,
    join_planes,
    padded,
    write_planes,
)
from verticopula.mpc.prime_field import PRIME, PRIME_WORD, Field, element, multiply
from verticopula.mpc.proof_rounds import VerifiedCells
from verticopula.mpc.sums_plan import SumsPlan, count_rows, own_columns, own_features
from verticopula.mpc.table_noise import check_pairs, table_bits
from verticopula.mpc.verified_cells import NUMBERS_AT_ONCE, NUMBERS_IN_CACHE, ShareReader, column_starts
from verticopula.mpc.verified_sums import (
    TERM_FACTOR,
    combine_shares,
    gram_term,
    make_map,
    map_records,
    weight_of_zeroth,
)

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]

_PEOPLE_NUMBERS = 4 * NUMBERS_AT_ONCE  # of one share of everybody's cells, made at a time
_FEWEST_PEOPLE = 1024  # at a time, however many numbers they have
_FEWEST_ALIKE = 128  # people of one pattern; where there are fewer, patterns are put together
_SPLIT_ROWS = 64  # people whose numbers stay in the processor's cache
_ALL_BITS = np.uint64(2**64 - 1)
_RECORDS_AT_ONCE = 2048


# ---- people ------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class _People:
    """The combined shares of the cells of some people.

    Attributes
    ----------
    patterns : (n,) their presence patterns
    places : party -> (n,) where a person's row is among those of the party; -1 where it knows nothing
    shares : party -> (rows, numbers)
    """

    patterns: Ints
    places: Mapping[str, Ints]
    shares: Mapping[str, Field]

    def alike(self, present: Bools) -> Iterator[tuple[Ints, list[str]]]:
        """Numbers of those of one pattern, and the parties that know them; rare patterns together.

        Parameters
        ----------
        present : (P, parties of `places`) whom they know
        """
        order = np.argsort(self.patterns, kind="stable")
        counts = np.bincount(self.patterns, minlength=len(present))
        common = np.flatnonzero(counts >= _FEWEST_ALIKE)
        ends, names = np.cumsum(counts), np.array(list(self.places))
        for pattern in common[present[common].any(axis=1)].tolist():
            yield order[ends[pattern] - counts[pattern] : ends[pattern]], names[present[pattern]].tolist()
        rare = np.flatnonzero(~np.isin(self.patterns, common))
        if present[self.patterns[rare]].any():
            yield rare, names[present[np.unique(self.patterns[rare])].any(axis=0)].tolist()


def _read_people(plan: SumsPlan, dealt: Mapping[str, VerifiedCells], present: Bools) -> Iterator[_People]:
    """Everybody, some people at a time. What is there for one step is overwritten in the next."""
    readers = {party: (ShareReader(c.held.first), ShareReader(c.held.second)) for party, c in dealt.items()}
    widths = {party: cells.held.statement.width for party, cells in dealt.items()}
    step = min(max(_PEOPLE_NUMBERS // sum(widths.values()), _FEWEST_PEOPLE), plan.pattern_of.size)
    room = {party: np.empty((step, width), dtype=np.uint64) for party, width in widths.items()}
    for start in range(0, plan.pattern_of.size, step):
        patterns = plan.pattern_of[start : start + step]
        places, shares = {}, {}
        for number, (party, own) in enumerate(readers.items()):
            known = present[patterns, number]
            places[party] = np.where(known, np.cumsum(known) - 1, -1)
            shares[party] = _read_combined(*own, room[party][: int(known.sum())])
        yield _People(patterns, places, shares)


def _read_combined(first: ShareReader, second: ShareReader, out: Field) -> Field:
    """The next rows of two shares, combined; some at a time, which stay in the processor's cache."""
    step = max(NUMBERS_IN_CACHE // out.shape[1], 1)
    room = np.empty((min(step, len(out)), out.shape[1]), dtype=np.uint64)
    for start in range(0, len(out), step):
        part = out[start : start + step]
        combine_shares(first.read(part), second.read(room[: len(part)]))
    return out


def _present(plan: SumsPlan, dealt: Mapping[str, VerifiedCells]) -> Bools:
    """(P, dealers) whom the parties know that have dealt cells."""
    return plan.weights[:, [plan.parties.index(party) for party in dealt]] > 0


def _dealt(plan: SumsPlan, cells: Mapping[str, VerifiedCells]) -> dict[str, VerifiedCells]:
    """The proven cells of every party that knows somebody; ProtocolError where some are missing."""
    dealers = [party for party in plan.parties if count_rows(plan, party)]
    if set(dealers) != set(cells):
        raise ProtocolError("sums are taken of the proven cells of every party that knows somebody")
    return {party: cells[party] for party in dealers}


# ---- the first opening -------------------------------------------------------------------


def products_term(plan: SumsPlan, cells: Mapping[str, VerifiedCells]) -> Field:
    """A compute party's term of the first opening, without noise.

    Parameters
    ----------
    cells : party -> its proven cells, as the compute party holds them, of every party that knows somebody
    """
    return gram_term(plan.width, _record_blocks(plan, _dealt(plan, cells)))


def _record_blocks(plan: SumsPlan, dealt: Mapping[str, VerifiedCells]) -> Iterator[tuple[Ints, Field]]:
    """Some records at a time: which features they have, and the combined share of them."""
    present = _present(plan, dealt)
    maps = {party: make_map(cells.held.statement, own_features(plan, party)) for party, cells in dealt.items()}
    ends = np.cumsum([0, *(sum(table.shape[1] for table in own_features(plan, party)) for party in plan.parties)])
    columns = {party: np.arange(*ends[number : number + 2]) for number, party in enumerate(plan.parties)}
    ones = {party: weight_of_zeroth(cells.held.index) for party, cells in dealt.items()}
    room = np.empty(_RECORDS_AT_ONCE * plan.width, dtype=np.uint64)
    for people in _read_people(plan, dealt, present):
        for alike, parties in people.alike(present):
            own = np.concatenate([columns[party] for party in parties])
            for start in range(0, alike.size, _RECORDS_AT_ONCE):
                rows = alike[start : start + _RECORDS_AT_ONCE]
                records, offset = room[: rows.size * own.size].reshape(rows.size, own.size), 0
                records[:] = 0
                for party in parties:
                    weights = plan.weights[people.patterns[rows], plan.parties.index(party)]
                    places, share = people.places[party][rows], people.shares[party]
                    map_records(share, places, weights, maps[party], records, offset, ones[party])
                    offset += columns[party].size
                yield own, records


# ---- the second opening ------------------------------------------------------------------


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
    counts = _count_tables(plan, dealt, pairs)
    scale = element(TERM_FACTOR << table_bits(plan.pattern_of.size, plan.mu_tables))
    return np.concatenate([multiply(table, scale).reshape(-1) for table in counts])


def _count_tables(plan: SumsPlan, dealt: Mapping[str, VerifiedCells], pairs: Ints) -> Iterator[Field]:
    """A compute party's term of every table, without noise, and not multiplied by anything."""
    present = _present(plan, dealt)
    sizes = np.array([len(table) for table in plan.features])
    spaces = np.array([padded(size) for size in sizes])
    ends = np.cumsum([0, *(PLANES * sizes[pairs].prod(axis=1))])
    sums = np.zeros(ends[-1], dtype=np.int64)
    used = np.unique(pairs)
    columns = {party: used[plan.owners[used] == plan.parties.index(party)] for party in dealt}
    room = np.empty(PLANE_ROWS * PLANES * int(spaces[used].sum()))
    begin = np.zeros(len(sizes), dtype=np.int64)  # where a column's planes are in `room`
    blocks = 0
    for people in _read_people(plan, dealt, present):
        for alike, parties in people.alike(present):
            here = [column for party in parties for column in columns[party].tolist()]
            wanted = np.flatnonzero(np.isin(pairs, here).all(axis=1))
            if not wanted.size:
                continue
            for start in range(0, alike.size, PLANE_ROWS):
                rows = alike[start : start + PLANE_ROWS]
                begin[here] = rows.size * PLANES * (np.cumsum(spaces[here]) - spaces[here])
                for party in parties:
                    _split_party(plan, dealt[party], people, rows, columns[party], begin, room)
                _multiply_tables(room, rows.size, begin, sizes, pairs[wanted], ends[wanted], sums)
                blocks += 1
                if blocks % BLOCKS_AT_ONCE == 0:
                    sums %= PRIME
    for (a, b), start, stop in zip(pairs.tolist(), ends[:-1], ends[1:], strict=True):
        yield join_planes(sums[start:stop].reshape(PLANES, sizes[a], sizes[b]))


def _split_party(
    plan: SumsPlan, cells: VerifiedCells, people: _People, rows: Ints, columns: Ints, begin: Ints, room: Floats
) -> None:
    """Planes of the combined shares of the one-hot rows of a party's columns."""
    party = cells.held.statement.dealer
    own = columns - own_columns(plan, party).start
    starts = np.array(column_starts(cells.held.statement))[own]
    sizes = np.array(cells.held.statement.cells)[own]
    one = weight_of_zeroth(cells.held.index)
    _split_columns(people.shares[party], people.places[party][rows], starts, sizes, begin[columns], one, room)


@njit(cache=True, nogil=True)
def _split_columns(
    share: Field, places: Ints, starts: Ints, sizes: Ints, begin: Ints, one: np.uint64, out: Floats
) -> None:
    """Planes of columns' one-hot rows, as `limb_products.add_products` takes them.

    Some people at a time, whose numbers stay in the processor's cache, and without a branch for any of them.
    """
    known, value = np.empty(_SPLIT_ROWS, dtype=np.uint64), np.empty(_SPLIT_ROWS, dtype=np.uint64)
    left, here = np.empty(_SPLIT_ROWS, dtype=np.uint64), np.empty(_SPLIT_ROWS, dtype=np.uint64)
    numbers, width = share.reshape(-1), share.shape[1]
    for first in range(0, places.size, _SPLIT_ROWS):
        people = min(_SPLIT_ROWS, places.size - first)
        for row in range(people):
            known[row] = _ALL_BITS if places[first + row] >= 0 else np.uint64(0)
            here[row] = np.uint64(max(places[first + row], 0) * width)
        for column in range(starts.size):
            step = -(-sizes[column] // TILE) * TILE * places.size
            for row in range(people):
                left[row] = known[row] & one
            for cell in range(sizes[column] - 1):
                place = np.uint64(starts[column] + cell)
                for row in range(people):
                    value[row] = numbers[here[row] + place]  # places are not counted from the end: they have no sign
                for row in range(people):
                    value[row] &= known[row]
                    less = left[row] < value[row]
                    left[row] += (PRIME_WORD & (np.uint64(0) - np.uint64(less))) - value[row]
                write_planes(value[:people], begin[column] + cell * places.size + first, step, out)
            write_planes(left[:people], begin[column] + (sizes[column] - 1) * places.size + first, step, out)
    for column in range(starts.size):
        step = -(-sizes[column] // TILE) * TILE * places.size
        for plane in range(PLANES):
            out[begin[column] + plane * step + sizes[column] * places.size : begin[column] + (plane + 1) * step] = 0.0


@njit(cache=True, nogil=True)
def _multiply_tables(
    planes: Floats, rows: int, begin: Ints, sizes: Ints, pairs: Ints, places: Ints, sums: Ints
) -> None:
    """Add each pair's products of planes to what is there."""
    for number in range(len(pairs)):
        a, b = pairs[number]
        place = places[number]
        here = sums[place : place + PLANES * sizes[a] * sizes[b]]
        add_products(planes, begin[a], begin[b], rows, (sizes[a], sizes[b]), here)
