"""Whether the judge or the data lose accuracy: a small run, its page, and one table of rows by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from experiments.__main__ import main
from experiments.judge_or_data import REAL, ROWS, look
from experiments.metrics import rmse
from experiments.scad import fit_oracle, trace_scad


def test_a_small_run_looks_at_all_rows(tmp_path: Path) -> None:
    options = ["--quick", "--models", "linear", "--subjects", "200", "--out", str(tmp_path)]
    assert main(["judge_or_data", *options]) == 0
    found = json.loads((tmp_path / "judge_or_data.json").read_text("utf-8"))["results"]["linear"]
    assert list(found) == [REAL, *ROWS]
    assert all(kept[0]["best_strength"] <= kept[0]["judge"] for kept in found.values())
    assert "| real rows |" in (tmp_path / "judge_or_data.md").read_text("utf-8")


def test_figures_are_those_of_the_papers_judge_and_of_the_oracle() -> None:
    rng = np.random.default_rng(2)
    x, truth = rng.normal(size=(300, 5)), np.array([1.0, -1.0, 0.5, 0.0, 0.0])
    y = x @ truth + rng.normal(size=300)
    found = look(x, y, "linear", 300, truth)
    chosen = trace_scad(x, y, model="linear", fit_intercept=False).penalised
    assert (found.judge, found.selected) == (rmse(chosen.coef, truth), chosen.degrees_of_freedom)
    assert found.true_support == rmse(fit_oracle(x, y, truth != 0.0, "linear"), truth)
    assert found.best_strength <= found.judge
