"""Original-C and Original-VFL again, with columns and coefficients from a posterior: the library's `select="bayes"`.

The data sets of `glm_original`, and its bars. Original-C is the sampler on all columns, Original-VFL the one in which
every party draws its own coefficients (`glm.bayes_parts`). Beside them BIC on refits, from the saved results of
`glm_original`, and on some of the replications the posterior of somebody who knows the design (`glm_bound`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.accuracy import read_paper
from benchmarks.glm_bound import KnownPrior, sample_known
from benchmarks.glm_common import MODELS, SOURCE, make_section_5_1, write_page
from benchmarks.glm_original import METHODS, METRICS, Cell, Scores, judge, score
from benchmarks.glm_original_page import NAMES, describe, name_rest, with_error
from benchmarks.record import ROOT, Places, Report, Table
from experiments.designs import SimulationDesign
from experiments.scad import SeparatedClassesError, fit_oracle
from verticopula.glm.bayes import THRESHOLD, sample_posterior
from verticopula.glm.bayes_parts import sample_in_parts

REPLICATIONS, SIZES = 30, (1000, 3000, 5000)
BOUNDED, BOUND_SWEEPS = 10, 300  # replications on which the design is known to somebody, logistic only
SETTLED = 0.1  # the bound is shown where its runs, from the truth and from nothing, are no further apart
Pair = tuple[float, float]
Averages = Mapping[str, Mapping[str, Pair]]


@dataclass(frozen=True)
class Replication:
    """Scores of every rule on one data set, and what else is asked of the samplers.

    Attributes
    ----------
    scores : by rule; `bound` and `beside`, ours on the same replication, where the bound was drawn; no `oracle` where
        the true support separates the classes
    same_columns : how many columns both samplers select or leave out alike
    asked : times that a party was asked
    unrest, bound_unrest : of the central chains, and of the bound's
    """

    scores: Mapping[str, Scores]
    same_columns: int
    asked: int
    unrest: float
    bound_unrest: float | None


def replicate(model: str, n: int, seed: int, *, bounded: bool) -> Replication:
    problem, truth = make_section_5_1(model, n, seed, fit_intercept=False)
    starts = problem.features().starts
    here = sample_posterior(problem.features(), problem.y, problem.family, fit_intercept=False)
    parts = [problem.features(block) for block in problem.blocks]
    there, asked = sample_in_parts(parts, problem.y, problem.family, fit_intercept=False)
    coef, federated = here.select(starts), there.select(starts)
    scores = {"central": score(coef, truth), "federated": score(federated, truth)}
    with suppress(SeparatedClassesError):
        scores["oracle"] = score(fit_oracle(problem.x, problem.y, truth != 0, model), truth)
    restless = None
    if bounded:
        design = SimulationDesign()
        prior = KnownPrior(design.coef_size, 1.0 - design.sparsity)
        bound = sample_known(problem.x, problem.y, truth, prior, linear=model == "linear", sweeps=BOUND_SWEEPS)
        scores |= {"bound": score(bound.select(THRESHOLD), truth), "beside": scores["central"]}
        restless = bound.unrest
    return Replication(scores, int(np.sum((coef != 0) == (federated != 0))), asked, here.unrest, restless)


def average(replications: Sequence[Replication]) -> dict[str, dict[str, Pair]]:
    """Mean and standard error by rule and metric, over the replications that have the rule."""
    found: dict[str, dict[str, Pair]] = {}
    for rule in {rule: None for r in replications for rule in r.scores}:
        scores = [r.scores[rule] for r in replications if rule in r.scores]
        values = {metric: np.array([s[metric] for s in scores]) for metric in METRICS}
        found[rule] = {
            metric: (float(v.mean()), float(v.std(ddof=1) / np.sqrt(v.size)) if v.size > 1 else 0.0)
            for metric, v in values.items()
        }
    return found


def run(places: Places, *, quick: bool) -> Report:
    """All cells of Original-C and Original-VFL; writes the page `glm_bayes.md`."""
    count, bounded, sizes = (2, 1, SIZES[:1]) if quick else (REPLICATIONS, BOUNDED, SIZES)
    with threadpool_limits(1):
        drawn = {
            (m, n): [replicate(m, n, seed, bounded=m == "logistic" and seed < bounded) for seed in range(count)]
            for m in MODELS
            for n in sizes
        }
    averages = {key: average(found) for key, found in drawn.items()}
    paper, before = read_paper(), _read_bic()
    cells = [
        judge(m, n, metric, method, averages[m, n], paper[m, n, 1, method, metric])
        for metric in METRICS
        for m, n in drawn
        for method in METHODS
    ]
    samplers = {key: _describe_samplers(found) for key, found in drawn.items()}
    tables = tabulate(cells, averages, before, samplers)
    write_bayes_page(places, tables, cells, count, bounded)
    return Report(
        "glm_bayes",
        {
            "source": SOURCE,
            "replications": count,
            "bounded": bounded,
            "bound_sweeps": BOUND_SWEEPS,
            "threshold": THRESHOLD,
            "fit_intercept": False,
        },
        {
            "cells": [asdict(cell) for cell in cells],
            "means_and_standard_errors": {f"{m}/{n}": a for (m, n), a in averages.items()},
            "samplers": {f"{m}/{n}": told for (m, n), told in samplers.items()},
            "target": {
                "cells": len(cells),
                "reached": sum(cell.reached for cell in cells),
                "reached_within_error": sum(cell.reached_within_error for cell in cells),
            },
        },
        tables,
    )


def _read_bic() -> dict[str, dict[str, dict[str, Pair]]]:
    """What `glm_original` measured last."""
    saved = json.loads((ROOT / "benchmarks" / "results" / "glm_original.json").read_text(encoding="utf-8"))
    found: dict[str, dict[str, dict[str, Pair]]] = saved["results"]["means_and_standard_errors"]
    return found


def tabulate(
    cells: Sequence[Cell],
    averages: Mapping[tuple[str, int], Averages],
    before: Mapping[str, Averages],
    samplers: Mapping[tuple[str, int], Mapping[str, Any]],
) -> list[Table]:
    """The page's tables; a bound whose runs have not met is none, and left out."""
    apart = {key: told["bound_unrest"] for key, told in samplers.items()}
    shown = {
        key: {
            rule: found[rule]
            for rule in found
            if rule not in ("bound", "beside") or (apart[key] is not None and apart[key] <= SETTLED)
        }
        for key, found in averages.items()
    }
    return [*(_tabulate(metric, cells, shown, before) for metric in METRICS), _tabulate_samplers(samplers)]


def _tabulate(
    metric: str,
    cells: Sequence[Cell],
    averages: Mapping[tuple[str, int], Averages],
    before: Mapping[str, Averages],
) -> Table:
    rows = []
    for (model, n), found in averages.items():
        mine = (model, n, metric)
        pair = {c.method: c for c in cells if (c.model, c.n_subjects, c.metric) == mine}
        central, federated = pair["Original-C"], pair["Original-VFL"]
        rows.append(
            (
                model,
                f"{n:,}",
                with_error(found["central"][metric]),
                f"{central.bar:.4f}",
                describe(central),
                with_error(found["federated"][metric]),
                f"{federated.bar:.4f}",
                describe(federated),
                with_error(before[f"{model}/{n}"]["central"][metric]),
                with_error(found["oracle"][metric]),
                *(with_error(found[rule][metric]) if rule in found else "" for rule in ("bound", "beside")),
            )
        )
    header = (
        "model",
        "N",
        "Original-C",
        "bar",
        "reached",
        "Original-VFL",
        "bar",
        "reached",
        "BIC on refits",
        "oracle",
        "design known",
        "Original-C on the same data sets",
    )
    return Table(f"{NAMES[metric]}, mean (standard error)", header, tuple(rows))


def _describe_samplers(found: Sequence[Replication]) -> dict[str, Any]:
    restless = [r.bound_unrest for r in found if r.bound_unrest is not None]
    return {
        "same_columns": float(np.mean([r.same_columns for r in found])),
        "asked": found[0].asked,
        "unrest": float(np.mean([r.unrest for r in found])),
        "bound_unrest": float(np.mean(restless)) if restless else None,
    }


def _tabulate_samplers(samplers: Mapping[tuple[str, int], Mapping[str, Any]]) -> Table:
    rows = []
    for (model, n), told in samplers.items():
        bound = "" if told["bound_unrest"] is None else f"{told['bound_unrest']:.3f}"
        rows.append(
            (model, f"{n:,}", f"{told['same_columns']:.1f}", str(told["asked"]), f"{told['unrest']:.3f}", bound)
        )
    header = (
        "model",
        "N",
        "columns of 100 judged alike by both samplers",
        "times a party was asked",
        "distance of the central chains",
        "distance of the bound's runs",
    )
    return Table("the samplers", header, tuple(rows))


def write_bayes_page(places: Places, tables: Sequence[Table], cells: Sequence[Cell], count: int, bounded: int) -> None:
    reached, near = sum(c.reached for c in cells), sum(c.reached_within_error for c in cells)
    parts = [
        f"The data sets and bars of [glm_original.md](glm_original.md), {count} replications a cell, no intercept. "
        'Columns and coefficients come from a posterior over all columns (`select="bayes"`, '
        f"[regression.md](../regression.md)): selected where the probability of an effect is above {THRESHOLD}, with "
        "the posterior mean as coefficient. One fit gives all three measures, and the same rule serves both models. "
        "*Original-C* has all columns in one place; in *Original-VFL* every party draws its own coefficients and "
        "answers with one number per row.",
        "*Bar*: the worse of the paper's figure and maximum likelihood on the true support (*oracle*). *BIC on refits* "
        f"is the default rule, as `glm_original` measured it. *Design known*, on {bounded} replications, is the same "
        f"decision (above {THRESHOLD}, posterior mean) by somebody who knows that coefficients are 0 or plus or minus "
        "1/3 and in which shares, with the exact likelihood: a rule that has to learn that from the data cannot be "
        "expected to beat it. Its chains mix badly: it is shown where runs from the truth and from nothing are at most "
        f"{SETTLED} apart, and unknown elsewhere. Distances are mean absolute differences of inclusion probabilities.",
        "The threshold and the smallest size of the prior (two standard errors, out of one half, one and two) were set "
        "on the first 15 of these data sets, and looked at on others: 10 of 100 columns of many sizes, normal and "
        "uniform sizes, none at all.",
        f"Of {len(cells)} cells, {reached} are reached, {near} within two standard errors.",
        *name_rest(cells),
    ]
    title = "The regression on complete, unprotected data, by posterior probabilities"
    write_page(places.pages / "glm_bayes.md", title, "glm_bayes", parts, tables)
