"""Pairs of data sets that differ in exactly what a claim is about.

The chosen pairs need a schema only: one subject moves from one end of every column's public range to the other, the
move that the accounting says is the worst. The typical ones are subjects of a real table, one of them replaced by
another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from verticopula.auditing.bounds.mechanism_audit import Neighbours
from verticopula.data.column_encoding import EncodedColumn
from verticopula.data.column_ranges import public_range
from verticopula.data.tables import AlignedTable, take_rows
from verticopula.schema.columns import Column
from verticopula.schema.federation import Party

Floats = NDArray[np.float64]
Tables = Mapping[str, AlignedTable]


def between(column: Column, count: int) -> Floats:
    """`count` values of the other subjects: strictly between the ends where there is room, spread evenly."""
    low, high = public_range(column)
    if column.kind == "continuous":
        return np.linspace(low, high, count + 2)[1:-1]
    steps = np.arange(count) % max(int(high - low) - 1, 1) if high - low > 1 else np.arange(count) % 2 - 1
    return np.asarray(low + 1.0 + steps, dtype=np.float64)


def fill(party: Party, values: Mapping[str, Floats], observed: NDArray[np.bool_] | None = None) -> AlignedTable:
    """A table of one party that holds nothing but these columns."""
    own = party.model_copy(update={"columns": tuple(c for c in party.columns if c.name in values)})
    columns = {}
    for name, column in values.items():
        mask = np.ones(column.size, dtype=bool) if observed is None else observed
        columns[name] = EncodedColumn(column, mask)
    return AlignedTable(own, columns)


def flipped_comparison(party: Party, names: Iterable[str], n_subjects: int = 2) -> Neighbours[AlignedTable]:
    """Subjects 0 and 1 change places and nobody is between them: one comparison flips in each column.

    More than two subjects need a column with enough values for it: continuous, or counts with room.
    """
    first, second = {}, {}
    for name in names:
        low, high = public_range(party.column(name))
        if n_subjects == 2:
            a = np.array([low, high])
        else:
            others = between(party.column(name), n_subjects)
            middle = n_subjects // 2
            a = np.r_[others[middle - 1 : middle + 1], others[: middle - 1], others[middle + 1 :]]
        b = a.copy()
        b[:2] = a[1], a[0]
        first[name], second[name] = a, b
    return Neighbours(fill(party, first), fill(party, second))


def replaced_value(party: Party, names: Iterable[str], n_subjects: int) -> Neighbours[AlignedTable]:
    """Subject 0 goes from one end of each of the columns to the other."""
    first, second = {}, {}
    for name in names:
        column = party.column(name)
        others = between(column, n_subjects - 1)
        low, high = public_range(column)
        first[name], second[name] = np.r_[low, others], np.r_[high, others]
    return Neighbours(fill(party, first), fill(party, second))


def replaced_person_tables(parties: Iterable[Party], n_subjects: int) -> Neighbours[Tables]:
    """The same at every party."""
    pairs = {p.name: replaced_value(p, [c.name for c in p.columns], n_subjects) for p in parties}
    return Neighbours({k: v.first for k, v in pairs.items()}, {k: v.second for k, v in pairs.items()})


def typical_people(tables: Tables, n_subjects: int, pairs: int, rng: np.random.Generator) -> list[Neighbours[Tables]]:
    """Random subjects of real tables, and the first of them with another real subject's values.

    Both are drawn from the subjects that most parties know. Which cells are empty is public and stays as it is.
    """
    known = np.sum([table.observed().any(axis=1) for table in tables.values()], axis=0)
    best = np.flatnonzero(known == known.max())
    found: list[Neighbours[Tables]] = []
    for _ in range(pairs):
        target, replacement = rng.choice(best if best.size > 1 else known.size, 2, replace=False)
        others = rng.permutation(np.setdiff1d(np.arange(known.size), [target, replacement]))[: n_subjects - 1]
        rows = np.r_[target, others]
        first = {name: take_rows(table, rows) for name, table in tables.items()}
        second = {name: _replace_first(first[name], table, int(replacement)) for name, table in tables.items()}
        found.append(Neighbours(first, second))
    return found


def _replace_first(taken: AlignedTable, table: AlignedTable, replacement: int) -> AlignedTable:
    columns = {}
    for name, column in taken.columns.items():
        values = column.values.copy()
        if column.observed[0] and table.columns[name].observed[replacement]:
            values[0] = table.columns[name].values[replacement]
        columns[name] = EncodedColumn(values, column.observed)
    return AlignedTable(table.party, columns)
