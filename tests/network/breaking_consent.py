"""Where `breaking.py` breaks a study that waits for stewards: a party, the coordinator, and a steward's own command.

Points of a party, in order: question unstored, question half stored, question stored, question told; then the steward
decides; decision seen, decision told, yes unused, yes half used, yes used. Of the coordinator: question heard, question
kept, decision heard. Of the steward's command: undecided, half decided, decided.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.network.breaking import Breaker

ROUNDS = {"federation": "change", "beginning": "begin", "releases": "consent"}  # by the stage of the question


def break_store(breaker: Breaker) -> None:
    """The store of requests, as a party asks it and as a steward's command writes into it."""
    from verticopula.storage.request_store import RequestStore

    transaction, ask, mark_used, decide = (
        RequestStore._transaction,
        RequestStore.ask,
        RequestStore.mark_used,
        RequestStore.decide,
    )
    written: list[str] = []  # what is being written

    @contextlib.contextmanager
    def breaking_transaction(self: Any) -> Iterator[Any]:
        with transaction(self) as base:
            yield base
            if written:
                breaker.at(written[-1])

    @contextlib.contextmanager
    def writing(before: str, half: str, after: str) -> Iterator[None]:
        breaker.at(before)
        written.append(half)
        try:
            yield
        finally:
            written.pop()
        breaker.at(after)

    def breaking_ask(self: Any, content: Any, *rest: Any, **more: Any) -> Any:
        if any(one.content.question == content.question for one in self.all(study=content.study)):
            return ask(self, content, *rest, **more)  # it was stored before
        with writing("question unstored", "question half stored", "question stored"):
            return ask(self, content, *rest, **more)

    def breaking_mark_used(self: Any, request: Any, *detail: str) -> None:
        if request.used is not None:
            return
        with writing("yes unused", "yes half used", "yes used"):
            mark_used(self, request, *detail)

    def breaking_decide(self: Any, name: str, decision: Any) -> Any:
        breaker.round = ROUNDS[self.get(name).content.stage]
        with writing("undecided", "half decided", "decided"):
            return decide(self, name, decision)

    RequestStore._transaction, RequestStore.ask = breaking_transaction, breaking_ask  # type: ignore[method-assign,assignment]
    RequestStore.mark_used, RequestStore.decide = breaking_mark_used, breaking_decide  # type: ignore[method-assign]


def break_party_that_waits(breaker: Breaker) -> None:
    """What a party says about its stewards."""
    from verticopula.network.connection.control_messages import InProgress
    from verticopula.network.connection.sessions import PeerSessions
    from verticopula.network.party.party_process import PartyProcess
    from verticopula.protocol.wire import decode

    send, reply_to = PeerSessions.send, PartyProcess._reply_to
    rounds: dict[str, str] = {}  # by the key of the request: decisions are told by another thread

    def breaking_reply_to(self: Any, key: str, body: bytes) -> Any:
        result = reply_to(self, key, body)
        rounds[key] = breaker.round
        return result

    def breaking_send(self: Any, peer: str, topic: Any, key: str, body: Any, *study: str) -> bool:
        if topic != "working" or key not in rounds:
            return send(self, peer, topic, key, body, *study)
        breaker.round = rounds[key]
        is_question = decode(body, (InProgress,)).waits_for == "steward"
        if not is_question:
            breaker.at("decision seen")
        before = time.time()  # whoever hears it may be broken before this goes on
        sent = send(self, peer, topic, key, body, *study)
        if sent:
            point = "question told" if is_question else "decision told"
            if (fault := breaker.armed(point)) is not None:
                time.sleep(0.1)  # the link sends from a thread of its own
                breaker.happen(fault)
            breaker.tell(what=point, time=before)
        return sent

    PeerSessions.send, PartyProcess._reply_to = breaking_send, breaking_reply_to  # type: ignore[method-assign]


def break_coordinator_that_waits(breaker: Breaker) -> None:
    """What the coordinator writes down about studies that wait, and hears of decisions."""
    from verticopula.network.coordinator.network_transport import PendingRequests
    from verticopula.network.coordinator.study_records import StudyStore

    await_replies, on_message, change = PendingRequests.await_replies, PendingRequests.on_message, StudyStore.change
    rounds: dict[str, str] = {}  # by the key of the request

    def breaking_await_replies(self: Any, requests: Any, *rest: Any, **more: Any) -> Any:
        rounds.update({key: breaker.round for key, _ in requests.values()})
        return await_replies(self, requests, *rest, **more)

    def breaking_on_message(self: Any, party: str, topic: Any, key: str, body: bytes) -> None:
        if (party, key) in self._aside and topic == "working" and b"computation" in body:
            breaker.round = rounds.get(key, "")
            breaker.at("decision heard")
        on_message(self, party, topic, key, body)

    def breaking_change(self: Any, study: str, **changes: Any) -> Any:
        if changes.get("state") != "waiting":
            return change(self, study, **changes)
        breaker.at("question heard")
        record = change(self, study, **changes)
        breaker.at("question kept")
        return record

    PendingRequests.await_replies, PendingRequests.on_message = breaking_await_replies, breaking_on_message  # type: ignore[method-assign]
    StudyStore.change = breaking_change  # type: ignore[method-assign]
