"""Replicated secret sharing among three compute parties, and the Gram matrix of what nobody sees.

A matrix of integers is X = S_0 + S_1 + S_2 in Z_2^64, entry by entry. S_0 and S_1 are keystreams, so a 16-byte seed
stands for each; S_2 is what is missing. Compute party i holds S_i and S_{i+1} (indices modulo 3): any two parties'
shares give X, and any one's are uniform whatever X is. Since

    X'X = sum_i (S_i'S_i + S_i'S_{i+1} + S_{i+1}'S_i),

compute party i can add up the i-th term alone. Before it is sent, each gets a share of zero from keys that every two
of them have in common, so that two of the three terms say nothing but their sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numba import njit
from numpy.typing import NDArray

from verticopula.errors import ProtocolError
from verticopula.privacy.noise import Keystream

Ring = NDArray[np.uint64]
Ints = NDArray[np.int64]

COMPUTE = 3
SEED_BYTES = 16
SEEDED = (0, 1)  # the shares that are keystreams; the third one is sent in full


def expand_seed(seed: bytes, shape: tuple[int, int]) -> Ring:
    """The share that a seed stands for. A seed is used for one matrix only."""
    if len(seed) != SEED_BYTES:
        raise ProtocolError(f"a seed has {SEED_BYTES} bytes")
    return Keystream(seed).words(shape[0] * shape[1]).reshape(shape)


def third_share(values: Ints, seeds: tuple[bytes, bytes]) -> Ring:
    """S_2 = X - S_0 - S_1: the share that no seed stands for."""
    if values.dtype != np.int64 or values.ndim != 2:
        raise ProtocolError("only a matrix of 64-bit integers can be shared")
    rest = np.ascontiguousarray(values).view(np.uint64) - expand_seed(seeds[0], values.shape)
    rest -= expand_seed(seeds[1], values.shape)
    return np.asarray(rest)


def to_bytes(share: Ring) -> bytes:
    return share.astype("<u8", copy=False).tobytes()


def from_bytes(data: bytes, shape: tuple[int, int]) -> Ring:
    """A share that was sent in full; ProtocolError where it has another shape."""
    if len(data) != 8 * shape[0] * shape[1]:
        raise ProtocolError("a share does not have the shape that the plan says")
    return np.frombuffer(data, dtype="<u8").astype(np.uint64, copy=False).reshape(shape)


def held_indices(index: int) -> tuple[int, int]:
    """Which two shares compute party `index` holds."""
    return index, (index + 1) % COMPUTE


def seeds_for(index: int, seeds: tuple[bytes, bytes]) -> tuple[bytes, ...]:
    """The seeds that compute party `index` gets, in the order of its shares."""
    return tuple(seeds[i] for i in held_indices(index) if i in SEEDED)


def held_shares(index: int, shape: tuple[int, int], seeds: Sequence[bytes], body: bytes) -> tuple[Ring, Ring]:
    """The two shares of one matrix that compute party `index` was sent as `seeds_for` and the third one's bytes."""
    held = held_indices(index)
    if len(seeds) != sum(i in SEEDED for i in held):
        raise ProtocolError("a compute party was sent shares that are not its own")
    left = iter(seeds)
    first, second = (expand_seed(next(left), shape) if i in SEEDED else from_bytes(body, shape) for i in held)
    if all(i in SEEDED for i in held) and body:
        raise ProtocolError("a compute party was sent a share that is not its own")
    return first, second


def public_share(index: int, shape: tuple[int, int], value: int) -> tuple[Ring, Ring]:
    """The two shares of a matrix that everybody knows, all of whose entries are `value`: S_0 is all of it."""
    first, second = (np.full(shape, value if i == 0 else 0, dtype=np.uint64) for i in held_indices(index))
    return first, second


@njit(cache=True, nogil=True)
def _add_terms(first: Ring, second: Ring, out: Ring) -> None:
    """out += the upper triangle of first'first + first'second + second'first, modulo 2^64."""
    n, width = first.shape
    both = np.empty(width, dtype=np.uint64)
    for i in range(n):
        for b in range(width):
            both[b] = first[i, b] + second[i, b]
        for a in range(width):
            x = first[i, a]
            y = second[i, a]
            for b in range(a, width):
                out[a, b] += x * both[b] + y * first[i, b]


def gram_share(first: Ring, second: Ring) -> Ring:
    """One compute party's term of X'X: its upper triangle, row by row, as a vector."""
    for share in (first, second):
        if share.dtype != np.uint64 or share.ndim != 2 or share.shape != first.shape:
            raise ProtocolError("shares are matrices of unsigned 64-bit integers, both of the same shape")
    out = np.zeros((first.shape[1], first.shape[1]), dtype=np.uint64)
    _add_terms(np.ascontiguousarray(first), np.ascontiguousarray(second), out)
    return np.asarray(out[np.triu_indices(first.shape[1])])


def zero_share(index: int, keys: Mapping[int, bytes], size: int) -> Ring:
    """Compute party `index`'s share of a vector of zeros, uniform to everybody who lacks one of its keys.

    `keys` : other compute party -> a key that the two have in common, for this vector only
    """
    if set(keys) != set(range(COMPUTE)) - {index}:
        raise ProtocolError("a compute party has a key in common with each of the two others")
    total = np.zeros(size, dtype=np.uint64)
    for other, key in keys.items():
        words = Keystream(key).words(size)
        total = total + words if index < other else total - words
    return total


def open_shares(shares: Sequence[Ring]) -> Ints:
    """The sum of all three compute parties' terms, as signed numbers."""
    if len(shares) != COMPUTE:
        raise ProtocolError(f"sums are opened with {COMPUTE} shares")
    for share in shares:
        if share.dtype != np.uint64 or share.shape != shares[0].shape:
            raise ProtocolError("shares of a sum are unsigned 64-bit integers of one shape")
    return (shares[0] + shares[1] + shares[2]).view(np.int64)
