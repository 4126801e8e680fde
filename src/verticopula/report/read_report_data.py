"""A report's subject, from a study's folder."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from verticopula.data.table_files import check_is_folder, read_tables
from verticopula.errors import SettingsError
from verticopula.privacy.statement import NOTICE_FILE
from verticopula.report.audit_section import read_audit
from verticopula.report.report_data import ReportData, read_real
from verticopula.schema.federation import Federation
from verticopula.study.study_folder import read_fitted, read_regression
from verticopula.study.study_warnings import ALIGNED_ROWS


def read_report_data(folder: Path, data: Path | None = None) -> ReportData:
    """What `run`, `demo` or `submit` left there, with real tables from `data` where it is given."""
    study = read_fitted(folder)
    notice = folder / "synthetic" / NOTICE_FILE
    said = notice.read_text(encoding="utf-8").splitlines() if notice.is_file() else []
    known = tuple(warning.title for warning in (*study.privacy.study_warnings, ALIGNED_ROWS))
    return ReportData(
        study,
        {} if data is None else read_real(study.federation, _tables(study.federation, data)),
        read_regression(folder),
        aligned=any(line.startswith(ALIGNED_ROWS.title) for line in said),
        notes=tuple(line for line in said if not line.startswith(known)),
        audit=None if data is None else read_audit(folder),
    )


def _tables(federation: Federation, data: Path) -> dict[str, pl.DataFrame]:
    """Those parties' tables that are in the folder."""
    check_is_folder("--data", data)
    found = read_tables(federation, data, all_parties=False)
    if not found:
        raise SettingsError(f"--data {data}: no table of any party of this study")
    return found
