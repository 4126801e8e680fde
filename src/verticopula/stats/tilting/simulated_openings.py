"""A study's openings in one process, with the bounds and the noise that secure openings have.

For tests, benchmarks and forecasts: codes of people go in, and what comes out is what the protocol would open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.stats.marginals import project_to_simplex
from verticopula.stats.strict.gaussian_margins import cell_sensitivity
from verticopula.stats.strict.latent_scores import choose_cap
from verticopula.stats.tilting.cell_features import CellFeatures, make_features
from verticopula.stats.tilting.copula_estimate import CopulaEstimate
from verticopula.stats.tilting.openings import OpenedGram, OpenedTable, gram_deviation, table_deviation
from verticopula.stats.tilting.pair_choice import PairEvidence, choose_pairs, read_products, weigh_pairs
from verticopula.stats.tilting.pooling import PooledColumn, pool_column
from verticopula.stats.tilting.population_fit import fit_population, split_budget
from verticopula.stats.tilting.row_weights import choose_row_weights
from verticopula.stats.tilting.selection import SelectionReading, base_features, find_base_columns, selection_deviation
from verticopula.stats.tilting.table_prior import TableReading
from verticopula.stats.tilting.tilted_fit import refine_margins
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
class SimulatedOpenings:
    """All that a study has released.

    Attributes
    ----------
    columns : pooled, with margins that the tables have contributed to
    """

    columns: tuple[PooledColumn, ...]
    features: tuple[CellFeatures, ...]
    gram: OpenedGram
    copula: CopulaEstimate
    readings: tuple[TableReading, ...]
    evidence: tuple[PairEvidence, ...]
    tables: tuple[OpenedTable, ...]


def simulate_margins(
    codes: Ints, coded: Sequence[CodedColumn], mu: float, rng: np.random.Generator
) -> tuple[list[Floats], Floats]:
    """Released margins of all columns, and the standard deviation of the noise on a share of each."""
    sensitivities = np.array([cell_sensitivity(c.n_cells + c.may_be_empty) for c in coded])
    # d_j^2 in proportion to s_j makes the sum of the columns' squared errors least.
    deviations = np.sqrt(sensitivities * sensitivities.sum()) / mu
    margins = []
    for j, column in enumerate(coded):
        size = column.n_cells + column.may_be_empty
        counts = np.bincount(codes[codes[:, j] >= 0, j], minlength=size).astype(np.float64)
        n = counts.sum()
        noisy = counts + rng.normal(0.0, deviations[j], size)
        if size == 2:
            noisy[1] = n - noisy[0]
        margins.append(project_to_simplex(noisy / n) if n > 0 else np.full(size, 1.0 / size))
    people = np.maximum((codes >= 0).sum(axis=0), 1)
    return margins, deviations / people


def open_gram(
    pooled: Ints, features: Sequence[CellFeatures], owners: Ints, weights: Floats, mu: float, rng: np.random.Generator
) -> OpenedGram:
    """The first opening. `weights` (N, K) are 0 where a party does not know a person."""
    longest = np.array(
        [
            sum(f.largest for f, owner in zip(features, owners, strict=True) if owner == k)
            for k in range(weights.shape[1])
        ]
    )
    bound = float(np.max(weights**2 @ longest))
    records = np.hstack(
        [
            np.where(pooled[:, j] >= 0, weights[:, owners[j]], 0.0)[:, None] * f.table[np.maximum(pooled[:, j], 0)]
            for j, f in enumerate(features)
        ]
    )
    deviation = gram_deviation(bound, mu)
    noise = np.triu(rng.normal(0.0, deviation, (records.shape[1],) * 2), 1)
    products = records.T @ records + noise + noise.T
    np.fill_diagonal(products, np.diag(products) + rng.normal(0.0, math.sqrt(2.0) * deviation, records.shape[1]))
    totals = weights.T @ weights
    people = np.divide(totals**2, (weights**2).T @ weights**2, out=np.zeros_like(totals), where=totals > 0.0)
    return OpenedGram(products, deviation, totals, people)


def open_tables(
    pooled: Ints,
    columns: Sequence[PooledColumn],
    pairs: Sequence[tuple[int, int]],
    mu: float,
    rng: np.random.Generator,
) -> tuple[OpenedTable, ...]:
    """The second opening."""
    deviation = table_deviation(len(pairs), mu) if pairs else 0.0
    tables = []
    for a, b in pairs:
        both = (pooled[:, a] >= 0) & (pooled[:, b] >= 0)
        shape, n = (columns[a].n_cells, columns[b].n_cells), int(both.sum())
        counts = np.zeros(shape)
        np.add.at(counts, (pooled[both, a], pooled[both, b]), 1.0)
        shares = (counts + rng.normal(0.0, deviation, shape)) / max(n, 1)
        tables.append(OpenedTable((a, b), shares, deviation / max(n, 1), n))
    return tuple(tables)


def pool_codes(codes: Ints, columns: Sequence[PooledColumn]) -> Ints:
    """(N, p) pooled cells of public cells; -1 stays."""
    return np.column_stack(
        [np.where(codes[:, j] >= 0, column.groups[np.maximum(codes[:, j], 0)], -1) for j, column in enumerate(columns)]
    )


def simulate_opening(
    codes: Ints,
    coded: Sequence[CodedColumn],
    mu: float,
    *,
    rng: np.random.Generator,
    response: int | None = None,
) -> SimulatedOpenings:
    """All openings of a study.

    Parameters
    ----------
    codes : (N, p) public cells; -1 where the party does not know the person
    mu : of everything about one person
    response : the column that models will be made for, if there is one
    """
    owners = np.array([column.party for column in coded], dtype=np.int64)
    known = np.column_stack([(codes[:, owners == k] >= 0).any(axis=1) for k in range(int(owners.max()) + 1)])
    base, selecting = find_base_columns(known, owners)
    split = split_budget(mu, coded, corrected=bool(selecting.any() and base.any()))
    margins, deviations = simulate_margins(codes, coded, split.margins, rng)
    columns = [
        pool_column(
            margin,
            ordered=column.ordered or column.n_cells <= 2,
            may_be_empty=column.may_be_empty,
            least_share=max(TUNING.rarest_share, TUNING.empty_deviations * deviation),
            most_cells=TUNING.most_cells,
        )
        for margin, column, deviation in zip(margins, coded, deviations, strict=True)
    ]
    pooled = pool_codes(codes, columns)
    cap = choose_cap(split.gram, len(codes), len(coded))
    features = [make_features(column, cap, centred=bool(selecting.any())) for column in columns]
    longest = np.array(
        [sum(f.largest for f, o in zip(features, owners, strict=True) if o == k) for k in range(known.shape[1])]
    )
    weights = choose_row_weights(known, longest, np.bincount(owners), gram_deviation(1.0, split.gram))
    gram = open_gram(pooled, features, owners, weights, split.gram, rng)
    reading = (
        open_selection(pooled, features, base, selecting, known, split.selection, rng) if split.selection else None
    )
    population = fit_population(gram, features, columns, owners, reading, rng=rng)
    readings = read_products(population.gram, features, population.columns, owners)
    evidence = weigh_pairs(readings, population.columns, population.copula)
    people = (known.T.astype(np.float64) @ known)[np.ix_(owners, owners)]
    pairs: list[tuple[int, int]] = []
    if split.tables > 0.0:
        pairs = choose_pairs(evidence, population.columns, people, split.tables, TUNING.most_tables, response)
    tables = population.correct(open_tables(pooled, columns, pairs, split.tables, rng))
    return SimulatedOpenings(
        refine_margins(population.columns, tables, deviations),
        tuple(features),
        population.gram,
        population.copula,
        tuple(readings),
        tuple(evidence),
        tables,
    )


def open_selection(
    pooled: Ints,
    features: Sequence[CellFeatures],
    base: Bools,
    selecting: Bools,
    known: Bools,
    mu: float,
    rng: np.random.Generator,
) -> SelectionReading:
    """What base parties release about those whom each party knows."""
    deviation = selection_deviation(features, base, int(selecting.sum()), mu)
    rows = base_features(features, base, np.maximum(pooled, 0))
    counts = np.maximum(known.sum(axis=0), 1).astype(np.float64)
    means = np.zeros((known.shape[1], rows.shape[1]))
    for k in np.flatnonzero(selecting):
        means[k] = (rows[known[:, k]].sum(axis=0) + rng.normal(0.0, deviation, rows.shape[1])) / counts[k]
    return SelectionReading(base, selecting, means, deviation / counts)
