"""Columns without a table are drawn once, given the others: as if all columns had been swept through."""

from __future__ import annotations

import numpy as np

from verticopula.stats.tilting.moving_columns import MovingColumns, sweep_rows
from verticopula.stats.tilting.pooling import PooledColumn
from verticopula.stats.tilting.tilted_model import TiltedCopula, start_rows

N_COLUMNS, N_ROWS, SWEEPS = 30, 20_000, 25
SHARES = np.array([0.2, 0.3, 0.5])


def make_model(tables: dict[tuple[int, int], np.ndarray]) -> TiltedCopula:
    """Ordered columns, one without a latent and one with empty values, in one factor."""
    columns = [PooledColumn(np.arange(3), SHARES, True, j == 5) for j in range(N_COLUMNS)]
    latent_of = np.where(np.arange(N_COLUMNS) == 7, -1, np.arange(N_COLUMNS) - (np.arange(N_COLUMNS) > 7))
    correlation = np.full((N_COLUMNS - 1, N_COLUMNS - 1), 0.5) + 0.5 * np.eye(N_COLUMNS - 1)
    return TiltedCopula(tuple(columns), latent_of, correlation, (np.zeros(3),) * N_COLUMNS, tables)


def covariances(y: np.ndarray) -> np.ndarray:
    return np.cov(y.T.astype(np.float64))


def test_the_others_are_distributed_as_if_all_were_swept() -> None:
    theta = np.array([[2.0, 0.0, -2.0], [0.0, 0.5, 0.0], [-2.0, 0.0, 1.0]])
    model = make_model({(3, 12): theta, (3, 20): -theta})
    narrow, rng = start_rows(model, N_ROWS, np.random.default_rng(0)), np.random.default_rng(1)
    assert MovingColumns.of(model).columns.tolist() == [3, 12, 20]
    sweep_rows(model, narrow, SWEEPS, rng)
    whole, compiled = start_rows(model, N_ROWS, np.random.default_rng(2)), model.compile()
    before = covariances(whole.y)
    for _ in range(SWEEPS):
        whole.sweep(compiled)
    error = 0.9 * np.sqrt(2.0 / N_ROWS)  # of a covariance of cells, at most
    assert np.abs(covariances(narrow.y) - covariances(whole.y)).max() < 5.5 * error
    assert np.abs(covariances(whole.y) - before)[3, 12] > 20.0 * error
    assert np.abs(covariances(whole.y) - before)[12, 0] > 3.0 * error  # tables move other columns, too
    for j in range(N_COLUMNS):
        expected, found = (np.bincount(rows.y[:, j], minlength=3) / N_ROWS for rows in (whole, narrow))
        assert np.abs(found - expected).max() < 5.0 * np.sqrt(0.5 / N_ROWS)
    latents = np.corrcoef(narrow.z.T.astype(np.float64)) - np.corrcoef(whole.z.T.astype(np.float64))
    assert np.abs(latents).max() < 5.5 * np.sqrt(2.0 / N_ROWS)


def test_all_columns_move_where_there_are_few_or_where_categories_shift_latents() -> None:
    model = make_model({(3, 12): np.zeros((3, 3))})
    few = TiltedCopula(model.columns[:7], model.latent_of[:7], model.correlation[:7, :7], model.tilts[:7], {})
    assert MovingColumns.of(few).whole
    shifted = TiltedCopula(
        model.columns, model.latent_of, model.correlation, model.tilts, model.tables, {7: np.zeros((3, 29))}
    )
    assert MovingColumns.of(shifted).whole
