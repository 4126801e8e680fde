"""From a table's columns to the columns of a regression: indicators, groups, a common scale.

Conventions: n rows, q features (columns of the regression), G groups. A number is a group of one; the
indicators of an unordered column are one group, so that they are selected together. Solvers see features
with covariance 1 inside every group; coefficients go back to the scale of the data through `to_raw`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

FLAT = 1e-10  # a spread below this share of the size is rounding


@dataclass(frozen=True, repr=False)
class Features:
    """(n, q) numbers with their names and grouping. No repr: they may be raw, and must not end up in a log.

    Attributes
    ----------
    starts : (G + 1,) where each group begins, and the end
    names : (q,) `turnover`, or `naics2=23` for an indicator
    sources : (G,) the table's column behind each group
    """

    values: Floats
    starts: Ints
    names: tuple[str, ...]
    sources: tuple[str, ...]

    @classmethod
    def plain(cls, values: Floats, names: Sequence[str]) -> Features:
        """Every feature on its own."""
        return cls(values, np.arange(len(names) + 1), tuple(names), tuple(names))


def join_features(parts: Sequence[Features]) -> Features:
    """The parties' features side by side, as one design."""
    starts = [np.zeros(1, dtype=np.int64)]
    for part in parts:
        starts.append(starts[-1][-1] + part.starts[1:])
    return Features(
        np.column_stack([part.values for part in parts]),
        np.concatenate(starts),
        tuple(name for part in parts for name in part.names),
        tuple(source for part in parts for source in part.sources),
    )


@dataclass(frozen=True, repr=False)
class Standardised:
    """Features on the solvers' scale, and the way back.

    Attributes
    ----------
    columns : (n, q) with covariance 1 inside each group; not centred where no intercept is fitted
    centre : (q,) what was subtracted
    transforms : one (d, d) matrix T per group; columns = (values - centre) T
    factors : (G,) square root of each group's number of independent columns: its share of the penalty
    constant : (G,) True where a group has no variation, so that it cannot enter
    """

    columns: Floats
    starts: Ints
    centre: Floats
    transforms: tuple[Floats, ...]
    factors: Floats
    constant: Bools

    def to_raw(self, coef: Floats) -> Floats:
        """Coefficients (..., q) of `columns` as coefficients of the features."""
        raw = coef * self._scales
        for g in np.flatnonzero(np.diff(self.starts) > 1):
            first, last = self.starts[g], self.starts[g + 1]
            raw[..., first:last] = coef[..., first:last] @ self.transforms[g].T
        return raw

    @cached_property
    def _scales(self) -> Floats:
        """(q,) the transforms' diagonals: all there is to a group of one."""
        return np.concatenate([np.diagonal(t) for t in self.transforms]) if self.transforms else np.zeros(0)

    def apply(self, values: Floats) -> Floats:
        """Other rows on the same scale."""
        return _transform(values - self.centre, self.starts, self.transforms)

    def turn(self, scores: Floats) -> Floats:
        """Sums of the features, (..., q), as sums of `columns`."""
        return _transform(scores, self.starts, self.transforms)

    @property
    def sizes(self) -> Ints:
        """(G,) independent columns of each group: its degrees of freedom."""
        return np.round(self.factors**2).astype(np.int64)


def standardise(features: Features, *, centre: bool) -> Standardised:
    """Bring features to a common scale, so that one strength suits all of them.

    Parameters
    ----------
    centre : True where an intercept is fitted; without one, columns are scaled but not moved
    """
    values, starts = features.values, features.starts
    mean = values.mean(axis=0)
    transforms, factors, constant = [], [], []
    for first, last in pairwise(starts):
        part = values[:, first:last] - mean[first:last]
        size = np.sqrt(np.mean(values[:, first:last] ** 2, axis=0))
        transform, rank = _whiten(part, size)
        if rank == 0 and not centre and size.any():
            # Without an intercept a constant column is one; it needs a scale, not a spread.
            transform, rank = np.diag(np.where(size > 0.0, 1.0 / np.maximum(size, 1e-300), 0.0)), 1
        transforms.append(transform)
        factors.append(np.sqrt(max(rank, 1)))
        constant.append(rank == 0)
    shift = mean if centre else np.zeros_like(mean)
    columns = np.asfortranarray(_transform(values - shift, starts, transforms))
    return Standardised(columns, starts, shift, tuple(transforms), np.array(factors), np.array(constant, dtype=bool))


def _whiten(part: Floats, size: Floats) -> tuple[Floats, int]:
    """T with cov(part T) = 1 on as many columns as are independent, 0 on the others; and their number."""
    n, d = part.shape
    if d == 1:
        spread = float(np.sqrt(np.mean(part**2)))
        return (np.zeros((1, 1)), 0) if spread <= FLAT * size[0] else (np.full((1, 1), 1.0 / spread), 1)
    eigenvalues, vectors = np.linalg.eigh(part.T @ part / n)
    kept = eigenvalues > FLAT * max(float(np.max(size**2)), 1e-300)
    scale = np.where(kept, 1.0 / np.sqrt(np.where(kept, eigenvalues, 1.0)), 0.0)
    return vectors * scale, int(kept.sum())


def _transform(values: Floats, starts: Ints, transforms: Sequence[Floats]) -> Floats:
    found = np.empty_like(values)
    for first, last, transform in zip(starts[:-1], starts[1:], transforms, strict=True):
        found[:, first:last] = (
            values[:, first:last] * transform[0, 0] if last - first == 1 else values[:, first:last] @ transform
        )
    return found
