"""Regressions on VCDS's synthetic tables against the paper's Tables 1 to 3 (complete data).

Every replication draws one data set of Section 5.1 and fits, without an intercept as the paper
does, on synthetic tables of 5 N rows and on the original data: SCAD with a ridge chosen by gMDL,
which judges the cell, and SCAD chosen by BIC, the paper's. Besides these the oracle, maximum
likelihood on the true support of the original data.

The design leaves much open, and in our reading of it some printed cells are out of anybody's
reach. So a cell is judged against the worse of the paper's figure and the oracle's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl
from joblib import Parallel, delayed, parallel_config
from numpy.typing import NDArray

from benchmarks.record import ROOT, Places, Report, Table
from experiments.designs import RESPONSE, SERVER, SimulatedData, SimulationDesign, make_complete
from experiments.metrics import fdr, g_means, rmse
from experiments.scad import Model, ScadFit, SeparatedClassesError, fit_oracle, fit_scad, fit_scad_path
from verticopula import Synthesizer
from verticopula.synthesizer import NotPrivateWarning

MODELS: tuple[Model, ...] = ("linear", "logistic")
FITS: dict[str, Callable[..., ScadFit]] = {"gmdl": fit_scad, "bic": fit_scad_path}
FIT_NAMES = {"gmdl": "ridge and gMDL", "bic": "BIC"}
JUDGED_BY = "gmdl"
REPLICATIONS = {1_000: 20, 3_000: 10, 5_000: 10}
METRICS = {"rmse": rmse, "gmeans": g_means, "fdr": fdr}
CELL_HEADER = ("model", "N", "ε")
UNIT = "variable"
ROWS_PER_SUBJECT = 5
PROCESSES = 2
PAPER = ROOT / "experiments" / "paper" / "tables1-3_complete_data.csv"

Floats = NDArray[np.float64]
Scores = dict[str, float]


@dataclass(frozen=True)
class Cell:
    """One cell of the paper's tables."""

    model: Model
    n_subjects: int
    epsilon: int


@dataclass(frozen=True)
class Judged:
    """A cell's RMSE against what it is measured by.

    Attributes
    ----------
    rmse, standard_error : mean over replications of the fit that judges, and its standard error
    bar : the worse of the paper's VCDS and the oracle
    reached : at most the bar
    reached_with_bic : SCAD with BIC is at most the bar
    reached_within_error : at most the bar plus two standard errors
    """

    rmse: float
    standard_error: float
    paper: float
    oracle: float
    bar: float
    reached: bool
    reached_with_bic: bool
    reached_within_error: bool


def replicate(model: Model, n: int, epsilons: Sequence[int], replication: int) -> dict[str, Scores]:
    """Scores of every method on one data set; keys are `original/FIT`, `EPSILON/FIT` and `oracle`.

    There is no `oracle` where its likelihood has no maximum.
    """
    design = SimulationDesign(model=model)
    data = make_complete(design, n, rng=np.random.default_rng([replication, n, MODELS.index(model)]))
    scores = {}
    tables = {"original": (data.x, data.y)} | {str(e): synthesize(data, e, replication) for e in epsilons}
    for source, (x, y) in tables.items():
        for name, fit in FITS.items():
            found = fit(x, y, model=model, n_effective=n, fit_intercept=False)
            scores[f"{source}/{name}"] = score(found.coef, data.coef)
    with suppress(SeparatedClassesError):
        scores["oracle"] = score(fit_oracle(data.x, data.y, data.coef != 0, model), data.coef)
    return scores


def synthesize(data: SimulatedData, epsilon: float, seed: int) -> tuple[Floats, Floats]:
    """Covariates and response of 5 N synthetic rows, covariates in the design's order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        synthesizer = Synthesizer(data.federation(), "vcds", epsilon, unit=UNIT, random_state=seed)
        tables = synthesizer.fit(data.tables()).sample(ROWS_PER_SUBJECT * len(data.y))
    x = np.column_stack([tables[client].to_numpy() for client in data.design.client_names])
    return x.astype(np.float64), tables[SERVER][RESPONSE].to_numpy().astype(np.float64)


def score(coef: Floats, truth: Floats) -> Scores:
    """The paper's three measures."""
    return {name: measure(coef, truth) for name, measure in METRICS.items()}


def replicate_all(
    replications: Mapping[int, int], epsilons: Sequence[int]
) -> dict[tuple[Model, int], list[dict[str, Scores]]]:
    """All replications (per N) of all designs, the longest first, on two processes of one thread each."""
    sizes = sorted(replications)
    tasks = [(model, n, r) for model in reversed(MODELS) for n in reversed(sizes) for r in range(replications[n])]
    with parallel_config(backend="loky", n_jobs=PROCESSES, inner_max_num_threads=1):
        answers = Parallel()(delayed(replicate)(model, n, epsilons, r) for model, n, r in tasks)
    grouped: dict[tuple[Model, int], list[dict[str, Scores]]] = {(m, n): [] for m in MODELS for n in sizes}
    for (model, n, _), answer in zip(tasks, answers, strict=True):
        grouped[model, n].append(answer)
    return grouped


def read_paper(path: Path = PAPER) -> dict[tuple[Model, int, int, str, str], float]:
    """The printed means by (model, N, epsilon, method, metric)."""
    table = pl.read_csv(path)
    return {(r["model"], r["N"], r["epsilon"], r["method"], r["metric"]): r["mean"] for r in table.to_dicts()}


def average(answers: Iterable[Mapping[str, Scores]], method: str) -> dict[str, tuple[float, float]]:
    """Mean and standard error over the replications that have the method, per metric."""
    scores = [answer[method] for answer in answers if method in answer]
    out = {}
    for metric in METRICS:
        values = np.array([s[metric] for s in scores])
        out[metric] = (float(values.mean()), float(values.std(ddof=1) / np.sqrt(values.size)))
    return out


def judge(cell: Cell, averages: Mapping[str, Mapping[str, tuple[float, float]]], paper: float) -> Judged:
    """A cell's RMSE against the worse of the paper's and the oracle's."""
    found, error = averages[f"{cell.epsilon}/{JUDGED_BY}"]["rmse"]
    oracle = averages["oracle"]["rmse"][0]
    bar = max(paper, oracle)
    with_bic = averages[f"{cell.epsilon}/bic"]["rmse"][0] <= bar
    return Judged(found, error, paper, oracle, bar, found <= bar, with_bic, found <= bar + 2 * error)


def run(places: Places, *, quick: bool) -> Report:
    """All cells of Tables 1 to 3; writes the page `accuracy.md`."""
    replications = {1_000: 2} if quick else REPLICATIONS
    sizes, epsilons = tuple(replications), (1, 3, 5)
    grouped = replicate_all(replications, epsilons)
    methods = ["oracle", *(f"{source}/{fit}" for source in ("original", *epsilons) for fit in FITS)]
    averages = {design: {m: average(answers, m) for m in methods} for design, answers in grouped.items()}
    paper = read_paper()
    cells = [Cell(m, n, e) for m in MODELS for n in sizes for e in epsilons]
    judged = {
        cell: judge(cell, averages[cell.model, cell.n_subjects], paper[*_key(cell), "VCDS", "rmse"]) for cell in cells
    }
    tables = [
        _tabulate_rmse(judged, averages),
        _tabulate_selection("gmeans", "G-Means (1 is best)", cells, averages, paper),
        _tabulate_selection("fdr", "FDR (0 is best)", cells, averages, paper),
    ]
    counts = {
        "cells": len(cells),
        "reached": sum(j.reached for j in judged.values()),
        "reached_with_bic": sum(j.reached_with_bic for j in judged.values()),
        "reached_within_error": sum(j.reached_within_error for j in judged.values()),
        "separated": sum("oracle" not in answer for answers in grouped.values() for answer in answers),
    }
    _write_page(places.pages / "accuracy.md", tables, replications, counts)
    return Report(
        "accuracy",
        {
            "replications": {str(n): count for n, count in replications.items()},
            "sizes": sizes,
            "epsilons": epsilons,
            "unit": UNIT,
            "rows_per_subject": ROWS_PER_SUBJECT,
            "fit_intercept": False,
        },
        {
            "cells": [{**asdict(cell), **asdict(j)} for cell, j in judged.items()],
            "means_and_standard_errors": {f"{m}/{n}": a for (m, n), a in averages.items()},
            "target": counts,
        },
        tables,
    )


def _key(cell: Cell) -> tuple[Model, int, int]:
    return cell.model, cell.n_subjects, cell.epsilon


def _tabulate_rmse(
    judged: Mapping[Cell, Judged],
    averages: Mapping[tuple[Model, int], Mapping[str, Mapping[str, tuple[float, float]]]],
) -> Table:
    rows = []
    for cell, j in judged.items():
        found = averages[cell.model, cell.n_subjects]
        rows.append(
            (
                cell.model,
                str(cell.n_subjects),
                str(cell.epsilon),
                *(_with_error(found[f"{cell.epsilon}/{fit}"]["rmse"]) for fit in FITS),
                f"{j.paper:.3f}",
                _with_error(found["oracle"]["rmse"]),
                *(_with_error(found[f"original/{fit}"]["rmse"]) for fit in FITS),
                *("yes" if met else "no" for met in (j.reached, j.reached_with_bic, j.reached_within_error)),
            )
        )
    header = (*CELL_HEADER, *_name_fits("VCDS"), "paper's VCDS", "oracle", *_name_fits("original"))
    return Table("RMSE (standard error)", (*header, "reached", "reached with BIC", "within 2 s.e."), tuple(rows))


def _tabulate_selection(
    metric: str,
    title: str,
    cells: Sequence[Cell],
    averages: Mapping[tuple[Model, int], Mapping[str, Mapping[str, tuple[float, float]]]],
    paper: Mapping[tuple[Model, int, int, str, str], float],
) -> Table:
    rows = []
    for cell in cells:
        found = averages[cell.model, cell.n_subjects]
        rows.append(
            (
                cell.model,
                str(cell.n_subjects),
                str(cell.epsilon),
                *(_with_error(found[f"{cell.epsilon}/{fit}"][metric]) for fit in FITS),
                f"{paper[*_key(cell), 'VCDS', metric]:.3f}",
                *(_with_error(found[f"original/{fit}"][metric]) for fit in FITS),
                f"{paper[*_key(cell), 'Original-C', metric]:.3f}",
            )
        )
    header = (*CELL_HEADER, *_name_fits("VCDS"), "paper's VCDS", *_name_fits("original"), "paper's Original-C")
    return Table(title, header, tuple(rows))


def _name_fits(source: str) -> list[str]:
    return [f"{source}, {FIT_NAMES[fit]}" for fit in FITS]


def _with_error(pair: tuple[float, float]) -> str:
    return f"{pair[0]:.3f} ({pair[1]:.3f})"


def _write_page(
    path: Path, tables: Sequence[Table], replications: Mapping[int, int], counts: Mapping[str, int]
) -> None:
    repeated = ", ".join(f"{count} replications at N = {n}" for n, count in replications.items())
    parts = [
        "# Accuracy on the paper's designs, complete data",
        "Written by `python -m benchmarks accuracy`.",
        f"Section 5.1, {repeated}, ε of unit `{UNIT}` (half to the ranks, half to the marginals), "
        f"synthetic tables of {ROWS_PER_SUBJECT} N rows, no intercept, N real subjects in the criteria. "
        "*Oracle* is maximum likelihood on the true support of the original data, over the replications where that "
        f"exists (data sets whose classes it separates: {counts['separated']}). A cell is *reached* if the RMSE "
        "of SCAD with a ridge chosen by gMDL (`experiments.scad.fit_scad`) is at most the larger of the paper's and "
        "the oracle's. That fit is the same in all cells and knows nothing of the truth; *BIC* is SCAD without a "
        "ridge chosen by BIC, as in the paper.",
        f"Of {counts['cells']} cells, {counts['reached']} are reached, {counts['reached_with_bic']} with BIC, "
        f"{counts['reached_within_error']} within two standard errors.",
    ]
    for table in tables:
        parts += [f"## {table.title}", table.to_markdown()]
    path.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
