"""The path of regressions where one side has all that its solver needs: second moments, or columns.

Columns may come while the path is traced: a solution is taken once every other column is known to want to stay out.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from verticopula.glm.central_solver import Point, WeightedSolver
from verticopula.glm.families import Family
from verticopula.glm.lasso import CLOSED, group_norms
from verticopula.glm.penalties import Penalty
from verticopula.glm.strength_path import (
    PATH_TUNING,
    ConvergenceMonitor,
    DevianceScale,
    PathPoint,
    Refit,
    RefitStopper,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Solved = TypeVar("Solved")
OnStrength = Callable[[int, int], None]


@dataclass(frozen=True, repr=False)
class Question:
    """Does a column that is not here want to enter? No repr: residuals tell the response.

    Attributes
    ----------
    residual : (n,) of the model as it is
    strength : above which a column's correlation with them must be
    groups : (G,) of which groups this is not known
    """

    residual: Floats
    strength: float
    groups: Bools


# What computes with the columns that are here, and is told whether others have come.
Asking = Generator[Question, bool, Solved]


@dataclass(frozen=True)
class CentralProblem:
    """A regression on standardised columns.

    Attributes
    ----------
    null : the fit without any column
    largest : the least strength at which no column enters
    starts, factors : as in `feature_design.Standardised`
    to_data : from a point to coefficients and intercept on the scale of the data
    missing : weights, a solution for them, its tolerance -> what must be asked before it is one on all columns
    """

    family: Family
    solver: WeightedSolver
    null: Point
    largest: float
    starts: Ints
    factors: Floats
    yardstick: DevianceScale
    to_data: Callable[[Point], tuple[Floats, float]]
    missing: Callable[[Floats, Point, float], Question | None] = lambda weights, point, tolerance: None

    @property
    def sizes(self) -> Ints:
        """(G,) independent columns of each group: its degrees of freedom."""
        return np.round(self.factors**2).astype(np.int64)


def trace_central_path(
    problem: CentralProblem,
    penalty: Penalty,
    strengths: Floats,
    *,
    tolerance: float,
    watch: RefitStopper,
    end_early: bool,
    on_strength: OnStrength = lambda done, total: None,
) -> Asking[tuple[PathPoint, ...]]:
    """Solutions along decreasing strengths, if `end_early` only until the fit is all but perfect.

    `tolerance` is relative to the strength: optimality conditions hold to tolerance * strength. `watch` says which
    selected columns are fitted again.
    """
    family, starts, yardstick = problem.family, problem.starts, problem.yardstick
    last_refit, last_support = None, b""
    lasso, point, found = problem.null.copy(), problem.null.copy(), list[PathPoint]()
    for number, strength in enumerate(strengths):
        on_strength(number, len(strengths))
        own = problem.factors * strength
        unit = max(float(strength), 1e-3 * problem.largest)  # of the tolerance
        if penalty.is_concave:
            lasso, _ = yield from _solve(problem, own, lasso, tolerance * unit)
            watch_rest = ConvergenceMonitor(tolerance, family)
            point, converged = yield from _approximate_locally(problem, penalty, own, lasso, point, unit, watch_rest)
        else:
            weights = penalty.slope(np.zeros_like(own), own)
            point, converged = yield from _solve(problem, weights, point, tolerance * unit)
        norms = group_norms(point.coef, starts)
        loss = yardstick.at_least(problem.solver.loss(point))
        df = int(problem.sizes[norms > 0.0].sum())
        if end_early and penalty.name != "none" and yardstick.is_saturated(loss, df):
            break
        value = float(penalty.value(norms, own).sum())
        if watch.wanted:
            if (norms > 0.0).tobytes() != last_support:
                last_support = (norms > 0.0).tobytes()
                last_refit = _refit(problem, point, norms, tolerance, df)
                watch.see(last_refit, df)
        else:
            last_refit = None
        found.append(PathPoint(float(strength), *problem.to_data(point), loss, value, df, converged, last_refit))
    on_strength(len(strengths), len(strengths))
    return tuple(found)


def without_questions(asking: Asking[Solved]) -> Solved:
    """The result where every column is here."""
    try:
        next(asking)
    except StopIteration as done:
        result: Solved = done.value
        return result
    raise RuntimeError("a column is asked for that should be here")


def _solve(problem: CentralProblem, weights: Floats, start: Point, tolerance: float) -> Asking[tuple[Point, bool]]:
    """The weighted lasso's solution on all columns, those included that are not here: they want to stay out."""
    point, fine = problem.solver.solve(weights, start, tolerance)
    while (question := problem.missing(weights, point, tolerance)) is not None and (yield question):
        point, fine = problem.solver.solve(weights, point, tolerance)
    return point, fine


def _refit(problem: CentralProblem, start: Point, norms: Floats, tolerance: float, df: int) -> Refit | None:
    """Maximum likelihood on the selected columns; None where it is all but perfect."""
    weights = np.where(norms > 0.0, 0.0, CLOSED)
    found, fine = problem.solver.solve(weights, start, tolerance * 1e-2 * problem.largest)
    loss = problem.yardstick.at_least(problem.solver.loss(found))
    return None if problem.yardstick.is_saturated(loss, df) else Refit(*problem.to_data(found), loss, fine)


def _approximate_locally(
    problem: CentralProblem,
    penalty: Penalty,
    own: Floats,
    lasso: Point,
    start: Point,
    unit: float,
    watch: ConvergenceMonitor,
) -> Asking[tuple[Point, bool]]:
    """Weighted lassos until the weights rest; the first has the slopes at the plain lasso."""
    starts = problem.starts
    weights, point = penalty.slope(group_norms(lasso.coef, starts), own), start
    for _ in range(PATH_TUNING.most_lla_steps):
        point, solved = yield from _solve(problem, weights, point, watch.tolerance * unit)
        renewed = penalty.slope(group_norms(point.coef, starts), own)
        change = float(np.max(np.abs(renewed - weights) / np.maximum(own, 1e-300), initial=0.0))
        if watch.has_converged(change):
            return point, solved
        weights = renewed
    return point, False
