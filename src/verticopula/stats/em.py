"""EM for a Gaussian with missing entries, on per-pattern sufficient statistics.

Conventions: N subjects, q variables ("latents", whatever was read of them); `covariance` is (q, q).
The core needs counts and mean products only, so it does not matter whether rows or a secure sum
gave them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from verticopula.data.missingness import FEWEST_IN_COMMON, unique_masks
from verticopula.stats.matrix_repair import keep_definite

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class EmTuning:
    """Chosen constants of EM. By hand, not tuned.

    Attributes
    ----------
    largest_precision : of a latent given all others; beyond it, digits would be lost by inverting the whole covariance
    """

    largest_precision: float = 1e6


EM_TUNING = EmTuning()
SUBJECTS_AT_ONCE = 1 << 11  # of a pattern: their readings stay in the cache, and nothing as long as a cohort is copied


@dataclass(frozen=True)
class Pattern:
    """Subjects with the same latents observed.

    Attributes
    ----------
    number : its place among all patterns
    """

    rows: Ints
    observed: Ints
    missing: Ints
    number: int = 0


class ReadingTable(Protocol):
    """Readings that are not one array: what asks for them gets those of a pattern, some subjects at a time."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def blocks(self, pattern: Pattern) -> Iterator[Floats]: ...


def find_patterns(observed: Bools) -> list[Pattern]:
    """Subjects grouped by which latents are observed."""
    masks, numbers, _ = unique_masks(observed)
    return group_subjects(masks, numbers)


def group_subjects(masks: Bools, numbers: Ints) -> list[Pattern]:
    """One pattern for each of some masks.

    Parameters
    ----------
    masks : (P, q) all of them different
    numbers : (N,) which of them each subject has
    """
    short = numbers.astype(np.uint16) if len(masks) <= 2**16 else numbers  # for numpy's radix sort
    counts = np.bincount(short, minlength=len(masks))
    parts = np.split(np.argsort(short, kind="stable"), np.cumsum(counts)[:-1])
    return [
        Pattern(rows, np.flatnonzero(mask), np.flatnonzero(~mask), number)
        for number, (mask, rows) in enumerate(zip(masks, parts, strict=True))
    ]


def count_together(patterns: Sequence[Pattern], q: int) -> Floats:
    """(q, q) how many subjects have both of two latents."""
    seen, counts = np.zeros((len(patterns), q)), np.array([float(pattern.rows.size) for pattern in patterns])
    for index, pattern in enumerate(patterns):
        seen[index, pattern.observed] = 1.0
    return np.asarray((seen * counts[:, None]).T @ seen)


def iterate_blocks(readings: Floats | ReadingTable, pattern: Pattern) -> Iterator[Floats]:
    """(o, n) readings of some of a pattern's subjects at a time.

    Parameters
    ----------
    readings : a table, or (N, q) in Fortran's order: a latent's readings stand together
    """
    if not isinstance(readings, np.ndarray):
        yield from readings.blocks(pattern)
        return
    for start in range(0, pattern.rows.size, SUBJECTS_AT_ONCE):
        rows = pattern.rows[start : start + SUBJECTS_AT_ONCE]
        block = np.empty((pattern.observed.size, rows.size))
        _take(readings.T, pattern.observed, rows, block)
        yield block


def by_column(readings: Floats | ReadingTable) -> Floats | ReadingTable:
    """The readings as `iterate_blocks` wants them."""
    return np.asfortranarray(readings) if isinstance(readings, np.ndarray) else readings


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


def gather_moments(readings: Floats | ReadingTable, patterns: Sequence[Pattern]) -> list[PatternMoments]:
    """Sufficient statistics of every pattern, from (N, q) readings."""
    columns, moments = by_column(readings), []
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


@dataclass(frozen=True)
class PackedMoments:
    """The moments of all patterns side by side, as compiled code wants them; made once for many steps.

    Attributes
    ----------
    order : (P, q) a pattern's observed latents, then the missing ones
    sizes : (P,) how many of them are observed
    counts : (P,) subjects
    products : the patterns' mean products, one after the other
    starts : (P,) where a pattern's products begin
    known : (q, q) sums of products of what was observed: no step changes them
    """

    order: Ints
    sizes: Ints
    counts: Floats
    products: Floats
    starts: Ints
    known: Floats

    @classmethod
    def of(cls, moments: Sequence[PatternMoments]) -> PackedMoments:
        order = np.array([np.concatenate([own.observed, own.missing]) for own in moments], dtype=np.int64)
        sizes = np.array([own.observed.size for own in moments], dtype=np.int64)
        counts = np.array([own.count for own in moments])
        products = np.concatenate([own.products.ravel() for own in moments])
        starts = np.cumsum(sizes**2) - sizes**2
        known = np.zeros((order.shape[1], order.shape[1]))
        for own in moments:
            known[own.observed[:, None], own.observed] += own.count * own.products
        return cls(order, sizes, counts, products, starts, known)


def em_step(covariance: Floats, moments: PackedMoments, prior_subjects: float = 0.0) -> Floats:
    """One EM step for the covariance of readings that are missing at random.

    The E-step completes each pattern's mean products with the conditional moments of what is missing;
    the M-step averages them. `prior_subjects` imaginary subjects with unit covariance enter the average.
    """
    q = covariance.shape[0]
    total, known = moments.known + prior_subjects * np.eye(q), np.ascontiguousarray(covariance)
    precision = _invert(known)
    if not np.diag(precision).max(initial=0.0) <= EM_TUNING.largest_precision:
        precision = precision[:0]
    of_patterns = moments.order, moments.sizes, moments.counts, moments.products, moments.starts
    _add_completed(known, precision, *of_patterns, total)
    return np.asarray((total + total.T) / (2.0 * (prior_subjects + float(moments.counts.sum()))))


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
    covariance: Floats,
    precision: Floats,
    order: Ints,
    sizes: Ints,
    counts: Floats,
    products: Floats,
    starts: Ints,
    total: Floats,
) -> None:
    """Add what completes the patterns' products to `total`; that of missing and observed latents twice, on one side.

    What is missing has the covariance P_mm^-1 given the rest, and the weights -P_mm^-1 P_mo, where P is the precision.
    It is the smaller inverse where less is missing than observed. An empty precision is not used.
    """
    q = covariance.shape[0]
    for p in range(sizes.size):
        o, count = sizes[p], counts[p]
        seen, missing = order[p, :o], order[p, o:]
        if o == q:
            continue
        own = products[starts[p] : starts[p] + o * o].reshape(o, o)
        if precision.size > 0 and q - o <= o:
            left = _invert(_take_block(precision, missing, missing))
            weights = np.dot(_take_block(precision, seen, missing), left)  # with the other sign
            across = np.dot(own, weights)
            left += np.dot(weights.T, across)
            count_across = -2.0 * count
        else:
            left, across = _take_block(covariance, missing, missing), _take_block(covariance, seen, missing)
            if o > 0:
                between = across
                weights = np.dot(_invert(_take_block(covariance, seen, seen)), between)
                across = np.dot(own, weights)
                left += np.dot(weights.T, across - between)
            count_across = 2.0 * count
        for k in range(q - o):
            for i in range(o):
                total[missing[k], seen[i]] += count_across * across[i, k]
        for i in range(q - o):
            for k in range(q - o):
                total[missing[i], missing[k]] += count * left[i, k]


@njit(cache=True, nogil=True)
def _take_block(matrix: Floats, down: Ints, across: Ints) -> Floats:
    """matrix[down][:, across]."""
    block = np.empty((down.size, across.size))
    for i in range(down.size):
        row = matrix[down[i]]
        for k in range(across.size):
            block[i, k] = row[across[k]]
    return block


@njit(cache=True, nogil=True)
def _invert(matrix: Floats) -> Floats:
    """The inverse of a positive definite matrix, by its Cholesky factor."""
    root = _invert_lower(np.linalg.cholesky(matrix))
    inverse: Floats = np.dot(root.T, root)
    return inverse


@njit(cache=True, nogil=True)
def _invert_lower(factor: Floats) -> Floats:
    """The inverse of a lower triangular matrix."""
    inverse = np.zeros(factor.shape)
    for i in range(factor.shape[0]):
        for k in range(i):
            for c in range(k + 1):
                inverse[i, c] -= factor[i, k] * inverse[k, c]
        inverse[i, i] = 1.0
        for c in range(i + 1):
            inverse[i, c] /= factor[i, i]
    return inverse


@njit(cache=True, nogil=True)
def _deviance(covariance: Floats, seen: Ints, products: Floats) -> float:
    """log det S + trace(S^-1 P) of the observed latents' covariance S and mean products P."""
    factor = np.linalg.cholesky(_take_block(covariance, seen, seen))
    inverse, total = _invert_lower(factor), 0.0
    for i in range(seen.size):
        total += 2.0 * math.log(factor[i, i])
    return total + float(np.sum(np.dot(inverse, products) * inverse))


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
