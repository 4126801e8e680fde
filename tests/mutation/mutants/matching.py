"""Mistakes in how one person's rows are found at two parties."""

from __future__ import annotations

from tests.mutation.judges import KEYED_HASHES, PRIVATE_INTERSECTION
from tests.mutation.runner import Mutant, one_of

MUTANTS = (
    Mutant(
        "hashes-of-all-studies",
        "matching/keyed_hashes.py",
        'b"verticopula ids\\0" + study.encode()',
        'b"verticopula ids\\0"',
        "a subject could be followed from study to study",
        KEYED_HASHES,
    ),
    Mutant(
        "hashes-half-compared",
        "matching/keyed_hashes.py",
        "(suspects[1:] == suspects[:-1]).all(axis=1).sum()",
        "(suspects[1:] == suspects[:-1]).any(axis=1).sum()",
        "somebody could be twice in a cohort's list",
        one_of(KEYED_HASHES, "hashes_that_share_one_half_are_still_told_apart"),
    ),
    Mutant(
        "hashes-cohort-in-any-order",
        "matching/keyed_hashes.py",
        "np.ascontiguousarray(hashes).tobytes()).hexdigest()",
        "np.sort(hashes, axis=0).tobytes()).hexdigest()",
        "two parties could be told other places and not notice",
        KEYED_HASHES,
    ),
    Mutant(
        "hashes-without-key",
        "data/id_checks.py",
        'hmac.digest(key, text.encode(), "sha256")[:HASH_BYTES]',
        'hmac.digest(b"", text.encode(), "sha256")[:HASH_BYTES]',
        "a coordinator could try all ids",
        KEYED_HASHES,
    ),
    Mutant(
        "points-of-all-studies",
        "matching/private_intersection.py",
        'b"verticopula points\\0" + study.encode()',
        'b"verticopula points\\0"',
        "masked lists of two studies could be compared",
        PRIVATE_INTERSECTION,
    ),
    Mutant(
        "points-on-the-twist",
        "matching/private_intersection.py",
        "(_PRIME - 1) // 2, _PRIME) == 1:",
        "(_PRIME - 1) // 2, _PRIME) >= 1:",
        "everybody would learn a bit of each id",
        PRIVATE_INTERSECTION,
    ),
)
