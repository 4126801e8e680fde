"""Our central path against skglm's: the same columns, penalty, strengths and tolerance.

skglm's solvers descend on SCAD itself, each strength from the solution before. A coordinate's problem then has one
minimum only where its curvature is above the penalty's concavity, 1 / (a - 1) = 0.37. In the linear model it is 1; in
the logistic one at most a quarter of the column's variance, so the columns have standard deviation 2 there, for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from skglm.datafits import Logistic, Quadratic
from skglm.penalties import SCAD
from skglm.solvers import AndersonCD, GramCD

from benchmarks.glm_common import make_section_5_1
from benchmarks.timing import Timing, time_interleaved
from experiments.central_path import trace_path
from verticopula.glm.central_solver import largest_strength, null_point
from verticopula.glm.penalties import Penalty
from verticopula.glm.strength_path import PathPoint, geometric_strengths

Floats = NDArray[np.float64]

CONCAVITY = 3.7
TOLERANCE = 1e-4
# Ours lets the weights of the linear approximation rest within ten times its tolerance, which comes on top.
OUR_TOLERANCE = TOLERANCE / 11.0
SPREADS = {"linear": 1.0, "logistic": 2.0}
SAME = 1e-6
MAX_ITERATIONS, MAX_EPOCHS = 200, 50_000


@dataclass(frozen=True)
class Solutions:
    """A path's solutions on the solver's scale, with the objective and the optimality of each."""

    objectives: Floats
    violations: Floats  # relative to the strength


@dataclass(frozen=True)
class Race:
    """Ours against one of skglm's solvers.

    Attributes
    ----------
    ratio : our processor time over theirs, medians over the repetitions
    same, ours_lower, theirs_lower : strengths at which the objectives are the same to 1e-6, or which is lower
    our_violation, their_violation : the worst over the path, relative to the strength
    ours_above, theirs_above : strengths at which the violation is above the tolerance
    """

    model: str
    rival: str
    ours: Timing
    theirs: Timing
    ratio: float
    same: int
    ours_lower: int
    theirs_lower: int
    our_violation: float
    their_violation: float
    ours_above: int
    theirs_above: int


class Contest:
    """One data set, prepared once: every solver gets the same columns and strengths."""

    def __init__(self, model: str, n: int) -> None:
        problem, _ = make_section_5_1(model, n, 0)
        base, spread = problem.standardised(), SPREADS[model]
        self.model, self.y, self.family = model, problem.y, problem.family
        self.design = replace(
            base,
            columns=np.asfortranarray(spread * base.columns),
            transforms=tuple(spread * t for t in base.transforms),
        )
        null = null_point(self.design, self.y, self.family, fit_intercept=True)
        residual = self.family.residual(np.full(self.y.size, null.intercept), self.y)
        design = self.design
        self.strengths = geometric_strengths(largest_strength(design.columns, residual, design.starts, design.factors))
        self.penalty = Penalty.build("scad", CONCAVITY)
        # skglm counts a binary response as -1 and 1; a linear one is centred here, as the columns are.
        self.response = self.y - self.y.mean() if model == "linear" else 2.0 * self.y - 1.0

    def run_ours(self) -> list[PathPoint]:
        found = trace_path(self.design, self.y, self.family, self.penalty, self.strengths, tolerance=OUR_TOLERANCE)
        return list(found)

    def run_anderson(self) -> list[Floats]:
        datafit = Quadratic() if self.model == "linear" else Logistic()
        return self._warm(
            lambda tol: AndersonCD(tol=tol, max_iter=MAX_ITERATIONS, max_epochs=MAX_EPOCHS, **self._own()), datafit
        )

    def run_gram(self) -> list[Floats]:
        return self._warm(lambda tol: GramCD(tol=tol, max_iter=MAX_EPOCHS, **self._own()), None)

    def _own(self) -> dict[str, bool]:
        return {"fit_intercept": self.model == "logistic"}

    def _warm(self, make: Callable[[float], Any], datafit: Any) -> list[Floats]:
        columns, found = self.design.columns, []
        width = columns.shape[1] + (self.model == "logistic")
        point, prediction = np.zeros(width), np.zeros(self.y.size)
        for strength in self.strengths:
            point = make(TOLERANCE * float(strength)).solve(
                columns,
                self.response,
                datafit,
                SCAD(float(strength), CONCAVITY),
                point.copy(),
                prediction,
                run_checks=False,
            )[0]
            prediction = columns @ point[: columns.shape[1]] + (point[-1] if self.model == "logistic" else 0.0)
            found.append(point)
        return found

    def judge(self, solutions: Sequence[Floats]) -> Solutions:
        """Solutions (coefficients, then the intercept) by one and the same measure."""
        p, n = self.design.columns.shape[1], self.y.size
        objectives, wrong = [], []
        scad = SCAD(1.0, CONCAVITY)
        for strength, solution in zip(self.strengths, solutions, strict=True):
            coef, intercept = solution[:p], solution[p]
            eta = self.design.columns @ coef + intercept
            value = float(self.penalty.value(np.abs(coef), np.full(p, strength)).sum())
            objectives.append(self.family.loss(eta, self.y) + value)
            gradient = self.design.columns.T @ self.family.residual(eta, self.y) / n
            scad.alpha = float(strength)
            wrong.append(float(scad.subdiff_distance(coef, gradient, np.arange(p)).max()) / strength)
        return Solutions(np.array(objectives), np.array(wrong))

    def ours_on_scale(self) -> list[Floats]:
        """Our solutions as coefficients of the contest's columns."""
        scale = np.array([transform[0, 0] for transform in self.design.transforms])
        return [
            np.append(point.coef / scale, point.intercept + float(point.coef @ self.design.centre))
            for point in self.run_ours()
        ]

    def with_intercept(self, solutions: Sequence[Floats]) -> list[Floats]:
        return [np.append(s, self.y.mean()) if self.model == "linear" else s for s in solutions]


def race(model: str, n: int, repetitions: int) -> list[Race]:
    """Ours against AndersonCD, and in the linear model against GramCD as well."""
    contest = Contest(model, n)
    rivals: dict[str, Callable[[], list[Floats]]] = {"AndersonCD": contest.run_anderson}
    if model == "linear":
        rivals["GramCD"] = contest.run_gram
    ours = contest.judge(contest.ours_on_scale())
    theirs = {name: contest.judge(contest.with_intercept(solve())) for name, solve in rivals.items()}  # compiles, too
    times = time_interleaved({"ours": contest.run_ours, **rivals}, repetitions)
    races = []
    for name, found in theirs.items():
        off = (ours.objectives - found.objectives) / found.objectives
        races.append(
            Race(
                model,
                name,
                times["ours"],
                times[name],
                times["ours"].median / times[name].median,
                int(np.sum(np.abs(off) <= SAME)),
                int(np.sum(off < -SAME)),
                int(np.sum(off > SAME)),
                float(ours.violations.max()),
                float(found.violations.max()),
                int(np.sum(ours.violations > 1.01 * TOLERANCE)),
                int(np.sum(found.violations > 1.01 * TOLERANCE)),
            )
        )
    return races
