"""A report's subject, from a study's folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl

from verticopula.privacy.statement import NOTICE_FILE
from verticopula.report.audit_section import read_audit
from verticopula.report.report_data import ReportData, read_real
from verticopula.schema.federation import Federation
from verticopula.study.study_folder import read_fitted, read_regression
from verticopula.study.study_warnings import ALIGNED_ROWS

RealTables = Callable[[Federation], Mapping[str, pl.DataFrame]]


def read_report_data(folder: Path, real_tables: RealTables | None = None) -> ReportData:
    """What `run`, `demo` or `submit` left there, with real tables where they are given.

    Parameters
    ----------
    folder : the study's
    real_tables : gives the real tables of some parties of the study's federation, or of all
    """
    study = read_fitted(folder)
    notice = folder / "synthetic" / NOTICE_FILE
    said = notice.read_text(encoding="utf-8").splitlines() if notice.is_file() else []
    known = tuple(warning.title for warning in (*study.privacy.study_warnings, ALIGNED_ROWS))
    return ReportData(
        study,
        {} if real_tables is None else read_real(study.federation, real_tables(study.federation)),
        read_regression(folder),
        aligned=any(line.startswith(ALIGNED_ROWS.title) for line in said),
        notes=tuple(line for line in said if not line.startswith(known)),
        audit=None if real_tables is None else read_audit(folder),
    )
