"""Algorithm 4 to the letter: all parties move at once from the same residual (Eqs. 6-1 to 6-3), gaussian.

Kept to show why `protocol.regression_path` departs from it. With phi = c / N and gamma = g / N, one iteration is

    beta_k = argmin  lambda ||beta||_1 + (1/N) (g' X_k beta + c/2 ||X_k beta - (zeta_k - h)||^2)     every party
    eta    = (y + g + c sum_k zeta_k) / (1 + c),   g <- g + c h,   h = sum_k zeta_k - eta            the server
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.glm_common import Problem, fit_central, fit_federated, make_correlated
from reporting.tables import Table
from verticopula.glm.lasso import group_curvatures, solve_lasso

Floats = NDArray[np.float64]

ROWS, PARTIES, COLUMNS_PER_PARTY = 400, 5, 4
SHARE_OF_LARGEST = 0.1
CORRELATIONS = (0.0, 0.3, 0.6, 0.9, 0.99)
STEP_SIZES = (0.1, 1.0, 10.0, float(ROWS))  # the last is phi = 1
MAX_ITERATIONS = 2000
NEAR = 1e-6
RUNAWAY = 1e6


@dataclass(frozen=True)
class JacobiRun:
    """One run of the printed iteration.

    Attributes
    ----------
    step_size : c, the printed phi times N
    iterations : until the objective was within `NEAR` of the least, or until it ran away or the limit
    outcome : `converged`, `diverged`, or `neither` after the limit
    excess : last objective over the least, minus 1
    """

    correlation: float
    step_size: float
    iterations: int
    outcome: str
    excess: float


@dataclass(frozen=True)
class Ours:
    """Columns that leave once, on the same problem: rounds at a tolerance of 1e-6 and how near the objective is."""

    correlation: float
    rounds: int
    excess: float


def make_problem(correlation: float) -> tuple[Problem, float]:
    """A lasso at a tenth of the largest strength."""
    rng = np.random.default_rng([7, round(100 * correlation)])
    problem = make_correlated("gaussian", [COLUMNS_PER_PARTY] * PARTIES, correlation, ROWS, rng)
    return problem, SHARE_OF_LARGEST * problem.largest_strength()


def iterate_as_printed(problem: Problem, strength: float, least: float, c: float, limit: int) -> tuple[int, str, float]:
    """Algorithm 4 until it is near the least objective, runs away, or has had its iterations."""
    columns, y = problem.standardised().columns, problem.y - problem.y.mean()
    n = y.size
    parts = [np.asfortranarray(columns[:, block]) for block in problem.blocks]
    grams = [np.ascontiguousarray(part.T @ part / n) for part in parts]
    coefs = [np.zeros(part.shape[1]) for part in parts]
    zeta = np.zeros((len(parts), n))
    h, g = np.zeros(n), np.zeros(n)
    excess = np.inf
    for iteration in range(1, limit + 1):
        for k, (part, gram) in enumerate(zip(parts, grams, strict=True)):
            starts = np.arange(part.shape[1] + 1)
            linear = part.T @ (zeta[k] - h - g / c) / n
            weights = np.full(part.shape[1], strength / c)
            solve_lasso(gram, linear, weights, starts, group_curvatures(gram, starts), coefs[k], 1e-10, 1000)
        zeta = np.array([part @ coef for part, coef in zip(parts, coefs, strict=True)])
        total = zeta.sum(axis=0)
        eta = (y + g + c * total) / (1.0 + c)
        h = total - eta
        g = g + c * h
        norm = float(sum(np.abs(coef).sum() for coef in coefs))
        excess = (0.5 * float(np.mean((y - total) ** 2)) + strength * norm) / least - 1.0
        if abs(excess) <= NEAR:
            return iteration, "converged", excess
        if not excess < RUNAWAY:
            return iteration, "diverged", excess
    return limit, "neither", excess


def measure_jacobi(correlations: Sequence[float], limit: int) -> tuple[list[JacobiRun], list[Ours]]:
    """The printed iteration for several phi, and ours."""
    printed: list[JacobiRun] = []
    ours: list[Ours] = []
    for correlation in correlations:
        problem, strength = make_problem(correlation)
        strengths = np.array([strength])
        least = fit_central(problem, "lasso", strengths, 1e-9)[0].objective
        found = fit_federated(problem, "lasso", strengths, 1e-6)
        ours.append(Ours(correlation, found.traffic.rounds, found.points[0].objective / least - 1.0))
        printed += [
            JacobiRun(correlation, c, *iterate_as_printed(problem, strength, least, c, limit)) for c in STEP_SIZES
        ]
    return printed, ours


def tabulate_jacobi(printed: Sequence[JacobiRun], ours: Sequence[Ours]) -> Table:
    rows = []
    for mine in ours:
        cells = (
            f"{o.outcome}, {o.iterations}" if o.outcome != "neither" else f"off by {o.excess:.0e} after {o.iterations}"
            for o in printed
            if o.correlation == mine.correlation
        )
        rows.append(
            (f"{mine.correlation:g}", *cells, f"converged, {mine.rounds} rounds (off by {abs(mine.excess):.0e})")
        )
    header = ("correlation", *(f"as printed, φN = {c:g}" for c in STEP_SIZES), "ours")
    return Table("Algorithm 4 as printed against ours: outcome and iterations of one lasso", header, tuple(rows))
