"""VerticalGLM: which columns it selects, for how many subjects, and how sure it is of them."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.builders import CONTINUOUS, fit_seeded, make_federation, make_tables
from tests.regressions import (
    FAMILIES,
    TIGHT,
    N,
    all_coef,
    blocks,
    coded,
    columns_of,
    named,
    response,
    schema,
)
from verticopula import Synthesizer, VerticalGLM
from verticopula.errors import SettingsError

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
    naive = [model.ignore_noise_and_selection().inference_ for model in (few, many, unaware)]
    # An error falls with the root of the subjects: 300, not 3000. The rows only make it a little more even.
    shared = [found.standard_error[0] for found in naive if found is not None]
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


# ---- uncertainty on synthetic tables -----------------------------------------------------------


def test_tables_of_a_synthesizer_have_intervals_that_know_of_noise(synthesizer: Synthesizer) -> None:
    model = VerticalGLM(penalty="none").fit(synthesizer.sample(300), "hub.y")
    honest, naive = model.inference_, model.naive_inference_
    assert honest is not None
    assert naive is not None
    assert (honest.source, model.no_intervals_) == ("copula", "")
    np.testing.assert_array_equal(honest.estimate, naive.estimate)
    # Sampling of people and of as many rows count alike: twice the variance before any noise.
    assert np.mean(honest.standard_error / naive.standard_error) > 1.3
    text = str(model.summary())
    assert "privacy noise, missing blocks" in text
    assert "p-value" not in text
    again = VerticalGLM(penalty="none").fit(synthesizer.sample(3000), "hub.y").inference_
    assert again is not None
    assert again.standard_error.mean() < honest.standard_error.mean()  # less of it comes from the rows


def test_intervals_of_selected_columns_reach_further_towards_zero(synthesizer: Synthesizer) -> None:
    model = VerticalGLM().fit(synthesizer.sample(300), "hub.y")
    found = model.inference_
    assert found is not None
    assert found.cuts is not None
    assert found.cuts[0] == 0.0  # the intercept is not selected
    assert (found.cuts[1:] > 0.0).any()  # not where the rest of a group would have kept it
    low, high = found.intervals(0.95)
    plain_low, plain_high = replace(found, cuts=None).intervals(0.95)
    towards = np.where(found.estimate > 0.0, plain_low - low, high - plain_high)
    assert (towards[1:] >= -1e-9).all()
    assert towards[0] == 0.0


@pytest.mark.parametrize(
    ("settings", "reason"),
    [({"select": "cv"}, "select 'bic'"), ({"select": 0.01}, "select 'bic'"), ({"refit": False}, "select 'bic'")],
    ids=str,
)
def test_penalised_coefficients_have_no_intervals(
    synthesizer: Synthesizer, settings: dict[str, Any], reason: str
) -> None:
    model = VerticalGLM(**settings).fit(synthesizer.sample(300), "hub.y")
    assert model.inference_ is None
    assert reason in model.no_intervals_
    assert list(model.coefficient_table().columns) == ["party", "column", "feature", "coefficient"]
    assert f"No intervals: {model.no_intervals_}." in str(model.summary())


def test_rows_of_unknown_origin_have_no_intervals(synthesizer: Synthesizer) -> None:
    tables = synthesizer.sample(300)
    plain = VerticalGLM().fit(dict(tables), "hub.y")
    assert plain.inference_ is None
    assert "Each row counts as a subject" in plain.no_intervals_
    assert VerticalGLM().fit(pickle.loads(pickle.dumps(tables)), "hub.y").inference_ is None


@pytest.mark.parametrize("select", ["bic", "bayes"])
@pytest.mark.parametrize(
    "change",
    [
        lambda y: (y - 25.0).alias("y"),
        lambda y: y.sample(fraction=1.0, shuffle=True, seed=1),
        lambda y: (y**2).alias("squared"),
    ],
    ids=["shifted", "shuffled", "new"],
)
def test_columns_that_changed_after_sampling_have_no_intervals(
    synthesizer: Synthesizer, change: Callable[[pl.Series], pl.Series], select: str
) -> None:
    tables = synthesizer.sample(300)
    own = pl.DataFrame(tables["hub"])
    tables["hub"] = own.with_columns(change(own["y"]))
    model = VerticalGLM(select=select).fit(tables, f"hub.{change(own['y']).name}")
    assert model.inference_ is None
    if select == "bic":
        assert "not as they were sampled: hub." in model.no_intervals_


def test_a_study_as_printed_has_no_intervals(synthesizer: Synthesizer) -> None:
    tables = synthesizer.sample(300)
    assert tables.study is not None
    tables.study = replace(tables.study, settings=replace(tables.study.settings, variant="as-printed"))
    model = VerticalGLM().fit(tables, "hub.y")
    assert model.inference_ is None
    assert "as printed" in model.no_intervals_


def test_naive_intervals_are_there_under_a_name_that_says_what_they_ignore(synthesizer: Synthesizer) -> None:
    model = VerticalGLM().fit(synthesizer.sample(300), "hub.y").ignore_noise_and_selection()
    assert model.inference_ is model.naive_inference_
    text = str(model.summary())
    assert "They ignore privacy noise, missing blocks and the selection of columns" in text
    assert "p-value" in text


def test_without_a_penalty_nothing_is_said_of_selection(synthesizer: Synthesizer) -> None:
    model = VerticalGLM(penalty="none").fit(synthesizer.sample(300), "hub.y")
    text = " ".join(str(model.summary()).split())
    assert "select" not in text.replace("features selected", "")
    assert "missing blocks, and finite numbers of people and rows" in text
    naive = " ".join(str(model.ignore_noise_and_selection().summary()).split())
    assert "They ignore privacy noise and missing blocks: right only if the rows are" in naive
    assert "chosen beforehand" not in naive


def test_a_bootstrap_replaces_the_quick_intervals(synthesizer: Synthesizer) -> None:
    model = VerticalGLM().fit(synthesizer.sample(300), "hub.y")
    quick = model.inference_
    calls: list[tuple[str, int, int]] = []
    assert model.bootstrap(synthesizer, 10, progress=lambda *c: calls.append(c)) is model
    assert calls[-1][1:] == (10, 10)
    assert quick is not None
    assert model.inference_ is not None
    assert (model.inference_.source, model.inference_.copies) == ("bootstrap", 10)
    assert "10 repetitions of the whole study" in str(model.summary())
    np.testing.assert_array_equal(model.inference_.estimate, quick.estimate)
    once = model.inference_
    again = model.bootstrap(synthesizer, 10).inference_
    assert again is not None
    np.testing.assert_array_equal(again.standard_error, once.standard_error)
    other = model.bootstrap(synthesizer, 10, random_state=1).inference_
    assert other is not None
    assert not np.array_equal(other.standard_error, once.standard_error)


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
    with pytest.raises(SettingsError):
        model.bootstrap(synthesizer, 10)


@pytest.mark.parametrize("count", [-1, 0, 1, 9])
def test_too_few_repetitions(synthesizer: Synthesizer, count: int) -> None:
    model = VerticalGLM().fit(synthesizer.sample(300), "hub.y")
    with pytest.raises(SettingsError, match="10 repetitions"):
        model.bootstrap(synthesizer, count)


# ---- posterior probabilities -------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_bayes_selects_what_matters_and_says_how_probable_each_column_is(family: str) -> None:
    tables, y = named(blocks(400)), response(family, 400)
    model = VerticalGLM(family, select="bayes").fit(tables, y)
    assert [(c != 0.0).tolist() for c in model.coef_.values()] == [[True, False], [True, False]]
    assert {name: p.shape for name, p in model.inclusion_.items()} == {"left": (2,), "right": (2,)}
    assert all(p[0] > 0.99 > 0.7 > p[1] for p in model.inclusion_.values())
    assert model.converged_
    assert model.explained_ == pytest.approx(model.deviance_explained(tables, y), abs=1e-9)
    assert "posterior means of columns with a probability above 0.7" in str(model.summary())
    assert model.predict_mean(tables).mean() == pytest.approx(y.mean(), rel=1e-6)  # the best intercept beside them


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
