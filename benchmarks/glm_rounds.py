"""Rounds and bytes of the federated regression on the paper's data, and what they depend on.

1. Section 5.1, N = 5000, p = 100, five parties, 40 strengths, the usual tolerance, with refits by BIC.
2. Rounds against the tolerance on that data; and on normal columns against their correlation, with rare responses too.
3. Algorithm 4 to the letter beside ours.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.glm_common import (
    SOURCE,
    Floats,
    Problem,
    differences,
    fit_central,
    fit_federated,
    make_correlated,
    make_section_5_1,
    polish,
)
from benchmarks.glm_jacobi import CORRELATIONS as JACOBI_CORRELATIONS
from benchmarks.glm_jacobi import MAX_ITERATIONS, JacobiRun, Ours, measure_jacobi, tabulate_jacobi
from benchmarks.glm_rounds_page import (
    CENTRAL_TOLERANCE,
    COLUMNS_PER_PARTY,
    MOST_DIFFERENCE,
    PARTIES,
    TOLERANCE,
    DesignCost,
    PathCost,
    introduce,
    tabulate_costs,
    tabulate_designs,
    tabulate_tolerances,
)
from experiments.designs import FAMILY_OF_MODEL
from reporting.catalogue import Measured, Places
from reporting.figures import COLORS, new_figure, save_png
from reporting.pages import markdown_page
from reporting.records import Record, write_text
from reporting.tables import Table
from verticopula.glm.penalties import Penalty
from verticopula.glm.strength_path import PathPoint
from verticopula.protocol.regression_path import SentColumns

PENALTIES = ("scad", "mcp", "lasso")
FAMILIES = ("binomial", "poisson")
TOLERANCES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
CORRELATIONS = (0.0, 0.5, 0.9, 0.99)
INTERCEPTS = (0.0, -3.0)  # of all rows: the second makes what is counted rare


@cache
def fit_reference(model: str, penalty: str, seed: int, n: int) -> tuple[Problem, Floats, list[PathPoint]]:
    """A data set, its strengths and the central path."""
    problem, _ = make_section_5_1(model, n, seed)
    strengths = problem.strengths()
    return problem, strengths, fit_central(problem, penalty, strengths, CENTRAL_TOLERANCE)


def measure(model: str, penalty: str, seed: int, n: int) -> PathCost:
    """One path with refits against the central one."""
    problem, strengths, central = fit_reference(model, penalty, seed, n)
    sent = SentColumns()
    found = fit_federated(problem, penalty, strengths, TOLERANCE, problem.bic(), sent)
    used = np.count_nonzero(np.any([point.coef != 0.0 for point in found.points], axis=0))
    loose = fit_central(problem, penalty, strengths, TOLERANCE)
    off = differences(found.points, central)
    far = np.flatnonzero(np.abs(off) > MOST_DIFFERENCE)
    elsewhere = [i for i in far if is_elsewhere(problem, penalty, found.points[i], central[i])]
    return PathCost(
        model,
        penalty,
        seed,
        found.traffic.rounds,
        sum(point.refit is not None for point in found.points),
        found.traffic.bytes,
        len(sent),
        len(sent) - int(used),
        len(central),
        float(np.max(np.abs(off))),
        float(np.max(np.abs(differences(found.points, loose)))),
        far.size,
        len(elsewhere),
        int(np.sum(off[elsewhere] < 0.0)),
        all(point.converged for point in (*found.points, *central)),
    )


def is_elsewhere(problem: Problem, penalty: str, found: PathPoint, central: PathPoint) -> bool:
    """Whether the two are at different minima: descent from the one does not end at the other."""
    end = polish(problem, Penalty.build(penalty), found)
    return abs(end.objective - central.objective) > 0.1 * MOST_DIFFERENCE * central.objective


def measure_tolerances(n: int, tolerances: Sequence[float]) -> dict[str, list[dict[str, float]]]:
    """Rounds and objectives of the SCAD path against the tolerance."""
    found: dict[str, list[dict[str, float]]] = {}
    for model in FAMILY_OF_MODEL:
        problem, strengths, central = fit_reference(model, "scad", 0, n)
        found[model] = []
        for tolerance in tolerances:
            path = fit_federated(problem, "scad", strengths, tolerance)
            off = np.abs(differences(path.points, central))
            found[model].append(
                {
                    "tolerance": tolerance,
                    "rounds": path.traffic.rounds,
                    "median": float(np.median(off)),
                    "worst": float(off.max()),
                    "above_target": int(np.sum(off > MOST_DIFFERENCE)),
                }
            )
    return found


def measure_design(family: str, penalty: str, correlation: float, intercept: float, n: int) -> DesignCost:
    """One path on normal columns, against the central solver at the same tolerance and at a tight one."""
    rng = np.random.default_rng([5, round(100 * correlation), round(-intercept), list(FAMILIES).index(family)])
    problem = make_correlated(
        family, [COLUMNS_PER_PARTY] * PARTIES, correlation, n, rng, size=1 / 3, intercept=intercept
    )
    strengths = problem.strengths()
    found = fit_federated(problem, penalty, strengths, TOLERANCE, problem.bic())
    same, tight = (
        np.abs(differences(found.points, fit_central(problem, penalty, strengths, tolerance)))
        for tolerance in (TOLERANCE, CENTRAL_TOLERANCE)
    )
    return DesignCost(
        family,
        penalty,
        correlation,
        intercept,
        float(problem.y.mean()),
        found.traffic.rounds,
        found.traffic.bytes,
        float(same.max()),
        float(tight.max()),
        sum(not point.converged for point in found.points),
    )


def run(options: Namespace) -> Measured:
    """Everything."""
    n, seeds = (500, (0,)) if options.quick else (5000, (0, 1, 2))
    penalties, tolerances = (("scad",), (1e-2, 1e-3)) if options.quick else (PENALTIES, TOLERANCES)
    correlations = (0.0, 0.9) if options.quick else CORRELATIONS
    with threadpool_limits(1):
        costs = [
            measure(model, penalty, seed, n) for model in FAMILY_OF_MODEL for penalty in penalties for seed in seeds
        ]
        by_tolerance = measure_tolerances(n, tolerances)
        designs = [
            measure_design(family, penalty, correlation, intercept, n)
            for family in FAMILIES
            for penalty in penalties
            if penalty != "lasso"
            for correlation in correlations
            for intercept in INTERCEPTS
        ]
        printed, ours = measure_jacobi(JACOBI_CORRELATIONS, MAX_ITERATIONS)
    return (
        {
            "source": SOURCE,
            "rows": n,
            "seeds": seeds,
            "penalties": penalties,
            "tolerance": TOLERANCE,
            "central_tolerance": CENTRAL_TOLERANCE,
            "parties": PARTIES,
        },
        {
            "paths": [asdict(cost) for cost in costs],
            "tolerances": by_tolerance,
            "designs": [asdict(cost) for cost in designs],
            "printed": [asdict(outcome) for outcome in printed],
            "ours": [asdict(outcome) for outcome in ours],
            "target": {
                model: {
                    "most_rounds": max(c.rounds for c in costs if c.model == model),
                    "worst": max(c.worst for c in costs if c.model == model),
                    "worst_same_tolerance": max(c.worst_same_tolerance for c in costs if c.model == model),
                    "above": sum(c.above for c in costs if c.model == model),
                    "elsewhere": sum(c.elsewhere for c in costs if c.model == model),
                }
                for model in FAMILY_OF_MODEL
            },
        },
    )


def present(record: Record, places: Places) -> list[Table]:
    """The page `glm_rounds.md`, its figure and its tables."""
    found = record.results
    costs = [PathCost(**saved) for saved in found["paths"]]
    designs = [DesignCost(**saved) for saved in found["designs"]]
    draw(found["tolerances"], designs, places.results / "glm_rounds.png")
    tables = [
        tabulate_costs(costs),
        tabulate_tolerances(found["tolerances"]),
        tabulate_designs(designs),
        tabulate_jacobi([JacobiRun(**saved) for saved in found["printed"]], [Ours(**saved) for saved in found["ours"]]),
    ]
    figure = "glm_rounds.png" if places.results == places.pages else "../../benchmarks/results/glm_rounds.png"
    parts = [
        "Written by `python -m benchmarks glm_rounds`.",
        *introduce(costs, designs, record.settings["rows"]),
        f"![rounds against tolerance and correlation]({figure})",
        *tables,
    ]
    write_text(places.pages / "glm_rounds.md", markdown_page("Rounds of the federated regression", parts))
    return tables


def draw(by_tolerance: Mapping[str, Sequence[Mapping[str, float]]], designs: Sequence[DesignCost], path: Path) -> None:
    """Rounds against tolerance, and SCAD's against the columns' correlation."""
    figure, (left, right) = new_figure(1, 2)
    for color, model in zip(COLORS, FAMILY_OF_MODEL, strict=False):
        points = by_tolerance[model]
        left.plot([p["tolerance"] for p in points], [p["rounds"] for p in points], "o-", color=color, label=model)
    for color, family in zip(COLORS[len(FAMILY_OF_MODEL) :], FAMILIES, strict=False):
        for intercept, style in zip(INTERCEPTS, ("o-", "o--"), strict=True):
            mine = [d for d in designs if (d.family, d.penalty, d.intercept) == (family, "scad", intercept)]
            label = f"{family}, rare" * (intercept < 0.0) or family
            right.plot([d.correlation for d in mine], [d.rounds for d in mine], style, color=color, label=label)
    left.set(xscale="log", xlabel="tolerance", ylabel="rounds for 40 strengths", ylim=(0, None))
    left.invert_xaxis()
    right.set(xlabel="correlation of all columns", ylabel="rounds for 40 strengths", ylim=(0, None))
    left.set_title("Section 5.1 data", loc="left")
    right.set_title("normal columns", loc="left")
    for axes in (left, right):
        axes.legend(frameon=False)
    save_png(figure, path)
