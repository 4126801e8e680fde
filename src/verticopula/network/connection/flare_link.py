"""The connection to peers: mutual TLS by NVIDIA FLARE's messaging layer (F3), and nothing above it.

F3 carries bytes between two named ends and checks that the name an end claims is the one in its certificate. FLARE's
job layer is left out on purpose: a job may name any class that a party has installed, with any arguments, and FLARE's
own object serialisation reads what a peer sends. Here a peer can deliver bytes, and only `wire.decode` reads them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from verticopula.errors import SettingsError, VerticopulaError
from verticopula.network.connection.connection_state import describe_mismatch, write_state
from verticopula.network.connection.flare_driver import GuardedDriver
from verticopula.network.connection.flare_package import (
    CommError,
    Communicator,
    Endpoint,
    EndpointMonitor,
    EndpointState,
    Message,
    MessageReceiver,
    Mode,
    parse_url,
)
from verticopula.network.connection.part_messages import LEAST_PART
from verticopula.network.connection.peer_admission import Introduction, PeerAdmission, read_federation
from verticopula.network.kit.certificate_expiry import ExpiryReminder
from verticopula.network.kit.certificate_issuing import current_time
from verticopula.network.kit.key_signing import KitFiles
from verticopula.network.kit.startup_kit import Kit
from verticopula.schema.defaults import COORDINATOR
from verticopula.schema.federation import Federation, Network

logger = logging.getLogger(__name__)

ENVELOPE_ROOM = 1 << 20  # bytes of a message around one part; gRPC refuses more before it is read
_APPLICATION = 7707  # F3 delivers to applications by number; this one is ours alone
_LOOPBACK = ("localhost", "127.0.0.1")
_REVIEW = 1.0  # seconds between two looks at certificates and notices


@dataclass(frozen=True)
class LinkProblem:
    """Why there is no connection; `is_refusal`: it stays so until somebody does something."""

    reason: str = ""
    is_refusal: bool = False


class Link(MessageReceiver, EndpointMonitor):  # type: ignore[misc]
    """One end of the connection: the coordinator listens, everybody else connects to it and retries.

    Parameters
    ----------
    peers : the names whose messages are accepted; those of others are dropped and logged
    on_bytes : called with (peer, payload), from several threads
    on_peer : called with (peer, connected)
    part_bytes : the longest body of a message that is taken; what is longer comes in parts

    Attributes
    ----------
    problem : why there is no connection, at an end that connects
    admission : who may connect, at the coordinator's end
    """

    def __init__(
        self,
        kit: Kit,
        peers: frozenset[str],
        on_bytes: Callable[[str, bytes], None],
        on_peer: Callable[[str, bool], None] = lambda peer, connected: None,
        *,
        part_bytes: int = 0,
    ) -> None:
        self._kit, self._peers, self._on_bytes, self._on_peer = kit, peers, on_bytes, on_peer
        self.problem, self._mismatch = LinkProblem(), ""
        self._stopped, self._leads = threading.Event(), leads_of(kit, read_federation(kit))
        part_bytes = part_bytes or part_bytes_of(kit)
        own, self._coordinator_takes = Introduction.new(part_bytes), 0
        self.admission: PeerAdmission | None = None
        if kit.role == "coordinator":
            self.admission = PeerAdmission(kit, KitFiles(kit), own)
            self.admission.use(read_federation(kit), peers)
        most_bytes = part_bytes + ENVELOPE_ROOM
        self._driver = GuardedDriver(most_bytes, kit, own, self.admission, self._on_problem, self._on_coordinator)
        # Several programs may use the lead's kit at once, each with replies of its own.
        name = f"{kit.name}.{secrets.token_hex(8)}" if kit.role == "lead" else kit.name
        self._communicator = Communicator(Endpoint(name))
        self._communicator.register_monitor(self)
        manager = self._communicator.conn_manager
        manager.receivers = _Receivers({_APPLICATION: self})
        # In the thread that reads the connection, so that a peer which sends faster than it is read has to wait; FLARE
        # would hold everything in memory.
        manager.process_frame = manager.process_frame_task

    def start(self) -> None:
        listens = self._kit.role == "coordinator"
        host = self._kit.host
        if listens:
            host = "127.0.0.1" if host in _LOOPBACK else "0"
            _check_port_is_free(host, self._kit.port)
        self._communicator.add_connector_advanced(
            self._driver,
            Mode.PASSIVE if listens else Mode.ACTIVE,
            parse_url(f"grpcs://{host}:{self._kit.port}"),
            secure=True,
        )
        self._communicator.start()
        threading.Thread(target=self._review, name="certificates", daemon=True).start()

    def use_peers(self, federation: Federation, peers: frozenset[str]) -> None:
        """From now on this is the federation file of both ends, and these are the peers."""
        self._peers, self._leads = peers, leads_of(self._kit, federation)
        self._driver.federation = federation
        if self.admission is not None:
            self.admission.use(federation, peers)
        elif self._mismatch:
            self._mismatch = ""
            self._keep_state()

    def part_bytes_at(self, peer: str) -> int:
        """The longest part that a peer takes; 0 where it takes none, or has not introduced itself."""
        takes = self._coordinator_takes
        if self.admission is not None:
            said = self.admission.introduced(lead_of(peer, self._leads) or peer)
            takes = 0 if said is None else said.part_bytes
        return takes if takes >= LEAST_PART else 0

    def queued(self, peer: str) -> int:
        """How many messages to a peer wait to be sent."""
        connections = self._communicator.conn_manager.get_connections(peer) or ()
        return sum(connection.conn.oq.q.qsize() for connection in connections)

    def review(self) -> None:
        """Look at certificates and notices again, without waiting for the next time."""
        self._driver.review()

    def _review(self) -> None:
        reminder, reminded = ExpiryReminder(self._kit), ""
        while True:
            try:
                self._driver.review()
                today = f"{current_time():%Y-%m-%d}"
                if today != reminded and self._kit.role != "lead":
                    reminder.look()
                    reminded = today
            except (VerticopulaError, OSError) as error:  # files that are being replaced; looked at again
                logger.warning("certificates: %s", error)
            if self._stopped.wait(_REVIEW):
                return

    def _on_problem(self, reason: str, is_refusal: bool) -> None:
        self.problem = LinkProblem(reason, is_refusal)
        if reason:
            self._keep_state()

    def _on_coordinator(self, own: Introduction, coordinator: Introduction) -> None:
        self._coordinator_takes = coordinator.part_bytes
        mismatch = describe_mismatch(own, coordinator)
        if mismatch and mismatch != self._mismatch:
            logger.warning("%s: no study begins before they are the same", mismatch)
        self._mismatch = mismatch
        self._keep_state()

    def _keep_state(self) -> None:
        if self._kit.role in ("party", "compute"):
            write_state(self._kit, self.problem.reason, self._mismatch)

    def stop(self) -> None:
        self._stopped.set()
        with contextlib.suppress(CommError, RuntimeError):
            self._communicator.stop()

    def send(self, peer: str, payload: bytes) -> bool:
        """Whether the payload is on its way; no promise that it arrives."""
        endpoint = self._communicator.find_endpoint(peer)
        if endpoint is None:
            return False
        try:
            self._communicator.send(endpoint, _APPLICATION, Message(None, payload))
        except CommError:
            return False
        return True

    # ---- called by F3 ---------------------------------------------------------------------

    def process_message(self, endpoint: Endpoint, connection: Any, app_id: int, message: Message) -> None:
        if not self._is_peer(endpoint.name):
            logger.warning("refused a message from %s: no part of this federation", endpoint.name[:64])
            return
        if endpoint.state != EndpointState.READY and self._communicator.conn_manager.get_connections(endpoint.name):
            # Where an old connection closes while a new one opens, FLARE marks both as closed.
            endpoint.state = EndpointState.READY
        self._on_bytes(endpoint.name, bytes(message.payload or b""))

    def state_change(self, endpoint: Endpoint) -> None:
        if not self._is_peer(endpoint.name):
            logger.warning("refused %s: no part of this federation", endpoint.name[:64])
            return
        connected = endpoint.state == EndpointState.READY
        logger.info("%s connected" if connected else "%s disconnected", endpoint.name)
        self._on_peer(endpoint.name, connected)

    def _is_peer(self, name: str) -> bool:
        return name in self._peers or lead_of(name, self._leads) != ""


def lead_of(peer: str, leads: Collection[str]) -> str:
    """The study lead whose program that is; empty for everybody else. F3 has compared the name with the certificate's.

    No party's name has a dot.
    """
    name = peer.partition(".")[0]
    return name if name in leads else ""


def leads_of(kit: Kit, federation: Federation | None = None) -> frozenset[str]:
    """The study leads, at the coordinator's end."""
    if kit.role != "coordinator":
        return frozenset()
    return frozenset((federation or kit.federation).network.leads)


class _Receivers(dict[int, MessageReceiver]):
    """Who gets messages of which F3 application: ours to the link, all others, FLARE's own too, to the log."""

    def get(self, application: int, default: Any = None) -> MessageReceiver:
        return super().get(application, _UNREGISTERED)


class _Unregistered(MessageReceiver):  # type: ignore[misc]
    def process_message(self, endpoint: Endpoint, connection: Any, app_id: int, message: Message) -> None:
        logger.warning("refused a message from %s: F3 application %d is not served here", endpoint.name[:64], app_id)


_UNREGISTERED = _Unregistered()


def _check_port_is_free(host: str, port: int) -> None:
    """F3 would only write to its log that it cannot listen."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("" if host == "0" else host, port))
        except OSError as error:
            raise SettingsError(f"cannot listen on port {port}: {os.strerror(error.errno or 0)}") from None


def part_bytes_of(kit: Kit) -> int:
    """The longest message that travels whole, as the kit's federation file has it; read when a process starts."""
    federation = read_federation(kit)
    return (Network() if federation is None else federation.network).part_mib * 2**20


def peers_of(kit: Kit, federation: Federation | None = None) -> frozenset[str]:
    """Whom this organisation talks to: everybody to the coordinator, the coordinator to everybody."""
    if kit.role != "coordinator":
        return frozenset({COORDINATOR})
    federation = federation or kit.federation
    third = [] if federation.network.compute is None else [federation.network.compute]
    return frozenset({*federation.network.leads, *(party.name for party in federation.parties), *third})
