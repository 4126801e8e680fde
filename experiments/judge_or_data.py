"""Whether the judge or the data lose accuracy: the paper's judge on real rows, and on synthetic ones.

Complete data, N subjects, ε = 1 of unit `variable`; data sets that no table reports. Three figures for every table of
rows. *judge*: RMSE of the paper's judge (SCAD, BIC of the penalised fit), and how many columns it selects. *best
strength*: the least RMSE on the path that the judge chooses from, which nobody can choose without the truth. *true
support*: maximum likelihood on the columns that matter. Where the judge is far from the other two, BIC chooses badly;
where all three are larger than on real rows, the rows have lost something. The RMSE of no coefficient at all is 0.258.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from experiments.designs import FAMILY_OF_MODEL, Model
from experiments.draws import MODELS, Cell, draw
from experiments.methods import METHODS
from experiments.metrics import rmse
from experiments.paper import COMPLETE
from experiments.results import NOISELESS
from experiments.runner import SMALL_DESIGN, Settings
from experiments.scad import SeparatedClassesError, choose_fits, fit_oracle, trace_points
from experiments.study import stack_numbers
from reporting.catalogue import Measured, Places
from reporting.pages import markdown_page
from reporting.parallel import run_all
from reporting.records import Record, write_text
from reporting.tables import Table, mean, standard_error
from verticopula.glm.families import find_family

Floats = NDArray[np.float64]

REAL = "real rows"
ROWS = {
    "VCDS, no noise": ("VCDS", NOISELESS),
    "VCDS": ("VCDS", 1.0),
    "EVCDS": ("EVCDS", 1.0),
    "Refined": ("Refined", 1.0),
    "VCDS as printed, no noise": ("VCDS-printed", NOISELESS),
    "VCDS as printed": ("VCDS-printed", 1.0),
}


@dataclass(frozen=True)
class Found:
    """What is found on one table of rows.

    Attributes
    ----------
    judge : RMSE of what the paper's judge chooses
    selected : how many columns that has
    best_strength : the least RMSE on the judge's path
    true_support : RMSE of maximum likelihood on the columns that matter; NaN if it has no maximum
    """

    judge: float
    selected: float
    best_strength: float
    true_support: float


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["logistic"])
    parser.add_argument("--seed-offset", type=int, default=3_000, help="number of the first data set")
    parser.add_argument("--subjects", type=int, help="N; default 1000")
    parser.add_argument("--replications", type=int, help="data sets; default 12")


def check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Fill in defaults: small ones of a quick run."""
    options.subjects = options.subjects or (120 if options.quick else 1_000)
    options.replications = options.replications or (1 if options.quick else 12)
    if min(options.subjects, options.replications) < 1:
        parser.error("subjects and replications are whole numbers of at least 1")


def run(options: argparse.Namespace) -> Measured:
    """All rows of all data sets."""
    numbers = range(options.seed_offset, options.seed_offset + options.replications)
    tasks = [(model, number) for model in options.models for number in numbers]
    found: dict[str, dict[str, list[dict[str, float]]]] = {}
    for model, tables in run_all(
        measure,
        tasks,
        options.subjects,
        options.quick,
        label="data sets",
        backend=options.backend,
        jobs=options.jobs,
    ):
        for name, figures in tables.items():
            found.setdefault(model, {}).setdefault(name, []).append(asdict(figures))
    said = {
        "subjects": options.subjects,
        "replications": options.replications,
        "first": options.seed_offset,
        "small_design": options.quick,
    }
    return said, found


def present(record: Record, places: Places) -> list[Table]:
    """The page `judge_or_data.md`."""
    said = record.settings
    head = ("rows", "judge", "columns selected", "best strength", "true support")
    tables = []
    for model, found in record.results.items():
        rows = [
            (
                name,
                _format([row["judge"] for row in kept]),
                f"{mean([row['selected'] for row in kept]):.0f}",
                _format([row["best_strength"] for row in kept]),
                _format([row["true_support"] for row in kept]),
            )
            for name, kept in found.items()
        ]
        tables.append(Table(f"{model}, N = {said['subjects']:,}: RMSE", head, rows))
    about = (
        f"{__doc__.strip()}\n\n{said['replications']} data sets, from number {said['first']} on; means and standard "
        f"errors. {record.describe()}"
    )
    write_text(places.pages / "judge_or_data.md", markdown_page("The judge or the data", [about, *tables]))
    return tables


def _format(values: list[float]) -> str:
    known = [value for value in values if np.isfinite(value)]
    return f"{mean(known):.3f} ± {standard_error(known):.3f}"


def measure(task: tuple[Model, int], n_subjects: int, quick: bool) -> tuple[str, dict[str, Found]]:
    """One data set."""
    model, number = task
    cell, settings = Cell(model, COMPLETE, n_subjects), Settings(SMALL_DESIGN if quick else {})
    drawn = draw(cell, number, settings.make_design(cell))
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {REAL: look(drawn.data.x, drawn.data.y, model, n_subjects, drawn.data.coef)}
        for name, (method, epsilon) in ROWS.items():
            study = drawn.study(epsilon, number, settings.rows_per_subject(cell))
            outcome = METHODS[method](study)
            x, y = stack_numbers(study.federation, outcome.tables)
            found[name] = look(x, y, model, outcome.n_subjects, drawn.data.coef)
    return model, found


def look(x: Floats, y: Floats, model: Model, n_subjects: int, truth: Floats) -> Found:
    """The paper's judge, its path and the true support on one table of rows."""
    points, rule = trace_points(x, y, model=model, n_effective=n_subjects, fit_intercept=False)
    chosen = choose_fits(points, find_family(FAMILY_OF_MODEL[model]), rule).penalised
    try:
        known = rmse(fit_oracle(x, y, truth != 0.0, model), truth)
    except (SeparatedClassesError, np.linalg.LinAlgError):
        known = float("nan")
    best = min(rmse(point.coef, truth) for point in points)
    return Found(rmse(chosen.coef, truth), chosen.degrees_of_freedom, best, known)
