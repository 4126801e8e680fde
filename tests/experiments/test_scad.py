"""The judges on cases with a known answer, and the oracle."""

import numpy as np
import pytest

from experiments.metrics import g_means
from experiments.scad import (
    Model,
    SeparatedClassesError,
    fit_oracle,
    sample_rows,
    trace_scad,
)

TRUTH = np.array([1.0, -1.0, 0.5, 0.0, 0.0, 0.0])


def make_regression(model: Model, n: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Correlated columns with means and scales of their own; no intercept in the truth."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((n, 6)) + 0.7 * rng.standard_normal((n, 1))) * [1, 1, 2, 1, 3, 0.5] + [0, 1, 0, 2, 0, 0]
    predictor = x @ TRUTH
    if model == "linear":
        return x, predictor + rng.standard_normal(n)
    return x, (rng.random(n) < 1 / (1 + np.exp(-predictor))).astype(float)


def orthogonal_problem(n: int = 200, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Centred columns with x'x / n = I, and a response with coefficients of all sizes."""
    rng = np.random.default_rng(seed)
    raw = rng.standard_normal((n, 8))
    x = np.linalg.qr(raw - raw.mean(axis=0))[0] * np.sqrt(n)
    return x, x @ [2, 1, 0.5, 0.3, 0.2, 0.1, 0, 0] + rng.standard_normal(n)


@pytest.mark.parametrize("model", ["linear", "logistic"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_refit_is_maximum_likelihood_on_what_was_selected(model: Model, fit_intercept: bool) -> None:
    x, y = make_regression(model, n=2_000)
    fit = trace_scad(x, y, model=model, fit_intercept=fit_intercept).refitted
    np.testing.assert_array_equal(fit.coef != 0, TRUTH != 0)
    oracle = fit_oracle(x, y, TRUTH != 0, model, fit_intercept=fit_intercept)
    np.testing.assert_allclose(fit.coef, oracle, atol=1e-3)
    assert fit_intercept or fit.intercept == 0
    assert fit.converged


def test_on_orthogonal_columns_bic_on_refits_finds_the_best_subset() -> None:
    x, y = orthogonal_problem()
    n, z = len(y), x.T @ (y - y.mean()) / len(y)
    fit = trace_scad(x, y, model="linear").refitted
    order = np.argsort(-np.abs(z))  # orthogonal columns enter by size, and keep their least-squares coefficients
    bics = [n * np.log(np.mean((y - y.mean() - x[:, order[:k]] @ z[order[:k]]) ** 2)) + k * np.log(n) for k in range(9)]
    assert fit.degrees_of_freedom == np.argmin(bics)
    assert fit.bic == pytest.approx(min(bics))
    np.testing.assert_allclose(fit.coef[order[: np.argmin(bics)]], z[order[: np.argmin(bics)]], atol=1e-3)


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_repeated_rows_are_not_more_evidence_for_a_refit(model: Model) -> None:
    x, y = make_regression(model, n=150)
    plain = trace_scad(x, y, model=model).refitted
    repeated = trace_scad(np.tile(x, (10, 1)), np.tile(y, 10), model=model, n_effective=150).refitted
    np.testing.assert_allclose(repeated.coef, plain.coef, atol=1e-6)
    assert repeated.bic == pytest.approx(plain.bic)
    more = trace_scad(x, y, model=model, n_effective=15_000).refitted
    assert np.count_nonzero(more.coef) > np.count_nonzero(plain.coef)


def test_oracle_is_least_squares_on_the_support() -> None:
    x, y = make_regression("linear")
    kept = x[:, :3]
    expected = np.linalg.solve(kept.T @ kept, kept.T @ y)
    np.testing.assert_allclose(fit_oracle(x, y, TRUTH != 0, "linear"), [*expected, 0, 0, 0], atol=1e-10)


def test_oracle_solves_the_logistic_score_equations() -> None:
    x, y = make_regression("logistic")
    coef = fit_oracle(x, y, TRUTH != 0, "logistic")
    score = x.T @ (y - 1 / (1 + np.exp(-x @ coef)))
    np.testing.assert_allclose(score[:3], 0, atol=1e-6)
    assert not coef[3:].any()


def test_oracle_with_an_intercept_does_not_feel_a_shift() -> None:
    x, y = make_regression("logistic")
    plain = fit_oracle(x, y, TRUTH != 0, "logistic", fit_intercept=True)
    shifted = fit_oracle(x + 2.0, y, TRUTH != 0, "logistic", fit_intercept=True)
    np.testing.assert_allclose(shifted, plain, atol=1e-6)


def test_oracle_says_when_there_is_no_maximum() -> None:
    x = np.random.default_rng(0).standard_normal((40, 2))
    with pytest.raises(SeparatedClassesError):
        fit_oracle(x, (x[:, 0] > 0).astype(float), [True, True], "logistic")


@pytest.mark.parametrize(
    ("x", "y", "model", "message"),
    [
        (np.ones((3, 2)), np.ones(4), "linear", "expected"),
        (np.ones((3, 2)), np.ones(3), "linear", "constant"),
        (np.ones((3, 2)), np.array([0, 1, 2]), "logistic", "0 and 1"),
        (np.ones((3, 2)), np.array([0, 1, 1]), "poisson", "model"),
    ],
)
def test_unusable_input_is_refused(x, y, model, message: str) -> None:
    for fit in (trace_scad, sample_rows):
        with pytest.raises(ValueError, match=message):
            fit(x, y, model=model)


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_the_posterior_finds_strong_columns_and_counts_subjects_not_rows(model: Model) -> None:
    x, y = make_regression(model, n=2000)
    found = sample_rows(x, y, model=model, fit_intercept=False)
    starts = np.arange(TRUTH.size + 1)
    assert g_means(found.select(starts, 0.9), TRUTH) == 1.0
    few = sample_rows(x, y, model=model, n_effective=6.0, fit_intercept=False)
    assert few.inclusion.sum() < found.inclusion.sum()
