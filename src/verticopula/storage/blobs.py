"""Bytes that are kept under a name, as files that are there whole or not at all."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Container
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol
from weakref import WeakValueDictionary

from verticopula.errors import LedgerError

SEAL_BYTES = 32

_KEY = re.compile("[0-9a-f]{64}")


class Blobs(Protocol):
    """Keys are hex digests; `is_durable` says whether what was put is still there after a crash."""

    @property
    def is_durable(self) -> bool: ...

    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, data: bytes) -> None: ...

    def discard(self, key: str) -> None: ...

    def alone(self, key: str) -> AbstractContextManager[object]:
        """Nobody else in this process is in here with the same key."""
        ...


class KeyLocks:
    """One lock for every key that is in use."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._busy: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()  # those that somebody holds

    def alone(self, key: str) -> AbstractContextManager[object]:
        with self._guard:
            return self._busy.setdefault(key, threading.Lock())


class FolderBlobs(KeyLocks):
    """One file each, readable by its owner only, with a hash in front that is checked when it is read.

    Parameters
    ----------
    sync : whether `put` returns only when the bytes are on the disk itself
    on_put : called after a new file is there
    removed : keys of files that were there, and are not to be made again
    """

    def __init__(
        self,
        folder: Path,
        *,
        sync: bool,
        on_put: Callable[[], None] = lambda: None,
        removed: Container[str] = frozenset(),
    ) -> None:
        super().__init__()
        self.folder, self._removed = folder, removed
        self.is_durable = sync
        self._on_put = on_put

    def prepare(self) -> None:
        """Make the folder, and clear away what a crash in the middle of a `put` has left. For the one who writes."""
        self.folder.mkdir(mode=0o700, exist_ok=True)
        for torn in self.folder.glob("*.tmp"):
            torn.unlink()

    def keys(self) -> set[str]:
        return {path.stem for path in self.folder.glob("*.bin")}

    def get(self, key: str) -> bytes | None:
        """The bytes; LedgerError where the file is not what was written, or was removed on purpose."""
        self._check_kept(key)
        try:
            raw = self._path(key).read_bytes()
        except FileNotFoundError:
            return None
        data = raw[SEAL_BYTES:]
        if raw[:SEAL_BYTES] != seal_blob(key, data):
            raise LedgerError(
                f"{self.folder.name}/{key[:12]}….bin is damaged; put it back from a copy. What was sent before "
                "is not made a second time"
            )
        return data

    def put(self, key: str, data: bytes) -> None:
        self._check_kept(key)
        write_atomically(self._path(key), seal_blob(key, data) + data, sync=self.is_durable)
        self._on_put()

    def seal_of(self, key: str) -> bytes:
        """The hash in front of a file, as it stands there; zeros where there is no file."""
        try:
            with self._path(key).open("rb") as file:
                return file.read(SEAL_BYTES).ljust(SEAL_BYTES, b"\0")
        except FileNotFoundError:
            return bytes(SEAL_BYTES)

    def discard(self, key: str) -> None:
        self._path(key).unlink(missing_ok=True)
        if self.is_durable:
            sync_folder(self.folder)

    def _check_kept(self, key: str) -> None:
        if key in self._removed:
            raise LedgerError("what was sent here was removed, because its study ended long ago; it is not made again")

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError("a key is a hex digest")
        return self.folder / f"{key}.bin"


def seal_blob(key: str, data: bytes) -> bytes:
    """The hash in front of a file. The name counts too: files cannot change places."""
    return hashlib.sha256(key.encode() + data).digest()


def write_atomically(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace a file's content, for its owner's eyes; a crash leaves the old content or the new."""
    temporary = path.with_name(path.name + ".tmp")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        if sync:
            os.fsync(file.fileno())
    temporary.replace(path)
    if sync:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """See a new or renamed file's name on disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
