"""Utility against epsilon and N, at every unit, by VCDS, the refinement and strict; for docs/results/planning.md.

One study: 4 parties with 5 columns each, the others' blocks missing at random for 30 % of the subjects. VCDS and the
refinement are fitted to the same releases; strict is for `block` and `person`. Lines of the forecast of the method for
the unit are drawn beside the measurements.
"""

from __future__ import annotations

import time
import warnings
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from benchmarks.forecast import DELTA, METHODS, distance, fit_both
from benchmarks.forecast_designs import Design, Truth, draw_tables, draw_truth
from reporting.catalogue import Measured, Places
from reporting.figures import COLORS, INK, new_figure, save_png, use_log_axes
from reporting.records import Record
from reporting.tables import Table
from verticopula import Synthesizer
from verticopula.errors import NotPrivateWarning
from verticopula.forecasting.forecast import forecast
from verticopula.schema.units import Unit

STUDY = Design(
    "planning", 4_000, ("bccko", "cclob", "cckbo", "lccbk"), 4.0, "client", "factor", 0.3, (0, 0.3, 0.3, 0.3), "mar"
)
UNITS = tuple(unit.value for unit in Unit)
STRICT = "strict"
MEASURES = {
    "correlation": "root mean square error of the latent correlations",
    "margins": "mean Kolmogorov distance of the margins",
    "regression": "root mean square error of the response's coefficients",
}

Floats = NDArray[np.float64]
Figures = dict[str, dict[str, dict[float, dict[str, float]]]]  # unit -> method -> epsilon or N -> measure -> error


def methods_at(unit: str) -> tuple[str, ...]:
    """Strict is for whole records."""
    return (*METHODS, STRICT) if Unit(unit).needs_delta else METHODS


def _errors(truth: Truth, correlation: Floats, margins: Any) -> dict[str, float]:
    upper = np.triu_indices(correlation.shape[0], 1)
    return {
        "correlation": float(np.sqrt(np.mean((correlation - truth.correlation)[upper] ** 2))),
        "margins": float(np.mean([distance(truth, key, margin) for key, margin in margins.items()])),
        "regression": float(np.sqrt(np.mean((_coefficients(correlation) - _coefficients(truth.correlation)) ** 2))),
    }


def _coefficients(correlation: Floats) -> Floats:
    """Of the response's latent (the first) on all others."""
    return np.asarray(np.linalg.solve(correlation[1:, 1:], correlation[1:, 0]))


def measure(designs: dict[float, Design], replications: int) -> Figures:
    """Mean errors by unit, method and place on the axis."""
    truth = draw_truth(STUDY)
    figures: Figures = {unit: {method: {} for method in methods_at(unit)} for unit in UNITS}
    for unit in UNITS:
        for place, design in designs.items():
            times = 1 if Unit(unit).needs_delta else replications  # there nothing varies much: noise, shrunk to nothing
            fits = [fit_both(replace(design, unit=unit), truth, seed, STUDY.name, 29) for seed in range(times)]
            found = {m: [_errors(truth, fit[m].after, fit[m].margins) for fit in fits] for m in METHODS}
            if Unit(unit).needs_delta:
                found[STRICT] = [_fit_strict(replace(design, unit=unit), truth, seed) for seed in range(replications)]
            for method, errors in found.items():
                figures[unit][method][place] = {name: float(np.mean([e[name] for e in errors])) for name in MEASURES}
    return figures


def _fit_strict(design: Design, truth: Truth, seed: int) -> dict[str, float]:
    tables = draw_tables(design, truth, np.random.default_rng([seed, 29]))
    study = Synthesizer(truth.federation, STRICT, design.epsilon, DELTA, design.unit, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        copula = study.fit(tables).result_.copula
    return _errors(truth, copula.correlation, copula.margins)


def predict(designs: dict[float, Design], strength: float) -> Figures:
    """The forecast's errors for the same studies."""
    figures: Figures = {unit: {method: {} for method in methods_at(unit)} for unit in UNITS}
    for place, design in designs.items():
        made = forecast(
            design.federation(),
            design.n_subjects,
            design.epsilon,
            delta=DELTA,
            methods=(*METHODS, STRICT),
            observed=design.observed,
            pull=1.0,
            strength=strength,
        )
        for row in made.rows:
            figures[row.unit][row.method][place] = {"correlation": row.after, "margins": row.margins}
    return figures


def run(options: Namespace) -> Measured:
    """Errors against epsilon and against N."""
    epsilons = (1.0, 16.0) if options.quick else (0.25, 1.0, 4.0, 16.0, 64.0, 256.0)
    sizes = (500, 2_000) if options.quick else (500, 1_000, 2_000, 4_000, 8_000, 16_000)
    replications = 1 if options.quick else 3
    start = time.process_time()
    truth = draw_truth(STUDY).correlation
    size = float(np.sqrt(np.mean(truth[np.triu_indices(truth.shape[0], 1)] ** 2)))
    by_epsilon = {e: replace(STUDY, epsilon=e) for e in epsilons}
    by_size = {float(n): replace(STUDY, n_subjects=n) for n in sizes}
    results = {}
    for axis, designs in (("epsilon", by_epsilon), ("subjects", by_size)):
        results[axis] = {"measured": measure(designs, replications), "forecast": predict(designs, size)}
    results["seconds"] = time.process_time() - start
    settings = {
        "parties": STUDY.parties,
        "missing": STUDY.missing,
        "mechanism": STUDY.mechanism,
        "n_subjects": STUDY.n_subjects,
        "epsilon": STUDY.epsilon,
        "delta": DELTA,
        "true_strength": size,
        "replications": replications,
        "replications_of_ranks_at_block_and_person": 1,
    }
    return settings, results


def present(record: Record, places: Places) -> list[Table]:
    """Two figures and their numbers."""
    tables = []
    for axis in MEASURED_BY:
        figures = {name: _read_figures(saved) for name, saved in record.results[axis].items()}
        draw(axis, figures, record.settings["true_strength"], places.images / f"planning_{axis}.png")
        tables.append(_tabulate(axis, figures["measured"]))
    return tables


def _read_figures(saved: Mapping[str, Any]) -> Figures:
    """By places on an axis, whose names are text in JSON."""
    return {
        unit: {method: {float(place): one for place, one in own.items()} for method, own in by_method.items()}
        for unit, by_method in saved.items()
    }


STYLES = {"refined": "o-", "vcds": "s--", STRICT: "^-."}
MEASURED_BY = {"epsilon": "ε", "subjects": "N"}


def _tabulate(axis: str, figures: Figures) -> Table:
    places = list(figures["client"]["vcds"])
    rows = [
        (unit, method, name, *(f"{by_method[method][p][name]:.3f}" for p in places))
        for unit, by_method in figures.items()
        for method in by_method
        for name in MEASURES
    ]
    header = ("unit", "method", "error of", *(f"{MEASURED_BY[axis]} = {p:,g}" for p in places))
    return Table(f"Errors against {axis}", header, tuple(rows))


def draw(axis: str, results: dict[str, Figures], size: float, path: Path) -> None:
    """One panel per measure; a colour per unit, a dash per method."""
    figure, axes = new_figure(1, 3, width=4.6, height=4.4)
    for ax, (name, title) in zip(axes, MEASURES.items(), strict=True):
        _draw_panel(ax, results, name)
        ax.set_title(title, loc="left", fontsize=9)
        ax.set_xlabel("ε" if axis == "epsilon" else "subjects N")
        places = [float(p) for p in results["measured"]["client"]["vcds"]]
        use_log_axes(ax, places)
        ax.tick_params(axis="x", labelsize=8)
    axes[0].axhline(size, color=INK, linewidth=0.8)
    axes[0].annotate("the correlations' own size", (places[0], size), (0, 4), textcoords="offset points", fontsize=8)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=8, frameon=False, fontsize=9)
    fixed = f"N = {STUDY.n_subjects:,}" if axis == "epsilon" else f"ε = {STUDY.epsilon:g}"
    figure.suptitle(
        f"20 columns at 4 parties, 30 % of three blocks missing at random, {fixed}, δ = {DELTA:g}", fontsize=11
    )
    save_png(figure, path)


def _draw_panel(ax: Axes, results: dict[str, Figures], name: str) -> None:
    for color, unit in zip(COLORS, UNITS, strict=False):
        for method, style in STYLES.items():
            measured = results["measured"][unit].get(method, {})
            label = f"unit {unit}" if method == "refined" else None
            values = [one[name] for one in measured.values()]
            ax.plot(list(measured), values, style, color=color, label=label, markersize=4, linewidth=1.3)
        if name != "regression":
            expected = results["forecast"][unit][methods_at(unit)[-1]]
            ax.plot(
                list(expected), [one[name] for one in expected.values()], ":", color=color, linewidth=2.2, alpha=0.6
            )
    for label, style in (*STYLES.items(), ("forecast (refined, or strict)", ":")):
        ax.plot([], [], style, color=INK, label=label, markersize=4)
