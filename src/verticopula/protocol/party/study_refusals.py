"""A steward's no, remembered for as long as a yes would be: whoever asks again gets the same refusal, and nobody is
asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from verticopula.errors import PolicyRefused, ProtocolError
from verticopula.protocol.confusables import fold_confusables
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.party.consent_question import ConsentQuestion
from verticopula.schema.defaults import SECONDS_PER_DAY
from verticopula.storage.record_store import RecordStore

_STUDY, _SAME = "study ", "same "
_SAME_PRICE = 0.1  # relative: a price that differs by less is the same one to a steward
_NUMBERS = ("n_subjects", "epsilon", "coins_epsilon", "coins_count", "mu", "mu_person")


@dataclass(frozen=True, repr=False)
class StudyRefusals:
    """What one party's steward said no to.

    A no is about the study by its name, whatever is asked in it, and about the same question under any other name.

    Attributes
    ----------
    records : where refusals are kept
    days : how long a refusal lives, and a question, as the policy says now
    clock : seconds since 1970
    tables : whom it is about, as a vault names them: what the party is called does not matter
    federation : fingerprint of the federation file: what another federation's coordinator is refused says nothing here
    """

    party: str
    records: RecordStore
    days: Callable[[], float]
    clock: Callable[[], float] = time.time
    tables: tuple[str, ...] = ()
    federation: str = ""

    def ask(self, question: ConsentQuestion, steward: Callable[[ConsentQuestion], None]) -> None:
        """Ask the steward, unless there was a no before that still lives; PolicyRefused for a no of then or now.

        ProtocolError for a yes to a question that has been waiting for longer than a consent would live.
        """
        keys, prices = self._keys(question), _prices(question)
        for key, known in self._living().items():
            alike = any(_are_alike(prices, old["numbers"]) for old in known["prices"])
            if key == keys[0] or (key == keys[1] and alike):
                raise PolicyRefused(self._told(known))
        asked = self.clock()
        try:
            steward(question)
        except PolicyRefused as error:
            reason = f"{error}; for {self.days():g} days the same is refused without asking again"
            # Read again: a steward takes their time, and may have said no to something else meanwhile.
            living = self._living()
            said = {"said": self.clock(), "reason": reason, "party": self.party}
            for key in keys:
                earlier = living.get(key, {}).get("prices", [])
                living[key] = {**said, "prices": [*earlier, {"said": said["said"], "numbers": list(prices)}]}
            for name in self._names():
                self.records.put(name, living)
            raise PolicyRefused(reason) from None
        if self.clock() - asked > self.days() * SECONDS_PER_DAY:
            raise ProtocolError(
                f"party {self.party!r}: its steward was asked more than {self.days():g} days ago; ask again"
            )

    def studies(self) -> set[str]:
        """What was refused about these people in any federation, and is not to be asked about again yet.

        As `begun_name` has it.
        """
        found = set()
        for key, refusal in self._living().items():
            if key.startswith(_STUDY):
                federation, _, study = key.removeprefix(_STUDY).partition(" ")  # a study's name may have blanks
                found.add(begun_name(federation, refusal.get("party", self.party), study))
        return found

    def _keys(self, question: ConsentQuestion) -> tuple[str, str]:
        return f"{_STUDY}{self.federation} {question.study}", f"{_SAME}{self.federation} {_digest(question)}"

    def _told(self, known: dict[str, Any]) -> str:
        """Why it was refused; what else this organisation is called is not told."""
        if known.get("party", self.party) == self.party:
            return str(known["reason"])
        return f"party {self.party!r}: its steward said no before; the same is refused without asking again"

    def _living(self) -> dict[str, dict[str, Any]]:
        # A clock that was set back makes a no live longer, never shorter.
        since = self.clock() - self.days() * SECONDS_PER_DAY
        found: dict[str, dict[str, Any]] = {}
        for name in self._names():
            for key, refusal in (self.records.get(name) or {}).items():
                if refusal["said"] >= since and refusal["said"] >= found.get(key, refusal)["said"]:
                    # Each price has its own no: a later one to another price does not renew it.
                    living = [price for price in refusal.get("prices", []) if price["said"] >= since]
                    found[key] = {**refusal, "prices": living}
        return found

    def _names(self) -> list[str]:
        """By party (no party's name has a colon), and by the people that it is about."""
        return [f"refusals:{self.party}", *(f"refusals:table:{table}" for table in self.tables)]


def begun_name(federation: str, party: str, study: str) -> str:
    """Under which a study is counted: its name may repeat in other federations and at other parties.

    No fingerprint and no party's name has a colon, so no two studies have one name here.
    """
    return f"{federation}:{party}:{study}"


def _digest(question: ConsentQuestion) -> str:
    """Of everything that the steward is shown but the study's name, which a coordinator can choose, earlier studies,
    and numbers, which are compared by themselves (`_prices`)."""
    nothing: dict[str, Any] = dict.fromkeys(_NUMBERS, 0)
    shown = tuple(
        replace(entry, **nothing, time="", study="", table="", content="", previous="", hash="", request="", joint="")
        for entry in question.proposed
    )
    seeded = ("seeded",) if question.seeded else ()
    words = fold_confusables(question.requester), fold_confusables(question.purpose)
    return fingerprint((question.method, question.variant, *words, question.alignment, shown, *seeded))


def _prices(question: ConsentQuestion) -> tuple[float, ...]:
    """How many people, and at which price, release by release."""
    return tuple(float(number) for entry in question.proposed for number in (getattr(entry, name) for name in _NUMBERS))


def _are_alike(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether no number differs by more than a steward would mind."""
    return len(one) == len(other) and all(
        a == b or abs(a - b) <= _SAME_PRICE * max(abs(a), abs(b)) < float("inf")
        for a, b in zip(one, other, strict=True)
    )
