"""The regression's table for a reader, with effects on a common scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from verticopula.errors import SettingsError
from verticopula.report.report_data import ReportData
from verticopula.report.sensitivity_analysis import DELTAS, feature_values
from verticopula.schema.columns import ColumnKey


def regression_section(subject: ReportData) -> dict[str, Any] | None:
    """Rows as they are, and each effect per standard deviation of its column."""
    facts = subject.regression
    if facts is None:
        return None
    known = {str(key) for key in subject.federation.keys}
    if any(row["party"] and f"{row['party']}.{row['column']}" not in known for row in facts["rows"]):
        raise SettingsError("the regression has columns that are not in this study: it belongs to another one")
    drawn = subject.draw()
    rows = []
    for row in facts["rows"]:
        spread = 0.0
        if row["party"]:
            key = ColumnKey(row["party"], row["column"])
            filled = {key: drawn[key][np.isfinite(drawn[key])]}
            spread = float(np.std(feature_values(subject, key, row["feature"], filled))) if filled[key].size else 0.0
        rows.append({**row, "name": f"{row['party']}.{row['feature']}" if row["party"] else "intercept", "sd": spread})
    return {**facts, "rows": rows}


def effects_per_deviation(regression: dict[str, Any]) -> list[dict[str, Any]]:
    """Effects per standard deviation, with intervals, for the figure."""
    found = []
    for row in regression["rows"]:
        if row["party"] and row["sd"] > 0.0:
            ends = [None if row.get(end) is None else row[end] * row["sd"] for end in ("lower", "upper")]
            value = row["coefficient"] * row["sd"]
            found.append({"name": row["name"], "value": value, "low": ends[0], "high": ends[1], "sd": row["sd"]})
    return found


def largest_moves(regression: dict[str, Any] | None, moving: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Per selected feature: the reported coefficient, and the furthest it goes over all parties and deltas."""
    if regression is None or moving is None:
        return []
    rows = [row for row in regression["rows"] if row["party"]]
    found = []
    for index, row in enumerate(rows):
        moves = [
            (move[index], part["party"], delta)
            for part in moving["parties"]
            for move, delta in zip(part["moves"], DELTAS, strict=True)
            if move is not None
        ]
        far = max(moves, key=lambda move: abs(move[0]))
        low, high = (row["coefficient"] + pick(move[0] for move in moves) for pick in (min, max))
        found.append(
            {
                "name": row["name"],
                "coefficient": row["coefficient"],
                "low": low,
                "high": high,
                "party": far[1],
                "delta": far[2],
                "errors": abs(far[0]) / row["error"] if row.get("error") else None,
                "turns": low < 0.0 < high,
            }
        )
    return found
