"""Constants of the tilted copula on generated tables. `python -m benchmarks tilted_tuning [--part NAME ...]`.

Mean total variation distance of 100 random 3-way marginals between generated and synthetic rows, and seconds of
processor time of fit and rows, with one constant changed at a time. Two parties, everybody is known to both,
delta = 1e-5 per person; openings are simulated in one process with the protocol's noise. The tables are drawn by
`benchmarks/generated_tables.py`; no page reports their seeds, and no real table is used.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from statistics import mean
from typing import Any

import numpy as np

from benchmarks.coded_studies import simulate_opening
from benchmarks.generated_tables import FAMILIES, GeneratedTable, generate_table
from benchmarks.public_tables import total_variation
from reporting.catalogue import Measured, Places
from reporting.parallel import run_all
from reporting.records import Record
from reporting.tables import Table
from verticopula.privacy.gaussian_dp import mu_of
from verticopula.stats.tilting.tilted_fit import count_fitted_rows, draw_rows
from verticopula.stats.tilting.tilted_model import decode_rows
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING

EPSILONS = (0.8, 3.2)
DELTA = 1e-5
SEEDS = (100, 101)
MARGINALS = 100

CHANGES: Mapping[str, Mapping[str, Any]] = {
    "as it is": {},
    "fitted_rows 20,000": {"fitted_rows": (20_000, 20_000)},
    "fitted_rows 60,000": {"fitted_rows": (60_000, 60_000)},
    "fresh_sweeps 8": {"fresh_sweeps": 8},
    "fresh_sweeps 30": {"fresh_sweeps": 30},
    "sweeps 3 x 8": {"sweeps": (8, 8, 8)},
    "sweeps 4 x 24": {"sweeps": (24,) * 4},
    "enough_gain 0.9": {"enough_gain": 0.9},
    "enough_gain 0.98": {"enough_gain": 0.98},
    "most_explained 0": {"most_explained": 1e-9},
    "most_explained 0.25": {"most_explained": 0.25},
    "calibration_step 0": {"calibration_step": 0.0},
    "calibration_step 2": {"calibration_step": 2.0},
    "smooth_length 0.25": {"smooth_length": 0.25},
    "smooth_length 1": {"smooth_length": 1.0},
    "tables_share 0.4": {"tables_share": 0.4},
    "tables_share 0.65": {"tables_share": 0.65},
    "margins_share 0.1": {"margins_share": 0.1},
    "margins_share 0.3": {"margins_share": 0.3},
    "nominal_weight 0.5": {"nominal_weight": 0.5},
    "nominal_weight 2": {"nominal_weight": 2.0},
    "shape_weight 0.15": {"shape_weight": 0.15},
    "shape_weight 0.6": {"shape_weight": 0.6},
}
PARTS = tuple(CHANGES)


@contextmanager
def changed(values: Mapping[str, Any]) -> Iterator[None]:
    """Constants with other values, everywhere in this process."""
    before = {name: getattr(TILTED_TUNING, name) for name in values}
    try:
        for name, value in values.items():
            object.__setattr__(TILTED_TUNING, name, value)
        yield
    finally:
        for name, value in before.items():
            object.__setattr__(TILTED_TUNING, name, value)


def measure_one(
    table: GeneratedTable, epsilon: float, seed: int, values: Mapping[str, Any], ways: int = 3
) -> tuple[float, float]:
    """(distance, seconds) of one study."""
    n, rng = len(table.codes), np.random.default_rng(seed)
    with changed(values):
        opened = simulate_opening(table.codes, table.coded(), mu_of(epsilon, DELTA), rng=rng)
        start = time.process_time()
        fit = opened.fit(count_fitted_rows(n, table.codes.shape[1]), rng=rng)
        rows = draw_rows(fit.model, fit.targets, n, rng=rng)
        seconds = time.process_time() - start
        cells, _ = decode_rows(fit.model, rows, rng)
    return total_variation(table.codes, cells, table.sizes, ways, MARGINALS), seconds


def measure_family(
    task: tuple[str, bool, int], names: tuple[str, ...]
) -> tuple[tuple[str, bool, int], dict[str, list[list[float]]]]:
    """The task (family, whether binary, seed), and name -> [distance, seconds] for every epsilon."""
    family, binary, seed = task
    table = generate_table(family, binary=binary, seed=seed)
    found = {name: [list(measure_one(table, epsilon, seed, CHANGES[name])) for epsilon in EPSILONS] for name in names}
    return task, found


def run(options: Namespace) -> Measured:
    """All changes, or those named, on all families; the others are kept from the last results."""
    seeds = SEEDS[:1] if options.quick else SEEDS
    tasks = [
        (family, binary, seed)
        for family in (list(FAMILIES)[:1] if options.quick else FAMILIES)
        for binary in (False, True)
        for seed in seeds
    ]
    names = tuple(options.parts[:2] if options.quick else options.parts)
    calls = run_all(measure_family, tasks, names, label="tables", backend=options.backend, jobs=options.jobs)
    found = dict(calls)
    results: dict[str, Any] = dict(options.kept.results)
    for name in names:
        results[name] = {}
        for task in tasks:
            family, binary, _ = task
            results[name].setdefault(f"{family}, {'binary' if binary else 'mixed'}", []).append(found[task][name])
    return {"delta": DELTA, "unit": "person", "epsilons": list(EPSILONS), "seeds": list(seeds)}, results


def present(record: Record, places: Places) -> list[Table]:
    """Mean distances by family and constant."""
    families = list(next(iter(record.results.values())))
    tables = []
    for place, epsilon in enumerate(record.settings["epsilons"]):
        rows = [
            (
                name,
                *(f"{mean(run[place][0] for run in found[family]):.4f}" for family in families),
                f"{mean(mean(run[place][0] for run in found[family]) for family in families):.4f}",
                f"{mean(mean(run[place][1] for run in found[family]) for family in families):.1f}",
            )
            for name, found in record.results.items()
        ]
        title = f"Mean total variation distance of 3-way marginals, ({epsilon:g}, {DELTA:g}) per person"
        tables.append(Table(title, ("constant", *families, "mean", "s"), rows))
    return tables
