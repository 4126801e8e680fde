"""Forecasts of strict studies against whole ones: parties, secret sharing, cryptographic noise, fit.

`python -m benchmarks forecast_strict [--quick]`. MuBound is what a strict study uses: the root mean square error of its
latent correlations, and the mean Kolmogorov distance of its margins. One truth per design, and the forecast is told
what `forecast` is told (`forecast_designs.facts_of`). The designs were not used for anything else.
"""

from __future__ import annotations

import time
from argparse import Namespace
from typing import Any

import numpy as np

from benchmarks.forecast import DELTA, describe, distance
from benchmarks.forecast_designs import Design, Truth, draw_tables, draw_truth, facts_of
from reporting.catalogue import Measured, Places
from reporting.records import Record
from reporting.tables import Table
from verticopula import Synthesizer
from verticopula.forecasting.forecast import forecast

STRICT = "strict"
PARTIES = ("bcck", "ccol", "cbhc")
DESIGNS = (
    Design("sa", 20_000, PARTIES, 1.0, "person", "factor", 0.3),
    Design("sb", 20_000, PARTIES, 1.0, "block", "dense", 0.25, (0.0, 0.2, 0.4), "mcar"),
)
REPLICATIONS = 8


def measure(design: Design, truth: Truth, replications: int) -> dict[str, float]:
    """Errors of whole studies; people and noise are drawn anew."""
    free = np.triu(~truth.layout.nominal_blocks(), 1)
    squares, margins = [], []
    for seed in range(replications):
        tables = draw_tables(design, truth, np.random.default_rng([seed, 41]))
        study = Synthesizer(truth.federation, method=STRICT, unit=design.unit, epsilon=design.epsilon, delta=DELTA)
        copula = study.fit(tables).result_.copula
        squares.append(float(np.mean((copula.correlation - truth.correlation)[free] ** 2)))
        margins.append(float(np.mean([distance(truth, key, m) for key, m in copula.margins.items()])))
    found = np.array(squares)
    error = float(np.sqrt(found.mean()))
    spread = float(found.std(ddof=1) / np.sqrt(found.size) / (2.0 * found.mean()))
    return {"correlations": error, "correlations_se": error * spread, "margins": float(np.mean(margins))}


def compare(design: Design, replications: int) -> dict[str, Any]:
    """Measured and forecast figures of a design."""
    truth = draw_truth(design)
    start = time.process_time()
    made = forecast(
        truth.federation,
        design.n_subjects,
        design.epsilon,
        delta=DELTA,
        units=(design.unit,),
        methods=(STRICT,),
        observed=design.observed,
        **facts_of(design, truth),
    ).rows[0]
    seconds = time.process_time() - start
    return {
        "design": describe(design),
        "replications": replications,
        "forecast_seconds": seconds,
        "forecast": {"correlations": made.after, "low": made.low, "high": made.high, "margins": made.margins},
        "measured": measure(design, truth, replications),
    }


def run(options: Namespace) -> Measured:
    """All designs; a quick run has two replications of the first."""
    designs, replications = (DESIGNS[:1], 2) if options.quick else (DESIGNS, REPLICATIONS)
    return {"replications": replications}, {design.name: compare(design, replications) for design in designs}


def present(record: Record, places: Places) -> list[Table]:
    """Measured figures beside forecast ones."""
    header = ("", "design", "measured (s.e.)", "forecast", "8 of 10 truths", "ratio", "margins", "forecast", "ratio")
    rows = []
    for name, one in record.results.items():
        measured, made = one["measured"], one["forecast"]
        rows.append(
            (
                name,
                one["design"],
                f"{measured['correlations']:.4f} ({measured['correlations_se']:.4f})",
                f"{made['correlations']:.4f}",
                f"{made['low']:.4f} to {made['high']:.4f}",
                f"{made['correlations'] / measured['correlations']:.2f}",
                f"{measured['margins']:.4f}",
                f"{made['margins']:.4f}",
                f"{made['margins'] / measured['margins']:.2f}",
            )
        )
    return [Table("Strict studies: error of the correlations used, and of margins", header, rows)]
