"""Values to ranks, ranks to flipped comparisons, flipped comparisons to debiased ranks.

Conventions: `n` subjects have a value; ranks run from 1 to n. Subjects are worked on in increasing
order of their values; `lower[s]` and `upper[s]` are the first place of s's ties and the first
place after them. A comparison of s < t is true ("t is larger") if t >= upper[s], and a tie is a
fair coin. So with f_st = 1 where a comparison's coin says "s is larger",

    noisy rank of s  =  1 + s - sum_{t<s} f_ts + sum_{t>s} f_st,

column sums and row sums of a triangular matrix of coins that is never stored.

Breaking ties by row number, as the paper's v_ii' does, gives two independent binary columns the
same artificial order. Breaking them once per column at random is right on average but adds the
noise of a random order to every discrete column. One fair coin per tied comparison costs no more
privacy (it is closer to both answers than they are to each other), and its noise averages out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from verticopula.privacy.coins import ALL_ONES, CoinStream, count_bits, flip_threshold
from verticopula.privacy.noise import Keystream

Ints = NDArray[np.int64]
ShortInts = NDArray[np.int32]  # of a subject's place: nobody ranks more than two thousand million
Words = NDArray[np.uint64]

_U = np.uint64
_ROWS = 16  # rows of coins added up together
_CHUNK = 1 << 14  # words of coins drawn together: they and their random bits stay in the L2 cache
_LARGEST_SHORT = 2**16 - 1
_PLANES = 10  # bits of the column counters; they are emptied before 2^10 rows


class FairCoins:
    """Packed fair coins: the keystream itself."""

    def __init__(self, keystream: Keystream) -> None:
        self._keystream = keystream

    def draw(self, count: int) -> Words:
        """`count` words of 64 independent fair coins each."""
        return self._keystream.words(count)


def sort_with_ties(values: NDArray[np.float64]) -> tuple[Ints, Ints, Ints]:
    """Order of the values, equal ones as they came, and for each place in it where its ties begin and end."""
    if _are_short(values):
        order = np.argsort(values.astype(np.uint16), kind="stable")  # numpy's radix sort: five times as fast
        return order, *_find_ties(values[order])
    order = np.argsort(values)  # vectorised, but not stable
    lower, upper = _find_ties(values[order])
    if np.any(upper - lower > 1):
        order = np.argsort(values, kind="stable")
    return order, lower, upper


def find_places(values: NDArray[Any]) -> tuple[ShortInts, ShortInts]:
    """Per subject, how many values are smaller than its own, and how many are not larger."""
    if _are_short(values):
        codes = values.astype(np.uint16)
        ends = np.cumsum(np.bincount(codes))
        starts = np.concatenate([[0], ends[:-1]])
        return starts.astype(np.int32)[codes], ends.astype(np.int32)[codes]
    lower, upper = np.empty(values.size, dtype=np.int32), np.empty(values.size, dtype=np.int32)
    _place_ties(values, np.argsort(values), lower, upper)
    return lower, upper


@njit(nogil=True, cache=True)
def _place_ties(values: NDArray[np.float64], order: Ints, lower: ShortInts, upper: ShortInts) -> None:
    """Fill in both by subject, where `order` sorts the values."""
    start = 0
    while start < order.size:
        end = start + 1
        while end < order.size and values[order[end]] == values[order[start]]:
            end += 1
        for place in range(start, end):
            lower[order[place]] = start
            upper[order[place]] = end
        start = end


def _are_short(values: NDArray[Any]) -> bool:
    """Whether all are whole numbers of 16 bits, as categories and most counts are."""
    if values.size == 0 or not (values.min() >= 0.0 and values.max() <= _LARGEST_SHORT):
        return False
    return bool(np.array_equal(values, values.astype(np.uint16)))


def _find_ties(ordered: NDArray[np.float64]) -> tuple[Ints, Ints]:
    """For each of the sorted values, the first place of those equal to it and the first place after them."""
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])[: ordered.size])
    sizes = np.diff(starts, append=ordered.size)
    return np.repeat(starts, sizes), np.repeat(starts + sizes, sizes)


def flip_comparisons(values: NDArray[np.float64], epsilon: float, keystream: Keystream) -> Ints:
    """Noisy ranks from one coin for each of the n(n-1)/2 comparisons. Implements Eq. (1).

    Parameters
    ----------
    values : (n,) finite numbers
    epsilon : per comparison; each is flipped with probability 1/(1+exp(epsilon))

    Returns
    -------
    (n,) noisy ranks in 1..n

    Privacy
    -------
    Leaves the party. Each comparison is epsilon-differentially private; replacing one subject's
    value changes at most n-1 comparisons (see `privacy.accounting`).

    Notes
    -----
    O(n^2) time, O(n) memory.
    """
    order, lower, upper = sort_with_ties(values)
    rows, columns = sum_triangle(upper, CoinStream(keystream, flip_threshold(epsilon)))
    noisy = 1 + lower - columns + rows + _break_ties(lower, upper, keystream)
    ranks = np.empty(values.size, dtype=np.int64)
    ranks[order] = noisy
    return ranks


def sum_triangle(upper: Ints, coins: CoinStream | FairCoins) -> tuple[Ints, Ints]:
    """Row sums and column sums of coins f_st for t >= upper[s], where s < upper[s] never falls."""
    n = upper.size
    n_words = -(-n // 64)
    row_sums = np.zeros(n, dtype=np.int64)
    column_sums = np.zeros(n, dtype=np.int64)
    counters = np.zeros((_PLANES, n_words), dtype=np.uint64)
    n_rows = int(np.searchsorted(upper, n))
    row, pending = 0, 0
    while row < n_rows:
        first_word = int(upper[row]) // 64
        width = n_words - first_word
        # All rows of a chunk are as wide as its first: few rows when they are short, to waste little.
        blocks = max(1, min(max(_CHUNK // width, _ROWS), max(8 * width, 64), n_rows - row) // _ROWS)
        matrix = coins.draw(blocks * _ROWS * width).reshape(blocks * _ROWS, width)
        pending = _add_rows(matrix, row, first_word, upper, row_sums, column_sums, counters, pending)
        row += blocks * _ROWS
    _empty_counters(counters, column_sums)
    return row_sums, column_sums


def _break_ties(lower: Ints, upper: Ints, keystream: Keystream) -> Ints:
    """Number of its tied comparisons that each place wins, by fair coins."""
    wins = np.zeros(lower.size, dtype=np.int64)
    starts = np.flatnonzero((lower == np.arange(lower.size)) & (upper - lower > 1))
    sizes = (upper - lower)[starts]
    for start, size in zip(starts[sizes > 64], sizes[sizes > 64], strict=True):
        rows, columns = sum_triangle(np.arange(1, size + 1), FairCoins(keystream))
        wins[start : start + size] = rows + np.arange(size) - columns
    small = sizes <= 64
    pairs = sizes[small] * (sizes[small] - 1) // 2
    _break_small_ties(starts[small], sizes[small], keystream.words(int(pairs.sum()) // 64 + 1), wins)
    return wins


@njit(nogil=True, cache=True)
def _break_small_ties(starts: Ints, sizes: Ints, coins: Words, wins: Ints) -> None:
    used = 0
    for g in range(starts.size):
        for s in range(starts[g], starts[g] + sizes[g]):
            for t in range(s + 1, starts[g] + sizes[g]):
                heads = (coins[used >> 6] >> _U(used & 63)) & _U(1)
                used += 1
                if heads:
                    wins[s] += 1
                else:
                    wins[t] += 1


@njit(nogil=True, cache=True)
def _add_rows(
    matrix: Words,
    first_row: int,
    first_word: int,
    upper: Ints,
    row_sums: Ints,
    column_sums: Ints,
    counters: Words,
    pending: int,
) -> int:
    """Add rows of coins to the sums; returns how many rows the column counters hold."""
    n = upper.size
    for r in range(matrix.shape[0]):
        row = first_row + r
        flips = matrix[r]
        start = upper[row] if row < n else n
        _keep_bits(flips, start - 64 * first_word, n - 64 * first_word)
        if row < n:
            row_sums[row] = count_bits(flips)
    for block in range(matrix.shape[0] // _ROWS):
        if pending + _ROWS >= 1 << _PLANES:
            _empty_counters(counters, column_sums)
            pending = 0
        _add_block(matrix[block * _ROWS : (block + 1) * _ROWS], counters[:, first_word:])
        pending += _ROWS
    return pending


@njit(nogil=True, cache=True)
def _keep_bits(flips: Words, start: int, end: int) -> None:
    """Clear the bits before `start` and from `end` on."""
    for w in range(flips.size):
        if start <= 64 * w and end >= 64 * w + 64:
            break
        if start >= 64 * w + 64 or start >= end:
            flips[w] = _U(0)
        elif start > 64 * w:
            flips[w] &= ALL_ONES << _U(start - 64 * w)
    last = flips.size - 1
    if end < 64 * flips.size and end > 64 * last:
        flips[last] &= ALL_ONES >> _U(64 * flips.size - end)


@njit(nogil=True, inline="always", cache=True)
def _add_three(a: np.uint64, b: np.uint64, c: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Full adder on 64 lanes: (sum bit, carry bit)."""
    half = a ^ b
    return half ^ c, (a & b) | (half & c)


@njit(nogil=True, cache=True)
def _add_block(rows: Words, counters: Words) -> None:
    """Add 16 rows to bit-sliced counters (plane k holds bit k of 64 column counts a word).

    A tree of full adders (Harley and Seal), written out because that is what vectorises.
    """
    f0, f1, f2, f3, f4, f5, f6, f7 = rows[0], rows[1], rows[2], rows[3], rows[4], rows[5], rows[6], rows[7]
    f8, f9, f10, f11, f12, f13, f14, f15 = rows[8], rows[9], rows[10], rows[11], rows[12], rows[13], rows[14], rows[15]
    c0, c1, c2, c3, c4 = counters[0], counters[1], counters[2], counters[3], counters[4]
    c5, c6, c7, c8, c9 = counters[5], counters[6], counters[7], counters[8], counters[9]
    for i in range(rows.shape[1]):
        one, two, four = c0[i], c1[i], c2[i]
        one, a = _add_three(one, f0[i], f1[i])
        one, b = _add_three(one, f2[i], f3[i])
        two, p = _add_three(two, a, b)
        one, a = _add_three(one, f4[i], f5[i])
        one, b = _add_three(one, f6[i], f7[i])
        two, q = _add_three(two, a, b)
        four, u = _add_three(four, p, q)
        one, a = _add_three(one, f8[i], f9[i])
        one, b = _add_three(one, f10[i], f11[i])
        two, p = _add_three(two, a, b)
        one, a = _add_three(one, f12[i], f13[i])
        one, b = _add_three(one, f14[i], f15[i])
        two, q = _add_three(two, a, b)
        four, v = _add_three(four, p, q)
        eight, carry = _add_three(c3[i], u, v)
        c0[i], c1[i], c2[i], c3[i] = one, two, four, eight
        a = c4[i]
        c4[i] = a ^ carry
        carry &= a
        a = c5[i]
        c5[i] = a ^ carry
        carry &= a
        a = c6[i]
        c6[i] = a ^ carry
        carry &= a
        a = c7[i]
        c7[i] = a ^ carry
        carry &= a
        a = c8[i]
        c8[i] = a ^ carry
        carry &= a
        c9[i] ^= carry


@njit(nogil=True, cache=True)
def _empty_counters(counters: Words, column_sums: Ints) -> None:
    """Move the counters' content to the column sums."""
    for w in range(counters.shape[1]):
        for k in range(_PLANES):
            plane = counters[k, w]
            counters[k, w] = _U(0)
            for j in range(min(64, column_sums.size - 64 * w)):
                column_sums[64 * w + j] += np.int64(((plane >> _U(j)) & _U(1)) << _U(k))


def debias_ranks(ranks_noisy: Ints, flip_prob: float) -> NDArray[np.float64]:
    """Ranks whose expectation over the coins is the true rank (the mid-rank of ties). Implements Eq. (2).

    Summing the debiased comparisons (v - theta)/(1 - 2 theta) of one subject gives
    R_d = 1 + (R - 1 - (n-1) theta) / (1 - 2 theta).
    """
    n = ranks_noisy.size
    return np.asarray(1.0 + (ranks_noisy - 1.0 - (n - 1) * flip_prob) / (1.0 - 2.0 * flip_prob))


def rank_noise_variance(n: int, flip_prob: float, tied_share: float = 0.0) -> float:
    """Variance that the coins add to a debiased rank among n.

    `tied_share` is the share of comparisons that are ties: fair coins vary a little more.
    """
    per_coin = (1.0 - tied_share) * flip_prob * (1.0 - flip_prob) + tied_share * 0.25
    return max(n - 1, 0) * per_coin / (1.0 - 2.0 * flip_prob) ** 2
