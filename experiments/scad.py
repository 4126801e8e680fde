"""Central SCAD regression with the strength chosen by BIC or AIC, and the oracle on the true support.

The objective is f(beta) + sum_j P_lambda(|beta_j|) with f of Eq. (3), the mean negative
log-likelihood, and P the SCAD penalty. Columns are brought to unit standard deviation inside, so
one strength suits all of them; coefficients come back on the scale of the data.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit
from skglm.penalties import SCAD, WeightedL1
from skglm.solvers import GramCD
from sklearn.exceptions import ConvergenceWarning

FloatArray = NDArray[np.float64]
Model = Literal["linear", "logistic"]
Criterion = Literal["bic", "aic"]

# Optimality is asked for relative to the strength, which is the scale of the gradient: then the
# units of the response do not matter.
RELATIVE_TOLERANCE = 1e-3
MAX_EPOCHS = 1000
MAX_NEWTON_STEPS = 50
MAX_HALVINGS = 10
VARIANCE_FLOOR = 1e-6

# Where a path ends early. SCAD is bounded, so it does not keep a logistic fit from separating the
# classes, nor a linear one from interpolating: coefficients run off, and BIC follows them. In
# these designs the true model explains about half of the null deviance.
MAX_EXPLAINED = 0.75
MAX_SHARE_OF_ROWS = 0.5


class SeparatedClassesError(ValueError):
    """The columns separate the classes, so the logistic likelihood has no maximum."""


@dataclass(frozen=True)
class ScadFit:
    """The fit that the criterion selected from the path.

    Attributes
    ----------
    coef : (p,), on the scale of the data
    intercept : 0 if none was fitted
    strength : lambda, in units of columns with standard deviation 1
    bic : at that strength, whatever selected it
    converged : whether the optimality conditions hold there
    """

    coef: FloatArray
    intercept: float
    strength: float
    bic: float
    converged: bool


class _Scaled(NamedTuple):
    """Columns with standard deviation 1, centred only where an intercept is fitted."""

    columns: FloatArray
    centre: FloatArray
    scale: FloatArray


class _PathSettings(NamedTuple):
    """The arguments of `fit_scad_path` that shape the path."""

    fit_intercept: bool
    n_lambdas: int
    strength_ratio: float
    a: float
    refit: bool


class _PathPoint(NamedTuple):
    """The solution at one strength, for scaled columns; `fit_term` is the criterion's part per subject."""

    strength: float
    coef: FloatArray
    intercept: float
    fit_term: float
    converged: bool


def fit_scad_path(
    x: ArrayLike,
    y: ArrayLike,
    *,
    model: Model,
    n_effective: float | None = None,
    fit_intercept: bool = True,
    n_lambdas: int = 40,
    a: float = 3.7,
    strength_ratio: float = 1e-3,
    refit: bool = False,
    criterion: Criterion = "bic",
) -> ScadFit:
    """Fit along a path of strengths from the empty model downwards and keep the best BIC or AIC.

    The path ends early where the fit comes close to saturation (`MAX_EXPLAINED`,
    `MAX_SHARE_OF_ROWS`); that happens with few rows, as for complete cases.

    Departs from the printed BIC(lambda) = f + df log N, which weighs a mean log-likelihood against
    a full penalty and always selects the empty model: it is 2 N f + df log N here, for the
    linear model N log(RSS / n) + df log N.

    Parameters
    ----------
    x, y : (n, p) and (n,); y is 0 or 1 in the logistic model
    n_effective : N of the BIC, the number of subjects that the rows stand for; None for n itself.
        The mean log-likelihood over the n rows is scaled to N: more synthetic rows are not more
        evidence.
    fit_intercept : the paper's model has none
    n_lambdas, strength_ratio : the path is geometric from the largest strength to this share of it
    a : the SCAD penalty's second parameter
    refit : replace every fit on the path by maximum likelihood on its support, before BIC compares
        them. Not in the paper: SCAD still shrinks small coefficients at the strength that would
        keep the noise out, and BIC then prefers a weaker strength that lets noise in.
    criterion : `bic` (the paper's) charges log N for each selected column, `aic` charges 2

    Returns
    -------
    ScadFit
        With a ConvergenceWarning if the selected fit has not converged.
    """
    rows, response = _checked(x, y, model)
    if criterion not in ("bic", "aic"):
        raise ValueError(f"criterion must be 'bic' or 'aic', got {criterion!r}")
    scaled = _standardise(rows, centre=fit_intercept)
    n_subjects = float(len(response) if n_effective is None else n_effective)
    settings = _PathSettings(fit_intercept, n_lambdas, strength_ratio, a, refit)
    path = (_trace_linear if model == "linear" else _trace_logistic)(scaled.columns, response, settings)
    charge = float(np.log(n_subjects)) if criterion == "bic" else 2.0
    best = min(path, key=lambda point: _penalised_fit(point, n_subjects, charge))
    if not best.converged:
        warnings.warn(f"SCAD did not converge at strength {best.strength:.3g}", ConvergenceWarning, stacklevel=2)
    coef = best.coef / scaled.scale
    bic = _penalised_fit(best, n_subjects, float(np.log(n_subjects)))
    return ScadFit(coef, float(best.intercept - scaled.centre @ coef), best.strength, bic, best.converged)


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


def _standardise(rows: FloatArray, *, centre: bool) -> _Scaled:
    mean, scale = rows.mean(axis=0), rows.std(axis=0)
    # A constant column carries nothing that an intercept does not; scale 1 leaves it harmless.
    scale = np.where(scale > 1e-12 * np.abs(mean), scale, 1.0)
    shift = mean if centre else np.zeros_like(mean)
    return _Scaled((rows - shift) / scale, shift, scale)


def _penalised_fit(point: _PathPoint, n_subjects: float, charge: float) -> float:
    return float(n_subjects * point.fit_term + np.count_nonzero(point.coef) * charge)


def _strengths(gradient: FloatArray, settings: _PathSettings) -> FloatArray:
    """A geometric path that starts where all coefficients are zero."""
    shares = np.geomspace(1.0, settings.strength_ratio, settings.n_lambdas)
    return np.asarray(shares * np.max(np.abs(gradient)))


def _refit(
    rows: FloatArray,
    y: FloatArray,
    solution: FloatArray,
    kept: NDArray[np.bool_],
    maximise: Callable[[FloatArray, FloatArray], FloatArray],
) -> FloatArray:
    """Maximum likelihood on the kept columns, 0 elsewhere."""
    refitted = np.zeros_like(solution)
    if kept.any():
        refitted[kept] = maximise(rows[:, kept], y)
    return refitted


# ---- linear: coordinate descent on the SCAD objective itself -----------------------------------


def _trace_linear(columns: FloatArray, y: FloatArray, settings: _PathSettings) -> Iterator[_PathPoint]:
    intercept = float(y.mean()) if settings.fit_intercept else 0.0
    n_rows, n_columns = columns.shape
    columns, y = _compress(columns, y - intercept)
    coef = np.zeros(n_columns)
    for strength in _strengths(columns.T @ y / len(y), settings):
        tolerance = RELATIVE_TOLERANCE * strength
        solver = GramCD(max_iter=MAX_EPOCHS, tol=tolerance, fit_intercept=False)
        coef, _, violation = solver.solve(columns, y, None, SCAD(strength, settings.a), coef.copy(), run_checks=False)
        if np.count_nonzero(coef) > MAX_SHARE_OF_ROWS * n_rows:
            return
        shown = _refit(columns, y, coef, coef != 0, _least_squares) if settings.refit else coef
        mean_square = np.mean((y - columns @ shown) ** 2)
        yield _PathPoint(float(strength), shown, intercept, float(np.log(mean_square)), bool(violation <= tolerance))


def _least_squares(rows: FloatArray, y: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.lstsq(rows, y)[0])


def _compress(columns: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """At most p + 1 rows with the same mean squares and products: the path's cost is free of n."""
    triangle = np.linalg.qr(np.column_stack([columns, y]), mode="r")
    triangle *= np.sqrt(len(triangle) / len(y))
    return triangle[:, :-1], triangle[:, -1]


# ---- logistic: Newton steps on the log-likelihood, local linear approximation of the penalty ---
#
# Coordinate descent on SCAD itself is no option: a standardised column has curvature at most 1/4
# in the mean logistic loss, less than the penalty's concavity 1 / (a - 1) = 0.37, so one-coordinate
# problems have two minima and the solver's proximal step (size > a - 1) maximises between them.


def _trace_logistic(columns: FloatArray, y: FloatArray, settings: _PathSettings) -> Iterator[_PathPoint]:
    n_rows, n_columns = columns.shape
    # The intercept is a column that is not penalised.
    rows = np.column_stack([columns, np.ones(n_rows)]) if settings.fit_intercept else columns
    penalised = np.arange(rows.shape[1]) < n_columns
    solution = np.where(penalised, 0.0, logit(y.mean()))
    null_loss = _logistic_loss(rows @ solution, y)
    gradient = rows.T @ (expit(rows @ solution) - y) / n_rows
    for strength in _strengths(gradient, settings):
        solution, converged = _solve_logistic(rows, y, solution, penalised, strength, settings.a)
        shown = solution
        if settings.refit:
            try:
                shown = _refit(rows, y, solution, ~penalised | (solution != 0), _maximise_logistic)
            except SeparatedClassesError:
                return
        loss = _logistic_loss(rows @ shown, y)
        if loss < (1 - MAX_EXPLAINED) * null_loss:
            return
        yield _PathPoint(float(strength), shown[penalised], float(shown[~penalised].sum()), 2.0 * loss, converged)


def _solve_logistic(
    rows: FloatArray, y: FloatArray, start: FloatArray, penalised: NDArray[np.bool_], strength: float, a: float
) -> tuple[FloatArray, bool]:
    """Minimise mean logistic loss + SCAD from a starting point.

    Each step majorises the penalty by its tangent at the current point, a weighted L1 norm, takes
    the loss to second order, solves that lasso and halves the step until the objective falls.
    """
    penalty, tolerance = SCAD(strength, a), RELATIVE_TOLERANCE * strength
    lasso = GramCD(max_iter=MAX_EPOCHS, tol=0.1 * tolerance, fit_intercept=False)

    def objective(point: FloatArray) -> float:
        return _logistic_loss(rows @ point, y) + float(penalty.value(point[penalised]))

    point = start
    for _ in range(MAX_NEWTON_STEPS):
        eta = rows @ point
        residual = y - expit(eta)
        if _violation(penalty, point, -rows.T @ residual / len(y), penalised) <= tolerance:
            return point, True
        root = np.sqrt(np.maximum(expit(eta) * expit(-eta), VARIANCE_FLOOR))
        tangent = WeightedL1(strength, np.where(penalised, scad_slope(point, strength, a) / strength, 0.0))
        target, _, _ = lasso.solve(
            rows * root[:, None], root * eta + residual / root, None, tangent, point.copy(), run_checks=False
        )
        previous, point = point, _step_towards(target, point, objective)
        if point is previous:
            break
    return point, False


def scad_slope(coef: FloatArray, strength: float, a: float) -> FloatArray:
    """P'_lambda(|beta|) of the SCAD penalty, as the paper gives it after Eq. (3)."""
    return np.clip((a * strength - np.abs(coef)) / (a - 1), 0.0, strength)


def _violation(penalty: SCAD, point: FloatArray, gradient: FloatArray, penalised: NDArray[np.bool_]) -> float:
    """Largest distance of the negative gradient from the penalty's subdifferential."""
    distance = penalty.subdiff_distance(point[penalised], gradient[penalised], np.arange(penalised.sum()))
    return float(np.max(np.abs(np.append(distance, gradient[~penalised]))))


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
