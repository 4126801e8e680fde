"""`python -m experiments theory`: runs the checks and writes `theory.html` and `theory/*.csv`."""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from joblib import delayed
from rich.console import Console
from threadpoolctl import threadpool_limits

from experiments.provenance import describe_run
from experiments.runner import BACKENDS, call_in_parallel
from experiments.store import write_text
from experiments.theory import theorem1, theorem2, theorem3, theorems89, theorems567
from experiments.theory.findings import Check, from_dict, to_dict
from experiments.theory.page import name_verdict, render, to_csv, verdicts_to_csv

Run = Callable[..., Check | list[Check]]
GROUPS: Mapping[str, Run] = {
    "1": theorem1.run,
    "2": theorem2.run,
    "3": theorem3.run,
    "5": theorems567.run_vcds,
    "6-7": theorems567.run_at_random,
    "8": partial(theorems89.run, private=False),
    "9": partial(theorems89.run, private=True),
}


def parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m experiments theory", description=__doc__)
    parser.add_argument("theorems", nargs="*", metavar="theorem", help=f"of {', '.join(GROUPS)}; default: all")
    parser.add_argument("--smoke", action="store_true", help="seconds instead of minutes: to see that all runs")
    parser.add_argument("--backend", choices=BACKENDS, default="loky", help="of joblib")
    parser.add_argument("--jobs", type=int, default=1, help="processes, one theorem each")
    parser.add_argument("--out", type=Path, default=Path("experiments-out"), help="a folder")
    options = parser.parse_args(argv)
    for name in options.theorems:
        if name not in GROUPS:
            parser.error(f"unknown theorem {name!r}; known: {', '.join(GROUPS)}")
    return options


def run_group(name: str, smoke: bool) -> tuple[str, list[Check], float]:
    """One group's checks, and the processor time they took."""
    began = time.process_time()
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = GROUPS[name](smoke=smoke)
    return name, found if isinstance(found, list) else [found], time.process_time() - began


def keep(folder: Path, name: str, smoke: bool, checks: Sequence[Check], seconds: float) -> None:
    """A group's checks in a file of their own, so that a later run of other groups has them on its page too."""
    kept = {"smoke": smoke, "seconds": round(seconds, 1), "checks": [to_dict(check) for check in checks]}
    write_text(folder / "theory" / "checks" / f"{name}.json", json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def read_kept(folder: Path, smoke: bool) -> tuple[list[Check], float]:
    """All groups of that size that the folder has, in order, and the processor time behind them."""
    checks, seconds = [], 0.0
    for name in GROUPS:
        path = folder / "theory" / "checks" / f"{name}.json"
        if path.exists() and (kept := json.loads(path.read_text(encoding="utf-8")))["smoke"] == smoke:
            checks += [from_dict(raw) for raw in kept["checks"]]
            seconds += kept["seconds"]
    return checks, seconds


def main(argv: Sequence[str], console: Console) -> int:
    options = parse(argv)
    chosen = [name for name in GROUPS if not options.theorems or name in options.theorems]
    calls = (delayed(run_group)(name, options.smoke) for name in chosen)
    for name, found, spent in call_in_parallel(calls, options.backend, options.jobs):
        keep(options.out, name, options.smoke, found, spent)
        console.print(f"theorem {name}: {spent:.0f} s", highlight=False)
    checks, seconds = read_kept(options.out, options.smoke)
    for check in checks:
        for verdict in check.verdicts:
            line = f"{check.theorem}: {name_verdict(verdict)}: {verdict.predicts} | {verdict.measured}"
            console.print(line, markup=False, highlight=False)
    command = "python -m experiments theory" + (" --smoke" if options.smoke else "")
    write_text(options.out / "theory.html", render(checks, describe_run(command, seconds)))
    write_text(options.out / "theory" / "points.csv", to_csv(checks))
    write_text(options.out / "theory" / "verdicts.csv", verdicts_to_csv(checks))
    console.print(f"written to {options.out}/: theory.html, theory/points.csv, theory/verdicts.csv")
    return 0
