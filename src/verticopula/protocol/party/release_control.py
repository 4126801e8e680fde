"""What stands between a party's columns and what leaves it: the policy, the price, and the entry in the ledger."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field, replace

from verticopula.data.tables import AlignedTable
from verticopula.errors import PolicyRefused
from verticopula.privacy.noise import Noise
from verticopula.privacy.policy import Policy
from verticopula.privacy.policy_file import PolicyFile
from verticopula.privacy.pricing import Pricing
from verticopula.privacy.release import Release
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.party.charging import Charging
from verticopula.schema.methods import PRINTED_VARIANT, runs_on_engine
from verticopula.storage.ledger import Ledger

logger = logging.getLogger(__name__)


@dataclass(repr=False)
class ReleaseControl:
    """One party's columns in one study, its noise, and what allows, prices and records every release of them.

    No repr: it can reach data.

    Attributes
    ----------
    policy : what the party allows
    charging : the ledger, and whose budget is charged
    bounds_from_data : True where ranges or categories were taken from the data
    """

    table: AlignedTable
    noise: Noise
    policy: Policy | PolicyFile = field(default_factory=Policy)
    charging: Charging = field(default_factory=Charging)
    bounds_from_data: bool = False

    @property
    def name(self) -> str:
        return self.table.party.name

    @property
    def ledger(self) -> Ledger:
        return self.charging.ledger

    def key(self, request: object) -> str:
        """A request's key; one organisation may be several parties of a study, all of them asked the same."""
        return fingerprint((self.name, request))

    # ---- the policy ------------------------------------------------------------------------

    def check_method(self, method: str) -> None:
        """PolicyRefused unless the party takes part in such studies, with all of its columns."""
        self.policy.check(self.name, method, (), ())
        self.policy.check_columns(self.name, (column.name for column in self.table.party.columns))

    def check_engine(self, method: str, variant: str) -> None:
        """PolicyRefused where the party's engine cannot do what is asked: it does not bring the table here instead."""
        if self.table.source is not None and not runs_on_engine(method, variant):
            raise PolicyRefused(
                f"party {self.name!r} computes on an engine, which does not run method {method!r}"
                f"{' as printed' * (variant == PRINTED_VARIANT)}; it can do so with its local engine"
            )

    def approve(self, method: str, proposed: list[Release], spent: list[Release]) -> None:
        """PolicyRefused or BudgetExceeded unless all of these may be released after those."""
        self.policy.check(self.name, method, proposed, *self.counted(spent))

    def counted(self, spent: list[Release]) -> tuple[list[Release], list[Release]]:
        """What of a ledger counts against this party's caps, and what against a cap at `person`."""
        return self.charging.counted(self.name, spent)

    # ---- price and ledger ------------------------------------------------------------------

    def pricing(self, study: str) -> Pricing:
        """How releases are entered in a study."""
        about = self.charging.account
        return Pricing(
            study, self.name, self.noise.is_private, self.bounds_from_data, about.table, about.columns, about.snapshot
        )

    def spent(self) -> list[Release]:
        """The whole ledger."""
        return list(self.ledger)

    def record(self, method: str, entries: list[Release], key: str, *, once: bool) -> None:
        """In the ledger before anything is drawn, if the policy allows it.

        Parameters
        ----------
        key : of the request that the entries answer
        once : what the ledger holds for this request already, after a crash, is not charged again
        """
        wanted = [replace(entry, request=key, **self.charging.asked_by) for entry in entries]
        if once:
            wanted = self.unpaid(wanted, key)
            if not wanted:
                logger.info("party %s: recorded before, not charged again", self.name)
                return
        self.ledger.append(wanted, approve=lambda known: self.approve(method, wanted, known))
        logger.info("party %s: %d releases recorded", self.name, len(wanted))

    def unpaid(self, entries: list[Release], key: str) -> list[Release]:
        """Those that the ledger does not hold for this request at this price; a crash may have cut off some of them."""
        self.ledger.catch_up()
        paid = Counter(_price_of(e) for e in self.ledger if e.request == key and e.party == self.name)
        left = []
        for entry in entries:
            if paid[_price_of(entry)] > 0:
                paid[_price_of(entry)] -= 1
            else:
                left.append(entry)
        return left


def _price_of(entry: Release) -> tuple[object, ...]:
    price = entry.epsilon, entry.coins, entry.mu, entry.mu_person, entry.joint
    return entry.table, entry.column, entry.what, *price, entry.noise, entry.bounds
