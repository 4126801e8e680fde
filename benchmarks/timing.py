"""Timing several things fairly on a machine that is not idle."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Timing:
    """Seconds of each repetition of single-threaded work.

    Processor time is what is compared: it leaves out the time for which other processes had the
    processor. The wall clock's seconds are kept beside it.
    """

    processor: tuple[float, ...]
    wall: tuple[float, ...]

    @property
    def minimum(self) -> float:
        return min(self.processor)

    @property
    def median(self) -> float:
        return median(self.processor)

    @classmethod
    def of(cls, saved: Mapping[str, Sequence[float]]) -> Timing:
        """From what `to_dict` gave."""
        return cls(tuple(saved["processor_seconds"]), tuple(saved["wall_seconds"]))

    def to_dict(self) -> dict[str, list[float]]:
        """All repetitions, for the record."""
        return {"processor_seconds": list(self.processor), "wall_seconds": list(self.wall)}


def time_interleaved(tasks: Mapping[str, Callable[[], object]], repetitions: int) -> dict[str, Timing]:
    """Time every task `repetitions` times, taking turns, so that a busy minute hits all of them alike."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in tasks}
    for _ in range(repetitions):
        for name, task in tasks.items():
            taken[name].append(_time_call(task))
    return {name: Timing(*map(tuple, zip(*pairs, strict=True))) for name, pairs in taken.items()}


def _time_call(task: Callable[[], object]) -> tuple[float, float]:
    """Processor seconds and wall seconds of one call."""
    wall, processor = time.perf_counter(), time.process_time()
    task()
    return time.process_time() - processor, time.perf_counter() - wall
