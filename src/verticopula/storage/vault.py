"""A party's own folder on its own disk: what it has released, what it sent, and about whom.

ledger.jsonl   every release
head.json      how many entries and stored replies there are, and that there is a records.json; a ledger put back from
               an old copy does not fit it
replies/       every noisy answer, so that the same request gets the same bytes after a restart
fits/          where running regressions stopped
studies/       small records: consents, refusals, the secrets and the noise of secure sums
records.json   a digest of all of them; one that is lost or put back from an old copy does not fit it
withdrawals.jsonl  who withdrew consent, as keyed hashes; any process may append to it
tables.json    whom each table is about, and which columns it had, as keyed sketches; `secret` is the key
lock           held by the one process that uses the vault
"""

from __future__ import annotations

import fcntl
import json
import logging
import secrets
import stat
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import polars as pl

from verticopula.data.tables import EncodedColumn, OwnTable
from verticopula.errors import LedgerError, VerticopulaError
from verticopula.privacy.release import Release
from verticopula.storage.blobs import FolderBlobs, sync_folder, write_atomically
from verticopula.storage.chained_file import check_contains, head_of
from verticopula.storage.known_tables import KnownTable, TableAccount, TableSketch, charge
from verticopula.storage.ledger import GENESIS, Ledger, read_ledger
from verticopula.storage.records import FolderRecords
from verticopula.storage.snapshot_digest import digest_snapshot
from verticopula.storage.withdrawals import SECRET_FILE, WITHDRAWALS_FILE, Withdrawals

logger = logging.getLogger(__name__)

LEDGER, HEAD, TABLES, SECRET, LOCK = "ledger.jsonl", "head.json", "tables.json", SECRET_FILE, "lock"
REPLIES, FITS, STUDIES, RECORDS = "replies", "fits", "studies", "records.json"

_WITHDRAWALS = "withdrawals"  # the record of how far that history was
_RESTORE = "put back the newest copy of the whole folder; budget that was spent stays spent"


@dataclass(frozen=True)
class VaultHead:
    """Where the ledger ended, how many replies were stored, and whether records are guarded, when last written."""

    count: int = 0
    hash: str = GENESIS
    replies: int = 0
    guarded: bool = False


class Vault:
    """Use `Vault.open`; close it, or use it in a `with`, to let another process in.

    Attributes
    ----------
    ledger : every release of this organisation, in all studies
    replies : the bytes of noisy answers, by request
    fits : the state of regressions, by fit
    studies : small records, by study
    withdrawals : who withdrew consent
    """

    def __init__(self, folder: Path, lock: IO[bytes]) -> None:
        self.folder = folder
        self._lock = lock
        self._guard = threading.RLock()
        entries, head = self._read()
        self._head = head
        self._secret = self._read_secret(entries)
        self._tables = read_known_tables(folder)
        self.ledger = Ledger(folder / LEDGER, on_append=self._entries_written)
        self.replies = FolderBlobs(folder / REPLIES, sync=True, on_put=self._reply_written)
        self.fits = FolderBlobs(folder / FITS, sync=False)
        self.studies = FolderRecords(folder / STUDIES, folder / RECORDS)
        _require_records(folder, head)
        for kept in (self.replies, self.fits, self.studies):
            kept.prepare()
        self.withdrawals = Withdrawals(folder)
        self.count_withdrawals()
        _check_tables(entries, self._tables)
        _check_replies(entries, self.replies.keys(), head)
        self._write_head(*self.head(), len(self.replies.keys()))

    @classmethod
    def open(cls, folder: str | Path) -> Vault:
        """Open a vault, or make one.

        Parameters
        ----------
        folder : where it is, or is to be

        Raises
        ------
        VerticopulaError
            Another process uses it, or others than its owner can read it and this cannot be changed.
        LedgerError
            Its files do not belong together: one was altered, lost, or put back from an old copy.
        """
        folder = Path(folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _close_to_others(folder)
        lock = (folder / LOCK).open("ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise VerticopulaError(f"another process uses this vault ({folder.name})") from None
        try:
            return cls(folder, lock)
        except BaseException:
            lock.close()
            raise

    def close(self) -> None:
        self._lock.close()

    def __enter__(self) -> Vault:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- where the ledger ends ---------------------------------------------------------------

    def head(self) -> tuple[int, str]:
        """The number of entries and the last one's hash: for others to keep, and to tell at the next study."""
        entries = tuple(self.ledger)
        return len(entries), entries[-1].hash if entries else GENESIS

    def check_witness(self, count: int, digest: str) -> None:
        """LedgerError unless the ledger has the entry that somebody else saw at its end.

        Parameters
        ----------
        count : entries that they saw
        digest : the hash of the last of them
        """
        entries = tuple(self.ledger)
        if count > 0 and (count > len(entries) or entries[count - 1].hash != digest):
            raise LedgerError(
                f"the coordinator has seen {count} entries of this ledger, and it does not hold them now: "
                f"it was put back from an old copy or replaced; {_RESTORE}"
            )

    def _read(self) -> tuple[list[Release], VaultHead]:
        path = self.folder / LEDGER
        entries = list(Ledger(path)) if path.exists() else []
        head = _read_head(self.folder)
        _require_head(self.folder, entries)
        _check_head(entries, head)
        if not path.exists():
            path.touch(mode=0o600)
            sync_folder(self.folder)  # an entry is not on disk as long as its file has no name there
        return entries, head

    def _entries_written(self, count: int, digest: str) -> None:
        with self._guard:
            self._write_head(count, digest, self._head.replies)

    def _reply_written(self) -> None:
        with self._guard:
            self._write_head(self._head.count, self._head.hash, len(self.replies.keys()))

    def _write_head(self, count: int, digest: str, replies: int) -> None:
        with self._guard:
            head = VaultHead(count, digest, replies, guarded=True)
            if head != self._head or not (self.folder / HEAD).exists():
                write_atomically(self.folder / HEAD, json.dumps(vars(head)).encode())
                self._head = head

    # ---- who withdrew ------------------------------------------------------------------------

    def count_withdrawals(self) -> int:
        """How many lines the history of withdrawals has; LedgerError where it lacks some that were there before."""
        with self._guard:
            lines = self.withdrawals.file.lines()
            known = self.studies.get(_WITHDRAWALS) or {"count": 0, "hash": ""}
            check_contains(WITHDRAWALS_FILE, lines, known["count"], known["hash"])
            if len(lines) > known["count"]:
                self.studies.put(_WITHDRAWALS, dict(zip(("count", "hash"), head_of(lines), strict=True)))
        return len(lines)

    def without_withdrawn(self, table: pl.DataFrame, column: str, until: int | None = None) -> tuple[pl.DataFrame, int]:
        """The table without those who withdrew, and as of how many lines of that history.

        Parameters
        ----------
        table : as it was read
        column : the one with ids
        until : of a study that has begun, as of how many lines that was; None for now
        """
        count = self.count_withdrawals()
        count = count if until is None else min(until, count)
        return self.withdrawals.leave_out(table, column, count), count

    # ---- whom a table is about ---------------------------------------------------------------

    def account(self, ids: Iterable[str], columns: Mapping[str, EncodedColumn]) -> TableAccount:
        """Whose budget a table's releases are charged to: that of all known tables with somebody in common.

        It is a known table that has grown or shrunk if half of the smaller one's subjects are in the other. Where it is
        the same as several, those are one from now on, and the name is all of theirs joined by "+". Otherwise it has a
        name of its own, and `overlapping` holds those of all other tables with somebody in it.
        Columns are recognised by their values; one that is several known columns has their names joined likewise.

        Parameters
        ----------
        ids : every row's subject id, in any spelling
        columns : every column's values, in the rows' order
        """
        named = list(ids)
        found = TableSketch.of(named, columns, self._secret)
        with self._guard:
            account, tables = charge(self._tables, found, self._secret)
            self._write_tables(tables)
        return replace(account, snapshot=digest_snapshot(named, columns, self._secret))

    def overlapping(self, account: TableAccount) -> tuple[str, ...]:
        """The names of other tables with somebody in the account's table, as they are known at this moment.

        The account says the same of the moment at which its table was opened. Others may have been opened since.

        Parameters
        ----------
        account : what `account` returned
        """
        own, people = set(account.table.split("+")), account.people
        if people is None:
            return account.overlapping
        with self._guard:
            met = [known for known in self._tables if people.meets(known)]
        return tuple(name for known in met for name in known.names if name not in own)

    def accounts(self, tables: Mapping[str, OwnTable], *, remember: bool = True) -> dict[str, TableAccount]:
        """The same for the parties of one study that share this vault: party -> whose budget it is.

        They have their people in common, so a table is known by its people together with its party's name, or with a
        column that no other party of the study holds.

        Parameters
        ----------
        tables : party -> its table
        remember : whether the vault shall know these tables from now on; otherwise it is only asked
        """
        found = {
            name: TableSketch.of(table.ids.to_list(), table.columns, self._secret) for name, table in tables.items()
        }
        accounts = {}
        with self._guard:
            known = self._tables
            for name, sketch in found.items():
                others = {other: theirs for other, theirs in found.items() if other != name}
                accounts[name], known = charge(known, sketch, self._secret, name, others)
            if remember:
                self._write_tables(known)
        for name, account in accounts.items():  # now that all tables of the study are known
            counted = {*account.table.split("+"), *account.overlapping}
            met = [given for table in known if found[name].meets(table) for given in table.names]
            accounts[name] = replace(
                account,
                same_people=tuple(given for given in met if given not in counted),
                snapshot=digest_snapshot(tables[name].ids.to_list(), tables[name].columns, self._secret),
            )
        return accounts

    def _write_tables(self, tables: list[KnownTable]) -> None:
        if tables != self._tables:
            content = {"tables": [asdict(table) for table in tables]}
            write_atomically(self.folder / TABLES, json.dumps(content).encode())
            self._tables = tables

    def _read_secret(self, entries: list[Release]) -> bytes:
        path = self.folder / SECRET
        if not path.exists():
            if any(entry.table for entry in entries) or (self.folder / TABLES).exists():
                raise LedgerError(f"{SECRET} is missing, so tables cannot be recognised; {_RESTORE}")
            write_atomically(path, secrets.token_bytes(32))
        return path.read_bytes()


def _close_to_others(folder: Path) -> None:
    """Give a folder that was there before the mode 0700; VerticopulaError where that cannot be done."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    if not mode & 0o077:
        return
    if any(folder.iterdir()) and not any((folder / name).exists() for name in (LEDGER, HEAD, LOCK)):
        raise VerticopulaError(
            f"{folder.name} is no vault: it has mode {mode:04o}, and other files are in it. Choose a folder of its own"
        )
    try:
        folder.chmod(0o700)
    except OSError:
        raise VerticopulaError(
            f"the vault {folder.name} has mode {mode:04o} and belongs to somebody else: others can read what it holds; "
            "give it mode 0700, or choose another folder"
        ) from None
    logger.warning("the vault %s had mode %04o: others could read it. It has mode 0700 now", folder.name, mode)


def inspect_vault(folder: Path) -> tuple[int, int]:
    """Look at a vault without using it: the number of entries and of replies; LedgerError if something is wrong."""
    # In the order against that of writing: somebody may be using it.
    head = _read_head(folder)
    replies = FolderBlobs(folder / REPLIES, sync=True)
    keys = replies.keys()
    entries = read_ledger(folder / LEDGER)
    _require_head(folder, entries)
    _check_head(entries, head)
    _check_tables(entries, read_known_tables(folder))
    _check_replies(entries, keys, head)
    for key in keys:
        replies.get(key)
    records = FolderRecords(folder / STUDIES, folder / RECORDS)
    known = records.get(_WITHDRAWALS) or {"count": 0, "hash": ""}  # before the history, which may grow meanwhile
    check_contains(WITHDRAWALS_FILE, Withdrawals(folder).file.lines(), known["count"], known["hash"])
    records.inspect()
    _require_records(folder, head)
    return len(entries), len(keys)


def _require_records(folder: Path, head: VaultHead) -> None:
    """LedgerError where the digest of records is gone that the vault had."""
    if head.guarded and not (folder / RECORDS).exists():
        raise LedgerError(f"{RECORDS} is missing, so records of studies cannot be checked; {_RESTORE}")


def read_entries(folder: Path) -> list[Release]:
    """A vault's ledger, without using the vault; LedgerError where it was altered, or is not whole."""
    head = _read_head(folder)  # first: somebody may be appending
    if not (folder / LEDGER).exists() and head == VaultHead():
        return []
    entries = read_ledger(folder / LEDGER)
    _require_head(folder, entries)
    _check_head(entries, head)
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
    return digest_snapshot(table.ids.to_list(), table.columns, secret)


def is_vault(folder: Path) -> bool:
    return folder.is_dir() and (folder / HEAD).is_file()


def _require_head(folder: Path, entries: list[Release]) -> None:
    """LedgerError where something was released or said, and the file that counts it is gone."""
    kept = any(any((folder / name).glob("*")) for name in (REPLIES, STUDIES))
    if (entries or kept) and not (folder / HEAD).exists():
        raise LedgerError(f"{HEAD} is missing, so nobody can tell whether the ledger is whole; {_RESTORE}")


def _check_head(entries: list[Release], head: VaultHead) -> None:
    if head.count > len(entries):
        raise LedgerError(
            f"the ledger has {len(entries)} entries and had {head.count}: it was put back from an old copy, or its "
            f"end was cut off; {_RESTORE}"
        )
    if head.count and entries[head.count - 1].hash != head.hash:
        raise LedgerError(f"entry {head.count} of the ledger is not the one that was written: {_RESTORE}")


def _check_replies(entries: list[Release], keys: set[str], head: VaultHead) -> None:
    if unknown := len(keys - {entry.request for entry in entries}):
        raise LedgerError(
            f"{unknown} stored replies answer requests that the ledger does not know: it was put back from an old "
            f"copy; {_RESTORE}"
        )
    if len(keys) < head.replies:
        raise LedgerError(
            f"{head.replies - len(keys)} stored replies are missing; without them a release could be made twice; "
            f"{_RESTORE}"
        )


def _check_tables(entries: list[Release], tables: list[KnownTable]) -> None:
    known = {name for table in tables for name in table.names}
    if not {name for entry in entries if entry.table for name in entry.table.split("+")} <= known:
        raise LedgerError(f"the ledger names tables that {TABLES} does not know: it was put back or lost; {_RESTORE}")


def _read_head(folder: Path) -> VaultHead:
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
        raise LedgerError(f"{HEAD} cannot be read; {_RESTORE}") from None
    return head


def read_known_tables(folder: Path) -> list[KnownTable]:
    """The tables that a vault knows, without using it; LedgerError where the file is damaged."""
    path = folder / TABLES
    if not path.exists():
        return []
    try:
        return [KnownTable.from_dict(raw) for raw in _read_json(path)["tables"]]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise LedgerError(f"{TABLES} cannot be read; {_RESTORE}") from None


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        raise LedgerError(f"{path.name} cannot be read; {_RESTORE}") from None
