"""What may be wrong with a regression: its settings, before data are asked for; its result, before it is believed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import SettingsError, StudyWarning
from verticopula.estimators.printed_regression import PRINTED_BIC
from verticopula.glm.bayes import Posterior
from verticopula.glm.central_solver import maximise_likelihood
from verticopula.glm.families import Family, find_family
from verticopula.glm.feature_design import Features
from verticopula.glm.penalties import Penalty
from verticopula.protocol.regression_path import FederatedPath
from verticopula.schema.columns import is_number
from verticopula.schema.methods import PRINTED_VARIANT, VARIANTS
from verticopula.schema.setting_choices import BY_BIC, SELECT_RULES

Floats = NDArray[np.float64]
RandomState = int | np.random.RandomState | np.random.Generator | None


@dataclass(frozen=True)
class FitThresholds:
    """When a regression is doubted; chosen by hand.

    Attributes
    ----------
    chain_difference : chains whose inclusion probabilities are on average so far apart have not seen the same posterior
    diverging_predictor : one that a sharper maximisation moves so far was on its way to infinity
    """

    chain_difference: float = 0.15
    diverging_predictor: float = 2.0


THRESHOLDS = FitThresholds()


NO_STRENGTH_JUDGED = StudyWarning(
    "glm-unjudged",
    "care",
    "No strength could be judged",
    "Every fit is all but perfect, or folds did not reach it.",
    "Leave out columns that give the response away, or take fewer folds.",
)
SEPARABLE = StudyWarning(
    "glm-separable",
    "care",
    "The classes are separable",
    "Maximum likelihood does not exist: coefficients grow without end.",
    "Choose a penalty, or leave out the columns that separate them.",
)
DEPENDENT_COLUMNS = StudyWarning(
    "glm-dependent",
    "care",
    "Selected columns are linearly dependent",
    "Their coefficients are not unique.",
    "Leave out columns that follow from others.",
)
TOO_MANY_COEFFICIENTS = StudyWarning(
    "glm-saturated",
    "care",
    "As many coefficients as rows",
    "Any response would be explained.",
    "Select fewer columns, or use more rows.",
)
NO_MAXIMUM = StudyWarning(
    "glm-no-maximum",
    "care",
    "The likelihood has no maximum",
    "Some category or range has only one outcome.",
    "Merge rare categories, leave the column out, or choose a penalty.",
)


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def check_settings(settings: Mapping[str, Any]) -> None:
    """SettingsError for what can be said before any data are seen, or asked for.

    Parameters
    ----------
    settings : the parameters of `VerticalGLM`, by name
    """
    find_family(settings["family"])
    concavity, select, inclusion = settings["concavity"], settings["select"], settings["inclusion"]
    if concavity is not None and not is_number(concavity):
        raise SettingsError("concavity must be a number")
    Penalty.build(settings["penalty"], concavity)
    if is_number(select):
        if not 0.0 <= float(select) < np.inf:
            raise SettingsError("a strength must be a number of at least 0")
    elif select == PRINTED_BIC and settings["variant"] == PRINTED_VARIANT:
        pass
    elif not isinstance(select, str) or select not in SELECT_RULES:
        raise SettingsError(f"select must be 'bic', 'cv', 'bayes' or a number, got {select!r}")
    _check_variant(settings)
    if inclusion is not None and not (is_number(inclusion) and 0.0 <= inclusion < 1.0):
        raise SettingsError(f"inclusion must be a probability below 1, got {inclusion!r}")
    n_effective = settings["n_effective"]
    if n_effective is not None and not (is_number(n_effective) and 1.0 < n_effective < np.inf):
        raise SettingsError(f"n_effective must be a number above 1, got {n_effective!r}")
    for name in ("tolerance", "strength_ratio"):
        if not (is_number(settings[name]) and 0.0 < settings[name] < 1.0):
            raise SettingsError(f"{name} must lie in (0, 1), got {settings[name]!r}")
    for name, least in (("n_strengths", 2), ("folds", 2), ("max_rounds", 1)):
        if not _is_whole(settings[name], least):
            raise SettingsError(f"{name} must be a whole number of at least {least}, got {settings[name]!r}")
    state = settings["random_state"]
    if not (state is None or isinstance(state, (np.random.RandomState, np.random.Generator)) or _is_whole(state, 0)):
        raise SettingsError(
            f"random_state must be a whole number of at least 0, a generator of NumPy's or None, got {state!r}"
        )


def _check_variant(settings: Mapping[str, Any]) -> None:
    """SettingsError for what Algorithm 4 as printed does not have."""
    variant, rho, select = settings["variant"], settings["rho"], settings["select"]
    if variant not in VARIANTS:
        raise SettingsError(f"unknown variant {variant!r}; known: {', '.join(VARIANTS)}")
    if not (is_number(rho) and 0.0 < rho < np.inf):
        raise SettingsError(f"rho must be a positive number, got {rho!r}")
    if variant != PRINTED_VARIANT:
        return
    if settings["fit_intercept"]:
        raise SettingsError(f"variant {variant!r} has no intercept: set fit_intercept=False")
    if not is_number(select) and select not in (BY_BIC, PRINTED_BIC):
        raise SettingsError(f"variant {variant!r} selects by 'bic', {PRINTED_BIC!r} or a strength, not by {select!r}")


def path_warnings(
    path: FederatedPath,
    scores: list[float],
    chosen: int,
    y: Floats,
    *,
    family: str,
    penalty: str,
    refits: bool,
    averaged: bool,
    converged: bool,
) -> list[StudyWarning]:
    """What the path alone says against the fit at its chosen point.

    Parameters
    ----------
    scores : the criterion at every point; empty where none was compared
    refits : whether maximum likelihood fits on the selected columns were compared
    averaged : whether a posterior replaces the coefficients of the chosen point
    converged : whether the chosen fit came to rest
    """
    strength, found = path.points[chosen].strength, []
    if not converged:
        found.append(
            StudyWarning(
                "glm-not-converged",
                "care",
                f"The fit at strength {strength:.3g} did not converge",
                "Its coefficients are those of the last step.",
                "Choose a larger strength, or allow more rounds as printed (max_rounds).",
            )
        )
    judged = [
        i for i, score in enumerate(scores) if np.isfinite(score) and not (refits and path.points[i].refit is None)
    ]
    if refits and path.points[chosen].refit is None and not averaged:
        found.append(
            StudyWarning(
                "glm-not-refitted",
                "care",
                f"At strength {strength:.3g} maximum likelihood on the selected columns is all but perfect",
                "The classes are separable, or nearly. The coefficients are those of the penalised fit, and too small.",
                "Leave out columns that give the response away, or choose a larger strength.",
            )
        )
    elif scores and not judged:
        found.append(NO_STRENGTH_JUDGED)
    elif path.ended_early and chosen >= (judged[-1] if judged else len(path.points) - 1):
        found.append(
            StudyWarning(
                "glm-path-ends",
                "care",
                f"Below strength {strength:.3g} the fit is all but perfect, and the path ends there",
                "The classes are separable, or there are more columns than the rows can support. The best fit may lie "
                "beyond.",
                "Leave out columns that give the response away, or use more rows.",
            )
        )
    unpenalised = family == "binomial" and penalty == "none"
    if unpenalised and np.all((2.0 * y - 1.0) * path.predictions[-1] > 0.0):
        found.append(SEPARABLE)
    for name, design in path.designs.items():
        if design.constant.any():
            flat = ", ".join(s for s, c in zip(design.sources, design.constant, strict=True) if c)
            found.append(
                StudyWarning(
                    "glm-constant",
                    "note",
                    f"Constant columns of party {name!r} cannot enter ({flat})",
                    "They say nothing about the response.",
                    "Nothing to do, unless they should vary.",
                )
            )
    return found


def posterior_warnings(found: Posterior) -> list[StudyWarning]:
    """Warnings that follow from the posterior's chains alone."""
    if found.chain_difference <= THRESHOLDS.chain_difference:
        return []
    return [
        StudyWarning(
            "glm-chains",
            "care",
            f"Two chains' inclusion probabilities differ by {found.chain_difference:.2f} on average",
            "They do not mix: other chains would give other coefficients.",
            "Leave out columns that are all but copies of others, or choose columns by another criterion.",
        )
    ]


def coefficient_warnings(
    features: Features,
    y: Floats,
    coef: Floats,
    intercept: float | None,
    *,
    family: Family,
    identified: bool,
    maximised: bool,
) -> list[StudyWarning]:
    """What can be said against the coefficients when the columns are at hand.

    Parameters
    ----------
    coef : (p,) of all features, 0 for those that were not selected
    intercept : None where none was fitted
    identified : whether the selected columns are linearly independent
    maximised : whether the coefficients are meant to maximise the likelihood
    """
    kept = np.flatnonzero(coef)
    if not identified:
        return [DEPENDENT_COLUMNS]
    if kept.size + int(intercept is not None) >= y.size:
        return [TOO_MANY_COEFFICIENTS]
    if family.name == "gaussian" or not maximised:
        return []
    chosen = Features.plain(features.values[:, kept], [features.names[j] for j in kept])
    sharper, best_intercept, _ = maximise_likelihood(chosen, y, family, fit_intercept=intercept is not None)
    moved = best_intercept - (intercept or 0.0) + chosen.values @ (sharper - coef[kept])
    if np.max(np.abs(moved)) > THRESHOLDS.diverging_predictor:
        return [NO_MAXIMUM]
    return []
