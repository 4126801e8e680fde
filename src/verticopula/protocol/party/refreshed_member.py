"""A party whose table is read again before each study, where it lives: in a database, or in a file that changes.

A study goes on with the table that it was begun with, whatever others are begun with later. After a restart only the
table of that moment is there: a study that was begun with another one is told so, and has spent nothing more. People
who withdrew since a study began make no other table: the vault knows who had withdrawn then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from verticopula.data.column_table import TableChangedError
from verticopula.data.tables import RawTable
from verticopula.errors import EngineError, LedgerError, ProtocolError, SchemaError
from verticopula.protocol.consent_messages import ConsentRequest
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.party.member import Member
from verticopula.protocol.study_messages import BeginRequest, CloseRequest

logger = logging.getLogger(__name__)

Read = TypeVar("Read")

MOST_TABLES = 8  # in memory, of studies that began with another one than the current; others are as after a restart
MOST_BEGUN = 64  # studies of which it is remembered which table they began with
MOST_TRIES = 3  # a file that is written while it is read is read again
FRESH_SECONDS = 5.0  # a coordinator that begins study after study does not make the database work all the time


class ReadableTable(Protocol):
    """Where a table is (`data.table_source.TableSource`)."""

    def read(self) -> RawTable: ...

    def version(self) -> object: ...


class MemberMaker(Protocol):
    """Makes a member with a table; `withdrawals` as `Member` has it."""

    def __call__(self, table: RawTable, *, withdrawals: int | None = None) -> Member: ...


class RefreshedMember:
    """A party whose table changes: a `Member` for each table, so that a study keeps the one that it began with.

    Parameters
    ----------
    source : where the table is
    make_member : a member with a table; all of them share vault, policy and steward
    table, version : as they were read at first
    fresh_seconds : how long a table counts as just read
    clock : seconds since any moment

    Attributes
    ----------
    current : the member with the table that was read last
    """

    def __init__(
        self,
        source: ReadableTable,
        make_member: MemberMaker,
        table: RawTable,
        version: object = None,
        *,
        fresh_seconds: float = FRESH_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._make_member = source, make_member
        self._fresh_seconds, self._clock = fresh_seconds, clock
        self._version, self._read_at = version, clock()
        self._lock, self._reading = threading.Lock(), threading.Lock()
        self._begun: dict[str, Member] = {}  # study -> who answers for it
        self.current = self._make(table)

    def handle(self, request: Request) -> Reply:
        """Answer a request, or refuse it with a reason.

        Parameters
        ----------
        request : of a study
        """
        study = request.proposal.study if isinstance(request, ConsentRequest) else str(getattr(request, "study", ""))
        if isinstance(request, BeginRequest):
            self._prepare(study)
        reply = self._member_of(study).handle(request)
        if isinstance(request, CloseRequest):
            with self._lock:
                self._begun.pop(study, None)
        return reply

    def refresh(self) -> bool:
        """Read the table again, and say whether it has changed; studies that have begun keep theirs.

        SchemaError where it cannot be read or does not fit the federation file; then everything stays as it was.
        """
        with self._reading:  # without the other lock: studies that have begun go on meanwhile
            version = self._source.version()
            changed = version is None or version != self._version or self.current.has_new_withdrawals
            if changed:
                member = self._make()
                changed = not member.snapshot or member.snapshot != self.current.snapshot
                if changed or member.withdrawals != self.current.withdrawals:
                    self.current = member
                if changed:
                    logger.info("the table has changed; studies that begin from now on have the new one")
            self._version, self._read_at = version, self._clock()
            return changed

    def _prepare(self, study: str) -> None:
        """Read the table for a study that is new here; ProtocolError where that fails, which spends nothing.

        A study for which stewards are asked whether it may begin has not begun: people who withdraw meanwhile are left
        out, and stewards are asked again, because the table is another one.
        """
        with self._lock:
            waiting = self._begun.get(study)
        if waiting is not None and (waiting.has_joined(study) or not self._has_news(waiting)):
            return
        is_stale = self._clock() - self._read_at >= self._fresh_seconds
        if not self.current.has_joined(study) and (self._has_news(self.current) or (is_stale and waiting is None)):
            self._reading_table(self.refresh)
        with self._lock:
            if waiting is not None and not waiting.has_joined(study):
                del self._begun[study]
            if self.current.begun_with(study) in (None, self.current.withdrawals):
                self._begun.setdefault(study, self.current)
                self._forget()

    def _member_of(self, study: str) -> Member:
        """Who answers for a study: the member that it began with, made again after a restart."""
        with self._lock:
            if study in self._begun:
                return self._begun[study]
        began = self.current.begun_with(study)
        if began in (None, self.current.withdrawals):
            return self.current
        member = self._reading_table(lambda: self._make(withdrawals=began))
        with self._lock:
            found = self._begun.setdefault(study, member)
            self._forget()
        return found

    def _make(self, table: RawTable | None = None, *, withdrawals: int | None = None) -> Member:
        """A member with a table, or with the one that is there now; that is read again where it changes meanwhile.

        Nothing is stored before all of the table was read.
        """
        for tries_left in reversed(range(MOST_TRIES)):
            try:
                read = self._source.read() if table is None else table
                return self._make_member(read, withdrawals=withdrawals)
            except TableChangedError:
                if not tries_left:
                    raise
                table = None
        raise AssertionError

    def _has_news(self, member: Member) -> bool:
        return self._reading_table(lambda: member.has_new_withdrawals)

    def _reading_table(self, read: Callable[[], Read]) -> Read:
        """What is read; ProtocolError where it cannot be, and only the party's own log says why."""
        try:
            return read()
        except (SchemaError, LedgerError, EngineError) as error:
            logger.error("the table cannot be read: %s", error)  # without any cell
            raise ProtocolError(
                f"party {self.current.name!r} cannot read its table at the moment; nothing was spent, and once it "
                "can, the study can be resumed"
            ) from None

    def _forget(self) -> None:
        """A study may end unheard of, and its table must not stay in memory for ever."""
        while len(self._begun) > MOST_BEGUN or len({id(member) for member in self._begun.values()}) > MOST_TABLES:
            del self._begun[next(iter(self._begun))]
