"""Replies that were made once, and are given again to the same request: in this process, or in a store as bytes."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from verticopula.protocol.messages import Reply
from verticopula.protocol.wire import decode, encode
from verticopula.storage.blobs import Blobs, KeyLocks


class MadeReplies(Protocol):
    """By the request's key; `is_durable` says whether they are still there after a crash."""

    @property
    def is_durable(self) -> bool: ...

    def alone(self, key: str) -> AbstractContextManager[object]: ...

    def find(self, key: str, kinds: Iterable[type]) -> Reply | None: ...

    def keep(self, key: str, reply: Reply) -> None: ...


class RepliesInMemory(KeyLocks):
    """As they are: a copy as bytes would take as much memory again, and protects from nothing."""

    is_durable = False

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[str, Reply] = {}

    def find(self, key: str, kinds: Iterable[type]) -> Reply | None:
        return self._made.get(key)

    def keep(self, key: str, reply: Reply) -> None:
        self._made[key] = reply


@dataclass(frozen=True)
class RepliesInStore:
    """As the bytes that are sent."""

    blobs: Blobs = field(repr=False)

    @property
    def is_durable(self) -> bool:
        return self.blobs.is_durable

    def alone(self, key: str) -> AbstractContextManager[object]:
        return self.blobs.alone(key)

    def find(self, key: str, kinds: Iterable[type]) -> Reply | None:
        stored = self.blobs.get(key)
        reply: Reply | None = None if stored is None else decode(stored, kinds)
        return reply

    def keep(self, key: str, reply: Reply) -> None:
        self.blobs.put(key, encode(reply))
