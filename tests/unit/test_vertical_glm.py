"""VerticalGLM: tables of every make, responses, categories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tests.regressions import (
    TIGHT,
    N,
    all_coef,
    blocks,
    categories,
    coded,
    columns_of,
    named,
    response,
    schema,
)
from verticopula import ColumnKey, VerticalGLM
from verticopula.errors import SettingsError
from verticopula.study.synthetic_tables import SyntheticTables


def test_fit_returns_itself_and_a_second_fit_forgets_the_first() -> None:
    model = VerticalGLM()
    assert model.fit(blocks(), response()) is model
    other = {"alone": columns_of(blocks(seed=5))}
    model.fit(other, response(seed=5))
    fresh = VerticalGLM().fit(other, response(seed=5))
    assert list(model.coef_) == ["alone"]
    np.testing.assert_array_equal(model.coef_["alone"], fresh.coef_["alone"])


# ---- tables and responses ----------------------------------------------------------------------


@pytest.mark.parametrize("make", ["pandas", "polars", "mixed", "lists", "integers as names"])
def test_every_make_of_table_gives_the_same_coefficients(make: str) -> None:
    plain, y = blocks(), response()
    expected = VerticalGLM().fit(plain, y)
    frames: dict[str, Any] = {name: pl.DataFrame(t, schema=["x1", "x2"]) for name, t in plain.items()}
    tables: dict[str, Any] = {
        "pandas": {name: pd.DataFrame(t, columns=["x1", "x2"]) for name, t in plain.items()},
        "polars": frames,
        "mixed": {"left": frames["left"], "right": plain["right"]},
        "lists": {name: t.tolist() for name, t in plain.items()},
        "integers as names": {name: pd.DataFrame(t) for name, t in plain.items()},
    }[make]
    found = VerticalGLM().fit(tables, y)
    for name in plain:
        np.testing.assert_array_equal(found.coef_[name], expected.coef_[name])
    assert found.intercept_ == expected.intercept_
    np.testing.assert_array_equal(found.predict(tables), expected.predict(plain))


def test_a_pandas_index_does_not_matter() -> None:
    """Rows belong together by position; an index that says otherwise is not looked at."""
    plain, y = blocks(), response()
    frame = pd.DataFrame(plain["left"], columns=["x1", "x2"], index=np.arange(N)[::-1])
    found = VerticalGLM().fit({"left": frame, "right": plain["right"]}, pd.Series(y, index=np.arange(N)[::-1]))
    np.testing.assert_array_equal(found.coef_["left"], VerticalGLM().fit(plain, y).coef_["left"])


@pytest.mark.parametrize("make", [list, pd.Series, pl.Series, np.asarray], ids=["list", "pandas", "polars", "array"])
def test_a_response_by_value_and_by_name(make: Callable[[Any], Any]) -> None:
    tables, y = named(blocks()), response()
    by_value = VerticalGLM().fit(tables, make(y))
    with_response = {**tables, "right": tables["right"].with_columns(y=pl.Series(y))}
    by_name = VerticalGLM().fit(with_response, "right.y")
    assert (by_value.response_, by_name.response_) == ("", "right.y")
    assert by_name.feature_names_ == by_value.feature_names_
    for name in tables:
        np.testing.assert_array_equal(by_name.coef_[name], by_value.coef_[name])
    assert by_name.score(with_response, "right.y") == by_value.score(tables, y)
    np.testing.assert_array_equal(by_name.predict(tables), by_value.predict(with_response))  # it needs no response


def test_a_party_with_nothing_but_the_response_has_no_coefficients() -> None:
    tables = {"hub": pl.DataFrame({"y": response()}), **named(blocks())}
    model = VerticalGLM().fit(tables, ColumnKey("hub", "y"))  # type: ignore[arg-type]
    assert list(model.coef_) == ["left", "right"]
    np.testing.assert_array_equal(all_coef(model), all_coef(VerticalGLM().fit(named(blocks()), response())))


def test_a_yes_or_no_as_booleans() -> None:
    y = response("binomial")
    by_number, by_bool = (VerticalGLM("binomial").fit(blocks(), v) for v in (y, y == 1.0))
    np.testing.assert_array_equal(all_coef(by_bool), all_coef(by_number))
    frame = pl.DataFrame({"y": y == 1.0, "x": columns_of(blocks())[:, 0]})
    by_name = VerticalGLM("binomial").fit({"p": frame}, "p.y")
    assert by_name.predict_mean({"p": frame}).mean() == pytest.approx(
        y.mean(), abs=1e-3
    )  # the score equation's tolerance


@pytest.mark.parametrize("name", ["y", "right", "right.", ".y", "right.z", "nowhere.y", "right.right0.x", ""])
def test_responses_that_are_not_there(name: str) -> None:
    with pytest.raises(SettingsError, match="a response is named"):
        VerticalGLM().fit(named(blocks()), name)


def test_a_response_without_any_columns_beside_it_is_refused() -> None:
    try:
        VerticalGLM().fit({"p": pl.DataFrame({"y": response()})}, "p.y")
    except SettingsError:
        return
    raise AssertionError("fitted on nothing")


# ---- categories --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical, pl.Enum(list("abcd"))], ids=["text", "cat", "enum"])
def test_text_becomes_indicators_that_are_selected_together(dtype: Any) -> None:
    frame, y = categories()
    model = VerticalGLM().fit({"p": frame.with_columns(pl.col("g").cast(dtype))}, y)
    assert model.feature_names_["p"] == ("x", "g=b", "g=c", "g=d", "h=v", "h=w")
    assert model.n_features_in_ == 3
    for point in model.path_.points:
        group = point.coef[1:4]
        assert np.all(group == 0.0) or np.all(group != 0.0)
    assert np.count_nonzero(model.coef_["p"][1:4]) == 3
    assert np.count_nonzero(model.coef_["p"][4:]) == 0
    table = model.coefficient_table()
    assert list(table["column"]) == ["(intercept)", "x", "g", "g", "g"]


@pytest.mark.parametrize("penalty", ["scad", "lasso", "none"])
def test_the_order_of_categories_does_not_change_fitted_values(penalty: str) -> None:
    frame, y = categories()
    turned = frame.with_columns(pl.col("g").replace_strict({"a": "z", "b": "c", "c": "b", "d": "a"}))
    select: Any = "bic" if penalty == "scad" else 0.05
    one, two = (VerticalGLM(penalty=penalty, select=select, tolerance=TIGHT).fit({"p": f}, y) for f in (frame, turned))
    assert one.feature_names_ != two.feature_names_
    # The residuals of both fits are below `tolerance` times the response's spread, times what the design amplifies.
    slack = 1e3 * TIGHT * float(np.std(y))
    np.testing.assert_allclose(two.predict({"p": turned}), one.predict({"p": frame}), atol=slack)


def test_a_schema_says_what_categories_are() -> None:
    """Ordered ones enter as positions in the schema's order, not the alphabet's; a binary one as its second."""
    tables, design = coded()
    model = VerticalGLM(penalty="none", tolerance=TIGHT).fit(SyntheticTables(tables, schema(), 300), "hub.y")
    assert model.feature_names_ == {"hub": ("flag=yes",), "side": ("g=b", "g=c", "o")}
    rows = np.column_stack([np.ones(len(design)), design])
    expected = np.linalg.lstsq(rows, tables["hub"]["y"].to_numpy(), rcond=None)[0]
    np.testing.assert_allclose([model.intercept_, *all_coef(model)], expected, atol=1e4 * TIGHT)


def test_a_binary_response_is_the_schema_s_second_category() -> None:
    tables, _ = coded()
    model = VerticalGLM("binomial").fit(SyntheticTables(tables, schema(), 300), "hub.flag")
    share = float((tables["hub"]["flag"] == "yes").mean())
    assert model.predict_mean(tables).mean() == pytest.approx(share, abs=1e-3)
    assert model.coef_["hub"][0] > 0.0  # y rises with it


def test_the_schema_s_order_of_nominal_categories_does_not_matter() -> None:
    tables, _ = coded()
    one, two = (
        VerticalGLM(tolerance=TIGHT).fit(SyntheticTables(tables, schema(order), 300), "hub.y")
        for order in (["a", "b", "c"], ["c", "a", "b"])
    )
    np.testing.assert_allclose(two.predict(tables), one.predict(tables), atol=1e3 * TIGHT)


def test_a_category_of_the_schema_that_no_row_has_gets_no_coefficient() -> None:
    tables, _ = coded()
    wide = schema(["a", "b", "never", "c"])
    model = VerticalGLM(penalty="none").fit(SyntheticTables(tables, wide, 300), "hub.y")
    found = dict(zip(model.feature_names_["side"], model.coef_["side"], strict=True))
    assert found["g=never"] == 0.0
    assert "g=never" not in set(model.coefficient_table()["feature"])
    assert np.isfinite(model.naive_inference_.standard_error).all()  # type: ignore[union-attr]


def test_an_unordered_response_is_refused() -> None:
    tables, _ = coded()
    with pytest.raises(SettingsError):
        VerticalGLM().fit(SyntheticTables(tables, schema(), 300), "side.g")
