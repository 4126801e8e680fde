"""Filters: never below exact composition, closed over all floats, and valid for who chooses adaptively."""

from __future__ import annotations

import math
import sys
from functools import cache

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import norm

from verticopula.errors import BudgetExceeded, SettingsError
from verticopula.privacy.accounting import Coins, composed_epsilon
from verticopula.privacy.adaptive_filter import (
    add_mu,
    add_rho,
    coin_mu,
    coin_rho,
    gaussian_rho,
    mu_epsilon,
    rho_epsilon,
)
from verticopula.privacy.gaussian_dp import gaussian_delta, gaussian_epsilon
from verticopula.privacy.policy import Caps, Policy, capped_epsilons
from verticopula.privacy.pricing import Pricing
from verticopula.privacy.release import Release
from verticopula.schema.columns import Column

LARGEST = sys.float_info.max
COLUMN = Column(name="x", kind="continuous", bounds=(0.0, 1.0))
anything = st.floats(min_value=0.0, exclude_min=True, allow_nan=False, allow_infinity=True)
deltas = st.floats(min_value=1e-300, max_value=1.0, exclude_max=True)
bad = pytest.mark.parametrize("value", [math.nan, -1.0, -math.inf])


# ---- one formula, one oracle -----------------------------------------------------------------


@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-3, 0.3])
@pytest.mark.parametrize("rho", [1e-8, 1e-3, 0.1, 1.0, 30.0])
def test_the_conversion_is_the_least_over_a_fine_grid_of_orders(rho: float, delta: float) -> None:
    """Canonne, Kamath and Steinke's formula as it is printed."""
    orders = 1.0 + np.logspace(-4, 7, 400_001)
    printed = orders * rho - np.log(orders * delta) / (orders - 1.0) + np.log1p(-1.0 / orders)
    least = max(0.0, float(printed.min()))
    assert least * (1 - 1e-6) - 1e-12 <= rho_epsilon(rho, delta) <= least * (1 + 1e-9) + 1e-9


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 1.9, 2.0, 5.0, 40.0])
def test_a_coin_s_rho_bounds_its_divergence_at_every_order(epsilon: float) -> None:
    """D_a of a coin against its reverse, in logarithms: never above a rho."""
    orders = 1.0 + np.logspace(-6, 5, 400)
    log_p, log_q = -np.logaddexp(0.0, -epsilon), -np.logaddexp(0.0, epsilon)
    both = np.stack([orders * log_p + (1 - orders) * log_q, orders * log_q + (1 - orders) * log_p])
    divergence = np.logaddexp(*both) / (orders - 1.0)
    assert np.all(divergence <= orders * coin_rho(epsilon) * (1 + 1e-9) + 1e-9)


@pytest.mark.parametrize("epsilon", [1e-6, 9e-4, 1.1e-3, 0.1, 1.0, 5.0, 30.0])
def test_a_coin_s_mu_bounds_its_trade_off_everywhere(epsilon: float) -> None:
    alpha = np.concatenate([np.logspace(-15, -2, 300), np.linspace(0.01, 0.99, 300)])
    coin = np.maximum(np.maximum(0.0, 1.0 - math.exp(epsilon) * alpha), math.exp(-epsilon) * (1.0 - alpha))
    gaussian = ndtr(norm.isf(alpha) - coin_mu(epsilon))
    assert np.all(gaussian <= coin + 1e-12)
    at_corner = 1.0 / (1.0 + math.exp(epsilon))
    assert ndtr(norm.isf(at_corner) - coin_mu(epsilon)) >= at_corner * (1 - 1e-3)  # and is no larger than it must be


# ---- against exact composition ---------------------------------------------------------------


small_coins = st.builds(Coins, epsilon=st.floats(1e-4, 5.0), count=st.integers(1, 300))


@given(st.lists(small_coins, max_size=3), st.floats(0.0, 2.0), st.floats(1e-9, 0.1))
@example([Coins(4.0, 1)], 0.0, 1e-6)
@example([Coins(0.01, 300)], 0.5, 1e-9)
@settings(max_examples=80)
def test_no_filter_is_below_exact_composition(held: list[Coins], mu: float, delta: float) -> None:
    noise = [mu] if mu > 0.0 else []
    alone = composed_epsilon(held[:1], delta)  # exact, without a grid
    assert rho_epsilon(add_rho(held[:1], []), delta) >= alone * (1 - 1e-9)
    assert mu_epsilon(add_mu(held[:1], []), delta) >= alone * (1 - 1e-9)
    # The exact answer is rounded up to a grid: by less than a 64th of the finest coin per kind.
    slack = 4.0 * max([c.epsilon / 32.0 for c in held] + [mu / 1024.0], default=0.0)
    exact = composed_epsilon(held, delta, mu)
    assert rho_epsilon(add_rho(held, noise), delta) >= exact - slack - 1e-9
    assert mu_epsilon(add_mu(held, noise), delta) >= exact - slack - 1e-9


@given(st.lists(st.floats(1e-3, 3.0), min_size=1, max_size=4), st.floats(1e-9, 0.1))
def test_gaussian_noise_is_exact_by_mu_and_a_little_above_by_rho(mus: list[float], delta: float) -> None:
    exact = gaussian_epsilon(math.hypot(*mus), delta)
    assert mu_epsilon(add_mu([], mus), delta) == pytest.approx(exact, rel=1e-9, abs=1e-9)
    assert exact * (1 - 1e-9) <= rho_epsilon(add_rho([], mus), delta)


def test_what_the_filters_cost() -> None:
    """The shares that the documentation states."""
    mu = 0.83
    assert 1.05 < rho_epsilon(gaussian_rho(mu), 1e-6) / gaussian_epsilon(mu, 1e-6) < 1.09
    many = [Coins(0.05, 1000)]
    assert 1.05 < rho_epsilon(add_rho(many, []), 1e-6) / composed_epsilon(many, 1e-6) < 1.09
    assert 1.2 < mu_epsilon(add_mu(many, []), 1e-6) / composed_epsilon(many, 1e-6) < 1.35


# ---- the whole range of floats ---------------------------------------------------------------


@given(anything, anything, deltas)
@example(LARGEST, LARGEST, 1e-6)
@example(5e-324, 5e-324, 1e-300)
@example(1e154, 1e155, 1e-6)
def test_conversions_grow_and_are_never_no_number(one: float, two: float, delta: float) -> None:
    low, high = min(one, two), max(one, two)
    for convert in (rho_epsilon, mu_epsilon):
        small, large = convert(low, delta), convert(high, delta)
        assert 0.0 <= small <= large * (1 + 1e-6) + 1e-12
        assert convert(math.inf, delta) == math.inf


@given(anything, st.one_of(st.integers(1, 10_000), st.sampled_from([10**12, 10**400])), deltas)
@example(LARGEST, 10**400, 1e-6)
@example(5e-324, 1, 1e-300)
def test_every_release_costs_something_and_more_cost_more(epsilon: float, count: int, delta: float) -> None:
    for add in (add_rho, add_mu):
        one, more = add([Coins(epsilon, 1)], []), add([Coins(epsilon, count)], [epsilon])
        assert 0.0 < one <= more
        assert not math.isnan(more)
        if math.isinf(epsilon) or count == 10**400:
            assert more == math.inf
    assert rho_epsilon(add_rho([Coins(epsilon, 1)], []), delta) >= 0.0


@bad
def test_what_is_no_price_is_an_error(value: float) -> None:
    for call in (coin_rho, coin_mu, gaussian_rho):
        with pytest.raises(SettingsError):
            call(value)
    for convert in (rho_epsilon, mu_epsilon):
        with pytest.raises(SettingsError):
            convert(value, 1e-6)
    for add in (add_rho, add_mu):
        with pytest.raises(SettingsError):
            add([Coins(value, 1)], [])
        with pytest.raises(SettingsError):
            add([], [value])
        with pytest.raises(SettingsError):
            add([Coins(1.0, -1)], [])


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, math.nan, math.inf])
def test_a_delta_lies_between_0_and_1(delta: float) -> None:
    for convert in (rho_epsilon, mu_epsilon):
        with pytest.raises(SettingsError):
            convert(1.0, delta)


# ---- the attack ------------------------------------------------------------------------------

CAP, DELTA = 3.0, 1e-3
CHOICES = (0.25, 0.5, 1.0, 2.0)


def within_cap_exactly(spent: tuple[int, ...]) -> bool:
    """The rule that exact composition would give: unsound for adaptive choices."""
    return composed_epsilon([Coins(e, n) for e, n in zip(CHOICES, spent, strict=True)], DELTA) <= CAP


def within_cap_by_filter(spent: tuple[int, ...]) -> bool:
    return rho_epsilon(add_rho([Coins(e, n) for e, n in zip(CHOICES, spent, strict=True)], []), DELTA) <= CAP


def best_attack(allowed: dict[tuple[int, ...], bool] | None, rule: object) -> float:
    """The largest delta at the cap of an analyst who picks the next coin's epsilon after seeing the earlier ones.

    Exact: a state is what was spent and the privacy loss so far (in quarters); in each the analyst stops, or takes
    the coin with the best prospects. The value of stopping is (1 - exp(cap - loss)), from 0 upwards.
    """
    known: dict[tuple[int, ...], bool] = {} if allowed is None else allowed

    def permits(spent: tuple[int, ...]) -> bool:
        if spent not in known:
            known[spent] = rule(spent)  # type: ignore[operator]
        return known[spent]

    @cache
    def value(spent: tuple[int, ...], quarters: int) -> float:
        best = max(0.0, -math.expm1(CAP - quarters / 4.0))
        for place, epsilon in enumerate(CHOICES):
            more = (*spent[:place], spent[place] + 1, *spent[place + 1 :])
            if permits(more):
                honest, step = 1.0 / (1.0 + math.exp(-epsilon)), round(4 * epsilon)
                prospects = honest * value(more, quarters + step) + (1 - honest) * value(more, quarters - step)
                best = max(best, prospects)
        return best

    return value((0,) * len(CHOICES), 0)


def test_who_chooses_adaptively_cannot_exceed_a_cap_that_a_filter_guards() -> None:
    assert best_attack(None, within_cap_by_filter) <= DELTA


def test_exact_composition_alone_would_let_the_same_analyst_through() -> None:
    """What the filter is for: the rule that counted before is exceeded."""
    assert best_attack(None, within_cap_exactly) > 1.05 * DELTA


def test_adaptive_gaussians_and_coins_stay_within_a_cap() -> None:
    """A coin for who sees a high loss, more Gaussian noise for who does not: at any threshold, within delta."""
    policy = Policy(caps=Caps(block=CAP), delta=DELTA)

    def largest(found: list[Release], price: object) -> float:
        low, high = 0.0, 5.0
        for _ in range(60):
            middle = 0.5 * (low + high)
            try:
                policy.check("a", "vcds", [price(middle)], found)  # type: ignore[operator]
                low = middle
            except BudgetExceeded:
                high = middle
        return low

    def moments(mu: float) -> Release:
        return Pricing("s", "a").gram(100, mu, mu)

    def cells(epsilon: float) -> Release:
        return Pricing("s", "a").first_round(COLUMN, "exact", 100, 1e-9, epsilon)[1]

    losses = np.linspace(-12.0, 14.0, 20_001)
    for first in (0.2, 0.4, 0.6):
        mu, epsilon = largest([moments(first)], moments), largest([moments(first)], cells)
        density = norm.pdf(losses, first * first / 2.0, first)
        stop = np.maximum(0.0, -np.expm1(CAP - losses))
        go_on = np.array([gaussian_delta(mu, CAP - loss) for loss in losses])
        honest = 1.0 / (1.0 + math.exp(-epsilon))
        flip = honest * np.maximum(0.0, -np.expm1(CAP - losses - epsilon))
        flip += (1 - honest) * np.maximum(0.0, -np.expm1(CAP - losses + epsilon))
        found = np.trapezoid(density * np.maximum(stop, np.maximum(go_on, flip)), losses)
        assert 0.0 < found <= DELTA


def test_a_refusal_says_how_it_was_counted() -> None:
    entries = list(Pricing("s", "a").first_round(COLUMN, "exact", 100, 0.1, 1.0))
    for unit, said in (
        ("client", "would become 1.1, above"),
        ("block", "counted by a zCDP filter"),
        ("person", "zCDP"),
    ):
        with pytest.raises(BudgetExceeded, match=said):
            Policy(caps=Caps(**{unit: 0.5})).check("a", "vcds", entries, [])
    with pytest.raises(BudgetExceeded, match="counted by a Gaussian filter"):
        Policy(caps=Caps(client=0.1), methods=("strict",)).check(
            "a", "strict", [Pricing("s", "a").gram(100, 0.5, 0.5)], []
        )


def test_a_column_s_gaussian_noise_counts_at_every_unit() -> None:
    """Where some noise is Gaussian, pure epsilons cannot be added to it adaptively: the filter counts at every unit."""
    coins = list(Pricing("s", "a").first_round(COLUMN, "exact", 100, 0.1, 1.0))
    noise = Pricing("s", "a").gram(100, 0.3, 0.4)
    for gaussian in (False, True):
        found = capped_epsilons([*coins, noise], 1e-6, gaussian=gaussian)
        least = capped_epsilons([noise], 1e-6, gaussian=gaussian)
        assert least.variable == least.client == least.block < least.person
        assert least.block < found.variable <= found.client <= found.block < found.person
        little = capped_epsilons([*coins, Pricing("s", "a").gram(100, 1e-6, 1e-6)], 1e-6, gaussian=gaussian)
        assert little.variable < 0.999 * found.variable
        assert little.client < 0.999 * found.client


# ---- no release lowers a count ---------------------------------------------------------------

OTHER = Column(name="other", kind="binary")
epsilons, mus = st.floats(1e-9, 50.0), st.floats(1e-9, 5.0)
releases = st.one_of(
    st.builds(
        lambda column, name, epsilon: Pricing("s", name).first_round(column, "exact", 20, epsilon, epsilon)[1],
        st.sampled_from([COLUMN, OTHER]),
        st.sampled_from(["a", "b"]),
        epsilons,
    ),
    st.builds(
        lambda column, epsilon, missing: Pricing("s", "a").completed_round(column, "exact", 20, missing, epsilon),
        st.sampled_from([COLUMN, OTHER]),
        epsilons,
        st.integers(0, 20),
    ),
    st.builds(lambda mu: Pricing("s", "a").gaussian_margin(COLUMN, 20, mu), mus),
    st.builds(
        lambda name, mu, more, joint: Pricing("s", name).gram(20, mu, mu * more, joint=joint),
        st.sampled_from(["a", "b"]),
        mus,
        st.floats(1.0, 3.0),
        st.sampled_from(["", "0" * 64]),
    ),
)


@pytest.mark.parametrize("gaussian", [False, True])
@given(st.lists(releases, max_size=6), releases, st.floats(1e-9, 0.1))
@example([], Pricing("s", "a").gram(20, 1e-6, 1e-6), 1e-6)
@settings(max_examples=150, deadline=None)
def test_no_release_lowers_what_counts(gaussian: bool, held: list[Release], more: Release, delta: float) -> None:
    before, after = (capped_epsilons(entries, delta, gaussian=gaussian) for entries in (held, [*held, more]))
    for unit in ("variable", "client", "block", "person"):
        assert getattr(after, unit) >= getattr(before, unit) * (1 - 1e-12), unit


@pytest.mark.parametrize("unit", ["variable", "client"])
def test_a_strict_study_makes_no_room_under_a_cap_that_is_spent(unit: str) -> None:
    """Forty releases of 0.1: a filter says less than 4, and the sum is what was promised."""
    columns = [OTHER if unit == "variable" else Column(name=f"c{j}", kind="binary") for j in range(40)]
    spent = [Pricing("s", "a").first_round(column, "exact", 60, 1e-9, 0.1)[1] for column in columns]
    policy, noise = Policy(caps=Caps(**{unit: 4.0})), Pricing("strict", "a").gram(60, 1e-4, 1e-4)
    assert capped_epsilons([*spent, noise], 1e-6).block < 4.0
    policy.check("a", "strict", [noise], spent)
    with pytest.raises(BudgetExceeded, match=f"per {unit}"):
        policy.check("a", "vcds", [Pricing("t", "a").first_round(OTHER, "exact", 60, 1e-9, 0.1)[1]], [*spent, noise])
