"""`python -m experiments missing`: every method where blocks are missing at random, and what no budget would buy.

Adds free rows of EVCDS and IEVCDS, references on the complete data, and runs without noise to what the tables have, in
the same folder: what `table4` to `table7` have found there is not computed again, and the other way round.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from experiments.draws import CASES, MODELS, Cell
from experiments.judge import JUDGE_NAMES
from experiments.methods import ORACLE, ORIGINAL
from experiments.missing.page import render
from experiments.missing.verdicts import EPSILON, METHODS, NOISELESS_METHODS
from experiments.paper import read_tables
from experiments.provenance import describe_run
from experiments.results import NOISELESS, read_cells
from experiments.runner import BACKENDS, ROWS_PER_SUBJECT, Settings, list_tasks, run_all
from experiments.store import write_text

YARDSTICKS = ((ORACLE, None), (ORIGINAL, None))
NOISY = tuple((method, EPSILON) for method in METHODS)
QUIET = tuple((method, NOISELESS) for method in NOISELESS_METHODS)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments missing", description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, choices=ROWS_PER_SUBJECT, default=list(ROWS_PER_SUBJECT))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--replications", type=int, default=30, help="data sets per cell")
    parser.add_argument("--noiseless", type=int, default=10, help="data sets per cell that are made without noise too")
    parser.add_argument("--judge", choices=JUDGE_NAMES, default="bayes", help="which rule judges; see the README")
    parser.add_argument("--backend", choices=BACKENDS, default="loky", help="of joblib")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=Path("experiments-out"), help="a folder; what is in it is kept")
    options = parser.parse_args(argv)
    if options.replications < 1 or options.noiseless < 0 or options.jobs < 1:
        parser.error("replications and jobs are at least 1, noiseless at least 0")
    return options


def main(argv: Sequence[str], console: Console) -> int:
    options = parse(argv)
    settings = Settings(options.judge)
    cells = [Cell(model, case, n) for model in options.models for case in CASES for n in options.sizes]
    tasks = list_tasks(dict.fromkeys(cells, YARDSTICKS + NOISY), options.replications, settings, options.out)
    quiet = list_tasks(dict.fromkeys(cells, QUIET), options.noiseless, settings, options.out)
    console.print(f"{len(tasks)} data sets with noise and {len(quiet)} without are not finished yet")
    for left in (tasks, quiet):
        run_all(left, settings, options.out, backend=options.backend, jobs=options.jobs)
    found = [c for c in read_cells(options.out) if c.cell in cells]
    seconds = sum(entry.seconds for c in found for row in c.rows for entry in row.entries.values())
    made_by = describe_run(f"python -m experiments missing --noiseless {options.noiseless}", seconds)
    write_text(options.out / "missing.md", render(found, read_tables(), settings, made_by))
    console.print(f"written to {options.out}/: missing.md")
    return 0
