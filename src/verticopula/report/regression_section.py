"""The regression's table for a reader, with effects on a common scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from verticopula.errors import SettingsError
from verticopula.report.report_data import ReportData
from verticopula.report.sensitivity_analysis import feature_values
from verticopula.schema.federation import ColumnKey


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
            spread = float(np.std(feature_values(subject, key, row["feature"], drawn)))
        rows.append({**row, "name": f"{row['party']}.{row['feature']}" if row["party"] else "intercept", "sd": spread})
    return {**facts, "rows": rows}
