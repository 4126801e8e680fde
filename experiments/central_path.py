"""The path of regressions with all columns in one place: "Original-C", and what the federated path is compared with."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from verticopula.glm.central_path import CentralProblem, trace_central_path, without_questions
from verticopula.glm.central_solver import make_solver, null_point, to_data_scale
from verticopula.glm.families import Family
from verticopula.glm.feature_design import Standardised
from verticopula.glm.lasso import largest_strength
from verticopula.glm.penalties import Penalty
from verticopula.glm.strength_path import DevianceScale, PathPoint, RefitRule, RefitStopper

Floats = NDArray[np.float64]


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
) -> tuple[PathPoint, ...]:
    """Solutions along decreasing strengths, if `end_early` only until the fit is all but perfect.

    `tolerance` is relative to the strength: optimality conditions hold to tolerance * strength.
    """
    null = null_point(design, y, family, fit_intercept=fit_intercept)
    residual = family.residual(np.full(y.size, null.intercept), y)
    problem = CentralProblem(
        family,
        make_solver(design, y, family, null, fit_intercept=fit_intercept),
        null,
        largest_strength(design.columns, residual, design.starts, design.factors),
        design.starts,
        design.factors,
        DevianceScale.of_response(family, y),
        partial(to_data_scale, design),
    )
    watch = RefitStopper(refit, family)
    return without_questions(
        trace_central_path(problem, penalty, strengths, tolerance=tolerance, watch=watch, end_early=end_early)
    )
