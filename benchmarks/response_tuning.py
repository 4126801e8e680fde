"""Constants that matter to a rare response, on generated tables. `python -m benchmarks response_tuning [--part NAME]`.

Area under the curve of gradient boosting that is trained on synthetic rows, and of the fitted model's own conditional
chances, both on people who were held out. Tables like a web shop's and a lender's (`benchmarks/generated_responses.py`)
of 8,000 to 16,000 people, four parties, 30 % of each missing at random but the last's, (3, 1e-6) per person. No
constant was chosen on these seeds, and no real table is used.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Mapping
from statistics import mean, stdev
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.coded_studies import simulate_opening
from benchmarks.generated_responses import generate_responses
from benchmarks.public_cells import AREA_BUDGET, MISSING
from benchmarks.public_gaps import lose_blocks
from benchmarks.public_mixed import MixedTable, model_areas
from benchmarks.public_tables import cut_columns
from benchmarks.tilted_tuning import changed
from reporting.catalogue import Measured, Places
from reporting.parallel import run_all
from reporting.records import Record
from reporting.tables import Table
from verticopula.privacy.gaussian_dp import mu_of
from verticopula.simulate.strict_openings import pool_codes
from verticopula.stats.tilting.opening_plan import CodedColumn
from verticopula.stats.tilting.tilted_model import TiltedCopula, decode_rows

Ints = NDArray[np.int64]
SEEDS = tuple(range(1100, 1116))
HELD_OUT = 0.3
PARTIES = 4

CHANGES: Mapping[str, Mapping[str, Any]] = {
    "as it is": {},
    "margins_share 0.1, tables_share 0.65": {"margins_share": 0.1, "tables_share": 0.65},
    "margins_share 0.3, tables_share 0.5": {"margins_share": 0.3, "tables_share": 0.5},
    "tables_share 0.7": {"tables_share": 0.7},
    "own_part 0.1": {"own_part": 0.1},
    "smooth_length 1": {"smooth_length": 1.0},
    "response_weight 9": {"response_weight": 9.0},
    "most_cells 8": {"most_cells": 8},
}
PARTS = tuple(CHANGES)


def split_people(n: int, seed: int) -> tuple[Ints, Ints]:
    """Those held out, and those in the study."""
    order = np.random.default_rng([seed, 1]).permutation(n)
    held_out, study = np.split(order, [int(HELD_OUT * n)])
    return held_out, np.sort(study)


def measure_one(seed: int, values: Mapping[str, Any]) -> tuple[float, float]:
    """Areas of the boosted model and of the fitted model's own chances, in one study."""
    n = int(np.random.default_rng(seed).integers(8_000, 16_001) / (1.0 - HELD_OUT))
    table = generate_responses(seed, n)
    coded = [
        CodedColumn(c.n_cells, c.ordered or c.n_cells <= 2, party, c.may_be_empty)
        for c, party in zip(table.columns, cut_columns(len(table.columns), PARTIES), strict=True)
    ]
    test, study = split_people(n, seed)
    held = lose_blocks(table.codes[study], coded, MISSING, np.random.default_rng([seed, 7]))
    rng, (epsilon, delta) = np.random.default_rng(seed), AREA_BUDGET
    with changed(values):
        opened = simulate_opening(held, coded, mu_of(epsilon, delta), rng=rng, response=len(coded) - 1)
        fit = opened.fit(len(study), rng=rng)
    codes, inside = decode_rows(fit.model, fit.rows, rng)
    rows = np.column_stack([c.decode(codes[:, j], inside[:, j]) for j, c in enumerate(table.columns)])
    _, boosted = model_areas(table, rows, table.numbers[test])
    return boosted, own_area(table, fit.model, test)


def own_area(table: MixedTable, model: TiltedCopula, people: Ints) -> float:
    """The area of the model's own log odds: a class has no latent, so they are sums of its tables' theta."""
    response, pooled = len(table.columns) - 1, pool_codes(table.codes[people], model.columns)
    odds = np.zeros(people.size)
    for (a, b), theta in model.tables.items():
        if b == response:  # the last column is nobody's first
            odds += (theta[:, 1] - theta[:, 0])[pooled[:, a]]
    return float(roc_auc_score(table.codes[people, response], odds))


def measure_seed(seed: int, names: tuple[str, ...]) -> tuple[int, dict[str, tuple[float, float]]]:
    """The seed, and name -> areas."""
    return seed, {name: measure_one(seed, CHANGES[name]) for name in names}


def run(options: Namespace) -> Measured:
    """All changes, or those named; the others are kept from the last results."""
    seeds = SEEDS[:1] if options.quick else SEEDS
    names = tuple(options.parts[:2] if options.quick else options.parts)
    calls = run_all(measure_seed, list(seeds), names, label="tables", backend=options.backend, jobs=options.jobs)
    found = dict(calls)
    results: dict[str, Any] = dict(options.kept.results)
    for name in names:
        results[name] = [list(found[seed][name]) for seed in seeds]
    epsilon, delta = AREA_BUDGET
    return {"epsilon": epsilon, "delta": delta, "unit": "person", "seeds": list(seeds)}, results


def present(record: Record, places: Places) -> list[Table]:
    """Mean areas, and differences to the constants as they are with their standard errors."""
    rows = []
    for name, areas in record.results.items():
        own = [f"{mean(area[k] for area in areas):.4f}" for k in range(2)]
        against = [_difference(areas, record.results.get("as it is", areas), k) for k in range(2)]
        rows.append((name, own[0], against[0], own[1], against[1]))
    title = f"Areas on people held out, ({record.settings['epsilon']:g}, {record.settings['delta']:g}) per person"
    return [Table(title, ("constant", "boosting", "to as it is", "own chances", "to as it is"), rows)]


def _difference(areas: list[list[float]], base: list[list[float]], k: int) -> str:
    both = [one[k] - other[k] for one, other in zip(areas, base, strict=False)]
    error = stdev(both) / math.sqrt(len(both)) if len(both) > 1 else 0.0
    return f"{mean(both):+.4f} ± {error:.4f}"
