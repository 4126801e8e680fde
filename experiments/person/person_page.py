"""`person.csv` and `person.html`: one line per method and epsilon, figures, from where on a method says anything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from experiments.draws import Cell
from experiments.methods import ORACLE
from experiments.metrics import METRIC_NAMES
from experiments.person.person_methods import ASKS_FOR_MORE, METHODS, NEVER_FINITE
from experiments.results import WITHIN, CellRows, read_cells
from reporting.figures import COLORS, new_figure, to_svg
from reporting.pages import html_page
from reporting.tables import csv_number, mean, standard_error, to_csv, to_html

ZERO, ORIGINAL = "Zero vector", "Original-C"
USUAL = 10.0  # beyond it the word privacy is out of place
YARDSTICKS = (ZERO, ORIGINAL, ORACLE)
METRICS = ("rmse", "gmeans", "fdr")
MARKERS = "osD^vPX"


@dataclass(frozen=True)
class Line:
    """One method at one epsilon in one cell.

    Attributes
    ----------
    epsilon : asked for, of unit person; None for a yardstick
    person : the largest that was spent by the ledger
    scores : mean and standard error by measure
    """

    cell: Cell
    method: str
    epsilon: float | None
    person: float
    per_comparison: float
    per_value: float
    scores: dict[str, tuple[float, float]]
    replications: int
    failures: int


def read_lines(folder: Path) -> list[Line]:
    """Everything that the folder keeps, methods in their order."""
    lines = []
    for found in read_cells(folder):
        names = {name for row in found.rows for name in row.entries}
        pairs = [(m, float(e) if e else None) for m, _, e in (name.partition("@") for name in names)]
        order = [*YARDSTICKS, *METHODS]
        pairs = sorted((p for p in pairs if p[0] in order), key=lambda p: (order.index(p[0]), p[1] or 0.0))
        lines += [summarise(found, method, epsilon) for method, epsilon in pairs]
    return lines


def summarise(found: CellRows, method: str, epsilon: float | None) -> Line:
    """Means over the replications that gave an answer."""
    entry = method if epsilon is None else f"{method}@{epsilon:g}"
    kept = [row.entries[entry] for row in found.rows if entry in row.entries and row.entries[entry].scores]
    scores = {m: ([e.scores[m] for e in kept]) for m in METRICS}
    spent = [e.spent.person for e in kept if e.spent is not None]
    return Line(
        found.cell,
        method,
        epsilon,
        max(spent, default=math.nan),
        *(mean([e.scores[name] for e in kept if name in e.scores]) for name in ("per_comparison", "per_value")),
        {m: (mean(values), standard_error(values)) for m, values in scores.items()},
        len(kept),
        found.failures(entry, "rmse"),
    )


def lines_to_csv(lines: Sequence[Line]) -> str:
    """Tidy but for the three measures side by side."""
    head = [column for m in METRICS for column in (m, f"{m}_se")]
    allowed = ["epsilon_per_comparison", "epsilon_per_value"]
    rows = []
    for line in lines:
        numbers = [line.person, line.per_comparison, line.per_value, *(v for m in METRICS for v in line.scores[m])]
        where = [*line.cell[:2], line.cell.n_subjects, line.method, "" if line.epsilon is None else f"{line.epsilon:g}"]
        rows.append([*where, *(csv_number(v, 5) for v in numbers), line.replications, line.failures])
    header = ["model", "mechanism", "N", "method", "person_epsilon", "spent", *allowed, *head]
    return to_csv([*header, "replications", "failures"], rows)


def render(lines: Sequence[Line], delta: float, n_columns: int, made_by: str) -> str:
    """The whole page."""
    cells = list(dict.fromkeys(line.cell for line in lines))
    never = "".join(f"<li><b>{escape(name)}</b>: {escape(why)}.</li>" for name, why in NEVER_FINITE.items())
    more = "".join(
        f"<li><b>{escape(name)}</b>: {escape(why)}.</li>"
        for name, why in ASKS_FOR_MORE.items()
        if any(line.method == name for line in lines)
    )
    parts = [
        f"<p>Epsilon here bounds what replacing <i>everything that all parties hold about one person</i> can change, "
        f"at δ = {delta:g}: the unit <code>person</code>. The paper's tables use the unit <code>variable</code>; its ε "
        "= 1 is thousands to tens of thousands here. For each method the accounting is inverted: half of epsilon for "
        "the ranks, calibrated exactly with δ, half for the marginals, split over the columns; IEVCDS's ten rounds "
        "share the ranks' half. What is left for one comparison and for one value stands beside each figure. Linear "
        f"design of Section 5.1, {n_columns} columns; judged by the library's SCAD.</p>",
        f"<p>An epsilon of 1 to {USUAL:g} is what the word privacy usually stands for. <i>Zero vector</i> selects "
        "nothing and needs no data: a method whose RMSE is not below it has found nothing. "
        f"<b>{describe_small(lines)}</b> Ranks of individuals are the wrong thing to release at this unit: one person "
        "is in every comparison of a column, and in all columns. Where less is spent than was allowed, the parts "
        "compose better with δ than their sum says.</p>",
        f"<p>No finite epsilon exists at any noise for:</p><ul>{never}</ul>",
        f"<p>Not on equal terms in all else:</p><ul>{more}</ul>" if more else "",
        "<h2>From where on does a method beat the zero vector?</h2>",
        render_thresholds(lines, cells),
    ]
    for cell in cells:
        own = [line for line in lines if line.cell == cell]
        parts += [f"<h2>Linear, {escape(cell.mechanism)}, N = {cell.n_subjects:,}</h2>", draw(own), render_table(own)]
    return html_page("All methods at equal epsilon for a whole person", parts, made_by)


def beats_nothing(line: Line, lines: Sequence[Line]) -> bool:
    """Whether its RMSE is below the zero vector's in the same cell by more than two standard errors."""
    zero = next(x for x in lines if x.method == ZERO and x.cell == line.cell).scores["rmse"][0]
    value, error = line.scores["rmse"]
    return value + WITHIN * error < zero


def describe_small(lines: Sequence[Line]) -> str:
    """What is left where epsilon would mean privacy."""
    small = [x for x in lines if x.epsilon is not None and x.epsilon <= USUAL and x.replications > 1]
    useful = [x for x in small if beats_nothing(x, lines)]
    if not small:
        return ""
    if not useful:
        return f"At an epsilon of {USUAL:g} or less, none of the {len(small)} cells below beats the zero vector."
    names = ", ".join(dict.fromkeys(x.method for x in useful))
    return f"At an epsilon of {USUAL:g} or less, {len(useful)} of {len(small)} cells beat the zero vector ({names})."


def find_threshold(lines: Sequence[Line]) -> float | None:
    """The least epsilon from which on RMSE stays below the zero vector's by more than two standard errors."""
    found = None
    for line in sorted((line for line in lines if line.epsilon is not None), key=lambda line: -(line.epsilon or 0.0)):
        if not beats_nothing(line, lines):
            break
        found = line.epsilon
    return found


def render_thresholds(lines: Sequence[Line], cells: Sequence[Cell]) -> str:
    methods = [m for m in METHODS if any(line.method == m for line in lines)]
    rows = []
    for method in methods:
        found = []
        for cell in cells:
            own = [x for x in lines if x.cell == cell and x.method in (method, ZERO)]
            if not any(x.method == method for x in own):
                found.append("")
                continue
            threshold = find_threshold(own)
            found.append("at none tried" if threshold is None else f"{threshold:,g}")
        rows.append((method, *found))
    header = ("method", *(f"{c.mechanism}, N = {c.n_subjects:,}" for c in cells))
    return (
        f"<p>The least epsilon tried from which on RMSE is below the zero vector's by more than {WITHIN:g} standard "
        f"errors.</p>{to_html(header, rows)}"
    )


def render_table(lines: Sequence[Line]) -> str:
    labels = ("method", "ε, person", "spent", "per comparison", "per value", *METRIC_NAMES.values(), "replications")
    rows = []
    for line in lines:
        shown = [
            "" if line.epsilon is None else f"{line.epsilon:,g}",
            "" if math.isnan(line.person) else f"{line.person:,.0f}" if line.person >= 100.0 else f"{line.person:.3g}",
            *("" if math.isnan(v) else f"{v:.2g}" for v in (line.per_comparison, line.per_value)),
            *(_with_error(*line.scores[m]) for m in METRICS),
            f"{line.replications}" + (f", {line.failures} failed" if line.failures else ""),
        ]
        rows.append((line.method, *shown))
    return to_html(labels, rows)


def _with_error(value: float, error: float) -> str:
    if math.isnan(value):
        return "none"
    return f"<b>{value:.3f}</b>" + ("" if math.isnan(error) else f" ({error:.3f})")


def draw(lines: Sequence[Line]) -> str:
    """The three measures against epsilon."""
    figure, axes = new_figure(1, len(METRICS), width=4.4, height=3.6)
    for ax, metric in zip(axes, METRICS, strict=True):
        ax.set_title(METRIC_NAMES[metric], fontsize=10)
        ax.set_xlabel("epsilon of unit person")
        ax.set_xscale("log")
        for style, name in (("--", ZERO), (":", ORIGINAL)):
            for line in (x for x in lines if x.method == name):
                ax.axhline(line.scores[metric][0], linestyle=style, color="#777777", label=name)
        for index, method in enumerate(METHODS):
            own = [x for x in lines if x.method == method and x.replications]
            if own:
                ax.errorbar(
                    [x.epsilon for x in own],
                    [x.scores[metric][0] for x in own],
                    [2.0 * x.scores[metric][1] for x in own],
                    color=COLORS[index % len(COLORS)],
                    marker=MARKERS[index % len(MARKERS)],
                    linestyle="-" if index < len(COLORS) else "-.",
                    markersize=4,
                    linewidth=1.2,
                    label=method,
                )
    axes[0].legend(fontsize=7, frameon=False)
    return to_svg(figure, "measures against the epsilon of a whole person")
