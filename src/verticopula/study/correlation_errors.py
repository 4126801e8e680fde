"""Standard errors of a study's correlations against the population: what noise and the finite sample leave unknown."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verticopula.stats.copula import find_rare, indicators_to_latents
from verticopula.stats.marginals import Marginal
from verticopula.stats.readings import ScoreScale
from verticopula.stats.tilting.category_shifts import threshold_density
from verticopula.study.fitted_study import FittedStudy

Floats = NDArray[np.float64]

# In exactly these words wherever such an error is shown: the report, the summary, plots, warnings and their pages.
AGAINST_POPULATION = "against the population: noise and finite sample together"
NOTHING_KNOWN = 1.0  # a larger error says no more: a correlation is between -1 and 1


def population_errors(fitted: FittedStudy) -> Floats:
    """(q, q) standard error of each latent correlation before shrinking, against the population; at most 1.

    The fit's own errors are those that shrinking needs. For methods that rank they are of the noise alone, since all
    pairs share the sample and shrinking must not undo it; here the sampling error is added. `strict` and the
    algorithms as printed have it in theirs.

    Parameters
    ----------
    fitted : the study
    """
    found = fitted.result.report.standard_error
    if not fitted.settings.record.ranks or fitted.settings.is_printed:
        return np.minimum(found, NOTHING_KNOWN)
    return np.minimum(np.sqrt(found**2 + _sampling_variance(fitted)), NOTHING_KNOWN)


def errors_of_pairs(fitted: FittedStudy) -> tuple[list[tuple[int, int]], Floats]:
    """Every pair of latents of different columns, the second one first in order, and its error.

    Parameters
    ----------
    fitted : the study
    """
    keys, errors = fitted.result.copula.layout.latent_keys, population_errors(fitted)
    pairs = [(j, k) for j in range(len(keys)) for k in range(j) if keys[j] != keys[k]]
    return pairs, np.array([errors[pair] for pair in pairs])


def typical_error(fitted: FittedStudy) -> float:
    """The median pair's error; zero if there are none, as in a study of one column.

    Parameters
    ----------
    fitted : the study
    """
    errors = errors_of_pairs(fitted)[1]
    return float(np.median(errors)) if errors.size else 0.0


def _sampling_variance(fitted: FittedStudy) -> Floats:
    """(q, q) variance of latent correlations without noise, as far as the fit's own errors leave it out.

    What is seen of a latent, its cells, has a correlation a with it: 1 for a continuum. What is seen of two latents
    then has a correlation of about a_j a_k r, and

        Var(r) = (1 - r^2) (1 - (a_j a_k r)^2) / (n a_j^2 a_k^2),

    which is (1 - r^2)^2 / n for two continua, and the tetrachoric correlation's near r = 0.
    """
    result, layout = fitted.result, fitted.result.copula.layout
    unknown = find_rare(layout, result.observed_margins)
    transform = indicators_to_latents(layout, result.observed_margins, unknown)
    seen = [
        _squared_strengths(result.observed_margins[key], transform[part, part])
        for key, part in zip(layout.keys, layout.slices, strict=True)
    ]
    between = np.outer(np.concatenate(seen), np.concatenate(seen))
    fixed = layout.nominal_blocks() | np.eye(between.shape[0], dtype=bool) | (between == 0.0)
    r2 = np.clip(result.copula.correlation, -1.0, 1.0) ** 2
    unit = (1.0 - r2) * (1.0 - between * r2) / np.where(fixed, 1.0, between)
    return np.where(fixed, 0.0, unit / _people_behind(fitted))


def _squared_strengths(margin: Marginal, transform: Floats) -> Floats:
    """(latents,) squared correlation of each latent of a column with what is seen of it; 0 where that is nothing.

    Latents of categories are found from all indicators together, whose errors hang together: when one category has
    more people, the others have fewer.
    """
    if transform.shape[0] == 1:
        steps = margin.grade_steps[0]
        return np.array([ScoreScale.of(steps).strength ** 2 if steps.size else float(not margin.column.has_ties)])
    shares = margin.probabilities
    weights = transform / threshold_density(shares)
    variance = weights**2 @ shares - (weights @ shares) ** 2
    return np.divide(1.0, variance, out=np.zeros_like(variance), where=variance > 0.0)


def _people_behind(fitted: FittedStudy) -> Floats:
    """(q, q) how many people's sampling error the fit's own errors leave out.

    Fits pair by pair have in theirs what a pair's common people add beyond the cohort, the others nothing. EM also
    learns of a pair from people who have only one of the two.
    """
    result = fitted.result
    cohort = float(result.n_subjects)
    if not (fitted.settings.record.models_missing or fitted.settings.record.repeats_ranks):
        return np.full(result.report.overlap.shape, cohort)
    known = np.array([result.missingness.observed[key] for key in result.copula.layout.latent_keys], dtype=np.float64)
    return np.asarray(np.maximum(np.maximum(result.report.overlap, np.outer(known, known) / cohort), 1.0))
