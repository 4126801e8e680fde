"""The federated regression against the central one: same strengths, tight tolerance, every family and penalty.

Columns of all parties have the same correlation with each other, so that the parties' steps depend on each other
as much as the correlation says. Eight strengths, from 0.95 of the one at which no column enters down to 0.03 of it.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from benchmarks.glm_common import (
    SOURCE,
    Problem,
    differences,
    fit_central,
    fit_federated,
    make_correlated,
    other_supports,
)
from reporting.catalogue import Measured, Places
from reporting.pages import markdown_page
from reporting.records import Record, write_text
from reporting.tables import Table, verdict

FAMILIES = ("gaussian", "binomial", "poisson")
PENALTIES = ("scad", "mcp", "lasso", "none")
PARTIES = (1, 2, 5, 10)
CORRELATIONS = (0.3, 0.9, 0.99)
ROWS, COLUMNS_PER_PARTY = 400, 4
STRENGTHS, FIRST, LAST = 8, 0.95, 0.03
TOLERANCE = 1e-7
TARGET = 1e-6


@dataclass(frozen=True)
class Agreement:
    """One path.

    Attributes
    ----------
    worst : the largest relative difference of the two objectives
    other_supports : strengths at which different columns are selected
    selected : share of the columns that the central fit selects, mean over the strengths
    rounds : of the whole path
    converged : both solvers came to rest everywhere
    """

    family: str
    penalty: str
    parties: int
    correlation: float
    strengths: int
    worst: float
    other_supports: int
    selected: float
    rounds: int
    converged: bool
    seconds: float

    @property
    def agrees(self) -> bool:
        return self.worst <= TARGET and self.other_supports == 0


def compare(problem: Problem, penalty: str, correlation: float, count: int) -> Agreement:
    """Both solvers on one problem."""
    largest = problem.largest_strength()
    strengths = np.zeros(1) if penalty == "none" else largest * np.geomspace(FIRST, LAST, count)
    began = time.perf_counter()
    central = fit_central(problem, penalty, strengths, TOLERANCE)
    found = fit_federated(problem, penalty, strengths, TOLERANCE)
    return Agreement(
        problem.family.name,
        penalty,
        len(problem.blocks),
        correlation,
        len(central),
        float(np.max(np.abs(differences(found.points, central)))),
        other_supports(found.points, central),
        float(np.mean([point.coef != 0 for point in central])),
        found.traffic.rounds,
        all(point.converged for point in (*central, *found.points)),
        time.perf_counter() - began,
    )


def run(options: Namespace) -> Measured:
    """All combinations."""
    parties, correlations, count = ((2,), (0.9,), 3) if options.quick else (PARTIES, CORRELATIONS, STRENGTHS)
    cells = []
    for correlation in correlations:
        for k in parties:
            for family in FAMILIES:
                rng = np.random.default_rng([k, round(100 * correlation), FAMILIES.index(family)])
                problem = make_correlated(family, [COLUMNS_PER_PARTY] * k, correlation, ROWS, rng)
                cells += [compare(problem, penalty, correlation, count) for penalty in PENALTIES]
    return (
        {
            "source": SOURCE,
            "rows": ROWS,
            "columns_per_party": COLUMNS_PER_PARTY,
            "parties": parties,
            "correlations": correlations,
            "strengths": {"count": count, "first": FIRST, "last": LAST},
            "tolerance": TOLERANCE,
        },
        {
            "cells": [asdict(cell) for cell in cells],
            "target": {
                "worst": max(cell.worst for cell in cells),
                "agree": sum(cell.agrees for cell in cells),
                "of": len(cells),
                "strengths_with_other_support": sum(cell.other_supports for cell in cells),
                "not_converged": sum(not cell.converged for cell in cells),
            },
        },
    )


def present(record: Record, places: Places) -> list[Table]:
    """The page `glm_agreement.md`, and its tables."""
    cells = [Agreement(**saved) for saved in record.results["cells"]]
    settings = record.settings
    tables = [_tabulate(cells), _tabulate_rounds(cells, settings["parties"], settings["correlations"])]
    failures = [cell for cell in cells if not cell.agrees]
    if failures:
        tables.append(_tabulate_failures(failures))
    parts = ["Written by `python -m benchmarks glm_agreement`.", *_introduce(cells), *tables]
    write_text(places.pages / "glm_agreement.md", markdown_page("Federated and central fits agree", parts))
    return tables


def _tabulate(cells: Sequence[Agreement]) -> Table:
    rows = []
    for family in FAMILIES:
        for penalty in PENALTIES:
            mine = [cell for cell in cells if (cell.family, cell.penalty) == (family, penalty)]
            rows.append(
                (
                    family,
                    penalty,
                    str(sum(cell.strengths for cell in mine)),
                    f"{max(cell.worst for cell in mine):.1e}",
                    verdict(max(cell.worst for cell in mine), TARGET),
                    str(sum(cell.other_supports for cell in mine)),
                    f"{100 * np.mean([cell.selected for cell in mine]):.0f} %",
                    str(sum(not cell.converged for cell in mine)),
                )
            )
    header = (
        "family",
        "penalty",
        "fits",
        "worst relative difference",
        f"at most {TARGET:g}",
        "fits with another support",
        "columns selected",
        "paths not converged",
    )
    return Table("Federated against central, worst over parties and correlations", header, tuple(rows), heads=2)


def _tabulate_rounds(cells: Sequence[Agreement], parties: Sequence[int], correlations: Sequence[float]) -> Table:
    rows = []
    for family in FAMILIES:
        for correlation in correlations:
            mine = [cell for cell in cells if (cell.family, cell.correlation) == (family, correlation)]
            per_fit = (
                f"{np.mean([c.rounds / c.strengths for c in mine if c.parties == k]):.0f}"
                f" ({max(c.rounds / c.strengths for c in mine if c.parties == k):.0f})"
                for k in parties
            )
            rows.append((family, f"{correlation:g}", *per_fit))
    header = ("family", "correlation", *(f"K = {k}" for k in parties))
    return Table("Rounds per strength, mean (and largest) over penalties", header, tuple(rows), heads=2)


def _tabulate_failures(failures: Sequence[Agreement]) -> Table:
    rows = tuple(
        (
            cell.family,
            cell.penalty,
            str(cell.parties),
            f"{cell.correlation:g}",
            f"{cell.worst:.1e}",
            str(cell.other_supports),
            "yes" if cell.converged else "no",
        )
        for cell in failures
    )
    header = ("family", "penalty", "K", "correlation", "worst relative difference", "other supports", "converged")
    return Table("Where they do not agree", header, rows)


def _introduce(cells: Sequence[Agreement]) -> list[str]:
    agree, worst = sum(cell.agrees for cell in cells), max(cell.worst for cell in cells)
    return [
        f"n = {ROWS} rows, {COLUMNS_PER_PARTY} normal columns per party, every pair of columns with the same "
        "correlation, inside the parties and across; every third column has an effect.\n\n"
        f"Both solvers get the same strengths, from {FIRST:g} to {LAST:g} of the one at which no column enters (0 "
        f"without a penalty). They have a tolerance of {TOLERANCE:g}, an intercept, and the same steps of local linear "
        "approximation from the same starts. A fit is one strength; the objective is loss plus penalty.",
        f"Of {len(cells)} paths, {agree} agree: objectives within {TARGET:g} of each other, relatively, and the same "
        f"columns selected, at every strength. The worst relative difference is {worst:.1e}.",
    ]
