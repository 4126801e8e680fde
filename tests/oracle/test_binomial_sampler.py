"""`draw_binomial` against scipy's binomial distribution."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tests.oracle.naive import goodness_of_fit
from verticopula.privacy.noise import SeededNoise
from verticopula.stats.binomial_ranks import (
    _above_mode,
    _uniforms,
    draw_binomial_ranks,
    draw_binomials,
    finish_slowly,
    trial,
    try_quickly,
)

ALPHA = 1e-6


class FixedWords:
    """A keystream that gives these words, and the same ones again."""

    def __init__(self, *words: int) -> None:
        self._words = np.array(words, dtype=np.uint64)

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.resize(self._words, count)


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
    drawn = draw_binomials(np.full(times, float(n)), p, SeededNoise(40).stream(str(n), str(p)))
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


def test_draws_of_different_counts_do_not_depend_on_their_neighbours() -> None:
    """Small, large and empty counts side by side: the mean of each is its own."""
    counts = np.tile([0.0, 3.0, 19.0, 20.0, 5_000.0, 1e6], 20_000)
    drawn = draw_binomials(counts, 0.4, SeededNoise(43).stream("mixed")).reshape(-1, 6)
    mean, spread = counts[:6] * 0.4, np.sqrt(counts[:6] * 0.24)
    assert not drawn[:, 0].any()
    z = (drawn.mean(axis=0) - mean)[1:] / spread[1:] * np.sqrt(len(drawn))
    assert np.max(np.abs(z)) < stats.norm.isf(ALPHA / 10)
    variance = drawn[:, 1:].var(axis=0) / spread[1:] ** 2
    assert np.max(np.abs(variance - 1)) < 6 * np.sqrt(2 / len(drawn))


def test_trials_that_are_accepted_at_once_are_those_of_a_whole_trial() -> None:
    uniforms = _uniforms(SeededNoise(44).stream("trials"), 40_000)
    u, v, counts = uniforms[:20_000], uniforms[20_000:], np.full(20_000, 300.0)
    drawn, is_accepted = np.empty(20_000), np.empty(20_000, dtype=bool)
    try_quickly(counts, 0.3, u, v, drawn, is_accepted)
    whole = np.array([trial(300.0, 0.3, float(one), float(two)) for one, two in zip(u, v, strict=True)])
    assert 0.5 < is_accepted.mean() < 1.0
    np.testing.assert_array_equal(drawn[is_accepted], whole[is_accepted])


def test_the_parabolas_decide_as_the_probabilities_do() -> None:
    """A trial that they decide is decided as by log P(k) - log P(mode), which decides all others."""
    n, p = 2_000.0, 0.25
    spread = np.sqrt(n * p * (1 - p))
    away = np.arange(16.0, 120.0)
    middle = -(away**2) / (2 * spread**2)
    reach = away / spread**2 * ((away * (away / 3 + 0.625) + 1 / 6) / spread**2 + 0.5)
    mode = np.floor((n + 1) * p)
    for sign in (1, -1):
        exact = np.array([_above_mode(n, p, mode + sign * step, mode) for step in away])
        logs = stats.binom.logpmf(mode + sign * away, n, p) - stats.binom.logpmf(mode, n, p)
        np.testing.assert_allclose(exact, logs, atol=1e-9)
        assert np.all((middle - reach <= exact) & (exact <= middle + reach))


def test_a_draw_that_runs_out_of_words_is_finished_with_more() -> None:
    counts, p = np.full(3, 1_000.0), 0.4
    rejected = np.full(3, 1.0 - 2.0**-53)  # the highest point under the hat, at its edge
    drawn, is_accepted = np.zeros(3), np.array([True, False, False])
    assert finish_slowly(counts, p, rejected, rejected, np.array([0.5]), drawn, is_accepted, 0) == 1
    assert finish_slowly(counts, p, rejected, rejected, np.array([0.5, 0.1]), drawn, is_accepted, 1) == 2
    assert drawn[1] == 400
    assert finish_slowly(counts, p, rejected, rejected, np.array([0.5, 0.1]), drawn, is_accepted, 2) == 3
    assert is_accepted.all()


def test_more_subjects_than_one_batch_of_words_serves() -> None:
    n = 40_000
    ranks = draw_binomial_ranks(np.arange(n, dtype=np.float64), 1.0, SeededNoise(42).stream)
    theta = 1 / (1 + np.e)
    mean = 1 + np.arange(n) * (1 - theta) + np.arange(n - 1, -1, -1) * theta
    standard = (ranks - mean) / np.sqrt((n - 1) * theta * (1 - theta))
    assert abs(standard.mean()) * np.sqrt(n) < 5
    assert abs((standard**2).mean() - 1) < 5 * np.sqrt(2 / n)
    assert np.max(np.abs(standard)) < 6.5


def test_uniform_numbers_lie_in_the_middle_of_their_steps() -> None:
    lowest, middle, highest = _uniforms(FixedWords(0, 2**63, 2**64 - 1), 3)  # type: ignore[arg-type]
    assert lowest == 2.0**-53
    assert middle == pytest.approx(0.5, abs=1e-15)
    assert highest == 1.0 - 2.0**-53


class Counted:
    """Random words, of which somebody who never comes to an end gets no more."""

    def __init__(self, seed: int) -> None:
        self._stream, self.asked = SeededNoise(seed).stream("words"), 0

    def words(self, count: int) -> Any:
        self.asked += 1
        assert self.asked < 100, "the draw does not end"
        return self._stream.words(count)


def test_one_subject_that_is_left_over_is_drawn_too() -> None:
    """Of 4,097 subjects, or 65,537, the last one is alone: its second trial needs two numbers."""
    n, p = 1000.0, 0.3
    streams: Any = map(Counted, range(2000))
    drawn = np.concatenate([draw_binomials(np.array([n]), p, stream) for stream in streams])
    assert abs(drawn.mean() - n * p) < 5.0 * np.sqrt(n * p * (1.0 - p) / 2000)
    assert 0.85 < drawn.var() / (n * p * (1.0 - p)) < 1.15


@pytest.mark.parametrize("rows", [1, 2, 4_097])
def test_any_number_of_subjects_is_ranked(rows: int) -> None:
    for seed in range(20):
        stream: Any = partial(lambda seed, label: Counted(seed), seed)
        ranks = draw_binomial_ranks(np.arange(float(rows)), 0.5, stream)
        assert ranks.shape == (rows,)
        assert ranks.min() >= 1
        assert ranks.max() <= rows
