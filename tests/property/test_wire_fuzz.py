"""Whatever bytes arrive: a message that was expected, or one of two errors; with little work and little memory."""

from __future__ import annotations

import contextlib
import json
import struct
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verticopula.errors import VersionMismatch, WireError
from verticopula.mpc.sealed_messages import SignedPublicKey
from verticopula.protocol import wire
from verticopula.protocol.consent_messages import ConsentRequest, SignedPresence, StudyProposal
from verticopula.protocol.message_version import MESSAGE_VERSION
from verticopula.protocol.messages import REPLY_KINDS, REQUEST_KINDS
from verticopula.protocol.rank_messages import (
    ColumnQuery,
    ColumnRelease,
    CompletedRanksRequest,
    Imputation,
    ReleaseReply,
    ReleaseRequest,
)
from verticopula.protocol.regression_messages import (
    CrossMomentsReply,
    CrossMomentsRequest,
    DesignRequest,
    EnteringColumnsReply,
    EnteringColumnsRequest,
    MomentsRequest,
)
from verticopula.protocol.wire import MAX_HEADER, WIRE_FORMAT, decode, encode

KINDS = (*REQUEST_KINDS, *REPLY_KINDS)
PREFIX = struct.Struct("<4sHI")
MASK = np.arange(11) % 3 == 0

VALID = [
    encode(message)
    for message in (
        ReleaseRequest("s", "vcds", "exact", (ColumnQuery("x", 0.5, float("inf")),)),
        ConsentRequest(
            StudyProposal(
                *(
                    "s",
                    "vcds",
                    "who",
                    "why",
                    "client",
                    1.0,
                    float("inf"),
                    None,
                    "exact",
                    3,
                    False,
                    "hash",
                    "ab",
                    "cd",
                    7,
                    9,
                ),
                (SignedPresence("left", (9, 4), "cd", b"xyz"),),
                *(np.linspace(0, 1, 2), np.ones(2), np.zeros(0), np.zeros(0), None),
            )
        ),
        ReleaseReply("left", (ColumnRelease("x", np.arange(-2, 300, dtype=np.int32).reshape(-1, 2), np.arange(4)),)),
        CompletedRanksRequest(
            "s", "ievcds", "exact", 2, (Imputation("x", 1.0, np.linspace(0, 1, 4), np.zeros(0), np.arange(5)),)
        ),
        DesignRequest("s", "f", ("x", "y"), None, True, MASK, None),
        EnteringColumnsRequest("s", "f", 4, float("inf"), MASK, np.linspace(-1, 1, 7)),
        EnteringColumnsReply("left", np.arange(2), np.linspace(-1, 1, 14).reshape(7, 2), float("nan")),
        CrossMomentsRequest(
            "s",
            MomentsRequest("s", "y", MASK, np.arange(3), (SignedPublicKey("left", b"k" * 32, b"signed"),)),
            (2, 3),
            (b"sealed",),
        ),
        CrossMomentsReply("left", (np.arange(12).reshape(1, 3, 4), np.zeros((1, 0, 4), dtype=np.int64))),
    )
]


def read(data: bytes) -> Any:
    """The message, or None where the bytes are refused in one of the two ways."""
    try:
        message = decode(data, KINDS)
    except (WireError, VersionMismatch):
        return None
    assert type(message) in KINDS
    assert type(decode(encode(message), KINDS)) is type(message)
    return message


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A valid message with a few bytes flipped, cut, doubled or put in between; its length field may be mended."""
    data = bytearray(draw(st.sampled_from(VALID)))
    _, _, length = PREFIX.unpack_from(data)
    before = len(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        how = draw(st.sampled_from(["flip", "set", "cut", "insert", "double", "end"]))
        if how == "flip" and data:
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif how == "set" and data:
            data[at] = draw(st.sampled_from(b'0123456789-.eE{}[]",:nulltrefasINiy\x00\xff'))
        elif how == "cut":
            del data[at : at + draw(st.integers(1, 20))]
        elif how == "insert":
            data[at:at] = draw(st.binary(max_size=9) | st.sampled_from([b"9" * 20, b"[" * 20, b",", b"null", b"1e999"]))
        elif how == "double":
            data[at:at] = data[at : at + draw(st.integers(1, 60))]
        else:
            del data[at:]
    if len(data) >= PREFIX.size and draw(st.booleans()):
        data[6:10] = struct.pack("<I", max(length + len(data) - before, 0))
    return bytes(data)


@settings(max_examples=1500, deadline=None)
@given(damaged())
def test_damaged_messages_are_refused_or_are_messages(data: bytes) -> None:
    read(data)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([b"", PREFIX.pack(b"VCMS", WIRE_FORMAT, 40)]))
def test_random_bytes_are_refused(tail: bytes, head: bytes) -> None:
    assert read(head + tail) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=500, deadline=None)
@given(st.data())
def test_any_value_in_place_of_any_part_is_refused_or_fits(data: st.DataObject) -> None:
    valid = data.draw(st.sampled_from(VALID))
    _, _, length = PREFIX.unpack_from(valid)
    header = json.loads(valid[PREFIX.size : PREFIX.size + length])
    part: Any = header
    while True:
        keys = list(part) if isinstance(part, dict) else list(range(len(part)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(part[key], dict | list) or not part[key] or data.draw(st.booleans()):
            break
        part = part[key]
    part[key] = data.draw(json_values)
    text = json.dumps(header).encode()
    read(PREFIX.pack(b"VCMS", WIRE_FORMAT, len(text)) + text + valid[PREFIX.size + length :])


def peak_of(data: bytes) -> tuple[Any, int]:
    """The message, None if it is refused, and the most bytes that reading it has held at once."""
    tracemalloc.start()
    try:
        message = None
        with contextlib.suppress(WireError):
            message = decode(data, KINDS)
        return message, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


WIDTHS = {"u1": 1, "i1": 1, "u2": 2, "i2": 2, "u4": 4, "i4": 4, "i8": 8}


def ranks_of_zeros(arrays: list[tuple[str, int]]) -> bytes:
    """A reply of arrays of zeros, each stored in the width it names."""
    ranks = [{"dtype": "int64", "stored": stored, "shape": [count]} for stored, count in arrays]
    fields = {"party": "a", "ranks": ranks, "version": MESSAGE_VERSION}
    header = json.dumps({"kind": "CompletedRanksReply", "fields": fields}).encode()
    tail = bytes(sum(WIDTHS[stored] * count for stored, count in arrays))
    return PREFIX.pack(b"VCMS", WIRE_FORMAT, len(header)) + header + tail


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(WIDTHS)), st.integers(0, 200_000)), max_size=6))
def test_no_mixture_of_arrays_takes_more_memory_than_allowed(arrays: list[tuple[str, int]]) -> None:
    data, decoded = ranks_of_zeros(arrays), 8 * sum(count for _, count in arrays)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire, "FREE_DECODED", 2**20)
        message, peak = peak_of(data)
        allowed = max(2**20, 4 * len(data))
    assert (message is None) == (decoded > allowed)
    assert peak < min(decoded, allowed) + 100_000


def test_64_mib_of_bits_do_not_become_512_mib() -> None:
    count = 8 * 64 * 2**20
    header = (
        b'{"kind":"PresenceReply","fields":{"party":"a","observed":{"dtype":"bool","stored":"bits","shape":[%d]},'
        b'"signature":0,"version":%d}}' % (count, MESSAGE_VERSION)
    )
    message, peak = peak_of(PREFIX.pack(b"VCMS", WIRE_FORMAT, len(header)) + header + bytes(count // 8))
    assert message is None
    assert peak < 100_000


@pytest.mark.parametrize(
    "header",
    [
        b'{"kind":"ResponseReply","fields":{"party":"a","values":{"dtype":"float64","stored":"f8","shape":[%d]},'
        b'"version":%d}}' % (2**60, MESSAGE_VERSION),
        b'{"kind":"PresenceReply","fields":{"party":"a","observed":{"dtype":"bool","stored":"bits","shape":[%d,%d]},'
        b'"signature":0,"version":%d}}' % (2**20, 2**20, MESSAGE_VERSION),
        b"[" * MAX_HEADER,
        b"[" + b"[]," * (MAX_HEADER // 3 - 1) + b"0]",
        b'{"kind":"CompletedRanksReply","fields":{"party":"a","ranks":['
        + b"{}," * 10**6
        + b'{}],"version":%d}}' % MESSAGE_VERSION,
        b"1" * MAX_HEADER,
    ],
    ids=["2**60 numbers", "2**40 bits", "deep", "wide", "many arrays", "digits"],
)
def test_claims_are_refused_with_little_work_and_little_memory(header: bytes) -> None:
    data = PREFIX.pack(b"VCMS", WIRE_FORMAT, len(header)) + header + bytes(100)
    start = time.process_time()
    assert read(data) is None
    assert time.process_time() - start < 5.0
    tracemalloc.start()
    try:
        assert read(data) is None
        assert tracemalloc.get_traced_memory()[1] < 300e6
    finally:
        tracemalloc.stop()
