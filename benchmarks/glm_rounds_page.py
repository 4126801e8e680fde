"""The tables and the text of `glm_rounds`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.glm_jacobi import COLUMNS_PER_PARTY as JACOBI_COLUMNS
from benchmarks.glm_jacobi import MAX_ITERATIONS, NEAR, ROWS, RUNAWAY, SHARE_OF_LARGEST
from experiments.designs import FAMILY_OF_MODEL
from reporting.tables import Table, verdict

MOST_ROUNDS = {"linear": 1000, "logistic": 2000}
MOST_DIFFERENCE = 1e-4
TOLERANCE, CENTRAL_TOLERANCE = 1e-3, 1e-6
PARTIES, COLUMNS_PER_PARTY = 5, 20
CORRELATED_ROWS = 2000

Points = Mapping[str, Sequence[Mapping[str, float]]]


@dataclass(frozen=True)
class PathCost:
    """One federated path.

    Attributes
    ----------
    rounds : of the whole path, refits included
    refits : strengths whose columns were fitted again
    worst : the largest relative difference of an objective from the central one
    worst_same_tolerance : the same, from the central solver at the federated one's tolerance
    above : strengths where the difference is above the target
    elsewhere : those of them from which descent ends at another minimum than the central one's
    lower : those of these where the federated minimum is the lower
    """

    model: str
    penalty: str
    seed: int
    rounds: int
    refits: int
    bytes_per_round: float
    strengths: int
    worst: float
    worst_same_tolerance: float
    above: int
    elsewhere: int
    lower: int
    converged: bool


def tabulate_costs(costs: Sequence[PathCost]) -> Table:
    rows = tuple(
        (
            c.model,
            c.penalty,
            str(c.seed),
            f"{c.rounds:,}",
            verdict(c.rounds, MOST_ROUNDS[c.model]),
            f"{c.bytes_per_round / 1e3:,.0f} kB",
            f"{c.worst:.1e}",
            verdict(c.worst, MOST_DIFFERENCE),
            f"{c.above} of {c.strengths}",
            f"{c.elsewhere}" + (f" ({c.lower} lower)" if c.elsewhere else ""),
            f"{c.worst_same_tolerance:.1e}",
        )
        for c in costs
    )
    header = (
        "model",
        "penalty",
        "seed",
        "rounds",
        f"at most {MOST_ROUNDS['linear']:,} / {MOST_ROUNDS['logistic']:,}",
        "arrays per round",
        "worst relative difference",
        f"at most {MOST_DIFFERENCE:g}",
        "strengths above",
        "of these at another minimum",
        "worst from the central one at the same tolerance",
    )
    return Table("Whole paths on the data of Section 5.1", header, rows, heads=3)


def tabulate_tolerances(points: Points) -> Table:
    rows = tuple(
        (
            model,
            f"{p['tolerance']:g}",
            f"{p['rounds']:,.0f}",
            f"{p['median']:.1e}",
            f"{p['worst']:.1e}",
            f"{p['above_target']:.0f}",
        )
        for model in FAMILY_OF_MODEL
        for p in points[model]
    )
    header = (
        "model",
        "tolerance",
        "rounds",
        "median relative difference",
        "worst",
        f"strengths above {MOST_DIFFERENCE:g}",
    )
    return Table("Rounds against tolerance, SCAD without refits", header, rows, heads=2)


def tabulate_correlations(points: Points) -> Table:
    rows = tuple(
        (
            model,
            f"{p['correlation']:g}",
            f"{p['strengths']:.0f}",
            f"{p['selected']:.0f}",
            f"{p['rounds']:,.0f}",
            f"{p['not_converged']:.0f}",
        )
        for model in FAMILY_OF_MODEL
        for p in points[model]
    )
    header = ("model", "correlation", "strengths", "columns selected, mean", "rounds", "strengths not converged")
    return Table("Rounds against correlation, SCAD without refits", header, rows, heads=2)


def introduce(costs: Sequence[PathCost], n: int) -> list[str]:
    """What was measured, and what came out."""
    most = {model: max(c.rounds for c in costs if c.model == model) for model in FAMILY_OF_MODEL}
    above, away, fits = (
        {m: sum(getattr(c, name) for c in costs if c.model == m) for m in FAMILY_OF_MODEL}
        for name in ("above", "elsewhere", "strengths")
    )
    same = {
        model: max((c.worst_same_tolerance for c in costs if c.model == model and not c.elsewhere), default=0.0)
        for model in FAMILY_OF_MODEL
    }
    return [
        f"Section 5.1, N = {n:,}, p = 100 at {PARTIES} parties, an intercept, 40 strengths from the one at which no "
        f"column enters down to 0.001 of it, tolerance {TOLERANCE:g}, and the refits that BIC asks for.\n\n"
        "A *round* is one message to every party and its answer; *arrays per round* counts the arrays in both. The "
        f"central path beside it has a tolerance of {CENTRAL_TOLERANCE:g}; differences of objectives (loss plus "
        "penalty) are relative to it.",
        f"Most rounds: {most['linear']:,} linear (target {MOST_ROUNDS['linear']:,}), {most['logistic']:,} logistic "
        f"(target {MOST_ROUNDS['logistic']:,}).",
        f"Objectives further than {MOST_DIFFERENCE:g} from the central ones: {above['linear']} of {fits['linear']} "
        f"fits linear, {above['logistic']} of {fits['logistic']} logistic. SCAD and MCP are not convex. Where the "
        "loss is flatter than they are concave (the logistic model) the objective has several minima and saddles. From "
        "each of these points we descend on the objective itself.\n\n"
        f"- From {away['linear']} (linear) and {away['logistic']} (logistic) of them that does not end at the central "
        "objective, to a tenth of the target. There the two solvers are *at another minimum*, the federated one "
        "*lower* where the table says so.\n"
        "- From the others it does. There the local linear approximation had come to rest, within its tolerance, "
        "before it reached the minimum.\n\n"
        f"So does the central solver with the same tolerance of {TOLERANCE:g}. On the paths that nowhere lead to "
        "another minimum, the federated objectives differ from its objectives by at most "
        f"{same['linear']:.1e} (linear) and {same['logistic']:.1e} (logistic). "
        "The table of tolerances shows when these differences go.",
        f"Rounds against correlation: {COLUMNS_PER_PARTY} normal columns at each of {PARTIES} parties, every pair with "
        f"the same correlation, N = {min(n, CORRELATED_ROWS):,}.",
        f"Algorithm 4 as printed: gaussian lasso at {SHARE_OF_LARGEST:g} of the largest strength, {PARTIES} parties "
        f"with {JACOBI_COLUMNS} columns, n = {ROWS}. It has *converged* when the objective is within {NEAR:g} of the "
        f"least, relatively, and *diverged* when it is {RUNAWAY:g} times the least; at most {MAX_ITERATIONS:,} "
        "iterations.\n\nThe paper does not say which φ. With a small one the parties overshoot together, "
        "and with a large one (φ = 1 is the last) all of them creep. Ours has no such choice to make: it "
        "runs with a tolerance of 1e-6 and stops by its own residuals.",
    ]
