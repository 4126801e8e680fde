"""Interactive figures of a study for notebooks, from the same numbers as the report's figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from verticopula.errors import SettingsError
from verticopula.formatting import format_percent, readable
from verticopula.report.association_figures import describe_correlation
from verticopula.report.margin_figures import describe_margins
from verticopula.report.report_data import ReportData
from verticopula.study.correlation_errors import population_errors

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST_PANELS = 24
_PANELS_A_ROW = 3
_OBSERVED, _SYNTHETIC = "#6b7480", "#1f6fc4"
_MINUS, _ZERO, _PLUS = "rgb(18,84,160)", "rgb(245,246,248)", "rgb(178,42,30)"


def plot_study(subject: ReportData, what: str, columns: Sequence[str] | None = None) -> go.Figure:
    """A figure of a study. It holds what the report holds: nothing beyond what the parties released.

    Parameters
    ----------
    subject : the study
    what : `margins`, `correlations` or `missingness`
    columns : `party.column`, those to draw; all of them by default, the first 24 for margins
    """
    drawn = {"margins": _plot_margins, "correlations": _plot_correlations}
    if what == "missingness" and columns is None:
        return _plot_missingness(subject)
    if what not in drawn:
        known = ", ".join(map(repr, (*drawn, "missingness")))
        problem = "blocks are missing as a whole: columns cannot be chosen" if what == "missingness" else f"no {what!r}"
        raise SettingsError(f"{problem}; what can be plotted is {known}")
    return drawn[what](subject, _chosen(subject, columns))


def _chosen(subject: ReportData, columns: Sequence[str] | None) -> list[str]:
    known = [str(key) for key in subject.layout.keys]
    if columns is None:
        return known
    if isinstance(columns, str):
        columns = [columns]
    unknown = [name for name in columns if name not in known]
    if unknown or not columns:
        raise SettingsError(f"no columns of this study: {', '.join(unknown) or 'none were named'}")
    return list(columns)


def _plot_margins(subject: ReportData, chosen: list[str]) -> go.Figure:
    """A panel for each column: bars are synthetic, the line is what was observed."""
    import plotly.graph_objects as go  # only here: fitting needs no figures
    from plotly.subplots import make_subplots

    entries = {entry["key"]: entry for entry in describe_margins(subject)}
    shown = [entries[key] for key in chosen[:MOST_PANELS]]
    across = min(_PANELS_A_ROW, len(shown))
    down = -(-len(shown) // across)
    figure = make_subplots(
        down, across, subplot_titles=[_safe(entry["title"]) for entry in shown], vertical_spacing=0.3 / down
    )
    for number, entry in enumerate(shown):
        place: dict[str, Any] = {"row": number // across + 1, "col": number % across + 1}
        labels = [_safe(label) for label in entry["labels"]]
        common: dict[str, Any] = {"x": labels, "showlegend": number == 0}
        said = "%{x}<br>%{y:.1%}"
        figure.add_trace(
            go.Bar(
                y=entry["series"]["synthetic"],
                name="synthetic",
                legendgroup="synthetic",
                marker_color=_SYNTHETIC,
                opacity=0.55,
                hovertemplate=said,
                **common,
            ),
            **place,
        )
        figure.add_trace(
            go.Scatter(
                y=entry["series"]["observed"],
                name="observed",
                legendgroup="observed",
                mode="markers" if not entry["ordered"] else "lines",
                line={"shape": "hvh", "color": _OBSERVED},
                hovertemplate=said,
                **common,
            ),
            **place,
        )
    more = f", {MOST_PANELS} of {len(chosen)} columns" if len(chosen) > MOST_PANELS else ""
    figure.update_xaxes(type="category", nticks=6, tickangle=0)
    figure.update_yaxes(tickformat=".0%", rangemode="tozero")
    figure.update_layout(
        title=f"Margins: observed, and corrected for whom a party does not know{more}",
        template="plotly_white",
        bargap=0.05,
        height=140 + 240 * down,
    )
    return figure


def _plot_correlations(subject: ReportData, chosen: list[str]) -> go.Figure:
    """A heat map of latent correlations; standard errors and common subjects on hovering."""
    import plotly.graph_objects as go

    keys = [str(key) for key in subject.latent_keys]
    kept = [index for index, key in enumerate(keys) if key in set(chosen)]
    described = describe_correlation(subject)
    names = [_safe(f"{subject.latent_keys[i].party}.{described['names'][i]}") for i in kept]
    result = subject.result
    square = np.ix_(kept, kept)
    more = np.stack([population_errors(subject.fitted)[square], result.report.overlap[square]], axis=-1)
    figure = go.Figure(
        go.Heatmap(
            x=names,
            y=names,
            z=result.copula.correlation[square],
            customdata=more,
            zmin=-1,
            zmax=1,
            colorscale=[[0.0, _MINUS], [0.5, _ZERO], [1.0, _PLUS]],
            hovertemplate="%{y} and %{x}<br>correlation %{z:.2f}, standard error %{customdata[0]:.2f}"
            "<br>%{customdata[1]:,.0f} subjects in common<extra></extra>",
        )
    )
    side = min(max(380, 60 + 22 * len(names)), 1200)
    figure.update_yaxes(autorange="reversed", scaleanchor="x", automargin=True)
    figure.update_xaxes(automargin=True)
    figure.update_layout(title="Latent correlations", template="plotly_white", height=side)
    return figure


def _plot_missingness(subject: ReportData) -> go.Figure:
    """A bar for each party, cut by groups of subjects who are known to the same parties."""
    import plotly.graph_objects as go
    from plotly.colors import qualitative

    missing = subject.result.missingness
    figure = go.Figure()
    for party in missing.parties:
        colour = qualitative.D3[missing.parties.index(party) % len(qualitative.D3)]
        start = 0
        for pattern, count in missing.patterns:
            if pattern[missing.parties.index(party)]:
                others = [name for name, seen in zip(missing.parties, pattern, strict=True) if seen]
                said = f"{count:,} subjects ({format_percent(count / missing.n_subjects)})"
                figure.add_trace(
                    go.Bar(
                        x=[count],
                        y=[_safe(party)],
                        base=[start],
                        orientation="h",
                        marker={"color": colour, "line": {"color": "white", "width": 1}},
                        hovertemplate=f"{said}<br>known to {_safe(', '.join(others))}<extra></extra>",
                        showlegend=False,
                    )
                )
            start += count
    figure.update_xaxes(range=[0, missing.n_subjects], title="subjects, grouped by who knows them")
    figure.update_yaxes(autorange="reversed", automargin=True, type="category")
    figure.update_layout(
        title=f"{format_percent(missing.complete_cases / missing.n_subjects)} of {missing.n_subjects:,} subjects are "
        "known to every party",
        template="plotly_white",
        barmode="overlay",
        height=160 + 50 * len(missing.parties),
    )
    return figure


def _safe(text: str) -> str:
    """Text that plotly does not take for markup, in which nothing is invisible."""
    return readable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
