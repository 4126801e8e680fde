"""The seam between a protocol and the world: one method that delivers one batch."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Protocol, TypeVar

from verticopula.protocol.messages import Reply, Request

Result = TypeVar("Result")


class RequestHandler(Protocol):
    """Anything that answers requests: a party with its table, a member, or a handler of synthetic columns."""

    def handle(self, request: Any) -> Reply: ...


class Transport(Protocol):
    """Delivers a batch of requests, one per party, and returns every party's reply."""

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        """All replies, or an error that names the party; never a part of them.

        Parameters
        ----------
        requests : party -> what it is asked
        """
        ...


def drive(protocol: Generator[dict[str, Request], dict[str, Reply], Result], transport: Transport) -> Result:
    """Run a protocol to its end and return its result."""
    try:
        requests = next(protocol)
        while True:
            requests = protocol.send(transport.deliver(requests))
    except StopIteration as stop:
        result: Result = stop.value
        return result
    finally:
        protocol.close()
