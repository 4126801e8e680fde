"""The tables and the text of `glm_rounds`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.glm_jacobi import COLUMNS_PER_PARTY as JACOBI_COLUMNS
from benchmarks.glm_jacobi import MAX_ITERATIONS, NEAR, ROWS, RUNAWAY, SHARE_OF_LARGEST
from experiments.designs import FAMILY_OF_MODEL
from reporting.tables import Table, verdict

MOST_ROUNDS, MOST_BYTES = 500, 50e6
MOST_DIFFERENCE = 1e-4
TOLERANCE, CENTRAL_TOLERANCE = 1e-3, 1e-6
PARTIES, COLUMNS_PER_PARTY = 5, 20

Points = Mapping[str, Sequence[Mapping[str, float]]]


@dataclass(frozen=True)
class PathCost:
    """One federated path.

    Attributes
    ----------
    rounds : of the whole path, each a request to parties and their answers
    refits : strengths whose columns were fitted again
    bytes : of all messages both ways, as they are sent
    sent, unused : columns that left their party, and those of them that no model of the path has
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
    bytes: int
    sent: int
    unused: int
    strengths: int
    worst: float
    worst_same_tolerance: float
    above: int
    elsewhere: int
    lower: int
    converged: bool


@dataclass(frozen=True)
class DesignCost:
    """One federated path on normal columns.

    Attributes
    ----------
    intercept, mean : of the linear predictor, and of the responses that follow
    rounds, bytes : as `PathCost` has them
    worst_same_tolerance, worst : the largest relative difference of an objective from the central solver's, at the same
        tolerance and at a tight one
    not_converged : strengths whose weights did not rest
    """

    family: str
    penalty: str
    correlation: float
    intercept: float
    mean: float
    rounds: int
    bytes: int
    worst_same_tolerance: float
    worst: float
    not_converged: int


def tabulate_costs(costs: Sequence[PathCost]) -> Table:
    rows = tuple(
        (
            c.model,
            c.penalty,
            str(c.seed),
            f"{c.rounds:,}",
            verdict(c.rounds, MOST_ROUNDS),
            f"{c.bytes / 1e6:,.1f} MB",
            verdict(c.bytes, MOST_BYTES),
            f"{c.worst:.1e}",
            verdict(c.worst, MOST_DIFFERENCE),
            f"{c.above} of {c.strengths}",
            f"{c.elsewhere}" + (f" ({c.lower} lower)" if c.elsewhere else ""),
            f"{c.worst_same_tolerance:.1e}",
            f"{c.sent}",
            f"{c.unused}",
        )
        for c in costs
    )
    header = (
        "model",
        "penalty",
        "seed",
        "rounds",
        f"at most {MOST_ROUNDS}",
        "traffic",
        f"at most {MOST_BYTES / 1e6:g} MB",
        "worst relative difference",
        f"at most {MOST_DIFFERENCE:g}",
        "strengths above",
        "of these at another minimum",
        "worst from the central one at the same tolerance",
        "columns sent",
        "of these in no model",
    )
    return Table("Whole paths on the data of Section 5.1", header, rows, heads=3)


def tabulate_designs(designs: Sequence[DesignCost]) -> Table:
    rows = tuple(
        (
            d.family,
            d.penalty,
            f"{d.correlation:g}, {d.mean:.2f}",
            f"{d.rounds:,}",
            f"{d.bytes / 1e6:,.1f} MB",
            f"{d.worst_same_tolerance:.1e}",
            f"{d.worst:.1e}",
            f"{d.not_converged}",
        )
        for d in designs
    )
    header = (
        "family",
        "penalty",
        "correlation, mean response",
        "rounds",
        "traffic",
        "worst from the central one at the same tolerance",
        "worst relative difference",
        "strengths not converged",
    )
    return Table("Normal columns, with refits by BIC", header, rows, heads=3)


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


def introduce(costs: Sequence[PathCost], designs: Sequence[DesignCost], n: int) -> list[str]:
    """What was measured, and what came out."""
    rounds, size = max(c.rounds for c in costs), max(c.bytes for c in costs)
    beyond = [d for d in designs if d.rounds > MOST_ROUNDS or d.bytes > MOST_BYTES]
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
        "A *round* is one request to parties and their answers; *traffic* counts the messages both ways as they are "
        "sent, and each party's copy by itself. A column leaves its party when a model of the path wants it "
        "([how](../how-to/regression.md#the-protocol)). The central path beside it has all columns in one place and a "
        f"tolerance of {CENTRAL_TOLERANCE:g}; differences of objectives (loss plus penalty) are relative to it.",
        f"Most rounds: {rounds:,} ({verdict(rounds, MOST_ROUNDS)}: at most {MOST_ROUNDS}). Most traffic: "
        f"{size / 1e6:.1f} MB ({verdict(size, MOST_BYTES)}: at most {MOST_BYTES / 1e6:g} MB).",
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
        f"Normal columns: {COLUMNS_PER_PARTY} at each of {PARTIES} parties, every pair with the same correlation, "
        f"N = {n:,}. A mean response far below one half, or below 1 for `poisson`, is rare. Of these {len(designs)} "
        f"paths {len(beyond)} {'takes' if len(beyond) == 1 else 'take'} more than {MOST_ROUNDS} rounds or "
        f"{MOST_BYTES / 1e6:g} MB. Objectives differ from the central solver's at the same tolerance by at most "
        f"{max(d.worst_same_tolerance for d in designs):.1e}.",
        f"Algorithm 4 as printed: gaussian lasso at {SHARE_OF_LARGEST:g} of the largest strength, {PARTIES} parties "
        f"with {JACOBI_COLUMNS} columns, n = {ROWS}. It has *converged* when the objective is within {NEAR:g} of the "
        f"least, relatively, and *diverged* when it is {RUNAWAY:g} times the least; at most {MAX_ITERATIONS:,} "
        "iterations.\n\nThe paper does not say which φ. With a small one the parties overshoot together, "
        "and with a large one (φ = 1 is the last) all of them creep. Ours has no such choice to make; its "
        "tolerance is 1e-6.",
    ]
