"""Messages as bytes: every message comes back as it was, and nothing else comes back at all."""

from __future__ import annotations

import gc
import json
import math
import struct
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from numpy.typing import NDArray

from verticopula import protocol
from verticopula.errors import VersionMismatch, WireError
from verticopula.protocol import wire
from verticopula.protocol.consent_messages import PresenceReply, PresenceRequest
from verticopula.protocol.message_version import MESSAGE_VERSION
from verticopula.protocol.messages import REPLY_KINDS, REQUEST_KINDS, fingerprint
from verticopula.protocol.rank_messages import (
    ColumnQuery,
    ColumnRelease,
    CompletedRanksReply,
    Imputation,
    ReleaseReply,
    ReleaseRequest,
)
from verticopula.protocol.regression_messages import DesignRequest, EnteringColumnsReply, ResponseReply
from verticopula.protocol.study_messages import PlaceReply
from verticopula.protocol.wire import MAX_HEADER, MAX_TEXT, WIRE_FORMAT, decode, encode

KINDS = (*REQUEST_KINDS, *REPLY_KINDS)
PREFIX = struct.Struct("<4sHI")


def example(hint: Any, rng: np.random.Generator) -> Any:
    """Some value of a type."""
    origin, parts = get_origin(hint), get_args(hint)
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        values = {f.name: example(hints[f.name], rng) for f in fields(hint) if f.name != "version"}
        return hint(**values)  # type: ignore[operator]
    if origin in (types.UnionType, Union):
        return example(parts[rng.integers(len(parts))], rng)
    if origin is tuple:
        items = [parts[0]] * int(rng.integers(4)) if parts[1:] == (...,) else parts
        return tuple(example(part, rng) for part in items)
    if origin is get_origin(NDArray[np.int64]):
        shape = tuple(int(size) for size in rng.integers(0, 9, rng.integers(1, 4)))
        (scalar,) = get_args(parts[-1]) or parts  # dtype[...], or the scalar itself where NDArray is a type alias
        return (rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 9)).astype(scalar)
    if origin is Literal:
        return parts[rng.integers(len(parts))]
    some = {
        type(None): [None],
        str: ["", "plain", 'naïve "\\ \u2028 \n 🙂'],
        int: [0, -7, 2**63 - 1, -(2**63)],
        float: [0.1, -0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan],
        bool: [True, False],
        bytes: [b"", b"\x00\xff"],
    }[hint]
    return some[rng.integers(len(some))]


def again(message: Any) -> Any:
    return decode(encode(message), KINDS)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_message_comes_back_as_it_was(kind: type) -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        message = example(kind, rng)
        back = again(message)
        assert type(back) is kind
        assert fingerprint(back) == fingerprint(message)
        assert encode(back) == encode(message)


def test_every_message_is_among_the_kinds() -> None:
    names = [found.name for found in iter_modules(protocol.__path__, "verticopula.protocol.")]
    files = [import_module(name) for name in names if name.endswith("_messages")]
    assert len(files) == 6
    kinds = [kind for module in files for kind in vars(module).values() if isinstance(kind, type)]
    named = {kind.__name__ for kind in kinds if kind.__name__.endswith(("Request", "Reply"))}
    assert {kind.__name__ for kind in KINDS} == named


def test_a_message_is_read_only_where_it_is_expected() -> None:
    with pytest.raises(WireError, match="not expected here"):
        decode(encode(PresenceRequest("s", "vcds")), REPLY_KINDS)
    with pytest.raises(WireError):
        decode(encode(ColumnQuery("x", 1.0, 1.0)), KINDS)  # a part of a message is not a message


def test_arrays_come_back_fresh_writable_and_native() -> None:
    columns = np.asfortranarray(np.arange(12, dtype=np.int64).reshape(3, 4))
    strided = np.linspace(0.0, 1.0, 9)[::2]
    mask = np.zeros((5, 3), dtype=bool)
    mask[1::2] = True
    back = again(CompletedRanksReply("left", (columns, columns[:, ::2], columns[:0])))
    assert [part.tolist() for part in back.ranks] == [columns.tolist(), columns[:, ::2].tolist(), []]
    assert back.ranks[2].shape == (0, 4)
    others = again(ResponseReply("left", strided)).values, again(PresenceReply("left", mask, b"")).observed
    np.testing.assert_array_equal(others[0], strided)
    np.testing.assert_array_equal(others[1], mask)
    for array in (*back.ranks, *others):
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert array.dtype.isnative
        assert array.dtype in (np.int64, np.float64, np.bool_)


@pytest.mark.parametrize(
    ("low", "high", "width"),
    [
        (0, 255, 1),
        (-128, 127, 1),
        (-1, 128, 2),
        (0, 256, 2),
        (0, 65535, 2),
        (-1, 40000, 4),
        (1, 71827, 4),
        (0, 2**32 - 1, 4),
        (-1, 2**31, 8),
        (-(2**63), 2**63 - 1, 8),
    ],
)
def test_integers_take_no_more_bytes_than_they_need(low: int, high: int, width: int) -> None:
    few = encode(CompletedRanksReply("left", (np.array([low, high]),)))
    many = encode(CompletedRanksReply("left", (np.tile([low, high], 50),)))
    assert abs(len(many) - len(few) - 98 * width) <= 2  # the shape is written with two more digits
    np.testing.assert_array_equal(decode(many, KINDS).ranks[0], np.tile([low, high], 50))


def test_a_mask_takes_a_bit_an_entry() -> None:
    assert len(encode(PresenceReply("left", np.ones((8000, 2), dtype=bool), b""))) < 2200


def columns_reply(strength: Any, party: str = "left") -> EnteringColumnsReply:
    return EnteringColumnsReply(party, np.zeros(0, dtype=np.int64), np.zeros((3, 0)), strength)


@pytest.mark.parametrize(
    "message",
    [
        PresenceRequest("s", 3),  # type: ignore[arg-type]
        PresenceRequest("s" * (MAX_TEXT + 1), "vcds"),
        PresenceRequest("\ud800", "vcds"),
        PresenceRequest("s", "vcds", True),
        PresenceRequest("s", "vcds", 2**63),
        columns_reply("1"),
        columns_reply(True),
        columns_reply(10**400),
        columns_reply(None),
        ResponseReply("left", np.array(1.0)),
        ResponseReply("left", np.zeros((1, 1, 1, 1))),
        ResponseReply("left", np.zeros(3, dtype=np.float32)),
        ResponseReply("left", np.zeros(3, dtype=np.int64)),  # type: ignore[arg-type]
        ResponseReply("left", np.array([None, "code"])),
        ResponseReply("left", [1.0]),  # type: ignore[arg-type]
        ReleaseReply("left", [ColumnRelease("x", np.zeros((1, 1), dtype=np.int32), np.zeros(1, dtype=np.int64))]),  # type: ignore[arg-type]
        ReleaseReply("left", (PresenceRequest("s", "vcds"),)),  # type: ignore[arg-type]
        DesignRequest("s", "f", ("x",), None, 1, None, None),  # type: ignore[arg-type]
        "text",
        PresenceRequest,
    ],
)
def test_what_does_not_fit_its_type_is_not_sent(message: Any) -> None:
    with pytest.raises(WireError):
        encode(message)


def test_numbers_of_numpy_are_sent_as_numbers() -> None:
    back = again(columns_reply(np.float64(0.1), np.str_("left")))
    assert (type(back.party), type(back.strength)) == (str, float)
    assert again(columns_reply(2)).strength == 2.0
    assert again(columns_reply(float("inf"))).strength == float("inf")


# ---- what others may send ----------------------------------------------------------------


def rewritten(message: Any, change: Callable[[dict[str, Any]], Any], tail: bytes = b"") -> bytes:
    """A message's bytes with its header changed."""
    data = encode(message)
    _, _, length = PREFIX.unpack_from(data)
    header = json.loads(data[PREFIX.size : PREFIX.size + length])
    changed = change(header)
    text = json.dumps(header if changed is None else changed).encode()
    return PREFIX.pack(b"VCMS", WIRE_FORMAT, len(text)) + text + data[PREFIX.size + length :] + tail


ORDER = ReleaseRequest("s", "vcds", "exact", (ColumnQuery("x", 1.0, 2.0),))
RESPONSE = ResponseReply("left", np.arange(6.0).reshape(2, 3))
RANKS = CompletedRanksReply("left", (np.arange(6),))
MASK = PresenceReply("left", np.ones((3, 3), dtype=bool), b"")


def put(*path: Any) -> Callable[[dict[str, Any]], None]:
    """Set the value at a path in the header: put("fields", "study", 3)."""
    *way, last, value = path

    def change(header: dict[str, Any]) -> None:
        for step in way:
            header = header[step]
        header[last] = value

    return change


@pytest.mark.parametrize(
    ("message", "change"),
    [
        (ORDER, put("kind", "Popen")),
        (ORDER, put("kind", ["ReleaseRequest"])),
        (ORDER, put("kind", "ColumnQuery")),
        (ORDER, put("more", 1)),
        (ORDER, put("fields", [])),
        (ORDER, put("fields", "more", 1)),
        (ORDER, put("fields", "study", None)),
        (ORDER, put("fields", "study", 3)),
        (ORDER, put("fields", "study", "s" * (MAX_TEXT + 1))),
        (ORDER, put("fields", "study", "\ud800")),
        (ORDER, put("fields", "version", True)),
        (ORDER, put("fields", "version", 1.0)),
        (ORDER, put("fields", "queries", {})),
        (ORDER, put("fields", "queries", 0, "kind", "PresenceRequest")),
        (ORDER, put("fields", "queries", 0, "fields", "epsilon_ranks", 1)),
        (ORDER, put("fields", "queries", 0, "fields", "epsilon_ranks", "Infinity")),
        (ORDER, put("fields", "queries", 0, "fields", "epsilon_ranks", math.inf)),
        (ORDER, lambda header: header["fields"].pop("study") and None),
        (ORDER, lambda header: [header]),
        (ORDER, lambda header: 3),
        (RESPONSE, put("fields", "values", 3)),
        (RESPONSE, put("fields", "values", "dtype", "object")),
        (RESPONSE, put("fields", "values", "dtype", "int64")),
        (RESPONSE, put("fields", "values", "stored", "O")),
        (RESPONSE, put("fields", "values", "stored", "f4")),
        (RESPONSE, put("fields", "values", "stored", ["f8"])),
        (RESPONSE, put("fields", "values", "shape", [])),
        (RESPONSE, put("fields", "values", "shape", [2, 3, 1, 1])),
        (RESPONSE, put("fields", "values", "shape", [-2, -3])),
        (RESPONSE, put("fields", "values", "shape", [6.0])),
        (RESPONSE, put("fields", "values", "shape", [True, 6])),
        (RESPONSE, put("fields", "values", "shape", [2, 2])),
        (RESPONSE, put("fields", "values", "shape", [2, 4])),
        (RESPONSE, put("fields", "values", "shape", [2**60])),
        (RESPONSE, put("fields", "values", "shape", [2**32, 2**32, 2])),  # 0, to whoever counts in 64 bits
        (RESPONSE, put("fields", "values", "shape", [0, 2**60])),
        (RANKS, put("fields", "ranks", 0, "stored", "u8")),
        (RANKS, put("fields", "ranks", 0, "stored", "u2")),
        (MASK, put("fields", "observed", "stored", "u1")),
        (MASK, put("fields", "observed", "shape", [8])),
        (MASK, put("fields", "observed", "shape", [17])),
    ],
)
def test_a_header_that_does_not_fit_is_refused(message: Any, change: Callable[[dict[str, Any]], Any]) -> None:
    with pytest.raises(WireError) as caught:
        decode(rewritten(message, change), KINDS)
    assert len(str(caught.value)) < 100


def test_unchanged_it_is_read() -> None:
    assert decode(rewritten(ORDER, lambda header: None), KINDS) == ORDER
    assert decode(bytearray(encode(ORDER)), KINDS) == decode(memoryview(encode(ORDER)), iter(KINDS)) == ORDER


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"VCMS",
        encode(ORDER) + b"\x00",
        rewritten(RESPONSE, lambda header: None, tail=bytes(8)),
        encode(RESPONSE)[:-1],
        encode(MASK)[:-1] + b"\xff",  # ones where no entry is
        PREFIX.pack(b"VCMS", WIRE_FORMAT, 10) + b"{}",
        PREFIX.pack(b"VCMS", WIRE_FORMAT, MAX_HEADER + 1) + b" " * (MAX_HEADER + 1),
        PREFIX.pack(b"VCMS", WIRE_FORMAT, 200_000) + b"[" * 200_000,
        PREFIX.pack(b"VCMS", WIRE_FORMAT, 8) + b"\xff\xfe{\x00}\x00\x00\x00",
        PREFIX.pack(b"VCMS", WIRE_FORMAT, 26) + b'{"kind":"A","kind":"Popen"}'[:26],
        PREFIX.pack(b"VCMS", WIRE_FORMAT, 5000) + b"9" * 5000,
        b"\x93NUMPY" + encode(ORDER)[6:],
        b"\x80\x04" + encode(ORDER)[2:],
    ],
)
def test_bytes_that_are_no_message_are_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        decode(data, KINDS)


def test_a_field_named_twice_is_refused() -> None:
    text = encode(PresenceRequest("s", "vcds"))[PREFIX.size :].replace(b'"study":"s"', b'"study":"s","study":"t"')
    with pytest.raises(WireError, match="twice"):
        decode(PREFIX.pack(b"VCMS", WIRE_FORMAT, len(text)) + text, KINDS)


def test_other_versions_are_named_as_such() -> None:
    with pytest.raises(VersionMismatch):
        decode(encode(replace(ORDER, version=MESSAGE_VERSION + 1)), KINDS)
    with pytest.raises(VersionMismatch):  # a later version may have other fields, and other types
        decode(
            rewritten(ORDER, lambda header: {"kind": "New", "fields": {"version": MESSAGE_VERSION + 1, "new": 1}}),
            KINDS,
        )
    with pytest.raises(VersionMismatch):
        decode(encode(PlaceReply("left", 3, "", version=MESSAGE_VERSION + 1)), KINDS)
    data = encode(ORDER)
    with pytest.raises(VersionMismatch):
        decode(PREFIX.pack(b"VCMS", WIRE_FORMAT + 1, len(data)) + data[PREFIX.size :], KINDS)


def test_an_error_quotes_nothing() -> None:
    with pytest.raises(WireError) as caught:
        decode(rewritten(ORDER, put("fields", "canary-field", "canary-value")), KINDS)
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None


@dataclass(frozen=True)
class Picky:
    """A message of somebody else's: fixed tuples, bytes, bytes as an array, a union of records."""

    pair: tuple[str, int]
    blob: bytes
    raw: NDArray[np.uint8]
    one: ColumnQuery | Imputation | None
    grid: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if self.pair[1] < 0:
            raise ValueError("canary")


def test_types_of_other_messages_are_understood() -> None:
    for one in (ColumnQuery("x", 1.0, 2.0), Imputation("x", 1.0, np.zeros(1), np.zeros(0), np.arange(2)), None):
        message = Picky(("a", 1), b"\x00\x01", np.arange(3, dtype=np.uint8), one, (("a", "b"), ()))
        assert fingerprint(decode(encode(message), [Picky])) == fingerprint(message)
    for change in (
        put("fields", "pair", 1, -1),
        put("fields", "pair", ["a"]),
        put("fields", "blob", 2**60),
        put("fields", "blob", -1),
        put("fields", "one", {"kind": "Picky", "fields": {}}),
    ):
        with pytest.raises(WireError) as caught:
            decode(rewritten(message, change), [Picky])
        assert "canary" not in str(caught.value)


def large_reply(n: int) -> ReleaseReply:
    rng = np.random.default_rng(2)
    return ReleaseReply(
        "left",
        tuple(
            ColumnRelease(f"c{j}", rng.integers(1, n + 1, (n, 1), dtype=np.int32), rng.integers(0, n, 200))
            for j in range(13)
        ),
    )


def calls_of(work: Callable[[], object]) -> int:
    """How many functions are called, Python's and C's."""
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()  # what the collector calls is nobody's work
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


def test_twice_as_many_numbers_take_no_more_steps() -> None:
    """NumPy does the work of an array in one step; nothing looks at its numbers one by one."""
    one, two = large_reply(71_827), large_reply(2 * 71_827)  # both in four bytes a rank
    for message in (one, two):  # type hints are looked up once
        assert fingerprint(again(message)) == fingerprint(message)
    assert calls_of(lambda: again(one)) == calls_of(lambda: again(two))
    assert len(encode(one)) < 13 * (4 * 71_827 + 2000)


# ---- how much memory a message may take ----------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        PresenceReply("left", np.ones(80_000, dtype=bool), b""),
        CompletedRanksReply("left", (np.zeros(4_000, dtype=np.int64), np.zeros(6_000, dtype=np.int64))),
    ],
    ids=["bits", "bytes"],
)
def test_the_decoded_size_is_limited_on_both_sides(message: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "FREE_DECODED", 80_000)
    data = encode(message)
    assert fingerprint(decode(data, KINDS)) == fingerprint(message)
    monkeypatch.setattr(wire, "FREE_DECODED", 79_999)
    with pytest.raises(WireError, match="more memory than a reader allows"):
        encode(message)
    with pytest.raises(WireError, match="more memory than allowed"):
        decode(data, KINDS)


@pytest.mark.parametrize("high", [60_000, 2**31, 2**62])
def test_ranks_are_never_too_large_for_their_message(high: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that is on the ledger has to be sent: integers of two bytes and more fit, however many."""
    monkeypatch.setattr(wire, "FREE_DECODED", 0)
    ranks = np.linspace(1, high, 5_000).astype(np.int64)
    np.testing.assert_array_equal(again(CompletedRanksReply("left", (ranks,))).ranks[0], ranks)
