"""Packed biased coins from a cryptographic keystream: 64 to a word, exact to 2^-64.

A coin shows heads if a uniform 64-bit number is below a threshold T = theta * 2^64. Its bits are
compared with T's from the top, one *plane* (one bit of 64 coins in a word) at a time, so a word's
64 coins are decided by a few logical operations. After 4 planes a coin is still undecided with
probability 1/16. Those few take their answer from a second, smaller batch of coins that compares
the next 8 bits, and the 1/4096 undecided after that take a 64-bit word each. So a coin costs
about 4.6 random bits instead of 64, and its distribution is exactly that of comparing all 64 bits.
"""

from __future__ import annotations

import math
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from verticopula.privacy.noise import Keystream

_FIRST = 4  # planes compared for every coin
_SECOND = 8  # planes compared for the coins that are still undecided
_REST = 64 - _FIRST - _SECOND
_PAD = 16  # room that the keystream wants behind its output
ALL_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)
_U = np.uint64


def flip_threshold(epsilon: float) -> int:
    """T = theta * 2^64 for theta = 1/(1+exp(epsilon)), rounded up.

    Rounding up flips a little more often than asked, so the true epsilon is never above
    `epsilon`. The added 2^-50 covers the rounding of `exp` and of the division.
    """
    decay = math.exp(-epsilon)
    theta = decay / (1.0 + decay)
    return min(max(math.ceil(math.ldexp(theta * (1.0 + 2.0**-50), 64)), 1), 2**63)


def flip_probability(epsilon: float) -> float:
    """The probability with which coins made for `epsilon` show heads."""
    return flip_threshold(epsilon) / 2**64


class CoinStream:
    """An endless supply of packed coins with one probability of heads. Not thread-safe."""

    def __init__(self, keystream: Keystream, threshold: int) -> None:
        if not 0 < threshold <= 2**63:
            raise ValueError("threshold must be in (0, 2^63]")
        self._keystream = keystream
        bits = [ALL_ONES if threshold >> (63 - k) & 1 else _U(0) for k in range(_FIRST + _SECOND)]
        self._threshold = np.array(bits, dtype=np.uint64)
        self._rest = _U(threshold & (2**_REST - 1))
        self._buffer = np.empty(0, dtype=np.uint8)
        self._scratch = np.empty(0, dtype=np.uint64)

    def draw(self, count: int) -> NDArray[np.uint64]:
        """`count` words of 64 independent coins each.

        The returned array is reused by the next call.
        """
        if self._scratch.size < 2 * count:
            self._scratch = np.empty(2 * count, dtype=np.uint64)
        coins, undecided = self._scratch[:count], self._scratch[count : 2 * count]
        first_planes(self._words(_FIRST * count), self._threshold, coins, undecided)
        # Every stage draws exactly what the one before left open. Nothing is ever thrown away:
        # a batch with many undecided coins is not like other batches.
        needed = count_bits(undecided) // 64 + 2
        heads, equal = second_planes(self._words(_SECOND * needed), self._threshold)
        decide_last(heads, equal, self._keystream.words(count_bits(equal)), self._rest)
        deposit_answers(coins, undecided, heads)
        return coins

    def _words(self, count: int) -> NDArray[np.uint64]:
        if self._buffer.size < 8 * count + _PAD:
            self._buffer = np.empty(8 * count + _PAD, dtype=np.uint8)
        self._keystream.fill(self._buffer, 8 * count)
        return self._buffer[: 8 * count].view(np.uint64)


@intrinsic
def popcount(typing_context: Any, word: Any) -> Any:
    """Number of set bits of a 64-bit word."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), codegen


@intrinsic
def _deposit_bits_x86(typing_context: Any, source: Any, mask: Any) -> Any:
    """The processor's own `pdep`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        word = ir.IntType(64)
        pdep = builder.module.declare_intrinsic("llvm.x86.bmi.pdep.64", fnty=ir.FunctionType(word, [word, word]))
        return builder.call(pdep, args)

    return types.uint64(types.uint64, types.uint64), codegen


@njit(nogil=True, cache=True)
def deposit_bits_portable(source: np.uint64, mask: np.uint64) -> np.uint64:
    """The lowest bits of `source`, in order, at the set bits of `mask`; zero elsewhere."""
    result = _U(0)
    while mask:
        lowest = mask & (~mask + _U(1))
        if source & _U(1):
            result |= lowest
        source >>= _U(1)
        mask ^= lowest
    return result


def _processor_has_pdep() -> bool:
    return bool(llvm.get_host_cpu_features().get("bmi2", False))


deposit_bits = _deposit_bits_x86 if _processor_has_pdep() else deposit_bits_portable


@njit(nogil=True, cache=True)
def first_planes(
    random: NDArray[np.uint64],
    threshold: NDArray[np.uint64],
    below: NDArray[np.uint64],
    undecided: NDArray[np.uint64],
) -> None:
    """Compare the top 4 bits of every coin. Written out, because that is what vectorises."""
    count = below.size
    r0, r1, r2, r3 = random[:count], random[count : 2 * count], random[2 * count : 3 * count], random[3 * count :]
    t0, t1, t2, t3 = threshold[0], threshold[1], threshold[2], threshold[3]
    for i in range(count):
        differs = r0[i] ^ t0
        heads = differs & t0
        equal = ~differs
        differs = r1[i] ^ t1
        heads |= equal & differs & t1
        equal &= ~differs
        differs = r2[i] ^ t2
        heads |= equal & differs & t2
        equal &= ~differs
        differs = r3[i] ^ t3
        below[i] = heads | (equal & differs & t3)
        undecided[i] = equal & ~differs


@njit(nogil=True, cache=True)
def second_planes(
    random: NDArray[np.uint64], threshold: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Compare bits 5 to 12 of fresh coins: those below the threshold, and those still equal to it."""
    count = random.size // _SECOND
    heads = np.zeros(count, dtype=np.uint64)
    equal = np.full(count, ALL_ONES, dtype=np.uint64)
    for k in range(_SECOND):
        t = threshold[_FIRST + k]
        plane = random[k * count : (k + 1) * count]
        for w in range(count):
            differs = plane[w] ^ t
            heads[w] |= equal[w] & differs & t
            equal[w] &= ~differs
    return heads, equal


@njit(nogil=True, cache=True)
def decide_last(
    heads: NDArray[np.uint64], equal: NDArray[np.uint64], last: NDArray[np.uint64], rest: np.uint64
) -> None:
    """Decide each coin that equals the threshold in 12 bits by the other 52, one word of `last` each."""
    used = 0
    for w in range(heads.size):
        mask = equal[w]
        while mask:
            if last[used] >> _U(64 - _REST) < rest:
                heads[w] |= mask & (~mask + _U(1))
            mask &= mask - _U(1)
            used += 1


@njit(nogil=True, cache=True)
def deposit_answers(below: NDArray[np.uint64], undecided: NDArray[np.uint64], answers: NDArray[np.uint64]) -> None:
    """Give the undecided coins the answers, bit by bit in order; one word more than needed must be there."""
    position = 0
    for i in range(undecided.size):
        word, shift = position >> 6, _U(position & 63)
        bits = (answers[word] >> shift) | ((answers[word + 1] << _U(1)) << (_U(63) - shift))
        mask = undecided[i]
        below[i] |= deposit_bits(bits, mask)
        position += popcount(mask)


@njit(nogil=True, cache=True)
def count_bits(words: NDArray[np.uint64]) -> int:
    """Number of set bits of all words."""
    total = _U(0)
    for i in range(words.size):
        total += popcount(words[i])
    return int(total)
