"""Letters over a link: who is who in which session, none accepted twice, all checked before anybody reads them."""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version

import numpy as np

from verticopula.errors import ProtocolError
from verticopula.network.control_messages import Envelope, Greeting, Topic
from verticopula.network.flare_link import MOST_BYTES, Link, peers_of
from verticopula.network.startup_kit import COORDINATOR, Kit
from verticopula.protocol.wire import decode, encode

logger = logging.getLogger(__name__)

_WINDOW = 1000  # letters may overtake one another by this many
_HELLO_AGAIN = 2.0  # seconds without a welcome
_HELLO_ANYWAY = 8  # every so many of those
_MOST_HELLOS = 30.0  # at once; each makes the other side write, whether it is read or not
_HELLOS_A_SECOND = 2.0

OnLetter = Callable[[str, Topic, str, bytes], None]


@dataclass
class _Peer:
    """What is known of one other end.

    Attributes
    ----------
    session : what we write to it under; empty before it has told us
    own : what it must write to us under; another one whenever the line was lost, so that no letter outlives it
    """

    session: str = ""
    own: str = field(default_factory=lambda: secrets.token_hex(16))
    serials: itertools.count[int] = field(default_factory=itertools.count)
    seen: set[int] = field(default_factory=set)
    newest: int = -1


@dataclass
class _Patience:
    """How many more greetings of one peer are read; it comes back with time."""

    left: float = _MOST_HELLOS
    at: float = field(default_factory=time.monotonic)

    def ask(self) -> bool:
        now = time.monotonic()
        self.left = min(_MOST_HELLOS, self.left + (now - self.at) * _HELLOS_A_SECOND)
        self.at = now
        if self.left < 1.0:
            return False
        self.left -= 1.0
        return True


class Post:
    """Sends and receives letters.

    Parameters
    ----------
    on_letter : called with (peer, topic, key, body) for every letter but greetings
    on_session : called with a peer's name when it has started or come back, and can be written to
    """

    def __init__(
        self,
        kit: Kit,
        on_letter: OnLetter,
        on_session: Callable[[str], None] = lambda peer: None,
        *,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._kit, self._on_letter, self._on_session = kit, on_letter, on_session
        self._peers = {name: _Peer() for name in peers_of(kit)}
        self._patience = {name: _Patience() for name in peers_of(kit)}
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._link = Link(kit, peers_of(kit), self._on_bytes, self._on_peer, most_bytes=most_bytes)

    def start(self) -> None:
        self._link.start()
        if self._kit.role != "coordinator":
            threading.Thread(target=self._greet, name="greeter", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        self._link.stop()

    def connected(self, peer: str) -> bool:
        return bool(self._peers[peer].session)

    def send(self, peer: str, topic: Topic, key: str, body: bytes) -> bool:
        """Whether the letter is on its way; False while the peer is away."""
        with self._lock:
            known = self._peers[peer]
            session, serial = known.session, next(known.serials)
        if not session:
            return False
        return self._send(peer, topic, session, serial, key, body)

    # ---- greetings ------------------------------------------------------------------------

    def _greet(self) -> None:
        """Say hello until welcomed, and again whenever the line was lost.

        Now and then also when nothing seems to have happened: the other side may have thought that the line was lost.
        """
        for tick in itertools.count():
            if self._stopped.is_set():
                return
            if not self.connected(COORDINATOR) or tick % _HELLO_ANYWAY == 0:
                self._send(COORDINATOR, "hello", "", 0, "", self._greeting(COORDINATOR))
            self._stopped.wait(_HELLO_AGAIN)

    def _greeting(self, peer: str) -> bytes:
        return encode(Greeting(self._peers[peer].own, version("verticopula")))

    def _on_peer(self, peer: str, connected: bool) -> None:
        with self._lock:
            # Even if it is back at once: a new session is agreed on first.
            self._peers[peer] = _Peer(serials=self._peers[peer].serials)
        if connected and self._kit.role != "coordinator":
            self._send(peer, "hello", "", 0, "", self._greeting(peer))

    def _on_greeting(self, peer: str, envelope: Envelope) -> None:
        greeting = decode(envelope.body.tobytes(), (Greeting,))
        with self._lock:
            if not self._patience[peer].ask():
                raise ProtocolError("too many greetings")
            known = self._peers[peer]
            is_new = known.session != greeting.session
            if is_new and envelope.topic == "hello":
                self._peers[peer] = _Peer(greeting.session, serials=known.serials)
            elif is_new:  # what we are called stays: the welcome answers that
                self._peers[peer] = _Peer(greeting.session, known.own, known.serials)
        if envelope.topic == "hello":
            self._send(peer, "welcome", greeting.session, next(known.serials), "", self._greeting(peer))
        if is_new:
            self._on_session(peer)

    # ---- letters --------------------------------------------------------------------------

    def _send(self, peer: str, topic: Topic, session: str, serial: int, key: str, body: bytes) -> bool:
        envelope = Envelope(topic, session, serial, key, np.frombuffer(body, dtype=np.uint8))
        return self._link.send(peer, encode(envelope))

    def _on_bytes(self, peer: str, payload: bytes) -> None:
        try:
            envelope = decode(payload, (Envelope,))
            if envelope.topic == "hello" or envelope.topic == "welcome":
                if (envelope.topic == "hello") != (self._kit.role == "coordinator"):
                    raise ProtocolError("a greeting in the wrong direction")
                if envelope.topic == "welcome" and envelope.session != self._peers[peer].own:
                    raise ProtocolError("a welcome to another session")
                self._on_greeting(peer, envelope)
                return
            self._check_fresh(peer, envelope)
            self._on_letter(peer, envelope.topic, envelope.key, envelope.body.tobytes())
        except ProtocolError as error:
            logger.warning("refused a letter from %s: %s", peer, error)
        except Exception as error:  # a thread of the link must not end; content stays out of the log
            logger.error("a letter from %s could not be handled (%s)", peer, type(error).__name__)

    def _check_fresh(self, peer: str, envelope: Envelope) -> None:
        """ProtocolError for a letter of another session, or one that was here before."""
        with self._lock:
            known = self._peers[peer]
            if envelope.session != known.own:
                raise ProtocolError("it belongs to an earlier session")
            if envelope.serial in known.seen or envelope.serial <= known.newest - _WINDOW:
                raise ProtocolError("it was received before")
            known.seen.add(envelope.serial)
            if envelope.serial > known.newest:
                known.newest = envelope.serial
                if len(known.seen) > 2 * _WINDOW:
                    known.seen = {serial for serial in known.seen if serial > known.newest - _WINDOW}
