"""Original-C and Original-VFL again, with columns and coefficients from a posterior: the library's `select="bayes"`.

The data sets of `glm_original`, and its bars. Original-C is the sampler on all columns, Original-VFL the one in which
every party draws its own coefficients (`experiments.bayes_parts`). Beside them BIC on refits, from the saved results of
`glm_original`, and for the logistic model what somebody who knows the design reaches (`glm_bayes_known`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.glm_bayes_known import (
    EVERY_THRESHOLD,
    SWEEPS,
    THRESHOLDS,
    Contrast,
    average_scores,
    draw_known,
    keep,
    load,
    seek,
)
from benchmarks.glm_bayes_page import Averages, Pair, Reach, split_by_class, tabulate, write_bayes_page
from benchmarks.glm_common import MODELS, SOURCE, make_section_5_1
from benchmarks.glm_original import METHODS, METRICS, Cell, Scores, judge, score
from benchmarks.record import ROOT, Places, Report
from experiments.bayes_parts import sample_in_parts
from experiments.designs import Model, SimulationDesign
from experiments.paper import read_complete
from experiments.scad import SeparatedClassesError, fit_oracle
from verticopula.glm.bayes import default_bar, sample_posterior

REPLICATIONS, SIZES = 30, (1000, 3000, 5000)
PARTS = ("rules", "known", "page")  # `page` alone measures nothing: it writes what was kept
KEPT = "glm_bayes.npz"
ROUNDING = 1e-5  # of what is kept


@dataclass(frozen=True)
class Replication:
    """Scores of every rule on one data set, and what else is asked of the samplers.

    Attributes
    ----------
    scores : by rule; no `oracle` where the true support separates the classes
    same_columns : how many columns both samplers select or leave out alike
    asked : times that a party was asked
    unrest : of the central chains
    """

    scores: Mapping[str, Scores]
    same_columns: int
    asked: int
    unrest: float


@dataclass(frozen=True)
class Rules:
    """What the rules were measured to be, by `model/N`; `source` marks the solvers."""

    averages: Mapping[str, Averages]
    samplers: Mapping[str, Mapping[str, float]]
    replications: int
    source: str


def replicate(model: Model, n: int, seed: int) -> Replication:
    problem, truth = make_section_5_1(model, n, seed, fit_intercept=False)
    starts = problem.features().starts
    here = sample_posterior(problem.features(), problem.y, problem.family, fit_intercept=False)
    parts = [problem.features(block) for block in problem.blocks]
    there, asked = sample_in_parts(parts, problem.y, problem.family, fit_intercept=False)
    coef, federated = (found.select(starts, default_bar(n)) for found in (here, there))
    scores = {"central": score(coef, truth), "federated": score(federated, truth)}
    with suppress(SeparatedClassesError):
        scores["oracle"] = score(fit_oracle(problem.x, problem.y, truth != 0, model), truth)
    return Replication(scores, int(np.sum((coef != 0) == (federated != 0))), asked, here.unrest)


def average(replications: Sequence[Replication]) -> dict[str, dict[str, Pair]]:
    """Mean and standard error by rule and metric, over the replications that have the rule."""
    rules = {rule: None for r in replications for rule in r.scores}
    return {rule: average_scores([r.scores[rule] for r in replications if rule in r.scores]) for rule in rules}


def measure_rules(count: int, sizes: Sequence[int]) -> Rules:
    averages, samplers = {}, {}
    for model in MODELS:
        for n in sizes:
            found = [replicate(model, n, seed) for seed in range(count)]
            averages[f"{model}/{n}"] = average(found)
            samplers[f"{model}/{n}"] = {
                "same_columns": float(np.mean([r.same_columns for r in found])),
                "asked": found[0].asked,
                "unrest": float(np.mean([r.unrest for r in found])),
            }
    return Rules(averages, samplers, count, SOURCE)


def run(places: Places, *, quick: bool, parts: Sequence[str] = ()) -> Report:
    """All cells of Original-C and Original-VFL; writes the page `glm_bayes.md`.

    With `parts`, only those (of PARTS) are measured; the others are kept from the last results.
    """
    count, sizes = (2, SIZES[:1]) if quick else (REPLICATIONS, SIZES)
    chosen = parts or PARTS
    with threadpool_limits(1):
        rules = measure_rules(count, sizes) if "rules" in chosen else _read_rules(places)
        if "known" in chosen:
            keep(places.results / KEPT, {n: draw_known(n, count) for n in sizes})
    contrasts = load(places.results / KEPT)
    paper = read_complete()
    cells = [
        judge(m, n, metric, method, rules.averages[f"{m}/{n}"], paper[m, n, 1.0, method, metric])
        for metric in METRICS
        for m in MODELS
        for n in sizes
        for method in METHODS
    ]
    reaches = [find_reach(cells, n, method, contrast) for n, contrast in contrasts.items() for method in METHODS]
    tables = tabulate(cells, rules.averages, _read_bic(), rules.samplers, contrasts, reaches)
    truth = SimulationDesign().coef
    apart = any(
        abs(
            contrast.ours.average(truth, default_bar(n))[metric][0]
            - rules.averages[f"logistic/{n}"]["central"][metric][0]
        )
        > ROUNDING
        for n, contrast in contrasts.items()
        for metric in METRICS
    )
    write_bayes_page(places, tables, cells, reaches, rules.replications, drawn_apart=apart)
    return Report(
        "glm_bayes",
        {
            "source": rules.source,
            "replications": rules.replications,
            "known_sweeps": SWEEPS,
            "thresholds": {n: default_bar(n) for n in sizes},
            "fit_intercept": False,
        },
        {
            "cells": [asdict(cell) for cell in cells],
            "means_and_standard_errors": rules.averages,
            "samplers": rules.samplers,
            "thresholds": {
                f"logistic/{n}": {
                    name: {t: told.average(truth, t) for t in THRESHOLDS}
                    for name, told in (("known", contrast.known), ("central", contrast.ours))
                }
                for n, contrast in contrasts.items()
            },
            "known_unrest": {
                f"logistic/{n}": [float(c.known.unrest.mean()), float(c.known.unrest.max())]
                for n, c in contrasts.items()
            },
            "reach": [
                {**asdict(reach), "known_verdict": reach.known.verdict, "ours_verdict": reach.ours.verdict}
                for reach in reaches
            ],
            "by_class": {
                f"logistic/{n}": [asdict(split) for split in split_by_class(contrast, default_bar(n))]
                for n, contrast in contrasts.items()
            },
            "target": {
                "cells": len(cells),
                "reached": sum(cell.reached for cell in cells),
                "reached_within_error": sum(cell.reached_within_error for cell in cells),
            },
        },
        tables,
    )


def find_reach(cells: Sequence[Cell], n: int, method: str, contrast: Contrast) -> Reach:
    """Which threshold comes nearest to all three bars of a logistic cell, for either rule."""
    mine = [c for c in cells if (c.model, c.n_subjects, c.method) == ("logistic", n, method)]
    bars, truth = {cell.metric: cell.bar for cell in mine}, SimulationDesign().coef
    nearest = [seek(told, truth, bars, EVERY_THRESHOLD) for told in (contrast.known, contrast.ours)]
    return Reach(method, n, len(contrast.smaller_class), bars, *nearest)


def _read_rules(places: Places) -> Rules:
    saved = json.loads((places.results / "glm_bayes.json").read_text(encoding="utf-8"))
    found, settings = saved["results"], saved["settings"]
    averages = {
        key: {rule: told[rule] for rule in ("central", "federated", "oracle")}
        for key, told in found["means_and_standard_errors"].items()
    }
    samplers = {
        key: {name: told[name] for name in ("same_columns", "asked", "unrest")}
        for key, told in found["samplers"].items()
    }
    return Rules(averages, samplers, settings["replications"], settings["source"])


def _read_bic() -> dict[str, Any]:
    """What `glm_original` measured last."""
    saved = json.loads((ROOT / "benchmarks" / "results" / "glm_original.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = saved["results"]["means_and_standard_errors"]
    return found
