"""A fitted strict study in the hands of its users: tables, files, page, warnings, regressions."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from verticopula import Federation, Synthesizer, VerticalGLM
from verticopula.errors import VerticopulaError
from verticopula.stats.tilting.tilted_study import TiltedStudyCopula
from verticopula.study.study_warnings import find_warnings

N = 3_000


def make_study() -> tuple[Federation, dict[str, pl.DataFrame]]:
    """A column with empty values, a nominal one, a missing block in five."""
    rng = np.random.default_rng(0)
    z = rng.standard_normal((N, 4)) @ np.linalg.cholesky(0.5 * np.eye(4) + 0.5).T
    ids = [f"{i:05d}" for i in range(N)]
    kind = np.array(["u", "v", "w"])[np.digitize(z[:, 1], [-0.5, 0.5])]
    first = pl.DataFrame({"id": ids, "x": z[:, 0], "c": kind})
    income = [None if i % 7 == 0 else float(v) for i, v in enumerate(z[:, 2])]
    second = pl.DataFrame({"id": ids, "y": income, "d": (z[:, 3] > 0).astype(int)})
    number = {"kind": "continuous", "bounds": [-5, 5]}
    nominal = {"name": "c", "kind": "nominal", "categories": ["u", "v", "w", "unused"]}
    parties = [
        {"name": "a", "column": [{"name": "x", **number}, nominal]},
        {"name": "b", "column": [{"name": "y", **number}, {"name": "d", "kind": "binary"}]},
    ]
    network = {"operator": "office"}  # neither party's: the third that computes
    study = {"name": "s", "id": "id", "response": "a.x", "party": parties, "network": network}
    federation = Federation.from_dict(study)
    return federation, {"a": first, "b": second.filter(pl.Series(rng.random(N) < 0.8))}


def fit_study(epsilon: float) -> Synthesizer:
    federation, tables = make_study()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seeded: not private
        return Synthesizer(federation, "strict", epsilon, 1e-6, random_state=1).fit(tables)


@pytest.fixture(scope="module")
def fitted() -> Synthesizer:
    return fit_study(5.0)


def loaded(path: Path) -> Synthesizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Synthesizer.load(path)


def test_rows_have_empty_values_where_the_real_ones_have(fitted: Synthesizer) -> None:
    tables = fitted.sample(5_000)
    assert tables["b"]["y"].null_count() / 5_000 == pytest.approx(1 / 7, abs=0.03)
    assert tables["b"]["d"].null_count() == tables["a"]["x"].null_count() == tables["a"]["c"].null_count() == 0
    assert set(tables["b"]["d"].unique()) == {0, 1}
    filled = tables["b"]["y"].drop_nulls()
    assert filled.is_between(-5.0, 5.0).all()
    together = pl.concat([tables["a"], tables["b"]], how="horizontal")
    assert together.drop_nulls().select(pl.corr("x", "y")).item() == pytest.approx(0.5, abs=0.08)
    assert (together["c"] == "unused").mean() < 0.02
    means = [together.filter(pl.col("c") == c)["x"].mean() for c in "uvw"]
    assert means == sorted(means)
    assert fitted.sample(1)["a"].height == 1


def test_a_saved_study_draws_the_same_rows(fitted: Synthesizer, tmp_path: Path) -> None:
    fitted.save(tmp_path / "study.json")
    first, second = loaded(tmp_path / "study.json"), loaded(tmp_path / "study.json")
    assert isinstance(first.result_.copula, TiltedStudyCopula)
    np.testing.assert_array_equal(first.correlation_, fitted.correlation_)
    again, other = first.sample(40), second.sample(40)
    for party in ("a", "b"):
        assert again[party].equals(other[party])
    assert first.summary() == fitted.summary()
    first.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (tmp_path / "study.json").read_text()


def broken(raw: dict[str, Any], change: str) -> dict[str, Any]:
    tilted = raw["fit"]["tilted"]
    if change == "a cell that is not there":
        tilted["columns"][0]["groups"][0] = 999
    elif change == "a table of other columns":
        tilted["tables"][0]["pair"] = [0, 99]
    elif change == "a latent twice":
        tilted["latent_of"] = [0 for _ in tilted["latent_of"]]
    elif change == "not a number":
        tilted["tables"][0]["theta"][0][0] = float("nan")
    elif change == "a short table":
        tilted["tables"][0]["theta"].pop()
    return raw


@pytest.mark.parametrize(
    "change",
    ["a cell that is not there", "a table of other columns", "a latent twice", "not a number", "a short table"],
)
def test_a_changed_file_is_refused(fitted: Synthesizer, tmp_path: Path, change: str) -> None:
    fitted.save(tmp_path / "study.json")
    raw = broken(json.loads((tmp_path / "study.json").read_text()), change)
    (tmp_path / "study.json").write_text(json.dumps(raw))
    with pytest.raises(VerticopulaError, match="study"):
        Synthesizer.load(tmp_path / "study.json")


def test_the_report_shows_what_tables_added(fitted: Synthesizer, tmp_path: Path) -> None:
    _, tables = make_study()
    page = fitted.report(tmp_path / "report.html", tables=tables).read_text("utf-8")
    assert 'id="tilted-pairs"' in page
    assert "What the copula missed, and what tables added" in page
    assert 'id="nothing-learnt"' not in page
    strict = fitted.result_.strict
    assert strict is not None
    assert {("a.x", "a.c"), ("a.c", "b.y"), ("a.c", "b.d")} == {(pair.first, pair.second) for pair in strict.pairs}
    assert "Tables: 3 opened" in fitted.summary()


def test_where_nothing_can_be_learnt_everybody_is_told(tmp_path: Path) -> None:
    study = fit_study(0.01)
    strict = study.result_.strict
    assert strict is not None
    assert not strict.learnt
    assert "nothing-learnt" in {warning.code for warning in find_warnings(study.study_)}
    assert "NOTHING could be learnt" in study.summary()
    assert 'id="nothing-learnt"' in study.report(tmp_path / "report.html").read_text("utf-8")
    off = ~np.eye(len(study.correlation_), dtype=bool)
    assert np.abs(study.correlation_.to_numpy()[off]).max() <= 0.05


def test_a_regression_leaves_out_rows_with_an_empty_value(fitted: Synthesizer) -> None:
    tables = fitted.sample(4_000)
    tables["a"] = tables["a"].select("x")  # a category that hardly anybody has may have one outcome only
    model = VerticalGLM("binomial").fit(tables, "b.d")
    complete = 4_000 - tables["b"]["y"].null_count()
    assert f"{complete:,} rows" in str(model.summary())
    coef = {name: float(value) for name, value in zip(model.feature_names_["b"], model.coef_["b"], strict=True)}
    assert coef["y"] > 0.3


def test_repeated_studies_have_the_gaps_of_the_real_one(fitted: Synthesizer) -> None:
    from verticopula.simulate.repeat_study import draw_from_copula

    cohort = draw_from_copula(fitted.study_, np.random.default_rng(0))
    income = cohort["b"].columns["y"].observed
    known = cohort["b"].columns["d"].observed
    assert known.sum() == fitted.missingness_.overlap[1, 1]
    assert income[known].mean() == pytest.approx(6 / 7, abs=0.04)
    assert not income[~known].any()
