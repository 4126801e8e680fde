"""What the number of synthetic rows costs: a small run, and its last line against the tables' own runner."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.__main__ import main
from experiments.draws import Cell
from experiments.metrics import METRICS
from experiments.rows_per_subject import ROWS, measure
from experiments.runner import SMALL_DESIGN, Settings, Task, run_task
from experiments.store import locate, read


def test_a_small_run_measures_every_number_of_rows(tmp_path: Path) -> None:
    assert main(["rows_per_subject", "--quick", "--models", "linear", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "rows_per_subject.json").read_text("utf-8"))["results"]["linear, N = 120"]
    assert list(found) == [str(rows) for rows in ROWS]
    assert all(set(own[0]) == set(METRICS) for own in found.values())
    assert "| 10 (1 data sets) |" in (tmp_path / "rows_per_subject.md").read_text("utf-8")


def test_figures_are_those_of_the_tables(tmp_path: Path) -> None:
    """The tables' runner, told to draw as many rows, fits and judges on its own."""
    cell, rows = Cell("linear", "complete", 120), ROWS[2]
    settings = Settings(SMALL_DESIGN, ("paper",), {120: rows})
    run_task(Task(cell, 3, (("VCDS", 1.0),)), settings, tmp_path)
    kept = read(locate(tmp_path, cell, 3))
    assert kept is not None
    scores = kept.entries["VCDS@1"].scores
    found = measure(("linear", 120, 3), True)[1][rows]
    assert dict(found) == pytest.approx({name: scores[f"paper {name}"] for name in METRICS}, abs=1e-6)
