"""`draw_binomial` against scipy's binomial distribution."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray
from scipy import stats

from tests.oracle.naive import goodness_of_fit
from verticopula.privacy.noise import SeededNoise
from verticopula.stats.ranks import _binomial_ranks, _uniform, draw_binomial, draw_binomial_ranks

Words = NDArray[np.uint64]

ALPHA = 1e-6


@njit
def many_draws(n: int, p: float, words: Words, times: int) -> NDArray[np.int64]:
    drawn = np.zeros(times, dtype=np.int64)
    used = 0
    for i in range(times):
        drawn[i], used = draw_binomial(n, p, words, used)
    return drawn if used < words.size else np.full(times, -1)


@pytest.mark.parametrize(
    ("n", "p"),
    [
        (1, 0.3),
        (19, 0.5),  # last one that is inverted
        (20, 0.5),  # first one that is rejected
        (100, 0.0999),
        (100, 0.1001),
        (60, 0.27),
        (1_000, 0.007),
        (1_000, 0.5),
        (70_000, 0.4),
        (70_000, 1e-4),
        (70_000, 2e-4),
        (5_000_000, 0.475),
    ],
)
def test_draws_follow_the_binomial_distribution(n: int, p: float) -> None:
    times = 60_000
    drawn = many_draws(n, p, SeededNoise(40).stream(str(n), str(p)).words(5 * times + 100), times)
    assert drawn.min() >= 0
    assert drawn.max() <= n
    low, high = int(stats.binom.ppf(1e-9, n, p)), int(stats.binom.isf(1e-9, n, p))
    width = max(1, (high - low) // 60)
    edges = np.append(np.arange(low, high + width, width), n + 1)
    counts = np.histogram(drawn, bins=np.concatenate([[-0.5], edges - 0.5]))[0].astype(np.float64)
    cdf = stats.binom.cdf(np.concatenate([[-1], edges - 1]), n, p)
    assert goodness_of_fit(counts, np.diff(cdf)) > ALPHA
    z = (drawn.mean() - n * p) / np.sqrt(n * p * (1 - p) / times)
    assert abs(z) < stats.norm.isf(ALPHA / 2)


def test_nothing_to_draw_from_gives_zero() -> None:
    assert draw_binomial(0, 0.3, SeededNoise(0).stream("x").words(3), 0) == (0, 1)


def test_running_out_of_words_is_reported() -> None:
    words = SeededNoise(0).stream("x").words(4)
    assert draw_binomial(5, 0.2, words, 4) == (0, 4)
    assert draw_binomial(1_000, 0.4, words, 3) == (0, 4)  # one word is left, a trial needs two
    always_rejected = np.full(10, 2**64 - 2**12, dtype=np.uint64)
    assert draw_binomial(1_000, 0.4, always_rejected, 0) == (0, 10)


def test_a_starved_subject_is_drawn_afresh() -> None:
    """Few words at a time give the same distribution as many: the subjects in between are not skipped."""
    n, theta = 40, 0.3
    lower, upper = np.arange(n), np.arange(1, n + 1)
    keystream = SeededNoise(41).stream("starved")
    drawn = np.zeros((4_000, n), dtype=np.int64)
    for ranks in drawn:
        done = 0
        while done < n:
            done = _binomial_ranks(keystream.words(24), theta, lower, upper, ranks, done)
    assert drawn.min() >= 1
    mean = 1 + lower * (1 - theta) + (n - upper) * theta
    spread = np.sqrt((n - 1) * theta * (1 - theta))
    z = (drawn.mean(axis=0) - mean) / spread * np.sqrt(len(drawn))
    # What a rejection sampler accepts does not depend on how often it rejected, so throwing a starved
    # draw away prefers no value.
    assert np.max(np.abs(z)) < stats.norm.isf(ALPHA / n)
    variance = drawn.var(axis=0) / spread**2
    assert np.max(np.abs(variance - 1)) < 6 * np.sqrt(2 / len(drawn))


def test_more_subjects_than_one_batch_of_words_serves() -> None:
    n = 40_000
    ranks = draw_binomial_ranks(np.arange(n, dtype=np.float64), 1.0, SeededNoise(42).stream("big"))
    theta = 1 / (1 + np.e)
    mean = 1 + np.arange(n) * (1 - theta) + np.arange(n - 1, -1, -1) * theta
    standard = (ranks - mean) / np.sqrt((n - 1) * theta * (1 - theta))
    assert abs(standard.mean()) * np.sqrt(n) < 5
    assert abs((standard**2).mean() - 1) < 5 * np.sqrt(2 / n)
    assert np.max(np.abs(standard)) < 6.5


def test_uniform_numbers_lie_in_the_middle_of_their_steps() -> None:
    assert _uniform(np.uint64(0)) == 2.0**-53
    assert _uniform(np.uint64(2**63)) == pytest.approx(0.5, abs=1e-15)


def test_uniform_numbers_stay_below_one() -> None:
    assert _uniform(np.uint64(2**64 - 1)) < 1.0
