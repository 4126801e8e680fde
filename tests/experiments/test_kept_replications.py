"""Kept replications are those of the code as it is: one data set is measured again."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.draws import Cell
from experiments.runner import Settings, Task, run_task
from experiments.store import locate, name_entry, read

RESULTS = Path(__file__).parents[2] / "experiments" / "results"
# Not IEVCDS: in ten rounds a difference in the last digit, as between two processors, can become another draw.
METHODS = ("VCDS", "VCDS-printed", "EVCDS", "EVCDS-printed", "Refined")


@pytest.mark.slow
@pytest.mark.parametrize("cell", [Cell("linear", "MAR-complex", 1_000), Cell("logistic", "complete", 1_000)])
def test_a_kept_data_set_is_found_again(tmp_path: Path, cell: Cell) -> None:
    """Where this fails, a change moved the figures: the kept replications must be made anew, not added to."""
    settings = Settings(judges=("paper",))
    run_task(Task(cell, 0, tuple((method, 1.0) for method in METHODS)), settings, tmp_path)
    kept, again = (read(locate(folder, cell, 0), settings.record(cell)) for folder in (RESULTS, tmp_path))
    assert kept is not None
    assert again is not None
    for method in METHODS:
        entry = name_entry(method, 1.0)
        shown = {name: kept.entries[entry].scores[name] for name in again.entries[entry].scores}
        assert again.entries[entry].scores == pytest.approx(shown, abs=1e-4), method
