"""Secure sums, as rounds: public keys, sealed shares, noised terms; then the coordinator opens their sum.

The coordinator sees boxes that it cannot open and three terms of which only the sum means anything. Where a federation
has two parties only, it is the third compute party itself, with a desk of its own.
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

Kind = TypeVar("Kind", SumsKeyReply, SumsShareReply, SumsReply)


class Desk(Protocol):
    """Where the coordinator answers itself; a `sums_desk.SumsDesk` without scores."""

    @property
    def party(self) -> str: ...

    def handle(self, request: SecureRequest) -> SecureReply: ...


def secure_sums(plan: SumsPlan, study: str, method: str, own: Desk | None = None) -> Rounds[tuple[PatternSums, ...]]:
    """Three rounds; the sums of every pattern, in the plan's order.

    Parameters
    ----------
    own : the coordinator's desk, where the plan has it compute; None otherwise

    Raises
    ------
    PartyUnavailable
        A party is missing from a round. Asked again, also after a restart, it answers in the same bytes.
    """
    check_plan(plan)
    everybody = [*plan.parties, *(name for name in plan.compute if name not in plan.parties)]
    if set(everybody) - set(plan.parties) != ({own.party} if own is not None else set()):
        raise ProtocolError("a compute party without scores is the coordinator, with a desk of its own")
    asked: dict[str, SecureRequest] = {name: SumsKeyRequest(study, method) for name in everybody}
    replies = yield from _ask(asked, own)
    keys = tuple(_reply_of(name, replies, SumsKeyReply).key for name in everybody)
    if [key.party for key in keys] != everybody:
        raise ProtocolError("a party sent a public key under another name")
    asked = {name: SumsShareRequest(study, method, plan, keys) for name in plan.parties}
    replies = yield from _ask(asked, own)
    boxes = {name: _checked_boxes(name, _reply_of(name, replies, SumsShareReply), plan) for name in plan.parties}
    asked = {
        name: SumsRequest(study, method, plan, keys, tuple(boxes[sender][index] for sender in plan.parties))
        for index, name in enumerate(plan.compute)
    }
    replies = yield from _ask(asked, own)
    terms = [_checked_terms(name, _reply_of(name, replies, SumsReply), plan) for name in plan.compute]
    return open_sums(plan, terms)


def _ask(requests: Mapping[str, SecureRequest], own: Desk | None) -> Rounds[dict[str, Reply]]:
    """One round, in which the coordinator may be asked too; it answers last, when everybody else has."""
    outside = {name: request for name, request in requests.items() if own is None or name != own.party}
    replies: dict[str, Reply] = dict((yield dict(outside)))
    if own is not None and own.party in requests:
        replies[own.party] = own.handle(requests[own.party])
    return replies


def _reply_of(name: str, replies: Mapping[str, Reply], kind: type[Kind]) -> Kind:
    reply = replies.get(name)
    if reply is None:
        raise PartyUnavailable(
            f"party {name!r} did not answer; the sums can be opened only with everybody. Ask again once it is back: "
            "it gives the same answer"
        )
    if not isinstance(reply, kind) or reply.party != name:
        raise ProtocolError(f"party {name!r} did not answer the question about secure sums")
    return reply


def _checked_boxes(name: str, reply: SumsShareReply, plan: SumsPlan) -> tuple[bytes, ...]:
    """Full where there is somebody else to open them."""
    if [len(box) > 0 for box in reply.boxes] != [other != name for other in plan.compute]:
        raise ProtocolError(f"party {name!r} did not seal its shares for the compute parties")
    return reply.boxes


def _checked_terms(name: str, reply: SumsReply, plan: SumsPlan) -> tuple[NDArray[np.int64], ...]:
    sizes = [(pattern_size(plan, pattern),) for pattern in range(plan.columns.shape[0])]
    if [term.shape for term in reply.terms] != sizes or any(term.dtype != np.int64 for term in reply.terms):
        raise ProtocolError(f"party {name!r} sent sums of the wrong shape")
    return reply.terms
