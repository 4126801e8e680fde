"""Which study an entry of the log belongs to."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

from verticopula.network.connection.sanitizing import sanitize

_STUDY: ContextVar[str] = ContextVar("study", default="")
_LONGEST_STUDY = 128


@contextlib.contextmanager
def in_study(study: str = "") -> Iterator[Callable[[str], None]]:
    """Entries that this thread writes in the block belong to this study; yields what names it where it is known later.

    Parameters
    ----------
    study : its name, as a peer may have given it
    """
    token = _STUDY.set("")

    def name_study(name: str) -> None:
        _STUDY.set(sanitize(name, _LONGEST_STUDY))

    try:
        name_study(study)
        yield name_study
    finally:
        _STUDY.reset(token)


def current_study() -> str:
    """The study that entries of this thread belong to now; empty outside of any."""
    return _STUDY.get()
