"""Weighted lassos and maximum likelihood with all columns in one place.

Gaussian: coordinate descent on the Gram matrix. Binomial and poisson: Newton steps on the columns that are or
want to be in the model, each a weighted lasso, halved until the objective falls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from verticopula.glm.families import Family
from verticopula.glm.feature_design import Features, Standardised, standardise
from verticopula.glm.lasso import (
    MAX_SWEEPS,
    group_curvatures,
    group_norms,
    largest_strength,
    solve_lasso,
)
from verticopula.privacy.root_finding import halve_until_lower

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MAX_NEWTON_STEPS = 100
_MAX_HALVINGS = 30
_CURVATURE_FLOOR = 1e-6


@dataclass
class Point:
    """Where a solver stands: coefficients on its scale, and the intercept."""

    coef: Floats
    intercept: float

    def copy(self) -> Point:
        return Point(self.coef.copy(), self.intercept)


class WeightedSolver(Protocol):
    """Minimises loss + sum_g weights_g ||coef_g|| from a start."""

    def solve(self, weights: Floats, start: Point, tolerance: float) -> tuple[Point, bool]: ...

    def loss(self, point: Point) -> float: ...


def null_point(design: Standardised, y: Floats, family: Family, *, fit_intercept: bool) -> Point:
    """The fit without any column: the intercept alone."""
    return Point(np.zeros(design.columns.shape[1]), family.link(float(y.mean())) if fit_intercept else 0.0)


def maximise_likelihood(
    features: Features, y: Floats, family: Family, *, fit_intercept: bool = True, tolerance: float = 1e-8
) -> tuple[Floats, float, bool]:
    """Coefficients, intercept and whether the maximum was found; it does not exist if columns separate the classes."""
    design = standardise(features, centre=fit_intercept)
    null = null_point(design, y, family, fit_intercept=fit_intercept)
    solver = make_solver(design, y, family, null, fit_intercept=fit_intercept)
    scale = largest_strength(
        design.columns, family.residual(np.full(y.size, null.intercept), y), design.starts, design.factors
    )
    point, fine = solver.solve(np.zeros(design.factors.size), null, tolerance * max(scale, 1e-12))
    return *to_data_scale(design, point), fine


def make_solver(design: Standardised, y: Floats, family: Family, null: Point, *, fit_intercept: bool) -> WeightedSolver:
    """The solver for a family, on standardised columns."""
    if family.name == "gaussian":
        centred, columns = y - null.intercept, design.columns
        gram = columns.T @ columns / y.size
        return GramSolver(gram, columns.T @ centred / y.size, float(np.mean(centred**2)), design.starts)
    return _NewtonSolver(design, y, family, fit_intercept=fit_intercept)


def to_data_scale(design: Standardised, point: Point) -> tuple[Floats, float]:
    """Coefficients and intercept per unit of the data."""
    raw = design.to_raw(point.coef)
    return raw, point.intercept - float(raw @ design.centre)


def violations(coef: Floats, gradient: Floats, weights: Floats, starts: Ints) -> Floats:
    """(G,) distance of the negative gradient from the weighted norm's subdifferential, group by group."""
    norms = group_norms(coef, starts)
    inside = np.maximum(group_norms(gradient, starts) - weights, 0.0)
    scale = np.repeat(weights / np.where(norms > 0.0, norms, 1.0), np.diff(starts))
    return np.where(norms > 0.0, group_norms(gradient + scale * coef, starts), inside)


class GramSolver:
    """Gaussian: everything is in the Gram matrix, so a solution costs nothing that grows with the rows.

    Parameters
    ----------
    gram, linear, square : means over the rows of xx', of x y and of y^2, y without the intercept of an empty model
    starts : (G + 1,) where each group begins, and the end
    """

    def __init__(self, gram: Floats, linear: Floats, square: float, starts: Ints) -> None:
        self._gram, self._linear, self._square, self._starts = np.ascontiguousarray(gram), linear, square, starts
        self._curvatures = group_curvatures(self._gram, starts)

    def solve(self, weights: Floats, start: Point, tolerance: float) -> tuple[Point, bool]:
        coef = start.coef.copy()
        sweeps = solve_lasso(
            self._gram, self._linear, weights, self._starts, self._curvatures, coef, 0.1 * tolerance, MAX_SWEEPS
        )
        return Point(coef, start.intercept), sweeps < MAX_SWEEPS

    def loss(self, point: Point) -> float:
        return 0.5 * self._square + float(point.coef @ (0.5 * (self._gram @ point.coef) - self._linear))


class _NewtonSolver:
    """Binomial and poisson."""

    def __init__(self, design: Standardised, y: Floats, family: Family, *, fit_intercept: bool) -> None:
        self._design, self._y, self._family, self._intercept = design, y, family, fit_intercept

    def solve(self, weights: Floats, start: Point, tolerance: float) -> tuple[Point, bool]:
        columns, starts, y = self._design.columns, self._design.starts, self._y
        point = start.copy()
        eta = self._predict(point.coef) + point.intercept
        loss = self._family.loss(eta, y)
        for _ in range(_MAX_NEWTON_STEPS):
            residual = self._family.residual(eta, y)
            gradient = columns.T @ residual / y.size
            wrong = violations(point.coef, gradient, weights, starts)
            drift = abs(float(residual.mean())) if self._intercept else 0.0
            if max(float(wrong.max(initial=0.0)), drift) <= tolerance:
                return point, True
            groups = np.flatnonzero((group_norms(point.coef, starts) > 0.0) | (wrong > 0.5 * tolerance))
            target = self._newton_target(point, eta, gradient, residual, weights, groups, tolerance)
            moved = self._step_towards(target, point, eta, loss, weights)
            if moved is None:
                return point, False
            point, eta, loss = moved
        return point, False

    def loss(self, point: Point) -> float:
        return self._family.loss(self._predict(point.coef) + point.intercept, self._y)

    def _predict(self, coef: Floats) -> Floats:
        """The rows' sums over the columns whose coefficient is not zero: mostly few."""
        return np.asarray(_sum_columns(self._design.columns, np.flatnonzero(coef), coef))

    def _newton_target(
        self,
        point: Point,
        eta: Floats,
        gradient: Floats,
        residual: Floats,
        weights: Floats,
        groups: Ints,
        tolerance: float,
    ) -> Point:
        """The minimum of the loss's second-order model plus the weighted norm, over the given groups."""
        starts = self._design.starts
        inside = np.concatenate([np.arange(starts[g], starts[g + 1]) for g in groups] or [np.zeros(0, dtype=np.int64)])
        curvature = np.maximum(self._family.curvature(eta), _CURVATURE_FLOOR)
        root_weights = np.sqrt(curvature)
        root = _scale_columns(self._design.columns, inside, root_weights)
        hessian = root @ root.T / eta.size  # a product with its own transpose takes half the time
        slope = gradient[inside]
        if self._intercept:  # the best intercept for every coefficient is known, so it is put in
            total, across, drift = float(curvature.mean()), root @ root_weights / eta.size, float(residual.mean())
            hessian = hessian - np.outer(across, across) / total
            slope = slope - across * drift / total
        sizes = np.diff(starts)[groups]
        inner = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])
        old = point.coef[inside]
        new = old.copy()
        solve_lasso(
            np.ascontiguousarray(hessian),
            hessian @ old - slope,
            weights[groups],
            inner,
            group_curvatures(hessian, inner),
            new,
            0.1 * tolerance,
            MAX_SWEEPS,
        )
        target = point.copy()
        target.coef[inside] = new
        if self._intercept:
            target.intercept -= (drift + float(across @ (new - old))) / total
        return target

    def _step_towards(
        self, target: Point, point: Point, eta: Floats, loss: float, weights: Floats
    ) -> tuple[Point, Floats, float] | None:
        """The first of the full, half, quarter ... steps that does not raise the objective; None if none does.

        With the rows' predictors and the loss there.
        """
        starts = self._design.starts
        change = self._predict(target.coef - point.coef) + (target.intercept - point.intercept)
        now = loss + float(weights @ group_norms(point.coef, starts))
        now += 1e-14 * abs(now)  # rounding must not stop a step that changes nothing else
        there, reached = eta, loss

        def coef_at(share: float) -> Floats:
            return target.coef if share == 1.0 else point.coef + share * (target.coef - point.coef)

        def objective(share: float) -> float:
            nonlocal there, reached
            there = eta + share * change
            reached = self._family.loss(there, self._y)
            return reached + float(weights @ group_norms(coef_at(share), starts))

        share = halve_until_lower(objective, now, _MAX_HALVINGS)
        if share == 0.0:
            return None
        intercept = point.intercept + share * (target.intercept - point.intercept)
        return Point(coef_at(share), intercept), there, reached


@njit(cache=True, nogil=True)
def _sum_columns(columns: Floats, inside: Ints, coef: Floats) -> Floats:
    """(n,) the sum of some columns, each times its coefficient."""
    total = np.zeros(columns.shape[0])
    for j in inside:
        own = columns[:, j]
        for i in range(total.size):
            total[i] += own[i] * coef[j]
    return total


@njit(cache=True, nogil=True)
def _scale_columns(columns: Floats, inside: Ints, factors: Floats) -> Floats:
    """(columns, n) some columns, their rows times a factor each."""
    scaled = np.empty((inside.size, factors.size))
    for c in range(inside.size):
        own = columns[:, inside[c]]
        for i in range(factors.size):
            scaled[c, i] = own[i] * factors[i]
    return scaled
