"""A line between two ends of TCP that is slow, loses packets, falls silent or breaks: a proxy on loopback.

A kernel with netem would lose packets itself; not every kernel has it, and it needs root. A program above TCP sees of a
lost packet only that everything behind it comes later, after the sender's retransmission timeout: that is what this
proxy does. What it does not show is TCP's smaller window after a loss.
"""

from __future__ import annotations

import contextlib
import queue
import random
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

_SEGMENT = 1_400  # bytes: what one packet carries
_RETRANSMISSION = 0.2  # seconds: the smallest timeout of Linux; the second loss of the same packet waits twice as long


@dataclass
class SlowLine:
    """Passes bytes on from a port of its own to the port of a listener, both on loopback.

    Attributes
    ----------
    delay : seconds one way
    loss : the share of packets that are lost, retransmissions included
    lost, passed, cuts : what happened so far
    """

    target: int
    delay: float = 0.0
    loss: float = 0.0
    lost: int = 0
    passed: int = 0
    cuts: int = 0
    _random: random.Random = field(default_factory=lambda: random.Random(7))
    _open: list[socket.socket] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._flows = threading.Event()  # nothing passes while it is not set
        self._flows.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break all connections in the middle of whatever they carry."""
        with self._lock:
            self.cuts += 1
            gone, self._open = self._open, []
        for end in gone:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def fall_silent(self) -> None:
        """Pass nothing on from now on, and close nothing: neither end is told."""
        self._flows.clear()

    def go_on(self) -> None:
        """Pass everything on that waits."""
        self._flows.set()

    def close(self) -> None:
        self._listener.close()
        self.go_on()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:  # the listener is not there: so says the line
                near.close()
                continue
            with self._lock:
                self._open += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        waiting: queue.Queue[tuple[float, bytes]] = queue.Queue()
        threading.Thread(target=self._deliver, args=(waiting, sink), daemon=True).start()
        with contextlib.suppress(OSError):
            while data := source.recv(_SEGMENT):
                waiting.put((time.monotonic() + self.delay + self._stall(), data))
        waiting.put((time.monotonic() + self.delay, b""))

    def _stall(self) -> float:
        """How much longer a packet takes because it, or its retransmissions, were lost."""
        stalled, timeout = 0.0, _RETRANSMISSION + 2.0 * self.delay
        with self._lock:
            self.passed += 1
            while self._random.random() < self.loss:
                self.lost += 1
                stalled, timeout = stalled + timeout, 2.0 * timeout
        return stalled

    def _deliver(self, waiting: queue.Queue[tuple[float, bytes]], sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                due, data = waiting.get()  # in order: what comes behind a lost packet waits for it
                time.sleep(max(0.0, due - time.monotonic()))
                self._flows.wait()
                if not data:
                    break
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)
        sink.close()


@contextlib.contextmanager
def slow_line(target: int, delay: float = 0.0, loss: float = 0.0) -> Iterator[SlowLine]:
    """A line to this port, until the block ends."""
    line = SlowLine(target, delay, loss)
    try:
        yield line
    finally:
        line.close()
