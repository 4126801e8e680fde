"""Whom a table is about, in a few thousand numbers: the smallest keyed hashes of its subject ids.

Of two tables, the hashes below the point up to which both sketches are complete are a random sample of their
subjects: how many of them are in both says how much the tables overlap. Without the key nobody can try ids.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable

SKETCH_SIZE = 4096  # tables up to this size are compared exactly; a hundredth of a large one by some forty subjects
SAME_SHARE = 0.5


def sketch_ids(ids: Iterable[str], key: bytes) -> list[int]:
    """The smallest hashes, in order."""
    hashes = {int.from_bytes(hmac.digest(key, value.encode(), "sha256")[:8], "big") for value in set(ids)}
    return sorted(hashes)[:SKETCH_SIZE]


def merge_sketches(sketches: Iterable[list[int]]) -> list[int]:
    """The sketch of everybody in any of them."""
    return sorted({value for sketch in sketches for value in sketch})[:SKETCH_SIZE]


def is_same_table(one: list[int], two: list[int]) -> bool:
    """Whether half of the smaller table's subjects are in the other one, too."""
    complete_up_to = min((sketch[-1] for sketch in (one, two) if len(sketch) >= SKETCH_SIZE), default=2**64)
    a, b = ({value for value in sketch if value <= complete_up_to} for sketch in (one, two))
    smaller = min(len(a), len(b))
    return smaller > 0 and len(a & b) >= SAME_SHARE * smaller
