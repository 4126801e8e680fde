"""The connection to peers: mutual TLS by NVIDIA FLARE's messaging layer (F3), and nothing above it.

F3 carries bytes between two named ends and checks that the name an end claims is the one in its certificate. FLARE's
job layer is left out on purpose: a job may name any class that a party has installed, with any arguments, and FLARE's
own object serialisation reads what a peer sends. Here a peer can deliver bytes, and only `wire.decode` reads them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Callable
from typing import Any

from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.communicator import Communicator
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.drivers.net_utils import parse_url
from nvflare.fuel.f3.endpoint import Endpoint, EndpointMonitor, EndpointState
from nvflare.fuel.f3.message import Message, MessageReceiver
from nvflare.fuel.f3.sfm.conn_manager import Mode

from verticopula.errors import SettingsError
from verticopula.network.flare_driver import GuardedDriver
from verticopula.network.startup_kit import Kit
from verticopula.schema.study_settings import COORDINATOR

logger = logging.getLogger(__name__)

MOST_BYTES = 1 << 30  # of one message; gRPC refuses more before it is read
_APPLICATION = 7707  # F3 delivers to applications by number; this one is ours alone
_LOOPBACK = ("localhost", "127.0.0.1")


class Link(MessageReceiver, EndpointMonitor):  # type: ignore[misc]
    """One end of the connection: the coordinator listens, everybody else connects to it and retries.

    Parameters
    ----------
    peers : the names whose messages are accepted; those of others are dropped and logged
    on_bytes : called with (peer, payload), from several threads
    on_peer : called with (peer, connected)
    """

    def __init__(
        self,
        kit: Kit,
        peers: frozenset[str],
        on_bytes: Callable[[str, bytes], None],
        on_peer: Callable[[str, bool], None] = lambda peer, connected: None,
        *,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._kit, self._peers, self._on_bytes, self._on_peer = kit, peers, on_bytes, on_peer
        self._most_bytes = most_bytes
        self._communicator = Communicator(Endpoint(kit.name, conn_props=_credentials(kit)))
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
            GuardedDriver(self._most_bytes),
            Mode.PASSIVE if listens else Mode.ACTIVE,
            parse_url(f"grpcs://{host}:{self._kit.port}"),
            secure=True,
        )
        self._communicator.start()

    def stop(self) -> None:
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
        if endpoint.name not in self._peers:
            logger.warning("refused a message from %s: no part of this federation", endpoint.name[:64])
            return
        if endpoint.state != EndpointState.READY and self._communicator.conn_manager.get_connections(endpoint.name):
            # Where an old connection closes while a new one opens, FLARE marks both as closed.
            endpoint.state = EndpointState.READY
        self._on_bytes(endpoint.name, bytes(message.payload or b""))

    def state_change(self, endpoint: Endpoint) -> None:
        if endpoint.name not in self._peers:
            logger.warning("refused %s: no part of this federation", endpoint.name[:64])
            return
        connected = endpoint.state == EndpointState.READY
        logger.info("%s connected" if connected else "%s disconnected", endpoint.name)
        self._on_peer(endpoint.name, connected)


class _Receivers(dict[int, MessageReceiver]):
    """Who gets messages of which F3 application: ours to the link, all others, FLARE's own too, to the log."""

    def get(self, application: int, default: Any = None) -> MessageReceiver:
        return super().get(application, _UNREGISTERED)


class _Unregistered(MessageReceiver):  # type: ignore[misc]
    def process_message(self, endpoint: Endpoint, connection: Any, app_id: int, message: Message) -> None:
        logger.warning("refused a message from %s: F3 application %d is not served here", endpoint.name[:64], app_id)


_UNREGISTERED = _Unregistered()


def _credentials(kit: Kit) -> dict[str, str]:
    listens = kit.role == "coordinator"
    return {
        DriverParams.CA_CERT.value: str(kit.authority),
        (DriverParams.SERVER_CERT if listens else DriverParams.CLIENT_CERT).value: str(kit.certificate),
        (DriverParams.SERVER_KEY if listens else DriverParams.CLIENT_KEY).value: str(kit.private_key),
    }


def _check_port_is_free(host: str, port: int) -> None:
    """F3 would only write to its log that it cannot listen."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("" if host == "0" else host, port))
        except OSError as error:
            raise SettingsError(f"cannot listen on port {port}: {os.strerror(error.errno or 0)}") from None


def peers_of(kit: Kit) -> frozenset[str]:
    """Whom this organisation talks to: everybody to the coordinator, the coordinator to everybody."""
    if kit.role != "coordinator":
        return frozenset({COORDINATOR})
    federation = kit.federation
    third = [] if federation.network.compute is None else [federation.network.compute]
    return frozenset({*federation.network.leads, *(party.name for party in federation.parties), *third})
