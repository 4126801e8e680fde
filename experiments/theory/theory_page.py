"""`theory.html`: every theorem, its figures and its verdicts, in one file that opens offline; and all points as CSV."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

from experiments.theory.theory_findings import Check, Panel, Verdict
from reporting.figures import COLORS, new_figure, to_svg
from reporting.pages import html_page
from reporting.tables import to_csv, to_html

MARKERS = "osD^vPX"
STYLE = """
td, th { white-space: normal; text-align: left; }
td.word { white-space: nowrap; font-weight: 600; }
dl { max-width: 70em; } dt { font-weight: 600; margin-top: .5em; } dd { margin-left: 0; }
"""


def render(checks: Sequence[Check], made_by: str) -> str:
    """The whole page."""
    ours, theirs = ([v for c in checks for v in c.verdicts if _is_ours(v) is own] for own in (True, False))
    held, held_ours = (sum(v.agrees is True for v in some) for some in (theirs, ours))
    parts = [
        "<p>Each theorem on data for which its assumptions hold: what it predicts, what simulation gives, and whether "
        "they agree by the rule beside it. O_P statements are bounds: they are contradicted where an error falls more "
        "slowly than stated, and called tight where both go together. Slopes are exponents, fitted on logarithms. Bars "
        "are two standard errors, dashed lines the predicted slope or level. 'Derived here' is what we find instead, "
        "where a term or a condition is missing; 'read into it by the text' is what the paper says about a theorem and "
        "the theorem does not say.</p>",
        f"<p><b>{held} of the paper's {len(theirs)} predictions hold</b>, and {held_ours} of {len(ours)} derived "
        "here.</p>",
        render_summary(checks),
    ]
    for check in checks:
        parts += render_check(check)
    return html_page("The paper's theorems, measured", parts, made_by, STYLE)


def _is_ours(verdict: Verdict) -> bool:
    return verdict.predicts.startswith("derived here")


def render_summary(checks: Sequence[Check]) -> str:
    rows = [
        (
            f"<td><a href='#{_anchor(c)}'>{escape(c.theorem)}</a></td>",
            f"{sum(v.agrees is True for v in c.verdicts)} of {len(c.verdicts)} hold",
            "<br>".join(escape(_name_failure(v)) for v in c.verdicts if v.agrees is False),
        )
        for c in checks
    ]
    return to_html(("theorem", "predictions", "what does not hold"), rows, heads=0)


def _name_failure(verdict: Verdict) -> str:
    return f"{verdict.predicts} ({verdict.measured.partition(': ')[0]})"


def render_check(check: Check) -> list[str]:
    rows = [render_verdict(v) for v in check.verdicts]
    return [
        f"<h2 id='{_anchor(check)}'>{escape(check.theorem)}</h2>",
        f"<dl><dt>It says</dt><dd>{escape(check.statement)}</dd><dt>Measured "
        f"on</dt><dd>{escape(check.setup)}</dd></dl>",
        draw(check.panels),
        to_html(("predicted", "measured", "", "rule"), rows, heads=0),
        f"<p>{escape(check.note)}</p>" if check.note else "",
    ]


def render_verdict(verdict: Verdict) -> tuple[str, ...]:
    word = name_verdict(verdict) + (", tight" if verdict.tight else "")
    colour = {True: "better", False: "worse", None: "equal"}[verdict.agrees]
    return (
        escape(verdict.predicts),
        escape(verdict.measured),
        f"<td class='word {colour}'>{word}</td>",
        f"<small>{escape(verdict.rule)}</small>",
    )


def name_verdict(verdict: Verdict) -> str:
    return {True: "agrees", False: "disagrees", None: "undecided"}[verdict.agrees]


def _anchor(check: Check) -> str:
    return re.sub(r"\W+", "-", check.theorem.lower())


def draw(panels: Sequence[Panel]) -> str:
    """All panels of a check side by side."""
    figure, axes = new_figure(1, len(panels), width=4.2, height=3.6)
    for ax, panel in zip(axes, panels, strict=True):
        ax.set_title(panel.title, fontsize=10)
        ax.set_xlabel(panel.x_label)
        ax.set_ylabel(panel.y_label)
        ax.set_xscale("log")
        if panel.log_y:
            ax.set_yscale("log")
        for index, series in enumerate(dict.fromkeys(p.series for p in panel.points)):
            own = [p for p in panel.points if p.series == series]
            ax.errorbar(
                [p.x for p in own],
                [p.mean for p in own],
                [2.0 * p.error for p in own],
                color=COLORS[index % len(COLORS)],
                marker=MARKERS[index % len(MARKERS)],
                markersize=4,
                linewidth=1.2,
                label=series,
            )
        if panel.slope is not None and panel.points:
            start = panel.points[0]
            places = sorted({p.x for p in panel.points})
            ax.plot(
                places,
                [start.mean * (x / start.x) ** panel.slope for x in places],
                "--",
                color="#999999",
                label=f"slope {panel.slope:+.3g}" if panel.slope else "constant",
            )
        if panel.level is not None:
            ax.axhline(panel.level, linestyle="--", color="#999999")
        places = sorted({p.x for p in panel.points})
        ax.set_xticks(places, [f"{x:,.0f}" if x >= 1_000 else f"{x:g}" for x in places], rotation=45, fontsize=8)
        ax.minorticks_off()
        ax.legend(fontsize=7, frameon=False)
    return to_svg(figure, "; ".join(panel.title for panel in panels))


def points_to_csv(checks: Sequence[Check]) -> str:
    """Tidy: every measured point once."""
    rows = dict.fromkeys(
        (c.theorem, p.series, p.variable, f"{p.x:g}", p.measure, f"{p.mean:.6g}", f"{p.error:.3g}", p.replications)
        for c in checks
        for panel in c.panels
        for p in panel.points
    )
    return to_csv(["theorem", "series", "variable", "x", "measure", "mean", "se", "replications"], rows)


def verdicts_to_csv(checks: Sequence[Check]) -> str:
    """One line per prediction."""
    rows = [
        (c.theorem, v.predicts, v.measured, name_verdict(v), "" if v.tight is None else int(v.tight), v.rule)
        for c in checks
        for v in c.verdicts
    ]
    return to_csv(["theorem", "predicts", "measured", "verdict", "tight", "rule"], rows)
