"""All parties in this process: for one machine, for simulations and for tests."""

from __future__ import annotations

from collections.abc import Mapping

from verticopula.errors import PartyUnavailable
from verticopula.protocol.messages import Reply, Request
from verticopula.transport.delivery import RequestHandler


class InProcessTransport:
    """Calls the parties' own code, one party after the other; a party uses all cores itself."""

    def __init__(self, parties: Mapping[str, RequestHandler]) -> None:
        self._parties = dict(parties)

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        absent = [name for name in requests if name not in self._parties]
        if absent:
            raise PartyUnavailable(f"party {absent[0]!r} is not here")
        return {name: self._parties[name].handle(request) for name, request in requests.items()}
