"""A fitted study as plain values and back: JSON only, so that loading a file can run nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from verticopula.data.missingness import Missingness
from verticopula.errors import VerticopulaError
from verticopula.privacy.budget import ColumnBudget
from verticopula.schema.federation import ColumnKey, Federation
from verticopula.stats.copula import FittedCopula, Layout
from verticopula.stats.fit_result import FitResult, StrictSpending, Unidentified
from verticopula.stats.marginals import Marginal
from verticopula.stats.pairwise import FitReport
from verticopula.stats.refinement import RefineReport
from verticopula.stats.strict.strict_report import StrictReport


def result_to_dict(result: FitResult) -> dict[str, Any]:
    """The fitted copula and how it came about."""
    copula, report = result.copula, result.report
    return {
        "missingness": result.missingness.to_dict(),
        "labels": list(copula.layout.labels),
        "correlation": copula.correlation.tolist(),
        "columns": [
            {
                "party": key.party,
                "column": key.column,
                **_spent_on(result, key),
                "cell_probabilities": copula.marginals[key].probabilities.tolist(),
                "observed_cell_probabilities": result.observed_marginals[key].probabilities.tolist(),
                "marginal_repair": copula.marginals[key].repair,
            }
            for key in copula.layout.keys
        ],
        "report": {
            "overlap": report.overlap.tolist(),
            "standard_error": report.standard_error.tolist(),
            "shrink_rank": report.shrink_rank,
            "shrink_change": report.shrink_change,
            "psd_change": report.psd_change,
            "smallest_eigenvalue": report.smallest_eigenvalue,
        },
        "refinement": None if result.refinement is None else asdict(result.refinement),
        "margin_sensitivity": result.margin_sensitivity,
        "unidentified": [asdict(pair) for pair in result.unidentified],
        **({} if result.strict is None else {"strict": result.strict.to_dict()}),
        **({} if result.spending is None else {"sums": _sums(result.spending)}),
    }


def _spent_on(result: FitResult, key: ColumnKey) -> dict[str, float]:
    if result.spending is not None:
        return {"deviation": result.spending.deviations[key]}
    return asdict(result.budgets[key])


def _sums(spending: StrictSpending) -> dict[str, Any]:
    return {"mu": spending.mu, "factors": dict(spending.factors), "subjects": dict(spending.subjects)}


def result_from_dict(federation: Federation, raw: Mapping[str, Any]) -> FitResult:
    """What `result_to_dict` wrote, checked; VerticopulaError if it does not fit the federation."""
    columns = {key: federation.column(key) for key in federation.keys}
    layout = Layout.of(columns)
    saved = {ColumnKey(c["party"], c["column"]): c for c in raw["columns"]}
    if tuple(raw["labels"]) != layout.labels or set(saved) != set(columns):
        raise VerticopulaError("the saved study's columns do not fit its federation")
    marginals = {
        key: Marginal(columns[key], np.array(saved[key]["cell_probabilities"]), saved[key]["marginal_repair"])
        for key in layout.keys
    }
    correlation = np.array(raw["correlation"], dtype=np.float64)
    q = len(layout.labels)
    if correlation.shape != (q, q) or not np.all(np.isfinite(correlation)):
        raise VerticopulaError("the saved study's correlation matrix has the wrong shape")
    report = raw["report"]
    return FitResult(
        copula=FittedCopula(layout, marginals, correlation),
        report=FitReport(
            overlap=np.array(report["overlap"], dtype=np.int64),
            standard_error=np.array(report["standard_error"]),
            shrink_rank=report["shrink_rank"],
            shrink_change=report["shrink_change"],
            psd_change=report["psd_change"],
            smallest_eigenvalue=report["smallest_eigenvalue"],
            marginal_repairs={key: marginal.repair for key, marginal in marginals.items()},
        ),
        observed_marginals={
            key: Marginal(
                columns[key], np.array(saved[key]["observed_cell_probabilities"]), saved[key]["marginal_repair"]
            )
            for key in layout.keys
        },
        missingness=Missingness.from_dict(raw["missingness"]),
        refinement=None
        if raw["refinement"] is None
        else RefineReport(**{**raw["refinement"], "log_likelihood": tuple(raw["refinement"]["log_likelihood"])}),
        margin_sensitivity=raw["margin_sensitivity"],
        unidentified=tuple(Unidentified(**pair) for pair in raw["unidentified"]),
        budgets={}
        if "sums" in raw
        else {key: ColumnBudget(saved[key]["epsilon_ranks"], saved[key]["epsilon_marginal"]) for key in layout.keys},
        strict=StrictReport.from_dict(raw["strict"]) if "strict" in raw else None,
        spending=StrictSpending({key: saved[key]["deviation"] for key in layout.keys}, **raw["sums"])
        if "sums" in raw
        else None,
    )
