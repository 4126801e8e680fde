"""The study lead's side: send requests to the coordinator and wait for its replies."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, field, replace
from typing import Any

from verticopula.errors import PartyUnavailable, ProtocolError, VerticopulaError
from verticopula.network.connection.control_messages import (
    CancelRequest,
    LeadReply,
    LeadRequest,
    Refusal,
    ResultReply,
    ResultRequest,
    ResumeRequest,
    StatusReply,
    StatusRequest,
    SubmitReply,
    SubmitRequest,
    Topic,
)
from verticopula.network.connection.message_parts import GIB, PartsRules
from verticopula.network.connection.part_messages import PartsNotice
from verticopula.network.connection.refusal_errors import as_error
from verticopula.network.connection.sanitizing import sanitize
from verticopula.network.connection.sessions import PeerSessions
from verticopula.network.kit.startup_kit import Kit
from verticopula.protocol.message_fields import kinds_of
from verticopula.protocol.message_files import Body
from verticopula.protocol.wire import decode, encode
from verticopula.schema.defaults import COORDINATOR

_RETRY = 0.1  # seconds, while there is no connection
_REPLIES: dict[type, type] = {
    SubmitRequest: SubmitReply,
    ResumeRequest: SubmitReply,
    CancelRequest: SubmitReply,
    StatusRequest: StatusReply,
    ResultRequest: ResultReply,
}


@dataclass
class Lead:
    """A connection to the coordinator; use as a context manager."""

    kit: Kit
    _replies: dict[str, Any] = field(default_factory=dict)
    _open: set[str] = field(default_factory=set)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self._sessions = PeerSessions(
            self.kit, self._on_message, parts=PartsRules(self._admit, on_broken=self._on_broken)
        )

    def __enter__(self) -> Lead:
        self._sessions.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._sessions.stop()

    def ask(self, request: LeadRequest, seconds: float = 30.0, again: float = 5.0) -> Any:
        """The coordinator's reply; its refusal is raised, and PartyUnavailable if it does not reply.

        `again`: seconds after which a request without a reply is sent once more.
        """
        key, body = secrets.token_hex(16), encode(request)
        end, sent = time.monotonic() + seconds, False
        with self._changed:
            self._open.add(key)
            while time.monotonic() < end:
                self._raise_refused()
                if not self._sessions.parts.is_receiving(COORDINATOR, key):
                    sent = self._sessions.send(COORDINATOR, "ask", key, body)
                self._changed.wait_for(lambda: key in self._replies, again if sent else _RETRY)
                if key in self._replies:
                    found = self._replies.pop(key)
                    self._open.discard(key)
                    if isinstance(found, VerticopulaError):
                        raise found
                    if not isinstance(found, _REPLIES[type(request)]):
                        raise ProtocolError("the coordinator's reply does not fit the request")
                    return found
            self._open.discard(key)
        self._raise_refused()
        where = f"{self.kit.host}:{self.kit.port}"
        raise PartyUnavailable(f"the coordinator at {where} does not answer: is `verticopula serve` running there?")

    def _raise_refused(self) -> None:
        """PartyUnavailable where there will be no connection before somebody does something."""
        problem = self._sessions.problem
        if problem.is_refusal:
            raise PartyUnavailable(f"no connection to the coordinator: {problem.reason}")

    def _admit(self, peer: str, key: str, notice: PartsNotice) -> int | None:
        with self._changed:
            if key not in self._open or notice.topic != "answer":
                raise ProtocolError("it replies to no open request")
        return self.kit.federation.network.message_gib * GIB

    def _on_broken(self, peer: str, topic: Topic, key: str, reason: str) -> None:
        with self._changed:
            if key in self._open:
                self._replies[key] = ProtocolError(f"the coordinator's reply was not taken: {reason}")
                self._changed.notify_all()

    def _on_message(self, peer: str, topic: Topic, key: str, body: Body) -> None:
        with self._changed:
            if key not in self._open:
                raise ProtocolError("it replies to no open request")
            if topic == "answer":
                self._replies[key] = _sanitized(decode(body, kinds_of(LeadReply)))
                self._sessions.parts.give_back(body)
            elif topic == "refusal":
                self._replies[key] = as_error(decode(body, (Refusal,)))
            self._changed.notify_all()


def _sanitized(reply: LeadReply) -> LeadReply:
    """The reply with all text that is shown to a person sanitized."""
    if isinstance(reply, SubmitReply):
        return replace(reply, study=sanitize(reply.study))
    if isinstance(reply, StatusReply):
        parties = tuple(
            replace(party, name=sanitize(party.name), note=sanitize(party.note, 500)) for party in reply.parties
        )
        studies = tuple(
            replace(
                entry,
                study=sanitize(entry.study),
                method=sanitize(entry.method),
                waiting_for=tuple(sanitize(name) for name in entry.waiting_for),
                note=sanitize(entry.note, lines=True),
                stewards=tuple(replace(wait, party=sanitize(wait.party)) for wait in entry.stewards),
            )
            for entry in reply.studies
        )
        change = reply.change
        if change is not None:
            answers = (replace(a, party=sanitize(a.party), note=sanitize(a.note, 500)) for a in change.answers)
            change = replace(change, federation=sanitize(change.federation), answers=tuple(answers))
        return replace(reply, parties=parties, studies=studies, change=change)
    return reply
