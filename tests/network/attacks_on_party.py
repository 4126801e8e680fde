"""What is tried against a party: by a coordinator that oversteps, in every kind of study."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.sums_plans import make_plan
from tests.network.attackers import (
    EvilCoordinator,
    resident,
)
from tests.network.intruder_scenes import (
    ESCAPES,
    FLARE_CELLS,
    MEGABYTE,
    Scene,
    against_party,
    altered,
)
from verticopula.mpc.sealed_messages import SealedChannel
from verticopula.mpc.sums_plan import SumsPlan
from verticopula.network.control_messages import (
    Envelope,
    Refusal,
    StatusRequest,
)
from verticopula.network.key_signing import certificate_authenticity
from verticopula.protocol.messages import (
    MESSAGE_VERSION,
    ColumnQuery,
    ConsentReply,
    ConsentRequest,
    GaussianMarginsReply,
    GaussianMarginsRequest,
    MarginQuery,
    OpenReply,
    OpenRequest,
    PlaceRequest,
    ReleaseRequest,
    StrictConsentRequest,
    SumsKeyRequest,
    SumsShareRequest,
    fingerprint,
)
from verticopula.protocol.study_opening import federation_fingerprint
from verticopula.protocol.wire import encode
from verticopula.schema.study_settings import COORDINATOR

# ---- a coordinator that oversteps ------------------------------------------------------------------


def _opening(scene: Scene, study: str = "study", **changes: Any) -> OpenRequest:
    request = OpenRequest(study, "vcds", federation_fingerprint(scene.net.federation), "hash", None, 0, "")
    return replace(request, **changes)


def _release(study: str = "study", **changes: Any) -> ReleaseRequest:
    orders = (ColumnQuery("y", 0.1, 0.1), ColumnQuery("x1", 0.1, 0.1))
    return replace(ReleaseRequest(study, "vcds", "exact", orders), **changes)


def _opened(scene: Scene, party: str = "left") -> EvilCoordinator:
    """The study, open and with a cohort at this party."""
    evil = scene.evil
    reply = evil.ask(party, _opening(scene))
    assert isinstance(reply, OpenReply), reply
    n_rows = reply.hashes.shape[0]
    place = PlaceRequest("study", 120, np.arange(n_rows, dtype=np.int64))
    assert not isinstance(evil.ask(party, place), Refusal)
    return evil


def _is_refused(make: Callable[[Scene], Any], party: str = "left", *, opened: bool = True) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        evil = _opened(scene, party) if opened else scene.evil
        before = scene.net.ledger(party)
        reply = evil.ask(party, make(scene))
        assert isinstance(reply, Refusal), reply
        assert scene.net.ledger(party) == before

    return run


_MUCH = (ColumnQuery("y", 5.0, 5.0), ColumnQuery("x1", 5.0, 5.0))

against_party(
    "epsilon beyond the cap", "its policy", "refused: party 'left': epsilon per client would become", quick=True
)(_is_refused(lambda scene: ConsentRequest(_release(orders=_MUCH))))


@against_party(
    "more epsilon than was reviewed, beyond the cap", "its policy, again", "refused: party 'left': epsilon per client"
)
def more_than_reviewed(scene: Scene) -> None:
    evil = _opened(scene)
    assert isinstance(evil.ask("left", ConsentRequest(_release())), ConsentReply)
    assert isinstance(evil.ask("left", _release(orders=_MUCH)), Refusal)
    assert scene.net.ledger("left") == []


against_party(
    "more rounds than were reviewed, beyond the cap", "its policy", "refused: party 'left': epsilon per client"
)(_is_refused(lambda scene: ConsentRequest(_release(), rounds=1_000)))
against_party("another sampler than it knows", "its rules", "refused: party 'left' does not know the sampler")(
    _is_refused(lambda scene: _release(sampler="none"))
)
against_party("an epsilon that is infinite", "its rules", "refused: party 'left', column 'y': epsilon must be")(
    _is_refused(lambda scene: _release(orders=(ColumnQuery("y", float("inf"), 1.0),)))
)
against_party(
    "an epsilon that overflows when it is added up",
    "its rules",
    "refused: party 'left', column 'y': epsilon must be positive, and at most",
    quick=True,
)(_is_refused(lambda scene: _release(orders=(ColumnQuery("y", 1e308, 0.1), ColumnQuery("x1", 0.1, 0.1)))))
against_party("a column that it does not hold", "its rules", "refused: party 'left': the request names columns")(
    _is_refused(lambda scene: _release(orders=(ColumnQuery("x2", 0.1, 0.1),)))
)
against_party("the same column twice", "its rules", "refused: party 'left': the request names columns twice")(
    _is_refused(lambda scene: _release(orders=(ColumnQuery("y", 0.1, 0.1),) * 2))
)
against_party(
    "a method that the policy does not name",
    "its policy",
    "refused: party 'left' does not take part in method",
    quick=True,
)(_is_refused(lambda scene: _opening(scene, "other", method="raw-glm"), opened=False))
against_party(
    "another method than the study was opened for",
    "what was agreed",
    "refused: party 'left': this study was opened for",
)(_is_refused(lambda scene: _release(method="evcds")))
against_party(
    "a column that is not shared", "its policy", "refused: party 'middle' does not share column", party="middle"
)(_is_refused(lambda scene: _opening(scene), "middle", opened=False))
against_party(
    "too few people",
    "its policy",
    "refused: party 'right', column 'x3': fewer observed subjects than its policy",
    party="right",
)(
    _is_refused(
        lambda scene: ConsentRequest(_release(orders=(ColumnQuery("x3", 0.1, 0.1), ColumnQuery("x4", 0.1, 0.1)))),
        "right",
    )
)
against_party(
    "noise from a seed that the coordinator knows",
    "its policy",
    "refused: party 'left' does not take part in seeded",
    quick=True,
)(_is_refused(lambda scene: _opening(scene, "seeded", seed=1), opened=False))
against_party(
    "another federation file",
    "the federation's fingerprint",
    "refused: party 'left': the coordinator's federation",
    quick=True,
)(
    _is_refused(
        lambda scene: _opening(scene, "altered", federation=federation_fingerprint(altered(scene.net.federation))),
        opened=False,
    )
)
against_party(
    "a release in a study that was never opened", "what was agreed", "refused: party 'left' was not asked to open"
)(_is_refused(lambda scene: _release("unknown"), opened=False))
against_party(
    "a study opened again with another cohort",
    "what was agreed",
    "refused: party 'left': the cohort of this study is settled",
)(_is_refused(lambda scene: PlaceRequest("study", 120, np.arange(120, dtype=np.int64)[::-1].copy())))
against_party("places outside the cohort", "checks on arrays", "refused: party 'left': a place lies outside")(
    _is_refused(lambda scene: PlaceRequest("study", 120, np.arange(120, dtype=np.int64) + 10**9))
)
against_party(
    "a name with terminal escapes for a study", "names of studies", "refused: party 'left': a study's name has"
)(_is_refused(lambda scene: _opening(scene, ESCAPES), opened=False))
against_party("a ledger that was never seen, as witness", "its ledger", "refused: .*ledger")(
    _is_refused(lambda scene: _opening(scene, "witness", witness_count=50, witness_head="0" * 64), opened=False)
)


# ---- strict studies ------------------------------------------------------------------------


def _opened_strict(scene: Scene) -> EvilCoordinator:
    """A strict study, open and with a cohort at the left party."""
    evil = scene.evil
    reply = evil.ask("left", _opening(scene, _STRICT, method="strict"))
    assert isinstance(reply, OpenReply), reply
    places = np.arange(reply.hashes.shape[0], dtype=np.int64)
    assert not isinstance(evil.ask("left", PlaceRequest(_STRICT, 120, places)), Refusal)
    return evil


def _strict_is_refused(make: Callable[[Scene, EvilCoordinator], Any]) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        evil = _opened_strict(scene)
        before = scene.net.ledger("left")
        reply = evil.ask("left", make(scene, evil))
        assert isinstance(reply, Refusal), reply
        assert scene.net.ledger("left") == before

    return run


_STRICT = "strict-study"


def _margin_orders(deviation: float) -> tuple[MarginQuery, ...]:
    return MarginQuery("y", deviation), MarginQuery("x1", deviation)


_PARTIES = {"left": 2, "middle": 1, "right": 2}


def _share_request(
    scene: Scene,
    evil: EvilCoordinator,
    *,
    forged: bool = False,
    widths: Mapping[str, int] = _PARTIES,
    compute: tuple[str, str, str] = ("left", "middle", "right"),
    change: Callable[[SumsPlan], SumsPlan] = lambda plan: plan,
) -> SumsShareRequest:
    """Everybody's keys: the left party's own, and for the others keys of the coordinator's, signed by whom it can."""
    plan = change(make_plan(widths, np.ones((120, sum(widths.values())), dtype=bool), 0.01, 1.5, compute))
    names = dict.fromkeys((*widths, *compute))
    kits = {name: scene.kit("server" if forged or name == COORDINATOR else name) for name in names}
    channels = [SealedChannel(_STRICT, name, bytes(32), certificate_authenticity(kits[name])) for name in [*names][1:]]
    own = evil.ask("left", SumsKeyRequest(_STRICT, "strict")).key
    return SumsShareRequest(_STRICT, "strict", plan, (own, *(channel.sign_public_key() for channel in channels)))


def _without_noise(plan: SumsPlan) -> SumsPlan:
    """The right party has no columns, and a bound that takes everybody else's away: noise goes with their sum."""
    columns, bounds = plan.columns.copy(), plan.bounds.copy()
    columns[:, -_PARTIES["right"] :] = False
    bounds[:, -1] = 1 - bounds[:, :-1].sum(axis=1)
    return replace(plan, columns=columns, bounds=bounds)


def _after_margins(**roles: Any) -> Callable[[Scene], None]:
    """A plan with other roles than the federation has, asked of a party that has sent its margins."""

    def run(scene: Scene) -> None:
        evil = _opened_strict(scene)
        margins = GaussianMarginsRequest(_STRICT, "strict", _margin_orders(50.0))
        assert isinstance(evil.ask("left", margins), GaussianMarginsReply)
        before = scene.net.ledger("left")
        reply = evil.ask("left", _share_request(scene, evil, **roles))
        assert isinstance(reply, Refusal), reply
        assert scene.net.ledger("left") == before

    return run


against_party("margins of a strict study beyond the cap", "its policy", "refused: party 'left': epsilon per client")(
    _strict_is_refused(lambda scene, evil: GaussianMarginsRequest(_STRICT, "strict", _margin_orders(0.5)))
)
against_party(
    "a strict review whose sums go beyond the cap", "its policy", "refused: party 'left': epsilon per client"
)(_strict_is_refused(lambda scene, evil: StrictConsentRequest(_STRICT, "strict", _margin_orders(50.0), 3.0)))
against_party("margins without noise", "its rules", "refused: party 'left', column 'y': the noise cannot be")(
    _strict_is_refused(lambda scene, evil: GaussianMarginsRequest(_STRICT, "strict", _margin_orders(0.0)))
)
against_party(
    "the coordinator's own keys in place of the parties'",
    "signatures by certificates",
    "refused: party 'left': the public key of 'middle' is not signed by it",
)(_strict_is_refused(lambda scene, evil: _share_request(scene, evil, forged=True)))
against_party("secure sums before margins", "its rules", "refused: party 'left' has sent no margins in this study")(
    _strict_is_refused(lambda scene, evil: _share_request(scene, evil, forged=False))
)
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
    "a bound below 0 that takes the noise off secure sums",
    "checks on arrays",
    "refused: the plan of secure sums has a bound for a party without columns",
)(_after_margins(change=_without_noise))
against_party(
    "secure sums in a study of another method", "what was agreed", "refused: party 'left': this study was opened for"
)(_is_refused(lambda scene: SumsKeyRequest("study", "strict")))


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
    _question(scene, encode(_opening(scene)), key=fingerprint(_release()))


@against_party("another message version in a request", "the wire format", "refused: this side speaks message version")
def party_version(scene: Scene) -> None:
    _question(scene, encode(replace(_opening(scene), version=MESSAGE_VERSION + 1)))


@against_party("a reply to a party", "roles", "refused a message from coordinator: a party gets requests")
def answer_to_party(scene: Scene) -> None:
    scene.evil.send("left", "answer", "k", encode(ConsentReply("left")))


@against_party(
    "a request sent again by hand", "serial numbers", "refused a message from coordinator: it was received before"
)
def question_replayed(scene: Scene) -> None:
    sessions = scene.evil.sessions
    session = sessions._peers["left"].session
    body = np.frombuffer(encode(_opening(scene, "again")), dtype=np.uint8)
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
