"""How a regression shows itself in a notebook."""

from __future__ import annotations

from verticopula.formatting import number
from verticopula.glm.regression_summary import RegressionSummary
from verticopula.notebook import alarm_html, box, text_html


def regression_html(settings: str, summary: RegressionSummary | None) -> str:
    """A regression's settings before the fit, where `summary` is None; the selected coefficients after it."""
    if summary is None:
        return box([f"<code>{text_html(settings)}</code>", "Not fitted yet."], [], [])
    rows = [
        [
            str(row["party"]),
            str(row["feature"]),
            *(number(row.get(name)) for name in ("coefficient", "lower", "upper", "p-value")),
        ]
        for row in summary.frame.to_dict("records")
    ]
    lines = [*(alarm_html(line) for line in summary.warnings), *(text_html(line) for line in summary.heading)]
    heads = ["party", "feature", "coefficient", "lower", "upper", "p"]
    return box(lines, heads, rows, numbers=2, after=[text_html(note) for note in summary.notes])
