"""The paper's Original-C and Original-VFL: regressions on complete, unprotected data of Section 5.1.

Every replication draws one data set, without an intercept in the model as in the paper. Original-C is the central
path, Original-VFL the federated one, both SCAD at 40 strengths with the default tolerance. The strength is chosen by
BIC on refits, and the coefficients are the refit there; beside it BIC on the penalised fit, as the paper writes it
(with the correction of `information_criterion`). The oracle is maximum likelihood on the true support.

A cell is judged against the worse of the paper's figure and the oracle's. What no choice of a strength can reach is
shown by the best point of the path, chosen knowing the truth.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.glm_common import SOURCE, Problem, choose_refit, fit_central, fit_federated, make_section_5_1
from benchmarks.glm_original_page import introduce, tabulate_agreement, tabulate_cells, tabulate_reach
from experiments.designs import FAMILY_OF_MODEL
from experiments.metrics import METRICS, direction, score_coef
from experiments.paper import read_complete
from experiments.scad import SeparatedClassesError, fit_oracle
from reporting.catalogue import Measured, Places
from reporting.pages import markdown_page
from reporting.records import Record, write_text
from reporting.tables import Table, mean, standard_error
from verticopula.glm.strength_path import (
    PathPoint,
    Refit,
    choose_point,
    information_criterion,
)

Floats = NDArray[np.float64]
Scores = dict[str, float]

METHODS = {"Original-C": "central", "Original-VFL": "federated"}
REPLICATIONS = {
    "linear": {1000: 30, 3000: 30, 5000: 30},
    "logistic": {1000: 30, 3000: 30, 5000: 30},
}
FEDERATED = 30  # replications that Original-VFL is run on


@dataclass(frozen=True)
class PublishedComparison:
    """Scores of every method on one data set.

    Attributes
    ----------
    scores : by method; no `oracle` where the true support separates the classes
    difference : the largest difference of a federated coefficient from the central one's; None where not run
    same_support : whether both select the same columns
    short : the central path ended before its last strength
    """

    scores: Mapping[str, Scores]
    difference: float | None
    same_support: bool
    short: bool


@dataclass(frozen=True)
class PublishedFigure:
    """One figure of Tables 1 to 3 and ours."""

    model: str
    n_subjects: int
    metric: str
    method: str
    ours: float
    standard_error: float
    paper: float
    oracle: float
    bar: float
    reached: bool
    reached_within_error: bool


def replicate(model: str, n: int, seed: int, *, federated: bool) -> PublishedComparison:
    """One data set, all methods; where the federated solver is not run, it has the central one's scores."""
    problem, truth = make_section_5_1(model, n, seed, fit_intercept=False)
    strengths = problem.strengths()
    central = fit_central(problem, "scad", strengths, refit=problem.bic())
    refits = refit_all(problem, central)
    here = there = refit_chosen(problem, central)
    if federated:
        there = refit_chosen(problem, fit_federated(problem, "scad", strengths, refit=problem.bic()).points)
    penalised = choose_point([_bic(problem, p.loss, p.degrees_of_freedom) for p in central])
    scores = {
        "central": score_coef(here.coef, truth),
        "federated": score_coef(there.coef, truth),
        "every": score_coef(
            refits[choose_point([_bic(problem, r.loss, r.degrees_of_freedom) for r in refits])].coef, truth
        ),
        "penalised": score_coef(central[penalised].coef, truth),
        "best": {
            metric: (max if direction(metric) > 0.0 else min)(measure(refit.coef, truth) for refit in refits)
            for metric, measure in METRICS.items()
        },
    }
    with suppress(SeparatedClassesError):
        scores["oracle"] = score_coef(fit_oracle(problem.x, problem.y, truth != 0, model), truth)
    return PublishedComparison(
        scores,
        float(np.max(np.abs(here.coef - there.coef))) if federated else None,
        bool(np.array_equal(here.coef != 0, there.coef != 0)),
        len(central) < len(strengths),
    )


def refit_chosen(problem: Problem, points: Sequence[PathPoint]) -> Refit:
    """The refit that BIC chooses among those that the path has."""
    refit = points[choose_refit(problem, points)].refit
    if refit is None:
        raise ValueError("no strength of this path was fitted again")
    return refit


def refit_all(problem: Problem, points: Sequence[PathPoint]) -> list[PathPoint]:
    """Maximum likelihood on the columns of every strength, however far down the path; where it exists."""
    found = []
    for support in {tuple(np.flatnonzero(point.coef)): None for point in points}:
        columns = list(support)
        small = replace(problem, x=problem.x[:, columns], blocks=(slice(0, len(columns)),))
        for point in fit_central(small, "none", np.zeros(1)):
            if not point.converged:  # the columns separate the classes
                continue
            coef = np.zeros(problem.x.shape[1])
            coef[columns] = point.coef
            found.append(replace(point, coef=coef, degrees_of_freedom=len(columns)))
    return found


def _bic(problem: Problem, loss: float, df: int) -> float:
    rule = problem.bic()
    return information_criterion(problem.family, loss, df, rule.n_subjects, rule.charge)


def average_scores(scores: Sequence[Scores]) -> dict[str, tuple[float, float]]:
    """Mean and standard error by metric; an error of 0 of one replication."""
    values = {metric: [s[metric] for s in scores] for metric in METRICS}
    return {metric: (mean(own), standard_error(own) if len(own) > 1 else 0.0) for metric, own in values.items()}


def judge(
    model: str,
    n: int,
    metric: str,
    method: str,
    averages: Mapping[str, Mapping[str, tuple[float, float]]],
    paper: float,
) -> PublishedFigure:
    """Ours against the worse of the paper's and the oracle's; G-Means with its sign turned."""
    ours, error = averages[METHODS[method]][metric]
    oracle = averages["oracle"][metric][0]
    sign = -direction(metric)
    bar = sign * max(sign * paper, sign * oracle)
    reached, near = sign * ours <= sign * bar, sign * ours <= sign * bar + 2.0 * error
    return PublishedFigure(model, n, metric, method, ours, error, paper, oracle, bar, reached, near)


def run(options: Namespace) -> Measured:
    """All cells of Original-C and Original-VFL in Tables 1 to 3."""
    counts = {model: {1000: 2} for model in FAMILY_OF_MODEL} if options.quick else REPLICATIONS
    with threadpool_limits(1):
        drawn = {
            (m, n): [
                replicate(m, n, seed, federated=(m, n) == ("linear", 1000) or seed < FEDERATED) for seed in range(count)
            ]
            for m in FAMILY_OF_MODEL
            for n, count in counts[m].items()
        }
    methods = ("central", "federated", "every", "penalised", "best", "oracle")
    averages = {
        key: {m: average_scores([r.scores[m] for r in found if m in r.scores]) for m in methods}
        for key, found in drawn.items()
    }
    paper = read_complete()
    cells = [
        judge(m, n, metric, method, averages[m, n], paper[m, n, 1.0, method, metric])
        for metric in METRICS
        for m, n in drawn
        for method in METHODS
    ]
    return (
        {
            "source": SOURCE,
            "replications": counts,
            "fit_intercept": False,
            "penalty": "scad",
            "tolerance": 1e-3,
        },
        {
            "cells": [asdict(cell) for cell in cells],
            "means_and_standard_errors": {f"{m}/{n}": a for (m, n), a in averages.items()},
            "agreement": {f"{m}/{n}": describe_agreement(found) for (m, n), found in drawn.items()},
            "target": count_reached(cells),
        },
    )


def present(record: Record, places: Places) -> list[Table]:
    """The page `glm_original.md`, and its tables."""
    found = record.results
    cells, averages = [PublishedFigure(**saved) for saved in found["cells"]], found["means_and_standard_errors"]
    tables = [
        *(tabulate_cells(metric, cells, averages) for metric in METRICS),
        tabulate_reach(cells, averages),
        tabulate_agreement(found["agreement"]),
    ]
    text = introduce(cells, record.settings["replications"])
    parts = ["Written by `python -m benchmarks glm_original`.", *text, *tables]
    write_text(places.pages / "glm_original.md", markdown_page("The regression on complete, unprotected data", parts))
    return tables


def count_reached(cells: Sequence[PublishedFigure]) -> dict[str, int]:
    """How many cells are reached, and how many within two standard errors."""
    return {
        "cells": len(cells),
        "reached": sum(cell.reached for cell in cells),
        "reached_within_error": sum(cell.reached_within_error for cell in cells),
    }


def describe_agreement(found: Sequence[PublishedComparison]) -> dict[str, Any]:
    """How the federated coefficients differ from the central ones over the replications."""
    ran = [(r.difference, r.same_support) for r in found if r.difference is not None]
    return {
        "replications": len(ran),
        "same_support": sum(same for _, same in ran),
        "largest_difference": max((off for off, same in ran if same), default=float("nan")),
        "largest_difference_any": max(off for off, _ in ran),
        "short_paths": sum(r.short for r in found),
        "without_oracle": sum("oracle" not in r.scores for r in found),
    }
