"""Parties with vaults, for tests of studies over separate members."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

from verticopula import Federation, Policy
from verticopula.data.column_encoding import EncodedColumn
from verticopula.data.tables import OwnTable
from verticopula.errors import LedgerError
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.protocol.party.consent_question import ConsentQuestion, NobodyAsked
from verticopula.protocol.party.member import Member
from verticopula.storage.blobs import KeyLocks
from verticopula.storage.known_tables import TableAccount
from verticopula.storage.ledger import GENESIS, Ledger
from verticopula.storage.record_store import MemoryRecords
from verticopula.transport.delivery import drive
from verticopula.transport.in_process_transport import InProcessTransport

KEY = bytes(range(32))
SEEDED = Policy(allow_seeded=True)


class MemoryBlobs(KeyLocks):
    """As long as the process lives."""

    is_durable = False

    def __init__(self) -> None:
        super().__init__()
        self._kept: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self._kept.get(key)

    def put(self, key: str, data: bytes) -> None:
        self._kept[key] = data

    def discard(self, key: str) -> None:
        self._kept.pop(key, None)


class MemoryVault:
    """What a vault does, without a disk."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.studies = MemoryRecords()
        self.replies = MemoryBlobs()
        self.fits = MemoryBlobs()
        self._tables: dict[frozenset[str], str] = {}

    def account(self, ids: Iterable[str], columns: Mapping[str, EncodedColumn]) -> TableAccount:
        table = self._tables.setdefault(frozenset(ids), f"table {len(self._tables)}")
        return TableAccount(table, {name: f"{table}, {name}" for name in columns})

    def account_of(self, table: OwnTable) -> TableAccount:
        return self.account(table.ids.to_list(), table.columns)

    def overlapping(self, account: TableAccount) -> tuple[str, ...]:
        return ()

    def count_withdrawals(self) -> int:
        return 0

    def without_withdrawn(self, table: pl.DataFrame, column: str, until: int | None = None) -> tuple[pl.DataFrame, int]:
        return table, 0

    def head(self) -> tuple[int, str]:
        entries = list(self.ledger)
        return len(entries), entries[-1].hash if entries else GENESIS

    def check_witness(self, count: int, digest: str) -> None:
        entries = list(self.ledger)
        if len(entries) < count or entries[count - 1].hash != digest:
            raise LedgerError("the ledger is shorter than it was, or another one")


class Asking(NobodyAsked):
    """A steward of whom a test has the answers only."""

    def __init__(self, answer: Callable[[ConsentQuestion], None]) -> None:
        self.request = answer


def make_member(
    federation: Federation,
    name: str,
    table: pl.DataFrame,
    *,
    ask_steward: Callable[[ConsentQuestion], None] = lambda question: None,
    **settings: Any,
) -> Member:
    """A member; without an id key it signs with another key that all of them hold."""
    common = {"key": KEY, "vault": MemoryVault(), "authenticity": shared_authenticity(KEY)}
    common |= {"steward": Asking(ask_steward)}
    return Member(federation, name, table, **{**common, **settings})


def make_members(
    federation: Federation,
    tables: Mapping[str, pl.DataFrame],
    *,
    policy: Policy = SEEDED,
    out: Path | None = None,
    key: bytes | None = KEY,
    **own: Mapping[str, Any],
) -> dict[str, Member]:
    """All members; `own` holds one party's own settings."""
    common: dict[str, Any] = {"policy": policy, "out": out, "key": key}
    return {
        name: make_member(federation, name, table, **{**common, **own.get(name, {})}) for name, table in tables.items()
    }


def run(protocol: Any, members: Mapping[str, Member]) -> Any:
    return drive(protocol, InProcessTransport(members))
