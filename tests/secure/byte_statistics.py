"""Whether bytes look like uniform ones."""

from __future__ import annotations

import numpy as np
from scipy.stats import chi2


def low_bytes(elements: bytes) -> bytes:
    """All but the highest byte of every field element: they are below 2^61."""
    return np.frombuffer(elements, dtype=np.uint8).reshape(-1, 8)[:, :7].tobytes()


def chi_square_of_bytes(data: bytes) -> float:
    """The probability of byte counts as uneven as these, if all bytes are equally likely."""
    counts = np.bincount(np.frombuffer(data, dtype=np.uint8), minlength=256)
    expected = len(data) / 256
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), 255))
