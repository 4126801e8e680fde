"""Arithmetic modulo the prime p = 2^61 - 1, on arrays of unsigned 64-bit numbers below p.

A product has at most 122 bits, and 2^61 = 1 modulo p: the product is its lower 61 bits plus the rest. Sums of many
products are in `limb_products.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types, vectorize
from numba.extending import intrinsic
from numpy.typing import NDArray

from verticopula.errors import ProtocolError
from verticopula.privacy.noise import KEYSTREAM_SPARE, Keystream

Field = NDArray[np.uint64]
Ints = NDArray[np.int64]

PRIME = 2**61 - 1
HALF = 2**60  # signed numbers are those below it in absolute value
ELEMENT_BYTES = 8
FIELD_SEED_BYTES = 16
_BITS = 61
_DRAWN = 2**14  # elements drawn at a time; part of what a seed means
PRIME_WORD = np.uint64(PRIME)


@intrinsic
def multiply_one(typing_context: Any, first: Any, second: Any) -> Any:
    """The product of two elements, inside compiled functions."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word, wide = ir.IntType(64), ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        low = builder.and_(builder.trunc(product, word), word(PRIME))
        total = builder.add(low, builder.trunc(builder.lshr(product, wide(_BITS)), word))
        return builder.select(builder.icmp_unsigned(">=", total, word(PRIME)), builder.sub(total, word(PRIME)), total)

    return types.uint64(types.uint64, types.uint64), codegen


@njit(cache=True, nogil=True)
def add_one(first: np.uint64, second: np.uint64) -> np.uint64:
    """The sum of two elements, inside compiled functions."""
    total = first + second
    return total - PRIME_WORD if total >= PRIME_WORD else total


@njit(cache=True, nogil=True)
def _multiply_halves(first: np.uint64, second: np.uint64) -> np.uint64:
    """The product of two elements by products of their halves, x_0 + 2^31 x_1: for vectors, which have no others."""
    half, middle = np.uint64(2**31 - 1), np.uint64(2**30 - 1)
    low, high = first & half, first >> np.uint64(31)
    other_low, other_high = second & half, second >> np.uint64(31)
    cross = low * other_high + high * other_low
    total = low * other_low + ((cross & middle) << np.uint64(31))
    total = (
        (total & PRIME_WORD) + (total >> np.uint64(61)) + (cross >> np.uint64(30)) + high * other_high * np.uint64(2)
    )
    total = (total & PRIME_WORD) + (total >> np.uint64(61))
    return min(total, total - PRIME_WORD)


@vectorize(["uint64(uint64, uint64)"], cache=True)
def _add(first: Any, second: Any) -> Any:
    return add_one(first, second)


@vectorize(["uint64(uint64, uint64)"], cache=True)
def _subtract(first: Any, second: Any) -> Any:
    return first - second if first >= second else first + (PRIME_WORD - second)


# Written over the first of two arrays: compiled to vectors. What is below 0 is a large number, so the least is right.


@njit(cache=True, nogil=True)
def _add_to(first: Field, second: Field) -> None:
    for i in range(first.size):
        total = first[i] + second[i]
        first[i] = min(total, total - PRIME_WORD)


@njit(cache=True, nogil=True)
def _subtract_from(first: Field, second: Field) -> None:
    for i in range(first.size):
        total = first[i] - second[i]
        first[i] = min(total, total + PRIME_WORD)


@njit(cache=True, nogil=True)
def _add_multiple_to(first: Field, second: Field, factor: np.uint64) -> None:
    for i in range(first.size):
        total = first[i] + _multiply_halves(second[i], factor)
        first[i] = min(total, total - PRIME_WORD)


@vectorize(["uint64(uint64, uint64)"], cache=True)
def _multiply(first: Any, second: Any) -> Any:
    return multiply_one(first, second)


def add(first: Field, second: Field) -> Field:
    """first + second, entry by entry."""
    return np.asarray(_add(first, second), dtype=np.uint64)


def add_into(first: Field, second: Field) -> Field:
    """first + second, written over `first`; both are contiguous."""
    _add_to(_flat(first), _flat(second))
    return first


def add_multiple(first: Field, second: Field, factor: np.uint64) -> Field:
    """first + factor * second, written over `first`; both are contiguous."""
    _add_multiple_to(_flat(first), _flat(second), factor)
    return first


def _flat(values: Field) -> Field:
    """The same numbers in one dimension, in the same memory."""
    if not values.flags.c_contiguous:
        raise ProtocolError("field elements are not contiguous")
    return values.reshape(-1)


def subtract(first: Field, second: Field) -> Field:
    """first - second, entry by entry."""
    return np.asarray(_subtract(first, second), dtype=np.uint64)


def multiply(first: Field, second: Field | np.uint64) -> Field:
    """first * second, entry by entry."""
    return np.asarray(_multiply(first, second), dtype=np.uint64)


def element(value: int) -> np.uint64:
    """Any whole number as an element."""
    return np.uint64(value % PRIME)


def invert(value: int) -> int:
    """The element whose product with `value` is 1; ProtocolError for 0."""
    if value % PRIME == 0:
        raise ProtocolError("zero has no inverse")
    return pow(value, -1, PRIME)


def total_of(values: Field) -> int:
    """The sum of all entries."""
    low, high = values & np.uint64(2**32 - 1), values >> np.uint64(32)
    return (int(low.sum(dtype=np.uint64)) + (int(high.sum(dtype=np.uint64)) << 32)) % PRIME


def inner_product(first: Field, second: Field) -> int:
    """The sum of first * second over all entries."""
    return total_of(multiply(first, second))


# ---- signed numbers and bytes ------------------------------------------------------------


def encode_signed(values: Ints) -> Field:
    """Signed 64-bit integers modulo p. `decode_signed` returns those below 2^60 in absolute value."""
    if values.dtype != np.int64:
        raise ProtocolError("only 64-bit integers can be encoded")
    return np.asarray(np.mod(values, np.int64(PRIME)).astype(np.uint64))


def decode_signed(values: Field) -> Ints:
    """Elements as signed numbers of absolute value below 2^60."""
    signed = values.astype(np.int64)
    return np.asarray(np.where(signed >= HALF, signed - np.int64(PRIME), signed))


def pack_field(values: Field) -> bytes:
    """Elements as bytes, eight each."""
    return values.astype("<u8", copy=False).tobytes()


def unpack_field(data: bytes, shape: tuple[int, ...]) -> Field:
    """Elements from bytes; ProtocolError where they have another shape or are not below p."""
    if len(data) != ELEMENT_BYTES * int(np.prod(shape, dtype=np.int64)):
        raise ProtocolError("field elements do not have the shape that the plan says")
    values = np.frombuffer(data, dtype="<u8").astype(np.uint64, copy=False).reshape(shape)
    if values.size and int(values.max()) >= PRIME:
        raise ProtocolError("a number is not an element of the field")
    return values


# ---- uniform elements --------------------------------------------------------------------


def draw_field(stream: Keystream, count: int, room: NDArray[np.uint8] | None = None) -> Field:
    """`count` uniform elements: 61 bits of a word each; the one value that is too large is drawn again.

    Parameters
    ----------
    room : where they may be written; None for fresh memory
    """
    values = stream.words(count, room)
    if _keep_bits(values):
        again = np.flatnonzero(values == PRIME_WORD)
        while again.size:
            values[again] = stream.words(again.size) & PRIME_WORD
            again = again[values[again] == PRIME_WORD]
    return values


@njit(cache=True, nogil=True)
def _keep_bits(words: Field) -> bool:
    """Keep 61 bits of each word; whether one of them is now too large."""
    found = np.uint64(0)
    for i in range(words.size):
        words[i] &= PRIME_WORD
        found |= np.uint64(words[i] == PRIME_WORD)
    return bool(found)


class FieldStream:
    """The elements that a seed stands for, some at a time: however they are cut, they are the same.

    A seed is used for one array only.

    Parameters
    ----------
    seed : 16 bytes
    size : of the whole array
    """

    def __init__(self, seed: bytes, size: int) -> None:
        if len(seed) != FIELD_SEED_BYTES:
            raise ProtocolError(f"a seed has {FIELD_SEED_BYTES} bytes")
        self._stream = Keystream(seed)
        self._to_draw = size
        self._room = np.empty(ELEMENT_BYTES * min(_DRAWN, size) + KEYSTREAM_SPARE, dtype=np.uint8)
        self._drawn = np.empty(0, dtype=np.uint64)  # small enough to stay in the processor's cache

    def add_to(self, out: Field) -> None:
        """Add the next elements to a contiguous array."""
        self._combine(_add_to, out)

    def subtract_from(self, out: Field) -> None:
        """Subtract the next elements from a contiguous array."""
        self._combine(_subtract_from, out)

    def _combine(self, operation: Any, out: Field) -> None:
        flat, done = _flat(out), 0
        while done < flat.size:
            if not self._drawn.size:
                self._drawn = draw_field(self._stream, min(_DRAWN, self._to_draw), self._room)
                self._to_draw -= self._drawn.size
            part = flat[done : done + self._drawn.size]
            operation(part, self._drawn[: part.size])
            self._drawn = self._drawn[part.size :]
            done += part.size


def expand_field(seed: bytes, shape: tuple[int, ...]) -> Field:
    """All elements that a seed stands for, in this shape."""
    out = np.zeros(shape, dtype=np.uint64)
    FieldStream(seed, out.size).add_to(out)
    return out


# ---- weighted Gram matrices ----------------------------------------------------------------


def weighted_gram(matrix: Field, weights: Field) -> Field:
    """Sum over rows s of weights[s] x_s x_s' of an (n, q) matrix: (q, q), symmetric. For few columns."""
    out = np.zeros((matrix.shape[1], matrix.shape[1]), dtype=np.uint64)
    _add_weighted(np.ascontiguousarray(matrix), weights, out)
    return np.asarray(np.triu(out) + np.triu(out, 1).T)


@njit(cache=True, nogil=True)
def _add_weighted(matrix: Field, weights: Field, out: Field) -> None:
    rows, width = matrix.shape
    for i in range(rows):
        for a in range(width):
            scaled = multiply_one(weights[i], matrix[i, a])
            for b in range(a, width):
                out[a, b] = add_one(out[a, b], multiply_one(scaled, matrix[i, b]))
