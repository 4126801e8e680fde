"""The coordinator's side of a round: send requests, send them again after a crash, name who does not reply in time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from verticopula import errors
from verticopula.errors import PartyUnavailable, ProtocolError, VerticopulaError
from verticopula.network.control_messages import InProgress, Refusal, Topic
from verticopula.network.sanitizing import sanitize
from verticopula.network.sessions import Sessions
from verticopula.protocol.messages import Reply, Request, fingerprint
from verticopula.protocol.wire import REPLY_KINDS, decode, encode
from verticopula.storage.round_journal import Journal

logger = logging.getLogger(__name__)

_RESEND_AFTER = 20.0  # seconds without a message about the request
_TICK = 1.0
_LONGEST_REASON = 500


@dataclass
class _PendingRequest:
    """The request to one party, and its reply once it is there.

    `sent` : when it was last sent or confirmed; None if it has to be sent
    """

    key: str
    body: bytes
    sent: float | None = None
    reply: bytes | None = None
    refusal: VerticopulaError | None = None


@dataclass
class PendingRequests:
    """Requests of the current round that parties have not replied to. `on_message` is called from any thread."""

    sessions: Sessions
    _requests: dict[str, _PendingRequest] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _closed: bool = False

    def await_replies(
        self,
        requests: Mapping[str, tuple[str, bytes]],
        seconds: float,
        on_waiting: Callable[[tuple[str, ...]], None] = lambda names: None,
    ) -> dict[str, bytes]:
        """Every party's reply; the first refusal is raised, and PartyUnavailable when the time is over.

        Parameters
        ----------
        requests : party -> key and body; the same key again gets the same reply
        """
        before = time.monotonic()
        end = before + seconds
        with self._changed:
            self._requests = {name: _PendingRequest(key, body) for name, (key, body) in requests.items()}
            try:
                while True:
                    now = time.monotonic()
                    if (lost := now - before - _TICK) > _TICK:
                        # This process itself was suspended: the parties' replies may be waiting to be read.
                        end = max(end + lost, now + _TICK)
                    before = now
                    self._raise_refusal()
                    open_ones = tuple(name for name, pending in self._requests.items() if pending.reply is None)
                    on_waiting(open_ones)
                    if not open_ones:
                        return {name: pending.reply or b"" for name, pending in self._requests.items()}
                    left = end - now
                    if left <= 0.0:
                        raise PartyUnavailable(self._name_silent(open_ones, seconds))
                    self._send_open(open_ones)
                    self._changed.wait(min(left, _TICK))
            finally:
                self._requests = {}

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """End every wait: the coordinator is being stopped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def on_session(self, party: str) -> None:
        """The party has started, or come back: the request may have been lost, so it is sent again."""
        with self._changed:
            if party in self._requests:
                self._requests[party].sent = None
            self._changed.notify_all()

    def on_message(self, party: str, topic: Topic, key: str, body: bytes) -> None:
        if topic not in ("answer", "refusal", "working"):
            raise ProtocolError("a party replies; it sends no requests")
        with self._changed:
            pending = self._requests.get(party)
            if pending is None or pending.key != key:
                logger.info("dropped: %s of %s to a request that is not open, or not its own", topic, party)
                return
            if topic == "answer":
                pending.reply = body
            elif topic == "refusal":
                pending.refusal = as_error(decode(body, (Refusal,)))
            elif topic == "working":
                decode(body, (InProgress,))
                pending.sent = time.monotonic()
            self._changed.notify_all()

    def _send_open(self, names: tuple[str, ...]) -> None:
        now = time.monotonic()
        for name in names:
            pending = self._requests[name]
            if (pending.sent is None or now - pending.sent > _RESEND_AFTER) and self.sessions.send(
                name, "ask", pending.key, pending.body
            ):
                pending.sent = now

    def _raise_refusal(self) -> None:
        if self._closed:
            raise ProtocolError("the coordinator was stopped")
        for pending in self._requests.values():
            if pending.refusal is not None:
                raise pending.refusal

    def _name_silent(self, names: tuple[str, ...], seconds: float) -> str:
        away = [name for name in names if not self.sessions.connected(name)]
        who = ", ".join(f"{name!r}{' (not connected)' if name in away else ''}" for name in names)
        plural = "parties" if len(names) > 1 else "party"
        kept = "what was released is kept, and the study can be resumed"
        return f"{plural} {who} did not answer within {seconds:g} s; {kept}"


def as_error(refusal: Refusal) -> VerticopulaError:
    """A party's refusal as the exception that it names; its text is a peer's, so it is sanitized."""
    reason = sanitize(refusal.reason, _LONGEST_REASON - len(" …"))
    kind = getattr(errors, refusal.kind, None)
    allowed = (errors.PolicyRefused, errors.BudgetExceeded, errors.LedgerError, errors.VersionMismatch, ProtocolError)
    return kind(reason) if kind in allowed else ProtocolError(reason)


@dataclass
class NetworkTransport:
    """Delivers a protocol's rounds to parties in other processes, and journals every round.

    A round that the journal holds is not sent again: fed with the same replies, a protocol makes the same requests,
    so a study goes on after a crash where it stood.
    """

    pending: PendingRequests
    journal: Journal
    seconds: float
    on_waiting: Callable[[int, tuple[str, ...]], None] = lambda number, names: None
    on_kept: Callable[[], None] = lambda: None
    number: int = 0

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        self.number += 1
        keys = {name: fingerprint(request) for name, request in requests.items()}
        bodies = self.journal.next_round(keys)
        if bodies is None:
            coded = {name: (keys[name], encode(request)) for name, request in requests.items()}
            bodies = self.pending.await_replies(coded, self.seconds, lambda names: self.on_waiting(self.number, names))
            replies = _read(bodies)
            self.journal.append(keys, bodies)
            self.on_kept()
            return replies
        return _read(bodies)


def _read(bodies: Mapping[str, bytes]) -> dict[str, Reply]:
    replies: dict[str, Reply] = {}
    for name, body in bodies.items():
        try:
            replies[name] = decode(body, REPLY_KINDS)
        except ProtocolError as error:
            raise type(error)(f"party {name!r}: {error}") from None
        if replies[name].party != name:
            raise ProtocolError(f"party {name!r} answered under another name")
    return replies
