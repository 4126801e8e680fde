"""`results.html`: printed, as printed and ours, every cell, in one file that opens offline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np

from experiments.judge import JUDGE_NAMES, TITLES, JudgeName
from experiments.methods import MECHANISMS, PAPERS_OWN, PRINTED, REFINED, TABLES, UNPROTECTED, find_row
from experiments.page_causes import list_refined, render_causes
from experiments.page_cells import SHORT, HtmlTable, by_cell, count_sets, join, render_number, render_table
from experiments.page_figure import draw_panels
from experiments.page_readings import Readings, render_far
from experiments.paper import COMPLETE_SHARES, Printed, PrintedKey
from experiments.results import (
    SETS_OF_HEADLINE,
    SETS_OF_OTHERS,
    WITHIN,
    Figure,
    count_near,
    count_refined,
    count_verdicts,
)
from experiments.study import Spent
from reporting.pages import html_page
from verticopula.privacy.statement import format_epsilon
from verticopula.schema.defaults import DEFAULT_DELTA

OURS = (*PAPERS_OWN, *REFINED)
AS_PRINTED = tuple(method + PRINTED for method in PAPERS_OWN)
VERDICTS = ("better", "equal", "worse")
Tables = Mapping[str, Sequence[Figure]]

STYLE = """
body { max-width: 1200px; margin: 1.5em auto; padding: 0 1em; }
nav ul { columns: 2; padding-left: 1.2em; } nav { border: 1px solid #ddd; padding: .2em 1em; background: #fafafa; }
.scroll { overflow-x: auto; } .scroll table { margin: 0; }
.cells { margin: .5em 0 1.5em; }
.cells figcaption { font-size: inherit; color: #333; max-width: 70em; padding: .3em 0; }
thead th { text-align: center; white-space: normal; } thead tr th:first-child, tbody th { text-align: left; }
tbody th:first-child { position: sticky; left: 0; }
td { font-variant-numeric: tabular-nums; }
figure { margin: 0; } figcaption { font-size: 12px; color: #555; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(330px, 1fr)); gap: 1em; }
.panels svg { width: 100%; } .legend span { padding: 0 .3em; }
.better { background: #d5ecf7; } .equal { background: #f4f4f4; } .worse { background: #fbdccb; }
details { margin: .5em 0; } summary { cursor: pointer; font-weight: 600; padding: .3em 0; }
@media (max-width: 700px) {
  body { font-size: 15px; padding: 0 .6em; margin: .6em 0; } nav ul { columns: 1; }
  tbody th:first-child { white-space: normal; min-width: 6em; max-width: 9em; }
  th, td { padding: .35em .4em; } h1 { font-size: 1.5em; } h2 { font-size: 1.25em; }
}
"""


@dataclass(frozen=True)
class Contents:
    """Everything that the page shows.

    Attributes
    ----------
    tables : the paper's data sets
    uniform : the same design with uniformly distributed effects
    fresh : other data sets of the paper's design
    paper : what it prints
    shares : of complete cases, by how blocks go missing
    hours : of one processor, by part of the page
    hours_in_full : what `make tables` takes for it, where that can be said
    sme : Table 8, HTML
    readings : what other readings of the paper's text change
    """

    tables: Tables
    paper: Mapping[PrintedKey, Printed]
    uniform: Tables = field(default_factory=dict)
    fresh: Tables = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    hours: Mapping[str, float] = field(default_factory=dict)
    hours_in_full: Mapping[str, float] = field(default_factory=dict)
    sme: str = ""
    readings: Readings = field(default_factory=Readings)

    @property
    def figures(self) -> list[Figure]:
        return [figure for figures in self.tables.values() for figure in figures]


def render(contents: Contents, made_by: str) -> str:
    """The whole page."""
    sections = {
        "How to read this page": _READING,
        "The headline": _render_headline(contents),
        "What the judge adds": _render_judges(contents.figures),
        "Where the algorithms as printed differ from what is printed": render_far(
            _of(contents.figures, AS_PRINTED), contents.readings
        ),
        **{
            f"Table {name.removeprefix('table')}: {TABLES[name].title}": "".join(render_table(name, figures))
            for name, figures in contents.tables.items()
        },
        "Effects of many sizes": _render_uniform(contents),
        "Fresh data sets": _render_fresh(contents),
        "Table 8: the SME study": contents.sme,
        "What the epsilons are": _render_spent(contents.figures),
        "How much is missing": _render_shares(contents.shares),
        "Processor time": _render_hours(contents),
    }
    shown = {title: body for title, body in sections.items() if body}
    links = "".join(f"<li><a href='#s{i}'>{escape(title)}</a></li>" for i, title in enumerate(shown))
    picture = draw_panels(contents.tables) if contents.paper else ""
    parts = [_INTRODUCTION, picture, f"<nav><b>Contents</b><ul>{links}</ul></nav>"]
    parts += [f"<h2 id='s{i}'>{escape(title)}</h2>{body}" for i, (title, body) in enumerate(shown.items())]
    return html_page("The paper's tables: printed, as printed, ours", parts, made_by, STYLE)


_INTRODUCTION = (
    "<p>Tables 1 to 7 of “Data Privatization in Vertical Federated Learning with Client-wise Missing Problem” "
    "(arXiv 2511.20876), made anew. <b>Printed</b> is the paper's figure. <b>As printed</b> is the paper's algorithm "
    "as its text has it, run by us. <b>Ours</b> is verticopula's variant.</p>"
)
_READING = (
    "<p>A <b>judge</b> is the regression that turns a synthetic table into coefficients.</p><ul>"
    f"<li><b>{SHORT['paper']}</b>: {TITLES['paper']}. It decides the headline.</li>"
    f"<li><b>{SHORT['library']}</b>: {TITLES['library']}.</li>"
    f"<li><b>{SHORT['bayes']}</b>: {TITLES['bayes']}, with the threshold that users get.</li></ul>"
    "<p>All three look at the same table. All are without an intercept, as in the paper. The N of their criteria is "
    "the number of real subjects. Tables as printed have N rows; ours have 10 N, 4 N and 2 N (N = 1,000, 3,000, "
    "5,000). <i>Refined</i> is a method of ours that the paper does not have. Epsilon is of unit "
    "<code>variable</code>.</p>"
    "<p class='legend'>Colours compare with the printed figure: <span class='better'>better&nbsp;▲</span> "
    f"<span class='equal'>equal within {WITHIN:g} standard errors</span> <span class='worse'>worse&nbsp;▼</span>. "
    "Standard errors (±) are ours, over data sets.</p>"
)


def _of(figures: Sequence[Figure], methods: Sequence[str], judge: JudgeName = "paper") -> list[Figure]:
    return [f for f in figures if f.key.method in methods and f.judge == judge]


def _render_headline(contents: Contents) -> str:
    """Counts by the paper's judge."""
    figures, rows = contents.figures, []
    groups = {
        **{f"{m}, as printed": _of(figures, [m + PRINTED]) for m in PAPERS_OWN},
        "all three, as printed": _of(figures, AS_PRINTED),
        **{f"{m}, ours": _of(figures, [m]) for m in PAPERS_OWN},
        "all three, ours": _of(figures, PAPERS_OWN),
        "our refined rows in their place": list_refined([f for f in figures if f.judge == "paper"]),
        "Original-C (real data)": _of(figures, ["Original-C"]),
    }
    for label, own in groups.items():
        counts = count_verdicts(own)
        total = sum(counts[verdict] for verdict in VERDICTS)
        if total:
            near, cells = count_near(own)
            good = counts["better"] + counts["equal"]
            rows.append(
                (
                    label,
                    f"{total}",
                    *(f"{counts[verdict]}" for verdict in (*VERDICTS, "out of reach")),
                    f"{100.0 * good / total:.0f} %",
                    f"{near} of {cells}",
                )
            )
    if not rows:
        return ""
    header = ("method", "cells", *VERDICTS, "of these out of reach", "no worse", "RMSE within 15 %")
    caption = (
        "All cells of Tables 1 to 7 against the printed figures, by the paper's judge. Better and worse are by more "
        f"than {WITHIN:g} of our standard errors. Out of reach: printed better than the same judge finds on the "
        "complete real data. Refined rows, aligned in place of EVCDS and IEVCDS where there are any, are held against "
        "what is printed for each of the three."
    )
    causes = render_causes([f for f in figures if f.judge == "paper"])
    return (
        f"{HtmlTable(caption, header, rows)}{_render_bounds(figures)}{causes}{_render_refined(figures, contents.paper)}"
    )


def _render_bounds(figures: Sequence[Figure]) -> str:
    """Where ours are worse, and where the real rows are, too."""
    own, real, rows = _of(figures, PAPERS_OWN), _of(figures, ["Original-C"]), []
    for model, n in dict.fromkeys((f.key.model, f.key.n_subjects) for f in own):
        here = [f for f in own if (f.key.model, f.key.n_subjects) == (model, n)]
        counts = count_verdicts(here)
        total = sum(counts[verdict] for verdict in VERDICTS)
        on_real = count_verdicts(f for f in real if (f.key.model, f.key.n_subjects) == (model, n))
        measured = sum(on_real[verdict] for verdict in VERDICTS)
        if total:
            shown = [f"{counts[verdict]}" for verdict in (*VERDICTS, "out of reach")]
            good = f"{100.0 * (total - counts['worse']) / total:.0f} %"
            rows.append((model, f"{n:,}", f"{total}", *shown, good, f"{on_real['worse']} of {measured}"))
    if not rows:
        return ""
    counts, on_real = count_verdicts(own), count_verdicts(real)
    reachable = count_verdicts(f for f in own if not f.is_out_of_reach)
    total = sum(reachable[verdict] for verdict in VERDICTS)
    share = f", {100.0 * (total - reachable['worse']) / total:.0f} %" if total else ""
    note = (
        "<p><b>What stands in the way.</b> The real rows, judged in the same way, are worse than printed in "
        f"{on_real['worse']} of {sum(on_real[verdict] for verdict in VERDICTS)} cells. A synthetic table can hardly do "
        f"better. Of our {counts['worse']} worse cells, {counts['out of reach']} are printed better than that. Where "
        f"the real rows reach the printed figure, ours are no worse in {total - reachable['worse']} of {total} cells"
        f"{share}.</p>"
    )
    caption = "All three, ours, by model and size; the last column is the real data, all by the paper's judge."
    header = ("model", "N", "cells", *VERDICTS, "of these out of reach", "no worse", "real rows worse")
    return f"{note}{HtmlTable(caption, header, rows, heads=2)}"


def _render_refined(figures: Sequence[Figure], paper: Mapping[PrintedKey, Printed]) -> str:
    rows = [
        (f"{model}, {method}", *(f"{sum(cells)} of {len(cells)}" for cells in found))
        for model, method in dict.fromkeys((f.key.model, f.key.method) for f in figures if f.key.method in REFINED)
        if all(
            found := [
                count_refined([f for f in figures if f.judge == judge], paper).get((model, method), [])
                for judge in JUDGE_NAMES
            ]
        )
    ]
    if not rows:
        return ""
    caption = (
        "Blocks missing at random: cells in which our refined rows are better than the best that the paper prints for "
        "VCDS, EVCDS and IEVCDS, by each judge. By the means alone; RMSE, G-Means and FDR of every size are cells."
    )
    return str(HtmlTable(caption, ("rows", *SHORT.values()), rows))


def _render_judges(figures: Sequence[Figure]) -> str:
    """The same tables by three judges."""
    rows = []
    for method in (*AS_PRINTED, *PAPERS_OWN):
        own = {judge: _of(figures, [method], judge) for judge in JUDGE_NAMES}
        if not any(f.verdict for f in own["paper"]):
            continue
        ratios = [_mean_ratio(own[judge]) for judge in JUDGE_NAMES]
        counts = [count_verdicts(own[judge]) for judge in JUDGE_NAMES]
        shown = [f"{c['better']} / {c['equal']} / {c['worse']}" for c in counts]
        rows.append((f"{find_row(method)}, {'as printed' if method in AS_PRINTED else 'ours'}", *ratios, *shown))
    if not rows:
        return ""
    groups = [("", 1), ("RMSE as a share of the printed one", 3), ("cells better / equal / worse", 3)]
    shown = {judge: _of(figures, (*AS_PRINTED, *PAPERS_OWN), judge) for judge in JUDGE_NAMES}
    sets = [f"{count_sets(own)} ({SHORT[judge]})" for judge, own in shown.items() if own]
    caption = (
        "The same synthetic tables by three judges: geometric mean over cells of RMSE divided by the printed RMSE, and "
        "how all cells compare with the printed figures. What a column has beyond the first of its kind, the judge "
        f"adds; the paper's figures are by its own judge throughout. Data sets of a cell: {join(sets)}."
    )
    table = HtmlTable(caption, ("method", *SHORT.values(), *SHORT.values()), rows, groups)
    return f"{table}{_render_original(figures)}"


def _mean_ratio(figures: Sequence[Figure]) -> str:
    ratios = [1.0 + f.off_by for f in figures if f.key.metric == "rmse" and not math.isnan(f.off_by) and f.mean > 0.0]
    return f"{math.exp(float(np.mean(np.log(ratios)))):.2f}" if ratios else "–"


def _render_original(figures: Sequence[Figure]) -> str:
    """Who loses: the data, or the judge."""
    cells, rows = by_cell(f for f in figures if f.key.table == "table1"), []
    for ((model, _, n, epsilon), metric), found in cells.items():
        if metric != "rmse" or epsilon != 1.0 or ("Original-C", "paper") not in found:
            continue
        printed = found["Original-C", "paper"].printed
        numbers = [f"{found['Original-C', 'paper'].oracle:.3f}", "" if printed is None else f"{printed.mean:.3f}"]
        numbers += [render_number(found.get(("Original-C", judge))) for judge in JUDGE_NAMES]
        numbers += [render_number(found.get(("VCDS", judge))) for judge in JUDGE_NAMES]
        rows.append((model, f"{n:,}", *numbers))
    if not rows:
        return ""
    groups = [("", 3), ("real data (Original-C)", 4), ("our VCDS, ε = 1", 3)]
    caption = (
        "Complete data, RMSE: what is lost before anything is privatized. The oracle is the median of maximum "
        "likelihood on the true support; Original-C is a judge on the real data; VCDS is the same judge on our "
        "synthetic table."
    )
    header = ("model", "N", "oracle", "printed", *SHORT.values(), *SHORT.values())
    lost = [f for f in _of(figures, ["Original-C"]) if f.key.table == "table1" and f.key.epsilon == 1.0]
    worse = [f"{f.key.model}, N = {f.key.n_subjects:,}" for f in lost if f.verdict == "worse"]
    below = [f for f in lost if f.printed is not None and f.printed.mean < f.oracle and f.verdict == "worse"]
    note = (
        f"<p>On the real data the paper's judge is worse than the paper prints for it in {len(worse)} of {len(lost)} "
        f"settings{f' ({join(worse)})' if worse else ''}: there the design as we read it, or the judge, falls short "
        f"before anything is privatized. In {len(below)} of them the printed RMSE is below that of maximum likelihood "
        "on the true support of the real data.</p>"
    )
    return f"{HtmlTable(caption, header, rows, groups, heads=2)}{note}"


def _render_uniform(contents: Contents) -> str:
    """The paper's equal effects beside uniformly distributed ones."""
    equal, uniform = by_cell(contents.figures), by_cell(f for own in contents.uniform.values() for f in own)
    parts = []
    for method in OURS:
        rows = []
        for ((model, mechanism, n, epsilon), metric), found in uniform.items():
            if metric != "rmse" or epsilon != 1.0 or (method, "paper") not in found:
                continue
            beside = equal.get(((model, mechanism, n, epsilon), metric), {})
            cells = [
                render_number(own.get((method, judge)), judged=False)
                for own in (beside, found)
                for judge in JUDGE_NAMES
            ]
            rows.append((model, mechanism, f"{n:,}", *cells))
        if rows:
            groups = [("", 3), ("equal effects (the paper's)", 3), ("uniform effects", 3)]
            caption = f"{method}, RMSE at ε = 1, by each judge; ours."
            header = ("model", "blocks", "N", *SHORT.values(), *SHORT.values())
            parts.append(str(HtmlTable(caption, header, rows, groups, heads=3)))
    if not parts:
        return ""
    return (
        "<p>In the paper's design all 60 effects have one size, ⅓. A judge that learns sizes from the data, "
        "<i>bayes</i>, gains by that. Here the sizes are spread evenly between 0 and ⅔: the same mean, the same "
        f"covariates and seeds.</p>{''.join(parts)}"
    )


def _render_fresh(contents: Contents) -> str:
    """The tables' data sets beside others of the same design, by each judge."""
    kept, fresh = by_cell(contents.figures), by_cell(f for own in contents.fresh.values() for f in own)
    rows, summary = [], []
    shown = [m for m in ("VCDS", "EVCDS", "IEVCDS") if any((m, "bayes") in found for found in fresh.values())]
    for method in OURS:
        for judge in JUDGE_NAMES:
            pairs = [
                (kept[place][method, judge], found[method, judge])
                for place, found in fresh.items()
                if (method, judge) in found and (method, judge) in kept.get(place, {})
            ]
            gaps = [(b.ahead_of(a), math.hypot(a.error, b.error)) for a, b in pairs]
            clear = [gap / error for gap, error in gaps if error > 0.0]
            if clear:
                worse, better = sum(value < -WITHIN for value in clear), sum(value > WITHIN for value in clear)
                summary.append((method, SHORT[judge], f"{len(clear)}", f"{worse}", f"{better}"))
    for (place, metric), found in fresh.items():
        if metric != "rmse":
            continue
        model, mechanism, n, epsilon = place
        cells = [
            render_number(own.get((method, "bayes")), judged=False)
            for method in shown
            for own in (kept.get((place, metric), {}), found)
        ]
        rows.append((model, mechanism, f"{n:,}", f"{epsilon:g}", *cells))
    if not summary:
        return ""
    first = HtmlTable(
        f"Fresh data sets against those of the tables, by each judge: measures (RMSE, G-Means, FDR of a cell) that are "
        f"worse or better by more than {WITHIN:g} standard errors of the difference; about one in twenty is by chance.",
        ("method", "judge", "measures", "worse on fresh", "better on fresh"),
        summary,
        heads=2,
    )
    groups = [("", 4), *((method, 2) for method in shown)]
    header = ("model", "blocks", "N", "ε", *("tables'", "fresh") * len(shown))
    second = HtmlTable("RMSE by the judge bayes, whose constants were tuned; ours.", header, rows, groups, heads=4)
    return (
        "<p>Constants of the judge <i>bayes</i> were chosen with data sets of these tables in sight "
        "(<code>BayesTuning</code>). These data sets have seeds that nobody looked at before.</p>"
        f"{first}{second}"
    )


def _render_spent(figures: Sequence[Figure]) -> str:
    """Epsilon at the units that add up, the largest over cells and data sets, by method and N."""
    largest: dict[tuple[str, float, int], Spent] = {}
    for f in figures:
        if f.spent is not None and f.key.method not in UNPROTECTED:
            at = (f.key.method, f.key.epsilon, f.key.n_subjects)
            old = largest.get(at, f.spent)
            both = (max(getattr(old, unit), getattr(f.spent, unit)) for unit in ("client", "block", "person"))
            largest[at] = Spent(*both, f.spent.note)
    rows = [
        (
            method,
            f"{epsilon:g}",
            f"{n:,}",
            *(format_epsilon(getattr(s, u)) for u in ("client", "block", "person")),
            s.note,
        )
        for (method, epsilon, n), s in sorted(largest.items())
        if epsilon == min(e for m, e, _ in largest if m == method)
    ]
    if not rows:
        return ""
    caption = (
        "What the same releases are at <code>client</code>, <code>block</code> and <code>person</code> "
        f"(δ = {DEFAULT_DELTA:g}), the largest over cells and data sets; no judge changes them. Seeds make these runs "
        "reproducible and not private; the figures are those of the same run without a seed."
    )
    return str(HtmlTable(caption, ("method", "ε", "N", "client", "block", "person", "note"), rows, heads=1))


def _render_shares(shares: Mapping[str, float]) -> str:
    rows = [(m, f"{100.0 * shares[m]:.1f} %", f"{100.0 * COMPLETE_SHARES[m]:.1f} %") for m in MECHANISMS if m in shares]
    if not rows:
        return ""
    caption = (
        "Mean share of complete cases; no judge is involved. MCAR is read as one rate of 5 % at every client, which "
        "gives the printed share; MAR-complex as its formulas stand, which does not: ours loses fewer subjects there, "
        "and is the easier problem (<code>docs/development/departures.md</code>)."
    )
    return str(HtmlTable(caption, ("blocks", "ours", "the paper's"), rows))


def _render_hours(contents: Contents) -> str:
    spent, full = contents.hours, contents.hours_in_full
    rows = [(label, f"{value:.1f}", f"{full[label]:.1f}" if label in full else "–") for label, value in spent.items()]
    if not rows:
        return ""
    rows.append(("together", f"{sum(spent.values()):.1f}", f"{sum(full.values()):.1f}" if full else "–"))
    caption = (
        "Processor hours of everything on this page, all judges included; of one core. In full: "
        f"{SETS_OF_HEADLINE} data sets a cell of what decides the headline and {SETS_OF_OTHERS} of other methods, as "
        "<code>make tables</code> has them, at the speed of the last data set of each."
    )
    return str(HtmlTable(caption, ("part", "hours", "in full"), rows))


def describe_spent(spent: Spent) -> str:
    """Epsilon at the three units, in one line."""
    return " · ".join(f"{unit} {format_epsilon(getattr(spent, unit))}" for unit in ("client", "block", "person"))
