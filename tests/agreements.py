"""A party brought to an agreement by itself: the test plays the other parties, whose common key it holds."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from tests.members import KEY
from verticopula import Federation
from verticopula.data.id_checks import HASH_BYTES
from verticopula.matching.private_intersection import points_digest
from verticopula.mpc.sealed_messages import Authenticity, shared_authenticity
from verticopula.privacy.budget import StudyBudget
from verticopula.protocol.consent_messages import (
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
from verticopula.protocol.study_messages import PlaceRequest, SignedPoints
from verticopula.protocol.study_proposal import (
    StudyContext,
    consent_statement,
    federation_fingerprint,
    mask_digest,
    points_statement,
    presence_statement,
    propose,
    propose_raw,
    reported_presence,
    sign_presences,
)
from verticopula.schema.methods import OWN_VARIANT, RAW_REGRESSION


class Answers(Protocol):
    """A member, or whatever carries requests to one."""

    def handle(self, request: Request) -> Reply: ...


def cohort_list(own: NDArray[np.uint8], positions: NDArray[np.int64], n_subjects: int) -> NDArray[np.uint8]:
    """(N, 16) a cohort's list with these rows in these places, and strangers elsewhere."""
    listed = np.random.default_rng(1).integers(0, 256, (n_subjects, HASH_BYTES), dtype=np.uint8)
    inside = (positions >= 0) & (positions < n_subjects)
    listed[positions[inside]] = own[inside, :HASH_BYTES]
    return listed


def place_request(
    study: str, own: NDArray[np.uint8], positions: NDArray[np.int64] | None = None, n_subjects: int | None = None
) -> PlaceRequest:
    """The places of a party's rows, in the order of its hashes by default."""
    places = np.arange(own.shape[0], dtype=np.int64) if positions is None else positions
    n = own.shape[0] if n_subjects is None else n_subjects
    return PlaceRequest(study, n, places, cohort_list(own, places, n))


def sign_points(
    federation: Federation,
    study: str,
    masked_by: tuple[str, ...],
    points: NDArray[np.uint8],
    authenticity: Authenticity | None = None,
) -> SignedPoints:
    """What the last of these parties signs about its points."""
    signer = shared_authenticity(KEY) if authenticity is None else authenticity
    said = masked_by, points.shape[0], points_digest(points)
    return SignedPoints(*said, signer.sign(points_statement(study, federation_fingerprint(federation), *said)))


def budget(federation: Federation, **changes: Any) -> StudyBudget:
    """Epsilon 1 for the ranks and the marginal of every column."""
    asked: dict[str, Any] = {"unit": "variable", "epsilon": None, "delta": None}
    return StudyBudget.build(federation, **{**asked, "epsilon_ranks": 1.0, "epsilon_marginals": 1.0, **changes})


def proposal_of(
    party: Answers,
    name: str,
    federation: Federation,
    *,
    study: str = "study",
    method: str = "vcds",
    context: StudyContext,
    authenticity: Authenticity | None = None,
    subjects: NDArray[np.bool_] | None = None,
    variant: str = OWN_VARIANT,
    **settings: Any,
) -> StudyProposal:
    """What an honest coordinator would propose, if the other parties had everybody."""
    signer = shared_authenticity(KEY) if authenticity is None else authenticity
    own = party.handle(PresenceRequest(study, method))
    assert isinstance(own, PresenceReply)
    n_subjects = own.observed.shape[0]
    presence = []
    for other in federation.parties:
        said = reported_presence(np.ones((n_subjects, len(other.columns)), dtype=bool), method)
        if other.name == name:
            (signed,) = sign_presences(only_party(federation, name), {name: own}, method)
        else:
            digest = mask_digest(said.mask)
            message = presence_statement(study, other.name, said.counts, digest)
            signed = SignedPresence(other.name, said.counts, digest, signer.sign(message))
        presence.append(signed)
    if method == RAW_REGRESSION:
        asked = np.ones(n_subjects, dtype=bool) if subjects is None else subjects
        return propose_raw(federation, study, tuple(presence), asked, context, variant)
    asked_for = budget(federation, **settings)
    return propose(federation, asked_for, study, method, tuple(presence), n_subjects, context, variant)


def only_party(federation: Federation, name: str) -> Federation:
    """The federation with one party only."""
    return federation.model_copy(update={"parties": (federation.party(name),)})


def consents_to(
    proposal: StudyProposal, own: SignedConsent, authenticity: Authenticity | None = None
) -> AgreementRequest:
    """Everybody's consent: the party's own, and those that the test signs."""
    signer = shared_authenticity(KEY) if authenticity is None else authenticity
    consents = tuple(
        own
        if p.party == own.party
        else SignedConsent(
            p.party, own.until, signer.sign(consent_statement(p.party, fingerprint(proposal), own.until))
        )
        for p in proposal.presence
    )
    return AgreementRequest(proposal.study, proposal.method, consents)


def agree(party: Answers, name: str, proposal: StudyProposal, authenticity: Authenticity | None = None) -> None:
    """The party consents, and sees that everybody has."""
    reply = party.handle(ConsentRequest(proposal))
    assert isinstance(reply, ConsentReply)
    party.handle(consents_to(proposal, SignedConsent(name, reply.until, reply.signature), authenticity))


def bare_proposal(
    party: str, n_columns: int, sampler: str, ranks: float, margin: float, rounds: int, study: str = "s"
) -> StudyProposal:
    """Numbers that nobody has computed, for a party that has no agreements to keep."""
    none, ones = np.empty(0), np.ones(n_columns)
    presence = (SignedPresence(party, (1,) * n_columns, "", b""),)
    settings = ("variable", 1.0, 1.0, None, sampler, rounds, False, "", "", "", None, 10)
    return StudyProposal(study, "ievcds", "", "", *settings, presence, ranks * ones, margin * ones, none, none, None)
