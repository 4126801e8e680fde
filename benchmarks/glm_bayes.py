"""Original-C and Original-VFL again, with columns and coefficients from a posterior: the library's `select="bayes"`.

The data sets of `glm_original`, and its bars. Original-C is the sampler on all columns, Original-VFL the one in which
every party draws its own coefficients (`experiments.bayes_parts`). Beside them BIC on refits, from the saved results of
`glm_original`, and for the logistic model what somebody who knows the design reaches (`glm_bayes_known`).
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import ROOT
from benchmarks.glm_bayes_known import (
    EVERY_THRESHOLD,
    SWEEPS,
    THRESHOLDS,
    Contrast,
    draw_known,
    keep,
    load,
    seek,
)
from benchmarks.glm_bayes_page import Pair, Reach, introduce, split_by_class, tabulate
from benchmarks.glm_common import SOURCE, make_section_5_1
from benchmarks.glm_original import METHODS, PublishedFigure, Scores, average_scores, count_reached, judge
from experiments.bayes_parts import sample_in_parts
from experiments.designs import FAMILY_OF_MODEL, Model, SimulationDesign
from experiments.metrics import METRICS, score_coef
from experiments.paper import read_complete
from experiments.scad import SeparatedClassesError, fit_oracle
from reporting.catalogue import Measured, Places
from reporting.pages import markdown_page
from reporting.records import Record, write_text
from reporting.tables import Table
from verticopula.glm.bayes import default_bar, sample_posterior

REPLICATIONS, SIZES = 30, (1000, 3000, 5000)
PARTS = ("rules", "known")
KEPT = "glm_bayes.npz"
ROUNDING = 1e-5  # of what is kept


@dataclass(frozen=True)
class RuleScores:
    """Scores of every rule on one data set, and what else is asked of the samplers.

    Attributes
    ----------
    scores : by rule; no `oracle` where the true support separates the classes
    same_columns : how many columns both samplers select or leave out alike
    asked : times that a party was asked
    chain_difference : of the central chains
    """

    scores: Mapping[str, Scores]
    same_columns: int
    asked: int
    chain_difference: float


def replicate(model: Model, n: int, seed: int) -> RuleScores:
    problem, truth = make_section_5_1(model, n, seed, fit_intercept=False)
    starts = problem.features().starts
    here = sample_posterior(problem.features(), problem.y, problem.family, fit_intercept=False)
    parts = [problem.features(block) for block in problem.blocks]
    there, asked = sample_in_parts(parts, problem.y, problem.family, fit_intercept=False)
    coef, federated = (found.select(starts, default_bar(n)) for found in (here, there))
    scores = {"central": score_coef(coef, truth), "federated": score_coef(federated, truth)}
    with suppress(SeparatedClassesError):
        scores["oracle"] = score_coef(fit_oracle(problem.x, problem.y, truth != 0, model), truth)
    return RuleScores(scores, int(np.sum((coef != 0) == (federated != 0))), asked, here.chain_difference)


def average(replications: Sequence[RuleScores]) -> dict[str, dict[str, Pair]]:
    """Mean and standard error by rule and metric, over the replications that have the rule."""
    rules = {rule: None for r in replications for rule in r.scores}
    return {rule: average_scores([r.scores[rule] for r in replications if rule in r.scores]) for rule in rules}


def measure_rules(count: int, sizes: Sequence[int]) -> dict[str, Any]:
    """Means with standard errors, and what else is asked of the samplers, by `model/N`."""
    averages, samplers = {}, {}
    for model in FAMILY_OF_MODEL:
        for n in sizes:
            found = [replicate(model, n, seed) for seed in range(count)]
            averages[f"{model}/{n}"] = average(found)
            samplers[f"{model}/{n}"] = {
                "same_columns": float(np.mean([r.same_columns for r in found])),
                "asked": found[0].asked,
                "chain_difference": float(np.mean([r.chain_difference for r in found])),
            }
    return {"means_and_standard_errors": averages, "samplers": samplers}


def run(options: Namespace) -> Measured:
    """All cells of Original-C and Original-VFL."""
    count, sizes = (2, SIZES[:1]) if options.quick else (REPLICATIONS, SIZES)
    path = options.places.results / KEPT
    rules = {"source": SOURCE, "replications": count}
    with threadpool_limits(1):
        if "rules" in options.parts:
            measured = measure_rules(count, sizes)
        else:
            measured = {name: options.kept.results[name] for name in ("means_and_standard_errors", "samplers")}
            rules = {name: options.kept.settings[name] for name in rules}
        if "known" in options.parts:
            keep(path, {n: draw_known(n, count) for n in sizes})
    contrasts, truth, paper = load(path), SimulationDesign().coef, read_complete()
    averages = measured["means_and_standard_errors"]
    cells = [
        judge(m, n, metric, method, averages[f"{m}/{n}"], paper[m, n, 1.0, method, metric])
        for metric in METRICS
        for m in FAMILY_OF_MODEL
        for n in sizes
        for method in METHODS
    ]
    return (
        {
            **rules,
            "known_sweeps": SWEEPS,
            "thresholds": {n: default_bar(n) for n in sizes},
            "fit_intercept": False,
        },
        {
            "cells": [asdict(cell) for cell in cells],
            **measured,
            "thresholds": {
                f"logistic/{n}": {
                    name: {t: told.average(truth, t) for t in THRESHOLDS}
                    for name, told in (("known", contrast.known), ("central", contrast.ours))
                }
                for n, contrast in contrasts.items()
            },
            "known_unrest": {
                f"logistic/{n}": [float(c.known.chain_difference.mean()), float(c.known.chain_difference.max())]
                for n, c in contrasts.items()
            },
            "reach": [
                {**asdict(reach), "known_verdict": reach.known.verdict, "ours_verdict": reach.ours.verdict}
                for reach in find_reaches(cells, contrasts)
            ],
            "by_class": {
                f"logistic/{n}": [asdict(split) for split in split_by_class(contrast, default_bar(n))]
                for n, contrast in contrasts.items()
            },
            "target": count_reached(cells),
        },
    )


def present(record: Record, places: Places) -> list[Table]:
    """The page `glm_bayes.md`, and its tables."""
    cells = [PublishedFigure(**saved) for saved in record.results["cells"]]
    averages, samplers = record.results["means_and_standard_errors"], record.results["samplers"]
    contrasts = load(places.results / KEPT)
    reaches, truth = find_reaches(cells, contrasts), SimulationDesign().coef
    bic = Record.read(ROOT / "benchmarks" / "results" / "glm_original.json").results["means_and_standard_errors"]
    tables = tabulate(cells, averages, bic, samplers, contrasts, reaches)
    apart = any(
        abs(contrast.ours.average(truth, default_bar(n))[metric][0] - averages[f"logistic/{n}"]["central"][metric][0])
        > ROUNDING
        for n, contrast in contrasts.items()
        for metric in METRICS
    )
    text = introduce(cells, reaches, record.settings["replications"], drawn_apart=apart)
    title = "The regression on complete, unprotected data, by posterior probabilities"
    parts = ["Written by `python -m benchmarks glm_bayes`.", *text, *tables]
    write_text(places.pages / "glm_bayes.md", markdown_page(title, parts))
    return tables


def find_reaches(cells: Sequence[PublishedFigure], contrasts: Mapping[int, Contrast]) -> list[Reach]:
    """For every N and method."""
    return [find_reach(cells, n, method, contrast) for n, contrast in contrasts.items() for method in METHODS]


def find_reach(cells: Sequence[PublishedFigure], n: int, method: str, contrast: Contrast) -> Reach:
    """Which threshold comes nearest to all three bars of a logistic cell, for either rule."""
    mine = [c for c in cells if (c.model, c.n_subjects, c.method) == ("logistic", n, method)]
    bars, truth = {cell.metric: cell.bar for cell in mine}, SimulationDesign().coef
    nearest = [seek(told, truth, bars, EVERY_THRESHOLD) for told in (contrast.known, contrast.ours)]
    return Reach(method, n, len(contrast.smaller_class), bars, *nearest)
