"""Noisy ranks in time that grows with n: every rank from its own three binomials.

The noisy rank of a subject with b others below it, a above it and t ties is
1 + b - Bin(b, theta) + Bin(a, theta) + Bin(t, 1/2): exactly the distribution that `ranks.flip_comparisons` gives to
that one rank, but independent between subjects, as if every comparison were flipped twice, once for each of its two
subjects. So a rank can be drawn wherever b, a and t are known: some subjects at a time, on any machine.

Binomials are drawn by transformed rejection (Hörmann 1993, algorithm BTRS), and by inversion where n p < 10. Four of
five trials of BTRS are accepted without a logarithm. These are made many at a time, in a loop that the processor's
vector unit runs; the others are finished one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from verticopula.privacy.coins import flip_threshold
from verticopula.privacy.noise import Keystream
from verticopula.stats.ranks import find_places

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
ShortInts = NDArray[np.int32]
Words = NDArray[np.uint64]

NOISE_ROWS = 1 << 16
_AT_ONCE = 1 << 12  # subjects whose numbers stay in the cache
_FEWEST_EXPECTED = 10.0  # n p from which BTRS is right
_LEAST_INSIDE = 0.07  # BTRS's v_r: nearer to the ends of (0, 1) its quick step may not accept
_FAR_FROM_MODE = 15.0  # beyond it two parabolas decide nearly all trials with one logarithm
_HALF_STEP = 2.0**-53
_U = np.uint64
_MANTISSA = _U(12)
_ONE = _U(0x3FF0000000000000)  # the bits of 1.0


def draw_binomial_ranks(
    values: NDArray[Any], epsilon: float, stream: Callable[[str], Keystream], observed: Bools | None = None
) -> ShortInts:
    """Noisy ranks in O(n log n), in the order of the values.

    The ranks of `NOISE_ROWS` rows of a table share a stream of random bits. So they are the same numbers whoever draws
    them, and however many rows are worked on at a time.

    Parameters
    ----------
    values : (n,) finite numbers, of the rows of a table that have one
    epsilon : per coin
    stream : the label of some rows -> random bits for them alone
    observed : (rows,) which rows have a value; None for all of them

    Privacy
    -------
    Leaves the party. `epsilon` is per coin, and a comparison is behind two coins: 2 * epsilon per
    comparison, and up to 2(n-1) coins change when one subject's value is replaced. No two rows share random bits.
    """
    lower, upper = find_places(values)
    rows = np.ones(values.size, dtype=bool) if observed is None else observed
    streams = (stream(label) for label in stream_labels(0, rows.size))
    return draw_ranks_of_rows(lower, upper, values.size, epsilon, streams, rows)


def stream_labels(start: int, stop: int) -> list[str]:
    """What the streams of some rows of a party's own table are called.

    Parameters
    ----------
    start, stop : the rows; the first is a multiple of `NOISE_ROWS`
    """
    return [f"rows {row // NOISE_ROWS}" for row in range(start, stop, NOISE_ROWS)]


def draw_ranks_of_rows(
    lower: ShortInts, upper: ShortInts, n_ranked: int, epsilon: float, streams: Iterable[Keystream], observed: Bools
) -> ShortInts:
    """Noisy ranks of some rows that follow each other in a party's own table.

    Parameters
    ----------
    lower, upper, n_ranked, epsilon : as `draw_ranks_at` has them, for the observed of these rows
    streams : as many as `stream_labels` has for these rows
    observed : (rows,) which of them have a value

    Privacy
    -------
    As `draw_binomial_ranks`.
    """
    ranks = np.empty(lower.size, dtype=np.int32)
    for own, stream in zip(_noise_blocks(observed), streams, strict=True):
        ranks[own] = draw_ranks_at(lower[own], upper[own], n_ranked, epsilon, stream)
    return ranks


def _noise_blocks(observed: Bools) -> Iterator[slice]:
    """Which of the observed values stand in each `NOISE_ROWS` rows."""
    start = 0
    for first in range(0, observed.size, NOISE_ROWS):
        stop = start + int(np.count_nonzero(observed[first : first + NOISE_ROWS]))
        yield slice(start, stop)
        start = stop


def draw_ranks_at(lower: ShortInts, upper: ShortInts, n_ranked: int, epsilon: float, keystream: Keystream) -> ShortInts:
    """Noisy ranks of some of `n_ranked` subjects, of whom each has `lower` others below it and `upper` not above it.

    Parameters
    ----------
    lower, upper : (m,) as `find_places` finds them among all that are ranked

    Privacy
    -------
    As `draw_binomial_ranks`, for all of them together.
    """
    theta = flip_threshold(epsilon) / 2**64
    ranks = np.empty(lower.size, dtype=np.int32)
    for start in range(0, lower.size, _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        below, above = lower[part].astype(np.float64), n_ranked - upper[part].astype(np.float64)
        ties = n_ranked - 1.0 - below - above
        lost, won = draw_binomials(below, theta, keystream), draw_binomials(above, theta, keystream)
        ranks[part] = 1.0 + below - lost + won + draw_binomials(ties, 0.5, keystream)
    return ranks


def draw_binomials(counts: Floats, p: float, keystream: Keystream) -> Floats:
    """One Binomial(n, p) draw for every n of `counts`, which are whole numbers; p <= 1/2."""
    if not counts.any():
        return np.zeros(counts.size)
    uniforms = _uniforms(keystream, 2 * counts.size)
    u, v = uniforms[: counts.size], uniforms[counts.size :]
    drawn, is_accepted = np.empty(counts.size), np.empty(counts.size, dtype=np.bool_)
    try_quickly(counts, p, u, v, drawn, is_accepted)
    done = 0
    while done < counts.size:
        more = _uniforms(keystream, max(counts.size, 2))  # a trial takes two, also where one subject is left over
        done = finish_slowly(counts, p, u, v, more, drawn, is_accepted, done)
    return drawn


def _uniforms(keystream: Keystream, count: int) -> Floats:
    """Uniform numbers strictly between 0 and 1, in the middle of steps of 2^-52."""
    words = keystream.words(count)
    _keep_mantissa(words)
    return words.view(np.float64) - 1.0 + _HALF_STEP


@njit(nogil=True, cache=True)
def _keep_mantissa(words: Words) -> None:
    """Make every word the bits of a number from 1 to 2."""
    for i in range(words.size):
        words[i] = (words[i] >> _MANTISSA) | _ONE


@njit(nogil=True, cache=True, inline="always")
def _hat(n: float, p: float) -> tuple[float, float, float]:
    """BTRS's spread of Binomial(n, p), and its a and b."""
    spread = math.sqrt(n * p * (1.0 - p))
    b = 1.15 + 2.53 * spread
    return spread, -0.0873 + 0.0248 * b + 0.01 * p, b


@njit(nogil=True, cache=True, error_model="numpy")
def try_quickly(counts: Floats, p: float, u: Floats, v: Floats, drawn: Floats, is_accepted: Bools) -> None:
    """BTRS's first trial of every draw, and which of them are accepted at once. Without a branch: so it vectorises."""
    for i in range(counts.size):
        n = counts[i]
        _, a, b = _hat(n, p)
        inside = 0.5 - abs(u[i] - 0.5)
        drawn[i] = np.floor((2.0 * a / inside + b) * (u[i] - 0.5) + (n * p + 0.5))
        is_accepted[i] = (inside >= _LEAST_INSIDE) & (v[i] <= 0.92 - 4.2 / b) & (n * p >= _FEWEST_EXPECTED)


@njit(nogil=True, cache=True, error_model="numpy")
def finish_slowly(
    counts: Floats, p: float, u: Floats, v: Floats, more: Floats, drawn: Floats, is_accepted: Bools, start: int
) -> int:
    """Finish the draws that were not accepted at once, from `start` on; returns where `more` ran out.

    A draw that ran out is left as it is, with its own first trial. What rejection accepts does not depend on how often
    it rejected, so beginning it again prefers no value.
    """
    used = 0
    for i in range(start, counts.size):
        if is_accepted[i]:
            continue
        if counts[i] * p < _FEWEST_EXPECTED:
            drawn[i] = invert_binomial(counts[i], p, u[i])
            continue
        first, second = u[i], v[i]
        while not is_accepted[i]:
            k = trial(counts[i], p, first, second)
            if k >= 0.0:
                drawn[i] = k
                is_accepted[i] = True
            elif used + 2 > more.size:
                return i
            else:
                first, second = more[used], more[used + 1]
                used += 2
    return int(counts.size)


@njit(nogil=True, cache=True)
def invert_binomial(n: float, p: float, u: float) -> float:
    """The smallest k with P(Binomial(n, p) <= k) >= u, added up from 0; for small n p."""
    k, mass = 0.0, (1.0 - p) ** n
    while u > mass and k < n:
        u -= mass
        k += 1.0
        mass *= (n - k + 1.0) / k * p / (1.0 - p)
    return k


@njit(nogil=True, cache=True, error_model="numpy")
def trial(n: float, p: float, u: float, v: float) -> float:
    """One trial of BTRS with two uniform numbers: a draw of Binomial(n, p), or -1 if it is rejected."""
    spread, a, b = _hat(n, p)
    inside = 0.5 - abs(u - 0.5)
    k = float(np.floor((2.0 * a / inside + b) * (u - 0.5) + (n * p + 0.5)))
    if inside >= _LEAST_INSIDE and v <= 0.92 - 4.2 / b:
        return k
    if k < 0.0 or k > n:
        return -1.0
    height = math.log(v * (2.83 + 5.1 / b) * spread / (a / (inside * inside) + b))
    variance, mode = spread * spread, float(np.floor((n + 1.0) * p))
    away = abs(k - mode)
    if away > _FAR_FROM_MODE and away < 0.5 * variance - 1.0:
        middle = -away * away / (2.0 * variance)
        reach = away / variance * ((away * (away / 3.0 + 0.625) + 1.0 / 6.0) / variance + 0.5)
        if height < middle - reach:
            return k
        if height > middle + reach:
            return -1.0
    return k if height <= _above_mode(n, p, k, mode) else -1.0


@njit(nogil=True, cache=True)
def _above_mode(n: float, p: float, k: float, mode: float) -> float:
    """log P(k) - log P(mode) of Binomial(n, p)."""
    factorials = math.lgamma(mode + 1.0) + math.lgamma(n - mode + 1.0) - math.lgamma(k + 1.0) - math.lgamma(n - k + 1.0)
    return factorials + (k - mode) * math.log(p / (1.0 - p))
