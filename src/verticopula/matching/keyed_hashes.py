"""Who is who, without ids: keyed hashes instead of ids, and places in the cohort instead of rows.

Whoever holds the key can try every id there may be (ids are short), so the coordinator must not hold it. Without the
key a hash says one thing: whether it equals another.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.errors import SettingsError

CHECK_BYTES = 32
FEWEST_KEY_BYTES = 16
UNMATCHED = -1  # the place of a subject that the response's party does not know

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Placement:
    """Every party's rows as places in the cohort.

    Attributes
    ----------
    positions : party -> (n_k,) place of each row, in the order in which its hashes came; UNMATCHED for none
    """

    n_subjects: int
    positions: Mapping[str, NDArray[np.int64]]

    def unmatched(self, party: str) -> int:
        """How many of the party's subjects have no place."""
        return int((self.positions[party] == UNMATCHED).sum())


def study_key(key: bytes, study: str) -> bytes:
    """The key of one study's hashes, so that nobody can follow a subject from one study to the next."""
    if len(key) < FEWEST_KEY_BYTES:
        raise SettingsError(f"the id key has {len(key)} bytes; at least {FEWEST_KEY_BYTES} random ones are needed")
    return hmac.digest(key, b"verticopula ids\0" + study.encode(), "sha256")


def key_check(key: bytes, study: str) -> Bytes:
    """(32,) equal for two parties that hold the same key, and nothing else about the key."""
    return np.frombuffer(hmac.digest(study_key(key, study), b"verticopula key check", "sha256"), dtype=np.uint8)


def hash_order(hashes: Bytes) -> NDArray[np.int64]:
    """The rows in the order of their hashes, which has nothing to do with the table's."""
    return np.lexsort(_words(hashes).T[::-1]).astype(np.int64)


def count_repeats(hashes: Bytes) -> int:
    """How many rows repeat a hash that another row has.

    It takes at most four times the memory of the hashes, also of those that were made to be nearly alike.
    """
    words = np.ascontiguousarray(hashes).view(np.uint64)
    firsts = np.sort(words[:, 0])
    tied = np.unique(firsts[1:][firsts[1:] == firsts[:-1]])
    if not tied.size:
        return 0
    near = np.minimum(np.searchsorted(tied, words[:, 0]), tied.size - 1)
    suspects = words[tied[near] == words[:, 0]]
    suspects = suspects[np.lexsort(suspects.T)]
    return int((suspects[1:] == suspects[:-1]).all(axis=1).sum())


def cohort_digest(hashes: Bytes) -> str:
    """A digest of the cohort's list, in its order."""
    return hashlib.sha256(f"{hashes.shape[0]}:".encode() + np.ascontiguousarray(hashes).tobytes()).hexdigest()


def place(hashes: Mapping[str, Bytes], response_party: str) -> Placement:
    """Places in the cohort, which is the response party's rows in the order in which they came."""
    cohort = _frame(hashes[response_party]).with_row_index("place")
    positions = {}
    for party, own in hashes.items():
        found = _frame(own).join(cohort, on=["high", "low"], how="left", maintain_order="left")
        positions[party] = found["place"].cast(pl.Int64).fill_null(UNMATCHED).to_numpy().astype(np.int64)
    return Placement(hashes[response_party].shape[0], positions)


def _words(hashes: Bytes) -> NDArray[np.uint64]:
    """(n, 2) the same bits as two numbers, ordered as the bytes are."""
    return np.ascontiguousarray(hashes).view(">u8").astype(np.uint64)


def _frame(hashes: Bytes) -> pl.DataFrame:
    words = _words(hashes)
    return pl.DataFrame({"high": words[:, 0], "low": words[:, 1]})
