"""One figure for how close synthetic data are to real ones, and its parts, as SDMetrics' quality report has them.

Column shapes: one less the Kolmogorov distance of ordered columns, one less the total variation distance of others.
Column pairs: one less half the difference of two rank correlations. Each part is a mean, and so is the whole.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from verticopula.report.report_data import ReportData


def quality_score(
    subject: ReportData, columns: list[dict[str, Any]], realised: dict[str, Any] | None, expected: dict[str, Any]
) -> dict[str, Any] | None:
    """The whole and its parts, in [0, 1]; None where nothing can be said.

    With real tables both parts are measured, on the subjects that a party knows. Without, only the pairs' part can be
    expected, from the standard errors of the fit against the population.

    Parameters
    ----------
    subject : the study
    columns : as `describe_margins` gave them
    realised, expected : as `realised_errors` and `expected_errors` gave them
    """
    if not subject.real:
        if not expected["pairs"]:
            return None
        return {"measured": False, "pairs": 1.0 - expected["mean_error"] / 2.0, "n_pairs": expected["pairs"]}
    shapes = {column["key"]: shape_score(column) for column in columns if "real" in column["series"]}
    worst = sorted(shapes.items(), key=lambda item: item[1])[:5]
    found: dict[str, Any] = {
        "measured": True,
        "shapes": float(np.mean(list(shapes.values()))),
        "n_shapes": len(shapes),
        "worst": [{"name": name, "score": score} for name, score in worst],
    }
    parts = [found["shapes"]]
    if realised is not None:
        found |= {"pairs": 1.0 - realised["mean"] / 2.0, "n_pairs": len(realised["points"])}
        parts.append(found["pairs"])
    return {**found, "whole": float(np.mean(parts))}


def shape_score(column: dict[str, Any]) -> float:
    """One less the distance of the released margin from the real one, among the subjects that the party knows.

    Parameters
    ----------
    column : an entry of `describe_margins`, with `real`
    """
    difference = np.subtract(column["series"]["observed"], column["series"]["real"])
    distance = np.max(np.abs(np.cumsum(difference))) if column["ordered"] else np.sum(np.abs(difference)) / 2.0
    return float(np.clip(1.0 - distance, 0.0, 1.0))
