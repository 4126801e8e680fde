"""One other reading of the text, in all cells: which printed figures hang on it.

`open_choices` tries every reading in one cell. This takes the one that came nearest there, Eq. 8 by index, through the
sizes, epsilons and mechanisms of Tables 1, 4 and 6. The algorithms as printed run on as many rows as subjects, by the
paper's judge, without an intercept. The reading was chosen with the printed figures of one cell in sight: the other
cells took no part in that, and say whether it was more than chance.
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

from experiments.draws import MODELS, Cell, draw
from experiments.methods import MECHANISMS
from experiments.metrics import rmse
from experiments.open_choices import LATENT_READINGS, fit_rows, make_table
from experiments.paper import COMPLETE
from experiments.results import NEAR
from experiments.runner import FAILURES, SMALL_DESIGN, Settings
from reporting.catalogue import Measured, Places
from reporting.pages import markdown_page
from reporting.parallel import run_all
from reporting.records import Record, write_text
from reporting.tables import Table, mean, standard_error

READING = LATENT_READINGS[0]  # Eq. 8 by index
METHODS = ("EVCDS", "IEVCDS")  # Algorithm 1 has no Eq. 8
SIZES, EPSILONS, MISSING_EPSILON = (1_000, 3_000, 5_000), (1.0, 3.0, 5.0), 1.0


@dataclass(frozen=True)
class Reread:
    """RMSE of one method in one cell, by the other reading.

    Attributes
    ----------
    errors : one per data set; those on which there is no answer are left out
    """

    method: str
    cell: Cell
    epsilon: float
    errors: tuple[float, ...]

    @property
    def mean(self) -> float:
        return mean(self.errors)

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return standard_error(self.errors)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["EVCDS"])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["linear"])
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
    said = {"reading": READING, "replications": options.replications, "small_design": options.quick}
    found = read_found(options.places.results / "one_reading.json", said)
    wanted = [
        (method, cell, epsilon)
        for method in options.methods
        for cell, epsilon in list_cells(options.models, options.sizes)
        if method == METHODS[0] or cell.mechanism != COMPLETE  # without missing blocks nothing is iterated
    ]
    left = [key for key in wanted if key not in found]
    tasks = [(key, number) for key in left for number in range(options.replications)]
    errors: dict[tuple[str, Cell, float], list[float]] = {key: [] for key in left}
    for key, value in run_all(
        measure, tasks, options.quick, label="data sets", backend=options.backend, jobs=options.jobs, cost=_cost
    ):
        errors[key] += [value] if math.isfinite(value) else []
    found |= {key: Reread(*key, tuple(values)) for key, values in errors.items()}
    order = {model: place for place, model in enumerate(MODELS)}
    kept = sorted(found.values(), key=lambda f: (f.method, order[f.cell.model], f.cell.mechanism != COMPLETE))
    return said, {"cells": [plain(f) for f in kept]}


def list_cells(models: Sequence[Any], sizes: Sequence[int]) -> list[tuple[Cell, float]]:
    """Cells of Tables 1, 4 and 6 with their epsilons."""
    complete = [(Cell(m, COMPLETE, n), epsilon) for m in models for n in sizes for epsilon in EPSILONS]
    missing = [(Cell(m, name, n), MISSING_EPSILON) for m in models for name in MECHANISMS for n in sizes]
    return complete + missing


def measure(task: tuple[tuple[str, Cell, float], int], quick: bool) -> tuple[tuple[str, Cell, float], float]:
    """RMSE on one data set; NaN where there is no answer."""
    (method, cell, epsilon), number = task
    drawn = draw(cell, number, Settings(SMALL_DESIGN if quick else {}).make_design(cell))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            x, y = make_table(drawn, method.lower(), READING, number, epsilon)
            return task[0], rmse(fit_rows(x, y, cell.model), drawn.data.coef)
        except (*FAILURES, ValueError):  # a response of one value, say
            return task[0], math.nan


def _cost(task: tuple[tuple[str, Cell, float], int]) -> float:
    return float(task[0][1].n_subjects)


def plain(found: Reread) -> dict[str, Any]:
    """For JSON."""
    errors = [round(value, 6) for value in found.errors]
    return {"method": found.method, "cell": list(found.cell), "epsilon": found.epsilon, "errors": errors}


def read_cells(record: Record) -> list[Reread]:
    """What a record holds."""
    return [
        Reread(c["method"], Cell(*c["cell"]), float(c["epsilon"]), tuple(c["errors"])) for c in record.results["cells"]
    ]


def read_found(path: Path, said: Mapping[str, Any]) -> dict[tuple[str, Cell, float], Reread]:
    """What an earlier run found on as many data sets."""
    record = Record.read(path) if path.exists() else None
    if record is None or dict(record.settings) != dict(said):
        return {}
    return {(f.method, f.cell, f.epsilon): f for f in read_cells(record)}


def present(record: Record, places: Places) -> list[Table]:
    """The page `one_reading.md`; `results.html` sets the same figures beside the printed ones."""
    rows = [
        (
            f"{f.method}, {f.cell.model}, {f.cell.mechanism}",
            f"{f.cell.n_subjects:,} and {f.epsilon:g}",
            f"{f.mean:.3f} ± {f.error:.3f}",
            str(len(f.errors)),
        )
        for f in read_cells(record)
    ]
    table = Table(f"As printed, {READING}", ("cells", "N and ε", "RMSE", "data sets"), rows)
    said = f"`results.html` has the printed figures beside these, and which are within {100.0 * NEAR:.0f} %."
    about = f"{__doc__.strip()}\n\nMeans and standard errors; ε of unit `variable`. {said} {record.describe()}"
    write_text(places.pages / "one_reading.md", markdown_page("One other reading, in all cells", [about, table]))
    return [table]
