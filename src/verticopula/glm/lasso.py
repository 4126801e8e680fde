"""The weighted group lasso on a Gram matrix, by coordinate descent: Eq. (6-1), and the central solver's inner step.

min over b of  b'Gb/2 - c'b + sum_g w_g ||b_g||.  Groups are consecutive columns `starts[g]:starts[g + 1]`; a
single column is a group of one and is minimised exactly, a larger one by a step that majorises its curvature.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MAX_SWEEPS = 20_000
CLOSED = 1e100  # a weight that keeps a group out; finite, because infinity times zero is not zero
_SWEEPS_PER_NEWTON_STEP = 3
_RIDGE = 1e-10


def group_curvatures(gram: Floats, starts: Ints) -> Floats:
    """The largest eigenvalue of each group's block; 0 for a column of zeros, which then never enters."""
    diagonal = np.diagonal(gram)
    sizes = np.diff(starts)
    found = diagonal[starts[:-1]].copy() if gram.size else np.zeros(0)
    for g in np.flatnonzero(sizes > 1):
        block = gram[starts[g] : starts[g + 1], starts[g] : starts[g + 1]]
        found[g] = np.linalg.eigvalsh(block)[-1] if block.any() else 0.0
    # Rounding may leave a hair of curvature in a column that is zero for all purposes.
    return np.where(found > 1e-12, found, 0.0)


def group_norms(coef: Floats, starts: Ints) -> Floats:
    """The Euclidean norm of every group."""
    return np.sqrt(np.add.reduceat(coef**2, starts[:-1])) if coef.size else np.zeros(0)


def largest_strength(columns: Floats, residual: Floats, starts: Ints, factors: Floats) -> float:
    """The least strength at which no column enters, from the residuals of a fit without any."""
    gradient = columns.T @ residual / residual.size
    return float(np.max(group_norms(gradient, starts) / factors, initial=0.0))


@njit(cache=True, nogil=True)
def solve_lasso(
    gram: Floats,
    linear: Floats,
    weights: Floats,
    starts: Ints,
    curvatures: Floats,
    coef: Floats,
    tolerance: float,
    max_sweeps: int,
) -> int:
    """Improve `coef` in place until no group moves by more than the tolerance; returns the number of sweeps.

    A move is measured by its effect on the fit, |change| times the root of the curvature. Between two
    sweeps over all groups, those that are not zero are swept until they rest.
    """
    gradient = gram @ coef - linear
    sweeps, everything = 0, True
    while sweeps < max_sweeps:
        sweeps += 1
        largest = 0.0
        for g in range(weights.size):
            first, last, bend = starts[g], starts[g + 1], curvatures[g]
            if bend == 0.0 or not (everything or _is_inside(coef, first, last)):
                continue
            if last - first == 1:
                moved = _move_column(gram, gradient, coef, first, weights[g], bend)
            else:
                moved = _move_group(gram, gradient, coef, first, last, weights[g], bend)
            largest = max(largest, moved * bend)
        if largest <= tolerance**2:
            if everything:
                return sweeps
            everything = True
        else:
            everything = False
            if sweeps % _SWEEPS_PER_NEWTON_STEP == 0:
                _newton_step(gram, linear, weights, starts, coef, gradient)
                gradient = gram @ coef - linear
    return sweeps


@njit(cache=True, nogil=True)
def _is_inside(coef: Floats, first: int, last: int) -> bool:
    inside = False
    for j in range(first, last):
        inside = inside or coef[j] != 0.0
    return inside


@njit(cache=True, nogil=True)
def _move_column(gram: Floats, gradient: Floats, coef: Floats, j: int, weight: float, bend: float) -> float:
    """The minimum over a group of one; returns the square of its step."""
    target = bend * coef[j] - gradient[j]
    beyond = abs(target) - weight
    step = (np.copysign(beyond, target) / bend if beyond > 0.0 else 0.0) - coef[j]
    if step != 0.0:
        coef[j] += step
        for i in range(gradient.size):
            gradient[i] += gram[j, i] * step
    return float(step * step)


@njit(cache=True, nogil=True)
def _move_group(
    gram: Floats, gradient: Floats, coef: Floats, first: int, last: int, weight: float, bend: float
) -> float:
    """A step of a larger group, all of its columns from one gradient; returns the square of its length."""
    target = bend * coef[first:last] - gradient[first:last]
    norm = np.sqrt(np.sum(target**2))
    shrink = 0.0 if norm <= weight else (1.0 - weight / norm) / bend
    steps = shrink * target - coef[first:last]
    moved = float(np.sum(steps**2))
    if moved > 0.0:
        for j in range(first, last):
            coef[j] += steps[j - first]
            for i in range(gradient.size):
                gradient[i] += gram[j, i] * steps[j - first]
    return moved


@njit(cache=True, nogil=True)
def _newton_step(gram: Floats, linear: Floats, weights: Floats, starts: Ints, coef: Floats, gradient: Floats) -> None:
    """One Newton step over the groups that are not zero, for columns so correlated that sweeps creep.

    Where it would carry a coefficient through zero it stops there; the sweeps that follow decide what stays.
    """
    inside = np.flatnonzero(coef)
    count = inside.size
    if count == 0:
        return
    hessian = np.empty((count, count))
    slope = gradient[inside]
    for a in range(count):
        for b in range(count):
            hessian[a, b] = gram[inside[a], inside[b]]
        hessian[a, a] += _RIDGE  # dependent columns have no one solution, and need none
    begin, g, kinked = 0, 0, np.zeros(count, dtype=np.bool_)
    while begin < count:  # group by group: its columns stand side by side, in `inside` as well
        while starts[g + 1] <= inside[begin]:
            g += 1
        end = begin + 1
        while end < count and inside[end] < starts[g + 1]:
            end += 1
        if starts[g + 1] - starts[g] == 1:
            slope[begin] += np.copysign(weights[g], coef[inside[begin]])
            kinked[begin] = weights[g] > 0.0  # only a single, penalised column has a kink on its way
        else:
            _add_group_curvature(hessian, slope, coef[inside], begin, end, weights[g])
        begin = end
    step = -np.linalg.solve(hessian, slope)
    share = 1.0
    for a in range(count):
        if kinked[a] and coef[inside[a]] * (coef[inside[a]] + step[a]) < 0.0:
            share = min(share, -coef[inside[a]] / step[a])
    before, old = _objective(gram, linear, weights, starts, coef), coef.copy()
    for a in range(count):
        moved = coef[inside[a]] + share * step[a]
        coef[inside[a]] = 0.0 if share < 1.0 and moved * coef[inside[a]] <= 0.0 else moved
    if (
        not _objective(gram, linear, weights, starts, coef) < before
    ):  # a group's norm is not quadratic: it may overshoot
        coef[:] = old


@njit(cache=True, nogil=True)
def _add_group_curvature(hessian: Floats, slope: Floats, inside: Floats, begin: int, end: int, weight: float) -> None:
    """Add the first and second derivatives of weight ||b|| for the columns from `begin` to `end`."""
    norm = np.sqrt(np.sum(inside[begin:end] ** 2))
    for a in range(begin, end):
        slope[a] += weight * inside[a] / norm
        hessian[a, a] += weight / norm
        for b in range(begin, end):
            hessian[a, b] -= weight * inside[a] * inside[b] / norm**3


@njit(cache=True, nogil=True)
def _objective(gram: Floats, linear: Floats, weights: Floats, starts: Ints, coef: Floats) -> float:
    total = 0.5 * coef @ (gram @ coef) - linear @ coef
    for g in range(weights.size):
        norm = 0.0
        for j in range(starts[g], starts[g + 1]):
            norm += coef[j] ** 2
        total += weights[g] * np.sqrt(norm)
    return float(total)
