"""Repairing and shrinking any symmetric matrix of correlations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from verticopula.stats.correlation import shrink
from verticopula.stats.matrix_repair import nearest_correlation

Floats = NDArray[np.float64]

FLOOR = 1e-4


@st.composite
def noisy_matrices(draw: st.DrawFn) -> Floats:
    """Symmetric, unit diagonal, entries within +-0.999; seldom positive definite."""
    q = draw(st.integers(2, 12))
    entries = draw(st.lists(st.floats(-0.999, 0.999), min_size=q * (q - 1) // 2, max_size=q * (q - 1) // 2))
    matrix = np.eye(q)
    matrix[np.tril_indices(q, -1)] = entries
    return np.tril(matrix, -1) + np.tril(matrix, -1).T + np.eye(q)


@st.composite
def proper_correlations(draw: st.DrawFn) -> Floats:
    q = draw(st.integers(2, 10))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    factor = rng.standard_normal((q, q + 3))
    covariance = factor @ factor.T + 0.1 * np.eye(q)
    scale = 1 / np.sqrt(np.diag(covariance))
    return covariance * np.outer(scale, scale)


def distance(a: Floats, b: Floats) -> float:
    return float(np.linalg.norm(a - b))


def clip_and_scale(matrix: Floats) -> Floats:
    """The usual one-step repair."""
    values, vectors = np.linalg.eigh(matrix)
    positive = (vectors * np.maximum(values, FLOOR)) @ vectors.T
    scale = 1 / np.sqrt(np.diag(positive))
    return positive * np.outer(scale, scale)


def towards_identity(matrix: Floats) -> Floats:
    """The other usual repair: as little of the identity as it takes."""
    smallest = np.linalg.eigvalsh(matrix)[0]
    weight = (FLOOR - smallest) / (1 - smallest) if smallest < FLOOR else 0.0
    return (1 - weight) * matrix + weight * np.eye(matrix.shape[0])


@given(noisy_matrices())
def test_a_repaired_matrix_is_a_correlation_matrix(matrix: Floats) -> None:
    repair = nearest_correlation(matrix)
    found = repair.correlation
    np.testing.assert_array_equal(np.diag(found), 1.0)
    np.testing.assert_array_equal(found, found.T)
    assert np.linalg.eigvalsh(found)[0] > FLOOR / matrix.shape[0]
    np.linalg.cholesky(found)
    assert np.max(np.abs(found)) <= 1.0
    assert repair.change == pytest.approx(np.max(np.abs(found - matrix)))
    assert repair.smallest_eigenvalue_before == pytest.approx(np.linalg.eigvalsh(matrix)[0])


@given(noisy_matrices())
def test_no_usual_repair_is_nearer(matrix: Floats) -> None:
    """The last scaling to a unit diagonal costs a little; a hundredth more than the best is allowed."""
    found = distance(nearest_correlation(matrix).correlation, matrix)
    assert found <= 1.01 * distance(clip_and_scale(matrix), matrix) + 1e-3
    assert found <= 1.01 * distance(towards_identity(matrix), matrix) + 1e-3


@given(noisy_matrices())
def test_without_projections_eigenvalues_are_clipped_once(matrix: Floats) -> None:
    found = nearest_correlation(matrix, projections=0).correlation
    np.testing.assert_array_equal(np.diag(found), 1.0)
    np.testing.assert_allclose(found, clip_and_scale(matrix), atol=1e-10)


@given(noisy_matrices(), st.integers(0, 2**32))
def test_no_other_correlation_matrix_is_nearer(matrix: Floats, seed: int) -> None:
    """On the way from the repair towards any other correlation matrix, the distance grows (it is convex)."""
    found = nearest_correlation(matrix).correlation
    rng = np.random.default_rng(seed)
    factor = rng.standard_normal((matrix.shape[0], 2))
    other = factor @ factor.T + 1e-3 * np.eye(matrix.shape[0])
    other = other / np.sqrt(np.outer(np.diag(other), np.diag(other)))
    for candidate in (other, clip_and_scale(matrix), np.eye(matrix.shape[0])):
        nearer = found + 0.05 * (candidate - found)
        assert distance(nearer, matrix) >= distance(found, matrix) - 1e-3


@given(proper_correlations())
def test_a_correlation_matrix_is_left_alone(correlation: Floats) -> None:
    if np.linalg.eigvalsh(correlation)[0] < FLOOR:
        return
    np.fill_diagonal(correlation, 1.0)
    repair = nearest_correlation(correlation)
    assert repair.change == 0.0
    np.testing.assert_allclose(repair.correlation, correlation, atol=1e-15)


def test_the_textbook_example() -> None:
    """Higham (2002), section 4: its nearest correlation matrix to 4 digits."""
    matrix = np.array([[1.0, 1, 0], [1, 1, 1], [0, 1, 1]])
    wanted = np.array([[1, 0.7607, 0.1573], [0.7607, 1, 0.7607], [0.1573, 0.7607, 1]])
    np.testing.assert_allclose(nearest_correlation(matrix).correlation, wanted, atol=5e-4)


# ---- shrinking ---------------------------------------------------------------------------


def nothing_fixed(q: int) -> NDArray[np.bool_]:
    return np.zeros((q, q), dtype=bool)


@given(noisy_matrices())
def test_without_noise_nothing_is_shrunk(matrix: Floats) -> None:
    found = shrink(matrix, np.zeros_like(matrix), nothing_fixed(matrix.shape[0]))
    np.testing.assert_allclose(found.correlation, matrix, atol=1e-12)
    assert found.change < 1e-12


@given(noisy_matrices(), st.floats(1e-4, 2.0), st.integers(0, 2**32))
def test_fixed_entries_and_the_diagonal_stay(matrix: Floats, variance: float, seed: int) -> None:
    q = matrix.shape[0]
    fixed = np.random.default_rng(seed).random((q, q)) < 0.3
    fixed = fixed | fixed.T
    found = shrink(matrix, np.full((q, q), variance), fixed)
    np.testing.assert_array_equal(found.correlation[fixed], matrix[fixed])
    np.testing.assert_array_equal(np.diag(found.correlation), 1.0)
    np.testing.assert_allclose(found.correlation, found.correlation.T, atol=1e-12)
    assert np.all(np.isfinite(found.correlation))


def factor_model(q: int, rng: np.random.Generator) -> Floats:
    loadings = rng.uniform(0.4, 0.8, (q, 1))
    truth = loadings @ loadings.T
    np.fill_diagonal(truth, 1.0)
    return truth


def add_noise(truth: Floats, spread: float, rng: np.random.Generator) -> Floats:
    noise = np.triu(spread * rng.standard_normal(truth.shape), 1)
    return truth + noise + noise.T


@pytest.mark.parametrize("spread", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("shape", ["factor", "independent", "unstructured"])
def test_shrinking_does_not_hurt(shape: str, spread: float) -> None:
    """Mean squared error over replicates: never above that of the noisy matrix itself."""
    rng = np.random.default_rng(1)
    q = 20
    ratios = []
    for _ in range(20):
        if shape == "factor":
            truth = factor_model(q, rng)
        elif shape == "independent":
            truth = np.eye(q)
        else:
            factor = rng.standard_normal((q, 2 * q))
            covariance = factor @ factor.T
            truth = covariance / np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
        noisy = add_noise(truth, spread, rng)
        found = shrink(noisy, np.full((q, q), spread**2), nothing_fixed(q)).correlation
        ratios.append(distance(found, truth) ** 2 / distance(noisy, truth) ** 2)
    assert np.mean(ratios) < 1.0 + 3 * np.std(ratios) / math.sqrt(len(ratios))
    if shape != "unstructured" and spread >= 0.1:
        assert np.mean(ratios) < 0.5
