"""The steward's consent: the proposed releases and their cost are shown at the terminal, and the steward decides."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from verticopula.errors import PolicyRefused
from verticopula.network.sanitizing import sanitize
from verticopula.privacy.release import Release
from verticopula.privacy.statement import format_epsilon, format_price, party_epsilons

_UNITS = ("variable", "client", "block")


@dataclass
class ConsentPrompt:
    """Asks the steward at the terminal before anything is released. Any answer but yes, and none, is a refusal.

    `all` also consents to the later rounds of the same study (IEVCDS sends ranks in each), as long as they ask for no
    more than was shown.

    Attributes
    ----------
    is_waiting : whether the steward is being asked right now
    """

    party: str
    delta: float
    read: Callable[[], str] = sys.stdin.readline

    def __post_init__(self) -> None:
        self._one_at_a_time = threading.Lock()
        self._agreed: dict[str, list[Release]] = {}
        self.is_waiting = False

    def request(self, method: str, proposed: list[Release], spent: list[Release]) -> None:
        """Show the releases and wait for the steward; PolicyRefused unless the answer is yes."""
        study = proposed[0].study
        with self._one_at_a_time:
            if _covers(self._agreed.get(study, []), proposed):
                return
            self._show(method, proposed, spent)
            self.is_waiting = True
            try:
                answer = self.read().strip().lower()
            finally:
                self.is_waiting = False
        if answer == "all":
            self._agreed[study] = [*self._agreed.get(study, []), *proposed]
        elif answer not in ("y", "yes"):
            raise PolicyRefused(f"party {self.party!r}: its steward said no")

    def _show(self, method: str, proposed: list[Release], spent: list[Release]) -> None:
        console = Console()
        title = sanitize(f"Study {proposed[0].study} ({method}) asks for:", 300)
        console.print(Text(title, style="bold"), soft_wrap=True)
        table = Table("column", "what leaves", "people", "how", "epsilon")
        for entry in proposed:
            words = _IN_WORDS[entry.what]
            cells = (entry.column, words, f"{entry.n_subjects:,}", entry.mechanism, format_price(entry))
            table.add_row(*(Text(sanitize(cell, 300)) for cell in cells))
        console.print(table)
        before, after = party_epsilons(spent, self.delta), party_epsilons([*spent, *proposed], self.delta)
        for unit in _UNITS:
            old, new = (format_epsilon(getattr(total, unit)) for total in (before, after))
            console.print(f"  epsilon per {unit}: {old} so far, {new} with this")
        console.print(Text("Send it? [y/N/all] ", style="bold"), end="")


def _covers(shown: list[Release], proposed: list[Release]) -> bool:
    """Whether every one of these leaves no more than one of those: same column, same kind, no larger epsilon."""
    return all(
        any(
            (old.column, old.what, old.noise) == (new.column, new.what, new.noise)
            and new.n_subjects <= old.n_subjects
            and _costs_no_more(new, old)
            and new.mechanism.startswith(old.mechanism)  # ", completed column" may follow
            for old in shown
        )
        for new in proposed
    )


def _costs_no_more(new: Release, old: Release) -> bool:
    if new.is_gaussian or old.is_gaussian:  # epsilon says nothing then
        both = new.is_gaussian and old.is_gaussian
        return both and new.mu <= old.mu * (1 + 1e-9) and new.mu_person <= old.mu_person * (1 + 1e-9)
    return new.epsilon <= old.epsilon * (1 + 1e-9)


_IN_WORDS = {
    "ranks": "noisy ranks",
    "marginal": "noisy counts",
    "moments": "noisy sums over all parties' columns",
    "exact": "EXACT VALUES",
}
