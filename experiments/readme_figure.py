"""The README's figure and table, from the CSV files of a run of the tables.

Writes a PNG and a Markdown snippet. With `--readme` the snippet also replaces what stands between the two marks
`<!-- tables:begin -->` and `<!-- tables:end -->` there.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure as Canvas

from experiments.judge import JudgeName
from experiments.methods import MECHANISMS, ORACLE, PAPERS_OWN, PRINTED, TABLES, find_row
from experiments.paper import COMPLETE, PrintedKey, read_tables
from experiments.results import Figure, count_verdicts
from reporting.catalogue import Places
from reporting.figures import COLORS, new_figure, save_png
from reporting.records import Record, write_text
from reporting.tables import Table
from verticopula.errors import SettingsError

BEGIN, END = "<!-- tables:begin -->", "<!-- tables:end -->"
JUDGE: JudgeName = "paper"
SHOWN = (*PAPERS_OWN, "Refined")
IN_TABLE = (
    *("Original-C", "VFL-ADMM-DP", "Vertigan", "CC-VCDS", "Impute-VCDS"),
    *("VCDS", "EVCDS", "IEVCDS", "Refined", ORACLE),
)
EPSILON = 1.0
MODELS = ("linear", "logistic")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--results", type=Path, default=Path("experiments/results"), help="where table1.csv ... are")
    parser.add_argument("--image", type=Path, default=Path("docs/images/tables.png"))
    parser.add_argument("--snippet", type=Path, default=Path("experiments/results/summary.md"))
    parser.add_argument("--readme", type=Path, help="a Markdown file with the two marks, to be filled")


def present(record: Record, places: Places) -> list[Table]:
    """The figure, the snippet and the README's part of it."""
    said = record.settings
    figures = read_figures(said["results"])
    if not figures:
        raise SettingsError(f"{said['results']} has no table1.csv ... table7.csv")
    save_png(draw(figures), said["image"])
    text = write_snippet(figures)
    write_text(said["snippet"], text)
    if said["readme"] is not None:
        write_text(said["readme"], fill_marks(said["readme"].read_text(encoding="utf-8"), text))
    return []


def read_figures(folder: Path) -> list[Figure]:
    """Every cell of every table that is there, with the paper's beside it and the oracle's of the same cell."""
    paper, rows = read_tables(), []
    for name in TABLES:
        path = folder / f"{name}.csv"
        if path.exists():
            with path.open(encoding="utf-8", newline="") as file:
                rows += [row for row in csv.DictReader(file) if row["judge"] == JUDGE]
    keys = [
        PrintedKey(
            r["table"],
            r["model"],
            r.get("mechanism", COMPLETE),
            int(r["N"]),
            float(r["epsilon"]),
            r["method"],
            r["metric"],
        )
        for r in rows
    ]
    means = {key: _number(row["mean"]) for key, row in zip(keys, rows, strict=True)}
    return [
        Figure(
            key,
            JUDGE,
            means[key],
            _number(row["se"]),
            int(row["replications"]),
            0,
            None,
            paper.get(key._replace(method=find_row(key.method))),
            means.get(key._replace(method=ORACLE), math.nan),
        )
        for key, row in zip(keys, rows, strict=True)
    ]


def _number(text: str) -> float:
    return float(text) if text else math.nan


def pick(figures: Sequence[Figure], model: str, mechanism: str, method: str, metric: str = "rmse") -> list[Figure]:
    """One method's cells at EPSILON over N; the first table that has them."""
    found: dict[int, Figure] = {}
    for f in figures:
        key = f.key
        if (key.model, key.mechanism, key.method, key.metric, key.epsilon) == (
            model,
            mechanism,
            method,
            metric,
            EPSILON,
        ):
            found.setdefault(key.n_subjects, f)
    return [found[n] for n in sorted(found)]


def draw(figures: Sequence[Figure]) -> Canvas:
    """RMSE against N: ours with lines, the paper's as hollow marks; one column of panels per missing mechanism."""
    models = [m for m in MODELS if any(f.key.model == m for f in figures)]
    mechanisms = [m for m in (COMPLETE, *MECHANISMS) if any(f.key.mechanism == m for f in figures)]
    canvas, axes = new_figure(len(models), len(mechanisms), width=3.2, height=3.0)
    places = [(model, mechanism) for model in models for mechanism in mechanisms]
    for ax, (model, mechanism) in zip(axes, places, strict=True):
        ax.set_title(f"{model}, {'blocks ' if mechanism != COMPLETE else ''}{mechanism}", fontsize=9)
        for method, colour in zip((*SHOWN, ORACLE), COLORS, strict=False):
            own = pick(figures, model, mechanism, method)
            style = {"color": "#777777", "linestyle": ":"} if method == ORACLE else {"color": colour, "marker": "o"}
            sizes = [f.key.n_subjects for f in own]
            errors = [0.0 if math.isnan(f.error) else 2.0 * f.error for f in own]
            ax.errorbar(sizes, [f.mean for f in own], errors, markersize=4, linewidth=1.3, label=method, **style)
            printed = [f for f in own if f.printed is not None]
            ax.plot(
                [f.key.n_subjects for f in printed],
                [f.printed.mean for f in printed if f.printed is not None],
                linestyle="none",
                marker="o",
                markersize=6,
                markerfacecolor="none",
                color=style["color"],
            )
        ax.set_ylim(bottom=0.0)
        sizes = sorted({f.key.n_subjects for f in figures})
        ax.set_xticks(sizes, [f"{n:,}" for n in sizes], fontsize=8)
        ax.set_xlabel("N", fontsize=8)
    for row in range(len(models)):
        axes[row * len(mechanisms)].set_ylabel("RMSE (hollow: the paper's)", fontsize=8)
    axes[-1].legend(fontsize=7, frameon=False)
    return canvas


def write_snippet(figures: Sequence[Figure]) -> str:
    """The table, and how all cells compare."""
    n = max(f.key.n_subjects for f in figures)
    models = [m for m in MODELS if any(f.key.model == m for f in figures)]
    columns = [
        (model, mechanism)
        for model in models
        for mechanism in (COMPLETE, *MECHANISMS)
        if any((f.key.model, f.key.mechanism, f.key.n_subjects) == (model, mechanism, n) for f in figures)
    ]
    found = {
        method: [next((f for f in pick(figures, *place, method) if f.key.n_subjects == n), None) for place in columns]
        for method in IN_TABLE
    }
    least = min(cell.replications for cells in found.values() for cell in cells if cell is not None)
    lines = [
        f"RMSE at N = {n:,} and ε = {EPSILON:g} of unit `variable`, by the paper's judge; in parentheses the paper's "
        f"figure. Means of {least} or more data sets.",
        "",
        Table(
            "",
            ("method", *(f"{model}, {mechanism}" for model, mechanism in columns)),
            [(method, *map(_show, cells)) for method, cells in found.items() if any(cells)],
        ).to_markdown(),
    ]
    sentences = [
        f"{label}: {own['better']} of {total} better, {own['equal']} equal within two standard errors, "
        f"{own['worse']} worse"
        for label, variant in (("ours", ""), ("as printed", PRINTED))
        for own in [count_verdicts(f for f in figures if f.key.method in [m + variant for m in PAPERS_OWN])]
        if (total := sum(own[word] for word in ("better", "equal", "worse")))
    ]
    lines += [
        "",
        f"All cells of VCDS, EVCDS and IEVCDS in Tables 1 to 7 against the printed ones. {'; '.join(sentences)}.",
    ]
    return "\n".join(lines) + "\n"


def _show(figure: Figure | None) -> str:
    if figure is None or math.isnan(figure.mean):
        return ""
    return f"{figure.mean:.3f}" + ("" if figure.printed is None else f" ({figure.printed.mean:.3f})")


def fill_marks(text: str, snippet: str) -> str:
    """The text with the snippet between the marks; SettingsError if they are not there once each, in order."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in after:
        raise SettingsError(f"the marks {BEGIN} and {END} must each stand there once, in this order")
    return f"{before}{BEGIN}\n{snippet}{END}{after}"
