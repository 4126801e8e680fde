"""RMSE, G-Means and FDR of all methods at equal epsilon for a whole person."""

from __future__ import annotations

import argparse
import importlib.util
import math
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from experiments.draws import Cell, Drawn, draw
from experiments.judge import JudgeName, judge
from experiments.methods import ORACLE
from experiments.metrics import score_coef
from experiments.person.person_methods import FOR_MISSING, METHODS, NEEDS_TORCH
from experiments.person.person_page import ORIGINAL, ZERO, lines_to_csv, read_lines, render
from experiments.runner import SMALL_DESIGN, Settings, Task
from experiments.scad import SeparatedClassesError, fit_oracle, trace_scad
from experiments.store import MethodScores, Replication, locate, name_entry, read, write
from experiments.study import MethodFailure
from reporting.catalogue import Measured, Places
from reporting.parallel import run_all
from reporting.records import Record, write_text
from reporting.tables import Table
from verticopula.errors import SettingsError, VerticopulaError
from verticopula.schema.defaults import DEFAULT_DELTA

EPSILONS = (1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0)
MECHANISMS = ("complete", "MAR-simple")
SIZES = (1_000, 3_000)
QUICK_SIZE = 80
FOLDER = "person"
RULE: JudgeName = "library"
ROWS_PER_SUBJECT = {1_000: 5, 3_000: 3}
Pair = tuple[str, float | None]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS), help="of unit person")
    parser.add_argument("--delta", type=float, default=DEFAULT_DELTA)
    parser.add_argument("--methods", nargs="+", choices=METHODS, metavar="METHOD", help="default: all but Vertigan")
    parser.add_argument("--mechanisms", nargs="+", choices=MECHANISMS, default=list(MECHANISMS))
    parser.add_argument("--sizes", nargs="+", type=int, help=f"N; default: {SIZES}")
    parser.add_argument("--replications", type=int, help="data sets per cell; default 10")


def check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Refuse what cannot be run, and fill in defaults: small ones of a quick run."""
    options.sizes = options.sizes or ([QUICK_SIZE] if options.quick else list(SIZES))
    if options.replications is None:
        options.replications = 1 if options.quick else 10
    if any(not 0.0 < epsilon < math.inf for epsilon in options.epsilons) or not 0.0 < options.delta < 1.0:
        parser.error("epsilons are above 0, delta lies between 0 and 1")
    if min(options.replications, *options.sizes) < 1:
        parser.error("sizes, replications and jobs are whole numbers of at least 1")


def run(options: argparse.Namespace) -> Measured:
    """Compute what is missing."""
    settings = Settings(SMALL_DESIGN if options.quick else {}, (RULE,), ROWS_PER_SUBJECT)
    methods = options.methods or [name for name in METHODS if name not in NEEDS_TORCH]
    if any(name in NEEDS_TORCH for name in methods) and importlib.util.find_spec("torch") is None:
        raise SettingsError("Vertigan needs torch: pip install 'verticopula[gan]'")
    folder = options.places.results / FOLDER
    wanted = [
        Task(cell, replication, tuple(list_pairs(cell, methods, options.epsilons)))
        for replication in range(options.replications)
        for mechanism in options.mechanisms
        for n in options.sizes
        for cell in [Cell("linear", mechanism, n)]
    ]
    tasks = [left for task in wanted if (left := find_left(task, settings, options.delta, folder)).wanted]
    for _ in run_all(
        run_task,
        tasks,
        settings,
        options.delta,
        folder,
        label="data sets",
        backend=options.backend,
        jobs=options.jobs,
    ):
        pass
    n_columns = settings.make_design(Cell("linear", "complete", 1)).n_columns
    return {"delta": options.delta, "small_design": options.quick, "columns": n_columns}, {}


def present(record: Record, places: Places) -> list[Table]:
    """`person.csv` and the page `person.html`."""
    lines, said = read_lines(places.results / FOLDER), record.settings
    write_text(places.results / "person.csv", lines_to_csv(lines))
    write_text(places.pages / "person.html", render(lines, said["delta"], said["columns"], record.describe()))
    return []


def list_pairs(cell: Cell, methods: Sequence[str], epsilons: Sequence[float]) -> list[Pair]:
    """Yardsticks, then every method that says something of its own there, at every epsilon."""
    chosen = [name for name in methods if cell.mechanism != "complete" or name not in FOR_MISSING]
    return [(ORACLE, None), (ORIGINAL, None), (ZERO, None), *((name, e) for name in chosen for e in epsilons)]


def record_settings(cell: Cell, settings: Settings, delta: float) -> dict[str, object]:
    """What is kept with every replication."""
    return {"judge": RULE, **settings.record(cell), "unit": "person", "delta": delta}


def find_left(task: Task, settings: Settings, delta: float, folder: Path) -> Task:
    """The task without what is there."""
    found = read(locate(folder, task.cell, task.replication), record_settings(task.cell, settings, delta))
    done = set() if found is None else set(found.entries)
    return replace(task, wanted=tuple(pair for pair in task.wanted if name_entry(*pair) not in done))


def run_task(task: Task, settings: Settings, delta: float, folder: Path) -> None:
    """Add what is wanted to the replication's file, one method after the other."""
    cell, path = task.cell, locate(folder, task.cell, task.replication)
    kept = record_settings(cell, settings, delta)
    drawn = draw(cell, task.replication, settings.make_design(cell))
    found = read(path, kept) or Replication(kept, drawn.complete_cases)
    for method, epsilon in task.wanted:
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.entries[name_entry(method, epsilon)] = measure(
                drawn, method, epsilon, delta, task.replication, settings.rows_per_subject(cell)
            )
        write(path, found)


def measure(
    drawn: Drawn, method: str, epsilon: float | None, delta: float, replication: int, rows_per_subject: int
) -> MethodScores:
    """One method on one data set; a failure is an answer too."""
    began, truth = time.process_time(), drawn.data.coef
    try:
        if epsilon is None:
            return MethodScores(
                score_coef(measure_yardstick(drawn, method), truth), None, "", time.process_time() - began
            )
        study = drawn.study(epsilon, replication, rows_per_subject)
        answer = METHODS[method](study, epsilon, delta)
        scores = score_coef(judge(answer.outcome, study, [RULE])[RULE], truth)
    except (MethodFailure, SeparatedClassesError, VerticopulaError, np.linalg.LinAlgError) as error:
        return MethodScores({}, None, f"{type(error).__name__}: {error}", time.process_time() - began)
    allowed = {"per_comparison": answer.per_comparison, "per_value": answer.per_value}
    scores |= {name: value for name, value in allowed.items() if np.isfinite(value)}
    return MethodScores(scores, answer.outcome.spent, "", time.process_time() - began)


def measure_yardstick(drawn: Drawn, method: str) -> np.ndarray:
    """Coefficients without any privacy: of the oracle, of SCAD on the complete real columns; or none at all."""
    data = drawn.data
    if method == ZERO:
        return np.zeros_like(data.coef)
    if method == ORACLE:
        return fit_oracle(data.x, data.y, data.coef != 0.0, data.design.model)
    return trace_scad(data.x, data.y, model="linear", fit_intercept=False).refitted.coef
