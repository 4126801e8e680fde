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

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from verticopula.privacy.root_finding import bisect
from verticopula.stats.bridge import STRONGEST

Floats = NDArray[np.float64]

_RAREST = 1e-6  # probabilities are floored here: a threshold at infinity helps nobody


@dataclass(frozen=True)
class NominalTuning:
    """Chosen constants of nominal columns' latents. All were chosen by hand, not tuned.

    Attributes
    ----------
    calibration_rows : normal draws in which thresholds are found
    damping : part of a step towards the thresholds that is taken
    longest_step : of a threshold; with both, steps reach any threshold, and end
    """

    calibration_rows: int = 40_000
    damping: float = 0.7
    longest_step: float = 0.5


NOMINAL_TUNING = NominalTuning()


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


@lru_cache(maxsize=8)
def _fixed_normals(columns: int) -> Floats:
    """The same standard normal rows every time: calibration must not depend on luck."""
    return np.random.default_rng(columns).standard_normal((NOMINAL_TUNING.calibration_rows, columns))


def match_pair(loadings: Floats, covariance: Floats, probabilities: tuple[Floats, Floats]) -> Floats:
    """Correlations of two nominal columns' latents that give the observed association its size.

    `loadings` (C_a, C_b) come from the first-order map, which exaggerates: the largest of several
    margins follows the latents more closely than one indicator follows its own. They are scaled by the
    factor at which the implied covariance of the two columns' indicators has the size of `covariance`
    (C_a, C_b), found by bisection on a fixed sample; no direction may exceed a correlation of `STRONGEST`.
    """
    centred = covariance - covariance.mean(axis=0) - covariance.mean(axis=1)[:, None] + covariance.mean()
    size = float(np.sum(centred**2))
    left, values, right = np.linalg.svd(loadings, full_matrices=False)
    if size == 0.0 or values[0] == 0.0:
        return loadings
    first, second = loadings.shape
    normals = _fixed_normals(first + second)
    chosen = np.argmax(normals[:, :first] - solve_thresholds(probabilities[0]), axis=1)
    thresholds = solve_thresholds(probabilities[1])

    def too_strong(factor: float) -> bool:
        strengths = np.minimum(factor * values, STRONGEST)
        scales = np.sqrt(1.0 - strengths**2)
        own = normals[:, first:] + (normals[:, first:] @ right.T * (scales - 1.0)) @ right
        other = np.argmax(normals[:, :first] @ ((left * strengths) @ right) + own - thresholds, axis=1)
        table = np.bincount(chosen * second + other, minlength=first * second).reshape(first, second) / chosen.size
        implied = table - np.outer(table.sum(axis=1), table.sum(axis=0))
        return float(np.sum(implied * centred)) > size

    low, high = (0.0, 1.0) if too_strong(1.0) else (1.0, 4.0)
    factor = bisect(lambda factor: not too_strong(factor), low, high, steps=12)
    return np.asarray((left * np.minimum(factor * values, STRONGEST)) @ right)


def thresholds_for(probabilities: Floats, correlation: Floats) -> Floats:
    """Thresholds for latents that a repair has made dependent, to about a tenth of a percent.

    `correlation` (C, C) is the column's own block. Without dependence the exact solution is returned.
    """
    thresholds = solve_thresholds(probabilities)
    if np.max(np.abs(correlation - np.eye(probabilities.size))) < 1e-3:
        return thresholds
    latent = _fixed_normals(probabilities.size) @ np.linalg.cholesky(correlation).T
    target = np.maximum(probabilities, _RAREST) / np.sum(np.maximum(probabilities, _RAREST))
    thresholds = move_thresholds(thresholds, latent, target, tolerance=2e-4, steps=30)
    return np.asarray(thresholds - thresholds.mean())


def move_thresholds(thresholds: Floats, latents: Floats, shares: Floats, *, tolerance: float, steps: int) -> Floats:
    """Thresholds under which the categories of these latents have the shares, from those given.

    Parameters
    ----------
    thresholds : (C,) to start from
    latents : (n, C)
    shares : (C,) of the categories
    tolerance : on a share
    steps : at most; Newton's, damped and bounded, because shares of finitely many latents are no smooth function
    """
    tuning = NOMINAL_TUNING
    for _ in range(steps):
        miss = np.bincount(choose_category(latents, thresholds), minlength=shares.size) / latents.shape[0] - shares
        if np.max(np.abs(miss)) < tolerance:
            break
        step = np.linalg.lstsq(boundary_matrix(thresholds), miss, rcond=1e-12)[0]
        thresholds = thresholds + np.clip(tuning.damping * step, -tuning.longest_step, tuning.longest_step)
    return thresholds


def choose_category(latent: Floats, thresholds: Floats) -> NDArray[np.int64]:
    """Category codes from (n, C) latents."""
    return np.asarray(np.argmax(latent - thresholds, axis=1), dtype=np.int64)
