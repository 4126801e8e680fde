"""Debiased ranks to a latent correlation matrix.

Conventions: q latent columns, N subjects. `grades` is (N, q): debiased rank minus its centre,
divided by the number of observed subjects; zero where nothing was observed. `observed` is the
(N, q) mask. A column's grades have the known variance `spread` (1/12, less where values are tied),
plus the known variance `noise` that the coins added.

The steps, each a function that reports what it did (the last is in `matrix_repair.py`):

1. `spearman_pairwise`  12 * mean product of grades, with the known normaliser
2. `invert_bridge`      12 Cov(mid-grades) -> latent correlation
3. `shrink`             towards a low-rank model, as far as the known noise says
4. `nearest_correlation` a positive definite matrix with unit diagonal
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.stats.bridge import GradeShape, invert_pairs

Floats = NDArray[np.float64]

_ROWS_AT_ONCE = 1 << 13  # their grades stay in the cache


@dataclass(frozen=True)
class PairwiseSpearman:
    """12 times the covariance of true mid-grades (Spearman's rho where nothing is tied), pair by pair.

    Attributes
    ----------
    rho : (q, q), not yet a correlation matrix
    variance : (q, q) variance of each entry, from the coins and from sampling
    overlap : (q, q) number of subjects observed in both columns
    """

    rho: Floats
    variance: Floats
    overlap: NDArray[np.int64]


def spearman_pairwise(grades: Floats, observed: NDArray[np.bool_], noise: Floats, spread: Floats) -> PairwiseSpearman:
    """Pairwise-complete Spearman correlations with the noise taken out.

    Parameters
    ----------
    noise : (q,) variance that the coins added to a grade
    spread : (q,) variance of a column's true grades in the whole cohort: 1/12, less for ties

    Notes
    -----
    On all n subjects the inner product of debiased grades with the known normaliser is unbiased:
    12 / (n(n^2-1)) * sum (R_d - (n+1)/2)(S_d - (n+1)/2). On the overlap of two columns the grades
    need not be spread as in the whole cohort, so their own mean and variance (less the known
    noise) are used, as far as the noise lets them be estimated.

    The coins' variance of an entry is 144/m * (v_j v_k + v_j s_k + v_k s_j), which for complete
    continuous data is 24c/n^2 + 144c^2/n^3 with c = theta(1-theta)/(1-2 theta)^2. Sampling adds to
    it only what an entry's own overlap adds beyond the cohort: what all entries share is the
    sample itself, and shrinking that would bias regressions that are exact in the sample.
    """
    overlap, product, mean, square = _sum_pairs(grades, observed)
    n_seen = np.diag(overlap)
    size = np.maximum(overlap, 1.0)
    product, mean, square = product / size, mean / size, square / size
    known = np.maximum(spread, 1e-12)[:, None] * np.ones_like(overlap)  # no spread, no correlation: never 0/0
    found = square - mean**2 - noise[:, None]
    complete = overlap >= n_seen[:, None]
    # A variance that is known only to a quarter of itself would do more harm than the cohort's.
    too_noisy = math.sqrt(2.0) * (noise[:, None] + known) / np.sqrt(size) > 0.25 * known
    ratio = np.where(complete | too_noisy, 1.0, np.maximum(found / known, 0.1))
    small_sample = 1.0 - 1.0 / np.maximum(n_seen, 2.0) ** 2  # ranks of n subjects have variance (n^2-1)/12
    centred = np.where(complete & complete.T, product, product - mean * mean.T)
    rho = 12.0 * centred / np.sqrt(ratio * ratio.T * np.outer(small_sample, small_sample))
    coins = 144.0 * (np.outer(noise, noise) + np.outer(noise, spread) + np.outer(spread, noise)) / size
    apart = np.maximum(1.0 / size - 1.0 / observed.shape[0], 0.0)
    sampling = (1.0 - np.clip(rho, -1.0, 1.0) ** 2) ** 2 * apart
    return PairwiseSpearman(rho, coins + sampling, overlap.astype(np.int64))


def _sum_pairs(grades: Floats, observed: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats, Floats]:
    """(q, q) each: subjects with j and k, sums of j times k, of j where k is observed too, and of j's squares there.

    The columns of one party mostly have one mask, so masks are multiplied once for all columns that share them.
    """
    q = grades.shape[1]
    masks: dict[bytes, int] = {}
    which = np.array([masks.setdefault(np.packbits(observed[:, j]).tobytes(), len(masks)) for j in range(q)])
    first = np.unique(which, return_index=True)[1]
    product, counts = np.zeros((q, q)), np.zeros((first.size, first.size))
    sums, squares = np.zeros((q, first.size)), np.zeros((q, first.size))
    for start in range(0, grades.shape[0], _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        part, seen = grades[rows], observed[rows, first].astype(np.float64)
        product += part.T @ part
        counts += seen.T @ seen
        sums += part.T @ seen
        squares += (part**2).T @ seen
    return counts[np.ix_(which, which)], product, sums[:, which], squares[:, which]


def invert_bridge(
    spearman: PairwiseSpearman, shapes: Sequence[GradeShape], flat: NDArray[np.bool_]
) -> PairwiseSpearman:
    """Latent correlations (in `rho`) and their variances from Spearman correlations.

    `flat` marks discrete columns whose noisy marginal left all mass in one cell: nothing can be
    said about their correlations, which become zero.
    """
    known = np.flatnonzero(~flat)
    inside = np.ix_(known, known)
    latent, variance = np.eye(len(shapes)), np.zeros((len(shapes), len(shapes)))
    latent[inside], slopes = invert_pairs(spearman.rho[inside], [shapes[j] for j in known.tolist()])
    variance[inside] = spearman.variance[inside] * slopes**2
    return PairwiseSpearman(latent, variance, spearman.overlap)


# ---- shrinkage ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Shrinkage:
    """A shrunk matrix, the rank of its target, and the mean absolute change it made."""

    correlation: Floats
    rank: int
    change: float


def shrink(correlation: Floats, variance: Floats, fixed: NDArray[np.bool_], *, iterations: int = 60) -> Shrinkage:
    """Move each entry towards a low-rank model as far as its known noise says.

    Entries are modelled as r_jk ~ N(target_jk, tau^2), observed with variance v_jk; the estimate is
    the posterior mean, target + tau^2/(tau^2 + v)(observed - target). The target is the low-rank
    part of the estimate itself (eigenvalues above the noise's own edge), and target, tau^2 and
    estimate are iterated. Without noise nothing changes.

    Parameters
    ----------
    fixed : (q, q) entries that stay as they are (the blocks inside a nominal column)
    """
    free = ~fixed & ~np.eye(correlation.shape[0], dtype=bool)
    if not free.any():
        return Shrinkage(correlation, 0, 0.0)
    noise = np.where(free, variance, 0.0)
    target = np.zeros_like(correlation)
    estimate = correlation
    rank = 0
    for _ in range(iterations):
        tau2 = prior_variance((correlation - target)[free], noise[free])
        weight = tau2 / (tau2 + noise)
        estimate = np.where(free, target + weight * (correlation - target), correlation)
        updated, rank = _low_rank_part(estimate, np.diag(target), weight**2 * noise)
        moved = float(np.max(np.abs(updated - target)))
        target = updated
        if moved < 1e-4:
            break
    return Shrinkage(estimate, rank, float(np.mean(np.abs(estimate - correlation)[free])))


def prior_variance(residual: Floats, noise: Floats) -> float:
    """Method-of-moments tau^2, weighting each entry by how much it can tell."""
    tau2 = max(float(np.mean(residual**2 - noise)), 1e-6)
    for _ in range(20):
        weight = 1.0 / (tau2 + noise) ** 2
        updated = max(float(np.sum(weight * (residual**2 - noise)) / np.sum(weight)), 1e-8)
        if abs(updated - tau2) < 1e-4 * tau2:
            break
        tau2 = updated
    return tau2


def _low_rank_part(estimate: Floats, communalities: Floats, noise: Floats) -> tuple[Floats, int]:
    """Part of the leading eigenvectors, as far as they stand out of the noise, and how many they are.

    `communalities` stand on the diagonal: the previous part's own. A symmetric matrix of noise with
    entry variances v has no eigenvalue beyond 2 sqrt(largest row sum of v) or so; and a factor that
    explains less than one column is no structure.
    """
    work = estimate.copy()
    np.fill_diagonal(work, np.clip(communalities, 0.0, 0.95))
    values, vectors = np.linalg.eigh(work)
    edge = max(2.0 * math.sqrt(float(np.max(noise.sum(axis=1)))), 1.0)
    rank = min(int(np.sum(values > edge)), max(work.shape[0] // 4, 1))
    if rank == 0:
        return np.zeros_like(work), 0
    top = vectors[:, -rank:]
    return np.asarray((top * values[-rank:]) @ top.T), rank
