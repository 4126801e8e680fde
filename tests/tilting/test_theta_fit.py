"""Theta against exact iterative proportional fitting on small log-linear models; tables that are believed."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.coded_studies import simulate_opening
from verticopula.privacy.gaussian_dp import mu_of
from verticopula.stats.tilting.copula_estimate import CopulaEstimate
from verticopula.stats.tilting.factor_structure import FactorStructure
from verticopula.stats.tilting.opening_plan import CodedColumn
from verticopula.stats.tilting.openings import OpenedTable
from verticopula.stats.tilting.pooling import PooledColumn
from verticopula.stats.tilting.table_prior import (
    ColumnSide,
    TableReading,
    fit_margins,
    posterior_table,
    read_deviation_variance,
)
from verticopula.stats.tilting.tilted_fit import (
    FitInputs,
    draw_rows,
    fit_tilted,
    gather_readings,
    refine_margins,
)

SHAPE = (3, 2, 4)
PAIRS = ((0, 1), (0, 2), (1, 2))
AXES = {(0, 1): 2, (0, 2): 1, (1, 2): 0}


def nominal(shares: np.ndarray) -> PooledColumn:
    return PooledColumn(np.arange(shares.size), shares, False, False)


def no_copula(p: int) -> CopulaEstimate:
    nothing = FactorStructure(np.zeros((0, 1)), np.full(2, 1e-6), np.zeros((0, 0), dtype=np.int64))
    return CopulaEstimate(np.full(p, -1), np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, 0)), nothing)


def settled(columns: list[PooledColumn], tables: list[OpenedTable]) -> FitInputs:
    return FitInputs(tuple(columns), no_copula(len(columns)), tuple(tables), ())


def proportional_fit(tables: dict[tuple[int, int], np.ndarray]) -> np.ndarray:
    """The log-linear model of all pairs, by the textbook's loop over the whole joint table."""
    joint = np.full(SHAPE, 1.0 / np.prod(SHAPE))
    for _ in range(500):
        for pair, axis in AXES.items():
            joint *= np.expand_dims(tables[pair] / joint.sum(axis=axis), axis)
    return joint


@pytest.fixture(scope="module")
def joint() -> np.ndarray:
    rng = np.random.default_rng(0)
    drawn = np.exp(rng.normal(0.0, 0.7, SHAPE))
    return drawn / drawn.sum()


def test_rows_are_those_of_the_log_linear_model(joint: np.ndarray) -> None:
    n = 60_000
    tables = {pair: joint.sum(axis=axis) for pair, axis in AXES.items()}
    exact = proportional_fit(tables)
    opened = [OpenedTable(pair, table, 1e-6, 10**9) for pair, table in tables.items()]
    columns = [nominal(joint.sum(axis=tuple(k for k in range(3) if k != j))) for j in range(3)]
    fit = fit_tilted(settled(columns, opened), n, rng=np.random.default_rng(1))
    found = np.zeros(SHAPE)
    np.add.at(found, tuple(fit.rows.y.T.astype(int)), 1.0 / n)
    assert np.abs(found - exact).sum() / 2.0 < 0.4 * np.sqrt(joint.size / n) + 0.004
    for pair, axis in AXES.items():
        assert np.abs(found.sum(axis=axis) - tables[pair]).sum() / 2.0 < 0.003


def test_new_rows_have_the_believed_tables(joint: np.ndarray) -> None:
    tables = {pair: joint.sum(axis=axis) for pair, axis in AXES.items()}
    opened = [OpenedTable(pair, table, 1e-6, 10**9) for pair, table in tables.items()]
    columns = [nominal(joint.sum(axis=tuple(k for k in range(3) if k != j))) for j in range(3)]
    fit = fit_tilted(settled(columns, opened), 40_000, rng=np.random.default_rng(1))
    rows = draw_rows(fit.model, fit.targets, 7_000, rng=np.random.default_rng(2))
    found = np.zeros(SHAPE)
    np.add.at(found, tuple(rows.y.T.astype(int)), 1.0 / 7_000)
    for pair, axis in AXES.items():
        assert np.abs(found.sum(axis=axis) - tables[pair]).sum() / 2.0 < 0.4 * np.sqrt(tables[pair].size / 7_000)


def test_theta_is_that_of_proportional_fitting_up_to_margins(joint: np.ndarray) -> None:
    tables = {pair: joint.sum(axis=axis) for pair, axis in AXES.items()}
    exact = np.log(proportional_fit(tables))
    opened = [OpenedTable(pair, table, 1e-6, 10**9) for pair, table in tables.items()]
    columns = [nominal(joint.sum(axis=tuple(k for k in range(3) if k != j))) for j in range(3)]
    fit = fit_tilted(settled(columns, opened), 60_000, rng=np.random.default_rng(2))

    def interaction(x: np.ndarray) -> np.ndarray:
        return x - x.mean(axis=0) - x.mean(axis=1)[:, None] + x.mean()

    for pair, axis in AXES.items():
        wanted = interaction(exact.mean(axis=axis))
        assert np.abs(interaction(fit.model.tables[pair]) - wanted).max() < 0.12


def test_without_noise_the_opened_table_is_believed_and_with_much_noise_the_expected_one() -> None:
    rng = np.random.default_rng(3)
    rows, columns = rng.dirichlet(np.ones(5)), rng.dirichlet(np.ones(4))
    expected = np.outer(rows, columns)
    true = fit_margins(expected * np.exp(rng.normal(0.0, 0.5, expected.shape)), rows, columns)
    sides = ColumnSide.of(nominal(rows), np.eye(5)), ColumnSide.of(nominal(columns), np.eye(4))
    for deviation, nearer in ((1e-5, true), (0.3, expected)):
        opened = true + rng.normal(0.0, deviation, true.shape)
        reading = TableReading((0, 1), opened, np.eye(5), np.eye(4), deviation, 1e9, True)
        noise = reading.noise(rows, columns)
        spread = read_deviation_variance(reading, expected, sides, noise)
        found = posterior_table(reading, expected, sides, noise, spread.squared)
        assert np.abs(found - nearer).sum() / 2.0 < 0.01
        np.testing.assert_allclose(found.sum(axis=1), rows, atol=1e-8)
        np.testing.assert_allclose(found.sum(axis=0), columns, atol=1e-6)
        assert found.min() > 0.0


@pytest.mark.parametrize("deviation", [0.001, 0.004, 0.016])
def test_believing_is_better_than_both_the_opened_and_the_expected_table(deviation: float) -> None:
    rng = np.random.default_rng(4)
    rows, columns = np.full(8, 1 / 8), np.full(8, 1 / 8)
    expected = np.outer(rows, columns)
    ordered = PooledColumn(np.arange(8), rows, True, False)
    grade = (np.arange(8) + 0.5) / 8
    true = fit_margins(
        expected * (1.0 + 0.6 * np.outer(np.cos(np.pi * grade), np.cos(2 * np.pi * grade))), rows, columns
    )
    sides = ColumnSide.of(ordered, np.eye(8)), ColumnSide.of(ordered, np.eye(8))
    errors = []
    for _ in range(20):
        opened = true + rng.normal(0.0, deviation, true.shape)
        reading = TableReading((0, 1), opened, np.eye(8), np.eye(8), deviation, 1e9, True)
        noise = reading.noise(rows, columns)
        found = posterior_table(
            reading, expected, sides, noise, read_deviation_variance(reading, expected, sides, noise).squared
        )
        errors.append([np.abs(x - true).sum() for x in (found, opened, expected)])
    believed, as_opened, as_expected = np.mean(errors, axis=0)
    assert believed <= 0.95 * as_opened
    assert believed <= 1.1 * as_expected


def test_products_of_all_indicators_are_averaged_with_an_opened_table() -> None:
    shares = np.full((3, 3), 1 / 9)
    table = OpenedTable((0, 1), shares, 0.01, 1000)
    features = np.sqrt(2.0) * np.eye(3)
    products = TableReading((0, 1), 2.0 * (shares + 0.1), features, features, 0.02, 1000.0, False)
    found = gather_readings([table], [products])[0, 1]
    np.testing.assert_allclose(found.values, shares + 0.05)
    assert found.deviation == pytest.approx(0.01 / np.sqrt(2.0))


def test_margins_lean_on_tables_as_far_as_noise_says() -> None:
    column = nominal(np.array([0.5, 0.5]))
    other = nominal(np.array([0.5, 0.5]))
    table = OpenedTable((0, 1), np.array([[0.35, 0.35], [0.15, 0.15]]), 0.01 / np.sqrt(2.0), 1000)
    refined = refine_margins([column, other], [table], np.array([0.01, 0.01]))
    np.testing.assert_allclose(refined[0].shares, [0.6, 0.4])
    np.testing.assert_allclose(refined[1].shares, [0.5, 0.5])


def test_tables_that_contradict_each_other_leave_theta_finite() -> None:
    """Three binary columns, each pair said to be opposite: no distribution has that."""
    opposite = np.array([[0.0, 0.5], [0.5, 0.0]])
    opened = [OpenedTable(pair, opposite, 1e-5, 10**6) for pair in PAIRS]
    columns = [nominal(np.array([0.5, 0.5])) for _ in range(3)]
    fit = fit_tilted(settled(columns, opened), 5_000, rng=np.random.default_rng(5))
    assert all(np.isfinite(theta).all() for theta in fit.model.tables.values())
    assert np.isfinite(fit.misfit).all()
    assert fit.rows.y.max() <= 1


def test_products_without_noise_are_kept_with_the_margins() -> None:
    """Skewed binary columns whose scores are shared around the middle of their range."""
    rows, columns = np.array([0.9, 0.1]), np.array([0.7, 0.3])
    expected = np.outer(rows, columns)
    true = expected + 0.02 * np.array([[1.0, -1.0], [-1.0, 1.0]])
    score = np.array([[-1.0], [1.0]])
    sides = ColumnSide.of(nominal(rows), score), ColumnSide.of(nominal(columns), score)
    reading = TableReading((0, 1), score.T @ true @ score, score, score, 1e-5, 1e9, False)
    noise = reading.noise(rows, columns)
    found = posterior_table(
        reading, expected, sides, noise, read_deviation_variance(reading, expected, sides, noise).squared
    )
    np.testing.assert_allclose(found, true, atol=1e-4)


def test_binary_columns_that_no_copula_has_are_tilted_by_products() -> None:
    """One of three, each a third: no table is opened, and latent correlations of -0.98 three times are none."""
    rng = np.random.default_rng(6)
    n = 20_000
    codes = np.eye(3, dtype=np.int64)[rng.integers(0, 3, n)]
    coded = [CodedColumn(2, True, j % 2) for j in range(3)]
    opened = simulate_opening(codes, coded, mu_of(20.0, 1e-5), rng=rng)
    assert not opened.tables
    fit = opened.fit(n, rng=rng)
    together = [np.mean(fit.rows.y[:, a] * fit.rows.y[:, b]) for a, b in PAIRS]
    assert max(together) < 0.02
