"""What a party keeps between runs, as its side of studies sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from verticopula.data.tables import OwnTable
from verticopula.protocol.study_lifecycle import LedgerHead
from verticopula.storage.blobs import Blobs
from verticopula.storage.known_tables import TableAccount
from verticopula.storage.ledger import Ledger
from verticopula.storage.record_store import MemoryRecords, RecordStore
from verticopula.storage.withdrawals import Table


class PartyStore(Protocol):
    """What a member keeps between runs; on disk it is a `storage.vault.Vault`."""

    @property
    def ledger(self) -> Ledger: ...

    @property
    def studies(self) -> RecordStore: ...

    @property
    def replies(self) -> Blobs: ...

    @property
    def fits(self) -> Blobs: ...

    def account_of(self, table: OwnTable) -> TableAccount: ...

    def overlapping(self, account: TableAccount) -> tuple[str, ...]: ...

    def head(self) -> LedgerHead: ...

    def check_witness(self, count: int, digest: str) -> None: ...

    def count_withdrawals(self) -> int: ...

    def without_withdrawn(self, table: Table, column: str, until: int | None = None) -> tuple[Table, int]: ...


@dataclass(frozen=True)
class StudyStores:
    """Where a party keeps its part in a study; in this process alone where no store is given.

    Attributes
    ----------
    replies : answers: the same request gets the same one
    fits : the state of regressions
    records : secrets, noise, and what the party is bound to
    """

    replies: Blobs | None = None
    fits: Blobs | None = None
    records: RecordStore = field(default_factory=MemoryRecords)

    @classmethod
    def of(cls, kept: PartyStore) -> StudyStores:
        """Those of a party that keeps everything between runs."""
        return cls(kept.replies, kept.fits, kept.studies)
