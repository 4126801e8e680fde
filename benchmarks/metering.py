"""A transport that counts bytes and processor seconds, by party and kind of request."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Protocol

from verticopula.protocol.messages import REPLY_KINDS, REQUEST_KINDS, Reply, Request
from verticopula.protocol.wire import decode, encode

Key = tuple[str, type[Request]]


def add_up(counted: Mapping[Key, float], party: str, kinds: Collection[type[Request]] | None = None) -> float:
    """What was counted for a party, over all requests or those of some kinds."""
    return sum(amount for (name, kind), amount in counted.items() if name == party and (kinds is None or kind in kinds))


class Handler(Protocol):
    """A party, as far as a transport sees it."""

    def handle(self, request: Request) -> Reply: ...


class Metered:
    """Carries messages as bytes.

    Attributes
    ----------
    sent, received : bytes of a party's answers, and of the requests to it
    seconds : of answering; `coding_seconds` of decoding the request and encoding the answer
    """

    def __init__(self, parties: Mapping[str, Handler]) -> None:
        self._parties = parties
        self.sent: defaultdict[Key, int] = defaultdict(int)
        self.received: defaultdict[Key, int] = defaultdict(int)
        self.seconds: defaultdict[Key, float] = defaultdict(float)
        self.coding_seconds: defaultdict[Key, float] = defaultdict(float)

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        replies: dict[str, Reply] = {}
        for name, request in requests.items():
            key, data = (name, type(request)), encode(request)
            start = time.process_time()
            asked = decode(data, REQUEST_KINDS)
            decoded = time.process_time()
            reply = self._parties[name].handle(asked)
            handled = time.process_time()
            answer = encode(reply)
            self.coding_seconds[key] += decoded - start + time.process_time() - handled
            self.seconds[key] += handled - decoded
            self.received[key] += len(data)
            self.sent[key] += len(answer)
            replies[name] = decode(answer, REPLY_KINDS)
        return replies
