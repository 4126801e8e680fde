"""`results.html`: printed, as printed and ours, every cell, in one file that opens offline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np

from experiments.judge import JUDGE_NAMES, TITLES, JudgeName
from experiments.methods import MECHANISMS, PAPERS_OWN, PRINTED, REFINED, TABLES, UNPROTECTED, find_row
from experiments.page_cells import SHORT, HtmlTable, by_cell, join, render_number, render_table
from experiments.page_figure import draw_panels
from experiments.paper import COMPLETE_SHARES, Printed, PrintedKey
from experiments.results import NEAR, WITHIN, Figure, count_near, count_refined, count_verdicts
from experiments.study import Spent
from reporting.pages import html_page
from verticopula.privacy.statement import format_epsilon
from verticopula.schema.defaults import DEFAULT_DELTA

OURS = (*PAPERS_OWN, *REFINED)
AS_PRINTED = tuple(method + PRINTED for method in PAPERS_OWN)
Tables = Mapping[str, Sequence[Figure]]

STYLE = """
body { max-width: 1200px; margin: 1.5em auto; padding: 0 1em; }
nav ul { columns: 2; padding-left: 1.2em; } nav { border: 1px solid #ddd; padding: .2em 1em; background: #fafafa; }
.scroll { overflow-x: auto; } .scroll table { margin: 0; }
.cells { margin: .5em 0 1.5em; }
.cells figcaption { font-size: inherit; color: #333; max-width: 70em; padding: .3em 0; }
thead th { text-align: center; } thead tr th:first-child, tbody th { text-align: left; }
tbody th:first-child { position: sticky; left: 0; }
td { font-variant-numeric: tabular-nums; }
figure { margin: 0; } figcaption { font-size: 12px; color: #555; }
.panels { display: grid; grid-template-columns: repeat(auto-fit, minmax(330px, 1fr)); gap: 1em; }
.panels svg { width: 100%; } .legend span { padding: 0 .3em; }
.better { background: #d5ecf7; } .equal { background: #f4f4f4; } .worse { background: #fbdccb; }
details { margin: .5em 0; } summary { cursor: pointer; font-weight: 600; padding: .3em 0; }
@media (max-width: 700px) {
  body { font-size: 15px; padding: 0 .6em; margin: .6em 0; } nav ul { columns: 1; }
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
    sme : Table 8, HTML
    readings : what other readings of the paper's text change, by method and design: reading, RMSE, difference
    reading_errors : their RMSE, by method and design, and by reading
    """

    tables: Tables
    paper: Mapping[PrintedKey, Printed]
    uniform: Tables = field(default_factory=dict)
    fresh: Tables = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    hours: Mapping[str, float] = field(default_factory=dict)
    sme: str = ""
    readings: Mapping[str, Sequence[tuple[str, str, str]]] = field(default_factory=dict)
    reading_errors: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def figures(self) -> list[Figure]:
        return [figure for figures in self.tables.values() for figure in figures]


def render(contents: Contents, made_by: str) -> str:
    """The whole page."""
    sections = {
        "How to read this page": _READING,
        "The headline": _render_headline(contents),
        "What the judge adds": _render_judges(contents.figures),
        "Where the algorithms as printed differ from what is printed": _render_off(contents),
        **{
            f"Table {name.removeprefix('table')}: {TABLES[name].title}": "".join(render_table(name, figures))
            for name, figures in contents.tables.items()
        },
        "Effects of many sizes": _render_uniform(contents),
        "Fresh data sets": _render_fresh(contents),
        "Table 8: the SME study": contents.sme,
        "What the epsilons are": _render_spent(contents.figures),
        "How much is missing": _render_shares(contents.shares),
        "Processor time": _render_hours(contents.hours),
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
        **{f"{m}, as printed": [m + PRINTED] for m in PAPERS_OWN},
        "all three, as printed": AS_PRINTED,
        **{f"{m}, ours": [m] for m in PAPERS_OWN},
        "all three, ours": PAPERS_OWN,
        "Original-C (real data)": ["Original-C"],
    }
    for label, methods in groups.items():
        own = _of(figures, methods)
        counts = count_verdicts(own)
        total = sum(counts[verdict] for verdict in ("better", "equal", "worse"))
        if total:
            near, cells = count_near(own)
            good = counts["better"] + counts["equal"]
            rows.append(
                (
                    label,
                    f"{total}",
                    *(f"{counts[verdict]}" for verdict in ("better", "equal", "worse", "out of reach")),
                    f"{100.0 * good / total:.0f} %",
                    f"{near} of {cells}",
                )
            )
    if not rows:
        return ""
    header = ("method", "cells", "better", "equal", "worse", "of these out of reach", "no worse", "RMSE within 15 %")
    caption = (
        "All cells of Tables 1 to 7 against the printed figures, by the paper's judge. Better and worse are by more "
        f"than {WITHIN:g} of our standard errors. Out of reach: printed better than the same judge finds on the "
        "complete real data."
    )
    return f"{HtmlTable(caption, header, rows)}{_render_refined(figures, contents.paper)}"


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
    caption = (
        "The same synthetic tables by three judges: geometric mean over cells of RMSE divided by the printed RMSE, and "
        "how all cells compare with the printed figures. What a column has beyond the first of its kind, the judge "
        "adds; the paper's figures are by its own judge throughout."
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
    note = (
        f"<p>On the real data the paper's judge is worse than the paper prints for it in {len(worse)} of {len(lost)} "
        f"settings{f' ({join(worse)})' if worse else ''}: there the design as we read it, or the judge, falls short "
        "before anything is privatized.</p>"
    )
    return f"{HtmlTable(caption, header, rows, groups, heads=2)}{note}"


def _render_off(contents: Contents) -> str:
    """Cells of the algorithms as printed that are not within 15 % of the printed RMSE."""
    own = [f for f in _of(contents.figures, AS_PRINTED) if f.key.metric == "rmse" and f.printed is not None]
    if not own:
        return ""
    near, cells = count_near(own)
    groups: dict[tuple[str, str, str], list[Figure]] = {}
    for f in own:
        groups.setdefault((find_row(f.key.method), f.key.model, f.key.mechanism), []).append(f)
    rows = []
    for (method, model, mechanism), found in groups.items():
        inside, total = count_near(found)
        off = [100.0 * f.off_by for f in found]
        rows.append(
            (
                method,
                model,
                mechanism,
                f"{inside} of {total}",
                f"{np.mean(off):+.0f} %",
                f"{min(off):+.0f} to {max(off):+.0f} %",
                _name_nearest(
                    found, contents.reading_errors.get(f"{method.lower()} as printed, {model}, {mechanism}", {})
                ),
            )
        )
    header = ("method", "model", "blocks", "within 15 %", "mean difference", "range", "nearest reading")
    caption = (
        f"RMSE of the algorithms as printed against the printed RMSE, by the paper's judge: {near} of {cells} cells "
        f"within {100.0 * NEAR:.0f} %. A cell is one N and one ε. Nearest reading: of those below, the one that "
        "comes nearest to the printed RMSE at N = 1,000 and ε = 1, and what it leaves of the difference. It was "
        "looked for with the printed figures in sight, so it explains a difference and proves nothing; a dash where no "
        "other reading was run."
    )
    return f"{HtmlTable(caption, header, rows, heads=3)}{_list_far(own)}{_render_readings(contents.readings)}"


def _list_far(figures: Sequence[Figure]) -> str:
    """Every cell further off than that, to be opened."""
    rows = [
        (
            find_row(f.key.method),
            f.key.model,
            f.key.mechanism,
            f"{f.key.n_subjects:,}",
            f"{f.key.epsilon:g}",
            f"{f.printed.mean:.3f}",
            render_number(f),
            f"{100.0 * f.off_by:+.0f} %",
        )
        for f in figures
        if f.printed is not None and abs(f.off_by) > NEAR
    ]
    if not rows:
        return ""
    header = ("method", "model", "blocks", "N", "ε", "printed", "as printed", "difference")
    caption = f"Cells further than {100.0 * NEAR:.0f} % from the printed RMSE, by the paper's judge."
    return f"<details><summary>All {len(rows)} of them</summary>{HtmlTable(caption, header, rows, heads=5)}</details>"


def _name_nearest(figures: Sequence[Figure], errors: Mapping[str, float]) -> str:
    """The reading that comes nearest to the printed RMSE, and how far it is from it."""
    printed = [f.printed.mean for f in figures if f.printed and (f.key.n_subjects, f.key.epsilon) == (1_000, 1.0)]
    if not printed or not errors:
        return "–"
    nearest = min(errors, key=lambda reading: abs(errors[reading] - printed[0]))
    return f"{escape(nearest)}: {100.0 * (errors[nearest] / printed[0] - 1.0):+.0f} %"


def _render_readings(readings: Mapping[str, Sequence[tuple[str, str, str]]]) -> str:
    """What the text leaves open, and what each other reading of it would change."""
    parts = []
    for real in (False, True):
        found = {
            label: {name: more or value for name, value, more in rows}
            for label, rows in readings.items()
            if label.startswith("real data") == real
        }
        names = dict.fromkeys(name for own in found.values() for name in own)
        lines = [(name, *(own.get(name, "") for own in found.values())) for name in names]
        header = ("reading", *(label.replace(" as printed", "") for label in found))
        parts += [str(HtmlTable(_REAL_READINGS if real else _READINGS, header, lines))] if lines else []
    return "".join(parts)


_READINGS = (
    "What the text leaves open in the algorithms and in the judge: RMSE of our reading at N = 1,000, by the paper's "
    "judge, and how much others add to it. <code>docs/development/departures.md</code> has the sentences, "
    "<code>experiments/results/open_choices.md</code> how this was made."
)
_REAL_READINGS = (
    "What the text leaves open in the design: how many covariates are of which kind. RMSE of the paper's judge on real "
    "data, N = 1,000, with 25 of each kind (our reading), and how much other mixtures add to it."
)


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
            for method in ("VCDS", "EVCDS", "IEVCDS")
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
    groups = [("", 4), ("VCDS", 2), ("EVCDS", 2), ("IEVCDS", 2)]
    header = ("model", "blocks", "N", "ε", *("tables'", "fresh") * 3)
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


def _render_hours(hours: Mapping[str, float]) -> str:
    rows = [(label, f"{value:.1f}") for label, value in hours.items()]
    if not rows:
        return ""
    rows.append(("together", f"{sum(hours.values()):.1f}"))
    caption = "Processor hours of everything on this page, all judges included; one core of the machine below."
    return str(HtmlTable(caption, ("part", "hours"), rows))


def describe_spent(spent: Spent) -> str:
    """Epsilon at the three units, in one line."""
    return " · ".join(f"{unit} {format_epsilon(getattr(spent, unit))}" for unit in ("client", "block", "person"))
