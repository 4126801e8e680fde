"""How a regression shows itself in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verticopula.formatting import number
from verticopula.notebook import alarm_html, box, text_html

if TYPE_CHECKING:
    from verticopula.estimators.vertical_glm import VerticalGLM


def regression_html(model: VerticalGLM) -> str:
    """Settings before the fit, the selected coefficients after it."""
    if not hasattr(model, "coef_"):
        return box([f"<code>{text_html(repr(model))}</code>", "Not fitted yet."], [], [])
    summary = model.summary()
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
