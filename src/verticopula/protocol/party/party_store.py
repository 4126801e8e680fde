"""What a party keeps between runs, as its side of studies sees it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

import polars as pl

from verticopula.data.column_encoding import EncodedColumn
from verticopula.protocol.study_lifecycle import LedgerHead
from verticopula.storage.blobs import Blobs
from verticopula.storage.known_tables import TableAccount
from verticopula.storage.ledger import Ledger
from verticopula.storage.record_store import RecordStore


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

    def account(self, ids: Iterable[str], columns: Mapping[str, EncodedColumn]) -> TableAccount: ...

    def overlapping(self, account: TableAccount) -> tuple[str, ...]: ...

    def head(self) -> LedgerHead: ...

    def check_witness(self, count: int, digest: str) -> None: ...

    def count_withdrawals(self) -> int: ...

    def without_withdrawn(
        self, table: pl.DataFrame, column: str, until: int | None = None
    ) -> tuple[pl.DataFrame, int]: ...
