"""The coordinator's side of a round: ask everybody, ask again after a crash, name who does not answer in time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from verticopula import errors
from verticopula.errors import PartyUnavailable, ProtocolError, VerticopulaError
from verticopula.network.control_messages import Refusal, Topic, Working
from verticopula.network.sanitizing import harmless
from verticopula.network.sessions import Post
from verticopula.protocol.messages import Reply, Request, fingerprint
from verticopula.protocol.wire import REPLY_KINDS, decode, encode
from verticopula.storage.round_journal import Journal

logger = logging.getLogger(__name__)

_ASK_AGAIN = 20.0  # seconds of silence
_TICK = 1.0
_LONGEST_REASON = 500


@dataclass
class _Question:
    """One party's part of a round."""

    key: str
    body: bytes
    asked: float | None = None
    answer: bytes | None = None
    refusal: VerticopulaError | None = None


@dataclass
class WaitingRoom:
    """Questions that parties have not answered yet. Letters come in from the post, from any thread."""

    post: Post
    _questions: dict[str, _Question] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _closed: bool = False

    def ask(
        self,
        questions: Mapping[str, tuple[str, bytes]],
        seconds: float,
        on_waiting: Callable[[tuple[str, ...]], None] = lambda names: None,
    ) -> dict[str, bytes]:
        """Every party's answer; the first refusal is raised, and PartyUnavailable when the time is over.

        Parameters
        ----------
        questions : party -> key and body; the same key again gets the same answer
        """
        before = time.monotonic()
        end = before + seconds
        with self._changed:
            self._questions = {name: _Question(key, body) for name, (key, body) in questions.items()}
            try:
                while True:
                    now = time.monotonic()
                    if (lost := now - before - _TICK) > _TICK:
                        # This process itself was suspended: the parties' answers may be waiting to be read.
                        end = max(end + lost, now + _TICK)
                    before = now
                    self._raise_refusal()
                    open_ones = tuple(name for name, q in self._questions.items() if q.answer is None)
                    on_waiting(open_ones)
                    if not open_ones:
                        return {name: q.answer or b"" for name, q in self._questions.items()}
                    left = end - now
                    if left <= 0.0:
                        raise PartyUnavailable(self._name_silent(open_ones, seconds))
                    self._send_open(open_ones)
                    self._changed.wait(min(left, _TICK))
            finally:
                self._questions = {}

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """End every wait: the coordinator is being stopped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def on_session(self, party: str) -> None:
        """The party has started, or come back: what it was asked before may be lost."""
        with self._changed:
            if party in self._questions:
                self._questions[party].asked = None
            self._changed.notify_all()

    def on_letter(self, party: str, topic: Topic, key: str, body: bytes) -> None:
        if topic not in ("answer", "refusal", "working"):
            raise ProtocolError("a party answers; it asks nothing")
        with self._changed:
            question = self._questions.get(party)
            if question is None or question.key != key:
                logger.info("dropped: %s of %s to a question that is not open, or not its own", topic, party)
                return
            if topic == "answer":
                question.answer = body
            elif topic == "refusal":
                question.refusal = as_error(decode(body, (Refusal,)))
            elif topic == "working":
                decode(body, (Working,))
                question.asked = time.monotonic()
            self._changed.notify_all()

    def _send_open(self, names: tuple[str, ...]) -> None:
        now = time.monotonic()
        for name in names:
            question = self._questions[name]
            if (question.asked is None or now - question.asked > _ASK_AGAIN) and self.post.send(
                name, "ask", question.key, question.body
            ):
                question.asked = now

    def _raise_refusal(self) -> None:
        if self._closed:
            raise ProtocolError("the coordinator was stopped")
        for question in self._questions.values():
            if question.refusal is not None:
                raise question.refusal

    def _name_silent(self, names: tuple[str, ...], seconds: float) -> str:
        away = [name for name in names if not self.post.connected(name)]
        who = ", ".join(f"{name!r}{' (not connected)' if name in away else ''}" for name in names)
        plural = "parties" if len(names) > 1 else "party"
        kept = "what was released is kept, and the study can be resumed"
        return f"{plural} {who} did not answer within {seconds:g} s; {kept}"


def as_error(refusal: Refusal) -> VerticopulaError:
    """A party's refusal as the exception that it names; its text is a peer's, so it is made harmless."""
    reason = harmless(refusal.reason, _LONGEST_REASON - len(" …"))
    kind = getattr(errors, refusal.kind, None)
    allowed = (errors.PolicyRefused, errors.BudgetExceeded, errors.LedgerError, errors.VersionMismatch, ProtocolError)
    return kind(reason) if kind in allowed else ProtocolError(reason)


@dataclass
class NetworkTransport:
    """Delivers a protocol's rounds to parties in other processes, and remembers every round.

    A round that the journal holds is not asked again: fed with the same replies, a protocol makes the same requests,
    so a study goes on after a crash where it stood.
    """

    room: WaitingRoom
    journal: Journal
    seconds: float
    on_waiting: Callable[[int, tuple[str, ...]], None] = lambda number, names: None
    number: int = 0

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        self.number += 1
        keys = {name: fingerprint(request) for name, request in requests.items()}
        answers = self.journal.next_round(keys)
        if answers is None:
            questions = {name: (keys[name], encode(request)) for name, request in requests.items()}
            answers = self.room.ask(questions, self.seconds, lambda names: self.on_waiting(self.number, names))
            replies = _read(answers)
            self.journal.append(keys, answers)
            return replies
        return _read(answers)


def _read(answers: Mapping[str, bytes]) -> dict[str, Reply]:
    replies: dict[str, Reply] = {}
    for name, body in answers.items():
        try:
            replies[name] = decode(body, REPLY_KINDS)
        except ProtocolError as error:
            raise type(error)(f"party {name!r}: {error}") from None
        if replies[name].party != name:
            raise ProtocolError(f"party {name!r} answered under another name")
    return replies
