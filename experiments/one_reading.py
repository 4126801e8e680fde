"""One other reading of the text at a time, in all cells: which printed figures hang on it.

`open_choices` tries every reading in one cell. This takes those that came nearest there through the sizes, epsilons and
mechanisms of Tables 1 and 4 to 7: Eq. 8 by index and free rows (EVCDS, linear), and ties at random (VCDS, logistic).
The algorithms as printed run on as many rows as subjects, by the paper's judge, without an intercept. The readings were
chosen with the printed figures of one cell in sight: the other cells took no part in that, and say whether it was more
than chance.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from experiments.designs import Model
from experiments.draws import MODELS, Cell, draw
from experiments.methods import MECHANISMS, PAPERS_OWN
from experiments.metrics import rmse
from experiments.open_choices import BY_INDEX, FREE, TIES, fit_rows, list_readings, make_table
from experiments.paper import COMPLETE
from experiments.results import NEAR
from experiments.runner import FAILURES, SMALL_DESIGN, Settings
from reporting.catalogue import Measured, Places
from reporting.pages import markdown_page
from reporting.parallel import run_all
from reporting.records import Record, write_text
from reporting.tables import Table, mean, standard_error

# The readings, and the method and model of the cell in which each came nearest.
NEAREST: Mapping[str, tuple[str, Model]] = {
    BY_INDEX: ("EVCDS", "linear"),
    FREE: ("EVCDS", "linear"),
    TIES: ("VCDS", "logistic"),
}
SIZES, EPSILONS, MISSING_EPSILON = (1_000, 3_000, 5_000), (1.0, 3.0, 5.0), 1.0
Key = tuple[str, str, Cell, float]  # reading, method, cell, epsilon


@dataclass(frozen=True)
class Reread:
    """RMSE of one method in one cell, by one other reading.

    Attributes
    ----------
    errors : one per data set; those on which there is no answer are left out
    """

    reading: str
    method: str
    cell: Cell
    epsilon: float
    errors: tuple[float, ...]

    @property
    def key(self) -> Key:
        return self.reading, self.method, self.cell, self.epsilon

    @property
    def mean(self) -> float:
        return mean(self.errors)

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return standard_error(self.errors)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--readings", nargs="+", choices=NEAREST, default=list(NEAREST))
    parser.add_argument("--methods", nargs="+", choices=PAPERS_OWN, help="default: where it came nearest")
    parser.add_argument("--models", nargs="+", choices=MODELS, help="default: where it came nearest")
    parser.add_argument("--sizes", nargs="+", type=int, help="N; default: the paper's 1000 3000 5000")
    parser.add_argument("--replications", type=int, help="data sets; default 5")


def check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Fill in defaults: small ones of a quick run."""
    options.sizes = options.sizes or ([80] if options.quick else list(SIZES))
    options.replications = options.replications or (1 if options.quick else 5)
    if min(options.replications, *options.sizes) < 1:
        parser.error("sizes and replications are whole numbers of at least 1")


def run(options: argparse.Namespace) -> Measured:
    """Every cell that was asked for; cells of an earlier run on as many data sets are not computed again."""
    said = {"replications": options.replications, "small_design": options.quick}
    found = read_found(options.places.results / "one_reading.json", said)
    wanted = [
        (reading, method, cell, epsilon)
        for reading in options.readings
        for method in options.methods or NEAREST[reading][:1]
        for cell, epsilon in list_cells(options.models or NEAREST[reading][1:], options.sizes)
        if reading in list_readings(method.lower(), cell.mechanism)
        and (method != "IEVCDS" or cell.mechanism != COMPLETE)  # without missing blocks nothing is iterated
    ]
    left = [key for key in wanted if key not in found]
    tasks = [(key, number) for key in left for number in range(options.replications)]
    errors: dict[Key, list[float]] = {key: [] for key in left}
    for key, value in run_all(
        measure, tasks, options.quick, label="data sets", backend=options.backend, jobs=options.jobs, cost=_cost
    ):
        errors[key] += [value] if math.isfinite(value) else []
    found |= {key: Reread(*key, tuple(values)) for key, values in errors.items()}
    kept = sorted(found.values(), key=_place)
    return said, {"cells": [plain(f) for f in kept]}


def _place(found: Reread) -> tuple[int, int, int, bool]:
    """In the order of readings, methods, models and mechanisms."""
    where = list(NEAREST).index(found.reading), PAPERS_OWN.index(found.method), MODELS.index(found.cell.model)
    return *where, found.cell.mechanism != COMPLETE


def list_cells(models: Sequence[Any], sizes: Sequence[int]) -> list[tuple[Cell, float]]:
    """Cells of Tables 1 and 4 to 7 with their epsilons."""
    complete = [(Cell(m, COMPLETE, n), epsilon) for m in models for n in sizes for epsilon in EPSILONS]
    missing = [(Cell(m, name, n), MISSING_EPSILON) for m in models for name in MECHANISMS for n in sizes]
    return complete + missing


def measure(task: tuple[Key, int], quick: bool) -> tuple[Key, float]:
    """RMSE on one data set; NaN where there is no answer."""
    (reading, method, cell, epsilon), number = task
    drawn = draw(cell, number, Settings(SMALL_DESIGN if quick else {}).make_design(cell))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            x, y = make_table(drawn, method.lower(), reading, number, epsilon)
            return task[0], rmse(fit_rows(x, y, cell.model), drawn.data.coef)
        except (*FAILURES, ValueError):  # a response of one value, say
            return task[0], math.nan


def _cost(task: tuple[Key, int]) -> float:
    return float(task[0][2].n_subjects)


def plain(found: Reread) -> dict[str, Any]:
    """For JSON."""
    errors = [round(value, 6) for value in found.errors]
    return {
        "reading": found.reading,
        "method": found.method,
        "cell": list(found.cell),
        "epsilon": found.epsilon,
        "errors": errors,
    }


def read_cells(record: Record) -> list[Reread]:
    """What a record holds."""
    return [
        Reread(c["reading"], c["method"], Cell(*c["cell"]), float(c["epsilon"]), tuple(c["errors"]))
        for c in record.results["cells"]
    ]


def read_found(path: Path, said: Mapping[str, Any]) -> dict[Key, Reread]:
    """What an earlier run found on as many data sets."""
    record = Record.read(path) if path.exists() else None
    if record is None or dict(record.settings) != dict(said):
        return {}
    return {f.key: f for f in read_cells(record)}


def present(record: Record, places: Places) -> list[Table]:
    """The page `one_reading.md`; `results.html` sets the same figures beside the printed ones."""
    found = read_cells(record)
    tables = [
        Table(f"As printed, {reading}", ("cells", "N and ε", "RMSE", "data sets"), [_as_row(f) for f in own])
        for reading in NEAREST
        if (own := [f for f in found if f.reading == reading])
    ]
    said = f"`results.html` has the printed figures beside these, and which are within {100.0 * NEAR:.0f} %."
    about = f"{__doc__.strip()}\n\nMeans and standard errors; ε of unit `variable`. {said} {record.describe()}"
    write_text(places.pages / "one_reading.md", markdown_page("One other reading, in all cells", [about, *tables]))
    return tables


def _as_row(found: Reread) -> tuple[str, str, str, str]:
    where = f"{found.method}, {found.cell.model}, {found.cell.mechanism}"
    size = f"{found.cell.n_subjects:,} and {found.epsilon:g}"
    return where, size, f"{found.mean:.3f} ± {found.error:.3f}", str(len(found.errors))
