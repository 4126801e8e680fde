"""What is tried against a party: by a coordinator that oversteps, in every kind of study."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.sums_plans import make_plan
from tests.agreements import place_request
from tests.network.attackers import resident
from tests.network.intruder_scenes import (
    ESCAPES,
    FLARE_CELLS,
    MEGABYTE,
    Scene,
    against_party,
    altered,
)
from tests.network.lying import (
    accomplice_margins,
    agreed_alone,
    ledgers,
    opening,
    placed_alone,
    proposed_alone,
)
from verticopula.mpc.sealed_messages import SealedChannel
from verticopula.mpc.sums_plan import SumsPlan
from verticopula.network.connection.control_messages import (
    Envelope,
    Refusal,
    StatusRequest,
)
from verticopula.network.kit.key_signing import certificate_authenticity
from verticopula.protocol.consent_messages import ConsentReply, ConsentRequest, StudyProposal
from verticopula.protocol.message_version import MESSAGE_VERSION
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.rank_messages import (
    ColumnQuery,
    CompletedRanksReply,
    CompletedRanksRequest,
    Imputation,
    ReleaseRequest,
)
from verticopula.protocol.strict_messages import (
    GaussianMarginsReply,
    GaussianMarginsRequest,
    MarginQuery,
    PlanEvidence,
    SumsKeyRequest,
    SumsRequest,
    SumsShareRequest,
)
from verticopula.protocol.study_messages import PlaceRequest
from verticopula.protocol.study_proposal import federation_fingerprint
from verticopula.protocol.wire import encode
from verticopula.schema.study_settings import COORDINATOR

# ---- a coordinator that oversteps; the other parties help it -------------------------------------------


_STUDY = "study"
_STRICT = "strict-study"
_ROUNDS = "ievcds-study"


def _is_refused(make: Callable[[Scene], Any], party: str = "left") -> Callable[[Scene], None]:
    """`make` may bring the study as far as it likes; what it returns is refused, and costs nothing."""

    def run(scene: Scene) -> None:
        request = make(scene)
        before = ledgers(scene)
        reply = scene.evil.ask(party, request)
        assert isinstance(reply, Refusal), reply
        assert ledgers(scene) == before

    return run


def _proposed(scene: Scene, **changes: Any) -> ConsentRequest:
    """A proposal to the left party, changed afterwards."""
    return ConsentRequest(replace(proposed_alone(scene, "proposed", "vcds"), **changes))


def _asked(*queries: ColumnQuery, **changes: Any) -> Callable[[Scene], ReleaseRequest]:
    """A release in a study that everybody consented to, though not to this."""

    def make(scene: Scene) -> ReleaseRequest:
        agreed_alone(scene, _STUDY, "vcds")
        return replace(ReleaseRequest(_STUDY, "vcds", "exact", queries or _LITTLE), **changes)

    return make


_LITTLE = (ColumnQuery("y", 0.1, 0.1), ColumnQuery("x1", 0.1, 0.1))
_MUCH = (ColumnQuery("y", 5.0, 5.0), ColumnQuery("x1", 5.0, 5.0))
_NOT_CONSENTED = "refused: party 'left': this is not what was consented to"
_NO_SENSE = "refused: the proposal's settings make no sense"

against_party(
    "epsilon beyond the cap",
    "its policy",
    "refused: party 'left': epsilon per client would go above its cap",
    quick=True,
)(_is_refused(lambda scene: ConsentRequest(proposed_alone(scene, "much", "vcds", epsilon_ranks=5.0))))
against_party("more epsilon than was consented to", "what was consented to", _NOT_CONSENTED, quick=True)(
    _is_refused(_asked(*_MUCH))
)
against_party(
    "more rounds than the cap leaves room for",
    "its policy",
    "refused: party 'left': epsilon per client would go above its cap",
)(_is_refused(lambda scene: ConsentRequest(proposed_alone(scene, "long", "ievcds", rounds=1_000, per_round=True))))
against_party("more rounds than any protocol has", "its rules", "refused: a study has 1 to 1000 rounds")(
    _is_refused(lambda scene: ConsentRequest(proposed_alone(scene, "longer", "ievcds", rounds=1_001, per_round=True)))
)


def _round(number: int, code: int = 0, epsilon: float = 0.05) -> CompletedRanksRequest:
    none = np.zeros(0)
    items = (
        Imputation("y", epsilon, none, none, np.full(0, code, dtype=np.int64)),
        Imputation("x1", epsilon, np.linspace(0.0, 1.0, 120), none, None),
    )
    return CompletedRanksRequest(_ROUNDS, "ievcds", "exact", number, items)


def _in_rounds(request: CompletedRanksRequest) -> Callable[[Scene], CompletedRanksRequest]:
    def make(scene: Scene) -> CompletedRanksRequest:
        agreed_alone(scene, _ROUNDS, "ievcds", rounds=2)
        return request

    return make


against_party("a third round after a consent to two", "what was consented to", _NOT_CONSENTED, quick=True)(
    _is_refused(_in_rounds(_round(3)))
)
against_party("a second first round after a consent to two", "what was consented to", _NOT_CONSENTED)(
    _is_refused(_in_rounds(_round(1)))
)
against_party("a round with twice the epsilon that was consented to", "what was consented to", _NOT_CONSENTED)(
    _is_refused(_in_rounds(_round(2, epsilon=0.1)))
)


@against_party(
    "the second round again, with other completed values",
    "one request a round",
    "refused: party 'left': another round 2 was asked for",
)
def second_round_again(scene: Scene) -> None:
    evil, _ = agreed_alone(scene, _ROUNDS, "ievcds", rounds=2)
    first, second = _round(2).imputations
    steeper = (first, replace(second, curve=np.linspace(0.0, 0.5, 120)))
    assert isinstance(evil.ask("left", _round(2)), CompletedRanksReply)
    before = ledgers(scene)
    assert isinstance(evil.ask("left", replace(_round(2), imputations=steeper)), Refusal)
    assert ledgers(scene) == before


against_party("another sampler than it knows", "its rules", _NO_SENSE)(
    _is_refused(lambda scene: _proposed(scene, sampler="none"))
)
against_party("another sampler than was consented to", "what was consented to", _NOT_CONSENTED)(
    _is_refused(_asked(sampler="binomial"))
)
against_party("an epsilon that is infinite", "its rules", _NO_SENSE)(
    _is_refused(lambda scene: _proposed(scene, epsilon_ranks=float("inf"), ranks=np.full(5, np.inf)))
)
against_party("an epsilon that overflows when it is added up", "its rules", _NO_SENSE, quick=True)(
    _is_refused(lambda scene: _proposed(scene, epsilon_ranks=1e308, ranks=np.full(5, 1e308)))
)
against_party("an epsilon that overflows, in a release", "what was consented to", _NOT_CONSENTED)(
    _is_refused(_asked(ColumnQuery("y", 1e308, 0.1), ColumnQuery("x1", 0.1, 0.1)))
)
against_party(
    "less noise than the proposal's own epsilon gives",
    "its own computation",
    "refused: the proposal's noise is not what its settings",
    quick=True,
)(_is_refused(lambda scene: _proposed(scene, ranks=np.full(5, 0.2))))
against_party("a column that it does not hold", "what was consented to", _NOT_CONSENTED)(
    _is_refused(_asked(*_LITTLE, ColumnQuery("x2", 0.1, 0.1)))
)
against_party("the same column twice", "what was consented to", _NOT_CONSENTED)(_is_refused(_asked(*_LITTLE, *_LITTLE)))
against_party(
    "a proposal without one of the parties", "its own federation file", "refused: the proposal is about other"
)(_is_refused(lambda scene: _proposed(scene, presence=proposed_alone(scene, "proposed", "vcds").presence[:2])))
against_party(
    "a method that the policy does not name",
    "its policy",
    "refused: party 'left' does not take part in method",
    quick=True,
)(_is_refused(lambda scene: opening(scene, "other", method="raw-glm")))
against_party(
    "another method than the study was opened for",
    "what was agreed",
    "refused: party 'left': this study was opened for",
)(_is_refused(_asked(method="evcds")))
against_party(
    "a column that is not shared", "its policy", "refused: party 'middle' does not share column", party="middle"
)(_is_refused(lambda scene: opening(scene), "middle"))
against_party(
    "hashes and masks of too few people",
    "its policy",
    "refused: party 'right' has fewer subjects than its policy asks for",
    party="right",
)(_is_refused(lambda scene: opening(scene), "right"))
against_party(
    "noise from a seed that the coordinator knows",
    "its policy",
    "refused: party 'left' does not take part in seeded",
    quick=True,
)(_is_refused(lambda scene: opening(scene, "seeded", seed=1)))
against_party(
    "another federation file",
    "the federation's fingerprint",
    "refused: party 'left': the coordinator's federation",
    quick=True,
)(_is_refused(lambda scene: opening(scene, "alt", federation=federation_fingerprint(altered(scene.net.federation)))))
against_party(
    "a release in a study that was never opened", "what was agreed", "refused: party 'left' was not asked to open"
)(_is_refused(lambda scene: ReleaseRequest("unknown", "vcds", "exact", _LITTLE)))


def _another_place(
    change: Callable[[PlaceRequest], PlaceRequest], study: str = _STUDY
) -> Callable[[Scene], PlaceRequest]:
    def make(scene: Scene) -> PlaceRequest:
        placed_alone(scene, _STUDY, "vcds")
        return change(place_request(study, scene.evil.ask("left", opening(scene, study)).hashes))

    return make


_BACKWARDS = np.arange(119, -1, -1, dtype=np.int64)

against_party(
    "a study opened again with another cohort",
    "what was agreed",
    "refused: party 'left': the cohort of this study is settled",
)(_is_refused(_another_place(lambda place: replace(place, positions=_BACKWARDS, hashes=place.hashes[::-1].copy()))))
against_party("places outside the cohort", "checks on arrays", "refused: party 'left': a place lies outside")(
    _is_refused(_another_place(lambda place: replace(place, positions=place.positions + 10**9), "outside"))
)
against_party(
    "rows in other places than the cohort's list has them",
    "the cohort's list",
    "refused: party 'left': the cohort's list has other subjects in the places",
)(_is_refused(_another_place(lambda place: replace(place, positions=_BACKWARDS), "outside")))
against_party(
    "somebody twice in the cohort's list", "the cohort's list", "refused: party 'left': somebody is twice in the cohort"
)(_is_refused(_another_place(lambda place: replace(place, hashes=place.hashes[np.r_[0, 0:119]]), "outside")))
against_party(
    "a cohort of 100,000 for a party whose table is the cohort",
    "checks on arrays",
    "refused: party 'left': its own 120 subjects are the cohort",
    quick=True,
)(
    _is_refused(
        _another_place(lambda place: place_request("outside", place.hashes, place.positions, 100_000), "outside")
    )
)
against_party(
    "a name with terminal escapes for a study", "names of studies", "refused: party 'left': a study's name has"
)(_is_refused(lambda scene: opening(scene, ESCAPES)))
against_party("a ledger that was never seen, as witness", "its ledger", "refused: .*ledger")(
    _is_refused(lambda scene: opening(scene, "witness", witness_count=50, witness_head="0" * 64))
)


# ---- strict studies ------------------------------------------------------------------------


def _agreed_strict(scene: Scene) -> StudyProposal:
    return agreed_alone(scene, _STRICT, "strict")[1]


def _margins(proposal: StudyProposal, factor: float = 1.0) -> GaussianMarginsRequest:
    """The left party's margins as they were consented to, or with more or less noise."""
    deviations = factor * proposal.deviations[:2]
    queries = tuple(MarginQuery(name, float(d)) for name, d in zip(("y", "x1"), deviations, strict=True))
    return GaussianMarginsRequest(_STRICT, "strict", queries)


_PARTIES = {"left": 2, "middle": 1, "right": 2}


def _share_request(
    scene: Scene,
    *,
    forged: bool = False,
    widths: Mapping[str, int] = _PARTIES,
    compute: tuple[str, str, str] = ("left", "middle", "right"),
    change: Callable[[SumsPlan], SumsPlan] = lambda plan: plan,
    evidence: Callable[[Scene], PlanEvidence | None] = lambda scene: None,
    study: str = _STRICT,
) -> SumsShareRequest:
    """Everybody's keys: the left party's own, and for the others keys of the coordinator's, signed by whom it can."""
    plan = change(make_plan(widths, np.ones((120, len(widths)), dtype=bool), 0.01, compute, mu_tables=0.01))
    names = dict.fromkeys((*widths, *compute))
    kits = {name: scene.kit("server" if forged or name == COORDINATOR else name) for name in names}
    channels = [SealedChannel(study, name, bytes(32), certificate_authenticity(kits[name])) for name in [*names][1:]]
    own = scene.evil.ask("left", SumsKeyRequest(study, "strict")).key
    keys = (own, *(channel.sign_public_key() for channel in channels))
    return SumsShareRequest(study, "strict", plan, keys, evidence(scene))


def _longer_than_fits(plan: SumsPlan) -> SumsPlan:
    """The right party's part of every record is so long that bounds would wrap around in 64 bits."""
    return replace(plan, weights=plan.weights * [1, 1, 2**24])


def _after_margins(**changes: Any) -> Callable[[Scene], None]:
    """A plan that does not follow from what was agreed, asked of a party that has sent its margins."""

    def make(scene: Scene) -> SumsShareRequest:
        margins = scene.evil.ask("left", _margins(_agreed_strict(scene)))
        assert isinstance(margins, GaussianMarginsReply), margins
        return _share_request(scene, **changes)

    return _is_refused(make)


def _evidence(change: Callable[[PlanEvidence], PlanEvidence]) -> Callable[[Scene], PlanEvidence]:
    """The left party's real margins, and its accomplices' signed ones; then one lie."""

    def make(scene: Scene) -> PlanEvidence:
        proposal = _agreed_strict(scene)
        own = scene.evil.ask("left", _margins(proposal))
        others = [
            accomplice_margins(scene, proposal, "middle", [8]),
            accomplice_margins(scene, proposal, "right", [3, 8]),
        ]
        return change(PlanEvidence.of((np.ones(120, dtype=bool),) * 3, (own, *others)))

    return make


def _first_half(known: tuple[np.ndarray[Any, Any], ...]) -> tuple[np.ndarray[Any, Any], ...]:
    hidden = known[2].copy()
    hidden[7:] = 0
    return (*known[:2], hidden)


against_party("margins with less noise than was consented to", "what was consented to", _NOT_CONSENTED)(
    _is_refused(lambda scene: _margins(_agreed_strict(scene), 0.5))
)
against_party("margins without noise", "what was consented to", _NOT_CONSENTED)(
    _is_refused(lambda scene: _margins(_agreed_strict(scene), 0.0))
)
against_party(
    "a strict study whose sums go beyond the cap", "its policy", "refused: party 'left': epsilon per client", quick=True
)(_is_refused(lambda scene: ConsentRequest(proposed_alone(scene, "loud", "strict", epsilon=50.0))))
against_party(
    "margins before everybody has consented", "everybody's consent", "refused: party 'left' has not consented to this"
)(_is_refused(lambda scene: replace(_margins(proposed_alone(scene, "early-margins", "strict")), study="early-margins")))
against_party(
    "the coordinator's own keys in place of the parties'",
    "signatures by certificates",
    "refused: party 'left': the public key of 'middle' is not signed by it",
)(_is_refused(lambda scene: (_agreed_strict(scene), _share_request(scene, forged=True))[1]))
against_party("secure sums before margins", "its rules", "refused: party 'left' has sent no margins in this study")(
    _is_refused(
        lambda scene: (agreed_alone(scene, "no-margins", "strict"), _share_request(scene, study="no-margins"))[1]
    )
)
against_party(
    "secure sums before everybody has consented",
    "its rules",
    "refused: party 'left' has not consented to this study",
)(_is_refused(lambda scene: (proposed_alone(scene, "early", "strict"), _share_request(scene, study="early"))[1]))
against_party(
    "the coordinator as a party with 200 columns of its own in secure sums",
    "its own federation file",
    "refused: party 'left': the plan of secure sums names other parties or columns",
    quick=True,
)(_after_margins(widths={**_PARTIES, COORDINATOR: 200}))
against_party(
    "more columns of another party in secure sums",
    "its own federation file",
    "refused: party 'left': the plan of secure sums names other parties or columns",
)(_after_margins(widths={**_PARTIES, "right": 200}))
against_party(
    "the coordinator as a compute party in place of another",
    "its own federation file",
    "refused: party 'left': the plan of secure sums names other compute parties",
)(_after_margins(compute=("left", "middle", COORDINATOR)))
against_party(
    "weights in secure sums for which bounds would wrap around",
    "checks on arrays",
    "refused: the records of secure sums do not fit in 61 bits",
)(_after_margins(change=_longer_than_fits))
against_party(
    "a plan of secure sums without what it follows from",
    "its own computation",
    "refused: party 'left': the plan of secure sums came without masks and margins",
)(_after_margins())
against_party(
    "a plan of secure sums with one party's margins left out",
    "its own computation",
    "refused: party 'left': masks or margins of a party are missing",
)(_after_margins(evidence=_evidence(lambda found: replace(found, margins=found.margins[:2]))))
against_party(
    "a plan of secure sums from another mask than its party signed",
    "signatures by certificates",
    "refused: party 'left': the mask of 'right' is not the one it signed",
)(_after_margins(evidence=_evidence(lambda found: replace(found, known=_first_half(found.known)))))
against_party(
    "one party's margins under another's name",
    "signatures by certificates",
    "refused: party 'left': the margins of 'right' are not signed by it",
)(_after_margins(evidence=_evidence(lambda found: replace(found, margins=(*found.margins[:2], found.margins[1])))))


@against_party(
    "noised terms before shares: sums of a plan that was never shared for",
    "its own computation",
    "refused: party 'left': the plan of secure sums came without masks and margins",
)
def sums_before_shares(scene: Scene) -> None:
    proposal = _agreed_strict(scene)
    assert isinstance(scene.evil.ask("left", _margins(proposal)), GaussianMarginsReply)
    asked = _share_request(scene)
    before = ledgers(scene)
    reply = scene.evil.ask("left", SumsRequest(_STRICT, "strict", asked.plan, asked.keys, ((b"",), (b"",), (b"",))))
    assert isinstance(reply, Refusal), reply
    assert ledgers(scene) == before


against_party(
    "secure sums in a study of another method", "what was agreed", "refused: party 'left': this study was opened for"
)(_is_refused(lambda scene: (placed_alone(scene, _STUDY, "vcds"), SumsKeyRequest(_STUDY, "strict"))[1]))


# ---- bytes ------------------------------------------------------------------------


def _question(scene: Scene, body: bytes, key: str = "k", party: str = "left") -> None:
    scene.evil.send(party, "ask", key, body)
    scene.expect()


@against_party(
    "a request of an unknown type", "the wire format", "refused: the message is of a type that is not", quick=True
)
def unknown_request(scene: Scene) -> None:
    _question(scene, encode(StatusRequest()))


@against_party("a request to run code", "the wire format", "refused: the message is of a type that is not")
def code_request(scene: Scene) -> None:
    header = json.dumps({"kind": "RunRequest", "fields": {"code": "import os", "version": MESSAGE_VERSION}}).encode()
    _question(scene, b"VCMS" + (1).to_bytes(2, "little") + len(header).to_bytes(4, "little") + header)


@against_party("a pickle as a request", "the wire format", "refused: the bytes are not a message", quick=True)
def pickled_question(scene: Scene) -> None:
    canary = scene.canary()
    _question(scene, canary.pickled())
    assert not canary.sang


@against_party(
    "a FLARE job for the party's cell network, pickled", "nobody listens there", "F3 application 1 is not served"
)
def job_for_party(scene: Scene) -> None:
    canary = scene.canary()
    scene.evil.raw("left", canary.pickled(), FLARE_CELLS)
    scene.expect()
    assert not canary.sang


@against_party("a request under another request's key", "keys are fingerprints", "refused: the request's key is not")
def wrong_key(scene: Scene) -> None:
    _question(scene, encode(opening(scene)), key=fingerprint(opening(scene, "another")))


@against_party("another message version in a request", "the wire format", "refused: this side speaks message version")
def party_version(scene: Scene) -> None:
    _question(scene, encode(replace(opening(scene), version=MESSAGE_VERSION + 1)))


@against_party("a reply to a party", "roles", "refused a message from coordinator: a party gets requests")
def answer_to_party(scene: Scene) -> None:
    scene.evil.send("left", "answer", "k", encode(ConsentReply("left", 2e9, b"")))


@against_party(
    "a request sent again by hand", "serial numbers", "refused a message from coordinator: it was received before"
)
def question_replayed(scene: Scene) -> None:
    sessions = scene.evil.sessions
    session = sessions._peers["left"].session
    body = np.frombuffer(encode(opening(scene, "again")), dtype=np.uint8)
    message = encode(Envelope("ask", session, next(sessions._peers["left"].serials), "k", body))
    scene.evil.raw("left", message)
    scene.evil.raw("left", message)


@against_party(
    "a request of an earlier session", "session numbers", "refused a message from coordinator: it belongs to an"
)
def question_of_old(scene: Scene) -> None:
    scene.evil.raw("left", encode(Envelope("ask", "0" * 32, 10**6, "k", np.zeros(0, dtype=np.uint8))))


@against_party(
    "ten thousand requests at once", "a limit on open requests", "refused a message from coordinator: more than 16"
)
def question_flood(scene: Scene) -> None:
    before = resident(scene.pid("left"))
    for number in range(10_000):
        scene.evil.sessions.send("left", "ask", f"{number}", bytes(10_000))
    scene.log("left").wait("more than 16 requests")
    time.sleep(5.0)
    assert resident(scene.pid("left")) - before < 100 * MEGABYTE
    while not scene.evil.replies.empty():
        scene.evil.replies.get()
