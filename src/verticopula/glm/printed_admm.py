"""Algorithm 4 as it is printed: parallel updates of all parties, one multiplier, the printed stopping rule.

For comparison; the path in use is that of `gathered_columns.py`. As printed, every party moves from the same residual
as if the others stood still. With a small `rho` that diverges where parties' columns are correlated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.glm.families import Family
from verticopula.glm.lasso import MAX_SWEEPS, solve_lasso
from verticopula.glm.penalties import Penalty

Floats = NDArray[np.float64]

_INNER_TOLERANCE = 1e-8  # of a party's own minimisation, Eq. (6-1), which the paper takes for exact
_RUN_OFF = 1e10  # a primal residual of this size does not come back


@dataclass(frozen=True)
class PrintedSolution:
    """Where the iteration ended.

    Attributes
    ----------
    coef : (q_k,) of each party, on the scale of the data
    rounds : how many there were
    converged : whether the printed rule stopped it
    """

    coef: tuple[Floats, ...]
    rounds: int
    converged: bool


def solve_printed(
    blocks: Sequence[Floats],
    y: Floats,
    family: Family,
    penalty: Penalty,
    strength: float,
    *,
    rho: float,
    tolerance: float,
    max_rounds: int,
) -> PrintedSolution:
    """The coefficients at one strength, from zero. Implements Algorithm 4 and Eqs. (6-1) to (6-3).

    The weights of the local linear approximation are the penalty's slopes at the last round's coefficients: the paper
    calls both iterates β^(t).

    Parameters
    ----------
    blocks : (n, q_k) columns of each party, as they are: not scaled, not centred, without an intercept
    strength : λ
    rho : φ
    tolerance : ε_abs = ε_rel
    """
    n, n_columns = y.size, sum(block.shape[1] for block in blocks)
    grams = [rho * (block.T @ block) for block in blocks]
    coef = [np.zeros(block.shape[1]) for block in blocks]
    parts = [np.zeros(n) for _ in blocks]
    eta, gamma, gap = np.zeros(n), np.zeros(n), np.zeros(n)
    for number in range(1, max_rounds + 1):
        moved = [
            update_block(block, gram, old, gamma + rho * (gap - part), penalty.slope(np.abs(old), strength))
            for block, gram, old, part in zip(blocks, grams, coef, parts, strict=True)
        ]
        parts = [block @ own for block, own in zip(blocks, moved, strict=True)]
        total, before = np.sum(parts, axis=0), eta
        # Eq. (6-2) divided by 1/n: the row's loss plus n rho/2 (eta - total - gamma/rho)^2.
        eta = family.minimise_near(total + gamma / rho, y, n * rho, before)
        gap = total - eta
        gamma = gamma + rho * gap
        primal, dual = float(np.linalg.norm(gap)), float(np.linalg.norm(rho * (eta - before)))
        if not primal < _RUN_OFF:
            return PrintedSolution(tuple(coef), number, False)
        coef = moved
        size = max(float(np.linalg.norm(total)), float(np.linalg.norm(eta)))
        allowed_dual = np.sqrt(n_columns) * tolerance + tolerance * float(np.linalg.norm(gamma))
        if primal <= np.sqrt(n) * tolerance + tolerance * size and dual <= allowed_dual:
            return PrintedSolution(tuple(coef), number, True)
    return PrintedSolution(tuple(coef), max_rounds, False)


def update_block(block: Floats, gram: Floats, coef: Floats, linear: Floats, weights: Floats) -> Floats:
    """One party's update, Eq. (6-1): the b that minimises weights·|b| + linear'Xb + rho/2 ||Xb||^2.

    Parameters
    ----------
    gram : rho X'X
    coef : where to start
    linear : γ + rho (Σ_other X β - η)
    weights : λ α, one for each column
    """
    found, starts = coef.copy(), np.arange(coef.size + 1)
    curvatures = np.ascontiguousarray(np.diagonal(gram))
    solve_lasso(gram, -(block.T @ linear), weights, starts, curvatures, found, _INNER_TOLERANCE, MAX_SWEEPS)
    return found


def printed_bic(loss: float, df: int, n_subjects: float) -> float:
    """BIC(λ) = f + df log N, as Section 5 prints it: a mean against a sum, so that the sparsest model wins."""
    return float(loss + df * np.log(n_subjects))


def summed_bic(loss: float, df: int, n_subjects: float) -> float:
    """2 N f + df log N: the same with the log-likelihood of all subjects."""
    return float(2.0 * n_subjects * loss + df * np.log(n_subjects))
