"""One round of the fit, and EM where there is next to no noise.

A round: the patterns' moments become those of everybody (`population_moments`); latent correlations are read off
(`score_model`), and moved towards a factor structure as far as the noise says (`factor_structure`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from verticopula.stats.em import em_step
from verticopula.stats.mixing import AndersonMixer
from verticopula.stats.refinement import REFINEMENT_TUNING
from verticopula.stats.strict.factor_structure import FactorStructure, fit_structure, group_pairs, start_structure
from verticopula.stats.strict.noisy_moments import NoisyMoments
from verticopula.stats.strict.population_moments import expect, find_base, pool, settle
from verticopula.stats.strict.score_model import PlacedLatents, ScoreModel, build_moments, repair_moments
from verticopula.stats.strict.tuning import STRICT_TUNING as TUNING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class StrictState:
    """Correlations, moments and structure after a round of the iteration.

    Attributes
    ----------
    mixer : learns from the rounds so far
    pooled : (q+1, q+1) moments as the patterns have them
    moments : (q+1, q+1) with the fitted correlations
    raw, variance, fitted : (q, q) latent correlations as the patterns have them; their variance; as fitted
    """

    mixer: AndersonMixer
    pooled: Floats
    moments: Floats
    placed: PlacedLatents
    structure: FactorStructure
    raw: Floats
    variance: Floats
    fitted: Floats


def advance(noisy: Sequence[NoisyMoments], model: ScoreModel, before: StrictState | None) -> StrictState:
    """One round; from independence where there is nothing before."""
    q = len(model.scores)
    moments = np.eye(q + 1) if before is None else before.moments
    # Without a model there is nothing to tell a pattern's shift from.
    base = find_base(noisy, q) if before is not None else np.empty(0, dtype=np.int64)
    found, variance = pool(noisy, expect(noisy, moments, base), moments)
    mixer = AndersonMixer(TUNING.mixing)
    if before is not None:
        found, mixer = before.mixer.next_state(before.pooled, found - before.pooled)
    placed = model.place(found)
    raw, noise = placed.correlations(found), variance[:-1, :-1] / placed.links**2
    if before is None:
        apart = model.layout.nominal_blocks() | model.flat[:, None] | model.flat
        structure = start_structure(raw, noise, group_pairs(model.owners, apart))
    else:
        structure = before.structure
    structure = fit_structure(structure, raw, noise)
    fitted = np.where(structure.groups >= 0, structure.blend(raw, noise), 0.0)
    return StrictState(mixer, found, build_moments(model, placed, fitted), placed, structure, raw, noise, fitted)


def sampling_dominates(noisy: Sequence[NoisyMoments]) -> bool:
    """Whether noise is small beside sampling in every pattern: then plain EM is the better estimator.

    With more noise, EM's regressions of everything on everything a pattern has would amplify it.
    """
    return all(float(np.median(p.noise**2)) <= TUNING.quiet / p.count for p in noisy)


def iterate_em(noisy: Sequence[NoisyMoments], model: ScoreModel, state: StrictState) -> tuple[StrictState, int, float]:
    """EM for the augmented moments until correlations rest; from the fitted ones."""
    base = find_base(noisy, len(model.scores))
    moments, fitted, change, rounds = state.moments, state.fitted, np.inf, 0
    prior = max(
        REFINEMENT_TUNING.prior_subjects_per_latent * len(model.scores) * _missing_share(noisy, model),
        REFINEMENT_TUNING.least_prior,
    )
    placed = state.placed
    while rounds < TUNING.most_em_steps and change >= TUNING.em_tolerance:
        rounds += 1
        moments = repair_moments(em_round(noisy, moments, base, prior))
        placed = model.place(moments)
        before, fitted = fitted, np.where(state.structure.groups >= 0, placed.correlations(moments), 0.0)
        change = float(np.max(np.abs(fitted - before)))
    return replace(state, moments=moments, placed=placed, fitted=fitted), rounds, change


def _missing_share(noisy: Sequence[NoisyMoments], model: ScoreModel) -> float:
    """Of people without the latent that most are without."""
    have = np.zeros(len(model.scores))
    for pattern in noisy:
        have[pattern.seen[:-1]] += pattern.count
    return (
        1.0 - float(have[~model.flat].min(initial=np.inf)) / sum(p.count for p in noisy)
        if not model.flat.all()
        else 0.0
    )


def em_round(noisy: Sequence[NoisyMoments], moments: Floats, base: Ints, prior_subjects: float = 0.0) -> Floats:
    """One step of EM for the augmented moments; without noise that of `em.em_step` on the people's own rows."""
    expected = expect(noisy, moments, base)
    return em_step(moments, [settle(p, e) for p, e in zip(noisy, expected, strict=True)], prior_subjects)
