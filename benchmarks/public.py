"""`strict` on public tables that nothing was tuned on. `python -m benchmarks public --data FOLDER [--part NAME ...]`.

Mean total variation distance of 200 random marginals between real and synthetic rows. Two parties hold half of the
columns each; everybody is known to both; (epsilon, 1e-5) for a whole person, one person replaced; all noise of three
compute parties is included. Beside it: the same margins with independent columns, which is what `strict` must beat, and
rows drawn from the real ones with replacement, which nothing can beat. The tables are not part of the project.

Models (logistic regression, gradient boosting) are trained on synthetic rows and tested on real ones that took no part:
four parties, 30 % of three parties' blocks missing at random, (3, 1e-6) for a whole person. Numbers have public cells
of their own there (`benchmarks/public_mixed.py`), so openings are simulated in one process, with the protocol's noise.
"""

from __future__ import annotations

import time
import warnings
from argparse import ArgumentParser, Namespace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from benchmarks.coded_studies import simulate_opening
from benchmarks.public_mixed import FILES, MixedTable, lose_blocks, model_areas, read_mixed
from benchmarks.public_tables import CodedTable, read_coded, total_variation
from reporting.catalogue import Measured, Places
from reporting.pages import markdown_page
from reporting.records import Record, write_text
from reporting.tables import Table
from verticopula import Synthesizer
from verticopula.errors import NotPrivateWarning
from verticopula.privacy.gaussian_dp import mu_of
from verticopula.stats.tilting.opening_plan import CodedColumn
from verticopula.stats.tilting.tilted_model import decode_rows

CODED = ("nltcs", "acs", "br2000", "adult")
MODELS = tuple(f"{name}-models" for name in FILES)
PARTS = (*CODED, *MODELS)
EPSILONS = (0.8, 3.2)
DELTA = 1e-5
WAYS = (2, 3, 4)
SEEDS = 3
MODEL_BUDGET = (3.0, 1e-6)
MISSING = 0.3
HELD_OUT = 0.3


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
    models = dict(options.kept.results.get("models", {}))
    for name in options.parts:
        if name in MODELS:
            models[name] = measure_models(read_mixed(options.data, name.removesuffix("-models")), seeds)
        else:
            found[name] = measure_table(read_coded(options.data, name), seeds)
        print(f"{name}: done", flush=True)
    settings = {"delta": DELTA, "unit": "person", "seeds": seeds, "epsilons": list(EPSILONS)}
    return settings, {"tables": found, "models": models}


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


def synthesize_tilted(
    codes: np.ndarray,
    coded: list[CodedColumn],
    epsilon: float,
    delta: float,
    seed: int,
    n_rows: int,
    response: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Synthetic rows of a tilted copula in codes, and positions inside of cells."""
    rng = np.random.default_rng(seed)
    opened = simulate_opening(codes, coded, mu_of(epsilon, delta), rng=rng, response=response)
    fit = opened.fit(n_rows, rng=rng, threads=2)
    return decode_rows(fit.model, fit.rows, rng)


def measure_models(table: MixedTable, seeds: int) -> dict[str, Any]:
    """Areas under the curve by where the training rows come from: one pair over seeds for each."""
    found: dict[str, Any] = {"shape": list(table.codes.shape), "real rows": [], "independent columns": [], "strict": []}
    for seed in range(seeds):
        rng = np.random.default_rng([seed, 1])
        order = rng.permutation(len(table.codes))
        test, train = np.split(order, [int(HELD_OUT * order.size)])
        coded = table.coded()
        held = lose_blocks(table.codes[train], coded, MISSING, rng)
        cells, inside = synthesize_tilted(held, coded, *MODEL_BUDGET, seed, train.size, len(coded) - 1)
        rows = np.column_stack([c.decode(cells[:, j], inside[:, j]) for j, c in enumerate(table.columns)])
        shuffled = np.column_stack([rng.permutation(column) for column in table.numbers[train].T])
        for name, used in (("real rows", table.numbers[train]), ("independent columns", shuffled), ("strict", rows)):
            found[name].append(model_areas(table, used, table.numbers[test]))
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
    title = f"Mean total variation distance, δ = {DELTA:g} per person, mean of {seeds} seeds"
    table = Table(title, header, rows, heads=2)
    assert __doc__ is not None
    about = __doc__.split("\n\n", 1)[1]
    tables = [table, *_model_tables(record)]
    parts = ["Written by `python -m benchmarks public`.", about, *tables]
    write_text(places.pages / "public.md", markdown_page("Strict mode on public tables", parts))
    return tables


def _model_tables(record: Record) -> list[Table]:
    """Areas under the curve, if any were measured."""
    rows = []
    for name, found in record.results.get("models", {}).items():
        n, p = found["shape"]
        for label in ("real rows", "strict", "independent columns"):
            areas = [mean(run[k] for run in found[label]) for k in range(2)]
            real = [mean(run[k] for run in found["real rows"]) for k in range(2)]
            share = "" if label == "real rows" else f"{100.0 * areas[1] / real[1]:.1f} %"
            start = f"{name.removesuffix('-models')}, {n:,} × {p}"
            rows.append((start, label, f"{areas[0]:.4f}", f"{areas[1]:.4f}", share))
    header = ("table", "trained on", "logistic regression", "gradient boosting", "boosting, of real rows")
    title = f"Area under the curve on real rows held out, {MODEL_BUDGET} per person, four parties, blocks missing"
    return [Table(title, header, rows)] if rows else []
