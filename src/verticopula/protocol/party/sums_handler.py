"""A party's handler of secure sums: it shares its own scores, and adds up the shares that it holds.

One record per study holds a secret, the plan that the party has bound itself to, and its noise. It is stored before
anything leaves, so the same request gets the same bytes again. A compute party adds up one set of shares in a study,
with one noise, and refuses any other.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import ProtocolError, VersionMismatch
from verticopula.mpc import sums_plan
from verticopula.mpc.fixed_point import check_norms
from verticopula.mpc.sealed_messages import SECRET_BYTES, Authenticity, SealedChannel, SignedPublicKey
from verticopula.mpc.secret_sharing import (
    COMPUTE,
    SEED_BYTES,
    SEEDED,
    Ring,
    gram_share,
    held_indices,
    held_shares,
    seeds_for,
    third_share,
    to_bytes,
    zero_share,
)
from verticopula.mpc.sums_plan import SumsPlan
from verticopula.privacy.noise import Noise
from verticopula.protocol.messages import (
    MESSAGE_VERSION,
    PlanEvidence,
    SecureReply,
    SecureRequest,
    SumsKeyReply,
    SumsKeyRequest,
    SumsReply,
    SumsRequest,
    SumsShareReply,
    SumsShareRequest,
    fingerprint,
)
from verticopula.protocol.party.sums_record import SumsRecord, pack_noise, unpack_noise
from verticopula.protocol.wire import decode, encode
from verticopula.storage.records import RecordStore

Ints = NDArray[np.int64]

_PURPOSE = "score shares"


@dataclass(frozen=True, repr=False)
class ShareBundle:
    """The content of a sealed message: one matrix's shares for one compute party.

    `plan` is the digest of the plan and all keys.
    """

    WIRE_NAME = "ShareParcel"  # its name in sealed messages

    plan: str
    seeds: tuple[bytes, ...]
    body: bytes


class SumsHandler:
    """One party's side of secure sums. No repr: it can reach scores.

    Parameters
    ----------
    scores : plan -> (n_k, p_k) integers, for the subjects of `sums_plan.own_rows` in the cohort's order, within
        `own_bounds` and zero outside `own_mask`; None for a compute party without data
    records : where a study's record is kept; noise is drawn anew only with a new record
    noise : secure, or seeded for a simulation
    approve : called with the study, the plan, the digest of plan and keys, and what the plan follows from, before the
        party binds itself to it; raises to refuse. The place for the agreement, the policy and the ledger.
    noise_label : what seeded noise is drawn under; the study's name by default
    """

    def __init__(
        self,
        party: str,
        scores: Callable[[SumsPlan], Ints] | None,
        *,
        records: RecordStore,
        noise: Noise,
        authenticity: Authenticity,
        approve: Callable[[str, SumsPlan, str, PlanEvidence | None], None] = lambda *plan: None,
        noise_label: str = "",
    ) -> None:
        self.party = party
        self._scores = scores
        self._records = records
        self._noise = noise
        self._authenticity = authenticity
        self._approve = approve
        self._noise_label = noise_label
        self._channels: dict[str, SealedChannel] = {}
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
            return self._add_up(request)

    # ---- sharing -------------------------------------------------------------------------

    def _share(self, request: SumsShareRequest) -> SumsShareReply:
        """The party's scores in sealed shares.

        Privacy
        -------
        To each compute party: two of three shares, uniform whatever the scores are. To the coordinator: ciphertexts
        that it cannot open, whose sizes follow from the plan.
        """
        digest = self._bind(request)
        channel, plan = self._channel(request.study), request.plan
        seeds, third = self._own_shares(channel, plan, digest)
        body = to_bytes(third)
        sealed = []
        for index, name in enumerate(plan.compute):
            third_bytes = body if _gets_third(index) else b""
            content = encode(ShareBundle(digest, seeds_for(index, seeds), third_bytes))
            sealed.append(b"" if name == self.party else channel.seal(name, _PURPOSE, 0, content))
        return SumsShareReply(self.party, tuple(sealed))

    def _own_shares(self, channel: SealedChannel, plan: SumsPlan, digest: str) -> tuple[tuple[bytes, bytes], Ring]:
        """Two seeds and the third share. Other scores have other seeds: no keystream ever hides two of them."""
        scores = self._checked_scores(plan)
        content = hashlib.sha256(np.ascontiguousarray(scores).tobytes()).hexdigest()
        first, second = (channel.derive("share", str(i), digest, content, size=SEED_BYTES) for i in SEEDED)
        return (first, second), third_share(scores, (first, second))

    def _checked_scores(self, plan: SumsPlan) -> Ints:
        if self._scores is None or self.party not in plan.parties:
            raise ProtocolError(f"party {self.party!r} has no scores to share")
        scores, mask = self._scores(plan), sums_plan.own_mask(plan, self.party)
        if scores.dtype != np.int64 or scores.shape != mask.shape:
            raise ProtocolError(f"party {self.party!r}: its scores do not have the shape that the plan says")
        if scores[~mask].any():
            raise ProtocolError(f"party {self.party!r}: a score stands where the plan has none")
        check_norms(scores, sums_plan.own_bounds(plan, self.party))
        return scores

    # ---- adding up -----------------------------------------------------------------------

    def _add_up(self, request: SumsRequest) -> SumsReply:
        """This compute party's term of every pattern's Gram matrix, with its noise and its share of zero.

        Privacy
        -------
        To the coordinator, which gets all three: their sum, a Gram matrix with noise, and nothing else. Any two of
        the noises cover one person's whole record at the plan's mu.
        """
        plan = request.plan
        if self.party not in plan.compute:
            raise ProtocolError(f"party {self.party!r} is no compute party of this study")
        digest = self._bind(request)
        index = plan.compute.index(self.party)
        shares, inputs = self._collect(request, digest, index)
        noise = self._noise_for(request, inputs)
        channel = self._channel(request.study)
        keys = {i: name for i, name in enumerate(plan.compute) if i != index}
        places = {party: np.cumsum(sums_plan.own_rows(plan, party)) - 1 for party in plan.parties}
        terms, start = [], 0
        for pattern in range(plan.columns.shape[0]):
            term = gram_share(*sums_plan.pattern_shares(plan, pattern, index, shares, places))[:-1]
            zero = zero_share(
                index, {i: channel.common_key(n, "zero", digest, str(pattern)) for i, n in keys.items()}, term.size
            )
            term = term + zero + noise[start : start + term.size].view(np.uint64)
            start += term.size
            terms.append(term.view(np.int64))
        return SumsReply(self.party, tuple(terms))

    def _collect(self, request: SumsRequest, digest: str, index: int) -> tuple[dict[str, tuple[Ring, Ring]], str]:
        """Everybody's shares, this party's own among them, and a digest of them all."""
        plan, channel = request.plan, self._channel(request.study)
        if len(request.boxes) != len(plan.parties):
            raise ProtocolError(f"party {self.party!r}: expected a sealed message from each party with scores")
        shares, inputs = {}, hashlib.sha256()
        for sender, width, sealed in zip(plan.parties, plan.widths, request.boxes, strict=True):
            if sender == self.party:
                seeds, third = self._own_shares(channel, plan, digest)
                bundle = ShareBundle(digest, seeds_for(index, seeds), to_bytes(third) if _gets_third(index) else b"")
            else:
                bundle = decode(channel.open(sender, _PURPOSE, 0, sealed), (ShareBundle,))
            if bundle.plan != digest:
                raise ProtocolError(f"party {self.party!r}: {sender!r} shared its scores for another plan")
            shape = (int(sums_plan.own_rows(plan, sender).sum()), width)
            shares[sender] = held_shares(index, shape, bundle.seeds, bundle.body)
            inputs.update(fingerprint(bundle).encode())
        return shares, inputs.hexdigest()

    def _noise_for(self, request: SumsRequest, inputs: str) -> Ints:
        """The noise on these shares: from the record, or drawn and recorded now."""
        kept, plan = self._kept(request.study), request.plan
        if not kept.noise:
            drawn = [self._draw(request.study, plan, pattern) for pattern in range(plan.columns.shape[0])]
            kept = replace(kept, inputs=inputs, noise=pack_noise(np.concatenate(drawn)))
            self._keep(request.study, kept)
        if kept.inputs != inputs:
            raise ProtocolError(
                f"party {self.party!r} has added up other shares in this study before: the same noise on two sums "
                "would show their difference"
            )
        return unpack_noise(kept.noise)

    def _draw(self, study: str, plan: SumsPlan, pattern: int) -> Ints:
        scales = sums_plan.share_scales(plan, pattern)
        noise = np.zeros(scales.size, dtype=np.int64)
        for number, scale in enumerate(np.unique(scales)):
            chosen = scales == scale
            label = (self._noise_label or study, "sums", str(pattern), str(number))
            noise[chosen] = self._noise.discrete_gaussian(noise[chosen], float(scale), *label)
        return noise

    # ---- the study's record --------------------------------------------------------------------

    def _bind(self, request: SumsShareRequest | SumsRequest) -> str:
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


def _gets_third(index: int) -> bool:
    """Whether a compute party is sent the share that no seed stands for."""
    return COMPUTE - 1 in held_indices(index)
