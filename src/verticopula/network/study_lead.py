"""The study lead's side: ask the coordinator for something and wait for its answer."""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from verticopula.errors import PartyUnavailable, ProtocolError, VerticopulaError
from verticopula.network.control_messages import (
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
from verticopula.network.network_transport import as_error
from verticopula.network.sanitizing import harmless
from verticopula.network.sessions import Post
from verticopula.network.startup_kit import COORDINATOR, Kit
from verticopula.protocol.wire import decode, encode, kinds_of

_TRY_AGAIN = 0.1  # seconds, while there is no line
_REPLIES: dict[type, type] = {
    SubmitRequest: SubmitReply,
    ResumeRequest: SubmitReply,
    StatusRequest: StatusReply,
    ResultRequest: ResultReply,
}


@dataclass
class Lead:
    """A line to the coordinator; use as a context manager."""

    kit: Kit
    _answers: dict[str, Any] = field(default_factory=dict)
    _asked: set[str] = field(default_factory=set)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def __post_init__(self) -> None:
        self._post = Post(self.kit, self._on_letter)

    def __enter__(self) -> Lead:
        self._post.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._post.stop()

    def ask(self, request: LeadRequest, seconds: float = 30.0, again: float = 5.0) -> Any:
        """The coordinator's answer; its refusal is raised, and PartyUnavailable if it does not answer.

        `again`: seconds after which a question without an answer is sent once more.
        """
        key, body = secrets.token_hex(16), encode(request)
        end = time.monotonic() + seconds
        with self._changed:
            self._asked.add(key)
            while time.monotonic() < end:
                sent = self._post.send(COORDINATOR, "ask", key, body)
                self._changed.wait_for(lambda: key in self._answers, again if sent else _TRY_AGAIN)
                if key in self._answers:
                    found = self._answers.pop(key)
                    self._asked.discard(key)
                    if isinstance(found, VerticopulaError):
                        raise found
                    if not isinstance(found, _REPLIES[type(request)]):
                        raise ProtocolError("the coordinator answered something else than it was asked")
                    return found
            self._asked.discard(key)
        where = f"{self.kit.host}:{self.kit.port}"
        raise PartyUnavailable(f"the coordinator at {where} does not answer: is `verticopula serve` running there?")

    def _on_letter(self, peer: str, topic: Topic, key: str, body: bytes) -> None:
        with self._changed:
            if key not in self._asked:
                raise ProtocolError("nothing was asked that this answers")
            if topic == "answer":
                self._answers[key] = _made_harmless(decode(body, kinds_of(LeadReply)))
            elif topic == "refusal":
                self._answers[key] = as_error(decode(body, (Refusal,)))
            self._changed.notify_all()


def _made_harmless(reply: LeadReply) -> LeadReply:
    """What a person will see of it cannot move a cursor."""
    if isinstance(reply, SubmitReply):
        return replace(reply, study=harmless(reply.study))
    if isinstance(reply, StatusReply):
        parties = tuple(replace(party, name=harmless(party.name)) for party in reply.parties)
        studies = tuple(
            replace(
                entry,
                study=harmless(entry.study),
                method=harmless(entry.method),
                waiting_for=tuple(harmless(name) for name in entry.waiting_for),
                note=harmless(entry.note, lines=True),
            )
            for entry in reply.studies
        )
        return replace(reply, parties=parties, studies=studies)
    return reply


def write_result(reply: ResultReply, out: Path) -> list[Path]:
    """The study's files below a folder; ProtocolError for a name that would lead out of it."""
    written = []
    for file in reply.files:
        name = PurePosixPath(file.name)
        if name.is_absolute() or not name.parts or any(part in ("..", ".") for part in name.parts):
            raise ProtocolError("the coordinator sent a file whose name leads out of its folder")
        if not file.name.isprintable() or "\\" in file.name:
            raise ProtocolError("the coordinator sent a file whose name cannot be one")
        path = out.joinpath(*name.parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content.tobytes())
        written.append(path)
    return written
