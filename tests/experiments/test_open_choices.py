"""Our readings of what the paper leaves open, against others: a small run, and the page that it makes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from experiments.__main__ import main
from experiments.open_choices import FREE, JUDGES, LATENT_READINGS, OURS, READINGS


def test_a_small_run_measures_every_reading(tmp_path: Path) -> None:
    assert main(["open_choices", "--quick", "--methods", "vcds", "evcds", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "open_choices.json").read_text("utf-8"))["results"]
    evcds, vcds = found["evcds as printed, linear, complete"], found["vcds as printed, logistic, complete"]
    assert list(evcds) == [*READINGS, *JUDGES["linear"]]
    assert set(READINGS) - set(vcds) == set(LATENT_READINGS)
    assert np.isfinite([rmse for scores in found.values() for values in scores.values() for rmse in values]).all()
    page = (tmp_path / "open_choices.md").read_text("utf-8")
    assert "evcds as printed, linear, complete, N = 80" in page
    assert f"| {OURS} |" in page
    # Free rows have the fit of our reading, and other latents.
    assert evcds[FREE] != evcds[OURS]


def test_readings_differ_from_ours_in_one_point_each() -> None:
    ours = READINGS[OURS]
    for name, reading in READINGS.items():
        changed = [field for field, value in vars(reading).items() if value != getattr(ours, field)]
        assert len(changed) == (name not in (OURS, FREE))
