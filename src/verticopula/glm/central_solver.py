"""All columns in one place: the solver that the federated one is measured against, and "Original-C".

Gaussian: coordinate descent on the Gram matrix. Binomial and poisson: Newton steps on the columns that are or
want to be in the model, each a weighted lasso, halved until the objective falls.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from verticopula.glm.families import Family
from verticopula.glm.feature_design import Features, Standardised, standardise
from verticopula.glm.lasso import (
    CLOSED,
    MAX_SWEEPS,
    group_curvatures,
    group_norms,
    largest_strength,
    solve_lasso,
)
from verticopula.glm.penalties import Penalty
from verticopula.glm.strength_path import (
    MAX_LLA_STEPS,
    ConvergenceMonitor,
    DevianceScale,
    PathPoint,
    Refit,
    RefitRule,
    RefitStopper,
)

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


def trace_path(
    design: Standardised,
    y: Floats,
    family: Family,
    penalty: Penalty,
    strengths: Floats,
    *,
    fit_intercept: bool = True,
    tolerance: float = 1e-3,
    refit: RefitRule | None = None,
    end_early: bool = True,
) -> Iterator[PathPoint]:
    """Solutions along decreasing strengths, if `end_early` only until the fit is all but perfect.

    `tolerance` is relative to the strength: optimality conditions hold to tolerance * strength.
    """
    watch, last_refit, last_support = RefitStopper(refit, family), None, b""
    null = null_point(design, y, family, fit_intercept=fit_intercept)
    yardstick = DevianceScale(family, y)
    null_residual = family.residual(np.full(y.size, null.intercept), y)
    scale = largest_strength(design.columns, null_residual, design.starts, design.factors)
    solver = _make_solver(design, y, family, null, fit_intercept=fit_intercept)
    lasso, point = null.copy(), null.copy()
    for strength in strengths:
        own = design.factors * strength
        unit = max(float(strength), 1e-3 * scale)  # of the tolerance
        if penalty.is_concave:
            lasso, _ = solver.solve(own, lasso, tolerance * unit)
            watch_rest = ConvergenceMonitor(tolerance, family)
            point, settled = _approximate(solver, penalty, own, lasso, point, unit, watch_rest, design.starts)
        else:
            point, settled = solver.solve(penalty.slope(np.zeros_like(own), own), point, tolerance * unit)
        norms = group_norms(point.coef, design.starts)
        loss = yardstick.at_least(solver.loss(point))
        df = int(design.sizes[norms > 0.0].sum())
        if end_early and penalty.name != "none" and yardstick.is_saturated(loss, df):
            return
        value = float(penalty.value(norms, own).sum())
        if watch.wanted:
            if (norms > 0.0).tobytes() != last_support:
                last_support = (norms > 0.0).tobytes()
                found, fine = solver.solve(np.where(norms > 0.0, 0.0, CLOSED), point, tolerance * 1e-2 * scale)
                refit_loss = yardstick.at_least(solver.loss(found))
                exists = not yardstick.is_saturated(refit_loss, df)
                last_refit = Refit(*_to_raw(design, found), refit_loss, fine) if exists else None
                watch.see(last_refit, df)
        else:
            last_refit = None
        yield PathPoint(float(strength), *_to_raw(design, point), loss, value, df, settled, last_refit)


def maximise_likelihood(
    features: Features, y: Floats, family: Family, *, fit_intercept: bool = True, tolerance: float = 1e-8
) -> tuple[Floats, float, bool]:
    """Coefficients, intercept and whether the maximum was found; it does not exist if columns separate the classes."""
    design = standardise(features, centre=fit_intercept)
    null = null_point(design, y, family, fit_intercept=fit_intercept)
    solver = _make_solver(design, y, family, null, fit_intercept=fit_intercept)
    scale = largest_strength(
        design.columns, family.residual(np.full(y.size, null.intercept), y), design.starts, design.factors
    )
    point, fine = solver.solve(np.zeros(design.factors.size), null, tolerance * max(scale, 1e-12))
    return *_to_raw(design, point), fine


def _make_solver(
    design: Standardised, y: Floats, family: Family, null: Point, *, fit_intercept: bool
) -> WeightedSolver:
    if family.name == "gaussian":
        return _GramSolver(design, y, null.intercept)
    return _NewtonSolver(design, y, family, fit_intercept=fit_intercept)


def _to_raw(design: Standardised, point: Point) -> tuple[Floats, float]:
    raw = design.to_raw(point.coef)
    return raw, point.intercept - float(raw @ design.centre)


def _approximate(
    solver: WeightedSolver,
    penalty: Penalty,
    own: Floats,
    lasso: Point,
    start: Point,
    unit: float,
    watch: ConvergenceMonitor,
    starts: Ints,
) -> tuple[Point, bool]:
    """Weighted lassos until the weights rest; the first has the slopes at the plain lasso."""
    weights, point = penalty.slope(group_norms(lasso.coef, starts), own), start
    for _ in range(MAX_LLA_STEPS):
        point, solved = solver.solve(weights, point, watch.tolerance * unit)
        renewed = penalty.slope(group_norms(point.coef, starts), own)
        change = float(np.max(np.abs(renewed - weights) / np.maximum(own, 1e-300), initial=0.0))
        if watch.rests(change):
            return point, solved
        weights = renewed
    return point, False


def violations(coef: Floats, gradient: Floats, weights: Floats, starts: Ints) -> Floats:
    """(G,) distance of the negative gradient from the weighted norm's subdifferential, group by group."""
    norms = group_norms(coef, starts)
    inside = np.maximum(group_norms(gradient, starts) - weights, 0.0)
    scale = np.repeat(weights / np.where(norms > 0.0, norms, 1.0), np.diff(starts))
    return np.where(norms > 0.0, group_norms(gradient + scale * coef, starts), inside)


class _GramSolver:
    """Gaussian: everything is in the Gram matrix, so a solution costs nothing that grows with the rows."""

    def __init__(self, design: Standardised, y: Floats, intercept: float) -> None:
        self._starts = design.starts
        self._gram = np.ascontiguousarray(design.columns.T @ design.columns / y.size)
        self._linear = design.columns.T @ (y - intercept) / y.size
        self._square = float(np.mean((y - intercept) ** 2))
        self._curvatures = group_curvatures(self._gram, design.starts)

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
        eta = columns @ point.coef + point.intercept
        for _ in range(_MAX_NEWTON_STEPS):
            residual = self._family.residual(eta, y)
            gradient = columns.T @ residual / y.size
            wrong = violations(point.coef, gradient, weights, starts)
            drift = abs(float(residual.mean())) if self._intercept else 0.0
            if max(float(wrong.max(initial=0.0)), drift) <= tolerance:
                return point, True
            groups = np.flatnonzero((group_norms(point.coef, starts) > 0.0) | (wrong > 0.5 * tolerance))
            target = self._newton_target(point, eta, gradient, residual, weights, groups, tolerance)
            moved = self._step_towards(target, point, eta, weights)
            if moved is None:
                return point, False
            point, eta = moved
        return point, False

    def loss(self, point: Point) -> float:
        return self._family.loss(self._design.columns @ point.coef + point.intercept, self._y)

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
        part = self._design.columns[:, inside]
        curvature = np.maximum(self._family.curvature(eta), _CURVATURE_FLOOR)
        root = part * np.sqrt(curvature)[:, None]  # a product with its own transpose takes half the time
        hessian = root.T @ root / eta.size
        slope = gradient[inside]
        total, across, drift = float(curvature.mean()), curvature @ part / eta.size, float(residual.mean())
        if self._intercept:  # the best intercept for every coefficient is known, so it is put in
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

    def _step_towards(self, target: Point, point: Point, eta: Floats, weights: Floats) -> tuple[Point, Floats] | None:
        """The first of the full, half, quarter ... steps that does not raise the objective; None if none does."""
        starts = self._design.starts
        change = self._design.columns @ (target.coef - point.coef) + (target.intercept - point.intercept)
        now = self._family.loss(eta, self._y) + float(weights @ group_norms(point.coef, starts))
        now += 1e-14 * abs(now)  # rounding must not stop a step that changes nothing else
        for halvings in range(_MAX_HALVINGS):
            share = 0.5**halvings
            coef = target.coef if share == 1.0 else point.coef + share * (target.coef - point.coef)
            there = eta + share * change
            if self._family.loss(there, self._y) + float(weights @ group_norms(coef, starts)) <= now:
                return Point(coef, point.intercept + share * (target.intercept - point.intercept)), there
        return None
