"""The regression that a report gets without being asked, if it is cheap."""

from __future__ import annotations

import warnings
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from verticopula.errors import VerticopulaError
from verticopula.estimators.vertical_glm import VerticalGLM
from verticopula.study.fitted_study import FittedStudy

CHEAP = 300_000  # cells of a synthetic table that a regression is fitted on without being asked
CONFIDENCE_LEVEL = 0.95
_FAMILIES = {"binary": "binomial", "count": "poisson"}


def family_of_kind(kind: str) -> str:
    """The family that fits a response of this kind."""
    return _FAMILIES.get(kind, "gaussian")


def fit_if_cheap(fitted: FittedStudy, tables: Any) -> dict[str, Any] | None:
    """A regression of the federation's response on everything else, if that takes seconds; None otherwise."""
    federation = fitted.federation
    kind = federation.column(federation.response).kind
    cells = fitted.n_subjects * len(fitted.result.copula.layout.labels)
    if kind == "nominal" or cells > CHEAP or set(tables) != {party.name for party in federation.parties}:
        return None
    model = VerticalGLM(family_of_kind(kind))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the report says it first
            model.fit(tables, str(federation.response))
    except VerticopulaError:
        return None  # such as a response that is the same everywhere
    return model.to_dict(CONFIDENCE_LEVEL)
