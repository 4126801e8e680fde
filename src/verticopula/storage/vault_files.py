"""A vault's files as anybody may look at them, also while another process uses the vault; `vault.py` uses it.

What does not belong together is a LedgerError: a file that was altered, lost, or put back from an old copy.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verticopula.data.tables import OwnTable
from verticopula.errors import LedgerError
from verticopula.privacy.release import Release
from verticopula.storage.blobs import FolderBlobs
from verticopula.storage.chained_file import ChainedFile, check_contains
from verticopula.storage.known_tables import KnownTable
from verticopula.storage.ledger import GENESIS, read_ledger
from verticopula.storage.record_store import FolderRecords
from verticopula.storage.removals import REMOVALS_FILE, removed_keys
from verticopula.storage.snapshot_digest import digest_snapshot
from verticopula.storage.withdrawals import SECRET_FILE, WITHDRAWALS_FILE, Withdrawals

LEDGER, HEAD, TABLES, SECRET, LOCK = "ledger.jsonl", "head.json", "tables.json", SECRET_FILE, "lock"
REPLIES, FITS, STUDIES, RECORDS = "replies", "fits", "studies", "records.json"

WITHDRAWALS_RECORD = "withdrawals"  # the record of how far that history was
RESTORE = "put back the newest copy of the whole folder; budget that was spent stays spent"


@dataclass(frozen=True)
class VaultHead:
    """Where the ledger ended, how many replies were ever stored, and whether records are guarded, when last written."""

    count: int = 0
    hash: str = GENESIS
    replies: int = 0
    guarded: bool = False


def inspect_vault(folder: Path) -> tuple[int, int]:
    """Look at a vault without using it: the number of entries and of replies; LedgerError if something is wrong."""
    # In the order against that of writing: somebody may be using it.
    head = read_head(folder)
    replies = FolderBlobs(folder / REPLIES, sync=True)
    keys = replies.keys()
    removed = removed_keys(ChainedFile(folder / REMOVALS_FILE).lines())
    entries = read_ledger(folder / LEDGER)
    require_head(folder, entries)
    check_head(entries, head)
    check_tables(entries, read_known_tables(folder))
    check_replies(entries, keys, removed, head)
    for key in keys:
        replies.get(key)
    read_withdrawals(folder)
    FolderRecords(folder / STUDIES, folder / RECORDS).inspect()
    require_records(folder, head)
    return len(entries), len(keys)


def read_withdrawals(folder: Path) -> Withdrawals:
    """Who withdrew, without using the vault; LedgerError where the history lacks what the vault has seen of it.

    Parameters
    ----------
    folder : the vault's; one that is not there yet knows nobody
    """
    known = Withdrawals(folder)
    if not folder.is_dir():
        return known
    records = FolderRecords(folder / STUDIES, folder / RECORDS)
    seen = records.get(WITHDRAWALS_RECORD) or {"count": 0, "hash": ""}  # before the history, which may grow meanwhile
    check_contains(WITHDRAWALS_FILE, known.file.lines(), seen["count"], seen["hash"])
    return known


def require_records(folder: Path, head: VaultHead) -> None:
    """LedgerError where the digest of records is gone that the vault had."""
    if head.guarded and not (folder / RECORDS).exists():
        raise LedgerError(f"{RECORDS} is missing, so records of studies cannot be checked; {RESTORE}")


def read_entries(folder: Path) -> list[Release]:
    """A vault's ledger, without using the vault; LedgerError where it was altered, or is not whole."""
    head = read_head(folder)  # first: somebody may be appending
    if not (folder / LEDGER).exists() and head == VaultHead():
        return []
    entries = read_ledger(folder / LEDGER)
    require_head(folder, entries)
    check_head(entries, head)
    return entries


def digest_with_secret(folder: Path, table: OwnTable) -> str:
    """A table's digest as a vault's ledger has it, without using the vault; LedgerError where it has no secret.

    Parameters
    ----------
    folder : the vault's
    table : checked against the federation file that the study had
    """
    try:
        secret = (folder / SECRET).read_bytes()
    except OSError:
        raise LedgerError(f"{SECRET} is missing or cannot be read, so tables cannot be recognised") from None
    return digest_snapshot(table.ids, table.columns, secret)


def is_vault(folder: Path) -> bool:
    return folder.is_dir() and (folder / HEAD).is_file()


def require_head(folder: Path, entries: list[Release]) -> None:
    """LedgerError where something was released or said, and the file that counts it is gone."""
    kept = any(any((folder / name).glob("*")) for name in (REPLIES, STUDIES))
    if (entries or kept) and not (folder / HEAD).exists():
        raise LedgerError(f"{HEAD} is missing, so nobody can tell whether the ledger is whole; {RESTORE}")


def check_head(entries: list[Release], head: VaultHead) -> None:
    if head.count > len(entries):
        raise LedgerError(
            f"the ledger has {len(entries)} entries and had {head.count}: it was put back from an old copy, or its "
            f"end was cut off; {RESTORE}"
        )
    if head.count and entries[head.count - 1].hash != head.hash:
        raise LedgerError(f"entry {head.count} of the ledger is not the one that was written: {RESTORE}")


def check_replies(entries: list[Release], keys: set[str], removed: set[str], head: VaultHead) -> None:
    if unknown := len((keys | removed) - {entry.request for entry in entries}):
        raise LedgerError(
            f"{unknown} stored replies answer requests that the ledger does not know: it was put back from an old "
            f"copy; {RESTORE}"
        )
    if (found := len(keys | removed)) < head.replies:
        raise LedgerError(
            f"{head.replies - found} stored replies are missing; without them a release could be made twice; {RESTORE}"
        )


def check_tables(entries: list[Release], tables: list[KnownTable]) -> None:
    known = {name for table in tables for name in table.names}
    if not {name for entry in entries if entry.table for name in entry.table.split("+")} <= known:
        raise LedgerError(f"the ledger names tables that {TABLES} does not know: it was put back or lost; {RESTORE}")


def read_head(folder: Path) -> VaultHead:
    path = folder / HEAD
    if not path.exists():
        return VaultHead()
    raw = _read_json(path)
    try:
        head = VaultHead(raw["count"], raw["hash"], raw["replies"], raw.get("guarded", False))
        kinds = (int, str, int, bool)
        if any(type(value) is not kind for value, kind in zip(vars(head).values(), kinds, strict=True)):
            raise TypeError
    except (KeyError, TypeError):
        raise LedgerError(f"{HEAD} cannot be read; {RESTORE}") from None
    return head


def read_known_tables(folder: Path) -> list[KnownTable]:
    """The tables that a vault knows, without using it; LedgerError where the file is damaged."""
    path = folder / TABLES
    if not path.exists():
        return []
    try:
        return [KnownTable.from_dict(raw) for raw in _read_json(path)["tables"]]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise LedgerError(f"{TABLES} cannot be read; {RESTORE}") from None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        raise LedgerError(f"{path.name} cannot be read; {RESTORE}") from None
