"""Correlation from pairs of columns: every pair from the subjects that both have.

Right where blocks are missing completely at random. The refinement ends with `assemble` and `shrink_and_repair`, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from verticopula.data.missingness import count_common
from verticopula.schema.columns import ColumnKey
from verticopula.stats.bridge import STRONGEST, GradeShape
from verticopula.stats.copula import Layout, find_rare, indicators_to_latents, known_shares
from verticopula.stats.correlation import (
    PairwiseSpearman,
    invert_bridge,
    shared_masks,
    shrink,
    spearman_from_sums,
    sum_pairs,
)
from verticopula.stats.marginals import Marginal
from verticopula.stats.matrix_repair import nearest_correlation
from verticopula.stats.nominal import match_pair
from verticopula.stats.rank_release import RankRelease

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class FitReport:
    """How much every repair changed, for the report and for doubt.

    Attributes
    ----------
    overlap : (q, q) common subjects of each pair of latents
    standard_error : (q, q) of each latent correlation before shrinking
    shrink_rank, shrink_change : rank of the target; mean absolute change of an entry
    psd_change : largest change of an entry by the repair to a correlation matrix
    smallest_eigenvalue : before that repair
    margin_repairs : per column, total absolute change of the cell probabilities
    """

    overlap: NDArray[np.int64]
    standard_error: Floats
    shrink_rank: int
    shrink_change: float
    psd_change: float
    smallest_eigenvalue: float
    margin_repairs: Mapping[ColumnKey, float]


@dataclass(frozen=True)
class PairwiseLatents:
    """What is known of every pair of latents before anything is shrunk or repaired.

    Attributes
    ----------
    correlation, variance : (q, q) latent correlations and the variance of each
    overlap : (q, q) common subjects
    fixed : (q, q) pairs that shrinking leaves alone: inside a nominal column, or of a latent with all mass in one cell
    """

    correlation: Floats
    variance: Floats
    overlap: NDArray[np.int64]
    fixed: Bools

    def resting_on(self, observed: Bools) -> PairwiseLatents:
        """The same where only these cells were observed, the other ranked ones completed: those are no evidence."""
        overlap = count_common(observed.T)
        return replace(self, variance=self.variance * (self.overlap / np.maximum(overlap, 1)), overlap=overlap)


def fit_pairwise(release: RankRelease, observed: Bools | None = None) -> tuple[Floats, FitReport]:
    """Latent correlation matrix from noisy ranks, and how it came about.

    `observed` (N, q) says which of the ranked cells were observed; None for all of them.
    """
    pairs = correlate_pairs(release)
    return shrink_and_repair(pairs if observed is None else pairs.resting_on(observed), release.margins)


def correlate_pairs(release: RankRelease) -> PairwiseLatents:
    """Every pair's latent correlation from the noisy ranks of the subjects that both have."""
    latents = release.latent_margins
    pairs = sum_pairs(release.grade_blocks(), shared_masks(release.masks).which)
    spread = np.array([latent.grade_variance for latent in latents])
    spearman = spearman_from_sums(pairs, release.n_subjects, release.grade_noise(), spread)
    shapes, flat = grade_shapes(latents)
    # An indicator's mid-grade jumps by 1/2, so rho = 12 Cov(mid-grades) is 3 Cov(indicators).
    return assemble(invert_bridge(spearman, shapes, flat), spearman.rho / 3.0, release.layout, release.margins, flat)


def assemble(
    pairwise: PairwiseSpearman,
    indicator_covariance: Floats,
    layout: Layout,
    margins: Mapping[ColumnKey, Marginal],
    flat: Bools,
) -> PairwiseLatents:
    """Correlations of all latents, those of categories among them, from pairwise latent correlations.

    Parameters
    ----------
    pairwise : latent correlations and their variances, category indicators taken as binary columns
    indicator_covariance : (q, q), used between the categories of two nominal columns
    flat : (q,) latents with all mass in one cell, of which nothing is known
    """
    blocks, unknown = layout.nominal_blocks(), flat | find_rare(layout, margins)
    latent, variance = _to_category_latents(pairwise, layout, margins, blocks, unknown)
    _match_nominal_pairs(latent, indicator_covariance, layout, margins, unknown)
    # Pairs with a flat column are unknown, not known to be zero: the others must not learn from them.
    return PairwiseLatents(latent, variance, pairwise.overlap, blocks | unknown[:, None] | unknown[None, :])


def shrink_and_repair(pairs: PairwiseLatents, margins: Mapping[ColumnKey, Marginal]) -> tuple[Floats, FitReport]:
    """A proper correlation matrix: shrunk as far as the noise says, then repaired."""
    with threadpool_limits(limits=1, user_api="blas"):  # the matrices are small: threads only wait for each other
        shrunk = shrink(pairs.correlation, pairs.variance, pairs.fixed)
    repaired = nearest_correlation(shrunk.correlation)
    report = FitReport(
        overlap=pairs.overlap,
        standard_error=np.sqrt(pairs.variance),
        shrink_rank=shrunk.rank,
        shrink_change=shrunk.change,
        psd_change=repaired.change,
        smallest_eigenvalue=repaired.smallest_eigenvalue_before,
        margin_repairs={key: margin.repair for key, margin in margins.items()},
    )
    return repaired.correlation, report


def grade_shapes(latents: list[Marginal]) -> tuple[list[GradeShape], Bools]:
    """How every latent's grade steps, and which latents have all mass in one cell."""
    shapes = [GradeShape.from_grade_steps(*latent.grade_steps) for latent in latents]
    flat = [
        latent.column.has_ties and shape.thresholds.size == 0 for latent, shape in zip(latents, shapes, strict=True)
    ]
    return shapes, np.array(flat)


def _to_category_latents(
    pairwise: PairwiseSpearman,
    layout: Layout,
    margins: Mapping[ColumnKey, Marginal],
    fixed: Bools,
    unknown: Bools,
) -> tuple[Floats, Floats]:
    """Correlations with category indicators turned into correlations with category latents."""
    transform = indicators_to_latents(layout, margins, unknown)
    outside = pairwise.rho * ~fixed
    latent = transform @ outside @ transform.T
    variance = transform**2 @ (pairwise.variance * ~fixed) @ (transform**2).T
    latent[fixed] = 0.0
    variance[fixed] = 0.0
    np.fill_diagonal(variance, 0.0)
    latent = np.clip(latent, -STRONGEST, STRONGEST)
    np.fill_diagonal(latent, 1.0)
    return latent, variance


def _match_nominal_pairs(
    latent: Floats, covariance: Floats, layout: Layout, margins: Mapping[ColumnKey, Marginal], unknown: Bools
) -> None:
    """Scale the block of every two nominal columns to the association that was observed, in place."""
    nominal = [(k, s) for k, s in zip(layout.keys, layout.slices, strict=True) if s.stop - s.start > 1]
    known = [(margins[key], part.start, np.flatnonzero(~unknown[part])) for key, part in nominal]
    known = [column for column in known if column[2].size > 1]
    for index, (first, start, kept) in enumerate(known):
        for second, other_start, other_kept in known[:index]:
            rows, columns = start + kept, other_start + other_kept
            block, shares = np.ix_(rows, columns), (known_shares(first, kept), known_shares(second, other_kept))
            latent[block] = match_pair(latent[block], covariance[block], shares)
            latent[np.ix_(columns, rows)] = latent[block].T
