"""VerticalGLM: input that cannot be fitted, or only with a warning, and scales that must not matter."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import ConvergenceWarning

from tests.regressions import (
    FAMILIES,
    Floats,
    N,
    all_coef,
    blocks,
    columns_of,
    named,
    response,
)
from verticopula import VerticalGLM
from verticopula.errors import SettingsError, VerticopulaError

# ---- input that cannot be fitted, or only with a warning ---------------------------------------


def is_sound(fit: Callable[[], VerticalGLM]) -> bool:
    """Whether the caller is told: by an error, or by a warning and `converged_`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model = fit()
        except SettingsError:
            return True
    kinds = {w.category for w in caught}
    assert kinds <= {ConvergenceWarning}
    return ConvergenceWarning in kinds and not model.converged_


def separable() -> Floats:
    return (columns_of(blocks())[:, 0] > 0.0).astype(np.float64)


@pytest.mark.parametrize("penalty", ["scad", "mcp", "none"])
@pytest.mark.parametrize("select", ["bic", "cv", 0.01], ids=str)
def test_classes_that_a_column_separates(penalty: str, select: Any) -> None:
    assert is_sound(lambda: VerticalGLM("binomial", penalty, select=select, folds=3).fit(blocks(), separable()))


def test_the_lasso_has_a_solution_where_classes_separate() -> None:
    assert is_sound(lambda: VerticalGLM("binomial", "lasso").fit(blocks(), separable()))
    model = VerticalGLM("binomial", "lasso", select=0.01).fit(blocks(), separable())
    assert model.converged_
    assert np.mean(model.predict(blocks()) == separable()) > 0.95


def test_a_column_that_is_the_response() -> None:
    tables = blocks()
    model = VerticalGLM().fit(tables, 2.0 * tables["left"][:, 0])
    assert all_coef(model) == pytest.approx([2.0, 0.0, 0.0, 0.0], abs=0.01)


@pytest.mark.parametrize(
    "family",
    [
        "binomial",
        "poisson",
    ],
)
def test_a_strong_association_is_not_lost(family: str) -> None:
    """Counts in the hundreds, or classes that nearly separate: the likelihood has its maximum, and it is not at 0."""
    rng = np.random.default_rng(11)
    x = blocks(300, seed=2)
    eta = x["left"][:, 0]
    y = rng.poisson(np.exp(6.0 + eta)) if family == "poisson" else rng.random(300) < 1.0 / (1.0 + np.exp(-15.0 * eta))
    model = VerticalGLM(family)
    if not is_sound(lambda: model.fit(x, np.asarray(y, dtype=np.float64))):
        assert model.coef_["left"][0] > 0.5


@pytest.mark.parametrize("family", ["binomial", "poisson"])
@pytest.mark.parametrize("penalty", ["scad", "none"])
def test_a_category_without_the_other_outcome(family: str, penalty: str) -> None:
    """One indicator's maximum lies at infinity; where the solver stops says nothing."""
    rng = np.random.default_rng(12)
    flag, idle = rng.random(N) < 0.25, rng.standard_normal(N)
    free = rng.integers(0, 2, N) if family == "binomial" else rng.poisson(2.0, N)
    y = np.where(flag, 1.0 if family == "binomial" else 0.0, free)
    assert is_sound(lambda: VerticalGLM(family, penalty).fit(np.column_stack([flag, idle]).astype(np.float64), y))


@pytest.mark.parametrize("penalty", ["scad", "none"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_constant_column_stays_out_and_is_named(family: str, penalty: str) -> None:
    tables, y = named(blocks()), response(family)
    expected = VerticalGLM(family, penalty).fit(tables, y)
    flat = tables["left"].with_columns(flat=pl.lit(3.0))
    with pytest.warns(ConvergenceWarning, match=r"Constant columns of party 'left' cannot enter \(flat\)"):
        model = VerticalGLM(family, penalty).fit({**tables, "left": flat}, y)
    np.testing.assert_allclose(all_coef(model), np.insert(all_coef(expected), 2, 0.0), atol=1e-10)


def test_a_constant_column_serves_as_an_intercept_where_there_is_none() -> None:
    x = np.column_stack([columns_of(blocks())[:, :2], np.full(N, 4.0)])
    y = 8.0 + x[:, 0] + 0.1 * np.random.default_rng(1).standard_normal(N)
    model = VerticalGLM(fit_intercept=False).fit(x, y)
    assert model.coef_["X"][2] == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize("where", ["one party", "two parties"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_duplicated_column_under_a_penalty_changes_no_prediction(family: str, where: str) -> None:
    tables, y = blocks(), response(family)
    copy = tables["left"][:, :1]
    twice = {
        "left": np.column_stack([tables["left"], copy]) if where == "one party" else tables["left"],
        "right": tables["right"] if where == "one party" else np.column_stack([tables["right"], copy]),
    }
    expected = VerticalGLM(family, "scad", tolerance=1e-4).fit(tables, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = VerticalGLM(family, "scad", tolerance=1e-4).fit(twice, y)
    both = all(c != 0.0 for c in (model.coef_["left"][0], list(model.coef_.values())[where == "two parties"][2]))
    assert model.converged_ != both  # to choose one of them is an answer, to share between them is not
    there = expected.linear_predictor(tables)
    np.testing.assert_allclose(model.linear_predictor(twice), there, atol=1e-2 * np.std(there))  # a hundred tolerances


@pytest.mark.parametrize("where", ["one party", "two parties"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_duplicated_column_without_a_penalty_is_reported(family: str, where: str) -> None:
    x, y = columns_of(blocks()), response(family)
    tables = {"a": np.column_stack([x, x[:, 0]])} if where == "one party" else {"a": x, "b": x[:, :1]}
    assert is_sound(lambda: VerticalGLM(family, "none").fit(tables, y))


def wide(family: str) -> tuple[dict[str, Floats], Floats]:
    x = np.random.default_rng(13).standard_normal((40, 90))
    y = {"gaussian": x[:, 0] + x[:, 1], "binomial": (x[:, 0] > 0) ^ (x[:, 1] > 1), "poisson": np.exp(x[:, 0]).round()}
    return {"a": x[:, :45], "b": x[:, 45:]}, np.asarray(y[family], dtype=np.float64)


@pytest.mark.parametrize("family", FAMILIES)
def test_more_columns_than_rows_without_a_penalty(family: str) -> None:
    tables, y = wide(family)
    assert is_sound(lambda: VerticalGLM(family, "none").fit(tables, y))


def test_more_columns_than_rows_with_a_penalty() -> None:
    x = np.random.default_rng(14).standard_normal((60, 100))
    y = 2.0 * x[:, 0] - 2.0 * x[:, 60] + 0.5 * np.random.default_rng(15).standard_normal(60)
    model = VerticalGLM().fit({"a": x[:, :50], "b": x[:, 50:]}, y)
    assert np.all(all_coef(model)[[0, 60]] != 0.0)
    assert np.count_nonzero(all_coef(model)) <= 30  # half of the rows is where a path ends


@pytest.mark.parametrize("rows", [2, 3])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("penalty", ["scad", "none"])
def test_very_few_rows_give_no_stray_error(family: str, penalty: str, rows: int) -> None:
    y = np.array([1.0, 0.0, 1.0])[:rows]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        try:
            model = VerticalGLM(family, penalty).fit(columns_of(blocks())[:rows, :1], y)
        except SettingsError:
            return
    assert np.isfinite(all_coef(model)).all()
    assert str(model.summary())


def test_as_many_coefficients_as_rows() -> None:
    assert is_sound(lambda: VerticalGLM(penalty="none").fit(columns_of(blocks())[:2, :1], response()[:2]))


@pytest.mark.parametrize("family", ["binomial", "poisson"])
@pytest.mark.filterwarnings("ignore:divide by zero:RuntimeWarning")
def test_a_fold_whose_responses_are_all_alike(family: str) -> None:
    y = (np.arange(N) == 5).astype(np.float64)
    assert is_sound(lambda: VerticalGLM(family, select="cv", n_strengths=5, max_rounds=50).fit(blocks(), y))


@pytest.mark.parametrize("rows", [0, 1])
def test_no_rows_or_one(rows: int) -> None:
    with pytest.raises(SettingsError, match="row"):
        VerticalGLM().fit(columns_of(blocks())[:rows], response()[:rows])


@pytest.mark.parametrize(
    ("family", "values"),
    [
        ("gaussian", [1.0, math.nan]),
        ("gaussian", [1.0, None]),
        ("gaussian", [1.0, math.inf]),
        ("gaussian", [5.0]),
        ("gaussian", ["yes", "no"]),
        ("gaussian", [[1.0, 2.0], [2.0, 1.0]]),
        ("gaussian", [[1.0], [1.0, 2.0]]),
        ("gaussian", [1.0, 1j]),
        ("binomial", [1.0, 0.5]),
        ("binomial", [1.0, 0.0, 2.0]),
        ("binomial", [1.0]),
        ("binomial", [1.0, math.nan]),
        ("binomial", [1.0, math.inf]),
        ("binomial", [1.0, None]),
        ("binomial", ["yes", "no", "maybe"]),
        ("binomial", ["yes"]),
        ("binomial", ["yes", None]),
        ("binomial", ["yes", math.nan]),
        ("binomial", ["yes", pd.NA]),
        ("binomial", pd.array(["yes", 1], dtype=object).tolist()),
        ("binomial", [["yes", "no"], ["no", "yes"]]),
        ("binomial", [(1,), (2, 3)]),
        ("binomial", [np.datetime64("2020-01-01"), np.datetime64("2020-01-02")]),
        ("poisson", [1.0, -1.0]),
        ("poisson", [0.0]),
        ("poisson", [1.0, math.nan]),
    ],
    ids=str,
)
def test_responses_that_the_family_does_not_have(family: str, values: list[Any]) -> None:
    with pytest.raises(SettingsError, match="response"):
        VerticalGLM(family).fit(blocks(), (values * N)[:N])


@pytest.mark.parametrize("make", ["array", "pandas", "polars", "category", "all empty", "all empty text"])
def test_empty_cells_in_columns(make: str) -> None:
    x = columns_of(blocks())
    x[7, 1] = math.nan
    text = ["u", "v"] * (N // 2)
    table: Any = {
        "array": lambda: x,
        "pandas": lambda: pd.DataFrame(x),
        "polars": lambda: pl.DataFrame(x).fill_nan(None),
        "category": lambda: pl.DataFrame({"g": [None, *text[1:]]}),
        "all empty": lambda: pl.DataFrame({"a": x[:, 0], "g": [None] * N}),
        "all empty text": lambda: pl.DataFrame({"a": x[:, 0], "g": pl.Series([None] * N, dtype=pl.String)}),
    }[make]()
    with pytest.raises(SettingsError, match=r"cell\(s\) are empty|type Null"):
        VerticalGLM().fit({"p": table}, response())


@pytest.mark.parametrize("make", ["numbers as text", "a word among numbers"])
def test_numbers_as_text_are_not_fitted_in_silence(make: str) -> None:
    x = columns_of(blocks())
    cells = [str(v) for v in x[:, 0]] if make == "numbers as text" else [*x[:-1, 0], "missing"]
    assert is_sound(lambda: VerticalGLM().fit({"p": pd.DataFrame({"a": cells, "b": x[:, 1]})}, response()))


def test_numbers_as_text_without_a_penalty_are_not_fitted_in_silence() -> None:
    cells = [str(v) for v in columns_of(blocks())[:, 0]]
    assert is_sound(lambda: VerticalGLM(penalty="none").fit({"p": pl.DataFrame({"a": cells})}, response()))


@pytest.mark.parametrize("kind", ["dates", "lists", "durations", "objects"])
def test_columns_that_are_neither_numbers_nor_text(kind: str) -> None:
    cells: Any = {
        "dates": pd.date_range("2020-02-03", periods=N),
        "lists": [[1]] * N,
        "durations": pd.to_timedelta(np.arange(N), unit="s"),
        "objects": pl.Series([object()] * N, dtype=pl.Object),
    }[kind]
    with pytest.raises(VerticopulaError, match="column 'a'"):
        VerticalGLM().fit({"p": pl.DataFrame({"a": cells, "b": np.arange(N)})}, response())


@pytest.mark.parametrize("which", ["tables", "response"])
@pytest.mark.filterwarnings("ignore:Casting complex")
def test_complex_numbers_are_refused(which: str) -> None:
    x, y = columns_of(blocks()), response()
    with pytest.raises(SettingsError):
        VerticalGLM().fit(x * (1 + 1j) if which == "tables" else x, y if which == "tables" else y * (1 + 1j))


@pytest.mark.parametrize(
    "bad", [None, {}, "tables", 5, {"p": None}, {"p": "x"}, {"p": [1.0, 2.0]}, {"p": {"x": [1.0]}}], ids=str
)
def test_what_is_no_table(bad: Any) -> None:
    with pytest.raises(VerticopulaError):
        VerticalGLM().fit(bad, response())


def test_two_columns_of_one_name() -> None:
    frame = pd.DataFrame(blocks()["left"], columns=["a", "a"])
    with pytest.raises(VerticopulaError, match="same name"):
        VerticalGLM().fit({"p": frame}, response())


def test_parties_with_different_rows_are_all_named() -> None:
    tables = {"a": np.ones((N, 1)), "b": np.ones((5, 1)), "c": np.ones((7, 1))}
    with pytest.raises(SettingsError, match="the response has 120 rows, but party b has 5, c has 7"):
        VerticalGLM().fit(tables, response())


# ---- scales ------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e8, 1e-8], ids=["huge", "tiny"])
@pytest.mark.parametrize("what", ["columns", "response"])
@pytest.mark.parametrize("penalty", ["scad", "none"])
def test_units_do_not_matter_for_the_coefficients(penalty: str, what: str, scale: float) -> None:
    x, y = columns_of(blocks()), response()
    plain = VerticalGLM(penalty=penalty).fit(x, y)
    tables, values = (x * scale, y) if what == "columns" else (x, y * scale)
    model = VerticalGLM(penalty=penalty).fit(tables, values)
    back = 1.0 / scale if what == "columns" else scale
    np.testing.assert_allclose(all_coef(model), all_coef(plain) * back, rtol=1e-6)
    assert model.converged_


@pytest.mark.parametrize("scale", [1e8, 1e-8], ids=["huge", "tiny"])
def test_units_do_not_matter_for_the_standard_errors(scale: float) -> None:
    x, y = columns_of(blocks()), response()
    plain, scaled = (VerticalGLM(penalty="none").fit(v, y).naive_inference_ for v in (x, x * scale))
    assert plain is not None
    assert scaled is not None
    expected = plain.standard_error / np.array([1.0, *[scale] * 4])
    np.testing.assert_allclose(scaled.standard_error, expected, rtol=1e-6)


def test_an_origin_far_away_does_not_matter_for_the_standard_errors() -> None:
    x, y = columns_of(blocks()), response()
    plain, moved = (VerticalGLM(penalty="none").fit(v, y).naive_inference_ for v in (x, x + 1e8))
    assert plain is not None
    assert moved is not None
    np.testing.assert_allclose(moved.standard_error[1:], plain.standard_error[1:], rtol=1e-4)
