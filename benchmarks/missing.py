"""Regressions on synthetic tables against the paper's Tables 4 to 7 (blocks missing at random).

Every replication draws one data set of Section 5.2 and fits SCAD on tables of every method: free
rows, and rows aligned with the subjects. Linear tables are judged by the library's own regression,
BIC on refits; logistic ones by the rule that judges the complete data too (`benchmarks.accuracy`),
because BIC selects far too little there, whatever the data. Besides these the references on the
complete data, which no method sees: the same SCAD, and the oracle, maximum likelihood on the true
support. `missing_reference` adds every method without noise on the same data sets and masks.

A printed cell can be out of reach of the design itself. So beside the plain comparison with the paper
each cell is judged against the worse of the printed figure and the two references on the complete
data; and where it falls short of that, it is said whether anything reaches it without noise.

The maskable clients are drawn anew in every replication, so data sets differ far more than methods
do: methods are compared by differences within replications. Data sets on which VCDS cannot run are
drawn again, and a method that fails on a data set is counted and left out there.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed, parallel_config
from numpy.typing import NDArray

from benchmarks.accuracy import MODELS, UNIT, score
from benchmarks.missing_page import (
    tabulate_counts,
    tabulate_leads,
    tabulate_margins,
    tabulate_misses,
    tabulate_scores,
    write_page,
)
from benchmarks.missing_verdicts import (
    EPSILON,
    FEWEST_AT_PARTY,
    FEWEST_IN_COMMON,
    METHODS,
    ROUNDS,
    ROWS_PER_SUBJECT,
    SOURCES,
    Answer,
    Cell,
    Measured,
    References,
    average_margins,
    average_scores,
    count_failures,
    count_verdicts,
    judge,
    name_part,
    read_paper,
    summarise,
)
from benchmarks.record import Places, Report
from experiments.designs import (
    RESPONSE,
    SERVER,
    MarCase,
    SimulatedData,
    SimulationDesign,
    make_complete,
    mask_mar,
)
from experiments.scad import Model, ScadFit, SeparatedClassesError, fit_oracle, fit_scad, fit_scad_refit
from verticopula import Synthesizer
from verticopula.errors import VerticopulaError
from verticopula.schema import ColumnKey
from verticopula.synthesizer import AlignedWarning, NotPrivateWarning

CASES: tuple[MarCase, ...] = ("simple", "complex")
JUDGES: dict[Model, Callable[..., ScadFit]] = {"linear": fit_scad_refit, "logistic": fit_scad}
JUDGE_NAMES: dict[Model, str] = {"linear": "BIC on refits", "logistic": "ridge and gMDL"}
# The logistic tables take the longest, to make and to judge.
REPLICATIONS = {
    "linear/1000": 20,
    "linear/3000": 10,
    "linear/5000": 10,
    "logistic/1000": 5,
    "logistic/3000": 5,
    "logistic/5000": 10,
}
QUICK = {f"{model}/1000": 1 for model in MODELS}
# The last measures nothing: everything is kept, and judged anew.
PARTS = (*REPLICATIONS, "verdicts")
PROCESSES = 2

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Replicate = Callable[["Cell", int], "Answer"]


# ---- one replication -----------------------------------------------------------------------


def replicate(cell: Cell, replication: int) -> Answer:
    """All methods on one data set."""
    data, observed, drawn_again = draw_replication(cell, replication)
    answer = Answer(float(observed.all(axis=1).mean()), float(observed.mean()), drawn_again)
    _score_table(answer, "original", data, data.x, data.y)
    with suppress(SeparatedClassesError):
        answer.scores["oracle"] = score(fit_oracle(data.x, data.y, data.coef != 0, cell.model), data.coef)
    for method in METHODS:
        sources = [source for source in SOURCES if source.startswith(f"{method}/")]
        run_method(answer, method, sources, data, observed, replication)
    return answer


def draw_replication(cell: Cell, replication: int) -> tuple[SimulatedData, Bools, int]:
    """The data set of one replication, as `draw_usable` gives it."""
    key = [replication, cell.n_subjects, MODELS.index(cell.model), CASES.index(cell.case)]
    return draw_usable(cell, np.random.default_rng(key))


def draw_usable(cell: Cell, rng: np.random.Generator) -> tuple[SimulatedData, Bools, int]:
    """A data set that VCDS can run on, who is observed where, and how many were drawn in vain."""
    drawn_again = 0
    while True:
        data = make_complete(SimulationDesign(model=cell.model), cell.n_subjects, rng=rng)
        observed = mask_mar(data, rng=rng, case=cell.case)
        overlap = observed.astype(np.int64).T @ observed
        if overlap.min() >= FEWEST_IN_COMMON and overlap.diagonal().min() >= FEWEST_AT_PARTY:
            return data, observed, drawn_again
        drawn_again += 1


def run_method(
    answer: Answer,
    method: str,
    sources: Sequence[str],
    data: SimulatedData,
    observed: Bools,
    seed: int,
    *,
    epsilon: float = EPSILON,
) -> None:
    """Fit one method and add to the answer what its tables and margins are worth."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        warnings.simplefilter("ignore", AlignedWarning)
        try:
            synthesizer = Synthesizer(
                data.federation(),
                method,
                epsilon,
                unit=UNIT,
                random_state=seed,
                rounds=ROUNDS,
                per_round=method == "ievcds",
            ).fit(data.tables(observed))
        except (VerticopulaError, ValueError) as error:
            answer.failures |= dict.fromkeys(sources, str(error))
            return
        distance = margin_error(synthesizer, data)
        if math.isfinite(distance):
            answer.margins[method] = distance
        rows = ROWS_PER_SUBJECT[len(data.y)] * len(data.y)
        for source in sources:
            tables = synthesizer.sample(rows, aligned=source.endswith("/aligned"))
            x = np.column_stack([tables[client].to_numpy() for client in data.design.client_names])
            x, y = x.astype(np.float64), tables[SERVER][RESPONSE].to_numpy()
            _score_table(answer, source, data, x, y)


def _score_table(answer: Answer, source: str, data: SimulatedData, x: Floats, y: Floats) -> None:
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        answer.failures[source] = "the table has cells that are not finite"
        return
    model, n = data.design.model, len(data.y)
    found = JUDGES[model](x, y.astype(np.float64), model=model, n_effective=n, fit_intercept=False)
    answer.scores[source] = score(found.coef, data.coef)


def margin_error(synthesizer: Synthesizer, data: SimulatedData) -> float:
    """Mean over the covariates of the distance between fitted margin and the complete data's."""
    distances = []
    for party, block in zip(data.design.client_names, data.blocks, strict=True):
        for j in range(block.start, block.stop):
            marginal = synthesizer.result_.copula.marginals[ColumnKey(party, f"x{j + 1}")]
            distances.append(kolmogorov(marginal.cdf, data.x[:, j] - (data.kinds[j] == "ordinal"), data.kinds[j]))
    return float(np.mean(distances))


def kolmogorov(cdf: Callable[[Floats], Floats], values: Floats, kind: str) -> float:
    """Largest difference of a fitted distribution function from the values' own.

    `values` of discrete columns are codes, from 0.
    """
    ordered = np.sort(values)
    if kind == "continuous":
        fitted, steps = cdf(ordered), np.arange(ordered.size + 1) / ordered.size
        return float(np.max(np.maximum(np.abs(fitted - steps[1:]), np.abs(fitted - steps[:-1]))))
    levels = np.arange(ordered[-1] + 1)
    shares = np.searchsorted(ordered, levels, side="right") / ordered.size
    return float(np.max(np.abs(cdf(levels) - shares)))


def replicate_all(
    cells: Sequence[Cell], replications: Mapping[str, int], replicate: Replicate
) -> dict[Cell, list[Answer]]:
    """All replications of all cells, the longest first, on two processes of one thread each."""
    longest_first = sorted(cells, key=lambda c: (c.n_subjects * (c.model == "logistic"), c.n_subjects), reverse=True)
    tasks = [(cell, r) for cell in longest_first for r in range(replications[name_part(cell)])]
    with parallel_config(backend="loky", n_jobs=PROCESSES, inner_max_num_threads=1):
        answers = Parallel()(delayed(replicate)(cell, r) for cell, r in tasks)
    grouped: dict[Cell, list[Answer]] = {cell: [] for cell in cells}
    for (cell, _), answer in zip(tasks, answers, strict=True):
        grouped[cell].append(answer)
    return grouped


def read_kept(path: Path) -> dict[Cell, Measured]:
    """What earlier runs measured, by cell; without what another fit than today's has judged."""
    if not path.exists():
        return {}
    record = json.loads(path.read_text(encoding="utf-8"))
    return {
        Cell(c["model"], c["case"], c["n_subjects"]): Measured(
            [Answer(**answer) for answer in c["replications"]], c["measured"]
        )
        for c in record["results"]["cells"]
        if c.get("judge") == JUDGE_NAMES[c["model"]]
    }


def measure(
    cells: Sequence[Cell],
    replications: Mapping[str, int],
    parts: Sequence[str],
    kept_in: Path,
    replicate: Replicate = replicate,
) -> dict[Cell, Measured]:
    """The cells of the named parts made anew (all without any), the others from earlier runs, where kept."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    chosen = [cell for cell in cells if not parts or name_part(cell) in parts]
    found = {cell: Measured(answers, now) for cell, answers in replicate_all(chosen, replications, replicate).items()}
    known = (read_kept(kept_in) if parts else {}) | found
    return {cell: known[cell] for cell in cells if cell in known}


def record_cell(cell: Cell, measured: Measured) -> dict[str, Any]:
    """What `read_kept` reads."""
    return {
        **asdict(cell),
        "measured": measured.date,
        "judge": JUDGE_NAMES[cell.model],
        "replications": [asdict(answer) for answer in measured.answers],
    }


def list_cells(replications: Mapping[str, int]) -> list[Cell]:
    """The cells of these parts, in the order of the tables."""
    every = [Cell(model, case, n) for model in MODELS for case in CASES for n in ROWS_PER_SUBJECT]
    return [cell for cell in every if name_part(cell) in replications]


def read_references(places: Places, measured: Mapping[Cell, Measured]) -> References:
    """What `missing_reference` found on the same data sets; nothing of cells where it has not run on them."""
    return {
        (cell, source, metric): mean
        for cell, found in read_kept(places.results / "missing_reference.json").items()
        if cell in measured and len(found.answers) == len(measured[cell].answers)
        for source in found.answers[0].scores
        for metric, (mean, _) in average_scores(found.answers, source).items()
    }


def run(places: Places, *, quick: bool, parts: Sequence[str] = ()) -> Report:
    """All cells with blocks missing at random of Tables 4 to 7; writes the page `missing.md`.

    With `parts`, only those (of PARTS) are measured; the others are kept from the last results.
    """
    replications = QUICK if quick else REPLICATIONS
    measured = measure(list_cells(replications), replications, parts, places.results / "missing.json")
    grouped = {cell: found.answers for cell, found in measured.items()}
    paper = read_paper()
    without_noise = read_references(places, measured)
    leads = {cell: judge(cell, answers, paper, without_noise) for cell, answers in grouped.items()}
    counts = count_verdicts(leads)
    tables = [
        tabulate_scores("rmse", "RMSE (standard error)", grouped, paper, ("oracle", "original")),
        tabulate_scores("gmeans", "G-Means (1 is best)", grouped, paper, ("original",)),
        tabulate_scores("fdr", "FDR (0 is best)", grouped, paper, ("original",)),
        tabulate_margins(grouped),
        tabulate_counts(counts),
        tabulate_misses(leads),
        tabulate_leads(leads),
    ]
    write_page(places.pages / "missing.md", tables, measured, summarise(counts), count_failures(grouped))
    return Report(
        "missing",
        {
            "replications": dict(replications),
            "epsilon": EPSILON,
            "unit": UNIT,
            "rounds": ROUNDS,
            "rows_per_subject": {str(n): rows for n, rows in ROWS_PER_SUBJECT.items()},
            "fit": dict(JUDGE_NAMES),
            "fit_intercept": False,
        },
        {
            "cells": [
                {
                    **record_cell(cell, measured[cell]),
                    "scores": {s: average_scores(answers, s) for s in ("oracle", "original", *SOURCES)},
                    "margins": {m: average_margins(answers, m) for m in METHODS},
                    "leads": {name: asdict(lead) for name, lead in leads[cell].items()},
                }
                for cell, answers in grouped.items()
            ],
            "target": counts,
        },
        tables,
    )
