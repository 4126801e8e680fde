"""A message's arrays as the bytes that are sent, and back: in blocks, from memory or from a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from verticopula.data.scratch_file import forget_pages, keep_bytes
from verticopula.errors import WireError

STORED_WIDTHS = ("u1", "i1", "u2", "i2", "u4", "i4", "i8")  # in which integers may be stored, narrow ones first
_PIECE = 2**21  # entries that are sent at a time as they are
BLOCK = 2**20  # entries that are converted at a time; a multiple of eight, so that masks are cut between bytes


# ---- writing -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PackedArray:
    """An array, and how its entries are stored: one of `STORED_WIDTHS`, `f8`, or `bits`."""

    values: NDArray[Any]
    stored: str

    @classmethod
    def narrow(cls, values: NDArray[np.integer]) -> PackedArray:
        """Integers in as few bytes as they need. Ranks are most of the traffic, and never need eight.

        Parameters
        ----------
        values : of any shape
        """
        if values.size == 0:
            return cls(values, STORED_WIDTHS[0])
        low, high = int(values.min()), int(values.max())
        fits = (w for w in STORED_WIDTHS if np.iinfo(w).min <= low and high <= np.iinfo(w).max)
        return cls(values, next(fits))

    @property
    def stored_bytes(self) -> int:
        """How many bytes are sent."""
        if self.stored == "bits":
            return (self.values.size + 7) // 8
        return self.values.size * np.dtype(self.stored).itemsize

    @property
    def decoded_bytes(self) -> int:
        """How many bytes they are in memory."""
        return self.values.nbytes

    def pieces(self) -> Iterator[bytes | memoryview]:
        """The bytes. Of an array that is stored as it lies in memory, no copy is made."""
        flat = np.ravel(self.values)
        stored = None if self.stored == "bits" else np.dtype(f"<{self.stored}")
        if flat.dtype == stored:
            yield from array_pieces(flat)
            return
        for start in range(0, flat.size, BLOCK):
            block = flat[start : start + BLOCK]
            yield (np.packbits(block) if stored is None else block.astype(stored)).tobytes()


def array_pieces(values: NDArray[Any]) -> Iterator[memoryview]:
    """An array's bytes, as they lie in memory or on disk; of the latter no more than a piece is in memory."""
    flat = np.ravel(values)
    for start in range(0, flat.size, _PIECE):
        yield flat[start : start + _PIECE].data.cast("B")
        forget_pages(values)


# ---- reading -----------------------------------------------------------------------------


class MemoryBytes:
    """Bytes in memory, taken from the front."""

    def __init__(self, view: memoryview) -> None:
        self._view = view

    @property
    def left(self) -> int:
        return len(self._view)

    def read(self, size: int) -> memoryview:
        taken, self._view = self._view[:size], self._view[size:]
        return taken

    def read_into(self, target: memoryview) -> None:
        target[:] = self.read(len(target))


class FileBytes:
    """A file's bytes, taken from the front. What is asked for was compared with `left` before."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.left = os.fstat(file.fileno()).st_size - file.tell()

    def read(self, size: int) -> bytes:
        found = self._file.read(size)
        self._count(size, len(found))
        return found

    def read_into(self, target: memoryview) -> None:
        self._count(len(target), self._file.readinto(target))  # type: ignore[attr-defined]

    def _count(self, wanted: int, found: int) -> None:
        if found != wanted:
            raise WireError("the file ends before the message does")
        self.left -= found


def fill_array(source: MemoryBytes | FileBytes, stored: str, dtype: str, count: int) -> NDArray[Any]:
    """So many entries that are stored in some width, as an array of their own; nothing else as long is made.

    Many bytes that are no numbers, as corrections of shares are, lie on disk.

    Parameters
    ----------
    source : has that many bytes left
    stored : as `PackedArray` has it
    dtype : of the array
    count : of entries
    """
    if dtype == "uint8":
        return keep_bytes(_read_pieces(source, count), count)
    values = np.empty(count, dtype=np.dtype(dtype))
    if stored != "bits" and np.dtype(f"<{stored}") == values.dtype:
        if count:
            source.read_into(values.data.cast("B"))
        return values
    for start in range(0, count, BLOCK):
        block = values[start : start + BLOCK]
        if stored == "bits":
            _fill_bits(source, block)
        else:
            _fill_numbers(source, block, np.dtype(f"<{stored}"))
    return values


def _read_pieces(source: MemoryBytes | FileBytes, count: int) -> Iterator[NDArray[np.uint8]]:
    for start in range(0, count, _PIECE):
        yield np.frombuffer(source.read(min(_PIECE, count - start)), dtype=np.uint8)


def _fill_bits(source: MemoryBytes | FileBytes, block: NDArray[Any]) -> None:
    packed = np.frombuffer(source.read((block.size + 7) // 8), dtype=np.uint8)
    if block.size % 8 and int(packed[-1]) & (0xFF >> block.size % 8):
        raise WireError("a mask has more entries than its shape")
    block[:] = np.unpackbits(packed, count=block.size).view(np.bool_)


def _fill_numbers(source: MemoryBytes | FileBytes, block: NDArray[Any], stored: np.dtype[Any]) -> None:
    found = np.frombuffer(source.read(block.size * stored.itemsize), dtype=stored)
    if np.iinfo(stored).max > np.iinfo(block.dtype).max and int(found.max()) > np.iinfo(block.dtype).max:
        raise WireError("a number is too large")
    block[:] = found
