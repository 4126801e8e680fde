"""Every round of a study on the coordinator's disk, so that a coordinator that was killed goes on where it stood.

One record a round: the keys of its questions and the answers, as they came. A record that a crash cut off is dropped;
the parties then answer that round once more, with what they answered before. An answer that came as a file stays one,
beside the journal, and the record has its digest.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
from collections.abc import Mapping
from io import BufferedRandom, BytesIO
from pathlib import Path

from verticopula.errors import ProtocolError
from verticopula.storage.blobs import sync_folder

_HEAD = struct.Struct("<Q32s")  # length and SHA-256 of a record
_PART = struct.Struct("<III")  # lengths of name, key and answer
_FILE = b"VCAF"  # in place of an answer: its digest follows, and the answer is a file. No message begins like this


class Journal:
    """Reads the rounds that are there, one by one, then appends."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._answers = path, path.with_name(f"{path.name}.answers")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._file: BufferedRandom = os.fdopen(descriptor, "r+b")

    def next_round(self, keys: Mapping[str, str]) -> dict[str, bytes | Path] | None:
        """The answers of the next round, None after the last one; ProtocolError if it asked something else."""
        start = self._file.tell()
        record = self._read_record()
        if record is None:
            self._end_at(start)
            return None
        parts = _unpack(record)
        answers = {name: self._find(answer) for name, (_, answer) in parts.items()}
        if {name: key for name, (key, _) in parts.items()} != dict(keys):
            raise ProtocolError(
                "the study's journal holds other rounds: it was begun by another version, or with other settings"
            )
        if any(answer is None for answer in answers.values()):  # as if it were cut off: it is asked for again
            self._end_at(start)
            return None
        return {name: answer for name, answer in answers.items() if answer is not None}

    def append(self, keys: Mapping[str, str], answers: Mapping[str, bytes | Path]) -> None:
        """Keep one round.

        Parameters
        ----------
        keys : of its questions, by party
        answers : as they came; a file is not needed any more afterwards
        """
        kept = {name: self._take(answer) if isinstance(answer, Path) else answer for name, answer in answers.items()}
        record = b"".join(
            _PART.pack(len(name.encode()), len(keys[name]), len(answer)) + name.encode() + keys[name].encode() + answer
            for name, answer in kept.items()
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
        shutil.rmtree(self._answers, ignore_errors=True)

    def _end_at(self, start: int) -> None:
        self._file.truncate(start)
        self._file.seek(start)

    def _take(self, answer: Path) -> bytes:
        """What stands in the record for a file, which lies beside the journal now, on the disk itself.

        It stays where it was, too, under a second name: until the record is there it is all that there is of it.
        """
        digest = _digest_of(answer)
        self._answers.mkdir(mode=0o700, exist_ok=True)
        partly, kept = self._answers / "new", self._answers / digest.hex()
        partly.unlink(missing_ok=True)
        try:
            os.link(answer, partly)
        except OSError:  # another disk
            shutil.copyfile(answer, partly)
        with partly.open("rb") as file:
            os.fsync(file.fileno())
        partly.replace(kept)
        sync_folder(self._answers)
        return _FILE + digest

    def _find(self, answer: bytes) -> bytes | Path | None:
        """The answer that stands in a record, or its file; None where that is gone, or is not what it was."""
        if not answer.startswith(_FILE):
            return answer
        digest = answer[len(_FILE) :]
        kept = self._answers / digest.hex()
        return kept if kept.is_file() and _digest_of(kept) == digest else None

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


def _digest_of(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
