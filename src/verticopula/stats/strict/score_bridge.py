"""Correlations of scores to correlations of latents, all pairs at once.

For step functions f and g of standard normals with correlation r, Cov(f, g) = sum_k a_k b_k r^k, k = 1, 2, ...
(Mehler), where a_k = E[f He_k]/sqrt(k!) and, for a function that steps by d_i at t_i,
a_k = sum_i d_i phi(t_i) He_{k-1}(t_i)/sqrt(k!). The sum is cut off where it no longer matters below |r| = 0.95.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TERMS = 48
STRONGEST = 0.98
_STEPS = 60


def expand(thresholds: Floats, jumps: Floats, terms: int = TERMS) -> Floats:
    """(terms,) coefficients a_1, a_2, ... of a step function."""
    coefficients = np.zeros(terms)
    weight = jumps * np.exp(-0.5 * thresholds**2) / math.sqrt(2.0 * math.pi)
    before, current = np.zeros_like(thresholds), np.ones_like(thresholds)  # He_k / sqrt(k!)
    for k in range(terms):
        coefficients[k] = float(weight @ current) / math.sqrt(k + 1.0)
        before, current = current, (thresholds * current - math.sqrt(k) * before) / math.sqrt(k + 1.0)
    return coefficients


def covariances(coefficients: Sequence[Floats] | Floats, r: Floats) -> tuple[Floats, Floats]:
    """(q, q) covariances of the scores at latent correlations r, and their slopes in r."""
    table = np.asarray(coefficients)
    value, slope = np.zeros_like(r), np.zeros_like(r)
    for k in range(table.shape[1] - 1, -1, -1):  # Horner, for sum_k c_k r^(k+1)
        c = np.outer(table[:, k], table[:, k])
        slope = slope * r + (k + 1) * c
        value = (value + c) * r
    return value, slope


def invert(coefficients: Sequence[Floats] | Floats, target: Floats) -> tuple[Floats, Floats]:
    """(q, q) latent correlations at which the scores have these covariances, and dr/dcovariance.

    By bisection and Newton's method together; at most STRONGEST. Pairs with a function that never steps get 0.
    """
    table = np.asarray(coefficients)
    alive = np.outer(table[:, 0], table[:, 0]) > 1e-9
    low, high = np.full(target.shape, -STRONGEST), np.full(target.shape, STRONGEST)
    r = np.zeros_like(target)
    for _ in range(_STEPS):
        value, slope = covariances(table, r)
        miss = target - value
        low, high = np.where(miss > 0.0, r, low), np.where(miss > 0.0, high, r)
        step = r + miss / np.where(np.abs(slope) > 1e-9, slope, np.inf)
        updated = np.where((step > low) & (step < high), step, 0.5 * (low + high))
        moved = float(np.max(np.abs(updated - r)[alive], initial=0.0))
        r = updated
        if moved < 1e-9:
            break
    slope = covariances(table, r)[1]
    return np.where(alive, r, 0.0), np.where(alive, 1.0 / np.maximum(slope, 1e-3), 0.0)
