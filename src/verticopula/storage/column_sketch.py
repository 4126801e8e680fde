"""Which column it is, whatever it is called: the order of its values among some of its people.

A sketch holds where the values of some people stand in the column. A column that was renamed, rescaled, turned round
or, with few categories, labelled otherwise has the same people in the same or the opposite order, or in the same
groups. Places are masked with a key stream of the vault's secret.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from verticopula.data.column_encoding import EncodedColumn

FEWEST_PEOPLE = 8  # in both, for two columns to be compared; of smaller columns all, and at least 3
_MOST_SKETCHED, _LEAST_SKETCHED, _ALL_PLACES = 4096, 512, 200_000
_LARGEST_PLACE = 65_535

Places = dict[int, int]  # the last 32 bits of a person's hash -> the place of their value


@dataclass(frozen=True)
class RecognitionTuning:
    """When two columns count as one. All were chosen by hand: no tuning is on record.

    Attributes
    ----------
    same_order : rank correlation, of either sign
    same_groups : Goodman and Kruskal's lambda, both ways
    most_groups : of a column that is compared by its groups
    worth_a_look : correlation of either sign below which two columns cannot have the same order
    few_common : share of people in both below which their order is compared, too
    """

    same_order: float = 0.98
    same_groups: float = 0.9
    most_groups: int = 64
    worth_a_look: float = 0.5
    few_common: float = 0.8


_RECOGNITION = RecognitionTuning()


@dataclass(frozen=True)
class ColumnSketch:
    """One column's names in the ledger (several, if it joined some), and the places of its values, masked.

    `called` : what the column was called in its tables; empty in vaults of earlier versions
    """

    names: tuple[str, ...]
    salt: str
    people: str
    places: str
    called: tuple[str, ...] = ()

    @classmethod
    def seal(cls, names: Iterable[str], places: Places, key: bytes, called: Iterable[str] = ()) -> ColumnSketch:
        """A sketch whose places only the holder of the key can read."""
        salt = secrets.token_bytes(16)
        people = np.fromiter(places, dtype="<u4", count=len(places))
        values = np.fromiter(places.values(), dtype="<u2", count=len(places))
        masked = _text(values ^ _stream(key, salt, len(places)))
        return cls(tuple(names), salt.hex(), _text(people), masked, tuple(called))

    def open(self, key: bytes) -> Places:
        """The places; ValueError where people and places do not belong together."""
        people = np.frombuffer(base64.b64decode(self.people), dtype="<u4")
        masked = np.frombuffer(base64.b64decode(self.places), dtype="<u2")
        values = masked ^ _stream(key, bytes.fromhex(self.salt), people.size)
        return dict(zip(people.tolist(), values.tolist(), strict=True))


def sketched_people(n_columns: int) -> int:
    """How many people a sketch holds, in a table of so many columns: fewer where there are many."""
    return min(_MOST_SKETCHED, max(_LEAST_SKETCHED, _ALL_PLACES // max(n_columns, 1)))


def place_values(column: EncodedColumn, people: NDArray[np.uint64], size: int) -> Places:
    """The places of the values of those people with the smallest hashes.

    Parameters
    ----------
    people : (rows,) every row's hash
    size : of how many people
    """
    seen = column.observed
    hashes, values = people[seen], column.values[seen]
    chosen = _smallest_rows(hashes, size)
    middle = (_ranks_among(values, values[chosen]) - 0.5) / max(values.size, 1)
    places = np.rint(_LARGEST_PLACE * middle).astype(int)
    return dict(zip((hashes[chosen] & np.uint64(2**32 - 1)).tolist(), places.tolist(), strict=True))


def _smallest_rows(hashes: NDArray[np.uint64], size: int) -> NDArray[np.intp]:
    """The rows with the smallest hashes, in their order; of equal ones the first rows."""
    rows = np.arange(hashes.size)
    if hashes.size > size:
        rows = np.flatnonzero(hashes <= np.partition(hashes, size - 1)[size - 1])
    return np.asarray(rows[np.argsort(hashes[rows], kind="stable")][:size])


def _ranks_among(values: NDArray[np.float64], asked: NDArray[np.float64]) -> NDArray[np.float64]:
    """The ranks of some values among all; equal ones share their mean rank."""
    ordered = np.sort(values)
    below, upto = (np.searchsorted(ordered, asked, side) for side in ("left", "right"))
    return np.asarray(0.5 * (below + upto + 1))


def enough_people(one: Places, two: Places) -> bool:
    """Whether so many people are in both that the columns can be compared."""
    return len(one.keys() & two.keys()) >= max(3, min(FEWEST_PEOPLE, len(one), len(two)))


def is_same_column(one: Places, two: Places) -> bool:
    """Whether the people in both sketches stand in the same or the opposite order, or in the same groups.

    Two constant columns are the same one: nothing tells them apart.
    """
    if not enough_people(one, two):
        return False
    common = sorted(one.keys() & two.keys())
    a, b = (np.array([places[person] for person in common]) for places in (one, two))
    if a.min() == a.max() or b.min() == b.max():
        return bool(a.min() == a.max() and b.min() == b.max())
    if abs(np.corrcoef(rankdata(a), rankdata(b))[0, 1]) >= _RECOGNITION.same_order:
        return True
    (_, first), (_, second) = (np.unique(places, return_inverse=True) for places in (a, b))
    groups = max(first.max(), second.max()) + 1
    few = groups <= _RECOGNITION.most_groups and 4 * groups <= len(common)
    return bool(few and min(_lambda(first, second), _lambda(second, first)) >= _RECOGNITION.same_groups)


class ColumnFinder:
    """Finds the same columns among many, without comparing every two of them in full.

    Parameters
    ----------
    columns : all of them
    """

    def __init__(self, columns: Sequence[Places]) -> None:
        self._columns = columns
        people = [np.fromiter(places, dtype=np.uint32, count=len(places)) for places in columns]
        everybody = np.unique(np.concatenate([np.empty(0, dtype=np.uint32), *people]))
        self._places = np.full((len(columns), everybody.size), np.nan, dtype=np.float32)
        for row, (own, places) in enumerate(zip(people, columns, strict=True)):
            self._places[row, np.searchsorted(everybody, own)] = list(places.values())
        self._is_grouped = np.array(
            [2 < len(set(places.values())) <= _RECOGNITION.most_groups for places in columns], dtype=bool
        )
        self._is_constant = np.array([len(set(places.values())) == 1 for places in columns], dtype=bool)

    def earlier_same(self, row: int) -> list[int]:
        """Those of the columns before this one that are the same as this one."""
        seen = ~np.isnan(self._places[row])
        others = self._places[:row, seen].astype(np.float64)
        mine = np.where(np.isnan(others), np.nan, self._places[row, seen])
        near = _correlations(others, mine)
        # Of other people places need not grow evenly: where few are in both, their order says more than their places.
        sizes = np.array([len(places) for places in self._columns[: row + 1]])
        few = (~np.isnan(others)).sum(axis=1) < _RECOGNITION.few_common * np.maximum(sizes[:row], sizes[row])
        near[few] = np.maximum(near[few], _correlations(_in_order(others[few]), _in_order(mine[few])))
        likely = (near >= _RECOGNITION.worth_a_look) | (self._is_grouped[:row] & self._is_grouped[row])
        likely |= self._is_constant[:row] & self._is_constant[row]
        return [j for j in np.flatnonzero(likely).tolist() if is_same_column(self._columns[j], self._columns[row])]


def _in_order(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each row's ranks, ties in the order in which they stand; NaN stays NaN."""
    ranks = np.argsort(np.argsort(rows, axis=1, kind="stable"), axis=1, kind="stable").astype(np.float64)
    return np.where(np.isnan(rows), np.nan, ranks)


def _correlations(one: NDArray[np.float64], two: NDArray[np.float64]) -> NDArray[np.float64]:
    """The absolute correlation of every two rows, over what both have; 0 where there is none."""
    count = np.maximum((~np.isnan(one)).sum(axis=1, keepdims=True), 1)
    a, b = (np.nan_to_num(rows - np.nansum(rows, axis=1, keepdims=True) / count) for rows in (one, two))
    size = np.sqrt((a * a).sum(axis=1) * (b * b).sum(axis=1))
    return np.asarray(np.abs((a * b).sum(axis=1)) / np.where(size > 0.0, size, 1.0))


def _lambda(told: NDArray[np.intp], guessed: NDArray[np.intp]) -> float:
    """The share of wrong guesses of one grouping that knowing the other saves."""
    table = np.zeros((told.max() + 1, guessed.max() + 1), dtype=int)
    np.add.at(table, (told, guessed), 1)
    most = int(table.sum(axis=0).max())
    return float(table.max(axis=1).sum() - most) / (told.size - most)


def _stream(key: bytes, salt: bytes, size: int) -> NDArray[np.uint16]:
    return np.frombuffer(hashlib.shake_256(b"places:" + key + salt).digest(2 * size), dtype="<u2")


def _text(numbers: NDArray[np.generic]) -> str:
    return base64.b64encode(numbers.tobytes()).decode("ascii")
