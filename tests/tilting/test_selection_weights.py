"""How parties select: weights of rows with the released means, and with scores that stay in their range."""

from __future__ import annotations

import numpy as np

from verticopula.stats.tilting.selection import _match_means
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING


def weights_of(scores: np.ndarray) -> np.ndarray:
    raw = np.exp(scores - scores.max())
    return np.asarray(raw / raw.sum())


def test_weighted_rows_have_the_means_but_for_the_ridge() -> None:
    rng = np.random.default_rng(0)
    unit = rng.standard_normal((5_000, 6)) @ (np.eye(6) + 0.4)
    unit = (unit - unit.mean(axis=0)) / unit.std(axis=0)
    wanted = np.array([0.3, -0.2, 0.1, 0.0, 0.25, -0.1])
    slopes = _match_means(unit, wanted)
    left = wanted - weights_of(unit @ slopes) @ unit
    np.testing.assert_allclose(left, TILTED_TUNING.selection_ridge * slopes, atol=1e-6)


def test_hundreds_of_noisy_means_leave_scores_in_their_range() -> None:
    rng = np.random.default_rng(1)
    latent = rng.standard_normal((3_000, 10))
    unit = latent @ rng.standard_normal((10, 300)) + rng.standard_normal((3_000, 300))
    unit = (unit - unit.mean(axis=0)) / unit.std(axis=0)
    wanted = rng.normal(0.0, 0.15, 300)
    scores = unit @ _match_means(unit, wanted)
    assert np.mean(np.abs(scores - scores.mean()) > 4.0) < 0.1
    left = wanted - weights_of(scores) @ unit
    assert np.mean(left**2) < np.mean(wanted**2)
