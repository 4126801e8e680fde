"""Gibbs sampling of coefficients that are zero or of some size, column after column: the kernel of `bayes.py`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class SweepTuning:
    """The prior of the sizes' weights. Chosen by hand, not tuned.

    Attributes
    ----------
    concentration : of the weights of all sizes together
    """

    concentration: float = 1.0


CONCENTRATION = SweepTuning().concentration  # compiled loops take numbers, no records

# A call with a dozen arrays would cost as much as what it does for one column.
_inlined = njit(cache=True, nogil=True, inline="always")


@njit(cache=True, nogil=True)
def sweep_columns(
    gram: Floats,
    linear: Floats,
    coef: Floats,
    starts: Ints,
    centre: Floats,
    precision: Floats,
    weights: Floats,
    noise: float,
    square: float,
    n_subjects: float,
    n_sweeps: int,
    burn: int,
    thin: int,
    draw_weights: bool,
    rng: np.random.Generator,
) -> tuple[Floats, Floats, float, Floats, float, Floats]:
    """Gibbs sampling; `coef` and `weights` are moved on. Coordinates after the last group have a flat prior.

    `square` is y'y where the noise is drawn too, and 0 where it is known. The last result is how many groups have which
    size after the last sweep. Averages are of conditional means
    (Rao-Blackwell). One column: a mixture of normals around plus and minus every size. A group of d > 1: given its size
    m, N(0, m^2 / d) in each direction.
    """
    n_groups, n_sizes, q = starts.size - 1, centre.shape[1], linear.size
    product = gram @ coef
    odds, means = np.zeros(2 * n_sizes + 1), np.zeros(2 * n_sizes + 1)
    variances, counts = np.zeros(n_sizes), np.zeros(n_sizes + 1)
    mean, included, share = np.zeros(q), np.zeros(n_groups), 0.0
    some, n_some = np.zeros(((n_sweeps - burn + thin - 1) // thin, q)), 0
    # What a single column's sizes have in common over sweeps, as long as the noise does not change.
    offsets, costs = centre * precision, centre * centre * precision
    narrow, heights = np.zeros_like(centre), np.zeros_like(centre)
    for sweep in range(n_sweeps):
        keep = sweep >= burn
        counts[:] = 0.0
        if sweep == 0 or square > 0.0:
            _narrow_sizes(gram, starts, precision, noise, narrow, heights)
        for g in range(n_groups):
            first, d = starts[g], starts[g + 1] - starts[g]
            if d == 1:
                _, slope = _likelihood_at_zero(gram, linear, product, coef, noise, first)
                _weigh_column(slope, narrow[g], heights[g], offsets[g], costs[g], weights, odds, means, variances)
            else:
                _weigh_group(gram, linear, product, coef, noise, first, first + d, centre[g], weights, odds)
            chosen, total = _choose(odds, rng.random())
            size = chosen if chosen <= n_sizes else chosen - n_sizes
            counts[size] += 1.0
            if keep:
                included[g] += 1.0 - odds[0] / total
            for i in range(first, first + d):
                if d > 1:
                    bend, slope = _likelihood_at_zero(gram, linear, product, coef, noise, i)
                    for c in range(n_sizes):
                        spread = centre[g, c] ** 2 / d
                        variances[c] = spread / (1.0 + bend * spread)
                        means[1 + c] = variances[c] * slope
                if keep:
                    expected = 0.0
                    for k in range(1, 2 * n_sizes + 1):
                        expected += odds[k] * means[k]
                    mean[i] += expected / total
                new = 0.0
                if chosen > 0:
                    new = means[chosen] + np.sqrt(variances[size - 1]) * rng.normal()
                step = new - coef[i]
                if step != 0.0:
                    coef[i] = new
                    _move(gram, product, i, step)
        for i in range(starts[n_groups], q):
            bend = gram[i, i] / noise
            expected = (linear[i] - product[i]) / (noise * bend) + coef[i]
            if keep:
                mean[i] += expected
            step = expected + rng.normal() / np.sqrt(bend) - coef[i]
            coef[i] += step
            _move(gram, product, i, step)
        if square > 0.0:
            noise = _draw_noise(linear, product, coef, square, n_subjects, rng)
        if draw_weights:
            _draw_weights(counts, weights, rng)
        if keep:
            share += weights[0]
            if (sweep - burn) % thin == 0:
                some[n_some] = coef
                n_some += 1
    kept = n_sweeps - burn
    return mean / kept, included / kept, share / kept, some[:n_some], noise, counts


@_inlined
def _narrow_sizes(gram: Floats, starts: Ints, precision: Floats, noise: float, narrow: Floats, heights: Floats) -> None:
    """Fill in the variance around every size of a group's first column, given the noise, and its share of a weight."""
    for g in range(starts.size - 1):
        bend = gram[starts[g], starts[g]] / noise
        for c in range(precision.shape[1]):
            narrow[g, c] = 1.0 / (bend + precision[g, c])
            heights[g, c] = 0.5 * np.sqrt(precision[g, c] * narrow[g, c])


@_inlined
def _likelihood_at_zero(
    gram: Floats, linear: Floats, product: Floats, coef: Floats, noise: float, i: int
) -> tuple[float, float]:
    """Curvature and slope of the log-likelihood in one coefficient where it is zero, given all others."""
    bend = gram[i, i] / noise
    return bend, (linear[i] - product[i]) / noise + bend * coef[i]


@_inlined
def _weigh_column(
    slope: float,
    narrow: Floats,
    heights: Floats,
    offsets: Floats,
    costs: Floats,
    weights: Floats,
    odds: Floats,
    means: Floats,
    variances: Floats,
) -> None:
    """Fill in what a single column may be: zero, of every size upwards, or of every size downwards."""
    n_sizes, highest = variances.size, 0.0
    for c in range(n_sizes):
        variance, cost = narrow[c], costs[c]
        variances[c] = variance
        upwards, downwards = slope + offsets[c], slope - offsets[c]
        means[1 + c], means[1 + c + n_sizes] = variance * upwards, variance * downwards
        odds[1 + c] = 0.5 * (variance * upwards * upwards - cost)
        odds[1 + c + n_sizes] = 0.5 * (variance * downwards * downwards - cost)
        highest = max(highest, odds[1 + c], odds[1 + c + n_sizes])
    for c in range(n_sizes):
        factor = weights[1 + c] * heights[c]
        for k in (1 + c, 1 + c + n_sizes):
            odds[k] = factor * np.exp(odds[k] - highest) if odds[k] - highest > -50.0 else 0.0
    odds[0] = weights[0] * np.exp(-highest)


@_inlined
def _weigh_group(
    gram: Floats,
    linear: Floats,
    product: Floats,
    coef: Floats,
    noise: float,
    first: int,
    last: int,
    centre: Floats,
    weights: Floats,
    odds: Floats,
) -> None:
    """Fill in odds of the columns from `first` to before `last` together: of zero, and of every size."""
    n_sizes, highest = centre.size, 0.0
    for c in range(n_sizes):
        spread, level = centre[c] ** 2 / (last - first), 0.0
        for i in range(first, last):
            bend, slope = _likelihood_at_zero(gram, linear, product, coef, noise, i)
            level += 0.5 * (spread * slope * slope / (1.0 + bend * spread) - np.log1p(bend * spread))
        odds[1 + c], odds[1 + c + n_sizes] = level, 0.0
        highest = max(highest, level)
    for c in range(n_sizes):
        odds[1 + c] = weights[1 + c] * np.exp(odds[1 + c] - highest)
    odds[0] = weights[0] * np.exp(-highest)


@_inlined
def _choose(odds: Floats, uniform: float) -> tuple[int, float]:
    """The place that a uniform number chooses by the odds, and the sum of all odds."""
    total = odds.sum()
    if not total > 0.0:  # all weights that matter have underflowed: zero, for now
        odds[0], total = 1.0, 1.0
    drawn, level = uniform * total, 0.0
    for k in range(odds.size):
        level += odds[k]
        if drawn < level:
            return k, total
    return 0, total


@_inlined
def _move(gram: Floats, product: Floats, i: int, step: float) -> None:
    """Move the product of the Gram matrix and all coefficients on by a step of one of them."""
    for j in range(product.size):
        product[j] += gram[i, j] * step


@_inlined
def _draw_noise(
    linear: Floats, product: Floats, coef: Floats, square: float, n_subjects: float, rng: np.random.Generator
) -> float:
    """The residual variance given all coefficients."""
    rest = square
    for i in range(coef.size):
        rest += coef[i] * (product[i] - 2.0 * linear[i])
    return 0.5 * max(rest, 1e-12 * square) / rng.gamma(0.5 * n_subjects, 1.0)


@_inlined
def _draw_weights(counts: Floats, weights: Floats, rng: np.random.Generator) -> None:
    """Fill in the weights of zero and of every size, given how many groups have it."""
    total, n_sizes = 0.0, counts.size - 1
    for c in range(n_sizes + 1):
        weights[c] = rng.gamma(counts[c] + (1.0 if c == 0 else CONCENTRATION / n_sizes), 1.0)
        total += weights[c]
    for c in range(n_sizes + 1):
        weights[c] /= total
