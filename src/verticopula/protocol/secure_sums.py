"""Secure sums in rounds: public keys, dealings, six rounds of proofs, noised terms of the first opening; then those of
the tables that the coordinator chooses, from the same proven shares.

The coordinator relays ciphertexts that it cannot open, and gets three terms of which only the sum means anything. In a
federation of two parties the third compute party is an organisation without data, or the coordinator itself, which then
has a handler of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import PartyUnavailable, ProtocolError
from verticopula.mpc.gram_noise import FURTHEST_NOISE
from verticopula.mpc.opened_sums import NoisyGram, OpenedCounts, open_counts, open_gram
from verticopula.mpc.prime_field import ELEMENT_BYTES
from verticopula.mpc.sums_plan import SumsPlan, check_plan, gram_size, own_features, selection_deviation
from verticopula.mpc.table_noise import check_pairs, table_sizes
from verticopula.mpc.verified_cells import Bytes, CellsStatement
from verticopula.mpc.verified_sums import LARGEST_ENTRY
from verticopula.protocol.messages import Reply, fingerprint
from verticopula.protocol.proof_routes import (
    DEAL,
    STEPS,
    Route,
    bodies_to,
    match,
    routes_from,
    routes_of,
    routes_to,
    statements_of,
)
from verticopula.protocol.shared_rounds import Rounds
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
from verticopula.protocol.study_messages import CloseReply, CloseRequest
from verticopula.schema.study_settings import COORDINATOR

Ints = NDArray[np.int64]
Answer = TypeVar("Answer", SumsKeyReply, SumsShareReply, SumsProofReply, SumsReply, TablesReply)


class ComputeHandler(Protocol):
    """The coordinator's own side of secure sums, as the third compute party: a `SumsHandler` without cells."""

    @property
    def party(self) -> str: ...

    def handle(self, request: SecureRequest) -> SecureReply:
        """The answer, or an error that says why there is none.

        Parameters
        ----------
        request : of secure sums
        """
        ...


class _RelayedMessages:
    """All dealings and sealed messages that the coordinator has carried so far."""

    def __init__(self, statements: Mapping[str, CellsStatement]) -> None:
        self.statements = statements
        self._boxes: dict[str, dict[Route, bytes]] = {step: {} for step in STEPS}
        self._bodies: dict[str, Bytes] = {}

    def senders(self, step: str) -> list[str]:
        """Who sends messages in a round."""
        return list(dict.fromkeys(route.sender for route in routes_of(self.statements, step)))

    def take(self, step: str, sender: str, boxes: tuple[bytes, ...]) -> None:
        """A sender's messages of one round."""
        self._boxes[step] |= match(sender, routes_from(self.statements, step, sender), boxes)

    def take_body(self, dealer: str, body: Bytes) -> None:
        statement = self.statements.get(dealer)
        size = 0 if statement is None else ELEMENT_BYTES * statement.rows * statement.width
        if body.shape != (size,):
            raise ProtocolError(f"party {dealer!r} did not share its cells as the plan says")
        self._bodies[dealer] = body

    def boxes(self, receiver: str, until: int) -> tuple[tuple[bytes, ...], ...]:
        """A receiver's messages of the first `until` rounds."""
        return tuple(
            tuple(self._boxes[step][route] for route in routes_to(self.statements, step, receiver))
            for step in STEPS[:until]
        )

    def bodies(self, receiver: str) -> tuple[Bytes, ...]:
        return tuple(self._bodies[dealer] for dealer in bodies_to(self.statements, receiver))


@dataclass(frozen=True)
class SecureOpenings:
    """Everything that secure sums open.

    Attributes
    ----------
    gram : the first opening
    selection : base party -> its features by presence
    tables : the second opening; none where no pair was chosen
    """

    gram: NoisyGram
    selection: Mapping[str, Ints]
    tables: tuple[OpenedCounts, ...]


ChoosePairs = Callable[[NoisyGram, Mapping[str, Ints]], Ints]


def no_tables(gram: NoisyGram, selection: Mapping[str, Ints]) -> Ints:
    """Chooses no pair."""
    return np.zeros((0, 2), dtype=np.int64)


def secure_sums(
    plan: SumsPlan,
    study: str,
    method: str,
    own: ComputeHandler | None = None,
    evidence: PlanEvidence | None = None,
    choose: ChoosePairs = no_tables,
) -> Rounds[SecureOpenings]:
    """Nine rounds, and a tenth where pairs are chosen.

    Parameters
    ----------
    own : the coordinator's handler, where it is a compute party of the plan; None otherwise
    evidence : from which parties compute the plan themselves
    choose : the pairs of the second opening, from what was opened before

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
    requests = {  # who has no data computes no plan, and is told nothing that plans follow from
        name: SumsShareRequest(study, method, plan, keys, evidence if name in plan.parties else None)
        for name in everybody
    }
    replies = yield from _run_round(requests, own)
    relayed = _RelayedMessages(statements_of(plan, study, fingerprint((plan, keys))))
    selection: dict[str, Ints] = {}
    for name in everybody:
        dealt = _reply_of(name, replies, SumsShareReply)
        relayed.take(DEAL, name, dealt.boxes)
        relayed.take_body(name, dealt.body)
        selection |= _checked_selection(name, dealt, plan)
    del replies, dealt
    for number, step in enumerate(STEPS[1:], start=1):
        asked = {
            name: SumsProofRequest(study, method, plan, keys, step, relayed.boxes(name, number))
            for name in relayed.senders(step)
        }
        if number == 1:
            asked = {name: replace(request, bodies=relayed.bodies(name)) for name, request in asked.items()}
        replies = yield from _ask(asked, own, relayed)
        for name in asked:
            relayed.take(step, name, _reply_of(name, replies, SumsProofReply).boxes)
    boxes = {name: relayed.boxes(name, len(STEPS)) for name in plan.compute}
    sums = {name: SumsRequest(study, method, plan, keys, boxes[name]) for name in plan.compute}
    replies = yield from _ask(sums, own, relayed)
    terms = [_checked_term(name, _reply_of(name, replies, SumsReply), gram_size(plan)) for name in plan.compute]
    gram = open_gram(plan, terms)
    pairs = choose(gram, selection)
    if not len(pairs):
        return SecureOpenings(gram, selection, ())
    check_pairs(pairs, len(plan.features), plan.most_tables)
    wanted = {name: TablesRequest(study, method, plan, keys, pairs, boxes[name]) for name in plan.compute}
    replies = yield from _ask(wanted, own, relayed)
    size = sum(table_sizes([len(table) for table in plan.features], pairs))
    terms = [_checked_term(name, _reply_of(name, replies, TablesReply), size) for name in plan.compute]
    return SecureOpenings(gram, selection, open_counts(plan, pairs, terms))


def close_sums(name: str, study: str) -> Rounds[None]:
    """One round: the compute party without data forgets what it kept for the study."""
    reply = (yield {name: CloseRequest(study)}).get(name)
    if not isinstance(reply, CloseReply):
        raise ProtocolError(f"party {name!r} did not say that the study is over")


def _ask(
    requests: Mapping[str, SumsProofRequest] | Mapping[str, SumsRequest] | Mapping[str, TablesRequest],
    own: ComputeHandler | None,
    relayed: _RelayedMessages,
) -> Rounds[dict[str, Reply]]:
    """One round; once more, with the bodies, for those that were started anew and lack them."""
    replies = yield from _run_round(dict(requests), own)
    again: dict[str, SecureRequest] = {
        name: replace(request, bodies=relayed.bodies(name))
        for name, request in requests.items()
        if isinstance(reply := replies.get(name), SumsProofReply) and reply.lacks_bodies and not request.bodies
    }
    return {**replies, **((yield from _run_round(again, own)) if again else {})}


def _run_round(requests: Mapping[str, SecureRequest], own: ComputeHandler | None) -> Rounds[dict[str, Reply]]:
    """One round; a request to the coordinator itself is handled last, when all parties have replied."""
    outside = {name: request for name, request in requests.items() if own is None or name != own.party}
    replies: dict[str, Reply] = dict((yield dict(outside))) if outside else {}
    if own is not None and own.party in requests:
        replies[own.party] = own.handle(requests[own.party])
    return replies


def _reply_of(name: str, replies: Mapping[str, Reply], kind: type[Answer]) -> Answer:
    reply = replies.get(name)
    if reply is None:
        raise PartyUnavailable(
            f"party {name!r} did not answer; the sums can be opened only with everybody. Run the round again once it "
            "is back: it gives the same reply"
        )
    if not isinstance(reply, kind) or reply.party != name:
        raise ProtocolError(f"party {name!r} did not answer the request for secure sums")
    return reply


def _checked_term(name: str, reply: SumsReply | TablesReply, size: int) -> Ints:
    if reply.term.shape != (size,) or reply.term.dtype != np.int64:
        raise ProtocolError(f"party {name!r} sent sums of the wrong shape")
    return reply.term


def _checked_selection(name: str, reply: SumsShareReply, plan: SumsPlan) -> dict[str, Ints]:
    """A base party's features by presence; ProtocolError where they do not have the plan's shape or range."""
    if name not in plan.parties or not plan.base[plan.parties.index(name)]:
        if reply.selection.size:
            raise ProtocolError(f"party {name!r} sent features that nobody asked for")
        return {}
    shape = (int(plan.selecting.sum()), sum(table.shape[1] for table in own_features(plan, name)))
    if reply.selection.shape != shape or reply.selection.dtype != np.int64:
        raise ProtocolError(f"party {name!r} sent features by presence of the wrong shape")
    reach = plan.pattern_of.size * LARGEST_ENTRY + FURTHEST_NOISE * (selection_deviation(plan) + 3.0)
    if reply.selection.size and float(np.abs(reply.selection.astype(np.float64)).max()) > reach:
        raise ProtocolError(f"party {name!r} sent features by presence that are out of range")
    return {name: reply.selection}
