"""On `results.html`: the cells in which ours are worse than printed, sorted by what loses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from experiments.methods import PAPERS_OWN, REFINED
from experiments.page_cells import HtmlTable
from experiments.paper import PrintedKey
from experiments.results import Figure

MEASURES = {"rmse": "RMSE", "gmeans": "G-Means", "fdr": "FDR"}
ALIGNED_ROWS = ("EVCDS", "IEVCDS")
# The first that holds is the cause of a cell.
CAUSES: Mapping[str, Callable[[Figure], bool]] = {
    "The same judge misses the printed figure on the complete real rows": lambda f: f.is_out_of_reach,
    "Blocks missing at random": lambda f: f.key.mechanism.startswith("MAR"),
    "Linear, selection alone": lambda f: f.key.model == "linear" and f.key.metric != "rmse",
    "Logistic, N = 1,000": lambda f: f.key.model == "logistic" and f.key.n_subjects == 1_000,
    "Others": lambda _: True,
}


def render_causes(figures: Sequence[Figure]) -> str:
    """A table of causes, and what was found out about each; empty where nothing is worse.

    Parameters
    ----------
    figures : of all methods, by the paper's judge
    """
    by_key = {f.key: f for f in figures}
    worse = [f for f in figures if f.key.method in PAPERS_OWN and f.verdict == "worse"]
    rows = []
    for cause, found in sort_by_cause(worse).items():
        beside = [other for f in found if (other := find_refined(f, by_key)) is not None and other.verdict]
        counts = [f"{sum(f.key.metric == metric for f in found)}" for metric in MEASURES]
        good = f"{sum(other.verdict != 'worse' for other in beside)} of {len(beside)}"
        rows.append((cause, f"{len(found)}", *counts, good))
    if not rows:
        return ""
    caption = (
        f"Our {len(worse)} worse cells by cause, the paper's judge. Refined no worse: cells in which our refined rows, "
        "aligned where the method's are, are no worse than what is printed for the method itself."
    )
    header = ("cause", "cells", *MEASURES.values(), "refined no worse")
    return f"{HtmlTable(caption, header, rows)}{_EXPLANATION}"


def sort_by_cause(worse: Sequence[Figure]) -> dict[str, list[Figure]]:
    """Every cell at one cause, causes without any left out."""
    found: dict[str, list[Figure]] = {}
    for figure in worse:
        cause = next(name for name, holds in CAUSES.items() if holds(figure))
        found.setdefault(cause, []).append(figure)
    return {name: found[name] for name in CAUSES if name in found}


def list_refined(figures: Sequence[Figure]) -> list[Figure]:
    """Our refined rows wherever the paper prints a figure for one of its own methods, held against that."""
    by_key = {f.key: f for f in figures}
    own = [f for f in figures if f.key.method in PAPERS_OWN and f.printed is not None]
    return [other for f in own if (other := find_refined(f, by_key)) is not None]


def find_refined(figure: Figure, by_key: Mapping[PrintedKey, Figure]) -> Figure | None:
    """Our refined rows in the same cell, held against what is printed for the figure's own method."""
    order = REFINED[::-1] if figure.key.method in ALIGNED_ROWS else REFINED
    for method in order:
        if (other := by_key.get(figure.key._replace(method=method))) is not None:
            return Figure(**(vars(other) | {"printed": figure.printed}))
    return None


_EXPLANATION = (
    "<p>What is known of them.</p><ul>"
    "<li><b>Real rows</b>: nothing of ours takes part in that. In logistic cells the printed figure is near that of "
    "maximum likelihood on the true support, or below it (“What the judge adds”).</li>"
    "<li><b>Missing at random</b>: VCDS and EVCDS keep the observed ranks, so their bias stays however large N is; ten "
    "rounds of IEVCDS end before it is gone (<code>experiments theory</code>, Theorems 3 and 7). Refinement is our "
    "cure for that, and a method of its own.</li>"
    "<li><b>Linear, selection alone</b>: a pair's ranks say less about its correlation than a likelihood does, and "
    "noise is added; BIC counts N subjects all the same. More rows do not lower FDR "
    "(<code>experiments rows_per_subject</code>). Refined rows are made of the same release by a likelihood.</li>"
    "<li><b>Logistic, N = 1,000</b>: BIC stops at a third to a half of the columns that matter, on real rows, too "
    "(<code>experiments judge_or_data</code>).</li></ul>"
)
