"""Every synthetic file says what it is, and whoever takes one for data is told."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.builders import CONTINUOUS, Call, make_federation
from verticopula.data.input_files import write_inputs
from verticopula.data.synthetic_marks import (
    SyntheticMark,
    mark_in_comments,
    metadata_file,
    read_file_mark,
    write_marked,
)
from verticopula.data.table_source import party_source

MARK = SyntheticMark("a study", "some method", 1.5, "client", 1e-6, "2026-01-02", "verticopula 0.1.0")


def test_a_mark_goes_with_files_of_both_kinds(tmp_path: Path) -> None:
    table = pl.DataFrame({"x": [1, 2], 'naïve "name"': ["a", "b"]})
    written = write_marked(table, tmp_path, "bank", MARK)
    assert [path.name for path in written] == ["bank.csv", "bank.csv-metadata.json", "bank.parquet"]
    assert {read_file_mark(path) for path in (written[0], written[2])} == {MARK}
    assert party_source("bank", str(written[2])).load().mark == MARK
    assert pl.read_parquet(written[2]).equals(table)
    beside = json.loads(written[1].read_text("utf-8"))
    assert beside["url"] == "bank.csv"
    assert [column["titles"] for column in beside["tableSchema"]["columns"]] == table.columns
    assert beside["dc:description"] == (
        "synthetic data of study 'a study', method some method, epsilon 1.5 per client at delta = 1e-06, drawn "
        "2026-01-02 by verticopula 0.1.0"
    )
    (tmp_path / "parts").mkdir()
    written[2].rename(tmp_path / "parts" / "p.parquet")
    assert read_file_mark(tmp_path / "parts") == MARK


def test_what_is_no_mark_is_none(tmp_path: Path) -> None:
    csv = tmp_path / "bank.csv"
    csv.write_text("x\n1\n")
    assert read_file_mark(csv) is None
    pl.DataFrame({"x": [1]}).write_parquet(tmp_path / "bank.parquet")
    assert read_file_mark(tmp_path / "bank.parquet") is None
    whole = json.loads(MARK.to_json())["verticopula"]
    wrong = [
        "",
        "{",
        "[]",
        "null",
        "[" * 100_000,
        '{"verticopula": 5}',
        json.dumps({"verticopula": {**whole, "synthetic": False}}),
        json.dumps({"verticopula": {**whole, "epsilon": [1]}}),
        json.dumps({"verticopula": {**whole, "study": "x" * 2_000}}),
        json.dumps({"verticopula": {name: whole[name] for name in whole if name != "unit"}}),
    ]
    for text in wrong:
        metadata_file(csv).write_text(text)
        assert read_file_mark(csv) is None
        assert mark_in_comments([text, f"about {text}"]) is None
    metadata_file(csv).write_bytes(b"\xff\xfe")
    assert read_file_mark(csv) is None
    assert mark_in_comments(["patients of 2024", f"CREATE TABLE x (/* {MARK.to_json()} */ y)"]) == MARK


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("study")
    rng = np.random.default_rng(5)
    federation = make_federation({"hub": {"y": CONTINUOUS}, "bank": {"x": CONTINUOUS}})
    tables = {
        name: pl.DataFrame({"subject_id": [f"s{k}" for k in range(60)], column: rng.normal(size=60).clip(-7, 7)})
        for name, column in (("hub", "y"), ("bank", "x"))
    }
    write_inputs(federation, tables, folder)
    return folder


def test_every_table_of_a_study_is_marked_and_commands_say_so(study: Path, tmp_path: Path, call: Call) -> None:
    out = tmp_path / "out"
    given = ["--epsilon", 2, "--unit", "client", "--method", "vcds", "--quiet"]
    done = call("run", study / "federation.toml", "--data", study / "data", "--out", out, *given)
    assert (done.code, "synthetic data of study" in done.err) == (0, False)
    made = sorted(path for path in (out / "synthetic").iterdir() if path.suffix in (".csv", ".parquet"))
    assert len(made) == 6
    for path in made:
        mark = read_file_mark(path)
        assert mark is not None
        assert (mark.method, mark.unit, mark.delta, mark.synthetic) == ("vcds", "client", 0.0, True)
        assert mark.epsilon == pytest.approx(2.0)
    again = tmp_path / "again"
    again.mkdir()
    ids = pl.Series("subject_id", [f"s{k}" for k in range(60)])
    for party in ("hub", "bank"):
        drawn = pl.read_parquet(out / "synthetic" / f"{party}.parquet").insert_column(0, ids)
        write_marked(drawn, again, party, MARK)
        (again / f"{party}.parquet").unlink()
    commands = (
        ("check", study / "federation.toml", "--data", again),
        ("run", study / "federation.toml", "--data", again, "--out", tmp_path / "third", *given),
        ("init", again, "--out", tmp_path / "f.toml", "--yes"),
    )
    for command in commands:
        said = call(*command).err.replace("\n", " ")
        assert "! The table of 'bank' is synthetic data of study 'a study'" in said
