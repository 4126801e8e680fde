"""The coordinator's model of everybody: augmented moments of scores, and what they say about latents and margins.

A score's mean in the population says where its latent is there, relative to the observed (a shift); its covariances,
brought to the variance that a score at that shift has, say how latents correlate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from verticopula.schema.federation import ColumnKey
from verticopula.stats.bridge import hermite_coefficients, invert_series
from verticopula.stats.copula import Layout
from verticopula.stats.correlation import PairwiseSpearman
from verticopula.stats.margin_curves import MarginCurve, correct_marginals
from verticopula.stats.marginals import Marginal
from verticopula.stats.matrix_repair import keep_definite
from verticopula.stats.pairwise import PairwiseLatents, assemble
from verticopula.stats.strict.latent_scores import LatentScore
from verticopula.stats.strict.tuning import STRICT_TUNING as TUNING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class ScoreModel:
    """What is public about all scores.

    Attributes
    ----------
    marginals : of the observed
    scores : one per latent
    tables : column -> (cells, latents) the scores of its pooled cells
    owners : (q,) number of a latent's party
    """

    layout: Layout
    marginals: Mapping[ColumnKey, Marginal]
    scores: Sequence[LatentScore]
    tables: Mapping[ColumnKey, Floats]
    owners: Ints

    @property
    def flat(self) -> Bools:
        """(q,) latents of which nothing can be learnt."""
        return np.array([score.is_flat for score in self.scores])

    def place(self, moments: Floats) -> PlacedLatents:
        """Shifts and slopes of all latents, from the scores' moments in the population."""
        means = np.where(self.flat, 0.0, moments[:-1, -1])
        shifts = np.array([solve_shift(score, mean) for score, mean in zip(self.scores, means, strict=True)])
        at_shift = zip(self.scores, shifts, strict=True)
        variances, slopes = np.array([(max(s.moments(x)[1], 1e-3), max(s.slope(x), 1e-3)) for s, x in at_shift]).T
        # Regression on the base is linear, scores are not: their covariances and variances go astray alike.
        found = np.diag(moments)[:-1] - means**2
        stretch = np.clip(found / variances, 1.0 / TUNING.most_stretch, TUNING.most_stretch)
        stretch[self.flat] = 1.0
        slopes = np.maximum(slopes, TUNING.weakest_slope * np.sqrt(variances))
        return PlacedLatents(means, shifts, variances, slopes, np.sqrt(stretch))


@dataclass(frozen=True)
class PlacedLatents:
    """Latents in the population, by the scores' means.

    Attributes
    ----------
    means, shifts : of scores; of latents, which among the observed have mean 0
    variances : of scores of a latent at its shift
    slopes : covariances of score and latent there
    stretch : standard deviation that scores seem to have over the one that they have there
    """

    means: Floats
    shifts: Floats
    variances: Floats
    slopes: Floats
    stretch: Floats

    @property
    def links(self) -> Floats:
        """(q, q) what a latent correlation is multiplied by in the moments at hand, to first order."""
        return np.outer(self.slopes * self.stretch, self.slopes * self.stretch)

    def correlations(self, moments: Floats) -> Floats:
        """(q, q) latent correlations to first order."""
        return np.asarray((moments[:-1, :-1] - np.outer(self.means, self.means)) / self.links)


def solve_shift(score: LatentScore, mean: float) -> float:
    """Where a latent of variance 1 must be for its score to have that mean; within two standard deviations."""
    if score.is_flat:
        return 0.0
    low, high = (score.moments(x)[0] - mean for x in (-TUNING.farthest_shift, TUNING.farthest_shift))
    if low >= 0.0 or high <= 0.0:
        return -TUNING.farthest_shift if low >= 0.0 else TUNING.farthest_shift
    return float(brentq(lambda x: score.moments(x)[0] - mean, -TUNING.farthest_shift, TUNING.farthest_shift, xtol=1e-4))


def build_moments(model: ScoreModel, placed: PlacedLatents, correlations: Floats) -> Floats:
    """Augmented moments of scores with these latent correlations (to first order), positive definite."""
    covariance = correlations * placed.links
    deviations = np.sqrt(placed.variances) * placed.stretch
    np.fill_diagonal(covariance, deviations**2)
    for key, part in zip(model.layout.keys, model.layout.slices, strict=True):
        if part.stop - part.start > 1:  # categories exclude each other, whatever the latents do
            stretch = placed.stretch[part]
            covariance[part, part] = _category_covariance(model, placed, key, part) * np.outer(stretch, stretch)
    moments = np.ones((correlations.shape[0] + 1, correlations.shape[0] + 1))
    moments[:-1, :-1] = covariance + np.outer(placed.means, placed.means)
    moments[:-1, -1] = moments[-1, :-1] = placed.means
    return repair_moments(moments)


def repair_moments(moments: Floats) -> Floats:
    """Augmented moments whose correlation matrix is positive definite; those that are stay as they are."""
    means = moments[:-1, -1]
    covariance = moments[:-1, :-1] - np.outer(means, means)
    deviations = np.sqrt(np.maximum(np.diag(covariance), 1e-6))
    repaired = moments.copy()
    unit = covariance / np.outer(deviations, deviations)
    np.fill_diagonal(unit, 1.0)
    repaired[:-1, :-1] = keep_definite(unit) * np.outer(deviations, deviations) + np.outer(means, means)
    return repaired


def _category_covariance(model: ScoreModel, placed: PlacedLatents, key: ColumnKey, part: slice) -> Floats:
    """Of the scores of one nominal column's categories, with their shares in the population."""
    shares = np.array(
        [max(float(model.scores[j].shares(placed.shifts[j])[1]), 1e-6) for j in range(part.start, part.stop)]
    )
    table = model.tables[key]
    groups = np.where(table.std(axis=0) > 0.0, table.argmax(axis=0), table.shape[0] - 1)
    shares = np.bincount(groups, weights=shares, minlength=table.shape[0]) / shares.sum()
    centred = table - shares @ table
    return np.asarray(centred.T @ (shares[:, None] * centred))


def margin_curves(model: ScoreModel, placed: PlacedLatents) -> list[MarginCurve]:
    """From grades among the observed to grades in the population, whose latents are shifted."""
    curves = []
    for key, part in zip(model.layout.keys, model.layout.slices, strict=True):
        for latent, shift in zip(model.marginals[key].latents(), placed.shifts[part], strict=True):
            grades = np.clip(np.cumsum(latent.probabilities)[:-1], 0.0, 1.0)
            curves.append(MarginCurve(grades, ndtr(ndtri(grades) - shift)))
    return curves


def correlate(
    model: ScoreModel, placed: PlacedLatents, correlations: Floats, variance: Floats, overlap: Ints
) -> PairwiseLatents:
    """Latent correlations from those to first order: the bridge of the two step functions, nominal columns included.

    `variance` : of each; infinite where nobody has both
    """
    covariance = correlations * np.outer(placed.slopes, placed.slopes)
    coefficients = [
        hermite_coefficients(score.thresholds - shift, np.diff(score.scores))
        for score, shift in zip(model.scores, placed.shifts, strict=True)
    ]
    latent, _ = invert_series(coefficients, covariance)
    np.fill_diagonal(latent, 1.0)
    # A two-valued score steps by this much where its indicator steps by 1.
    steps = np.array(
        [1.0 / max(float(s.scores[1] - s.scores[0]), 1e-9) if s.scores.size == 2 else 0.0 for s in model.scores]
    )
    return assemble(
        PairwiseSpearman(latent, np.where(np.isfinite(variance), variance, 1.0), overlap),
        covariance * np.outer(steps, steps),
        model.layout,
        correct_marginals(model.layout, model.marginals, margin_curves(model, placed)),
        model.flat,
    )
