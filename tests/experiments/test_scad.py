"""SCAD against its closed form, its optimality conditions and its invariances."""

import numpy as np
import pytest

from experiments.metrics import fdr, g_means
from experiments.scad import (
    Model,
    ScadFit,
    SeparatedClassesError,
    fit_oracle,
    fit_scad,
    fit_scad_path,
    fit_scad_refit,
    sample_rows,
    scad_slope,
)

A = 3.7
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


def threshold_scad(z: np.ndarray, strength: float) -> np.ndarray:
    """Fan and Li's (2001) solution for one orthonormal column each."""
    soft = np.sign(z) * np.maximum(np.abs(z) - strength, 0)
    middle = ((A - 1) * z - np.sign(z) * A * strength) / (A - 2)
    return np.where(np.abs(z) <= 2 * strength, soft, np.where(np.abs(z) <= A * strength, middle, z))


def test_orthogonal_columns_give_the_closed_form_and_its_best_bic() -> None:
    x, y = orthogonal_problem()
    n = len(y)
    fit = fit_scad_path(x, y, model="linear", n_lambdas=60, strength_ratio=0.01)
    z = x.T @ (y - y.mean()) / n
    np.testing.assert_allclose(fit.coef, threshold_scad(z, fit.strength), atol=2e-3 * fit.strength)

    def bic(strength: float) -> float:
        coef = threshold_scad(z, strength)
        rss = np.sum((y - y.mean() - x @ coef) ** 2)
        return n * np.log(rss / n) + np.count_nonzero(coef) * np.log(n)

    path = np.max(np.abs(z)) * np.geomspace(1, 0.01, 60)
    assert fit.bic == pytest.approx(min(bic(s) for s in path), abs=0.01)
    assert fit.intercept == pytest.approx(y.mean())
    assert fit.converged


def test_gmdl_charges_what_a_column_explains() -> None:
    x, y = orthogonal_problem(seed=1)
    n = len(y)
    z = x.T @ (y - y.mean()) / n

    def gmdl(strength: float) -> float:
        coef = threshold_scad(z, strength)
        rss, df = np.sum((y - y.mean() - x @ coef) ** 2), np.count_nonzero(coef)
        explained = n * (np.sum((y - y.mean()) ** 2) / rss - 1)
        return n * np.log(rss / n) + (df * (1 + np.log(explained / df)) if df else 0)

    path = np.max(np.abs(z)) * np.geomspace(1, 0.01, 60)
    fit = fit_scad_path(x, y, model="linear", n_lambdas=60, strength_ratio=0.01, criterion="gmdl")
    assert fit.strength == pytest.approx(min(path, key=gmdl))


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_gmdl_keeps_weak_columns_that_bic_drops_and_leaves_noise_out(model: Model) -> None:
    rng = np.random.default_rng(0)
    n, truth = 1_000, np.repeat([0.18, 0.0], 20) if model == "logistic" else np.repeat([0.08, 0.0], 20)
    x = rng.standard_normal((n, 40))
    noise = rng.logistic(size=n) if model == "logistic" else rng.standard_normal(n)
    latent = x @ truth + noise
    y = (latent > 0).astype(float) if model == "logistic" else latent
    weak, bic = fit_scad(x, y, model=model), fit_scad_path(x, y, model=model)
    assert np.count_nonzero(weak.coef[:20]) > np.count_nonzero(bic.coef[:20])
    assert np.linalg.norm(weak.coef - truth) < np.linalg.norm(bic.coef - truth)
    strong_x, strong_y = make_regression(model, n=2_000)
    assert not fit_scad(strong_x, strong_y, model=model).coef[3:].any()


def test_an_unknown_criterion_is_refused() -> None:
    x, y = orthogonal_problem()
    with pytest.raises(ValueError, match="criterion"):
        fit_scad_path(x, y, model="linear", criterion="cp")  # type: ignore[arg-type]


def test_a_negative_ridge_is_refused() -> None:
    x, y = orthogonal_problem()
    with pytest.raises(ValueError, match="ridge"):
        fit_scad_path(x, y, model="linear", ridge=-1.0)


def distance_to_optimality(x, y, fit: ScadFit, model: Model, *, centred: bool, ridge: float) -> float:
    """Largest violation of the optimality conditions, column by column, relative to the strength."""
    scale = x.std(axis=0)
    weight = ridge * fit.strength / (y.std() if model == "linear" else 1)
    coef = fit.coef * scale
    eta = x @ fit.coef + fit.intercept
    residual = y - (eta if model == "linear" else 1 / (1 + np.exp(-eta)))
    columns = (x - x.mean(axis=0) if centred else x) / scale
    worst = abs(residual.mean()) if centred else 0.0
    for j, b in enumerate(coef):
        pull = columns[:, j] @ residual / len(y) - weight * b
        slope = scad_slope(np.array([b]), fit.strength, A)[0]
        worst = max(worst, abs(pull) - slope if b == 0 else abs(pull - np.sign(b) * slope))
    return worst / fit.strength


@pytest.mark.parametrize("model", ["linear", "logistic"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("ridge", [0.0, 1.0])
def test_optimality_conditions_hold(model: Model, fit_intercept: bool, ridge: float) -> None:
    x, y = make_regression(model)
    fit = fit_scad_path(x, y, model=model, fit_intercept=fit_intercept, ridge=ridge)
    assert distance_to_optimality(x, y, fit, model, centred=fit_intercept, ridge=ridge) < 2e-3
    assert fit_intercept or fit.intercept == 0


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_support_is_found_when_the_signal_is_strong(model: Model) -> None:
    x, y = make_regression(model, n=2_000)
    fit = fit_scad_path(x, y, model=model)
    assert g_means(fit.coef, TRUTH) == 1
    assert fdr(fit.coef, TRUTH) == 0


def test_large_coefficients_are_not_shrunk() -> None:
    x, y = make_regression("linear", n=2_000)
    fit = fit_scad_path(x, y, model="linear")
    oracle = fit_oracle(x, y, TRUTH != 0, "linear", fit_intercept=True)
    np.testing.assert_allclose(fit.coef, oracle, atol=1e-3)


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_shift_and_scale_of_columns_do_not_matter(model: Model) -> None:
    x, y = make_regression(model)
    factors = np.array([1.0, 10.0, 0.1, 3.0, 1.0, 100.0])
    plain = fit_scad_path(x, y, model=model)
    moved = fit_scad_path(x * factors + 5.0, y, model=model)
    np.testing.assert_allclose(moved.coef * factors, plain.coef, atol=1e-6)
    assert moved.strength == pytest.approx(plain.strength)


def test_units_of_the_response_do_not_matter() -> None:
    x, y = make_regression("linear")
    plain, large = fit_scad_path(x, y, model="linear"), fit_scad_path(x, 1e4 * y, model="linear")
    np.testing.assert_allclose(large.coef, 1e4 * plain.coef, rtol=1e-6)


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_repeated_rows_are_not_more_evidence(model: Model) -> None:
    x, y = make_regression(model, n=150)
    plain = fit_scad_path(x, y, model=model)
    repeated = fit_scad_path(np.tile(x, (10, 1)), np.tile(y, 10), model=model, n_effective=150)
    np.testing.assert_allclose(repeated.coef, plain.coef, atol=1e-6)
    assert repeated.bic == pytest.approx(plain.bic)
    more = fit_scad_path(x, y, model=model, n_effective=15_000)
    assert np.count_nonzero(more.coef) > np.count_nonzero(plain.coef)


def test_bic_of_the_logistic_model_by_hand() -> None:
    x, y = make_regression("logistic")
    fit = fit_scad_path(x, y, model="logistic")
    probability = 1 / (1 + np.exp(-(x @ fit.coef + fit.intercept)))
    log_likelihood = np.sum(np.log(np.where(y == 1, probability, 1 - probability)))
    assert fit.bic == pytest.approx(-2 * log_likelihood + np.count_nonzero(fit.coef) * np.log(600))


def test_a_ridge_takes_its_share_of_every_degree_of_freedom() -> None:
    x, y = orthogonal_problem()
    fit = fit_scad_path(x, y, model="linear", ridge=2.0)
    expected = np.count_nonzero(fit.coef) / (1 + 2.0 * fit.strength / y.std())
    assert fit.degrees_of_freedom == pytest.approx(expected)
    assert fit_scad_path(x, y, model="linear").degrees_of_freedom % 1 == 0


def test_a_ridge_keeps_the_logistic_fit_from_running_large() -> None:
    rng = np.random.default_rng(0)
    truth = np.full(30, 0.4)
    x = rng.standard_normal((150, 30))
    y = (rng.random(150) < 1 / (1 + np.exp(-x @ truth))).astype(float)
    likely = fit_oracle(x, y, truth != 0, "logistic")
    assert np.linalg.norm(likely) > 1.2 * np.linalg.norm(truth)
    assert np.linalg.norm(fit_scad(x, y, model="logistic").coef - truth) < np.linalg.norm(likely - truth)


@pytest.mark.parametrize("ridge", [0.0, 1.0])
def test_separable_classes_do_not_run_off(ridge: float) -> None:
    x = np.random.default_rng(0).standard_normal((60, 20))
    y = (x[:, 0] + 0.2 * x[:, 1] > 0).astype(float)
    fit = fit_scad_path(x, y, model="logistic", ridge=ridge)
    assert np.max(np.abs(fit.coef)) < 10
    assert fit.converged


def test_a_rare_class_does_not_end_the_path_early() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4_000, 5)) + np.array([4.0, 0, 0, 0, 0])
    truth = np.array([-1.0, 1.0, -1.0, 0.0, 0.0])
    y = (rng.random(4_000) < 1 / (1 + np.exp(-x @ truth))).astype(float)
    assert y.mean() < 0.1  # beta = 0 has a deviance of log 2, four times that of a constant
    fit = fit_scad_path(x, y, model="logistic", fit_intercept=False)
    np.testing.assert_allclose(fit.coef, truth, atol=0.2)


def test_more_columns_than_rows() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((40, 80))
    fit = fit_scad_path(x, 3 * x[:, 0] + 0.1 * rng.standard_normal(40), model="linear")
    assert 1 <= np.count_nonzero(fit.coef) <= 20
    assert fit.coef[0] == pytest.approx(3, abs=0.3)


def test_a_constant_column_is_left_out() -> None:
    x, y = make_regression("linear")
    fit = fit_scad_path(np.column_stack([x, np.full(len(y), 4.0)]), y, model="linear")
    assert fit.coef[-1] == 0


@pytest.mark.parametrize("model", ["linear", "logistic"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_a_refit_is_maximum_likelihood_on_what_was_selected(model: Model, fit_intercept: bool) -> None:
    x, y = make_regression(model, n=2_000)
    fit = fit_scad_refit(x, y, model=model, fit_intercept=fit_intercept)
    np.testing.assert_array_equal(fit.coef != 0, TRUTH != 0)
    oracle = fit_oracle(x, y, TRUTH != 0, model, fit_intercept=fit_intercept)
    np.testing.assert_allclose(fit.coef, oracle, atol=1e-3)
    assert fit_intercept or fit.intercept == 0
    assert fit.converged


def test_on_orthogonal_columns_bic_on_refits_finds_the_best_subset() -> None:
    x, y = orthogonal_problem()
    n, z = len(y), x.T @ (y - y.mean()) / len(y)
    fit = fit_scad_refit(x, y, model="linear")
    order = np.argsort(-np.abs(z))  # orthogonal columns enter by size, and keep their least-squares coefficients
    bics = [n * np.log(np.mean((y - y.mean() - x[:, order[:k]] @ z[order[:k]]) ** 2)) + k * np.log(n) for k in range(9)]
    assert fit.degrees_of_freedom == np.argmin(bics)
    assert fit.bic == pytest.approx(min(bics))
    np.testing.assert_allclose(fit.coef[order[: np.argmin(bics)]], z[order[: np.argmin(bics)]], atol=1e-3)


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_repeated_rows_are_not_more_evidence_for_a_refit(model: Model) -> None:
    x, y = make_regression(model, n=150)
    plain = fit_scad_refit(x, y, model=model)
    repeated = fit_scad_refit(np.tile(x, (10, 1)), np.tile(y, 10), model=model, n_effective=150)
    np.testing.assert_allclose(repeated.coef, plain.coef, atol=1e-6)
    assert repeated.bic == pytest.approx(plain.bic)
    more = fit_scad_refit(x, y, model=model, n_effective=15_000)
    assert np.count_nonzero(more.coef) > np.count_nonzero(plain.coef)


def test_scad_slope_by_hand() -> None:
    slopes = scad_slope(np.array([0.0, -1.0, 2.35, 3.7, 9.0]), 1.0, A)
    np.testing.assert_allclose(slopes, [1, 1, 0.5, 0, 0], atol=1e-15)


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
    for fit in (fit_scad_path, fit_scad_refit):
        with pytest.raises(ValueError, match=message):
            fit(x, y, model=model)


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_the_posterior_finds_strong_columns_and_counts_subjects_not_rows(model: Model) -> None:
    x, y = make_regression(model, n=2000)
    found = sample_rows(x, y, model=model, fit_intercept=False)
    starts = np.arange(TRUTH.size + 1)
    assert g_means(found.select(starts), TRUTH) == 1.0
    few = sample_rows(x, y, model=model, n_effective=6.0, fit_intercept=False)
    assert few.inclusion.sum() < found.inclusion.sum()
