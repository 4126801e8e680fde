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
_SWEEPS_PER_LEAP = 6
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
    steps = np.empty(coef.size)
    sweeps, everything = 0, True
    while sweeps < max_sweeps:
        sweeps += 1
        largest = 0.0
        for g in range(weights.size):
            first, last, bend = starts[g], starts[g + 1], curvatures[g]
            if bend == 0.0:
                continue
            if not everything:
                still = True
                for j in range(first, last):
                    still = still and coef[j] == 0.0
                if still:
                    continue
            norm = 0.0
            for j in range(first, last):
                norm += (bend * coef[j] - gradient[j]) ** 2
            norm = np.sqrt(norm)
            shrink = 0.0 if norm <= weights[g] else (1.0 - weights[g] / norm) / bend
            moved = 0.0
            for j in range(first, last):  # all of a group's columns step from one gradient
                steps[j - first] = shrink * (bend * coef[j] - gradient[j]) - coef[j]
                moved += steps[j - first] ** 2
            if moved > 0.0:
                for j in range(first, last):
                    coef[j] += steps[j - first]
                    for i in range(gradient.size):
                        gradient[i] += gram[j, i] * steps[j - first]
            largest = max(largest, np.sqrt(moved * bend))
        if largest <= tolerance:
            if everything:
                return sweeps
            everything = True
        else:
            everything = False
            if sweeps % _SWEEPS_PER_LEAP == 0:
                _leap(gram, linear, weights, starts, coef)
                gradient = gram @ coef - linear
    return sweeps


@njit(cache=True, nogil=True)
def _leap(gram: Floats, linear: Floats, weights: Floats, starts: Ints, coef: Floats) -> None:
    """One Newton step over the groups that are not zero, for columns so correlated that sweeps creep.

    Where it would carry a coefficient through zero it stops there; the sweeps that follow decide what stays.
    """
    inside = np.flatnonzero(coef)
    if inside.size == 0:
        return
    hessian = np.empty((inside.size, inside.size))
    slope = np.empty(inside.size)
    for a in range(inside.size):
        slope[a] = gram[inside[a]] @ coef - linear[inside[a]]
        for b in range(inside.size):
            hessian[a, b] = gram[inside[a], inside[b]]
    for g in range(weights.size):
        norm = np.sqrt(np.sum(coef[starts[g] : starts[g + 1]] ** 2))
        for a in range(inside.size):
            if norm == 0.0 or not starts[g] <= inside[a] < starts[g + 1]:
                continue
            slope[a] += weights[g] * coef[inside[a]] / norm
            if starts[g + 1] - starts[g] > 1:
                hessian[a, a] += weights[g] / norm
                for b in range(inside.size):
                    if starts[g] <= inside[b] < starts[g + 1]:
                        hessian[a, b] -= weights[g] * coef[inside[a]] * coef[inside[b]] / norm**3
    for a in range(inside.size):
        hessian[a, a] += _RIDGE  # dependent columns have no one solution, and need none
    step = -np.linalg.solve(hessian, slope)
    share = 1.0
    for g in range(weights.size):  # only a single, penalised column has a kink on its way
        if weights[g] > 0.0 and starts[g + 1] - starts[g] == 1:
            for a in range(inside.size):
                if inside[a] == starts[g] and coef[inside[a]] * (coef[inside[a]] + step[a]) < 0.0:
                    share = min(share, -coef[inside[a]] / step[a])
    before, old = _objective(gram, linear, weights, starts, coef), coef.copy()
    for a in range(inside.size):
        moved = coef[inside[a]] + share * step[a]
        coef[inside[a]] = 0.0 if share < 1.0 and moved * coef[inside[a]] <= 0.0 else moved
    if (
        not _objective(gram, linear, weights, starts, coef) < before
    ):  # a group's norm is not quadratic: it may overshoot
        coef[:] = old


@njit(cache=True, nogil=True)
def _objective(gram: Floats, linear: Floats, weights: Floats, starts: Ints, coef: Floats) -> float:
    total = 0.5 * coef @ (gram @ coef) - linear @ coef
    for g in range(weights.size):
        total += weights[g] * np.sqrt(np.sum(coef[starts[g] : starts[g + 1]] ** 2))
    return float(total)
