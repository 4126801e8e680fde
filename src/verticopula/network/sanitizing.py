"""Words that come from somebody else, made fit for a terminal and a log."""

from __future__ import annotations

import unicodedata


def harmless(text: str, most: int = 2_000, *, lines: bool = False) -> str:
    """The text without what moves a cursor, changes the direction of writing, or begins a line of its own.

    `lines`: line feeds stay.
    """
    short = text if len(text) <= most else f"{text[:most]} …"
    return "".join(c if (lines and c == "\n") or _is_plain(c) else " " for c in short)


def _is_plain(character: str) -> bool:
    return " " <= character <= "~" or unicodedata.category(character) not in _NOT_PLAIN


_NOT_PLAIN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
