"""Names that would be formulas in a spreadsheet, or commands to a terminal, are neither in anything that we write."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.builders import Call
from tests.unit.forecast_size import resize
from verticopula import Federation
from verticopula.data.csv_files import write_csv
from verticopula.study.study_folder import read_study

ESCAPE = "\x1b[2J\x1b[31m"
BAD = ("\x1b", "\x9b", "\x07", "\u202e", "\u2028")
CATEGORIES = ["=HYPERLINK(1)", "-2+3", f"{ESCAPE}red", "two\n! lines", "\u202efine", "plain"]


def federation() -> Federation:
    return Federation.from_dict(
        {
            "name": f"study{ESCAPE}",
            "response": "a.y",
            "party": [
                {
                    "name": "a",
                    "column": [{"name": "y", "kind": "binary"}, {"name": "=x", "kind": "count", "bounds": [-5, 5]}],
                },
                {
                    "name": "b",
                    "column": [
                        {"name": "g", "kind": "nominal", "categories": CATEGORIES},
                        {"name": "z\x9b31m\u202e", "kind": "continuous", "bounds": [-5, 5]},
                    ],
                },
            ],
        }
    )


@pytest.fixture
def study(tmp_path: Path) -> Path:
    rng = np.random.default_rng(1)
    n = 400
    ids, z = [f"s{i}" for i in range(n)], np.clip(rng.standard_normal(n), -5, 5)
    (tmp_path / "data").mkdir()
    federation().to_toml(tmp_path / "federation.toml")
    codes = rng.integers(0, len(CATEGORIES), n)
    y = (z + (codes < 2) + rng.standard_normal(n) > 0).astype(int)
    a = {"subject_id": ids, "y": y, "=x": rng.integers(-5, 6, n)}
    b = {"subject_id": ids, "g": [CATEGORIES[code] for code in codes], "z\x9b31m\u202e": z * 1.5}
    pl.DataFrame(a).write_parquet(tmp_path / "data" / "a.parquet")
    pl.DataFrame(b).write_parquet(tmp_path / "data" / "b.parquet")
    return tmp_path


def clean(text: str) -> bool:
    return not any(bad in text for bad in BAD)


def test_no_command_and_no_text_file_has_an_escape_sequence(
    study: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("forecast", "strict_forecast"):
        resize(monkeypatch, module, truths=(2, 2))
    inputs, out = (study / "federation.toml", "--data", study / "data"), study / "out"
    commands = [
        ("check", *inputs, "--method", "refined"),
        ("run", *inputs, "--out", out, "--method", "refined", "--epsilon", "40"),
        ("ledger", "show", out),
        ("glm", out, "--select", "0.001", "--penalty", "lasso"),
        ("forecast", study / "federation.toml", "--subjects", "500"),
        ("report", out),
        ("audit", out, "--data", study / "data", "--trials", "100"),
    ]
    for command in commands:
        said = call(*command)
        assert said.code == 0, (command, said.err)
        assert clean(said.out + said.err), command
    written = [path for path in out.rglob("*") if path.suffix in (".txt", ".html")]
    assert {path.name for path in written} >= {"summary.txt", "summary.html", "report.html"}
    assert [path.name for path in written if not clean(path.read_text("utf-8"))] == []
    regression = (out / "regression" / "summary.txt").read_text("utf-8")
    assert not any(line.startswith("! lines") for line in regression.splitlines())


def test_errors_have_no_escape_sequence(study: Path, call: Call) -> None:
    pl.read_parquet(study / "data" / "b.parquet").select("subject_id", "g").write_parquet(study / "data" / "b.parquet")
    for command in ("check", "run"):
        more = ("--out", study / "out") if command == "run" else ()
        said = call(command, study / "federation.toml", "--data", study / "data", "--method", "refined", *more)
        assert said.code == 1
        assert "not in the table" in said.err
        assert clean(said.out + said.err)


def test_no_cell_of_a_csv_file_is_a_formula_and_numbers_stay_numbers(study: Path, call: Call) -> None:
    out = study / "out"
    given = ("--data", study / "data", "--out", out, "--method", "refined", "--epsilon", "40")
    assert call("run", study / "federation.toml", *given).code == 0
    assert call("glm", out).code == 0
    found = list(out.rglob("*.csv"))
    assert {path.name for path in found} == {"a.csv", "b.csv", "joined.csv", "margins.csv", "coefficients.csv"}
    for path in found:
        with path.open(encoding="utf-8", newline="") as lines:
            cells = [cell for line in csv.reader(lines) for cell in line]
        suspects = [cell for cell in cells if cell.lstrip().startswith(tuple("=+-@\t\r"))]
        assert all(np.isfinite(float(cell)) for cell in suspects), path
    _, tables = read_study(out)
    assert set(tables["b"]["g"]) <= set(CATEGORIES)  # Parquet keeps names as they are
    assert pl.read_csv(out / "synthetic" / "a.csv")["'=x"].min() < 0


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("=1+1", "'=1+1"), ("+a", "'+a"), ("-a", "'-a"), ("@SUM(A1)", "'@SUM(A1)"), ("\ta", "'\ta"), ("\r=1", "'\r=1"),
        (" =1", "' =1"), ("\ufeff=1", "'\ufeff=1"), ("-1\n=2", "'-1\n=2"),
        ("＝1", "'＝1"), ("-", "'-"), ("-1+1", "'-1+1"), ("-1", "-1"), ("+2.5e-3", "+2.5e-3"),
        ("a=1", "a=1"), ("'=1", "'=1"), ("1-2", "1-2"), ("\x1b=1", "'\x1b=1"), ("\u3164=1", "'\u3164=1"),
        ("a;=1", "a;'=1"), ("a|\u2800=1", "a|'\u2800=1"), ("a\t=1", "a\t'=1"), ("a;b", "a;b"),
    ],
)  # fmt: skip
def test_what_a_spreadsheet_would_run_is_text(tmp_path: Path, cell: str, written: str) -> None:
    write_csv(pl.DataFrame({"c": [cell, None], cell: [-1, -2]}), tmp_path / "t.csv")
    with (tmp_path / "t.csv").open(encoding="utf-8", newline="") as lines:
        assert list(csv.reader(lines)) == [["c", written], [written, "-1"], ["", "-2"]]


def test_names_that_become_alike_stay_apart(tmp_path: Path) -> None:
    write_csv(pl.DataFrame({"=a": [1], "'=a": [2], "''=a": [3]}), tmp_path / "t.csv")
    header = (tmp_path / "t.csv").read_text().splitlines()[0].split(",")
    assert len(set(header)) == 3
    assert not any(name.startswith("=") for name in header)
