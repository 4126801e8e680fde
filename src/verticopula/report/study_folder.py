"""A report's subject, from a study's folder."""

from __future__ import annotations

from pathlib import Path

from verticopula.data.tables import read_table
from verticopula.errors import SettingsError
from verticopula.estimators.study_files import STUDY_FILE, read_regression
from verticopula.estimators.synthesizer import ALIGNED_NOTE, Synthesizer
from verticopula.privacy.statement import NOTICE_FILE
from verticopula.report.report_subject import Subject, read_real


def read_subject(folder: Path, data: Path | None = None) -> Subject:
    """What `run`, `demo` or `submit` left there, with real tables from `data` where it is given."""
    if not (folder / STUDY_FILE).is_file():
        raise SettingsError(f"{folder} holds no study: give the folder that `run`, `demo` or `submit` wrote")
    synthesizer = Synthesizer.load(folder / STUDY_FILE)
    notice = folder / "synthetic" / NOTICE_FILE
    said = notice.read_text(encoding="utf-8").splitlines() if notice.is_file() else []
    more = [line for line in said if line not in (*synthesizer.privacy_.warnings, ALIGNED_NOTE)]
    return Subject(
        synthesizer,
        {} if data is None else read_real(synthesizer.federation, _tables(synthesizer, data)),
        read_regression(folder),
        aligned=ALIGNED_NOTE in said,
        notes=tuple(more),
    )


def _tables(synthesizer: Synthesizer, data: Path) -> dict[str, object]:
    """Those parties' tables that are in the folder."""
    if not data.is_dir():
        raise SettingsError(f"--data {data}: no such folder")
    found: dict[str, object] = {}
    for party in synthesizer.federation.parties:
        paths = [data / f"{party.name}{end}" for end in (".parquet", ".csv")]
        path = next((path for path in paths if path.is_file()), None)
        if path is not None:
            found[party.name] = read_table(path)
    if not found:
        raise SettingsError(f"--data {data}: no table of any party of this study")
    return found
