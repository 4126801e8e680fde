"""A steward's no, remembered for as long as a yes would be: whoever asks again gets the same refusal, and nobody is
asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from verticopula.errors import PolicyRefused
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.party.consent_question import ConsentQuestion
from verticopula.storage.records import RecordStore

_DAY = 86_400.0
_STUDY, _SAME = "study ", "same "


@dataclass(frozen=True, repr=False)
class StudyRefusals:
    """What one party's steward said no to.

    A no is about the study by its name, whatever is asked in it, and about the same question under any other name.

    Attributes
    ----------
    records : where refusals are kept
    days : how long a refusal lives, as the policy says now
    clock : seconds since 1970
    """

    party: str
    records: RecordStore
    days: Callable[[], float]
    clock: Callable[[], float] = time.time

    def ask(self, question: ConsentQuestion, steward: Callable[[ConsentQuestion], None]) -> None:
        """Ask the steward, unless there was a no before that still lives; PolicyRefused for a no of then or now."""
        known = self._living()
        keys = f"{_STUDY}{question.study}", f"{_SAME}{_digest(question)}"
        for key in keys:
            if key in known:
                raise PolicyRefused(known[key]["reason"])
        try:
            steward(question)
        except PolicyRefused as error:
            reason = f"{error}; for {self.days():g} days the same is refused without asking again"
            said = {"said": self.clock(), "reason": reason}
            # Read again: a steward takes their time, and may have said no to something else meanwhile.
            self.records.put(self._name, {**self._living(), **dict.fromkeys(keys, said)})
            raise PolicyRefused(reason) from None

    def studies(self) -> set[str]:
        """The names of studies that were refused, and are not to be asked about again yet."""
        return {key.removeprefix(_STUDY) for key in self._living() if key.startswith(_STUDY)}

    def _living(self) -> dict[str, dict[str, Any]]:
        # A clock that was set back makes a no live longer, never shorter.
        since = self.clock() - self.days() * _DAY
        known = self.records.get(self._name) or {}
        return {key: refusal for key, refusal in known.items() if refusal["said"] >= since}

    @property
    def _name(self) -> str:
        return f"refusals:{self.party}"  # no party's name has a colon


def _digest(question: ConsentQuestion) -> str:
    """Of everything that the steward is shown but the study's name, which a coordinator can choose, and earlier
    studies."""
    shown = tuple(
        replace(entry, time="", study="", table="", content="", previous="", hash="", request="", joint="")
        for entry in question.proposed
    )
    seeded = ("seeded",) if question.seeded else ()
    return fingerprint((question.method, question.requester, question.purpose, question.alignment, shown, *seeded))
