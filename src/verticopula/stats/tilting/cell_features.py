"""What stands for a pooled cell in the first opening: a few bounded numbers from a public table.

An ordered column has a capped score, and where it has more than two values a second feature, high in the middle and low
at both ends, that sees what a copula cannot. A nominal column has the indicators of its cells: whatever the cell, one
of them is 1, so its squared length does not depend on how many cells there are. An empty value has score 0 and an
indicator of its own.

A record's squared length is at most the sum over columns of the largest squared length of a row of their tables:
by arithmetic, whoever the person is. There is no appended 1. Margins say the means, with less noise than a column
of ones, which would make every record longer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.stats.tilting.latent_scores import LatentScore
from verticopula.stats.tilting.pooling import PooledColumn
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING as TUNING

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CellFeatures:
    """A column's features.

    Attributes
    ----------
    table : (c, k) a row for every pooled cell; an ordered column's score is the first feature
    score : an ordered column's steps; None for a nominal column
    scale, offset : the first feature is scale * (score - offset)
    """

    table: Floats
    score: LatentScore | None
    scale: float = 0.0
    offset: float = 0.0

    @property
    def largest(self) -> float:
        """The largest squared length of a row."""
        return float(np.max(np.sum(self.table**2, axis=1), initial=0.0))


def make_features(column: PooledColumn, cap: float, *, centred: bool) -> CellFeatures:
    """A column's features, from its pooled margin.

    Parameters
    ----------
    cap : of a cell's mean latent
    centred : whether scores are shared with mean 0, and not with the least largest square
    """
    shares, filled = column.shares, column.n_filled
    if not column.ordered and filled > 2:
        return CellFeatures(math.sqrt(TUNING.nominal_weight) * np.eye(column.n_cells), None)
    values = shares[:filled] / max(float(shares[:filled].sum()), 1e-12)
    score = LatentScore.of(values, cap)
    middle = 0.5 * (float(score.scores.min()) + float(score.scores.max()))
    offset = 0.0 if centred or column.empty else middle
    half = max(float(np.max(np.abs(score.scores - offset))), 1e-9)
    squared = 0.0 if score.is_flat else 1.0 / (half * max(score.slope(), TUNING.weakest_slope))
    scale = math.sqrt(min(squared, TUNING.most_square / half**2))
    features = [np.append(scale * (score.scores - offset), np.zeros(column.n_cells - filled))]
    if filled > 2:
        features.append(
            math.sqrt(TUNING.shape_weight) * np.append(_middle_feature(values), np.zeros(column.n_cells - filled))
        )
    if column.empty:
        features.append(math.sqrt(TUNING.empty_weight) * np.append(-np.ones(filled), 1.0))
    return CellFeatures(np.column_stack(features), score, scale, offset)


def _middle_feature(values: Floats) -> Floats:
    """(c,) from -1 at the ends to 1 in the middle, in grades."""
    grade = np.cumsum(values) - 0.5 * values
    return np.asarray(np.cos(2.0 * math.pi * (grade - 0.5)))


def features_mean(features: CellFeatures, column: PooledColumn) -> Floats:
    """(k,) the mean of every feature by the released margin."""
    return np.asarray(column.shares @ features.table)
