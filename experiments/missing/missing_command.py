"""Adds free rows of EVCDS and IEVCDS, references on the complete data, and runs without noise to what the tables have.

What `table4` to `table7` have found in the same folder is not computed again, and the other way round.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from experiments.designs import Model
from experiments.draws import CASES, MODELS, Cell
from experiments.judge import JUDGE_NAMES
from experiments.methods import ORACLE, ORIGINAL
from experiments.missing.missing_page import render
from experiments.missing.verdicts import EPSILON, METHODS, NOISELESS_METHODS
from experiments.paper import read_tables
from experiments.results import NOISELESS, read_cells
from experiments.runner import ROWS_PER_SUBJECT, SMALL_DESIGN, Settings, list_tasks, run_tasks
from reporting.catalogue import Measured, Places
from reporting.records import Record, write_text
from reporting.tables import Table

YARDSTICKS = ((ORACLE, None), (ORIGINAL, None))
NOISY = tuple((method, EPSILON) for method in METHODS)
QUIET = tuple((method, NOISELESS) for method in NOISELESS_METHODS)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sizes", nargs="+", type=int, choices=ROWS_PER_SUBJECT, help="N; default: all")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--replications", type=int, help="data sets per cell; default 30")
    parser.add_argument("--noiseless", type=int, help="data sets per cell that are made without noise too; default 10")
    parser.add_argument("--judge", choices=JUDGE_NAMES, default="paper", help="whose figures the page shows")


def check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Fill in defaults: small ones of a quick run."""
    sizes = list(ROWS_PER_SUBJECT)
    options.sizes = options.sizes or (sizes[:1] if options.quick else sizes)
    if options.replications is None:
        options.replications = 1 if options.quick else 30
    if options.noiseless is None:
        options.noiseless = 1 if options.quick else 10
    if options.replications < 1 or options.noiseless < 0:
        parser.error("replications and jobs are at least 1, noiseless at least 0")


def run(options: argparse.Namespace) -> Measured:
    """Compute what is missing."""
    settings, folder = Settings(SMALL_DESIGN if options.quick else {}), options.places.results
    cells = list_cells(options.models, options.sizes)
    tasks = list_tasks(dict.fromkeys(cells, YARDSTICKS + NOISY), range(options.replications), settings, folder)
    quiet = list_tasks(dict.fromkeys(cells, QUIET), range(options.noiseless), settings, folder)
    options.console.print(f"{len(tasks)} data sets with noise and {len(quiet)} without are not finished yet")
    for left in (tasks, quiet):
        run_tasks(left, settings, folder, backend=options.backend, jobs=options.jobs)
    said = {"judge": options.judge, "small_design": options.quick, "models": options.models, "sizes": options.sizes}
    found = [c for c in read_cells(folder) if c.cell in cells]
    return said, {"seconds": sum(entry.seconds for c in found for row in c.rows for entry in row.entries.values())}


def present(record: Record, places: Places) -> list[Table]:
    """The page `missing.md`."""
    said = record.settings
    cells = list_cells(said["models"], said["sizes"])
    found = [c for c in read_cells(places.results) if c.cell in cells]
    settings = Settings(SMALL_DESIGN if said["small_design"] else {})
    page = render(found, read_tables(), said["judge"], settings, record.describe(record.results["seconds"]))
    write_text(places.pages / "missing.md", page)
    return []


def list_cells(models: Sequence[Model], sizes: Sequence[int]) -> list[Cell]:
    return [Cell(model, case, n) for model in models for case in CASES for n in sizes]
