"""What may be wrong with a regression: its settings, before data are asked for; its result, before it is believed."""

from __future__ import annotations

from numbers import Integral, Real
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import SettingsError
from verticopula.glm.bayes import Posterior
from verticopula.glm.central import maximise_likelihood
from verticopula.glm.design import Features
from verticopula.glm.families import find_family
from verticopula.glm.penalties import Penalty

if TYPE_CHECKING:
    from verticopula.estimators.vertical_glm import VerticalGLM

Floats = NDArray[np.float64]

_RESTLESS = 0.15  # chains whose inclusion probabilities are on average so far apart have not seen the same posterior
_RUNS_OFF = 2.0  # a linear predictor that a sharper maximisation moves so far was on its way to infinity


class Doubt(NamedTuple):
    """What a reader must know; `spoils` if the coefficients are then not to be relied on."""

    line: str
    spoils: bool


def is_number(value: object) -> bool:
    """Any real number but True and False."""
    return isinstance(value, Real) and not isinstance(value, (bool, np.bool_))


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def check_settings(model: VerticalGLM) -> None:
    """All that can be said before any data are seen, or asked for."""
    find_family(model.family)
    if model.concavity is not None and not is_number(model.concavity):
        raise SettingsError("concavity must be a number")
    Penalty.build(model.penalty, model.concavity)
    if is_number(model.select):
        if not 0.0 <= float(model.select) < np.inf:
            raise SettingsError("a strength must be a number of at least 0")
    elif model.select not in ("bic", "cv", "bayes"):
        raise SettingsError(f"select must be 'bic', 'cv', 'bayes' or a number, got {model.select!r}")
    if model.inclusion is not None and not (is_number(model.inclusion) and 0.0 <= model.inclusion < 1.0):
        raise SettingsError(f"inclusion must be a probability below 1, got {model.inclusion!r}")
    if model.n_effective is not None and not (is_number(model.n_effective) and 1.0 < model.n_effective < np.inf):
        raise SettingsError(f"n_effective must be a number above 1, got {model.n_effective!r}")
    for name in ("tolerance", "strength_ratio"):
        value = getattr(model, name)
        if not (is_number(value) and 0.0 < value < 1.0):
            raise SettingsError(f"{name} must lie in (0, 1), got {value!r}")
    for name, least in (("n_strengths", 2), ("folds", 2), ("max_rounds", 1), ("random_state", 0)):
        if not _is_whole(getattr(model, name), least):
            raise SettingsError(f"{name} must be a whole number of at least {least}, got {getattr(model, name)!r}")


def doubt_path(model: VerticalGLM, scores: list[float], chosen: int, y: Floats) -> list[Doubt]:
    """From the path alone."""
    path, found = model.path_, []
    if not model.converged_:
        line = f"the fit at strength {model.strength_:.3g} did not converge in {model.max_rounds} rounds"
        found.append(Doubt(line, True))
    judged = [i for i, score in enumerate(scores) if np.isfinite(score)]
    if scores and not judged:
        found.append(
            Doubt("no strength could be judged: every fit is all but perfect, or folds did not reach it", True)
        )
    elif path.ended_early and chosen == (judged[-1] if judged else len(path.points) - 1):
        line = (
            f"below strength {model.strength_:.3g} the fit is all but perfect (separable classes, or more columns than "
            "the rows can support), and the path ends there: the best fit may lie beyond"
        )
        found.append(Doubt(line, True))
    unpenalised = model.family == "binomial" and model.penalty == "none"
    if unpenalised and np.all((2.0 * y - 1.0) * path.predictions[-1] > 0.0):
        line = "the classes are separable: maximum likelihood does not exist, coefficients grow without end"
        found.append(Doubt(line, True))
    for name, design in path.designs.items():
        if design.constant.any():
            flat = ", ".join(s for s, c in zip(design.sources, design.constant, strict=True) if c)
            found.append(Doubt(f"party {name!r}: constant columns cannot enter ({flat})", False))
    return found


def doubt_posterior(found: Posterior) -> list[Doubt]:
    """From the chains alone."""
    if found.unrest <= _RESTLESS:
        return []
    return [
        Doubt(f"two chains' inclusion probabilities differ by {found.unrest:.2f} on average: they do not mix", True)
    ]


def doubt_coefficients(model: VerticalGLM, features: Features, y: Floats) -> list[Doubt]:
    """What can be said against the coefficients when the columns are at hand."""
    coef = np.concatenate(list(model.coef_.values()))
    kept = np.flatnonzero(coef)
    if model.inference_ is not None and not model.inference_.identified:
        return [Doubt("selected columns are linearly dependent: their coefficients are not unique", True)]
    if kept.size + int(model.fit_intercept) >= y.size:
        return [Doubt("as many coefficients as rows: any response would be explained", True)]
    maximised = model.penalty == "none" or (model.refit and model.select == "bic")
    if model.family == "gaussian" or not maximised:
        return []
    chosen = Features.plain(features.values[:, kept], [features.names[j] for j in kept])
    sharper, intercept, _ = maximise_likelihood(chosen, y, find_family(model.family), fit_intercept=model.fit_intercept)
    moved = intercept - model.intercept_ + chosen.values @ (sharper - coef[kept])
    if np.max(np.abs(moved)) > _RUNS_OFF:
        return [Doubt("the likelihood has no maximum: some category or range has only one outcome", True)]
    return []
