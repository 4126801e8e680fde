"""One other reading in all cells: a small run, what it does not compute again, and how it reads its record."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from experiments.__main__ import main
from experiments.draws import Cell, draw
from experiments.metrics import rmse
from experiments.one_reading import EPSILONS, NEAREST, list_cells, measure, read_cells
from experiments.open_choices import BY_INDEX, fit_rows, make_table
from experiments.runner import SMALL_DESIGN, Settings
from reporting.records import Record


def test_a_small_run_has_every_cell_and_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path, options = tmp_path / "one_reading.json", ["--quick", "--out", str(tmp_path)]
    assert main(["one_reading", *options]) == 0
    found = read_cells(Record.read(path))
    assert [(f.reading, f.method, f.cell, f.epsilon) for f in found] == [
        (reading, method, *where) for reading, (method, model) in NEAREST.items() for where in list_cells([model], [80])
    ]
    assert np.isfinite([value for f in found for value in f.errors]).all()
    whole = json.loads(path.read_text("utf-8"))
    whole["results"]["cells"][0]["errors"] = [0.5]  # were it computed again, it would be another
    path.write_text(json.dumps(whole), "utf-8")
    assert main(["one_reading", *options, "--methods", "IEVCDS", "--models", "linear"]) == 0
    again = {f.key: f for f in read_cells(Record.read(path))}
    assert [again[f.key].errors for f in found] == [(0.5,), *(f.errors for f in found[1:])]
    added = [key for key in again if key not in {f.key for f in found}]
    assert {(reading, cell.mechanism) for reading, _, cell, _ in added} == {
        (reading, mechanism) for reading in NEAREST for mechanism in ("MCAR", "MAR-simple", "MAR-complex")
    }
    assert "| EVCDS, linear, MCAR |" in (tmp_path / "one_reading.md").read_text("utf-8")


def test_a_cell_is_measured_at_its_own_epsilon() -> None:
    cell, design = Cell("linear", "complete", 80), Settings(SMALL_DESIGN)
    drawn = draw(cell, 0, design.make_design(cell))
    expected = [
        rmse(fit_rows(*make_table(drawn, "evcds", BY_INDEX, 0, epsilon), "linear"), drawn.data.coef)
        for epsilon in EPSILONS
    ]
    assert [measure(((BY_INDEX, "EVCDS", cell, epsilon), 0), True)[1] for epsilon in EPSILONS] == expected
    assert len(set(expected)) == len(EPSILONS)
