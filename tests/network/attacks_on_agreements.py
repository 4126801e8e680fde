"""What is tried against parties that all take part in a study: a coordinator, or a party, that breaks an agreement."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.agreements import budget, cohort_list
from tests.network.intruder_scenes import Scene, against_parties
from tests.network.lying import (
    DeafTransport,
    Lie,
    LyingTransport,
    honest_study,
    ledgers,
    lies_in_vain,
    opening,
    refused_by,
    run_study,
    signs_as,
)
from verticopula.mpc.sealed_messages import SealedChannel
from verticopula.mpc.sums_plan import SumsPlan
from verticopula.network.connection.control_messages import Refusal
from verticopula.protocol.consent_messages import AgreementRequest, ConsentRequest, PresenceRequest, SignedConsent
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.rank_messages import ColumnQuery, ReleaseRequest
from verticopula.protocol.strict_messages import (
    GaussianMarginsReply,
    PlanEvidence,
    SumsKeyReply,
    SumsKeyRequest,
    SumsReply,
    SumsRequest,
    SumsShareRequest,
    TablesReply,
    TablesRequest,
)
from verticopula.protocol.study_messages import BeginReply, PlaceRequest
from verticopula.protocol.study_proposal import StudyContext, consent_statement, propose

_TWO = "two parties"

_LATER = 4e9  # when a forged consent is said to end


def _tells(party: str, kind: type, change: Callable[[Any], Any]) -> Callable[[Scene], Lie]:
    """Another request of this kind to this party than the protocol has; the truth to everybody else."""

    def make(scene: Scene) -> Lie:
        return lambda name, request: change(request) if name == party and isinstance(request, kind) else request

    return make


def _tells_of(kind: type, party: str, make_change: Callable[[Scene], Callable[[Any], Any]]) -> Callable[[Scene], Lie]:
    """The same, where the lie is prepared with other studies or with an accomplice's kit."""
    return lambda scene: _tells(party, kind, make_change(scene))(scene)


# ---- it says one thing here and another there ------------------------------------------------------


def _other_words(**words: str) -> Callable[[ConsentRequest], ConsentRequest]:
    return lambda request: ConsentRequest(replace(request.proposal, **words))


_OTHER_OPENING = "refused: party {0!r}: who asks, why, or the seed is not what was said when the study was opened"
_OTHER_PROPOSAL = "refused: party '{}': '{}' has not consented to the proposal seen here"

for _name, _words in (
    ("another purpose for each party", {"purpose": "to sell them insurance"}),
    ("another requester for each party", {"requester": "the police"}),
):
    against_parties(
        _name,
        "everybody's consent to one proposal",
        _OTHER_OPENING.format("right"),
        party="right",
        honest="the party that is told otherwise",
    )(lies_in_vain(_tells("right", ConsentRequest, _other_words(**_words)), "right"))


def _cheaper(scene: Scene) -> Callable[[ConsentRequest], ConsentRequest]:
    """A proposal that is right in itself, with less epsilon."""

    def change(request: ConsentRequest) -> ConsentRequest:
        said = request.proposal
        federation = scene.net.federation
        context = StudyContext(said.requester, said.purpose, said.alignment, said.cohort, said.seed)
        less = budget(federation, epsilon_ranks=0.01, epsilon_marginals=0.01)
        return ConsentRequest(
            propose(federation, less, said.study, said.method, said.presence, said.n_subjects, context)
        )

    return change


against_parties(
    "a small epsilon shown to one party, a large one to the others",
    "everybody's consent to one proposal",
    _OTHER_PROPOSAL.format("left", "right"),
    party="left",
    honest=_TWO,
)(lies_in_vain(_tells_of(ConsentRequest, "right", _cheaper), "left"))


def _fewer_people(request: ConsentRequest) -> ConsentRequest:
    first = replace(request.proposal.presence[0], counts=(60, 60))
    return ConsentRequest(replace(request.proposal, presence=(first, *request.proposal.presence[1:])))


against_parties(
    "other counts of another party's subjects",
    "signatures by certificates",
    "refused: (the proposal's noise is not|party 'right': who is observed at 'left' is not signed)",
    party="right",
    honest="the party whose counts they are",
)(lies_in_vain(_tells("right", ConsentRequest, _fewer_people), "right"))


def _another_mask(request: ConsentRequest) -> ConsentRequest:
    first = replace(request.proposal.presence[0], mask="0" * 64)
    return ConsentRequest(replace(request.proposal, presence=(first, *request.proposal.presence[1:])))


against_parties(
    "another mask of another party's subjects",
    "signatures by certificates",
    "refused: party 'right': who is observed at 'left' is not signed by that party",
    party="right",
    honest="the party whose mask it is",
)(lies_in_vain(_tells("right", ConsentRequest, _another_mask), "right"))


def _in_other_rows(request: PlaceRequest) -> PlaceRequest:
    return replace(request, positions=np.roll(request.positions, 1))


def _in_another_list(request: PlaceRequest) -> PlaceRequest:
    """The party finds its rows where it is told, in a list of another order than the others have."""
    moved = (request.positions + 1) % request.n_subjects
    return replace(request, positions=moved, hashes=np.roll(request.hashes, 1, axis=0))


against_parties(
    "strict: one person's blocks in different rows",
    "the cohort's list",
    "refused: party 'right': the cohort's list has other subjects in the places of its rows",
    party="right",
)(lies_in_vain(_tells("right", PlaceRequest, _in_other_rows), "right", "strict"))


def _deaf(victim: str, method: str, make: Callable[[Scene], Lie], **settings: Any) -> Callable[[Scene], None]:
    """The coordinator goes on although a party has another cohort than the others."""

    def run(scene: Scene) -> None:
        before = ledgers(scene)
        refused_by(victim, scene, method, DeafTransport(scene, make(scene), victim), **settings)
        assert ledgers(scene) == before

    return run


against_parties(
    "strict: another list of the cohort for each party",
    "the cohort's digest in the proposal",
    "refused: party 'right': the proposal is about another cohort",
    party="right",
    honest="this party and the response's",
)(_deaf("right", "strict", _tells("right", PlaceRequest, _in_another_list)))


def _false_cohort(request: PlaceRequest) -> PlaceRequest:
    own = request.hashes[request.positions]
    return replace(request, n_subjects=100_000, hashes=cohort_list(own, request.positions, 100_000))


against_parties(
    "ievcds: a cohort of 100,000 for one party, the true one for the others",
    "the cohort's size in the proposal",
    "refused: party 'middle': the proposal is about a cohort of another size",
    party="middle",
    honest="this party and the response's",
)(_deaf("middle", "ievcds", _tells("middle", PlaceRequest, _false_cohort), rounds=2))


def _louder_margins(request: SumsShareRequest) -> SumsShareRequest:
    assert request.evidence is not None
    third = request.evidence.margins[2]
    changed = replace(third, cells=(third.cells[0] + 1, *third.cells[1:]))
    return replace(request, evidence=replace(request.evidence, margins=(*request.evidence.margins[:2], changed)))


against_parties(
    "other margins of another party",
    "signatures by certificates",
    "refused: party 'middle': the margins of 'right' are not signed by it",
    party="middle",
    honest="the party whose margins they are",
)(lies_in_vain(_tells("middle", SumsShareRequest, _louder_margins), "middle", "strict"))


def _less_noise(request: SumsShareRequest) -> SumsShareRequest:
    return replace(request, plan=replace(request.plan, mu=math.nextafter(request.plan.mu, math.inf)))


against_parties(
    "secure sums with less noise, in the last bit of mu",
    "its own computation",
    "refused: party 'middle': the plan of secure sums is not the one that follows",
    party="middle",
)(lies_in_vain(_tells("middle", SumsShareRequest, _less_noise), "middle", "strict"))


def _with_plan(**change: Callable[[SumsPlan], Any]) -> Callable[[SumsShareRequest], SumsShareRequest]:
    """Some of the plan's fields are not what they should be."""
    return lambda request: replace(
        request, plan=replace(request.plan, **{name: make(request.plan) for name, make in change.items()})
    )


def _other_groups(plan: SumsPlan) -> tuple[np.ndarray[Any, np.dtype[np.int64]], ...]:
    """A column's pooled cells begin one public cell earlier or later."""
    moved, column = list(plan.groups), max(range(len(plan.groups)), key=lambda j: plan.groups[j].size)
    groups = plan.groups[column].copy()
    edge = int(np.flatnonzero(np.diff(groups))[0])
    groups[edge + 1] = groups[edge]
    if not np.array_equal(np.unique(groups), np.unique(plan.groups[column])):
        groups = plan.groups[column][::-1].copy()
    moved[column] = groups
    return tuple(moved)


for _what, _change in (
    ("other weights in secure sums", _with_plan(weights=lambda plan: plan.weights // 2 + (plan.weights > 0))),
    ("cells pooled otherwise than margins say", _with_plan(groups=_other_groups)),
    (
        "another split of the budget between the two openings",
        _with_plan(mu=lambda plan: 0.5 * plan.mu, mu_tables=lambda plan: plan.mu_tables + 0.5 * plan.mu),
    ),
    ("more tables than the plan allows", _with_plan(most_tables=lambda plan: 2 * plan.most_tables)),
):
    against_parties(
        _what,
        "its own computation",
        "refused: party 'middle': the plan of secure sums is not the one that follows",
        party="middle",
    )(lies_in_vain(_tells("middle", SumsShareRequest, _change), "middle", "strict"))


def _lacks_people(request: SumsShareRequest) -> SumsShareRequest:
    """The right party knows one person less than it said."""
    assert request.evidence is not None
    known = [mask.copy() for mask in request.evidence.known]
    known[2][0] ^= 1  # the bit of the eighth person
    return replace(request, evidence=replace(request.evidence, known=tuple(known)))


against_parties(
    "a lie about whom another party knows",
    "signatures by certificates",
    "refused: party 'middle': the mask of 'right' is not the one it signed",
    party="middle",
    honest="the party whose people they are",
)(lies_in_vain(_tells("middle", SumsShareRequest, _lacks_people), "middle", "strict"))


class _StoppedError(Exception):
    """The coordinator goes no further."""


def _stop_before_tables(_: str, request: Any) -> Any:
    if isinstance(request, TablesRequest):
        raise _StoppedError
    return request


def _after_first_opening(scene: Scene) -> Callable[[Sequence[tuple[int, int]]], Any]:
    """A study whose sums are open and that has asked for no tables yet: asks the left party for those of pairs."""
    seen = LyingTransport(scene, _stop_before_tables, "left")
    with contextlib.suppress(_StoppedError):
        run_study(scene, f"tables-{time.monotonic_ns()}", "strict", seen)
    sums = next(r for name, r, reply in seen.seen if name == "left" and isinstance(reply, SumsReply))
    assert isinstance(sums, SumsRequest)
    return lambda pairs: scene.evil.ask(
        "left", TablesRequest(sums.study, "strict", sums.plan, sums.keys, np.array(pairs, dtype=np.int64), sums.boxes)
    )


@against_parties(
    "a second choice of tables, with the noise of the first",
    "one choice a study",
    "refused: party 'left' has added up tables of other pairs in this study",
    party="left",
    honest="two of the compute parties",
)
def second_choice(scene: Scene) -> None:
    ask = _after_first_opening(scene)
    first = ask([(0, 2), (1, 3)])
    assert isinstance(first, TablesReply), first
    again = ask([(0, 2), (1, 3)])
    assert isinstance(again, TablesReply)
    assert np.array_equal(first.term, again.term)
    assert isinstance(ask([(0, 2)]), Refusal)
    assert isinstance(ask([(1, 3), (0, 2)]), Refusal)


@against_parties(
    "tables of pairs that are named twice, are out of range, or are too many",
    "checks on pairs",
    "refused: the second opening names a pair twice",
    party="left",
    honest="two of the compute parties",
)
def odd_pairs(scene: Scene) -> None:
    ask = _after_first_opening(scene)
    wrong = [[(0, 9)], [(-1, 2)], [(2, 0)], [(1, 1)], [(0, 1)] * 401, [(0, 2), (0, 2)]]
    for pairs in wrong:
        assert isinstance(ask(pairs), Refusal)
    assert isinstance(ask([(0, 2)]), TablesReply)  # nothing was bound by what was refused


def _second_key(scene: Scene) -> Callable[[Any], Any]:
    """The right party helps: it signs a second public key, which only the left one is shown."""

    def change(request: Any) -> Any:
        channel = SealedChannel(request.study, "right", bytes(32), signs_as(scene, "right"))
        return replace(request, keys=(*request.keys[:2], channel.sign_public_key()))

    return change


def _two_keys(scene: Scene) -> Lie:
    change = _second_key(scene)
    return lambda name, request: (
        change(request)
        if name == "left" and isinstance(request, SumsShareRequest | SumsRequest | TablesRequest)
        else request
    )


@against_parties(
    "two public keys of a party that helps, one for each of the others",
    "the plan's digest in sealed shares",
    "refused: party 'left': .*(shared its scores for another plan|a sealed message is not what|had another public key)",
    party="left",
    honest=_TWO,
)
def two_keys(scene: Scene) -> None:
    transport = LyingTransport(scene, _two_keys(scene), "left")
    refused_by("left", scene, "strict", transport)
    # Both have shared, and paid for shares that nobody can add up; no sum was opened.
    assert not [reply for _, request, reply in transport.seen if isinstance(request, SumsRequest)]


# ---- it repeats what was said elsewhere ----------------------------------------------------------------


def _old_consents(scene: Scene) -> Callable[[AgreementRequest], AgreementRequest]:
    """What the right party signed in an earlier study with the same settings."""
    earlier = honest_study(scene, "vcds", ReleaseRequest)
    shown = next(request for _, request, _ in earlier.seen if isinstance(request, AgreementRequest))
    return lambda request: replace(request, consents=(*request.consents[:2], shown.consents[2]))


against_parties(
    "a party's consent to an earlier study with the same settings",
    "consents are bound to a proposal",
    _OTHER_PROPOSAL.format("left", "right"),
    party="left",
    honest="this party and the one that consented",
)(lies_in_vain(_tells_of(AgreementRequest, "left", _old_consents), "left"))


def _old_agreement(scene: Scene) -> Callable[[AgreementRequest], AgreementRequest]:
    earlier = honest_study(scene, "vcds", ReleaseRequest)
    shown = next(request for _, request, _ in earlier.seen if isinstance(request, AgreementRequest))
    return lambda request: replace(request, consents=shown.consents)


against_parties(
    "everybody's agreement to an earlier study with the same settings",
    "consents are bound to a proposal",
    _OTHER_PROPOSAL.format("left", "left"),
    party="left",
)(lies_in_vain(_tells_of(AgreementRequest, "left", _old_agreement), "left"))


def _old_presence(scene: Scene) -> Callable[[ConsentRequest], ConsentRequest]:
    earlier = honest_study(scene, "vcds", AgreementRequest)
    shown = next(request for _, request, _ in earlier.seen if isinstance(request, ConsentRequest)).proposal.presence

    def change(request: ConsentRequest) -> ConsentRequest:
        presence = (*request.proposal.presence[:2], shown[2])
        return ConsentRequest(replace(request.proposal, presence=presence))

    return change


against_parties(
    "a mask that its party signed in another study",
    "signatures name the study",
    "refused: party 'left': who is observed at 'right' is not signed by that party",
    party="left",
    honest="this party and the one that signed",
)(lies_in_vain(_tells_of(ConsentRequest, "left", _old_presence), "left"))


def _old_margins(scene: Scene) -> Callable[[SumsShareRequest], SumsShareRequest]:
    earlier = honest_study(scene, "strict", SumsKeyRequest)
    shown = next(
        reply for name, _, reply in earlier.seen if name == "right" and isinstance(reply, GaussianMarginsReply)
    )

    def change(request: SumsShareRequest) -> SumsShareRequest:
        assert request.evidence is not None
        margins = (*request.evidence.margins[:2], shown)
        return replace(request, evidence=PlanEvidence(request.evidence.known, margins))

    return change


against_parties(
    "margins that their party signed in another study",
    "signatures name the proposal",
    "refused: party 'left': the margins of 'right' are not signed by it",
    party="left",
    honest="this party and the one that signed",
)(lies_in_vain(_tells_of(SumsShareRequest, "left", _old_margins), "left", "strict"))


def _old_key(scene: Scene) -> Callable[[SumsShareRequest], SumsShareRequest]:
    earlier = honest_study(scene, "strict", SumsShareRequest)
    shown = next(reply for name, _, reply in earlier.seen if name == "right" and isinstance(reply, SumsKeyReply))
    return lambda request: replace(request, keys=(*request.keys[:2], shown.key))


against_parties(
    "a public key that its party signed in another study",
    "signatures name the study",
    "refused: party 'left': the public key of 'right' is not signed by it",
    party="left",
    honest="this party and the one that signed",
)(lies_in_vain(_tells_of(SumsShareRequest, "left", _old_key), "left", "strict"))


# ---- another order, and what it leaves out ------------------------------------------------------------------


def _asks_early(until: type, make: Callable[[LyingTransport], Any], party: str = "left", method: str = "vcds") -> Any:
    """A study up to some request; then one that does not follow there."""

    def run(scene: Scene) -> None:
        transport = honest_study(scene, method, until)
        request, before = make(transport), ledgers(scene)
        reply = scene.evil.ask(party, request)
        assert isinstance(reply, Refusal), reply
        assert ledgers(scene) == before

    return run


def _study_of(transport: LyingTransport) -> str:
    return next(request.study for _, request, _ in transport.seen if isinstance(request, PresenceRequest))


def _release_in(transport: LyingTransport) -> ReleaseRequest:
    queries = (ColumnQuery("y", 1.0, 1.0), ColumnQuery("x1", 1.0, 1.0))
    return ReleaseRequest(_study_of(transport), "vcds", "exact", queries)


against_parties(
    "a release before consent", "everybody's consent", "refused: party 'left' has not consented", party="left"
)(_asks_early(ConsentRequest, _release_in))
against_parties(
    "a release after consent, before everybody's agreement is shown",
    "everybody's consent",
    "refused: party 'left': not everybody has consented",
    party="left",
)(_asks_early(AgreementRequest, _release_in))
against_parties(
    "an agreement before consent",
    "everybody's consent",
    "refused: party 'left' has not consented",
    party="left",
)(_asks_early(ConsentRequest, lambda transport: AgreementRequest(_study_of(transport), "vcds", ())))


@against_parties(
    "consent before the cohort is known",
    "the order of rounds",
    "refused: party 'left': this study has no cohort yet",
    party="left",
)
def before_a_cohort(scene: Scene) -> None:
    placed = honest_study(scene, "vcds", AgreementRequest)
    asked = next(request for _, request, _ in placed.seen if isinstance(request, ConsentRequest))
    study = f"early-{time.monotonic_ns()}"
    assert isinstance(scene.evil.ask("left", opening(scene, study)), BeginReply)
    before = ledgers(scene)
    assert isinstance(scene.evil.ask("left", ConsentRequest(replace(asked.proposal, study=study))), Refusal)
    assert ledgers(scene) == before


def _without(index: int) -> Callable[[AgreementRequest], AgreementRequest]:
    return lambda request: replace(
        request, consents=tuple(c for number, c in enumerate(request.consents) if number != index)
    )


def _under_another_name(request: AgreementRequest) -> AgreementRequest:
    middle = request.consents[1]
    return replace(request, consents=(*request.consents[:2], SignedConsent("right", middle.until, middle.signature)))


against_parties(
    "one party's consent left out",
    "everybody's consent",
    "refused: party 'left': expected the consent of each party",
    party="left",
)(lies_in_vain(_tells("left", AgreementRequest, _without(2)), "left"))
against_parties(
    "one party's consent for two",
    "signatures by certificates",
    _OTHER_PROPOSAL.format("left", "right"),
    party="left",
)(lies_in_vain(_tells("left", AgreementRequest, _under_another_name), "left"))
against_parties(
    "two proposals in one study",
    "one proposal a study",
    _OTHER_OPENING.format("left"),
    party="left",
)(
    _asks_early(
        AgreementRequest,
        lambda transport: _other_words(purpose="another")(
            next(request for _, request, _ in transport.seen if isinstance(request, ConsentRequest))
        ),
    )
)


# ---- a party that helps the coordinator ------------------------------------------------------------------


def _forged_consent(scene: Scene) -> Lie:
    """The middle party has said nothing; the right one signs in its name."""
    proposals: list[Any] = []

    def lie(name: str, request: Any) -> Any:
        if isinstance(request, ConsentRequest):
            proposals.append(request.proposal)
        if name == "left" and isinstance(request, AgreementRequest):
            message = consent_statement("middle", fingerprint(proposals[0]), _LATER)
            forged = SignedConsent("middle", _LATER, signs_as(scene, "right").sign(message))
            return replace(request, consents=(request.consents[0], forged, request.consents[2]))
        return request

    return lie


against_parties(
    "a consent that one party signs in another's name",
    "signatures by certificates",
    _OTHER_PROPOSAL.format("left", "middle"),
    party="left",
    honest="this party and the one that is named",
)(lies_in_vain(_forged_consent, "left"))


def _two_signatures(scene: Scene) -> Lie:
    """Each honest party sees another purpose; the right party, which helps, signs both proposals."""
    seen: dict[str, Any] = {}

    def lie(name: str, request: Any) -> Any:
        if isinstance(request, ConsentRequest):
            changed = _other_words(purpose=f"for {name}")(request)
            seen[name] = changed.proposal
            return changed
        if isinstance(request, AgreementRequest):
            message = consent_statement("right", fingerprint(seen[name]), _LATER)
            signed = SignedConsent("right", _LATER, signs_as(scene, "right").sign(message))
            return replace(request, consents=(*request.consents[:2], signed))
        return request

    return lie


against_parties(
    "a party that helps and signs two proposals",
    "everybody's consent to one proposal",
    _OTHER_OPENING.format("left"),
    party="left",
    honest=_TWO,
)(lies_in_vain(_two_signatures, "left"))
