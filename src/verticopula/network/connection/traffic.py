"""How much a process has sent and received, and when each peer was last heard: for its metrics."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

Direction = Literal["sent", "received", "refused"]


@dataclass
class TrafficCounts:
    """Counts of one process; safe to use from several threads.

    Attributes
    ----------
    clock : seconds of a clock that is never set, so that no jump of the wall clock looks like silence
    """

    clock: Callable[[], float] = time.monotonic
    _messages: Counter[Direction] = field(default_factory=Counter)
    _bytes: Counter[Direction] = field(default_factory=Counter)
    _heard: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._start = self.clock()

    def count(self, direction: Direction, n_bytes: int, peer: str = "") -> None:
        """One more message; an accepted one is a sign of life of its peer, and a refused one is not."""
        with self._lock:
            self._messages[direction] += 1
            self._bytes[direction] += n_bytes
            if direction == "received":
                self._heard[peer] = self.clock()

    def totals(self) -> dict[Direction, tuple[int, int]]:
        """Direction -> messages and bytes since the start."""
        with self._lock:
            return {name: (self._messages[name], self._bytes[name]) for name in ("sent", "received", "refused")}

    def silent_for(self, peer: str) -> float:
        """Seconds since a message of this peer was accepted; since the start where there was none."""
        with self._lock:
            return self.clock() - self._heard.get(peer, self._start)
