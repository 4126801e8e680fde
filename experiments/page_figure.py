"""The figure at the top of `results.html`: printed, as printed and ours, one panel per table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from matplotlib.axes import Axes

from experiments.methods import MECHANISMS, PAPERS_OWN, PRINTED, TABLES
from experiments.metrics import METRIC_NAMES
from experiments.results import WITHIN, Figure
from reporting.figures import new_figure, to_svg

EPSILON = 1.0
PAPER_COLOR, PRINTED_COLOR, OUR_COLOR = "#333333", "#d9822b", "#2b6cb0"
LEGEND = (
    f"<p class='legend'><span style='color:{PAPER_COLOR}'>◇</span> the paper's printed figure "
    f"<span style='color:{PRINTED_COLOR}'>■</span> its algorithms as printed, run by us "
    f"<span style='color:{OUR_COLOR}'>●</span> verticopula's variants. Bars are {WITHIN:g} standard errors.</p>"
)
Group = tuple[str, str]  # what a panel has side by side: a model or a mechanism, and a method


def draw_panels(tables: Mapping[str, Sequence[Figure]]) -> str:
    """All panels, for a grid that has as many columns as there is room for."""
    panels = []
    for name, figures in tables.items():
        metric = TABLES[name].metrics[0]
        shown = [f for f in figures if f.judge == "paper" and f.key.metric == metric and f.key.epsilon == EPSILON]
        panels += [_draw_panel(name, metric, shown)] if shown else []
    return f"{LEGEND}<div class='panels'>{''.join(panels)}</div>" if panels else ""


def _draw_panel(name: str, metric: str, figures: Sequence[Figure]) -> str:
    design = TABLES[name]
    sides = MECHANISMS if len(design.mechanisms) > 1 else design.models
    by_place = {(_side(f), f.key.method, f.key.n_subjects): f for f in figures}
    groups = [(side, row) for row in PAPERS_OWN if row in design.rows for side in sides]
    canvas, (ax,) = new_figure(1, 1, width=4.6, height=2.7)
    for number, (side, row) in enumerate(groups):
        for method, color, marker in ((row + PRINTED, PRINTED_COLOR, "s"), (row, OUR_COLOR, "o")):
            own = [by_place[side, method, n] for n in design.sizes if (side, method, n) in by_place]
            _plot(ax, number, own, color, marker)
        printed = [by_place[side, row, n] for n in design.sizes if (side, row, n) in by_place]
        _plot_printed(ax, number, [f for f in printed if f.printed is not None])
        if number:
            ax.axvline(number - 0.5, color="#cccccc", linewidth=0.6)
    ax.set_xticks(range(len(groups)), [f"{row}\n{side.removeprefix('MAR-')}" for side, row in groups], fontsize=7)
    ax.tick_params(axis="y", labelsize=7)
    ax.set_xlim(-0.5, len(groups) - 0.5)
    ax.set_ylim(bottom=0.0)
    number, model = name.removeprefix("table"), "" if len(design.models) > 1 else f", {design.models[0]}"
    title = f"Table {number}{model}: {METRIC_NAMES[metric]}"
    ax.set_title(title, fontsize=9, loc="left")
    label = f"{title}; printed, as printed and ours by the paper's judge at epsilon 1"
    caption = f"{escape(title)}, ε = {EPSILON:g}, by the paper's judge; in each group N = 1,000, 3,000, 5,000"
    return f"<figure>{to_svg(canvas, label)}<figcaption>{caption}</figcaption></figure>"


def _side(figure: Figure) -> str:
    return figure.key.model if figure.key.mechanism == "complete" else figure.key.mechanism


def _places(number: int, figures: Sequence[Figure]) -> list[float]:
    """Within a group, N from left to right."""
    return [number + {1_000: -0.28, 3_000: 0.0, 5_000: 0.28}.get(f.key.n_subjects, 0.0) for f in figures]


def _plot(ax: Axes, number: int, figures: Sequence[Figure], color: str, marker: str) -> None:
    errors = [0.0 if math.isnan(f.error) else WITHIN * f.error for f in figures]
    means = [f.mean for f in figures]
    ax.errorbar(_places(number, figures), means, errors, color=color, marker=marker, markersize=3.5, linewidth=1.0)


def _plot_printed(ax: Axes, number: int, figures: Sequence[Figure]) -> None:
    means = [f.printed.mean for f in figures if f.printed is not None]
    style = {"marker": "D", "markersize": 4.5, "markerfacecolor": "none", "linewidth": 0.8, "linestyle": ":"}
    ax.plot(_places(number, figures), means, color=PAPER_COLOR, **style)
