"""Whose budget a party's releases are charged to, and what of a ledger counts against its caps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from verticopula.privacy.release import Release, spent_on, spent_on_people
from verticopula.storage.known_tables import NO_ACCOUNT, TableAccount
from verticopula.storage.ledger import Ledger


@dataclass(frozen=True)
class Charging:
    """Who is charged for what leaves a party, on whose account, and where it is written.

    Attributes
    ----------
    ledger : where every release is entered
    account : whose budget is charged, so that caps hold whatever the party and its columns are called
    opened_since : names tables with some of its people again, when something is charged: another member of the same
        process may have opened one
    asked_by : who asks and why, for every entry in the ledger: `lead`, `requester`, `purpose`, `contact`, `use`
    """

    ledger: Ledger = field(default_factory=Ledger)
    account: TableAccount = NO_ACCOUNT
    opened_since: Callable[[], tuple[str, ...]] = lambda: ()
    asked_by: Mapping[str, Any] = field(default_factory=dict)

    def counted(self, party: str, spent: Iterable[Release]) -> tuple[list[Release], list[Release]]:
        """What of a ledger counts against a party's caps, and what counts against a cap at `person`."""
        known, account = list(spent), self.account
        about = party, account.table, self._overlapping()
        return spent_on(known, *about), spent_on_people(known, *about, account.same_people)

    def _overlapping(self) -> tuple[str, ...]:
        """Other tables with some of these people, also those that were opened after this one."""
        return (*self.account.overlapping, *self.opened_since())
