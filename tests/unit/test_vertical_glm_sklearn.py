"""VerticalGLM among scikit-learn's estimators: its checks, searches, pipelines, scorers; labels of every kind."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import ConvergenceWarning, DataConversionWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_predict, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import verticopula
from tests.builders import fit_seeded, make_tables
from tests.regressions import FAMILIES, N, all_coef, blocks, coded, columns_of, response, schema
from verticopula import Synthesizer, VerticalGLM
from verticopula.errors import SettingsError, VerticopulaError
from verticopula.network.coordinator.study_runner import check_study
from verticopula.study.synthetic_tables import SyntheticTables

WORDS = np.array(["paid", "default"])  # the second is the first in the alphabet


def words(n: int = N) -> Any:
    """Labels whose alphabet is not the response's order."""
    return WORDS[response("binomial", n).astype(int)]


# ---- scikit-learn's own checks -----------------------------------------------------------------


ARRAY_API = """
import sys
from sklearn.utils.estimator_checks import check_array_api_input
from verticopula import VerticalGLM
for family in sys.argv[1:]:
    model = VerticalGLM(family)
    check_array_api_input("VerticalGLM", model, array_namespace="numpy", expect_only_array_outputs=False)
    print(family)
"""


@cache
def families_with_array_api() -> list[str]:
    """The families that pass scikit-learn's check of the array API, up to the first that fails."""
    command, environment = [sys.executable, "-c", ARRAY_API, *FAMILIES], {**os.environ, "SCIPY_ARRAY_API": "1"}
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    return found.stdout.split()


@parametrize_with_checks([VerticalGLM(family) for family in FAMILIES])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # separable classes, constant columns
def test_scikit_learn_s_checks(estimator: VerticalGLM, check: Callable[[VerticalGLM], None]) -> None:
    if name_of(check) == "check_array_api_input":  # skipped, unless SciPy was imported with this setting
        assert estimator.family in families_with_array_api()
    else:
        check(estimator)


def name_of(check: Any) -> str:
    """Of scikit-learn's check, whose settings are bound to it."""
    while hasattr(check, "func"):
        check = check.func
    return str(check.__name__)


# ---- parameters --------------------------------------------------------------------------------


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


def test_nothing_is_checked_before_the_fit() -> None:
    model = VerticalGLM("gamma", penalty="ridge", select="aic", folds=-1, random_state="x")
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(SettingsError, match="unknown family 'gamma'"):
        model.fit(blocks(), response())


def test_its_repr_names_what_was_changed() -> None:
    assert repr(VerticalGLM("binomial", select=0.5)) == "VerticalGLM(family='binomial', select=0.5)"
    shown = VerticalGLM("binomial").fit(blocks(), response("binomial"))._repr_mimebundle_()
    assert shown["text/plain"] == "VerticalGLM(family='binomial')"
    assert "coefficient" in shown["text/html"]


@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng], ids=["RandomState", "Generator"])
def test_a_source_of_randomness_may_be_a_generator(make: Callable[[int], Any]) -> None:
    def scores(state: Any) -> list[float]:
        return VerticalGLM(select="cv", random_state=state, n_strengths=5).fit(blocks(), response()).scores_

    assert scores(make(1)) == scores(make(1))
    assert scores(make(1)) != scores(make(2))
    shared = make(1)
    assert scores(shared) != scores(shared)  # it has moved on


def test_without_a_seed_every_fit_has_folds_of_its_own() -> None:
    model = VerticalGLM(select="cv", random_state=None, n_strengths=5)
    assert model.fit(blocks(), response()).scores_ != model.fit(blocks(), response()).scores_


@pytest.mark.parametrize(
    "use",
    [
        lambda m: m.predict(blocks()),
        lambda m: m.predict_mean(blocks()),
        lambda m: m.predict_proba(blocks()),
        lambda m: m.predict_log_proba(blocks()),
        lambda m: m.decision_function(blocks()),
        lambda m: m.linear_predictor(blocks()),
        lambda m: m.score(blocks(), response("binomial")),
        lambda m: m.deviance_explained(blocks(), response("binomial")),
        lambda m: m.summary(),
        lambda m: m.to_dict(),
        lambda m: m.coefficient_table(),
        lambda m: m.plot_path(),
        lambda m: m.bootstrap(None, 10),
        lambda m: m.ignore_noise_and_selection(),
    ],
    ids=[
        "predict", "predict_mean", "predict_proba", "predict_log_proba", "decision_function", "linear_predictor",
        "score", "deviance_explained", "summary", "to_dict", "coefficient_table", "plot_path", "bootstrap",
        "ignore_noise_and_selection",
    ],
)  # fmt: skip
def test_nothing_before_fit(use: Callable[[VerticalGLM], object]) -> None:
    with pytest.raises(NotFittedError):
        use(VerticalGLM("binomial"))
    assert "VerticalGLM" in VerticalGLM("binomial")._repr_html_()


# ---- the package's root ------------------------------------------------------------------------


def test_the_estimator_is_found_in_the_package_s_root() -> None:
    assert "VerticalGLM" in verticopula.__all__
    with pytest.raises(AttributeError, match="no attribute 'HorizontalGLM'"):
        verticopula.HorizontalGLM  # noqa: B018


def test_the_root_is_imported_without_scikit_learn() -> None:
    code = "import sys, verticopula; print([m for m in ('sklearn', 'plotly', 'nvflare') if m in sys.modules])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


# ---- a classifier or a regressor ---------------------------------------------------------------


def test_the_family_decides_between_classifier_and_regressor() -> None:
    model = VerticalGLM()
    for family in FAMILIES:
        model.set_params(family=family)
        assert is_classifier(model) == (family == "binomial")
        assert is_regressor(model) == (family != "binomial")
        for name in ("predict_proba", "predict_log_proba", "decision_function"):
            assert hasattr(model, name) == (family == "binomial")
    with pytest.raises(AttributeError, match="predict_proba"):
        VerticalGLM("poisson").predict_proba  # noqa: B018


def test_probabilities_log_odds_and_labels_agree() -> None:
    model = VerticalGLM("binomial").fit(blocks(), words())
    assert model.classes_.tolist() == ["default", "paid"]
    chance, odds = model.predict_proba(blocks()), model.decision_function(blocks())
    np.testing.assert_allclose(chance.sum(axis=1), 1.0, rtol=1e-15)
    np.testing.assert_array_equal(chance[:, 1], model.predict_mean(blocks()))
    np.testing.assert_allclose(np.log(chance[:, 1] / chance[:, 0]), odds, atol=1e-12)
    np.testing.assert_allclose(model.predict_log_proba(blocks()), np.log(chance), atol=1e-12)
    np.testing.assert_array_equal(model.predict(blocks()), model.classes_[chance.argmax(axis=1)])
    assert model.score(blocks(), words()) == np.mean(model.predict(blocks()) == words())


def test_logarithms_of_probabilities_that_round_to_zero() -> None:
    model = VerticalGLM("binomial").fit(blocks(), response("binomial"))
    far = {name: 1e6 * table for name, table in blocks().items()}
    assert (model.predict_proba(far) == 0.0).any()
    assert np.isfinite(model.predict_log_proba(far)).all()


def test_without_a_penalty_it_is_scikit_learn_s_logistic_regression() -> None:
    x, y = columns_of(blocks(400)), words(400)
    ours = VerticalGLM("binomial", penalty="none", tolerance=1e-9).fit(x, y)
    theirs = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(x, y)
    assert ours.classes_.tolist() == theirs.classes_.tolist()
    np.testing.assert_allclose(ours.coef_["X"], theirs.coef_[0], atol=1e-5)
    np.testing.assert_allclose(ours.predict_proba(x), theirs.predict_proba(x), atol=1e-5)
    np.testing.assert_array_equal(ours.predict(x), theirs.predict(x))


# ---- labels ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [[0, 1], [1, 2], [-1, 1], [0.0, 1.0], [False, True], ["no", "yes"], [b"no", b"yes"]],
    ids=str,
)
@pytest.mark.parametrize("make", [np.array, list, pd.Series, pl.Series, lambda v: np.array(v, dtype=object)])
def test_any_two_labels_give_the_same_coefficients(labels: list[Any], make: Callable[[Any], Any]) -> None:
    y = response("binomial").astype(int)
    model = VerticalGLM("binomial").fit(blocks(), make([labels[i] for i in y]))
    assert model.classes_.tolist() == labels
    np.testing.assert_array_equal(all_coef(model), all_coef(VerticalGLM("binomial").fit(blocks(), y)))
    assert set(model.predict(blocks()).tolist()) == set(labels)


@pytest.mark.parametrize(
    "dtype", [pl.String, pl.Categorical, pl.Enum(["paid", "default"])], ids=["text", "cat", "enum"]
)
def test_a_text_column_by_name(dtype: Any) -> None:
    tables = {"p": pl.DataFrame({"y": words(), "x": columns_of(blocks())[:, 0]}).with_columns(pl.col("y").cast(dtype))}
    model = VerticalGLM("binomial").fit(tables, "p.y")
    assert model.classes_.tolist() == ["default", "paid"]
    assert model.score(tables, "p.y") == model.score(tables, words()) > 0.5
    with pytest.raises(SettingsError, match=r"party 'p', column 'y': 1 cell\(s\) of the response are empty"):
        VerticalGLM("binomial").fit({"p": tables["p"].with_columns(pl.col("y").shift(1))}, "p.y")


@pytest.mark.parametrize("order", [["no", "yes"], ["yes", "no"]])
def test_a_schema_s_second_category_is_the_second_class(order: list[str]) -> None:
    tables, _ = coded()
    described = schema().model_dump()
    described["parties"][0]["columns"][1]["categories"] = order
    rows = SyntheticTables(tables, verticopula.Federation.model_validate(described), 300)
    model = VerticalGLM("binomial").fit(rows, "hub.flag")
    assert model.classes_.tolist() == order
    share = float((tables["hub"]["flag"] == order[1]).mean())
    assert model.predict_proba(tables)[:, 1].mean() == pytest.approx(share, abs=1e-3)
    assert model.score(rows, "hub.flag") == np.mean(model.predict(tables) == tables["hub"]["flag"].to_numpy())


def test_two_of_an_ordinal_s_categories_keep_its_order() -> None:
    tables, _ = coded()
    ends = tables["side"]["o"] != "mid"
    kept = {name: table.filter(ends) for name, table in tables.items()}
    model = VerticalGLM("binomial").fit(SyntheticTables(kept, schema(), 300), "side.o")
    assert model.classes_.tolist() == ["low", "high"]
    assert model.coef_["hub"][0] > 0.0  # y rises with it
    with pytest.raises(SettingsError, match="3 different labels"):
        VerticalGLM("binomial").fit(SyntheticTables(tables, schema(), 300), "side.o")


def test_a_bootstrap_of_labels() -> None:
    tables, _ = coded(300)
    federation = schema()
    columns = {name: table[name] for table in tables.values() for name in table.columns}
    columns["y"] = tables["hub"]["y"].clip(-8, 8)
    synthesizer: Synthesizer = fit_seeded(
        federation, make_tables(federation, columns), 1, epsilon=10.0, unit="variable"
    )
    model = VerticalGLM("binomial").fit(synthesizer.sample(300), "hub.flag").bootstrap(synthesizer, 10)
    assert model.inference_ is not None
    assert (model.inference_.source, model.inference_.copies) == ("bootstrap", 10)


def test_a_second_fit_forgets_labels_and_names() -> None:
    frame = pd.DataFrame(columns_of(blocks()), columns=list("abcd"))
    model = VerticalGLM("binomial").fit(frame, words())
    assert model.feature_names_in_.tolist() == list("abcd")
    model.set_params(family="gaussian").fit(columns_of(blocks()), response())
    assert not hasattr(model, "classes_")
    assert not hasattr(model, "feature_names_in_")


def test_a_column_vector_is_a_response_with_a_warning() -> None:
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        model = VerticalGLM().fit(blocks(), response()[:, None])
    np.testing.assert_array_equal(all_coef(model), all_coef(VerticalGLM().fit(blocks(), response())))


# ---- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize("make", ["csr_array", "coo_matrix", "dok_array"])
def test_sparse_tables_are_refused(make: str) -> None:
    from scipy import sparse

    with pytest.raises(SettingsError, match=r"party 'X': sparse tables are not supported") as caught:
        VerticalGLM().fit(getattr(sparse, make)(columns_of(blocks())), response())
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        (lambda x: x[:, :0], r"party 'X': 0 feature\(s\)"),
        (lambda x: x[:, 0], "party 'X'.*Reshape your data"),
        (lambda x: np.array([["a"]] * N), "party 'X': expected a DataFrame or an array of numbers$"),
        (lambda x: np.array([[{"zq": 4711}]] * N), "party 'X': expected .* an array of numbers; an array argument"),
        (lambda x: x * 1j, "party 'X'.*Complex data not supported"),
    ],
    ids=["no columns", "vector", "words", "objects", "complex"],
)
def test_arrays_that_are_refused(bad: Callable[[Any], Any], expected: str) -> None:
    with pytest.raises(SettingsError, match=expected) as caught:
        VerticalGLM().fit(bad(columns_of(blocks())), response())
    assert "4711" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_regression_over_the_network_is_checked_before_anybody_is_asked() -> None:
    check_study(schema(), "regression", {"family": "binomial", "random_state": 1}, 60.0)
    with pytest.raises(SettingsError, match="max_rounds"):
        check_study(schema(), "regression", {"max_rounds": 0}, 60.0)


# ---- searches, pipelines and scorers -----------------------------------------------------------


def test_a_grid_search_by_area_under_the_curve_on_labels_of_text() -> None:
    x, y = columns_of(blocks(300)), words(300)
    search = GridSearchCV(
        VerticalGLM("binomial", penalty="lasso"),
        {"select": [0.01, 10.0], "fit_intercept": [True, False]},
        scoring="roc_auc",
        cv=3,
    ).fit(x, y)
    areas = search.cv_results_["mean_test_score"].reshape(2, 2)  # intercepts, strengths
    assert search.best_params_["select"] == 0.01
    assert (areas[:, 0] > 0.75).all()
    np.testing.assert_array_equal(areas[:, 1], 0.5)  # nothing is selected
    assert search.classes_.tolist() == ["default", "paid"]
    assert search.score(x, y) > 0.75
    np.testing.assert_array_equal(search.predict(x), search.best_estimator_.predict(x))


def test_a_grid_search_over_the_family_s_penalty_by_its_own_score() -> None:
    search = GridSearchCV(VerticalGLM("poisson"), {"penalty": ["scad", "none"]}, cv=3).fit(
        columns_of(blocks(300)), response("poisson", 300)
    )
    assert search.best_score_ > 0.1


@pytest.mark.parametrize("make", ["array", "pandas", "polars"])
def test_cross_validated_scores_are_those_of_every_fold(make: str) -> None:
    x, y = columns_of(blocks(300)), words(300)
    names = list("abcd")
    table = {"array": x, "pandas": pd.DataFrame(x, columns=names), "polars": pl.DataFrame(x, schema=names)}[make]
    folds, model = StratifiedKFold(3), VerticalGLM("binomial", n_strengths=8)
    for scoring in ("roc_auc", "accuracy", "neg_log_loss"):
        found = cross_val_score(model, table, y, cv=folds, scoring=scoring)
        expected = [
            get_scorer(scoring)(clone(model).fit(x[learn], y[learn]), x[test], y[test])
            for learn, test in folds.split(x, y)
        ]
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        assert np.isfinite(found).all()
    assert cross_val_score(model, table, y, cv=folds).mean() > 0.65  # accuracy
    assert cross_val_predict(model, table, y, cv=3, method="predict_proba").shape == (300, 2)


def test_classifiers_get_stratified_folds() -> None:
    """Rows sorted by class: plain folds would lack one."""
    order = np.argsort(response("binomial", 300))
    x, y = columns_of(blocks(300))[order], response("binomial", 300)[order]
    found = cross_val_score(VerticalGLM("binomial"), x, y, cv=2, scoring="roc_auc", error_score="raise")
    assert (found > 0.5).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pipeline_with_scaled_columns(family: str) -> None:
    x, y = columns_of(blocks(300)) * [1.0, 100.0, 0.01, 1.0] + 5.0, response(family, 300)
    pipeline = make_pipeline(StandardScaler(), VerticalGLM(family)).fit(x, y)
    plain = VerticalGLM(family).fit(x, y)
    np.testing.assert_allclose(
        pipeline[-1].predict_mean(StandardScaler().fit_transform(x)), plain.predict_mean(x), rtol=1e-6
    )
    assert pipeline.score(x, y) == pytest.approx(plain.score(x, y), abs=1e-6)
    assert is_classifier(pipeline) == (family == "binomial")
    assert not hasattr(clone(pipeline)[-1], "coef_")


def test_a_search_over_a_pipeline() -> None:
    pipeline = Pipeline([("scale", StandardScaler().set_output(transform="pandas")), ("glm", VerticalGLM("binomial"))])
    frame = pd.DataFrame(columns_of(blocks(300)), columns=list("abcd"))
    search = GridSearchCV(pipeline, {"glm__penalty": ["scad", "lasso"]}, scoring="neg_log_loss", cv=3)
    search.fit(frame, words(300))
    assert search.best_estimator_[-1].feature_names_["X"] == tuple("abcd")
    assert search.best_score_ > -np.log(2.0)


def test_a_fitted_model_survives_pickling() -> None:
    model = VerticalGLM("binomial").fit(blocks(), words())
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(blocks()), model.predict_proba(blocks()))
    assert str(again.summary()) == str(model.summary())


# ---- classes that a column nearly separates ----------------------------------------------------


@pytest.mark.parametrize("penalty", ["scad", "lasso"])
def test_a_column_that_all_but_separates_is_selected_and_the_caller_told(penalty: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((300, 3))
    y = np.where(x[:, 0] + 0.05 * rng.standard_normal(300) > 0.0, "yes", "no")
    with pytest.warns(ConvergenceWarning, match="all but perfect.*penalised fit"):
        model = VerticalGLM("binomial", penalty).fit(x, y)
    assert not model.converged_
    assert model.score(x, y) > 0.75  # with nothing selected it is right in half of the rows
    assert model.coef_["X"][0] > 0.0
    assert model.path_.points[int(np.argmin(model.scores_))].strength == model.strength_


def test_a_posterior_is_not_said_to_be_the_penalised_fit() -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((300, 3))
    y = x[:, 0] + 0.05 * rng.standard_normal(300) > 0.0
    with pytest.warns(ConvergenceWarning, match="the path ends there"):
        model = VerticalGLM("binomial", select="bayes").fit(x, y)
    assert not any("penalised" in line for line in model.warnings_)
    assert not model.converged_


@pytest.mark.parametrize("bad", [None, 5, [], "x", np.zeros(3), np.zeros((N, 2, 2))], ids=str)
def test_every_error_about_a_response_is_one_of_the_project_s(bad: Any) -> None:
    with pytest.raises(VerticopulaError):
        VerticalGLM("binomial").fit(columns_of(blocks()), bad)
