"""Gaussian noise in the ledger: composed with coins as another library does it, at every unit, never understated."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st

from verticopula.errors import BudgetExceeded, PolicyRefused
from verticopula.privacy import gaussian_dp as gaussian
from verticopula.privacy.accounting import Coins, composed_delta, composed_epsilon
from verticopula.privacy.policy import Caps, Policy
from verticopula.privacy.pricing import Pricing
from verticopula.privacy.release import ALL_COLUMNS, Release
from verticopula.privacy.statement import format_price, party_epsilons, state_privacy
from verticopula.schema.columns import Column
from verticopula.schema.units import Unit

DELTA = 1e-6
COLUMN = Column(name="x", kind="continuous", bounds=(0.0, 1.0))


def entries(party: str = "a", mu: float = 0.1, whole: float = 0.2, study: str = "s") -> list[Release]:
    pricing = Pricing(study, party)
    joint = hashlib.sha256(study.encode()).hexdigest()
    return [pricing.gaussian_margin(COLUMN, 100, 0.05), pricing.gram(100, mu, whole, joint=joint)]


# ---- composition -----------------------------------------------------------------------------


@pytest.mark.parametrize("mu", [0.05, 0.2367, 1.0])
@pytest.mark.parametrize("coins", [[Coins(0.5, 1)], [Coins(0.02, 400)], [Coins(0.01, 50), Coins(0.7, 2)]], ids=str)
def test_dp_accounting_composes_coins_and_gaussians_the_same(mu: float, coins: list[Coins]) -> None:
    fine = 1e-3
    other = pld.from_gaussian_mechanism(1.0, sensitivity=mu, value_discretization_interval=fine)
    for c in coins:
        one = pld.from_privacy_parameters(
            pld.common.DifferentialPrivacyParameters(c.epsilon, 0.0), value_discretization_interval=fine
        )
        other = other.compose(one.self_compose(c.count))
    found, theirs = composed_epsilon(coins, DELTA, mu), other.get_epsilon_for_delta(DELTA)
    # Theirs rounds losses up to its grid too, by a step for every coin at most.
    assert theirs - fine * (1 + sum(c.count for c in coins)) <= found <= theirs * (1.0 + 2e-3) + fine


@given(mu=st.floats(1e-3, 8.0), delta=st.floats(1e-9, 0.3))
@settings(max_examples=25, deadline=None)
def test_gaussians_alone_are_exact(mu: float, delta: float) -> None:
    assert composed_epsilon([], delta, mu) == gaussian.gaussian_epsilon(mu, delta)
    assert composed_delta([], 0.7, mu) == gaussian.gaussian_delta(mu, 0.7)


@given(
    mu=st.floats(1e-3, 5.0),
    delta=st.floats(1e-8, 0.1),
    coins=st.lists(st.builds(Coins, epsilon=st.floats(1e-3, 2.0), count=st.integers(1, 200)), min_size=1, max_size=3),
)
@settings(max_examples=10, deadline=None)
def test_together_costs_more_than_either_and_no_more_than_one_after_the_other(
    mu: float, delta: float, coins: list[Coins]
) -> None:
    both, pure = composed_epsilon(coins, delta, mu), sum(c.epsilon * c.count for c in coins)
    # The coins' own figure may be rounded up on a coarser grid, by a 64th of the finest loss per kind.
    grid = len(coins) * 2.0 * min(c.epsilon for c in coins) / 64.0
    assert max(gaussian.gaussian_epsilon(mu, delta), composed_epsilon(coins, delta) - grid) <= both * (1.0 + 1e-9)
    assert both <= pure + gaussian.gaussian_epsilon(mu, delta)
    if both < pure:
        assert composed_delta(coins, both, mu) <= delta * (1.0 + 1e-6)


def test_ends() -> None:
    assert composed_epsilon([], DELTA, 0.0) == 0.0
    assert composed_epsilon([], 0.0, 0.1) == math.inf
    assert composed_epsilon([Coins(math.inf, 1)], DELTA, 0.1) == math.inf
    assert composed_epsilon([], DELTA, math.inf) == math.inf
    assert composed_epsilon([Coins(0.1, 1)], 1e-14, 0.2) == 0.1 + gaussian.gaussian_epsilon(0.2, 1e-14)
    assert composed_delta([Coins(0.1, 1)], 0.0, math.inf) == 1.0


# ---- in the ledger ---------------------------------------------------------------------------


def test_entries_come_back_as_they_were_and_old_readers_count_too_much() -> None:
    for entry in entries():
        assert Release.from_json(entry.to_json()) == entry
        raw = json.loads(entry.to_json())
        old = Release.from_json(json.dumps({k: v for k, v in raw.items() if k not in ("mu", "mu_person", "joint")}))
        assert party_epsilons([old], DELTA).block == math.inf


@pytest.mark.parametrize("broken", [{"mu": math.inf}, {"mu": -1.0}, {"mu": math.nan}, {"mu_person": 0.01}], ids=str)
def test_a_mu_that_cannot_be_counts_as_no_protection(broken: dict[str, float]) -> None:
    entry = replace(entries()[1], **broken)
    if not math.isnan(entry.mu):
        entry = Release.from_json(entry.to_json())
    assert state_privacy([entry], DELTA).person == math.inf


def test_a_block_is_all_of_a_partys_gaussians_and_a_person_counts_a_joint_release_once() -> None:
    both = [*entries("a", 0.1), *entries("b", 0.15)]
    said = state_privacy(both, DELTA)
    assert said.parties["a"].block == pytest.approx(gaussian.gaussian_epsilon(math.hypot(0.05, 0.1), DELTA), rel=1e-9)
    assert said.parties["b"].block == pytest.approx(gaussian.gaussian_epsilon(math.hypot(0.05, 0.15), DELTA), rel=1e-9)
    assert said.person == pytest.approx(gaussian.gaussian_epsilon(math.hypot(0.05, 0.05, 0.2), DELTA), rel=1e-9)
    assert said.person > gaussian.gaussian_epsilon(math.hypot(0.05, 0.05, 0.2), DELTA)
    assert said.parties["a"].variable == said.parties["a"].client == said.parties["a"].block
    text = "\n".join(said.lines())
    assert text.count("at delta = 1e-06") == len(Unit)


def test_two_studies_and_a_release_made_twice_count_twice() -> None:
    first, second = entries()[1:], entries(study="other")[1:]
    twice = gaussian.gaussian_epsilon(math.hypot(0.2, 0.2), DELTA)
    assert state_privacy([*first, *second], DELTA).person == pytest.approx(twice, rel=1e-9)
    assert state_privacy([*first, *first], DELTA).person == pytest.approx(twice, rel=1e-9)


def test_a_joint_release_counts_once_at_any_number_of_parties_and_in_any_order() -> None:
    """The same plan and keys: one release, however many parties entered it and whatever they are called."""
    seen = [entries(name)[1] for name in ("a", "b", "c")]
    once = gaussian.gaussian_epsilon(0.2 * (1 + 2.0**-50), DELTA)
    for told in (seen, seen[::-1]):
        assert state_privacy(told, DELTA).person == pytest.approx(once, rel=1e-9)


@pytest.mark.parametrize("joint", ["", "s", "digest"])
def test_two_joint_releases_never_count_once_because_of_their_names(joint: str) -> None:
    """One organisation's ledger: two releases of one study name, under two names of the party."""
    first, second = (
        replace(
            entries(party)[1],
            table="t",
            joint=hashlib.sha256(party.encode()).hexdigest() if joint == "digest" else joint,
        )
        for party in ("a", "another name")
    )
    twice = gaussian.gaussian_epsilon(math.hypot(0.2, 0.2), DELTA)
    assert state_privacy([first, second], DELTA).person == pytest.approx(twice, rel=1e-9)
    policy = Policy(methods=("strict",), caps=Caps(person=0.99 * twice))
    policy.check("a", "strict", [first], [])
    with pytest.raises(BudgetExceeded, match="per person"):
        policy.check("a", "strict", [second], [first])


def test_the_parties_of_an_old_study_still_count_a_joint_release_once() -> None:
    """Its entries name the study in `joint`, and no vault wrote them."""
    old = [replace(entries(name)[1], joint="s") for name in ("a", "b")]
    assert state_privacy(old, DELTA).person == pytest.approx(gaussian.gaussian_epsilon(0.2, DELTA), rel=1e-9)


def test_ranks_and_gaussians_of_one_party_compose() -> None:
    ranks, cells = Pricing("r", "a").first_round(COLUMN, "exact", 100, 0.01, 0.2)
    said = party_epsilons([ranks, cells, *entries()], DELTA)
    mu = gaussian.compose(entry.mu for entry in entries())
    assert said.block == composed_epsilon([ranks.coins, cells.coins], DELTA, mu)
    assert said.client == pytest.approx(0.21 + gaussian.gaussian_epsilon(mu, DELTA))


def test_ranges_from_the_data_leave_no_epsilon() -> None:
    pricing = Pricing("s", "a", bounds_from_data=True)
    for entry in (pricing.gaussian_margin(COLUMN, 9, 0.1), pricing.gram(9, 0.1, 0.1)):
        assert state_privacy([entry]).person == math.inf
        assert "infinite" in format_price(entry)


# ---- policy and steward ----------------------------------------------------------------------


def test_a_person_cap_counts_what_all_parties_hold() -> None:
    alone, together = entries()
    whole = gaussian.gaussian_epsilon(gaussian.compose([alone.mu_person, together.mu_person]), DELTA)
    own = gaussian.gaussian_epsilon(gaussian.compose([alone.mu, together.mu]), DELTA)
    assert own < 0.7 * whole
    Policy(methods=("strict",), caps=Caps(person=whole * (1 + 1e-6))).check("a", "strict", [alone, together], [])
    refusing = Policy(methods=("strict",), caps=Caps(person=whole * (1 - 1e-6), block=own * (1 + 1e-6)))
    with pytest.raises(BudgetExceeded, match="epsilon per person"):
        refusing.check("a", "strict", [alone, together], [])


def test_a_block_cap_counts_at_the_policys_delta() -> None:
    mu = gaussian.compose(entry.mu for entry in entries())
    cap = gaussian.gaussian_epsilon(mu, 1e-5)
    policy = Policy(methods=("strict",), caps=Caps(block=cap), delta=1e-5)
    policy.check("a", "strict", entries(), [])
    with pytest.raises(BudgetExceeded, match="per block"):
        policy.model_copy(update={"delta": 1e-6}).check("a", "strict", entries(), [])
    with pytest.raises(BudgetExceeded):
        policy.check("a", "strict", entries(), entries(study="before"))
    with pytest.raises(PolicyRefused, match="'strict'"):
        Policy(methods=("vcds",)).check("a", "strict", entries(), [])


def test_a_column_that_is_not_shared_is_not_hidden_behind_all_columns() -> None:
    assert entries()[1].column == ALL_COLUMNS
    with pytest.raises(PolicyRefused, match="'x'"):
        Policy(columns=("y",)).check("a", "strict", entries(), [])


def test_a_statement_without_ranks_does_not_speak_of_comparisons() -> None:
    statement = state_privacy(entries())
    assert "comparison" not in str(statement)
    assert "one person's value in one column; the largest over columns" in str(statement)
    ranked = state_privacy([*entries(), *Pricing("s", "a").first_round(COLUMN, "exact", 100, 1.0, 1.0)])
    assert "one comparison of two subjects in one column (ranks)" in str(ranked)
