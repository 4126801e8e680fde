"""Forecasts against measurements, on ten designs that nothing was tuned to (`forecast_designs.HELD_OUT`).

MuBound is the root mean square error of the latent correlations *before shrinkage*, by the method that the
documentation recommends for such data (VCDS; the refinement where blocks are missing at random). The forecast is
told roughly what somebody who plans a study can say (`forecast_designs.facts_of`); what it says of the schema
alone stands beside it. One truth per design: the forecast is of a typical one.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast_designs import (
    DEVELOPMENT,
    HELD_OUT,
    TUNING,
    Design,
    Truth,
    draw_tables,
    draw_truth,
    facts_of,
    true_cdf,
)
from reporting.catalogue import Measured, Places
from reporting.records import Record
from reporting.tables import Table
from verticopula.data.tables import align_tables
from verticopula.forecasting.forecast import forecast
from verticopula.privacy.budget import StudyBudget
from verticopula.privacy.noise import SeededNoise
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.party.release_control import ReleaseControl
from verticopula.protocol.shared_rounds import collect
from verticopula.schema.columns import ColumnKey
from verticopula.stats.margin_cells import from_unit
from verticopula.stats.margin_curves import apply_curves
from verticopula.stats.marginals import Marginal
from verticopula.stats.pairwise import correlate_pairs, shrink_and_repair
from verticopula.stats.refined_method import correlate_latents
from verticopula.stats.refinement import refine
from verticopula.transport.delivery import drive
from verticopula.transport.in_process_transport import InProcessTransport

METHODS = ("vcds", "refined")
PARTS = tuple(design.name for design in (*DEVELOPMENT, *HELD_OUT))
TARGET = 0.2
PRECISION = 0.04  # wanted relative standard error of a measured error
REPLICATIONS = (4, 60)
DELTA = 1e-6

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """What one method made of one study: correlations before and after shrinkage, margins."""

    before: Floats
    after: Floats
    margins: Mapping[ColumnKey, Marginal]


def fit_both(design: Design, truth: Truth, seed: int, study: str = "forecast", stream: int = 17) -> dict[str, Fit]:
    """Both methods on the same releases, as the parties make them; `study` and `stream` go into the seeds."""
    aligned = align_tables(truth.federation, draw_tables(design, truth, np.random.default_rng([seed, stream])))
    request = StudyBudget.build(truth.federation, unit=design.unit, epsilon=design.epsilon, delta=DELTA)
    parties = {
        name: LocalParty(ReleaseControl(table, SeededNoise(seed).derive(name))) for name, table in aligned.items()
    }
    rounds = collect(truth.federation, request, study, "refined")
    released = drive(rounds, InProcessTransport(parties)).release
    pairs = correlate_pairs(released)
    refinement = refine(released)
    corrected = apply_curves(released.layout, released.margins, refinement.curves)
    refined = correlate_latents(released, refinement, corrected)
    return {
        "vcds": Fit(pairs.correlation, shrink_and_repair(pairs, released.margins)[0], released.margins),
        "refined": Fit(refined.correlation, shrink_and_repair(refined, corrected)[0], corrected),
    }


def measure(design: Design, truth: Truth) -> tuple[int, dict[str, dict[str, float]]]:
    """(replications, errors of real fits): the truth stays, samples and noise are drawn anew until it is precise."""
    free = np.triu(~truth.layout.nominal_blocks(), 1)
    squares: dict[str, list[tuple[float, float, float]]] = {method: [] for method in METHODS}
    fewest, most = REPLICATIONS
    for seed in range(most):
        for method, fit in fit_both(design, truth, seed).items():
            before, after = (float(np.mean((m - truth.correlation)[free] ** 2)) for m in (fit.before, fit.after))
            margins = float(np.mean([distance(truth, key, m) for key, m in fit.margins.items()]))
            squares[method].append((before, after, margins))
        if seed + 1 >= fewest and _standard_error(squares[design.method]) < PRECISION:
            break
    found = {}
    for method, rows in squares.items():
        before, after, margins = np.array(rows).T
        found[method] = {
            "before": float(np.sqrt(before.mean())),
            "before_se": float(np.sqrt(before.mean())) * _standard_error(rows),
            "after": float(np.sqrt(after.mean())),
            "margins": float(margins.mean()),
        }
    return len(squares[design.method]), found


def _standard_error(rows: Sequence[tuple[float, float, float]]) -> float:
    """Of the root of a mean square, relative to it."""
    before = np.array(rows)[:, 0]
    return float(before.std(ddof=1) / np.sqrt(before.size) / (2.0 * before.mean()))


def distance(truth: Truth, key: ColumnKey, margin: Marginal) -> float:
    """Kolmogorov distance of a margin to the truth; of two shares for a nominal column."""
    column, true_margin = truth.federation.column(key), truth.margins[key]
    if column.kind == "nominal":
        return float(np.max(np.abs(margin.probabilities - true_margin)))
    points = from_unit(np.linspace(0, 1, 1001), column) if column.kind == "continuous" else margin.upper_ends()
    return float(np.max(np.abs(margin.cdf(points) - true_cdf(column, true_margin, points))))


def predict(design: Design, facts: Mapping[str, Any] | None = None) -> dict[str, dict[str, float]]:
    """The forecast's figures: from the schema and the shares observed, and from what else is said."""
    made = forecast(
        design.federation(),
        design.n_subjects,
        design.epsilon,
        units=(design.unit,),
        methods=METHODS,
        observed=design.observed,
        **(facts if facts is not None else {"log_odds": float(design.mechanism == "mar")}),
    )
    names = ("before", "after", "margins", "low", "high")
    return {m: {name: getattr(made.row(m, design.unit), name) for name in names} for m in METHODS}


def compare(design: Design) -> dict[str, Any]:
    """Measured and forecast figures of a design."""
    truth = draw_truth(design)
    free = np.triu(~truth.layout.nominal_blocks(), 1)
    facts = facts_of(design, truth)
    start = time.process_time()
    forecasts = predict(design, facts)
    seconds = time.process_time() - start
    replications, measured = measure(design, truth)
    return {
        "design": describe(design),
        "held_out": design in HELD_OUT,
        "strength": float(np.sqrt(np.mean(truth.correlation[free] ** 2))),
        "told": {
            "strength": facts["typical_correlation"],
            "at_random": facts["log_odds"],
            "shares": {str(key): list(shares) for key, shares in facts["shares"].items()},
            "together": {f"{a}+{b}": share for (a, b), share in facts.get("together", {}).items()},
        },
        "recommended": design.method,
        "replications": replications,
        "forecast_seconds": seconds,
        "forecast": forecasts,
        "forecast_of_schema_alone": predict(design),
        "measured": measured,
    }


def describe(design: Design) -> str:
    """One line about a design."""
    missing = f"{design.mechanism.upper()} up to {max(design.missing):.0%}" if design.missing else "complete"
    return (
        f"N = {design.n_subjects:,}, {design.n_columns} columns, {len(design.parties)} parties, {missing}, "
        f"ε = {design.epsilon:g} per {design.unit}, {design.truth}"
    )


def tabulate(found: Mapping[str, Any]) -> list[Table]:
    """The judged table, the same of the designs that judge nothing any more, and the other figures."""
    header = ("", "design", "method", "measured (s.e.)", "forecast", "8 of 10 truths", "ratio", "within 20 %")
    tables = []
    for title, held_out in (("held out (judged)", True), ("development", False)):
        rows = []
        for name, one in found.items():
            if one["held_out"] is held_out:
                measured, made = one["measured"][one["recommended"]], one["forecast"][one["recommended"]]
                ratio = made["before"] / measured["before"]
                error = f"{measured['before']:.4f} ({measured['before_se']:.4f})"
                span = f"{made['low']:.4f} to {made['high']:.4f}"
                inside = "yes" if abs(ratio - 1) <= TARGET else "no"
                figures = (error, f"{made['before']:.4f}", span, f"{ratio:.2f}", inside)
                rows.append((name, one["design"], one["recommended"], *figures))
        tables.append(Table(f"Correlation error before shrinkage, recommended method: {title}", header, tuple(rows)))
    others = []
    for name, one in found.items():
        for method in METHODS:
            measured, told, alone = (one[k][method] for k in ("measured", "forecast", "forecast_of_schema_alone"))
            ratios = (
                *(made["before"] / measured["before"] for made in (told, alone)),
                *(made["after"] / measured["after"] for made in (told, alone)),
                *(made["margins"] / measured["margins"] for made in (told, alone)),
            )
            others.append((name, method, f"{one['strength']:.2f}", *(f"{ratio:.2f}" for ratio in ratios)))
    names = [f"{figure}: {kind}" for figure in ("before", "after", "margins") for kind in ("told", "schema alone")]
    return [*tables, Table("Ratios, both methods", ("", "method", "true strength", *names), tuple(others))]


def run(options: Namespace) -> Measured:
    """Measure all designs, or some of them; a quick run looks at two tuning designs instead.

    The designs that judge nothing any more are measured too: what has been mended must stay so.
    """
    found = dict(options.kept.results)
    for design in TUNING[:2] if options.quick else (*DEVELOPMENT, *HELD_OUT):
        if options.quick or design.name in options.parts:
            found[design.name] = compare(design)
    settings = {"wanted_relative_error": PRECISION, "fewest_and_most_replications": REPLICATIONS}
    return settings, dict(sorted(found.items()))


def present(record: Record, places: Places) -> list[Table]:
    """The judged table and the others."""
    return tabulate(record.results)
