"""VerticalGLM: scikit-learn's manners, tables of every make, results to read."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from tests.builders import CONTINUOUS, fit_seeded, make_federation, make_tables
from tests.regressions import (
    FAMILIES,
    SECRET,
    SECRET_NUMBER,
    TIGHT,
    Floats,
    N,
    all_coef,
    blocks,
    columns_of,
    named,
    response,
)
from verticopula import ColumnKey, Federation, Synthesizer, glm
from verticopula.errors import SettingsError
from verticopula.glm import VerticalGLM
from verticopula.synthesizer import SyntheticTables

# ---- scikit-learn ------------------------------------------------------------------------------


def not_applicable(estimator: VerticalGLM) -> dict[str, str]:
    """scikit-learn's checks that are about its own wording or about inputs that are not offered here."""
    return {
        "check_dtype_object": "objects are refused in arrays: text belongs in a DataFrame, where it means categories",
        "check_estimators_empty_data_messages": "refused, with words of our own",
        "check_fit2d_predict1d": "refused, with words of our own",
        "check_estimator_sparse_tag": "sparse input is refused, with words of our own",
        "check_estimator_sparse_array": "sparse input is refused, with words of our own",
        "check_estimator_sparse_matrix": "sparse input is refused, with words of our own",
        "check_complex_data": "refused, with words of our own",
    }


@parametrize_with_checks([VerticalGLM()], expected_failed_checks=not_applicable)
def test_scikit_learn_conventions(estimator: VerticalGLM, check: Callable[[VerticalGLM], None]) -> None:
    check(estimator)


@pytest.mark.parametrize("bad", ["sparse", "no columns", "vector", "objects"])
def test_what_the_checks_left_out_is_refused_in_our_own_words(bad: str) -> None:
    from scipy.sparse import csr_array

    x = columns_of(blocks())
    table = {"sparse": csr_array(x), "no columns": x[:, :0], "vector": x[:, 0], "objects": np.array([["a"]] * N)}[bad]
    with pytest.raises(SettingsError, match=r"party '?X"):
        VerticalGLM().fit(table, response())


def test_parameters_come_and_go() -> None:
    settings = {"family": "poisson", "penalty": "mcp", "select": 0.25, "refit": False, "max_rounds": 7}
    model = VerticalGLM(**settings)
    assert {k: model.get_params()[k] for k in settings} == settings
    assert clone(model).get_params() == model.get_params()
    assert model.set_params(folds=3).folds == 3
    with pytest.raises(ValueError, match="sparsity"):
        model.set_params(sparsity=1)
    fitted = VerticalGLM().fit(blocks(), response())
    assert not hasattr(clone(fitted), "coef_")


@pytest.mark.parametrize(
    "use",
    [
        lambda m: m.predict(blocks()),
        lambda m: m.score(blocks(), response()),
        lambda m: m.summary(),
        lambda m: m.coefficient_table(),
        lambda m: m.plot_path(),
    ],
    ids=["predict", "score", "summary", "coefficient_table", "plot_path"],
)
def test_nothing_before_fit(use: Callable[[VerticalGLM], object]) -> None:
    with pytest.raises(NotFittedError):
        use(VerticalGLM())
    assert "VerticalGLM" in VerticalGLM()._repr_html_()


def test_the_estimator_is_found_in_its_package() -> None:
    assert glm.VerticalGLM is VerticalGLM
    with pytest.raises(AttributeError, match="no attribute 'HorizontalGLM'"):
        glm.HorizontalGLM  # noqa: B018


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
    assert by_name.predict({"p": frame}).mean() == pytest.approx(y.mean(), abs=1e-3)  # the score equation's tolerance


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


def categories(n: int = 200) -> tuple[pl.DataFrame, Floats]:
    """A number, a text column that matters and one that does not."""
    rng = np.random.default_rng(3)
    x, g, h = rng.standard_normal(n), rng.integers(0, 4, n), rng.integers(0, 3, n)
    y = x + np.array([0.0, 1.5, -1.0, 0.1])[g] + 0.7 * rng.standard_normal(n)
    return pl.DataFrame({"x": x, "g": np.array(list("abcd"))[g], "h": np.array(list("uvw"))[h]}), y


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


def schema(order: list[str] | None = None) -> Federation:
    return make_federation(
        {
            "hub": {"y": CONTINUOUS, "flag": {"kind": "binary", "categories": ["no", "yes"]}},
            "side": {
                "g": {"kind": "nominal", "categories": order or ["a", "b", "c"]},
                "o": {"kind": "ordinal", "categories": ["low", "mid", "high"]},
            },
        }
    )


def coded(n: int = 300) -> tuple[dict[str, pl.DataFrame], Floats]:
    rng = np.random.default_rng(4)
    g, o, flag = rng.integers(0, 3, n), rng.integers(0, 3, n), rng.integers(0, 2, n)
    y = np.array([0.0, 1.0, -1.0])[g] + 0.8 * o + flag + 0.5 * rng.standard_normal(n)
    tables = {
        "hub": pl.DataFrame({"y": y, "flag": np.array(["no", "yes"])[flag]}),
        "side": pl.DataFrame({"g": np.array(list("abc"))[g], "o": np.array(["low", "mid", "high"])[o]}),
    }
    return tables, np.column_stack([flag, g == 1, g == 2, o]).astype(np.float64)


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
    assert model.predict(tables).mean() == pytest.approx(share, abs=1e-3)
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
    assert np.isfinite(model.inference_.standard_error).all()  # type: ignore[union-attr]


def test_an_unordered_response_is_refused() -> None:
    tables, _ = coded()
    with pytest.raises(SettingsError):
        VerticalGLM().fit(SyntheticTables(tables, schema(), 300), "side.g")


# ---- how many subjects the rows stand for ------------------------------------------------------


@pytest.fixture(scope="module")
def synthesizer() -> Synthesizer:
    rng = np.random.default_rng(5)
    tables, _ = coded(300)
    y = tables["hub"]["y"].to_numpy() + rng.standard_normal(300)
    federation = schema()
    columns = {name: table[name] for table in tables.values() for name in table.columns}
    return fit_seeded(
        federation, make_tables(federation, columns | {"y": np.clip(y, -8, 8)}), 1, epsilon=10.0, unit="variable"
    )


def test_ten_times_the_rows_are_not_ten_times_the_evidence(synthesizer: Synthesizer) -> None:
    few, many = (VerticalGLM().fit(synthesizer.sample(rows), "hub.y") for rows in (300, 3000))
    assert few.n_effective_ == many.n_effective_ == 300.0
    assert (few.n_rows_, many.n_rows_) == (300, 3000)
    unaware = VerticalGLM(n_effective=3000.0).fit(synthesizer.sample(3000), "hub.y")
    assert few.inference_ is not None
    assert many.inference_ is not None
    assert unaware.inference_ is not None
    # An error falls with the root of the subjects: 300, not 3000. The rows only make it a little more even.
    shared = [few.inference_.standard_error[0], many.inference_.standard_error[0], unaware.inference_.standard_error[0]]
    assert shared[1] / shared[0] == pytest.approx(1.0, abs=0.25)
    assert shared[1] / shared[2] == pytest.approx(math.sqrt(10.0), rel=0.25)


def test_rows_of_noise_repeated_do_not_become_findings() -> None:
    """The same rows ten times: with their number said, the same model; without, the noise is taken for evidence."""
    x = np.random.default_rng(8).standard_normal((60, 12))
    y = np.random.default_rng(9).standard_normal(60)
    once = VerticalGLM().fit(x, y)
    told = VerticalGLM(n_effective=60).fit(np.tile(x, (10, 1)), np.tile(y, 10))
    fooled = VerticalGLM().fit(np.tile(x, (10, 1)), np.tile(y, 10))
    np.testing.assert_array_equal(all_coef(told) != 0.0, all_coef(once) != 0.0)
    assert np.count_nonzero(all_coef(fooled)) > np.count_nonzero(all_coef(once))


def test_a_number_of_one_s_own_wins(synthesizer: Synthesizer) -> None:
    tables = synthesizer.sample(300)
    assert VerticalGLM(n_effective=50).fit(tables, "hub.y").n_effective_ == 50.0
    assert VerticalGLM().fit(dict(tables), "hub.y").n_effective_ == 300.0  # nobody says anything: the rows
    assert "standing for 50 subjects" in str(VerticalGLM(n_effective=50).fit(tables, "hub.y").summary())


@pytest.mark.parametrize("bad", [0, 1, -5, math.nan])
def test_too_few_subjects(bad: float) -> None:
    with pytest.raises(SettingsError, match="n_effective"):
        VerticalGLM(n_effective=bad).fit(blocks(), response())


# ---- selection ---------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("select", ["bic", "cv"])
def test_the_right_columns_are_found(family: str, select: str) -> None:
    model = VerticalGLM(family, select=select, n_strengths=15, folds=3).fit(blocks(300), response(family, 300))
    assert model.converged_
    assert np.all(all_coef(model)[[0, 2]] != 0.0)
    if select == "bic":
        np.testing.assert_array_equal(all_coef(model)[[1, 3]], 0.0)
    assert len(model.scores_) == len(model.path_.points)
    assert model.strength_ == model.path_.points[int(np.argmin(model.scores_))].strength


def test_cross_validation_is_repeatable_and_depends_on_its_seed() -> None:
    one, again, other = (
        VerticalGLM(select="cv", random_state=s, n_strengths=8).fit(blocks(), response()).scores_ for s in (1, 1, 2)
    )
    assert one == again
    assert one != other


def test_a_strength_of_one_s_own() -> None:
    model = VerticalGLM(penalty="lasso", select=0.1).fit(blocks(), response())
    assert (model.strength_, model.scores_) == (0.1, [])
    assert not all_coef(VerticalGLM(penalty="lasso", select=1e6).fit(blocks(), response())).any()
    free = VerticalGLM(penalty="none", tolerance=TIGHT).fit(blocks(), response())
    unpenalised = VerticalGLM(penalty="lasso", select=0.0, tolerance=TIGHT).fit(blocks(), response())
    np.testing.assert_allclose(all_coef(unpenalised), all_coef(free), atol=1e3 * TIGHT)


@pytest.mark.parametrize("number", [np.float32(0.25), np.int64(1)], ids=["float32", "int64"])
def test_a_strength_may_be_any_kind_of_number(number: Any) -> None:
    assert VerticalGLM(penalty="lasso", select=number).fit(blocks(), response()).strength_ == float(number)


def test_refitting_takes_the_shrinkage_out() -> None:
    shrunk, refitted = (VerticalGLM(penalty="lasso", refit=r).fit(blocks(), response()) for r in (False, True))
    kept = all_coef(refitted) != 0.0
    rows = np.column_stack([np.ones(N), columns_of(blocks())[:, kept]])
    expected = np.linalg.lstsq(rows, response(), rcond=None)[0]
    # A refit's dual residual is below twice the tolerance times the residual's spread.
    np.testing.assert_allclose([refitted.intercept_, *all_coef(refitted)[kept]], expected, atol=5e-3)
    assert np.abs(all_coef(shrunk)[[0, 2]]).sum() < np.abs(all_coef(refitted)[[0, 2]]).sum()
    assert shrunk.explained_ < refitted.explained_


def test_without_an_intercept() -> None:
    model = VerticalGLM(fit_intercept=False).fit(blocks(), response() + 5.0)
    assert model.intercept_ == 0.0
    assert "(intercept)" not in set(model.coefficient_table()["feature"])
    assert model.linear_predictor({k: v * 0.0 for k, v in blocks().items()}) == pytest.approx(np.zeros(N), abs=0.0)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"family": "gamma"}, "unknown family 'gamma'; known: gaussian, binomial, poisson"),
        ({"penalty": "ridge"}, "unknown penalty 'ridge'; known: scad, mcp, lasso, none"),
        ({"select": "aic"}, "select must be 'bic', 'cv', 'bayes' or a number"),
        ({"select": None}, "select must be 'bic', 'cv', 'bayes' or a number"),
        ({"select": True}, "select must be 'bic', 'cv', 'bayes' or a number"),
        ({"select": -0.1}, "at least 0"),
        ({"select": math.nan}, "at least 0"),
        ({"select": math.inf}, "at least 0"),
        ({"select": "cv", "folds": 1}, "folds"),
        ({"select": "cv", "folds": N + 1}, "folds"),
        ({"concavity": 2.0}, "concavity of scad"),
        ({"penalty": "mcp", "concavity": 1.0}, "concavity of mcp"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"tolerance": math.nan}, "tolerance"),
        ({"strength_ratio": 1.0}, "strength_ratio"),
        ({"n_strengths": 1}, "n_strengths"),
    ],
    ids=str,
)
def test_bad_settings(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(SettingsError) as caught:
        VerticalGLM(**settings).fit(blocks(), response())
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_rounds": 0},
        {"max_rounds": -1},
        {"n_strengths": 2.5},
        {"select": "cv", "folds": 2.5},
        {"n_effective": "many"},
        {"n_effective": math.inf},
        {"concavity": "steep"},
        {"select": "cv", "random_state": "x"},
    ],
    ids=str,
)
def test_more_bad_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingsError):
        VerticalGLM(**settings).fit(blocks(), response())


# ---- reading the result ------------------------------------------------------------------------


@pytest.fixture(scope="module", params=FAMILIES)
def fitted(request: pytest.FixtureRequest) -> VerticalGLM:
    return VerticalGLM(request.param).fit(blocks(300), response(request.param, 300))


def test_predictions_are_means(fitted: VerticalGLM) -> None:
    eta = fitted.intercept_ + columns_of(blocks(300)) @ all_coef(fitted)
    expected = {"gaussian": eta, "binomial": 1.0 / (1.0 + np.exp(-eta)), "poisson": np.exp(eta)}[fitted.family]
    np.testing.assert_allclose(fitted.linear_predictor(blocks(300)), eta, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(fitted.predict(blocks(300)), expected, rtol=1e-12)


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


def test_the_score_is_the_share_of_deviance_explained(fitted: VerticalGLM) -> None:
    x, y = blocks(200, seed=7), response(fitted.family, 200, seed=7)
    found = naive_deviance(fitted.family, fitted.predict(x), y)
    null = naive_deviance(fitted.family, np.full(200, y.mean()), y)
    assert fitted.score(x, y) == pytest.approx(1.0 - found / null, abs=1e-12)
    own = response(fitted.family, 300)
    assert fitted.score(blocks(300), own) == pytest.approx(fitted.explained_, abs=1e-9)


@pytest.mark.parametrize("bad", ["nan", "constant", "out of range"])
def test_responses_that_cannot_be_scored(bad: str) -> None:
    family = "binomial" if bad == "out of range" else "gaussian"
    model = VerticalGLM(family).fit(blocks(), response(family))
    y = {"nan": np.where(np.arange(N) == 3, np.nan, response()), "constant": np.ones(N), "out of range": response()}
    with pytest.raises(SettingsError):
        model.score(blocks(), y[bad])


def test_the_table_names_party_and_column_and_holds_what_was_fitted(fitted: VerticalGLM) -> None:
    table = fitted.coefficient_table(level=0.9)
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
    wide = fitted.coefficient_table(level=0.99)
    assert (wide["upper"] - wide["lower"] > table["upper"] - table["lower"]).all()
    assert table["p-value"].between(0.0, 1.0).all()


@pytest.mark.parametrize("level", [0.0, 1.0, 1.5, -1.0, math.nan])
def test_bad_levels(level: float) -> None:
    model = VerticalGLM().fit(blocks(), response())
    for use in (model.summary, model.coefficient_table):
        with pytest.raises(SettingsError, match="confidence level"):
            use(level)


def test_the_summary_says_what_a_reader_needs(fitted: VerticalGLM) -> None:
    summary = fitted.summary(level=0.9)
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
        "do not account for the selection",
        "see bootstrap()",
    ):
        assert needed in text
    assert "NOT CONVERGED" not in text
    pd.testing.assert_frame_equal(summary.frame, fitted.coefficient_table(0.9))
    page = summary.to_page()
    assert page.startswith("<!doctype html>")
    assert summary.to_html() in page
    assert page.count("<tr>") == 1 + len(summary.frame)


def test_warnings_come_first_in_the_summary() -> None:
    with pytest.warns(ConvergenceWarning, match="did not converge in 1 rounds"):
        model = VerticalGLM(max_rounds=1).fit(blocks(), response())
    assert not model.converged_
    text, page = str(model.summary()), model.summary().to_html()
    assert text.startswith("! the fit at strength")
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
    with pytest.warns(ConvergenceWarning, match="constant columns"):
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


# ---- uncertainty on synthetic tables -----------------------------------------------------------


def test_bootstrap_and_copies_replace_the_likelihood_s_errors(synthesizer: Synthesizer) -> None:
    model = VerticalGLM().fit(synthesizer.sample(300), "hub.y")
    likelihood = model.inference_
    calls: list[tuple[str, int, int]] = []
    assert model.bootstrap(synthesizer, 10, progress=lambda *c: calls.append(c)) is model
    assert calls[-1][1:] == (10, 10)
    assert likelihood is not None
    assert model.inference_ is not None
    assert (model.inference_.source, model.inference_.copies) == ("bootstrap", 10)
    assert "10 repetitions of the whole study" in str(model.summary())
    np.testing.assert_array_equal(model.inference_.estimate, likelihood.estimate)
    once = model.inference_
    again = model.bootstrap(synthesizer, 10).inference_
    assert again is not None
    np.testing.assert_array_equal(again.standard_error, once.standard_error)
    other = model.bootstrap(synthesizer, 10, random_state=1).inference_
    assert other is not None
    assert not np.array_equal(other.standard_error, once.standard_error)
    combined = model.combine(synthesizer, 3).inference_
    assert combined is not None
    assert (combined.source, combined.copies) == ("copies", 3)
    assert "combine 3 synthetic copies" in str(model.summary())


def test_a_bootstrap_does_not_depend_on_what_was_asked_before(synthesizer: Synthesizer) -> None:
    model = VerticalGLM().fit(synthesizer.sample(300), "hub.y")
    straight = model.bootstrap(synthesizer, 10).coefficient_table()
    detour = model.combine(synthesizer, 2).bootstrap(synthesizer, 10).coefficient_table()
    pd.testing.assert_frame_equal(detour, straight)


@pytest.mark.parametrize("how", ["by value", "other tables", "arrays"])
def test_a_bootstrap_needs_tables_of_the_synthesizer(synthesizer: Synthesizer, how: str) -> None:
    tables = synthesizer.sample(300)
    model = {
        "by value": lambda: VerticalGLM().fit(dict(tables), tables["hub"]["y"].to_numpy() + 1.0),
        "other tables": lambda: VerticalGLM().fit(
            {"z": pl.DataFrame({"y": response(), "a": blocks()["left"][:, 0]})}, "z.y"
        ),
        "arrays": lambda: VerticalGLM().fit(blocks(), response()),
    }[how]()
    for use in (lambda: model.bootstrap(synthesizer, 10), lambda: model.combine(synthesizer, 2)):
        with pytest.raises(SettingsError):
            use()


@pytest.mark.parametrize("count", [-1, 0, 1, 9])
def test_too_few_repetitions(synthesizer: Synthesizer, count: int) -> None:
    model = VerticalGLM().fit(synthesizer.sample(300), "hub.y")
    with pytest.raises(SettingsError, match="10 repetitions"):
        model.bootstrap(synthesizer, count)
    if count < 2:
        with pytest.raises(SettingsError, match="2 copies"):
            model.combine(synthesizer, count)


# ---- posterior probabilities -------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_bayes_selects_what_matters_and_says_how_probable_each_column_is(family: str) -> None:
    tables, y = named(blocks(400)), response(family, 400)
    model = VerticalGLM(family, select="bayes").fit(tables, y)
    assert [(c != 0.0).tolist() for c in model.coef_.values()] == [[True, False], [True, False]]
    assert {name: p.shape for name, p in model.inclusion_.items()} == {"left": (2,), "right": (2,)}
    assert all(p[0] > 0.99 > 0.7 > p[1] for p in model.inclusion_.values())
    assert model.converged_
    assert model.explained_ == pytest.approx(model.score(tables, y), abs=1e-9)
    assert "posterior means of columns with a probability above 0.7" in str(model.summary())
    assert model.predict(tables).mean() == pytest.approx(y.mean(), rel=1e-6)  # the intercept is the best beside them


def test_bayes_takes_a_nominal_column_as_a_whole() -> None:
    rng = np.random.default_rng(0)
    letters = rng.choice(list("abcd"), 400)
    effect = np.array([{"a": 0.0, "b": 1.0, "c": -1.0, "d": 0.5}[letter] for letter in letters])
    table = pl.DataFrame({"letter": letters, "other": rng.choice(list("xyz"), 400), "x": rng.standard_normal(400)})
    model = VerticalGLM(select="bayes").fit(table, effect + rng.standard_normal(400))
    (coef,), (inclusion,) = model.coef_.values(), model.inclusion_.values()
    assert inclusion.shape == (3,)
    assert [bool(c) for c in coef] == [True, True, True, False, False, False]


def test_bayes_is_repeatable_and_follows_its_threshold() -> None:
    tables, y = blocks(), response("binomial")
    first, again = (VerticalGLM("binomial", select="bayes").fit(tables, y) for _ in range(2))
    assert np.array_equal(all_coef(first), all_coef(again))
    everything = VerticalGLM("binomial", select="bayes", inclusion=0.0).fit(tables, y)
    assert np.all(all_coef(everything) != 0.0)


def test_bayes_needs_the_columns_here() -> None:
    class Nobody:
        def deliver(self, requests: Any) -> Any:
            raise AssertionError("nobody may be asked")

    federation = make_federation({"left": {"a": CONTINUOUS}, "right": {"y": CONTINUOUS}})
    with pytest.raises(SettingsError, match="side by side"):
        VerticalGLM(select="bayes").fit_transport(Nobody(), federation, response="right.y")


@pytest.mark.parametrize("inclusion", [-0.1, 1.0, "most", True])
def test_a_threshold_must_be_a_probability(inclusion: Any) -> None:
    with pytest.raises(SettingsError, match="inclusion"):
        VerticalGLM(select="bayes", inclusion=inclusion).fit(blocks(), response())
