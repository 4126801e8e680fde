"""Every round of a study on the coordinator's disk, so that a coordinator that was killed goes on where it stood.

One record a round: the keys of its questions and the answers, as they came. A record that a crash cut off is dropped;
the parties then answer that round once more, with what they answered before.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Mapping
from io import BufferedRandom, BytesIO
from pathlib import Path

from verticopula.errors import ProtocolError

_HEAD = struct.Struct("<Q32s")  # length and SHA-256 of a record
_PART = struct.Struct("<III")  # lengths of name, key and answer


class Journal:
    """Reads the rounds that are there, one by one, then appends."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._file: BufferedRandom = os.fdopen(descriptor, "r+b")

    def next_round(self, keys: Mapping[str, str]) -> dict[str, bytes] | None:
        """The answers of the next round, None after the last one; ProtocolError if it asked something else."""
        start = self._file.tell()
        record = self._read_record()
        if record is None:
            self._file.truncate(start)
            self._file.seek(start)
            return None
        parts = _unpack(record)
        if {name: key for name, (key, _) in parts.items()} != dict(keys):
            raise ProtocolError(
                "the study's journal holds other rounds: it was begun by another version, or with other settings"
            )
        return {name: answer for name, (_, answer) in parts.items()}

    def append(self, keys: Mapping[str, str], answers: Mapping[str, bytes]) -> None:
        record = b"".join(
            _PART.pack(len(name.encode()), len(keys[name]), len(answer)) + name.encode() + keys[name].encode() + answer
            for name, answer in answers.items()
        )
        self._file.write(_HEAD.pack(len(record), hashlib.sha256(record).digest()) + record)
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        self._file.close()

    def remove(self) -> None:
        """The study is finished: its rounds are of no more use."""
        self.close()
        self._path.unlink(missing_ok=True)

    def _read_record(self) -> bytes | None:
        head = self._file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return None
        length, digest = _HEAD.unpack(head)
        if length > os.fstat(self._file.fileno()).st_size:
            return None
        record = self._file.read(length)
        return record if len(record) == length and hashlib.sha256(record).digest() == digest else None


def _unpack(record: bytes) -> dict[str, tuple[str, bytes]]:
    parts: dict[str, tuple[str, bytes]] = {}
    rest = BytesIO(record)
    while sizes := rest.read(_PART.size):
        name, key, answer = (rest.read(size) for size in _PART.unpack(sizes))
        parts[name.decode()] = (key.decode(), answer)
    return parts
