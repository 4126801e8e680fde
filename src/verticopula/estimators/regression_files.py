"""A regression as files and as plain values; and the one that a report gets without being asked."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

from sklearn.exceptions import ConvergenceWarning

from verticopula.errors import SettingsError, VerticopulaError
from verticopula.estimators.vertical_glm import VerticalGLM
from verticopula.study.fitted_study import FittedStudy
from verticopula.study.study_folder import REGRESSION_FILE

CHEAP = 300_000  # cells of a synthetic table that a regression is fitted on without being asked
_LEVEL = 0.95
_FAMILIES = {"binary": "binomial", "count": "poisson"}


def family_of_kind(kind: str) -> str:
    """The family that fits a response of this kind."""
    return _FAMILIES.get(kind, "gaussian")


def fit_if_cheap(study: FittedStudy, tables: Any) -> dict[str, Any] | None:
    """A regression of the federation's response on everything else, if that takes seconds; None otherwise."""
    federation = study.federation
    kind = federation.column(federation.response).kind
    cells = study.n_subjects * len(study.result.copula.layout.labels)
    if kind == "nominal" or cells > CHEAP or set(tables) != {party.name for party in federation.parties}:
        return None
    model = VerticalGLM(family_of_kind(kind))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the report says it first
            model.fit(tables, str(federation.response))
    except VerticopulaError:
        return None  # such as a response that is the same everywhere
    return model.to_dict(_LEVEL)


def write_regression(out: Path, model: VerticalGLM, level: float) -> list[Path]:
    """Coefficients as CSV, the summary as text, HTML and plain values, the path as a figure."""
    if out.exists() and not out.is_dir():
        raise SettingsError(f"{out} is a file; --out needs a folder")
    out.mkdir(parents=True, exist_ok=True)
    (out / "path.html").unlink(missing_ok=True)  # an earlier fit's, if this one has no path
    summary = model.summary(level)
    paths = [out / name for name in ("coefficients.csv", "summary.txt", "summary.html", REGRESSION_FILE)]
    summary.frame.to_csv(paths[0], index=False)
    paths[1].write_text(str(summary), encoding="utf-8")
    paths[2].write_text(summary.to_page(), encoding="utf-8")
    paths[3].write_text(json.dumps(model.to_dict(level), indent=1) + "\n", encoding="utf-8")
    if len(model.path_.points) > 1:
        paths.append(out / "path.html")
        model.plot_path().write_html(paths[-1], include_plotlyjs=True)
    return paths
