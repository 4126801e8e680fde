"""Our readings of what the paper leaves open, against others: a small run, and the page that it makes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from experiments.__main__ import main
from experiments.draws import Cell, draw
from experiments.open_choices import (
    ALONE,
    FREE,
    JUDGES,
    LATENT_READINGS,
    LATER,
    MORE,
    OURS,
    READINGS,
    ROUND_READINGS,
    SHARED,
    fit_rows,
    make_table,
)
from experiments.runner import SMALL_DESIGN, Settings


def test_a_small_run_measures_every_reading(tmp_path: Path) -> None:
    assert main(["open_choices", "--quick", "--methods", "vcds", "evcds", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "open_choices.json").read_text("utf-8"))["results"]
    evcds, vcds = found["evcds as printed, linear, complete"], found["vcds as printed, logistic, complete"]
    unread = {*ROUND_READINGS, ALONE}
    assert list(evcds) == [*(name for name in READINGS if name not in unread), *JUDGES["linear"]]
    assert set(READINGS) - set(found["evcds as printed, linear, MAR-simple"]) == set(ROUND_READINGS)
    assert set(READINGS) - set(vcds) == {*LATENT_READINGS, *ROUND_READINGS}
    assert np.isfinite([rmse for scores in found.values() for values in scores.values() for rmse in values]).all()
    page = (tmp_path / "open_choices.md").read_text("utf-8")
    assert "evcds as printed, linear, complete, N = 80" in page
    assert f"| {OURS} |" in page
    # Free rows have the fit of our reading, and other latents.
    assert evcds[FREE] != evcds[OURS]


def test_a_run_computes_only_what_is_not_there(tmp_path: Path) -> None:
    path, options = tmp_path / "open_choices.json", ["--quick", "--methods", "vcds", "--out", str(tmp_path)]
    assert main(["open_choices", *options, "--models", "linear"]) == 0
    name, whole = "vcds as printed, linear, complete", json.loads(path.read_text("utf-8"))
    kept = {reading: errors for reading, errors in whole["results"][name].items() if reading != "Spearman"}
    kept["h = 1"] = [0.5]  # were it computed again, it would be another
    path.write_text(json.dumps(whole | {"results": {name: kept}}), "utf-8")
    assert main(["open_choices", *options, "--models", "linear"]) == 0
    again = json.loads(path.read_text("utf-8"))["results"][name]
    assert again == whole["results"][name] | {"h = 1": [0.5]}
    assert list(again) == list(whole["results"][name])
    assert main(["open_choices", *options, "--models", "linear", "--seed-offset", "7"]) == 0
    assert json.loads(path.read_text("utf-8"))["results"][name]["h = 1"] != [0.5]


def test_readings_differ_from_ours_in_one_point_each() -> None:
    ours = READINGS[OURS]
    for name, reading in READINGS.items():
        changed = [field for field, value in vars(reading).items() if value != getattr(ours, field)]
        assert len(changed) == (name not in (OURS, FREE, MORE, LATER, SHARED))
    every = {
        field for reading in READINGS.values() for field in vars(ours) if vars(reading)[field] != vars(ours)[field]
    }
    assert every == set(vars(ours))  # no point without another reading


def test_ten_rows_for_each_subject_count_as_one() -> None:
    drawn = draw(Cell("linear", "complete", 80), 0, Settings(SMALL_DESIGN).make_design(Cell("linear", "complete", 80)))
    x, y = make_table(drawn, "evcds", MORE, 0)
    assert x.shape[0] == 10 * 80
    chosen = [np.count_nonzero(fit_rows(x, y, "linear", n_subjects=n)) for n in (80, None)]
    assert chosen[0] <= chosen[1]


def test_one_round_more_gives_other_tables_of_iterated_rows() -> None:
    drawn = draw(Cell("linear", "MCAR", 80), 0, Settings(SMALL_DESIGN).make_design(Cell("linear", "MCAR", 80)))
    ten, eleven = (make_table(drawn, "ievcds", name, 0)[0] for name in (OURS, LATER))
    assert not np.array_equal(ten, eleven)


def test_rounds_that_share_epsilon_give_other_tables_of_the_same_data() -> None:
    drawn = draw(Cell("linear", "MCAR", 80), 0, Settings(SMALL_DESIGN).make_design(Cell("linear", "MCAR", 80)))
    each, shared = (make_table(drawn, "ievcds", name, 0)[0] for name in (OURS, SHARED))
    assert each.shape == shared.shape
    assert not np.array_equal(each, shared)
    # One method without rounds has nothing to share: the reading changes nothing there.
    assert np.array_equal(*(make_table(drawn, "evcds", name, 0)[0] for name in (OURS, SHARED)))
