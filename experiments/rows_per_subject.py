"""What the number of synthetic rows costs: the paper's judge on more and more rows of the same fits.

Complete data, VCDS (ours), ε = 1 of unit `variable`; data sets that no table reports. Rows are drawn from a copula that
was fitted once, so more of them cost no privacy. Every table counts as N subjects. With as many rows as subjects the
rows add as much sampling error as the subjects have; the judge does not know that, and takes it for effects.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping
from dataclasses import replace

from threadpoolctl import threadpool_limits

from experiments.baselines.copula import fit
from experiments.designs import Model
from experiments.draws import MODELS, Cell, draw
from experiments.metrics import METRIC_NAMES, METRICS, score_coef
from experiments.paper import COMPLETE
from experiments.runner import FAILURES, ROWS_PER_SUBJECT, SMALL_DESIGN, Settings
from experiments.scad import trace_scad
from experiments.study import stack_numbers
from reporting.catalogue import Measured, Places
from reporting.pages import markdown_page
from reporting.parallel import run_all
from reporting.records import Record, write_text
from reporting.tables import Table, mean, standard_error

ROWS = (1, 2, 4, 10)  # for each subject


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--sizes", nargs="+", type=int, help="N; default 3000 and 5000")
    parser.add_argument("--seed-offset", type=int, default=6_000, help="number of the first data set")
    parser.add_argument("--replications", type=int, help="data sets; default 6")


def check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Fill in defaults: small ones of a quick run."""
    options.sizes = options.sizes or ([120] if options.quick else [3_000, 5_000])
    options.replications = options.replications or (1 if options.quick else 6)
    if min(options.replications, *options.sizes) < 1:
        parser.error("sizes and replications are whole numbers of at least 1")


def run(options: argparse.Namespace) -> Measured:
    """All numbers of rows on all data sets."""
    numbers = range(options.seed_offset, options.seed_offset + options.replications)
    tasks = [(model, n, number) for model in options.models for n in options.sizes for number in numbers]
    found: dict[str, dict[str, list[Mapping[str, float]]]] = {}
    for name, scores in run_all(
        measure, tasks, options.quick, label="data sets", backend=options.backend, jobs=options.jobs, cost=_cost
    ):
        for rows, own in scores.items():
            found.setdefault(name, {}).setdefault(str(rows), []).append(own)
    said = {"replications": options.replications, "first": options.seed_offset, "small_design": options.quick}
    return said, {name: found[name] for name in dict.fromkeys(name_cell(*task[:2]) for task in tasks) if name in found}


def name_cell(model: Model, n_subjects: int) -> str:
    return f"{model}, N = {n_subjects:,}"


def measure(task: tuple[Model, int, int], quick: bool) -> tuple[str, dict[int, Mapping[str, float]]]:
    """The paper's three measures by the number of rows, on one data set; a table without an answer is left out."""
    model, n, number = task
    cell, found = Cell(model, COMPLETE, n), {}
    drawn = draw(cell, number, Settings(SMALL_DESIGN if quick else {}).make_design(cell))
    study = drawn.study(1.0, number, 1)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rows in ROWS:
            asked = replace(study, rows_per_subject=rows)
            asked.fitted.update(study.fitted)
            try:
                outcome = fit(asked)
                study.fitted.update(asked.fitted)
                x, y = stack_numbers(study.federation, outcome.tables)
                coef = trace_scad(x, y, model=model, n_effective=n, fit_intercept=False).penalised.coef
            except FAILURES:
                continue
            found[rows] = score_coef(coef, drawn.data.coef)
    return name_cell(model, n), found


def _cost(task: tuple[Model, int, int]) -> float:
    return task[1] * (4.0 if task[0] == "logistic" else 1.0)


def present(record: Record, places: Places) -> list[Table]:
    """The page `rows_per_subject.md`."""
    said, tables = record.settings, []
    for name, found in record.results.items():
        lines = []
        for rows, kept in found.items():
            columns = [[scores[metric] for scores in kept] for metric in METRICS]
            cells = [f"{mean(values):.3f} ± {standard_error(values):.3f}" for values in columns]
            lines.append((f"{rows} ({len(kept)} data sets)", *cells))
        tables.append(Table(f"{name}, our VCDS", ("rows for each subject", *METRIC_NAMES.values()), lines))
    used = ", ".join(f"{rows} at N = {n:,}" for n, rows in ROWS_PER_SUBJECT.items())
    about = (
        f"{__doc__.strip()}\n\nData sets from number {said['first']} on; means and standard errors. The tables take "
        f"{used}. {record.describe()}"
    )
    write_text(places.pages / "rows_per_subject.md", markdown_page("Rows for each subject", [about, *tables]))
    return tables
