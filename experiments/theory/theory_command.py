"""What each theorem predicts, what simulation gives, and whether they agree by the rule beside it."""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from threadpoolctl import threadpool_limits

from experiments.theory import corollaries12, theorem1, theorem2, theorem3, theorems89, theorems567
from experiments.theory.theory_findings import Check, from_dict, to_dict
from experiments.theory.theory_page import name_verdict, points_to_csv, render, verdicts_to_csv
from reporting.catalogue import Measured, Places
from reporting.parallel import run_all
from reporting.records import Record, write_text
from reporting.tables import Table

Run = Callable[..., Check | list[Check]]
GROUPS: Mapping[str, Run] = {
    "1": theorem1.run,
    "c1-c2": corollaries12.run,
    "2": theorem2.run,
    "3": theorem3.run,
    "5": theorems567.run_vcds,
    "6-7": theorems567.run_at_random,
    "8": partial(theorems89.run, private=False),
    "9": partial(theorems89.run, private=True),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("theorems", nargs="*", metavar="theorem", help=f"of {', '.join(GROUPS)}; default: all")


def check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Refuse theorems that are not there."""
    for name in options.theorems:
        if name not in GROUPS:
            parser.error(f"unknown theorem {name!r}; known: {', '.join(GROUPS)}")


def run_group(name: str, quick: bool) -> tuple[str, list[Check], float]:
    """One group's checks, and the processor time they took."""
    began = time.process_time()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = GROUPS[name](quick=quick)
    return name, found if isinstance(found, list) else [found], time.process_time() - began


def keep(folder: Path, name: str, quick: bool, checks: Sequence[Check], seconds: float) -> None:
    """A group's checks in a file of their own, so that a later run of other groups has them on its page too."""
    results = {"seconds": round(seconds, 1), "checks": [to_dict(check) for check in checks]}
    Record(name, {"quick": quick}, results).save(folder / "theory" / "checks" / f"{name}.json")


def read_kept(folder: Path, quick: bool) -> tuple[list[Check], float]:
    """All groups of that size that the folder has, in order, and the processor time behind them."""
    checks, seconds = [], 0.0
    for name in GROUPS:
        path = folder / "theory" / "checks" / f"{name}.json"
        if path.exists() and (kept := Record.read(path)).settings["quick"] == quick:
            checks += [from_dict(raw) for raw in kept.results["checks"]]
            seconds += kept.results["seconds"]
    return checks, seconds


def run(options: argparse.Namespace) -> Measured:
    """Check the theorems that were asked for, one process each."""
    chosen = [name for name in GROUPS if not options.theorems or name in options.theorems]
    answers = run_all(run_group, chosen, options.quick, label="theorems", backend=options.backend, jobs=options.jobs)
    for name, found, seconds in answers:
        keep(options.places.results, name, options.quick, found, seconds)
    return {"quick": options.quick}, {"seconds": read_kept(options.places.results, options.quick)[1]}


def present(record: Record, places: Places) -> list[Table]:
    """The page `theory.html`, all points and verdicts as CSV, and the verdicts as a table."""
    checks, seconds = read_kept(places.results, record.settings["quick"])
    write_text(places.pages / "theory.html", render(checks, record.describe(seconds)))
    write_text(places.results / "theory" / "points.csv", points_to_csv(checks))
    write_text(places.results / "theory" / "verdicts.csv", verdicts_to_csv(checks))
    rows = [(c.theorem, name_verdict(v), v.predicts, v.measured) for c in checks for v in c.verdicts]
    return [Table("predictions", ("theorem", "verdict", "predicted", "measured"), rows)]
