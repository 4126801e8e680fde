"""A party computes the plan of secure sums itself, from masks and margins that their parties signed."""

from __future__ import annotations

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
from verticopula.protocol.messages import ConsentRequest, Reply, SumsShareRequest
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

    def deliver(self, requests: Any) -> dict[str, Reply]:
        for asked in requests.values():
            if isinstance(asked, ConsentRequest):
                self.proposal = asked.proposal
        changed = {n: self._lie(self, r) if isinstance(r, SumsShareRequest) else r for n, r in requests.items()}
        return super().deliver(changed)


def with_plan(change: Callable[[SumsPlan], SumsPlan]) -> Lie:
    return lambda way, asked: replace(asked, plan=change(asked.plan))


def without_one(plan: SumsPlan) -> SumsPlan:
    """Everybody but one person: the difference of two such studies is that person."""
    return replace(plan, pattern_of=np.where(np.arange(plan.pattern_of.size) == 3, -1, plan.pattern_of))


def without_evidence(way: Lying, asked: SumsShareRequest) -> SumsShareRequest:
    return replace(asked, evidence=None)


def another_mask(way: Lying, asked: SumsShareRequest) -> SumsShareRequest:
    assert asked.evidence is not None
    masks = list(asked.evidence.masks)
    masks[MIDDLE] = masks[MIDDLE].copy()
    masks[MIDDLE][3] = ~masks[MIDDLE][3]
    return replace(asked, evidence=replace(asked.evidence, masks=tuple(masks)))


def fewer_masks(way: Lying, asked: SumsShareRequest) -> SumsShareRequest:
    assert asked.evidence is not None
    return replace(asked, evidence=replace(asked.evidence, masks=asked.evidence.masks[:-1]))


def other_margins(way: Lying, asked: SumsShareRequest) -> SumsShareRequest:
    assert asked.evidence is not None
    margins = list(asked.evidence.margins)
    margins[MIDDLE] = replace(margins[MIDDLE], cells=tuple(cells[::-1].copy() for cells in margins[MIDDLE].cells))
    return replace(asked, evidence=replace(asked.evidence, margins=tuple(margins)))


def margins_of_another_study(way: Lying, asked: SumsShareRequest) -> SumsShareRequest:
    """The middle party's own signature, which the test can make with the common key, under another proposal."""
    assert asked.evidence is not None
    margins = list(asked.evidence.margins)
    message = margins_statement(replace(way.proposal, study="another study"), margins[MIDDLE])
    margins[MIDDLE] = replace(margins[MIDDLE], signature=shared_authenticity(KEY).sign(message))
    return replace(asked, evidence=replace(asked.evidence, margins=tuple(margins)))


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (with_plan(lambda plan: replace(plan, mu=1.01 * plan.mu)), "not the one that follows"),
        (with_plan(lambda plan: replace(plan, tables=tuple(table // 2 for table in plan.tables))), "not the one"),
        (with_plan(lambda plan: replace(plan, cap=plan.cap * (1 + 9e-7))), "not the one that follows"),
        (with_plan(without_one), "not the one that follows"),
        (without_evidence, "came without masks and margins"),
        (another_mask, "the mask of 'middle' is not the one it signed"),
        (fewer_masks, "masks or margins of a party are missing"),
        (other_margins, "the margins of 'middle' are not signed by it"),
        (margins_of_another_study, "the margins of 'middle' are not signed by it"),
    ],
    ids=["mu", "tables", "cap", "people", "no evidence", "mask", "fewer masks", "margins", "another study"],
)
def test_no_scores_are_shared_under_a_plan_that_the_party_does_not_compute_itself(lie: Lie, said: str) -> None:
    members = make_members(FEDERATION, TABLES)
    way = Lying(members, lie)
    with pytest.raises(ProtocolError, match=said):
        Synthesizer(FEDERATION, "strict", 6.0, 1e-6).fit_transport(way, study="study")
    assert not any(b"SumsShareReply" in data[:200] for _, data in way.answered)
    assert all({entry.what for entry in member.vault.ledger} == {"marginal"} for member in members.values())


@pytest.mark.parametrize("alignment", ["hash", "psi"])
def test_a_person_pays_for_blocks_in_several_rows_where_rows_are_not_agreed_on(alignment: Any) -> None:
    """With psi a coordinator may put a person's blocks into several rows: each moves the sums by itself."""
    members = make_members(FEDERATION, TABLES, key=KEY if alignment == "hash" else None)
    way = Recorded(members)
    Synthesizer(FEDERATION, "strict", 6.0, 1e-6).fit_transport(way, study="study", alignment=alignment)
    entries = [entry for member in members.values() for entry in member.vault.ledger]
    moments = [entry for entry in entries if entry.what == "moments"]
    assert len(moments) == len(members)
    blocks = sum(entry.mu for entry in moments)
    for entry in moments:
        if alignment == "psi":
            assert entry.mu_person == pytest.approx(blocks)
            assert entry.mu_person >= blocks * (1.0 - 1e-12)
        else:
            assert max(e.mu for e in moments) <= entry.mu_person < blocks
    assert state_privacy(entries, 1e-6).epsilon(Unit.PERSON) <= 6.0 * (1.0 + 1e-9)  # the conversion is from above
