"""Accounting over the whole range of floats: what cannot be computed costs infinitely much, and never nothing."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from verticopula.errors import BudgetExceeded, SettingsError
from verticopula.privacy import gaussian_dp as gaussian
from verticopula.privacy.accounting import Coins, composed_delta, composed_epsilon
from verticopula.privacy.policy import Caps, Policy
from verticopula.privacy.pricing import Pricing
from verticopula.privacy.statement import state_privacy
from verticopula.schema.federation import Column

LARGEST = sys.float_info.max
positive = st.floats(min_value=0.0, exclude_min=True, allow_nan=False, allow_infinity=True)
counts = st.one_of(st.integers(1, 10_000), st.sampled_from([10**7, 10**12, 10**400]))
coins = st.builds(Coins, epsilon=positive, count=counts)
deltas = st.floats(1e-12, 0.5)


def one_coin(epsilon: float, delta: float) -> float:
    """Epsilon of one coin at delta, in closed form: log(e^eps - delta (1 + e^eps)), from 0 upwards."""
    if epsilon > 700.0:
        return epsilon + math.log1p(-delta) if math.isfinite(epsilon) else math.inf
    left = 1.0 - delta * (1.0 + math.exp(-epsilon))
    return max(epsilon + math.log(left), 0.0) if left > 0.0 else 0.0


@given(st.lists(coins, min_size=1, max_size=4), deltas)
@example([Coins(LARGEST, 499), Coins(1e-3, 1)], 1e-6)
@example([Coins(LARGEST, 1)], 1e-6)
@example([Coins(1e308, 10_000), Coins(1e308, 10_000)], 1e-6)
@example([Coins(5e-324, 3), Coins(5e-324, 10**400)], 1e-6)
@settings(max_examples=150, deadline=None)
def test_no_set_of_coins_costs_less_than_its_dearest_coin(held: list[Coins], delta: float) -> None:
    found = composed_epsilon(held, delta)
    dearest = max(c.epsilon for c in held)
    assert found >= one_coin(dearest, delta) * (1.0 - 1e-9) - 1e-12
    assert not math.isnan(found)
    assert 0.0 <= composed_delta(held, 1.0) <= 1.0 + 1e-6


@given(positive, deltas, st.lists(coins, max_size=2))
@example(1e308, 1e-6, [])
@example(1e160, 1e-6, [Coins(0.1, 10)])
@example(5e-324, 1e-6, [])
@settings(max_examples=150, deadline=None)
def test_gaussian_noise_never_costs_less_than_a_smaller_mu(mu: float, delta: float, held: list[Coins]) -> None:
    """More noise is moved: at least what a mu of 1 at most costs by itself."""
    found = composed_epsilon(held, delta, mu)
    assert found >= gaussian.gaussian_epsilon(min(mu, 1.0), delta) * (1.0 - 1e-9) - 1e-9
    assert not math.isnan(found)


@pytest.mark.parametrize("bad", [Coins(math.nan, 1), Coins(-1.0, 1), Coins(1.0, -1)], ids=str)
def test_what_is_no_price_is_an_error(bad: Coins) -> None:
    with pytest.raises(SettingsError):
        composed_epsilon([bad], 1e-6)
    with pytest.raises(SettingsError):
        composed_delta([bad], 1.0)


@pytest.mark.parametrize("mu", [math.nan, -1.0])
def test_what_is_no_mu_is_an_error(mu: float) -> None:
    with pytest.raises(SettingsError):
        composed_epsilon([], 1e-6, mu)
    with pytest.raises(SettingsError):
        composed_delta([Coins(1.0, 1)], 1.0, mu)


@given(st.floats(min_value=50.0, allow_nan=False), st.integers(2, 100_000))
@example(1e308, 500)
@settings(max_examples=60, deadline=None)
def test_a_cap_stops_any_epsilon_that_shows_ranks(epsilon: float, n_observed: int) -> None:
    """Coins of epsilon 50 or more never flip in practice: no cap of 1 at any unit lets them through."""
    column = Column(name="x", kind="continuous", bounds=(0.0, 1.0))
    entries = Pricing("study", "left").first_round(column, "exact", n_observed, epsilon, 0.01)
    said = state_privacy(entries)
    assert min(said.person, said.parties["left"].block, said.parties["left"].client) >= 49.0
    for caps in (Caps(variable=1.0), Caps(client=1.0), Caps(block=1.0)):
        with pytest.raises(BudgetExceeded):
            Policy(caps=caps).check("left", "vcds", entries, ())
