"""Loops over the cells of a pair's table, compiled: a study of many columns goes through every pair.

What they compute stands in `table_prior.py`, for one pair and with NumPy where it is short enough. They write into
arrays that they are given: functions that Python and compiled code call must not make arrays.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
Bytes = NDArray[np.uint8]

TINY = 1e-9
SERIES_TERMS = 112  # r^k is below 1e-17 from there on, for
STRONGEST_IN_TABLES = 0.7  # correlations up to this one
_FARTHEST_CUT = 8.5
_LEAST_CELL = 1e-10
_ROUNDING_OF_MARGINS = 1e-15  # change of a table's margins that rounding alone makes
WORD_BITS = 64
_ROOT_PI = math.sqrt(2.0 * math.pi)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(32)


@njit(cache=True, nogil=True)
def scale_to_margins(table: Floats, rows: Floats, columns: Floats, rounds: int) -> None:
    """Iterative proportional fitting, written over the table; no longer than rounding lets anything change."""
    for i in range(rows.size):
        for j in range(columns.size):
            table[i, j] = max(table[i, j], _LEAST_CELL)
    sums = np.empty(columns.size)
    for _ in range(rounds):
        moved = 0.0
        sums[:] = 0.0
        for i in range(rows.size):
            total = 0.0
            for j in range(columns.size):
                total += table[i, j]
            ratio = rows[i] / max(total, TINY)
            moved = max(moved, abs(ratio - 1.0))
            for j in range(columns.size):
                table[i, j] *= ratio
                sums[j] += table[i, j]
        for j in range(columns.size):
            sums[j] = columns[j] / max(sums[j], TINY)
            moved = max(moved, abs(sums[j] - 1.0))
        for i in range(rows.size):
            for j in range(columns.size):
                table[i, j] *= sums[j]
        if moved < _ROUNDING_OF_MARGINS:
            break


@njit(cache=True, nogil=True)
def _distribution(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


@njit(cache=True, nogil=True)
def integrate_rectangles(first: Floats, second: Floats, r: float, out: Floats) -> None:
    """Chances of rectangles between cuts for two standard normals of correlation r, by integration over the angle."""
    total = np.empty((first.size, second.size))
    angle = math.asin(min(max(r, -0.9999), 0.9999))
    for i in range(first.size):
        a = min(max(first[i], -_FARTHEST_CUT), _FARTHEST_CUT)
        for j in range(second.size):
            b = min(max(second[j], -_FARTHEST_CUT), _FARTHEST_CUT)
            total[i, j] = _distribution(a) * _distribution(b)
    for node in range(_NODES.size):
        theta = 0.5 * angle * (_NODES[node] + 1.0)
        sine, half = math.sin(theta), -0.5 / math.cos(theta) ** 2
        weight = _WEIGHTS[node] * 0.5 * angle / (2.0 * math.pi)
        for i in range(first.size):
            a = min(max(first[i], -_FARTHEST_CUT), _FARTHEST_CUT)
            for j in range(second.size):
                b = min(max(second[j], -_FARTHEST_CUT), _FARTHEST_CUT)
                total[i, j] += weight * math.exp(half * (a * a + b * b - 2.0 * a * b * sine))
    for i in range(first.size - 1):
        for j in range(second.size - 1):
            own = (total[i + 1, j + 1] - total[i + 1, j]) - (total[i, j + 1] - total[i, j])
            out[i, j] = max(own, 0.0)


@njit(cache=True, nogil=True)
def write_series(cuts: Floats, out: Floats) -> None:
    """(intervals, terms) means of the orthonormal Hermite polynomials over intervals of a standard normal.

    Chances of rectangles are sums over k of r^k times two columns' terms (Mehler).
    """
    for i in range(cuts.size):
        x = min(max(cuts[i], -_FARTHEST_CUT), _FARTHEST_CUT)
        density, before, current = math.exp(-0.5 * x * x) / _ROOT_PI, 0.0, 1.0
        for k in range(SERIES_TERMS):
            if k == 0:
                own = -_distribution(x)
            else:
                own = density * current / math.sqrt(k)
                before, current = current, (x * current - math.sqrt(k - 1.0) * before) / math.sqrt(k)
            if i < cuts.size - 1:
                out[i, k] = own
            if i > 0:
                out[i - 1, k] -= own


@njit(cache=True, nogil=True)
def sum_rectangles(first: Floats, second: Floats, r: float, out: Floats) -> None:
    """The chances of rectangles by the series, for correlations up to `STRONGEST_IN_TABLES`."""
    terms, power = 1, abs(r)
    while terms < SERIES_TERMS and power > 1e-18:
        terms, power = terms + 1, power * abs(r)
    scaled = np.empty(terms)
    for i in range(len(first)):
        factor = 1.0
        for k in range(terms):
            scaled[k] = first[i, k] * factor
            factor *= r
        for j in range(len(second)):
            total = 0.0
            for k in range(terms):
                total += scaled[k] * second[j, k]
            out[i, j] = max(total, 0.0)


@njit(cache=True, nogil=True)
def likeliest_variance(squares: Floats, sizes: Floats, noise: Floats, spreads: Floats) -> tuple[float, float]:
    """tau^2 among `spreads` of numbers with variances tau^2 * sizes + noise, and its gain; zeros where none gains."""
    best, gained = 0.0, 0.0
    for spread in spreads:
        gain = 0.0
        for place in range(squares.size):
            alone = max(noise[place], TINY**2)
            above = spread * sizes[place] + alone
            gain += math.log(alone / above) + squares[place] * (1.0 / alone - 1.0 / above)
        if 0.5 * gain > gained:
            best, gained = spread, 0.5 * gain
    return best, gained


@njit(cache=True, nogil=True)
def weigh_products(
    missed: Floats,
    deviations: Floats,
    sampling: float,
    variances_a: Floats,
    variances_b: Floats,
    vectors_a: Floats,
    vectors_b: Floats,
    sizes_a: Floats,
    sizes_b: Floats,
    spreads: Floats,
) -> tuple[float, float]:
    """tau^2 and the evidence of what products of features say beyond an expected table.

    Parameters
    ----------
    missed, deviations : (k_a, k_b) that, and the standard deviations of its noise
    sampling : of people and of synthetic rows, one over how many they are
    variances_a, variances_b : of the features
    vectors_a, vectors_b, sizes_a, sizes_b : as `table_prior.ColumnSide` has them
    """
    m, n = missed.shape
    squares, sizes, noise = np.empty(m * n), np.empty(m * n), np.empty(m * n)
    for i in range(m):
        for j in range(n):
            value = variance = 0.0
            for a in range(m):
                for b in range(n):
                    own = vectors_a[a, i] * vectors_b[b, j]
                    value += own * missed[a, b]
                    variance += own * own * (deviations[a, b] ** 2 + variances_a[a] * variances_b[b] * sampling)
            squares[i * n + j], noise[i * n + j] = value * value, variance
            sizes[i * n + j] = sizes_a[i] * sizes_b[j]
    spread, gain = likeliest_variance(squares, sizes, noise, spreads)
    return spread, gain


@njit(cache=True, nogil=True)
def products_of(features_a: Floats, table: Floats, features_b: Floats, out: Floats) -> None:
    """The products of features that a table implies."""
    half = np.zeros((features_a.shape[1], table.shape[1]))
    for i in range(table.shape[0]):
        for a in range(features_a.shape[1]):
            for j in range(table.shape[1]):
                half[a, j] += features_a[i, a] * table[i, j]
    for a in range(out.shape[0]):
        for b in range(out.shape[1]):
            total = 0.0
            for j in range(table.shape[1]):
                total += half[a, j] * features_b[j, b]
            out[a, b] = total


@njit(cache=True, nogil=True)
def distances_taken(
    pairs: Ints, spreads: Floats, noises: Floats, shares: Floats, cells: Ints, factor: float, out: Floats
) -> None:
    """(m,) the total variation distance that each pair's table takes away, opened with noise of these variances.

    Parameters
    ----------
    spreads : square roots of tau^2
    shares : (p, c) of columns' cells, with so many `cells`
    factor : distance of a table whose cells deviate by a standard deviation of 1
    """
    for number in range(len(pairs)):
        a, b = pairs[number]
        noise, total = noises[number], 0.0
        for i in range(cells[a]):
            for j in range(cells[b]):
                before = spreads[number] * shares[a, i] * shares[b, j]
                total += before - math.sqrt(before * before * noise / (before * before + noise))
        out[number] = factor * total


# ---- counts ------------------------------------------------------------------------------


@intrinsic
def _count_ones(typing_context: Any, word: Any) -> Any:
    """How many bits of a word are 1, inside compiled functions."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), codegen


@njit(cache=True, nogil=True)
def mark_cells(y: Bytes, ends: Ints, out: Words) -> None:
    """For every cell of every column a bit for each row: (cells, words of `WORD_BITS`), zeros before.

    Parameters
    ----------
    ends : (p + 1,) where a column's cells begin
    """
    for row in range(len(y)):
        word, bit = row // WORD_BITS, np.uint64(1) << np.uint64(row % WORD_BITS)
        for j in range(y.shape[1]):
            out[ends[j] + y[row, j], word] |= bit


@njit(cache=True, nogil=True)
def count_marked(first: Words, second: Words, first_counts: Ints, second_counts: Ints, out: Floats) -> None:
    """(c_a, c_b) in how many rows two cells come together; the last ones by what is left of the margins."""
    m, n = first_counts.size, second_counts.size
    for i in range(m - 1):
        left, own = first_counts[i], first[i]
        for j in range(n - 1):
            other, total = second[j], np.uint64(0)
            for word in range(own.size):
                total += _count_ones(own[word] & other[word])
            out[i, j] = total
            left -= np.int64(total)
        out[i, n - 1] = left
    for j in range(n):
        left = second_counts[j]
        for i in range(m - 1):
            left -= np.int64(out[i, j])
        out[m - 1, j] = left
