"""`verticopula glm` on the output of a small `run`: called in this process, as `main` is called."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tests.builders import CONTINUOUS, Call, make_federation, make_tables
from verticopula import Federation, Synthesizer
from verticopula.cli import app as cli
from verticopula.storage.ledger import read_ledger
from verticopula.study.study_folder import file_names

N = 300
FILES = {"coefficients.csv", "regression.json", "summary.txt", "summary.html", "path.html"}


def federation() -> Federation:
    return make_federation(
        {
            "hub": {"y": CONTINUOUS, "late": {"kind": "binary", "categories": ["no", "yes"]}},
            "north": {
                "a": CONTINUOUS,
                "visits": {"kind": "count", "bounds": [0, 30]},
                "g": {"kind": "nominal", "categories": ["u", "v", "w"]},
            },
            "south": {"b": CONTINUOUS, "grade": {"kind": "ordinal", "categories": ["low", "mid", "high"]}},
        }
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `run` leaves; north lacks a quarter of the subjects."""
    folder = tmp_path_factory.mktemp("study")
    rng = np.random.default_rng(1)
    a, b, g = rng.standard_normal(N), rng.standard_normal(N), rng.integers(0, 3, N)
    y = 1.5 * a - b + 0.7 * rng.standard_normal(N)
    tables = make_tables(
        federation(),
        {
            "y": np.clip(y, -8, 8),
            "late": np.array(["no", "yes"])[(a + rng.standard_normal(N) > 0).astype(int)],
            "a": a,
            "visits": rng.poisson(np.exp(0.7 * b)).clip(0, 30),
            "g": np.array(["u", "v", "w"])[g],
            "b": b,
            "grade": np.array(["low", "mid", "high"])[np.digitize(b + rng.standard_normal(N), [-0.5, 0.5])],
        },
    )
    tables["north"] = tables["north"][: 3 * N // 4]
    federation().to_toml(folder / "federation.toml")
    for party, table in tables.items():
        table.write_csv(folder / f"{party}.csv")
    arguments = ["run", folder / "federation.toml", "--data", folder, "--out", folder / "out", "--seed", 1, "--quiet"]
    by_method = ("--method", "refined", "--unit", "variable")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["verticopula", *map(str, arguments), *by_method, "--epsilon", "20"])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
    assert not stopped.value.code
    return folder / "out"


@pytest.fixture
def study(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "study"))


def coefficients(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "coefficients.csv", keep_default_na=False)


def features(folder: Path) -> set[str]:
    table = coefficients(folder)
    return {f"{party}.{feature}" for party, feature in zip(table["party"], table["feature"], strict=True) if party}


# ---- what it does ------------------------------------------------------------------------------


def test_the_defaults_write_everything_and_spend_nothing(study: Path, call: Call) -> None:
    before = read_ledger(study / "ledger.jsonl")
    said = call("glm", study)
    assert said.code == 0, said.err
    folder = study / "regression"
    assert {path.name for path in folder.iterdir()} == FILES
    assert file_names(Synthesizer.load(study / "study.json").federation) >= FILES  # a lead accepts no other
    assert "gaussian regression of hub.y, scad penalty" in said.out
    assert f"{N} rows standing for {N} subjects" in said.out
    assert str(folder) in said.out
    assert {"north.a", "south.b"} <= features(folder)
    assert coefficients(folder).loc[0, "feature"] == "(intercept)"
    assert " ".join((folder / "summary.txt").read_text().split()) in said.out
    assert (folder / "summary.html").read_text().startswith("<!doctype html>")
    assert "plotly" in (folder / "path.html").read_text().lower()
    assert read_ledger(study / "ledger.jsonl") == before


@pytest.mark.parametrize(
    ("response", "family"),
    [
        ("hub.late", "binomial"),
        ("north.visits", "poisson"),
        ("south.grade", "gaussian"),
        ("south.b", "gaussian"),
    ],
)
def test_the_family_follows_the_response_s_kind(study: Path, call: Call, response: str, family: str) -> None:
    said = call("glm", study, "--response", response)
    assert said.code == 0, said.err
    assert f"{family} regression of {response}" in said.out
    assert response not in features(study / "regression")


def test_a_family_of_one_s_own(study: Path, call: Call) -> None:
    said = call("glm", study, "--response", "hub.late", "--family", "gaussian", "--penalty", "mcp")
    assert "gaussian regression of hub.late, mcp penalty" in said.out


def test_columns_can_be_left_out(study: Path, call: Call) -> None:
    said = call("glm", study, "--without", "north.a", "--without", "south.b", "--without", "south.grade")
    assert said.code == 0, said.err  # south has nothing left, and no part
    assert "2 parties" in said.out
    assert not features(study / "regression") & {"north.a", "south.b", "south.grade"}


def test_selecting(study: Path, call: Call) -> None:
    by_hand = call("glm", study, "--select", "0.25", "--penalty", "lasso")
    assert "strength 0.25 chosen by hand" in by_hand.out
    assert "5-fold cross-validation" in call("glm", study, "--select", "cv").out
    nothing = call("glm", study, "--select", "1e6")
    assert nothing.code == 0
    assert features(study / "regression") == set()


def test_without_an_intercept(study: Path, call: Call) -> None:
    assert call("glm", study, "--no-intercept").code == 0
    assert "(intercept)" not in set(coefficients(study / "regression")["feature"])


def test_levels(study: Path, call: Call) -> None:
    call("glm", study, "--ignore-noise-and-selection", "--confidence", 0.5)
    narrow = coefficients(study / "regression")
    assert "Intervals at 50%" in (study / "regression" / "summary.txt").read_text()
    call("glm", study, "--ignore-noise-and-selection")
    usual = coefficients(study / "regression")
    width = {name: table["upper"] - table["lower"] for name, table in (("narrow", narrow), ("usual", usual))}
    np.testing.assert_allclose(width["narrow"] / width["usual"], 0.6745 / 1.96, rtol=0.01)  # normal quantiles, N large


def test_intervals_that_ignore_noise_and_selection_say_so(study: Path, call: Call) -> None:
    usual = call("glm", study)
    assert "p-value" not in usual.out
    said = call("glm", study, "--ignore-noise-and-selection")
    assert said.code == 0, said.err
    assert "They ignore privacy noise, missing blocks and the selection of columns" in said.out


def test_bootstrap(study: Path, call: Call) -> None:
    assert call("glm", study, "--ignore-noise-and-selection").code == 0
    plain = coefficients(study / "regression")
    before = read_ledger(study / "ledger.jsonl")
    said = call("glm", study, "--bootstrap", 10)
    assert said.code == 0, said.err
    assert "10 repetitions of the whole study" in said.out
    assert "NOT PRIVATE" not in said.err
    assert read_ledger(study / "ledger.jsonl") == before
    table = coefficients(study / "regression")
    assert list(table["feature"]) == list(plain["feature"])
    # Missing blocks and noise cost something; the spread of 10 repetitions is off by 1 / sqrt(18) or so, of 3 or more
    # coefficients together by less.
    assert table["std. error"].astype(float).mean() > 0.8 * plain["std. error"].astype(float).mean()


def test_another_place(study: Path, call: Call, tmp_path: Path) -> None:
    said = call("glm", study, "--out", tmp_path / "deep" / "er")
    assert said.code == 0, said.err
    assert {path.name for path in (tmp_path / "deep" / "er").iterdir()} == FILES
    assert not (study / "regression").exists()


def test_quiet_says_nothing(study: Path, call: Call) -> None:
    assert call("glm", study, "--quiet") == (0, "", "")
    assert {path.name for path in (study / "regression").iterdir()} == FILES


def test_running_twice_gives_the_same_and_running_otherwise_overwrites(study: Path, call: Call) -> None:
    call("glm", study)
    first = {name: (study / "regression" / name).read_text() for name in FILES - {"path.html"}}
    call("glm", study)
    assert first == {name: (study / "regression" / name).read_text() for name in FILES - {"path.html"}}
    call("glm", study, "--response", "hub.late")
    assert all((study / "regression" / name).read_text() != text for name, text in first.items())


def test_no_figure_of_another_regression_is_left_behind(study: Path, call: Call) -> None:
    call("glm", study)
    assert call("glm", study, "--response", "hub.late", "--penalty", "none").code == 0
    assert not (study / "regression" / "path.html").exists()


def test_a_fit_that_does_not_exist_is_said_first(study: Path, call: Call) -> None:
    """A column that decides the response: the command ends well, but its summary begins with the warning."""
    path = study / "synthetic" / "hub.parquet"
    a = pl.read_parquet(study / "synthetic" / "north.parquet")["a"]
    decided = pl.when(a > 0.0).then(pl.lit("yes")).otherwise(pl.lit("no")).alias("late")
    pl.read_parquet(path).with_columns(decided).write_parquet(path)
    said = call("glm", study, "--response", "hub.late", "--penalty", "none", "--without", "hub.y")
    assert said.code == 0, said.err
    assert said.out.startswith("!")
    assert "NOT CONVERGED" in said.out


def test_help_mentions_every_option(call: Call) -> None:
    said = call("glm", "--help")
    text = re.sub(r"\x1b\[[0-9;]*m", "", said.out)
    assert said.code == 0
    for option in (
        "--response", "--family", "--penalty", "--select", "--without", "--intercept", "--no-intercept", "--bootstrap",
        "--ignore-noise-and-selection", "--confidence", "--out", "--quiet", "-q",
    ):  # fmt: skip
        assert option in text
    for word in ("gaussian, binomial, poisson", "scad, mcp, lasso, none", "bic, cv, or a number"):
        assert word in text


def test_the_list_of_commands_has_it(call: Call) -> None:
    assert "glm" in call("--help").out


# ---- what it refuses ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            ["--response", "hub.z"],
            "no column 'hub.z' in this study; --response is party.column, such as hub.late, hub.y",
        ),
        (["--response", "y"], "--response is party.column"),
        (["--response", "nowhere.y"], "no column 'nowhere.y'"),
        (["--response", "north.g"], "north.g has unordered categories"),
        (["--response", "hub.z", "--family", "gaussian"], "no column 'hub.z'"),
        (["--response", "hub.y", "--family", "binomial"], "a binomial response must have two labels"),
        (["--response", "hub.y", "--family", "poisson"], "a poisson response must be numbers of at least 0"),
        (["--family", "gamma"], "unknown family 'gamma'"),
        (["--penalty", "ridge"], "unknown penalty 'ridge'"),
        (["--select", "aic"], "select must be 'bic', 'cv', 'bayes' or a number"),
        (["--select", "-1"], "at least 0"),
        (["--select", "nan"], "at least 0"),
        (["--bootstrap", "10", "--ignore-noise-and-selection"], "either --bootstrap or --ignore-noise-and-selection"),
        (["--bootstrap", "9"], "fewer than 10 repetitions"),
        (["--bootstrap", "-1"], "fewer than 10 repetitions"),
        (["--confidence", "0"], "--confidence must lie between 0 and 1"),
        (["--confidence", "95"], "--confidence must lie between 0 and 1"),
        (["--confidence", "nan"], "--confidence must lie between 0 and 1"),
        (["--without", "hub.z"], "--without hub.z: no such column"),
        (["--without", "a"], "--without a: no such column"),
        (["--without", "north.a", "--without", "north.a"], "--without north.a: no such column"),
        (["--without", "hub.y"], "no column 'hub.y'"),
    ],
    ids=lambda o: " ".join(o) if isinstance(o, list) else "",
)
def test_bad_requests_give_words_and_write_nothing(study: Path, call: Call, options: list[str], expected: str) -> None:
    said = call("glm", study, *options)
    assert said.code == 1
    assert expected in said.err
    assert "internal error" not in said.err
    assert not (study / "regression").exists()


def test_unordered_categories_are_refused_whatever_the_family(study: Path, call: Call) -> None:
    said = call("glm", study, "--response", "north.g", "--family", "gaussian")
    assert said.code == 1


def test_leaving_everything_out_gives_words(study: Path, call: Call) -> None:
    others = [str(key) for key in federation().keys if str(key) != "hub.y"]
    said = call("glm", study, *(word for name in others for word in ("--without", name)))
    assert said.code == 1
    assert "internal error" not in said.err


def test_a_file_in_the_way_gives_words(study: Path, call: Call, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    said = call("glm", study, "--out", tmp_path / "taken")
    assert said.code == 1
    assert "internal error" not in said.err


@pytest.mark.parametrize("what", ["nothing there", "empty", "a file", "no study", "no table", "a broken table", "cut"])
def test_folders_without_a_study(study: Path, call: Call, what: str) -> None:
    folder = study
    if what == "nothing there":
        folder = study / "nowhere"
    elif what == "empty":
        folder = study / "empty"
        folder.mkdir()
    elif what == "a file":
        folder = study / "summary.txt"
    elif what == "no study":
        (study / "study.json").unlink()
    elif what == "no table":
        (study / "synthetic" / "north.parquet").unlink()
    elif what == "a broken table":
        (study / "synthetic" / "north.parquet").write_bytes(b"PAR1")
    else:
        (study / "study.json").write_text((study / "study.json").read_text()[:500])
    said = call("glm", folder)
    assert said.code == 1
    assert said.err.startswith("error:")
    assert not (study / "regression").exists()


@pytest.mark.parametrize("how", ["a column is gone", "a category is unknown", "rows are gone"])
def test_tables_that_somebody_changed(study: Path, call: Call, how: str) -> None:
    path = study / "synthetic" / "north.parquet"
    table = pl.read_parquet(path)
    changed = {
        "a column is gone": table.drop("a"),
        "a category is unknown": table.with_columns(g=pl.lit("zq-secret")),
        "rows are gone": table[:10],
    }[how]
    changed.write_parquet(path)
    said = call("glm", study)
    assert "zq-secret" not in said.out + said.err
    if how == "a column is gone":
        assert said.code == 0  # the others can still be fitted
        assert "north.a" not in features(study / "regression")
    else:
        assert said.code == 1
        assert "north" in said.err
