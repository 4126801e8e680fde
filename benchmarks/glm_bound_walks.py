"""The tempered walks of `glm_bound`, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PAIRS = 10  # at most, drawn from the quadratic, forth and back, before the exact likelihood is asked
_KEPT = 5  # every so many-th sweep enters the averages that the next quadratic is fitted to


@njit(cache=True, nogil=True)
def _sum_logs(odds: Floats) -> float:
    """The sum of log(1 + odds), a logarithm for every eight."""
    total, i = 0.0, 0
    while i + 8 <= odds.size:
        one = (1.0 + odds[i]) * (1.0 + odds[i + 1]) * ((1.0 + odds[i + 2]) * (1.0 + odds[i + 3]))
        two = (1.0 + odds[i + 4]) * (1.0 + odds[i + 5]) * ((1.0 + odds[i + 6]) * (1.0 + odds[i + 7]))
        total += np.log(one * two)
        i += 8
    while i < odds.size:
        total += np.log(1.0 + odds[i])
        i += 1
    return total


@njit(cache=True, nogil=True)
def _multiply(odds: Floats, factor: Floats) -> None:
    for i in range(odds.size):
        odds[i] *= factor[i]


@njit(cache=True, nogil=True)
def _draw_pair(
    j: int,
    k: int,
    state: Ints,
    pull: Floats,
    gram: Floats,
    values: Floats,
    weights: Floats,
    heat: float,
    odds: Floats,
    rng: np.random.Generator,
) -> float:
    """Both columns anew from the quadratic; moves `state` and `pull`, its gradient; returns what it gains."""
    size = values.size
    highest = -np.inf
    for a in range(size):
        for b in range(size):
            s, t = values[a] - values[state[j]], values[b] - values[state[k]]
            gain = pull[j] * s + pull[k] * t - 0.5 * (gram[j, j] * s * s + gram[k, k] * t * t) - gram[j, k] * s * t
            odds[a * size + b] = weights[a] + weights[b] + heat * gain
            highest = max(highest, odds[a * size + b])
    total = 0.0
    for c in range(size * size):
        odds[c] = np.exp(odds[c] - highest)
        total += odds[c]
    drawn, new = rng.random() * total, size * size - 1
    for c in range(size * size):
        drawn -= odds[c]
        if drawn < 0.0:
            new = c
            break
    s, t = values[new // size] - values[state[j]], values[new % size] - values[state[k]]
    gain = pull[j] * s + pull[k] * t - 0.5 * (gram[j, j] * s * s + gram[k, k] * t * t) - gram[j, k] * s * t
    if s != 0.0 or t != 0.0:
        state[j], state[k] = new // size, new % size
        for i in range(pull.size):
            pull[i] -= gram[j, i] * s + gram[k, i] * t
    return float(gain)


@njit(cache=True, nogil=True)
def temper(
    factors: Floats,
    sums: Floats,
    grams: Floats,
    slopes: Floats,
    partners: Floats,
    state: Ints,
    odds: Floats,
    values: Floats,
    weights: Floats,
    heats: Floats,
    sweeps: int,
    rng: np.random.Generator,
) -> tuple[Floats, float, Floats, Floats, Floats, Floats]:
    """Walks at all T temperatures; moves `state`, (T, p), and `odds`, (T, n) exp(x b), on.

    A column's step multiplies the odds by exp(c x) or exp(-c x), `factors`, so that no row needs an exponential. `sums`
    is X'y.

    Returns (p, 3) how often each column has each value at temperature 1; how often a walk's end there is accepted; how
    often neighbours change places; and averages of (T, p) coefficients, (T, n) means and curvatures.
    """
    n_walks, p, n = heats.size, sums.size, odds.shape[1]
    level = np.zeros(n_walks)
    for h in range(n_walks):
        level[h] = sums @ values[state[h]] - _sum_logs(odds[h])
    counts, choices = np.zeros((p, values.size)), np.zeros(values.size**2)
    pull, other_pull, other_state, other_odds = np.zeros(p), np.zeros(p), np.zeros(p, np.int64), np.zeros(n)
    first, second = np.zeros(PAIRS, np.int64), np.zeros(PAIRS, np.int64)
    accepted, asked, changed = 0.0, 0.0, np.zeros(n_walks - 1)
    coefs, means, bends, kept = np.zeros((n_walks, p)), np.zeros((n_walks, n)), np.zeros((n_walks, n)), 0
    for sweep in range(sweeps):
        for h in range(n_walks):
            pull[:] = slopes[h] - grams[h] @ values[state[h]]
            drawn = 0
            while drawn < p:
                n_pairs = int(rng.integers(1, PAIRS + 1))
                drawn += n_pairs
                for c in range(n_pairs):
                    first[c] = rng.integers(0, p)
                    second[c] = min(int(np.searchsorted(partners[first[c]], rng.random())), p - 1)
                other_state[:], other_pull[:] = state[h], pull
                gain = 0.0
                for step in range(2 * n_pairs):
                    c = min(step, 2 * n_pairs - 1 - step)
                    gain += _draw_pair(
                        first[c], second[c], other_state, other_pull, grams[h], values, weights, heats[h], choices, rng
                    )
                other_odds[:] = odds[h]
                moved, other = False, 0.0
                for j in range(p):
                    new, old = other_state[j], state[h, j]
                    other += sums[j] * values[new]
                    if new != old:
                        moved = True
                        if new != 0:  # 1 is up, 2 is down
                            _multiply(other_odds, factors[new - 1, j])
                        if old != 0:
                            _multiply(other_odds, factors[2 - old, j])
                if not moved:
                    continue
                other -= _sum_logs(other_odds)
                asked += h == 0
                if np.log(rng.random()) < heats[h] * (other - level[h] - gain):
                    accepted += h == 0
                    state[h], odds[h], pull[:], level[h] = other_state, other_odds, other_pull, other
        for h in range(n_walks - 1):
            if np.log(rng.random()) < (heats[h] - heats[h + 1]) * (level[h + 1] - level[h]):
                changed[h] += 1.0
                other_state[:], other_odds[:], other = state[h], odds[h], level[h]
                state[h], odds[h], level[h] = state[h + 1], odds[h + 1], level[h + 1]
                state[h + 1], odds[h + 1], level[h + 1] = other_state, other_odds, other
        for j in range(p):
            counts[j, state[0, j]] += 1.0
        if sweep % _KEPT == 0:
            kept += 1
            for h in range(n_walks):
                coefs[h] += values[state[h]]
                for i in range(n):
                    mean = odds[h, i] / (1.0 + odds[h, i])
                    means[h, i] += mean
                    bends[h, i] += mean * (1.0 - mean)
    return counts / sweeps, accepted / max(asked, 1.0), changed / sweeps, coefs / kept, means / kept, bends / kept
