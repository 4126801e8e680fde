"""The audit of opened sums: right about correct and tolerated parties, and about three kinds of broken ones."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import binom

from benchmarks.audit_sums import CASES, SumsCase, none
from benchmarks.sums_plans import PARTIES, complete_plan
from tests.secure.sums_world import World, some_cells
from verticopula.auditing import audit_sums, replaced_block, replaced_record
from verticopula.auditing.sums.sums_attacks import PooledNoise, SumsRelease, exact_sums, judge_sums, mu_low
from verticopula.auditing.sums.sums_neighbours import SumsNeighbours, cut_plan, without_tables
from verticopula.errors import SettingsError
from verticopula.mpc.sums_plan import SumsPlan
from verticopula.privacy.gaussian_dp import gaussian_epsilon, mu_of
from verticopula.privacy.noise import Noise, SecureNoise, SeededNoise
from verticopula.schema.units import Unit

pytestmark = pytest.mark.audit

PAIRS: dict[str, Callable[[SumsPlan], SumsNeighbours]] = {
    "person": replaced_record,
    "block": lambda plan: replaced_block(plan, "a"),
}

# the nearest to the claim among the broken ones: they need twice as many
TRIALS = {
    "two compute parties add none": 1200,
    "mean squares for the bound, one adds none": 1200,
    "noise of one table on all, one adds none": 2000,
}


# ---- the bound -------------------------------------------------------------------------------


def test_the_bound_is_that_of_the_trade_off() -> None:
    assert mu_low(5_000, 10_000, 5_000, 10_000, 0.05) == 0.0
    assert mu_low(0, 100, 100, 100, 0.05) == mu_low(100, 100, 0, 100, 1e-300) == 0.0
    many = 10**8
    for mu in (0.2, 1.0, 3.0):
        counts = [round(many * float(ndtr(shift))) for shift in (mu - 0.7, -0.7)]
        found = mu_low(counts[0], many, counts[1], many, 0.05)
        assert mu - 0.002 < found < mu


@pytest.mark.parametrize("mu", [0.25, 1.0])
def test_bounds_above_the_truth_are_as_rare_as_they_may_be(mu: float) -> None:
    """Gaussian noise exactly as claimed, in the worst direction: nothing is more easily accused."""
    rng, audits, alpha = np.random.default_rng(0), 100, 0.1
    direction = np.array([mu, 0.0, 0.0])
    wrong = 0
    for _ in range(audits):
        noise = rng.standard_normal((2, 300, 3))
        wrong += judge_sums(noise[0], noise[1] + direction, direction, 1.0 - alpha).mu_low > mu
    assert binom.sf(wrong - 1, audits, alpha) > 1e-4


def test_a_number_that_was_left_without_noise_is_found_though_the_projection_misses_it() -> None:
    rng = np.random.default_rng(1)
    direction = np.array([0.3, 0.02, 0.0])
    noise = rng.standard_normal((2, 4_000, 3)) * [1.0, 0.001, 1.0]
    found = judge_sums(noise[0], noise[1] + direction, direction, 0.95)
    assert found.statistic == "learnt"
    assert found.mu_low > 2.0 > found.mu_estimate


def attained_share(made: SumsNeighbours) -> float:
    """How much of the claimed distance the two data sets have, in the claimed noise."""
    release = SumsRelease(made.plan, exact_sums(made.plan, made.pair.first, made.pairs), made.pairs)
    moved = release.standardise(exact_sums(made.plan, made.pair.second, made.pairs))
    return float(np.linalg.norm(moved)) / made.mu


# ---- the two data sets -----------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=2, max_size=4), st.floats(0.1, 3.0))
def test_neighbours_come_close_to_the_claimed_distance_and_never_exceed_it(widths: list[int], mu: float) -> None:
    plan = complete_plan(mu, {f"p{k}": width for k, width in enumerate(widths)})
    for party in (None, *plan.parties):
        made = replaced_record(plan) if party is None else replaced_block(plan, party)
        alone = without_tables(made, party)
        # signs add up to their target to within one column of all
        least = math.sqrt(1.0 - (1.0 / sum(widths)) ** 2) if party is None else 0.0
        assert least - 1e-4 <= attained_share(alone) <= 1.0 + 1e-9
        assert attained_share(made) <= 1.0 + 1e-9
        if party is None or alone.mu < 0.999 * plan.mu:
            assert attained_share(made) > 0.85
        moved = exact_sums(plan=made.plan, cells=made.pair.second, pairs=made.pairs)
        moved -= exact_sums(made.plan, made.pair.first, made.pairs)
        tables = moved[made.plan.width * (made.plan.width + 1) // 2 :]
        assert (tables**2).sum() == 2 * len(made.pairs)  # every table moves


def test_neighbours_differ_in_one_person_or_one_block() -> None:
    plan = complete_plan(1.0)
    person, block = replaced_record(plan), replaced_block(plan, "b")
    for party in PARTIES:
        one, other = (side[party] for side in (person.pair.first, person.pair.second))
        assert (one[1:] == other[1:]).all()
        one, other = (side[party] for side in (block.pair.first, block.pair.second))
        assert (one[1:] == other[1:]).all()
        assert (one[0] == other[0]).all() == (party != "b")
    assert person.mu == pytest.approx(math.sqrt(2.0) * plan.mu)  # of both openings
    assert person.mu > block.mu
    assert without_tables(person).mu == plan.mu > without_tables(block, "b").mu
    assert (person.unit, block.unit) == (Unit.PERSON, Unit.BLOCK)


def test_a_studys_own_plan_can_be_audited_pattern_by_pattern() -> None:
    plan = World(some_cells({"a": 2, "b": 2, "c": 1}, 40), mu=1.0).plan()
    for pattern in (0, len(plan.weights) - 1):
        made = replaced_record(plan, pattern=pattern, subjects=3)
        assert made.plan.pattern_of.size == 3
        assert (made.plan.weights == plan.weights[[pattern]]).all()
        assert audit_sums(made, 100, seed=1, copies=50).holds
    empty = int(np.flatnonzero(plan.parts[:, 0] == 0)[0])
    with pytest.raises(SettingsError, match="no part"):
        replaced_block(plan, "a", pattern=empty)
    for pattern, subjects in ((99, 3), (0, 0)):
        with pytest.raises(SettingsError):
            cut_plan(plan, pattern, subjects)


# ---- the trials ------------------------------------------------------------------------------


def test_without_noise_the_trials_are_the_exact_sums() -> None:
    """Sharing and opening add nothing of their own, however often the cells are opened."""
    made = replaced_record(complete_plan(1.0))
    known = exact_sums(made.plan, made.pair.first, made.pairs)
    release = SumsRelease(made.plan, known, made.pairs, 3, dict.fromkeys("abc", none))
    assert np.abs(release(made.pair.first, SeededNoise(1))).max() < 1e-9
    moved = release(made.pair.second, SeededNoise(1)).reshape(3, -1)
    expected = release.standardise(exact_sums(made.plan, made.pair.second, made.pairs))
    np.testing.assert_allclose(moved, np.tile(expected, (3, 1)), atol=1e-9)
    assert np.linalg.norm(expected) == pytest.approx(made.mu, rel=0.02)


@pytest.mark.parametrize("noise", [SeededNoise(1), SecureNoise()], ids=["seeded", "secure"])
def test_every_opening_has_noise_of_its_own(noise: Noise) -> None:
    made = replaced_record(complete_plan(1.0))
    known = exact_sums(made.plan, made.pair.first, made.pairs)
    found = SumsRelease(made.plan, known, made.pairs, 200)(made.pair.first, noise).reshape(200, -1)
    assert len(np.unique(found[:, 0])) == len(np.unique(found[:, -1])) == 200
    assert found.std() == pytest.approx(math.sqrt(1.5), rel=0.1)


def test_with_two_parties_the_coordinator_computes() -> None:
    made = replaced_block(complete_plan(1.0, {"a": 1, "b": 1}), "a")
    assert audit_sums(made, 200, seed=1).holds


def test_pooled_noise_hands_out_every_draw_once() -> None:
    class Counting(SecureNoise):
        drawn = 0

        def discrete_gaussian(self, values: np.ndarray, scale: float, *label: str) -> np.ndarray:
            self.drawn += values.size
            return values + np.arange(self.drawn - values.size, self.drawn)

    pool = PooledNoise(Counting())
    taken = np.concatenate([pool.discrete_gaussian(np.zeros(k, dtype=np.int64), 3.0) for k in (7, 290, 50, 700, 1)])
    assert taken.tolist() == list(range(taken.size))


def test_too_few_trials_are_refused() -> None:
    made = replaced_record(complete_plan(1.0))
    for trials, confidence, copies in ((10, 0.95, 10), (1_000, 0.2, 10), (1_000, 0.95, 0)):
        with pytest.raises(SettingsError):
            audit_sums(made, trials, confidence=confidence, copies=copies)


# ---- verdicts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "unit"),
    [*((case, "person") for case in CASES), *((case, "block") for case in CASES[1:3])],
    ids=lambda value: getattr(value, "name", value),
)
def test_verdicts(case: SumsCase, unit: str) -> None:
    """At mu = 2 a few hundred trials are enough; a seed, so that the verdict is always the same."""
    trials = TRIALS.get(case.name, 400)
    with case.plant():
        made = PAIRS[unit](complete_plan(2.0))
        found = audit_sums(made, trials, seed=3, copies=trials // 2, **case.settings())
    assert found.holds is case.keeps_it
    assert found.trials == trials
    assert found.epsilon == pytest.approx(gaussian_epsilon(made.mu, 1e-6))
    assert found.holds == (found.epsilon_low <= found.epsilon)
    assert attained_share(made) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("unit", list(PAIRS))
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_verdicts_on_cryptographic_noise(case: SumsCase, unit: str) -> None:
    """(3, 1e-6). Two missing shares are the nearest to the claim, by a factor of sqrt(2): 12,000 counted trials of each
    data set put their bound six standard errors above it, and a correct one's is wrong once in a million."""
    with case.plant():
        made = PAIRS[unit](complete_plan(mu_of(3.0, 1e-6)))
        found = audit_sums(made, 30_000, confidence=0.999, **case.settings())
    assert found.holds is case.keeps_it
    if case.name == "one compute party adds none":  # exactly what is claimed, so the estimate must be the claim
        assert found.mu_estimate == pytest.approx(attained_share(made) * made.mu, abs=5.0 * math.sqrt(2.0 / 15_000))
