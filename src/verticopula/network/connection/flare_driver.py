"""FLARE's gRPC driver with additions: both ends introduce themselves, certificates are read again when they change, the
connections of one peer are limited, and whoever is refused is told why."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import replace
from typing import Any

import grpc  # type: ignore[import-untyped]
from cryptography import x509

from verticopula.errors import SettingsError
from verticopula.network.connection.connection_diagnosis import diagnose_tls
from verticopula.network.connection.flare_package import (
    QQ,
    CommError,
    Connection,
    ConnectorInfo,
    DriverParams,
    GrpcDriver,
    Server,
    Servicer,
    StreamConnection,
    StreamerStub,
    add_StreamerServicer_to_server,
    get_address,
)
from verticopula.network.connection.peer_admission import (
    Introduction,
    PeerAdmission,
    coordinator_proof,
    proof_problem,
    read_federation,
)
from verticopula.network.connection.sanitizing import sanitize
from verticopula.network.kit.certificate_issuing import certificates_pem, current_time, key_pem
from verticopula.network.kit.key_signing import KitFiles
from verticopula.network.kit.startup_kit import Kit
from verticopula.network.kit.trust_store import describe_dates, take_notice
from verticopula.schema.defaults import COORDINATOR

logger = logging.getLogger(__name__)

_MOST_CONNECTIONS = 16  # of one peer at a time: one in use, and dead ones that have not timed out yet
_MOST_METADATA = 1 << 18  # bytes; an authority's notice has a few thousand
_INTRODUCTION = "verticopula-introduction-bin"
_PROOF = "verticopula-proof-bin"
_NOTICE = "verticopula-notice-bin"
_TOLD = (grpc.StatusCode.PERMISSION_DENIED,)  # with the coordinator's own words

_ENDED_BY_SERVER = "Cancelling all calls"  # gRPC's word for a server that is shut down in order


class GuardedDriver(GrpcDriver):  # type: ignore[misc]
    """One end's connections.

    Parameters
    ----------
    own : what this end says about itself
    admission : decides who may connect; the coordinator's end has one
    on_problem : called with the reason why there is no connection, and whether that is a refusal which stays until
        somebody does something; with nothing once there is a connection. Not at the coordinator's end
    on_coordinator : called with what both ends say about themselves, by those who connect to the coordinator
    """

    def __init__(
        self,
        most_bytes: int,
        kit: Kit,
        own: Introduction,
        admission: PeerAdmission | None = None,
        on_problem: Callable[[str, bool], None] = lambda reason, is_refusal: None,
        on_coordinator: Callable[[Introduction, Introduction], None] = lambda own, coordinator: None,
    ) -> None:
        super().__init__()
        self._kit, self._files = kit, KitFiles(kit) if admission is None else admission.files
        self._admission, self._on_problem, self._on_coordinator = admission, on_problem, on_coordinator
        self._own = own
        self._signer, self._notice = self._files.signer(), self._files.trust().number
        self._most_bytes = most_bytes
        self.federation = read_federation(kit)  # of this process, whatever is put into the kit meanwhile
        self._last_reason = ""
        self.logger = logging.getLogger(GrpcDriver.__module__)  # what FLARE says is not this package's word
        self.options = [
            ("grpc.max_send_message_length", most_bytes),
            ("grpc.max_receive_message_length", most_bytes),
            ("grpc.max_metadata_size", _MOST_METADATA),
            ("grpc.absolute_max_metadata_size", _MOST_METADATA),
            ("grpc.max_concurrent_streams", 4),  # on one TCP connection; an F3 connection is one stream
            ("grpc.so_reuseport", 0),  # or a second coordinator could share the port unnoticed
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 20_000),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),  # or keepalive counts as abuse
        ]

    # ---- the end that listens ------------------------------------------------------------

    def listen(self, connector: ConnectorInfo) -> None:
        self.connector = connector
        self.server = _Server(self, connector, self.max_workers, self.options, self._server_credentials())
        self.server.start()

    def _server_credentials(self) -> Any:
        """Asked for at every handshake: a renewed certificate, or a new root, holds without a restart."""
        return grpc.dynamic_ssl_server_credentials(self._server_files(), self._server_files, True)

    def _server_files(self) -> Any:
        signer, trust = self._files.signer(), self._files.trust()
        return grpc.ssl_server_certificate_configuration(
            [(key_pem(signer.key).encode("ascii"), signer.chain.encode("ascii"))],
            root_certificates=certificates_pem(root.certificate for root in trust.roots).encode("ascii"),
        )

    def add_connection(self, connection: Connection) -> None:
        if connection.side == "SERVER" and self._admission is not None:
            self._admit(connection, self._admission)
        read = connection.read_loop
        connection.read_loop = lambda frames: read(self._watch(connection, frames))
        super().add_connection(connection)

    def _admit(self, connection: Any, admission: PeerAdmission) -> None:
        """Let a connection in, or end it with a reason that the other end can read."""
        peer = _peer_of(connection)
        with self.conn_lock:
            live = [other for other in self.connections.values() if _peer_of(other) == peer]
        if peer and len(live) >= _MOST_CONNECTIONS:
            self._refuse(connection, f"{peer!r} has {len(live)} connections already")
        certificate = _certificate_of(connection)
        said = _introduction_of(connection.context.invocation_metadata())
        reason = admission.refusal(peer, certificate, said, [getattr(other, "introduction", None) for other in live])
        if reason:
            self._refuse(connection, reason)
        connection.peer_certificate, connection.introduction = certificate, said
        for other in live if peer not in admission.leads else ():
            if _process_of(other) != _process_of(connection):
                logger.warning("ended a connection of %s: a process that was started later has connected", peer[:64])
                _cancel(other)
        if said is not None:
            connection.context.send_initial_metadata(self._answer(peer, said, admission))

    def _answer(self, peer: str, said: Introduction, admission: PeerAdmission) -> tuple[tuple[str, bytes], ...]:
        trust = self._files.trust()
        shown = [
            (_INTRODUCTION, replace(admission.own, notice=trust.number).to_bytes()),
            (_PROOF, coordinator_proof(self._files, peer, said.nonce)),
        ]
        if trust.number > said.notice:
            shown.append((_NOTICE, trust.text.encode("utf-8")))
        return tuple(shown)

    def _refuse(self, connection: Any, reason: str) -> None:
        """End a connection before it begins; CommError."""
        logger.warning("refused a connection of %s: %s", _peer_of(connection)[:64], reason)
        with contextlib.suppress(Exception):  # gRPC's way to end a call is to raise
            connection.context.abort(_TOLD[0], reason)
        connection.context = None  # FLARE would put another reason in its place
        raise CommError(CommError.ERROR, reason)

    # ---- the end that connects ------------------------------------------------------------

    def connect(self, connector: ConnectorInfo) -> None:
        """One connection, from its beginning to its end; FLARE calls this again and again."""
        signer, trust = self._files.signer(), self._files.trust()
        wrong = describe_dates(signer.certificate, self._kit.name, current_time())
        if wrong:
            self._report(wrong)
            return
        address = get_address(connector.params)
        credentials = grpc.ssl_channel_credentials(
            root_certificates=certificates_pem(trust.roots_for(COORDINATOR)).encode("ascii"),
            private_key=key_pem(signer.key).encode("ascii"),
            certificate_chain=signer.chain.encode("ascii"),
        )
        self._signer = signer
        channel = grpc.secure_channel(address, options=self.options, credentials=credentials)
        properties = {DriverParams.PEER_ADDR.value: address}
        connection = StreamConnection(QQ(), connector, properties, "CLIENT", channel=channel)
        said = self._own.with_files(self.federation, trust.number)
        gate = _Gate()
        try:
            self.add_connection(connection)
            frames = gate.frames(connection.generate_output)
            received = StreamerStub(channel).Stream(frames, metadata=((_INTRODUCTION, said.to_bytes()),))
            if self._is_coordinator(received, said):
                gate.open()
            else:
                received.cancel()
            connection.read_loop(received)
        finally:
            gate.close()
            connection.close()
            self.close_connection(connection)

    def _is_coordinator(self, received: Any, said: Introduction) -> bool:
        """Whether the other end has proved who it is; True also for a call that has ended, which says why itself."""
        header = dict(received.initial_metadata() or ())
        if not received.is_active():
            return True
        if _PROOF not in header:
            self._report("the other end does not introduce itself: the coordinator needs this release of verticopula")
            return False
        trust = self._files.trust()
        if _NOTICE in header:
            try:
                newer = take_notice(self._kit, header[_NOTICE].decode("utf-8", "replace"), trust)
                if newer is not None:
                    logger.info("the authority's notice %d was taken from the coordinator", newer.number)
                    trust = newer
            except (SettingsError, OSError) as error:
                logger.warning("the coordinator's copy of the authority's notice was not taken: %s", error)
        wrong = proof_problem(header[_PROOF], trust, self._kit.name, said.nonce)
        if wrong:
            self._report(wrong)
            return False
        self._report("")
        coordinator = Introduction.from_bytes(header.get(_INTRODUCTION, b""))
        if coordinator is not None:
            self._on_coordinator(said, coordinator)
        return True

    def _report(self, reason: str, *, is_refusal: bool = True) -> None:
        """Log why there is no connection, once: F3 retries without end."""
        reason = sanitize(reason)
        if reason and reason != self._last_reason:
            logger.warning("no connection to the coordinator: %s", reason)
        self._last_reason = reason
        self._on_problem(reason, is_refusal and reason != "")

    # ---- both ------------------------------------------------------------

    def review(self) -> None:
        """Look at files and dates again: what no longer holds is ended, what is new is used."""
        if self._admission is None:
            signer = self._files.signer()
            if signer.certificate != self._signer.certificate:
                logger.info("the kit has another certificate: connecting again with it")
                self._signer = signer
                self.close_all()
            return
        trust = self._files.trust()
        is_new, self._notice = trust.number != self._notice, trust.number
        with self.conn_lock:
            live = list(self.connections.values())
        for connection in live:
            certificate = getattr(connection, "peer_certificate", None)
            peer = _peer_of(connection)
            wrong = "" if certificate is None else trust.problem_with(certificate, peer, current_time())
            if certificate is not None:
                wrong = wrong or self._admission.unknown_peer(peer, connection.introduction)
            if wrong:
                logger.warning("ended the connection of %s: %s", peer[:64], wrong)
                self._admission.ended(peer, wrong)
            if wrong or is_new:  # whoever connects again gets the new notice
                _cancel(connection)
        if is_new:
            logger.info("the authority's notice %d holds from now on", trust.number)

    def _watch(self, connection: Any, frames: Iterator[Any]) -> Iterator[Any]:
        """The frames; the reason why they end is logged where FLARE does not log it."""
        try:
            yield from frames
        except grpc.RpcError as error:
            if isinstance(error, grpc.Call) and error.code() != grpc.StatusCode.CANCELLED:
                self._explain(error)
            raise
        finally:
            if connection.side == "SERVER" and not connection.closing:
                # gRPC does not tell the server which of the two it was.
                why = f"it was stopped, or sent a message of more than {self._most_bytes:,} bytes"
                logger.info("a connection of %s has ended: %s", _peer_of(connection)[:64], why)

    def _explain(self, error: Any) -> None:
        """Report why a call has failed."""
        said = str(error.details())
        if error.code() in _TOLD:
            self._report(f"it refused this one: {said}")
            return
        if said == _ENDED_BY_SERVER:
            logger.info("the coordinator has ended the connection: it is being stopped")
            self._on_problem("the coordinator was stopped", False)
            return
        found = diagnose_tls(self._kit, self._files)
        self._report(found or said, is_refusal=bool(found))


class _Gate:
    """Holds back what is sent until the other end has proved who it is."""

    def __init__(self) -> None:
        self._decided, self._is_open = threading.Event(), False

    def open(self) -> None:
        self._is_open = True
        self._decided.set()

    def close(self) -> None:
        self._decided.set()

    def frames(self, source: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        self._decided.wait()
        if self._is_open:
            yield from source()


class _Server(Server):  # type: ignore[misc]
    """FLARE's, with credentials that are read again."""

    def __init__(self, driver: Any, connector: Any, max_workers: int, options: Any, credentials: Any) -> None:
        self.driver, self.connector, self.logger = driver, connector, driver.logger
        self.grpc_server = grpc.server(futures.ThreadPoolExecutor(max_workers), options=options)
        add_StreamerServicer_to_server(Servicer(self), self.grpc_server)
        address = get_address(connector.params)
        self.grpc_server.add_secure_port(address, credentials)
        logger.info("added secure port at %s", address)


def _peer_of(connection: Connection) -> str:
    """The name in the peer's certificate; empty where this side has connected."""
    return str((connection.get_conn_properties() or {}).get(DriverParams.PEER_CN.value) or "")


def _certificate_of(connection: Any) -> x509.Certificate:
    """The peer's certificate, which TLS has verified."""
    return x509.load_pem_x509_certificate(connection.context.auth_context()["x509_pem_cert"][0])


def _introduction_of(metadata: Any) -> Introduction | None:
    found = [value for key, value in metadata or () if key == _INTRODUCTION]
    return Introduction.from_bytes(found[0]) if len(found) == 1 else None


def _process_of(connection: Any) -> str:
    said = getattr(connection, "introduction", None)
    return "" if said is None else str(said.process)


def _cancel(connection: Any) -> None:
    """End a connection of the listening side."""
    context = connection.context
    if context is not None:
        connection.closing = True
        context.cancel()
