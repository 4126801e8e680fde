"""Timing several things fairly on a machine that is not idle."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Timing:
    """Seconds of each repetition."""

    seconds: tuple[float, ...]

    @property
    def minimum(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return median(self.seconds)


def time_interleaved(tasks: Mapping[str, Callable[[], object]], repetitions: int) -> dict[str, Timing]:
    """Time every task `repetitions` times, taking turns, so that a busy minute hits all of them alike."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(repetitions):
        for name, task in tasks.items():
            seconds[name].append(time_call(task))
    return {name: Timing(tuple(taken)) for name, taken in seconds.items()}


def time_call(task: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    start = time.perf_counter()
    task()
    return time.perf_counter() - start
