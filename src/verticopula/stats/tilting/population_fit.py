"""Copula and margins of everybody from the first opening, and how a study's budget is split."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from verticopula.stats.tilting.cell_features import CellFeatures
from verticopula.stats.tilting.copula_estimate import CopulaEstimate, estimate_copula
from verticopula.stats.tilting.openings import OpenedGram, OpenedTable
from verticopula.stats.tilting.pooling import PooledColumn
from verticopula.stats.tilting.selection import (
    BaseMoments,
    Selection,
    SelectionReading,
    correct_gram,
    correct_margins,
    correct_tables,
    fit_selection,
    match_variances,
)
from verticopula.stats.tilting.tilted_model import TiltedCopula, start_rows
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING as TUNING

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class _Listed(Protocol):
    @property
    def n_cells(self) -> int: ...


@dataclass(frozen=True)
class BudgetSplit:
    """mu of every release about a person; their squares add up to that of the study.

    Attributes
    ----------
    margins, gram, tables : margins, first and second opening; no tables where all columns have two cells of values
    selection : base features by presence; 0 where nothing is missing or nobody knows everybody
    """

    margins: float
    gram: float
    tables: float
    selection: float


def split_budget(mu: float, coded: Sequence[_Listed], *, corrected: bool) -> BudgetSplit:
    """The split of a study's mu, from what is public before anything is released.

    Parameters
    ----------
    corrected : whether base features by presence are released
    """
    tables_matter = any(c.n_cells > 2 for c in coded)
    fewness = min(1.0, TUNING.few_columns / len(coded))
    margins = math.sqrt(fewness) * (TUNING.margins_share if tables_matter else TUNING.copula_only_margins)
    tables = fewness * TUNING.tables_share if tables_matter else 0.0
    selection = TUNING.selection_share if corrected else 0.0
    left = 1.0 - selection
    gram = 1.0 - margins - tables
    return BudgetSplit(*(mu * math.sqrt(part) for part in (left * margins, left * gram, left * tables, selection)))


@dataclass(frozen=True)
class WholePopulation:
    """Everybody, as the first opening shows them.

    Attributes
    ----------
    columns : with margins of everybody
    gram : as if everybody were observed
    rows, weights : rows of the copula and how parties select among them; None where nothing is corrected
    """

    columns: tuple[PooledColumn, ...]
    copula: CopulaEstimate
    gram: OpenedGram
    owners: Ints
    rows: Ints | None = None
    weights: Floats | None = None
    selection: Selection | None = None

    def correct(self, tables: Sequence[OpenedTable]) -> tuple[OpenedTable, ...]:
        """Tables of everybody from opened ones."""
        if self.rows is None or self.weights is None:
            return tuple(tables)
        return correct_tables(tables, self.owners, self.rows, self.weights)


def fit_population(
    gram: OpenedGram,
    features: Sequence[CellFeatures],
    columns: Sequence[PooledColumn],
    owners: Ints,
    reading: SelectionReading | None,
    *,
    rng: np.random.Generator,
) -> WholePopulation:
    """Copula and margins of everybody; selection is fitted to rows of the base, once.

    Parameters
    ----------
    columns : with margins of the observed
    reading : base features by presence; None where nothing is to be corrected
    rng : public: the choice of tables depends on it
    """
    copula = estimate_copula(gram, features, columns, owners)
    if reading is None:
        return WholePopulation(tuple(columns), copula, gram, owners)
    rows = _draw(columns, copula, rng)
    selection = fit_selection(reading, features, rows)
    weights = selection.weights(features, rows)
    moments = BaseMoments.of(features, reading.base, rows, weights, reading.selecting)
    whole, means, squares = correct_gram(gram, features, columns, owners, reading, moments)
    corrected = correct_margins(columns, features, owners, reading.selecting, means)
    whole = match_variances(whole, features, corrected, owners, squares, means)
    copula = estimate_copula(whole, features, corrected, owners)
    rows = _draw(corrected, copula, rng)
    return WholePopulation(corrected, copula, whole, owners, rows, selection.weights(features, rows), selection)


def _draw(columns: Sequence[PooledColumn], copula: CopulaEstimate, rng: np.random.Generator) -> Ints:
    """(n, p) pooled cells of rows of the copula."""
    tilts = tuple(np.zeros(column.n_cells) for column in columns)
    model = TiltedCopula(tuple(columns), copula.latent_of, copula.correlation, tilts, {}, copula.shifts)
    return start_rows(model, TUNING.selection_rows, rng).y.astype(np.int64)
