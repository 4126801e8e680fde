"""Arrays that are too large to be held: in a file without a name, which is gone with the process.

The file lies where the system keeps temporary files (`TMPDIR`). It is its owner's alone, nobody can open it by a name,
and nothing is left of it after a crash.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_HINT = "tables of many people lie in the folder for temporary files; set TMPDIR to a folder on a disk with more room"
ROWS_IN_MEMORY = 1 << 18  # in memory, where a table has more: 55 columns of them take about 200 MB
BYTES_IN_MEMORY = 1 << 26  # of a message's bytes; longer ones lie on disk
_MOST_BYTES = 1 << 30  # written at once


class ScratchFileError(OSError):
    """Temporary values could not be written; the words say what to do."""


class ScratchFile:
    """Arrays one after the other, written once and read as often as somebody asks."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="verticopula-")  # noqa: SIM115 (closed when nobody holds it)
        self._size = 0
        weakref.finalize(self, self._file.close)

    def append(self, array: NDArray[Any]) -> StoredArray:
        """The same array, on disk; OSError says what to do where there is no room. Not for two threads at a time."""
        data = np.ascontiguousarray(array)
        place = StoredArray(self, self._size, data.dtype, data.shape)
        if data.nbytes:
            self._write(memoryview(data.data).cast("B"))
        self._size += data.nbytes
        return place

    def _write(self, view: memoryview) -> None:
        done = 0
        try:
            while done < len(view):
                done += os.pwrite(self._file.fileno(), view[done : done + _MOST_BYTES], self._size + done)
        except OSError as error:
            raise ScratchFileError(error.errno, f"{os.strerror(error.errno or errno.EIO)}: {_HINT}") from None

    def read_into(self, out: NDArray[Any], offset: int) -> None:
        """Fill a contiguous array with what stands there. Any number of threads may."""
        view, done = memoryview(out.data).cast("B"), 0
        while done < len(view):
            read = os.preadv(self._file.fileno(), [view[done:]], offset + done)
            if not read:
                raise OSError(errno.EIO, "a file for temporary values has lost some of them")
            done += read

    def map(self) -> NDArray[np.uint8]:
        """All bytes that were written so far, mapped: what is not in use is not in memory."""
        if not self._size:
            return np.empty(0, dtype=np.uint8)
        return np.memmap(self._file, dtype=np.uint8, mode="r", shape=(self._size,))


@dataclass(frozen=True, repr=False)
class StoredArray:
    """An array in a scratch file."""

    file: ScratchFile
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def read(self) -> NDArray[Any]:
        """The array, in memory."""
        out = np.empty(self.shape, dtype=self.dtype)
        if out.size:
            self.file.read_into(out, self.offset)
        return out

    def within(self, mapped: NDArray[np.uint8]) -> NDArray[Any]:
        """The array as a part of what `ScratchFile.map` gave."""
        size = int(np.prod(self.shape)) * self.dtype.itemsize
        return np.asarray(mapped[self.offset : self.offset + size]).view(self.dtype).reshape(self.shape)


def keep_bytes(parts: Iterable[NDArray[np.uint8]], size: int) -> NDArray[np.uint8]:
    """So many bytes, one part after the other: in memory, or on disk where there are many.

    Parameters
    ----------
    parts : of which the next may lie where the last one lay
    size : of all of them
    """
    if size > BYTES_IN_MEMORY:
        file = ScratchFile()
        for part in parts:
            file.append(part)
        return file.map()
    out, done = np.empty(size, dtype=np.uint8), 0
    for part in parts:
        out[done : done + part.size] = part
        done += part.size
    return out


def forget_pages(array: NDArray[Any]) -> None:
    """Take a mapped array out of this process's memory until somebody reads it again; others stay as they are."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap):
        base.madvise(mmap.MADV_DONTNEED)
