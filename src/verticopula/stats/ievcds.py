"""IEVCDS, verticopula's variant of Algorithm 3: what a round of ranks implies about missing values, and the last fit.

Every round after the first ranks imputed values too, and those move with any replaced record: one
replacement can flip N - 1 + (number missing) comparisons there, and is charged for them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from verticopula.schema.columns import ColumnKey
from verticopula.stats.copula import FittedCopula
from verticopula.stats.evcds import (
    align_by_ranks,
    draw_in_order,
    largest_sensitivity,
    observed_curves,
    response_latents,
)
from verticopula.stats.fit_result import FitResult
from verticopula.stats.margin_curves import apply_curves
from verticopula.stats.pairwise import FitReport, fit_pairwise
from verticopula.stats.rank_release import CollectedReleases, RankRelease

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class RoundFit:
    """What one round of ranks gave.

    Attributes
    ----------
    latents : (N, q) drawn in the order of the noisy ranks
    """

    copula: FittedCopula
    latents: Floats
    report: FitReport


def fit_round(
    collected: CollectedReleases, release: RankRelease, response: ColumnKey, rng: np.random.Generator
) -> RoundFit:
    """The copula that the ranks of this round imply; margins are those of the first round, corrected."""
    observed = collected.release.observed
    correlation, report = fit_pairwise(release, observed)
    latents = draw_in_order(release, correlation, response_latents(response, release), rng)
    layout = collected.release.layout
    margins = apply_curves(layout, collected.release.margins, observed_curves(latents, observed))
    return RoundFit(FittedCopula(layout, margins, correlation), latents, report)


def finish_rounds(collected: CollectedReleases, release: RankRelease, last: RoundFit, response: ColumnKey) -> FitResult:
    """The study's result, from its last round."""
    observed = collected.release.observed
    return FitResult(
        last.copula,
        collected.release.margins,
        last.report,
        collected.missingness,
        collected.budgets,
        margin_sensitivity=largest_sensitivity(last.latents, observed),
        draw_aligned=align_by_ranks(release, last.copula, response_latents(response, release), observed),
    )


def place_missing(
    copula: FittedCopula, latents: Floats, observed: Bools, key: ColumnKey, part: slice
) -> tuple[Floats, Floats, NDArray[np.int64] | None]:
    """Where the model puts a column's missing values: (grades of observed, of missing, None), or codes if discrete."""
    seen = observed[:, part.start]
    if copula.margins[key].column.is_discrete:
        return np.empty(0), np.empty(0), copula.decoder(key, part)(latents[~seen, part]).astype(np.int64)
    column = latents[:, part.start]
    return np.sort(ndtr(column[seen])), ndtr(column[~seen]), None
