"""Runs that are taken up again, and runs on several workers, give what one uninterrupted run gives."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments import runner
from experiments.__main__ import main
from experiments.designs import make_complete
from experiments.draws import Cell, draw
from experiments.judge import JUDGE_NAMES
from experiments.paper import Printed, PrintedKey, read_tables
from experiments.results import (
    CellRows,
    Figure,
    count_near,
    count_refined,
    count_verdicts,
    read_cells,
    sum_hours,
    summarise,
    write_csv,
)
from experiments.runner import SMALL_DESIGN, Settings, Task, list_tasks, list_wanted, run_tasks
from experiments.store import MethodScores, Replication, locate, read, write
from experiments.study import MethodFailure, Outcome, Spent, Study
from reporting import parallel
from verticopula.errors import SettingsError

SMALL = Settings(design=SMALL_DESIGN)
CELL = Cell("linear", "MCAR", 80)
WANTED = {CELL: list_wanted(["VCDS", "EVCDS"], [2.0])}


def scores_in(folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Everything that was found, without the time it took."""
    return {
        str(path.relative_to(folder)): {
            name: e["scores"] for name, e in json.loads(path.read_text())["results"]["entries"].items()
        }
        for path in sorted(folder.glob("replications/*/*.json"))
    }


def table_of(folder: Path) -> bytes:
    """The table's file as the command writes it from what the folder keeps."""
    write_csv(folder / "table4.csv", summarise("table4", read_cells(folder), read_tables()))
    return (folder / "table4.csv").read_bytes()


def run_in(folder: Path, replications: int = 3, jobs: int = 1, settings: Settings = SMALL) -> None:
    run_tasks(list_tasks(WANTED, range(replications), settings, folder), settings, folder, jobs=jobs)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    run_in(folder)
    return folder


def test_a_run_taken_up_again_ends_with_the_same_files(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = runner.measure, []

    def interrupted(*args):
        calls.append(args)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(runner, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_in(tmp_path)
    assert 0 < sum(len(entries) for entries in scores_in(tmp_path).values()) < 12
    monkeypatch.setattr(runner, "measure", real)
    run_in(tmp_path)
    assert scores_in(tmp_path) == scores_in(whole)
    assert table_of(tmp_path) == table_of(whole)


def test_what_is_finished_is_not_computed_again(whole: Path) -> None:
    assert list_tasks(WANTED, range(3), SMALL, whole) == []
    more = list_tasks({CELL: list_wanted(["VCDS", "EVCDS", "Refined"], [2.0])}, range(4), SMALL, whole)
    assert [(task.replication, len(task.wanted)) for task in more] == [(0, 1), (1, 1), (2, 1), (3, 5)]


def test_every_cell_has_a_data_set_before_any_has_the_next(tmp_path: Path) -> None:
    wanted = {Cell("linear", "MCAR", n): list_wanted(["VCDS"], [2.0]) for n in (80, 90)}
    tasks = list_tasks(wanted, range(5, 7), SMALL, tmp_path)
    assert [(t.replication, t.cell.n_subjects) for t in tasks] == [(5, 90), (5, 80), (6, 90), (6, 80)]


def test_a_judge_that_is_asked_later_adds_to_what_others_said(whole: Path, tmp_path: Path) -> None:
    run_in(tmp_path, 1, settings=Settings(SMALL_DESIGN, ("paper",)))
    first = scores_in(tmp_path)
    run_in(tmp_path, 1)
    both = scores_in(tmp_path)
    for path, entries in first.items():
        for name, scores in entries.items():
            assert scores.items() <= both[path][name].items()
            assert "bayes rmse" in both[path][name]
    assert both == {path: entries for path, entries in scores_in(whole).items() if path in both}


def test_the_number_of_workers_changes_nothing(whole: Path, tmp_path: Path) -> None:
    run_in(tmp_path, jobs=2)
    assert scores_in(tmp_path) == scores_in(whole)
    assert table_of(tmp_path) == table_of(whole)


def test_other_settings_are_refused(whole: Path) -> None:
    with pytest.raises(SettingsError, match="other settings"):
        list_tasks(WANTED, range(3), Settings({**SMALL_DESIGN, "effects": "uniform"}), whole)


def test_a_half_written_file_is_never_read(tmp_path: Path) -> None:
    path = locate(tmp_path, CELL, 0)
    kept = Replication(
        {"rows_per_subject": 1}, 0.5, {"VCDS@1": MethodScores({"paper rmse": 0.1}, Spent(1.0, math.inf, 2.0, "why"))}
    )
    write(path, kept)
    (path.parent / f".{path.name}.99").write_text("{")
    assert read(path) == kept
    assert [c.cell for c in read_cells(tmp_path)] == [CELL]
    assert len(read_cells(tmp_path)[0].rows) == 1


def test_a_failure_is_kept_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(study: Study) -> Outcome:
        raise MethodFailure("3 complete cases, 10 are needed")

    monkeypatch.setitem(runner.METHODS, "CC-VCDS", fail)
    task = Task(Cell("linear", "MAR-complex", 40), 1, (("CC-VCDS", 1.0),))
    runner.run_task(task, SMALL, tmp_path)
    found = read(locate(tmp_path, task.cell, 1))
    assert found is not None
    entry = found.entries["CC-VCDS@1"]
    assert entry.failure == "MethodFailure: 3 complete cases, 10 are needed"
    assert not entry.scores


def test_data_sets_depend_on_cell_and_replication_alone() -> None:
    for mechanism in ("complete", "MCAR", "MAR-simple", "MAR-complex"):
        cell = Cell("logistic", mechanism, 60)
        design = SMALL.make_design(cell)
        first, again, other = draw(cell, 3, design), draw(cell, 3, design), draw(cell, 4, design)
        assert (first.data.x == again.data.x).all()
        assert not (first.data.x == other.data.x).all()


def test_a_complete_data_set_is_drawn_from_its_cell_and_number() -> None:
    cell = Cell("logistic", "complete", 40)
    expected = make_complete(SMALL.make_design(cell), 40, rng=np.random.default_rng([2, 40, 1]))
    assert (draw(cell, 2, SMALL.make_design(cell)).data.x == expected.x).all()


def test_blocks_go_missing_at_the_rates_of_their_mechanism() -> None:
    cell = Cell("linear", "MCAR", 4_000)
    assert draw(cell, 0, SMALL.make_design(cell)).complete_cases == pytest.approx(0.95**5, abs=0.03)
    assert draw(Cell("linear", "complete", 50), 0).complete_cases == 1.0
    cell = Cell("linear", "MAR-simple", 500)
    observed = draw(cell, 0, SMALL.make_design(cell)).observed
    assert observed is not None
    assert observed.all(axis=0).any()  # a client that is always observed
    assert not observed.all()


def test_a_table_without_any_of_the_methods_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table4", "--methods", "IEVCDS", "--out", str(tmp_path)]) == 2
    assert "none has such a model, such methods" in capsys.readouterr().out


def make_figure(mean: float, error: float, printed: float, metric: str = "rmse", original: float = 0.0) -> Figure:
    key = PrintedKey("table1", "linear", "complete", 1000, 1.0, "VCDS", metric)
    return Figure(key, "paper", mean, error, 10, 0, None, Printed(printed, 0.0), 0.0, original)


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (make_figure(0.10, 0.01, 0.13), "better"),
        (make_figure(0.10, 0.01, 0.11), "equal"),
        (make_figure(0.10, 0.01, 0.07), "worse"),
        (make_figure(0.90, 0.01, 0.80, "gmeans"), "better"),
        (make_figure(0.90, 0.01, 0.95, "gmeans", 1.0), "worse"),
        (make_figure(0.90, math.nan, 0.95), ""),
        (make_figure(0.0, 0.0, 0.01, "fdr"), "better"),
        (make_figure(0.0, 0.0, 0.0, "fdr"), "equal"),
    ],
)
def test_verdicts_by_hand(figure: Figure, verdict: str) -> None:
    assert figure.verdict == verdict


def test_counts_say_which_of_the_worse_cells_are_out_of_the_judges_reach() -> None:
    figures = [make_figure(0.10, 0.01, 0.13), make_figure(0.1, 0.01, 0.05), make_figure(0.1, 0.01, 0.05, original=0.06)]
    assert count_verdicts(figures) == {"better": 1, "equal": 0, "worse": 2, "out of reach": 1}


def test_a_cell_is_near_within_15_percent_of_the_printed_rmse() -> None:
    figures = [make_figure(mean, 0.01, 0.10) for mean in (0.084, 0.086, 0.114, 0.116)]
    assert count_near([*figures, make_figure(0.5, 0.01, 0.9, "gmeans")]) == (2, 4)


def test_means_and_errors_by_hand() -> None:
    rows = [
        Replication({}, 1.0, {"VCDS@1": MethodScores({"paper rmse": v, "bayes rmse": v / 2.0}, Spent(1.0, v, 3.0))})
        for v in (0.1, 0.2, 0.3)
    ]
    rows.append(Replication({}, 1.0, {"VCDS@1": MethodScores({"bayes rmse": 0.2}, None, "why")}))
    found = [CellRows(Cell("linear", "complete", 1000), rows)]
    figure, other = summarise("table1", found, read_tables(), ("paper", "bayes"))
    assert (other.judge, other.replications, other.failures) == ("bayes", 4, 0)
    assert figure.judge == "paper"
    assert (figure.mean, figure.replications, figure.failures) == (pytest.approx(0.2), 3, 1)
    assert figure.error == pytest.approx(0.1 / math.sqrt(3))
    assert figure.spent is not None
    assert figure.spent.block == 0.3
    assert figure.printed is not None
    assert figure.printed.mean == 0.149


def test_command_writes_tables_and_page(tmp_path: Path) -> None:
    options = ["--quick", "--sizes", "80", "--methods", "VCDS", "--replications", "2", "--epsilons", "2"]
    assert main(["table1", *options, "--models", "linear", "--out", str(tmp_path)]) == 0
    first, *rows = (tmp_path / "table1.csv").read_text().splitlines()
    assert first == "table,model,N,epsilon,method,judge,metric,mean,se,replications"
    assert [row.split(",")[4:6] for row in rows] == [
        [method, judge] for method in ("VCDS", "Original", "Oracle") for judge in JUDGE_NAMES
    ]
    assert all(row.endswith(",2") for row in rows)
    page = (tmp_path / "results.html").read_text()
    assert "block" in page
    assert "person" in page
    again = (tmp_path / "table1.csv").read_bytes()
    assert main(["table1", *options, "--models", "linear", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "table1.csv").read_bytes() == again


def test_a_back_end_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"pip install 'verticopula\[cluster\]'"), parallel.ready_backend("ray", 1):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_other_back_ends_give_the_same_file(tmp_path: Path, backend: str) -> None:
    command = "table1 --quick --sizes 80 --methods VCDS EVCDS --replications 2 --epsilons 2 --models linear"
    for name in ("loky", backend):
        options = [*command.split(), "--jobs", "2", "--backend", name, "--out", str(tmp_path / name)]
        subprocess.run([sys.executable, "-m", "experiments", *options], check=True, timeout=1200)
    assert (tmp_path / backend / "table1.csv").read_bytes() == (tmp_path / "loky" / "table1.csv").read_bytes()


def missing_figure(method: str, metric: str, mean: float, *, mechanism: str = "MAR-simple") -> Figure:
    key = PrintedKey("table6", "linear", mechanism, 1_000, 1.0, method, metric)
    return Figure(key, "paper", mean, 0.01, 30, 0, None, read_tables().get(key), 0.0)


def test_refined_rows_are_held_against_the_best_that_the_paper_has() -> None:
    paper = read_tables()
    own = {
        m: paper[PrintedKey("table6", "linear", "MAR-simple", 1_000, 1.0, m, "gmeans")].mean
        for m in ("EVCDS", "IEVCDS")
    }
    between = [missing_figure("Refined-aligned", "gmeans", sum(own.values()) / 2.0)]
    above = [missing_figure("Refined-aligned", "gmeans", max(own.values()) + 0.01)]
    assert count_refined(between, paper) == {("linear", "Refined-aligned"): [False]}
    assert count_refined(above, paper) == {("linear", "Refined-aligned"): [True]}
    assert count_refined([missing_figure("Refined", "gmeans", 1.0, mechanism="MCAR")], paper) == {}


def test_what_has_no_protection_is_counted_once() -> None:
    printed = read_tables()
    keys = [PrintedKey("table1", "linear", "complete", 1_000, e, "Original-C", "rmse") for e in (1.0, 3.0, 5.0)]
    figures = [Figure(key, "paper", 0.01, 0.001, 30, 0, None, printed[key], 0.02) for key in keys]
    assert count_verdicts(figures)["better"] == 1


def test_as_printed_is_compared_with_the_same_printed_figure() -> None:
    rows = [Replication({}, 1.0, {"VCDS-printed@1": MethodScores({"paper rmse": 0.14})})]
    (figure,) = summarise("table1", [CellRows(Cell("linear", "complete", 1000), rows)], read_tables())
    assert figure.printed is not None
    assert figure.off_by == pytest.approx(0.14 / 0.149 - 1.0, abs=1e-3)


def test_hours_are_those_of_the_methods_that_a_table_shows() -> None:
    entries = {"VCDS@1": MethodScores({}, seconds=3600.0), "EVCDS@1": MethodScores({}, seconds=7200.0)}
    cells = [CellRows(Cell("linear", m, 1000), [Replication({}, 1.0, entries)]) for m in ("complete", "MCAR")]
    assert sum_hours(cells) == {"table1": 3.0, "table4": 1.0, "table6": 2.0}


def test_hours_in_full_are_those_of_the_last_data_set_as_often_as_there_are_any() -> None:
    slow = {"VCDS@1": MethodScores({}, seconds=7200.0), "CC-VCDS@1": MethodScores({}, seconds=360.0)}
    fast = {
        "VCDS@1": MethodScores({}, seconds=36.0),
        "VCDS@70": MethodScores({}, seconds=36.0),
    }  # without noise: no cell
    cells = [CellRows(Cell("linear", "MCAR", 1000), [Replication({}, 1.0, slow), Replication({}, 1.0, fast)])]
    assert sum_hours(cells, in_full=True) == pytest.approx({"table4": 100 * 0.01 + 30 * 0.1})
