"""How things show themselves in a notebook: small, escaped, at home on light and dark pages."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from verticopula.formatting import readable

MOST_BOX_ROWS = 40
_BETWEEN_UPDATES = 0.1  # seconds; more often nobody could read it

# No colours of its own but those of the page around it, and lines that are half transparent.
_BOX = "font:13px/1.5 system-ui,sans-serif;max-width:60em;overflow-x:auto"
_CELL = "padding:2px 12px 2px 0;border-bottom:1px solid rgba(128,128,128,.35);text-align:{};vertical-align:top"


def box(
    lines: Sequence[str], heads: Sequence[str], rows: list[list[str]], *, numbers: int = 99, after: Sequence[str] = ()
) -> str:
    """HTML of some lines of markup, then a table of plain text; columns from `numbers` on are set to the right."""
    more = len(rows) - MOST_BOX_ROWS
    side = ["right" if i >= numbers else "left" for i in range(len(heads))]
    head = "".join(f'<th style="{_CELL.format(at)}">{text_html(h)}</th>' for h, at in zip(heads, side, strict=True))
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{_CELL.format(at)}">{text_html(c)}</td>' for c, at in zip(row, side, strict=True))
        + "</tr>"
        for row in rows[:MOST_BOX_ROWS]
    )
    table = (
        f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        if rows
        else ""
    )
    below = [*([f"and {more} more"] if more > 0 else []), *after]
    return (
        f'<div style="{_BOX}">'
        + "".join(f"<div>{line}</div>" for line in lines)
        + table
        + "".join(f'<div style="opacity:.8">{line}</div>' for line in below)
        + "</div>"
    )


def text_html(text: str) -> str:
    """Escaped text in which nothing is invisible."""
    return f"<bdi>{html.escape(readable(text))}</bdi>"


def alarm_html(text: str) -> str:
    """The same as a warning."""
    return f'<b style="border-left:4px solid #c62828;padding-left:8px">{text_html(text)}</b>'


def live_progress() -> Callable[[str, int, int], None] | None:
    """In a notebook, a callback that shows how far work is, in one line below the cell; None everywhere else."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return None if getattr(shell, "kernel", None) is None else _LiveProgress(time.monotonic)


class _LiveProgress:
    """One line of a notebook that is written over."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._last, self._what = clock, -1.0, ""
        self._handle: Any = None

    def __call__(self, what: str, done: int, total: int) -> None:
        now = self._clock()
        if what == self._what and done < total and now - self._last < _BETWEEN_UPDATES:
            return
        self._what, self._last = what, now
        display: Any = import_module("IPython.display").display  # it is there: a notebook's shell was found

        line = {"text/html": progress_html(what, done, total), "text/plain": ""}
        if self._handle is None:
            self._handle = display(line, raw=True, display_id=True)
        else:
            self._handle.update(line, raw=True)


def progress_html(what: str, done: int, total: int) -> str:
    """A progress bar with its name and its numbers."""
    bar = f'<progress value="{int(done)}" max="{max(int(total), 1)}"></progress>'
    return f'<div style="{_BOX}">{text_html(what)} {bar} {int(done):,} of {int(total):,}</div>'
