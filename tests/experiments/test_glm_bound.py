"""The posterior of somebody who knows the design, and what is read off it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit

from benchmarks.glm_bayes_known import Contrast, Opinions, keep, load, seek
from benchmarks.glm_bound import KnownPrior, sample_known

Floats = NDArray[np.float64]

TRUTH = np.array([0.5, -0.5, 0.0, 0.5, 0.0, -0.5])
PRIOR = KnownPrior(0.5, 0.4)


def make_data(n: int = 40, noise: float = 0.6) -> tuple[Floats, Floats]:
    """Columns in correlated pairs, so that one may stand for the other."""
    rng = np.random.default_rng(4)
    x = np.repeat(rng.standard_normal((n, 3)), 2, axis=1) + noise * rng.standard_normal((n, 6))
    return x, (rng.random(n) < expit(x @ TRUTH)).astype(float)


def enumerate_posterior(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Means and inclusion probabilities, from all 3^q states."""
    values = np.array(list(product([0.0, 0.5, -0.5], repeat=x.shape[1])))
    eta = values @ x.T
    levels = (y * eta - np.logaddexp(0.0, eta)).sum(axis=1) + np.log(np.where(values == 0.0, 0.4, 0.3)).sum(axis=1)
    weights = np.exp(levels - levels.max())
    weights /= weights.sum()
    return weights @ values, weights @ (values != 0.0)


def test_the_bound_is_the_posterior_that_enumeration_gives() -> None:
    x, y = make_data()
    mean, inclusion = enumerate_posterior(x, y)
    found = sample_known(x, y, (TRUTH, -TRUTH), np.zeros(6), PRIOR, sweeps=10_000)
    # Two runs of 7,500 sweeps, counted as 6,000 independent draws: neighbouring ones are alike.
    error = 0.5 / np.sqrt(6_000)
    assert found.inclusion == pytest.approx(inclusion, abs=4.0 * error)
    assert found.mean == pytest.approx(mean, abs=4.0 * error)
    assert found.chain_difference < 0.02


def test_the_quadratic_s_centre_does_not_matter_for_what_is_found() -> None:
    x, y = make_data()
    inclusion = enumerate_posterior(x, y)[1]
    found = sample_known(x, y, (TRUTH,), np.full(6, 0.4), PRIOR, sweeps=10_000)
    assert found.inclusion == pytest.approx(inclusion, abs=4.0 * 0.5 / np.sqrt(1_000))


def test_runs_from_opposite_ends_meet_on_many_correlated_columns() -> None:
    rng = np.random.default_rng(5)
    x = np.repeat(rng.standard_normal((400, 10)), 2, axis=1) + 0.5 * rng.standard_normal((400, 20))
    truth = np.tile([1 / 3, -1 / 3, 0.0, 1 / 3, 0.0], 4)
    y = (rng.random(400) < expit(x @ truth)).astype(float)
    found = sample_known(x, y, (truth, -truth), np.zeros(20), KnownPrior(1 / 3, 0.4), sweeps=1_000)
    assert found.chain_difference < 0.03


def opinions() -> Opinions:
    """Three replications; the third column is false and half sure, the second true and nearly sure."""
    inclusion = np.tile([0.99, 0.9, 0.6, 0.1], (3, 1))
    return Opinions(np.tile([0.3, -0.2, 0.1, 0.0], (3, 1)), inclusion, np.zeros(3))


BARS = {"rmse": 0.2, "gmeans": 0.95, "fdr": 0.01}


def test_a_threshold_is_found_where_all_measures_are_reached() -> None:
    found = seek(opinions(), np.array([1 / 3, -1 / 3, 0.0, 0.0]), BARS, (0.5, 0.7, 0.95))
    assert found.threshold == 0.7
    assert found.verdict == "attainable"
    assert found.found["fdr"] == (0.0, 0.0)


def test_no_threshold_separates_a_false_column_from_a_true_one_that_is_less_sure() -> None:
    found = seek(opinions(), np.array([1 / 3, 0.0, 1 / 3, 0.0]), BARS, (0.5, 0.7, 0.95))
    assert found.verdict == "not at any threshold"


def test_opinions_are_kept(tmp_path: Path) -> None:
    keep(tmp_path / "known.npz", {1000: Contrast(opinions(), opinions(), np.array([0.1, 0.2, 0.3]))})
    again = load(tmp_path / "known.npz")[1000]
    assert again.known.inclusion == pytest.approx(opinions().inclusion, abs=1e-6)
    assert again.ours.mean == pytest.approx(opinions().mean, abs=1e-6)
    assert again.smaller_class == pytest.approx([0.1, 0.2, 0.3], abs=1e-6)


def test_a_share_that_equals_a_threshold_is_not_kept_above_it(tmp_path: Path) -> None:
    told = Opinions(np.full((1, 4), 0.3), np.full((1, 4), 0.99), np.zeros(1))
    keep(tmp_path / "known.npz", {1000: Contrast(told, told, np.array([0.5]))})
    assert float(np.float32(0.99)) > 0.99
    assert not (load(tmp_path / "known.npz")[1000].known.inclusion > 0.99).any()
