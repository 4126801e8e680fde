"""Category probabilities, thresholds and boundaries against simulation and finite differences."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from tests.oracle.naive import goodness_of_fit
from verticopula.stats.nominal import (
    boundary_matrix,
    category_probabilities,
    choose_category,
    latent_from_indicator,
    solve_thresholds,
    thresholds_for,
)

Floats = NDArray[np.float64]

ALPHA = 1e-6
THRESHOLDS = [[0.0, 0.0, 0.0], [0.5, -1.0, 0.2, 2.0], [3.0, 0.0, 0.1], [0.0, 0.7]]

probabilities = st.lists(st.floats(1e-4, 1.0), min_size=2, max_size=9).map(lambda p: np.array(p) / np.sum(p))


@pytest.mark.parametrize("thresholds", THRESHOLDS, ids=str)
def test_probabilities_are_how_often_each_category_wins(thresholds: list[float]) -> None:
    t = np.array(thresholds)
    winners = np.argmax(np.random.default_rng(1).standard_normal((300_000, t.size)) - t, axis=1)
    found = category_probabilities(t)
    assert found.sum() == pytest.approx(1.0, abs=1e-10)
    assert goodness_of_fit(np.bincount(winners, minlength=t.size).astype(np.float64), found) > ALPHA


def test_two_categories_have_the_closed_form() -> None:
    found = category_probabilities(np.array([0.3, -0.8]))
    assert found[0] == pytest.approx(stats.norm.cdf((-0.8 - 0.3) / math.sqrt(2)), abs=1e-11)


@pytest.mark.parametrize("thresholds", THRESHOLDS, ids=str)
def test_boundaries_are_minus_the_derivative(thresholds: list[float]) -> None:
    t, step = np.array(thresholds), 1e-5
    slopes = [
        (category_probabilities(t + step * e) - category_probabilities(t - step * e)) / (2 * step)
        for e in np.eye(t.size)
    ]
    boundary = boundary_matrix(t)
    np.testing.assert_allclose(boundary, -np.array(slopes).T, atol=1e-9)
    np.testing.assert_allclose(boundary, boundary.T, atol=1e-15)
    np.testing.assert_allclose(boundary.sum(axis=1), 0.0, atol=1e-15)
    assert np.all(boundary[~np.eye(t.size, dtype=bool)] <= 0.0)


@given(probabilities)
def test_thresholds_give_back_their_probabilities(p: Floats) -> None:
    thresholds = solve_thresholds(p)
    np.testing.assert_allclose(category_probabilities(thresholds), p, atol=1e-9)
    assert abs(thresholds.mean()) < 1e-12


@pytest.mark.parametrize("p", [[0.999997, 1e-6, 2e-6], [0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [1 / 40] * 40], ids=str)
def test_extreme_probabilities_have_finite_thresholds(p: list[float]) -> None:
    thresholds = solve_thresholds(np.array(p))
    assert np.all(np.isfinite(thresholds))
    np.testing.assert_allclose(category_probabilities(thresholds), p, atol=4e-6)
    assert np.all(np.isfinite(latent_from_indicator(np.array(p))))


@given(probabilities, st.integers(0, 2**32))
def test_nothing_depends_on_the_order_of_categories(p: Floats, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(p.size)
    np.testing.assert_allclose(solve_thresholds(p[order]), solve_thresholds(p)[order], atol=1e-8)
    mapped = latent_from_indicator(p)
    np.testing.assert_allclose(
        latent_from_indicator(p[order]), mapped[np.ix_(order, order)], atol=1e-6 * np.max(np.abs(mapped))
    )


def test_choosing_follows_a_permutation_of_the_categories() -> None:
    rng = np.random.default_rng(3)
    p = np.array([0.5, 0.3, 0.15, 0.05])
    latent = rng.standard_normal((5_000, 4))
    order = np.array([2, 0, 3, 1])
    chosen = choose_category(latent, solve_thresholds(p))
    relabelled = choose_category(latent[:, order], solve_thresholds(p[order]))
    np.testing.assert_array_equal(order[relabelled], chosen)


@pytest.mark.parametrize("p", [[0.5, 0.3, 0.2], [0.4, 0.3, 0.18, 0.1, 0.02]], ids=str)
def test_a_weak_association_comes_back_through_the_indicators(p: list[float]) -> None:
    """Simulate latents with known b, measure each indicator's latent correlation, map it back."""
    rng = np.random.default_rng(4)
    shares = np.array(p)
    c = shares.size
    b = np.linspace(-0.15, 0.15, c) if c > 3 else np.array([0.15, -0.1, -0.05])
    b = b - b.mean()
    n = 2_000_000
    z = rng.standard_normal((n, c))
    x = z @ b + math.sqrt(1 - b @ b) * rng.standard_normal(n)
    chosen = choose_category(z, solve_thresholds(shares))
    # E[X 1{category = c}] / phi(threshold) is the latent (biserial) correlation with that indicator.
    products = np.array([x * (chosen == k) for k in range(c)])
    density = stats.norm.pdf(stats.norm.ppf(shares))
    indicator = products.mean(axis=1) / density
    found = latent_from_indicator(shares) @ indicator
    error = np.abs(latent_from_indicator(shares)) @ (products.std(axis=1) / math.sqrt(n) / density)
    assert np.all(np.abs(found - b) < 5 * error)


def test_thresholds_of_dependent_latents_give_the_shares() -> None:
    shares = np.array([0.5, 0.3, 0.2])
    correlation = np.array([[1.0, 0.6, 0.0], [0.6, 1.0, -0.2], [0.0, -0.2, 1.0]])
    z = np.random.default_rng(8).multivariate_normal(np.zeros(3), correlation, 200_000)
    found = np.bincount(choose_category(z, thresholds_for(shares, correlation)), minlength=3) / 200_000
    # 200,000 draws here, 40,000 fixed ones inside.
    assert np.all(np.abs(found - shares) < 5 * np.sqrt(shares * (1 - shares) * (1 / 200_000 + 1 / 40_000)))
    independent = np.bincount(choose_category(z, solve_thresholds(shares)), minlength=3) / 200_000
    assert np.max(np.abs(independent - shares)) > 0.02
