"""A gaussian path from second moments against the same path on the columns themselves."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from experiments.central_path import trace_path
from verticopula.glm.central_path import trace_central_path, without_questions
from verticopula.glm.families import FAMILIES
from verticopula.glm.feature_design import Features, standardise
from verticopula.glm.penalties import Penalty
from verticopula.glm.second_moments import SecondMoments
from verticopula.glm.strength_path import PathPoint, RefitRule, RefitStopper

Floats = NDArray[np.float64]
GAUSSIAN, SHARES, TOLERANCE = FAMILIES["gaussian"], (0.9, 0.4, 0.15, 0.02), 1e-9


def make_rows(seed: int = 0, n: int = 300) -> tuple[Features, Floats]:
    """Numbers far from 0, a group of indicators, one that never occurs, and a column that does not vary."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 3, n)
    values = np.column_stack(
        [
            rng.normal(100.0, 2.0, n),
            group == 1,
            group == 2,
            group == 3,
            np.full(n, 7.0),
            rng.normal(-1.0, 0.01, n),
            rng.normal(size=n),
        ]
    ).astype(np.float64)
    y = 5.0 + 0.4 * values[:, 0] + 1.5 * values[:, 1] + 60.0 * values[:, 5] + rng.normal(size=n)
    starts = np.array([0, 1, 4, 5, 6, 7])
    return Features(values, starts, tuple("abcdefg"), ("a", "g", "e", "f", "h")), y


def moments_of(features: Features, y: Floats, folds: NDArray[np.int64]) -> SecondMoments:
    """In the plain way: sums over the rows of each fold."""
    values = np.column_stack([features.values, y])
    centre, scale = values.mean(axis=0), values.std(axis=0)
    scale[scale < 1e-12] = 0.0
    z = np.where(scale > 0.0, (values - centre) / np.where(scale > 0.0, scale, 1.0), 0.0)
    parts = [z[folds == fold] for fold in range(int(folds.max()) + 1)]
    return SecondMoments(
        np.array([len(part) for part in parts]),
        np.array([part.sum(axis=0) for part in parts]),
        np.array([part.T @ part for part in parts]),
        centre,
        scale,
        features.starts,
    )


def assert_same(found: list[PathPoint], expected: list[PathPoint]) -> None:
    assert len(found) == len(expected) > 0
    for one, other in zip(found, expected, strict=True):
        assert one.objective == pytest.approx(other.objective, rel=1e-9)
        np.testing.assert_array_equal(one.coef != 0.0, other.coef != 0.0)
        np.testing.assert_allclose(one.coef, other.coef, atol=1e-6 * np.abs(other.coef).max(initial=1.0))
        assert one.intercept == pytest.approx(other.intercept, abs=1e-4)
        assert (one.degrees_of_freedom, one.converged) == (other.degrees_of_freedom, other.converged)
        assert (one.refit is None) == (other.refit is None)
        if one.refit is not None and other.refit is not None:
            assert one.refit.loss == pytest.approx(other.refit.loss, rel=1e-9)


@pytest.mark.parametrize("fit_intercept", [True, False], ids=["intercept", "none"])
@pytest.mark.parametrize("penalty", ["lasso", "scad", "mcp", "none"])
@pytest.mark.parametrize("without", [None, 0, 2])
def test_the_path_from_moments_is_the_path_on_the_rows(penalty: str, fit_intercept: bool, without: int | None) -> None:
    features, y = make_rows()
    folds = np.arange(y.size) % 3
    problem = moments_of(features, y, folds).problem(fit_intercept=fit_intercept, without=without)
    kept = np.ones(y.size, dtype=bool) if without is None else folds != without
    learnt = Features(features.values[kept], features.starts, features.names, features.sources)
    design = standardise(learnt, centre=fit_intercept)
    strengths = np.zeros(1) if penalty == "none" else problem.largest * np.array(SHARES)
    rule, chosen = RefitRule(np.log(y.size), float(y.size)), Penalty.build(penalty)
    tracing = trace_central_path(
        problem, chosen, strengths, tolerance=TOLERANCE, watch=RefitStopper(rule, GAUSSIAN), end_early=True
    )
    found = without_questions(tracing)
    expected = trace_path(
        design, y[kept], GAUSSIAN, chosen, strengths, fit_intercept=fit_intercept, tolerance=TOLERANCE, refit=rule
    )
    assert_same(list(found), list(expected))
    np.testing.assert_array_equal(problem.factors, design.factors)


@pytest.mark.parametrize("fold", [0, 1, 2])
def test_the_error_on_a_fold_is_that_of_its_rows(fold: int) -> None:
    features, y = make_rows(4)
    folds = np.random.default_rng(0).integers(0, 3, y.size)
    rng = np.random.default_rng(1)
    points = [PathPoint(1.0, rng.normal(size=7), float(rng.normal()), 0.0, 0.0, 7, True) for _ in range(3)]
    found = moments_of(features, y, folds).deviance(points, fold)
    rows = folds == fold
    expected = [float(np.mean((y - features.values @ p.coef - p.intercept)[rows] ** 2)) for p in points]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_column_that_does_not_vary_outside_a_fold_stays_out() -> None:
    features, y = make_rows(5)
    folds = np.arange(y.size) % 3
    features.values[:, 6] = np.where(folds == 1, features.values[:, 6], 2.5)
    problem = moments_of(features, y, folds).problem(fit_intercept=True, without=1)
    watch = RefitStopper(None, GAUSSIAN)
    tracing = trace_central_path(
        problem, Penalty.build("none"), np.zeros(1), tolerance=TOLERANCE, watch=watch, end_early=True
    )
    (point,) = without_questions(tracing)
    assert point.coef[6] == 0.0
    assert point.coef[0] != 0.0
