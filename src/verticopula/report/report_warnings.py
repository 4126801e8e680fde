"""Warnings, first on the page: those of the study, and those that only the report can know."""

from __future__ import annotations

from collections.abc import Iterator

from verticopula.errors import StudyWarning
from verticopula.formatting import count_of, join_names
from verticopula.report.report_data import ReportData, real_columns
from verticopula.study.study_warnings import ALIGNED_ROWS, find_warnings, gravest_first


def report_warnings(subject: ReportData) -> list[StudyWarning]:
    """Every warning that this page must show, the gravest first."""
    return gravest_first([*_real_tables(subject), *find_warnings(subject.fitted), *_beside(subject)])


def _real_tables(subject: ReportData) -> Iterator[StudyWarning]:
    if subject.real:
        yield StudyWarning(
            "in-house",
            "stop",
            "This copy was made with real tables",
            f"It shows exact shares and counts of {join_names(list(subject.real))}, without any noise.",
            "Keep it in the house. The report without real tables is the one to pass on.",
        )
    clamped = {str(key): column.clamped for key, column in real_columns(subject).items() if column.clamped}
    if clamped:
        yield StudyWarning(
            "clamped",
            "care",
            f"{count_of(sum(clamped.values()), 'value')} outside the public bounds",
            f"They were moved to the nearest bound: {join_names([f'{name} ({n:,})' for name, n in clamped.items()])}.",
            "If they are not errors, widen these columns' bounds in the federation file.",
        )


def _beside(subject: ReportData) -> Iterator[StudyWarning]:
    if subject.aligned:
        yield ALIGNED_ROWS
    regression = subject.regression
    if regression is not None and (regression["warnings"] or not regression["converged"]):
        yield StudyWarning(
            "regression",
            "care",
            "The regression has warnings of its own",
            " ".join(regression["warnings"]) or "It did not converge.",
            "Read its table with that in mind.",
        )
    for note in subject.notes:
        yield StudyWarning("study-note", "note", "About this study", note, "Nothing to do; it is as the party wished.")
