"""A fitted study as plain values and back: JSON only, so that loading a file can run nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from verticopula.data.missingness import Missingness
from verticopula.errors import VersionMismatch, VerticopulaError
from verticopula.privacy.budget import ColumnBudget
from verticopula.privacy.release import Release
from verticopula.schema.columns import Column, ColumnKey
from verticopula.schema.federation import Federation
from verticopula.schema.methods import STRICT
from verticopula.schema.printed_choices import PrintedChoices
from verticopula.schema.study_settings import StudySettings
from verticopula.stats.copula import FittedCopula, Layout
from verticopula.stats.fit_result import FitResult, StrictSpending, Unidentified
from verticopula.stats.marginals import Marginal
from verticopula.stats.pairwise import FitReport
from verticopula.stats.printed.bernstein_margins import BernsteinMargin
from verticopula.stats.printed.row_order_ranks import as_number
from verticopula.stats.refinement import RefineReport
from verticopula.stats.strict_report import StrictReport
from verticopula.stats.tilted_ranks.class_tilting import ClassMixture
from verticopula.stats.tilting.tilted_study import TiltedStudyCopula
from verticopula.study.fitted_study import FittedStudy
from verticopula.study.saved_tilting import classes_from_dict, classes_to_dict, tilted_from_dict, tilted_to_dict

STUDY_FORMAT = 2
_BY_BOUNDS = "by-bounds"  # how a count column without `cells` is cut; studies without this word were all "growing"
_VERSIONS_OF = ("verticopula", "numpy", "numba", "opendp", "cryptography")


def save_study(path: str | Path, fitted: FittedStudy) -> None:
    """Write settings, fitted copula and releases as JSON: numbers and names, nothing executable."""
    content = {
        "format": STUDY_FORMAT,
        "count_cells": _BY_BOUNDS,
        "versions": {name: version(name) for name in _VERSIONS_OF},
        "study": fitted.name,
        "settings": fitted.settings.to_dict(),
        "federation": fitted.federation.to_dict(),
        "fit": result_to_dict(fitted.result),
        "releases": [json.loads(entry.to_json()) for entry in fitted.releases],
        "privacy": fitted.privacy.lines(),
    }
    Path(path).write_text(json.dumps(content, indent=1), encoding="utf-8")


def load_study(path: str | Path) -> FittedStudy:
    """What `save_study` wrote; VerticopulaError if it cannot be read."""
    where = Path(path).name
    try:
        raw = json.loads(Path(path).read_text(encoding="utf-8"))
        if raw["format"] != STUDY_FORMAT:
            raise VersionMismatch(f"{where}: study format {raw['format']}, this version reads {STUDY_FORMAT}")
        known = raw.get("count_cells") == _BY_BOUNDS
        federation = Federation.from_dict(raw["federation"] if known else with_growing_cells(raw["federation"]))
        return FittedStudy(
            raw["study"],
            federation,
            StudySettings.from_dict(raw["settings"]).checked(federation),
            result_from_dict(federation, raw["fit"]),
            tuple(Release.from_json(json.dumps(entry)) for entry in raw["releases"]),
        )
    except (OSError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, VerticopulaError):
            raise
        raise VerticopulaError(f"{where}: cannot be read as a saved study") from None


def with_growing_cells(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A federation as studies have it that were saved before count columns could have even cells: theirs all grow."""

    def grow(column: dict[str, Any]) -> dict[str, Any]:
        is_even = column["kind"] == "count" and Column(**column).has_even_cells
        return {**column, "cells": "growing"} if is_even else column

    return {**raw, "party": [{**party, "column": [grow(c) for c in party["column"]]} for party in raw["party"]]}


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
                "cell_probabilities": copula.margins[key].probabilities.tolist(),
                "observed_cell_probabilities": result.observed_margins[key].probabilities.tolist(),
                "marginal_repair": copula.margins[key].repair,
                **_empty_values(copula.margins[key], result.observed_margins[key]),
                **_printed_margin(copula.margins[key]),
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
        **({} if result.strict is None else {STRICT.name: result.strict.to_dict()}),
        **({"tilted": tilted_to_dict(copula)} if isinstance(copula, TiltedStudyCopula) else {}),
        **({"classes": classes_to_dict(copula)} if isinstance(copula, ClassMixture) else {}),
        **({} if result.spending is None else {"sums": _sums(result.spending)}),
    }


def _spent_on(result: FitResult, key: ColumnKey) -> dict[str, float]:
    if result.spending is not None:
        return {"deviation": result.spending.deviations[key]}
    return asdict(result.budgets[key])


def _printed_margin(margin: Marginal) -> dict[str, Any]:
    """What is left out unless a margin is one that the paper's algorithms give as printed."""
    if not isinstance(margin, BernsteinMargin):
        return {}
    own = {"low": margin.low, "high": margin.high, "coefficients": margin.coefficients.tolist()}
    return {"as_printed": {**own, "choices": asdict(margin.choices)}}


def _empty_values(margin: Marginal, observed: Marginal) -> dict[str, float]:
    """Shares of empty values; left out where there are none."""
    if margin.empty == 0.0 and observed.empty == 0.0:
        return {}
    return {"empty_share": margin.empty, "observed_empty_share": observed.empty}


def _read_margin(column: Column, saved: Mapping[str, Any], shares: str) -> Marginal:
    """One column's margin, as it was written."""
    probabilities, repair, raw = np.array(saved[shares]), saved["marginal_repair"], saved.get("as_printed")
    if raw is None:
        empty = saved.get("empty_share" if shares == "cell_probabilities" else "observed_empty_share", 0.0)
        return Marginal(column, probabilities, repair, empty=empty)
    coefficients, choices = np.array(raw["coefficients"], dtype=np.float64), PrintedChoices(**raw["choices"])
    return BernsteinMargin(column, probabilities, repair, raw["low"], raw["high"], coefficients, choices)


def _sums(spending: StrictSpending) -> dict[str, Any]:
    """All that the price needs, but for the margins' noise, which stands with their columns."""
    prices = ("mu", "mu_person", "tables", "tables_person")
    parties = ("factors", "subjects", "selection")
    return {
        **{name: getattr(spending, name) for name in prices},
        **{name: dict(getattr(spending, name)) for name in parties},
        "empties": sorted([key.party, key.column] for key in spending.empties),
    }


def result_from_dict(federation: Federation, raw: Mapping[str, Any]) -> FitResult:
    """What `result_to_dict` wrote, checked; VerticopulaError if it does not fit the federation."""
    saved = {ColumnKey(c["party"], c["column"]): c for c in raw["columns"]}
    printed = {key for key, column in saved.items() if "as_printed" in column}
    columns = {
        key: as_number(column) if key in printed else column
        for key in federation.keys
        for column in [federation.column(key)]
    }
    layout = Layout.of(columns)
    if tuple(raw["labels"]) != layout.labels or set(saved) != set(columns):
        raise VerticopulaError("the saved study's columns do not fit its federation")
    margins = {key: _read_margin(columns[key], saved[key], "cell_probabilities") for key in layout.keys}
    correlation = np.array(raw["correlation"], dtype=np.float64)
    q = len(layout.labels)
    if correlation.shape != (q, q) or not np.all(np.isfinite(correlation)):
        raise VerticopulaError("the saved study's correlation matrix has the wrong shape")
    report = raw["report"]
    copula = FittedCopula(layout, margins, correlation)
    return FitResult(
        copula=_read_copula(copula, raw),
        report=FitReport(
            overlap=np.array(report["overlap"], dtype=np.int64),
            standard_error=np.array(report["standard_error"]),
            shrink_rank=report["shrink_rank"],
            shrink_change=report["shrink_change"],
            psd_change=report["psd_change"],
            smallest_eigenvalue=report["smallest_eigenvalue"],
            margin_repairs={key: margin.repair for key, margin in margins.items()},
        ),
        observed_margins={
            key: _read_margin(columns[key], saved[key], "observed_cell_probabilities") for key in layout.keys
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
        strict=StrictReport.from_dict(raw[STRICT.name]) if STRICT.name in raw else None,
        spending=_read_spending(raw["sums"], {key: saved[key]["deviation"] for key in layout.keys})
        if "sums" in raw
        else None,
    )


def _read_copula(copula: FittedCopula, raw: Mapping[str, Any]) -> FittedCopula:
    """The copula with the tables that tilt it, if the file has any."""
    if "classes" in raw:
        return classes_from_dict(copula, raw["classes"])
    return tilted_from_dict(copula, raw["tilted"]) if "tilted" in raw else copula


def _read_spending(raw: dict[str, Any], deviations: dict[ColumnKey, float]) -> StrictSpending:
    """What `_sums` wrote; older files have one mu for a record and a person."""
    empties = frozenset(ColumnKey(*key) for key in raw.get("empties", ()))
    return StrictSpending(deviations, **{"mu_person": raw["mu"], **raw, "empties": empties})
