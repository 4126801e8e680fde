"""A table of which one column at a time is read: from files that have columns, or from cells that were put on disk."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.data.scratch_file import ScratchFile, StoredArray
from verticopula.errors import SchemaError


class TableChangedError(SchemaError):
    """A file of a table is another one than was opened."""


class ColumnReader(Protocol):
    """Where a table's columns are."""

    def read(self, name: str) -> pl.Series:
        """The column of that name.

        Parameters
        ----------
        name : one of the table's
        """
        ...


@dataclass(frozen=True, repr=False)
class ColumnTable:
    """What `tables.py` asks of a table, of which one column at a time is read. No repr.

    Attributes
    ----------
    columns : their names
    height : number of rows
    reader : of the columns
    kept : which of the reader's rows are the table's; None for all of them
    """

    columns: list[str]
    height: int
    reader: ColumnReader
    kept: NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return self.height

    @property
    def width(self) -> int:
        return len(self.columns)

    def __getitem__(self, name: str) -> pl.Series:
        column = self.reader.read(name)
        return column if self.kept is None else column.filter(pl.Series(self.kept))

    def with_rows(self, kept: NDArray[np.bool_]) -> ColumnTable:
        """The same table without some of its rows.

        Parameters
        ----------
        kept : (rows,) which rows stay
        """
        left = kept
        if self.kept is not None:
            left = self.kept.copy()
            left[left] = kept
        return replace(self, height=int(kept.sum()), kept=left)


class CellsOnDisk:
    """A table's cells, as they were read, in a scratch file."""

    def __init__(self) -> None:
        self._file = ScratchFile()
        self._parts: dict[str, list[StoredArray]] = {}

    def append(self, rows: pl.DataFrame) -> None:
        """Rows that follow those before; all of them have the same columns."""
        for column in rows.iter_columns():
            data = io.BytesIO()
            column.to_frame().write_ipc(data, compression="lz4")
            stored = self._file.append(np.frombuffer(data.getbuffer(), dtype=np.uint8))
            self._parts.setdefault(column.name, []).append(stored)

    def read(self, name: str) -> pl.Series:
        """The column of that name."""
        parts = [pl.read_ipc(io.BytesIO(stored.read().tobytes())).to_series() for stored in self._parts[name]]
        return pl.concat(parts)


def put_on_disk(parts: Iterable[pl.DataFrame]) -> ColumnTable:
    """A table whose rows come in parts, and are not held.

    Parameters
    ----------
    parts : at least one
    """
    cells, height, columns = CellsOnDisk(), 0, list[str]()
    for part in parts:
        cells.append(part)
        height, columns = height + part.height, part.columns
    return ColumnTable(columns, height, cells)
