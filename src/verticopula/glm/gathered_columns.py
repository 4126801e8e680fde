"""A regression whose columns come from parties as its path wants them: until then they are zero here.

A solution on the columns that are here is one on all columns if every other one wants to stay out: if its correlation
with the residuals is not above the strength. A party is asked that, and sends the columns for which it is not so.

A party's answer also says how far the columns that it kept are from entering. Residuals that differ by d in root mean
square move no correlation by more than d, because columns have variance 1. So many an answer is known beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from verticopula.glm.central_path import CentralProblem, Question
from verticopula.glm.central_solver import GramSolver, Point, WeightedSolver, make_solver, null_point, to_data_scale
from verticopula.glm.families import Family
from verticopula.glm.feature_design import Features, Standardised, standardise
from verticopula.glm.lasso import CLOSED
from verticopula.glm.strength_path import DevianceScale, PathPoint

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


class GatheredColumns:
    """The columns that have come, and the regression on them.

    Parameters
    ----------
    y : (N,) response of all rows
    starts : (G + 1,) where each group of features begins, all parties' side by side, and the end
    sizes : (G,) independent columns of each group
    constant : (G,) groups that cannot enter, and are never asked for
    rows : (N,) those to learn from
    """

    def __init__(
        self, y: Floats, family: Family, starts: Ints, sizes: Ints, constant: Bools, rows: Bools, *, fit_intercept: bool
    ) -> None:
        n_rows, q = int(rows.sum()), int(starts[-1])
        self._y, self._family, self._rows, self._fit_intercept = y[rows], family, rows, fit_intercept
        self._n_all, self._values = y.size, dict[int, Floats]()
        self._transforms = [np.zeros((d, d)) for d in np.diff(starts)]
        self._design = Standardised(
            np.zeros((n_rows, q), order="F"), starts, np.zeros(q), (), np.sqrt(np.maximum(sizes, 1)), constant
        )
        self.here: Bools = constant.copy()
        self.null = null_point(self._design, self._y, family, fit_intercept=fit_intercept)
        self.null_residual = family.residual(np.full(n_rows, self.null.intercept), self._y)
        self._is_gaussian = family.name == "gaussian"
        if self._is_gaussian:
            self._gram, self._linear = np.zeros((q, q)), np.zeros(q)
            self._solver = self._solve_on_gram()
        else:
            self._solver = make_solver(self._design, self._y, family, self.null, fit_intercept=fit_intercept)
        self._answers: dict[tuple[int, int], tuple[Floats, float]] = {}

    def add(self, group: int, values: Floats) -> None:
        """A group of features has come: (N, d) as they are."""
        design = self._design
        part = slice(design.starts[group], design.starts[group + 1])
        names = ("",) * values.shape[1]
        own = standardise(
            Features(values[self._rows], np.array([0, values.shape[1]]), names, ("",)), centre=self._fit_intercept
        )
        self._values[group], design.columns[:, part], design.centre[part] = values, own.columns, own.centre
        self._transforms[group] = own.transforms[0]
        self.here[group] = True
        if self._is_gaussian:
            self._gram[:, part] = design.columns.T @ own.columns / self._y.size
            self._gram[part] = self._gram[:, part].T
            self._linear[part] = -own.columns.T @ self.null_residual / self._y.size
            self._solver = self._solve_on_gram()

    def note_answer(self, first: int, last: int, residual: Floats, strength: float) -> None:
        """With these residuals no group from `first` to `last` that is not here enters above this strength.

        The last answer is kept: the others are about larger strengths.
        """
        self._answers[first, last] = residual, strength

    def problem(self, largest: float) -> CentralProblem:
        """The regression on all columns, `largest` being the least strength at which none enters."""
        return CentralProblem(
            self._family,
            self,
            self.null,
            largest,
            self._design.starts,
            self._design.factors,
            DevianceScale.of_response(self._family, self._y),
            lambda point: to_data_scale(replace(self._design, transforms=tuple(self._transforms)), point),
            self._ask,
        )

    def solve(self, weights: Floats, start: Point, tolerance: float) -> tuple[Point, bool]:
        """As `WeightedSolver` has it, on the columns that are here."""
        return self._solver.solve(weights, start, tolerance)

    def loss(self, point: Point) -> float:
        """The loss of a point."""
        return self._solver.loss(point)

    def predict(self, points: Sequence[PathPoint]) -> Floats:
        """(L, N) linear predictors of all rows."""
        starts, eta = self._design.starts, np.zeros((len(points), self._n_all))
        for row, point in zip(eta, points, strict=True):
            row += point.intercept
            for group, values in self._values.items():
                row += values @ point.coef[starts[group] : starts[group + 1]]
        return eta

    def _solve_on_gram(self) -> WeightedSolver:
        """The solver of a gaussian regression on the columns that are here."""
        return GramSolver(self._gram, self._linear, float(np.mean(self.null_residual**2)), self._design.starts)

    def _ask(self, weights: Floats, point: Point, tolerance: float) -> Question | None:
        """What must be asked to know that no column is missing; None where that is known."""
        out = ~self.here & (weights < CLOSED)
        if not out.any():
            return None
        factors = self._design.factors[out]
        strength = float(np.min(weights[out] / factors) + tolerance / factors.max())
        inside = np.flatnonzero(point.coef)
        eta = self._design.columns[:, inside] @ point.coef[inside] + point.intercept
        residual = self._family.residual(eta, self._y)
        for (first, last), known in self._answers.items():
            out[first:last] &= self._bound(residual, *known) > strength
        return Question(residual, strength, out) if out.any() else None

    def _bound(self, residual: Floats, answered: Floats, strength: float) -> float:
        """At least the strength at which a column enters that did not at `strength` with the residuals `answered`."""
        moved = math.sqrt(float(np.mean((residual - answered) ** 2)))
        # Without an intercept columns are not centred, and may be longer than their standard deviation says.
        return strength + moved if self._fit_intercept or moved == 0.0 else math.inf
