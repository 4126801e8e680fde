"""Refined: VCDS's releases, then the coordinator undoes what missingness did, for no further budget."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

from verticopula.data.missingness import count_common
from verticopula.schema.columns import ColumnKey
from verticopula.stats.bridge import STRONGEST, GradeShape, invert_pairs
from verticopula.stats.copula import FittedCopula
from verticopula.stats.correlation import PairwiseSpearman
from verticopula.stats.em import find_patterns
from verticopula.stats.fit_result import AlignedDraw, FindPosteriorDraws, FitResult, find_unidentified
from verticopula.stats.latent_draws import CellEvidence, ReadingEvidence, sweep_latents
from verticopula.stats.loadings import Loadings
from verticopula.stats.margin_curves import apply_curves
from verticopula.stats.marginals import Marginal
from verticopula.stats.pairwise import FitReport, PairwiseLatents, assemble, shrink_and_repair
from verticopula.stats.posterior_draws import PosteriorDraws
from verticopula.stats.rank_release import CollectedReleases, RankRelease
from verticopula.stats.readings import reading_noise
from verticopula.stats.refinement import Refinement, gather_evidence, refine

Floats = NDArray[np.float64]


def fit_refined(
    collected: CollectedReleases, progress: Callable[[int, int], None] = lambda done, total: None
) -> FitResult:
    """A copula of everybody from what was released about the observed (`refinement.py`)."""
    release = collected.release
    refinement = refine(release, progress=progress)
    margins = apply_curves(release.layout, release.margins, refinement.curves)
    correlation, report = latent_correlation(release, refinement, margins)
    copula = FittedCopula(release.layout, margins, correlation)
    return FitResult(
        copula,
        release.margins,
        report,
        collected.missingness,
        collected.budgets,
        refinement=refinement.report,
        unidentified=find_unidentified(correlation, release.layout, report.overlap),
        draw_aligned=align_by_readings(release, refinement, copula),
        posterior_draws=posterior_draws_of(refinement, copula),
    )


def latent_correlation(
    release: RankRelease, refinement: Refinement, margins: Mapping[ColumnKey, Marginal]
) -> tuple[Floats, FitReport]:
    """The latents' correlation matrix and how it came about; `margins` are the corrected ones."""
    return shrink_and_repair(correlate_latents(release, refinement, margins), margins)


def correlate_latents(
    release: RankRelease, refinement: Refinement, margins: Mapping[ColumnKey, Marginal]
) -> PairwiseLatents:
    """From correlations of readings to correlations of latents, as VCDS does from those of grades.

    Taking the error out divides by the reliabilities; undoing the cells divides by the strengths
    where a column is continuous, and inverts the bridge of the two score functions where both are discrete.
    `margins` are the corrected ones.
    """
    q, scales = refinement.covariance.shape[0], refinement.readings.scales
    flat = np.array([scale.thresholds.size == 0 for scale in scales])
    reliability = np.where(flat, 1.0, refinement.readings.reliability)
    between = np.outer(reliability, reliability)
    scores = np.where(flat[:, None] | flat, 0.0, refinement.covariance / between)
    overlap = count_common(release.masks)
    variance = reading_noise(reliability, overlap.astype(np.float64), release.n_subjects) / between**2
    strengths = np.where(flat, 1.0, [scale.strength for scale in scales])
    latent = scores / np.outer(strengths, strengths)
    latent_variance = variance / np.outer(strengths, strengths) ** 2
    discrete = [j for j, margin in enumerate(release.latent_margins) if margin.column.has_ties and not flat[j]]
    shapes = [GradeShape(scales[j].thresholds, np.diff(scales[j].scores)) for j in discrete]
    both = np.ix_(discrete, discrete)
    latent[both], slopes = invert_pairs(12.0 * scores[both], shapes)
    latent_variance[both] = variance[both] * (12.0 * slopes) ** 2
    np.fill_diagonal(latent, 1.0)
    np.fill_diagonal(latent_variance, 0.0)
    pairwise = PairwiseSpearman(np.clip(latent, -STRONGEST, STRONGEST), latent_variance, overlap)
    deviations = _indicator_deviations(refinement, q)
    return assemble(pairwise, scores * np.outer(deviations, deviations), release.layout, margins, flat)


def _indicator_deviations(refinement: Refinement, q: int) -> Floats:
    """Standard deviation of each binary latent's indicator in the population; 0 for others."""
    deviations = np.zeros(q)
    for j, curve in enumerate(refinement.curves):
        if curve.population.size == 1:
            share = float(curve.population[0])
            deviations[j] = np.sqrt(share * (1.0 - share))
    return deviations


def align_by_readings(release: RankRelease, refinement: Refinement, copula: FittedCopula) -> AlignedDraw:
    """Latents of the cohort's own subjects given their readings."""
    own = [refinement.covariance[part, part] for part in copula.layout.slices]
    loadings = Loadings.of(copula, refinement.readings, own)

    @cache  # larger than the releases, and not always wanted
    def evidence() -> dict[int, CellEvidence | ReadingEvidence]:
        return gather_evidence(release, refinement)

    def draw(rng: np.random.Generator) -> Floats:
        start = loadings.draw_latents(refinement.readings.values, find_patterns(release.observed), rng)
        return sweep_latents(start, copula.correlation, evidence(), rng)

    return draw


def posterior_draws_of(refinement: Refinement, copula: FittedCopula) -> FindPosteriorDraws:
    """How surely the copula's correlations are known, from the readings that they were fitted to."""
    prior = refinement.report.prior_subjects

    @cache  # it takes seconds, is not always wanted, and is the same for all tables of a study
    def find() -> PosteriorDraws:
        rng = np.random.default_rng(0)  # any seed: an integral over what is public, not noise that protects
        return PosteriorDraws.of(copula, refinement.readings, refinement.covariance, prior, rng)

    return find
