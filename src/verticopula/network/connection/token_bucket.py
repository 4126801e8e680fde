"""How often something may happen: so many times at once, and then so many times a second."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class TokenBucket:
    """What is left of an allowance that fills up again with time. Not safe for threads: its user holds a lock.

    Attributes
    ----------
    burst : times at once, where it was not used for long
    per_second : how fast it fills up
    clock : seconds of a clock that is never set
    """

    burst: float
    per_second: float
    clock: Callable[[], float] = time.monotonic
    _tokens: float = field(init=False)
    _updated: float = field(init=False)

    def __post_init__(self) -> None:
        self._tokens, self._updated = self.burst, self.clock()

    def take(self) -> bool:
        """Whether it may happen once more; it is counted then."""
        now = self.clock()
        self._tokens = min(self.burst, self._tokens + (now - self._updated) * self.per_second)
        self._updated = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True
