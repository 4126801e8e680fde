"""The same questions asked by SDMetrics, where it is installed (`pip install 'verticopula[audit]'`)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import t as student_t

from verticopula.auditing.tables.encoded_rows import EncodedRows
from verticopula.auditing.tables.findings import Finding, can_tell_from_half, difference_of_shares, wilson_interval
from verticopula.auditing.tables.table_attacks import AttackedTable, closer_share

if TYPE_CHECKING:
    import pandas as pd

HOW_TO_INSTALL = "SDMetrics is not installed; for its measures beside ours: pip install 'verticopula[audit]'"
_MOST_ROWS = 500  # its distances are slow
_PARTS = 5
_KNOWN = 3  # columns that its attacker knows: it only counts exact matches


def is_installed() -> bool:
    """Whether SDMetrics can be imported."""
    return find_spec("sdmetrics") is not None


def sdmetrics_findings(exposed: AttackedTable, confidence: float, rng: np.random.Generator) -> Iterator[Finding]:
    """Overfitting, baseline and disclosure protection: 1 is best in each of them."""
    size = min(_MOST_ROWS, len(exposed.members), len(exposed.rows))
    parts = [exposed.members, exposed.others, exposed.rows]
    some = [part.rows(rng.permutation(len(part))[:size]) for part in parts]
    members, others, rows = (_frame(part) for part in some)
    metadata = {"columns": {name: {"sdtype": _sdtype(rows[name])} for name in rows.columns}}
    from sdmetrics.single_table.privacy import (
        DCRBaselineProtection,
        DCROverfittingProtection,
        DisclosureProtection,
    )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        over = DCROverfittingProtection.compute_breakdown(members, rows, others, _tables(metadata), "table")
        share = float(over["synthetic_data_percentages"]["closer_to_training"])
        filled = [_with_far_gaps(part) for part in some]
        _, people = closer_share(AttackedTable(*filled), filled[2])  # how many people that share rests on
        low, high = wilson_interval(share, people, confidence)
        conclusive = can_tell_from_half(people, confidence)
        means = "SDMetrics' count of synthetic rows that are nearer to people in the study; half is chance."
        if not conclusive:
            means = "Too few to say: nearly all synthetic rows are nearest to the same few people."
        score = {"score": over["score"]}
        name = "SDMetrics: closer to training"
        yield Finding(name, share, low, high, 0.5, None, means, score, conclusive=conclusive)
        yield _baseline(DCRBaselineProtection, members, rows, _tables(metadata), confidence)
        yield from _disclosure(DisclosureProtection, members, others, rows, confidence)


def _baseline(metric: Any, members: pd.DataFrame, rows: pd.DataFrame, metadata: Any, confidence: float) -> Finding:
    """Median distance to people over that of random rows; the interval is from parts of the rows."""
    whole = metric.compute_breakdown(members, rows, metadata, "table")
    size = len(rows) // _PARTS
    parts = [rows.iloc[k * size : (k + 1) * size] for k in range(_PARTS)]
    scores = np.array([metric.compute_breakdown(members, part, metadata, "table")["score"] for part in parts])
    value = float(whole["score"])
    reach = float(student_t.ppf(0.5 + confidence / 2.0, _PARTS - 1) * scores.std(ddof=1) / np.sqrt(_PARTS))
    details = {"median distances": {k: float(v) for k, v in whole["median_DCR_to_real_data"].items()}}
    means = "How far synthetic rows are from people, compared with random rows (1: as far); near 0 means copies."
    name = "SDMetrics: baseline protection"
    return Finding(name, value, max(value - reach, 0.0), min(value + reach, 1.0), math.nan, None, means, details)


def _disclosure(
    metric: Any, members: pd.DataFrame, others: pd.DataFrame, rows: pd.DataFrame, confidence: float
) -> Iterator[Finding]:
    """CAP of one column given a few others, for members and for people left out."""
    names = list(rows.columns)
    if len(names) < 2:
        return
    secret, known = names[0], names[1 : 1 + _KNOWN]
    numbers = [name for name in [secret, *known] if _sdtype(rows[name]) == "numerical"]
    scores = []
    for people in (members, others):
        complete = people[[secret, *known]].dropna()
        if len(complete) < 30:
            return
        found = metric.compute_breakdown(
            complete,
            rows[[secret, *known]],
            known,
            [secret],
            continuous_column_names=numbers or None,
            num_discrete_bins=5,
        )
        scores.append((1.0 - float(found["cap_protection"]), len(complete)))
    value, low, high = difference_of_shares(scores[0], scores[1], confidence)
    means = f"SDMetrics' chance of guessing {secret} from {len(known)} other columns, beyond people left out."
    details = {"members": scores[0][0], "people left out": scores[1][0]}
    yield Finding("SDMetrics: disclosure, beyond the left-out", value, low, high, 0.0, None, means, details)


def _with_far_gaps(part: EncodedRows) -> EncodedRows:
    """Empty values as far from all others as SDMetrics has them: a whole range away, or another category."""
    away = np.where(part.unordered, -1.0, 1.5)  # grades are 0.5 on average
    return replace(part, values=np.where(np.isnan(part.values), away, part.values))


def _frame(records: EncodedRows) -> pd.DataFrame:
    import pandas as pd

    columns: dict[str, Any] = {}
    for k, (key, column) in enumerate(zip(records.keys, records.columns, strict=True)):
        values = records.values[:, k]
        if column.is_discrete and column.kind != "count":
            columns[str(key)] = [None if np.isnan(v) else f"{v:.6g}" for v in values]
        else:
            columns[str(key)] = values
    return pd.DataFrame(columns)


def _sdtype(series: pd.Series[Any]) -> str:
    return "numerical" if series.dtype.kind == "f" else "categorical"


def _tables(metadata: dict[str, Any]) -> dict[str, Any]:
    return {"tables": {"table": metadata}}
