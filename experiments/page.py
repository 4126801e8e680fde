"""`results.html`: every cell of ours beside the paper's, in one file that opens offline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from experiments.methods import ORACLE, TABLES, UNPROTECTED
from experiments.metrics import METRIC_NAMES
from experiments.paper import COMPLETE_SHARES, Printed, PrintedKey
from experiments.results import WITHIN, Figure, count_by_method, count_refined, count_verdicts
from experiments.study import Spent
from reporting.pages import html_page
from reporting.tables import to_html
from verticopula.privacy.statement import format_epsilon
from verticopula.schema.defaults import DEFAULT_DELTA

PAPERS = ("Original-C", "Original-VFL", "VCDS", "EVCDS", "IEVCDS")  # its own, without and with protection
OURS = ("VCDS", "EVCDS", "IEVCDS", "Refined", "Refined-aligned")


def render(
    tables: Mapping[str, Sequence[Figure]],
    judge: str,
    paper: Mapping[PrintedKey, Printed],
    made_by: str,
    sme: str = "",
    shares: Mapping[str, float] | None = None,
) -> str:
    """The whole page; `sme` is Table 8's part, `shares` those of complete cases by how blocks go missing."""
    every = [figure for figures in tables.values() for figure in figures]
    parts = [
        "<p>Each cell: <b>our mean</b> (standard error over replications), the paper's figure, and the difference in "
        "our standard errors, positive where ours is better. "
        f"<span class='better'>&nbsp;Better&nbsp;</span>, <span class='equal'>&nbsp;equal within {WITHIN:g} "
        "standard errors&nbsp;</span>, <span class='worse'>&nbsp;worse&nbsp;</span>, <span class='worse reach'>&nbsp;"
        "worse, but the printed figure is better than the oracle's&nbsp;</span>: the design leaves much open, and in "
        "our reading maximum likelihood on the true support of the complete data, the <i>oracle</i>, does not get "
        "there either (what shrinks coefficients can). A cell shows the oracle's median: a few logistic data sets, "
        "in which it all but diverges, would decide its mean. What has no protection is counted once, though it stands "
        "beside every epsilon. Means are over the data sets on which a method gave an answer: complete cases fail "
        "where few are complete, so those of CC are over easier data sets than the others'. All are judged by one "
        f"regression, rule <code>{escape(judge)}</code>, real rows and linear refined tables as the package does it, "
        "others at bars of their own (<code>experiments/README.md</code>).</p>",
        "<p>Epsilon is of unit <code>variable</code>: for one comparison of two subjects in one column, and one value "
        "in one column's marginal. Below each figure stands what the same releases are at <code>client</code>, "
        f"<code>block</code> and <code>person</code> (δ = {DEFAULT_DELTA:g}), the largest over the replications. "
        "Seeds make these runs reproducible and not private; the figures are those of the same run without a seed.</p>",
        f"<p><b>All cells:</b> {_sentence(every)}</p>",
        f"<p><b>The copula methods alone:</b> {_sentence(f for f in every if f.key.method in OURS)}</p>",
        f"<p><b>Without protection (Original):</b> {_sentence(f for f in every if f.key.method in UNPROTECTED)}</p>",
        _render_methods(every),
        _render_refined(every, paper),
        _render_shares(shares or {}),
    ]
    for name, figures in tables.items():
        parts += _render_table(name, figures)
    return html_page("The paper's tables, and ours", [*parts, sme, _render_notes(every)], made_by)


def _sentence(figures: Iterable[Figure]) -> str:
    counts = count_verdicts(figures)
    total = sum(counts[verdict] for verdict in ("better", "equal", "worse"))
    return (
        f"{total} compared with the paper: {counts['better']} better, {counts['equal']} equal within error, "
        f"{counts['worse']} worse ({counts['beyond oracle']} of these printed better than the oracle)."
    )


def _render_methods(figures: Sequence[Figure]) -> str:
    """How every method of the paper's compares with its own printed cells."""
    found = count_by_method(figures)
    rows = [
        (method, *map(str, counts.values()), f"{100.0 * counts['as good'] / counts['cells']:.0f} %")
        for method, counts in found.items()
    ]
    labels = ("method", "cells", "better", "equal", "worse", "of these printed beyond the oracle", "as good", "share")
    own = [counts for method, counts in found.items() if method in PAPERS]
    good, cells = (sum(counts[name] for counts in own) for name in ("as good", "cells"))
    together = f" {', '.join(PAPERS)} together: {good} of {cells} as good." if cells else ""
    return (
        "<h2>Method by method</h2><p><i>As good</i>: at least as good as the printed figure, or as the oracle where "
        f"that is worse, within {WITHIN:g} standard errors.{together}</p>{to_html(labels, rows)}"
    )


def _render_refined(figures: Sequence[Figure], paper: Mapping[PrintedKey, Printed]) -> str:
    found = count_refined(figures, paper)
    items = "".join(
        f"<li>{model}, {escape(method)}: {sum(cells)} of {len(cells)} cells</li>"
        for (model, method), cells in found.items()
    )
    if not items:
        return ""
    return (
        "<p>Blocks missing at random, our refined rows better than the <i>best</i> of the paper's VCDS, EVCDS and "
        f"IEVCDS (RMSE, G-Means and FDR of every size are cells; by the means alone):</p><ul>{items}</ul>"
    )


def _render_shares(shares: Mapping[str, float]) -> str:
    if not shares:
        return ""
    items = ", ".join(
        f"{escape(mechanism)} {100.0 * share:.1f} % ({100.0 * COMPLETE_SHARES[mechanism]:.1f} %)"
        for mechanism, share in shares.items()
    )
    return (
        f"<p>Where blocks are missing, the mean share of complete cases (the paper's): {items}. MCAR is read as one "
        "rate of 5 % at every client, which gives the printed share; MAR-complex as its formulas stand, which does not "
        "(<code>docs/development/departures.md</code>): ours loses fewer subjects there, and is the easier problem.</p>"
    )


def _render_table(name: str, figures: Sequence[Figure]) -> list[str]:
    design = TABLES[name]
    parts = [f"<h2>{name.replace('table', 'Table ')}: {escape(design.title)}</h2>", f"<p>{_sentence(figures)}</p>"]
    for metric in design.metrics:
        own = [figure for figure in figures if figure.key.metric == metric]
        methods = [m for m in (*design.methods, ORACLE) if any(f.key.method == m for f in own)]
        rows: dict[tuple[str, str, int, float], dict[str, Figure]] = {}
        for f in own:
            rows.setdefault((f.key.model, f.key.mechanism, f.key.n_subjects, f.key.epsilon), {})[f.key.method] = f
        lines = [
            (model, mechanism, str(n), f"{epsilon:g}", *(_render_cell(found.get(m)) for m in methods))
            for (model, mechanism, n, epsilon), found in rows.items()
        ]
        shown = to_html(("model", "blocks", "N", "ε", *methods), lines, heads=4)
        parts.append(f"<h3>{METRIC_NAMES[metric]}</h3>{shown}")
    return parts


def _render_cell(figure: Figure | None) -> str:
    if figure is None:
        return "<td class='none'></td>"
    colour = figure.verdict or "none"
    if colour == "worse" and figure.beyond_oracle:
        colour = "worse reach"
    lines = []
    if figure.printed is not None:
        lead = "" if math.isnan(figure.lead) else f", {figure.lead:+.1f} s.e."
        lines.append(f"paper {figure.printed.mean:.3f}{lead}")
    if figure.key.method != ORACLE:
        lines.append(f"oracle's median {_number(figure.oracle)}")
    count = f"{figure.replications} replication{'' if figure.replications == 1 else 's'}"
    lines.append(count + (f", {figure.failures} failed" if figure.failures else ""))
    if figure.spent is not None and figure.key.method not in UNPROTECTED:
        lines.append(describe_spent(figure.spent))
    small = "".join(f"<small>{escape(line)}</small>" for line in lines)
    error = "" if math.isnan(figure.error) else f" ({figure.error:.3f})"
    return f"<td class='{colour}'><b>{_number(figure.mean)}</b>{error}{small}</td>"


def describe_spent(spent: Spent) -> str:
    """Epsilon at the three units, in one line."""
    return " · ".join(f"{unit} {format_epsilon(getattr(spent, unit))}" for unit in ("client", "block", "person"))


def _number(value: float) -> str:
    return "none" if math.isnan(value) else f"{value:.3f}"


def _render_notes(figures: Iterable[Figure]) -> str:
    """What the epsilons do not say, once each."""
    notes = dict.fromkeys((f.key.method, f.spent.note) for f in figures if f.spent is not None and f.spent.note)
    if not notes:
        return ""
    items = "".join(f"<li><b>{escape(method)}</b>: {escape(note)}.</li>" for method, note in notes)
    return f"<h2>What the epsilons do not say</h2><ul>{items}</ul>"
