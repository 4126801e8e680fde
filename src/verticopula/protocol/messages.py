"""Everything that travels between the coordinator and a party, as one type each way, and its fingerprint.

Messages are frozen records of numbers and names. Each kind of study has a file of them.
"""

from __future__ import annotations

import hashlib
from dataclasses import is_dataclass
from functools import cache
from typing import Any

import numpy as np

from verticopula.protocol.array_bytes import array_pieces
from verticopula.protocol.consent_messages import AgreementAnswer, AgreementMessage
from verticopula.protocol.message_fields import kind_name, kinds_of, sent_fields
from verticopula.protocol.printed_messages import PrintedReply, PrintedRequest
from verticopula.protocol.rank_messages import CompletedRanksReply, CompletedRanksRequest, ReleaseReply, ReleaseRequest
from verticopula.protocol.regression_messages import RegressionReply, RegressionRequest
from verticopula.protocol.strict_messages import (
    GaussianMarginsReply,
    GaussianMarginsRequest,
    SecureReply,
    SecureRequest,
)
from verticopula.protocol.study_messages import StudyReply, StudyRequest

Request = (
    AgreementMessage
    | ReleaseRequest
    | CompletedRanksRequest
    | PrintedRequest
    | RegressionRequest
    | GaussianMarginsRequest
    | SecureRequest
    | StudyRequest
)
Reply = (
    AgreementAnswer
    | ReleaseReply
    | CompletedRanksReply
    | PrintedReply
    | RegressionReply
    | GaussianMarginsReply
    | SecureReply
    | StudyReply
)
REQUEST_KINDS = kinds_of(Request)  # what a party is asked
REPLY_KINDS = kinds_of(Reply)  # and what it replies

_PLAIN = (str, float, int, bool)


def payload_bytes(message: Request | Reply) -> int:
    """The size of a message's arrays, which is nearly all of it."""
    return _array_bytes(message)


def _array_bytes(value: Any) -> int:
    if isinstance(value, np.ndarray):
        return value.nbytes
    if is_dataclass(value) and not isinstance(value, type):
        return sum(map(_array_bytes, vars(value).values()))
    return sum(map(_array_bytes, value)) if isinstance(value, tuple) else 0


def fingerprint(message: Any) -> str:
    """A hash of a message's whole content: equal messages have equal ones."""
    digest = hashlib.sha256()
    _feed(digest, message)
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    """Every part with its type and length, so that different contents cannot run together."""
    kind: Any = type(value)
    if kind in _PLAIN:  # first: there are most of them
        text = repr(value).encode()
        digest.update(b"%b%d:%b" % (kind.__name__.encode(), len(text), text))
    elif (opening := _opening_of(kind)) is not None:
        digest.update(opening)
        for name in sent_fields(value):
            _feed(digest, getattr(value, name))
        digest.update(b">")
    elif isinstance(value, tuple):
        digest.update(b"(%d" % len(value))
        for item in value:
            _feed(digest, item)
    elif isinstance(value, np.ndarray):
        digest.update(f"[{value.dtype.str}{value.shape}".encode())
        for piece in array_pieces(value):
            digest.update(piece)
    elif isinstance(value, bytes):
        digest.update(b"bytes%d:" % len(value))
        digest.update(value)
    else:
        text = repr(value).encode()
        digest.update(f"{kind.__name__}{len(text)}:".encode() + text)


@cache
def _opening_of(kind: Any) -> bytes | None:
    """What stands before the fields of a message of this type; None for other types."""
    return f"<{kind_name(kind)}".encode() if is_dataclass(kind) else None
