"""`verticopula run` with conditions on rows and a word about gaps."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from tests.builders import Call
from tests.unit.test_synthesizer import federation, tables


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    federation().to_toml(folder / "federation.toml")
    (folder / "data").mkdir()
    for name, table in tables(200).items():
        table.write_csv(folder / "data" / f"{name}.csv")
    return folder


def test_rows_meet_conditions_and_the_summary_says_so(inputs: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "study"
    options = ["--data", inputs / "data", "--out", out, "--method", "vcds", "--rows", 40, "--missing", "as-observed"]
    asked = ["--condition", "agency.default=1", "--condition", "agency.visits=0..4"]
    done = call("run", inputs / "federation.toml", *options, *asked)
    assert done.code == 0, done.err
    agency, registry = (pl.read_csv(out / "synthetic" / f"{name}.csv") for name in ("agency", "registry"))
    assert agency["default"].to_list() == [1] * 40
    assert agency["visits"].is_between(0, 4).all()
    assert registry["turnover"].null_count() > 0
    assert "agency.visits=0..4" in (out / "summary.txt").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--condition", "agency.default=2"], "not one of its categories"),
        (["--condition", "agency.default"], "party.column=value"),
        (["--missing", "some"], "as-observed"),
        (["--condition", "agency.default=1", "--aligned"], "--aligned excludes"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_spent(
    inputs: Path, tmp_path: Path, call: Call, options: list[str], said: str
) -> None:
    data = ["--data", inputs / "data", "--out", tmp_path / "study", "--method", "refined"]
    done = call("run", inputs / "federation.toml", *data, *options)
    assert done.code != 0
    assert said in " ".join(done.err.split())
    assert not (tmp_path / "study").exists()
