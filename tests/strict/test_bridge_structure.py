"""Latent correlations from covariances of scores; factors out of noise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtri

from benchmarks.strict_central import factor_correlation
from verticopula.stats.bridge import STRONGEST_IN_SERIES, hermite_coefficients, invert_series
from verticopula.stats.bridge import bridge as integrate_bridge
from verticopula.stats.tilting.factor_structure import (
    fit_structure,
    group_pairs,
    posterior_variance,
    start_structure,
)

STEPS = [
    (ndtri([0.5]), np.array([1.0])),
    (ndtri([0.92]), np.array([3.0])),
    (ndtri([0.2, 0.5, 0.9]), np.array([0.8, 0.7, 1.2])),
    (ndtri(np.arange(1, 40) / 40), np.diff(ndtri((np.arange(40) + 0.5) / 40))),
]


def series_covariances(coefficients, r):
    """(q, q) covariances at latent correlations r, and their slopes in r: sum_k a_k b_k r^k (Mehler), term by term."""
    table = np.asarray(coefficients)
    terms = [np.outer(table[:, k], table[:, k]) for k in range(table.shape[1])]
    value = sum(term * r ** (k + 1) for k, term in enumerate(terms))
    return value, sum((k + 1) * term * r**k for k, term in enumerate(terms))


@pytest.mark.parametrize("r", [-0.9, -0.4, 0.0, 0.3, 0.85])
def test_the_series_agrees_with_the_integral_of_the_bridge(r):
    coefficients = [hermite_coefficients(*step) for step in STEPS]
    found, _ = series_covariances(coefficients, np.full((4, 4), r))
    nodes, weights = np.polynomial.legendre.leggauss(64)
    for j, first in enumerate(STEPS):
        for k, second in enumerate(STEPS):
            integral = integrate_bridge(r, *first, *second, nodes, weights) / 12.0
            assert found[j, k] == pytest.approx(integral, abs=2e-3)


def test_inverting_undoes_the_series():
    coefficients = [hermite_coefficients(*step) for step in STEPS]
    r = np.random.default_rng(0).uniform(-0.9, 0.9, (4, 4))
    target, slope = series_covariances(coefficients, r)
    found, derivative = invert_series(coefficients, target)
    assert found == pytest.approx(r, abs=1e-6)
    assert derivative == pytest.approx(1.0 / np.maximum(slope, 1e-3), rel=1e-4)


def test_covariances_out_of_reach_end_at_the_strongest_correlation():
    found, _ = invert_series([hermite_coefficients(*step) for step in STEPS], np.full((4, 4), 50.0))
    assert np.all(found == pytest.approx(STRONGEST_IN_SERIES))


def noisy_correlation(q=40, parties=4, noise=0.05, seed=0, own=0.1):
    rng = np.random.default_rng(seed)
    owners = np.arange(q) // (q // parties)
    truth = factor_correlation(q, 3)
    inside = np.triu(rng.normal(0.0, own, (q, q)) * (owners[:, None] == owners), 1)
    truth = truth + inside + inside.T
    errors = np.triu(rng.normal(0.0, noise, (q, q)), 1)
    return (
        truth,
        truth + errors + errors.T,
        np.full((q, q), noise**2),
        group_pairs(owners, np.zeros((q, q), dtype=bool)),
    )


def test_factors_are_told_from_noise_and_from_what_parties_have_of_their_own():
    truth, found, variance, groups = noisy_correlation()
    structure = fit_structure(start_structure(found, variance, groups), found, variance)
    assert structure.rank == 3
    assert np.sqrt(structure.spread[0]) == pytest.approx(0.1, rel=0.3)
    assert np.sqrt(structure.spread[1]) < 0.02
    off = groups >= 0
    blended = structure.blend(found, variance)
    assert np.sqrt(np.mean((blended - truth)[off] ** 2)) < 0.6 * np.sqrt(np.mean((found - truth)[off] ** 2))


def test_expected_errors_are_those_that_happen():
    squares, expected = [], []
    for seed in range(8):
        truth, found, variance, groups = noisy_correlation(seed=seed)
        structure = fit_structure(start_structure(found, variance, groups), found, variance)
        off = groups == 1
        squares.append(np.mean((structure.blend(found, variance) - truth)[off] ** 2))
        expected.append(np.mean(posterior_variance(structure, variance)[off]))
    assert np.mean(expected) == pytest.approx(np.mean(squares), rel=0.35)


def test_without_noise_nothing_is_moved():
    truth, found, variance, groups = noisy_correlation(noise=0.0)
    structure = fit_structure(start_structure(found, variance + 1e-10, groups), found, variance + 1e-10)
    assert structure.blend(found, variance + 1e-10)[groups >= 0] == pytest.approx(truth[groups >= 0], abs=2e-3)


def test_noise_alone_has_no_factors():
    rng = np.random.default_rng(1)
    errors = np.triu(rng.normal(0.0, 0.2, (40, 40)), 1)
    groups = group_pairs(np.arange(40) // 10, np.zeros((40, 40), dtype=bool))
    variance = np.full((40, 40), 0.04)
    structure = fit_structure(start_structure(errors + errors.T, variance, groups), errors + errors.T, variance)
    assert np.sqrt(np.mean(structure.blend(errors + errors.T, variance)[groups >= 0] ** 2)) < 0.06


def test_pairs_that_nobody_has_follow_the_factors():
    truth, found, variance, groups = noisy_correlation(own=0.0, noise=0.02)
    hidden = np.zeros_like(found, dtype=bool)
    hidden[:10, 10:20] = hidden[10:20, :10] = True
    variance = np.where(hidden, np.inf, variance)
    structure = fit_structure(start_structure(found, variance, groups), np.where(hidden, 9.9, found), variance)
    fitted = structure.blend(np.where(hidden, 9.9, found), variance)
    assert np.sqrt(np.mean((fitted - truth)[hidden] ** 2)) < 0.03
