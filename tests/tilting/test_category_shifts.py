"""How categories shift the latents of ordered columns: against discriminant analysis, long chains and known truths."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from benchmarks.coded_studies import simulate_opening
from verticopula.privacy.gaussian_dp import mu_of
from verticopula.stats.tilting.category_shifts import shrink_together, solve_discriminants
from verticopula.stats.tilting.opening_plan import CodedColumn
from verticopula.stats.tilting.pooling import PooledColumn
from verticopula.stats.tilting.tilted_model import TiltedCopula, start_rows

SHARES = np.array([0.5, 0.3, 0.2])
CORRELATION = np.array([[1.0, 0.4], [0.4, 1.0]])
MEANS = np.array([[0.3, -0.2], [-0.1, 0.5], [0.0, 0.0]])
MEANS = 0.6 * (MEANS - SHARES @ MEANS)  # explains less than it may


def shifted_model() -> TiltedCopula:
    """Two ordered columns of four cells and a nominal one whose cells have these means of the latents."""
    columns = (
        *(PooledColumn(np.arange(4), np.full(4, 0.25), True, False) for _ in range(2)),
        PooledColumn(np.arange(3), SHARES, False, False),
    )
    tilts = tuple(np.zeros(column.n_cells) for column in columns)
    return TiltedCopula(columns, np.array([0, 1, -1]), CORRELATION, tilts, {}, {2: MEANS * SHARES[:, None]})


def test_one_nominal_column_is_linear_discriminant_analysis() -> None:
    model = shifted_model()
    solved = solve_discriminants(model.columns, model.correlation, model.shifts)
    within = CORRELATION - (MEANS * SHARES[:, None]).T @ MEANS
    np.testing.assert_allclose(solved.precision, np.linalg.inv(within), rtol=1e-9)
    # Between two cells only differences count.
    expected = MEANS @ np.linalg.inv(within)
    np.testing.assert_allclose(np.diff(solved.discriminants[2], axis=0), np.diff(expected, axis=0), atol=1e-9)
    offsets = -0.5 * np.sum(MEANS @ np.linalg.inv(within) * MEANS, axis=1)
    np.testing.assert_allclose(np.diff(solved.starts[2]), np.diff(offsets), atol=1e-9)


def test_rows_stay_where_the_shifts_say() -> None:
    model = shifted_model()
    n = 40_000
    rows = start_rows(model, n, np.random.default_rng(1))
    compiled = model.compile()
    total, sweeps = np.zeros((3, 2)), 10
    for sweep in range(2 * sweeps):
        rows.sweep(compiled)
        if sweep >= sweeps:
            total += [rows.z[rows.y[:, 2] == c].mean(axis=0) / sweeps for c in range(3)]
    shares = np.bincount(rows.y[:, 2], minlength=3) / n
    assert np.abs(shares - SHARES).max() < 5.0 * np.sqrt(0.25 / n)
    assert np.abs(total - MEANS).max() < 5.0 / np.sqrt(n * SHARES.min())


def test_explained_parts_are_bounded() -> None:
    """A nominal column that follows from the latents by far more than any can: precision stays positive definite."""
    model = shifted_model()
    solved = solve_discriminants(model.columns, model.correlation, {2: 30.0 * MEANS * SHARES[:, None]})
    assert np.linalg.eigvalsh(solved.precision)[0] > 0.0
    assert all(np.isfinite(own).all() for own in (*solved.discriminants.values(), *solved.starts.values()))


def test_noise_alone_has_no_shifts_and_clear_ones_are_kept() -> None:
    rng = np.random.default_rng(2)
    found = [
        shrink_together(rng.normal(0.0, 0.1, (4, 6)), np.full((4, 6), 0.01), np.eye(6), np.eye(6)) for _ in "12345"
    ]
    assert sum(own is not None for own in found) <= 1
    truth = rng.normal(0.0, 0.3, (4, 6))
    kept = shrink_together(truth + rng.normal(0.0, 0.01, (4, 6)), np.full((4, 6), 1e-4), np.zeros((6, 6)), np.eye(6))
    assert kept is not None
    assert np.abs(kept - truth).max() < 0.05


def grouped_study(n: int = 20_000) -> tuple[np.ndarray, list[CodedColumn], np.ndarray]:
    """Four ordered columns with a factor, and groups of people in which their means are shifted a little."""
    rng = np.random.default_rng(3)
    group = rng.choice(3, n, p=SHARES)
    means = np.hstack([MEANS, -0.5 * MEANS]) / 0.6
    latent = means[group] + rng.standard_normal((n, 1)) * 0.5 + rng.standard_normal((n, 4)) * 0.8
    latent = (latent - latent.mean(axis=0)) / latent.std(axis=0)
    codes = np.column_stack([np.minimum((ndtr(latent) * 6).astype(np.int64), 5), group])
    coded = [CodedColumn(6, True, j % 2) for j in range(4)] + [CodedColumn(3, False, 1)]
    truth = np.array([latent[group == c].mean(axis=0) for c in range(3)])
    return codes, coded, truth


@pytest.mark.parametrize(("epsilon", "most"), [(2.0, 0.1), (1000.0, 0.03)])
def test_weak_shifts_are_found(epsilon: float, most: float) -> None:
    codes, coded, truth = grouped_study()
    opened = simulate_opening(codes, coded, mu_of(epsilon, 1e-5), rng=np.random.default_rng(4))
    copula = opened.chosen.population.copula
    found = copula.shifts[4] / opened.plan.columns[4].shares[:, None]
    assert np.sqrt(np.mean((found - truth) ** 2)) < most
    assert np.sqrt(np.mean((found - truth) ** 2)) < 0.5 * np.sqrt(np.mean(truth**2))


def test_nominal_columns_do_not_change_the_copula_of_the_others() -> None:
    """The same first opening with the nominal column's products, and with noise in their place."""
    codes, coded, _ = grouped_study(5_000)
    rng = np.random.default_rng(5)
    mixed = codes.copy()
    mixed[:, 4] = rng.permutation(mixed[:, 4])
    found = [
        simulate_opening(table, coded, mu_of(2.0, 1e-5), rng=np.random.default_rng(6)).chosen.population.copula
        for table in (codes, mixed)
    ]
    np.testing.assert_array_equal(found[0].correlation, found[1].correlation)
