"""Log entries as JSON, one object a line, for programs that collect logs.

An entry has: time, level, event (the sentence before its values were put in), message, logger, role, who, and study
where it belongs to one. Entries of other libraries say where they come from and never what they say: their text may
quote a peer or a value.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Literal

from verticopula.network.connection.log_context import current_study
from verticopula.network.connection.sanitizing import frames_of, sanitize
from verticopula.network.connection.token_bucket import TokenBucket
from verticopula.network.kit.startup_kit import Kit

LogFormat = Literal["text", "json"]

_OWN = "verticopula"
# It tells of every connection; that peers come and go is told once above it.
_DRIVER = "verticopula.network.connection.flare_driver"
_LONGEST_NAME = 128
_BURST = 100.0  # entries of one event at once, and then so many a second: whoever reaches the port can cause some
_PER_SECOND = 5.0
_MOST_EVENTS = 1_000

logger = logging.getLogger(__name__)


def write_json_log(kit: Kit | None) -> None:
    """All entries to standard error as it is now, and what would end a thread without a word.

    Parameters
    ----------
    kit : whose process this is; None before that is known
    """
    handler = logging.StreamHandler(os.fdopen(os.dup(2), "w", encoding="ascii"))
    handler.setFormatter(JsonFormatter(kit))
    limit = EntryLimit()
    handler.addFilter(lambda record: is_worth_a_line(record) and limit.take(record))
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    root.addHandler(handler)
    logging.raiseExceptions = False  # or an entry that cannot be written is quoted on standard error
    threading.excepthook = lambda caught: _log_end(caught.exc_value)
    sys.excepthook = _log_uncaught


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    _log_end(error)


def _log_end(error: BaseException | None) -> None:
    if error is not None:
        logger.error("a thread ended with %s: %s", type(error).__name__, frames_of(error))


class JsonFormatter(logging.Formatter):
    """One line of ASCII an entry; whatever text is in it, it cannot begin a line of its own."""

    def __init__(self, kit: Kit | None) -> None:
        super().__init__()
        self._kit = kit

    def format(self, record: logging.LogRecord) -> str:
        is_own = _is_own(record)
        event, message = (str(record.msg), record.getMessage()) if is_own else ("a library's error", _place_of(record))
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": sanitize(event),
            "message": sanitize(message),
            "logger": sanitize(record.name, _LONGEST_NAME),
        }
        if self._kit is not None:
            entry |= {"role": self._kit.role, "who": self._kit.name}
        if study := current_study():
            entry["study"] = study
        if left_out := getattr(record, "left_out", 0):
            entry["left_out"] = left_out
        return json.dumps(entry)


@dataclass
class EntryLimit:
    """A token bucket for each event, so that nobody can fill a disk with entries; how many were left out is told.

    Attributes
    ----------
    clock : seconds of a clock that is never set
    """

    clock: Callable[[], float] = time.monotonic
    _buckets: dict[str, TokenBucket] = field(default_factory=dict)
    _left_out: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, record: logging.LogRecord) -> bool:
        """Whether one more entry of this event is written."""
        event = str(record.msg) if _is_own(record) else record.name
        with self._lock:
            if event not in self._buckets and len(self._buckets) >= _MOST_EVENTS:
                event = ""  # a sentence with a value in it is no event; together they have one bucket
            bucket = self._buckets.setdefault(event, TokenBucket(_BURST, _PER_SECOND, self.clock))
            if not bucket.take():
                self._left_out[event] += 1
                return False
            record.left_out = self._left_out.pop(event, 0)
        return True


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """Whether an entry is this package's own, or an error of a library: what FLARE tells of every connection is not.

    Parameters
    ----------
    record : the entry
    """
    if not _is_own(record):
        return record.levelno >= logging.ERROR
    return record.levelno >= (logging.WARNING if record.name == _DRIVER else logging.INFO)


def _is_own(record: logging.LogRecord) -> bool:
    return record.name.split(".")[0] == _OWN


def _place_of(record: logging.LogRecord) -> str:
    """What is told of a library's entry: where it was written, and the kind of the error that it is about."""
    said = f"{record.filename}:{record.lineno} {record.funcName}"
    error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    return said if error is None else f"{said}: {type(error).__name__}: {frames_of(error)}"
