"""Over whom a party has made exact sums before: none are made over nearly the same people, or nearly the same rows.

The difference of two sums is a sum over those who are in one alone. A study has one set of sums, but a coordinator may
leave out one subject in the next one, any one, and would have a row of exact values.

What is kept of rows are keyed hashes in buckets, the exclusive or of those in the same one. Two sketches differ in no
more buckets than there are rows in one of both sets alone. So where they differ in enough buckets, enough rows do. Two
rows may stand in one bucket, so a few more than enough are needed at times.
"""

from __future__ import annotations

import base64
import hmac
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import PolicyRefused
from verticopula.mpc.sealed_messages import SECRET_BYTES
from verticopula.privacy.policy import FEWEST_IN_SUMS
from verticopula.storage.id_sketch import hash_people
from verticopula.storage.record_store import RecordStore

Floats = NDArray[np.float64]
Sketch = NDArray[np.uint32]

_RECORD = "rows of exact sums"
_BUCKETS = 1024
_ADDING = threading.Lock()  # from reading the record to writing it


@dataclass(frozen=True, repr=False)
class SummedRows:
    """The rows of a set of sums. No repr: it holds data.

    Attributes
    ----------
    ids : (n,) whose they are
    values : (n, c) the party's columns
    """

    ids: Sequence[str]
    values: Floats

    def sketches(self, key: bytes) -> tuple[Sketch, Sketch]:
        """Of the people, and of the people with their values.

        Parameters
        ----------
        key : of the hashes
        """
        people = np.array(hash_people(self.ids, key), dtype=np.uint64)
        rows = zip(people, np.ascontiguousarray(self.values, dtype=np.float64), strict=True)
        cells = [hmac.digest(key, person.tobytes() + row.tobytes(), "sha256")[:8] for person, row in rows]
        return _sketch(people), _sketch(np.frombuffer(b"".join(cells), dtype=np.uint64))


@dataclass(frozen=True)
class EarlierSums:
    """What a vault knows about all sums that were made of tables in it.

    `records` : where it is kept
    """

    records: RecordStore

    @contextmanager
    def adding(self, party: str, rows: SummedRows) -> Iterator[None]:
        """What is done in here belongs to sums over these rows; PolicyRefused, before it, where they are not made.

        Parameters
        ----------
        party : for the message
        rows : of the sums
        """
        with _ADDING:
            kept = self.records.get(_RECORD) or {"key": secrets.token_hex(SECRET_BYTES), "made": []}
            new = rows.sketches(bytes.fromhex(kept["key"]))
            said = [_write(sketch) for sketch in new]
            if any(_are_nearly_same(new, [_read(text) for text in made]) for made in kept["made"] if made != said):
                raise PolicyRefused(
                    f"party {party!r}: exact sums over nearly the same people, or the same rows, were made before, and "
                    f"the difference would tell single ones; at least {FEWEST_IN_SUMS} have to differ"
                )
            yield
            if said not in kept["made"]:
                self.records.put(_RECORD, {**kept, "made": [*kept["made"], said]})


def _are_nearly_same(one: Sequence[Sketch], other: Sequence[Sketch]) -> bool:
    differing = [int((a != b).sum()) for a, b in zip(one, other, strict=True)]
    return any(0 < count < FEWEST_IN_SUMS for count in differing)


def _sketch(hashes: NDArray[np.uint64]) -> Sketch:
    found = np.zeros(_BUCKETS, dtype=np.uint32)
    np.bitwise_xor.at(found, hashes % np.uint64(_BUCKETS), (hashes >> np.uint64(32)).astype(np.uint32))
    return found


def _write(sketch: Sketch) -> str:
    return base64.b64encode(sketch.astype("<u4").tobytes()).decode("ascii")


def _read(text: str) -> Sketch:
    return np.frombuffer(base64.b64decode(text), dtype="<u4").astype(np.uint32)
