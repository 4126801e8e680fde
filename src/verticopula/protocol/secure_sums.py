"""Secure sums in three rounds: public keys, sealed shares, noised terms; then the coordinator opens their sum.

The coordinator relays ciphertexts that it cannot open, and gets three terms of which only the sum means anything. In a
federation of two parties the third compute party is an organisation without data, or the coordinator itself, which then
has a handler of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import PartyUnavailable, ProtocolError
from verticopula.mpc.opened_sums import PatternSums, open_sums
from verticopula.mpc.sums_plan import SumsPlan, check_plan, pattern_size
from verticopula.protocol.messages import (
    CloseReply,
    CloseRequest,
    PlanEvidence,
    Reply,
    SecureReply,
    SecureRequest,
    SumsKeyReply,
    SumsKeyRequest,
    SumsReply,
    SumsRequest,
    SumsShareReply,
    SumsShareRequest,
)
from verticopula.protocol.shared_rounds import Rounds
from verticopula.schema.study_settings import COORDINATOR

Kind = TypeVar("Kind", SumsKeyReply, SumsShareReply, SumsReply)


class ComputeHandler(Protocol):
    """The coordinator's own side of secure sums, as the third compute party: a `SumsHandler` without scores."""

    @property
    def party(self) -> str: ...

    def handle(self, request: SecureRequest) -> SecureReply: ...


def secure_sums(
    plan: SumsPlan,
    study: str,
    method: str,
    own: ComputeHandler | None = None,
    evidence: PlanEvidence | None = None,
) -> Rounds[tuple[PatternSums, ...]]:
    """Three rounds; the sums of every pattern, in the plan's order.

    Parameters
    ----------
    own : the coordinator's handler, where it is a compute party of the plan; None otherwise
    evidence : from which parties compute the plan themselves

    Raises
    ------
    PartyUnavailable
        A party is missing from a round. The same request, also after a restart, gets a reply of the same bytes.
    """
    check_plan(plan)
    everybody = [*plan.parties, *(name for name in plan.compute if name not in plan.parties)]
    without_scores = set(plan.compute) - set(plan.parties)
    if without_scores != {own.party} if own is not None else COORDINATOR in without_scores:
        raise ProtocolError("where the coordinator computes, it has a handler of its own; elsewhere it has none")
    requests: dict[str, SecureRequest] = {name: SumsKeyRequest(study, method) for name in everybody}
    replies = yield from _run_round(requests, own)
    keys = tuple(_reply_of(name, replies, SumsKeyReply).key for name in everybody)
    if [key.party for key in keys] != everybody:
        raise ProtocolError("a party sent a public key under another name")
    requests = {name: SumsShareRequest(study, method, plan, keys, evidence) for name in plan.parties}
    replies = yield from _run_round(requests, own)
    sealed = {name: _checked_messages(name, _reply_of(name, replies, SumsShareReply), plan) for name in plan.parties}
    requests = {
        name: SumsRequest(study, method, plan, keys, tuple(sealed[sender][index] for sender in plan.parties))
        for index, name in enumerate(plan.compute)
    }
    replies = yield from _run_round(requests, own)
    terms = [_checked_terms(name, _reply_of(name, replies, SumsReply), plan) for name in plan.compute]
    return open_sums(plan, terms)


def close_sums(name: str, study: str) -> Rounds[None]:
    """One round: the compute party without data forgets what it kept for the study."""
    reply = (yield {name: CloseRequest(study)}).get(name)
    if not isinstance(reply, CloseReply):
        raise ProtocolError(f"party {name!r} did not say that the study is over")


def _run_round(requests: Mapping[str, SecureRequest], own: ComputeHandler | None) -> Rounds[dict[str, Reply]]:
    """One round; a request to the coordinator itself is handled last, when all parties have replied."""
    outside = {name: request for name, request in requests.items() if own is None or name != own.party}
    replies: dict[str, Reply] = dict((yield dict(outside)))
    if own is not None and own.party in requests:
        replies[own.party] = own.handle(requests[own.party])
    return replies


def _reply_of(name: str, replies: Mapping[str, Reply], kind: type[Kind]) -> Kind:
    reply = replies.get(name)
    if reply is None:
        raise PartyUnavailable(
            f"party {name!r} did not answer; the sums can be opened only with everybody. Run the round again once it "
            "is back: it gives the same reply"
        )
    if not isinstance(reply, kind) or reply.party != name:
        raise ProtocolError(f"party {name!r} did not answer the request for secure sums")
    return reply


def _checked_messages(name: str, reply: SumsShareReply, plan: SumsPlan) -> tuple[bytes, ...]:
    """The sealed messages of a reply: one for every compute party but the sender itself."""
    if [len(sealed) > 0 for sealed in reply.boxes] != [other != name for other in plan.compute]:
        raise ProtocolError(f"party {name!r} did not seal its shares for the compute parties")
    return reply.boxes


def _checked_terms(name: str, reply: SumsReply, plan: SumsPlan) -> tuple[NDArray[np.int64], ...]:
    sizes = [(pattern_size(plan, pattern),) for pattern in range(plan.columns.shape[0])]
    if [term.shape for term in reply.terms] != sizes or any(term.dtype != np.int64 for term in reply.terms):
        raise ProtocolError(f"party {name!r} sent sums of the wrong shape")
    return reply.terms
