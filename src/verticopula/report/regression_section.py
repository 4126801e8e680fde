"""The regression's table for a reader, with effects on a common scale."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from verticopula.errors import SettingsError, VerticopulaError
from verticopula.estimators.study_files import regression_facts
from verticopula.estimators.synthesizer import Synthesizer
from verticopula.estimators.vertical_glm import VerticalGLM
from verticopula.report.report_subject import Subject
from verticopula.report.sensitivity_analysis import feature_values
from verticopula.schema.federation import ColumnKey, Federation

CHEAP = 300_000  # cells of a synthetic table that a regression is fitted on without being asked
_LEVEL = 0.95
_FAMILIES = {"binary": "binomial", "count": "poisson"}


def fit_if_cheap(synthesizer: Synthesizer, tables: Any) -> dict[str, Any] | None:
    """A regression of the federation's response on everything else, if that takes seconds; None otherwise."""
    federation: Federation = synthesizer.federation
    kind = federation.column(federation.response).kind
    cells = synthesizer.n_subjects_ * len(synthesizer.result_.copula.layout.labels)
    if kind == "nominal" or cells > CHEAP or set(tables) != {party.name for party in federation.parties}:
        return None
    model = VerticalGLM(_FAMILIES.get(kind, "gaussian"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the report says it first
            model.fit(tables, str(federation.response))
    except VerticopulaError:
        return None  # such as a response that is the same everywhere
    return regression_facts(model, _LEVEL)


def describe_regression(subject: Subject) -> dict[str, Any] | None:
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
