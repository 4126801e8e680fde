"""A fitted regression for readers: a page of text, a DataFrame, an HTML table."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import SettingsError
from verticopula.formatting import format_number, json_numbers, readable
from verticopula.glm.inference import MOVED_NOTE, TARGET_NOTE, WHOLE_TARGET_NOTE, Inference
from verticopula.notebook import alarm_html, box, text_html

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem}"
    ".regression{overflow-x:auto}table{border-collapse:collapse}th,td{padding:.25rem .75rem;border-bottom:1px solid "
    "color-mix(in srgb,currentColor 25%,transparent);text-align:left}td.number,th.number{text-align:right;"
    "font-variant-numeric:tabular-nums}.warning{font-weight:bold;color:light-dark(#b00020,#ff8a80)}.note{opacity:.8}"
)
_NUMBERS = ("coefficient", "std. error", "lower", "upper", "p-value")
NO_PENALTY = "no penalty"  # the rule where no column can be dropped


def _escape(text: str) -> str:
    return html.escape(readable(text))


class PartyFeatures(Protocol):
    """What the features of a party are called: column g has those from `starts[g]` to `starts[g + 1]`."""

    @property
    def names(self) -> tuple[str, ...]: ...
    @property
    def sources(self) -> tuple[str, ...]: ...
    @property
    def starts(self) -> NDArray[np.int64]: ...


@dataclass(frozen=True)
class FittedRegression:
    """A fit, as plain values.

    Attributes
    ----------
    rule : how columns were selected, in words
    response : `party.column`, or empty
    coef : party -> coefficients of its features
    intercept : None where none was fitted
    features : party -> its features
    inference : standard errors of the selected coefficients; None where no honest ones are known
    no_intervals : why
    explained : share of the deviance explained
    rounds, bytes : what the fit exchanged
    """

    family: str
    rule: str
    response: str
    coef: Mapping[str, Floats]
    intercept: float | None
    features: Mapping[str, PartyFeatures]
    inference: Inference | None
    no_intervals: str
    n_rows: int
    n_effective: float
    explained: float
    converged: bool
    warnings: tuple[str, ...]
    rounds: int
    bytes: int


@dataclass(frozen=True)
class RegressionSummary:
    """What `VerticalGLM.summary()` gives.

    Attributes
    ----------
    frame : one row per selected feature: party, column, feature, coefficient; std. error, lower and upper where they
        are known; a p-value only where noise and selection are ignored
    heading, notes : lines before and after it
    warnings : what a reader must know, one line each
    """

    frame: pd.DataFrame
    heading: tuple[str, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        names = self.frame.select_dtypes(exclude="number").columns
        safe = self.frame.assign(**{n: [readable(str(v)).replace("\n", " ") for v in self.frame[n]] for n in names})
        table = safe.to_string(index=False, formatters=dict.fromkeys(_NUMBERS, _show), na_rep="")
        body = table if len(self.frame) else "(no column was selected)"
        parts = ["\n".join(f"! {line}" for line in self.warnings), "\n".join(self.heading), body, "\n".join(self.notes)]
        return readable("\n\n".join(part for part in parts if part) + "\n")

    def to_html(self) -> str:
        """A table and its notes; every name is escaped."""
        head = "".join(
            f'<th class="number">{name}</th>' if name in _NUMBERS else f"<th>{_escape(str(name))}</th>"
            for name in self.frame.columns
        )
        rows = "".join(
            "<tr>"
            + "".join(
                f'<td class="number">{_show(value)}</td>' if name in _NUMBERS else f"<td>{_escape(str(value))}</td>"
                for name, value in zip(self.frame.columns, row, strict=True)
            )
            + "</tr>"
            for row in self.frame.itertuples(index=False)
        )
        lines = "".join(f"<p>{_escape(line)}</p>" for line in self.heading)
        alarms = "".join(f'<p class="warning">{_escape(line)}</p>' for line in self.warnings)
        notes = "".join(f'<p class="note">{_escape(line)}</p>' for line in self.notes)
        return (
            f'<div class="regression">{alarms}{lines}'
            f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{notes}</div>"
        )

    def to_page(self) -> str:
        """A file of its own."""
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Regression</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<style>{_STYLE}</style></head><body>{self.to_html()}</body></html>\n"
        )

    def _repr_html_(self) -> str:
        return self.to_html()


def _show(value: float) -> str:
    """Four significant digits; a p-value too small to print says so."""
    if value is None or not np.isfinite(value):
        return "" if value is None or np.isnan(value) else str(value)
    if value != 0.0 and abs(value) < 1e-4:
        return f"{value:.1e}"
    return f"{value:.4g}"


def tabulate(fit: FittedRegression, confidence: float) -> pd.DataFrame:
    """One row per selected feature, with its interval at a confidence level."""
    import pandas as pd  # only here: everything else works without it

    if not 0.0 < confidence < 1.0:
        raise SettingsError(f"a confidence level lies between 0 and 1, got {confidence}")
    rows = [] if fit.intercept is None else [("", "(intercept)", "(intercept)", fit.intercept)]
    for party, features in fit.features.items():
        columns = np.repeat(np.array(features.sources, dtype=object), np.diff(features.starts))
        rows += [
            (party, str(column), feature, float(value))
            for column, feature, value in zip(columns, features.names, fit.coef[party], strict=True)
            if value != 0.0
        ]
    frame = pd.DataFrame(rows, columns=["party", "column", "feature", "coefficient"])
    if fit.inference is not None:
        frame["std. error"] = fit.inference.standard_error
        frame["lower"], frame["upper"] = fit.inference.intervals(confidence)
        if fit.inference.source == "likelihood":
            frame["p-value"] = fit.inference.p_values()
    return frame


def summarise_regression(fit: FittedRegression, confidence: float) -> RegressionSummary:
    """The table with what a reader needs around it."""
    n_parties, n_features = len(fit.features), sum(len(f.names) for f in fit.features.values())
    n_selected = sum(int((coef != 0.0).sum()) for coef in fit.coef.values())
    heading = (
        f"{fit.family} regression of {fit.response or 'the response'}, {fit.rule}",
        f"{n_selected} of {n_features} features selected; "
        f"{fit.n_rows:,} rows standing for {fit.n_effective:,.0f} subjects; "
        f"deviance explained {fit.explained:.1%}",
        f"{n_parties} part{'y' if n_parties == 1 else 'ies'}, {fit.rounds:,} rounds, "
        f"{fit.bytes / 1e6:,.1f} MB exchanged; " + ("converged" if fit.converged else "NOT CONVERGED"),
    )
    if fit.inference is None:
        notes = [f"No intervals: {fit.no_intervals}."]
    else:
        selects = fit.rule != NO_PENALTY
        target = TARGET_NOTE if selects else WHOLE_TARGET_NOTE
        notes = [f"Intervals at {confidence:.0%}. {target}", fit.inference.note(selects=selects)]
    frame = tabulate(fit, confidence)
    if fit.inference is not None and not frame["coefficient"].between(frame["lower"], frame["upper"]).all():
        notes.append(MOVED_NOTE)
    return RegressionSummary(frame, heading, fit.warnings, tuple(notes))


def describe_regression(fit: FittedRegression, confidence: float) -> dict[str, Any]:
    """The summary as values that JSON can hold: what a report shows, and what a study's folder keeps."""
    summary = summarise_regression(fit, confidence)
    frame = summary.frame.rename(columns={"std. error": "error", "p-value": "p"})
    rows = json_numbers(frame.to_dict("records"))
    return {
        "response": fit.response,
        "family": fit.family,
        "intercept": fit.intercept is not None,
        "level": confidence,
        "converged": fit.converged,
        "heading": list(summary.heading),
        "warnings": list(summary.warnings),
        "notes": list(summary.notes),
        "rows": rows,
    }


def regression_html(settings: str, summary: RegressionSummary | None) -> str:
    """A regression's settings before the fit, where `summary` is None; the selected coefficients after it."""
    if summary is None:
        return box([f"<code>{text_html(settings)}</code>", "Not fitted yet."], [], [])
    rows = [
        [
            str(row["party"]),
            str(row["feature"]),
            *(format_number(row.get(name)) for name in ("coefficient", "lower", "upper")),
        ]
        for row in summary.frame.to_dict("records")
    ]
    lines = [*(alarm_html(line) for line in summary.warnings), *(text_html(line) for line in summary.heading)]
    heads = ["party", "feature", "coefficient", "lower", "upper"]
    return box(lines, heads, rows, numbers=2, after=[text_html(note) for note in summary.notes])
