"""A party computes the plan of secure sums itself, from masks and margins that their parties signed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.members import KEY, make_members
from tests.network.harness import small_tables
from tests.secure.strict_world import FEDERATION
from tests.secure.sums_world import Recorded
from verticopula import Synthesizer
from verticopula.errors import ProtocolError
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.mpc.sums_plan import SumsPlan
from verticopula.privacy.statement import state_privacy
from verticopula.protocol.consent_messages import ConsentRequest
from verticopula.protocol.messages import Reply, fingerprint
from verticopula.protocol.party import expected_plans
from verticopula.protocol.party.expected_plans import ExpectedPlans
from verticopula.protocol.strict_messages import SumsShareRequest
from verticopula.protocol.study_proposal import margins_statement
from verticopula.schema.units import Unit

TABLES = small_tables(80)
MIDDLE = 1  # its place among the parties
Lie = Callable[["Lying", SumsShareRequest], SumsShareRequest]


class Lying(Recorded):
    """A coordinator that shows the parties another plan, or other evidence, than it should."""

    def __init__(self, parties: Any, lie: Lie) -> None:
        super().__init__(parties)
        self._lie = lie
        self.proposal: Any = None
        self.requests: list[Any] = []

    def deliver(self, requests: Any) -> dict[str, Reply]:
        self.requests += requests.values()
        for asked in requests.values():
            if isinstance(asked, ConsentRequest):
                self.proposal = asked.proposal
        changed = {n: self._lie(self, r) if isinstance(r, SumsShareRequest) else r for n, r in requests.items()}
        return super().deliver(changed)


def with_plan(change: Callable[[SumsPlan], SumsPlan]) -> Lie:
    return lambda way, asked: replace(asked, plan=change(asked.plan))


def without_one(plan: SumsPlan) -> SumsPlan:
    """Everybody but one person: the difference of two such studies is that person."""
    weights = np.vstack([plan.weights, np.zeros_like(plan.weights[:1])])
    alone = np.where(np.arange(plan.pattern_of.size) == 3, len(plan.weights), plan.pattern_of)
    return replace(plan, weights=weights, pattern_of=alone)


def louder_pattern(plan: SumsPlan) -> SumsPlan:
    """The people of one pattern weigh more than they should, beside everybody else's."""
    weights = plan.weights.copy()
    weights[1] = 1 + weights[1] // 2
    return replace(plan, weights=weights * (plan.weights > 0))


def one_unit_more(plan: SumsPlan) -> SumsPlan:
    """One cell's feature a unit off: people who have that cell could be told from others."""
    table = plan.features[0].copy()
    table[0, 0] -= np.sign(table[0, 0])
    return replace(plan, features=(table, *plan.features[1:]))


def one_weight_more(plan: SumsPlan) -> SumsPlan:
    """One party's part in one pattern a unit shorter."""
    weights = plan.weights.copy()
    weights[-1, 0] -= 1
    return replace(plan, weights=weights)


def finer_cells(plan: SumsPlan) -> SumsPlan:
    """A column's first two cells apart in another way than its margin says."""
    groups = plan.groups[1].copy()
    (edge,) = np.flatnonzero(np.diff(groups))[:1]
    groups[edge] = groups[edge + 1]
    return replace(plan, groups=(plan.groups[0], groups, *plan.groups[2:]))


def more_for_tables(plan: SumsPlan) -> SumsPlan:
    """Another split of the same budget."""
    return replace(plan, mu=0.8 * plan.mu, mu_tables=(plan.mu_tables**2 + 0.36 * plan.mu**2) ** 0.5)


def unweighted_selection(plan: SumsPlan) -> SumsPlan:
    """Base features of people whom no party selects."""
    return replace(plan, selecting=~plan.selecting, base=plan.selecting)


def without_evidence(way: Lying, asked: SumsShareRequest) -> SumsShareRequest:
    return replace(asked, evidence=None)


def another_mask(way: Lying, asked: SumsShareRequest) -> SumsShareRequest:
    assert asked.evidence is not None
    known = list(asked.evidence.known)
    known[MIDDLE] = known[MIDDLE].copy()
    known[MIDDLE][0] ^= 1  # one person's bit
    return replace(asked, evidence=replace(asked.evidence, known=tuple(known)))


def longer_mask(way: Lying, asked: SumsShareRequest) -> SumsShareRequest:
    assert asked.evidence is not None
    known = list(asked.evidence.known)
    known[MIDDLE] = np.append(known[MIDDLE], np.uint8(255))
    return replace(asked, evidence=replace(asked.evidence, known=tuple(known)))


def fewer_masks(way: Lying, asked: SumsShareRequest) -> SumsShareRequest:
    assert asked.evidence is not None
    return replace(asked, evidence=replace(asked.evidence, known=asked.evidence.known[:-1]))


def other_margins(way: Lying, asked: SumsShareRequest) -> SumsShareRequest:
    assert asked.evidence is not None
    margins = list(asked.evidence.margins)
    margins[MIDDLE] = replace(margins[MIDDLE], cells=tuple(cells[::-1].copy() for cells in margins[MIDDLE].cells))
    return replace(asked, evidence=replace(asked.evidence, margins=tuple(margins)))


def margins_of_another_study(way: Lying, asked: SumsShareRequest) -> SumsShareRequest:
    """The middle party's own signature, which the test can make with the common key, under another proposal."""
    assert asked.evidence is not None
    margins = list(asked.evidence.margins)
    message = margins_statement(fingerprint(replace(way.proposal, study="another study")), margins[MIDDLE])
    margins[MIDDLE] = replace(margins[MIDDLE], signature=shared_authenticity(KEY).sign(message))
    return replace(asked, evidence=replace(asked.evidence, margins=tuple(margins)))


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (with_plan(lambda plan: replace(plan, mu=math.nextafter(plan.mu, 0.0))), "not the one that follows"),
        (with_plan(lambda plan: replace(plan, features=tuple(table // 2 for table in plan.features))), "not the one"),
        (with_plan(lambda plan: replace(plan, cap=plan.cap * (1 + 9e-7))), "not the one that follows"),
        (with_plan(without_one), "not the one that follows"),
        (with_plan(louder_pattern), "not the one that follows"),
        (with_plan(one_unit_more), "not the one that follows"),
        (with_plan(one_weight_more), "not the one that follows"),
        (with_plan(finer_cells), "not the one that follows"),
        (with_plan(more_for_tables), "not the one that follows"),
        (with_plan(unweighted_selection), "not the one that follows"),
        (
            with_plan(lambda plan: replace(plan, mu_tables=math.nextafter(plan.mu_tables, 0.0))),
            "not the one that follows",
        ),
        (with_plan(lambda plan: replace(plan, mu_selection=1.01 * plan.mu_selection)), "not the one that follows"),
        (with_plan(lambda plan: replace(plan, most_tables=plan.most_tables + 1)), "not the one that follows"),
        (with_plan(lambda plan: replace(plan, several_rows=True)), "not the one that follows"),
        (without_evidence, "came without masks and margins"),
        (another_mask, "the mask of 'middle' is not the one it signed"),
        (longer_mask, "the mask of 'middle' is not the one it signed"),
        (fewer_masks, "masks or margins of a party are missing"),
        (other_margins, "the margins of 'middle' are not signed by it"),
        (margins_of_another_study, "the margins of 'middle' are not signed by it"),
    ],
    ids=[
        "mu",
        "tables",
        "cap",
        "people",
        "weights",
        "a unit of a feature",
        "a unit of a weight",
        "pooling",
        "split",
        "selection",
        "tables' mu",
        "selection's mu",
        "more tables",
        "rows",
        "no evidence",
        "mask",
        "longer mask",
        "fewer masks",
        "margins",
        "another study",
    ],
)
def test_no_scores_are_shared_under_a_plan_that_the_party_does_not_compute_itself(lie: Lie, said: str) -> None:
    members = make_members(FEDERATION, TABLES)
    way = Lying(members, lie)
    with pytest.raises(ProtocolError, match=said):
        Synthesizer(FEDERATION, "strict", 6.0, 1e-6).fit_transport(way, study="study")
    assert not any(b"SumsShareReply" in data[:200] for _, data in way.answered)
    assert all({entry.what for entry in member.vault.ledger} == {"marginal"} for member in members.values())


def test_what_another_party_of_this_process_computed_holds_for_the_same_evidence_alone() -> None:
    way = Lying(make_members(FEDERATION, TABLES), lambda way, asked: asked)
    Synthesizer(FEDERATION, "strict", 6.0, 1e-6).fit_transport(way, study="study")
    asked = next(asked for asked in way.requests if isinstance(asked, SumsShareRequest))
    assert asked.evidence is not None
    others = other_margins(way, asked).evidence
    assert others is not None
    shared = ExpectedPlans()
    digests = []
    for proposal, evidence in (
        (way.proposal, asked.evidence),
        (way.proposal, others),
        (replace(way.proposal, alignment="psi"), others),
        (way.proposal, asked.evidence),
    ):
        digests.append(shared.digest(FEDERATION, proposal, evidence))
        assert digests[-1] == ExpectedPlans().digest(FEDERATION, proposal, evidence)
    assert digests[0] == digests[-1] == fingerprint(asked.plan)
    assert len(set(digests)) == 3


def test_parties_on_several_threads_each_have_the_plan_of_their_own_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another party's plan comes while the first one's is computed."""
    way = Lying(make_members(FEDERATION, TABLES), lambda way, asked: asked)
    Synthesizer(FEDERATION, "strict", 6.0, 1e-6).fit_transport(way, study="study")
    asked = next(asked for asked in way.requests if isinstance(asked, SumsShareRequest))
    others = other_margins(way, asked).evidence
    assert asked.evidence is not None
    assert others is not None
    shared, compute = ExpectedPlans(), expected_plans.plan_strict_sums
    interrupted: list[str] = []

    def slowly(*args: Any, **settings: Any) -> Any:
        found = compute(*args, **settings)
        if not interrupted:
            interrupted.append("")
            interrupted.append(shared.digest(FEDERATION, way.proposal, others))
        return found

    monkeypatch.setattr(expected_plans, "plan_strict_sums", slowly)
    assert shared.digest(FEDERATION, way.proposal, asked.evidence) == fingerprint(asked.plan)
    assert interrupted[1] != fingerprint(asked.plan)
    assert shared.digest(FEDERATION, way.proposal, others) == interrupted[1]


@pytest.mark.parametrize("alignment", ["hash", "psi"])
def test_a_person_pays_for_blocks_in_several_rows_where_rows_are_not_agreed_on(alignment: Any) -> None:
    """With psi a coordinator may put a person's blocks into several rows: each moves the sums by itself."""
    members = make_members(FEDERATION, TABLES, key=KEY if alignment == "hash" else None)
    way = Lying(members, lambda way, asked: asked)
    Synthesizer(FEDERATION, "strict", 6.0, 1e-6).fit_transport(way, study="study", alignment=alignment)
    plans = [asked.plan for asked in way.requests if isinstance(asked, SumsShareRequest)]
    assert {plan.several_rows for plan in plans} == {alignment == "psi"}
    entries = [entry for member in members.values() for entry in member.vault.ledger]
    moments, tables = ([entry for entry in entries if entry.what == what] for what in ("gram", "tables"))
    assert len(moments) == len(tables) == len(members)
    assert len({(entry.mu, entry.mu_person) for entry in tables}) == 1  # whatever pairs: in noise for several rows
    blocks = sum(entry.mu for entry in moments)
    for entry in moments:
        if alignment == "psi":
            assert entry.mu_person == pytest.approx(blocks)
            assert entry.mu_person >= blocks * (1.0 - 1e-12)
        else:
            assert max(e.mu for e in moments) <= entry.mu_person < blocks
    assert state_privacy(entries, 1e-6).epsilon(Unit.PERSON) <= 6.0 * (1.0 + 1e-9)  # the conversion is from above
