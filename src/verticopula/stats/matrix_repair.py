"""Repairs of symmetric matrices that noise has made indefinite.

`nearest_correlation` is the one repair to a correlation matrix. All repairs rest on `clip_eigenvalues`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SMALLEST_IN_ITERATIONS = 1e-3  # eigenvalue that keeps a matrix well conditioned between the steps of an iteration


@dataclass(frozen=True)
class Repair:
    """A proper correlation matrix and the largest change of an entry that it took."""

    correlation: Floats
    change: float
    smallest_eigenvalue_before: float


def nearest_correlation(matrix: Floats, *, floor: float = 1e-4, projections: int = 200) -> Repair:
    """Nearest correlation matrix with eigenvalues of at least about `floor` (Higham 2002).

    Alternating projections with Dykstra's correction onto the cone and onto the unit diagonal; a
    last step scales the diagonal to exactly one, which keeps the matrix positive definite.

    Parameters
    ----------
    projections : most of them. With 0 only the last step is made: eigenvalues are clipped once and the diagonal is
        scaled. That is a correlation matrix too, not the nearest one, at a fraction of the cost
    """
    symmetric = (matrix + matrix.T) / 2.0
    smallest = float(np.linalg.eigvalsh(symmetric)[0])
    if smallest >= floor and np.allclose(np.diag(symmetric), 1.0, atol=1e-12):
        return Repair(symmetric, 0.0, smallest)
    current = symmetric.copy()
    correction = np.zeros_like(current)
    for _ in range(projections):
        shifted = current - correction
        projected = clip_eigenvalues(shifted, floor)
        correction = projected - shifted
        current = projected.copy()
        np.fill_diagonal(current, 1.0)
        if np.max(np.abs(current - projected)) < 1e-9:
            break
    repaired = to_correlation(clip_eigenvalues(current, floor))
    repaired = (repaired + repaired.T) / 2.0
    np.fill_diagonal(repaired, 1.0)
    return Repair(repaired, float(np.max(np.abs(repaired - symmetric))), smallest)


def keep_definite(matrix: Floats) -> Floats:
    """A correlation matrix with eigenvalues of at least about a thousandth, for the next step of an iteration."""
    return nearest_correlation(matrix, floor=SMALLEST_IN_ITERATIONS, projections=0).correlation


def clip_eigenvalues(matrix: Floats, floor: float) -> Floats:
    """The nearest symmetric matrix (in the Frobenius norm) without eigenvalues below `floor`."""
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, floor)) @ vectors.T)


def clipped_root(matrix: Floats, floor: float) -> Floats:
    """A matrix R with R R' = `clip_eigenvalues(matrix, floor)`."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    return np.asarray(vectors * np.sqrt(np.maximum(values, floor)))


def to_correlation(covariance: Floats) -> Floats:
    """The covariance matrix scaled to unit diagonal."""
    scale = 1.0 / np.sqrt(np.diag(covariance))
    return np.asarray(covariance * np.outer(scale, scale))
