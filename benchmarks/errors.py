"""Errors of the correlation and of the marginals against N and epsilon."""

from __future__ import annotations

from argparse import Namespace

from benchmarks import correlation_errors, marginal_errors
from reporting.catalogue import Measured, Places
from reporting.records import Record
from reporting.tables import Table

STUDIES = {"correlation": correlation_errors, "marginals": marginal_errors}


def run(options: Namespace) -> Measured:
    """Both studies, as one record."""
    found = {name: study.measure(quick=options.quick) for name, study in STUDIES.items()}
    return {name: own for name, (own, _) in found.items()}, {name: own for name, (_, own) in found.items()}


def present(record: Record, places: Places) -> list[Table]:
    """All tables, and a figure for each study."""
    return [
        *correlation_errors.present(record.results["correlation"], places.images / "correlation_error.png"),
        *marginal_errors.present(record.results["marginals"], places.images / "marginal_error.png"),
    ]
