"""Epsilon of many coins: against the table of figures, enumeration and another library."""

from __future__ import annotations

import math

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.oracle.naive import compose_by_enumeration
from verticopula.privacy.accounting import Coins, calibrate, composed_delta, composed_epsilon
from verticopula.privacy.statement import format_epsilon

DELTA = 1e-6

# epsilon at delta = 1e-6 for one person's value, by number of subjects and epsilon per comparison
PRINTED = {
    (1_000, 0.0248): "3.70",
    (1_000, 0.25): "67.2",
    (1_000, 0.5): "193",
    (1_000, 1.0): "591",
    (5_000, 0.0248): "9.39",
    (5_000, 0.25): "238",
    (5_000, 0.5): "773",
    (5_000, 1.0): "2604",
    (71_827, 0.0248): "52.9",
    (71_827, 0.25): "2548",
    (71_827, 0.5): "9411",
    (71_827, 1.0): "34318",
}

coin_lists = st.lists(st.builds(Coins, epsilon=st.floats(1e-3, 3.0), count=st.integers(1, 300)), min_size=1, max_size=4)
deltas = st.floats(1e-9, 0.5)


@pytest.mark.parametrize(("n", "epsilon"), PRINTED)
def test_a_person_s_value_costs_the_printed_figure(n: int, epsilon: float) -> None:
    text = PRINTED[n, epsilon]
    decimals = len(text.partition(".")[2])
    assert f"{composed_epsilon([Coins(epsilon, n - 1)], DELTA):.{decimals}f}" == text


@pytest.mark.parametrize("epsilon", [0.05, 0.7, 2.0])
@pytest.mark.parametrize("count", [1, 2, 7, 10])
def test_equal_coins_compose_as_enumerated(epsilon: float, count: int) -> None:
    coins = [Coins(epsilon, count)]
    for at in (0.0, 0.3 * epsilon, 1.1 * epsilon, 0.99 * count * epsilon, count * epsilon):
        assert composed_delta(coins, at) == pytest.approx(compose_by_enumeration([epsilon] * count, at), abs=1e-13)


@pytest.mark.parametrize("epsilons", [[0.1, 0.7], [0.5, 0.5, 1.3], [0.05] * 5 + [1.0], [0.3, 0.31, 0.32, 2.0]], ids=str)
def test_mixed_coins_are_bounded_from_above_and_closely(epsilons: list[float]) -> None:
    coins = [Coins(e, 1) for e in epsilons]
    for delta in (1e-6, 1e-3, 0.05):
        found = composed_epsilon(coins, delta)
        assert compose_by_enumeration(epsilons, found) <= delta * (1 + 1e-9)
        # The smallest epsilon that enumeration allows, by bisection.
        low, high = 0.0, sum(epsilons)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if compose_by_enumeration(epsilons, middle) <= delta else (middle, high)
        assert found <= high * 1.01 + 1e-9


@pytest.mark.parametrize(("n", "epsilon"), [(1_000, 0.0248), (1_000, 0.25), (5_000, 0.25), (71_827, 0.0248)])
def test_dp_accounting_agrees_on_equal_coins(n: int, epsilon: float) -> None:
    noise = 2 / (1 + math.exp(epsilon))
    interval = math.log(1 - noise / 2) - math.log(noise / 2)  # its own log-ratio: anything else is rounded up
    one = pld.from_randomized_response(noise, 2, value_discretization_interval=interval)
    theirs = one.self_compose(n - 1).get_epsilon_for_delta(DELTA)
    assert composed_epsilon([Coins(epsilon, n - 1)], DELTA) == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize(
    "coins",
    [
        [Coins(0.01, 4_000), Coins(0.02, 1_000), Coins(0.5, 1)],
        [Coins(0.02 * k, 999) for k in range(1, 9)],
        [Coins(0.1, 500), Coins(1.0, 5)],
    ],
    ids=["marginal", "weights", "few-large"],
)
def test_dp_accounting_agrees_on_mixed_coins(coins: list[Coins]) -> None:
    """Coins whose losses all are multiples of the smallest: its grid then rounds nothing."""
    interval = coins[0].epsilon
    total = pld.identity(value_discretization_interval=interval)
    for c in coins:
        likely = 1 / (1 + math.exp(-c.epsilon))
        one = pld.PrivacyLossDistribution.create_from_rounded_probability(
            {round(c.epsilon / interval): likely, -round(c.epsilon / interval): 1 - likely}, 0.0, interval
        )
        total = total.compose(one.self_compose(c.count))
    theirs = total.get_epsilon_for_delta(DELTA)
    ours = composed_epsilon(coins, DELTA)
    assert theirs * (1 - 1e-5) <= ours <= theirs * 1.01


def test_coins_that_differ_by_a_hair_cost_as_much_as_equal_ones() -> None:
    split = composed_epsilon([Coins(0.01, 20_000), Coins(0.01 * (1 + 1e-9), 20_000)], DELTA)
    assert split == pytest.approx(composed_epsilon([Coins(0.01, 40_000)], DELTA), rel=1e-3)
    assert split >= composed_epsilon([Coins(0.01, 40_000)], DELTA) * (1 - 1e-8)


def test_ends() -> None:
    coins = [Coins(0.2, 30), Coins(1.5, 2)]
    assert composed_epsilon(coins, 0.0) == pytest.approx(9.0)
    assert composed_epsilon([], DELTA) == 0.0
    assert composed_epsilon([Coins(0.3, 0)], DELTA) == 0.0
    assert composed_epsilon([*coins, Coins(math.inf, 1)], DELTA) == math.inf
    assert composed_delta([Coins(math.inf, 1)], 5.0) == 1.0
    assert composed_delta([], 0.0) == 0.0
    assert composed_epsilon(coins, 0.999) == 0.0
    assert composed_epsilon([Coins(1.0, 1)], 1e-300) == pytest.approx(1.0)  # never above the sum
    assert composed_epsilon(coins, 1e-12) == pytest.approx(9.0)  # below what the FFT can tell: the sum


@settings(max_examples=60)
@given(coin_lists, deltas)
def test_epsilon_stays_within_the_sum_and_keeps_its_delta(coins: list[Coins], delta: float) -> None:
    found, everything = composed_epsilon(coins, delta), sum(c.epsilon * c.count for c in coins)
    assert 0.0 <= found <= everything * (1 + 1e-12)
    # At the sum itself delta is zero, which losses that were rounded up to a grid do not show.
    assert composed_delta(coins, found) <= delta * (1 + 1e-6) or found >= everything * (1 - 1e-12)


@settings(max_examples=40)
@given(coin_lists, deltas, st.floats(1.0, 3.0), st.integers(1, 50))
def test_more_or_stronger_coins_cost_more(coins: list[Coins], delta: float, factor: float, extra: int) -> None:
    base = composed_epsilon(coins, delta)
    slack = 1e-2 * base + 1e-9  # both are upper bounds of their own, within a hundredth
    more = [Coins(coins[0].epsilon, coins[0].count + extra), *coins[1:]]
    assert composed_epsilon(more, delta) >= base - slack
    assert composed_epsilon([Coins(c.epsilon * factor, c.count) for c in coins], delta) >= base - slack
    assert composed_epsilon(coins, delta / 2) >= base * (1 - 1e-8)


@pytest.mark.parametrize(
    ("target", "n", "weight", "delta"),
    [(0.1, 5_000, 3.0, 1e-6), (1.0, 1_000, 1.0, 1e-9), (20.0, 200, 0.2, 1e-3), (5.0, 12, 1.7, 1e-6)],
)
def test_calibrated_coins_use_the_budget_up_and_no_more(target: float, n: int, weight: float, delta: float) -> None:
    def coins_at(scale: float) -> list[Coins]:
        return [Coins(scale, n), Coins(weight * scale, n // 2)]

    scale = calibrate(coins_at, target, delta, largest=40.0)
    spent = composed_epsilon(coins_at(scale), delta)
    assert spent <= target
    assert spent >= 0.999 * target


def test_calibration_stops_at_the_largest_coin() -> None:
    assert calibrate(lambda s: [Coins(s, 1)], 100.0, DELTA, largest=40.0) == 40.0


# ---- printing ----------------------------------------------------------------------------


@given(st.floats(1e-12, 1e12))
def test_no_printed_epsilon_understates(epsilon: float) -> None:
    """By more than a float's own rounding, which would otherwise turn 0.3 into 0.301."""
    printed = float(format_epsilon(epsilon).replace(",", ""))
    assert printed >= epsilon * (1 - 1e-11)
    assert printed <= epsilon * 1.0101


@pytest.mark.parametrize(
    ("epsilon", "text"),
    [
        (0.0, "0"),
        (math.inf, "infinite"),
        (0.1 + 0.2, "0.3"),
        (1.0, "1"),
        (1.001, "1.01"),
        (99.91, "100"),
        (590.2, "591"),
        (2603.2, "2,610"),
        (34_317.5, "34,400"),
        (0.0248, "0.0248"),
    ],
)
def test_printed_epsilons(epsilon: float, text: str) -> None:
    assert format_epsilon(epsilon) == text
