"""Errors of the correlation and of the marginals against N and epsilon."""

from __future__ import annotations

from benchmarks import correlation_errors, marginal_errors
from benchmarks.record import Places, Report


def run(places: Places, *, quick: bool) -> Report:
    """Both studies, as one report."""
    parts = [
        correlation_errors.run(places.images / "correlation_error.png", quick=quick),
        marginal_errors.run(places.images / "marginal_error.png", quick=quick),
    ]
    return Report(
        "errors",
        {part.name: part.settings for part in parts},
        {part.name: part.results for part in parts},
        [table for part in parts for table in part.tables],
    )
