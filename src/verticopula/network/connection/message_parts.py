"""Long messages between two ends, in both directions: announced, asked for part by part, and handed over as a file."""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from verticopula.errors import ProtocolError, VerticopulaError
from verticopula.network.connection.control_messages import Topic
from verticopula.network.connection.incoming_parts import DishonestSender, IncomingMessage, IncomingParts
from verticopula.network.connection.part_messages import MessagePart, PartRequest, PartsNotice, announce, read_part
from verticopula.network.connection.sanitizing import frames_of
from verticopula.protocol.message_files import Body, encode_or_write
from verticopula.protocol.wire import encode

logger = logging.getLogger(__name__)

GIB = 2**30
_MOST_OUTGOING = 4  # announced to one peer at a time; a party has one open request, or a few after studies failed
_MOST_QUEUED = 4  # messages that wait to be sent to one peer; who takes what it asks for has none
_PATIENCE = 300.0  # seconds after which a part that did not come is asked for again
_OUTGOING = ".out"

Send = Callable[[str, Topic, str, bytes], bool]


@dataclass(frozen=True)
class PartsRules:
    """What an end says about long messages from its peers.

    Attributes
    ----------
    admit : called with peer, key and notice before anything is asked for; the most bytes that such a message may
        have, None where it is not wanted now, and ProtocolError where it is refused
    on_progress : called with peer and key whenever a part has come or gone
    on_broken : called with peer, topic, key and the reason where a message that was announced will not come
    """

    admit: Callable[[str, str, PartsNotice], int | None] = lambda peer, key, notice: GIB
    on_progress: Callable[[str, str], None] = lambda peer, key: None
    on_broken: Callable[[str, Topic, str, str], None] = lambda peer, topic, key, reason: None


@dataclass
class _Outgoing:
    """A message that a peer may ask for."""

    notice: PartsNotice
    body: Body


@dataclass
class MessageParts:
    """One process's long messages.

    Parameters
    ----------
    part_bytes : of a part, sent or received
    send : sends a message within its peer's session
    deliver : called with peer, topic, key and the file of a message that is whole
    session_of : the session in which a peer is spoken to now
    queued : how many messages to a peer wait to be sent
    rules : about messages from peers
    folder : where they lie; None for a temporary one, which is gone with the process
    clock : seconds of a clock that is never set
    """

    part_bytes: int
    send: Send
    deliver: Callable[[str, Topic, str, Path], None]
    session_of: Callable[[str], str]
    queued: Callable[[str], int] = lambda peer: 0
    rules: PartsRules = PartsRules()
    folder: Path | None = None
    clock: Callable[[], float] = time.monotonic
    _outgoing: dict[tuple[str, str], _Outgoing] = field(default_factory=dict)  # by peer and key
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self._temporary = self.folder is None
        self.incoming = IncomingParts(
            self.folder or Path(tempfile.gettempdir()) / f"verticopula-{secrets.token_hex(8)}"
        )

    def start(self) -> None:
        """Clear away what an earlier process has left and nobody needs."""
        for path in self.incoming.folder.glob(f"*{_OUTGOING}"):
            path.unlink(missing_ok=True)
        self.incoming.prepare()

    def stop(self) -> None:
        if self._temporary:
            shutil.rmtree(self.incoming.folder, ignore_errors=True)

    # ---- sending --------------------------------------------------------------------------

    def pack(self, message: Any) -> Body:
        """A message as it is sent: its bytes, or a file where it is longer than a part."""
        path = self.incoming.folder / f"{secrets.token_hex(16)}{_OUTGOING}"
        try:
            return encode_or_write(message, path, self.part_bytes)
        except OSError:
            path.unlink(missing_ok=True)
            raise

    def announce(self, peer: str, topic: Literal["ask", "answer"], key: str, body: Body, study: str, most: int) -> bool:
        """Whether the peer was told that it can ask for the message. The file belongs to this from now on.

        Parameters
        ----------
        peer, topic, key, body : as they are sent
        study : which the message is about
        most : bytes of a part that the peer takes
        """
        with self._lock:
            known = self._outgoing.get((peer, key))
        if known is None or known.body is not body:
            known = _Outgoing(announce(topic, study, body, min(most, self.part_bytes)), body)
            self.discard(peer, key)
            with self._lock:
                self._outgoing[peer, key] = known
                own = [at for at in self._outgoing if at[0] == peer]
            for at in own[:-_MOST_OUTGOING]:
                self.discard(*at)
        return self.send(peer, "parts", key, encode(known.notice))

    def discard(self, peer: str, key: str | None = None) -> None:
        """Nobody will ask for a message any more; for none of the peer's, where no key is given."""
        with self._lock:
            gone = [at for at in self._outgoing if at[0] == peer and key in (None, at[1])]
            found = [self._outgoing.pop(at).body for at in gone]
        for body in found:
            self.throw_away(body)

    def forget(self, study: str) -> None:
        """A study has ended: remove what has come about it, and what of it waits to be asked for.

        Parameters
        ----------
        study : its name
        """
        with self._lock:
            waiting = [at for at, known in self._outgoing.items() if known.notice.study == study]
        for at in waiting:
            self.discard(*at)
        self.incoming.forget(study)

    @staticmethod
    def throw_away(body: Body) -> None:
        """Remove what `pack` has made, where it is a file."""
        if isinstance(body, Path):
            body.unlink(missing_ok=True)

    def on_request(self, peer: str, key: str, request: PartRequest) -> None:
        """Send the part that a peer asks for."""
        with self._lock:
            known = self._outgoing.get((peer, key))
        if known is None or known.notice.name != request.name:
            raise ProtocolError("it asks for a part of a message that was not announced, or is not sent any more")
        if request.number == known.notice.parts:
            if known.notice.topic == "answer":  # a request may have to be announced again, if its receiver is restarted
                self.discard(peer, key)
        elif self.queued(peer) > _MOST_QUEUED:
            raise ProtocolError("it asks for parts faster than it takes them")
        elif 0 <= request.number < known.notice.parts:
            data = np.frombuffer(read_part(known.body, known.notice, request.number), dtype=np.uint8)
            self.send(peer, "part", key, encode(MessagePart(request.name, request.number, data)))
        else:
            raise ProtocolError(f"it asks for part {request.number + 1} of {known.notice.parts}")
        self.rules.on_progress(peer, key)

    # ---- receiving ------------------------------------------------------------------------

    def is_receiving(self, peer: str, key: str) -> bool:
        """Whether parts of a message are on their way."""
        found = self.incoming.waits_for(peer, key)
        return found is not None and self._is_asked(peer, found)

    def on_notice(self, peer: str, key: str, notice: PartsNotice) -> None:
        """Ask for the first part that is missing."""
        try:
            most = self.rules.admit(peer, key, notice)
            if most is None:
                return
            notice.check(self.part_bytes, most)
            found = self.incoming.begin(peer, key, notice)
        except (ProtocolError, OSError) as error:
            self._break_off(peer, key, notice, error)
            raise
        there = notice.parts - len(found.missing)
        if there and not self._is_asked(peer, found):
            logger.info("%d of %d parts of a message of %s are here already", there, notice.parts, peer)
        self._go_on(peer, found)

    def on_part(self, peer: str, key: str, part: MessagePart) -> None:
        """Put a part in its place, and ask for the next one."""
        topic: Topic = "answer"
        waited = self.incoming.waits_for(peer, key)
        if waited is not None:
            topic = waited.notice.topic
        try:
            found = self.incoming.take(peer, key, part)
        except (DishonestSender, OSError) as error:
            if isinstance(error, OSError):
                logger.error("disk: %s: %s", _describe(error), frames_of(error))
            self.rules.on_broken(peer, topic, key, _describe(error))
            raise
        self.rules.on_progress(peer, key)
        self._go_on(peer, found)

    def give_back(self, body: Body, *, keep: bool = False) -> None:
        """What was handed over is not needed any more, or may `keep` lying there until something else comes."""
        if isinstance(body, Path):
            self.incoming.give_back(body, keep=keep)

    def _go_on(self, peer: str, found: IncomingMessage) -> None:
        notice = found.notice
        if found.missing:
            if not self._is_asked(peer, found) and self.rules.admit(peer, found.key, notice) is not None:
                found.asked = self.clock(), self.session_of(peer)
                self.send(peer, "want", found.key, encode(PartRequest(notice.name, found.missing[-1])))
            return
        path = self.incoming.hand_over(peer)
        self.send(peer, "want", found.key, encode(PartRequest(notice.name, notice.parts)))
        try:
            self.deliver(peer, notice.topic, found.key, path)
        except VerticopulaError:
            self.incoming.give_back(path)
            raise

    def _is_asked(self, peer: str, found: IncomingMessage) -> bool:
        """Whether a part is on its way: asked for in this session, and not long ago."""
        if found.asked is None:
            return False
        when, session = found.asked
        return session == self.session_of(peer) and self.clock() - when < _PATIENCE

    def _break_off(self, peer: str, key: str, notice: PartsNotice, error: Exception) -> None:
        with contextlib.suppress(ProtocolError):
            self.rules.on_broken(peer, notice.topic, key, _describe(error))


def _describe(error: Exception) -> str:
    """What a peer may be told."""
    if isinstance(error, OSError):
        return os.strerror(error.errno) if error.errno else type(error).__name__
    return str(error)
