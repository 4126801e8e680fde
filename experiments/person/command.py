"""`python -m experiments person`: RMSE, G-Means and FDR of all methods at equal epsilon for a whole person."""

from __future__ import annotations

import argparse
import importlib.util
import math
import shlex
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from joblib import delayed
from rich.console import Console
from rich.progress import track
from threadpoolctl import threadpool_limits

from experiments.draws import Cell, Drawn, draw
from experiments.judge import JudgeName, judge, score, score_coef
from experiments.methods import ORACLE
from experiments.person.methods import FOR_MISSING, METHODS, NEEDS_TORCH
from experiments.person.page import ORIGINAL, ZERO, read_lines, render, to_csv
from experiments.provenance import describe_run
from experiments.runner import BACKENDS, SMALL_DESIGN, Settings, call_in_parallel
from experiments.scad import SeparatedClassesError, fit_oracle, fit_scad_refit
from experiments.store import Entry, Replication, locate, name_entry, read, write, write_text
from experiments.study import MethodFailure
from verticopula.errors import SettingsError, VerticopulaError
from verticopula.schema.defaults import DEFAULT_DELTA

EPSILONS = (1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0)
MECHANISMS = ("complete", "MAR-simple")
SIZES = (1_000, 3_000)
FOLDER = "person"
RULE: JudgeName = "library"
Pair = tuple[str, float | None]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments person", description=__doc__)
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS), help="of unit person")
    parser.add_argument("--delta", type=float, default=DEFAULT_DELTA)
    parser.add_argument("--methods", nargs="+", choices=METHODS, metavar="METHOD", help="default: all but Vertigan")
    parser.add_argument("--mechanisms", nargs="+", choices=MECHANISMS, default=list(MECHANISMS))
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), help="N")
    parser.add_argument("--replications", type=int, default=10)
    parser.add_argument("--small-design", action="store_true", help="15 columns instead of 100")
    parser.add_argument("--backend", choices=BACKENDS, default="loky", help="of joblib")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=Path("experiments-out"), help="a folder; what is in it is kept")
    options = parser.parse_args(argv)
    if any(not 0.0 < epsilon < math.inf for epsilon in options.epsilons) or not 0.0 < options.delta < 1.0:
        parser.error("epsilons are above 0, delta lies between 0 and 1")
    if min(options.replications, options.jobs, *options.sizes) < 1:
        parser.error("sizes, replications and jobs are whole numbers of at least 1")
    return options


def main(argv: Sequence[str], console: Console) -> int:
    options = parse(argv)
    settings = Settings(RULE, SMALL_DESIGN if options.small_design else None)
    methods = options.methods or [name for name in METHODS if name not in NEEDS_TORCH]
    if any(name in NEEDS_TORCH for name in methods) and importlib.util.find_spec("torch") is None:
        raise SettingsError("Vertigan needs torch: pip install 'verticopula[gan]'")
    folder = options.out / FOLDER
    tasks = [
        (cell, replication, left)
        for replication in range(options.replications)
        for mechanism in options.mechanisms
        for n in options.sizes
        for cell in [Cell("linear", mechanism, n)]
        if (left := find_left(cell, replication, list_pairs(cell, methods, options.epsilons), settings, options))
    ]
    calls = (delayed(run_task)(*task, settings, options.delta, folder) for task in tasks)
    if tasks:
        for _ in track(call_in_parallel(calls, options.backend, options.jobs), "equal epsilons", total=len(tasks)):
            pass
    lines = read_lines(folder)
    write_text(options.out / "person.csv", to_csv(lines))
    made_by = describe_run(f"python -m experiments person {shlex.join(argv)}")
    n_columns = settings.make_design(Cell("linear", "complete", 1)).n_columns
    write_text(options.out / "person.html", render(lines, options.delta, n_columns, made_by))
    console.print(f"written to {options.out}/: person.csv, person.html")
    return 0


def list_pairs(cell: Cell, methods: Sequence[str], epsilons: Sequence[float]) -> list[Pair]:
    """Yardsticks, then every method that says something of its own there, at every epsilon."""
    chosen = [name for name in methods if cell.mechanism != "complete" or name not in FOR_MISSING]
    return [(ORACLE, None), (ORIGINAL, None), (ZERO, None), *((name, e) for name in chosen for e in epsilons)]


def record(cell: Cell, settings: Settings, delta: float) -> dict[str, object]:
    """What is kept with every replication."""
    return {**settings.record(cell), "unit": "person", "delta": delta}


def find_left(
    cell: Cell, replication: int, pairs: Sequence[Pair], settings: Settings, options: argparse.Namespace
) -> list[Pair]:
    """What is not there yet."""
    found = read(locate(options.out / FOLDER, cell, replication), record(cell, settings, options.delta))
    done = set() if found is None else set(found.entries)
    return [pair for pair in pairs if name_entry(*pair) not in done]


def run_task(
    cell: Cell, replication: int, wanted: Sequence[Pair], settings: Settings, delta: float, folder: Path
) -> None:
    """Add what is wanted to the replication's file, one method after the other."""
    path, kept = locate(folder, cell, replication), record(cell, settings, delta)
    drawn = draw(cell, replication, settings.make_design(cell))
    found = read(path, kept) or Replication(kept, drawn.complete_cases)
    for method, epsilon in wanted:
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.entries[name_entry(method, epsilon)] = measure(
                drawn, method, epsilon, delta, replication, settings.rows_per_subject(cell)
            )
        write(path, found)


def measure(
    drawn: Drawn, method: str, epsilon: float | None, delta: float, replication: int, rows_per_subject: int
) -> Entry:
    """One method on one data set; a failure is an answer too."""
    began, truth = time.process_time(), drawn.data.coef
    try:
        if epsilon is None:
            return Entry(score_coef(measure_yardstick(drawn, method), truth), None, "", time.process_time() - began)
        study = drawn.study(epsilon, replication, rows_per_subject)
        answer = METHODS[method](study, epsilon, delta)
        scores = score(judge(answer.outcome, study, RULE), truth)
    except (MethodFailure, SeparatedClassesError, VerticopulaError, np.linalg.LinAlgError) as error:
        return Entry({}, None, f"{type(error).__name__}: {error}", time.process_time() - began)
    allowed = {"per_comparison": answer.per_comparison, "per_value": answer.per_value}
    scores |= {name: value for name, value in allowed.items() if np.isfinite(value)}
    return Entry(scores, answer.outcome.spent, "", time.process_time() - began)


def measure_yardstick(drawn: Drawn, method: str) -> np.ndarray:
    """Coefficients without any privacy: of the oracle, of SCAD on the complete real columns; or none at all."""
    data = drawn.data
    if method == ZERO:
        return np.zeros_like(data.coef)
    if method == ORACLE:
        return fit_oracle(data.x, data.y, data.coef != 0.0, data.design.model)
    return fit_scad_refit(data.x, data.y, model="linear", fit_intercept=False).coef
