"""The whole pipeline gives latent correlations and marginals back, kind by kind."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtr

from tests.builders import CONTINUOUS, correlated_normals, fit_seeded, make_federation, make_tables
from verticopula import Federation

Floats = NDArray[np.float64]

Z_LIMIT = 5.0
LATENT = np.array(
    [
        [1.0, 0.5, -0.4, 0.3, 0.6],
        [0.5, 1.0, -0.2, 0.4, 0.3],
        [-0.4, -0.2, 1.0, 0.1, -0.5],
        [0.3, 0.4, 0.1, 1.0, 0.2],
        [0.6, 0.3, -0.5, 0.2, 1.0],
    ]
)


def mixed_federation() -> Federation:
    return make_federation(
        {
            "left": {"event": {"kind": "binary"}, "size": CONTINUOUS},
            "right": {
                "grade": {"kind": "ordinal", "categories": ["a", "b", "c", "d"]},
                "visits": {"kind": "count", "bounds": [0, 40]},
                "level": {**CONTINUOUS, "bounds": [0, 1]},
            },
        }
    )


def mixed_values(n: int, rng: np.random.Generator) -> dict[str, Any]:
    z = correlated_normals(LATENT, n, rng)
    return {
        "event": (z[:, 0] > 0.8).astype(int),
        "size": np.clip(z[:, 1], -8, 8),
        "grade": np.array(["a", "b", "c", "d"])[np.digitize(z[:, 2], [-0.5, 0.5, 1.5])],
        "visits": np.minimum(stats.poisson.ppf(ndtr(z[:, 3]), 2.5), 40).astype(int),
        "level": ndtr(z[:, 4]),
    }


def test_latent_correlations_of_mixed_columns_are_recovered() -> None:
    federation = mixed_federation()
    rng = np.random.default_rng(1)
    found = []
    for replicate in range(12):
        tables = make_tables(federation, mixed_values(1_500, rng))
        found.append(fit_seeded(federation, tables, replicate, epsilon=12.0, unit="variable").correlation_.to_numpy())
    upper = np.triu_indices(5, 1)
    errors = np.array([f[upper] - LATENT[upper] for f in found])
    z = errors.mean(axis=0) / (errors.std(axis=0, ddof=1) / math.sqrt(len(found)))
    assert np.max(np.abs(z)) < stats.t.isf(1e-6, len(found) - 1)
    assert np.max(np.abs(errors.mean(axis=0))) < 0.04


def test_latent_correlations_of_mixed_columns_are_recovered_at_a_real_budget() -> None:
    federation = mixed_federation()
    rng = np.random.default_rng(2)
    found = []
    for replicate in range(24):
        tables = make_tables(federation, mixed_values(6_000, rng))
        found.append(fit_seeded(federation, tables, replicate, epsilon=2.0, unit="variable").correlation_.to_numpy())
    upper = np.triu_indices(5, 1)
    errors = np.array([f[upper] - LATENT[upper] for f in found])
    # Shrinking towards a low-rank target is a bias by intent; at this budget it is below a hundredth.
    assert np.max(np.abs(errors.mean(axis=0))) < 0.01 + Z_LIMIT * np.max(errors.std(axis=0)) / math.sqrt(len(found))


def test_both_samplers_estimate_the_same_correlations() -> None:
    federation = mixed_federation()
    tables = make_tables(federation, mixed_values(2_000, np.random.default_rng(3)))
    upper = np.triu_indices(5, 1)
    found = {
        sampler: np.array(
            [
                fit_seeded(
                    federation, tables, seed, epsilon=6.0, unit="variable", sampler=sampler
                ).correlation_.to_numpy()[upper]
                for seed in range(8)
            ]
        )
        for sampler in ("exact", "binomial")
    }
    assert np.min(stats.ttest_ind(found["exact"], found["binomial"]).pvalue) > 1e-6


def test_marginals_of_synthetic_rows_are_the_data_s() -> None:
    federation = mixed_federation()
    values = mixed_values(4_000, np.random.default_rng(4))
    fitted = fit_seeded(federation, make_tables(federation, values), 1, epsilon=12.0, unit="variable")
    rows = fitted.sample(40_000)
    synthetic = {name: frame[name].to_numpy() for frame in rows.values() for name in frame.columns}
    # 4,000 and 40,000 rows: the two-sample Kolmogorov distance stays below 0.045 (alpha 1e-6) but for
    # the smoothing of a continuous column; discrete columns have no smoothing.
    limit = stats.kstwobign.isf(1e-6) * math.sqrt(1 / 4_000 + 1 / 40_000)
    for name in ("event", "visits", "size", "level"):
        assert stats.ks_2samp(values[name], synthetic[name]).statistic < limit
    shares = [[np.mean(column == grade) for grade in "abcd"] for column in (values["grade"], synthetic["grade"])]
    assert np.max(np.abs(np.subtract(*shares))) < limit


def count_federation(highest: int) -> Federation:
    return make_federation(
        {"left": {"level": {**CONTINUOUS, "bounds": [0, 1]}}, "right": {"n": {"kind": "count", "bounds": [0, highest]}}}
    )


@pytest.mark.parametrize("highest", [1_500, 100_000])
def test_counts_in_wide_cells_keep_their_correlation(highest: int) -> None:
    federation = count_federation(highest)
    z = correlated_normals(np.array([[1, 0.5], [0.5, 1]]), 2_000, np.random.default_rng(5))
    values = {"level": ndtr(z[:, 0]), "n": stats.poisson.ppf(ndtr(z[:, 1]), 1_000).astype(int)}
    fitted = fit_seeded(federation, make_tables(federation, values), 1, epsilon=20.0, unit="variable")
    assert fitted.correlation_.iloc[0, 1] == pytest.approx(0.5, abs=Z_LIMIT * 0.75 * 1.1 / math.sqrt(2_000))


def test_geometric_counts_over_a_wide_range_keep_their_correlation() -> None:
    """Counts spread over many cells, as the cells expect them."""
    federation = count_federation(100_000)
    rng = np.random.default_rng(6)
    z = correlated_normals(np.array([[1, 0.5], [0.5, 1]]), 2_000, rng)
    values = {"level": ndtr(z[:, 0]), "n": np.floor(np.exp(1.5 * z[:, 1] + 4)).astype(int)}
    fitted = fit_seeded(federation, make_tables(federation, values), 1, epsilon=20.0, unit="variable")
    assert fitted.correlation_.iloc[0, 1] == pytest.approx(0.5, abs=Z_LIMIT * 0.75 * 1.1 / math.sqrt(2_000))
