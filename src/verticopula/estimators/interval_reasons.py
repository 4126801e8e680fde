"""Why a regression on synthetic tables has no honest intervals, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.estimators.copula_errors import why_errors_are_unknown
from verticopula.formatting import join_names
from verticopula.glm.regression_summary import PartyFeatures
from verticopula.study.fitted_study import FittedStudy


def why_no_intervals(
    tables: Any,
    response: str,
    coef: Mapping[str, NDArray[np.float64]],
    features: Mapping[str, PartyFeatures],
    *,
    counted: bool,
    maximised: bool,
    identified: bool,
) -> str:
    """Why the errors of a regression are not known; empty where they are.

    Parameters
    ----------
    tables : that it was fitted on: known are those of `Synthesizer.sample`
    response : as `party.column`; empty where it was given by value
    coef, features : party -> coefficients of its features, and what those are called
    counted : whether somebody said how many subjects the rows stand for
    maximised : whether its coefficients maximise the likelihood of the selected columns
    identified : whether these are linearly independent
    """
    study = getattr(tables, "study", None)
    if study is None or not response:
        ending = "" if counted else ". Each row counts as a subject: n_effective says otherwise"
        return f"the rows do not say how they came about, so nobody knows their errors{ending}"
    if not maximised:
        return "they need penalty 'none', or select 'bic' with a refit of the selected columns"
    if not identified:
        return "the selected columns are linearly dependent"
    used = {response} | _used_columns(coef, features)
    if changed := sorted(used & tables.changed_columns()):
        return f"not as they were sampled: {join_names(changed)}"
    return why_errors_are_unknown(study, tables.posterior_draws) or _unknown_pair(study, used)


def _used_columns(coef: Mapping[str, NDArray[np.float64]], features: Mapping[str, PartyFeatures]) -> set[str]:
    """Columns with an effect, as `party.column`."""
    used = set()
    for party, own in features.items():
        chosen = np.add.reduceat(coef[party] != 0.0, own.starts[:-1]) > 0
        used |= {f"{party}.{name}" for name, kept in zip(own.sources, chosen, strict=True) if kept}
    return used


def _unknown_pair(study: FittedStudy, used: set[str]) -> str:
    """Two of these columns that nobody has both of, in words; empty where there are none."""
    for pair in study.result.unidentified:
        if {pair.first.partition("=")[0], pair.second.partition("=")[0]} <= used:
            return f"nobody has both {pair.first} and {pair.second}, so their correlation is not known"
    return ""
