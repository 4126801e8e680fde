"""Retention: what a party stored of studies that ended long ago is removed, and nothing of it can be made again.

The ledger stays as it is, with everything that was ever spent. In this order, so that a crash anywhere leaves a vault
that opens, and the next time goes on:

1. The study's record becomes a mark that it was removed: from then on everything that is asked in it is refused.
2. The vault writes down which replies go, and deletes them. A reply that was removed is never drawn anew, whatever
   became of the record (`Vault.remove_replies`).
3. Consents, noise, secrets and the state of regressions are deleted.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Protocol

from verticopula.protocol.party.joined_study import JoinedStudy
from verticopula.protocol.party.moments_handler import MomentsHandler
from verticopula.protocol.party.regression_handler import fit_key
from verticopula.protocol.party.strict_handler import StrictHandler
from verticopula.protocol.party.study_admission import begun_studies
from verticopula.protocol.party.study_consents import FIT_PLACE, ConsentRecord, StudyConsents
from verticopula.protocol.party.sums_handler import SumsHandler
from verticopula.schema.defaults import SECONDS_PER_DAY
from verticopula.storage.blobs import Blobs
from verticopula.storage.ledger import Ledger
from verticopula.storage.record_store import RecordStore

logger = logging.getLogger(__name__)


class RemovingVault(Protocol):
    """A vault, as far as removing goes."""

    @property
    def ledger(self) -> Ledger: ...

    @property
    def studies(self) -> RecordStore: ...

    @property
    def fits(self) -> Blobs: ...

    def remove_replies(self, party: str, study: str, by: str, now: float) -> int: ...


@dataclass(frozen=True)
class RetentionRule:
    """For how long what is stored of a study is kept after its end, in days.

    Attributes
    ----------
    days : of retention
    consent_days : after which a study that nobody closed counts as ended
    """

    days: float
    consent_days: float

    def is_over(self, ended: float, now: float) -> bool:
        """Whether what ended then is to go.

        Parameters
        ----------
        ended, now : seconds since 1970
        """
        return now > ended + self.days * SECONDS_PER_DAY


def list_ended(vault: RemovingVault, party: str, rule: RetentionRule, now: float) -> list[str]:
    """The studies of which something is stored that is to go, by the rule.

    Parameters
    ----------
    vault : the party's
    party : its name
    rule : how long things are kept
    now : seconds since 1970
    """
    begun = begun_studies(vault.studies, party)
    names = dict.fromkeys([*begun, *(entry.study for entry in vault.ledger if entry.party == party)])
    found = []
    for study in names:
        raw = vault.studies.get(JoinedStudy.record_name(party, study))
        if raw is None:
            continue
        record = JoinedStudy.from_dict(raw)
        is_left = any(vault.studies.get(name) is not None for name in _record_names(party, study))
        if record.removed:
            if is_left:  # a crash came in between
                found.append(study)
        elif rule.is_over(_ended(vault, party, study, record, begun.get(study, now), rule), now):
            found.append(study)
    return found


def remove_study(vault: RemovingVault, party: str, study: str, by: str, now: float) -> int:
    """The number of replies that are gone now, with everything else that was stored of a study.

    Parameters
    ----------
    vault, party, now : as `list_ended` has them
    study : one that it named
    by : who removes, for the record
    """
    name = JoinedStudy.record_name(party, study)
    raw = vault.studies.get(name)
    if raw is None:
        return 0
    record = JoinedStudy.from_dict(raw)
    if not record.removed:
        vault.studies.put(name, record.as_removed(now).to_dict())
    count = vault.remove_replies(party, study, by, now)
    consent = vault.studies.get(StudyConsents.record_name(party, study))
    for place in () if consent is None else ConsentRecord.from_dict(consent).asked:
        if place.startswith(FIT_PLACE):
            vault.fits.discard(fit_key(party, study, place.removeprefix(FIT_PLACE)))
    for one in _record_names(party, study):
        vault.studies.discard(one)
    logger.info("party %s: what was stored of study %s was removed: it ended long ago", party, study)
    return count


def _record_names(party: str, study: str) -> list[str]:
    """All records of a study but its own; the consent last, because it says which fits there are."""
    return [
        StudyConsents.salt_name(party, study),
        StudyConsents.capped_name(party, study),
        StrictHandler.record_name(party, study),
        SumsHandler.record_name(party, study),
        MomentsHandler.record_name(party, study),
        StudyConsents.record_name(party, study),
    ]


def _ended(
    vault: RemovingVault, party: str, study: str, record: JoinedStudy, begun: float, rule: RetentionRule
) -> float:
    """When a study ended: when it was closed, or when nobody's yes lives any more."""
    if record.closed:
        return record.closed
    raw = vault.studies.get(StudyConsents.record_name(party, study))
    said = begun if raw is None else ConsentRecord.from_dict(raw).said
    return said + rule.consent_days * SECONDS_PER_DAY
