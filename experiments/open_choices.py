"""What the paper's text leaves open in its algorithms as printed: RMSE with our reading of each point, and with others.

The paper's linear design and its judge: SCAD with BIC of the penalised fit, without an intercept, on as many rows as
subjects. ε = 1 of unit `variable`. All readings see the same data sets and the same coins.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from threadpoolctl import threadpool_limits

from experiments.draws import Cell, Drawn, draw
from experiments.metrics import rmse
from experiments.paper import COMPLETE
from experiments.runner import SMALL_DESIGN, Settings
from experiments.study import stack_numbers
from reporting.catalogue import Measured, Places
from reporting.pages import markdown_page
from reporting.parallel import run_all
from reporting.records import Record, write_text
from reporting.tables import Table, mean, standard_error
from verticopula import VerticalGLM
from verticopula.data.tables import align_tables
from verticopula.privacy.budget import StudyBudget
from verticopula.privacy.noise import SeededNoise, server_generator
from verticopula.schema.federation import seeded_study_name
from verticopula.schema.methods import PRINTED_VARIANT
from verticopula.schema.printed_choices import OUR_READING, PrintedChoices
from verticopula.schema.study_settings import StudySettings
from verticopula.simulate.in_process import run_in_process
from verticopula.storage.ledger import Ledger
from verticopula.study.synthetic_tables import decode_tables

EPSILON = 1.0
ROUNDS = 10
OURS = "our reading"
FREE = "free rows"
READINGS: Mapping[str, PrintedChoices] = {
    OURS: OUR_READING,
    "Spearman": replace(OUR_READING, rank_correlation="spearman"),
    "public range": replace(OUR_READING, own_range=False),
    "h = 1": replace(OUR_READING, bernstein_order=1),
    "h = 5": replace(OUR_READING, bernstein_order=5),
    "δ = 0.5": replace(OUR_READING, failure_chance=0.5),
    "to the nearest": replace(OUR_READING, round_up=False),
    "Eq. 8 by index": replace(OUR_READING, reorder=False),
    "given 1:(j−1)": replace(OUR_READING, given_response=False),
    FREE: OUR_READING,
}
# Algorithm 1 has no latents of subjects.
LATENT_READINGS = ("Eq. 8 by index", "given 1:(j−1)", FREE)
MECHANISMS = {"vcds": COMPLETE, "evcds": COMPLETE, "ievcds": "MAR-simple"}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--methods", nargs="+", choices=MECHANISMS, default=list(MECHANISMS))
    parser.add_argument("--subjects", type=int, help="N; default 1000")
    parser.add_argument("--replications", type=int, help="data sets; default 5")


def check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Fill in defaults: small ones of a quick run."""
    options.subjects = options.subjects or (80 if options.quick else 1_000)
    options.replications = options.replications or (1 if options.quick else 5)
    if min(options.subjects, options.replications) < 1:
        parser.error("subjects and replications are whole numbers of at least 1")


def run(options: argparse.Namespace) -> Measured:
    """Every reading on every data set."""
    tasks = [(method, replication) for method in options.methods for replication in range(options.replications)]
    found: dict[str, dict[str, list[float]]] = {}
    for method, scores in run_all(
        measure,
        tasks,
        options.subjects,
        options.quick,
        label="data sets",
        backend=options.backend,
        jobs=options.jobs,
    ):
        for name, error in scores.items():
            found.setdefault(method, {}).setdefault(name, []).append(error)
    said = {"subjects": options.subjects, "replications": options.replications, "small_design": options.quick}
    return said, found


def present(record: Record, places: Places) -> list[Table]:
    """The page `open_choices.md`."""
    said = record.settings
    tables = []
    for method, scores in record.results.items():
        ours = np.array(scores[OURS])
        rows = [
            [
                name,
                f"{mean(errors):.3f} ± {standard_error(errors):.3f}",
                "" if name == OURS else f"{mean(more):+.3f} ± {standard_error(more):.3f}",
            ]
            for name, errors in scores.items()
            for more in [np.array(errors) - ours]
        ]
        title = f"{method} as printed, linear, {MECHANISMS[method]}, N = {said['subjects']:,}"
        tables.append(Table(title, ("reading", "RMSE", "less our reading's"), rows))
    about = f"{__doc__.strip()}\n\n{said['replications']} data sets; means and standard errors. {record.describe()}"
    page = markdown_page("Open points of the algorithms as printed", [about, *tables])
    write_text(places.pages / "open_choices.md", page)
    return tables


def measure(task: tuple[str, int], n_subjects: int, quick: bool) -> tuple[str, dict[str, float]]:
    """RMSE by reading, of one method on one data set."""
    method, replication = task
    cell = Cell("linear", MECHANISMS[method], n_subjects)
    drawn = draw(cell, replication, Settings(SMALL_DESIGN if quick else {}).make_design(cell))
    names = [name for name in READINGS if method != "vcds" or name not in LATENT_READINGS]
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return method, {name: measure_reading(drawn, method, name, replication) for name in names}


def measure_reading(drawn: Drawn, method: str, name: str, seed: int) -> float:
    """RMSE of the coefficients that the paper's judge finds on the synthetic table."""
    study, choices = drawn.study(EPSILON, seed, 1), READINGS[name]
    federation = study.federation
    settings = StudySettings(method, EPSILON, unit="variable", rounds=ROUNDS, per_round=method == "ievcds")
    result = run_in_process(
        federation,
        method,
        StudyBudget.of(federation, settings),
        align_tables(federation, dict(study.tables), federation.id),
        study=seeded_study_name(federation),
        noise=lambda party: SeededNoise(seed).derive(party),
        rng=server_generator(seed, "fit"),
        ledger=Ledger(),
        threads=1,
        ask_consent=False,
        variant=PRINTED_VARIANT,
        printed_choices=choices,
    )
    rng = server_generator(seed, "sample")
    if result.draw_aligned is None or name == FREE:
        values = result.copula.sample(result.n_subjects, rng)
    else:
        values = result.copula.decode([result.draw_aligned(rng)], result.n_subjects)
    x, y = stack_numbers(federation, decode_tables(values, federation, result))
    model = VerticalGLM("gaussian", fit_intercept=False, refit=False).fit(x, y)
    (coef,) = model.coef_.values()
    return rmse(coef, drawn.data.coef)
