"""Nominal columns: one latent per category, the largest margin over its threshold wins.

A column with C categories has C latents that are independent of each other, and its value is
argmax_c (Z_c - t_c), with thresholds t_c that give every category its probability. Nothing here
uses the order of the categories. Only differences between the latents matter.

Two facts make the other columns' correlations with these latents computable. With p(t) the
category probabilities, D = -dp/dt is a symmetric matrix of non-negative boundary densities off
the diagonal (times -1) and zero row sums; and for any other latent X that correlates with Z_c by
b_c, Cov(1{category = c}, h(X)) = (D b)_c E[h'(X)] + higher orders (Price's theorem).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

Floats = NDArray[np.float64]

_RAREST = 1e-6  # probabilities are floored here: a threshold at infinity helps nobody


@lru_cache(maxsize=1)
def _quadrature() -> tuple[Floats, Floats]:
    """Nodes and weights for integrals over the winning margin, exact to about 1e-12."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    return 10.0 * nodes, 10.0 * weights


def category_probabilities(thresholds: Floats) -> Floats:
    """P(argmax_c (Z_c - t_c) = c) for independent standard normal Z."""
    nodes, weights = _quadrature()
    shift = float(np.min(thresholds))  # only differences matter; keep the nodes where the mass is
    below = ndtr(nodes[:, None] + thresholds - shift)
    density = np.exp(-0.5 * (nodes[:, None] + thresholds - shift) ** 2) / np.sqrt(2.0 * np.pi)
    others = np.exp(np.sum(np.log(np.maximum(below, 1e-300)), axis=1)[:, None] - np.log(np.maximum(below, 1e-300)))
    return np.asarray(weights @ (density * others))


def boundary_matrix(thresholds: Floats) -> Floats:
    """D = -dp/dt, symmetric with zero row sums."""
    nodes, weights = _quadrature()
    shift = float(np.min(thresholds))
    below = np.log(np.maximum(ndtr(nodes[:, None] + thresholds - shift), 1e-300))
    density = np.exp(-0.5 * (nodes[:, None] + thresholds - shift) ** 2) / np.sqrt(2.0 * np.pi)
    ratio = density * np.exp(-below)
    everyone = weights * np.exp(np.sum(below, axis=1))
    between = -np.asarray((ratio * everyone[:, None]).T @ ratio)
    np.fill_diagonal(between, 0.0)
    np.fill_diagonal(between, -between.sum(axis=1))
    return between


def solve_thresholds(probabilities: Floats) -> Floats:
    """Thresholds under which every category has its probability (mean zero)."""
    target = np.maximum(probabilities, _RAREST)
    target = target / target.sum()
    thresholds = -ndtri(target)
    for _ in range(100):
        miss = category_probabilities(thresholds) - target
        if np.max(np.abs(miss)) < 1e-11:
            break
        # dp/dt = -D is singular along (1, ..., 1), where nothing changes: least squares.
        step = np.linalg.lstsq(boundary_matrix(thresholds), miss, rcond=1e-12)[0]
        thresholds = thresholds + np.clip(step, -1.0, 1.0)
    return np.asarray(thresholds - thresholds.mean())


def latent_from_indicator(probabilities: Floats) -> Floats:
    """(C, C) matrix A with b = A r.

    `r_c` is the latent correlation of another column with the indicator of category c, taken as a
    binary column of its own; `b_c` is that column's correlation with the latent Z_c. The binary
    bridge undoes the curvature of each indicator, and to first order
    (D b)_c = phi(threshold of the indicator) r_c; b is the solution with mean zero.
    """
    floored = np.clip(probabilities, _RAREST, 1.0 - _RAREST)
    slope = np.exp(-0.5 * ndtri(floored) ** 2) / np.sqrt(2.0 * np.pi)
    return np.asarray(np.linalg.pinv(boundary_matrix(solve_thresholds(probabilities)), rcond=1e-10) * slope[None, :])


def choose_category(latent: Floats, probabilities: Floats) -> NDArray[np.int64]:
    """Category codes from (n, C) latents."""
    return np.asarray(np.argmax(latent - solve_thresholds(probabilities), axis=1), dtype=np.int64)
