"""A party's handler of secure sums: it shares and proves its own cells, checks the others', and adds up shares.

One record per study holds a secret, the plan that the party has bound itself to, what it has fixed in the proofs, and
its noise. It is stored before anything leaves, so the same request gets the same bytes again. A compute party adds up
one set of proven shares in a study, with one noise, and refuses any other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import ProtocolError, VersionMismatch
from verticopula.mpc import sums_plan
from verticopula.mpc.proof_rounds import CellsDealer
from verticopula.mpc.sealed_messages import SECRET_BYTES, Authenticity, SealedChannel, SignedPublicKey
from verticopula.mpc.sums_plan import SumsPlan
from verticopula.mpc.verified_sums import draw_term_noise, noised_term
from verticopula.privacy.noise import Noise
from verticopula.protocol.messages import (
    MESSAGE_VERSION,
    PlanEvidence,
    SecureReply,
    SecureRequest,
    SumsKeyReply,
    SumsKeyRequest,
    SumsProofReply,
    SumsProofRequest,
    SumsReply,
    SumsRequest,
    SumsShareReply,
    SumsShareRequest,
    fingerprint,
)
from verticopula.protocol.party.proof_session import ProofRecords, ProofSession
from verticopula.protocol.party.sums_record import SumsRecord, pack_noise, unpack_noise
from verticopula.protocol.proof_routes import statements_of
from verticopula.storage.records import RecordStore

Ints = NDArray[np.int64]


class SumsHandler:
    """One party's side of secure sums. No repr: it can reach cells.

    Parameters
    ----------
    cells : plan -> (n_k, columns) cell numbers, for the subjects of `sums_plan.own_rows` in the cohort's order; None
        for a compute party without data
    records : where a study's record is kept; noise is drawn anew only with a new record
    noise : secure, or seeded for a simulation
    approve : called with the study, the plan, the digest of plan and keys, and what the plan follows from, before the
        party binds itself to it; raises to refuse. The place for the agreement, the policy and the ledger.
    noise_label : what seeded noise is drawn under; the study's name by default
    dealer : as in `ProofSession`
    """

    def __init__(
        self,
        party: str,
        cells: Callable[[SumsPlan], Ints] | None,
        *,
        records: RecordStore,
        noise: Noise,
        authenticity: Authenticity,
        approve: Callable[[str, SumsPlan, str, PlanEvidence | None], None] = lambda *plan: None,
        noise_label: str = "",
        dealer: Callable[..., CellsDealer] = CellsDealer,
    ) -> None:
        self.party = party
        self._cells = cells
        self._records = records
        self._noise = noise
        self._authenticity = authenticity
        self._approve = approve
        self._noise_label = noise_label
        self._dealer = dealer
        self._channels: dict[str, SealedChannel] = {}
        self._sessions: dict[str, ProofSession] = {}
        self._lock = threading.RLock()

    def handle(self, request: SecureRequest) -> SecureReply:
        """Answer a request, or refuse it with a reason; the same request gets the same bytes."""
        if request.version != MESSAGE_VERSION:
            raise VersionMismatch(
                f"party {self.party!r} speaks message version {MESSAGE_VERSION}, the coordinator {request.version}"
            )
        with self._lock:
            if isinstance(request, SumsKeyRequest):
                return SumsKeyReply(self.party, self._channel(request.study).sign_public_key())
            if isinstance(request, SumsShareRequest):
                return self._share(request)
            if isinstance(request, SumsProofRequest):
                return self._prove(request)
            return self._add_up(request)

    # ---- sharing and proving -------------------------------------------------------------

    def _share(self, request: SumsShareRequest) -> SumsShareReply:
        """The party's cells in sealed shares.

        Privacy
        -------
        To each compute party: two of three shares, uniform whatever the cells are. To the coordinator: ciphertexts
        that it cannot open, whose sizes follow from the plan, and a body that it cannot tell from uniform elements.
        """
        return SumsShareReply(self.party, *self._session(request).deal())

    def _prove(self, request: SumsProofRequest) -> SumsProofReply:
        """The party's messages of one round of all proofs."""
        session = self._session(request)
        if request.bodies:
            session.take_bodies(request.bodies)
        if session.lacks_bodies:
            return SumsProofReply(self.party, (), True)
        return SumsProofReply(self.party, session.answer(request.step, request.boxes), False)

    def _session(self, request: SumsShareRequest | SumsProofRequest | SumsRequest) -> ProofSession:
        """The proofs of a study, with what was stored of them."""
        digest, study, plan = self._bind(request), request.study, request.plan
        if study not in self._sessions:
            statements = statements_of(plan, study, digest)

            def keep(records: ProofRecords) -> None:
                self._keep(study, replace(self._kept(study), proofs=records))

            codes = self._own_cells(plan) if self.party in statements else None
            records = self._kept(study).proofs
            self._sessions[study] = ProofSession(self._channel(study), statements, codes, records, keep, self._dealer)
        return self._sessions[study]

    def _own_cells(self, plan: SumsPlan) -> Ints:
        if self._cells is None:
            raise ProtocolError(f"party {self.party!r} has no cells to share")
        return self._cells(plan)

    # ---- adding up -----------------------------------------------------------------------

    def _add_up(self, request: SumsRequest) -> SumsReply | SumsProofReply:
        """This compute party's term of every pattern's Gram matrix, with its noise and its share of zero.

        Privacy
        -------
        To the coordinator, which gets all three: their sum, a Gram matrix with noise, and nothing else. Any two of
        the noises cover one person's whole record at the plan's mu: what cells can stand for is bounded by the
        plan's tables, and that they are cells has been proven.
        """
        plan, study = request.plan, request.study
        if self.party not in plan.compute:
            raise ProtocolError(f"party {self.party!r} is no compute party of this study")
        session, channel = self._session(request), self._channel(study)
        if request.bodies:
            session.take_bodies(request.bodies)
        if session.lacks_bodies:
            return SumsProofReply(self.party, (), True)
        cells, inputs = session.conclude(request.boxes)
        noise, digest = self._noise_for(request, inputs), self._kept(study).plan
        index = plan.compute.index(self.party)
        others = {i: name for i, name in enumerate(plan.compute) if i != index}
        places = {party: np.cumsum(sums_plan.own_rows(plan, party)) - 1 for party in plan.parties}
        terms, start = [], 0
        for pattern in range(plan.columns.shape[0]):
            records = sums_plan.pattern_records(plan, pattern, index, cells, places)
            keys = {i: channel.common_key(name, "zero", digest, str(pattern)) for i, name in others.items()}
            stop = start + sums_plan.pattern_size(plan, pattern)
            terms.append(noised_term(index, records, keys, noise[start:stop]).astype(np.int64))
            start = stop
        return SumsReply(self.party, tuple(terms))

    def _noise_for(self, request: SumsRequest, inputs: str) -> Ints:
        """The noise on these shares: from the record, or drawn and recorded now."""
        kept, plan = self._kept(request.study), request.plan
        if not kept.noise:
            label = (self._noise_label or request.study, "sums")
            drawn = [
                draw_term_noise(self._noise, sums_plan.share_scales(plan, pattern), *label, str(pattern))
                for pattern in range(plan.columns.shape[0])
            ]
            kept = replace(kept, inputs=inputs, noise=pack_noise(np.concatenate(drawn)))
            self._keep(request.study, kept)
        if kept.inputs != inputs:
            raise ProtocolError(
                f"party {self.party!r} has added up other shares in this study before: the same noise on two sums "
                "would show their difference"
            )
        return unpack_noise(kept.noise)

    # ---- the study's record --------------------------------------------------------------------

    def _bind(self, request: SumsShareRequest | SumsProofRequest | SumsRequest) -> str:
        """The digest of this plan and these keys, to which the party is bound now; ProtocolError for any others."""
        self._check_keys(request.study, request.plan, request.keys)
        digest, kept = fingerprint((request.plan, request.keys)), self._kept(request.study)
        if kept.plan and kept.plan != digest:
            raise ProtocolError(
                f"party {self.party!r} has bound itself to another plan, or to other keys, in this study"
            )
        if not kept.plan:
            sums_plan.check_plan(request.plan)
            evidence = request.evidence if isinstance(request, SumsShareRequest) else None
            self._approve(request.study, request.plan, digest, evidence)
            self._keep(request.study, replace(kept, plan=digest))
        return digest

    def _check_keys(self, study: str, plan: SumsPlan, keys: Sequence[SignedPublicKey]) -> None:
        channel = self._channel(study)
        expected = set(plan.parties) | set(plan.compute)
        if self.party not in expected:
            raise ProtocolError(f"party {self.party!r} has no part in these sums")
        if len(keys) != len(expected) or {key.party for key in keys} != expected:
            raise ProtocolError(f"party {self.party!r}: expected one public key of each party")
        channel.accept_keys(keys)

    def _channel(self, study: str) -> SealedChannel:
        if study not in self._channels:
            secret = bytes.fromhex(self._kept(study).secret)
            self._channels[study] = SealedChannel(study, self.party, secret, self._authenticity)
        return self._channels[study]

    def _kept(self, study: str) -> SumsRecord:
        raw = self._records.get(self._name(study))
        if raw is not None:
            return SumsRecord(**raw)
        words = self._noise.stream(self._noise_label or study, "sums", "secret").words(SECRET_BYTES // 8)
        kept = SumsRecord(words.astype("<u8").tobytes().hex())
        self._keep(study, kept)
        return kept

    def _keep(self, study: str, kept: SumsRecord) -> None:
        self._records.put(self._name(study), kept.to_dict())

    def _name(self, study: str) -> str:
        return self.record_name(self.party, study)

    @staticmethod
    def record_name(party: str, study: str) -> str:
        """The name under which a party's record of a study is kept."""
        return f"sums/{party}/{study}"
