"""Three broken mechanisms are found out, three correct ones are not accused; so are the product's own releases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import binom

from benchmarks.audit_mechanisms import CASES, Case
from tests.audit.studies import federation, people
from verticopula.auditing.bounds.epsilon_bounds import epsilon_low
from verticopula.auditing.bounds.mechanism_audit import MeasuredClaim, Neighbours, audit_release
from verticopula.auditing.releases.attack_plan import StudyTerms, plan_attacks, run_attacks
from verticopula.auditing.releases.neighbours import flipped_comparison, replaced_value, typical_people
from verticopula.data.tables import align_tables
from verticopula.privacy.budget import ColumnBudget, StudyBudget
from verticopula.privacy.noise import SeededNoise
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.party.local_party import LocalParty
from verticopula.stats.ranks import sort_with_ties

pytestmark = pytest.mark.audit

CONFIDENCE = 0.999


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_broken_mechanisms_are_found_out_and_correct_ones_pass(case: Case) -> None:
    found = audit_release(case.release, case.neighbours, case.claim, 2_000, confidence=CONFIDENCE, seed=2)
    assert found.holds is case.keeps_it


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_with_cryptographic_noise_and_many_trials(case: Case) -> None:
    found = audit_release(case.release, case.neighbours, case.claim, 20_000, confidence=CONFIDENCE)
    assert found.holds is case.keeps_it


def terms(epsilon: float, sampler: str, method: str) -> StudyTerms:
    budgets = {key: ColumnBudget(epsilon, epsilon) for key in federation().keys}
    return StudyTerms(federation(), budgets, sampler, method, 1e-6)


@pytest.mark.parametrize(
    ("sampler", "method"),
    [("exact", "vcds"), ("binomial", "vcds"), pytest.param("exact", "ievcds", marks=pytest.mark.slow)],
)
def test_every_release_of_the_product_keeps_its_claims(sampler: str, method: str) -> None:
    attacks = plan_attacks(terms(1.0, sampler, method), n_subjects=40)
    assert {a.claim.unit for a in attacks} == {"variable", "client", "block", "person"}
    kinds = ("continuous", "binary", "count", "nominal")
    for what in ("ranks", "marginal", "all", *(["completed ranks"] if method == "ievcds" else [])):
        assert all(any(a.what.startswith(what) and kind in a.what for a in attacks) for kind in kinds)
    for found in run_attacks(attacks, 100, confidence=CONFIDENCE, seed=4):
        assert found.measured.holds, found.what


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["exact", "binomial"])
def test_bounds_come_close_to_what_one_comparison_costs(sampler: str) -> None:
    wanted = [a for a in plan_attacks(terms(1.0, sampler, "ievcds")) if a.change == "one flipped comparison"]
    for found in run_attacks(wanted, 20_000, confidence=CONFIDENCE, seed=4, workers=2):
        measured = found.measured
        assert reachable(measured) < measured.epsilon_low <= 1.0, found.what


def reachable(measured: MeasuredClaim) -> float:
    """The bound that an attacker gets who counts the coins that agree, if luck is against it by three standard errors.

    All of a comparison's coins together are worth its epsilon, but all of four agree in a tenth of the trials only.
    """
    (coins,) = measured.claim.coins
    size = measured.trials // 4  # half are of either data set, and half of those are counted
    shares = [binom.sf(coins.count // 2, coins.count, expit(sign * coins.epsilon)) for sign in (1.0, -1.0)]
    unlucky = [
        p * size - sign * 3.0 * np.sqrt(p * (1.0 - p) * size) for p, sign in zip(shares, (1.0, -1.0), strict=True)
    ]
    alpha = (1.0 - measured.confidence) / 2.0
    return float(epsilon_low(unlucky[0], size, unlucky[1], size, 0.0, alpha))


def test_the_synthetic_tables_leak_no_more_than_the_releases() -> None:
    budget = StudyBudget.build(federation(), unit="person", epsilon=2.0, delta=1e-6)
    study = replace(terms(1.0, "exact", "vcds"), budget=budget)
    attacks = plan_attacks(study, n_subjects=30, output_trials=100)
    wanted = [a for a in attacks if a.what == "the synthetic tables"]
    assert len(wanted) == 1
    person = next(a for a in attacks if a.claim.unit == "person")
    assert wanted[0].claim.epsilon == pytest.approx(person.claim.epsilon)  # what the tables are made from
    (found,) = run_attacks(wanted, 1_000, confidence=CONFIDENCE, seed=4)
    assert found.measured.trials == 100
    assert found.measured.holds


@pytest.mark.parametrize(("method", "rounds"), [("refined", 1), ("evcds", 1), ("ievcds", 3)])
def test_output_trials_run_the_studys_own_method(method: str, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = StudyBudget.build(federation(), unit="client", epsilon=4.0, delta=None, rounds=rounds)
    study = replace(terms(0.5, "exact", method), budget=budget)
    (attack,) = (a for a in plan_attacks(study, n_subjects=30, output_trials=100) if a.what == "the synthetic tables")
    seen: list[str] = []
    real = LocalParty.handle

    def watch(self: LocalParty, asked: Request) -> Reply:
        seen.append(getattr(asked, "method", method))
        return real(self, asked)

    monkeypatch.setattr(LocalParty, "handle", watch)
    assert isinstance(attack.neighbours, Neighbours)
    assert np.isfinite(attack.release(attack.neighbours.first, SeededNoise(3))).all()
    assert set(seen) == {method}
    # Every round's ranks at the budget of one round, and every marginal once.
    entries = attack.release.entries(attack.neighbours.first, SeededNoise(3))
    ranked = [e for e in entries if e.what != "marginal"]
    assert len(ranked) == rounds * len(federation().keys)
    assert [e.epsilon for e in ranked] == pytest.approx([0.5] * len(ranked))


def test_all_columns_of_a_party_and_one_of_each_kind_of_a_study() -> None:
    def ranked(**choice: str) -> set[str]:
        attacks = plan_attacks(terms(1.0, "exact", "vcds"), n_subjects=10, **choice)  # type: ignore[arg-type]
        return {a.what.split()[2] for a in attacks if a.what.startswith("ranks of ")}

    every = {str(key) for key in federation().keys}
    assert ranked(columns="all") == every
    assert ranked(party="bank") == {name for name in every if name.startswith("bank.")}
    assert ranked(party="bank", columns="one-per-kind") == {"bank.y", "bank.late"}
    assert len(ranked()) == 4  # continuous, binary, count and nominal


def test_claims_are_those_that_the_product_prints() -> None:
    attacks = plan_attacks(terms(0.5, "exact", "vcds"))
    by_change = {(a.what, a.change): a.claim.epsilon for a in attacks}
    assert by_change["ranks of bank.y (continuous)", "one flipped comparison"] == 0.5
    assert by_change["all of bank.y (continuous)", "one replaced value, which is in one comparison"] == 1.0
    assert by_change["everything from bank", "one comparison and one value in each column"] == 3.0
    one, all_of_it = (by_change[f"everything from {who}", f"one replaced {what}"] for who, what in
                      (("bank", "block"), ("all parties", "person")))  # fmt: skip
    assert 3.0 < one < all_of_it


def test_neighbours_differ_in_exactly_what_they_say() -> None:
    party = federation().party("bank")
    pair = flipped_comparison(party, ["y"], 30)
    first, second = (table.columns["y"].values for table in (pair.first, pair.second))
    before, after = (np.sign(v[:, None] - v[None, :]) for v in (first, second))
    assert np.count_nonzero(before != after) == 2  # one comparison, seen from both sides
    assert np.array_equal(np.sort(first), np.sort(second))
    moved = replaced_value(party, ["y", "late", "a"], 30)
    for name in ("y", "late", "a"):
        a, b = moved.first.columns[name].values, moved.second.columns[name].values
        assert np.flatnonzero(a != b).tolist() == [0]
    order, *_ = sort_with_ties(moved.first.columns["y"].values)
    assert order[0] == 0


def test_typical_people_are_real_and_keep_their_empty_cells() -> None:
    aligned = align_tables(federation(), people(0, 80, 1))
    for pair in typical_people(aligned, 40, 3, np.random.default_rng(0)):
        for name in aligned:
            assert np.array_equal(pair.first[name].observed(), pair.second[name].observed())
            for column, cells in pair.first[name].columns.items():
                other = pair.second[name].columns[column].values
                assert set(np.flatnonzero(cells.values != other)) <= {0}
                assert np.isin(other, aligned[name].columns[column].values).all()
