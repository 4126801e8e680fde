"""A party's own folder on its own disk: what it has released, what it sent, and about whom.

ledger.jsonl   every release
head.json      how many entries and stored replies there are, and that there is a records.json; a ledger put back from
               an old copy does not fit it
replies/       every noisy answer, so that the same request gets the same bytes after a restart
removed.jsonl  which replies were removed, because their studies ended long ago: they are never made again
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
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import IO

import polars as pl

from verticopula.data.column_encoding import EncodedColumn
from verticopula.data.row_chunks import ColumnReading, RowChunk, read_party
from verticopula.data.tables import OwnTable
from verticopula.engine.chunk_task import Secret
from verticopula.errors import LedgerError, VerticopulaError
from verticopula.privacy.release import Release
from verticopula.schema.federation import IdRule
from verticopula.storage.blobs import FolderBlobs, sync_folder, write_atomically
from verticopula.storage.chained_file import ChainedFile, check_contains, head_of
from verticopula.storage.engine_accounts import charge_on_engine, charge_parties_on_engine
from verticopula.storage.known_tables import KnownTable, TableAccount, TableSketch, charge, charge_parties
from verticopula.storage.ledger import GENESIS, Ledger
from verticopula.storage.record_store import FolderRecords
from verticopula.storage.removals import REMOVALS_FILE, removed_keys
from verticopula.storage.snapshot_digest import digest_snapshot
from verticopula.storage.vault_files import (
    FITS,
    HEAD,
    LEDGER,
    LOCK,
    RECORDS,
    REPLIES,
    RESTORE,
    SECRET,
    STUDIES,
    TABLES,
    WITHDRAWALS_RECORD,
    VaultHead,
    check_head,
    check_replies,
    check_tables,
    read_head,
    read_known_tables,
    require_head,
    require_records,
)
from verticopula.storage.withdrawals import WITHDRAWALS_FILE, Table, Withdrawals

logger = logging.getLogger(__name__)


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
        self.removals = ChainedFile(folder / REMOVALS_FILE)
        self._removed = removed_keys(self.removals.lines())
        self.replies = FolderBlobs(folder / REPLIES, sync=True, on_put=self._reply_written, removed=self._removed)
        self.fits = FolderBlobs(folder / FITS, sync=False)
        self.studies = FolderRecords(folder / STUDIES, folder / RECORDS)
        require_records(folder, head)
        for kept in (self.replies, self.fits, self.studies):
            kept.prepare()
        self.withdrawals = Withdrawals(folder)
        self._noted = (0, 0, 0)
        self.count_withdrawals()
        check_tables(entries, self._tables)
        check_replies(entries, self.replies.keys(), self._removed, head)
        self._delete_removed()
        self._write_head(*self.head(), self._count_replies())

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
                f"it was put back from an old copy or replaced; {RESTORE}"
            )

    def _read(self) -> tuple[list[Release], VaultHead]:
        path = self.folder / LEDGER
        entries = list(Ledger(path)) if path.exists() else []
        head = read_head(self.folder)
        require_head(self.folder, entries)
        check_head(entries, head)
        if not path.exists():
            path.touch(mode=0o600)
            sync_folder(self.folder)  # an entry is not on disk as long as its file has no name there
        return entries, head

    def _entries_written(self, count: int, digest: str) -> None:
        with self._guard:
            self._write_head(count, digest, self._head.replies)

    def _reply_written(self) -> None:
        with self._guard:
            self._write_head(self._head.count, self._head.hash, self._count_replies())

    def _write_head(self, count: int, digest: str, replies: int) -> None:
        with self._guard:
            head = VaultHead(count, digest, replies, guarded=True)
            if head != self._head or not (self.folder / HEAD).exists():
                write_atomically(self.folder / HEAD, json.dumps(vars(head)).encode())
                self._head = head

    # ---- what is removed ---------------------------------------------------------------------

    def remove_replies(self, party: str, study: str, by: str, now: float) -> int:
        """The number of a study's stored replies that are gone now; none of them is ever drawn again.

        Which ones is on disk before the first is deleted. Requests whose reply was never stored are among them: they
        were paid for, and are not to be drawn either. The ledger stays as it is.

        Parameters
        ----------
        party, study : whose replies, as the ledger has them
        by : who removes them, for the record
        now : seconds since 1970
        """
        paid = {e.request for e in self.ledger if (e.party, e.study) == (party, study) and e.request}
        with self._guard:
            gone = sorted(paid - self._removed)
            stored = len(self.replies.keys() & set(gone))
            if gone:
                said = {"time": now, "party": party, "study": study, "stored": stored, "requests": gone, "by": by}
                self.removals.append(lambda lines: (said, None))
                self._removed.update(gone)
            self._delete_removed()
            self._write_head(self._head.count, self._head.hash, self._count_replies())
        return stored

    def _delete_removed(self) -> None:
        for key in sorted(self.replies.keys() & self._removed):
            self.replies.discard(key)

    def _count_replies(self) -> int:
        """How many replies there are, or were before they were removed: the number never becomes smaller."""
        return len(self.replies.keys() | self._removed)

    # ---- who withdrew ------------------------------------------------------------------------

    def count_withdrawals(self) -> int:
        """How many lines the history of withdrawals has; LedgerError where it lacks some that were there before."""
        with self._guard:
            lines = self.withdrawals.file.lines()
            known = self.studies.get(WITHDRAWALS_RECORD) or {"count": 0, "hash": ""}
            check_contains(WITHDRAWALS_FILE, lines, known["count"], known["hash"])
            if len(lines) > known["count"]:
                self.studies.put(WITHDRAWALS_RECORD, dict(zip(("count", "hash"), head_of(lines), strict=True)))
        return len(lines)

    def note_withdrawals(self) -> None:
        """Count the history of withdrawals where its file has changed: an old copy that is put back later is noticed.

        LedgerError as `count_withdrawals` has it.
        """
        try:
            now = (self.folder / WITHDRAWALS_FILE).stat()
            stamp = now.st_ino, now.st_size, now.st_mtime_ns
        except FileNotFoundError:
            stamp = (0, 0, 0)
        if stamp != self._noted:
            self.count_withdrawals()
            self._noted = stamp

    def without_withdrawn(self, table: Table, column: str, until: int | None = None) -> tuple[Table, int]:
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

    def account(self, ids: pl.Series | Iterable[str], columns: Mapping[str, EncodedColumn]) -> TableAccount:
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
        named = ids if isinstance(ids, pl.Series) else pl.Series(list(ids), dtype=pl.String)
        found = TableSketch.of(named, columns, self._secret)
        with self._guard:
            account, tables = charge(self._tables, found, self._secret)
            self._write_tables(tables)
        return replace(account, snapshot=digest_snapshot(named, columns, self._secret))

    def account_of(self, table: OwnTable) -> TableAccount:
        """The same for a table wherever its values are: workers of an engine sketch those that they have.

        Parameters
        ----------
        table : checked
        """
        if table.source is None:
            return self.account(table.ids, table.columns)
        with self._guard:
            _, rule, readings = self._whole(table)
            account, tables, snapshot = charge_on_engine(
                self._tables, table.source, rule, readings, Secret(self._secret)
            )
            self._write_tables(tables)
        return replace(account, snapshot=snapshot)

    @staticmethod
    def _whole(table: OwnTable) -> tuple[RowChunk, IdRule, list[ColumnReading]]:
        assert table.source is not None  # it is asked before
        assert table.rule is not None
        return table.source.all_rows, table.rule, read_party(table.party)

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
        with self._guard:
            accounts, known, snapshots = self._charge_parties(tables)
            if remember:
                self._write_tables(known)
        return {name: replace(account, snapshot=snapshots[name]) for name, account in accounts.items()}

    def _charge_parties(
        self, tables: Mapping[str, OwnTable]
    ) -> tuple[dict[str, TableAccount], list[KnownTable], dict[str, str]]:
        engine = next((table.source.engine for table in tables.values() if table.source is not None), None)
        if engine is not None:
            given = {name: self._whole(table) for name, table in tables.items()}
            return charge_parties_on_engine(engine, self._tables, given, Secret(self._secret))
        found = {name: TableSketch.of(table.ids, table.columns, self._secret) for name, table in tables.items()}
        snapshots = {name: digest_snapshot(t.ids, t.columns, self._secret) for name, t in tables.items()}
        return *charge_parties(self._tables, found, self._secret), snapshots

    def _write_tables(self, tables: list[KnownTable]) -> None:
        if tables != self._tables:
            content = {"tables": [asdict(table) for table in tables]}
            write_atomically(self.folder / TABLES, json.dumps(content).encode())
            self._tables = tables

    def _read_secret(self, entries: list[Release]) -> bytes:
        path = self.folder / SECRET
        if not path.exists():
            if any(entry.table for entry in entries) or (self.folder / TABLES).exists():
                raise LedgerError(f"{SECRET} is missing, so tables cannot be recognised; {RESTORE}")
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
