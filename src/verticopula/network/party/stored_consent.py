"""A party's stewards as its process asks them: the question goes to the store, and whatever they decided comes back.

Nothing waits in memory. A question that is not decided raises ConsentPending at once; the coordinator asks again, also
after a restart of either side.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from verticopula.errors import ConsentPending, LedgerError, PolicyRefused
from verticopula.network.connection.sanitizing import sanitize
from verticopula.privacy.policy import Policy
from verticopula.privacy.policy_file import PolicyFile
from verticopula.privacy.pricing import PRINTED_MARGIN
from verticopula.privacy.release import Release
from verticopula.privacy.statement import format_price, party_epsilons, state_privacy
from verticopula.protocol.party.consent_question import ConsentQuestion
from verticopula.schema.methods import tells_presence_by_party
from verticopula.schema.units import Unit
from verticopula.storage.record_store import RecordStore
from verticopula.storage.request_store import RequestStore, standing_of
from verticopula.storage.steward_requests import LeavingEntry, RequestContent, StewardRequest, UnitPrice

logger = logging.getLogger(__name__)

_LONGEST = 500
_PRINTED_WORDS = "SMALLEST AND LARGEST VALUE, noisy margin"
_IN_WORDS = {
    "ranks": "noisy ranks",
    "marginal": "noisy counts",
    "gram": "noisy sums over all parties' columns",
    "tables": "noisy tables of pairs of all parties' columns",
    "selection": "noisy sums of your columns by presence",
    "raw": "RAW VALUES",
    "raw-moments": "EXACT MEAN, STANDARD DEVIATION AND PRODUCTS with all other columns, no row",
}


@dataclass
class StoredConsent:
    """What the stewards of one party are asked, and have decided.

    Attributes
    ----------
    policy : what stewards are asked about, who they are, and how many have to agree
    federation : fingerprint of the federation file
    always : ask about everything, whatever the policy says
    records : the vault's; it remembers how far the store's history was, so that an old copy is noticed
    clock : seconds since 1970
    """

    party: str
    store: RequestStore
    policy: Policy | PolicyFile
    federation: str
    always: bool = False
    records: RecordStore | None = None
    clock: Callable[[], float] = time.time
    _seen: int = field(default=-1, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        self._check_head()
        self.store.verify()

    def request(self, question: ConsentQuestion) -> None:
        """Return if the stewards have said yes; PolicyRefused for a no, ConsentPending where they have not decided."""
        policy = self.policy.current()
        review = "everything" if self.always else policy.review
        if review == "nothing" or (review == "releases" and question.is_about_alignment):
            return
        content = describe_request(question, self.party, self.federation, policy)
        asked = self.store.ask(content, most_pending=policy.open_studies)
        state = standing_of(asked, policy.stewards, policy.approvals, self.clock())
        if state == "approved":
            self.store.mark_used(asked)
            return
        if state == "denied":
            why = asked.decisions[-1].reason
            raise PolicyRefused(f"party {self.party!r}: its steward said no{f': {sanitize(why)}' if why else ''}")
        if state == "withdrawn":
            raise PolicyRefused(f"party {self.party!r}: its steward has taken back their yes")
        raise ConsentPending(
            f"party {self.party!r}: its stewards were asked about study {asked.content.study}", asked.asked
        )

    def check_standing(self, study: str) -> None:
        """PolicyRefused where a yes to this study was taken back."""
        if self._is_withdrawn(study):
            raise PolicyRefused(f"party {self.party!r}: its steward has taken back their yes")

    def close(self, study: str) -> None:
        """Nothing more is asked in this study: nobody needs to decide."""
        if any(self._is_own(one) for one in self.store.all("pending", study=study)):
            self.store.cancel(study, "coordinator", "nothing more is asked in this study")

    def decided_studies(self, waiting: Collection[str]) -> set[str]:
        """Of these studies those for which nobody has to decide any more, at this moment."""
        self._remember_history()
        policy = self.policy.current()
        now, found = self.clock(), set(waiting)
        for study in waiting:
            asked = [one for one in self.store.all(study=study) if self._is_own(one)]
            if any(standing_of(one, policy.stewards, policy.approvals, now) == "pending" for one in asked):
                found.discard(study)
        return found

    def _remember_history(self) -> None:
        """In the vault, how far the history is, and what was taken back: the store may be lost, or put back."""
        with self._lock:
            count, digest = self.store.head()
            if count == self._seen or self.records is None:
                return
            self._check_head()
            for one in self.store.all("withdrawn"):
                name = f"{self._head_name}:withdrawn:{one.content.study}"
                if self._is_own(one) and self.records.get(name) is None:
                    self.records.put(name, {"id": one.id})
            self.records.put(self._head_name, {"count": count, "hash": digest})
            self._seen = count

    @property
    def _head_name(self) -> str:
        """The vault's record of how far the history was; one vault may serve several kits."""
        return f"requests:{self.party}:{self.federation}"

    def _is_withdrawn(self, study: str) -> bool:
        if any(self._is_own(one) for one in self.store.all("withdrawn", study=study)):
            return True
        return self.records is not None and self.records.get(f"{self._head_name}:withdrawn:{study}") is not None

    def _is_own(self, request: StewardRequest) -> bool:
        return (request.content.party, request.content.federation) == (self.party, self.federation)

    def _check_head(self) -> None:
        """LedgerError where the store's history does not contain what the vault remembers of it."""
        known = None if self.records is None else self.records.get(self._head_name)
        if known is None or known["count"] == 0:
            return
        events = self.store.events()
        if not events:  # without an old yes in it there is nothing to fear: everybody is asked again
            logger.warning("%s is gone: stewards are asked again", self.store.path.name)
            return
        if len(events) < known["count"] or events[known["count"] - 1].hash != known["hash"]:
            raise LedgerError(
                f"{self.store.path.name} was put back from an old copy, or replaced: a no or a withdrawal could be "
                "forgotten. Put back the newest copy"
            )


def decided_by_all(consents: Iterable[StoredConsent], waiting: Collection[str]) -> set[str]:
    """Of these studies those for which nobody has to decide any more, under any version of the federation file.

    Parameters
    ----------
    consents : one for each version
    waiting : names of studies
    """
    found = set(waiting)
    for consent in list(consents):
        found &= consent.decided_studies(waiting)
    return found


def decided_requests(store: RequestStore, waiting: Collection[str]) -> set[str]:
    """The same for somebody without data, who is asked about the federation file alone.

    Parameters
    ----------
    store : where they are asked
    waiting : what they were asked about
    """
    return {name for name in waiting if not store.all("pending", study=name)}


def describe_request(question: ConsentQuestion, party: str, federation: str, policy: Policy) -> RequestContent:
    """What stewards are asked, complete, with its price at every unit and what is left of caps."""
    return RequestContent(
        party,
        question.study,
        "beginning" if question.is_about_alignment else "releases",
        federation=federation,
        lead=question.lead,
        requester=sanitize(question.requester, _LONGEST),
        contact=sanitize(question.contact, _LONGEST),
        purpose=sanitize(question.purpose, _LONGEST),
        use=sanitize(question.use, _LONGEST),
        method=question.title,
        alignment=question.alignment,
        proposal=question.proposal,
        leaves=tuple(_leaving(question.proposed)),
        prices=tuple(_prices_at_units(question, policy)),
        delta=policy.delta,
        seeded=question.seeded,
        table=question.table,
        policy=policy.digest,
        days=policy.consent_days,
        approvals=policy.approvals,
        stewards=policy.stewards,
        tells_presence=tells_presence_by_party(question.method),
    )


def _leaving(entries: Iterable[Release]) -> list[LeavingEntry]:
    """Equal releases once, with how often they would be made."""
    counted: dict[tuple[object, ...], tuple[Release, int]] = {}
    for entry in entries:
        key = (entry.column, entry.what, entry.mechanism, entry.epsilon, entry.coins, entry.mu, entry.n_subjects)
        counted[key] = (entry, counted[key][1] + 1 if key in counted else 1)
    return [
        LeavingEntry(
            entry.column,
            entry.what,
            _PRINTED_WORDS if entry.mechanism == PRINTED_MARGIN else _IN_WORDS[entry.what],
            entry.n_subjects,
            entry.mechanism,
            format_price(entry),
            times,
        )
        for entry, times in counted.values()
    ]


def _prices_at_units(question: ConsentQuestion, policy: Policy) -> list[UnitPrice]:
    """Epsilon at every unit: so far, of the study, and with it; and what is left of caps before and after."""
    if question.is_about_alignment:
        return []
    spent, proposed, people = list(question.spent), list(question.proposed), list(question.people)
    before, alone, after = (
        _at_units(own, about, policy.delta)
        for own, about in ((spent, people), (proposed, proposed), ([*spent, *proposed], [*people, *proposed]))
    )
    counted = policy.count(spent, people)
    total = policy.count([*spent, *proposed], [*people, *proposed])
    prices = []
    for unit in (str(one) for one in Unit):
        cap = getattr(policy.caps, unit)
        left = (None, None) if cap is None else tuple(max(cap - getattr(one, unit), 0.0) for one in (counted, total))
        study, then = (math.inf, math.inf) if question.seeded else (alone[unit], after[unit])
        prices.append(UnitPrice(unit, before[unit], study, then, cap, *left))
    return prices


def _at_units(own: list[Release], people: list[Release], delta: float) -> dict[str, float]:
    figures = party_epsilons(own, delta)
    return {**vars(figures), Unit.PERSON.value: state_privacy(people, delta).person}
