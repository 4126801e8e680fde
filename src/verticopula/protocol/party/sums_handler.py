"""A party's handler of secure sums: it shares and proves its own cells, checks the others', and adds up shares.

One record per study holds a secret, the plan that the party has bound itself to, what it has fixed in the proofs, the
pairs whose tables it has added up, and its noise. It is stored before anything leaves, so the same request gets the
same bytes again. A compute party adds up one set of proven shares in a study, once for the Gram matrix and once for
the tables of one choice of pairs, each with noise of its own, and refuses any other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import ProtocolError, VersionMismatch
from verticopula.mpc import sums_plan
from verticopula.mpc.gram_noise import share_scale
from verticopula.mpc.opening_terms import products_term, tables_term
from verticopula.mpc.proof_rounds import CellsDealer, VerifiedCells
from verticopula.mpc.sealed_messages import SECRET_BYTES, Authenticity, SealedChannel, SignedPublicKey
from verticopula.mpc.sums_plan import SumsPlan
from verticopula.mpc.table_noise import check_pairs, table_scale, table_sizes, tables_sensitivity
from verticopula.mpc.verified_cells import Codes
from verticopula.mpc.verified_sums import draw_term_noise, noised_term
from verticopula.privacy.noise import Noise
from verticopula.protocol.message_version import MESSAGE_VERSION
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.party.proof_session import ProofRecords, ProofSession
from verticopula.protocol.party.sums_record import SumsRecord, pack_noise, unpack_noise
from verticopula.protocol.proof_routes import statements_of
from verticopula.protocol.strict_messages import (
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
    TablesReply,
    TablesRequest,
)
from verticopula.stats.strict.gaussian_margins import count_deviation
from verticopula.stats.strict.strict_plan import sum_selected
from verticopula.storage.record_store import RecordStore

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
    dealer : as in `ProofSession`
    """

    def __init__(
        self,
        party: str,
        cells: Callable[[SumsPlan], Codes] | None,
        *,
        records: RecordStore,
        noise: Noise,
        authenticity: Authenticity,
        approve: Callable[[str, SumsPlan, str, PlanEvidence | None], None] = lambda *plan: None,
        dealer: Callable[..., CellsDealer] = CellsDealer,
    ) -> None:
        self.party = party
        self._cells = cells
        self._records = records
        self._noise = noise
        self._authenticity = authenticity
        self._approve = approve
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
            if isinstance(request, TablesRequest):
                return self._add_tables(request)
            return self._add_up(request)

    # ---- sharing and proving -------------------------------------------------------------

    def _share(self, request: SumsShareRequest) -> SumsShareReply:
        """The party's cells in sealed shares; and a base party's features by presence, with noise.

        Privacy
        -------
        To each compute party: two of three shares, uniform whatever the cells are. To the coordinator: ciphertexts
        that it cannot open, whose sizes follow from the plan, and a body that it cannot tell from uniform elements.
        Of a base party also sums of its own features over those whom other parties know, with discrete Gaussian
        noise: mu is `sums_plan.selection_mu` for what it holds about a person.
        """
        boxes, body = self._session(request).deal()
        return SumsShareReply(self.party, boxes, body, self._selection(request))

    def _selection(self, request: SumsShareRequest) -> Ints:
        """The released sums: from the record, or drawn and recorded now."""
        plan = request.plan
        if self.party not in plan.parties or not plan.base[plan.parties.index(self.party)]:
            return np.zeros((0, 0), dtype=np.int64)
        kept = self._kept(request.study)
        width = sum(table.shape[1] for table in sums_plan.own_features(plan, self.party))
        if not kept.selection:
            sums = sum_selected(plan, self.party, self._own_cells(plan))
            scale = count_deviation(sums_plan.selection_deviation(plan)) * (1.0 + 2.0**-50)
            label = (request.study, "selection")
            noisy = self._noise.discrete_gaussian(sums.reshape(-1), scale, *label)
            kept = replace(kept, selection=pack_noise(noisy))
            self._keep(request.study, kept)
        return unpack_noise(kept.selection).reshape(-1, width)

    def _prove(self, request: SumsProofRequest) -> SumsProofReply:
        """The party's messages of one round of all proofs."""
        session = self._session(request)
        if request.bodies:
            session.take_bodies(request.bodies)
        if session.lacks_bodies:
            return SumsProofReply(self.party, (), True)
        return SumsProofReply(self.party, session.answer(request.step, request.boxes), False)

    def _session(self, request: SumsShareRequest | SumsProofRequest | SumsRequest | TablesRequest) -> ProofSession:
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

    def _own_cells(self, plan: SumsPlan) -> Codes:
        if self._cells is None:
            raise ProtocolError(f"party {self.party!r} has no cells to share")
        return self._cells(plan)

    # ---- adding up -----------------------------------------------------------------------

    def _add_up(self, request: SumsRequest) -> SumsReply | SumsProofReply:
        """This compute party's term of the Gram matrix, with its noise and its share of zero.

        Privacy
        -------
        To the coordinator, which gets all three: their sum, a Gram matrix with noise, and nothing else. Any two of
        the noises cover one person's whole record at the plan's mu: what cells can stand for is bounded by the
        plan's tables and weights, and that they are cells has been proven.
        """
        proven = self._proven_cells(request)
        if proven is None:
            return SumsProofReply(self.party, (), True)
        cells, inputs = proven
        plan, index = request.plan, request.plan.compute.index(self.party)
        noise = self._noise_for(request, inputs)
        term = products_term(plan, cells)
        return SumsReply(self.party, noised_term(index, term, self._zero_keys(request, "zero"), noise).astype(np.int64))

    def _add_tables(self, request: TablesRequest) -> TablesReply | SumsProofReply:
        """This compute party's term of the tables of one choice of pairs, with noise and a share of zero of their own.

        Privacy
        -------
        To the coordinator, which gets all three: their sum, tables of counts with noise, and nothing else. Any two of
        the noises cover one person at the plan's `mu_tables`, whatever the pairs are: the party checks their number
        and takes the noise from it, and adds up one choice only.
        """
        plan = request.plan
        check_pairs(request.pairs, len(plan.features), plan.most_tables)
        proven = self._proven_cells(request)
        if proven is None:
            return SumsProofReply(self.party, (), True)
        cells, inputs = proven
        index, choice = plan.compute.index(self.party), fingerprint(("pairs", request.pairs))
        noise = self._tables_noise_for(request, inputs, choice)
        term = tables_term(plan, cells, request.pairs)
        keys = self._zero_keys(request, "zero tables", choice)
        return TablesReply(self.party, noised_term(index, term, keys, noise).astype(np.int64))

    def _proven_cells(self, request: SumsRequest | TablesRequest) -> tuple[dict[str, VerifiedCells], str] | None:
        """Everybody's proven cells and a digest of the shares; None where the party lacks the bodies."""
        if self.party not in request.plan.compute:
            raise ProtocolError(f"party {self.party!r} is no compute party of this study")
        session = self._session(request)
        if request.bodies:
            session.take_bodies(request.bodies)
        return None if session.lacks_bodies else session.conclude(request.boxes)

    def _zero_keys(self, request: SumsRequest | TablesRequest, *label: str) -> dict[int, bytes]:
        """Keys in common with each other compute party, for one term only."""
        channel, digest = self._channel(request.study), self._kept(request.study).plan
        purpose, *rest = label
        return {
            number: channel.common_key(name, purpose, digest, *rest)
            for number, name in enumerate(request.plan.compute)
            if name != self.party
        }

    def _noise_for(self, request: SumsRequest, inputs: str) -> Ints:
        """The noise on these shares: from the record, or drawn and recorded now."""
        kept, plan = self._kept(request.study), request.plan
        if not kept.noise:
            label = (request.study, "sums")
            drawn = draw_term_noise(self._noise, sums_plan.share_scales(plan), *label)
            kept = replace(kept, inputs=inputs, noise=pack_noise(drawn))
            self._keep(request.study, kept)
        self._check_inputs(kept, inputs)
        return unpack_noise(kept.noise)

    def _tables_noise_for(self, request: TablesRequest, inputs: str, choice: str) -> Ints:
        """The noise on these tables: from the record, or drawn and recorded now; ProtocolError for a second choice."""
        kept, plan = self._kept(request.study), request.plan
        if not kept.inputs:
            raise ProtocolError(f"party {self.party!r}: tables are chosen after the first opening")
        self._check_inputs(kept, inputs)
        if not kept.choice:
            sensitivity = tables_sensitivity(request.pairs, plan.owners, several_rows=plan.several_rows)
            scale = share_scale(table_scale(plan.pattern_of.size, plan.mu_tables, sensitivity))
            size = sum(table_sizes([len(table) for table in plan.features], request.pairs))
            label = (request.study, "tables")
            drawn = draw_term_noise(self._noise, np.full(size, scale), *label)
            kept = replace(kept, choice=choice, tables_noise=pack_noise(drawn))
            self._keep(request.study, kept)
        if kept.choice != choice:
            raise ProtocolError(
                f"party {self.party!r} has added up tables of other pairs in this study: the same noise on two sums "
                "would show their difference"
            )
        return unpack_noise(kept.tables_noise)

    def _check_inputs(self, kept: SumsRecord, inputs: str) -> None:
        if kept.inputs != inputs:
            raise ProtocolError(
                f"party {self.party!r} has added up other shares in this study before: the same noise on two sums "
                "would show their difference"
            )

    # ---- the study's record --------------------------------------------------------------------

    def _bind(self, request: SumsShareRequest | SumsProofRequest | SumsRequest | TablesRequest) -> str:
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
        words = self._noise.stream(study, "sums", "secret").words(SECRET_BYTES // 8)
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
