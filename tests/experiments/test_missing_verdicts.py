"""How `benchmarks missing` judges a cell: against the paper, against references, against itself without noise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import missing
from benchmarks.missing import measure, record_cell
from benchmarks.missing_verdicts import Answer, Cell, Lead, Measured, count_verdicts, judge

CELL = Cell("logistic", "simple", 1_000)
PAPER = {
    (CELL, method, metric): value
    for method in ("EVCDS", "IEVCDS")
    for metric, value in {"rmse": 0.10, "gmeans": 0.90}.items()
}


def make_answer(ours: float, *, original: float, oracle: float) -> Answer:
    """One replication: every method's table has the RMSE `ours`, G-Means are 1 - RMSE."""

    def scores(rmse: float) -> dict[str, float]:
        return {"rmse": rmse, "gmeans": 1.0 - rmse, "fdr": 0.0}

    sources = [f"{method}/{draw}" for method in ("evcds", "ievcds", "refined") for draw in ("free", "aligned")]
    answer = Answer(1.0, 1.0, 0, {source: scores(ours) for source in sources})
    answer.scores |= {"original": scores(original), "oracle": scores(oracle)}
    answer.margins = {"vcds": 0.2, "refined": 0.1}
    return answer


def test_better_than_printed_is_met_whatever_the_references_say() -> None:
    leads = judge(CELL, [make_answer(0.09, original=0.01, oracle=0.01)] * 2, PAPER, {})
    assert leads["paper_rmse/free"].met
    assert leads["evcds"].met
    assert leads["paper_gmeans/aligned"].met


def test_the_worse_of_printed_figure_and_references_is_the_second_bar() -> None:
    lead = judge(CELL, [make_answer(0.12, original=0.05, oracle=0.13)] * 2, PAPER, {})["paper_rmse/free"]
    assert not lead.met
    assert lead.met_adjusted
    assert lead.amount == pytest.approx(-0.02)
    assert lead.adjusted == pytest.approx(0.01)
    assert str(lead).startswith("yes, as the references")


def test_gmeans_have_no_oracle_but_the_same_selection_on_complete_data() -> None:
    answers = [make_answer(0.12, original=0.11, oracle=0.5)] * 2
    lead = judge(CELL, answers, PAPER, {})["paper_gmeans/free"]
    assert lead.adjusted == pytest.approx(-0.01)


@pytest.mark.parametrize(("noiseless", "out_of_reach"), [(0.11, True), (0.09, False)])
def test_a_short_cell_is_out_of_reach_only_if_the_method_is_short_without_noise(
    noiseless: float, out_of_reach: bool
) -> None:
    without_noise = {(CELL, "evcds/aligned", "rmse"): noiseless}
    answers = [make_answer(0.12, original=0.05, oracle=0.05)] * 2
    leads = judge(CELL, answers, PAPER, without_noise)
    assert leads["evcds"].out_of_reach is out_of_reach
    assert not leads["ievcds"].out_of_reach  # not measured without noise: short
    counts = count_verdicts({CELL: leads})["evcds"]["logistic"]
    assert counts["met"] == counts["met_adjusted"] == 0
    assert counts["out_of_reach"] == int(out_of_reach)


def test_a_refined_table_is_held_against_the_best_without_noise_whatever_the_method() -> None:
    without_noise = {(CELL, "refined/aligned", "rmse"): 0.15, (CELL, "evcds/aligned", "rmse"): 0.09}
    leads = judge(CELL, [make_answer(0.12, original=0.05, oracle=0.05)] * 2, PAPER, without_noise)
    assert not leads["paper_rmse/aligned"].out_of_reach
    assert leads["paper_rmse/aligned"].without_noise == pytest.approx(0.01)


def test_own_rivals_are_compared_within_replications() -> None:
    lead = Lead.paired([0.01, 0.03])
    assert lead.amount == lead.adjusted == pytest.approx(0.02)
    assert lead.standard_error == pytest.approx(0.01)


def test_parts_that_are_not_named_are_kept_if_the_same_fit_judged_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other, stale = Cell("linear", "simple", 3_000), Cell("linear", "complex", 3_000)
    kept = Measured([make_answer(0.3, original=0.1, oracle=0.1)], "then")
    stored = [record_cell(cell, kept) for cell in (CELL, other)] + [record_cell(stale, kept) | {"judge": "another fit"}]
    path = tmp_path / "missing.json"
    path.write_text(json.dumps({"results": {"cells": stored}}))
    fresh = make_answer(0.2, original=0.1, oracle=0.1)
    monkeypatch.setattr(missing, "PROCESSES", 1)
    times = {"logistic/1000": 2, "linear/3000": 2}
    found = measure([CELL, other, stale], times, ["logistic/1000"], path, replicate=lambda cell, replication: fresh)
    assert found[CELL].answers == [fresh, fresh]
    assert found[CELL].date != "then"
    assert found[other] == kept
    assert stale not in found  # judged by another fit: not comparable any more
