"""The packed rank sampler against a double loop, and against exact moments."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tests.oracle.naive import flip_one_by_one, goodness_of_fit, rank_moments, rank_pmf
from verticopula.privacy.coins import flip_probability
from verticopula.privacy.noise import Keystream, SeededNoise
from verticopula.stats.binomial_ranks import draw_binomial_ranks
from verticopula.stats.ranks import FairCoins, find_places, flip_comparisons, sort_with_ties, sum_triangle

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

ALPHA = 1e-6
SIZES = [2, 5, 63, 64, 65, 130]


class SameCoins:
    """Coins that all show the same side."""

    def __init__(self, heads: bool) -> None:
        self._word = 2**64 - 1 if heads else 0

    def draw(self, count: int) -> Words:
        return np.full(count, self._word, dtype=np.uint64)


def make_values(n: int, ties: str, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    if ties == "none":
        return rng.permutation(n).astype(np.float64)
    levels = 2 if ties == "binary" else max(2, n // 3)
    return rng.integers(0, levels, n).astype(np.float64)


def draw_from_one_stream(values: Floats, epsilon: float, keystream: Keystream) -> NDArray[np.int32]:
    return draw_binomial_ranks(values, epsilon, lambda label: keystream)


def draw_fast(values: Floats, epsilon: float, times: int, label: str) -> Ints:
    keystream = SeededNoise(30).stream("sampler", label, str(values.size), str(epsilon))
    return np.array([flip_comparisons(values, epsilon, keystream) for _ in range(times)])


# ---- sums over the triangle --------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 63, 64, 65, 127, 129, 1_023, 1_024, 1_025, 1_100, 2_100, 5_000])
@pytest.mark.parametrize("ties", ["none", "some", "binary"])
def test_sums_of_coins_that_all_show_heads_count_the_triangle(n: int, ties: str) -> None:
    values = make_values(n, ties)
    _, lower, upper = sort_with_ties(values)
    rows, columns = sum_triangle(upper, SameCoins(True))  # type: ignore[arg-type]
    np.testing.assert_array_equal(rows, n - upper)
    np.testing.assert_array_equal(columns, lower)
    rows, columns = sum_triangle(upper, SameCoins(False))  # type: ignore[arg-type]
    assert not rows.any()
    assert not columns.any()


@pytest.mark.parametrize("n", [3, 64, 500, 3_000])
def test_rows_and_columns_count_the_same_coins(n: int) -> None:
    rows, columns = sum_triangle(np.arange(1, n + 1), FairCoins(SeededNoise(1).stream(str(n))))
    assert rows.sum() == columns.sum()
    assert np.all(rows <= np.arange(n - 1, -1, -1))
    assert np.all(columns <= np.arange(n))
    half, spread = n * (n - 1) / 4, math.sqrt(n * (n - 1) / 8)
    assert abs(rows.sum() - half) < 5 * spread


def test_places_of_ties() -> None:
    order, lower, upper = sort_with_ties(np.array([3.0, 1.0, 3.0, -0.0, 0.0]))
    np.testing.assert_array_equal(order, [3, 4, 1, 0, 2])
    np.testing.assert_array_equal(lower, [0, 0, 2, 3, 3])
    np.testing.assert_array_equal(upper, [2, 2, 3, 5, 5])


@pytest.mark.parametrize("n", [0, 1, 2, 700])
@pytest.mark.parametrize("largest", [1, 40, 2**16 - 1, 2**16, None])
@pytest.mark.parametrize("shift", [0.0, -1.0, 0.5])
def test_places_of_ties_are_those_of_a_stable_sort_and_binary_searches(
    n: int, largest: int | None, shift: float
) -> None:
    rng = np.random.default_rng(n)
    values = rng.standard_normal(n) if largest is None else rng.integers(0, largest, n, endpoint=True) + shift
    values[: n // 2] = np.sort(values[: n // 2])
    order, lower, upper = sort_with_ties(values)
    expected = np.argsort(values, kind="stable")
    np.testing.assert_array_equal(order, expected)
    np.testing.assert_array_equal(lower, np.searchsorted(values[expected], values[expected], side="left"))
    np.testing.assert_array_equal(upper, np.searchsorted(values[expected], values[expected], side="right"))
    below, not_above = find_places(values)
    np.testing.assert_array_equal(below, np.searchsorted(values[expected], values, side="left"))
    np.testing.assert_array_equal(not_above, np.searchsorted(values[expected], values, side="right"))


# ---- moments -----------------------------------------------------------------------------


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("ties", ["none", "some", "binary"])
def test_noisy_ranks_have_exact_means_and_covariances(n: int, ties: str) -> None:
    epsilon, times = 0.4, 2_000
    values = make_values(n, ties, seed=n)
    drawn = draw_fast(values, epsilon, times, "moments" + ties)
    assert np.all(drawn.sum(axis=1) == n * (n + 1) // 2)
    assert drawn.min() >= 1
    assert drawn.max() <= n
    check_moments(drawn, *rank_moments(values, flip_probability(epsilon)))


def check_moments(drawn: Ints, mean: Floats, covariance: Floats) -> None:
    """z-scores of every mean and every covariance, Bonferroni-corrected."""
    times, n = drawn.shape
    spread = np.sqrt(np.diag(covariance))
    standard = (drawn - mean) / spread
    limit = stats.norm.isf(ALPHA / n**2)
    assert np.max(np.abs(standard.mean(axis=0))) * math.sqrt(times) < limit
    products = standard.T @ standard / times
    wanted = covariance / np.outer(spread, spread)
    squares = (standard**2).T @ standard**2 / times - products**2  # variance of a product
    z = (products - wanted) * math.sqrt(times) / np.sqrt(np.maximum(squares, 1e-3))
    assert np.max(np.abs(z)) < limit + 1.0  # the variance of a product is itself estimated


@pytest.mark.parametrize(("n", "ties"), [(2, "none"), (5, "some"), (33, "none"), (40, "binary")])
def test_the_double_loop_itself_has_these_moments(n: int, ties: str) -> None:
    values = make_values(n, ties, seed=n)
    rng = np.random.default_rng(7)
    drawn = np.array([flip_one_by_one(values, flip_probability(0.4), rng) for _ in range(300)])
    check_moments(drawn, *rank_moments(values, flip_probability(0.4)))


# ---- whole distributions -----------------------------------------------------------------


@pytest.mark.parametrize("ties", ["none", "some", "binary"])
@pytest.mark.parametrize("n", [5, 63, 65, 130])
@pytest.mark.parametrize("sampler", ["exact", "binomial"])
def test_every_rank_has_its_exact_distribution(n: int, ties: str, sampler: str) -> None:
    epsilon, times = 0.8, 2_000
    values = make_values(n, ties, seed=n + 1)
    draw = flip_comparisons if sampler == "exact" else draw_from_one_stream
    keystream = SeededNoise(31).stream(sampler, ties, str(n))
    drawn = np.array([draw(values, epsilon, keystream) for _ in range(times)])
    theta = flip_probability(epsilon)
    subjects = np.unique(np.linspace(0, n - 1, 12).astype(int))
    for i in subjects:
        below, ties_of = int(np.sum(values < values[i])), int(np.sum(values == values[i])) - 1
        exact = rank_pmf(below, n - 1 - below - ties_of, ties_of, theta)
        counts = np.bincount(drawn[:, i] - 1, minlength=n).astype(np.float64)
        assert goodness_of_fit(counts, exact) > ALPHA / subjects.size


@pytest.mark.parametrize("ties", ["none", "some"])
def test_fast_and_naive_draws_of_a_pair_of_ranks_look_alike(ties: str) -> None:
    """Two-sample test on the joint distribution of two neighbours' ranks, both cut in quarters."""
    n, epsilon = 12, 0.6
    values = make_values(n, ties, seed=4)
    rng = np.random.default_rng(8)
    fast = draw_fast(values, epsilon, 4_000, "pair" + ties)
    slow = np.array([flip_one_by_one(values, flip_probability(epsilon), rng) for _ in range(4_000)])
    order = np.argsort(values, kind="stable")
    for i, j in [(order[0], order[1]), (order[5], order[6]), (order[0], order[-1])]:
        cuts = [np.quantile(slow[:, k], [0.25, 0.5, 0.75]) for k in (i, j)]
        tables = [
            np.histogram2d(np.searchsorted(cuts[0], d[:, i]), np.searchsorted(cuts[1], d[:, j]), bins=4)[0].ravel()
            for d in (fast, slow)
        ]
        table = np.array(tables)[:, np.sum(tables, axis=0) > 0]
        assert stats.chi2_contingency(table).pvalue > ALPHA


@pytest.mark.parametrize("n", [1_000, 2_500])
@pytest.mark.parametrize("ties", ["none", "some", "binary"])
def test_many_subjects_have_standardised_noise(n: int, ties: str) -> None:
    """Across chunks of rows and counters that are emptied: mean 0 and variance 1 for every stretch of places."""
    epsilon, times = 0.3, 6
    values = make_values(n, ties, seed=2)
    theta = flip_probability(epsilon)
    below = np.searchsorted(np.sort(values), values, side="left")
    tied = np.searchsorted(np.sort(values), values, side="right") - below - 1
    above = n - 1 - below - tied
    mean = 1 + below * (1 - theta) + above * theta + tied / 2
    spread = np.sqrt((below + above) * theta * (1 - theta) + tied / 4)
    standard = (draw_fast(values, epsilon, times, "many" + ties) - mean) / spread
    by_place = standard[:, np.argsort(values, kind="stable")].reshape(times, 10, n // 10)
    per_stretch = by_place.mean(axis=(0, 2)) * math.sqrt(times * n // 10)
    # Ranks share coins, so their mean varies less than that of independent ones.
    assert np.max(np.abs(per_stretch)) < stats.norm.isf(ALPHA / 20)
    squares = (by_place**2).mean(axis=(0, 2)) - 1
    assert np.max(np.abs(squares)) < 7 * math.sqrt(2 / (times * n // 10))


def test_binomial_ranks_are_independent_between_subjects() -> None:
    values = make_values(60, "none")
    keystream = SeededNoise(32).stream("independent")
    drawn = np.array([draw_from_one_stream(values, 0.5, keystream) for _ in range(2_000)])
    mean, covariance = rank_moments(values, flip_probability(0.5))
    check_moments(drawn, mean, np.diag(np.diag(covariance)))


def test_one_subject_or_none_has_nothing_to_compare() -> None:
    for draw in (flip_comparisons, draw_from_one_stream):
        np.testing.assert_array_equal(draw(np.array([4.0]), 1.0, SeededNoise(0).stream("one")), [1])
        assert draw(np.empty(0), 1.0, SeededNoise(0).stream("none")).size == 0
