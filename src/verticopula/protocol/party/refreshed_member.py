"""A party whose table is read again before each study, where it lives: in a database, or in a file that changes.

A study goes on with the table that it was begun with, whatever others are begun with later. After a restart only the
table of that moment is there: a study that was begun with another one is told so, and has spent nothing more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

import polars as pl

from verticopula.errors import ProtocolError, SchemaError
from verticopula.protocol.messages import BeginRequest, CloseRequest, ConsentRequest, Reply, Request
from verticopula.protocol.party.member import Member

logger = logging.getLogger(__name__)

MOST_TABLES = 8  # in memory, of studies that began with another one than the current; others are as after a restart
MOST_BEGUN = 64  # studies of which it is remembered which table they began with
FRESH_SECONDS = 5.0  # a coordinator that begins study after study does not make the database work all the time


class ReadableTable(Protocol):
    """Where a table is (`data.table_source.TableSource`)."""

    def read(self) -> pl.DataFrame: ...

    def version(self) -> object: ...


class RefreshedMember:
    """Answers as a `Member` does, each study with the table as it was when the study began.

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
        make_member: Callable[[pl.DataFrame], Member],
        table: pl.DataFrame,
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
        self.current = make_member(table)

    def handle(self, request: Request) -> Reply:
        """Answer a request, or refuse it with a reason.

        Parameters
        ----------
        request : of a study
        """
        study = request.proposal.study if isinstance(request, ConsentRequest) else str(getattr(request, "study", ""))
        if isinstance(request, BeginRequest):
            self._prepare(study)
        with self._lock:
            member = self._begun.get(study, self.current)
        reply = member.handle(request)
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
            changed = version is None or version != self._version
            if changed:
                member = self._make_member(self._source.read())
                changed = not member.snapshot or member.snapshot != self.current.snapshot
                if changed:
                    self.current = member
                    logger.info("the table has changed; studies that begin from now on have the new one")
            self._version, self._read_at = version, self._clock()
            return changed

    def _prepare(self, study: str) -> None:
        """Read the table for a study that is new here; ProtocolError where that fails, which spends nothing."""
        with self._lock:
            if study in self._begun:
                return
        is_stale = self._clock() - self._read_at >= self._fresh_seconds
        if is_stale and not self.current.has_joined(study):
            try:
                self.refresh()
            except SchemaError as error:
                logger.error("the table cannot be read: %s", error)  # in this party's own log, and without any cell
                raise ProtocolError(
                    f"party {self.current.name!r} cannot read its table at the moment; nothing was spent, and once it "
                    "can, the study can be resumed"
                ) from None
        with self._lock:
            self._begun.setdefault(study, self.current)
            self._forget()

    def _forget(self) -> None:
        """A study may end unheard of, and its table must not stay in memory for ever."""
        while len(self._begun) > MOST_BEGUN or len({id(member) for member in self._begun.values()}) > MOST_TABLES:
            del self._begun[next(iter(self._begun))]
