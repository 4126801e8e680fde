"""Sessions over a link: every message belongs to one session, is accepted once, and is checked before it is handled."""

from __future__ import annotations

import itertools
import logging
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np

from verticopula.errors import ProtocolError, VersionMismatch
from verticopula.network.connection.control_messages import Envelope, Greeting, Topic
from verticopula.network.connection.flare_link import Link, LinkProblem, lead_of, leads_of, part_bytes_of, peers_of
from verticopula.network.connection.message_parts import MessageParts, PartsRules
from verticopula.network.connection.part_messages import MessagePart, PartRequest, PartsNotice
from verticopula.network.connection.peer_admission import PeerAdmission
from verticopula.network.connection.token_bucket import TokenBucket
from verticopula.network.connection.traffic import TrafficCounts
from verticopula.network.kit.startup_kit import Kit
from verticopula.protocol.message_files import Body, body_size
from verticopula.protocol.wire import decode, encode
from verticopula.schema.defaults import COORDINATOR
from verticopula.schema.federation import Federation

logger = logging.getLogger(__name__)

_WINDOW = 1000  # serial numbers by which messages may arrive out of order
_HELLO_INTERVAL = 2.0  # seconds between hellos without a welcome
_HELLO_REFRESH = 8  # also with a session, a hello is sent every so many intervals
_GREETING_BURST = 30.0  # greetings that one peer may send at once; each makes this side send something
_GREETINGS_PER_SECOND = 2.0

OnMessage = Callable[[str, Topic, str, Body], None]


@dataclass
class _Peer:
    """The session state of one peer.

    Attributes
    ----------
    session : the session number for messages to it; empty before it has sent one
    own : the session number that its messages must carry; a new one after every lost connection, so that no message
        of the old connection is accepted
    """

    session: str = ""
    own: str = field(default_factory=lambda: secrets.token_hex(16))
    serials: itertools.count[int] = field(default_factory=itertools.count)
    seen: set[int] = field(default_factory=set)
    newest: int = -1


def _greeting_limit() -> TokenBucket:
    """How many more greetings of one peer are accepted now."""
    return TokenBucket(_GREETING_BURST, _GREETINGS_PER_SECOND)


class PeerSessions:
    """Sends messages to peers and receives theirs, each within a session that both sides have agreed on.

    Parameters
    ----------
    on_message : called with (peer, topic, key, body) for every message but greetings and parts; a body that came in
        parts is a file, to be given back
    on_session : called with a peer's name when a new session with it has begun
    parts : what this end says about messages that come in parts; None for a few rules that fit anybody
    folder : where those lie; None for a temporary folder

    Attributes
    ----------
    traffic : what was sent and received, for metrics
    """

    def __init__(
        self,
        kit: Kit,
        on_message: OnMessage,
        on_session: Callable[[str], None] = lambda peer: None,
        *,
        parts: PartsRules | None = None,
        folder: Path | None = None,
    ) -> None:
        self._kit, self._on_message, self._on_session = kit, on_message, on_session
        self._peers = {name: _Peer() for name in peers_of(kit)}
        self._leads = leads_of(kit)
        self._greeting_limits = {name: _greeting_limit() for name in peers_of(kit)}
        self.traffic = TrafficCounts()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        part_bytes = part_bytes_of(kit)
        self._link = Link(kit, peers_of(kit), self._on_bytes, self._on_peer, part_bytes=part_bytes)
        self.parts = MessageParts(
            part_bytes,
            self._send_small,
            on_message,
            self._session_of,
            self._link.queued,
            parts or PartsRules(),
            folder,
        )

    def start(self) -> None:
        self.parts.start()
        self._link.start()
        if self._kit.role != "coordinator":
            threading.Thread(target=self._greet, name="greeter", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        self._link.stop()
        self.parts.stop()

    def connected(self, peer: str) -> bool:
        known = self._peers.get(peer)
        return known is not None and bool(known.session)

    @property
    def problem(self) -> LinkProblem:
        """Why there is no connection to the coordinator."""
        return self._link.problem

    @property
    def admission(self) -> PeerAdmission | None:
        """Who may connect, at the coordinator's end."""
        return self._link.admission

    def use(self, federation: Federation, also: frozenset[str] = frozenset()) -> None:
        """Talk to the peers of this federation file from now on, and to these others."""
        peers = peers_of(self._kit, federation) | also
        with self._lock:
            self._leads = leads_of(self._kit, federation)
            for name in peers - set(self._peers):
                self._peers[name] = _Peer()
                self._greeting_limits[name] = _greeting_limit()
        self._link.use_peers(federation, peers)

    def review(self) -> None:
        """Look at certificates and notices again now."""
        self._link.review()

    def send(self, peer: str, topic: Topic, key: str, body: Body, study: str = "") -> bool:
        """Whether the message was handed to the link; False while there is no session with the peer.

        One that is longer than a part is announced, and sent as the peer asks for it. VersionMismatch where it cannot.

        Parameters
        ----------
        peer, topic, key : of the envelope
        body : as `MessageParts.pack` makes it; a file belongs to that once this is True
        study : which a long message is about
        """
        takes, size = self._link.part_bytes_at(peer), body_size(body)
        most = min(takes or self.parts.part_bytes, self.parts.part_bytes)
        if isinstance(body, bytes) and (topic not in ("ask", "answer") or size <= most):
            return self._send_small(peer, topic, key, body)
        if not self.connected(peer) or topic not in ("ask", "answer"):
            return False
        if not takes:
            raise VersionMismatch(
                f"{peer!r} runs a release of verticopula that takes no message in parts, and this one has "
                f"{size:,} bytes; install the same release at both"
            )
        return self.parts.announce(peer, topic, key, body, study, most)

    def _send_small(self, peer: str, topic: Topic, key: str, body: bytes) -> bool:
        with self._lock:
            if peer not in self._peers and not lead_of(peer, self._leads):
                return False
            known = self._peer(peer)
            session, serial = known.session, next(known.serials)
        if not session:
            return False
        return self._send(peer, topic, session, serial, key, body)

    def _session_of(self, peer: str) -> str:
        """In which session a peer is spoken to; "" without one."""
        known = self._peers.get(peer)
        return "" if known is None else known.session

    def _peer(self, peer: str) -> _Peer:
        """The session state of a peer; programs of the study lead come and go. Called with the lock held."""
        return self._peers.setdefault(peer, _Peer()) if lead_of(peer, self._leads) else self._peers[peer]

    # ---- greetings ------------------------------------------------------------------------

    def _greet(self) -> None:
        """Send hellos until a welcome comes, and again whenever the connection was lost.

        From time to time also within a session: the other side may have lost the connection unnoticed here.
        """
        for tick in itertools.count():
            if self._stopped.is_set():
                return
            if not self.connected(COORDINATOR) or tick % _HELLO_REFRESH == 0:
                self._send(COORDINATOR, "hello", "", 0, "", self._greeting(COORDINATOR))
            self._stopped.wait(_HELLO_INTERVAL)

    def _greeting(self, peer: str) -> bytes:
        return encode(Greeting(self._peer(peer).own, version("verticopula")))

    def _on_peer(self, peer: str, connected: bool) -> None:
        with self._lock:
            if lead_of(peer, self._leads) and not connected:
                self._peers.pop(peer, None)
                self.parts.discard(peer)
                return
            # Also if it is back at once: a new session is agreed on first.
            self._peers[peer] = _Peer(serials=self._peer(peer).serials)
        if connected and self._kit.role != "coordinator":
            self._send(peer, "hello", "", 0, "", self._greeting(peer))

    def _on_greeting(self, peer: str, envelope: Envelope) -> None:
        greeting = decode(envelope.body.tobytes(), (Greeting,))
        with self._lock:
            if not self._greeting_limits[lead_of(peer, self._leads) or peer].take():
                raise ProtocolError("too many greetings")
            known = self._peer(peer)
            is_new = known.session != greeting.session
            if is_new and envelope.topic == "hello":
                self._peers[peer] = _Peer(greeting.session, serials=known.serials)
            elif is_new:  # our own number stays: the welcome answers the hello that carried it
                self._peers[peer] = _Peer(greeting.session, known.own, known.serials)
        if envelope.topic == "hello":
            self._send(peer, "welcome", greeting.session, next(known.serials), "", self._greeting(peer))
        if is_new:
            if greeting.software != version("verticopula"):
                logger.info("%s runs another release of verticopula: %r", peer, greeting.software[:32])
            self._on_session(peer)

    # ---- messages --------------------------------------------------------------------------

    def _send(self, peer: str, topic: Topic, session: str, serial: int, key: str, body: bytes) -> bool:
        envelope = Envelope(topic, session, serial, key, np.frombuffer(body, dtype=np.uint8))
        payload = encode(envelope)
        is_sent = self._link.send(peer, payload)
        if is_sent:
            self.traffic.count("sent", len(payload))
        return is_sent

    def _on_bytes(self, peer: str, payload: bytes) -> None:
        try:
            envelope = decode(payload, (Envelope,))
            if envelope.topic == "hello" or envelope.topic == "welcome":
                if (envelope.topic == "hello") != (self._kit.role == "coordinator"):
                    raise ProtocolError("a greeting in the wrong direction")
                if envelope.topic == "welcome" and envelope.session != self._peers[peer].own:
                    raise ProtocolError("a welcome to another session")
                self._on_greeting(peer, envelope)
                self.traffic.count("received", len(payload), peer)
                return
            self._check_fresh(peer, envelope)
            self.traffic.count("received", len(payload), peer)
            self._hand_on(peer, envelope)
        except ProtocolError as error:
            self.traffic.count("refused", len(payload))
            logger.warning("refused a message from %s: %s", peer, error)
        except Exception as error:  # a thread of the link must not end; content stays out of the log
            logger.error("a message from %s could not be handled (%s)", peer, type(error).__name__)

    def _hand_on(self, peer: str, envelope: Envelope) -> None:
        """Give a message to who handles its topic."""
        topic, key, body = envelope.topic, envelope.key, envelope.body
        if topic == "parts":
            self.parts.on_notice(peer, key, decode(body.data, (PartsNotice,)))
        elif topic == "want":
            self.parts.on_request(peer, key, decode(body.data, (PartRequest,)))
        elif topic == "part":
            self.parts.on_part(peer, key, decode(body.data, (MessagePart,)))
        else:
            self._on_message(peer, topic, key, body.tobytes())

    def _check_fresh(self, peer: str, envelope: Envelope) -> None:
        """ProtocolError for a message of another session, or one that was received before."""
        with self._lock:
            known = self._peer(peer)
            if envelope.session != known.own:
                raise ProtocolError("it belongs to an earlier session")
            if envelope.serial in known.seen or envelope.serial <= known.newest - _WINDOW:
                raise ProtocolError("it was received before")
            known.seen.add(envelope.serial)
            if envelope.serial > known.newest:
                known.newest = envelope.serial
                if len(known.seen) > 2 * _WINDOW:
                    known.seen = {serial for serial in known.seen if serial > known.newest - _WINDOW}
