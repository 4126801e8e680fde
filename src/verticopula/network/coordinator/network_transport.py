"""The coordinator's side of a round: send requests, send them again after a crash, name who does not reply in time."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from verticopula.errors import PartyUnavailable, ProtocolError, VerticopulaError
from verticopula.network.connection.control_messages import InProgress, Refusal, Topic
from verticopula.network.connection.part_messages import PartsNotice
from verticopula.network.connection.refusal_errors import as_error
from verticopula.network.connection.sessions import PeerSessions
from verticopula.protocol.message_files import Body
from verticopula.protocol.message_sizes import ANY_STUDY, most_message_bytes
from verticopula.protocol.messages import REPLY_KINDS, Reply, Request, fingerprint
from verticopula.protocol.study_messages import BeginRequest, PlaceReply, SignedAsking
from verticopula.protocol.wire import decode
from verticopula.schema.federation import Federation
from verticopula.storage.round_journal import Journal

logger = logging.getLogger(__name__)

_RESEND_AFTER = 20.0  # seconds without a message about the request
_TICK = 1.0


class StewardsAsked(ProtocolError):
    """All that a round lacks is the decision of people; `since` has party -> when its stewards were asked."""

    def __init__(self, since: Mapping[str, float]) -> None:
        super().__init__(f"waiting for the stewards of {', '.join(map(repr, since))}")
        self.since = dict(since)


class StudyCancelled(ProtocolError):
    """The study lead does not want the study any more."""


@dataclass
class _PendingRequest:
    """The request to one party, and its reply once it is there.

    `sent` : when it was last sent or confirmed; None if it has to be sent
    `asked` : when the party's stewards were asked; None unless it waits for them
    """

    key: str
    body: Body
    sent: float | None = None
    asked: float | None = None
    reply: Body | None = None
    refusal: VerticopulaError | None = None


@dataclass
class PendingRequests:
    """Requests of the current round that parties have not replied to. `on_message` is called from any thread.

    A round that lacks nothing but the decision of people is given up, without a deadline: `StewardsAsked`. Its requests
    are set aside, and `on_decided` is called with its study once one of the parties concerned has more to say.
    `refused` says why a party cannot connect, as it was told itself; a round does not wait for that party.
    `deadlines_from` is a moment of `time.monotonic` before which no deadline counts. A long reply comes in parts:
    `admit`, `on_progress` and `on_broken` are what sessions ask and say about it.
    """

    sessions: PeerSessions
    on_decided: Callable[[str], None] = lambda study: None
    refused: Callable[[str], str] = lambda name: ""
    deadlines_from: float = 0.0
    _requests: dict[str, _PendingRequest] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _aside: dict[tuple[str, str], str] = field(default_factory=dict)  # party and key -> study
    _study: str = ""
    _most_bytes: int = ANY_STUDY  # of one reply in this round
    _cancelled: set[str] = field(default_factory=set)
    _closed: bool = False

    def await_replies(
        self,
        requests: Mapping[str, tuple[str, Body]],
        seconds: float,
        on_waiting: Callable[[tuple[str, ...]], None] = lambda names: None,
        study: str = "",
        most_bytes: int = ANY_STUDY,
    ) -> dict[str, Body]:
        """Every party's reply; the first refusal is raised, and PartyUnavailable when the time is over.

        StewardsAsked where all others have replied; nobody's time runs while people think.

        Parameters
        ----------
        requests : party -> key and body; the same key again gets the same reply
        most_bytes : of one reply
        """
        before = time.monotonic()
        end = max(before, self.deadlines_from) + seconds
        with self._changed:
            self._requests = {name: _PendingRequest(key, body) for name, (key, body) in requests.items()}
            self._study, self._most_bytes = study, most_bytes
            self._aside = {at: other for at, other in self._aside.items() if other != study}
            taken = False
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
                        taken = True
                        return {name: pending.reply or b"" for name, pending in self._requests.items()}
                    self._raise_refused(open_ones)
                    asked = {name: self._requests[name].asked for name in open_ones}
                    people = {name: since for name, since in asked.items() if since is not None}
                    if len(people) == len(open_ones):
                        self._aside |= {(name, self._requests[name].key): study for name in people}
                        raise StewardsAsked(people)
                    left = end - now
                    if left <= 0.0:
                        silent = tuple(name for name in open_ones if name not in people)
                        raise PartyUnavailable(self._name_silent(silent, seconds))
                    self._send_open(open_ones)
                    self._changed.wait(min(left, _TICK))
            finally:
                self._clear(taken)
                self._requests, self._study = {}, ""

    def _clear(self, taken: bool) -> None:
        """Nobody asks for these requests any more; replies that nobody takes may be of use to who asks again."""
        for name, pending in self._requests.items():
            self.sessions.parts.discard(name, pending.key)
            self.sessions.parts.throw_away(pending.body)
            if pending.reply is not None and not taken:
                self.sessions.parts.give_back(pending.reply, keep=True)

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """End every wait: the coordinator is being stopped."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def cancel(self, study: str) -> None:
        """End the wait of this study, whatever it waits for."""
        with self._changed:
            self._cancelled.add(study)
            self._aside = {at: other for at, other in self._aside.items() if other != study}
            self._changed.notify_all()

    def on_session(self, party: str) -> None:
        """The party has started, or come back: the request may have been lost, so it is sent again."""
        with self._changed:
            if party in self._requests:
                self._requests[party].sent = self._requests[party].asked = None
            self._changed.notify_all()
            self._take_up(lambda name, key: name == party)

    def _take_up(self, is_meant: Callable[[str, str], bool]) -> None:
        """Go on with the studies whose requests were set aside and are meant."""
        found = [(at, study) for at, study in self._aside.items() if is_meant(*at)]
        for at, study in found:
            del self._aside[at]
            self.on_decided(study)

    def admit(self, party: str, key: str, notice: PartsNotice) -> int | None:
        """How long a party's reply may be that it sends in parts; None where nobody waits for it."""
        with self._changed:
            pending = self._requests.get(party)
            if notice.topic != "answer":
                raise ProtocolError("a party replies; it sends no requests")
            if pending is None or pending.key != key or pending.reply is not None:
                logger.info("not taken: a long reply of %s to a request that is not open, or not its own", party)
                return None
            if self._study and notice.study != self._study:
                raise ProtocolError("its reply says that it is about another study")
            pending.sent, pending.asked = time.monotonic(), None
            return self._most_bytes

    def on_progress(self, party: str, key: str) -> None:
        """Parts come and go: the request need not be sent again."""
        with self._changed:
            pending = self._requests.get(party)
            if pending is not None and pending.key == key:
                pending.sent = time.monotonic()

    def on_broken(self, party: str, topic: Topic, key: str, reason: str) -> None:
        """A party's reply will not come, or not as it was announced: the round ends."""
        with self._changed:
            pending = self._requests.get(party)
            if pending is not None and pending.key == key:
                pending.refusal = ProtocolError(f"party {party!r}: its reply was not taken: {reason}")
                self._changed.notify_all()

    def on_message(self, party: str, topic: Topic, key: str, body: Body) -> None:
        if topic not in ("answer", "refusal", "working"):
            raise ProtocolError("a party replies; it sends no requests")
        with self._changed:
            pending = self._requests.get(party)
            is_aside = (party, key) in self._aside
            if is_aside or pending is None or pending.key != key:
                self.sessions.parts.give_back(body, keep=True)
            if is_aside:
                said = decode(body, (InProgress,)).waits_for if topic == "working" else topic
                if said != "steward":
                    self._take_up(lambda *at: at == (party, key))
                return
            if pending is None or pending.key != key:
                logger.info("dropped: %s of %s to a request that is not open, or not its own", topic, party)
                return
            if topic == "answer":
                pending.reply = body
            elif topic == "refusal":
                pending.refusal = as_error(decode(body, (Refusal,)))
            elif topic == "working":
                said = decode(body, (InProgress,))
                if pending.asked is not None and said.waits_for == "computation":
                    pending.sent = None  # its stewards have decided: it wants the request again
                else:
                    pending.sent = time.monotonic()
                pending.asked = said.since if said.waits_for == "steward" else None
            self._changed.notify_all()

    def _send_open(self, names: tuple[str, ...]) -> None:
        now = time.monotonic()
        for name in names:
            pending = self._requests[name]
            is_due = pending.sent is None or now - pending.sent > _RESEND_AFTER
            if not is_due or self.sessions.parts.is_receiving(name, pending.key):
                continue
            if self.sessions.send(name, "ask", pending.key, pending.body, self._study):
                pending.sent = now

    def _raise_refusal(self) -> None:
        if self._closed:
            raise ProtocolError("the coordinator was stopped")
        if self._study in self._cancelled:
            raise StudyCancelled("cancelled by the study lead")
        for pending in self._requests.values():
            if pending.refusal is not None:
                raise pending.refusal

    def _raise_refused(self, names: tuple[str, ...]) -> None:
        """PartyUnavailable where a party was told why it cannot connect: nobody waits for its deadline."""
        for name in names:
            if reason := self.refused(name):
                kept = "what was released is kept, and the study can be resumed"
                raise PartyUnavailable(f"party {name!r} cannot take part: {reason}; {kept}")

    def _name_silent(self, names: tuple[str, ...], seconds: float) -> str:
        away = [name for name in names if not self.sessions.connected(name)]
        who = ", ".join(f"{name!r}{' (not connected)' if name in away else ''}" for name in names)
        plural = "parties" if len(names) > 1 else "party"
        kept = "what was released is kept, and the study can be resumed"
        return f"{plural} {who} did not answer within {seconds:g} s; {kept}"


@dataclass
class NetworkTransport:
    """Delivers a protocol's rounds to parties in other processes, and journals every round.

    A round that the journal holds is not sent again: fed with the same replies, a protocol makes the same requests,
    so a study goes on after a crash where it stood.

    `asking` : what the lead has signed; every party is shown it when the study begins
    `federation` : of the study; from it and the number of subjects follows how long a reply may be. Before that number
    is known, and without a federation, `most_bytes` says it
    """

    pending: PendingRequests
    journal: Journal
    seconds: float
    on_waiting: Callable[[int, tuple[str, ...]], None] = lambda number, names: None
    on_kept: Callable[[], None] = lambda: None
    number: int = 0
    study: str = ""
    asking: SignedAsking | None = None
    federation: Federation | None = None
    most_bytes: int = ANY_STUDY
    subjects: int = 0

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        self.number += 1
        requests = {name: self._signed(request) for name, request in requests.items()}
        keys = {name: fingerprint(request) for name, request in requests.items()}
        bodies = self.journal.next_round(keys)
        if bodies is None:
            coded = {
                name: (keys[name], self.pending.sessions.parts.pack(request)) for name, request in requests.items()
            }
            bodies = self.pending.await_replies(
                coded, self.seconds, lambda names: self.on_waiting(self.number, names), self.study, self._most_reply()
            )
            replies = self._keep(keys, bodies)
            self.on_kept()
            return replies
        return self._read(bodies)

    def _keep(self, keys: Mapping[str, str], bodies: Mapping[str, Body]) -> dict[str, Reply]:
        """The replies, which are in the journal now. Files that it could not take stay, if they make sense."""
        is_useful = False
        try:
            replies = self._read(bodies)
            is_useful = True
            self.journal.append(keys, bodies)
            is_useful = False
        finally:
            for body in bodies.values():
                self.pending.sessions.parts.give_back(body, keep=is_useful)
        return replies

    def _read(self, bodies: Mapping[str, Body]) -> dict[str, Reply]:
        replies = _read(bodies)
        sizes = [reply.n_subjects for reply in replies.values() if isinstance(reply, PlaceReply)]
        self.subjects = max(sizes, default=self.subjects)
        return replies

    def _most_reply(self) -> int:
        """How many bytes one reply may have, from what is public."""
        if self.federation is None or not self.subjects:
            return self.most_bytes
        return min(self.most_bytes, most_message_bytes(self.federation, self.subjects))

    def _signed(self, request: Request) -> Request:
        """The request with the lead's signature, if it is one that begins the study."""
        return replace(request, asking=self.asking) if isinstance(request, BeginRequest) else request


def _read(bodies: Mapping[str, Body]) -> dict[str, Reply]:
    replies: dict[str, Reply] = {}
    for name, body in bodies.items():
        try:
            replies[name] = decode(body, REPLY_KINDS)
        except ProtocolError as error:
            raise type(error)(f"party {name!r}: {error}") from None
        if replies[name].party != name:
            raise ProtocolError(f"party {name!r} answered under another name")
    return replies
