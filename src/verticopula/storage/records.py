"""Small records of what JSON can hold, stored by name: in memory, or as files that survive a crash."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, Protocol

from verticopula.storage.blobs import FolderBlobs


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


class MemoryRecords:
    """Records that last as long as the process."""

    def __init__(self) -> None:
        self._records: dict[str, bytes] = {}

    def get(self, name: str) -> dict[str, Any] | None:
        data = self._records.get(name)
        return None if data is None else dict(json.loads(data))

    def put(self, name: str, record: dict[str, Any]) -> None:
        self._records[name] = json.dumps(record).encode()


class FolderRecords:
    """Records in a folder, one file each, on the disk when `put` returns and readable by their owner only.

    The folder is made when the first record is put.
    """

    def __init__(self, folder: Path) -> None:
        self._blobs = FolderBlobs(folder, sync=True)
        self._is_prepared = False

    def get(self, name: str) -> dict[str, Any] | None:
        data = self._blobs.get(_key(name))
        return None if data is None else dict(json.loads(data))

    def put(self, name: str, record: dict[str, Any]) -> None:
        if not self._is_prepared:
            self.prepare()
        self._blobs.put(_key(name), json.dumps(record).encode())

    def prepare(self) -> None:
        """Make the folder, and clear away files that a crash left half written."""
        self._blobs.prepare()
        self._is_prepared = True

    def remove(self) -> None:
        """Delete the folder and every record in it."""
        shutil.rmtree(self._blobs.folder, ignore_errors=True)
        self._is_prepared = False


def _key(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()
