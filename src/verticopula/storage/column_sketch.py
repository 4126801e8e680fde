"""Which column it is, whatever it is called: the order of its values among a few hundred of its people.

A sketch holds where the values of some people stand in the column, as one of 255 places. A column that was renamed,
rescaled, turned round or, with few categories, labelled otherwise has the same people in the same or the opposite
order, or in the same groups. Places are masked with a key stream of the vault's secret.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from verticopula.data.tables import EncodedColumn

SKETCHED_PEOPLE = 512
FEWEST_PEOPLE = 8  # in both, for two columns to be compared; of smaller columns all, and at least 3
_SAME_ORDER = 0.98  # rank correlation, of either sign
_SAME_GROUPS = 0.9  # Goodman and Kruskal's lambda, both ways
_LARGEST_PLACE = 254

Places = dict[int, int]  # the last 32 bits of a person's hash -> the place of their value


@dataclass(frozen=True)
class ColumnSketch:
    """One column's names in the ledger (several, if it joined some), and the places of its values, masked."""

    names: tuple[str, ...]
    salt: str
    people: str
    places: str

    @classmethod
    def seal(cls, names: Iterable[str], places: Places, key: bytes) -> ColumnSketch:
        """A sketch whose places only the holder of the key can read."""
        salt = secrets.token_bytes(16)
        people = np.fromiter(places, dtype="<u4", count=len(places)).tobytes()
        values = np.fromiter(places.values(), dtype=np.uint8, count=len(places))
        return cls(tuple(names), salt.hex(), people.hex(), (values ^ _stream(key, salt, len(places))).tobytes().hex())

    def open(self, key: bytes) -> Places:
        """The places; ValueError where people and places do not belong together."""
        people = np.frombuffer(bytes.fromhex(self.people), dtype="<u4")
        masked = np.frombuffer(bytes.fromhex(self.places), dtype=np.uint8)
        values = masked ^ _stream(key, bytes.fromhex(self.salt), people.size)
        return dict(zip(people.tolist(), values.tolist(), strict=True))


def place_values(column: EncodedColumn, people: NDArray[np.uint64]) -> Places:
    """The places of the values of those people with the smallest hashes.

    Parameters
    ----------
    people : (rows,) every row's hash
    """
    seen = np.flatnonzero(column.observed)
    chosen = np.argsort(people[seen], kind="stable")[:SKETCHED_PEOPLE]
    middle = (rankdata(column.values[seen]) - 0.5) / max(seen.size, 1)
    places = np.rint(_LARGEST_PLACE * middle[chosen]).astype(int)
    return dict(zip((people[seen][chosen] & np.uint64(2**32 - 1)).tolist(), places.tolist(), strict=True))


def is_same_column(one: Places, two: Places) -> bool:
    """Whether the people in both sketches stand in the same or the opposite order, or in the same groups."""
    common = sorted(one.keys() & two.keys())
    if len(common) < max(3, min(FEWEST_PEOPLE, len(one), len(two))):
        return False
    a, b = (np.array([places[person] for person in common]) for places in (one, two))
    if a.min() == a.max() or b.min() == b.max():
        return False
    if abs(np.corrcoef(rankdata(a), rankdata(b))[0, 1]) >= _SAME_ORDER:
        return True
    groups = max(np.unique(a).size, np.unique(b).size)
    return 4 * groups <= len(common) and min(_lambda(a, b), _lambda(b, a)) >= _SAME_GROUPS


def _lambda(told: NDArray[np.int_], guessed: NDArray[np.int_]) -> float:
    """The share of wrong guesses of one grouping that knowing the other saves."""
    table = np.zeros((told.max() + 1, guessed.max() + 1), dtype=int)
    np.add.at(table, (told, guessed), 1)
    most = int(table.sum(axis=0).max())
    return float(table.max(axis=1).sum() - most) / (told.size - most)


def _stream(key: bytes, salt: bytes, size: int) -> NDArray[np.uint8]:
    return np.frombuffer(hashlib.shake_256(b"places:" + key + salt).digest(size), dtype=np.uint8)
