"""The steward's consent at a terminal: a view of the requests that wait, and an answer to each.

It is one of several: `verticopula requests` and the console show the same requests, and whoever decides first has
decided.
"""

from __future__ import annotations

import contextlib
import getpass
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

from rich.console import Console
from rich.text import Text

from verticopula.errors import SettingsError
from verticopula.network.connection.sanitizing import sanitize
from verticopula.privacy.statement import SEEDED
from verticopula.storage.request_sentences import request_sections
from verticopula.storage.request_store import RequestStore
from verticopula.storage.steward_keys import Steward
from verticopula.storage.steward_requests import StewardRequest

_LOOK_FOR_REQUESTS = 0.5  # seconds
_SEEDED = f"  {SEEDED.title}.\n  {SEEDED.meaning}\n  The coordinator knows it. For simulations with invented data only."


@dataclass
class ConsentPrompt:
    """Shows every request that waits, one after the other, and stores the answer. Any answer but yes is a no.

    Attributes
    ----------
    is_waiting : whether a question stands on the terminal right now
    drop_typed : called when a question stands on the terminal: what was typed before it answers nothing
    """

    store: RequestStore
    read: Callable[[], str] = sys.stdin.readline
    drop_typed: Callable[[], None] = lambda: drop_typed_ahead(sys.stdin)
    steward: Steward = field(default_factory=lambda: Steward(getpass.getuser()))
    is_waiting: bool = field(default=False, init=False)

    def run(self, stopped: threading.Event) -> None:
        """Ask about requests as they come, until told to stop or until nobody is at the terminal any more."""
        while not stopped.wait(_LOOK_FOR_REQUESTS):
            for request in self.store.all("pending"):
                if not self.ask(request):
                    return

    def ask(self, request: StewardRequest) -> bool:
        """Show one request and store the answer; False where there is nobody to answer, and then nothing is stored."""
        self.is_waiting = True
        try:
            self._show(request)
            self.drop_typed()
            line = self.read()
        finally:
            self.is_waiting = False
        if not line:  # no answer, so nothing to remember
            return False
        verdict = "yes" if line.strip().lower() in ("y", "yes") else "no"
        try:
            after = self.store.decide(request.id, self.steward.decide(request, "yes" if verdict == "yes" else "no"))
        except SettingsError as error:  # decided elsewhere meanwhile, or not theirs to decide
            Console().print(Text(sanitize(str(error))), soft_wrap=True)
            return True
        Console().print(Text(f"{after.id} is {after.state}"), soft_wrap=True)
        return True

    def _show(self, request: StewardRequest) -> None:
        console = Console()
        title = "A new federation file" if request.content.stage == "federation" else None
        title = title or sanitize(f"A study by {request.content.method}", 60)
        console.print(Text(title, style="bold"), soft_wrap=True)
        if request.content.stage != "federation":
            _mark_lines(console, f"study: {request.content.study}")
        if request.content.seeded:
            console.print(Text(_SEEDED, style="bold red"), soft_wrap=True)
        for title, lines in request_sections(request):
            console.print(Text(title, style="bold"), soft_wrap=True)
            for line in lines:
                if line.startswith("| "):
                    _mark_lines(console, line.removeprefix("| "))
                else:
                    console.print(Text(f"  {sanitize(line)}"), soft_wrap=True)
        words = "Let it begin? [y/N] " if request.content.stage == "beginning" else "Do you consent? [y/N] "
        console.print(Text(words, style="bold"), end="")


def _mark_lines(console: Console, words: str) -> None:
    """Their words with a mark on every line, by the places that letters take on a screen: none looks like ours."""
    for line in Text(sanitize(words)).wrap(console, max(console.width - 8, 20)):
        console.print(Text("  | ") + line, soft_wrap=True)


def drop_typed_ahead(terminal: TextIO) -> None:
    """Forget what was typed and not read yet; a file or a pipe is left as it is."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import termios

        if terminal.isatty():
            termios.tcflush(terminal.fileno(), termios.TCIFLUSH)
