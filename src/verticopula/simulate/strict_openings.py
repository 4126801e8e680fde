"""A strict study's openings in one process, with the bounds and the noise that secure openings have.

Codes of people go in, and what comes out is what the protocol would open.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.stats.tilting.opening_plan import OpeningPlan
from verticopula.stats.tilting.openings import OpenedGram, OpenedTable, count_noise, gram_deviation
from verticopula.stats.tilting.pooling import PooledColumn
from verticopula.stats.tilting.selection import SelectionReading, base_features, selection_noise
from verticopula.stats.tilting.study_fit import ChosenTables, choose_tables

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class SimulatedOpenings:
    """All that a study has released.

    Attributes
    ----------
    plan : what was opened
    chosen : what the first opening says
    tables : of the second opening, as opened
    """

    plan: OpeningPlan
    chosen: ChosenTables
    tables: tuple[OpenedTable, ...]


def simulate_openings(
    plan: OpeningPlan, codes: Ints, rng: np.random.Generator, response: int | None = None
) -> SimulatedOpenings:
    """Both openings of a plan.

    Parameters
    ----------
    codes : (N, p) public cells; -1 where the party does not know the person
    response : the column that models will be made for, if there is one
    """
    pooled = pool_codes(codes, plan.columns)
    gram = simulate_gram(pooled, plan, rng)
    selection = simulate_selection(pooled, plan, rng) if plan.split.selection else None
    chosen = choose_tables(plan, gram, selection, rng, response)
    return SimulatedOpenings(plan, chosen, simulate_tables(pooled, plan.columns, chosen.pairs, plan.split.tables, rng))


def simulate_gram(pooled: Ints, plan: OpeningPlan, rng: np.random.Generator) -> OpenedGram:
    """The first opening.

    Parameters
    ----------
    pooled : (N, p) pooled cells, -1 where the party does not know the person
    """
    weights, mu = plan.weights[plan.pattern_of], plan.split.gram
    bound = float(np.max(plan.weights**2 @ plan.longest))
    records = np.hstack(
        [
            np.where(pooled[:, j] >= 0, weights[:, plan.owners[j]], 0.0)[:, None] * f.table[np.maximum(pooled[:, j], 0)]
            for j, f in enumerate(plan.features)
        ]
    )
    deviation = gram_deviation(bound, mu)
    noise = np.triu(rng.normal(0.0, deviation, (records.shape[1],) * 2), 1)
    matrix = records.T @ records + noise + noise.T
    np.fill_diagonal(matrix, np.diag(matrix) + rng.normal(0.0, math.sqrt(2.0) * deviation, records.shape[1]))
    return plan.gram(matrix, deviation)


def simulate_tables(
    pooled: Ints,
    columns: Sequence[PooledColumn],
    pairs: Sequence[tuple[int, int]],
    mu: float,
    rng: np.random.Generator,
) -> tuple[OpenedTable, ...]:
    """The second opening."""
    deviation = count_noise(len(pairs), mu) if pairs else 0.0
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


def simulate_selection(pooled: Ints, plan: OpeningPlan, rng: np.random.Generator) -> SelectionReading:
    """What base parties release about those whom each party knows."""
    known, selecting = plan.patterns[plan.pattern_of], plan.selecting
    deviation = selection_noise(plan.features, plan.base, int(selecting.sum()), plan.split.selection)
    rows = base_features(plan.features, plan.base, np.maximum(pooled, 0))
    counts = np.maximum(known.sum(axis=0), 1).astype(np.float64)
    means = np.zeros((known.shape[1], rows.shape[1]))
    for k in np.flatnonzero(selecting):
        means[k] = (rows[known[:, k]].sum(axis=0) + rng.normal(0.0, deviation, rows.shape[1])) / counts[k]
    return SelectionReading(plan.base, selecting, means, deviation / counts)
