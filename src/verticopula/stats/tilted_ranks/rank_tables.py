"""Tables of pairs of columns from noisy ranks: every subject's cell is read, and how often it is misread is known.

Each column's public cells are pooled (`stats/tilting/pooling.py`) until they are wide against the coins' noise. A noisy
grade is read as the cell whose own grades are nearest; a nominal column's as the most likely category of all its
indicators. C[i, k], the chance of reading k where i is true, follows from the known noise. The table of what
is read in two columns is on average C_a' T C_b, with T the true one, because coins are independent. Solving for T gives
it without bias, and its error is that of a sample of people.

Everything is computed from releases that the coordinator holds, and costs no budget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from verticopula.schema.columns import ColumnKey
from verticopula.stats.marginals import Marginal
from verticopula.stats.rank_release import RankRelease
from verticopula.stats.tilting.pooling import PooledColumn, pool_column
from verticopula.stats.tilting.selection import find_base
from verticopula.stats.tilting.table_prior import TableReading, fit_margins

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
_JUMP = 0.5  # of an indicator's mid-grade between subjects without and with the category
_LEAST_SHARE = 1e-12


@dataclass(frozen=True)
class RankTableTuning:
    """Chosen constants of tables from noisy ranks. All were chosen by hand, not tuned.

    Attributes
    ----------
    most_cells : pooled cells of a column
    rarest_share : a rarer cell is pooled
    least_width : of a pooled cell of an ordered column, in standard deviations of the noise on a grade
    pieces : of the whole mass, in which grades inside a wide cell are spread
    least_read : a column is left to the copula where some cell is read rightly less often
    most_weight : largest ratio by which a subject is weighted
    rakings : rounds of weights over all columns of the base
    """

    most_cells: int = 16
    rarest_share: float = 0.004
    least_width: float = 2.0
    pieces: int = 128
    least_read: float = 0.5
    most_weight: float = 5.0
    rakings: int = 10


RANK_TABLE_TUNING = RankTableTuning()


@dataclass(frozen=True)
class ReadColumn:
    """What noisy ranks say about a column's cells.

    Attributes
    ----------
    column : its pooled cells, with the margin of everybody
    cells : (N,) the pooled cell that is read, -1 for subjects without a value
    confusion : (c, c) chance of reading each cell, given the true one in the row; None where too much is misread
    """

    column: PooledColumn
    cells: Ints
    confusion: Floats | None


def read_columns(release: RankRelease, everybody: Mapping[ColumnKey, Marginal]) -> list[ReadColumn]:
    """Every column's cells, read from its noisy ranks.

    Parameters
    ----------
    release : noisy ranks, and margins of the subjects that were ranked
    everybody : margins of the population, in the same public cells
    """
    grades, noise = list(release.grades()), release.grade_noise()
    found = []
    for key, part in zip(release.layout.keys, release.layout.slices, strict=True):
        observed = release.margins[key]
        deviations = np.sqrt(np.maximum(noise[part], 1e-18))
        own = [grade + 0.5 for grade in grades[part]]
        single = part.stop - part.start == 1
        share = RANK_TABLE_TUNING.rarest_share
        if single:
            share = max(share, RANK_TABLE_TUNING.least_width * float(deviations[0]))
        pooled = pool_column(
            everybody[key].probabilities, ordered=single, least_share=share, most_cells=RANK_TABLE_TUNING.most_cells
        )
        if single:
            read, confusion = _read_ordered(observed, pooled.groups, own[0], float(deviations[0]))
        else:
            read, confusion = _read_nominal(observed.probabilities, pooled.groups, own, deviations)
        cells = np.full(release.n_subjects, -1, dtype=np.int64)
        cells[release.masks[part.start]] = read
        legible = bool(np.diag(confusion).min() >= RANK_TABLE_TUNING.least_read)
        found.append(ReadColumn(pooled, cells, confusion if legible and pooled.n_cells > 1 else None))
    return found


def _read_ordered(observed: Marginal, groups: Ints, grades: Floats, deviation: float) -> tuple[Ints, Floats]:
    """(n,) pooled cells of noisy grades, and their (c, c) confusion."""
    shares, pieces_of = _pieces(observed)
    group = groups[pieces_of]
    middles = np.cumsum(shares) - 0.5 * shares
    last = np.flatnonzero(np.diff(group))
    cuts = 0.5 * (middles[last] + middles[last + 1])
    below = ndtr((cuts - middles[:, None]) / deviation)
    chances = np.diff(below, axis=1, prepend=0.0, append=1.0)
    n_cells = int(groups.max()) + 1
    weighted = np.maximum(shares, _LEAST_SHARE)
    total = np.bincount(group, weights=weighted, minlength=n_cells)
    confusion = np.zeros((n_cells, n_cells))
    np.add.at(confusion, group, chances * weighted[:, None])
    return np.searchsorted(cuts, grades).astype(np.int64), confusion / total[:, None]


def _pieces(margin: Marginal) -> tuple[Floats, Ints]:
    """Shares of pieces of equal values, and the public cell of each: cells of many values are cut up."""
    p = np.maximum(margin.probabilities, 0.0)
    widths = margin.values_per_cell()
    parts = np.clip(np.ceil(RANK_TABLE_TUNING.pieces * p), 1.0, widths).astype(np.int64)
    shares = np.repeat(p / parts, parts)
    return shares / shares.sum(), np.repeat(np.arange(p.size), parts)


def _read_nominal(p: Floats, groups: Ints, grades: Sequence[Floats], deviations: Floats) -> tuple[Ints, Floats]:
    """(n,) pooled cells from the noisy grades of all indicators, and their (c, c) confusion."""
    p = np.maximum(p, _LEAST_SHARE)
    middle = 0.75 - 0.5 * p  # half-way between the mid-grades without and with the category
    scores = np.column_stack([(g - m) * _JUMP / d**2 for g, m, d in zip(grades, middle, deviations, strict=True)])
    read = groups[np.argmax(scores + np.log(p), axis=1)]
    confusion = category_confusion(p, deviations)
    n_cells = int(groups.max()) + 1
    pool = np.eye(n_cells)[groups]
    return read.astype(np.int64), (pool.T * p) @ confusion @ pool / (pool.T @ p)[:, None]


def category_confusion(p: Floats, deviations: Floats) -> Floats:
    """(C, C) chance that each category is the most likely one, given the true one in the row.

    Category l's log likelihood ratio is normal around half its own variance (_JUMP/d_l)^2, above zero for the true
    category and below for others. All are independent, so the chance that l is the largest is one integral.

    Parameters
    ----------
    p : (C,) shares of the categories
    deviations : (C,) of the noise on each indicator's grade
    """
    spread = _JUMP / deviations
    low, high = np.log(p) - 0.5 * spread**2, np.log(p) + 0.5 * spread**2
    at = low[:, None] + spread[:, None] * _NODES  # (l, node): values of l's ratio where l is not the true category
    others = log_ndtr((at[:, :, None] - low) / spread)  # (l, node, m): that m's is smaller, where m is not true either
    true = log_ndtr((at[:, :, None] - high) / spread)
    own = np.arange(p.size)
    total = others.sum(axis=2) - others[own, :, own]
    chance = np.exp(total[:, :, None] - others + true)
    weights = _WEIGHTS / _WEIGHTS.sum()
    confusion = np.einsum("n,lnc->cl", weights, chance)
    np.fill_diagonal(confusion, 0.0)
    np.fill_diagonal(confusion, np.maximum(1.0 - confusion.sum(axis=1), 0.0))
    return np.asarray(confusion / confusion.sum(axis=1)[:, None])


def deconvolve(counts: Floats, squares: Floats, confusion_a: Floats, confusion_b: Floats) -> tuple[Floats, Floats]:
    """(shares, variances) of a pair's true table from what was read: T with C_a' T C_b = what was read.

    Parameters
    ----------
    counts, squares : (c_a, c_b) weights, and squared weights, of the subjects that were read there
    confusion_a, confusion_b : chance of reading each cell, given the true one in the row
    """
    total = float(counts.sum())
    left, right = np.linalg.inv(confusion_a), np.linalg.inv(confusion_b)
    shares = left.T @ (counts / total) @ right
    # Subjects are a sample: the variance of a weighted mean of left[k, i] right[l, j].
    noise = left.T**2 @ (squares / total**2) @ right**2 - shares**2 * float(squares.sum()) / total**2
    return shares, np.maximum(noise, 0.0)


def read_rank_tables(columns: Sequence[ReadColumn]) -> list[TableReading]:
    """What noisy ranks say about the table of every pair of columns that somebody has both of.

    Subjects with both columns are weighted so that the columns of the base, which everybody has, look as they do among
    everybody. Then tables are scaled to the margins of everybody. Both undo what missing at random did, as far as it
    went by the base, or by the two columns themselves.
    """
    weights = _PairWeights(columns)
    found = []
    for b, second in enumerate(columns):
        for a, first in enumerate(columns[:b]):
            if first.confusion is None or second.confusion is None:
                continue
            both, weight = weights.of(a, b)
            if not both.size:
                continue
            shape = first.column.n_cells, second.column.n_cells
            place = first.cells[both] * shape[1] + second.cells[both]
            counts, squares = (_sum_cells(place, values, shape) for values in (weight, weight**2))
            shares, noise = deconvolve(counts, squares, first.confusion, second.confusion)
            people = float(counts.sum()) ** 2 / float(squares.sum())
            scale = margin_scale(shares, first.column.shares, second.column.shares, people)
            found.append(_reading((a, b), shares * scale, noise * scale**2, people, columns))
    return found


def _sum_cells(place: Ints, values: Floats, shape: tuple[int, int]) -> Floats:
    return np.bincount(place, weights=values, minlength=shape[0] * shape[1]).astype(np.float64).reshape(shape)


def _reading(
    pair: tuple[int, int], shares: Floats, noise: Floats, people: float, columns: Sequence[ReadColumn]
) -> TableReading:
    """A reading whose noise is what the known error has beyond a sample of independent columns."""
    a, b = (columns[j].column.shares for j in pair)
    sampling = np.outer(a * (1.0 - a), b * (1.0 - b)) / people
    noise = np.maximum(noise, (0.5 / people) ** 2)
    deviation = np.sqrt(np.maximum(noise - sampling, (0.5 / people) ** 2))
    return TableReading(pair, shares, np.eye(a.size), np.eye(b.size), deviation, people, True)


def margin_scale(shares: Floats, rows: Floats, columns: Floats, people: float) -> Floats:
    """(c_a, c_b) factors of rows times factors of columns that bring a table to these margins.

    Parameters
    ----------
    shares : the table; cells below half a person count as that
    """
    start = np.maximum(shares, 0.5 / people)
    most = RANK_TABLE_TUNING.most_weight
    return np.clip(fit_margins(start, rows, columns) / start, 1.0 / most, most)


class _PairWeights:
    """Who has both columns, and what each of them counts; the same for all pairs that the same subjects have."""

    def __init__(self, columns: Sequence[ReadColumn]) -> None:
        self._seen = [column.cells >= 0 for column in columns]
        base = find_base(np.array([seen.mean() for seen in self._seen]))
        self._base = [column for column, own in zip(columns, base, strict=True) if own and column.confusion is not None]
        self._made: dict[bytes, tuple[Ints, Floats]] = {}

    def of(self, a: int, b: int) -> tuple[Ints, Floats]:
        both = self._seen[a] & self._seen[b]
        key = np.packbits(both).tobytes()
        if key not in self._made:
            rows = np.flatnonzero(both)
            self._made[key] = rows, rake(self._base, rows, both.size)
        return self._made[key]


def rake(base: Sequence[ReadColumn], rows: Ints, n_subjects: int) -> Floats:
    """(n,) weights of these subjects with which the base's columns are as among everybody.

    Columns in turn (raking): each cell's weight is multiplied by the ratio of its two shares.

    Parameters
    ----------
    base : columns that (all but) everybody has
    rows : the subjects
    """
    weights = np.ones(rows.size)
    if rows.size == n_subjects:
        return weights
    most = RANK_TABLE_TUNING.most_weight
    for _ in range(RANK_TABLE_TUNING.rakings if rows.size else 0):
        for column in base:
            cells, n_cells = column.cells[rows], column.column.n_cells
            whole = np.bincount(column.cells[column.cells >= 0], minlength=n_cells) / n_subjects
            here = np.bincount(cells[cells >= 0], weights=weights[cells >= 0], minlength=n_cells) / weights.sum()
            ratio = np.append(np.where(here > 0.0, whole / np.maximum(here, _LEAST_SHARE), 1.0), 1.0)
            weights = weights * ratio[cells]
        weights = np.clip(weights * rows.size / weights.sum(), 1.0 / most, most)
    return weights
