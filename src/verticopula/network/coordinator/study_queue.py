"""Which study is next at the coordinator: each stands in the queue once, and those that wait are looked at again."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable

STOPPED = ""  # what comes out of a queue that was stopped
_LOOK_AGAIN = 300.0  # seconds after which a study that waits for people is taken up, should a message have been lost


class StudyQueue:
    """Names of studies, first in, first out; safe for threads.

    Parameters
    ----------
    waiting : names of the studies that wait for people
    look_again : after so many seconds they are all added
    """

    def __init__(self, waiting: Callable[[], Iterable[str]], look_again: float = _LOOK_AGAIN) -> None:
        self._waiting, self._pause = waiting, look_again
        self._look_again = time.monotonic() + look_again
        self._queue: queue.Queue[str] = queue.Queue()
        self._lock = threading.Lock()
        self._queued: set[str] = set()

    def add(self, study: str) -> None:
        """Have a study run, or go on, when its turn comes; once, however often it is asked for."""
        with self._lock:
            if study not in self._queued:
                self._queued.add(study)
                self._queue.put(study)

    def take(self) -> str:
        """The next study, once there is one; `STOPPED` after `stop`."""
        while True:
            if time.monotonic() >= self._look_again:  # also where the queue is never empty
                self._look_again = time.monotonic() + self._pause
                for study in self._waiting():
                    self.add(study)
            with contextlib.suppress(queue.Empty):
                study = self._queue.get(timeout=max(self._look_again - time.monotonic(), 0.0))
                with self._lock:
                    self._queued.discard(study)
                return study

    def stop(self) -> None:
        """Have `STOPPED` taken after what is in the queue by now."""
        self._queue.put(STOPPED)
