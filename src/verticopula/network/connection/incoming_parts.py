"""Messages that come in parts, on the receiver's disk: checked part by part, and still there after a crash.

Every message has two files in a folder of mode 0700: its notice, and its bytes. Which parts are there is not written
down anywhere: a part is there if its bytes have the digest that was announced. Of every peer one message at most is
incomplete. Another one that it announces takes the place of that.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from verticopula.errors import ProtocolError
from verticopula.network.connection.part_messages import MessagePart, PartsNotice, read_part
from verticopula.protocol.message_version import MESSAGE_VERSION
from verticopula.protocol.wire import decode, encode
from verticopula.storage.blobs import write_atomically

logger = logging.getLogger(__name__)

_NOTICES, _BYTES = ".notice", ".parts"


class DishonestSender(ProtocolError):
    """A part is not what was announced: nothing of the message is kept."""


@dataclass(frozen=True)
class KeptNotice:
    """A notice on disk, and whose it is."""

    peer: str
    key: str
    notice: PartsNotice
    version: int = MESSAGE_VERSION


@dataclass
class IncomingMessage:
    """A message of which parts are there.

    Attributes
    ----------
    key : of its request
    path : of its bytes
    missing : numbers of the parts that are not there, the next one to ask for at the end
    asked : when that was asked for, in seconds of a clock that is never set, and in which session; None before
    """

    key: str
    notice: PartsNotice
    path: Path
    missing: list[int]
    asked: tuple[float, str] | None = None

    def write(self, part: MessagePart) -> None:
        """Put a part in its place; ProtocolError for one that was not asked for, DishonestSender for a wrong one."""
        if not self.missing or self.asked is None or part.number != self.missing[-1]:
            wanted = f"part {self.missing[-1] + 1} was asked for" if self.missing and self.asked else "none was"
            raise ProtocolError(f"part {part.number + 1} of {self.notice.parts} was not asked for; {wanted}")
        length, data = self.notice.length(part.number), part.data
        where = f"part {part.number + 1} of {self.notice.parts}"
        if data.shape != (length,):
            raise DishonestSender(f"{where} has {data.size:,} bytes, and {length:,} were announced")
        if hashlib.sha256(data.data).digest() != self.notice.digests[part.number].tobytes():
            raise DishonestSender(f"{where} has other bytes than were announced")
        with self.path.open("r+b") as file:
            file.seek(part.number * self.notice.part_bytes)
            file.write(data.data)
        self.missing.pop()
        self.asked = None


@dataclass
class IncomingParts:
    """All messages that come in parts to one process. Safe to use from several threads.

    Parameters
    ----------
    folder : where they lie; nothing else is in it
    """

    folder: Path
    _open: dict[str, IncomingMessage] = field(default_factory=dict)  # by peer
    _whole: set[Path] = field(default_factory=set)  # handed over, and not given back
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def begin(self, peer: str, key: str, notice: PartsNotice) -> IncomingMessage:
        """The message that a peer announces, with the parts that are there from before.

        OSError where there is no room for it on the disk.

        Parameters
        ----------
        peer : who announces it
        key : of its request
        notice : checked before
        """
        with self._lock:
            known = self._open.get(peer)
            if known is not None and (known.key, known.notice.name) == (key, notice.name) and known.path.exists():
                return known
            path = self.folder / f"{notice.name}{_BYTES}"
            if path in self._whole:
                raise ProtocolError("that message is here already, and is being read")
            self.drop(peer, but=path)
            found = IncomingMessage(key, notice, path, _missing(path, notice))
            self._require_room(sum(notice.length(number) for number in found.missing))
            if not path.exists():
                _make_file(path)
            kept = KeptNotice(peer, key, notice)
            write_atomically(path.with_suffix(_NOTICES), encode(kept), sync=False)
            self._open[peer] = found
        return found

    def take(self, peer: str, key: str, part: MessagePart) -> IncomingMessage:
        """The message after one more part. ProtocolError for a part of no message, otherwise as `write` has it.

        Parameters
        ----------
        peer, key : who sends it, and to which request it belongs
        part : as it came
        """
        with self._lock:
            found = self._open.get(peer)
            if found is None or (found.key, found.notice.name) != (key, part.name):
                raise ProtocolError("a part of a message that was not announced, or is not waited for any more")
            try:
                found.write(part)
            except DishonestSender:
                self.drop(peer)
                raise
            except OSError:
                found.asked = None
                raise
        return found

    def waits_for(self, peer: str, key: str) -> IncomingMessage | None:
        """The message of this peer and key of which parts are missing.

        Parameters
        ----------
        peer, key : as above
        """
        with self._lock:
            found = self._open.get(peer)
            return found if found is not None and found.key == key and found.missing else None

    def hand_over(self, peer: str) -> Path:
        """The file of a peer's message, which is whole: it stays until it is given back.

        Parameters
        ----------
        peer : whose message
        """
        with self._lock:
            found = self._open.pop(peer)
            self._whole.add(found.path)
        return found.path

    @property
    def handed_over(self) -> int:
        """Bytes of all files that were handed over and not given back."""
        with self._lock:
            return sum(path.stat().st_size for path in self._whole if path.exists())

    def give_back(self, path: Path, *, keep: bool = False) -> None:
        """A file is not needed any more.

        Parameters
        ----------
        path : that was handed over
        keep : whether it may stay until the peer announces something else, or its study ends
        """
        with self._lock:
            self._whole.discard(path)
            if not keep:
                _remove(path)

    def drop(self, peer: str, *, but: Path | None = None) -> None:
        """Remove what a peer has sent of a message that is not handed over.

        Parameters
        ----------
        peer : whose messages
        but : one that stays
        """
        with self._lock:
            self._open.pop(peer, None)
            for path, kept in self._on_disk():
                if kept.peer == peer and path not in (but, *self._whole):
                    self._say_removed(path, kept)
                    _remove(path)

    def forget(self, study: str) -> None:
        """Remove what has come of messages about a study that has ended.

        Parameters
        ----------
        study : its name
        """
        with self._lock:
            for path, kept in self._on_disk():
                if kept.notice.study == study and path not in self._whole:
                    found = self._open.get(kept.peer)
                    if found is not None and found.path == path:
                        del self._open[kept.peer]
                    self._say_removed(path, kept)
                    _remove(path)

    def prepare(self) -> None:
        """Remove what belongs to no notice. For the one process that uses the folder."""
        known = {path for path, _ in self._on_disk()} if self.folder.is_dir() else set()
        for path in (*self.folder.glob(f"*{_BYTES}"), *self.folder.glob("*.tmp")):
            if path not in known:
                path.unlink(missing_ok=True)

    def _on_disk(self) -> Iterator[tuple[Path, KeptNotice]]:
        for path in sorted(self.folder.glob(f"*{_NOTICES}")):
            try:
                yield path.with_suffix(_BYTES), decode(path.read_bytes(), (KeptNotice,))
            except (OSError, ProtocolError):  # cut off by a crash
                path.unlink(missing_ok=True)

    def _require_room(self, n_bytes: int) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if shutil.disk_usage(self.folder).free < n_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @staticmethod
    def _say_removed(path: Path, kept: KeptNotice) -> None:
        if path.exists():
            logger.info("removed what %s has sent of a message of %d parts", kept.peer, kept.notice.parts)


def _missing(path: Path, notice: PartsNotice) -> list[int]:
    """The parts that a file lacks, the last one first."""
    if not path.exists():
        return list(range(notice.parts))[::-1]
    there = (
        hashlib.sha256(read_part(path, notice, number)).digest() == notice.digests[number].tobytes()
        for number in range(notice.parts)
    )
    return [number for number, is_there in enumerate(there) if not is_there][::-1]


def _make_file(path: Path) -> None:
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))


def _remove(path: Path) -> None:
    path.with_suffix(_NOTICES).unlink(missing_ok=True)
    path.unlink(missing_ok=True)
