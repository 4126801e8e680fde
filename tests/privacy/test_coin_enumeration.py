"""The coin mechanism at n <= 5, against all outcomes of all its coins."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tests.oracle.naive import (
    Ranks,
    comparison_probabilities,
    goodness_of_fit,
    hockey_stick,
    largest_log_ratio,
    rank_distribution,
    weak_orders,
)
from verticopula.privacy.accounting import Coins, composed_delta, composed_epsilon
from verticopula.privacy.coins import flip_probability
from verticopula.privacy.noise import SeededNoise
from verticopula.stats.ranks import flip_comparisons

ALPHA = 1e-6
DRAWS = 5_000


def draw_many(values: tuple[float, ...], epsilon: float, label: str) -> dict[Ranks, int]:
    keystream = SeededNoise(20).stream("enumeration", label, str(values), str(epsilon))
    counts: dict[Ranks, int] = {}
    array = np.array(values)
    for _ in range(DRAWS):
        ranks: Ranks = tuple(flip_comparisons(array, epsilon, keystream).tolist())
        counts[ranks] = counts.get(ranks, 0) + 1
    return counts


@pytest.mark.parametrize("epsilon", [0.2, 1.5])
@pytest.mark.parametrize(
    "values",
    [(1.0, 2.0), (5.0, 5.0), (3.0, 1.0, 2.0), (1.0, 0.0, 0.0), (4.0, 1.0, 3.0, 2.0), (1.0, 0.0, 1.0, 0.0), (7.0,) * 4],
    ids=str,
)
def test_noisy_ranks_have_the_enumerated_distribution(values: tuple[float, ...], epsilon: float) -> None:
    exact = rank_distribution(comparison_probabilities(values, flip_probability(epsilon)), len(values))
    drawn = draw_many(values, epsilon, "fit")
    assert set(drawn) <= set(exact)
    outcomes = list(exact)
    counts = np.array([drawn.get(outcome, 0) for outcome in outcomes], dtype=np.float64)
    assert goodness_of_fit(counts, np.array([exact[outcome] for outcome in outcomes])) > ALPHA


def test_five_subjects_with_two_kinds_of_ties_have_the_enumerated_distribution() -> None:
    values = (2.0, 1.0, 2.0, 3.0, 1.0)
    exact = rank_distribution(comparison_probabilities(values, flip_probability(0.7)), 5)
    drawn = draw_many(values, 0.7, "five")
    outcomes = list(exact)
    counts = np.array([drawn.get(outcome, 0) for outcome in outcomes], dtype=np.float64)
    assert counts.sum() == DRAWS
    assert goodness_of_fit(counts, np.array([exact[outcome] for outcome in outcomes])) > ALPHA


@pytest.mark.parametrize("epsilon", [0.0248, 0.5, 2.0])
def test_one_changed_comparison_costs_at_most_epsilon(epsilon: float) -> None:
    """Every state of every comparison of 3 subjects, ties included, and every change of one of them."""
    theta = flip_probability(epsilon)
    pairs = list(itertools.combinations(range(3), 2))
    states = {
        state: rank_distribution(dict(zip(pairs, state, strict=True)), 3)
        for state in itertools.product((theta, 0.5, 1.0 - theta), repeat=3)
    }
    worst = max(
        largest_log_ratio(states[a], states[b])
        for a in states
        for b in states
        if sum(x != y for x, y in zip(a, b, strict=True)) == 1
    )
    assert 0.99 * epsilon < worst <= epsilon * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_one_replaced_value_costs_what_the_accounting_says(epsilon: float) -> None:
    """All ordered data sets of 4 subjects, one subject's value replaced by any other."""
    theta = flip_probability(epsilon)
    n = 4
    orders = {order: rank_distribution(comparison_probabilities(order, theta), n) for order in weak_orders(n)}
    at = [0.0, 0.5 * epsilon, 1.5 * epsilon, 2.5 * epsilon]
    allowed = [composed_delta([Coins(epsilon, n - 1)], e) for e in at]
    worst_ratio, worst_delta = 0.0, np.zeros(len(at))
    for a, b in itertools.permutations(orders, 2):
        if not replaces_the_first_value(a, b):
            continue
        worst_ratio = max(worst_ratio, largest_log_ratio(orders[a], orders[b]))
        worst_delta = np.maximum(worst_delta, [hockey_stick(orders[a], orders[b], e) for e in at])
    assert worst_ratio == pytest.approx((n - 1) * epsilon, rel=1e-9)  # a pure bound, and it is attained
    assert worst_ratio <= composed_epsilon([Coins(epsilon, n - 1)], 0.0) * (1 + 1e-12)
    np.testing.assert_allclose(worst_delta, allowed, rtol=1e-9, atol=1e-15)


def replaces_the_first_value(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    """Whether two data sets can differ in the first subject's value only: the others are ordered alike."""
    return all(np.sign(a[i] - a[j]) == np.sign(b[i] - b[j]) for i, j in itertools.combinations(range(1, len(a)), 2))


def test_a_tie_is_no_further_from_either_answer_than_they_are_from_each_other() -> None:
    for epsilon in (1e-6, 0.1, 1.0, 5.0, 20.0):
        theta = flip_probability(epsilon)
        apart = math.log((1.0 - theta) / theta)
        assert apart <= epsilon * (1 + 1e-9)
        assert max(math.log(0.5 / theta), math.log((1.0 - theta) / 0.5)) <= apart
