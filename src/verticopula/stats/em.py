"""EM for a Gaussian with missing entries, on per-pattern sufficient statistics.

Conventions: N subjects, q variables ("latents", whatever was read of them); `covariance` is (q, q).
The core needs counts and mean products only, so it does not matter whether rows or a secure sum
gave them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from verticopula.data.missingness import FEWEST_IN_COMMON, unique_masks
from verticopula.stats.matrix_repair import keep_definite

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_SUBJECTS_AT_ONCE = 1 << 12  # of a pattern: their readings stay in the cache, and nothing as long as a cohort is copied


@dataclass(frozen=True)
class Pattern:
    """Subjects with the same latents observed."""

    rows: Ints
    observed: Ints
    missing: Ints


def find_patterns(observed: Bools) -> list[Pattern]:
    """Subjects grouped by which latents are observed."""
    _, group, counts = unique_masks(observed)
    short = group.astype(np.uint16) if counts.size <= 2**16 else group  # for numpy's radix sort
    parts = np.split(np.argsort(short, kind="stable"), np.cumsum(counts)[:-1])
    return [Pattern(rows, np.flatnonzero(observed[rows[0]]), np.flatnonzero(~observed[rows[0]])) for rows in parts]


def count_together(patterns: Sequence[Pattern], q: int) -> Floats:
    """(q, q) how many subjects have both of two latents."""
    seen, counts = np.zeros((len(patterns), q)), np.array([float(pattern.rows.size) for pattern in patterns])
    for index, pattern in enumerate(patterns):
        seen[index, pattern.observed] = 1.0
    return np.asarray((seen * counts[:, None]).T @ seen)


def iterate_blocks(readings: Floats, pattern: Pattern) -> Iterator[Floats]:
    """(o, n) readings of some of a pattern's subjects at a time.

    Parameters
    ----------
    readings : (N, q), in Fortran's order: a latent's readings stand together
    """
    for start in range(0, pattern.rows.size, _SUBJECTS_AT_ONCE):
        rows = pattern.rows[start : start + _SUBJECTS_AT_ONCE]
        block = np.empty((pattern.observed.size, rows.size))
        _take(readings.T, pattern.observed, rows, block)
        yield block


@njit(cache=True, nogil=True)
def _take(table: Floats, across: Ints, down: Ints, block: Floats) -> None:
    """block = table[across][:, down], of which numpy copies the whole first part."""
    for j in range(across.size):
        for i in range(down.size):
            block[j, i] = table[across[j], down[i]]


@dataclass(frozen=True)
class PatternMoments:
    """Sufficient statistics of one pattern: number of subjects, means and mean products of their readings.

    `means` (o,) and `products` (o, o) are of the observed latents only.
    """

    observed: Ints
    missing: Ints
    count: float
    means: Floats
    products: Floats


def gather_moments(readings: Floats, patterns: Sequence[Pattern]) -> list[PatternMoments]:
    """Sufficient statistics of every pattern, from (N, q) readings."""
    columns, moments = np.asfortranarray(readings), []
    for pattern in patterns:
        count, o = float(pattern.rows.size), pattern.observed.size
        sums, products = np.zeros(o), np.zeros((o, o))
        for block in iterate_blocks(columns, pattern):
            sums += block.sum(axis=1)
            products += block @ block.T
        moments.append(PatternMoments(pattern.observed, pattern.missing, count, sums / count, products / count))
    return moments


def regress(covariance: Floats, observed: Ints, predicted: Ints) -> Floats:
    """(m, o) weights of the best linear prediction of some variables from the observed ones."""
    if observed.size == 0 or predicted.size == 0:
        return np.zeros((predicted.size, observed.size))
    down = observed[:, None]  # np.ix_ takes longer than the rest, and this is called many times
    factor = cho_factor(covariance[down, observed], lower=True, check_finite=False)
    return np.asarray(cho_solve(factor, covariance[down, predicted], check_finite=False).T)


def em_step(covariance: Floats, moments: Sequence[PatternMoments], prior_subjects: float = 0.0) -> Floats:
    """One EM step for the covariance of readings that are missing at random.

    The E-step completes each pattern's mean products with the conditional moments of what is missing;
    the M-step averages them. `prior_subjects` imaginary subjects with unit covariance enter the average.
    """
    total = prior_subjects * np.eye(covariance.shape[0])
    count, known = prior_subjects, np.ascontiguousarray(covariance)
    for pattern in moments:
        _add_completed(known, pattern.observed, pattern.missing, pattern.count, pattern.products, total)
        count += pattern.count
    return np.asarray((total + total.T) / (2.0 * count))


def log_likelihood(covariance: Floats, moments: Sequence[PatternMoments]) -> float:
    """Observed-data log-likelihood of the readings, up to a constant."""
    known, total = np.ascontiguousarray(covariance), 0.0
    for pattern in moments:
        if pattern.observed.size:
            total -= 0.5 * pattern.count * float(_deviance(known, pattern.observed, pattern.products))
    return total


# Compiled, because many small matrices take less time than the calls that numpy needs for each of them.


@njit(cache=True, nogil=True)
def _add_completed(
    covariance: Floats, seen: Ints, missing: Ints, count: float, products: Floats, total: Floats
) -> None:
    """Add a pattern's completed products to `total`; those of missing and observed latents twice, and on one side."""
    o, m = seen.size, missing.size
    for i in range(o):
        for k in range(o):
            total[seen[i], seen[k]] += count * products[i, k]
    if m == 0:
        return
    left = np.empty((m, m))
    for i in range(m):
        for k in range(m):
            left[i, k] = covariance[missing[i], missing[k]]
    if o > 0:
        between = np.empty((o, m))
        for i in range(o):
            for k in range(m):
                between[i, k] = covariance[seen[i], missing[k]]
        weights = between.copy()
        _solve(_factor(covariance, seen), weights)
        across = np.dot(products, weights)
        left += np.dot(weights.T.copy(), across - between)
        for k in range(m):
            for i in range(o):
                total[missing[k], seen[i]] += 2.0 * count * across[i, k]
    for i in range(m):
        for k in range(m):
            total[missing[i], missing[k]] += count * left[i, k]


@njit(cache=True, nogil=True)
def _deviance(covariance: Floats, seen: Ints, products: Floats) -> float:
    """log det S + trace(S^-1 P) of the observed latents' covariance S and mean products P."""
    factor = _factor(covariance, seen)
    inverse, total = np.zeros_like(factor), 0.0
    for i in range(seen.size):
        for k in range(i):
            for c in range(k + 1):
                inverse[i, c] -= factor[i, k] * inverse[k, c]
        inverse[i, i] = 1.0
        for c in range(i + 1):
            inverse[i, c] /= factor[i, i]
        total += 2.0 * math.log(factor[i, i])
    return total + float(np.sum(np.dot(inverse, products) * inverse))


@njit(cache=True, nogil=True)
def _factor(covariance: Floats, seen: Ints) -> Floats:
    """The lower Cholesky factor of some latents' covariance."""
    inner = np.empty((seen.size, seen.size))
    for i in range(seen.size):
        for k in range(seen.size):
            inner[i, k] = covariance[seen[i], seen[k]]
    inner[:] = np.linalg.cholesky(inner)
    return inner


@njit(cache=True, nogil=True)
def _solve(factor: Floats, right: Floats) -> None:
    """Solve L L' x = right in place, for many right-hand sides next to each other."""
    n = factor.shape[0]
    for i in range(n):
        for k in range(i):
            for c in range(right.shape[1]):
                right[i, c] -= factor[i, k] * right[k, c]
        for c in range(right.shape[1]):
            right[i, c] /= factor[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            for c in range(right.shape[1]):
                right[i, c] -= factor[k, i] * right[k, c]
        for c in range(right.shape[1]):
            right[i, c] /= factor[i, i]


def start_covariance(moments: Sequence[PatternMoments], q: int) -> Floats:
    """Pairwise-complete correlations of the readings, made positive definite.

    Pairs without a common subject start where they are independent given everything else that was
    observed with both, and EM, which learns nothing about them, leaves them about there.
    """
    overlap, products, squares = np.zeros((q, q)), np.zeros((q, q)), np.zeros((q, q))
    for pattern in moments:
        both = np.ix_(pattern.observed, pattern.observed)
        overlap[both] += pattern.count
        products[both] += pattern.count * pattern.products
        squares[both] += pattern.count * np.diag(pattern.products)[:, None]  # [j, k]: of j where k is seen too
    norm = np.sqrt(np.maximum(squares * squares.T, 1e-300))
    # Pairs with a handful of common subjects start near zero.
    found = np.clip(products / norm, -0.99, 0.99) * overlap / (overlap + 10.0)
    np.fill_diagonal(found, 1.0)
    found = keep_definite(found)
    known = overlap >= FEWEST_IN_COMMON
    for _ in range(3 if not known.all() else 0):
        found = keep_definite(_fill_independent(found, known))
    return found


def _fill_independent(correlation: Floats, known: Bools) -> Floats:
    """Unknown entries from independence given the latents known with both."""
    filled = correlation.copy()
    for j, k in np.argwhere(np.triu(~known, 1)):
        given = np.flatnonzero(known[j] & known[k])
        if given.size:
            weights = regress(correlation, given, np.array([j]))[0]
            filled[j, k] = filled[k, j] = float(weights @ correlation[given, k])
    return filled
