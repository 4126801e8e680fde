"""Accounting over the whole range of floats: what cannot be computed costs infinitely much, and never nothing."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from verticopula.errors import BudgetExceeded, SettingsError
from verticopula.privacy import gaussian_dp as gaussian
from verticopula.privacy.accounting import Coins, composed_delta, composed_epsilon
from verticopula.privacy.policy import Caps, Policy, capped_epsilons
from verticopula.privacy.pricing import Pricing
from verticopula.privacy.release import Release
from verticopula.privacy.statement import party_epsilons, state_privacy
from verticopula.schema.columns import Column

LARGEST = sys.float_info.max
positive = st.floats(min_value=0.0, exclude_min=True, allow_nan=False, allow_infinity=True)
counts = st.one_of(st.integers(1, 10_000), st.sampled_from([10**7, 10**12, 10**400]))
coins = st.builds(Coins, epsilon=positive, count=counts)
deltas = st.floats(1e-12, 0.5)
COLUMN = Column(name="x", kind="continuous", bounds=(0.0, 1.0))
UNITS = ("variable", "client", "block", "person")
PRICING = Pricing("study", "left")
PLAIN = PRICING.first_round(COLUMN, "exact", 100, 0.1, 0.1)[0]
NOISY = PRICING.gram(100, 0.1, 0.2)


def priced(epsilon: float, mu: float, n_observed: int) -> list[Release]:
    """One release of every kind, at these prices."""
    return [
        *PRICING.first_round(COLUMN, "exact", n_observed, epsilon, epsilon),
        PRICING.completed_round(COLUMN, "binomial", n_observed, n_observed, epsilon),
        PRICING.gaussian_margin(COLUMN, n_observed, mu),
        PRICING.gram(n_observed, mu, mu),
    ]


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
    entries = PRICING.first_round(COLUMN, "exact", n_observed, epsilon, 0.01)
    said = state_privacy(entries)
    assert min(said.person, said.parties["left"].block, said.parties["left"].client) >= 49.0
    for caps in (Caps(variable=1.0), Caps(client=1.0), Caps(block=1.0), Caps(person=1.0)):
        with pytest.raises(BudgetExceeded):
            Policy(caps=caps).check("left", "vcds", entries, ())


# ---- entries, statements and caps ------------------------------------------------------------

any_price = st.floats(allow_nan=True, allow_infinity=True)
any_entry = st.builds(
    lambda base, epsilon, coin, count, mu, whole: replace(
        base, epsilon=epsilon, coins_epsilon=coin, coins_count=count, mu=mu, mu_person=whole
    ),
    st.sampled_from([PLAIN, NOISY]),
    any_price,
    any_price,
    st.one_of(st.integers(-3, 10**6), st.just(10**400)),
    any_price,
    any_price,
)


@given(positive, positive, st.integers(2, 10**6))
@example(LARGEST, LARGEST, 10**6)
@example(1e160, 1e160, 2)
@example(5e-324, 5e-324, 2)
@settings(max_examples=60)
def test_whatever_is_priced_is_counted_at_every_unit(epsilon: float, mu: float, n_observed: int) -> None:
    """No entry is free, and none is cheaper in a ledger that holds more."""
    entries = priced(epsilon, mu, n_observed)
    for entry in entries:
        assert entry.is_gaussian or entry.epsilon > 0.0
    more = [*entries, *priced(0.5, 0.5, 10)]
    for counted in (party_epsilons, lambda known, at: capped_epsilons(known, at)):
        one, all_of_them = counted(entries, 1e-6), counted(more, 1e-6)
        for unit in UNITS[:3]:
            assert 0.0 <= getattr(one, unit) <= getattr(all_of_them, unit) * (1 + 1e-9) + 1e-9
            assert getattr(all_of_them, unit) > 0.5
    for gaussian_only in (False, True):
        found = capped_epsilons(more, 1e-6, gaussian=gaussian_only)
        assert 0.5 < found.variable <= found.client * (1 + 1e-9)
        assert found.block <= found.person * (1 + 1e-9)
        if not (math.isfinite(epsilon) and math.isfinite(mu)):
            assert found.variable == found.block == found.person == math.inf


@given(any_entry, st.sampled_from(UNITS), st.sampled_from([None, ("strict",)]))
@settings(max_examples=300)
def test_a_cap_lets_no_entry_through_whose_price_is_no_price(
    entry: Release, unit: str, methods: tuple[str, ...] | None
) -> None:
    """NaN, infinite and negative prices: refused or an error, before the ledger and after it."""
    policy = Policy(caps=Caps(**{unit: 1e6}), methods=methods)
    sound = entry.is_gaussian and math.isfinite(entry.mu_person)
    coins_sound = entry.epsilon >= 0.0 and entry.coins_epsilon >= 0.0 and entry.coins_count >= 0
    sound = sound or (not entry.is_gaussian and coins_sound and math.isfinite(entry.epsilon + entry.coins_epsilon))
    if sound:
        return
    for proposed, spent in (([entry], []), ([PLAIN], [entry])):
        with pytest.raises((BudgetExceeded, SettingsError)):
            policy.check("left", "strict", proposed, spent)


@given(any_entry)
@settings(max_examples=300)
@example(replace(PLAIN, epsilon=math.inf))
@example(replace(PLAIN, epsilon=-math.inf))
@example(replace(NOISY, mu=LARGEST, mu_person=LARGEST))
def test_a_ledger_line_comes_back_as_it_was_or_dearer_or_not_at_all(entry: Release) -> None:
    line = entry.to_json()
    json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    try:
        back = Release.from_json(line)
    except ValueError:
        numbers = (entry.epsilon, entry.coins_epsilon, entry.mu, entry.mu_person)
        assert any(map(math.isnan, numbers)) or min(entry.epsilon, entry.coins_epsilon, entry.coins_count) < 0
        return
    for name in ("epsilon", "coins_epsilon", "coins_count", "mu", "mu_person"):
        was, found = getattr(entry, name), getattr(back, name)
        assert found == was or (was == -math.inf and found == math.inf)
    assert back.is_gaussian <= (entry.is_gaussian or entry.mu_person == -math.inf)


@pytest.mark.parametrize("value", ["null", "NaN", "-1", '"1"', "[1]", "true", '"nan"', str(-(10**400))])
@pytest.mark.parametrize("field", ["epsilon", "coins_epsilon", "coins_count"])
def test_a_line_whose_price_is_no_price_is_no_ledger_entry(field: str, value: str) -> None:
    raw = json.loads(PLAIN.to_json())
    line = json.dumps({**raw, field: "@"}).replace('"@"', value)
    with pytest.raises(ValueError, match="price"):
        Release.from_json(line)


@pytest.mark.parametrize("field", ["epsilon", "coins_epsilon", "mu", "mu_person"])
def test_a_price_that_no_float_can_hold_is_no_price(field: str) -> None:
    with pytest.raises(ValueError, match="price"):
        Release.from_json(json.dumps({**json.loads(NOISY.to_json()), field: 10**400}))


def test_prices_that_overflow_when_they_are_added_up_are_infinite() -> None:
    twice = [replace(NOISY, mu=1e154, mu_person=1e155)] * 2
    assert gaussian.compose([1e308] * 5) == math.inf
    assert gaussian.compose([1e-300, 1e-300]) > 1e-300
    assert party_epsilons([replace(PLAIN, epsilon=1e308)] * 2, 1e-6).client == math.inf
    assert state_privacy(twice).person == math.inf
    with pytest.raises(SettingsError):
        gaussian.compose([math.nan, math.inf])
