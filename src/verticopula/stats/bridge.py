"""The bridge: covariances of functions of two latent normals to the latents' correlation, and back.

A column's grade or score is a function of its latent normal: a step function, or Phi for the grade of a continuous
column. S(r) = Cov(f(Z_a), g(Z_b)) grows with the latents' correlation r, so it can be inverted. There are two
evaluations of it:

- `bridge` integrates dS/dr, pair by pair. It holds for Phi and for every r; its cost is the product of the numbers
  of steps.
- `invert_series` adds up Mehler's series of every pair, sum_k a_k b_k r^k. Its cost does not depend on the numbers of
  steps, of which scores have hundreds; it is exact to rounding below |r| = 0.95 only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import ndtri

from verticopula.privacy.root_finding import newton_step

Floats = NDArray[np.float64]

STRONGEST = 0.999  # correlation that is ever estimated: of `invert_pairs`, and wherever one is bounded
STRONGEST_IN_SERIES = 0.98  # and `invert_series`, whose terms are too few beyond it
TERMS = 48
_STEPS = 60
_LAST_STEP = 1e-9  # step in r after which the next one makes no difference
_NO_STEP = 1e-9  # product of two functions' first coefficients
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)


# ---- pair by pair, by integration --------------------------------------------------------------


@dataclass(frozen=True)
class GradeShape:
    """How a column's grade or score depends on its latent: Phi for a continuous column's grade, or steps.

    Attributes
    ----------
    thresholds : (s,) latent values where a discrete column steps to its next cell; empty if continuous
    jumps : (s,) rise of the mid-grade or the score there
    """

    thresholds: Floats
    jumps: Floats

    @classmethod
    def from_grade_steps(cls, grades: Floats, jumps: Floats) -> GradeShape:
        """For steps at these grades of the latent."""
        return cls(ndtri(grades), jumps)


@njit(cache=True, nogil=True)
def _bridge_slope(angle: float, thresholds_a: Floats, jumps_a: Floats, thresholds_b: Floats, jumps_b: Floats) -> float:
    """dS/d(angle) at r = sin(angle), for S = 12 Cov(g_a(Z_a), g_b(Z_b)); empty = continuous.

    By Price's theorem dS/dr = 12 E[g_a' g_b'], where g' is a sum of point masses for a step
    function and the normal density for Phi. In the angle, the 1/cos of the bivariate density
    cancels, so the slope stays smooth up to r = 1.
    """
    r = math.sin(angle)
    c2 = math.cos(angle) ** 2
    total = 0.0
    if thresholds_a.size and thresholds_b.size:
        for i in range(thresholds_a.size):
            a = thresholds_a[i]
            for j in range(thresholds_b.size):
                b = thresholds_b[j]
                total += jumps_a[i] * jumps_b[j] * math.exp(-0.5 * (a * a + b * b - 2.0 * a * b * r) / c2)
        return 12.0 * total / (2.0 * math.pi)
    if thresholds_a.size or thresholds_b.size:
        thresholds, jumps = (thresholds_a, jumps_a) if thresholds_a.size else (thresholds_b, jumps_b)
        for i in range(thresholds.size):
            t = thresholds[i]
            # E[phi(Z_b) | Z_a = t] is the density of N(r t, 2 - r^2) at zero.
            total += jumps[i] * math.exp(-0.5 * t * t - 0.5 * (r * t) ** 2 / (2.0 - r * r))
        return 12.0 * total * math.sqrt(c2) / (2.0 * math.pi * math.sqrt(2.0 - r * r))
    return 12.0 * math.sqrt(c2) / (2.0 * math.pi * math.sqrt(4.0 - r * r))


@njit(cache=True, nogil=True)
def bridge(
    r: float,
    thresholds_a: Floats,
    jumps_a: Floats,
    thresholds_b: Floats,
    jumps_b: Floats,
    nodes: Floats,
    weights: Floats,
) -> float:
    """S(r): Spearman's rho (12 times the covariance of mid-grades) at latent correlation r."""
    angle = math.asin(r)
    total = 0.0
    for k in range(nodes.size):
        total += weights[k] * _bridge_slope(
            0.5 * angle * (nodes[k] + 1.0), thresholds_a, jumps_a, thresholds_b, jumps_b
        )
    return 0.5 * angle * total


@njit(cache=True, nogil=True)
def _invert_one(
    rho: float,
    thresholds_a: Floats,
    jumps_a: Floats,
    thresholds_b: Floats,
    jumps_b: Floats,
    nodes: Floats,
    weights: Floats,
) -> tuple[float, float]:
    """(r, dr/drho) with S(r) = rho, by safeguarded Newton in the angle; clipped at the strongest r."""
    if not thresholds_a.size and not thresholds_b.size:
        limited = min(max(rho, -STRONGEST), STRONGEST)
        return 2.0 * math.sin(math.pi * limited / 6.0), math.pi / 3.0 * math.cos(math.pi * limited / 6.0)
    low, high = -math.asin(STRONGEST), math.asin(STRONGEST)
    angle = 0.0
    slope = _bridge_slope(0.0, thresholds_a, jumps_a, thresholds_b, jumps_b)
    if slope <= 0.0:
        return 0.0, 0.0
    value = 0.0
    for _ in range(_STEPS):
        if value < rho:
            low = angle
        else:
            high = angle
        angle_next = newton_step(angle, value - rho, slope, low, high)[0]
        if abs(angle_next - angle) < 1e-10:
            angle = angle_next
            break
        angle = angle_next
        value = bridge(math.sin(angle), thresholds_a, jumps_a, thresholds_b, jumps_b, nodes, weights)
        slope = _bridge_slope(angle, thresholds_a, jumps_a, thresholds_b, jumps_b)
    # Near the ends the slope in r is the slope in the angle over its cosine; keep it finite.
    derivative = math.cos(angle) / max(slope, 1e-3)
    return math.sin(angle), derivative


def invert_pairs(rho: Floats, shapes: Sequence[GradeShape]) -> tuple[Floats, Floats]:
    """(q, q) latent correlations r at which functions have 12 times the covariances `rho`, and dr/drho.

    On the diagonal r is 1 and does not move.
    """
    starts = np.concatenate([[0], np.cumsum([shape.thresholds.size for shape in shapes], dtype=np.int64)])
    thresholds = np.concatenate([np.empty(0), *(shape.thresholds for shape in shapes)])
    jumps = np.concatenate([np.empty(0), *(shape.jumps for shape in shapes)])
    latent, slopes = np.eye(len(shapes)), np.zeros((len(shapes), len(shapes)))
    _invert_all(np.ascontiguousarray(rho), starts, thresholds, jumps, _NODES, _WEIGHTS, latent, slopes)
    return latent, slopes


@njit(cache=True, nogil=True)
def _invert_all(
    rho: Floats,
    starts: NDArray[np.int64],
    thresholds: Floats,
    jumps: Floats,
    nodes: Floats,
    weights: Floats,
    latent: Floats,
    slopes: Floats,
) -> None:
    """Fill `latent` and `slopes` off the diagonal; column j's steps begin at starts[j]."""
    for j in range(starts.size - 1):
        a, jumps_a = thresholds[starts[j] : starts[j + 1]], jumps[starts[j] : starts[j + 1]]
        for k in range(j):
            b, jumps_b = thresholds[starts[k] : starts[k + 1]], jumps[starts[k] : starts[k + 1]]
            latent[j, k], slopes[j, k] = _invert_one(rho[j, k], a, jumps_a, b, jumps_b, nodes, weights)
            latent[k, j], slopes[k, j] = latent[j, k], slopes[j, k]


# ---- all pairs at once, by a series --------------------------------------------------------------


def hermite_coefficients(thresholds: Floats, jumps: Floats, terms: int = TERMS) -> Floats:
    """(terms,) coefficients a_k = E[f He_k]/sqrt(k!), k = 1, 2, ..., of a step function f.

    For one that steps by d_i at t_i, a_k = sum_i d_i phi(t_i) He_{k-1}(t_i)/sqrt(k!).
    """
    coefficients = np.zeros(terms)
    weight = jumps * np.exp(-0.5 * thresholds**2) / math.sqrt(2.0 * math.pi)
    before, current = np.zeros_like(thresholds), np.ones_like(thresholds)  # He_k / sqrt(k!)
    for k in range(terms):
        coefficients[k] = float(weight @ current) / math.sqrt(k + 1.0)
        before, current = current, (thresholds * current - math.sqrt(k) * before) / math.sqrt(k + 1.0)
    return coefficients


def invert_series(coefficients: Sequence[Floats] | Floats, target: Floats) -> tuple[Floats, Floats]:
    """(q, q) latent correlations at which the functions have these covariances, and dr/dcovariance.

    At most STRONGEST_IN_SERIES. Pairs with a function that never steps get 0.
    """
    table = np.ascontiguousarray(coefficients, dtype=np.float64)
    latent, slopes = np.zeros(target.shape), np.zeros(target.shape)
    _invert_series(table, np.asarray(target, dtype=np.float64), latent, slopes)
    return latent, slopes


@njit(cache=True, nogil=True)
def _invert_series(table: Floats, target: Floats, latent: Floats, slopes: Floats) -> None:
    """Fill both for every pair with functions that step."""
    terms = np.empty(table.shape[1])
    for j in range(len(table)):
        for k in range(len(table)):
            if table[j, 0] * table[k, 0] <= _NO_STEP:
                continue
            for term in range(terms.size):
                terms[term] = table[j, term] * table[k, term]
            r, low, high = 0.0, -STRONGEST_IN_SERIES, STRONGEST_IN_SERIES
            for _ in range(_STEPS):
                value, slope = _sum_series(terms, r)
                if value < target[j, k]:
                    low = r
                else:
                    high = r
                before, r = r, newton_step(r, value - target[j, k], slope, low, high)[0]
                if abs(r - before) < _LAST_STEP:
                    break
            latent[j, k], slopes[j, k] = r, 1.0 / max(_sum_series(terms, r)[1], 1e-3)


@njit(cache=True, nogil=True)
def _sum_series(terms: Floats, r: float) -> tuple[float, float]:
    """One pair's covariance at a latent correlation, and its slope (Horner)."""
    value, slope = 0.0, 0.0
    for k in range(terms.size - 1, -1, -1):
        slope = slope * r + (k + 1) * terms[k]
        value = (value + terms[k]) * r
    return value, slope
