"""What many refusals together tell, and whom they may keep waiting: caps cannot be searched, others not blocked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.agreements import place_request, proposal_of
from tests.builders import make_federation
from tests.members import MemoryVault, make_member
from verticopula import Federation, Policy, Synthesizer
from verticopula.errors import BudgetExceeded, PolicyRefused, ProtocolError
from verticopula.protocol.consent_messages import ConsentRequest
from verticopula.protocol.party.consent_question import ConsentQuestion
from verticopula.protocol.party.member import Member
from verticopula.protocol.party.study_refusals import StudyRefusals
from verticopula.protocol.study_messages import BeginRequest
from verticopula.protocol.study_proposal import StudyContext, federation_fingerprint
from verticopula.transport.in_process_transport import InProcessTransport

N = 60
IDS = [f"s{i}" for i in range(N)]
CLINIC = make_federation({"clinic": {"hiv": {"kind": "binary"}}, "b": {"w": {"kind": "binary"}}})
WARD = make_federation({"ward": {"hiv": {"kind": "binary"}}, "b": {"v": {"kind": "binary"}}})
DAY = 86_400.0


def member(federation: Federation, vault: Any, **settings: Any) -> Member:
    party = federation.parties[0]
    table = pl.DataFrame({"subject_id": IDS, party.columns[0].name: np.arange(N) % 2})
    return make_member(federation, party.name, table, vault=vault, **settings)


def begin_study(one: Member, study: str, requester: str = "") -> Any:
    fingerprint = federation_fingerprint(one.federation)
    return one.handle(BeginRequest(study, "vcds", fingerprint, "hash", None, 0, "", requester=requester))


def propose(one: Member, study: str, epsilon: float) -> None:
    raw = one.vault.studies.get(f"study:{one.name}/{study}")
    context = StudyContext(*(raw[key] for key in ("requester", "purpose", "alignment", "cohort", "seed")))
    half = {"unit": "client", "epsilon_ranks": epsilon / 2, "epsilon_marginals": epsilon / 2}
    one.handle(ConsentRequest(proposal_of(one, one.name, one.federation, study=study, context=context, **half)))


def test_a_cap_cannot_be_searched_by_proposals_in_one_study() -> None:
    one = member(CLINIC, MemoryVault(), policy=Policy(caps={"client": 2.0}))
    one.handle(place_request("s", begin_study(one, "s").hashes))
    with pytest.raises(BudgetExceeded):
        propose(one, "s", 4.0)
    with pytest.raises(ProtocolError, match="went above a cap before; another proposal needs another study"):
        propose(one, "s", 1.0)
    with pytest.raises(BudgetExceeded):  # the same one may be asked about again: the policy may have changed
        propose(one, "s", 4.0)
    one.handle(place_request("t", begin_study(one, "t").hashes))
    propose(one, "t", 1.0)


def test_another_federation_s_openings_keep_nobody_waiting() -> None:
    vault = MemoryVault()
    other = member(WARD, vault, policy=Policy(open_studies=3))
    for number in range(3):
        begin_study(other, f"s{number}")
    with pytest.raises(PolicyRefused, match="open_studies"):
        begin_study(other, "s3")
    assert begin_study(member(CLINIC, vault, policy=Policy(open_studies=3)), "s0").party == "clinic"


def test_openings_under_two_names_of_a_party_both_count() -> None:
    """A study's name repeats: each party that it is opened with has its own count in `new_studies`."""
    vault = MemoryVault()
    for number in range(2):
        begin_study(member(WARD, vault, policy=Policy(new_studies=4)), f"s{number}")
        begin_study(member(CLINIC, vault, policy=Policy(new_studies=4)), f"s{number}")
    with pytest.raises(PolicyRefused, match="new_studies"):
        begin_study(member(CLINIC, vault, policy=Policy(new_studies=4)), "s2")


def test_a_name_that_ends_like_a_study_with_releases_is_no_such_study() -> None:
    policy = Policy(open_studies=3)
    members = {
        party.name: make_member(
            CLINIC,
            party.name,
            pl.DataFrame({"subject_id": IDS, party.columns[0].name: np.arange(N) % 2}),
            vault=MemoryVault(),
            policy=policy,
        )
        for party in CLINIC.parties
    }
    Synthesizer(CLINIC, "vcds", 1.0).fit_transport(InProcessTransport(members))
    one = members["clinic"]
    done = next(iter(one.vault.ledger)).study
    for number in range(3):
        begin_study(one, f"{number} {done}")
    with pytest.raises(PolicyRefused, match="open_studies"):
        begin_study(one, f"clinic:{done}")


def say_no(question: ConsentQuestion) -> None:
    raise PolicyRefused("its steward said no")


def test_a_no_to_another_federation_is_none_to_this_one() -> None:
    vault = MemoryVault()
    with pytest.raises(PolicyRefused, match="steward said no"):
        begin_study(member(WARD, vault, ask_steward=say_no), "s", "a register")
    assert begin_study(member(CLINIC, vault), "s", "a register").party == "clinic"
    with pytest.raises(PolicyRefused, match="without asking again"):
        begin_study(member(WARD, vault), "other", "a register")


def test_a_no_lives_as_long_as_it_says_whatever_was_refused_later() -> None:
    """A later no to another price does not renew the earlier one."""
    now = [0.0]
    refusals = StudyRefusals("left", MemoryVault().studies, lambda: 30.0, lambda: now[0])

    def ask(study: str, n_subjects: int, steward: Any = say_no) -> None:
        refusals.ask(question_at(study, n_subjects), steward)

    with pytest.raises(PolicyRefused):
        ask("a", 100)
    now[0] = 20 * DAY
    with pytest.raises(PolicyRefused):
        ask("b", 200)
    now[0] = 25 * DAY
    with pytest.raises(PolicyRefused, match="without asking again"):
        ask("c", 100, steward=lambda question: None)
    now[0] = 31 * DAY
    ask("d", 100, steward=lambda question: None)


def question_at(study: str, n_subjects: int) -> ConsentQuestion:
    """A steward's question about so many subjects."""
    questions: list[ConsentQuestion] = []
    one = member(CLINIC, MemoryVault(), ask_steward=questions.append)
    one.handle(place_request("s", begin_study(one, "s").hashes))
    propose(one, "s", 1.0)
    entries = tuple(replace(entry, n_subjects=n_subjects) for entry in questions[-1].proposed)
    return ConsentQuestion(study, "vcds", "somebody", "a reason", "hash", entries)
