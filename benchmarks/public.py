"""`strict` on public tables that nothing was tuned on. `python -m benchmarks public --data FOLDER [--part NAME ...]`.

Mean total variation distance of 200 random marginals between real and synthetic rows. Two parties hold half of the
columns each; everybody is known to both; (epsilon, 1e-5) for a whole person, one person replaced; all noise of three
compute parties is included. Beside it: the same margins with independent columns, which is what `strict` must beat, and
rows drawn from the real ones with replacement, which nothing can beat. The tables are not part of the project.
"""

from __future__ import annotations

import time
import warnings
from argparse import ArgumentParser, Namespace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from benchmarks.public_tables import CodedTable, read_coded, total_variation
from reporting.catalogue import Measured, Places
from reporting.pages import markdown_page
from reporting.records import Record, write_text
from reporting.tables import Table
from verticopula import Synthesizer
from verticopula.errors import NotPrivateWarning

PARTS = ("nltcs", "acs", "br2000", "adult")
EPSILONS = (0.8, 3.2)
DELTA = 1e-5
WAYS = (2, 3, 4)
SEEDS = 3


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, help="folder with the coded tables (see benchmarks/public_tables.py)")


def check(options: Namespace, parser: ArgumentParser) -> None:
    if options.data is None and not options.page:
        parser.error("--data: which folder has the tables?")
    options.command = options.command.replace(str(options.data), "FOLDER")  # where it lies is nobody's business


def run(options: Namespace) -> Measured:
    """All tables, or those named; the others are kept from the last results."""
    seeds = 1 if options.quick else SEEDS
    found = dict(options.kept.results.get("tables", {}))
    for name in options.parts:
        found[name] = measure_table(read_coded(options.data, name), seeds)
        print(f"{name}: done", flush=True)
    return {"delta": DELTA, "unit": "person", "seeds": seeds, "epsilons": list(EPSILONS)}, {"tables": found}


def measure_table(table: CodedTable, seeds: int) -> dict[str, Any]:
    """Distances by method, epsilon and number of columns: one list over seeds for each."""
    rng = np.random.default_rng(0)
    resampled = table.codes[rng.integers(len(table.codes), size=len(table.codes))]
    shuffled = np.column_stack([rng.permutation(column) for column in table.codes.T])
    floors = {"resampled rows": resampled, "independent columns": shuffled}
    found: dict[str, Any] = {
        "shape": list(table.codes.shape),
        **{name: [total_variation(table.codes, rows, table.sizes, k) for k in WAYS] for name, rows in floors.items()},
    }
    for epsilon in EPSILONS:
        start, runs = time.process_time(), []
        for seed in range(seeds):
            rows = synthesize(table, epsilon, seed)
            runs.append([total_variation(table.codes, rows, table.sizes, k) for k in WAYS])
        found[f"{epsilon:g}"] = {"distances": runs, "seconds": (time.process_time() - start) / seeds}
    return found


def synthesize(table: CodedTable, epsilon: float, seed: int) -> np.ndarray:
    """As many synthetic rows as people, in codes."""
    federation = table.federation()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        fitted = Synthesizer(federation, "strict", epsilon, DELTA, random_state=seed).fit(table.tables(federation))
    rows = fitted.sample(len(table.codes))
    codes = [rows[p.name][c.name].cast(str).cast(int).to_numpy() for p in federation.parties for c in p.columns]
    return np.column_stack(codes).astype(np.int64)


def present(record: Record, places: Places) -> list[Table]:
    """The page `public.md`, and its table."""
    rows = []
    for name, found in record.results["tables"].items():
        n, p = found["shape"]
        start = (f"{name}, {n:,} × {p}",)
        rows += [
            (*start, label, *(f"{value:.4f}" for value in found[label]), "")
            for label in ("independent columns", "resampled rows")
        ]
        for epsilon in record.settings["epsilons"]:
            own = found[f"{epsilon:g}"]
            means = (f"{mean(run[k] for run in own['distances']):.4f}" for k in range(len(WAYS)))
            rows.append((*start, f"strict, ε = {epsilon:g}", *means, f"{own['seconds']:.0f}"))
    header = ("table", "rows from", *(f"{k}-way" for k in WAYS), "s of processor time")
    seeds = record.settings["seeds"]
    table = Table(f"Mean total variation distance, δ = {DELTA:g} per person, mean of {seeds} seeds", header, rows)
    assert __doc__ is not None
    about = __doc__.split("\n\n", 1)[1]
    parts = ["Written by `python -m benchmarks public`.", about, table]
    write_text(places.pages / "public.md", markdown_page("Strict mode on public tables", parts))
    return [table]
