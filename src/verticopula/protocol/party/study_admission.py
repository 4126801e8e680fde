"""Admission of studies: how many may be begun, and what a steward is asked before one is."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from verticopula.errors import PolicyRefused
from verticopula.privacy.policy import Policy
from verticopula.privacy.policy_file import PolicyFile
from verticopula.privacy.release import Release
from verticopula.protocol.party.consent_question import ConsentQuestion
from verticopula.protocol.party.party_terms import said_by
from verticopula.protocol.party.study_refusals import StudyRefusals, begun_name
from verticopula.protocol.study_messages import BeginRequest
from verticopula.schema.defaults import SECONDS_PER_DAY
from verticopula.storage.record_store import RecordStore

logger = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class StudyAdmission:
    """Whether one more study about the party's people may be begun.

    Attributes
    ----------
    refusals : what the steward said no to; it knows party, people, federation, records and clock
    ledger : from which studies something was released
    policy : how many studies may be begun
    steward : asked about a study; raises PolicyRefused for a no
    """

    refusals: StudyRefusals
    ledger: Iterable[Release]
    policy: Policy | PolicyFile
    steward: Callable[[ConsentQuestion], None]
    # From looking what was said and begun before until the answer is written down: a second question waits, and is
    # compared with a no to the first one.
    _one_at_a_time: threading.Lock = field(default_factory=threading.Lock)

    def ask(self, question: ConsentQuestion) -> None:
        """As `StudyRefusals.ask`, one question after the other.

        Parameters
        ----------
        question : as there
        """
        with self._one_at_a_time:
            self.refusals.ask(question, self.steward)

    def allow(self, request: BeginRequest, table: str = "") -> None:
        """Log that a study begins, if the policy and the steward allow it: hashes and masks leave before any price.

        Every study that begins lets the coordinator find out about some ids (`psi`) and about who is observed. So few
        studies may be open, begun and without a release: a coordinator that begins study after study pays for them.
        Where a study costs next to nothing that is no limit, so the number of studies begun is limited as well. One
        that the steward refused counts: somebody had to be asked.

        Parameters
        ----------
        request : what the coordinator asks for; its terms were checked
        table : digest of the party's table
        """
        question = ConsentQuestion(
            request.study,
            request.method,
            request.requester,
            request.purpose,
            request.alignment,
            seeded=request.seed is not None,
            table=table,
            **said_by(request),
        )
        party, records = self.refusals.party, self.refusals.records
        begun = begun_name(self.refusals.federation, party, request.study)
        with self._one_at_a_time:
            self._check_number()
            self.refusals.ask(question, self.steward)
            known = self._known()
            for name in self._names():
                records.put(name, {**known, begun: self.refusals.clock()})
        logger.info("party %s: study %s opened (%s)", party, request.study, request.alignment)

    def _check_number(self) -> None:
        """PolicyRefused where as many studies were begun as the policy allows."""
        party, federation = self.refusals.party, self.refusals.federation
        since = self.refusals.clock() - self.policy.consent_days * SECONDS_PER_DAY
        with_releases = {begun_name(federation, entry.party, entry.study) for entry in self.ledger}
        lately = {begun for begun, when in self._known().items() if when > since}
        # Of another federation's studies only the number counts: its coordinator cannot keep this one's waiting.
        waiting = [begun for begun in lately - with_releases if begun.startswith(f"{federation}:")]
        if len(waiting) >= self.policy.open_studies:
            raise PolicyRefused(
                f"party {party!r}: {self.policy.open_studies} studies are open from which nothing was released; "
                "its policy allows no more (open_studies)"
            )
        begun = lately | self.refusals.studies()
        if len(begun) >= self.policy.new_studies:
            raise PolicyRefused(
                f"party {party!r}: {len(begun)} studies were begun in the last {self.policy.consent_days:g} days; "
                "its policy allows no more (new_studies). Wait until the first of them is older, or ask its steward"
            )

    def _known(self) -> dict[str, float]:
        known: dict[str, float] = {}
        for name in self._names():
            known |= self.refusals.records.get(name) or {}
        return known

    def _names(self) -> list[str]:
        """By party (no party's name has a colon), and by the people that it is about, whatever the party is called."""
        # What vaults have called these records from the start: the name stays.
        tables = (f"openings:table:{table}" for table in self.refusals.tables)
        return [_openings_name(self.refusals.party), *tables]


def begun_studies(records: RecordStore, party: str) -> dict[str, float]:
    """Study -> when it was begun, in seconds since 1970, of all that were ever begun at a party.

    Parameters
    ----------
    records : the vault's
    party : its name
    """
    found: dict[str, float] = {}
    for begun, when in (records.get(_openings_name(party)) or {}).items():
        _, name, study = begun.split(":", 2)  # as `begun_name` has it
        if name == party:
            found[study] = max(when, found.get(study, when))
    return found


def _openings_name(party: str) -> str:
    return f"openings:{party}"
