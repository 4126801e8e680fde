"""Draws of the cohort's latents: the order of the ranks holds exactly, the distributions are right."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtr

from tests.builders import correlated_normals
from verticopula.stats.em import find_patterns
from verticopula.stats.latent_draws import (
    adjust_to_order,
    draw_constrained,
    draw_posterior,
    draw_truncated,
    order_by_ranks,
)
from verticopula.stats.margin_curves import MarginCurve, conditional_sensitivity, curve_from_latents

Floats = NDArray[np.float64]

THREE = np.array([[1.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 1.0]])
ALPHA = 1e-6


# ---- truncated draws ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mean", "deviation", "low", "high"),
    [
        (0.0, 1.0, -1.0, 0.5),
        (2.0, 0.5, -np.inf, 1.0),
        (-1.0, 2.0, 3.0, np.inf),
        (0.0, 1.0, -np.inf, np.inf),
        (0.0, 1.0, 6.0, 6.5),  # the distribution function is 1 to nine digits here
        (0.0, 1.0, 12.0, np.inf),  # and to all of them here
        (0.0, 1.0, -12.5, -12.0),
        (5.0, 0.1, 3.0, 3.2),
        (0.0, 1.0, 40.0, 45.0),  # no mass in floating point; all of it is at the near end
        (0.0, 1.0, -45.0, -40.0),
    ],
)
def test_a_truncated_draw_has_the_truncated_normal_distribution(
    mean: float, deviation: float, low: float, high: float
) -> None:
    n = 4_000
    drawn = draw_truncated(np.full(n, mean), deviation, np.full(n, low), np.full(n, high), np.random.default_rng(1))
    assert np.all((drawn > low) & (drawn < high))
    reference = stats.truncnorm((low - mean) / deviation, (high - mean) / deviation, mean, deviation)
    assert stats.kstest(drawn, reference.cdf).pvalue > ALPHA


@given(
    mean=st.floats(-50, 50),
    deviation=st.floats(0.02, 3.0),
    low=st.floats(-6, 6),
    width=st.floats(1e-6, 3.0),
    seed=st.integers(0, 1_000),
)
def test_a_truncated_draw_stays_strictly_inside_wherever_the_mean_is(
    mean: float, deviation: float, low: float, width: float, seed: int
) -> None:
    ends = np.array([low]), np.array([low + width])
    drawn = draw_truncated(np.array([mean]), deviation, *ends, np.random.default_rng(seed))
    assert ends[0] < drawn < ends[1]


@pytest.mark.parametrize("side", [1.0, -1.0])
@pytest.mark.parametrize("deviations", [5.0, 30.0, 37.0, 39.0, 100.0])
def test_a_draw_beyond_an_open_end_is_finite_however_far_the_mean_is(deviations: float, side: float) -> None:
    """The subject with the highest rank may have a mean many deviations below its neighbour."""
    near = np.array([3.0 * side])
    ends = (near, np.array([np.inf])) if side > 0 else (np.array([-np.inf]), near)
    drawn = draw_truncated(near - side * 0.1 * deviations, 0.1, *ends, np.random.default_rng(1))
    assert np.all(np.isfinite(drawn))
    assert abs(drawn[0] - near[0]) < 0.5


# ---- the order of the ranks --------------------------------------------------------------


@given(
    n=st.integers(1, 60),
    spread=st.sampled_from([0.0, 0.5, 2.0]),
    shift=st.floats(-3.0, 3.0),
    deviation=st.sampled_from([0.3, 1.0, 5.0]),
    seed=st.integers(0, 10_000),
)
def test_adjusted_values_increase_strictly(n: int, spread: float, shift: float, deviation: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    mean = shift + spread * rng.uniform(-1, 1, n)
    adjusted = adjust_to_order(np.sort(rng.standard_normal(n)), mean, deviation, rng)
    assert np.all(np.isfinite(adjusted))
    assert np.all(np.diff(adjusted) > 0.0)


@given(
    n=st.integers(1, 60),
    spread=st.sampled_from([0.0, 1.0, 10.0]),
    deviation=st.sampled_from([0.01, 0.05]),
    seed=st.integers(0, 10_000),
)
def test_adjusted_values_increase_strictly_with_means_far_away(
    n: int, spread: float, deviation: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    mean = spread * rng.standard_normal(n)
    adjusted = adjust_to_order(np.sort(rng.standard_normal(n)), mean, deviation, rng)
    assert np.all(np.isfinite(adjusted))
    assert np.all(np.diff(adjusted) > 0.0)


def noisy_ranks(n: int, distinct: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Ranks in 1..n with many ties."""
    return rng.integers(1, max(min(distinct, n), 1) + 1, n)


def assert_drawn_in_order(r: float, n: int, distinct: int, missing: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    correlation = np.array([[1.0, r, 0.0], [r, 1.0, 0.0], [0.0, 0.0, 1.0]])
    observed = rng.random((n, 3)) >= missing
    observed[:2] = True
    ranks = [noisy_ranks(int(observed[:, j].sum()), distinct, rng) for j in range(3)]
    latents = draw_constrained(correlation, observed, ranks, rng)
    assert np.all(np.isfinite(latents))
    for j in range(3):
        own = latents[observed[:, j], j]
        assert np.all(np.diff(ranks[j][np.argsort(own)]) >= 0)
        assert np.unique(own).size == own.size


drawings = given(
    r=st.sampled_from([0.0, 0.5, -0.9]),
    n=st.integers(2, 40),
    distinct=st.sampled_from([1, 3, 100]),
    missing=st.sampled_from([0.0, 0.4]),
    seed=st.integers(0, 10_000),
)


@drawings
def test_latents_are_in_the_order_of_the_noisy_ranks(
    r: float, n: int, distinct: int, missing: float, seed: int
) -> None:
    assert_drawn_in_order(r, n, distinct, missing, seed)


@pytest.mark.parametrize("r", [0.99, 0.9998])
@settings(max_examples=40)
@given(n=st.integers(2, 40), distinct=st.sampled_from([1, 3, 100]), seed=st.integers(0, 10_000))
def test_latents_of_all_but_equal_columns_are_in_order_and_finite(r: float, n: int, distinct: int, seed: int) -> None:
    assert_drawn_in_order(r, n, distinct, 0.2, seed)


@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_subjects_can_be_drawn(n: int) -> None:
    observed = np.ones((n, 2), dtype=bool)
    ranks = [np.arange(1, n + 1), np.arange(n, 0, -1)]
    latents = draw_constrained(np.array([[1.0, 0.5], [0.5, 1.0]]), observed, ranks, np.random.default_rng(1))
    assert np.all(np.isfinite(latents))
    assert np.all(np.diff(latents[:, 0]) > 0)
    assert np.all(np.diff(latents[:, 1]) < 0)


def test_equal_ranks_are_ordered_at_random() -> None:
    rng = np.random.default_rng(1)
    first = [int(order_by_ranks(np.array([2, 2, 1]), rng)[1]) for _ in range(2_000)]
    assert {int(order_by_ranks(np.array([2, 2, 1]), rng)[0]) for _ in range(20)} == {2}
    assert stats.binomtest(first.count(0), 2_000, 0.5).pvalue > ALPHA
    assert set(first) == {0, 1}


def test_a_constrained_draw_on_true_ranks_keeps_margins_and_correlation() -> None:
    n, q = 3_000, 3
    rng = np.random.default_rng(2)
    z = correlated_normals(THREE, n, rng)
    ranks = [stats.rankdata(z[:, j]).astype(np.int64) for j in range(q)]
    latents = draw_constrained(THREE, np.ones((n, q), dtype=bool), ranks, rng)
    for j in range(q):
        assert stats.kstest(latents[:, j], "norm").pvalue > ALPHA
    # 5 standard errors of a correlation at n = 3,000
    np.testing.assert_allclose(np.corrcoef(latents.T), THREE, atol=5 / math.sqrt(n))


# ---- missing columns ---------------------------------------------------------------------

PATTERNS = [np.array(p, dtype=bool) for p in itertools.product((True, False), repeat=3)]


def conditional(correlation: Floats, seen: NDArray[np.bool_], values: Floats) -> tuple[Floats, Floats]:
    """Mean and covariance of the missing given the observed, from the precision matrix: another route."""
    precision = np.linalg.inv(correlation)
    hidden = np.linalg.inv(precision[np.ix_(~seen, ~seen)])
    return -hidden @ precision[np.ix_(~seen, seen)] @ values, hidden


@pytest.mark.parametrize("seen", PATTERNS, ids=lambda p: "".join("o" if s else "-" for s in p))
def test_posterior_draws_have_the_moments_of_latents_given_readings(seen: NDArray[np.bool_]) -> None:
    n = 40_000
    loading = np.array([[0.9, 0.0, 0.0], [0.0, 0.5, 0.2], [0.0, -0.1, 0.7]])
    error = np.diag([0.2, 0.5, 0.4])
    readings = np.tile([0.8, -0.5, 1.2], (n, 1))
    drawn = draw_posterior(
        readings, find_patterns(np.tile(seen, (n, 1))), THREE, loading, error, np.random.default_rng(4)
    )
    # Brute force: the joint normal of (latents, readings), conditioned through its precision matrix.
    joint = np.block([[THREE, THREE @ loading.T], [loading @ THREE, loading @ THREE @ loading.T + error]])
    kept = np.concatenate([[True] * 3, seen])
    mean, covariance = conditional(
        joint[np.ix_(kept, kept)], np.array([False] * 3 + [True] * int(seen.sum())), readings[0, seen]
    )
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=5 / math.sqrt(n))
    np.testing.assert_allclose(np.cov(drawn.T), covariance, atol=5 * math.sqrt(2 / n))


# ---- margins and their sensitivity -------------------------------------------------------


def test_the_curve_takes_the_kth_of_n_values_to_phi_of_the_kth_latent() -> None:
    latents = np.array([0.3, -1.0, 2.0, 0.9])
    curve = curve_from_latents(latents)
    np.testing.assert_allclose(curve(np.arange(1, 4) / 4), ndtr([-1.0, 0.3, 0.9]))
    np.testing.assert_allclose(curve(np.array([0.0, 1.0])), [0.0, 1.0])
    assert curve_from_latents(latents[:1])(np.array([0.25]))[0] == 0.25


@given(st.lists(st.floats(-0.5, 1.5), min_size=0, max_size=6), st.integers(0, 1_000))
def test_a_margin_curve_never_falls_and_stays_within_zero_and_one(population: list[float], seed: int) -> None:
    knots = np.sort(np.random.default_rng(seed).uniform(0.01, 0.99, len(population)))
    values = MarginCurve(knots, np.array(population))(np.linspace(0, 1, 101))
    assert np.all(np.diff(values) >= 0.0)
    assert values[0] == 0.0
    assert values[-1] == 1.0


def largest_change(n: int, margin: Floats) -> float:
    """Over all datasets of n values on a grid, all replacements and all x; `margin[k]` where k values are <= x."""
    grid = range(4)
    largest = 0.0
    for data in itertools.product(grid, repeat=n):
        for place, new in itertools.product(range(n), grid):
            other = (*data[:place], new, *data[place + 1 :])
            for x in (-1, *grid):
                before, after = (sum(v <= x for v in d) for d in (data, other))
                largest = max(largest, abs(float(margin[before] - margin[after])))
    return largest


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_sensitivity_is_attained_and_never_exceeded(n: int, seed: int) -> None:
    """The lower step function is Phi of the last latent passed, the upper of the next one."""
    latents = np.random.default_rng(10 * n + seed).standard_normal(n)
    places = np.sort(ndtr(latents))
    lower, upper = np.concatenate([[0.0], places]), np.concatenate([places, [1.0]])
    changes = [largest_change(n, lower), largest_change(n, upper)]
    assert max(changes) == pytest.approx(conditional_sensitivity(latents), abs=1e-12)


@settings(max_examples=50)
@given(n=st.integers(1, 200), seed=st.integers(0, 100))
def test_the_sensitivity_is_never_below_one_over_n_plus_one(n: int, seed: int) -> None:
    latents = np.random.default_rng(seed).standard_normal(n)
    assert 1.0 / (n + 1) <= conditional_sensitivity(latents) <= 1.0
