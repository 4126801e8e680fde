"""Small records of what JSON can hold, stored by name: in memory, or as files that survive a crash."""

from __future__ import annotations

import hashlib
import json
import shutil
import threading
from collections.abc import Callable, Iterable
from functools import reduce
from pathlib import Path
from typing import Any, Protocol

from verticopula.errors import LedgerError
from verticopula.storage.blobs import SEAL_BYTES, FolderBlobs, seal_blob, write_atomically

_LOOKS = 20  # at records that somebody is writing
_LOST = (
    "some records of studies are missing, or were put back from an old copy; without them a release could be made "
    "twice, and a no be forgotten; put back the newest copy of the whole folder"
)


class RecordStore(Protocol):
    """Records by name; any text is a name. A record is replaced as a whole."""

    def get(self, name: str) -> dict[str, Any] | None:
        """The record of that name; None where there is none.

        Parameters
        ----------
        name : any text
        """
        ...

    def put(self, name: str, record: dict[str, Any]) -> None:
        """Store a record, in place of the one that has the name.

        Parameters
        ----------
        name : any text
        record : what JSON can hold
        """
        ...

    def discard(self, name: str) -> None:
        """Delete the record of that name, if there is one.

        Parameters
        ----------
        name : any text
        """
        ...


class MemoryRecords:
    """Records that last as long as the process."""

    def __init__(self) -> None:
        self._records: dict[str, bytes] = {}

    def get(self, name: str) -> dict[str, Any] | None:
        data = self._records.get(name)
        return None if data is None else dict(json.loads(data))

    def put(self, name: str, record: dict[str, Any]) -> None:
        self._records[name] = json.dumps(record).encode()

    def discard(self, name: str) -> None:
        self._records.pop(name, None)


class FolderRecords:
    """Records in a folder, one file each, on the disk when `put` returns and readable by their owner only.

    The folder is made when the first record is put.

    Parameters
    ----------
    state : a file that holds a digest of all records, so that one that is lost, or put back from an old copy, is
        noticed when the folder is prepared; None where nobody looks. An earlier version made no such file.
    """

    def __init__(self, folder: Path, state: Path | None = None) -> None:
        self._blobs = FolderBlobs(folder, sync=True)
        self._state_file, self._state = state, bytes(SEAL_BYTES)
        self._is_prepared = False
        self._one_at_a_time = threading.Lock()

    def get(self, name: str) -> dict[str, Any] | None:
        data = self._blobs.get(_key(name))
        return None if data is None else dict(json.loads(data))

    def put(self, name: str, record: dict[str, Any]) -> None:
        if not self._is_prepared:
            self.prepare()
        key, data = _key(name), json.dumps(record).encode()
        self._change(key, seal_blob(key, data), lambda: self._blobs.put(key, data))

    def discard(self, name: str) -> None:
        if not self._is_prepared:
            self.prepare()
        key = _key(name)
        if self._blobs.get(key) is not None:
            self._change(key, bytes(SEAL_BYTES), lambda: self._blobs.discard(key))

    def _change(self, key: str, new: bytes, act: Callable[[], None]) -> None:
        """Put or discard a record, whose seal is `new` then, together with the digest of all of them."""
        if self._state_file is None:
            act()
            return
        with self._one_at_a_time:
            before, old = self._state, self._blobs.seal_of(key)
            # Until the record has changed, and after a crash in between, both states are right.
            self._write_state(before, _exchange(before, old, new))
            try:
                act()
            finally:  # where it failed, the disk says how far it came
                self._state = _exchange(before, old, self._blobs.seal_of(key))
            self._write_state(self._state)

    def prepare(self) -> None:
        """Make the folder, and clear away files that a crash left half written.

        LedgerError where the records are not those that the state was written for.
        """
        self._blobs.prepare()
        if self._state_file is not None:
            self._check_state(self._state_file)
        self._is_prepared = True

    def inspect(self) -> int:
        """Look without changing anything: the number of records; LedgerError where they are not those of the state.

        Somebody may be writing: where the state changes meanwhile, it is looked at again.
        """
        if self._state_file is None or not self._state_file.exists():
            return len(self._blobs.keys())
        for _ in range(_LOOKS):
            before = _read_states(self._state_file)
            keys = self._blobs.keys()
            found, after = self._digest(keys), _read_states(self._state_file)
            if found.hex() in (*before, *after):
                return len(keys)
            if before == after:
                break
        raise LedgerError(_LOST)

    def _check_state(self, file: Path) -> None:
        self._state = self._digest(self._blobs.keys())
        if file.exists() and self._state.hex() not in _read_states(file):
            raise LedgerError(_LOST)
        self._write_state(self._state)

    def _digest(self, keys: Iterable[str]) -> bytes:
        none = bytes(SEAL_BYTES)
        return reduce(lambda state, seal: _exchange(state, none, seal), map(self._blobs.seal_of, keys), none)

    def remove(self) -> None:
        """Delete the folder and every record in it."""
        shutil.rmtree(self._blobs.folder, ignore_errors=True)
        if self._state_file is not None:
            self._state_file.unlink(missing_ok=True)
        self._state, self._is_prepared = bytes(SEAL_BYTES), False

    def _write_state(self, *states: bytes) -> None:
        assert self._state_file is not None
        write_atomically(self._state_file, json.dumps([state.hex() for state in states]).encode())


def _read_states(path: Path) -> list[str]:
    try:
        return list(json.loads(path.read_bytes()))
    except (OSError, TypeError, ValueError):
        return []


def _exchange(state: bytes, old: bytes, new: bytes) -> bytes:
    """The digest of all records, an exclusive or, when one with the hash `old` is replaced by one with `new`."""
    return bytes(a ^ b ^ c for a, b, c in zip(state, old, new, strict=True))


def _key(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()
