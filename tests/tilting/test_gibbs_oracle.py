"""Sweeps against naive loops and exact enumeration on tiny tables."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import multivariate_normal

from verticopula.stats.tilting.gibbs_kernel import normal_quantile
from verticopula.stats.tilting.pooling import PooledColumn
from verticopula.stats.tilting.table_prior import copula_table, latent_cuts, normal_rectangles
from verticopula.stats.tilting.tilted_model import TiltedCopula, calibrate_rows, start_rows


def cells_of(shares: list[float], *, ordered: bool, empty: bool = False) -> PooledColumn:
    return PooledColumn(np.arange(len(shares)), np.array(shares), ordered, empty)


def tiny(*, empty: bool = False) -> TiltedCopula:
    """Two ordered columns, one of them perhaps with empty values, and a nominal one; all three pairs are tilted."""
    rng = np.random.default_rng(0)
    columns = (
        cells_of([0.2, 0.5, 0.2, 0.1] if empty else [0.2, 0.5, 0.3], ordered=True, empty=empty),
        cells_of([0.6, 0.4], ordered=True),
        cells_of([0.5, 0.3, 0.2], ordered=False),
    )
    shapes = {(a, b): (columns[a].n_cells, columns[b].n_cells) for a, b in ((0, 1), (0, 2), (1, 2))}
    return TiltedCopula(
        columns,
        np.array([0, 1, -1]),
        np.array([[1.0, 0.6], [0.6, 1.0]]),
        tuple(rng.normal(0.0, 0.3, c.n_cells) for c in columns),
        {pair: rng.normal(0.0, 0.8, shape) for pair, shape in shapes.items()},
    )


def rectangle(cuts_a: np.ndarray, cuts_b: np.ndarray, r: float) -> np.ndarray:
    """Chances of rectangles by SciPy's bivariate normal, corner by corner."""
    normal = multivariate_normal(np.zeros(2), np.array([[1.0, r], [r, 1.0]]))
    corner = np.array([[normal.cdf(np.array([a, b])) for b in cuts_b] for a in cuts_a])
    return np.diff(np.diff(corner, axis=0), axis=1)


def enumerate_cells(model: TiltedCopula) -> np.ndarray:
    """p(x) of every row of cells, by its definition."""
    first, second, third = model.columns
    inside = rectangle(latent_cuts(first), latent_cuts(second), float(model.correlation[0, 1]))
    base = np.zeros((first.n_cells, second.n_cells))
    filled = first.n_filled
    base[:filled] = inside * first.shares[:filled].sum()
    if first.empty:
        base[filled] = first.shares[filled] * second.shares
    found = np.zeros((first.n_cells, second.n_cells, third.n_cells))
    for x in itertools.product(*(range(c.n_cells) for c in model.columns)):
        logarithm = sum(tilt[cell] for tilt, cell in zip(model.tilts, x, strict=True))
        logarithm += sum(theta[x[a], x[b]] for (a, b), theta in model.tables.items())
        found[x] = base[x[0], x[1]] * third.shares[x[2]] * np.exp(logarithm)
    return found / found.sum()


@pytest.mark.parametrize("empty", [False, True])
def test_long_chains_have_the_probabilities_of_the_model(empty: bool) -> None:
    model = tiny(empty=empty)
    exact = enumerate_cells(model)
    rows = start_rows(model, 20_000, np.random.default_rng(1), threads=2)
    compiled = model.compile()
    for _ in range(30):
        rows.sweep(compiled)
    counts, sweeps = np.zeros(exact.shape), 40
    for _ in range(sweeps):
        for _ in range(3):
            rows.sweep(compiled)
        np.add.at(counts, tuple(rows.y.T.astype(int)), 1.0)
    n = 20_000 * sweeps
    # Sweeps are correlated: count each three of them as one.
    error = np.sqrt(exact / (n / 3.0))
    assert np.max(np.abs(counts / n - exact) / error) < 5.0


def test_one_cell_is_drawn_by_its_conditional() -> None:
    """Column 2 of rows whose other columns are held: a naive loop over its cells."""
    model = tiny()
    n = 60_000
    rows = start_rows(model, n, np.random.default_rng(2))
    before = rows.y.astype(int).copy()
    rows.sweep(model.compile())
    after = rows.y.astype(int)
    for x, y in itertools.product(range(3), range(2)):
        # The last column is drawn last, given the new cells of the others.
        here = (after[:, 0] == x) & (after[:, 1] == y)
        weights = [
            model.columns[2].shares[v] * np.exp(model.tilts[2][v] + model.tables[0, 2][x, v] + model.tables[1, 2][y, v])
            for v in range(3)
        ]
        expected = np.array(weights) / sum(weights)
        found = np.bincount(after[here, 2], minlength=3) / here.sum()
        assert np.abs(found - expected).max() < 5.0 * np.sqrt(0.25 / here.sum())
    assert (before != after).any()


def test_latents_stay_in_their_cells() -> None:
    model = tiny(empty=True)
    rows = start_rows(model, 5_000, np.random.default_rng(3))
    for _ in range(5):
        rows.sweep(model.compile())
    cuts = latent_cuts(model.columns[0])
    filled = rows.y[:, 0] < 3
    found = np.searchsorted(cuts[1:-1], rows.z[filled, 0].astype(np.float64), side="right")
    assert np.mean(found == rows.y[filled, 0]) > 0.999  # single precision at a cut


def test_threads_do_not_change_rows() -> None:
    model = tiny()
    found = []
    for threads in (1, 2, 3):
        rows = start_rows(model, 10_000, np.random.default_rng(4), threads)
        for _ in range(3):
            rows.sweep(model.compile())
        calibrate_rows(model, rows, {pair: np.full(t.shape, 1.0 / t.size) for pair, t in model.tables.items()}, 1, 0.1)
        found.append((rows.y.copy(), rows.z.copy()))
    for y, z in found[1:]:
        np.testing.assert_array_equal(y, found[0][0])
        np.testing.assert_array_equal(z, found[0][1])


def test_settling_takes_sampling_error_out_of_tables_and_keeps_the_model() -> None:
    model = tiny()
    exact = enumerate_cells(model)
    wanted = {(0, 1): exact.sum(axis=2), (0, 2): exact.sum(axis=1), (1, 2): exact.sum(axis=0)}
    n, plain, settled, joint = 16_000, [], [], np.zeros(exact.shape)
    for seed in range(12):
        rows = start_rows(model, n, np.random.default_rng(seed))
        for _ in range(25):
            rows.sweep(model.compile())
        table = np.zeros((3, 2))
        np.add.at(table, (rows.y[:, 0], rows.y[:, 1]), 1.0 / n)
        plain.append(np.abs(table - wanted[0, 1]).sum())
        calibrate_rows(model, rows, wanted, 2, 1.0)
        table = np.zeros((3, 2))
        np.add.at(table, (rows.y[:, 0], rows.y[:, 1]), 1.0 / n)
        settled.append(np.abs(table - wanted[0, 1]).sum())
        np.add.at(joint, tuple(rows.y.T.astype(int)), 1.0 / (12 * n))
    assert np.mean(settled) < 0.35 * np.mean(plain)
    assert np.max(np.abs(joint - exact)) < 5.0 * np.sqrt(0.25 / (12 * n))


def test_normal_quantile_against_scipy() -> None:
    grades = np.concatenate([np.geomspace(1e-12, 0.5, 200), 1.0 - np.geomspace(1e-9, 0.5, 200)])
    found = np.array([normal_quantile(u) for u in grades])
    np.testing.assert_allclose(found, ndtri(grades), rtol=0.0, atol=2e-8)


@pytest.mark.parametrize("r", [-0.97, -0.3, 0.0, 0.5, 0.95])
def test_rectangles_against_scipy(r: float) -> None:
    cuts_a, cuts_b = np.array([-8.0, -1.0, 0.2, 8.0]), np.array([-8.0, 0.0, 1.5, 8.0])
    np.testing.assert_allclose(normal_rectangles(cuts_a, cuts_b, r), rectangle(cuts_a, cuts_b, r), atol=2e-6)


def test_the_copulas_table_has_its_margins() -> None:
    first, second = cells_of([0.1, 0.4, 0.3, 0.2], ordered=True, empty=True), cells_of([0.7, 0.3], ordered=True)
    table = copula_table(first, second, 0.7)
    np.testing.assert_allclose(table.sum(axis=1), first.shares, atol=1e-9)
    np.testing.assert_allclose(table.sum(axis=0), second.shares, atol=1e-9)
    np.testing.assert_allclose(table[3] / table[3].sum(), second.shares, atol=1e-6)  # empty: independent
