"""All pairs at once against one pair at a time; compiled loops over a table against the obvious ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from verticopula.stats.tilting.cell_features import make_features
from verticopula.stats.tilting.pair_scan import PairScan
from verticopula.stats.tilting.pooling import PooledColumn, pool_column
from verticopula.stats.tilting.table_kernels import (
    SERIES_TERMS,
    STRONGEST_IN_TABLES,
    count_marked,
    integrate_rectangles,
    mark_cells,
    sum_rectangles,
    write_series,
)
from verticopula.stats.tilting.table_prior import (
    ROUNDS_NEARBY,
    SideCache,
    TableReading,
    copula_table,
    fit_margins,
    read_deviation_variance,
)

N_ROWS = 700


def some_columns(rng: np.random.Generator) -> list[PooledColumn]:
    """Ordered and nominal ones, of two cells and of many, with empty values and without."""
    return [
        pool_column(
            rng.dirichlet(np.full(cells + empty, 3.0)),
            ordered=ordered,
            may_be_empty=empty,
            least_share=0.001,
            most_cells=16,
        )
        for cells, ordered, empty in ((2, True, False), (7, True, True), (16, True, False), (5, False, False))
    ]


def read_all(columns: list[PooledColumn], rng: np.random.Generator) -> list[TableReading]:
    features = [make_features(column, 1.5, centred=False) for column in columns]
    found = []
    for b in range(len(columns)):
        for a in range(b):
            left, right = features[a].table, features[b].table
            values = left.T @ np.outer(columns[a].shares, columns[b].shares) @ right
            values = values + rng.normal(0.0, 0.1, values.shape)
            found.append(TableReading((a, b), values, left, right, 0.05, 900.0, False))
    return found


@pytest.mark.parametrize("r", [0.0, 0.2, -0.69, 0.93])
def test_evidence_beyond_a_copula_is_that_of_single_pairs(r: float) -> None:
    rng = np.random.default_rng(0)
    columns = some_columns(rng)
    readings, sides = read_all(columns, rng), SideCache(columns)
    latent_of, correlation = np.array([0, 1, 2, -1]), np.full((3, 3), r) + (1.0 - r) * np.eye(3)
    squared, evidence = PairScan(readings, columns, sides).against_copula(latent_of, correlation)
    assert (squared > 0.0).any()
    for number, reading in enumerate(readings):
        a, b = reading.pair
        both = latent_of[a] >= 0 and latent_of[b] >= 0
        expected = copula_table(columns[a], columns[b], r if both else 0.0)
        values = reading.values.copy()
        if both:
            values[0, 0] = reading.left[:, 0] @ expected @ reading.right[:, 0]
        alone = TableReading((a, b), values, reading.left, reading.right, 0.05, 900.0, False)
        noise = alone.noise(columns[a].shares, columns[b].shares)
        found = read_deviation_variance(alone, expected, sides.of(alone), noise)
        assert squared[number] == found.squared
        assert evidence[number] == pytest.approx(found.evidence, rel=1e-9, abs=1e-9)


def test_evidence_against_rows_is_that_of_single_pairs() -> None:
    rng = np.random.default_rng(1)
    columns = some_columns(rng)
    readings, sides = read_all(columns, rng), SideCache(columns)
    y = np.column_stack([rng.choice(c.n_cells, N_ROWS, p=c.shares) for c in columns]).astype(np.uint8)
    evidence = PairScan(readings, columns, sides).against_rows(y)
    for number, reading in enumerate(readings):
        a, b = reading.pair
        table = np.zeros((columns[a].n_cells, columns[b].n_cells))
        np.add.at(table, (y[:, a], y[:, b]), 1.0)
        free = np.outer(columns[a].shares, columns[b].shares)
        expected = fit_margins(table + 0.5 * free * table.size, columns[a].shares, columns[b].shares, ROUNDS_NEARBY)
        noise = reading.noise(columns[a].shares, columns[b].shares, N_ROWS)
        found = read_deviation_variance(reading, expected, sides.of(reading), noise)
        assert evidence[number] == pytest.approx(found.evidence, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("n_rows", [1, 63, 64, 65, 700])
def test_marked_cells_are_counted(n_rows: int) -> None:
    rng = np.random.default_rng(2)
    y = np.column_stack([rng.integers(0, c, n_rows) for c in (2, 17, 5)]).astype(np.uint8)
    ends = np.array([0, 2, 19, 24])
    marked = np.zeros((24, -(-n_rows // 64)), dtype=np.uint64)
    mark_cells(y, ends, marked)
    for a, b in ((0, 1), (1, 2), (0, 2)):
        expected = np.zeros((ends[a + 1] - ends[a], ends[b + 1] - ends[b]))
        np.add.at(expected, (y[:, a], y[:, b]), 1.0)
        here, there = slice(*ends[a : a + 2]), slice(*ends[b : b + 2])
        counts = expected.sum(axis=1).astype(np.int64), expected.sum(axis=0).astype(np.int64)
        found = np.empty(expected.shape)
        count_marked(marked[here], marked[there], *counts, found)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("r", [-STRONGEST_IN_TABLES, -0.3, 0.01, 0.5, STRONGEST_IN_TABLES])
def test_series_and_integral_say_the_same_chances_of_rectangles(r: float) -> None:
    first, second = np.array([-8.0, -2.5, -0.1, 0.4, 3.0, 8.0]), np.array([-8.0, 0.2, 1.0, 8.0])
    terms = [np.empty((cuts.size - 1, SERIES_TERMS)) for cuts in (first, second)]
    for cuts, own in zip((first, second), terms, strict=True):
        write_series(cuts, own)
    by_series, by_integral = np.empty((5, 3)), np.empty((5, 3))
    sum_rectangles(*terms, r, by_series)
    integrate_rectangles(first, second, r, by_integral)
    np.testing.assert_allclose(by_series, by_integral, atol=1e-13)
    normal = multivariate_normal(cov=[[1.0, r], [r, 1.0]])
    corner = normal.cdf(np.array([0.4, 0.2]))
    assert by_series[:3, :1].sum() == pytest.approx(corner, abs=1e-6)


def test_proportional_fitting_stops_where_nothing_changes() -> None:
    rng = np.random.default_rng(3)
    rows, columns = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(4))
    start = rng.random((6, 4))
    slow = start.copy()
    for _ in range(200):
        slow *= (rows / slow.sum(axis=1))[:, None]
        slow *= columns / slow.sum(axis=0)
    np.testing.assert_allclose(fit_margins(start, rows, columns, 200), slow, rtol=1e-12)
    assert np.array_equal(fit_margins(start, rows, columns, 200), fit_margins(start, rows, columns, 100_000))
