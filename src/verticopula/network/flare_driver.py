"""FLARE's gRPC driver with two additions: a limit on the connections of one peer, and a log entry when one ends."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import grpc  # type: ignore[import-untyped]
from nvflare.fuel.f3.comm_error import CommError
from nvflare.fuel.f3.connection import Connection
from nvflare.fuel.f3.drivers.driver_params import DriverParams
from nvflare.fuel.f3.drivers.grpc_driver import GrpcDriver

from verticopula.network.sanitizing import sanitize

logger = logging.getLogger(__name__)

_MOST_CONNECTIONS = 16  # of one peer at a time: one in use, and dead ones that have not timed out yet


_ENDED_BY_SERVER = "Cancelling all calls"  # gRPC's word for a server that is shut down in order


class GuardedDriver(GrpcDriver):  # type: ignore[misc]
    """Limits the connections of each peer: every one takes a thread of the listening side."""

    def __init__(self, most_bytes: int) -> None:
        super().__init__()
        self._most_bytes = most_bytes
        self._last_reason = ""
        self.logger = logging.getLogger(GrpcDriver.__module__)  # what FLARE says is not this package's word
        self.options = [
            ("grpc.max_send_message_length", most_bytes),
            ("grpc.max_receive_message_length", most_bytes),
            ("grpc.max_concurrent_streams", 4),  # on one TCP connection; an F3 connection is one stream
            ("grpc.so_reuseport", 0),  # or a second coordinator could share the port unnoticed
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 20_000),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),  # or keepalive counts as abuse
        ]

    def add_connection(self, connection: Connection) -> None:
        peer = _peer_of(connection)
        with self.conn_lock:
            others = sum(_peer_of(other) == peer for other in self.connections.values())
        if peer and others >= _MOST_CONNECTIONS:
            logger.warning("refused a connection of %s: it has %d already", peer[:64], others)
            raise CommError(CommError.ERROR, "too many connections of one peer")
        read = connection.read_loop
        connection.read_loop = lambda frames: read(self._watch(connection, frames))
        super().add_connection(connection)

    def _watch(self, connection: Any, frames: Iterator[Any]) -> Iterator[Any]:
        """The frames; the reason why they end is logged where FLARE does not log it."""
        try:
            for frame in frames:
                self._last_reason = ""
                yield frame
        except grpc.RpcError as error:
            if isinstance(error, grpc.Call) and error.code() != grpc.StatusCode.CANCELLED:
                reason = sanitize(str(error.details()))
                if reason == _ENDED_BY_SERVER:
                    logger.info("the coordinator has ended the connection: it is being stopped")
                elif reason != self._last_reason:  # F3 retries without end
                    logger.warning("no connection to the coordinator: %s", reason)
                self._last_reason = reason
            raise
        finally:
            if connection.side == "SERVER" and not connection.closing:
                # gRPC does not tell the server which of the two it was.
                why = f"it was stopped, or sent a message of more than {self._most_bytes:,} bytes"
                logger.info("a connection of %s has ended: %s", _peer_of(connection)[:64], why)


def _peer_of(connection: Connection) -> str:
    """The name in the peer's certificate; empty where this side has connected."""
    return str((connection.get_conn_properties() or {}).get(DriverParams.PEER_CN.value) or "")
