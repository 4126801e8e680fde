"""Are the errors of regressions on refined tables as large as the tables say?

The paper's linear design with blocks missing at random, epsilon 1 of unit `variable`: least squares on all columns of a
synthetic table, its errors in units of standard errors of two kinds: the rows' own, for the number of subjects, and
those that `stats/posterior_draws.py` implies. Both should have a root mean square of 1.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict, dataclass
from itertools import pairwise

import numpy as np
from threadpoolctl import threadpool_limits

from experiments.baselines.copula import refined
from experiments.draws import Cell, draw
from experiments.judge import find_errors
from experiments.missing.missing_page import COMPLETENESS
from experiments.study import stack_numbers
from reporting.catalogue import Measured, Places
from reporting.parallel import run_all
from reporting.records import Record
from reporting.tables import Table

CELL = Cell("linear", "MAR-simple", 3_000)
DATA_SETS = 30
NORMAL_HALF_WIDTH = 1.96


@dataclass(frozen=True)
class Calibration:
    """One data set.

    Attributes
    ----------
    complete_cases : their share
    own, posterior : root mean square of a coefficient's error in standard errors: the rows' own, the posterior draws'
    own_coverage, posterior_coverage : share of the columns whose coefficient is within 1.96 of them
    """

    complete_cases: float
    own: float
    posterior: float
    own_coverage: float
    posterior_coverage: float


def measure(cell: Cell, replication: int) -> Calibration:
    """Least squares on one refined table against the truth."""
    with threadpool_limits(1):
        drawn = draw(cell, replication)
        study = drawn.study(1.0, replication, 3)
        outcome = refined(study)
        x, y = stack_numbers(study.federation, outcome.tables)
        gram = x.T @ x / len(y)
        coef = np.linalg.solve(gram, x.T @ y / len(y))
        own = np.var(y - x @ coef) * np.diag(np.linalg.inv(gram)) / outcome.n_subjects
        errors = find_errors(outcome, study)
        if errors is None:
            raise RuntimeError("refined tables have posterior draws")
        steps = np.linalg.solve(gram, errors.draw(coef, 1.0).T)
    off = coef - drawn.data.coef
    scaled = [np.abs(off) / np.sqrt(variance) for variance in (own, steps.var(axis=1))]
    return Calibration(
        drawn.complete_cases,
        *(float(np.sqrt(np.mean(z**2))) for z in scaled),
        *(float(np.mean(z <= NORMAL_HALF_WIDTH)) for z in scaled),
    )


def run(options: Namespace) -> Measured:
    """All data sets of one cell, by their share of complete cases."""
    cell, count = (Cell("linear", "MAR-simple", 500), 3) if options.quick else (CELL, DATA_SETS)
    calls = run_all(_measure_one, range(count), cell, label="data sets", backend=options.backend, jobs=options.jobs)
    found = [calibration for _, calibration in sorted(calls)]
    settings = {"cell": cell.name, "data_sets": count, "epsilon": 1.0, "unit": "variable", "rows_per_subject": 3}
    return settings, {"data_sets": [asdict(c) for c in found]}


def _measure_one(replication: int, cell: Cell) -> tuple[int, Calibration]:
    return replication, measure(cell, replication)


def present(record: Record, places: Places) -> list[Table]:
    """Means over data sets with like shares of complete cases."""
    found = [Calibration(**saved) for saved in record.results["data_sets"]]
    rows = []
    for low, high in pairwise(COMPLETENESS):
        part = [c for c in found if low <= c.complete_cases < high or c.complete_cases == high == COMPLETENESS[-1]]
        if part:
            means = np.mean([(c.own, c.posterior, c.own_coverage, c.posterior_coverage) for c in part], axis=0)
            rows.append((f"{100 * low:g} to {100 * high:g} %", str(len(part)), *(f"{value:.2f}" for value in means)))
    header = (
        "complete cases",
        "data sets",
        "error / own s.e.",
        "error / posterior's",
        "own coverage",
        "posterior's",
    )
    return [Table(f"errors of least squares on refined tables, {record.settings['cell']}", header, rows)]
