"""Every release, written down before it is sent.

The ledger is append-only: one JSON object a line, each holding the hash of the line before, so
that a line changed, removed or reordered is found by `verify`. Fields are only ever added.
An entry holds what accounting needs and what a steward asks; never data.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import IO, Any, Literal

from verticopula.errors import LedgerError
from verticopula.privacy.accounting import Coins

logger = logging.getLogger(__name__)

GENESIS = "0" * 64
_MAY_BE_INFINITE = ("epsilon", "mu", "mu_person")
ALL_COLUMNS = "*"  # what stands in an entry's column where it is about all of the party's columns together


@dataclass(frozen=True)
class Release:
    """One release of one column; `moments` are of all of a party's columns, together with the other parties'.

    Attributes
    ----------
    what : `ranks`, `marginal`, `moments`, or `exact` (no noise at all: epsilon is infinite)
    mechanism : how it was made, for a reader
    epsilon : per comparison (`ranks`), per person's value in this column (`marginal`); infinite where the noise is
        Gaussian, so that a reader who does not know `mu` counts too much and never too little
    coins_epsilon, coins_count : the coins that replacing one person's value may touch
    noise : `secure`, or `seeded` (not private)
    bounds : `public`, or `from-data` (the marginal's range is then not private: epsilon is infinite)
    table : whom it is about, whatever the file or the party is called; "" where nobody kept track. Tables that
        turned out to be about the same people have their names joined by "+".
    request : fingerprint of the request that it answers; "" in old ledgers
    mu : Gaussian noise: how many standard deviations replacing everything the party holds about one person moves the
        release; 0 for other noise
    mu_person : the same for replacing what all parties hold about that person
    joint : the same in the entries of all parties whose data went into one release; "" where it is the party's alone
    """

    time: str
    study: str
    party: str
    column: str
    what: Literal["ranks", "marginal", "moments", "exact"]
    mechanism: str
    n_subjects: int
    epsilon: float
    coins_epsilon: float
    coins_count: int
    noise: Literal["secure", "seeded"]
    bounds: Literal["public", "from-data"]
    previous: str = ""
    hash: str = ""
    table: str = ""
    request: str = ""
    mu: float = 0.0
    mu_person: float = 0.0
    joint: str = ""

    @property
    def is_gaussian(self) -> bool:
        """Whether `mu`, in place of the coins, says what it costs."""
        return self.mu > 0.0 and self.mu_person >= self.mu

    @property
    def coins(self) -> Coins:
        return Coins(self.coins_epsilon, self.coins_count)

    def to_json(self) -> str:
        """One line. Infinite epsilons become the string "inf": JSON has no word for them."""
        return json.dumps({k: _finite(v) for k, v in asdict(self).items()}, sort_keys=True, ensure_ascii=True)

    @classmethod
    def from_json(cls, line: str) -> Release:
        raw: dict[str, Any] = json.loads(line)
        known = {f.name for f in fields(cls)}
        values: dict[str, Any] = {
            k: float("inf") if v == "inf" and k.endswith(_MAY_BE_INFINITE) else v for k, v in raw.items() if k in known
        }
        return cls(**values)

    def sealed(self, previous: str) -> Release:
        """This entry with its place in the chain and its hash."""
        open_entry = replace(self, previous=previous, hash="")
        return replace(open_entry, hash=hash_line(json.loads(open_entry.to_json())))


def hash_line(raw: Mapping[str, Any]) -> str:
    """Hash of a line as it stands, its own hash left out: fields this version does not know count too."""
    return hashlib.sha256(json.dumps({**raw, "hash": ""}, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def _finite(value: Any) -> Any:
    return "inf" if isinstance(value, float) and value == float("inf") else value


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

        `approve` is called with all entries so far while nobody else can append; if it raises,
        nothing is recorded. A cap checked there cannot be passed by two requests at once.
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
                before = os.fstat(file.fileno()).st_size
                if before != self._size:
                    _mend(self.path, file)
                    before = os.fstat(file.fileno()).st_size
                    self._entries, self._size = _parse(self.path, self.path.read_bytes()), before
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

    def _seal(self, releases: Iterable[Release]) -> list[Release]:
        previous = self._entries[-1].hash if self._entries else GENESIS
        sealed: list[Release] = []
        for release in releases:
            sealed.append(release.sealed(previous))
            previous = sealed[-1].hash
        return sealed

    def of_party(self, party: str) -> list[Release]:
        """All releases of one party."""
        return [entry for entry in self if entry.party == party]

    def __iter__(self) -> Iterator[Release]:
        return iter(tuple(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def _repr_html_(self) -> str:
        from verticopula.report.notebook import ledger_html  # stands above this file

        return ledger_html(self)


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


def spent_on(entries: Iterable[Release], party: str, table: str) -> list[Release]:
    """What counts against a table's caps.

    Everything about the same people, whatever the party was called in that study and through all joined names;
    and, to be safe, this party's entries that do not say whom they are about. Without a table, all of the party's.
    """
    known = list(entries)
    if not table:
        return [entry for entry in known if entry.party == party]
    links = {frozenset(entry.table.split("+")) for entry in known if entry.table}
    names = set(table.split("+"))
    while more := {name for link in links if link & names for name in link} - names:
        names |= more
    return [entry for entry in known if (names & set(entry.table.split("+")) if entry.table else entry.party == party)]
