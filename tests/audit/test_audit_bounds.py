"""The bounds themselves: exact, valid on a mechanism whose epsilon is known, and not too weak."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from benchmarks.audit_mechanisms import randomized_response
from verticopula.auditing import Claim, Neighbours, audit_release
from verticopula.auditing.bounds.epsilon_bounds import clopper_pearson, epsilon_low, highest_visible, two_sided
from verticopula.auditing.bounds.mechanism_audit import judge
from verticopula.errors import SettingsError
from verticopula.privacy.accounting import Coins, composed_epsilon

EPSILON = 1.0
SURE = 0.9999  # where one seeded audit must not be among those that may be wrong


def test_clopper_pearson_is_scipys() -> None:
    for hits in (0, 1, 7, 20):
        ours = two_sided(hits, 20, 0.9)
        theirs = stats.binomtest(hits, 20).proportion_ci(0.9, method="exact")
        assert ours == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_bounds_cover_at_every_probability() -> None:
    n, alpha = 40, 0.05
    k = np.arange(n + 1)
    low, high = clopper_pearson(k, n, alpha)
    for p in (0.001, 0.1, 0.37, 0.9):
        mass = stats.binom.pmf(k, n, p)
        assert mass[low > p].sum() <= alpha
        assert mass[high < p].sum() <= alpha


def test_a_bound_on_epsilon_uses_delta_and_never_falls_below_zero() -> None:
    assert float(epsilon_low(5, 100, 5, 100, 0.0, 0.05)) == 0.0
    assert float(epsilon_low(90, 100, 1, 100, 0.2, 0.05)) < float(epsilon_low(90, 100, 1, 100, 0.0, 0.05))
    assert float(epsilon_low(10, 100, 0, 100, 0.5, 0.05)) == 0.0
    assert highest_visible(1000, 0.0, 0.05) > highest_visible(100, 0.0, 0.05)


def bits(rng: np.random.Generator, trials: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Randomized response on 0 and on 1, drawn at once: thousands of audits are needed."""
    theta = 1.0 / (1.0 + math.exp(EPSILON))
    flips = rng.random((2, trials, 1)) < theta
    return [(flips[0].astype(float), 1.0 - flips[1])]


def test_the_lower_bound_exceeds_the_truth_no_more_often_than_it_may() -> None:
    rng = np.random.default_rng(11)
    audits, alpha = 600, 0.2
    claim = Claim.pure("variable", EPSILON)
    found = [judge(bits(rng, 60), claim, 1.0 - alpha).epsilon_low for _ in range(audits)]
    wrong = np.mean(np.array(found) > EPSILON)
    assert wrong <= alpha + 4.0 * math.sqrt(alpha * (1.0 - alpha) / audits)
    assert wrong > 0.0  # a bound that is never wrong at this confidence would not be a sharp one


def test_many_trials_come_close_to_the_truth() -> None:
    found = judge(bits(np.random.default_rng(3), 100_000), Claim.pure("variable", EPSILON), SURE)
    assert EPSILON - 0.1 < found.epsilon_low <= EPSILON
    assert found.holds


def test_the_real_noise_source_gives_the_same() -> None:
    release, claim = randomized_response(EPSILON), Claim.pure("variable", EPSILON)
    found = audit_release(release, Neighbours(0, 1), claim, 4_000, confidence=SURE, seed=5)
    assert 0.45 < found.epsilon_low <= EPSILON
    assert found == audit_release(release, Neighbours(0, 1), claim, 4_000, confidence=SURE, seed=5)
    too_small = Claim.pure("variable", 0.4)
    assert not audit_release(release, Neighbours(0, 1), too_small, 4_000, confidence=SURE, seed=5).holds
    assert audit_release(release, Neighbours(0, 0), claim, 4_000, confidence=SURE).epsilon_low == 0.0


def test_pooled_pairs_are_bounded_too() -> None:
    pairs = [Neighbours(0, 1), Neighbours(1, 0)]  # each pair has its own direction
    release, claim = randomized_response(EPSILON), Claim.pure("variable", EPSILON)
    assert 0.45 < audit_release(release, pairs, claim, 8_000, confidence=SURE, seed=5).epsilon_low <= EPSILON


def test_processes_change_nothing() -> None:
    release, claim = randomized_response(EPSILON), Claim.pure("variable", EPSILON)
    alone, together = (
        audit_release(release, Neighbours(0, 1), claim, 400, seed=1, workers=workers) for workers in (1, 2)
    )
    assert alone == together


def test_a_claim_knows_its_whole_curve() -> None:
    coins = (Coins(0.1, 50),)
    claim = Claim("block", composed_epsilon(coins, 1e-6), 1e-6, coins)
    assert claim.curve
    for epsilon, delta in claim.curve:
        assert composed_epsilon(coins, delta) <= epsilon + 1e-6
    assert Claim("block", math.inf, 1e-6, (Coins(math.inf, 1),)).curve == ()
    hopeless = (Coins(1.0, 5_000),)
    assert Claim("block", composed_epsilon(hopeless, 1e-6), 1e-6, hopeless).curve == ()


@pytest.mark.parametrize(("trials", "confidence"), [(99, 0.95), (1000, 1.0), (1000, 0.2)])
def test_settings_without_a_bound_are_refused(trials: int, confidence: float) -> None:
    with pytest.raises(SettingsError):
        audit_release(randomized_response(1.0), Neighbours(0, 1), Claim.pure("x", 1.0), trials, confidence=confidence)
