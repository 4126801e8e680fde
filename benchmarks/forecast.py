"""Forecasts against measurements, on ten designs that nothing was tuned to (`forecast_designs.HELD_OUT`).

Judged is the root mean square error of the latent correlations *before shrinkage*, by the method that the
documentation recommends for such data (VCDS; the refinement where blocks are missing at random). What shrinkage leaves
depends on the truth's strength, which a forecast must presume: it is shown with the default and with the true one.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecast_designs import HELD_OUT, TUNING, Design, Truth, draw_tables, draw_truth, true_cdf
from benchmarks.record import Places, Report, Table
from verticopula import Synthesizer, pairwise
from verticopula.forecast import forecast
from verticopula.marginals import from_unit
from verticopula.protocol import refined as refined_protocol
from verticopula.synthesizer import NotPrivateWarning

METHODS = ("vcds", "refined")
TARGET = 0.2
REPLICATIONS = 6

Floats = NDArray[np.float64]


@contextmanager
def record_pairs() -> Iterator[list[Floats]]:
    """The correlations that are handed to shrinkage while this is open."""
    seen: list[Floats] = []
    original = pairwise.finish

    def finish(pairs: pairwise.PairwiseLatents, *rest: Any) -> Any:
        seen.append(pairs.correlation)
        return original(pairs, *rest)

    pairwise.finish = refined_protocol.finish = finish
    try:
        yield seen
    finally:
        pairwise.finish = refined_protocol.finish = original


def measure(design: Design, method: str, replications: int) -> dict[str, float]:
    """Errors of real fits: the truth stays, samples and noise are drawn anew."""
    truth = draw_truth(design)
    free = np.triu(~truth.layout.nominal_blocks(), 1)
    before, after, margins = [], [], []
    for r in range(replications):
        tables = draw_tables(design, truth, np.random.default_rng([r, 17]))
        synthesizer = Synthesizer(truth.federation, method, design.epsilon, None, design.unit, random_state=r)
        with warnings.catch_warnings(), record_pairs() as seen:
            warnings.simplefilter("ignore", NotPrivateWarning)
            synthesizer.fit(tables)
        copula = synthesizer.result_.copula
        before.append(np.mean((seen[-1] - truth.correlation)[free] ** 2))
        after.append(np.mean((copula.correlation - truth.correlation)[free] ** 2))
        margins.append(np.mean([distance(truth, key, copula.marginals[key]) for key in copula.layout.keys]))
    return {
        "before": float(np.sqrt(np.mean(before))),
        "before_se": float(np.std(np.sqrt(before), ddof=1) / np.sqrt(replications)),
        "after": float(np.sqrt(np.mean(after))),
        "margins": float(np.mean(margins)),
    }


def distance(truth: Truth, key: Any, marginal: Any) -> float:
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


def compare(designs: Sequence[Design], replications: int) -> dict[str, Any]:
    """Measured and forecast figures of every design."""
    found = {}
    for design in designs:
        truth = draw_truth(design)
        free = np.triu(~truth.layout.nominal_blocks(), 1)
        strength = float(np.sqrt(np.mean(truth.correlation[free] ** 2)))
        start = time.process_time()
        forecasts = predict(design)
        seconds = time.process_time() - start
        found[design.name] = {
            "design": describe(design),
            "strength": strength,
            "recommended": design.method,
            "measured": {method: measure(design, method, replications) for method in METHODS},
            "forecast": forecasts,
            "forecast_at_true_strength": predict(design, strength),
            "forecast_seconds": seconds,
        }
    return found


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


def run(places: Places, *, quick: bool) -> Report:
    """Measure the held-out designs; a quick run looks at tuning designs instead."""
    designs = TUNING if quick else HELD_OUT
    replications = 4 if quick else REPLICATIONS
    found = compare(designs, replications)
    return Report("forecast", {"replications": replications, "designs": len(designs)}, found, tabulate(found))
