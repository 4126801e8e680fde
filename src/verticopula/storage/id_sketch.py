"""Whom a table is about, in a few thousand numbers: the smallest keyed hashes of its subject ids.

Of two tables, the hashes below the point up to which both sketches are complete are a random sample of their
subjects: a hash in both is somebody in both. Without the key nobody can try ids.
"""

from __future__ import annotations

import hmac
import re
import unicodedata
from collections.abc import Iterable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.data.id_checks import texts_in_parts
from verticopula.schema.cell_text import WHOLE_FLOAT

SKETCH_SIZE = 65_536  # tables up to this size are compared exactly; of larger ones, so many subjects
OLD_SKETCH_SIZE = 4096  # of version 0.1
SAME_SHARE = 0.5
_WHOLE_NUMBER = re.compile(r"\.0+$")
_LEADING_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")


def canonical_id(text: str) -> str:
    """What all spellings of one id have in common: letters and digits, in one case, without leading zeros.

    A federation's id rules (strip, upper, lower, zfill) change none of it. Ids of two people that differ in nothing
    else count as one person's, which charges too much and never too little.
    """
    if text.isascii() and text.isalnum():  # most ids; the same in a fifth of the time
        return _LEADING_ZEROS.sub("", text.lower()).lstrip("0") or "0"
    return _canonical_text(text)


def _canonical_text(text: str) -> str:
    plain = _WHOLE_NUMBER.sub("", re.sub(WHOLE_FLOAT, r"\1", unicodedata.normalize("NFKC", text).strip()))
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", plain.upper()).casefold())
    kept = "".join(character for character in folded if character.isalnum())
    signs = "".join(character for character in folded if character != "0" and not character.isspace())
    return _LEADING_ZEROS.sub("", kept).lstrip("0") or signs or "0"


def hash_people(ids: Iterable[str], key: bytes) -> list[int]:
    """One keyed hash an id, in the order given; all spellings of an id have the same."""
    return [
        int.from_bytes(hmac.digest(key, b"person:" + canonical_id(text).encode(), "sha256")[:8], "big") for text in ids
    ]


def hash_rows(ids: pl.Series, key: bytes) -> NDArray[np.uint64]:
    """(rows,) what `hash_people` says of every row; ids are text a part of the rows at a time.

    Parameters
    ----------
    ids : every row's, in any spelling
    key : the vault's secret
    """
    return np.concatenate([np.array(hash_people(part, key), dtype=np.uint64) for part in texts_in_parts(ids)])


def hash_withdrawn(ids: Iterable[str], key: bytes) -> list[str]:
    """One keyed hash an id, in the order given, as the history of withdrawals has them."""
    return [hmac.digest(key, canonical_id(text).encode(), "sha256").hex()[:32] for text in ids]


def sketch_ids(ids: pl.Series, key: bytes) -> list[int]:
    """The smallest hashes of ids as they are spelled, in order: how vaults of version 0.1 sketched tables."""
    found: list[int] = []
    for part in texts_in_parts(ids):
        hashes = (int.from_bytes(hmac.digest(key, value.encode(), "sha256")[:8], "big") for value in part)
        found = smallest((*found, *hashes), OLD_SKETCH_SIZE)
    return found


def sketch_people(hashes: NDArray[np.uint64]) -> list[int]:
    """The sketch of everybody who has one of these hashes, of every row of a table."""
    return [int(value) for value in np.unique(hashes)[:SKETCH_SIZE]]


def smallest(hashes: Iterable[int], size: int = SKETCH_SIZE) -> list[int]:
    """The sketch of everybody who has one of these hashes."""
    return sorted(set(hashes))[:size]


def have_common_people(one: Iterable[int], two: Iterable[int]) -> bool:
    """Whether somebody is in both sketches.

    One is enough: a cap is a promise to every person, and who is in both tables has lost what both released. Where a
    single id is in both by accident, the others are charged too much.
    """
    return not set(one).isdisjoint(two)


def is_same_table(one: list[int], two: list[int], size: int = SKETCH_SIZE) -> bool:
    """Whether half of the smaller table's subjects are in the other one, too: it has grown, shrunk or is a part.

    A sketch of several tables may be longer than `size`. Beyond that many it need not have everybody.
    """
    complete_up_to = min((sketch[size - 1] for sketch in (one, two) if len(sketch) >= size), default=2**64)
    a, b = ({value for value in sketch if value <= complete_up_to} for sketch in (one, two))
    smaller = min(len(a), len(b))
    return smaller > 0 and len(a & b) >= SAME_SHARE * smaller
