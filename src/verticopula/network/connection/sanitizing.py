"""Text from a peer, and errors, made safe to print on a terminal and in a log."""

from __future__ import annotations

import traceback
from pathlib import Path

from verticopula.formatting import is_invisible


def sanitize(text: str, most: int = 2_000, *, lines: bool = False) -> str:
    """The text without control characters, changes of writing direction, and line breaks, and at most `most` long.

    `lines`: line feeds stay.
    """
    short = text if len(text) <= most else f"{text[:most]} …"
    return "".join(c if (lines and c == "\n") or _is_plain(c) else " " for c in short)


def frames_of(error: BaseException) -> str:
    """Where an error came from, without its text and the values in it: they may be somebody's data."""
    frames = traceback.extract_tb(error.__traceback__)
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))


def _is_plain(character: str) -> bool:
    return " " <= character <= "~" or not is_invisible(character)
