"""Every release, written down before it is sent.

The ledger is append-only: one JSON object a line, each holding the hash of the line before, so
that a line changed, removed or reordered is found by `verify`. Fields are only ever added.
An entry holds what accounting needs and what a steward asks; never data.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from verticopula.errors import LedgerError
from verticopula.formatting import count_of, join_names
from verticopula.notebook import MOST_BOX_ROWS, box, text_html
from verticopula.privacy.release import Release, hash_line
from verticopula.privacy.statement import format_price

logger = logging.getLogger(__name__)

GENESIS = "0" * 64


class Ledger:
    """Append-only list of releases, on disk if a path is given.

    Safe for threads, and for several processes on one file: whoever appends holds a lock on the
    file and first reads what others have appended.

    Parameters
    ----------
    on_append : called with the number of entries and the last one's hash, after they are on disk
    """

    def __init__(self, path: str | Path | None = None, on_append: Callable[[int, str], None] | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._on_append = on_append
        self._lock = threading.Lock()
        self._entries: list[Release] = []
        self._size = 0
        if self.path is not None and self.path.exists():
            mend_ledger(self.path)
            self._entries, self._size = read_ledger(self.path), self.path.stat().st_size

    def append(
        self, releases: Iterable[Release], approve: Callable[[list[Release]], None] = lambda entries: None
    ) -> None:
        """Record releases, all of them or none, and see them on disk before returning.

        Parameters
        ----------
        releases : what will be released
        approve : is called with all entries so far while nobody else can append; if it raises, nothing is recorded. A
            cap checked there cannot be passed by two requests at once
        """
        with self._lock:
            if self.path is None:
                approve(list(self._entries))
                self._entries += self._seal(releases)
                return
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # Unbuffered: after a failed write nothing may be left that closing the file would still write.
            with self.path.open("ab", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                before = self._take_up(self.path, file)
                approve(list(self._entries))
                sealed = self._seal(releases)
                try:
                    rest = "".join(entry.to_json() + "\n" for entry in sealed).encode("ascii")
                    while rest:
                        rest = rest[file.write(rest) :]
                    os.fsync(file.fileno())
                except BaseException:
                    os.ftruncate(file.fileno(), before)
                    raise
                self._size = os.fstat(file.fileno()).st_size
            self._entries += sealed
            if self._on_append is not None:
                self._on_append(len(self._entries), self._entries[-1].hash if self._entries else GENESIS)

    def catch_up(self) -> None:
        """Take up entries that are on disk and not known here.

        Others may have appended them; or an append has failed half-way, and taking it back has failed as well. Whoever
        asks what a request has paid for asks after this.
        """
        with self._lock:
            if self.path is None or not self.path.exists() or self.path.stat().st_size == self._size:
                return
            with self.path.open("ab", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                self._take_up(self.path, file)

    def _take_up(self, path: Path, file: IO[bytes]) -> int:
        """The size of the file, which is open and locked, once all its entries are known here."""
        if os.fstat(file.fileno()).st_size != self._size:
            _mend(path, file)
            self._entries, self._size = _parse(path, path.read_bytes()), os.fstat(file.fileno()).st_size
        return self._size

    def _seal(self, releases: Iterable[Release]) -> list[Release]:
        previous = self._entries[-1].hash if self._entries else GENESIS
        sealed: list[Release] = []
        for release in releases:
            sealed.append(release.sealed(previous))
            previous = sealed[-1].hash
        return sealed

    def of_party(self, party: str) -> list[Release]:
        """All releases of one party.

        Parameters
        ----------
        party : its name
        """
        return [entry for entry in self if entry.party == party]

    def __iter__(self) -> Iterator[Release]:
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def _repr_html_(self) -> str:
        return _ledger_html(self)


def read_ledger(path: Path) -> list[Release]:
    """Read and verify a ledger file; LedgerError names the first line that does not fit."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)  # nobody is in the middle of a line
            data = file.read()
    except OSError:
        raise LedgerError(f"{path.name}: cannot be read") from None
    return _parse(path, data)


def mend_ledger(path: Path) -> None:
    """Take back a last line that was cut short by a crash, that is, one without its end of line.

    Nothing was released under it: a release is drawn after its entry is on disk, whole. An entry that lacks
    nothing but the end of line is kept, since a ledger may say too much and never too little.
    """
    if _is_torn(path.read_bytes()):
        with path.open("r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # a line that somebody is writing at this moment is not torn
            _mend(path, file)


def _is_torn(data: bytes) -> bool:
    """Whether the last line has no end and begins as an entry does; anything else is not for us to cut."""
    last = data[data.rfind(b"\n") + 1 :]
    return last.isascii() and last[:2] in (b"{", b'{"')


def _mend(path: Path, file: IO[bytes]) -> None:
    """The same for a file that is open and locked."""
    data = path.read_bytes()
    if not _is_torn(data):
        return
    end = data.rfind(b"\n") + 1
    _parse(path, data[:end])  # a ledger up to there
    try:
        _parse(path, data)
    except LedgerError:
        logger.warning("%s: a last line cut short by a crash was taken back; nothing was released under it", path.name)
        os.ftruncate(file.fileno(), end)
    else:
        logger.warning("%s: the last line lacked its end; the entry is kept", path.name)
        os.pwrite(file.fileno(), b"\n", len(data))
    os.fsync(file.fileno())


def _parse(path: Path, data: bytes) -> list[Release]:
    entries: list[Release] = []
    previous = GENESIS
    try:
        lines = data.decode("ascii").splitlines()
    except UnicodeDecodeError:
        raise LedgerError(f"{path.name}: cannot be read") from None
    for number, line in enumerate(lines, start=1):
        try:
            raw = json.loads(line)
            entry = Release.from_json(line)
        except (ValueError, TypeError, AttributeError):
            raise LedgerError(f"{path.name}: line {number} is not a ledger entry") from None
        if entry.previous != previous or hash_line(raw) != entry.hash:
            raise LedgerError(f"{path.name}: line {number} was altered, or lines before it are missing")
        entries.append(entry)
        previous = entry.hash
    return entries


def _ledger_html(entries: Iterable[Release]) -> str:
    """The last releases, and what all of them together cost is a call away."""
    known = list(entries)
    rows = [
        [e.time, e.study, f"{e.party}.{e.column}", e.what, f"{e.n_subjects:,}", format_price(e)]
        for e in known[-MOST_BOX_ROWS:]
    ]
    parties = join_names(list(dict.fromkeys(entry.party for entry in known)))
    lines = [f"<b>Ledger</b>: {count_of(len(known), 'release')}{f' by {text_html(parties)}' if parties else ''}"]
    if len(known) > MOST_BOX_ROWS:
        lines.append(f"The last {MOST_BOX_ROWS} of them:")
    return box(lines, ["time", "study", "column", "what", "subjects", "ε"], rows)
