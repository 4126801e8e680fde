"""Arithmetic modulo the prime p = 2^61 - 1, on arrays of unsigned 64-bit numbers below p.

A product has at most 122 bits, and 2^61 = 1 modulo p: the product is its lower 61 bits plus the rest. Gram matrices
go through floating point and stay exact: an element is split into limbs of 20, 20 and 21 bits, and sums of 2048
products of two limbs are below 2^53.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types, vectorize
from numba.extending import intrinsic
from numpy.typing import NDArray

from verticopula.errors import ProtocolError
from verticopula.privacy.noise import Keystream

Field = NDArray[np.uint64]
Ints = NDArray[np.int64]

PRIME = 2**61 - 1
HALF = 2**60  # signed numbers are those below it in absolute value
ELEMENT_BYTES = 8
FIELD_SEED_BYTES = 16
_BITS = 61
LIMB_BITS = 20
LIMBS = 3
BLOCK_ROWS = 2048  # rows whose products of limbs add up below 2^53
BLOCKS_AT_ONCE = 1024  # blocks whose sums add up below 2^63
_DRAWN = 2**14  # elements drawn at a time; part of what a seed means
PRIME_WORD = np.uint64(PRIME)
LIMB_MASK = np.uint64(2**LIMB_BITS - 1)


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


@vectorize(["uint64(uint64, uint64)"], cache=True)
def _add(first: Any, second: Any) -> Any:
    return add_one(first, second)


@vectorize(["uint64(uint64, uint64)"], cache=True)
def _subtract(first: Any, second: Any) -> Any:
    return first - second if first >= second else first + (PRIME_WORD - second)


@vectorize(["uint64(uint64, uint64)"], cache=True)
def _multiply(first: Any, second: Any) -> Any:
    return multiply_one(first, second)


def add(first: Field, second: Field) -> Field:
    """first + second, entry by entry."""
    return np.asarray(_add(first, second), dtype=np.uint64)


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


def draw_field(stream: Keystream, count: int) -> Field:
    """`count` uniform elements: 61 bits of a word each; the one value that is too large is drawn again."""
    values = stream.words(count) & PRIME_WORD
    again = np.flatnonzero(values == PRIME_WORD)
    while again.size:
        values[again] = stream.words(again.size) & PRIME_WORD
        again = again[values[again] == PRIME_WORD]
    return values


def expand_field(seed: bytes, shape: tuple[int, ...]) -> Field:
    """The elements that a seed stands for. A seed is used for one array only."""
    out = np.empty(shape, dtype=np.uint64)
    flat = out.reshape(-1)
    for start, block in _expand_blocks(seed, flat.size):
        flat[start : start + block.size] = block
    return out


def subtract_expanded(values: Field, seeds: Sequence[bytes]) -> Field:
    """`values` minus what each seed stands for in this shape; faster than one after the other."""
    out = values.copy()
    flat = out.reshape(-1)
    for blocks in zip(*(_expand_blocks(seed, flat.size) for seed in seeds), strict=True):
        for start, block in blocks:
            part = flat[start : start + block.size]
            _subtract(part, block, out=part)
    return out


def _expand_blocks(seed: bytes, count: int) -> Iterator[tuple[int, Field]]:
    """Starts and blocks, small enough to stay in the processor's cache."""
    if len(seed) != FIELD_SEED_BYTES:
        raise ProtocolError(f"a seed has {FIELD_SEED_BYTES} bytes")
    stream = Keystream(seed)
    for start in range(0, count, _DRAWN):
        yield start, draw_field(stream, min(_DRAWN, count - start))


# ---- Gram matrices -----------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _split(values: Field, out: NDArray[np.float64]) -> None:
    """The limbs of each element: the lowest ones of a row first, then the middle ones, then the highest ones."""
    rows, width = values.shape
    for i in range(rows):
        for j in range(width):
            value = values[i, j]
            out[i, j] = np.float64(np.int64(value & LIMB_MASK))
            out[i, width + j] = np.float64(np.int64((value >> np.uint64(LIMB_BITS)) & LIMB_MASK))
            out[i, 2 * width + j] = np.float64(np.int64(value >> np.uint64(2 * LIMB_BITS)))


def gram(matrix: Field) -> Field:
    """X'X of an (n, q) matrix: (q, q), symmetric."""
    if matrix.dtype != np.uint64 or matrix.ndim != 2:
        raise ProtocolError("a Gram matrix is that of a matrix of field elements")
    rows, width = matrix.shape
    parts = np.zeros((LIMBS * width, LIMBS * width), dtype=np.uint64)
    buffer = np.empty((min(BLOCK_ROWS, rows), LIMBS * width))
    for number, start in enumerate(range(0, rows, BLOCK_ROWS)):
        block = np.ascontiguousarray(matrix[start : start + BLOCK_ROWS])
        limbs = buffer[: block.shape[0]]
        _split(block, limbs)
        parts += (limbs.T @ limbs).astype(np.uint64)
        if number % BLOCKS_AT_ONCE == BLOCKS_AT_ONCE - 1:
            parts %= PRIME_WORD
    parts %= PRIME_WORD
    blocks = parts.reshape(LIMBS, width, LIMBS, width)
    out = np.zeros((width, width), dtype=np.uint64)
    for a in range(LIMBS):
        for b in range(LIMBS):
            out = add(out, multiply(blocks[a, :, b], element(1 << LIMB_BITS * (a + b))))
    return out


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
