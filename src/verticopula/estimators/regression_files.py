"""A regression as files."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from verticopula.data.csv_files import write_csv
from verticopula.errors import SettingsError
from verticopula.estimators.vertical_glm import VerticalGLM
from verticopula.study.study_folder import (
    COEFFICIENTS_FILE,
    PATH_FILE,
    REGRESSION_FILE,
    REGRESSION_PAGE,
    SUMMARY_FILE,
)


def write_regression(out: Path, model: VerticalGLM, confidence: float) -> list[Path]:
    """Coefficients as CSV, the summary as text, HTML and plain values, the path as a figure."""
    if out.exists() and not out.is_dir():
        raise SettingsError(f"{out} is a file; --out needs a folder")
    out.mkdir(parents=True, exist_ok=True)
    (out / PATH_FILE).unlink(missing_ok=True)  # an earlier fit's, if this one has no path
    summary = model.summary(confidence)
    paths = [out / name for name in (COEFFICIENTS_FILE, SUMMARY_FILE, REGRESSION_PAGE, REGRESSION_FILE)]
    # Not by `pl.from_pandas`: for strings of pandas 3 it needs pyarrow, which is no dependency.
    columns = {name: values.tolist() for name, values in summary.frame.items()}
    write_csv(pl.DataFrame(columns, strict=False, nan_to_null=True), paths[0])
    paths[1].write_text(str(summary), encoding="utf-8")
    paths[2].write_text(summary.to_page(), encoding="utf-8")
    paths[3].write_text(json.dumps(model.to_dict(confidence), indent=1) + "\n", encoding="utf-8")
    if len(model.path_.points) > 1:
        paths.append(out / PATH_FILE)
        model.plot_path().write_html(paths[-1], include_plotlyjs=True)
    return paths
