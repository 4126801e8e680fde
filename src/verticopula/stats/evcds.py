"""EVCDS, verticopula's variant of Algorithm 2: VCDS's releases, margins from latents in the order of noisy ranks.

The paper lets the client compute its margin from latents that the server sends, and adds noise
to that. Given the latents, the margin at a cut is a public function of the *number* of values below
it. So the parties release noisy counts, exactly as in VCDS, and the public function is applied
afterwards: the same estimator with far less noise (docs/development/departures.md). Nothing but one release
is then needed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from verticopula.schema.columns import ColumnKey
from verticopula.stats.copula import FittedCopula
from verticopula.stats.em import find_patterns
from verticopula.stats.fit_result import AlignedDraw, FitResult
from verticopula.stats.latent_draws import draw_constrained
from verticopula.stats.loadings import Loadings
from verticopula.stats.margin_curves import MarginCurve, apply_curves, conditional_sensitivity, curve_from_latents
from verticopula.stats.pairwise import fit_pairwise
from verticopula.stats.rank_release import CollectedReleases, RankRelease
from verticopula.stats.readings import read_release

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def fit_evcds(collected: CollectedReleases, response: ColumnKey, rng: np.random.Generator) -> FitResult:
    """A copula from one rank-constrained draw of the cohort's latents."""
    release = collected.release
    correlation, report = fit_pairwise(release)
    first = response_latents(response, release)
    latents = draw_in_order(release, correlation, first, rng)
    curves = observed_curves(latents, release.observed)
    margins = apply_curves(release.layout, release.margins, curves)
    copula = FittedCopula(release.layout, margins, correlation)
    return FitResult(
        copula,
        release.margins,
        report,
        collected.missingness,
        collected.budgets,
        margin_sensitivity=largest_sensitivity(latents, release.observed),
        draw_aligned=align_by_ranks(release, copula, first, release.observed),
    )


def response_latents(response: ColumnKey, release: RankRelease) -> slice:
    """The response's latents: the draw begins with them."""
    return release.layout.slices[release.layout.keys.index(response)]


def draw_in_order(release: RankRelease, correlation: Floats, first: slice, rng: np.random.Generator) -> Floats:
    """(N, q) latents in the order of the noisy ranks, the response's drawn first."""
    q = correlation.shape[0]
    begin = list(range(first.start, first.stop))
    sequence = np.array(begin + [j for j in range(q) if j not in begin])
    drawn = draw_constrained(
        correlation[np.ix_(sequence, sequence)],
        release.observed[:, sequence],
        [release.ranks[j] for j in sequence],
        rng,
    )
    latents = np.empty_like(drawn)
    latents[:, sequence] = drawn
    return latents


def observed_curves(latents: Floats, observed: Bools) -> list[MarginCurve]:
    """One curve per latent, from the latents of the subjects that have a value."""
    return [curve_from_latents(latents[observed[:, j], j]) for j in range(latents.shape[1])]


def largest_sensitivity(latents: Floats, observed: Bools) -> float:
    """Over all latents, how far one replaced value can move the margin."""
    return max(conditional_sensitivity(latents[observed[:, j], j]) for j in range(latents.shape[1]))


def align_by_ranks(release: RankRelease, copula: FittedCopula, first: slice, observed: Bools) -> AlignedDraw:
    """Fresh latents of the cohort's own subjects, as often as asked.

    In the order of the noisy ranks where a value was observed; where it was not, ranked or not, given what was read.
    """
    draw_missing = prepare_missing(release, copula, observed)
    return lambda rng: draw_missing(draw_in_order(release, copula.correlation, first, rng), rng)


def prepare_missing(
    release: RankRelease, copula: FittedCopula, observed: Bools
) -> Callable[[Floats, np.random.Generator], Floats]:
    """Replaces latents of missing values by draws given what the subject's noisy ranks say about its other latents.

    Not given the other latents themselves, as they were drawn: noisy, and in a random order where values are tied,
    they hang together less than the correlation says. Whatever is predicted from them as if they were exact
    would too, and where the correlation is nearly singular it would be far too large.
    """
    readings = read_release(release)
    values = readings.values
    seen = [observed[:, part.start] for part in copula.layout.slices]
    own = [
        values[rows, part].T @ values[rows, part] / max(rows.sum(), 1)
        for rows, part in zip(seen, copula.layout.slices, strict=True)
    ]
    patterns = find_patterns(observed)
    loadings = Loadings.of(copula, readings, own).allow_for(values, patterns)
    incomplete = [pattern for pattern in patterns if pattern.missing.size]
    return lambda latents, rng: np.where(observed, latents, loadings.draw_latents(values, incomplete, rng))
