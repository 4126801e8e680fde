"""Who is who without a common key: ids as points of Curve25519, which every party multiplies by a secret of its own.

Multiplications can be done in any order, so once every party has masked every list, equal ids are equal points, and
no one party's secret opens them (Meadows 1986; Huberman, Franklin and Hogg 1999). X25519 does the multiplying.
"""

from __future__ import annotations

import hashlib

import numpy as np
import polars as pl
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from numpy.typing import NDArray

from verticopula.data.id_checks import HASH_BYTES

POINT_BYTES = 32
_PRIME = 2**255 - 19
_A = 486_662  # the curve is v^2 = u^3 + A u^2 + u

Bytes = NDArray[np.uint8]


def new_mask() -> bytes:
    """A party's secret for one study."""
    return X25519PrivateKey.generate().private_bytes_raw()


def points_of(ids: pl.Series, study: str) -> Bytes:
    """(n, 32) a point for each normalised id, another one in each study."""
    prefix = hashlib.sha256(b"verticopula points\0" + study.encode()).digest()
    return _stack([_to_curve(prefix, text.encode()) for text in ids.to_list()])


def _to_curve(prefix: bytes, text: bytes) -> bytes:
    """Hash until the hash is a point of the curve.

    Every hash would be one of the curve or of its twist; masks keep a point where it is, so that which of the two
    it is would tell everyone one bit of each id.
    """
    for attempt in range(256):
        digest = hashlib.sha256(prefix + bytes([attempt]) + text).digest()
        u = (int.from_bytes(digest, "little") & (2**255 - 1)) % _PRIME
        if pow(u * (u * (u + _A) + 1), (_PRIME - 1) // 2, _PRIME) == 1:
            return u.to_bytes(POINT_BYTES, "little")
    raise AssertionError("256 hashes in a row that are no points")  # once in 2^256


def mask_points(points: Bytes, mask: bytes) -> Bytes:
    """(n, 32) every point times the secret; ValueError where a point is one of the few that no id can be."""
    secret = X25519PrivateKey.from_private_bytes(mask)
    return _stack([secret.exchange(X25519PublicKey.from_public_bytes(row.tobytes())) for row in points])


def points_digest(points: Bytes) -> str:
    """A digest of points in their order."""
    return hashlib.sha256(points.tobytes()).hexdigest()


def shorten_points(points: Bytes) -> Bytes:
    """(n, 16) equal where the points are."""
    return _stack([hashlib.sha256(row.tobytes()).digest()[:HASH_BYTES] for row in points])


def _stack(rows: list[bytes]) -> Bytes:
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(len(rows), -1)
