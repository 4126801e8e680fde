"""VerticalGLM: reading the result, and predicting on other tables."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, d2_tweedie_score, r2_score

from tests.regressions import (
    FAMILIES,
    SECRET,
    SECRET_NUMBER,
    Floats,
    N,
    all_coef,
    blocks,
    categories,
    columns_of,
    response,
)
from verticopula import VerticalGLM
from verticopula.errors import SettingsError

# ---- reading the result ------------------------------------------------------------------------


@pytest.fixture(scope="module", params=FAMILIES)
def fitted(request: pytest.FixtureRequest) -> VerticalGLM:
    model = VerticalGLM(request.param).fit(blocks(300), response(request.param, 300))
    return model.ignore_noise_and_selection()  # these rows are people


def test_means_and_predictions(fitted: VerticalGLM) -> None:
    eta = fitted.intercept_ + columns_of(blocks(300)) @ all_coef(fitted)
    expected = {"gaussian": eta, "binomial": 1.0 / (1.0 + np.exp(-eta)), "poisson": np.exp(eta)}[fitted.family]
    np.testing.assert_allclose(fitted.linear_predictor(blocks(300)), eta, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(fitted.predict_mean(blocks(300)), expected, rtol=1e-12)
    predicted = (expected > 0.5).astype(np.float64) if fitted.family == "binomial" else fitted.predict_mean(blocks(300))
    np.testing.assert_array_equal(fitted.predict(blocks(300)), predicted)


def naive_deviance(family: str, mean: Floats, y: Floats) -> float:
    if family == "gaussian":
        return float(np.sum((y - mean) ** 2))
    total = 0.0
    for m, v in zip(mean, y, strict=True):
        if family == "binomial":
            total -= 2.0 * math.log(m if v == 1.0 else 1.0 - m)
        else:
            total += 2.0 * ((v * math.log(v / m) if v > 0.0 else 0.0) - (v - m))
    return total


def test_the_share_of_deviance_explained(fitted: VerticalGLM) -> None:
    x, y = blocks(200, seed=7), response(fitted.family, 200, seed=7)
    found = naive_deviance(fitted.family, fitted.predict_mean(x), y)
    null = naive_deviance(fitted.family, np.full(200, y.mean()), y)
    assert fitted.deviance_explained(x, y) == pytest.approx(1.0 - found / null, abs=1e-12)
    own = response(fitted.family, 300)
    assert fitted.deviance_explained(blocks(300), own) == pytest.approx(fitted.explained_, abs=1e-9)


def test_the_score_is_scikit_learn_s(fitted: VerticalGLM) -> None:
    x, y = blocks(200, seed=7), response(fitted.family, 200, seed=7)
    weights = np.random.default_rng(8).uniform(0.5, 2.0, 200)
    measure = {"gaussian": r2_score, "binomial": accuracy_score, "poisson": partial(d2_tweedie_score, power=1)}
    for given in (None, weights):
        expected = measure[fitted.family](y, fitted.predict(x), sample_weight=given)
        assert fitted.score(x, y, sample_weight=given) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("bad", ["nan", "constant", "out of range"])
def test_responses_that_cannot_be_scored(bad: str) -> None:
    family = "binomial" if bad == "out of range" else "gaussian"
    model = VerticalGLM(family).fit(blocks(), response(family))
    y = {"nan": np.where(np.arange(N) == 3, np.nan, response()), "constant": np.ones(N), "out of range": response()}
    for use in (model.score, model.deviance_explained):
        with pytest.raises(SettingsError):
            use(blocks(), y[bad])


def test_other_labels_and_other_rows_cannot_be_scored() -> None:
    model = VerticalGLM("binomial").fit(blocks(), response("binomial"))
    with pytest.raises(SettingsError, match="labels that the fit did not see"):
        model.score(blocks(), np.where(response("binomial") > 0.0, "yes", "no"))
    with pytest.raises(SettingsError, match="5 rows, but the tables have 120"):
        model.score(blocks(), response("binomial")[:5])


def test_the_table_names_party_and_column_and_holds_what_was_fitted(fitted: VerticalGLM) -> None:
    table = fitted.coefficient_table(confidence=0.9)
    assert list(table.columns) == [
        "party", "column", "feature", "coefficient", "std. error", "lower", "upper", "p-value",
    ]  # fmt: skip
    assert table["feature"].iloc[0] == "(intercept)"
    by_name = table.set_index(["party", "column"])["coefficient"]
    for party, coef in fitted.coef_.items():
        for column, value in zip(fitted.feature_names_[party], coef, strict=True):
            assert ((party, column) in by_name.index) == (value != 0.0)
            if value != 0.0:
                assert by_name[party, column] == value
    wide = fitted.coefficient_table(confidence=0.99)
    assert (wide["upper"] - wide["lower"] > table["upper"] - table["lower"]).all()
    assert table["p-value"].between(0.0, 1.0).all()


@pytest.mark.parametrize("level", [0.0, 1.0, 1.5, -1.0, math.nan])
def test_bad_levels(level: float) -> None:
    model = VerticalGLM().fit(blocks(), response())
    for use in (model.summary, model.coefficient_table):
        with pytest.raises(SettingsError, match="confidence level"):
            use(level)


def test_the_summary_says_what_a_reader_needs(fitted: VerticalGLM) -> None:
    summary = fitted.summary(confidence=0.9)
    text = str(summary)
    for needed in (
        f"{fitted.family} regression of the response",
        "chosen by BIC",
        f"{np.count_nonzero(all_coef(fitted))} of 4 features selected",
        "300 rows standing for 300 subjects",
        f"deviance explained {fitted.explained_:.1%}",
        "2 parties",
        "converged",
        "Intervals at 90%",
        "the selected columns' effects in the population, as selected",
        "They ignore privacy noise, missing blocks and the selection of columns",
    ):
        assert needed in text
    assert "NOT CONVERGED" not in text
    pd.testing.assert_frame_equal(summary.frame, fitted.coefficient_table(0.9))
    page = summary.to_page()
    assert page.startswith("<!doctype html>")
    assert summary.to_html() in page
    assert page.count("<tr>") == 1 + len(summary.frame)


def test_warnings_come_first_in_the_summary() -> None:
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        model = VerticalGLM(variant="as-printed", fit_intercept=False, max_rounds=1).fit(blocks(), response())
    assert not model.converged_
    text, page = str(model.summary()), model.summary().to_html()
    assert text.startswith("! The fit at strength")
    assert "NOT CONVERGED" in text
    assert page.index('class="warning"') < page.index("<table>")


def test_an_empty_model_is_said_to_be_one() -> None:
    model = VerticalGLM(select=1e6, fit_intercept=False).fit(blocks(), response())
    assert "(no column was selected)" in str(model.summary())
    assert len(model.coefficient_table()) == 0
    np.testing.assert_array_equal(model.predict(blocks()), 0.0)


HOSTILE = "<script>alert('x')</script>"


def test_hostile_names_are_escaped() -> None:
    x, y = columns_of(blocks()), response()
    party = "<img src=x onerror=alert(1)>"
    frame = pl.DataFrame({HOSTILE: x[:, 0], "flat": np.ones(N), "g&": np.where(x[:, 2] > 0, HOSTILE, "b"), "y</td>": y})
    with pytest.warns(ConvergenceWarning, match="Constant columns"):
        model = VerticalGLM().fit({party: frame.with_columns(pl.lit(1.0).alias(f"{HOSTILE}2"))}, f"{party}.y</td>")
    assert np.count_nonzero(model.coef_[party]) == 2
    summary = model.summary()
    for page in (summary.to_html(), summary.to_page(), summary._repr_html_(), model._repr_html_()):
        for raw in ("<script", "<img", "y</td>"):
            assert raw not in page
        assert "&lt;script&gt;" in page
    figure = model.plot_path().to_html(include_plotlyjs=False)
    assert HOSTILE not in figure
    assert "<img" not in figure


def test_the_path_figure_shows_what_enters(fitted: VerticalGLM) -> None:
    figure = fitted.plot_path()
    shown = {trace.text[0]: np.asarray(trace.y) for trace in figure.data}
    selected = {
        f"{party}.{name}"
        for party, coef in fitted.coef_.items()
        for name, value in zip(fitted.feature_names_[party], coef, strict=True)
        if value != 0.0
    }
    entered = np.array([point.coef for point in fitted.path_.points]).any(axis=0)
    assert selected <= set(shown)
    assert len(shown) == entered.sum()
    np.testing.assert_array_equal(shown["left.x1"], [point.coef[0] for point in fitted.path_.points])
    assert figure.layout.shapes[0].x0 == fitted.strength_


def test_there_is_no_path_without_a_penalty() -> None:
    with pytest.raises(SettingsError, match="no path"):
        VerticalGLM(penalty="none").fit(blocks(), response()).plot_path()


def test_progress_reaches_its_total_in_every_part() -> None:
    calls: list[tuple[str, int, int]] = []
    VerticalGLM(select="cv", folds=3).fit(blocks(), response(), progress=lambda *call: calls.append(call))
    assert list(dict.fromkeys(c[0] for c in calls)) == ["regression", *(f"fold {k} of 3" for k in (1, 2, 3))]
    for what in {c[0] for c in calls}:
        last = [c for c in calls if c[0] == what][-1]
        assert last[1] == last[2]


# ---- predicting on other tables ----------------------------------------------------------------


def other_tables(what: str) -> dict[str, Any]:
    frame, _ = categories()
    good = {"p": frame, "q": pl.DataFrame({"z": np.arange(200.0)})}
    bad: dict[str, dict[str, Any]] = {
        "unknown category": {"p": frame.with_columns(g=pl.Series([SECRET, *frame["g"][1:]]))},
        "text for numbers": {"p": frame.with_columns(x=pl.Series([SECRET] * 200))},
        "numbers for text": {"p": frame.with_columns(g=pl.Series([SECRET_NUMBER] * 200))},
        "empty cell": {"p": frame.with_columns(x=pl.Series([None, *frame["x"][1:]]))},
        "nan": {"p": frame.with_columns(x=pl.Series([math.nan, *frame["x"][1:]]))},
        "infinite": {"p": frame.with_columns(x=pl.Series([math.inf, *frame["x"][1:]]))},
        "no category": {"p": frame.with_columns(g=pl.Series([None, *frame["g"][1:]]))},
        "no column": {"p": frame.drop("g").rename({"h": SECRET}).rename({SECRET: "k"})},
        "other rows": {"q": pl.DataFrame({"z": np.full(7, SECRET_NUMBER)})},
        "no party": {},
        "an array": {"p": np.full((200, 3), SECRET_NUMBER)},
        "a vector": {"p": np.full(200, SECRET_NUMBER)},
        "words": {"q": np.array([[SECRET]] * 200)},
    }
    if what == "no party":
        del good["q"]
    return good | bad[what]


@pytest.mark.parametrize(
    "what",
    [
        "unknown category", "text for numbers", "numbers for text", "empty cell", "nan", "infinite", "no category",
        "no column", "other rows", "no party", "an array", "a vector", "words",
    ],
)  # fmt: skip
def test_tables_that_cannot_be_predicted_on(what: str) -> None:
    frame, y = categories()
    model = VerticalGLM(select=0.05).fit({"p": frame, "q": pl.DataFrame({"z": np.arange(200.0)})}, y)
    with pytest.raises(SettingsError, match=r"party '[pq]'") as caught:
        model.predict(other_tables(what))
    assert SECRET not in str(caught.value)
    assert str(SECRET_NUMBER) not in str(caught.value)
    assert caught.value.__cause__ is None


def test_lists_for_categories() -> None:
    frame, y = categories()
    model = VerticalGLM(select=0.05).fit({"p": frame}, y)
    with pytest.raises(SettingsError):
        model.predict({"p": frame.with_columns(g=pl.Series([[SECRET]] * 200))})


def test_an_array_with_columns_too_many_is_refused() -> None:
    model = VerticalGLM().fit(blocks(), response())
    with pytest.raises(SettingsError):
        model.predict({"left": np.ones((5, 3)), "right": np.ones((5, 2))})


def test_one_row_and_none() -> None:
    model = VerticalGLM().fit(blocks(), response())
    for rows in (0, 1):
        assert model.predict({name: table[:rows] for name, table in blocks().items()}).shape == (rows,)
