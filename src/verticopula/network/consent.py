"""The steward's consent: a whole study and its cost are shown at the terminal, and the steward decides."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from verticopula.errors import PolicyRefused, ProtocolError
from verticopula.network.sanitizing import sanitize
from verticopula.privacy.policy import Policy, capped_epsilons
from verticopula.privacy.policy_file import PolicyFile
from verticopula.privacy.pricing import PRINTED_MARGIN
from verticopula.privacy.release import Release
from verticopula.privacy.statement import SEEDED, format_epsilon, format_price, party_epsilons, state_privacy
from verticopula.protocol.party.consent_question import ConsentQuestion
from verticopula.schema.methods import tells_presence_by_party

_UNITS = ("variable", "client", "block")
_LONGEST = 500


@dataclass
class ConsentPrompt:
    """Asks the steward at the terminal before anything leaves. Any answer but yes is a no, and is remembered; without
    an answer the study is refused, too.

    A yes is for a whole study, as it was shown: the party releases nothing else (`StudyConsents`).

    Attributes
    ----------
    is_waiting : whether the steward is being asked right now
    drop_typed : called when a question stands on the terminal: what was typed before it answers nothing
    """

    party: str
    policy: Policy | PolicyFile
    read: Callable[[], str] = sys.stdin.readline
    drop_typed: Callable[[], None] = lambda: drop_typed_ahead(sys.stdin)

    def __post_init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self.is_waiting = False

    def request(self, question: ConsentQuestion) -> None:
        """Show what is asked and wait for the steward; PolicyRefused unless the answer is yes.

        ProtocolError where nobody can answer.
        """
        with self._one_at_a_time:
            self.is_waiting = True
            try:
                self._show(question)
                self.drop_typed()
                line = self.read()
            finally:
                self.is_waiting = False
        if not line:  # no answer, so nothing to remember
            raise ProtocolError(f"party {self.party!r}: its steward could not be asked: there is no terminal")
        answer = line.strip().lower()
        if answer not in ("y", "yes"):
            raise PolicyRefused(f"party {self.party!r}: its steward said no")

    def _show(self, question: ConsentQuestion) -> None:
        console = Console()
        console.print(Text(sanitize(f"A study by {question.title}", 60), style="bold"), soft_wrap=True)
        theirs = (("study", question.study), ("asked by", question.requester), ("because", question.purpose))
        for name, said in theirs:
            words = f"{name}: {sanitize(said, _LONGEST) or 'not said'}"
            # By the places that letters take on a screen: no line of theirs looks like one of ours.
            for line in Text(words).wrap(console, max(console.width - 8, 20)):
                console.print(Text("  | ") + line, soft_wrap=True)
        if question.seeded:
            console.print(Text(_SEEDED, style="bold red"), soft_wrap=True)
        if question.is_about_alignment:
            said = _KNOWN if tells_presence_by_party(question.method) else "which of your cells are empty"
            console.print(Text(_ALIGNMENT[question.alignment].format(mask=said)), soft_wrap=True)
            console.print(Text("Let it begin? [y/N] ", style="bold"), end="")
            return
        table = Table("column", "what leaves", "people", "how", "epsilon")
        for entry, times in _counted(question.proposed):
            leaves = _PRINTED_MARGIN if entry.mechanism == PRINTED_MARGIN else _IN_WORDS[entry.what]
            words = leaves + (f", {times} times" if times > 1 else "")
            cells = (entry.column, words, f"{entry.n_subjects:,}", entry.mechanism, format_price(entry))
            table.add_row(*(Text(sanitize(cell, 300)) for cell in cells))
        console.print(table)
        policy, together = self.policy.current(), [*question.spent, *question.proposed]
        before, after = party_epsilons(list(question.spent), policy.delta), party_epsilons(together, policy.delta)
        for unit in _UNITS:
            old = format_epsilon(getattr(before, unit))
            new = format_epsilon(math.inf if question.seeded else getattr(after, unit))
            console.print(f"  epsilon per {unit}: {old} so far, {new} with this study")
        person = math.inf if question.seeded else state_privacy(together, policy.delta).person
        console.print(f"  epsilon per person, as far as this ledger knows: {format_epsilon(person)} with this study")
        counted = capped_epsilons(together, policy.delta, gaussian=policy.only_sums)
        for unit, cap in policy.caps.model_dump(exclude_none=True).items():
            used = getattr(counted, unit)
            console.print(f"  cap per {unit}: {cap:g}, of which {max(cap - used, 0.0):.3g} are left after this study")
        console.print("  None of this leaves before every party has said yes to exactly this.")
        console.print(Text("Do you consent? [y/N] ", style="bold"), end="")


def drop_typed_ahead(terminal: TextIO) -> None:
    """Forget what was typed and not read yet; a file or a pipe is left as it is."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import termios

        if terminal.isatty():
            termios.tcflush(terminal.fileno(), termios.TCIFLUSH)


def _counted(entries: tuple[Release, ...]) -> list[tuple[Release, int]]:
    """Equal releases once, with how often they would be made."""
    counted: dict[tuple[object, ...], tuple[Release, int]] = {}
    for entry in entries:
        key = (entry.column, entry.what, entry.mechanism, entry.epsilon, entry.coins, entry.mu, entry.n_subjects)
        counted[key] = (entry, counted[key][1] + 1 if key in counted else 1)
    return list(counted.values())


_SEEDED = f"  {SEEDED.title}.\n  {SEEDED.meaning}\n  The coordinator knows it. For simulations with invented data only."
_ALIGNMENT = {
    "hash": "  First it finds the subjects that the parties have in common. Keyed hashes of your subject ids\n"
    "  leave, and {mask}; no value does. The releases themselves are another question.",
    "psi": "  First it finds the subjects that the parties have in common. Masked points of your subject ids\n"
    "  leave, and {mask}; no value does. A lying coordinator can test guessed ids.\n"
    "  The releases themselves are another question.",
}
_KNOWN = "whom you have any value of, which all other parties are told, too"
_PRINTED_MARGIN = "SMALLEST AND LARGEST VALUE, noisy margin"
_IN_WORDS = {
    "ranks": "noisy ranks",
    "marginal": "noisy counts",
    "gram": "noisy sums over all parties' columns",
    "tables": "noisy tables of pairs of all parties' columns",
    "selection": "noisy sums of your columns by presence",
    "raw": "RAW VALUES",
}
