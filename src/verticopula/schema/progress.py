"""How long work reports how far it is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # called with (what, done, total)


def show_nothing(what: str, done: int, total: int) -> None:
    """No progress bar."""
