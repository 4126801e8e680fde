"""The paper's algorithms as printed, piece by piece, against loops that follow the text word by word."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import comb, ndtr

from verticopula.privacy.noise import SeededNoise
from verticopula.schema.columns import Column
from verticopula.schema.printed_choices import DEFAULT_INTERPRETATION, PrintedChoices
from verticopula.stats.printed import rank_correlation
from verticopula.stats.printed.bernstein_margins import (
    GRID,
    BernsteinMargin,
    MonotoneSpline,
    choose_degree,
    ecdf_spline,
    evaluate_bernstein,
    make_rise,
    release_coefficients,
)
from verticopula.stats.printed.ordered_latents import draw_latents, draw_missing, sort_by_ranks
from verticopula.stats.printed.rank_correlation import kendall, known_spearman, spearman
from verticopula.stats.printed.rounds_at_client import PrintedRound, impute_column, latent_spline, margin_spline
from verticopula.stats.printed.row_order_ranks import as_number, order_ranks, rank_at_random, rank_by_row

Floats = NDArray[np.float64]
NUMBER = Column(name="x", kind="continuous", bounds=(-10, 10))
COUNT = Column(name="n", kind="count", bounds=(0, 30))


def masked(n: int, q: int, seed: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Numbers with ties, some of them not observed."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 12, (n, q)).astype(float) + rng.integers(0, 2, (n, 1)), rng.random((n, q)) < 0.8


# ---- ranks -------------------------------------------------------------------------------


def test_ranks_are_those_of_the_papers_comparisons() -> None:
    values = np.random.default_rng(1).integers(0, 5, 40).astype(float)
    n = values.size
    wins = np.zeros((n, n))
    for i in range(n):
        for other in range(i + 1, n):
            wins[i, other] = float(values[i] > values[other])  # v_ii', i < i'
            wins[other, i] = 1.0 - wins[i, other]
    np.testing.assert_array_equal(rank_by_row(values), 1 + wins.sum(axis=1))


def test_ties_at_random_follow_their_random_words() -> None:
    values, words = np.array([2.0, 1.0, 2.0, 2.0, 0.0]), np.array([7, 1, 9, 3, 5], dtype=np.uint64)
    np.testing.assert_array_equal(rank_at_random(values, words), [4, 2, 5, 3, 1])


def test_noisy_ranks_are_ordered_with_the_earlier_row_first() -> None:
    ranks = np.random.default_rng(10).integers(3, 25, 60)
    order, begins, ends = order_ranks(ranks)
    np.testing.assert_array_equal(order, sorted(range(60), key=lambda i: (ranks[i], i)))
    np.testing.assert_array_equal(begins, [(ranks < ranks[i]).sum() for i in order])
    np.testing.assert_array_equal(ends, [(ranks <= ranks[i]).sum() for i in order])


def test_nobody_ranked_is_no_order() -> None:
    assert all(found.size == 0 for found in order_ranks(np.zeros(0, dtype=np.int64)))


def test_categories_are_numbers_in_the_order_of_the_schema() -> None:
    column = Column(name="g", kind="nominal", categories=("b", "a", "c"))
    assert as_number(column).kind == "ordinal"
    assert as_number(column).categories == ("b", "a", "c")
    assert as_number(NUMBER) is NUMBER


# ---- correlation -------------------------------------------------------------------------


def test_kendall_is_the_share_of_concordant_less_discordant_pairs() -> None:
    values, observed = masked(30, 3, 2)
    found = kendall(values, observed)
    for j in range(3):
        for k in range(3):
            rows = np.flatnonzero(observed[:, j] & observed[:, k])
            signs = [
                np.sign(values[a, j] - values[b, j]) * np.sign(values[a, k] - values[b, k])
                for a in rows
                for b in rows
                if a < b
            ]
            assert found[j, k] == pytest.approx(np.mean(signs), abs=1e-6)


@pytest.mark.parametrize("few", [1, 2**15])
def test_kendall_of_many_places_with_ties_in_counts_of_either_size(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_correlation, "_FEW", few)
    rng = np.random.default_rng(9)
    observed = rng.random((400, 4)) < 0.8
    values = np.rint(100.0 * (rng.standard_normal((400, 1)) + rng.standard_normal((400, 4))))
    values[:, 3] = rng.random(400) < 0.3  # two places only
    signs = np.sign(values[:, None] - values) * (observed[:, None] & observed)
    pairs = (observed[:, None] & observed & ~np.eye(400, dtype=bool)[..., None]).astype(float)
    expected = np.einsum("abj,abk->jk", signs, signs) / np.einsum("abj,abk->jk", pairs, pairs)
    np.testing.assert_allclose(kendall(values, observed), expected, atol=1e-12)


def test_spearman_is_the_sample_correlation_over_common_subjects() -> None:
    values, observed = masked(40, 4, 3)
    found = spearman(values, observed)
    for j in range(4):
        for k in range(4):
            both = observed[:, j] & observed[:, k]
            assert found[j, k] == pytest.approx(np.corrcoef(values[both, j], values[both, k])[0, 1], abs=1e-12)


# ---- margins -----------------------------------------------------------------------------


def bernstein(function: Floats, x: float) -> float:
    """B_l of values at v/l."""
    degree = function.size - 1
    return sum(function[v] * comb(degree, v) * x**v * (1 - x) ** (degree - v) for v in range(degree + 1))


@pytest.mark.parametrize("order", [1, 2, 4])
def test_iterated_bernstein_is_the_printed_sum(order: int) -> None:
    """b^(h)_v = sum_i C(h,i) (-1)^(i-1) B^(i-1)(b_v), applied to the coefficients one by one."""
    degree, place = 6, 1515
    x = float(GRID[place])
    coefficients = np.random.default_rng(4).random(degree + 1)
    total = 0.0
    for v in range(degree + 1):
        unit = np.eye(degree + 1)[v]
        powers = [bernstein(unit, x)]  # B^0(b_v; x): b_v itself
        on_points = np.array([bernstein(unit, w / degree) for w in range(degree + 1)])
        for _ in range(order):
            powers.append(bernstein(on_points, x))
            on_points = np.array([bernstein(on_points, w / degree) for w in range(degree + 1)])
        total += coefficients[v] * sum(comb(order, i) * (-1) ** (i - 1) * powers[i - 1] for i in range(1, order + 1))
    assert evaluate_bernstein(coefficients, order)[place] == pytest.approx(total, abs=1e-10)


def test_the_spline_goes_through_the_empirical_distribution_function() -> None:
    values = np.array([3.0, 1.0, 1.0, 2.0, 7.0])
    spline = ecdf_spline(values)
    np.testing.assert_allclose(spline.at(np.array([1.0, 2.0, 3.0, 7.0])), [0.4, 0.6, 0.8, 1.0])
    between = spline.at(np.linspace(1.0, 7.0, 200))
    assert np.all(np.diff(between) >= 0.0)
    np.testing.assert_allclose(spline.at(np.array([0.0, 9.0])), [0.0, 1.0])


def test_the_inverse_is_the_smallest_value_of_at_least_that_grade() -> None:
    spline = MonotoneSpline(np.array([0.0, 1.0, 4.0]), np.array([0.2, 0.5, 0.9]))
    grades = np.array([0.1, 0.2, 0.3, 0.5, 0.77, 0.9, 0.95])
    found = spline.inverse(grades)
    np.testing.assert_allclose(found[[0, 1, 3, 5, 6]], [0.0, 0.0, 1.0, 4.0, 4.0], atol=1e-9)
    np.testing.assert_allclose(spline.at(found[[2, 4]]), grades[[2, 4]], atol=1e-9)
    np.testing.assert_array_equal(MonotoneSpline(np.array([2.0]), np.array([1.0])).inverse(grades), 2.0)


def test_straight_lines_go_through_the_same_points_and_invert() -> None:
    lines = MonotoneSpline(np.array([0.0, 1.0, 4.0]), np.array([0.2, 0.5, 0.9]), smooth=False)
    np.testing.assert_allclose(lines.at(np.array([0.0, 0.5, 1.0, 2.5, 4.0])), [0.2, 0.35, 0.5, 0.7, 0.9])
    np.testing.assert_allclose(lines.inverse(np.array([0.1, 0.35, 0.7, 0.95])), [0.0, 0.5, 2.5, 4.0], atol=1e-9)


def test_a_polynomial_that_falls_is_replaced_by_its_running_maximum_or_by_its_values_in_order() -> None:
    heights = np.array([-0.1, 0.3, 0.2, 0.8, 1.2])
    np.testing.assert_array_equal(make_rise(heights, DEFAULT_INTERPRETATION), [0.0, 0.3, 0.3, 0.8, 1.0])
    np.testing.assert_array_equal(make_rise(heights, PrintedChoices(running_maximum=False)), [0.0, 0.2, 0.3, 0.8, 1.0])


def test_the_degree_is_that_of_corollary_1() -> None:
    for n, epsilon in ((1_000, 0.5), (5_000, 2.5), (10, 0.1)):
        exact = (epsilon * n / math.log(1 / 0.05)) ** (1 / 3)
        assert choose_degree(n, epsilon, DEFAULT_INTERPRETATION) == max(1, round(exact))


def test_coefficients_have_laplace_noise_of_the_printed_scale() -> None:
    values, n, epsilon = np.random.default_rng(5).normal(size=400), 400, 0.5
    spline, low, high = ecdf_spline(values), float(values.min()), float(values.max())
    degree = choose_degree(n, epsilon, DEFAULT_INTERPRETATION)
    exact = spline.at(low + (high - low) * np.arange(degree + 1) / degree)
    noise = np.concatenate(
        [
            release_coefficients(spline, low, high, n, epsilon, DEFAULT_INTERPRETATION, SeededNoise(seed), "x") - exact
            for seed in range(400)
        ]
    )
    assert stats.kstest(noise, stats.laplace(scale=(degree + 1) / (n * epsilon)).cdf).pvalue > 1e-3


def exact_margin(column: Column, values: Floats, choices: PrintedChoices = DEFAULT_INTERPRETATION) -> BernsteinMargin:
    """A margin of many coefficients without noise."""
    low, high = float(values.min()), float(values.max())
    coefficients = ecdf_spline(values).at(low + (high - low) * np.linspace(0.0, 1.0, 301))
    return BernsteinMargin.build(column, values.size, 1.0, low, high, coefficients, choices)


def test_a_margin_inverts_its_own_distribution_function() -> None:
    margin = exact_margin(NUMBER, np.random.default_rng(6).normal(size=2_000))
    grades = np.linspace(0.05, 0.95, 19)
    np.testing.assert_allclose(margin.cdf(margin.quantile(grades)), grades, atol=1e-3)
    assert margin.quantile(np.array([0.0]))[0] == pytest.approx(margin.low)
    assert margin.quantile(np.array([1.0]))[0] == pytest.approx(margin.high)
    assert margin.probabilities.sum() == pytest.approx(1.0)


@pytest.mark.parametrize("round_up", [True, False])
def test_discrete_values_are_whole_and_have_the_margins_distribution(round_up: bool) -> None:
    values = np.random.default_rng(7).poisson(3.0, 3_000).astype(float)
    margin = exact_margin(COUNT, values, PrintedChoices(round_up=round_up))
    drawn = margin.quantile(np.linspace(1e-6, 1.0 - 1e-6, 20_001))
    assert set(np.unique(drawn)) <= set(range(int(values.max()) + 1))
    for count in range(8):
        assert np.mean(drawn <= count) == pytest.approx(margin.cdf(np.array([float(count)]))[0], abs=2e-3)
    # Rounded up, a value has the share that it had among the values; rounded to the nearest, half of the next one's.
    close = np.mean(drawn <= 1) == pytest.approx(np.mean(values <= 1), abs=0.02)
    assert close == round_up


# ---- latents -----------------------------------------------------------------------------


def test_intervals_are_those_of_eq_6() -> None:
    rng = np.random.default_rng(8)
    column, rows = rng.normal(size=12), np.array([0, 2, 3, 5, 7, 8, 9, 11])
    ranks = np.array([3, 1, 3, 6, 6, 2, 6, 8])
    placed, low, high = sort_by_ranks(column, rows, ranks)
    assert sorted(placed[rows]) == sorted(column[rows])
    for a, row in enumerate(rows):
        below = [placed[other] for b, other in enumerate(rows) if ranks[b] < ranks[a]]
        above = [placed[other] for b, other in enumerate(rows) if ranks[b] > ranks[a]]
        assert low[row] == max(below, default=-np.inf)
        assert high[row] == min(above, default=np.inf)
    others = np.setdiff1d(np.arange(12), rows)
    np.testing.assert_array_equal(placed[others], column[others])
    assert np.all(np.isinf(low[others]) & np.isinf(high[others]))


def test_latents_follow_the_ranks_and_the_correlation() -> None:
    rng, n = np.random.default_rng(9), 3_000
    correlation = np.array([[1.0, 0.6, 0.3], [0.6, 1.0, 0.5], [0.3, 0.5, 1.0]])
    truth = rng.multivariate_normal(np.zeros(3), correlation, n)
    observed = np.ones((n, 3), dtype=bool)
    observed[: n // 3, 2] = False
    ranks = [rank_by_row(truth[observed[:, j], j]) for j in range(3)]
    latents = draw_latents(correlation, observed, ranks, rng)
    np.testing.assert_array_equal(np.argsort(latents[:, 0]), np.argsort(truth[:, 0]))  # sorted, not redrawn
    for j in (1, 2):
        seen = observed[:, j]
        assert stats.spearmanr(latents[seen, j], truth[seen, j]).statistic > 0.999
    # Without a value: drawn given the others, with the conditional normal's mean and variance.
    free = draw_missing(latents, correlation, observed, rng)[~observed[:, 2]]
    weights = np.linalg.solve(correlation[:2, :2], correlation[:2, 2])
    left = free[:, 2] - free[:, :2] @ weights
    assert np.mean(left) == pytest.approx(0.0, abs=4 * np.std(left) / np.sqrt(left.size))
    assert np.var(left) == pytest.approx(1.0 - weights @ correlation[:2, 2], rel=0.15)


def test_leaving_the_response_out_of_the_sequence_changes_what_is_drawn_for_others() -> None:
    rng, n = np.random.default_rng(10), 4_000
    correlation = np.array([[1.0, 0.0, 0.8], [0.0, 1.0, 0.0], [0.8, 0.0, 1.0]])
    observed = np.ones((n, 3), dtype=bool)
    observed[:, 2] = False
    ranks = [rank_by_row(rng.normal(size=n)), rank_by_row(rng.normal(size=n)), np.empty(0, dtype=np.int64)]
    found = [
        np.corrcoef(draw_latents(correlation, observed, ranks, rng, reading)[:, [0, 2]].T)[0, 1]
        for reading in (DEFAULT_INTERPRETATION, PrintedChoices(given_response=False))
    ]
    assert found[0] == pytest.approx(0.8, abs=0.05)
    assert found[1] == pytest.approx(0.0, abs=0.07)


def draw_two(reading: PrintedChoices, ranks: NDArray[np.int64], observed: NDArray[np.bool_]) -> Floats:
    """The second of two correlated latents; the first follows the rows, and both have the same noise in every call."""
    rng, n = np.random.default_rng(14), observed.shape[0]
    return draw_latents(np.array([[1.0, 0.6], [0.6, 1.0]]), observed, [np.arange(1, n + 1), ranks], rng, reading)[:, 1]


def test_bounds_that_are_neighbours_draws_keep_the_order_exactly() -> None:
    ranks = np.random.default_rng(15).permutation(200) + 1
    everybody = np.ones((200, 2), dtype=bool)
    kept = draw_two(PrintedChoices(sorted_bounds=False), ranks, everybody)
    np.testing.assert_array_equal(np.argsort(kept), np.argsort(ranks))
    assert not np.array_equal(np.argsort(draw_two(DEFAULT_INTERPRETATION, ranks, everybody)), np.argsort(ranks))


def test_of_equal_noisy_ranks_the_other_reading_has_the_later_row_first() -> None:
    ranks, column = np.array([2, 1, 2, 2]), np.array([0.4, 0.1, 0.3, 0.2])
    first, *_ = sort_by_ranks(column, np.arange(4), ranks)
    later, *_ = sort_by_ranks(column, np.arange(4), ranks, earlier_first=False)
    np.testing.assert_array_equal(first, [0.2, 0.1, 0.3, 0.4])
    np.testing.assert_array_equal(later, [0.4, 0.1, 0.3, 0.2])


def test_a_latent_without_a_value_may_stay_as_it_was_drawn() -> None:
    observed = np.ones((400, 2), dtype=bool)
    observed[200:, 1] = False
    ranks = np.arange(1, 201)
    given = draw_two(DEFAULT_INTERPRETATION, ranks, observed)[200:]
    free = draw_two(PrintedChoices(missing_given_others=False), ranks, observed)[200:]
    assert np.corrcoef(given, np.arange(200))[0, 1] > 0.3  # the first latents rise from row to row
    assert abs(np.corrcoef(free, np.arange(200))[0, 1]) < 0.2


def test_the_known_normaliser_is_spearman_without_noise_and_unbiased_with_it() -> None:
    rng, n, theta = np.random.default_rng(16), 60, 0.3
    x = rng.normal(size=n)
    ranks = np.column_stack([rank_by_row(x), rank_by_row(x + rng.normal(size=n))]).astype(float)
    everybody = np.ones((n, 2), dtype=bool)
    expected = spearman(ranks, everybody)
    np.testing.assert_allclose(known_spearman(ranks, everybody), expected, atol=1e-12)
    noise = theta * (1.0 - theta) / (1.0 - 2.0 * theta) ** 2  # of one debiased comparison
    found = [
        known_spearman(ranks + rng.normal(size=ranks.shape) * np.sqrt(noise * n), everybody)[0, 1] for _ in range(2_000)
    ]
    assert np.mean(found) == pytest.approx(expected[0, 1], abs=4.0 * np.std(found) / np.sqrt(2_000))


def test_a_matrix_that_is_clipped_once_is_another_than_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    indefinite = np.array([[1.0, 0.9, 0.1, 0.4], [0.9, 1.0, 0.8, 0.0], [0.1, 0.8, 1.0, 0.2], [0.4, 0.0, 0.2, 1.0]])
    assert np.linalg.eigvalsh(indefinite)[0] < 0.0
    monkeypatch.setattr(rank_correlation, "kendall", lambda *_: 2.0 / np.pi * np.arcsin(indefinite))
    nearest, clipped = (
        rank_correlation.correlate_ranks(np.zeros((9, 4)), np.ones((9, 4), dtype=bool), reading).correlation
        for reading in (DEFAULT_INTERPRETATION, PrintedChoices(nearest_repair=False))
    )
    np.testing.assert_allclose(np.diag(clipped), 1.0)
    assert np.linalg.eigvalsh(clipped)[0] > 0.0
    assert np.linalg.norm(nearest - indefinite) < np.linalg.norm(clipped - indefinite)


# ---- a client's rounds -------------------------------------------------------------------


def test_the_margin_is_eq_10_at_the_reordered_values() -> None:
    rng, n = np.random.default_rng(11), 25
    values, latents = rng.integers(0, 9, n).astype(float), rng.normal(size=n)
    ranks = rng.integers(1, n + 1, n)
    spline = latent_spline(values, ranks, latents, DEFAULT_INTERPRETATION)
    order = sorted(range(n), key=lambda i: (ranks[i], i))
    perturbed = dict(zip(order, np.sort(values), strict=True))  # Eq. (8): x~_i
    for x in np.unique(values):
        heights = [
            max(latents[other] for other in range(n) if ranks[other] <= ranks[i]) for i in range(n) if perturbed[i] <= x
        ]
        assert spline.at(np.array([x]))[0] == pytest.approx(ndtr(max(heights)))


def test_by_index_only_the_middle_of_the_values_is_left() -> None:
    values, n = np.arange(100.0), 100
    ranks = np.repeat(np.arange(40, 60), 5)
    found = latent_spline(values, ranks, np.linspace(-2, 2, n), PrintedChoices(reorder=False))
    assert (found.knots[0], found.knots[-1]) == (39.0, 58.0)
    assert latent_spline(values, ranks, np.linspace(-2, 2, n), DEFAULT_INTERPRETATION).knots[-1] == 99.0


def test_missing_values_come_from_the_inverse_margin_and_observed_ones_stay() -> None:
    rng, n = np.random.default_rng(12), 60
    values, observed = rng.normal(size=n), rng.random(n) < 0.7
    first = PrintedRound(rank_by_row(values[observed]), rng.normal(size=n))
    after = impute_column(NUMBER, values, observed, [first], DEFAULT_INTERPRETATION)
    completed, known = after.values, after.known
    assert known.all()
    np.testing.assert_array_equal(completed[observed], values[observed])
    spline = latent_spline(values[observed], first.ranks, first.latents[observed], DEFAULT_INTERPRETATION)
    np.testing.assert_allclose(completed[~observed], spline.inverse(ndtr(first.latents[~observed])))
    second = PrintedRound(rank_by_row(completed), rng.normal(size=n))
    margin, used = margin_spline(NUMBER, values, observed, [first, second], DEFAULT_INTERPRETATION)
    expected = latent_spline(completed, second.ranks, second.latents, DEFAULT_INTERPRETATION)
    np.testing.assert_array_equal(margin.heights, expected.heights)
    np.testing.assert_array_equal(used, completed)


def test_without_rounds_the_margin_is_the_observed_one() -> None:
    values, observed = np.arange(10.0), np.arange(10) < 6
    margin, used = margin_spline(NUMBER, values, observed, [], DEFAULT_INTERPRETATION)
    np.testing.assert_array_equal(margin.knots, np.arange(6.0))
    np.testing.assert_array_equal(used, np.arange(6.0))


@pytest.mark.parametrize("rows", [100, 2**15, 40_000])
def test_counts_behind_a_place_are_those_of_any_number_of_subjects(rows: int) -> None:
    """A row stands for 32 subjects: of more than a million the number of a row has more than 16 bits."""
    for place in {0, 50, rows // 2, rows - 1}:
        counts = np.zeros(rows, dtype=np.int32)
        rank_correlation._add_to_larger(counts, np.uint64(place))
        np.testing.assert_array_equal(counts, np.arange(rows) > place)
