"""What answers the requests of the latest studies, held in memory; for others it is made again from their records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

MOST_READY = 8

Handler = TypeVar("Handler")


class ReadyStudies(dict[str, Handler], Generic[Handler]):
    """Study -> who answers for it. The oldest are forgotten where there are more than `MOST_READY`, or where all of
    them together are larger than what one study may be; the newest stays.

    Parameters
    ----------
    size_of : how large a handler is
    most : how large all of them may be
    """

    def __init__(self, size_of: Callable[[Handler], int] = lambda handler: 0, most: int = 0) -> None:
        super().__init__()
        self._size_of, self._most = size_of, most

    def __setitem__(self, study: str, handler: Handler) -> None:
        self.pop(study, None)  # it is the newest now
        super().__setitem__(study, handler)
        while len(self) > MOST_READY or (len(self) > 1 and sum(map(self._size_of, self.values())) > self._most):
            del self[next(iter(self))]
