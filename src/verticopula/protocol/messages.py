"""Everything that travels between the coordinator and a party, as one type each way, and its fingerprint.

Messages are frozen records of numbers and names. Each kind of study has a file of them.
"""

from __future__ import annotations

import hashlib
from dataclasses import is_dataclass
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
    if type(value) in _PLAIN:  # first: there are most of them
        _feed_text(digest, value)
    elif is_dataclass(value) and not isinstance(value, type):
        digest.update(f"<{kind_name(type(value))}".encode())
        for name in sent_fields(value):
            _feed(digest, getattr(value, name))
        digest.update(b">")
    elif isinstance(value, tuple):
        digest.update(f"({len(value)}".encode())
        for item in value:
            _feed(digest, item)
    elif isinstance(value, np.ndarray):
        digest.update(f"[{value.dtype.str}{value.shape}".encode())
        for piece in array_pieces(value):
            digest.update(piece)
    elif isinstance(value, bytes):
        digest.update(f"bytes{len(value)}:".encode())
        digest.update(value)
    else:
        _feed_text(digest, value)


def _feed_text(digest: Any, value: Any) -> None:
    text = repr(value).encode()
    digest.update(f"{type(value).__name__}{len(text)}:".encode() + text)
