"""The path of regressions with all columns in one place: "Original-C", and what the federated path is compared with."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from verticopula.glm.central_solver import Point, WeightedSolver, make_solver, null_point, to_data_scale
from verticopula.glm.families import Family
from verticopula.glm.feature_design import Standardised
from verticopula.glm.lasso import CLOSED, group_norms, largest_strength
from verticopula.glm.penalties import Penalty
from verticopula.glm.strength_path import (
    PATH_TUNING,
    ConvergenceMonitor,
    DevianceScale,
    PathPoint,
    Refit,
    RefitRule,
    RefitStopper,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def trace_path(
    design: Standardised,
    y: Floats,
    family: Family,
    penalty: Penalty,
    strengths: Floats,
    *,
    fit_intercept: bool = True,
    tolerance: float = 1e-3,
    refit: RefitRule | None = None,
    end_early: bool = True,
) -> Iterator[PathPoint]:
    """Solutions along decreasing strengths, if `end_early` only until the fit is all but perfect.

    `tolerance` is relative to the strength: optimality conditions hold to tolerance * strength.
    """
    watch, last_refit, last_support = RefitStopper(refit, family), None, b""
    null = null_point(design, y, family, fit_intercept=fit_intercept)
    yardstick = DevianceScale(family, y)
    null_residual = family.residual(np.full(y.size, null.intercept), y)
    scale = largest_strength(design.columns, null_residual, design.starts, design.factors)
    solver = make_solver(design, y, family, null, fit_intercept=fit_intercept)
    lasso, point = null.copy(), null.copy()
    for strength in strengths:
        own = design.factors * strength
        unit = max(float(strength), 1e-3 * scale)  # of the tolerance
        if penalty.is_concave:
            lasso, _ = solver.solve(own, lasso, tolerance * unit)
            watch_rest = ConvergenceMonitor(tolerance, family)
            point, settled = _approximate_locally(solver, penalty, own, lasso, point, unit, watch_rest, design.starts)
        else:
            point, settled = solver.solve(penalty.slope(np.zeros_like(own), own), point, tolerance * unit)
        norms = group_norms(point.coef, design.starts)
        loss = yardstick.at_least(solver.loss(point))
        df = int(design.sizes[norms > 0.0].sum())
        if end_early and penalty.name != "none" and yardstick.is_saturated(loss, df):
            return
        value = float(penalty.value(norms, own).sum())
        if watch.wanted:
            if (norms > 0.0).tobytes() != last_support:
                last_support = (norms > 0.0).tobytes()
                found, fine = solver.solve(np.where(norms > 0.0, 0.0, CLOSED), point, tolerance * 1e-2 * scale)
                refit_loss = yardstick.at_least(solver.loss(found))
                exists = not yardstick.is_saturated(refit_loss, df)
                last_refit = Refit(*to_data_scale(design, found), refit_loss, fine) if exists else None
                watch.see(last_refit, df)
        else:
            last_refit = None
        yield PathPoint(float(strength), *to_data_scale(design, point), loss, value, df, settled, last_refit)


def _approximate_locally(
    solver: WeightedSolver,
    penalty: Penalty,
    own: Floats,
    lasso: Point,
    start: Point,
    unit: float,
    watch: ConvergenceMonitor,
    starts: Ints,
) -> tuple[Point, bool]:
    """Weighted lassos until the weights rest; the first has the slopes at the plain lasso."""
    weights, point = penalty.slope(group_norms(lasso.coef, starts), own), start
    for _ in range(PATH_TUNING.most_lla_steps):
        point, solved = solver.solve(weights, point, watch.tolerance * unit)
        renewed = penalty.slope(group_norms(point.coef, starts), own)
        change = float(np.max(np.abs(renewed - weights) / np.maximum(own, 1e-300), initial=0.0))
        if watch.has_converged(change):
            return point, solved
        weights = renewed
    return point, False
