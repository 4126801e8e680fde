"""Forecasts against measurements, on ten designs that nothing was tuned to (`forecast_designs.HELD_OUT`).

Judged is the root mean square error of the latent correlations *before shrinkage*, by the method that the
documentation recommends for such data (VCDS; the refinement where blocks are missing at random). What shrinkage leaves
depends on the truth's strength, which a forecast must presume: it is shown with the default and with the true one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast_designs import HELD_OUT, TUNING, Design, Truth, draw_tables, draw_truth, true_cdf
from benchmarks.record import Places, Report, Table
from verticopula.curves import correct_marginals
from verticopula.forecast import forecast
from verticopula.marginals import Marginal, from_unit
from verticopula.pairwise import correlate_pairs, finish
from verticopula.privacy.budget import BudgetRequest
from verticopula.privacy.noise import SeededNoise
from verticopula.protocol.party import LocalParty
from verticopula.protocol.refined import correlate_latents
from verticopula.protocol.rounds import collect
from verticopula.refine import refine
from verticopula.schema import ColumnKey
from verticopula.tables import align_tables
from verticopula.transport.base import drive
from verticopula.transport.inprocess import InProcessTransport

METHODS = ("vcds", "refined")
PARTS = tuple(design.name for design in HELD_OUT)
TARGET = 0.2
PAIRS = 400  # errors of pairs to average over, at least
REPLICATIONS = (3, 30)
DELTA = 1e-6

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """What one method made of one study: correlations before and after shrinkage, margins."""

    before: Floats
    after: Floats
    marginals: Mapping[ColumnKey, Marginal]


def fit_both(design: Design, truth: Truth, seed: int, study: str = "forecast", stream: int = 17) -> dict[str, Fit]:
    """Both methods on the same releases, as the parties make them; `study` and `stream` go into the seeds."""
    aligned = align_tables(truth.federation, draw_tables(design, truth, np.random.default_rng([seed, stream])))
    request = BudgetRequest.build(truth.federation, unit=design.unit, epsilon=design.epsilon, delta=DELTA)
    parties = {name: LocalParty(table, SeededNoise(seed).derive(name)) for name, table in aligned.items()}
    rounds = collect(truth.federation, request, study, "refined")
    released = drive(rounds, InProcessTransport(parties)).released
    pairs = correlate_pairs(released)
    refinement = refine(released)
    corrected = correct_marginals(released.layout, released.marginals, refinement.curves)
    refined = correlate_latents(released, refinement, corrected)
    return {
        "vcds": Fit(pairs.correlation, finish(pairs, released.marginals)[0], released.marginals),
        "refined": Fit(refined.correlation, finish(refined, corrected)[0], corrected),
    }


def measure(design: Design, replications: int) -> dict[str, dict[str, float]]:
    """Errors of real fits: the truth stays, samples and noise are drawn anew."""
    truth = draw_truth(design)
    free = np.triu(~truth.layout.nominal_blocks(), 1)
    fits = [fit_both(design, truth, seed) for seed in range(replications)]
    found = {}
    for method in METHODS:
        before = np.array([np.mean((fit[method].before - truth.correlation)[free] ** 2) for fit in fits])
        after = [np.mean((fit[method].after - truth.correlation)[free] ** 2) for fit in fits]
        margins = [distance(truth, key, m) for fit in fits for key, m in fit[method].marginals.items()]
        found[method] = {
            "before": float(np.sqrt(np.mean(before))),
            "before_se": float(np.std(np.sqrt(before), ddof=1) / np.sqrt(replications)),
            "after": float(np.sqrt(np.mean(after))),
            "margins": float(np.mean(margins)),
        }
    return found


def distance(truth: Truth, key: ColumnKey, marginal: Marginal) -> float:
    """Kolmogorov distance of a margin to the truth; of two shares for a nominal column."""
    column, margin = truth.federation.column(key), truth.margins[key]
    if column.kind == "nominal":
        return float(np.max(np.abs(marginal.probabilities - margin)))
    points = from_unit(np.linspace(0, 1, 1001), column) if column.kind == "continuous" else marginal.upper_ends()
    return float(np.max(np.abs(marginal.cdf(points) - true_cdf(column, margin, points))))


def predict(design: Design, strength: float | None = None) -> dict[str, dict[str, float]]:
    """The forecast's figures, from what is public of a design (and its true strength, if given)."""
    options = {} if strength is None else {"strength": min(strength, 0.75)}
    made = forecast(
        design.federation(),
        design.n_subjects,
        design.epsilon,
        units=(design.unit,),
        observed=design.observed,
        at_random=design.mechanism == "mar",
        **options,
    )
    return {
        m: {name: getattr(made.row(m, design.unit), name) for name in ("before", "after", "margins")} for m in METHODS
    }


def compare(design: Design) -> dict[str, Any]:
    """Measured and forecast figures of a design; the fewer pairs it has, the more replications."""
    truth = draw_truth(design)
    free = np.triu(~truth.layout.nominal_blocks(), 1)
    strength = float(np.sqrt(np.mean(truth.correlation[free] ** 2)))
    replications = int(np.clip(np.ceil(PAIRS / free.sum()), *REPLICATIONS))
    start = time.process_time()
    forecasts = predict(design)
    return {
        "design": describe(design),
        "strength": strength,
        "recommended": design.method,
        "replications": replications,
        "forecast_seconds": time.process_time() - start,
        "forecast": forecasts,
        "forecast_at_true_strength": predict(design, strength),
        "measured": measure(design, replications),
    }


def describe(design: Design) -> str:
    """One line about a design."""
    missing = f"{design.mechanism.upper()} up to {max(design.missing):.0%}" if design.missing else "complete"
    return (
        f"N = {design.n_subjects:,}, {design.n_columns} columns, {len(design.parties)} parties, {missing}, "
        f"ε = {design.epsilon:g} per {design.unit}, {design.truth}"
    )


def tabulate(found: dict[str, Any]) -> list[Table]:
    """The judged table, and the others."""
    judged, others = [], []
    for name, one in found.items():
        method = one["recommended"]
        measured, expected = one["measured"][method], one["forecast"][method]["before"]
        ratio = expected / measured["before"]
        error = f"{measured['before']:.4f} ({measured['before_se']:.4f})"
        inside = "yes" if abs(ratio - 1) <= TARGET else "no"
        judged.append((name, one["design"], method, error, f"{expected:.4f}", f"{ratio:.2f}", inside))
    for name, one in found.items():
        for method in METHODS:
            measured, default, knowing = (one[k][method] for k in ("measured", "forecast", "forecast_at_true_strength"))
            figures = (measured["after"], default["after"], knowing["after"], measured["margins"], default["margins"])
            ratio = f"{default['before'] / measured['before']:.2f}"
            others.append((name, method, ratio, f"{one['strength']:.2f}", *(f"{figure:.4f}" for figure in figures)))
    header = ("", "design", "method", "measured (s.e.)", "forecast", "ratio", "within 20 %")
    second = ("", "method", "ratio before", "true strength", "after: measured", "forecast", "at true strength")
    return [
        Table("Correlation error before shrinkage, recommended method (judged)", header, tuple(judged)),
        Table("Both methods", (*second, "margins: measured", "forecast"), tuple(others)),
    ]


def run(places: Places, *, quick: bool, parts: Sequence[str] = ()) -> Report:
    """Measure the held-out designs, or some of them; a quick run looks at tuning designs instead."""
    kept = places.results / "forecast.json"
    found = json.loads(kept.read_text(encoding="utf-8"))["results"] if parts and kept.exists() else {}
    for design in TUNING if quick else HELD_OUT:
        if not parts or design.name in parts:
            found[design.name] = compare(design)
            print(f"{design.name}: {describe(design)}", flush=True)
    found = dict(sorted(found.items()))
    settings = {"pairs_wanted": PAIRS, "fewest_and_most_replications": REPLICATIONS, "judged": "before shrinkage"}
    return Report("forecast", settings, found, tabulate(found))
