"""A fitted regression for readers: a page of text, a DataFrame, an HTML table."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from verticopula.errors import SettingsError
from verticopula.glm.inference import SELECTION_NOTE

if TYPE_CHECKING:
    import pandas as pd

    from verticopula.estimators.vertical_glm import VerticalGLM

_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:76rem;margin:2rem auto;padding:0 1rem}"
    ".regression{overflow-x:auto}table{border-collapse:collapse}th,td{padding:.25rem .75rem;border-bottom:1px solid "
    "color-mix(in srgb,currentColor 25%,transparent);text-align:left}td.number,th.number{text-align:right;"
    "font-variant-numeric:tabular-nums}.warning{font-weight:bold;color:light-dark(#b00020,#ff8a80)}.note{opacity:.8}"
)
_NUMBERS = ("coefficient", "std. error", "lower", "upper", "p-value")


@dataclass(frozen=True)
class RegressionSummary:
    """What `VerticalGLM.summary()` gives.

    Attributes
    ----------
    frame : one row per selected feature: party, column, feature, coefficient, std. error, lower, upper, p-value
    heading, notes : lines before and after it
    """

    frame: pd.DataFrame
    heading: tuple[str, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]

    def __str__(self) -> str:
        table = self.frame.to_string(index=False, formatters=dict.fromkeys(_NUMBERS, _show), na_rep="")
        body = table if len(self.frame) else "(no column was selected)"
        parts = ["\n".join(f"! {line}" for line in self.warnings), "\n".join(self.heading), body, "\n".join(self.notes)]
        return "\n\n".join(part for part in parts if part) + "\n"

    def to_html(self) -> str:
        """A table and its notes; every name is escaped."""
        head = "".join(
            f'<th class="number">{name}</th>' if name in _NUMBERS else f"<th>{html.escape(str(name))}</th>"
            for name in self.frame.columns
        )
        rows = "".join(
            "<tr>"
            + "".join(
                f'<td class="number">{_show(value)}</td>' if name in _NUMBERS else f"<td>{html.escape(str(value))}</td>"
                for name, value in zip(self.frame.columns, row, strict=True)
            )
            + "</tr>"
            for row in self.frame.itertuples(index=False)
        )
        lines = "".join(f"<p>{html.escape(line)}</p>" for line in self.heading)
        alarms = "".join(f'<p class="warning">{html.escape(line)}</p>' for line in self.warnings)
        notes = "".join(f'<p class="note">{html.escape(line)}</p>' for line in self.notes)
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


def tabulate(model: VerticalGLM, level: float) -> pd.DataFrame:
    """One row per selected feature."""
    import pandas as pd  # only here: everything else works without it

    if not 0.0 < level < 1.0:
        raise SettingsError(f"a confidence level lies between 0 and 1, got {level}")
    rows = [("", "(intercept)", "(intercept)", model.intercept_)] if model.fit_intercept else []
    for name, design in model.path_.designs.items():
        columns = np.repeat(np.array(design.sources, dtype=object), np.diff(design.starts))
        rows += [
            (name, str(column), feature, float(value))
            for column, feature, value in zip(columns, design.names, model.coef_[name], strict=True)
            if value != 0.0
        ]
    frame = pd.DataFrame(rows, columns=["party", "column", "feature", "coefficient"])
    if model.inference_ is not None:
        frame["coefficient"] = model.inference_.estimate  # the copies' mean, where they were combined
        frame["std. error"] = model.inference_.standard_error
        frame["lower"], frame["upper"] = model.inference_.intervals(level)
        frame["p-value"] = model.inference_.p_values()
    return frame


def summarise_regression(model: VerticalGLM, level: float) -> RegressionSummary:
    """The table with what a reader needs around it."""
    frame = tabulate(model, level)
    traffic, designs = model.path_.traffic, model.path_.designs
    chosen = {"bic": "BIC", "cv": f"{model.folds}-fold cross-validation"}.get(str(model.select), "hand")
    strength = "" if model.penalty == "none" else f", strength {model.strength_:.4g} chosen by {chosen}"
    rule = f"{model.penalty} penalty{strength}"
    if model.select == "bayes":
        rule = f"posterior means of columns with a probability above {model.bar_:.2g}"
    n_selected = sum(int((coef != 0.0).sum()) for coef in model.coef_.values())
    heading = (
        f"{model.family} regression of {model.response_ or 'the response'}, {rule}",
        f"{n_selected} of {sum(len(d.names) for d in designs.values())} features selected; "
        f"{model.n_rows_:,} rows standing for {model.n_effective_:,.0f} subjects; "
        f"deviance explained {model.explained_:.1%}",
        f"{len(designs)} part{'y' if len(designs) == 1 else 'ies'}, {traffic.rounds:,} rounds, "
        f"{traffic.bytes / 1e6:,.1f} MB exchanged; " + ("converged" if model.converged_ else "NOT CONVERGED"),
    )
    if model.inference_ is None:
        notes = ["No standard errors: they need the parties' columns side by side, which stay where they are."]
    else:
        notes = [f"Intervals at {level:.0%}. {SELECTION_NOTE}", model.inference_.note()]
    return RegressionSummary(frame, heading, model.warnings_, tuple(notes))
