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

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from verticopula.stats.bridge import GradeShape, invert_pairs

Floats = NDArray[np.float64]

GRADE_ROWS = 1 << 11  # their grades stay in the cache


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


@dataclass(frozen=True)
class SharedMasks:
    """Masks without repetitions: the columns of one party mostly have one.

    Attributes
    ----------
    masks : (N,) each, all of them different
    which : (q,) the mask of every latent
    """

    masks: tuple[NDArray[np.bool_], ...]
    which: NDArray[np.int64]


def shared_masks(masks: Sequence[NDArray[np.bool_]]) -> SharedMasks:
    """The different ones of some masks, and which of them each is."""
    known: dict[bytes, int] = {}
    different: list[NDArray[np.bool_]] = []
    numbers: dict[int, int] = {}
    for mask in masks:
        if id(mask) not in numbers:
            numbers[id(mask)] = known.setdefault(hashlib.sha256(np.packbits(mask).data).digest(), len(known))
            different += [mask] if len(known) > len(different) else []
    return SharedMasks(tuple(different), np.array([numbers[id(mask)] for mask in masks], dtype=np.int64))


@dataclass(frozen=True)
class GradeBlock:
    """Some subjects' grades, and who they are, in one array.

    Attributes
    ----------
    both : (q + g, rows) `grades` above `seen`
    n_latents : q
    """

    both: Floats
    n_latents: int

    @classmethod
    def empty(cls, n_latents: int, masks: Sequence[NDArray[np.bool_]], rows: slice) -> GradeBlock:
        """A block of these rows whose grades are to be written, and which of them each of the different masks has."""
        seen = [mask[rows] for mask in masks]
        both = np.empty((n_latents + len(seen), seen[0].size))
        for number, who in enumerate(seen):
            both[n_latents + number] = who
        return cls(both, n_latents)

    @property
    def grades(self) -> Floats:
        """(q, rows), zero where nothing was observed."""
        return self.both[: self.n_latents]

    @property
    def seen(self) -> Floats:
        """(g, rows) 1 for subjects that a mask has, 0 for others."""
        return self.both[self.n_latents :]


@dataclass(frozen=True)
class PairSums:
    """Sums over all subjects, (q, q) each, of pairs of latents j and k.

    Attributes
    ----------
    counts : subjects with both
    products : of j times k
    sums, squares : of j, and of its square, where k is observed too
    """

    counts: Floats
    products: Floats
    sums: Floats
    squares: Floats


def sum_pairs(blocks: Iterable[GradeBlock], which: NDArray[np.int64]) -> PairSums:
    """Pairs of latents added up over all blocks; masks are multiplied once for all latents that share them.

    Blocks are as large wherever they come from, so the sums are the same to the last bit.
    """
    q, g = which.size, int(which.max()) + 1
    products, squares = np.zeros((q + g, q + g)), np.zeros((q, g))
    for block in blocks:
        products += block.both @ block.both.T  # of grades, and their sums and counts, which take no time of their own
        _add_squares(block.grades, block.seen, which, squares)
    squares[np.arange(q), which] = np.diag(products)[:q]  # a latent's grades are 0 where its own mask has nobody
    counts = products[q:, q:][np.ix_(which, which)]
    return PairSums(counts, products[:q, :q], products[:q, q:][:, which], squares[:, which])


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _add_squares(grades: Floats, seen: Floats, which: NDArray[np.int64], squares: Floats) -> None:
    """Add the squares of every latent's grades over every mask but its own; in any order, so that it vectorises."""
    for j in range(grades.shape[0]):
        row = grades[j]
        for k in range(seen.shape[0]):
            if k == which[j]:
                continue
            who, total = seen[k], 0.0
            for i in range(row.size):
                total += row[i] * row[i] * who[i]
            squares[j, k] += total


def spearman_pairwise(grades: Floats, observed: NDArray[np.bool_], noise: Floats, spread: Floats) -> PairwiseSpearman:
    """Pairwise-complete Spearman correlations of (N, q) grades, as `spearman_from_sums` has them."""
    people = shared_masks(list(observed.T))
    pairs = sum_pairs(cut_grades(grades, people), people.which)
    return spearman_from_sums(pairs, grades.shape[0], noise, spread)


def cut_grades(grades: Floats, people: SharedMasks) -> Iterator[GradeBlock]:
    """(N, q) grades in blocks."""
    for start in range(0, grades.shape[0], GRADE_ROWS):
        rows = slice(start, start + GRADE_ROWS)
        block = GradeBlock.empty(grades.shape[1], people.masks, rows)
        block.grades[:] = grades[rows].T
        yield block


def spearman_from_sums(pairs: PairSums, n_subjects: int, noise: Floats, spread: Floats) -> PairwiseSpearman:
    """Pairwise-complete Spearman correlations with the noise taken out.

    Parameters
    ----------
    pairs : sums over the subjects of centred debiased grades
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
    overlap, n_seen = pairs.counts, np.diag(pairs.counts)
    size = np.maximum(overlap, 1.0)
    product, mean, square = pairs.products / size, pairs.sums / size, pairs.squares / size
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
    apart = np.maximum(1.0 / size - 1.0 / n_subjects, 0.0)
    sampling = (1.0 - np.clip(rho, -1.0, 1.0) ** 2) ** 2 * apart
    return PairwiseSpearman(rho, coins + sampling, overlap.astype(np.int64))


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
class ShrinkageTuning:
    """Chosen constants of shrinkage. All were chosen by hand, not tuned.

    Attributes
    ----------
    rounds, last_move : most of them, and the largest change of the target after which no other follows
    first_variance, least_variance : tau^2 at least, at the start and later
    variance_rounds, variance_change : most rounds of tau^2, and the relative change after which no other follows
    most_shared : communality at most
    least_eigenvalue : of a factor; a smaller one explains less than one column
    columns_a_factor : there is no more than one for so many
    """

    rounds: int = 60
    last_move: float = 1e-4
    first_variance: float = 1e-6
    least_variance: float = 1e-8
    variance_rounds: int = 20
    variance_change: float = 1e-4
    most_shared: float = 0.95
    least_eigenvalue: float = 1.0
    columns_a_factor: int = 4


SHRINKAGE_TUNING = ShrinkageTuning()


@dataclass(frozen=True)
class Shrinkage:
    """A shrunk matrix, the rank of its target, and the mean absolute change it made."""

    correlation: Floats
    rank: int
    change: float


def shrink(correlation: Floats, variance: Floats, fixed: NDArray[np.bool_]) -> Shrinkage:
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
    for _ in range(SHRINKAGE_TUNING.rounds):
        tau2 = prior_variance((correlation - target)[free], noise[free])
        weight = tau2 / (tau2 + noise)
        estimate = np.where(free, target + weight * (correlation - target), correlation)
        updated, rank = _low_rank_part(estimate, np.diag(target), weight**2 * noise)
        moved = float(np.max(np.abs(updated - target)))
        target = updated
        if moved < SHRINKAGE_TUNING.last_move:
            break
    return Shrinkage(estimate, rank, float(np.mean(np.abs(estimate - correlation)[free])))


def prior_variance(residual: Floats, noise: Floats) -> float:
    """Method-of-moments tau^2, weighting each entry by how much it can tell."""
    tau2 = max(float(np.mean(residual**2 - noise)), SHRINKAGE_TUNING.first_variance)
    for _ in range(SHRINKAGE_TUNING.variance_rounds):
        weight = 1.0 / (tau2 + noise) ** 2
        found = float(np.sum(weight * (residual**2 - noise)) / np.sum(weight))
        updated = max(found, SHRINKAGE_TUNING.least_variance)
        if abs(updated - tau2) < SHRINKAGE_TUNING.variance_change * tau2:
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
    np.fill_diagonal(work, np.clip(communalities, 0.0, SHRINKAGE_TUNING.most_shared))
    values, vectors = np.linalg.eigh(work)
    edge = max(2.0 * math.sqrt(float(np.max(noise.sum(axis=1)))), SHRINKAGE_TUNING.least_eigenvalue)
    rank = min(int(np.sum(values > edge)), max(work.shape[0] // SHRINKAGE_TUNING.columns_a_factor, 1))
    if rank == 0:
        return np.zeros_like(work), 0
    top = vectors[:, -rank:]
    return np.asarray((top * values[-rank:]) @ top.T), rank
