"""Messages as bytes and back. Reading builds nothing but the dataclasses it is told to expect.

    magic, format, header length | header: JSON | the arrays' bytes, one after the other

The header names the message's type and holds its fields; an array stands there as its dtype, the width it is stored
in, and its shape. Types come from the receiver's own type hints, never from the bytes. Before an array is allocated,
its stored size is compared with the bytes that are left, and its decoded size with what the message may still take.
Whatever does not fit is a WireError that quotes nothing. A message may also lie in a file (`message_files.py`): it is
written and read piece by piece, so that its bytes are never in memory beside what they stand for.
"""

from __future__ import annotations

import json
import math
import operator
import struct
import types
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import VersionMismatch, WireError
from verticopula.protocol.array_bytes import STORED_WIDTHS, FileBytes, MemoryBytes, PackedArray, fill_array
from verticopula.protocol.message_fields import kind_name, sent_fields
from verticopula.protocol.message_version import MESSAGE_VERSION

WIRE_FORMAT = 1
MAX_HEADER = 4 * 2**20
MAX_TEXT = 10_000
MAX_DIMENSIONS = 3
FREE_DECODED = 256 * 2**20  # bytes that the arrays of any message may take in memory, however short it is
MAX_EXPANSION = 4  # of a longer message; ranks of up to 65,535 subjects are stored in two bytes and read into eight

_MAGIC = b"VCMS"
_PREFIX = struct.Struct("<4sHI")
_MAX_ITEMS = 2**40
_ARRAY = get_origin(NDArray[np.int64])  # np.ndarray; with Python 3.12 and numpy 2.5 a type alias
_DTYPES: dict[type, str] = {
    np.bool_: "bool",
    np.int32: "int32",
    np.int64: "int64",
    np.float64: "float64",
    np.uint8: "uint8",
}
_SENT_AS = {"int32": "int64"}  # integers are stored narrow anyway; what they are read into is the reader's own matter
_STORED = {
    "bool": ("bits",),
    "int32": STORED_WIDTHS[:-1],
    "int64": STORED_WIDTHS,
    "float64": ("f8",),
    "uint8": ("u1",),
}
_ODD_FLOATS = ("inf", "-inf", "nan")


def encode(message: Any) -> bytes:
    """A message's bytes; WireError where its fields are not what its type hints say."""
    return b"".join(bytes_of(message)[1])


def bytes_of(message: Any) -> tuple[int, Iterator[bytes | memoryview]]:
    """How many bytes a message has, and the bytes, piece by piece; WireError as `encode` has it.

    Parameters
    ----------
    message : as `encode` takes it; its arrays are read when their pieces are asked for
    """
    if not is_dataclass(message) or isinstance(message, type):
        raise WireError("only messages can be sent")
    arrays: list[PackedArray] = []
    header = json.dumps(_pack(message, type(message), arrays), separators=(",", ":")).encode("ascii")
    if len(header) > MAX_HEADER:
        raise WireError("the message is too long to be sent: its names and numbers exceed the header")
    head = _PREFIX.pack(_MAGIC, WIRE_FORMAT, len(header)) + header
    size = len(head) + sum(array.stored_bytes for array in arrays)
    if sum(array.decoded_bytes for array in arrays) > max_decoded(size):
        raise WireError("the message is too large to be sent: its arrays would take more memory than a reader allows")
    return size, _pieces(head, arrays)


def _pieces(head: bytes, arrays: Iterable[PackedArray]) -> Iterator[bytes | memoryview]:
    yield head
    for array in arrays:
        yield from array.pieces()


def decode(data: bytes | bytearray | memoryview | Path, kinds: Iterable[type]) -> Any:
    """The message of one of these kinds that the bytes hold.

    Parameters
    ----------
    data : the bytes, or the path of a file that has them
    kinds : message types

    Raises
    ------
    VersionMismatch
        The sender speaks another version, of this format or of the messages.
    WireError
        Anything else that is not exactly such a message.
    """
    if isinstance(data, Path):
        with data.open("rb") as file:
            return _decode(FileBytes(file), kinds)
    view = memoryview(data)
    return _decode(MemoryBytes(view.cast("B") if view.c_contiguous else memoryview(bytes(view))), kinds)


def _decode(source: MemoryBytes | FileBytes, kinds: Iterable[type]) -> Any:
    size = source.left
    if size < _PREFIX.size:
        raise WireError("the bytes end before the message does")
    magic, wire_format, length = _PREFIX.unpack(source.read(_PREFIX.size))
    if magic != _MAGIC:
        raise WireError("the bytes are not a message")
    if wire_format != WIRE_FORMAT:
        raise VersionMismatch(f"this side speaks wire format {WIRE_FORMAT}, the other one another")
    if length > MAX_HEADER or length > source.left:
        raise WireError("the header is longer than allowed, or than the message")
    raw = _parse(bytes(source.read(length)))
    rest = _Rest(source, max_decoded(size))
    message = _unpack_record(raw, {kind_name(kind): kind for kind in kinds}, rest)
    rest.close()
    return message


def max_decoded(n_bytes: int) -> int:
    """The most bytes of memory that the arrays of a message of this length may take together."""
    return max(FREE_DECODED, MAX_EXPANSION * n_bytes)


# ---- writing -----------------------------------------------------------------------------


def _pack(value: Any, hint: Any, arrays: list[PackedArray]) -> Any:
    """What stands in the header for one value; its array is added to `arrays`."""
    allows_none, records, hint = _alternatives(hint)
    origin = get_origin(hint)
    if value is None and allows_none:
        return None
    if records:
        return _pack_record(value, records, arrays)
    if origin is tuple and isinstance(value, tuple):
        return [_pack(item, part, arrays) for item, part in _paired(value, get_args(hint))]
    if origin is _ARRAY:
        return _pack_array(value, _dtype_name(hint), arrays)
    if hint is float:
        return _pack_float(value)
    if hint is bool and isinstance(value, bool | np.bool_):
        return bool(value)
    if hint is int and not isinstance(value, bool | np.bool_):
        try:
            return _checked_int(operator.index(value))
        except TypeError:
            raise _unfit() from None
    if hint is bytes and isinstance(value, bytes):
        arrays.append(PackedArray(np.frombuffer(value, dtype=np.uint8), "u1"))
        return len(value)
    if hint is str and isinstance(value, str):
        return _checked_text(str(value))
    if origin is Literal:
        return _checked_choice(value, get_args(hint))
    raise _unfit()


def _pack_record(value: Any, records: dict[str, Any], arrays: list[PackedArray]) -> dict[str, Any]:
    kind: Any = type(value)
    if kind not in records.values():
        raise _unfit()
    hints = _hints(kind)
    packed = {name: _pack(getattr(value, name), hints[name], arrays) for name in sent_fields(value)}
    return {"kind": kind_name(kind), "fields": packed}


def _pack_float(value: Any) -> float | str:
    if isinstance(value, bool | np.bool_) or not isinstance(value, float | int | np.floating | np.integer):
        raise _unfit()
    try:
        number = float(value)
    except OverflowError:
        raise WireError("a number is too large") from None
    return number if math.isfinite(number) else repr(number)


def _pack_array(value: Any, dtype: str, arrays: list[PackedArray]) -> dict[str, Any]:
    if not isinstance(value, np.ndarray) or value.dtype != np.dtype(dtype):
        raise _unfit()
    if not 1 <= value.ndim <= MAX_DIMENSIONS:
        raise WireError(f"an array has 1 to {MAX_DIMENSIONS} dimensions")
    array = PackedArray.narrow(value) if dtype in ("int32", "int64") else PackedArray(value, _STORED[dtype][0])
    arrays.append(array)
    return {"dtype": _SENT_AS.get(dtype, dtype), "stored": array.stored, "shape": list(value.shape)}


# ---- reading -----------------------------------------------------------------------------


class _Rest:
    """The arrays' bytes, taken from the front; all of them have to be taken."""

    def __init__(self, source: MemoryBytes | FileBytes, max_decoded: int) -> None:
        self.source = source
        self._decoded_left = max_decoded

    def reserve(self, size: int, decoded: int) -> None:
        """WireError unless so many bytes are left, and may be so many when they are decoded. Allocates nothing."""
        if size > self.source.left:
            raise WireError("an array is larger than the message")
        if decoded > self._decoded_left:
            raise WireError("the message's arrays would take more memory than allowed")
        self._decoded_left -= decoded

    def close(self) -> None:
        if self.source.left:
            raise WireError("the message is longer than its content")


def _parse(header: bytes) -> Any:
    try:
        return json.loads(header.decode("ascii"), object_pairs_hook=_object)
    except (ValueError, RecursionError):
        raise WireError("the header cannot be read") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise WireError("the header names a field twice")
    return found


def _unpack(raw: Any, hint: Any, rest: _Rest) -> Any:
    """The value of one type that a part of the header stands for."""
    allows_none, records, hint = _alternatives(hint)
    origin = get_origin(hint)
    if raw is None and allows_none:
        return None
    if records:
        return _unpack_record(raw, records, rest)
    if origin is tuple and isinstance(raw, list):
        return tuple(_unpack(item, part, rest) for item, part in _paired(raw, get_args(hint)))
    if origin is _ARRAY:
        return _unpack_array(raw, _dtype_name(hint), rest)
    if hint is float:
        return _unpack_float(raw)
    if hint is bool and type(raw) is bool:
        return raw
    if hint is int and type(raw) is int:
        return _checked_int(raw)
    if hint is bytes and type(raw) is int and raw >= 0:
        rest.reserve(raw, raw)
        return bytes(rest.source.read(raw))
    if hint is str and type(raw) is str:
        return _checked_text(raw)
    if origin is Literal:
        return _checked_choice(raw, get_args(hint))
    raise _unfit()


def _unpack_record(raw: Any, records: dict[str, Any], rest: _Rest) -> Any:
    if not isinstance(raw, dict) or raw.keys() != {"kind", "fields"} or not isinstance(raw["fields"], dict):
        raise _unfit()
    name, given = raw["kind"], raw["fields"]
    version = given.get("version", MESSAGE_VERSION)
    if type(version) is int and version != MESSAGE_VERSION:  # first: another version may have other types and fields
        raise VersionMismatch(f"this side speaks message version {MESSAGE_VERSION}, the other one another")
    if not isinstance(name, str) or name not in records:
        raise WireError("the message is of a type that is not expected here")
    hints = _hints(records[name])
    hints = {field: hint for field, hint in hints.items() if field in given or not _came_later(records[name], field)}
    if given.keys() != hints.keys():
        raise WireError("the message has other fields than its type")
    values = {field: _unpack(given[field], hint, rest) for field, hint in hints.items()}
    try:
        return records[name](**values)
    except (TypeError, ValueError):  # a type may check more than its hints say
        raise WireError("a field holds what its type does not allow") from None


def _unpack_float(raw: Any) -> float:
    if type(raw) is float and math.isfinite(raw):
        return raw
    if type(raw) is str and raw in _ODD_FLOATS:
        return float(raw)
    raise _unfit()


def _unpack_array(raw: Any, dtype: str, rest: _Rest) -> NDArray[Any]:
    if not isinstance(raw, dict) or raw.keys() != {"dtype", "stored", "shape"}:
        raise _unfit()
    if raw["dtype"] != _SENT_AS.get(dtype, dtype):
        raise _unfit()
    stored, shape = raw["stored"], _checked_shape(raw["shape"])
    if not isinstance(stored, str) or stored not in _STORED[dtype]:
        raise _unfit()
    count = math.prod(shape)
    decoded = count * np.dtype(dtype).itemsize
    width = 0 if stored == "bits" else np.dtype(stored).itemsize
    rest.reserve(count * width if width else (count + 7) // 8, decoded)
    return fill_array(rest.source, stored, dtype, count).reshape(shape)


def _checked_shape(raw: Any) -> tuple[int, ...]:
    if not isinstance(raw, list) or not 1 <= len(raw) <= MAX_DIMENSIONS:
        raise WireError(f"an array has 1 to {MAX_DIMENSIONS} dimensions")
    if not all(type(size) is int and size >= 0 for size in raw):
        raise WireError("an array has a size that cannot be")
    if math.prod(max(size, 1) for size in raw) > _MAX_ITEMS:
        raise WireError("an array is larger than any message")
    return tuple(raw)


# ---- both ways ---------------------------------------------------------------------------


@cache
def _hints(kind: Any) -> dict[str, Any]:
    """A dataclass's fields, in order, and their types."""
    found = get_type_hints(kind)
    return {field.name: found[field.name] for field in fields(kind)}


def _came_later(kind: Any, field: str) -> bool:
    """Whether a sender of an older version does not know the field; it holds its default then."""
    return field in getattr(kind, "LATER", ())


@cache
def _alternatives(hint: Any) -> tuple[bool, dict[str, Any], Any]:
    """Whether None fits, the dataclasses that fit by name, and the type that fits where there is no dataclass."""
    parts = get_args(hint) if get_origin(hint) in (types.UnionType, Union) else (hint,)
    others = [part for part in parts if part is not type(None)]
    if not all(is_dataclass(part) for part in others):
        return len(others) < len(parts), {}, others[0] if len(others) == 1 else None
    return len(others) < len(parts), {kind_name(part): part for part in others}, None


def _dtype_name(hint: Any) -> str:
    """The dtype that an NDArray[...] asks for."""
    last = get_args(hint)[-1]
    (scalar,) = get_args(last) or (last,)  # a dtype's parameter, or the alias's own
    if scalar not in _DTYPES:
        raise _unfit()
    return _DTYPES[scalar]


def _paired(items: Any, parts: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    """A tuple's items with the types that they should have."""
    if len(parts) == 2 and parts[1] is Ellipsis:
        return [(item, parts[0]) for item in items]
    if len(items) != len(parts):
        raise _unfit()
    return list(zip(items, parts, strict=True))


def _checked_text(text: str) -> str:
    if len(text) > MAX_TEXT:
        raise WireError(f"a text has more than {MAX_TEXT} characters")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise WireError("a text is not valid Unicode") from None
    return text


def _checked_int(number: int) -> int:
    if not -(2**63) <= number < 2**63:
        raise WireError("a number is too large")
    return number


def _checked_choice(value: Any, choices: tuple[Any, ...]) -> Any:
    for choice in choices:
        if type(value) is type(choice) and value == choice:
            return choice
    raise _unfit()


def _unfit() -> WireError:
    return WireError("a field does not have the type it should have")
