"""The algorithms as printed between members: over bytes, as proposed and consented to; older files stay readable."""

from __future__ import annotations

import json
import struct
import warnings
from collections.abc import Mapping
from dataclasses import fields, make_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.members import MemoryVault, make_members
from tests.privacy.member_study import federation, tables
from verticopula import Policy, Synthesizer
from verticopula.errors import NotPrivateWarning, PolicyRefused, ProtocolError, WireError
from verticopula.privacy.policy_file import PolicyFile
from verticopula.privacy.pricing import PRINTED_MARGIN
from verticopula.protocol.consent_messages import AgreementRequest, ConsentRequest, StudyProposal
from verticopula.protocol.messages import REPLY_KINDS, REQUEST_KINDS, Reply, Request, fingerprint
from verticopula.protocol.party.study_consents import ConsentRecord, encode_proposal
from verticopula.protocol.printed_messages import EarlierRound, PrintedMarginsRequest, PrintedQuery, PrintedRanksRequest
from verticopula.protocol.rank_messages import ColumnQuery, ReleaseRequest
from verticopula.protocol.study_proposal import check_proposal
from verticopula.protocol.wire import decode, encode
from verticopula.schema.methods import OWN_VARIANT, PRINTED_VARIANT
from verticopula.transport.in_process_transport import InProcessTransport

ALLOWED = Policy(allow_seeded=True, allow_as_printed=True)


class OverBytes(InProcessTransport):
    """Messages as a network carries them."""

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        replies = super().deliver({name: decode(encode(r), REQUEST_KINDS) for name, r in requests.items()})
        return {name: decode(encode(reply), REPLY_KINDS) for name, reply in replies.items()}


def synthesizer(method: str, seed: int | None = 5, **settings: Any) -> Synthesizer:
    given = {"rounds": 2, "epsilon": 4.0, "unit": "variable", "variant": PRINTED_VARIANT, **settings}
    return Synthesizer(federation(), method, random_state=seed, **given)


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        yield


@pytest.mark.parametrize("method", ["vcds", "evcds", "ievcds"])
def test_a_study_over_bytes_is_the_one_in_this_process(method: str) -> None:
    members = make_members(federation(), tables(), policy=ALLOWED)
    over = synthesizer(method).fit_transport(OverBytes(members), study="study")
    here = synthesizer(method).fit(tables())
    np.testing.assert_array_equal(over.correlation_, here.correlation_)
    one, two = over.sample(aligned=False), here.sample(aligned=False)
    assert all(one[party].equals(two[party]) for party in one)
    assert over.privacy_ == here.privacy_
    # What the coordinator prices is what the parties wrote down.
    written = [entry for member in members.values() for entry in member.vault.ledger]
    price = ["party", "column", "what", "mechanism", "epsilon", "coins_count"]
    assert sorted([getattr(e, name) for name in price] for e in written) == sorted(
        [getattr(e, name) for name in price] for e in over.ledger_
    )


def test_a_party_that_does_not_allow_it_stops_the_study_before_anything_is_spent() -> None:
    vault = MemoryVault()
    others = {"right": {"policy": Policy(allow_seeded=True), "vault": vault}}
    members = make_members(federation(), tables(), policy=ALLOWED, **others)
    with pytest.raises(PolicyRefused, match="allow_as_printed"):
        synthesizer("vcds").fit_transport(OverBytes(members), study="study")
    assert all(len(member.vault.ledger) == 0 for member in members.values())


# ---- the proposal ------------------------------------------------------------------------


class Opened(OverBytes):
    """Stops before the first request of one kind, and keeps it."""

    def __init__(self, members: Mapping[str, Any], kind: type) -> None:
        super().__init__(members)
        self.kind = kind
        self.kept: dict[str, Request] = {}

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        if isinstance(next(iter(requests.values())), self.kind):
            self.kept = dict(requests)
            raise ProtocolError("stopped")
        return super().deliver(requests)


def opened(method: str, kind: type, **settings: Any) -> tuple[dict[str, Any], dict[str, Request]]:
    """Members of a study that was stopped before its first request of this kind, and those requests."""
    members = make_members(federation(), tables(), policy=ALLOWED)
    transport = Opened(members, kind)
    with pytest.raises(ProtocolError, match="stopped"):
        synthesizer(method, **settings).fit_transport(transport, study="study")
    return members, transport.kept


@pytest.mark.parametrize("variant", [OWN_VARIANT, PRINTED_VARIANT])
def test_the_proposal_names_the_variant(variant: str) -> None:
    _, requests = opened("vcds", ConsentRequest, variant=variant)
    assert {request.proposal.variant for request in requests.values()} == {variant}


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "refined"},
        {"method": "strict"},
        {"method": "raw-glm"},
        {"variant": "another"},
        {"sampler": "binomial"},
        {"unit": "person", "delta": 1e-6},
    ],
    ids=str,
)
def test_a_party_refuses_a_variant_that_there_is_not(changes: dict[str, Any]) -> None:
    members, requests = opened("vcds", ConsentRequest)
    proposal = requests["right"].proposal
    check_proposal(federation(), proposal)
    with pytest.raises(ProtocolError):
        check_proposal(federation(), replace(proposal, **changes))
    with pytest.raises((ProtocolError, PolicyRefused)):
        members["right"].handle(ConsentRequest(replace(proposal, **changes)))


def test_consent_to_one_variant_is_none_to_the_other() -> None:
    members, requests = opened("vcds", ConsentRequest)
    proposal = requests["right"].proposal
    members["right"].handle(ConsentRequest(proposal))
    with pytest.raises(ProtocolError, match="another proposal"):
        members["right"].handle(ConsentRequest(replace(proposal, variant=OWN_VARIANT)))


def test_who_consented_to_the_printed_algorithm_answers_no_request_of_ours() -> None:
    members, requests = opened("vcds", PrintedRanksRequest)
    asked = requests["right"]
    queries = tuple(ColumnQuery(query.column, query.epsilon, query.epsilon) for query in asked.queries)
    with pytest.raises(ProtocolError, match="not what was consented to"):
        members["right"].handle(ReleaseRequest("study", "vcds", "exact", queries))
    members["right"].handle(asked)  # the planned one is answered


def test_who_consented_to_our_variant_answers_no_printed_request() -> None:
    members, requests = opened("vcds", ReleaseRequest, variant=OWN_VARIANT)
    asked = requests["right"]
    ranks = tuple(PrintedQuery(query.column, query.epsilon_ranks, ()) for query in asked.queries)
    margins = tuple(PrintedQuery(query.column, query.epsilon_marginal, ()) for query in asked.queries)
    for request in (PrintedRanksRequest("study", "vcds", 1, ranks), PrintedMarginsRequest("study", "vcds", margins)):
        with pytest.raises(ProtocolError, match="not what was consented to"):
            members["right"].handle(request)


def test_only_planned_rounds_epsilons_and_columns_are_answered() -> None:
    members, requests = opened("ievcds", PrintedRanksRequest)
    asked, right = requests["right"], members["right"]
    dearer = tuple(replace(query, epsilon=2 * query.epsilon) for query in asked.queries)
    for request in (
        replace(asked, round_number=3),
        replace(asked, round_number=0),
        replace(asked, queries=dearer),
        replace(asked, queries=asked.queries[:-1]),
        replace(asked, queries=asked.queries[::-1]) if len(asked.queries) > 1 else replace(asked, queries=()),
    ):
        with pytest.raises(ProtocolError, match="not what was consented to"):
            right.handle(request)
    first = right.handle(asked)
    again = right.handle(asked)  # the same answer
    assert all(np.array_equal(one, two) for one, two in zip(first.ranks, again.ranks, strict=True))
    assert len(right.vault.ledger) == len(asked.queries)


@pytest.mark.parametrize(
    "change",
    [
        lambda done: replace(done, ranks=done.ranks[:-1]),
        lambda done: replace(done, ranks=done.ranks * 0),
        lambda done: replace(done, ranks=done.ranks + 1_000),
        lambda done: replace(done, latents=done.latents[:-1]),
        lambda done: replace(done, latents=done.latents * np.nan),
    ],
    ids=["too few", "below 1", "above n", "short", "no numbers"],
)
def test_earlier_rounds_that_do_not_fit_the_table_are_refused(change: Any) -> None:
    members, requests = opened("ievcds", PrintedRanksRequest)
    right, asked = members["right"], requests["right"]
    done = [EarlierRound(ranks, np.zeros(tables()["left"].height)) for ranks in right.handle(asked).ranks]
    queries = (replace(query, history=(change(one),)) for query, one in zip(asked.queries, done, strict=True))
    spent = len(right.vault.ledger)
    with pytest.raises(PolicyRefused, match="earlier rounds do not fit"):
        right.handle(replace(asked, round_number=2, queries=tuple(queries)))
    assert len(right.vault.ledger) == spent


# ---- older versions ----------------------------------------------------------------------


def header_of(message: bytes) -> dict[str, Any]:
    _, _, length = struct.Struct("<4sHI").unpack_from(message)
    found: dict[str, Any] = json.loads(message[10 : 10 + length])
    return found


def any_proposal(**changes: Any) -> StudyProposal:
    _, requests = opened("vcds", ConsentRequest)
    return replace(requests["right"].proposal, **changes)


def test_a_proposal_of_our_variant_has_the_bytes_and_the_hash_that_it_always_had() -> None:
    """So that older parties read it, and consents that they signed and stored stay valid."""
    own, printed = any_proposal(variant=OWN_VARIANT), any_proposal()
    before = [f.name for f in fields(StudyProposal) if f.name != "variant"]
    assert list(header_of(encode(ConsentRequest(own)))["fields"]["proposal"]["fields"]) == before
    assert "variant" in header_of(encode(ConsentRequest(printed)))["fields"]["proposal"]["fields"]
    old_kind = make_dataclass("StudyProposal", before, frozen=True)
    assert fingerprint(own) == fingerprint(old_kind(*(getattr(own, name) for name in before)))
    assert fingerprint(own) != fingerprint(printed)


def test_stored_consents_are_read_back_with_their_variant() -> None:
    for variant in (OWN_VARIANT, PRINTED_VARIANT):
        record = ConsentRecord(encode_proposal(any_proposal(variant=variant)), 1.0, 2.0, True, {})
        again = ConsentRecord.from_dict(json.loads(json.dumps(record.to_dict())))
        assert again.proposal.variant == variant
        assert fingerprint(again.proposal) == fingerprint(record.proposal)


def test_no_other_field_may_be_left_out() -> None:
    message = encode(ConsentRequest(any_proposal()))
    header = header_of(message)
    del header["fields"]["proposal"]["fields"]["purpose"]
    text = json.dumps(header, separators=(",", ":")).encode()
    _, _, length = struct.Struct("<4sHI").unpack_from(message)
    changed = struct.pack("<4sHI", b"VCMS", 1, len(text)) + text + message[10 + length :]
    with pytest.raises(WireError, match="other fields"):
        decode(changed, REQUEST_KINDS)


def test_a_steward_is_shown_the_variant_and_the_range() -> None:
    seen = []
    policy = {"right": {"ask_steward": seen.append}}
    members = make_members(federation(), tables(), policy=ALLOWED, **policy)
    synthesizer("evcds").fit_transport(OverBytes(members), study="study")
    question = next(one for one in seen if not one.is_about_alignment)
    assert question.title == "evcds, as-printed"
    assert PRINTED_MARGIN in {entry.mechanism for entry in question.proposed}
    assert {entry.epsilon for entry in question.proposed if entry.what == "marginal"} == {float("inf")}


def test_a_policy_that_forbids_it_after_consent_stops_ranks_too(tmp_path: Path) -> None:
    path = tmp_path / "left.toml"
    path.write_text("allow_as_printed = true\n")
    members = make_members(
        federation(), tables(), policy=Policy(allow_as_printed=True), left={"policy": PolicyFile(path, "left")}
    )

    class Tightens(InProcessTransport):
        def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
            replies = super().deliver(requests)
            if any(isinstance(request, AgreementRequest) for request in requests.values()):
                path.write_text("allow_as_printed = false\n")
            return replies

    with pytest.raises(PolicyRefused, match="'left' does not take part in variant"):
        synthesizer("ievcds", None).fit_transport(Tightens(members), study="study")
    assert not list(members["left"].vault.ledger)
