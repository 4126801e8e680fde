"""How `experiments missing` judges a cell: against the paper, against references, against itself without noise."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from experiments.__main__ import main
from experiments.draws import Cell
from experiments.methods import ORACLE, ORIGINAL
from experiments.missing.missing_page import render
from experiments.missing.verdicts import CHECKS, METHODS, MeasuredLead, compare, count_verdicts
from experiments.paper import Printed, PrintedKey, read_tables
from experiments.results import CellRows, summarise
from experiments.runner import Settings
from experiments.store import MethodScores, Replication

CELL = Cell("logistic", "MAR-simple", 1_000)
PAPER = {
    PrintedKey("table7", "logistic", "MAR-simple", 1_000, 1.0, method, metric): Printed(value, 0.0)
    for method in ("EVCDS", "IEVCDS")
    for metric, value in {"rmse": 0.10, "gmeans": 0.90, "fdr": 0.05}.items()
}


def make_rows(
    ours: float, *, original: float, oracle: float, without_noise: Mapping[str, float] | None = None
) -> CellRows:
    """Two equal data sets: every method's table has the RMSE `ours`, G-Means are 1 - RMSE."""

    def scores(rmse: float, **more: float) -> MethodScores:
        return MethodScores({"paper rmse": rmse, "paper gmeans": 1.0 - rmse, "paper fdr": 0.0, **more})

    entries = {f"{method}@1": scores(ours, margins=0.2 if method == "VCDS" else 0.1) for method in METHODS}
    entries |= {ORIGINAL: scores(original), ORACLE: scores(oracle)}
    entries |= {f"{method}@70": scores(rmse) for method, rmse in (without_noise or {}).items()}
    return CellRows(CELL, [Replication({}, 1.0, entries)] * 2)


def compare_rows(found: CellRows) -> dict[str, MeasuredLead]:
    return compare(found, PAPER, "paper")


def test_better_than_printed_is_met_whatever_the_references_say() -> None:
    leads = compare_rows(make_rows(0.09, original=0.01, oracle=0.01))
    assert leads["paper_rmse/free"].met
    assert leads["evcds"].met
    assert leads["paper_gmeans/aligned"].met
    assert leads["margins"].amount == pytest.approx(0.1)
    assert not leads["own_rmse/free"].met  # as good as our own is not better


def test_the_worse_of_printed_figure_and_references_is_the_second_bar() -> None:
    lead = compare_rows(make_rows(0.12, original=0.05, oracle=0.13))["paper_rmse/free"]
    assert not lead.met
    assert lead.met_adjusted
    assert lead.amount == pytest.approx(-0.02)
    assert lead.adjusted == pytest.approx(0.01)
    assert str(lead).startswith("yes, as the references")


def test_gmeans_have_no_oracle_but_the_same_selection_on_complete_data() -> None:
    lead = compare_rows(make_rows(0.12, original=0.11, oracle=0.5))["paper_gmeans/free"]
    assert lead.adjusted == pytest.approx(-0.01)


@pytest.mark.parametrize(("noiseless", "out_of_reach"), [(0.11, True), (0.09, False)])
def test_a_short_cell_is_out_of_reach_only_if_the_method_is_short_without_noise(
    noiseless: float, out_of_reach: bool
) -> None:
    leads = compare_rows(make_rows(0.12, original=0.05, oracle=0.05, without_noise={"EVCDS": noiseless}))
    assert leads["evcds"].out_of_reach is out_of_reach
    assert not leads["ievcds"].out_of_reach  # not measured without noise: short
    counts = count_verdicts({"logistic": [leads]})["evcds"]["logistic"]
    assert counts["met"] == counts["met_adjusted"] == 0
    assert counts["out_of_reach"] == int(out_of_reach)


def test_a_refined_table_is_held_against_the_best_without_noise_whatever_the_method() -> None:
    quiet = {"Refined-aligned": 0.15, "EVCDS": 0.09}
    leads = compare_rows(make_rows(0.12, original=0.05, oracle=0.05, without_noise=quiet))
    assert not leads["paper_rmse/aligned"].out_of_reach
    assert leads["paper_rmse/aligned"].without_noise == pytest.approx(0.01)


def test_own_rivals_are_compared_within_replications() -> None:
    lead = MeasuredLead.paired([0.01, 0.03])
    assert lead.amount == lead.adjusted == pytest.approx(0.02)
    assert lead.standard_error == pytest.approx(0.01)


def test_a_data_set_on_which_a_rival_failed_is_left_out_of_their_comparison() -> None:
    found = make_rows(0.12, original=0.05, oracle=0.05)
    failed = Replication({}, 1.0, {**found.rows[0].entries, "IEVCDS@1": MethodScores({}, None, "no")})
    assert compare_rows(CellRows(CELL, [*found.rows, failed]))["own_rmse/aligned"].amount == 0.0


def test_the_page_has_every_check_and_tables_leave_out_what_has_no_noise() -> None:
    found = make_rows(0.12, original=0.05, oracle=0.05, without_noise={"EVCDS": 0.11})
    page = render([found], read_tables(), "paper", Settings(), "made by a test")
    assert all(label in page for label in CHECKS.values())
    assert "out of reach" in page
    assert "| logistic, simple, 1000, refined aligned | 0 | 0 | 2: 0.120 / 0.880 / 0.000 |" in page
    assert {figure.key.epsilon for figure in summarise("table7", [found], read_tables())} == {1.0}


def test_wrong_counts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["missing", "--replications", "0", "--out", str(tmp_path)])
