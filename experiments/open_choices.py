"""What the paper's text leaves open in its algorithms as printed: RMSE with our reading of each point, and with others.

The paper's designs and its judge: SCAD with BIC of the penalised fit, without an intercept, on as many rows as
subjects. ε = 1 of unit `variable`. All readings see the same data sets and the same coins. The last ones are about the
judge, and see the tables of our reading. *Real data* has the judge on original data, by readings of the design.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from experiments.designs import FAMILY_OF_MODEL, Model, SimulationDesign
from experiments.draws import MODELS, Cell, Drawn, draw
from experiments.metrics import rmse
from experiments.paper import COMPLETE
from experiments.runner import SMALL_DESIGN, Settings
from experiments.scad import trace_scad
from experiments.study import stack_numbers
from reporting.catalogue import Measured, Places
from reporting.pages import markdown_page
from reporting.parallel import run_all
from reporting.records import Record, write_text
from reporting.tables import Table, mean, standard_error
from verticopula import VerticalGLM
from verticopula.data.tables import align_tables
from verticopula.privacy.noise import SeededNoise, server_generator
from verticopula.schema.federation import seeded_study_name
from verticopula.schema.methods import PRINTED_VARIANT
from verticopula.schema.printed_choices import DEFAULT_INTERPRETATION, PrintedChoices
from verticopula.schema.study_settings import StudySettings
from verticopula.simulate.in_process import run_in_process
from verticopula.storage.ledger import Ledger
from verticopula.study.synthetic_tables import decode_tables

Floats = NDArray[np.float64]

EPSILON = 1.0
N_CLIENTS = 5
ROUNDS = 10
ROWS_OF_MORE = 10
OURS = "our reading"
# Readings that are no point of `PrintedChoices`, but of how a study is run and what is taken from it.
FREE = "free rows"
MORE = "ten rows for each subject"  # which count as one
LATER = "T rounds after the first"
SHARED = "ε1 / T in each round"  # the tables must have used ε1 in each: so do ours
READINGS: Mapping[str, PrintedChoices] = {
    OURS: DEFAULT_INTERPRETATION,
    "Spearman": replace(DEFAULT_INTERPRETATION, rank_correlation="spearman"),
    "known normaliser": replace(DEFAULT_INTERPRETATION, known_normaliser=True),
    "Ω clipped once": replace(DEFAULT_INTERPRETATION, nearest_repair=False),
    "public range": replace(DEFAULT_INTERPRETATION, own_range=False),
    "h = 1": replace(DEFAULT_INTERPRETATION, bernstein_order=1),
    "h = 5": replace(DEFAULT_INTERPRETATION, bernstein_order=5),
    "δ = 0.5": replace(DEFAULT_INTERPRETATION, failure_chance=0.5),
    "straight lines": replace(DEFAULT_INTERPRETATION, smooth=False),
    "sorted polynomial": replace(DEFAULT_INTERPRETATION, running_maximum=False),
    "to the nearest": replace(DEFAULT_INTERPRETATION, round_up=False),
    "Eq. 8 by index": replace(DEFAULT_INTERPRETATION, reorder=False),
    "later row first": replace(DEFAULT_INTERPRETATION, earlier_first=False),
    "Eq. 6 with Z'": replace(DEFAULT_INTERPRETATION, sorted_bounds=False),
    "missing by itself": replace(DEFAULT_INTERPRETATION, missing_given_others=False),
    "given 1:(j−1)": replace(DEFAULT_INTERPRETATION, given_response=False),
    "ties at random": replace(DEFAULT_INTERPRETATION, ties_by_row=False),
    FREE: DEFAULT_INTERPRETATION,
    MORE: DEFAULT_INTERPRETATION,
    LATER: DEFAULT_INTERPRETATION,
    SHARED: DEFAULT_INTERPRETATION,
}
# Of the judge: what BIC's 2N f is where the errors' variance is taken as known, and Algorithm 4 as it stands.
JUDGES = {"linear": ("judge: RSS + df log N", "judge: Algorithm 4"), "logistic": ("judge: Algorithm 4",)}
# Algorithm 1 has no latents of subjects, and only Algorithm 3 has rounds.
BY_INDEX, ALONE, TIES = "Eq. 8 by index", "missing by itself", "ties at random"
LATENT_READINGS = (BY_INDEX, "later row first", "Eq. 6 with Z'", ALONE, "given 1:(j−1)", FREE)
ROUND_READINGS = (LATER, SHARED)
UNREAD: Mapping[str, tuple[str, ...]] = {
    "vcds": (*LATENT_READINGS, *ROUND_READINGS),
    "evcds": ROUND_READINGS,
    "ievcds": (),
}
MAR = "MAR-simple"
MECHANISMS = {"vcds": (COMPLETE,), "evcds": (COMPLETE, MAR), "ievcds": (MAR,)}
# The text does not say how many covariates are of which kind, nor whether latent variables are shuffled with them.
# `DESIGN` measures the judge on real data.
DESIGN = "design"
DESIGNS: Mapping[str, SimulationDesign] = {
    OURS: SimulationDesign(),
    "all continuous": SimulationDesign(kind_counts=(100, 0, 0, 0)),
    "all ordinal": SimulationDesign(kind_counts=(0, 100, 0, 0)),
    "all counts": SimulationDesign(kind_counts=(0, 0, 100, 0)),
    "all binary": SimulationDesign(kind_counts=(0, 0, 0, 100)),
    "latents shuffled, too": SimulationDesign(latents_move=True),
}


ALL_READINGS = (OURS, *(name for name in (*READINGS, *JUDGES["linear"], *DESIGNS) if name != OURS))


def add_options(parser: argparse.ArgumentParser) -> None:
    names = [*MECHANISMS, DESIGN]
    parser.add_argument("--methods", nargs="+", choices=names, default=names)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--seed-offset", type=int, default=0, help="number of the first data set")
    parser.add_argument("--subjects", type=int, help="N; default 1000")
    parser.add_argument("--replications", type=int, help="data sets; default 5")


def check(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Fill in defaults: small ones of a quick run."""
    options.subjects = options.subjects or (80 if options.quick else 1_000)
    options.replications = options.replications or (1 if options.quick else 5)
    if min(options.subjects, options.replications) < 1:
        parser.error("subjects and replications are whole numbers of at least 1")


def run(options: argparse.Namespace) -> Measured:
    """Every reading on every data set; what the folder has of the same data sets is not computed again."""
    numbers = range(options.seed_offset, options.seed_offset + options.replications)
    said = {"subjects": options.subjects, "replications": options.replications, "small_design": options.quick}
    said |= {"first": options.seed_offset} if options.seed_offset else {}
    found = read_found(options.places.results / "open_choices.json", said)
    tasks = [
        (method, model, mechanism, number)
        for method in options.methods
        for model in options.models
        for mechanism in MECHANISMS.get(method, (COMPLETE,))
        for number in numbers
    ]
    added: dict[str, dict[str, list[float]]] = {}
    for name, scores in run_all(
        measure,
        tasks,
        options.subjects,
        options.quick,
        {name: tuple(scores) for name, scores in found.items()},
        label="data sets",
        backend=options.backend,
        jobs=options.jobs,
    ):
        for reading, error in scores.items():
            added.setdefault(name, {}).setdefault(reading, []).append(error)
    for name, scores in added.items():
        found[name] = found.get(name, {}) | scores
    return said, {name: in_order(found[name]) for name in sorted(found)}


def read_found(path: Path, said: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """RMSE by design and reading that an earlier run found on the same data sets."""
    record = Record.read(path) if path.exists() else None
    return dict(record.results) if record is not None and dict(record.settings) == dict(said) else {}


def in_order(scores: Mapping[str, list[float]]) -> dict[str, list[float]]:
    """Readings as they are listed here, judges after them."""
    return {name: scores[name] for name in sorted(scores, key=ALL_READINGS.index)}


def present(record: Record, places: Places) -> list[Table]:
    """The page `open_choices.md`."""
    said = record.settings
    tables = [
        Table(f"{name}, N = {said['subjects']:,}", ("reading", "RMSE", "less our reading's"), rows)
        for name, rows in list_effects(record).items()
    ]
    about = f"{__doc__.strip()}\n\n{said['replications']} data sets; means and standard errors. {record.describe()}"
    page = markdown_page("Open points of the algorithms as printed", [about, *tables])
    write_text(places.pages / "open_choices.md", page)
    return tables


def list_effects(record: Record) -> dict[str, list[tuple[str, str, str]]]:
    """By method and design: every reading, its RMSE, and how much that differs from our reading's."""
    tables = {}
    for name, scores in record.results.items():
        ours = np.array(scores[OURS])
        tables[name] = [
            (
                reading,
                f"{mean(errors):.3f} ± {standard_error(errors):.3f}",
                "" if reading == OURS else f"{mean(more):+.3f} ± {standard_error(more):.3f}",
            )
            for reading, errors in scores.items()
            for more in [np.array(errors) - ours]
        ]
    return tables


def mean_errors(record: Record) -> dict[str, dict[str, float]]:
    """RMSE by method and design, and by reading."""
    return {name: {reading: mean(errors) for reading, errors in own.items()} for name, own in record.results.items()}


def measure(
    task: tuple[str, Model, str, int], n_subjects: int, quick: bool, known: Mapping[str, Collection[str]]
) -> tuple[str, dict[str, float]]:
    """RMSE by reading, of one method on one data set; without those that are known."""
    method, model, mechanism, number = task
    if method == DESIGN:
        name = f"real data, {model}, {COMPLETE}"
        return name, measure_designs(model, number, n_subjects, quick, known.get(name, ()))
    cell = Cell(model, mechanism, n_subjects)
    label = f"{method} as printed, {model}, {mechanism}"
    done = known.get(label, ())
    drawn = draw(cell, number, Settings(SMALL_DESIGN if quick else {}).make_design(cell))
    names = [name for name in list_readings(method, mechanism) if name not in done]
    found, others = {}, {}
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            x, y = make_table(drawn, method, name, number)
            found[name] = rmse(fit_rows(x, y, model, n_subjects=n_subjects), drawn.data.coef)
            if name == OURS:
                others = {judge: rmse(fit_rows(x, y, model, judge), drawn.data.coef) for judge in JUDGES[model]}
    return label, found | others


def list_readings(method: str, mechanism: str) -> list[str]:
    """Those that change anything there."""
    unread = (*UNREAD[method], *((ALONE,) if mechanism == COMPLETE else ()))
    return [name for name in READINGS if name not in unread]


def measure_designs(
    model: Model, number: int, n_subjects: int, quick: bool, known: Collection[str] = ()
) -> dict[str, float]:
    """RMSE of the judge on real data by the reading of the design, without those known; a quick run has 20 columns."""
    found = {}
    for name, reading in DESIGNS.items():
        if name not in known:
            counts = tuple(count // 5 for count in reading.kind_counts) if quick else reading.kind_counts
            design = replace(reading, model=model, kind_counts=counts)
            data = draw(Cell(model, COMPLETE, n_subjects), number, design).data
            found[name] = rmse(fit_rows(data.x, data.y, model), data.coef)
    return found


def make_table(drawn: Drawn, method: str, name: str, seed: int, epsilon: float = EPSILON) -> tuple[Floats, Floats]:
    """Covariates and response of the synthetic table, by one reading."""
    study, choices = drawn.study(epsilon, seed, 1), READINGS[name]
    federation = study.federation
    per_round = method == "ievcds" and name != SHARED
    rounds = ROUNDS + (name == LATER)
    settings = StudySettings(
        method, epsilon, unit="variable", rounds=rounds, per_round=per_round, variant=PRINTED_VARIANT
    )
    result = run_in_process(
        federation,
        settings,
        align_tables(federation, dict(study.tables), federation.id),
        study=seeded_study_name(federation),
        noise=lambda party: SeededNoise(seed).derive(party),
        rng=server_generator(seed, "fit"),
        ledger=Ledger(),
        threads=1,
        ask_consent=False,
        printed_choices=choices,
    )
    rng, tables = server_generator(seed, "sample"), ROWS_OF_MORE if name == MORE else 1
    if result.draw_aligned is None or name == FREE:
        values = result.copula.sample(tables * result.n_subjects, rng)
    else:
        latents = [result.draw_aligned(rng) for _ in range(tables)]
        values = result.copula.decode(latents, tables * result.n_subjects)
    return stack_numbers(federation, decode_tables(values, federation, result))


def fit_rows(x: Floats, y: Floats, model: Model, judge: str = "", n_subjects: int | None = None) -> Floats:
    """Coefficients by the paper's judge, or by another reading of it; None for as many subjects as rows."""
    if judge.endswith("Algorithm 4"):
        blocks = {f"client{k}": part for k, part in enumerate(np.array_split(x, N_CLIENTS, axis=1))}
        fitted = VerticalGLM(FAMILY_OF_MODEL[model], fit_intercept=False, variant=PRINTED_VARIANT).fit(blocks, y)
        return np.concatenate(list(fitted.coef_.values()))
    if judge:
        fitted = VerticalGLM(FAMILY_OF_MODEL[model], fit_intercept=False, refit=False).fit(x, y)
        points = fitted.path_.points
        scores = [2.0 * y.size * point.loss + point.degrees_of_freedom * np.log(y.size) for point in points]
        return points[int(np.argmin(scores))].coef
    return trace_scad(x, y, model=model, n_effective=n_subjects, fit_intercept=False).penalised.coef
