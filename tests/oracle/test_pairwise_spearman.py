"""Pairwise-complete Spearman correlations, block by block and mask by mask, against products over all subjects."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from verticopula.stats.correlation import PairwiseSpearman, spearman_pairwise

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def naive_spearman(grades: Floats, observed: Bools, noise: Floats, spread: Floats) -> PairwiseSpearman:
    """The same formulas, every mask multiplied with every column."""
    seen = observed.astype(np.float64)
    n_seen, overlap = seen.sum(axis=0), seen.T @ seen
    size = np.maximum(overlap, 1.0)
    mean = grades.T @ seen / size
    known = np.maximum(spread, 1e-12)[:, None] * np.ones_like(overlap)
    found = (grades**2).T @ seen / size - mean**2 - noise[:, None]
    complete = overlap >= n_seen[:, None]
    too_noisy = math.sqrt(2.0) * (noise[:, None] + known) / np.sqrt(size) > 0.25 * known
    ratio = np.where(complete | too_noisy, 1.0, np.maximum(found / known, 0.1))
    small_sample = 1.0 - 1.0 / np.maximum(n_seen, 2.0) ** 2
    product = grades.T @ grades / size
    centred = np.where(complete & complete.T, product, product - mean * mean.T)
    rho = 12.0 * centred / np.sqrt(ratio * ratio.T * np.outer(small_sample, small_sample))
    coins = 144.0 * (np.outer(noise, noise) + np.outer(noise, spread) + np.outer(spread, noise)) / size
    apart = np.maximum(1.0 / size - 1.0 / observed.shape[0], 0.0)
    sampling = (1.0 - np.clip(rho, -1.0, 1.0) ** 2) ** 2 * apart
    return PairwiseSpearman(rho, coins + sampling, overlap.astype(np.int64))


@pytest.mark.parametrize("n", [1, 40, 20_000])
@pytest.mark.parametrize("shared", [True, False])
def test_sums_by_blocks_and_masks_give_the_same_correlations(n: int, shared: bool) -> None:
    rng = np.random.default_rng(n)
    observed = rng.random((n, 7)) < [0.9, 0.5, 1.0, 0.7, 0.8, 0.0, 0.6]
    if shared:
        observed = observed[:, [0, 1, 0, 2, 2, 5, 1]]
    grades = np.where(observed, rng.uniform(-0.5, 0.5, (n, 1)) + 0.3 * rng.standard_normal((n, 7)), 0.0)
    noise, spread = rng.uniform(0.0, 0.02, 7), rng.uniform(0.03, 1 / 12, 7)
    expected = naive_spearman(grades, observed, noise, spread)
    for order in ("C", "F"):
        found = spearman_pairwise(np.array(grades, order=order), np.array(observed, order=order), noise, spread)
        np.testing.assert_array_equal(found.overlap, expected.overlap)
        np.testing.assert_allclose(found.rho, expected.rho, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-9, atol=1e-12)
