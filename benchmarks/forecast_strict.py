"""Forecasts of strict studies against whole ones: parties, secret sharing, cryptographic noise, fit.

`python -m benchmarks forecast_strict [--quick]`. MuBound is what a strict study uses: the root mean square error of its
latent correlations, and the mean Kolmogorov distance of its margins. One truth per design, and the forecast is told
what `forecast` is told (`forecast_designs.facts_of`). `HELD_OUT` was written before anything was run on it, and the
forecast of strict studies has not been changed since.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Mapping
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
EARLIER = (
    Design("sa", 20_000, PARTIES, 1.0, "person", "factor", 0.3),
    Design("sb", 20_000, PARTIES, 1.0, "block", "dense", 0.25, (0.0, 0.2, 0.4), "mcar"),
)
HELD_OUT = (
    Design("sc", 4_000, ("bcckl", "cconb"), 3.0, "person", "factor", 0.3),
    Design("sd", 6_000, ("bcck", "colc", "cbhm"), 8.0, "person", "general", 0.35),
    Design("se", 10_000, ("bcckol", "cclhbs"), 1.0, "person", "toeplitz", 0.4),
    Design("sf", 15_000, ("bcc", "cko", "clc", "bhs"), 3.0, "person", "blocks", 0.3, (0.0, 0.3, 0.3, 0.3), "mcar"),
    Design("sg", 20_000, ("bcckl", "ccohc", "cbnck"), 3.0, "person", "factor", 0.2, (0.0, 0.2, 0.4), "mar"),
    Design("sh", 30_000, ("bccko", "clchb"), 0.5, "person", "factor", 0.35),
    Design("si", 30_000, ("bcch", "cclo", "ckcs", "cbcl"), 2.0, "block", "dense", 0.2, (0.0, 0.1, 0.3, 0.5), "mcar"),
    Design("sj", 40_000, ("bcckolc", "cchbskc", "lcobckc"), 1.0, "person", "general", 0.3, (0.0, 0.4, 0.2), "mar"),
    Design("sk", 50_000, ("bcckolch", "cclbscok"), 0.3, "person", "sparse", 0.25),
    Design(
        "sl",
        60_000,
        ("bcck", "colc", "cbhc", "lcko", "cscb"),
        3.0,
        "person",
        "toeplitz",
        0.15,
        (0, 0, 0.3, 0.3, 0),
        "mcar",
    ),
)
DESIGNS = (*EARLIER, *HELD_OUT)
PARTS = tuple(design.name for design in DESIGNS)
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
    """All designs, or some of them; a quick run has two replications of the first."""
    found = dict(options.kept.results)
    replications = 2 if options.quick else REPLICATIONS
    for design in DESIGNS[:1] if options.quick else DESIGNS:
        if options.quick or design.name in options.parts:
            found[design.name] = compare(design, replications)
    return {"replications": replications}, dict(sorted(found.items()))


def present(record: Record, places: Places) -> list[Table]:
    """Measured figures beside forecast ones: the designs that judge, and the earlier ones."""
    header = ("", "design", "measured (s.e.)", "forecast", "8 of 10 truths", "ratio", "margins", "forecast", "ratio")
    tables = []
    for title, designs in (("held out (judged)", HELD_OUT), ("seen before", EARLIER)):
        rows = [
            (name, *_describe_errors(record.results[name]))
            for name in (d.name for d in designs)
            if name in record.results
        ]
        tables.append(Table(f"Strict studies: error of the correlations used, and of margins: {title}", header, rows))
    return tables


def _describe_errors(one: Mapping[str, Any]) -> tuple[str, ...]:
    """A row of figures."""
    measured, made = one["measured"], one["forecast"]
    return (
        one["design"],
        f"{measured['correlations']:.4f} ({measured['correlations_se']:.4f})",
        f"{made['correlations']:.4f}",
        f"{made['low']:.4f} to {made['high']:.4f}",
        f"{made['correlations'] / measured['correlations']:.2f}",
        f"{measured['margins']:.4f}",
        f"{made['margins']:.4f}",
        f"{made['margins'] / measured['margins']:.2f}",
    )
