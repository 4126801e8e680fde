"""All parties in this process: for one machine, for simulations and for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from verticopula.errors import PartyUnavailable
from verticopula.protocol.messages import Reply, Request


class Party(Protocol):
    """Anything that answers requests: a party with its table, or a handler of synthetic columns."""

    def handle(self, request: Any) -> Reply: ...


class InProcessTransport:
    """Calls the parties' own code, one party after the other; a party uses all cores itself."""

    def __init__(self, parties: Mapping[str, Party]) -> None:
        self._parties = dict(parties)

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        absent = [name for name in requests if name not in self._parties]
        if absent:
            raise PartyUnavailable(f"party {absent[0]!r} is not here")
        return {name: self._parties[name].handle(request) for name, request in requests.items()}
