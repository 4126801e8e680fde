"""What a party has consented to, study by study, and whether everybody else has too.

A party consents to one proposal a study, which it has computed itself. It releases nothing before it has seen the
signed consent of every party to the same proposal, and then only what that proposal says. All of it is in the vault
before it is answered.
"""

from __future__ import annotations

import base64
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from verticopula.errors import ProtocolError
from verticopula.mpc.sealed_messages import Authenticity
from verticopula.protocol.consent_messages import ConsentRequest, PresenceReply, SignedConsent, StudyProposal
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.strict_messages import GaussianMarginsReply, PlanEvidence
from verticopula.protocol.study_proposal import (
    MOST_ROUNDS,
    NO_CONTEXT,
    Presence,
    StudyContext,
    check_proposal,
    consent_statement,
    federation_fingerprint,
    margins_statement,
    mask_digest,
    own_place_of,
    presence_statement,
)
from verticopula.protocol.wire import decode, encode
from verticopula.schema.defaults import SECONDS_PER_DAY
from verticopula.schema.federation import Federation
from verticopula.storage.record_store import RecordStore

_ONE_AT_A_TIME = threading.Lock()  # from reading a record to writing it
FIT_PLACE = "fit "  # how the place of a regression's fit begins
_CLOCK_SLACK = 300.0  # seconds by which a clock may be set back
_MOST_PLACES = 2 * MOST_ROUNDS  # more than any study has; what was asked for is kept, and written anew, for each
_LONGEST_PLACE = 300


@dataclass(frozen=True)
class ConsentRecord:
    """A party's consent to one study.

    Attributes
    ----------
    body : what it consented to, as `encode_proposal` writes it
    said : when, in seconds since 1970
    until : when its consent ends; once it has seen everybody's, when the first of them ends
    agreed : whether it has seen everybody's consent
    asked : what was asked for in each place of the study ("release", "round 2"): fingerprint of the one request
    """

    body: str
    said: float
    until: float
    agreed: bool
    asked: dict[str, str]

    @property
    def proposal(self) -> StudyProposal:
        return _read_proposal(self.body)[0]

    @property
    def digest(self) -> str:
        """The proposal's fingerprint."""
        return _read_proposal(self.body)[1]

    def to_dict(self) -> dict[str, Any]:
        own = {"said": self.said, "until": self.until, "agreed": self.agreed, "asked": self.asked}
        return {"proposal": self.body, **own}

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> ConsentRecord:
        return cls(raw["proposal"], raw["said"], raw["until"], raw["agreed"], dict(raw["asked"]))


def encode_proposal(proposal: StudyProposal) -> str:
    """A proposal as text."""
    return base64.b64encode(encode(ConsentRequest(proposal))).decode("ascii")


@lru_cache(maxsize=64)
def _read_proposal(body: str) -> tuple[StudyProposal, str]:
    """A proposal and its fingerprint: the same at every request of a study, so nobody may change it."""
    request: ConsentRequest = decode(base64.b64decode(body), (ConsentRequest,))
    for value in vars(request.proposal).values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    return request.proposal, fingerprint(request.proposal)


@dataclass(frozen=True, repr=False)
class StudyConsents:
    """One party's consents.

    Attributes
    ----------
    federation : the party's own file
    records : where consents are kept
    authenticity : how this party signs, and how it knows what others signed
    context : who asked when the study began, how rows were found, the digest of the cohort's list that the party
        has checked, and the seed that it began with
    days : how long a consent lives, as the policy says now
    clock : seconds since 1970
    """

    party: str
    federation: Federation
    records: RecordStore
    authenticity: Authenticity
    context: StudyContext = NO_CONTEXT
    days: Callable[[], float] = lambda: 30.0
    clock: Callable[[], float] = time.time

    def sign_presence(self, study: str, presence: Presence) -> PresenceReply:
        """Who is known to the party, with its signature."""
        salt = self._salt(study, presence)
        said = presence_statement(study, self.party, presence.counts, mask_digest(presence.mask, salt))
        return PresenceReply(self.party, presence.mask, self.authenticity.sign(said), salt)

    def _salt(self, study: str, presence: Presence) -> bytes:
        """Of the mask's digest: drawn once a study, and kept, so that the same question gets the same answer."""
        if presence.is_told_to_all:
            return b""
        name = self.salt_name(self.party, study)
        with _ONE_AT_A_TIME:
            if self.records.get(name) is None:
                self.records.put(name, {"salt": secrets.token_hex(16)})
            kept = self.records.get(name)
        assert kept is not None
        return bytes.fromhex(kept["salt"])

    def sign_margins(self, study: str, reply: GaussianMarginsReply) -> GaussianMarginsReply:
        """The reply with the party's signature of its margins in this study."""
        return replace(
            reply, signature=self.authenticity.sign(margins_statement(self._agreed_record(study).digest, reply))
        )

    def check(self, proposal: StudyProposal, presence: Presence) -> None:
        """ProtocolError unless this is the proposal that the party computes itself, about the cohort it knows."""
        if proposal.n_subjects != presence.mask.shape[0]:  # first: what follows takes work that grows with it
            raise ProtocolError(f"party {self.party!r}: the proposal is about a cohort of another size")
        check_proposal(self.federation, proposal)
        context = StudyContext(proposal.requester, proposal.purpose, proposal.alignment, proposal.cohort, proposal.seed)
        if (context.alignment, context.cohort) != (self.context.alignment, self.context.cohort):
            raise ProtocolError(f"party {self.party!r}: the proposal is about another cohort")
        if context != self.context:
            raise ProtocolError(
                f"party {self.party!r}: who asks, why, or the seed is not what was said when the study was opened"
            )
        own = proposal.presence[own_place_of(proposal, self.party)]
        mask = mask_digest(presence.mask, self._salt(proposal.study, presence))
        if (own.counts, own.mask) != (presence.counts, mask):
            raise ProtocolError(f"party {self.party!r}: the proposal is about other subjects than it has")
        for said in proposal.presence:
            message = presence_statement(proposal.study, said.party, said.counts, said.mask)
            if not self.authenticity.verify(said.party, message, said.signature):
                raise ProtocolError(
                    f"party {self.party!r}: who is observed at {said.party!r} is not signed by that party"
                )
        known = self._read(proposal.study)
        if known is not None and known.digest != fingerprint(proposal):
            raise ProtocolError(f"party {self.party!r} has consented to another proposal in this study")
        capped = self.records.get(self._capped_name(proposal.study))
        if capped is not None and capped["proposal"] != fingerprint(proposal):
            raise ProtocolError(
                f"party {self.party!r}: this study went above a cap before; another proposal needs another study"
            )

    def remember_excess(self, proposal: StudyProposal) -> None:
        """A cap refused this proposal: no other is looked at in its study.

        Proposals cost nothing, and each refusal tells whether a price is above what is left. Whoever could make them
        without end would find out what was spent on these people in other studies.
        """
        self.records.put(self._capped_name(proposal.study), {"proposal": fingerprint(proposal)})

    def _capped_name(self, study: str) -> str:
        return self.capped_name(self.party, study)

    def consent(self, proposal: StudyProposal, ask: Callable[[], None]) -> SignedConsent:
        """The party's signed consent; `ask` raises unless policy and steward agree. A consent that lives is not asked
        for again. A new one has to be shown to everybody again, as theirs have.
        """
        known, digest = self._read(proposal.study), fingerprint(proposal)
        if known is None or self._is_over(known):
            ask()
            with _ONE_AT_A_TIME:  # read again: who took their time may have been asked twice, and said yes before
                known = self._read(proposal.study)
                if known is None or self._is_over(known):
                    now, kept = self.clock(), {} if known is None else known.asked
                    end = now + self.days() * SECONDS_PER_DAY
                    known = ConsentRecord(encode_proposal(proposal), now, end, False, kept)
                    self._write(known)
            if known.digest != digest:
                raise ProtocolError(f"party {self.party!r} has consented to another proposal in this study")
        own = known.said + self.days() * SECONDS_PER_DAY
        return SignedConsent(self.party, own, self.authenticity.sign(consent_statement(self.party, digest, own)))

    def agree(self, study: str, consents: Sequence[SignedConsent]) -> None:
        """Everybody's consent to the proposal that this party consented to; ProtocolError where one is missing."""
        with _ONE_AT_A_TIME:
            self._agree(study, consents)

    def _agree(self, study: str, consents: Sequence[SignedConsent]) -> None:
        record = self._living(study)
        names = [presence.party for presence in record.proposal.presence]
        if [consent.party for consent in consents] != names:
            raise ProtocolError(f"party {self.party!r}: expected the consent of each party, in their order")
        for consent in consents:
            message = consent_statement(consent.party, record.digest, consent.until)
            if not self.authenticity.verify(consent.party, message, consent.signature):
                raise ProtocolError(
                    f"party {self.party!r}: {consent.party!r} has not consented to the proposal seen here"
                )
        agreed = replace(record, until=min(consent.until for consent in consents), agreed=True)
        if self._is_over(agreed):
            raise ProtocolError(f"party {self.party!r}: somebody's consent has ended; it has to be asked again")
        self._write(agreed)

    def agreed(self, study: str) -> StudyProposal:
        """The proposal that everybody consented to; ProtocolError before that, or when this party's consent is over."""
        return self._agreed_record(study).proposal

    def _agreed_record(self, study: str) -> ConsentRecord:
        record = self._living(study)
        if not record.agreed:
            raise ProtocolError(f"party {self.party!r}: not everybody has consented to this study yet")
        return record

    def bind(self, study: str, place: str, request: str) -> None:
        """ProtocolError if another request was made in this place of the study."""
        with _ONE_AT_A_TIME:
            record = self._agreed_record(study)
            if record.asked.get(place, request) != request:
                raise ProtocolError(f"party {self.party!r}: another {place} was asked for in this study")
            if place not in record.asked:
                if len(record.asked) >= _MOST_PLACES or len(place) > _LONGEST_PLACE:
                    raise ProtocolError(f"party {self.party!r}: more was asked for in this study than any study needs")
                self._write(replace(record, asked={**record.asked, place: request}))

    def places(self, study: str) -> list[str]:
        """The places of the study in which something was asked for."""
        record = self._read(study)
        return [] if record is None else list(record.asked)

    def check_evidence(self, study: str, evidence: PlanEvidence) -> StudyProposal:
        """The agreed proposal, if masks and margins are those that their parties signed; ProtocolError otherwise."""
        record = self._agreed_record(study)
        proposal = record.proposal
        if len(evidence.known) != len(proposal.presence) or len(evidence.margins) != len(proposal.presence):
            raise ProtocolError(f"party {self.party!r}: masks or margins of a party are missing")
        for place, (presence, margins) in enumerate(zip(proposal.presence, evidence.margins, strict=True)):
            known = evidence.mask(place, proposal.n_subjects)
            if known is None or mask_digest(known[:, None]) != presence.mask:
                raise ProtocolError(f"party {self.party!r}: the mask of {presence.party!r} is not the one it signed")
            message = margins_statement(record.digest, margins)
            signed = self.authenticity.verify(presence.party, message, margins.signature)
            if margins.party != presence.party or not signed:
                raise ProtocolError(f"party {self.party!r}: the margins of {presence.party!r} are not signed by it")
        return proposal

    def _living(self, study: str) -> ConsentRecord:
        record = self._read(study)
        if record is None:
            raise ProtocolError(f"party {self.party!r} has not consented to this study")
        if self._is_over(record):
            raise ProtocolError(f"party {self.party!r}: consent to this study has ended; it has to be asked again")
        return record

    def _is_over(self, record: ConsentRecord) -> bool:
        now, end = self.clock(), min(record.until, record.said + self.days() * SECONDS_PER_DAY)
        return not record.said - _CLOCK_SLACK <= now <= end  # a clock that went back counts as over, too

    @cached_property
    def _federation_digest(self) -> str:
        return federation_fingerprint(self.federation)

    def _read(self, study: str) -> ConsentRecord | None:
        raw = self.records.get(self._name(study))
        record = None if raw is None else ConsentRecord.from_dict(raw)
        if record is not None and record.proposal.federation != self._federation_digest:
            raise ProtocolError(f"party {self.party!r}: a study of this name belongs to another federation")
        return record

    def _write(self, record: ConsentRecord) -> None:
        self.records.put(self._name(record.proposal.study), record.to_dict())

    def _name(self, study: str) -> str:
        return self.record_name(self.party, study)

    # No party's name has a colon.

    @staticmethod
    def record_name(party: str, study: str) -> str:
        """The name under which a party's consent is kept."""
        return f"consent:{party}/{study}"

    @staticmethod
    def capped_name(party: str, study: str) -> str:
        """The name under which is kept which proposal went above a cap."""
        return f"capped:{party}:{study}"

    @staticmethod
    def salt_name(party: str, study: str) -> str:
        """The name under which the salt of a mask's digest is kept."""
        return f"salt:{party}:{study}"
