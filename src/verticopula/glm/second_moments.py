"""A gaussian regression from second moments: sums, squares and products of all columns, and no row.

Conventions: q features and the response, which is the last of q + 1 columns. Column j is x = centre_j + scale_j z,
where z has mean 0 and mean square 1 over all rows. Sums and products are those of z, one set for each fold of a
cross-validation, one alone without. Everything that a fit on some folds needs follows from their sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from verticopula.glm.central_path import CentralProblem
from verticopula.glm.central_solver import GramSolver, Point
from verticopula.glm.families import FAMILIES
from verticopula.glm.lasso import group_norms
from verticopula.glm.strength_path import DevianceScale, PathPoint

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_FLAT_VARIANCE = 1e-11  # a variance below this share of the mean square is rounding


@dataclass(frozen=True)
class SecondMoments:
    """Second moments of all features and the response, fold by fold.

    Attributes
    ----------
    counts : (F,) rows
    sums : (F, q + 1) of z
    products : (F, q + 1, q + 1) of z
    centre, scale : (q + 1,) from z to the data; a column that does not vary has scale 0
    starts : (G + 1,) where each group of features begins, and the end
    """

    counts: Ints
    sums: Floats
    products: Floats
    centre: Floats
    scale: Floats
    starts: Ints

    def problem(self, *, fit_intercept: bool, without: int | None = None) -> CentralProblem:
        """The regression on all folds but one."""
        kept = np.arange(self.counts.size) != (-1 if without is None else without)
        n_rows = int(self.counts[kept].sum())
        return _standardise(
            self.sums[kept].sum(axis=0) / n_rows,
            self.products[kept].sum(axis=0) / n_rows,
            n_rows,
            self,
            fit_intercept=fit_intercept,
        )

    def deviance(self, points: Sequence[PathPoint], fold: int) -> Floats:
        """The mean squared error of each point on one fold."""
        mean, second = self.sums[fold] / self.counts[fold], self.products[fold] / self.counts[fold]
        found = []
        for point in points:
            slopes = np.append(-point.coef, 1.0)
            start, along = float(slopes @ self.centre) - point.intercept, slopes * self.scale
            found.append(start**2 + 2.0 * start * float(along @ mean) + float(along @ second @ along))
        return np.array(found)

    @property
    def response_variance(self) -> float:
        """Of the response over all rows."""
        return float(self.scale[-1] ** 2)


def _standardise(
    mean: Floats, second: Floats, n_rows: int, moments: SecondMoments, *, fit_intercept: bool
) -> CentralProblem:
    """The problem on columns with covariance 1 inside every group, as `feature_design.standardise` makes them.

    `mean` and `second` are of z. Columns u = x / scale are those of z, moved by centre / scale.
    """
    starts, q = moments.starts, mean.size - 1
    scale = np.where(moments.scale > 0.0, moments.scale, 1.0)
    offset = moments.centre / scale
    covariance = second - np.outer(mean, mean)
    level = offset + mean
    about = covariance if fit_intercept else covariance + np.outer(level, level)
    turn, factors = np.zeros((q, q)), np.ones(starts.size - 1)
    for g, (first, last) in enumerate(pairwise(starts)):
        part = slice(first, last)
        turn[part, part], rank = _whiten(covariance[part, part], np.diagonal(second)[part])
        if rank == 0 and not fit_intercept and level[part].any():
            turn[part, part], rank = np.diag(_inverse(np.abs(level[part]))), 1
        factors[g] = np.sqrt(max(rank, 1))
    unit = scale[-1]
    linear = unit * (turn.T @ about[:-1, -1])
    intercept = moments.centre[-1] + unit * mean[-1] if fit_intercept else 0.0
    shift = level[:-1] if fit_intercept else np.zeros(q)

    def to_data(point: Point) -> tuple[Floats, float]:
        slopes = turn @ point.coef
        return slopes / scale[:-1], point.intercept - float(slopes @ shift)

    gaussian = FAMILIES["gaussian"]
    return CentralProblem(
        gaussian,
        GramSolver(turn.T @ about[:-1, :-1] @ turn, linear, float(unit**2 * about[-1, -1]), starts),
        Point(np.zeros(q), float(intercept)),
        float(np.max(group_norms(linear, starts) / factors, initial=0.0)),
        starts,
        factors,
        DevianceScale(gaussian, n_rows, 0.5 * float(unit**2 * covariance[-1, -1]), 0.0),
        to_data,
    )


def _whiten(covariance: Floats, square: Floats) -> tuple[Floats, int]:
    """T with T' cov T = 1 on as many columns as are independent, 0 on the others; and their number."""
    eigenvalues, vectors = np.linalg.eigh(covariance)
    kept = eigenvalues > _FLAT_VARIANCE * max(float(square.max(initial=0.0)), 1e-300)
    scale = np.where(kept, 1.0 / np.sqrt(np.where(kept, eigenvalues, 1.0)), 0.0)
    return vectors * scale, int(kept.sum())


def _inverse(size: Floats) -> Floats:
    return np.where(size > 0.0, 1.0 / np.maximum(size, 1e-300), 0.0)
