"""The public plan of a tilted study's openings: a function of what is known before the first of them.

Who is known to whom, the columns' public cells, the released margins and the split of the budget go in. Pooled cells,
features, presence patterns and row weights come out. Protocol and simulation use the same functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.data.missingness import unique_masks
from verticopula.stats.tilting.cell_features import CellFeatures, make_features
from verticopula.stats.tilting.latent_scores import choose_cap
from verticopula.stats.tilting.openings import OpenedGram, gram_deviation
from verticopula.stats.tilting.pooling import PooledColumn, pool_column
from verticopula.stats.tilting.population_fit import BudgetSplit
from verticopula.stats.tilting.row_weights import choose_row_weights
from verticopula.stats.tilting.selection import find_base_columns
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING as TUNING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class CodedColumn:
    """What is public about a column before anything is released.

    Attributes
    ----------
    n_cells : public cells, an empty value not among them
    ordered : whether their order means something
    party : number of the party that has it
    may_be_empty : whether a person that the party knows may be without a value; its code is then `n_cells`
    """

    n_cells: int
    ordered: bool
    party: int
    may_be_empty: bool = False


@dataclass(frozen=True)
class OpeningPlan:
    """What both openings are made of; all of it is public.

    Attributes
    ----------
    columns : pooled, with the released margins of the observed
    deviations : (p,) standard deviation of the noise on the share of one of a column's public cells
    owners : (p,) number of a column's party
    cap : of scores
    features : what stands for every pooled cell in the first opening
    patterns : (P, K) presence patterns: whom of the parties know a person
    pattern_of : (N,) a person's pattern
    counts : (P,) people of every pattern
    weights : (P, K) of rows, 0 where a party does not know the pattern's people; the longest record has length 1
    base : (p,) whether a column is everybody's
    selecting : (K,) whether a party knows some people only
    split : mu of every release
    """

    columns: tuple[PooledColumn, ...]
    deviations: Floats
    owners: Ints
    cap: float
    features: tuple[CellFeatures, ...]
    patterns: Bools
    pattern_of: Ints
    counts: Ints
    weights: Floats
    base: Bools
    selecting: Bools
    split: BudgetSplit

    @property
    def n_parties(self) -> int:
        """K."""
        return int(self.patterns.shape[1])

    @property
    def longest(self) -> Floats:
        """(K,) the largest squared length of every party's features."""
        return party_lengths(self.features, self.owners, self.n_parties)

    @property
    def people(self) -> Floats:
        """(p, p) how many people have both columns."""
        common = (self.patterns * self.counts[:, None]).T.astype(np.float64) @ self.patterns
        return np.asarray(common[np.ix_(self.owners, self.owners)])

    def gram(self, matrix: Floats, deviation: float, weights: Floats | None = None) -> OpenedGram:
        """The first opening, with its public denominators.

        Parameters
        ----------
        matrix : (f, f) noisy sums over people of weighted products of features
        deviation : standard deviation of the noise off the diagonal
        weights : (P, K) that the rows had, where they are not exactly the plan's
        """
        u = self.weights if weights is None else weights
        totals = (u * self.counts[:, None]).T @ u
        squares = (u**2 * self.counts[:, None]).T @ u**2
        people = np.divide(totals**2, squares, out=np.zeros_like(totals), where=totals > 0.0)
        return OpenedGram(matrix, deviation, totals, people)


def party_lengths(features: Sequence[CellFeatures], owners: Ints, n_parties: int) -> Floats:
    """(K,) the largest squared length of every party's features."""
    return np.bincount(owners, weights=[f.largest for f in features], minlength=n_parties).astype(np.float64)


def drop_empty(margin: Floats, deviation: float) -> Floats:
    """A margin without empty values, its last cell, where these cannot be told from none."""
    if margin[-1] >= TUNING.no_empty_deviations * deviation and margin[-1] > 0.0:
        return margin
    values = np.maximum(margin[:-1], 0.0)
    total = float(values.sum())
    shares = values / total if total > 0.0 else np.full(values.size, 1.0 / values.size)
    return np.append(shares, 0.0)


def plan_openings(
    coded: Sequence[CodedColumn],
    known: Bools,
    split: BudgetSplit,
    margins: Sequence[Floats],
    deviations: Floats,
) -> OpeningPlan:
    """The plan of both openings.

    Parameters
    ----------
    coded : the columns
    known : (N, K) whom the parties know
    split : of the study's budget (`population_fit.split_budget`)
    margins : released shares of every column's public cells, an empty value's last where there may be one
    deviations : (p,) standard deviation of the noise on one of a column's shares
    """
    owners = np.array([column.party for column in coded], dtype=np.int64)
    base, selecting = find_base_columns(known, owners)
    columns = tuple(
        pool_column(
            drop_empty(margin, float(deviation)) if column.may_be_empty else margin,
            ordered=column.ordered or column.n_cells <= 2,
            may_be_empty=column.may_be_empty,
            least_share=max(TUNING.rarest_share, TUNING.empty_deviations * float(deviation)),
            most_cells=TUNING.most_cells,
        )
        for margin, column, deviation in zip(margins, coded, deviations, strict=True)
    )
    cap = choose_cap(split.gram, len(known), len(coded))
    features = tuple(make_features(column, cap, centred=bool(selecting.any())) for column in columns)
    patterns, pattern_of, counts = unique_masks(np.asarray(known, dtype=np.bool_))  # in a fixed order
    longest = party_lengths(features, owners, known.shape[1])
    widths = np.bincount(owners, minlength=known.shape[1])
    weights = choose_row_weights(patterns, counts, longest, widths, gram_deviation(1.0, split.gram))
    return OpeningPlan(
        columns,
        np.asarray(deviations, dtype=np.float64),
        owners,
        cap,
        features,
        patterns,
        pattern_of,
        counts,
        weights,
        base,
        selecting,
        split,
    )
