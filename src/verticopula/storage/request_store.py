"""What stewards are asked and what they said, in one file that outlives processes: `requests.db` in the party's kit.

`join` asks, and reads what was decided. `requests`, a console or a prompt decide. None of them needs the vault, and any
number of processes may use the file at once (SQLite, write-ahead log). ::

    store = RequestStore.of_kit(Path("kits/bank"))
    request = store.ask(content)                       # the same question again gets the same request
    for request in store.all("pending"):               # from old to new; without an argument, all of them
        print(request.id, request.state, request.content.purpose)
    steward = Steward.load("anna", key_file)           # or Steward("anna") where the policy names no stewards
    store.decide(request.id, steward.decide(request, "yes"))       # or "no", "withdrawn", with a reason
    store.events(request.id)                           # its history; events form one hash chain
    store.verify()                                     # LedgerError where the history was changed

`request_sentences.py` has the words for people. What is stored says nothing about single people.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from verticopula.errors import LedgerError, ProtocolError, SettingsError
from verticopula.schema.defaults import SECONDS_PER_DAY
from verticopula.storage.json_digest import digest_json
from verticopula.storage.ledger import GENESIS
from verticopula.storage.steward_keys import is_signed
from verticopula.storage.steward_requests import (
    REASON_LENGTH,
    Decision,
    RequestContent,
    RequestState,
    StewardRequest,
    check_may_decide,
    is_asker,
    state_after,
)

REQUESTS_FILE = "requests.db"
REMOVED = "removed"  # what the history says of a request that is gone

_BUSY = 20.0  # seconds that a process waits for another one's transaction
_ID_BYTES = 4
_NEW_BY_PENDING = 40  # new requests by requests that may wait, within the days that a question lives
_SCHEMA = """
CREATE TABLE IF NOT EXISTS requests (
    id TEXT PRIMARY KEY, question TEXT NOT NULL, study TEXT NOT NULL, state TEXT NOT NULL, asked REAL NOT NULL,
    expires REAL NOT NULL, content TEXT NOT NULL, decisions TEXT NOT NULL DEFAULT '[]', used REAL
);
CREATE INDEX IF NOT EXISTS by_study ON requests (study);
CREATE TABLE IF NOT EXISTS events (
    number INTEGER PRIMARY KEY, request TEXT NOT NULL, time REAL NOT NULL, actor TEXT NOT NULL, what TEXT NOT NULL,
    detail TEXT NOT NULL, previous TEXT NOT NULL, hash TEXT NOT NULL
);
CREATE TRIGGER IF NOT EXISTS no_change BEFORE UPDATE ON events BEGIN SELECT RAISE(ABORT, 'append-only'); END;
CREATE TRIGGER IF NOT EXISTS no_removal BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'append-only'); END;
"""
_DISK = {sqlite3.SQLITE_FULL: errno.ENOSPC, sqlite3.SQLITE_READONLY: errno.EROFS, sqlite3.SQLITE_IOERR: errno.EIO}
_DISK |= {sqlite3.SQLITE_CANTOPEN: errno.EACCES, sqlite3.SQLITE_PERM: errno.EACCES, sqlite3.SQLITE_BUSY: errno.EBUSY}


@dataclass(frozen=True)
class RequestEvent:
    """One line of the history.

    Attributes
    ----------
    number : counts from 1 over all requests
    time : seconds since 1970
    actor : who did it: a steward, or the program that asked
    what : `asked`, `yes`, `no`, `used`, `removed`, `in force` for a federation file, or the state that it is in since
    detail : the reason, or why the state changed
    previous, hash : of the chain
    """

    number: int
    request: str
    time: float
    actor: str
    what: str
    detail: str
    previous: str
    hash: str = ""

    @property
    def seal(self) -> str:
        """The hash that belongs to the other fields."""
        said = {name: value for name, value in asdict(self).items() if name != "hash"}
        return digest_json(said)


class RequestStore:
    """Requests in one file; safe for threads and for several processes.

    Parameters
    ----------
    path : the file; it is made, for its owner's eyes, when something is stored
    clock : seconds since 1970
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path, self._clock = path, clock

    @classmethod
    def of_kit(cls, folder: Path, clock: Callable[[], float] = time.time) -> RequestStore:
        """The store of a party's kit.

        Parameters
        ----------
        folder : the kit
        clock : seconds since 1970
        """
        return cls(folder / REQUESTS_FILE, clock)

    # ---- reading -----------------------------------------------------------------------------

    def all(self, *states: RequestState, study: str | None = None) -> list[StewardRequest]:
        """Requests from old to new.

        Parameters
        ----------
        states : only requests in one of these; none for all
        study : only those of this study
        """
        with self._connect() as base:
            where, values = ("", ()) if study is None else ("WHERE study = ?", (study,))
            rows = base.execute(f"SELECT * FROM requests {where} ORDER BY asked, rowid", values).fetchall()
        found = [_request(row).at(self._clock()) for row in rows]
        return [request for request in found if not states or request.state in states]

    def get(self, name: str) -> StewardRequest:
        """The request of that name; SettingsError where there is none, or several.

        Parameters
        ----------
        name : its id, or as much of its beginning as no other has
        """
        with self._connect() as base:
            return self._get(base, name)

    def events(self, request: str | None = None) -> list[RequestEvent]:
        """The history, from old to new.

        Parameters
        ----------
        request : the id of one request; None for all
        """
        with self._connect() as base:
            rows = base.execute("SELECT * FROM events ORDER BY number").fetchall()
        return [RequestEvent(*row) for row in rows if request in (None, row["request"])]

    def head(self) -> tuple[int, str]:
        """The number of events and the last one's hash; it changes with everything that is stored."""
        with self._connect() as base:
            last = base.execute("SELECT number, hash FROM events ORDER BY number DESC LIMIT 1").fetchone()
        return (0, GENESIS) if last is None else (last["number"], last["hash"])

    def verify(self) -> tuple[int, str]:
        """`head`, where every event is in its place in the chain; LedgerError otherwise."""
        previous, events = GENESIS, self.events()
        for number, event in enumerate(events, start=1):
            if (event.number, event.previous, event.hash) != (number, previous, event.seal):
                raise LedgerError(f"{self.path.name}: event {number} was altered, or events before it are missing")
            previous = event.hash
        return len(events), previous

    # ---- asking ------------------------------------------------------------------------------

    def ask(self, content: RequestContent, actor: str = "join", most_pending: int | None = None) -> StewardRequest:
        """The request that asks this: a living one, one that was denied or withdrawn, or a new one.

        A request about the same stage of the same study that asks something else, or was asked about another table or
        under other rules, is superseded: its yes counts for nothing.

        Parameters
        ----------
        content : what is asked
        actor : who asks, for the history
        most_pending : how many studies may wait for a decision at a time, and forty times as many requests may be new
            within `days`; ProtocolError where it would be more. None for any number
        """
        now = self._clock()
        with self._transaction() as base:
            rows = base.execute("SELECT * FROM requests WHERE study = ? ORDER BY asked, rowid", (content.study,))
            for request in reversed([_request(row) for row in rows]):
                if not request.content.is_about_the_same(content) or request.state == "superseded":
                    continue
                if request.at(now).state == "expired" and request.state != "expired":
                    self._set_state(base, request, "expired", actor, "nobody used it in time")
                    continue
                is_living = request.state in ("pending", "approved") and now <= request.expires
                is_refused = request.state == "withdrawn" or (
                    request.state == "denied"
                    and now <= request.decisions[-1].when + request.content.days * SECONDS_PER_DAY
                )
                if request.content.question == content.question and (is_living or is_refused):
                    return request
                if is_living:
                    self._set_state(base, request, "superseded", actor, _difference(request.content, content))
            if most_pending is not None:
                self._check_room(base, content, most_pending)
            expires = now + content.days * SECONDS_PER_DAY
            request = StewardRequest(f"r{secrets.token_hex(_ID_BYTES)}", content, now, expires)
            base.execute(
                "INSERT INTO requests (id, question, study, state, asked, expires, content) VALUES (?,?,?,?,?,?,?)",
                (request.id, content.question, content.study, request.state, now, expires, content.to_json()),
            )
            self._append(base, request.id, actor, "asked", request.digest)
        return request

    def _check_room(self, base: sqlite3.Connection, content: RequestContent, most: int) -> None:
        """Whoever could ask without end would bury what matters, and fill the disk."""
        rows = base.execute("SELECT study, state, asked, expires FROM requests").fetchall()
        waiting = {row["study"] for row in rows if row["state"] == "pending" and row["expires"] >= self._clock()}
        since = self._clock() - content.days * SECONDS_PER_DAY
        if (
            len(waiting - {content.study}) >= most
            or sum(row["asked"] > since for row in rows) >= _NEW_BY_PENDING * most
        ):
            raise ProtocolError(
                f"party {content.party!r}: its stewards have as many studies to decide about as its policy allows "
                "(open_studies); resume this one later"
            )

    # ---- deciding ----------------------------------------------------------------------------

    def decide(self, name: str, decision: Decision) -> StewardRequest:
        """The request after one steward's decision; SettingsError where that steward may not say that now.

        One no denies it. A yes approves it once as many stewards as the policy asks for have said yes.

        Parameters
        ----------
        name : as `get` has it
        decision : as `Steward.decide` made it for this request
        """
        if len(decision.reason) > REASON_LENGTH:
            raise SettingsError(f"a reason has at most {REASON_LENGTH} characters")
        with self._transaction() as base:
            request = self._get(base, name)
            check_may_decide(request, decision.steward, decision.verdict)
            stewards = request.content.stewards
            if stewards and not is_signed(request, decision, stewards[decision.steward]):
                raise SettingsError(
                    f"the key is not that of steward {decision.steward!r} in the party's policy, or the request has "
                    "changed since it was shown; nothing was decided"
                )
            decisions = (*request.decisions, decision)
            state = state_after(request, decisions)
            expires = request.expires
            if state == "approved":  # a yes lives as long as a question may wait
                expires = self._clock() + request.content.days * SECONDS_PER_DAY
            said = json.dumps([asdict(one) for one in decisions])
            base.execute(
                "UPDATE requests SET decisions = ?, state = ?, expires = ? WHERE id = ?",
                (said, state, expires, request.id),
            )
            self._append(base, request.id, decision.steward, decision.verdict, decision.reason)
            if state != request.state and state != decision.verdict:
                self._append(base, request.id, decision.steward, state, "")
        return replace(request, decisions=decisions, state=state, expires=expires)

    def expire(self, name: str | None = None, actor: str = "steward") -> list[StewardRequest]:
        """The requests that are over from now on: the one that is named, or all whose time has come.

        Parameters
        ----------
        name : as `get` has it; None for all that nobody answered or used in time
        actor : who says so, for the history
        """
        with self._transaction() as base:
            if name is None:
                rows = base.execute("SELECT * FROM requests ORDER BY asked, rowid").fetchall()
                found = [r for r in map(_request, rows) if r.at(self._clock()).state == "expired" != r.state]
            else:
                found = [self._get(base, name)]
                if found[0].state not in ("pending", "approved"):
                    raise SettingsError(f"request {found[0].id} is {found[0].state} already")
            for request in found:
                self._set_state(base, request, "expired", actor, "")
        return [replace(request, state="expired") for request in found]

    def cancel(self, study: str, actor: str, reason: str = "") -> None:
        """The study is over before it was decided about: nobody needs to answer any more.

        Parameters
        ----------
        study : its name
        actor, reason : for the history
        """
        with self._transaction() as base:
            rows = base.execute("SELECT * FROM requests WHERE study = ?", (study,)).fetchall()
            for request in map(_request, rows):
                # A study may be called anything; it ends no question about the federation file.
                if request.content.stage != "federation" and request.at(self._clock()).state == "pending":
                    self._set_state(base, request, "cancelled", actor, reason)

    def remove_old(self, before: float, is_removed: Callable[[str], bool], actor: str) -> int:
        """The number of requests that are gone now; their history stays, and says that they were removed.

        All requests of a study go together, once the last thing that happened to any of them is older. Kept are those
        that wait, a no that lives, and a yes that a study may still go on with.

        Parameters
        ----------
        before : seconds since 1970
        is_removed : study -> whether the party has removed what was stored of it
        actor : who removes, for the history
        """
        with self._transaction() as base:
            base.execute("PRAGMA secure_delete = ON")
            times = dict(base.execute("SELECT request, MAX(time) FROM events GROUP BY request").fetchall())
            studies: dict[str, list[StewardRequest]] = {}
            for request in map(_request, base.execute("SELECT * FROM requests ORDER BY asked, rowid").fetchall()):
                if request.content.stage != "federation":  # who agreed to which file, and when, says nothing of people
                    studies.setdefault(request.content.study, []).append(request)
            gone = [
                request
                for study, own in studies.items()
                if all(times.get(one.id, one.asked) < before and self._is_over(one, is_removed(study)) for one in own)
                for request in own
            ]
            for request in gone:
                base.execute("DELETE FROM requests WHERE id = ?", (request.id,))
                self._append(base, request.id, actor, REMOVED, f"{request.content.stage} {request.content.study}")
        return len(gone)

    def _is_over(self, request: StewardRequest, is_removed: bool) -> bool:
        """Whether nothing follows from a request any more."""
        now, state = self._clock(), request.at(self._clock()).state
        if state == "denied":
            return now > request.decisions[-1].when + request.content.days * SECONDS_PER_DAY
        return state in ("expired", "cancelled", "superseded") or (state != "pending" and is_removed)

    def mark_used(self, request: StewardRequest, detail: str = "") -> None:
        """The party has consented on the strength of this request; from now on it is no question of time.

        Parameters
        ----------
        request : one that is approved
        detail : to what, for the history
        """
        if request.used is None:
            with self._transaction() as base:
                base.execute("UPDATE requests SET used = ? WHERE id = ?", (self._clock(), request.id))
                self._append(base, request.id, "join", "used", detail)

    def note(self, request: StewardRequest, what: str, detail: str) -> None:
        """Write down what came of a request, once.

        Parameters
        ----------
        request : whose
        what, detail : for the history
        """
        with self._transaction() as base:
            said = (request.id, what, detail)
            if not base.execute("SELECT 1 FROM events WHERE (request, what, detail) = (?,?,?)", said).fetchone():
                self._append(base, request.id, "join", what, detail)

    # ---- the file ----------------------------------------------------------------------------

    def _get(self, base: sqlite3.Connection, name: str) -> StewardRequest:
        rows = base.execute("SELECT * FROM requests").fetchall()
        found = [row for row in rows if name and row["id"].startswith(name)]
        if len(found) != 1:
            what = "several requests have names that begin so" if found else "no request of that name"
            raise SettingsError(f"{what}; `verticopula requests KIT` lists them")
        return _request(found[0]).at(self._clock())

    def _set_state(
        self, base: sqlite3.Connection, request: StewardRequest, state: RequestState, actor: str, detail: str
    ) -> None:
        base.execute("UPDATE requests SET state = ? WHERE id = ?", (state, request.id))
        self._append(base, request.id, actor, state, detail)

    def _append(self, base: sqlite3.Connection, request: str, actor: str, what: str, detail: str) -> None:
        last = base.execute("SELECT number, hash FROM events ORDER BY number DESC LIMIT 1").fetchone()
        number, previous = (1, GENESIS) if last is None else (last["number"] + 1, last["hash"])
        event = RequestEvent(number, request, self._clock(), actor, what, detail, previous)
        base.execute("INSERT INTO events VALUES (?,?,?,?,?,?,?,?)", (*[*asdict(event).values()][:-1], event.seal))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Alone on the file, all or nothing; on disk when it ends."""
        with self._connect() as base:
            base.execute("BEGIN IMMEDIATE")
            try:
                yield base
            except BaseException:
                with contextlib.suppress(sqlite3.Error):  # the disk may be full
                    base.execute("ROLLBACK")
                raise
            base.execute("COMMIT")

    @contextlib.contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own: OSError for what is wrong with the disk, LedgerError for a damaged file."""
        try:
            if not self.path.exists():
                with contextlib.suppress(FileExistsError):
                    os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            with contextlib.closing(sqlite3.connect(self.path, timeout=_BUSY, isolation_level=None)) as base:
                base.row_factory = sqlite3.Row
                base.execute("PRAGMA synchronous = FULL")
                if base.execute("PRAGMA user_version").fetchone()[0] == 0:
                    base.execute("PRAGMA journal_mode = WAL")
                    base.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version = 1; COMMIT;")
                yield base
        except sqlite3.Error as error:
            raise _as_error(error, self.path) from None


def _as_error(error: sqlite3.Error, path: Path) -> Exception:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _DISK:
        return OSError(_DISK[code], os.strerror(_DISK[code]), path.name)
    return LedgerError(
        f"{path.name} is damaged or no store of requests; put it back from a copy. Without one, move it away: every "
        "steward is asked again"
    )


def _request(row: sqlite3.Row) -> StewardRequest:
    decisions = tuple(Decision(**said) for said in json.loads(row["decisions"]))
    content = RequestContent.from_json(row["content"])
    return StewardRequest(row["id"], content, row["asked"], row["expires"], row["state"], decisions, row["used"])


def _difference(old: RequestContent, new: RequestContent) -> str:
    """Why the steward is asked again, for the history."""
    names = {
        "table": "the table has changed",
        "policy": "the policy has changed",
        "proposal": "another plan is proposed",
    }
    said = [words for name, words in names.items() if getattr(old, name) != getattr(new, name)]
    return "; ".join(said) or "something else is asked"


def standing_of(request: StewardRequest, stewards: Mapping[str, str], approvals: int, now: float) -> RequestState:
    """The state that follows from the decisions themselves, with a party's own list of stewards.

    What the file says is not believed: whoever can write it could write `approved`.

    Parameters
    ----------
    request : as it was stored
    stewards : name -> public key, as the party's policy has them now
    approvals : how many have to say yes, likewise
    now : seconds since 1970
    """
    stands = request.at(now)
    if stands.state != "approved":
        return stands.state
    life, said = request.content.days * SECONDS_PER_DAY, dict[str, Decision]()
    for one in request.decisions:
        known = stewards.get(one.steward, "")
        if stewards and not (known and is_signed(request, one, known) and not one.when > request.asked + life):
            continue
        if one.verdict == "yes" and is_asker(request.content, one.steward):
            continue  # `decide` refuses it; whoever can write the file, and has a key, could put it there
        said[known or one.steward] = one  # by key: two names of one key are one person
    verdicts = [one.verdict for one in said.values()]
    if verdicts.count("yes") < approvals or not {"no", "withdrawn"}.isdisjoint(verdicts):
        return "pending"
    # By what was counted: a forged yes of tomorrow must not prolong those of long ago.
    return "expired" if now > max(one.when for one in said.values()) + life else "approved"
