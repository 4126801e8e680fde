"""A coordinator that follows the protocol except for one lie, and accomplices who sign what it likes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from tests.agreements import budget, only_party, place_request
from tests.network.attackers import EvilCoordinator
from tests.network.harness import PARTIES
from tests.network.intruder_scenes import Scene
from verticopula import Synthesizer
from verticopula.matching.keyed_hashes import cohort_digest
from verticopula.mpc.sealed_messages import Authenticity
from verticopula.network.connection.control_messages import Refusal
from verticopula.network.kit.key_signing import certificate_authenticity
from verticopula.protocol.consent_messages import (
    AgreementReply,
    AgreementRequest,
    ConsentReply,
    ConsentRequest,
    PresenceReply,
    PresenceRequest,
    SignedConsent,
    SignedPresence,
    StudyProposal,
)
from verticopula.protocol.messages import Reply, Request, fingerprint
from verticopula.protocol.strict_messages import GaussianMarginsReply
from verticopula.protocol.study_messages import BeginReply, BeginRequest, PlaceReply
from verticopula.protocol.study_proposal import (
    StudyContext,
    consent_statement,
    federation_fingerprint,
    margins_statement,
    mask_digest,
    presence_statement,
    propose,
    propose_raw,
    reported_presence,
    sign_presences,
)
from verticopula.schema.methods import RAW_REGRESSION

Lie = Callable[[str, Any], Any]


class Refused(Exception):
    """A party said no."""

    def __init__(self, party: str, reason: str) -> None:
        super().__init__(f"{party}: {reason}")
        self.party = party


def ledgers(scene: Scene) -> dict[str, bytes]:
    """Every party's ledger, byte for byte."""
    paths = {name: scene.net.folder / "kits" / name / "vault" / "ledger.jsonl" for name in PARTIES}
    return {name: path.read_bytes() if path.exists() else b"" for name, path in paths.items()}


def signs_as(scene: Scene, name: str) -> Authenticity:
    """What somebody signs with who holds this kit."""
    return certificate_authenticity(scene.kit(name))


# ---- the honest protocol with one lie ------------------------------------------------------------------


@dataclass
class LyingTransport:
    """Delivers requests to real parties, after `lie` has changed some of them.

    Attributes
    ----------
    lie : party and request -> what is sent in its place; the same object where it tells the truth
    victim : asked before the others in every round, so that its refusal is the round's first answer
    before : all ledgers when the first lie was told
    seen : (party, request, reply) of every question
    """

    scene: Scene
    lie: Lie
    victim: str
    before: dict[str, bytes] | None = None
    seen: list[tuple[str, Request, Reply]] = field(default_factory=list)

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        replies: dict[str, Reply] = {}
        for name in sorted(requests, key=lambda name: name != self.victim):
            request = self.lie(name, requests[name])
            if request is not requests[name] and self.before is None:
                self.before = ledgers(self.scene)
            reply = self.scene.evil.ask(name, request)
            if isinstance(reply, Refusal):
                raise Refused(name, reply.reason)
            replies[name] = reply
            self.seen.append((name, request, reply))
        return replies


class DeafTransport(LyingTransport):
    """Goes on although a party has said that its cohort is another one: it hears what the left party says."""

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        replies = super().deliver(requests)
        heard = replies.get("left")
        for name, reply in replies.items():
            if isinstance(reply, PlaceReply) and isinstance(heard, PlaceReply):
                replies[name] = replace(reply, cohort=heard.cohort, n_subjects=heard.n_subjects)
            if isinstance(reply, PresenceReply) and isinstance(heard, PresenceReply):
                replies[name] = replace(reply, observed=reply.observed[: heard.observed.shape[0]])
        return replies


def run_study(scene: Scene, study: str, method: str, transport: LyingTransport, **settings: Any) -> None:
    unit: dict[str, Any] = {"unit": "person", "delta": 1e-6} if method == "strict" else {"unit": "variable"}
    common = {name: settings.pop(name) for name in ("alignment", "requester", "purpose") if name in settings}
    synthesizer = Synthesizer(scene.net.federation, method, **{"epsilon": 8.0, **unit, **settings})
    synthesizer.fit_transport(transport, study=study, **common)


def lies_in_vain(
    make: Callable[[Scene], Lie], victim: str, method: str = "vcds", **settings: Any
) -> Callable[[Scene], None]:
    """The study is refused by this party once it is lied to, and no ledger has changed since."""

    def run(scene: Scene) -> None:
        transport = LyingTransport(scene, make(scene), victim)
        refused_by(victim, scene, method, transport, **settings)
        assert transport.before == ledgers(scene)

    return run


def refused_by(victim: str, scene: Scene, method: str, transport: LyingTransport, **settings: Any) -> None:
    """A study that this party refuses to go on with."""
    with pytest.raises(Refused) as caught:
        run_study(scene, f"study-{time.monotonic_ns()}", method, transport, **settings)
    assert caught.value.party == victim, caught.value


def honest_study(scene: Scene, method: str, until: type, **settings: Any) -> LyingTransport:
    """A study that all parties take part in, up to the first request of this kind."""

    def stop(name: str, request: Any) -> Any:
        if isinstance(request, until):
            raise Refused("nobody", "enough")
        return request

    transport = LyingTransport(scene, stop, "left")
    refused_by("nobody", scene, method, transport, **settings)
    return transport


# ---- one honest party, and accomplices ------------------------------------------------------------------


REQUESTER, PURPOSE = "a university", "to see"


def opening(scene: Scene, study: str = "study", **changes: Any) -> BeginRequest:
    request = BeginRequest(study, "vcds", federation_fingerprint(scene.net.federation), "hash", None, 0, "")
    return replace(request, **{"requester": REQUESTER, "purpose": PURPOSE, **changes})


def placed_alone(scene: Scene, study: str, method: str) -> StudyContext:
    """The study, open and with a cohort at the left party."""
    evil = scene.evil
    reply = evil.ask("left", opening(scene, study, method=method))
    assert isinstance(reply, BeginReply), reply
    place = place_request(study, reply.hashes)
    found = evil.ask("left", place)
    assert isinstance(found, PlaceReply), found
    return StudyContext(REQUESTER, PURPOSE, "hash", cohort_digest(place.hashes))


def proposed_alone(scene: Scene, study: str, method: str, **settings: Any) -> StudyProposal:
    """What the left party can be asked to consent to; its accomplices say that they have everybody."""
    context, federation = placed_alone(scene, study, method), scene.net.federation
    own = scene.evil.ask("left", PresenceRequest(study, method))
    assert isinstance(own, PresenceReply), own
    presence = []
    for party in federation.parties:
        if party.name == "left":
            (signed,) = sign_presences(only_party(federation, "left"), {"left": own}, method)
        else:
            said = reported_presence(accomplice_mask(scene, party.name), method)
            digest = mask_digest(said.mask)
            message = presence_statement(study, party.name, said.counts, digest)
            signature = signs_as(scene, party.name).sign(message)
            signed = SignedPresence(party.name, said.counts, digest, signature)
        presence.append(signed)
    if method == RAW_REGRESSION:
        return propose_raw(federation, study, tuple(presence), context=context, **settings)
    asked = {"epsilon_ranks": 0.1, "epsilon_marginals": 0.1, **settings}
    if method == "strict":
        asked = {"unit": "person", "epsilon": 0.5, "delta": 1e-6, "epsilon_ranks": None, "epsilon_marginals": None}
        asked |= settings
    return propose(federation, budget(federation, **asked), study, method, tuple(presence), 120, context)


def accomplice_mask(scene: Scene, party: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.ones((120, len(scene.net.federation.party(party).columns)), dtype=bool)


def accomplices_consent(scene: Scene, proposal: StudyProposal, own: ConsentReply) -> AgreementRequest:
    """Everybody's consent, the left party's own among them."""
    consents = tuple(
        SignedConsent(
            p.party,
            own.until,
            own.signature
            if p.party == "left"
            else signs_as(scene, p.party).sign(consent_statement(p.party, fingerprint(proposal), own.until)),
        )
        for p in proposal.presence
    )
    return AgreementRequest(proposal.study, proposal.method, consents)


def agreed_alone(scene: Scene, study: str, method: str, **settings: Any) -> tuple[EvilCoordinator, StudyProposal]:
    """A study that the left party has consented to, as have its accomplices."""
    proposal = proposed_alone(scene, study, method, **settings)
    reply = scene.evil.ask("left", ConsentRequest(proposal))
    assert isinstance(reply, ConsentReply), reply
    agreed = scene.evil.ask("left", accomplices_consent(scene, proposal, reply))
    assert isinstance(agreed, AgreementReply), agreed
    return scene.evil, proposal


def accomplice_margins(scene: Scene, proposal: StudyProposal, party: str, sizes: list[int]) -> GaussianMarginsReply:
    """Margins that a party signed and nobody drew."""
    cells = tuple(np.full(size, 120 // size, dtype=np.int64) for size in sizes)
    reply = GaussianMarginsReply(party, cells, b"")
    return replace(reply, signature=signs_as(scene, party).sign(margins_statement(fingerprint(proposal), reply)))
