"""Regressions on whole tables: the paper's rule, the library's two, and the oracle.

`trace_scad` has two rules on one path of SCAD: BIC of the penalised fit (the paper's) and BIC of refits (the library's
default). `sample_rows` is the library's other rule, a posterior over all columns in place of a path; `fit_oracle` knows
the support and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from experiments.central_path import trace_path
from experiments.designs import FAMILY_OF_MODEL, Model
from experiments.study import MethodFailure
from verticopula.estimators.score_errors import ScoreErrors
from verticopula.glm.bayes import Posterior, sample_posterior
from verticopula.glm.central_solver import null_point
from verticopula.glm.families import Family, find_family
from verticopula.glm.feature_design import Features, standardise
from verticopula.glm.lasso import largest_strength
from verticopula.glm.penalties import Penalty
from verticopula.glm.strength_path import (
    PathPoint,
    Refit,
    RefitRule,
    choose_point,
    geometric_strengths,
    information_criterion,
)

FloatArray = NDArray[np.float64]

PATIENCE = 10  # strengths
MAX_NEWTON_STEPS = 50
MAX_HALVINGS = 10


class SeparatedClassesError(ValueError):
    """The columns separate the classes, so the logistic likelihood has no maximum."""


@dataclass(frozen=True)
class ScadFit:
    """The fit that a criterion selected from the path.

    Attributes
    ----------
    coef : (p,), on the scale of the data
    intercept : 0 if none was fitted
    strength : lambda, in units of columns with standard deviation 1
    degrees_of_freedom : the number of selected columns
    bic : at that strength
    converged : whether the optimality conditions hold there
    """

    coef: FloatArray
    intercept: float
    strength: float
    degrees_of_freedom: float
    bic: float
    converged: bool


@dataclass(frozen=True)
class ScadFits:
    """What two rules take from one path of strengths.

    Attributes
    ----------
    penalised : the paper's, least 2N f + df log N of the penalised fit
    refitted : the library's, which compares maximum likelihood on the columns that each strength selects: a strength
        that keeps noise out also shrinks what it lets in, and loses by that alone
    """

    penalised: ScadFit
    refitted: ScadFit


def trace_scad(
    x: ArrayLike, y: ArrayLike, *, model: Model, n_effective: float | None = None, fit_intercept: bool = True
) -> ScadFits:
    """SCAD as the library fits it, along one path of strengths.

    Parameters
    ----------
    n_effective : real subjects behind the rows; None for as many as there are rows
    """
    points, rule = trace_points(x, y, model=model, n_effective=n_effective, fit_intercept=fit_intercept)
    return choose_fits(points, find_family(FAMILY_OF_MODEL[model]), rule)


def trace_points(
    x: ArrayLike, y: ArrayLike, *, model: Model, n_effective: float | None = None, fit_intercept: bool = True
) -> tuple[list[PathPoint], RefitRule]:
    """The path that both rules choose from, as far as it matters, and what a column costs on it."""
    rows, response = _checked(x, y, model)
    family = find_family(FAMILY_OF_MODEL[model])
    design = standardise(Features.plain(rows, [f"x{j + 1}" for j in range(rows.shape[1])]), centre=fit_intercept)
    null = null_point(design, response, family, fit_intercept=fit_intercept)
    residual = family.residual(np.full(response.size, null.intercept), response)
    strengths = geometric_strengths(largest_strength(design.columns, residual, design.starts, design.factors))
    rule = find_refit_rule(len(response) if n_effective is None else n_effective, rows.shape[1])
    path = trace_path(
        design, response, family, Penalty.build("scad"), strengths, fit_intercept=fit_intercept, refit=rule
    )
    return take_until_worse(path, family, rule), rule


def take_until_worse(path: Iterable[PathPoint], family: Family, rule: RefitRule) -> list[PathPoint]:
    """The path as far as it matters: until neither rule has found a better point for ten strengths.

    What follows are ever larger models, which take most of the time.
    """
    points: list[PathPoint] = []
    best, last = (np.inf, np.inf), 0
    for point in path:
        points.append(point)
        scores = _score_penalised(family, point, rule), _score_refit(family, point, rule)
        if scores[0] < best[0] or scores[1] < best[1]:
            best, last = (min(scores[0], best[0]), min(scores[1], best[1])), len(points)
        if len(points) - last >= PATIENCE:
            break
    return points


def find_refit_rule(n_subjects: float, n_columns: int) -> RefitRule:
    """As the library has it: with more columns than subjects a column costs more than log N."""
    return RefitRule(float(np.log(max(n_subjects, n_columns**2 if n_columns >= n_subjects else 1.0))), n_subjects)


def choose_fits(path: Sequence[PathPoint], family: Family, rule: RefitRule) -> ScadFits:
    """What both rules choose; MethodFailure if the path is empty."""
    if not path:
        raise MethodFailure("already at the largest strength the fit is all but perfect")
    own = [_score_penalised(family, point, rule) for point in path]
    again = [_score_refit(family, point, rule) for point in path]
    return ScadFits(_read_fit(path, path, own), _read_fit(path, [_find_refit(family, p) for p in path], again))


def _find_refit(family: Family, point: PathPoint) -> PathPoint | Refit | None:
    """As the library: a logistic refit that is all but perfect is not kept, and the penalised fit stands for it."""
    return point.refit or (point if family.name == "binomial" else None)


def _score_penalised(family: Family, point: PathPoint, rule: RefitRule) -> float:
    charge = float(np.log(rule.n_subjects))
    return information_criterion(family, point.loss, point.degrees_of_freedom, rule.n_subjects, charge)


def _score_refit(family: Family, point: PathPoint, rule: RefitRule) -> float:
    fit = _find_refit(family, point)
    if fit is None:
        return float(np.inf)
    return information_criterion(family, fit.loss, point.degrees_of_freedom, rule.n_subjects, rule.charge)


def _read_fit(path: Sequence[PathPoint], fits: Sequence[PathPoint | Refit | None], scores: Sequence[float]) -> ScadFit:
    best = choose_point(scores)
    point, fit = path[best], fits[best]
    if fit is None:
        raise MethodFailure("no strength of the path could be fitted again")
    return ScadFit(
        fit.coef, fit.intercept, point.strength, float(point.degrees_of_freedom), scores[best], fit.converged
    )


def sample_rows(
    x: ArrayLike,
    y: ArrayLike,
    *,
    model: Model,
    n_effective: float | None = None,
    fit_intercept: bool = True,
    errors: ScoreErrors | None = None,
) -> Posterior:
    """The posterior over all columns that the library's `select="bayes"` decides by: no SCAD."""
    rows, response = _checked(x, y, model)
    features = Features.plain(rows, [f"x{j + 1}" for j in range(rows.shape[1])])
    family = find_family(FAMILY_OF_MODEL[model])
    return sample_posterior(
        features,
        response,
        family,
        n_effective=n_effective,
        fit_intercept=fit_intercept,
        score_errors=None if errors is None else errors.draw,
    )


def fit_oracle(
    x: ArrayLike, y: ArrayLike, support: ArrayLike, model: Model, *, fit_intercept: bool = False
) -> FloatArray:
    """Maximum likelihood on the true support.

    Parameters
    ----------
    support : (p,) True where the true coefficient is not zero
    fit_intercept : the paper's model has none

    Returns
    -------
    (p,) coefficients, exactly 0 outside the support

    Raises
    ------
    SeparatedClassesError
        If the logistic likelihood has no maximum on the support.
    """
    rows, response = _checked(x, y, model)
    selected = np.asarray(support, dtype=bool)
    kept = rows[:, selected]
    if fit_intercept:
        kept = np.column_stack([kept, np.ones(len(kept))])
    solution = _least_squares(kept, response) if model == "linear" else _maximise_logistic(kept, response)
    coef = np.zeros(rows.shape[1])
    coef[selected] = solution[: int(selected.sum())]
    return coef


def _checked(x: ArrayLike, y: ArrayLike, model: Model) -> tuple[FloatArray, FloatArray]:
    rows, response = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if rows.ndim != 2 or response.shape != rows.shape[:1]:
        raise ValueError(f"expected (n, p) and (n,), got {rows.shape} and {response.shape}")
    if model not in ("linear", "logistic"):
        raise ValueError(f"model must be 'linear' or 'logistic', got {model!r}")
    if np.ptp(response) == 0:
        raise ValueError("the response is constant")
    if model == "logistic" and set(np.unique(response)) != {0.0, 1.0}:
        raise ValueError("a logistic response needs both values 0 and 1, and no other")
    return rows, response


def _least_squares(rows: FloatArray, y: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.lstsq(rows, y)[0])


def _step_towards(target: FloatArray, point: FloatArray, objective: Callable[[FloatArray], float]) -> FloatArray:
    """The first of the full, half, quarter ... steps that lowers the objective."""
    current = objective(point)
    for halvings in range(MAX_HALVINGS):
        candidate = target if halvings == 0 else point + 0.5**halvings * (target - point)
        if objective(candidate) <= current:
            return candidate
    return point


def _logistic_loss(eta: FloatArray, y: FloatArray) -> float:
    """Mean negative log-likelihood, f of Eq. (3)."""
    return float(np.mean(np.logaddexp(0.0, eta) - y * eta))


def _maximise_logistic(rows: FloatArray, y: FloatArray) -> FloatArray:
    """Unpenalised logistic regression by Newton's method."""
    point = np.zeros(rows.shape[1])
    for _ in range(MAX_NEWTON_STEPS):
        eta = rows @ point
        if np.all(np.where(y == 1, eta, -eta) > 0):
            break
        mean = expit(eta)
        score = rows.T @ (y - mean)
        step = np.linalg.solve((rows.T * (mean * (1 - mean))) @ rows, score)
        if step @ score < 1e-12 * len(y):  # what is left to gain is below the loss's rounding error
            return point + step
        point = _step_towards(point + step, point, lambda b: _logistic_loss(rows @ b, y))
    raise SeparatedClassesError("the logistic likelihood has no maximum: these columns separate the classes")
