"""Regressions on moved rows against the solver of paths, and first orders against moving correlations themselves."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from verticopula.glm.central_solver import maximise_likelihood
from verticopula.glm.families import FAMILIES
from verticopula.glm.feature_design import Features
from verticopula.glm.row_effects import RowEffects

Floats = NDArray[np.float64]
SLOPES = np.array([0.6, -0.4, 0.3])


def draw(family: str, n: int, seed: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 3)) @ np.linalg.cholesky(0.7 * np.eye(3) + 0.3).T * [1.0, 10.0, 0.1] + [0.0, 5.0, 1.0]
    eta = 0.3 + (x - [0.0, 5.0, 1.0]) / [1.0, 10.0, 0.1] @ SLOPES
    if family == "gaussian":
        return x, eta + rng.standard_normal(n)
    if family == "binomial":
        return x, (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(np.float64)
    return x, rng.poisson(np.exp(eta)).astype(np.float64)


@pytest.mark.parametrize("family", list(FAMILIES))
@pytest.mark.parametrize("has_intercept", [True, False])
def test_the_maximum_is_that_of_the_solver(family: str, has_intercept: bool) -> None:
    x, y = draw(family, 400, 1)
    coef, intercept, fine = maximise_likelihood(
        Features.plain(x, ["a", "b", "c"]), y, FAMILIES[family], fit_intercept=has_intercept
    )
    assert fine
    found = RowEffects(FAMILIES[family], has_intercept).maximise(x, y, np.zeros(3 + has_intercept))
    np.testing.assert_allclose(found, np.append(intercept, coef) if has_intercept else coef, rtol=1e-4, atol=1e-6)


def test_there_is_no_maximum_where_a_column_separates() -> None:
    x = np.arange(20.0)[:, None]
    found = RowEffects(FAMILIES["binomial"], True).maximise(x, (x[:, 0] > 9.5).astype(np.float64), np.zeros(2))
    assert not np.isfinite(found).all() or abs(found[1]) > 5.0


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_first_orders_are_those_of_moved_correlations(family: str) -> None:
    """Many rows of a normal copula at two correlation matrices, on the same random numbers."""
    n, rng = 400_000, np.random.default_rng(2)
    correlation = 0.7 * np.eye(4) + 0.3
    moved = correlation.copy()
    moved[0, 1] = moved[1, 0] = 0.33
    moved[1, 2] = moved[2, 1] = 0.28
    normals, effects, found = rng.standard_normal((n, 4)), RowEffects(FAMILIES[family], True), []
    for matrix in (correlation, moved):
        z = normals @ np.linalg.cholesky(matrix).T
        y = z[:, 0] if family == "gaussian" else (z[:, 0] > 0.3).astype(np.float64)
        x = z[:, 1:] * [1.0, 2.0, 0.5]
        loading = float(np.mean((y - y.mean()) * z[:, 0]))
        start = found[0] if found else np.zeros(4)
        found.append(effects.maximise(x, y, start))
        if matrix is correlation:
            features = np.zeros((3, 4))
            features[:, 1:] = np.diag([1.0, 2.0, 0.5])
            gradients = effects.gradients(x, found[0], (np.array([loading, 0.0, 0.0, 0.0]), features))
    expected = np.sum(gradients * (moved - correlation), axis=(1, 2))
    # Second orders: a move of 0.03 squared, and the logistic curve is not quite the normal one.
    np.testing.assert_allclose((found[1] - found[0])[1:], expected[1:], atol=0.004, rtol=0.1)
