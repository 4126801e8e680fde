"""A party's retention: once a day what is stored of studies that ended long ago is removed, if its policy says so."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from verticopula.errors import VerticopulaError
from verticopula.privacy.policy import Policy
from verticopula.privacy.policy_file import PolicyFile
from verticopula.protocol.party.joined_study import JoinedStudy
from verticopula.protocol.party.study_removal import RetentionRule, list_ended, remove_study
from verticopula.schema.defaults import SECONDS_PER_DAY
from verticopula.storage.request_store import RequestStore
from verticopula.storage.vault import Vault

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Removed:
    """What went.

    Attributes
    ----------
    studies : whose records went, by name
    replies, requests : how many went
    """

    studies: tuple[str, ...] = ()
    replies: int = 0
    requests: int = 0


@dataclass(frozen=True)
class Retention:
    """Removes by a party's own rule.

    Attributes
    ----------
    vault : of the party; only who holds it can remove
    policy : `retention_days`, read again every time; without it nothing is removed
    store : requests to its stewards
    by : who removes, for the record
    clock : seconds since 1970
    """

    party: str
    vault: Vault
    policy: Policy | PolicyFile
    store: RequestStore
    by: str = "join"
    clock: Callable[[], float] = time.time

    def ended(self) -> list[str]:
        """The studies of which something is to go now."""
        rule, now = self._rule(), self.clock()
        return [] if rule is None else list_ended(self.vault, self.party, rule, now)

    def apply(self) -> Removed:
        """What went: everything that is older than the rule allows."""
        rule, now = self._rule(), self.clock()
        if rule is None:
            return Removed()
        studies = list_ended(self.vault, self.party, rule, now)
        replies = sum(remove_study(self.vault, self.party, study, self.by, now) for study in studies)
        requests = self.store.remove_old(now - rule.days * SECONDS_PER_DAY, self._is_removed, self.by)
        if studies or requests:
            logger.info("retention: %d studies, %d replies and %d requests removed", len(studies), replies, requests)
        return Removed(tuple(studies), replies, requests)

    def run(self, stopped: threading.Event, every: float = SECONDS_PER_DAY) -> None:
        """Apply the rule now and once a day, until told to stop.

        Parameters
        ----------
        stopped : set when it should end
        every : seconds
        """
        while True:
            try:
                self.apply()
            except (OSError, VerticopulaError) as error:  # a full disk, for example; it is tried again tomorrow
                logger.error("retention: nothing more could be removed: %s", error)
            if stopped.wait(every):
                return

    def _rule(self) -> RetentionRule | None:
        policy = self.policy.current()
        return None if policy.retention_days is None else RetentionRule(policy.retention_days, policy.consent_days)

    def _is_removed(self, study: str) -> bool:
        raw = self.vault.studies.get(JoinedStudy.record_name(self.party, study))
        return raw is not None and bool(JoinedStudy.from_dict(raw).removed)
