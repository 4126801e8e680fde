"""One look for all figures: PNG for the documentation, static SVG inside pages."""

from __future__ import annotations

import io
from html import escape
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

mpl.use("Agg")
COLORS = ("#4269d0", "#d1495b", "#3b8f5a", "#efa02f", "#7a5195", "#6b6b6b", "#00a6a6")
INK = "#333333"


def new_figure(n_rows: int, n_columns: int, *, width: float = 4.6, height: float = 3.8) -> tuple[Figure, list[Axes]]:
    """A figure with its axes row by row."""
    figure = Figure(figsize=(width * n_columns, height * n_rows), layout="constrained")
    axes = [figure.add_subplot(n_rows, n_columns, i + 1) for i in range(n_rows * n_columns)]
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(visible=True, which="major", color="#e6e6e6", linewidth=0.7)
        ax.set_axisbelow(True)
    return figure, axes


def use_log_axes(ax: Axes, ticks: list[float]) -> None:
    """Logarithmic axes whose horizontal ticks are the measured points."""
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(ticks, [f"{t:,.0f}" if t >= 1 else f"{t:g}" for t in ticks])
    ax.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)


def to_svg(figure: Figure, label: str) -> str:
    """The figure as an element of a page: same bytes for same data."""
    out = io.StringIO()
    with mpl.rc_context({"svg.hashsalt": label, "svg.fonttype": "none"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    element = out.getvalue().partition("<svg")[2]
    return f"<svg role='img' aria-label='{escape(label, quote=True)}'{element}"


def save_png(figure: Figure, path: Path) -> None:
    """Write a PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, facecolor="white", metadata={"Software": None})
