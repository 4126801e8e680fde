"""Real and synthetic people on one scale, and how far apart they are.

Ordered columns are measured in grades of the synthetic table, so that a skewed column counts as much as any other;
unordered categories are equal or not. The distance is the mean over the columns that both have (Gower's).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numba import njit
from numpy.typing import NDArray

from verticopula.data.tables import AlignedTable, encode_party
from verticopula.schema.columns import Column, ColumnKey
from verticopula.schema.federation import Federation

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_SAME = 1e-12  # distances that differ by less differ by rounding


@dataclass(frozen=True, repr=False)
class EncodedRows:
    """People or synthetic rows as numbers; NaN where nothing is known. No repr: it may hold raw values.

    Attributes
    ----------
    values : (rows, columns) grades, or codes of unordered categories
    unordered : (columns,) mask
    """

    keys: tuple[ColumnKey, ...]
    values: Floats
    unordered: Bools
    columns: tuple[Column, ...]

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, index: Ints | slice) -> EncodedRows:
        """The rows with these indices."""
        return replace(self, values=self.values[index])

    def without(self, position: int) -> EncodedRows:
        """The rows without one of their columns."""
        kept = [k for k in range(len(self.keys)) if k != position]
        return self.only(kept)

    def only(self, positions: Sequence[int]) -> EncodedRows:
        """The rows with these columns only."""
        at = list(positions)
        return EncodedRows(
            tuple(self.keys[k] for k in at), self.values[:, at], self.unordered[at], tuple(self.columns[k] for k in at)
        )

    def shuffled(self, rng: np.random.Generator) -> EncodedRows:
        """The same columns, each in an order of its own: what somebody would invent who knows only the margins."""
        return replace(self, values=rng.permuted(self.values, axis=0))


class GradeScale:
    """Turns values into grades of a synthetic table."""

    def __init__(self, federation: Federation, synthetic: Mapping[str, pl.DataFrame]) -> None:
        self.keys = tuple(key for key in federation.keys if key.party in synthetic)
        self.columns = tuple(federation.column(key) for key in self.keys)
        encoded = {name: encode_party(federation.party(name), table, name)[0] for name, table in synthetic.items()}
        self._raw = [encoded[key.party][key.column].values for key in self.keys]
        self._sorted = [np.sort(values) for values in self._raw]

    @property
    def synthetic(self) -> EncodedRows:
        return self._records([(values, np.ones(values.size, dtype=bool)) for values in self._raw])

    def people(self, tables: Mapping[str, AlignedTable]) -> EncodedRows:
        """Real people, in cohort order."""
        cells = [tables[key.party].columns[key.column] for key in self.keys]
        return self._records([(cell.values, cell.observed) for cell in cells])

    def _records(self, cells: Sequence[tuple[Floats, Bools]]) -> EncodedRows:
        out = np.full((cells[0][0].size, len(cells)), np.nan)
        unordered = np.array([column.kind == "nominal" for column in self.columns])
        for j, (values, observed) in enumerate(cells):
            ordered = self._sorted[j]
            both = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
            out[observed, j] = values[observed] if unordered[j] else both[observed] / (2.0 * ordered.size)
        return EncodedRows(self.keys, out, unordered, self.columns)


def nearest(people: EncodedRows, rows: EncodedRows, count: int = 1) -> tuple[Ints, Floats]:
    """(people, count) nearest rows and their distances; columns that are empty on either side are left out."""
    index, distance = _nearest(people.values, rows.values, people.unordered, min(count, len(rows)))
    return index, distance


def tied_nearest(rows: EncodedRows, people: EncodedRows) -> Floats:
    """(people,) part of the rows that is nearest to each person; equally near people have equal parts of a row."""
    return np.asarray(_tied_nearest(rows.values, people.values, people.unordered))


@njit(nogil=True, cache=True)
def _distance(a: Floats, b: Floats, unordered: Bools) -> float:
    """Mean over the columns that both have; infinite if there is none."""
    total, seen = 0.0, 0
    for j in range(a.size):
        if np.isnan(a[j]) or np.isnan(b[j]):
            continue
        seen += 1
        if unordered[j]:
            total += 1.0 if a[j] != b[j] else 0.0
        else:
            total += abs(a[j] - b[j])
    return total / seen if seen else np.inf


@njit(nogil=True, cache=True)
def _tied_nearest(rows: Floats, people: Floats, unordered: Bools) -> Floats:
    parts = np.zeros(people.shape[0])
    distance = np.empty(people.shape[0])
    for r in range(rows.shape[0]):
        for i in range(people.shape[0]):
            distance[i] = _distance(rows[r], people[i], unordered)
        best = distance.min()
        if best == np.inf:
            continue
        tied = distance <= best + _SAME
        parts += tied / (tied.sum() * rows.shape[0])
    return parts


@njit(nogil=True, cache=True)
def _nearest(people: Floats, rows: Floats, unordered: Bools, count: int) -> tuple[Ints, Floats]:
    index = np.full((people.shape[0], count), -1, dtype=np.int64)
    distance = np.full((people.shape[0], count), np.inf)
    for i in range(people.shape[0]):
        for r in range(rows.shape[0]):
            d = _distance(people[i], rows[r], unordered)
            if d >= distance[i, count - 1]:
                continue
            k = count - 1
            while k > 0 and distance[i, k - 1] > d:
                distance[i, k], index[i, k] = distance[i, k - 1], index[i, k - 1]
                k -= 1
            distance[i, k], index[i, k] = d, r
    return index, distance
