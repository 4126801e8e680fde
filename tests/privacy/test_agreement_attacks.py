"""Attacks on agreements that once worked: seeds, other federations, ended consents, old studies, unlucky names."""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.agreements import agree, budget, proposal_of, sign_points
from tests.builders import CONTINUOUS, make_federation
from tests.members import KEY, MemoryVault, make_member, make_members
from tests.privacy.member_study import (
    RELEASE,
    WORD,
    agree_in,
    answered,
    federation,
    member,
    opening,
    place_of,
    placed,
    proposal_for,
    tables,
)
from verticopula import Federation, Policy, Synthesizer
from verticopula.errors import PolicyRefused, ProtocolError, VerticopulaError
from verticopula.matching.keyed_hashes import cohort_digest
from verticopula.matching.private_intersection import mask_points, new_mask, points_of
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.privacy.statement import party_epsilons, state_privacy
from verticopula.protocol.consent_messages import AgreementRequest, ConsentRequest
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.party.consent_question import ConsentQuestion
from verticopula.protocol.party.member import Member
from verticopula.protocol.rank_messages import CompletedRanksRequest, Imputation, ReleaseRequest
from verticopula.protocol.regression_messages import DesignRequest, EnteringColumnsRequest, ResponseRequest
from verticopula.protocol.shared_rounds import ask_consent, ask_presence, collect
from verticopula.protocol.strict_messages import SumsProofRequest
from verticopula.protocol.study_lifecycle import begin_study
from verticopula.protocol.study_messages import BeginRequest, BlockRequest, CloseRequest, MaskRequest, PlaceRequest
from verticopula.protocol.study_proposal import StudyContext, check_proposal, federation_fingerprint, propose
from verticopula.storage.vault import Vault
from verticopula.transport.delivery import drive
from verticopula.transport.in_process_transport import InProcessTransport


class Through(InProcessTransport):
    """Requests on their way, which may be changed or end the study."""

    def __init__(self, members: Mapping[str, Member], change: Callable[[str, Request], Request]) -> None:
        super().__init__(members)
        self.change = change

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        replies: dict[str, Reply] = {}
        for name, request in requests.items():
            replies |= super().deliver({name: self.change(name, request)})
        return replies


class Enough(Exception):
    """The study went as far as the attack needs."""


def test_a_strict_study_is_seeded_for_all_parties_or_for_none() -> None:
    """Two parties whose policies allow a seed, and one that does not: with the two's noise and keys the coordinator
    opens all three shares of the third's scores. The third cannot know, for the proposal does not say it."""
    members = {
        name: make_member(federation(), name, table, policy=Policy(allow_seeded=name != "third"))
        for name, table in tables().items()
    }

    def seed_two(name: str, request: Request) -> Request:
        return replace(request, seed=7) if isinstance(request, BeginRequest) and name != "third" else request

    transport = Through(members, seed_two)
    with pytest.raises(VerticopulaError):
        Synthesizer(federation(), "strict", 1.0, unit="person", delta=1e-6).fit_transport(transport, study="study")
    assert len(members["third"].vault.ledger) == 0


def test_a_consent_that_has_ended_does_not_count_for_others() -> None:
    """The third steward takes 29.9 days, and the others' consents end before they are shown to it."""
    now = [1e9]
    own: dict[str, Any] = {name: {"clock": lambda: now[0], "vault": MemoryVault()} for name in tables()}
    members = make_members(federation(), tables(), policy=Policy(consent_days=30), **own)

    def wait(name: str, request: Request) -> Request:
        if name == "third" and isinstance(request, ConsentRequest):
            now[0] += 29.9 * 86_400.0
        if name == "left" and isinstance(request, AgreementRequest):
            shown.append(request)
            now[0] += 0.2 * 86_400.0
            raise Enough
        return request

    shown: list[Request] = []
    with pytest.raises(Enough):
        Synthesizer(federation(), "vcds", 8.0, unit="variable").fit_transport(Through(members, wait), study="study")
    with pytest.raises(ProtocolError):
        members["left"].handle(shown[0])
    with pytest.raises(ProtocolError):
        members["third"].handle(shown[0])


def test_studies_that_are_agreed_to_and_never_run_count_as_open() -> None:
    """`psi`: 25 studies are opened, guessed in, agreed to at epsilon 2e-9 by all parties, and left."""
    frames = tables()
    members = make_members(federation(), frames, key=None, policy=Policy())
    rng, found, refused = np.random.default_rng(0), set[str](), 0

    def stop(name: str, request: Request) -> Request:
        if isinstance(request, ReleaseRequest):
            raise Enough
        return request

    for number in range(25):
        study = f"guess-{number}"
        guesses = [f"s{i}" for i in range(5 * number, 5 * number + 5)] + [f"nobody-{i}" for i in range(115)]
        asked = replace(opening(study), alignment="psi")
        try:
            points = {name: answered(one.handle(asked)).hashes for name, one in members.items()}
        except PolicyRefused:
            refused += 1
            continue
        own = new_mask()
        listed_by_left = mask_points(points_of(pl.Series(guesses), study), own)  # its accomplice, which signs anything
        signed = sign_points(federation(), study, ("left",), listed_by_left)
        reply: Any = members["right"].handle(MaskRequest(study, "left", listed_by_left, signed=signed, cohort=signed))
        both = {row.tobytes() for row in mask_points(points["right"], own)}
        found |= {guess for guess, row in zip(guesses, reply.points, strict=True) if row.tobytes() in both}
        listed = rng.integers(0, 256, (120, 16), dtype=np.uint8)
        for name, one in members.items():
            one.handle(PlaceRequest(study, 120, np.arange(len(frames[name]), dtype=np.int64), listed))
        context = StudyContext("", "", "psi", cohort_digest(listed))
        little = budget(federation(), epsilon_ranks=2e-9, epsilon_marginals=2e-9)
        with pytest.raises(Enough):
            drive(collect(federation(), little, study, "vcds", context), Through(members, stop))
    assert refused == 15
    assert len(found) < 60  # 99 of its 100 people today, and no ledger entry


def test_completed_comparisons_count_at_client_and_variable() -> None:
    """A clinic of 500 in a true cohort of 20,000: all positives are read at client epsilon 0.1."""
    made = make_federation({"registry": {"y": {"kind": "binary"}}, "clinic": {"hiv": {"kind": "binary"}}})
    rng = np.random.default_rng(1)
    ids = [f"p{i}" for i in range(20_000)]
    frames = {
        "registry": pl.DataFrame({"subject_id": ids, "y": rng.integers(0, 2, 20_000)}),
        "clinic": pl.DataFrame({"subject_id": ids[:500], "hiv": (rng.random(500) < 0.08).astype(int)}),
    }
    members = make_members(made, frames)
    transport = InProcessTransport(members)
    begun = drive(begin_study(made, "study", "ievcds"), transport)
    masks, presence = drive(ask_presence(made, "study", "ievcds"), transport)
    asked = budget(made, epsilon_ranks=0.2, epsilon_marginals=0.05, rounds=2)
    proposal = propose(made, asked, "study", "ievcds", presence, 20_000, begun.context)
    drive(ask_consent(made, proposal), transport)
    none, codes = np.zeros(0), np.zeros(19_500, dtype=np.int64)  # everybody else is negative
    item = Imputation("hiv", float(proposal.ranks[1]), none, none, codes)
    reply: Any = members["clinic"].handle(CompletedRanksRequest("study", "ievcds", "exact", 2, (item,)))
    seen = masks[made.keys[1]]
    truth = (
        members["clinic"]
        ._party(ReleaseRequest("study", "ievcds", "exact", ()))
        .control.table.columns["hiv"]
        .values[seen]
    )
    highest = np.argsort(-reply.ranks[0][seen, 0])[: int(truth.sum())]
    assert truth[highest].sum() == truth.sum()  # the attack; its price is what must follow
    assert party_epsilons(list(members["clinic"].vault.ledger), 1e-6).client > 10.0


def test_a_consent_is_of_one_federation() -> None:
    """One vault, as `join --vault` advises: the other federation's coordinator names the same study and gets it."""
    vault = MemoryVault()
    one = member(key=None, vault=vault)
    one.handle(replace(opening(), alignment="psi"))
    listed = np.random.default_rng(0).integers(0, 256, (120, 16), dtype=np.uint8)
    one.handle(PlaceRequest("study", 120, np.arange(100, dtype=np.int64), listed))
    agree_in(one)
    columns = {"n": {"kind": "count", "bounds": [0, 50]}, "g": {"kind": "nominal", "categories": ["u", "v", WORD]}}
    other = make_federation({"stranger": {"y": {"kind": "binary"}}, "right": columns})
    stranger = shared_authenticity(bytes(range(1, 33)))
    two = make_member(other, "right", tables()["right"], key=None, vault=vault, authenticity=stranger)
    with contextlib.suppress(VerticopulaError):
        two.handle(replace(opening(), alignment="psi", federation=federation_fingerprint(other)))
    with pytest.raises(VerticopulaError):
        two.handle(RELEASE)
    assert len(vault.ledger) == 0


def test_a_study_whose_cohort_was_never_checked_is_not_consented_to() -> None:
    """As an earlier version left it: placed by a coordinator's word in a cohort of 100,000."""
    vault = MemoryVault()
    member(vault=vault).handle(opening(method="ievcds"))
    raw = vault.studies.get("study:right/study")
    assert raw is not None
    places = base64.b64encode(np.arange(100).astype("<i8").tobytes()).decode()
    vault.studies.put("study:right/study", {**raw, "n_subjects": 100_000, "positions": places, "cohort": ""})
    one = member(vault=vault)
    context = StudyContext(alignment="hash", cohort="")
    with pytest.raises(ProtocolError):
        agree(one, "right", proposal_of(one, "right", federation(), method="ievcds", context=context, rounds=2))


def test_who_asks_is_the_same_at_the_opening_and_in_the_proposal() -> None:
    one = member()
    asked = opening(requester="a university", purpose="cancer research")
    one.handle(place_of(answered(one.handle(asked))))
    with pytest.raises(ProtocolError):
        agree(one, "right", replace(proposal_for(one), requester="an insurer", purpose="prices"))


def test_no_block_is_written_in_a_study_that_not_everybody_consented_to(tmp_path: Path) -> None:
    one = placed(out=tmp_path)
    with pytest.raises(ProtocolError):
        one.handle(BlockRequest("study", ("n", "g"), (np.zeros(5), np.zeros(5))))
    assert list(tmp_path.rglob("*.csv")) == []


def exact_fit(vault: Any, clock: Callable[[], float]) -> Member:
    """A regression on exact values, under way."""
    one = member("left", policy=Policy(methods=("raw-glm",), consent_days=30), vault=vault, clock=clock)
    one.handle(place_of(answered(one.handle(opening(method="raw-glm")))))
    agree_in(one, method="raw-glm", subjects=np.ones(120, dtype=bool))
    one.handle(DesignRequest("study", "fit", None, "y", True, None, None))
    one.handle(step(0))
    return one


def step(number: int) -> EnteringColumnsRequest:
    residual = np.random.default_rng(number).normal(size=120)
    return EnteringColumnsRequest("study", "fit", number, 0.0, np.zeros(1, dtype=bool), residual)


def test_a_regression_on_exact_values_ends_with_the_consent() -> None:
    now = [1e9]
    one = exact_fit(MemoryVault(), lambda: now[0])
    now[0] += 40 * 86_400.0
    with pytest.raises(ProtocolError):
        one.handle(step(1))


def test_a_regression_that_was_closed_after_a_restart_is_closed(tmp_path: Path) -> None:
    with Vault.open(tmp_path) as vault:
        exact_fit(vault, lambda: 1e9)
    with Vault.open(tmp_path) as vault:
        again = member("left", policy=Policy(methods=("raw-glm",)), vault=vault, clock=lambda: 1e9)
        again.handle(CloseRequest("study"))
        assert list((tmp_path / "fits").iterdir()) == []
        with pytest.raises(ProtocolError):
            again.handle(step(1))


@pytest.mark.parametrize("alignment", ["hash", "psi"])
def test_what_is_charged_was_consented_to_at_every_unit(alignment: Any) -> None:
    """Strict, unit block: a person is charged 12.8 with `psi` where the steward consented to 4."""
    asked: dict[str, ConsentQuestion] = {}

    def remember(name: str) -> Callable[[ConsentQuestion], None]:
        return lambda question: asked.update({} if question.is_about_alignment else {name: question})

    own: dict[str, Any] = {name: {"ask_steward": remember(name), "vault": MemoryVault()} for name in tables()}
    members = make_members(federation(), tables(), key=None if alignment == "psi" else KEY, **own)
    study = Synthesizer(federation(), "strict", 4.0, unit="block", delta=1e-6)
    study.fit_transport(InProcessTransport(members), study="study", alignment=alignment)
    for name, one in members.items():
        consented = state_privacy(asked[name].proposed, 1e-6).person
        assert state_privacy(list(one.vault.ledger), 1e-6).person <= consented * (1 + 1e-6)


@pytest.mark.parametrize(("name", "first"), [("consent", "consent/s"), ("openings", "openings")])
def test_records_of_a_party_with_an_unlucky_name_do_not_meet(name: str, first: str) -> None:
    made = make_federation({name: {"y": {"kind": "binary"}}, "other": {"x": CONTINUOUS}})
    one = make_member(made, name, pl.DataFrame({"subject_id": ["a", "b", "c"], "y": [0, 1, 1]}))
    for study in (first, "s", first, "t"):
        one.handle(BeginRequest(study, "vcds", federation_fingerprint(made), "hash", None, 0, ""))


def test_a_proposal_of_very_many_rounds_is_refused_before_it_is_computed() -> None:
    one = member()
    one.handle(place_of(answered(one.handle(opening(method="ievcds")))))
    for rounds in (1_001, 10**400):
        with pytest.raises(VerticopulaError, match=re.compile("rounds")):
            check_proposal(federation(), replace(proposal_for(one, method="ievcds"), rounds=rounds))


def test_consent_is_to_one_federation_file() -> None:
    """Two files that differ in the response: nobody's table is the cohort, so it is as large as it is said to be."""
    made = make_federation({"a": {"y": {"kind": "binary"}}, "b": {"z": {"kind": "binary"}}})
    files = {name: Federation.from_dict({**made.to_dict(), "response": said}) for name, said in _EACH_THE_OTHER.items()}
    rng, ids = np.random.default_rng(0), [f"p{i}" for i in range(500)]
    frames = {
        "a": pl.DataFrame({"subject_id": ids, "y": rng.integers(0, 2, 500)}),
        "b": pl.DataFrame({"subject_id": ids, "z": rng.integers(0, 2, 500)}),
    }
    members = {name: make_member(files[name], name, frame) for name, frame in frames.items()}
    listed = rng.integers(0, 256, (20_000, 16), dtype=np.uint8)
    for name, one in members.items():
        asked = BeginRequest("study", "ievcds", federation_fingerprint(files[name]), "hash", None, 0, "")
        listed[:500] = answered(one.handle(asked)).hashes
    for one in members.values():
        one.handle(PlaceRequest("study", 20_000, np.arange(500, dtype=np.int64), listed))
    transport, context = InProcessTransport(members), StudyContext("", "", "hash", cohort_digest(listed))
    _, presence = drive(ask_presence(made, "study", "ievcds"), transport)
    proposal = propose(made, budget(made, rounds=2), "study", "ievcds", presence, 20_000, context)
    with pytest.raises(VerticopulaError):
        drive(ask_consent(made, proposal), transport)


_EACH_THE_OTHER = {"a": "b.z", "b": "a.y"}


def test_a_seed_that_the_policy_no_longer_allows_ends_a_study() -> None:
    vault = MemoryVault()
    one = member(vault=vault, policy=Policy(allow_seeded=True))
    one.handle(place_of(answered(one.handle(opening(seed=7)))))
    agree_in(one)
    with pytest.raises(PolicyRefused, match="seeded"):
        member(vault=vault, policy=Policy()).handle(RELEASE)
    assert len(vault.ledger) == 0


def test_fits_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is written down for the study, with all before it, and in the ledger."""
    monkeypatch.setattr("verticopula.protocol.party.study_consents._MOST_PLACES", 3)
    one = exact_fit(MemoryVault(), lambda: 1e9)
    asked = [DesignRequest("study", name, None, "y", True, None, None) for name in ("a", "b", "c")]
    for request in asked[:2]:
        one.handle(request)
    with pytest.raises(ProtocolError, match="more was asked for"):
        one.handle(asked[2])
    assert len(one.vault.ledger) == 3


def test_the_name_of_a_fit_is_short() -> None:
    one = exact_fit(MemoryVault(), lambda: 1e9)
    with pytest.raises(ProtocolError, match="more was asked for"):
        one.handle(DesignRequest("study", "d" * 1_000, None, "y", True, None, None))
    assert len(one.vault.ledger) == 1


def test_a_response_is_asked_for_once() -> None:
    """Every set of people would be another reply that is stored, and another line of the ledger."""
    one = exact_fit(MemoryVault(), lambda: 1e9)
    one.handle(ResponseRequest("study", "y", np.ones(120, dtype=bool)))
    before = len(one.vault.ledger)
    with pytest.raises(ProtocolError, match="another response y was asked for"):
        one.handle(ResponseRequest("study", "y", np.arange(120) < 100))
    assert len(one.vault.ledger) == before


def test_a_policy_that_forbids_exact_values_ends_a_regression() -> None:
    vault = MemoryVault()
    one = exact_fit(vault, lambda: 1e9)
    one._parties["study"].control.policy = Policy(methods=("strict",))
    with pytest.raises(PolicyRefused, match="raw-glm"):
        one.handle(step(1))


def test_a_policy_that_stops_sharing_a_column_ends_a_regression() -> None:
    """The column was asked for, and has not left yet."""
    one = exact_fit(MemoryVault(), lambda: 1e9)
    one._parties["study"].control.policy = Policy(methods=("raw-glm",), columns=("y",))
    with pytest.raises(PolicyRefused, match="does not share column 'a'"):
        one.handle(step(1))


def test_fewer_days_on_disk_end_a_consent_that_is_held_in_memory() -> None:
    now = [1e9]
    one = member(policy=Policy(consent_days=30), clock=lambda: now[0])
    one.handle(place_of(answered(one.handle(opening()))))
    agree_in(one)
    now[0] += 20 * 86_400.0
    one.policy = Policy(consent_days=1)
    with pytest.raises(ProtocolError, match="has ended"):
        one.handle(RELEASE)


def test_secure_sums_end_with_the_consent() -> None:
    """Between the shares and the sums a year passes."""
    now = [1e9]
    own: dict[str, Any] = {name: {"clock": lambda: now[0], "vault": MemoryVault()} for name in tables()}
    members = make_members(federation(), tables(), policy=Policy(consent_days=1), **own)

    def wait(name: str, request: Request) -> Request:
        if isinstance(request, SumsProofRequest):
            now[0] += 400 * 86_400.0
        return request

    with pytest.raises(ProtocolError, match="has ended"):
        Synthesizer(federation(), "strict", 1.0, unit="person", delta=1e-6).fit_transport(
            Through(members, wait), study="study"
        )
