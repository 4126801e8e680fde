"""Margins without the noise in their tails."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from verticopula.schema.columns import Column
from verticopula.stats.margin_tails import shorten_tails
from verticopula.stats.marginals import Marginal

CELLS, N, SCALE = 40, 500, 2.0
NORMAL = Column(name="x", kind="continuous", bounds=(-8.0, 8.0))
TRUE = np.diff(norm.cdf(np.linspace(-8.0, 8.0, CELLS + 1)))
DEVIATION = np.sqrt(2.0) * SCALE / N


def variance(margin: Marginal) -> float:
    return float(np.var(margin.quantile((np.arange(2_000) + 0.5) / 2_000)))


def test_noise_far_out_is_taken_in_and_mass_is_kept() -> None:
    rng = np.random.default_rng(1)
    noisy, short = [], []
    for _ in range(40):
        counts = np.round(N * TRUE + rng.laplace(scale=SCALE, size=CELLS)).astype(np.int64)
        margin = Marginal.from_release(NORMAL, counts, N, 2.0 / SCALE)
        shorter = shorten_tails(margin, DEVIATION)
        assert shorter.probabilities.sum() == pytest.approx(1.0)
        assert (shorter.probabilities >= 0.0).all()
        noisy.append(variance(margin))
        short.append(variance(shorter))
    # The truth is 1. Noise alone adds a quarter here and more; what is left is mostly that of the smoothing.
    assert np.mean(noisy) - 1.0 > 2.0 * (np.mean(short) - 1.0)
    assert np.std(short) < 0.5 * np.std(noisy)


def test_a_tail_that_stands_out_stays() -> None:
    """A twentieth of the people far out are no noise."""
    far = TRUE.copy()
    far[1] += 0.05
    margin = Marginal(NORMAL, far / far.sum(), 0.0)
    kept = shorten_tails(margin, 0.1 * DEVIATION).probabilities
    assert kept[1] == pytest.approx(margin.probabilities[1])
    np.testing.assert_allclose(kept[14:26], margin.probabilities[14:26])


def test_without_noise_nothing_changes_and_categories_never_do() -> None:
    margin = Marginal(NORMAL, TRUE, 0.0)
    np.testing.assert_allclose(shorten_tails(margin, 0.0).probabilities, TRUE, atol=1e-12)
    sexes = Marginal(Column(name="s", kind="nominal", categories=("a", "b", "c")), np.array([0.01, 0.5, 0.49]), 0.0)
    assert shorten_tails(sexes, 1.0) is sexes


def test_a_tail_falls_geometrically_from_the_cells_next_to_it() -> None:
    shares = np.array([0.01, 0.01, 0.01, 0.01, 0.24, 0.24, 0.24, 0.24])
    short = shorten_tails(Marginal(NORMAL, shares, 0.0), 0.01).probabilities
    np.testing.assert_allclose(short[1:4] / short[:3], (0.04 + 0.24) / 0.04)
    assert short[:4].sum() == pytest.approx(0.04)
