"""What answers the requests of the latest studies, held in memory; for others it is made again from their records."""

from __future__ import annotations

from typing import Generic, TypeVar

MOST_READY = 8

Handler = TypeVar("Handler")


class ReadyStudies(dict[str, Handler], Generic[Handler]):
    """Study -> who answers for it. With one more than `MOST_READY`, the oldest is forgotten."""

    def __setitem__(self, study: str, handler: Handler) -> None:
        super().__setitem__(study, handler)
        for old in list(self)[:-MOST_READY]:
            del self[old]
