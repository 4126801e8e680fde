"""Intervals of regressions: how often they hold the truth, and what errors and selection make of them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from benchmarks.interval_coverage import DESIGNS, coverage, measure, run_study
from tests.builders import correlated_normals
from verticopula import VerticalGLM
from verticopula.glm.central_solver import maximise_likelihood
from verticopula.glm.families import FAMILIES
from verticopula.glm.feature_design import Features, join_features
from verticopula.glm.inference import (
    ErrorParts,
    Inference,
    infer_from_bootstrap,
    infer_from_likelihood,
    infer_from_parts,
)
from verticopula.glm.selection_intervals import interval_outside, selection_cuts

Floats = NDArray[np.float64]

LEVEL = 0.95
REPLICATIONS = 500
N = 250
# Intercept and slopes of the two parties' columns.
TRUTH = {
    "gaussian": np.array([1.0, 0.8, -0.5, 0.3, 0.0]),
    "binomial": np.array([0.2, 0.7, -0.5, 0.3, 0.0]),
    "poisson": np.array([0.5, 0.4, -0.3, 0.2, 0.0]),
}


def binomial_error(replications: int) -> float:
    """Of a share of intervals that hold the truth, if it is nominal."""
    return math.sqrt(LEVEL * (1.0 - LEVEL) / replications)


def equicorrelated(size: int, shared: float) -> Floats:
    return np.full((size, size), shared) + (1.0 - shared) * np.eye(size)


def draw(family: str, rng: np.random.Generator) -> tuple[Features, Floats]:
    """Two parties' true columns on scales of their own, and a response."""
    x = correlated_normals(equicorrelated(4, 0.4), N, rng)
    eta = TRUTH[family][0] + x @ TRUTH[family][1:]
    if family == "gaussian":
        y = eta + 2.0 * rng.standard_normal(N)
    elif family == "binomial":
        y = (rng.random(N) < 1.0 / (1.0 + np.exp(-eta))).astype(np.float64)
    else:
        y = rng.poisson(np.exp(eta)).astype(np.float64)
    return join_features([Features.plain(x[:, :2], ["a", "b"]), Features.plain(x[:, 2:], ["c", "d"])]), np.asarray(y)


def fit_oracle(family: str, features: Features, y: Floats, n_effective: float = N) -> Inference:
    coef, intercept, fine = maximise_likelihood(features, y, FAMILIES[family])
    assert fine
    return infer_from_likelihood(features.values, coef, intercept, y, FAMILIES[family], n_effective)


# ---- the likelihood's own ----------------------------------------------------------------------


@pytest.mark.parametrize("family", list(TRUTH))
def test_intervals_of_the_oracle_model_cover_the_truth_as_often_as_they_say(family: str) -> None:
    rng = np.random.default_rng(1)
    held = np.zeros((REPLICATIONS, 5), dtype=bool)
    rejected = np.zeros(REPLICATIONS, dtype=bool)
    for k in range(REPLICATIONS):
        found = fit_oracle(family, *draw(family, rng))
        low, high = found.intervals(LEVEL)
        held[k] = (low <= TRUTH[family]) & (TRUTH[family] <= high)
        rejected[k] = found.p_values()[4] < 1.0 - LEVEL
    slack = 3.0 * binomial_error(REPLICATIONS)
    assert held.mean(axis=0) == pytest.approx(np.full(5, LEVEL), abs=slack)
    assert rejected.mean() == pytest.approx(1.0 - LEVEL, abs=slack)  # the last column has no effect
    np.testing.assert_array_equal(rejected, ~held[:, 4])  # a p-value and its interval agree


@pytest.mark.parametrize("family", list(TRUTH))
def test_standard_errors_are_the_spread_of_estimates(family: str) -> None:
    rng = np.random.default_rng(2)
    found = [fit_oracle(family, *draw(family, rng)) for _ in range(200)]
    spread = np.std([f.estimate for f in found], axis=0, ddof=1)
    claimed = np.sqrt(np.mean([f.standard_error**2 for f in found], axis=0))
    # A standard deviation of m normal values is off by 1 / sqrt(2 (m - 1)) of itself.
    np.testing.assert_allclose(claimed, spread, rtol=4.0 / math.sqrt(2.0 * 199.0))


def test_gaussian_errors_are_those_of_least_squares() -> None:
    features, y = draw("gaussian", np.random.default_rng(3))
    found = fit_oracle("gaussian", features, y)
    rows = np.column_stack([np.ones(N), features.values])
    beta, residual, _, _ = np.linalg.lstsq(rows, y, rcond=None)
    expected = np.sqrt(np.diag(np.linalg.inv(rows.T @ rows)) * residual[0] / (N - 5))
    np.testing.assert_allclose(found.estimate, beta, atol=1e-7)
    np.testing.assert_allclose(found.standard_error, expected, rtol=1e-7)
    assert found.degrees_of_freedom == N - 5
    low, high = found.intervals(0.9)
    np.testing.assert_allclose((high - low) / 2.0, stats.t.ppf(0.95, N - 5) * expected, rtol=1e-7)
    np.testing.assert_allclose(found.p_values(), 2.0 * stats.t.sf(np.abs(beta) / expected, N - 5), rtol=1e-5)


@pytest.mark.parametrize("family", ["binomial", "poisson"])
def test_other_errors_are_those_of_the_second_derivative(family: str) -> None:
    """Against differences of the loss itself."""
    features, y = draw(family, np.random.default_rng(4))
    found = fit_oracle(family, features, y)
    rows, h = np.column_stack([np.ones(N), features.values]), 1e-4

    def loss(beta: Floats) -> float:
        return N * FAMILIES[family].loss(rows @ beta, y)

    steps = h * np.eye(5)
    hessian = np.array(
        [
            [
                sum(s * t * loss(found.estimate + s * a + t * b) for s in (1, -1) for t in (1, -1)) / (4.0 * h * h)
                for b in steps
            ]
            for a in steps
        ]
    )
    expected = np.sqrt(np.diag(np.linalg.inv(hessian)))
    # Differences lose half of the digits of a loss of some hundreds, divided by 1e-8: about 1e-5.
    np.testing.assert_allclose(found.standard_error, expected, rtol=1e-3)
    assert found.degrees_of_freedom == math.inf


@pytest.mark.parametrize("family", list(TRUTH))
def test_rows_that_stand_for_fewer_subjects_have_larger_errors(family: str) -> None:
    features, y = draw(family, np.random.default_rng(5))
    one = fit_oracle(family, features, y)
    tenfold = Features(np.tile(features.values, (10, 1)), features.starts, features.names, features.sources)
    many = fit_oracle(family, tenfold, np.tile(y, 10), n_effective=N)
    np.testing.assert_allclose(many.standard_error, one.standard_error, rtol=1e-6)
    fooled = fit_oracle(family, tenfold, np.tile(y, 10), n_effective=10 * N)
    dispersion = math.sqrt((N - 5) * 10 / (10 * N - 5)) if family == "gaussian" else 1.0
    np.testing.assert_allclose(fooled.standard_error * math.sqrt(10.0) / dispersion, one.standard_error, rtol=1e-6)


# ---- combining ---------------------------------------------------------------------------------


def test_a_bootstrap_s_error_holds_its_spread_and_its_bias() -> None:
    estimate, repetitions = np.array([1.0, -2.0]), np.array([[1.0, -2.0], [2.0, -2.5], [3.0, -3.0]])
    found = infer_from_bootstrap(estimate, repetitions, 100.0)
    np.testing.assert_allclose(found.estimate, estimate)
    np.testing.assert_allclose(found.standard_error, np.sqrt([(1.0 + 4.0) / 2.0, (0.25 + 1.0) / 2.0]))
    assert (found.source, found.copies, found.degrees_of_freedom) == ("bootstrap", 3, 2.0)
    np.testing.assert_allclose(found.bias, [1.0, -0.5])
    low, high = found.intervals(LEVEL)
    np.testing.assert_allclose((low + high) / 2.0, estimate)
    np.testing.assert_allclose((high - low) / 2.0, stats.t.ppf(0.975, 2) * found.standard_error)


def test_errors_of_all_parts_add_up_with_half_of_the_doubtful_bias() -> None:
    none = np.zeros(2)
    moves = np.array([[1.0, 0.0], [2.0, -0.5], [3.0, 0.5]])
    parts = ErrorParts(np.array([2.0, 1.0]), np.array([1.0, 0.0]), moves, np.array([0.0, 1.0]), none + 2.0, none - 0.5)
    found = infer_from_parts(np.array([1.0, -2.0]), parts, 100.0)
    assert found is not None
    margins = np.array([1.0, 0.25]) * (1.0 + 1.0 / 3.0)  # the mean of three draws is uncertain, too
    variance = margins + np.array([4.0 + 1.0 + 1.0, 1.0 + 1.0 + 1.0])
    np.testing.assert_allclose(found.standard_error, np.sqrt(variance))
    np.testing.assert_allclose(found.bias, 1.5)
    np.testing.assert_allclose(found.degrees_of_freedom, 2.0 * (variance / margins) ** 2)
    low, high = found.intervals(LEVEL)
    np.testing.assert_allclose((low + high) / 2.0, np.array([1.0, -2.0]) - 1.5, atol=1e-9)
    reach = stats.t.ppf(0.975, found.degrees_of_freedom) * found.standard_error
    np.testing.assert_allclose((high - low) / 2.0, reach)
    assert infer_from_parts(none, replace(parts, people=none + np.nan), 100.0) is None


# ---- selection ---------------------------------------------------------------------------------


@pytest.mark.parametrize("truth", [0.0, 1.0, 2.5, 4.0, 8.0])
def test_intervals_of_estimates_shown_because_they_were_large_cover_at_their_level(truth: float) -> None:
    cut, rng = 2.7, np.random.default_rng(8)
    drawn = truth + rng.standard_normal(400_000)
    shown = drawn[np.abs(drawn) > cut][:600]
    held = [low <= truth <= high for low, high in (interval_outside(float(x), cut, LEVEL) for x in shown)]
    assert np.mean(held) == pytest.approx(LEVEL, abs=3.5 * binomial_error(len(shown)))
    naive = np.mean(np.abs(shown - truth) < 1.96)
    assert truth > 1.0 or naive < LEVEL - 5.0 * binomial_error(len(shown))  # why they are needed


def test_far_above_the_cut_the_interval_is_the_usual_one() -> None:
    reach = stats.norm.ppf(0.975)
    for x in (9.0, -9.0, 60.0, -60.0):
        np.testing.assert_allclose(interval_outside(x, 2.7, LEVEL), (x - reach, x + reach), atol=1e-4)
    np.testing.assert_allclose(interval_outside(1.0, 0.0, LEVEL), (1.0 - reach, 1.0 + reach))


def test_ends_are_those_of_a_grid() -> None:
    """Against every theta of a grid, tested one by one."""
    thetas = np.linspace(-6.0, 8.0, 14_001)
    for x, cut in ((3.0, 2.7), (2.75, 2.7), (4.0, 2.0)):
        outside = stats.norm.cdf(-cut - thetas) + stats.norm.sf(cut - thetas)
        above = stats.norm.sf(x - thetas) / outside
        kept = thetas[(above >= 0.025) & (above <= 0.975)]
        np.testing.assert_allclose(interval_outside(x, cut, LEVEL), (kept[0], kept[-1]), atol=2e-3)
        np.testing.assert_allclose(interval_outside(-x, cut, LEVEL), (-kept[-1], -kept[0]), atol=2e-3)


def test_a_cut_is_where_the_criterion_would_drop_the_column() -> None:
    """Against moving one coefficient until its group's Wald statistic is what the criterion charges."""
    rng = np.random.default_rng(9)
    root = rng.standard_normal((3, 3))
    covariance, estimate, charge = root @ root.T, np.array([3.0, 9.0, -7.0]), 6.0
    cuts = selection_cuts(estimate, covariance, np.array([0, 1, 1]), charge)
    assert cuts[0] == pytest.approx(math.sqrt(charge * covariance[0, 0]))
    own, moved = covariance[1:, 1:], estimate[1:]
    for j in (0, 1):
        along = own[:, j] / own[j, j]
        rest = moved - along * moved[j]  # independent of coefficient j
        at = rest + along * cuts[1 + j]
        wald = at @ np.linalg.solve(own, at)
        assert wald == pytest.approx(2.0 * charge) if cuts[1 + j] > 0.0 else wald >= 2.0 * charge


# ---- whole studies -----------------------------------------------------------------------------

STUDIES = 40


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DESIGNS if name != "strict"])
def test_default_intervals_cover_the_population_s_effects_where_the_likelihood_s_do_not(name: str) -> None:
    done = [measure(name, 1_000 + k) for k in range(STUDIES)]
    (share, error), (naive, naive_error) = coverage(done, "held"), coverage(done, "naive")
    assert share >= LEVEL - 0.02 - 3.0 * max(error, binomial_error(4 * STUDIES))
    assert naive < share - 2.0 * naive_error


@pytest.mark.slow
def test_bootstrap_intervals_cover_the_population_s_effects() -> None:
    design, held = DESIGNS["small"], []
    for seed in range(2_000, 2_000 + STUDIES):
        synthesizer = run_study(design, seed)
        model = VerticalGLM(penalty="none").fit(synthesizer.sample(), "hub.y").bootstrap(synthesizer, 20)
        assert model.inference_ is not None
        low, high = (ends[1:] for ends in model.inference_.intervals(LEVEL))
        held.append(np.mean((low <= design.slopes) & (high >= design.slopes)))
    # Four slopes of one study depend on each other: no more is claimed than for one of them.
    assert np.mean(held) >= LEVEL - 3.0 * binomial_error(STUDIES)
