"""Errors of fitted copulas: variances of correlations, and where nobody knows them."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from tests.builders import correlated_normals
from verticopula import Federation, Synthesizer, VerticalGLM
from verticopula.estimators.copula_errors import pair_variance, why_errors_are_unknown
from verticopula.glm.inference import MOVED_NOTE
from verticopula.study.fitted_study import FittedStudy

Floats = NDArray[np.float64]
N, SHARED = 2_000, 0.5


def fit_study(epsilon: float) -> Synthesizer:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((N, 2)) @ np.linalg.cholesky(np.array([[1.0, SHARED], [SHARED, 1.0]])).T
    ids = [f"s{i}" for i in range(N)]
    column = {"kind": "continuous", "bounds": [-8.0, 8.0], "clamp": True}
    kinds = rng.choice(["u", "v", "w"], N)
    nominal = {"name": "k", "kind": "nominal", "categories": ["u", "v", "w"]}
    parties = [
        {"name": "a", "column": [{"name": "x", **column}]},
        {"name": "b", "column": [{"name": "x", **column}, nominal]},
    ]
    federation = Federation.from_dict({"name": "errors", "response": "a.x", "id": "id", "party": parties})
    tables = {
        "a": pl.DataFrame({"id": ids, "x": x[:, 0]}),
        "b": pl.DataFrame({"id": ids, "x": x[:, 1] + (kinds == "v"), "k": kinds}),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Synthesizer(federation, "vcds", epsilon=epsilon, unit="variable", random_state=1).fit(tables)


@pytest.fixture(scope="module")
def quiet() -> Synthesizer:
    """All but no noise: errors are those of sampling, which are known."""
    return fit_study(40.0)


@pytest.fixture(scope="module")
def study(quiet: Synthesizer) -> FittedStudy:
    return quiet.study_


def test_without_noise_errors_are_those_of_people_and_rows(quiet: Synthesizer) -> None:
    model = VerticalGLM(penalty="none").fit(quiet.sample(), "a.x")
    assert model.inference_ is not None
    assert model.naive_inference_ is not None
    # As many rows as people: their errors add up. Spearman's correlations have 1.06 times the error of Pearson's.
    ratio = model.inference_.standard_error / model.naive_inference_.standard_error
    np.testing.assert_allclose(ratio, math.sqrt(2.0), rtol=0.15)
    assert np.abs(model.inference_.bias).max() < model.inference_.standard_error.max()


def test_more_noise_and_fewer_people_widen_intervals(quiet: Synthesizer) -> None:
    loud = VerticalGLM(penalty="none").fit(fit_study(0.5).sample(), "a.x")
    calm = VerticalGLM(penalty="none").fit(quiet.sample(), "a.x")
    assert loud.inference_ is not None
    assert calm.inference_ is not None
    assert loud.inference_.standard_error[1] > 1.1 * calm.inference_.standard_error[1]


def test_an_estimate_outside_its_interval_is_explained(quiet: Synthesizer) -> None:
    model = VerticalGLM(penalty="none").fit(quiet.sample(), "a.x")
    assert MOVED_NOTE not in str(model.summary())
    assert model.inference_ is not None
    model.inference_ = replace(model.inference_, bias=10.0 * model.inference_.standard_error)
    assert str(model.summary()).rstrip().endswith(MOVED_NOTE)


def test_intervals_are_repeatable(quiet: Synthesizer) -> None:
    tables = quiet.sample()
    once, again = (VerticalGLM(penalty="none").fit(tables, "a.x").inference_ for _ in range(2))
    assert once is not None
    assert again is not None
    np.testing.assert_array_equal(once.intervals(0.95), again.intervals(0.95))


def test_rows_with_conditions_have_no_intervals(quiet: Synthesizer) -> None:
    model = VerticalGLM(penalty="none").fit(quiet.sample(conditions={"b.x": (-1.0, 1.0)}), "a.x")
    assert model.inference_ is None
    assert "how they came about" in model.no_intervals_


def test_variance_of_sums_of_correlations_is_that_of_many_samples() -> None:
    """Against correlations of noisy readings, drawn again and again with a block missing."""
    rng, n, share = np.random.default_rng(4), 400, 0.6
    correlation, noise = 0.6 * np.eye(3) + 0.4, np.array([0.05, 0.6, 0.2])
    gradient = np.array([[0.0, 1.0, -0.5], [1.0, 0.0, 0.7], [-0.5, 0.7, 0.0]])
    seen, found = round(share * n), []
    for _ in range(3_000):
        z = correlated_normals(correlation, n, rng)
        z /= np.sqrt(np.mean(z**2, axis=0))  # ranks have a known variance
        r = z + np.sqrt(noise) * rng.standard_normal((n, 3))
        products = np.zeros((3, 3))
        for j in range(3):
            for k in range(3):
                rows = slice(seen) if 2 in (j, k) else slice(n)
                spread = np.sqrt(np.mean(z[rows, j] ** 2) * np.mean(z[rows, k] ** 2))
                products[j, k] = np.mean(r[rows, j] * r[rows, k]) / spread
        found.append(np.sum(gradient * (products - correlation)))
    patterns = [(np.array([True, True, True]), seen), (np.array([True, True, False]), n - seen)]
    expected = pair_variance(gradient[None], correlation, noise, patterns)[0]
    # A variance of 3000 draws is off by 1 / sqrt(1500) of itself.
    assert np.var(found) == pytest.approx(expected, rel=4.0 / math.sqrt(1_500.0))


def test_one_correlation_has_the_error_of_pearson_s() -> None:
    gradient = np.array([[[0.0, 0.5], [0.5, 0.0]]])
    found = pair_variance(gradient, np.array([[1.0, 0.5], [0.5, 1.0]]), np.zeros(2), [(np.ones(2, dtype=bool), 100)])
    assert found[0] == pytest.approx((1.0 - 0.25) ** 2 / 100)


def test_errors_that_nobody_knows(study: FittedStudy) -> None:
    assert why_errors_are_unknown(study, None) == ""
    by_method = {
        name: why_errors_are_unknown(replace(study, settings=replace(study.settings, method=name)), None)
        for name in ("evcds", "ievcds", "refined")
    }
    assert "repetitions of the study only" in by_method["evcds"]
    assert "repetitions of the study only" in by_method["ievcds"]
    assert "without the draws" in by_method["refined"]
    printed = replace(study, settings=replace(study.settings, variant="as-printed"))
    assert "as printed" in why_errors_are_unknown(printed, None)
