"""Tables in files that may be larger than memory: one column of them is read at a time, where their kind allows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from verticopula.data.column_table import ColumnTable, TableChangedError, put_on_disk
from verticopula.data.csv_reading import can_be_read_in_blocks, read_csv_blocks
from verticopula.data.scratch_file import BYTES_IN_MEMORY
from verticopula.data.table_files import (
    ARROW_FILES,
    TEXT_FILES,
    explain_errors,
    find_parts,
    is_parquet_folder,
    read_table,
)
from verticopula.errors import Problem, SchemaError

_Version = tuple[int, ...]


@dataclass(frozen=True)
class _Kind:
    """How files with columns are read: names and types, the number of rows, and some columns."""

    schema: Callable[..., Any]
    scan: Callable[..., pl.LazyFrame]
    read: Callable[..., pl.DataFrame]


_PARQUET = _Kind(
    pl.read_parquet_schema,
    lambda path: pl.scan_parquet(path, glob=False),
    lambda path, names: pl.read_parquet(path, columns=names, hive_partitioning=False, glob=False),
)
_ARROW = _Kind(
    pl.read_ipc_schema,
    lambda path: pl.scan_ipc(path, glob=False),
    lambda path, names: pl.scan_ipc(path, glob=False).select(names).collect(),
)


@dataclass(frozen=True)
class FileColumns:
    """The columns of Parquet or Arrow files.

    Attributes
    ----------
    files : of the table, in the order of its rows
    versions : of each file, as it was opened
    kind : of the files
    """

    files: tuple[Path, ...]
    versions: tuple[_Version, ...]
    kind: _Kind

    def read(self, name: str) -> pl.Series:
        """A column; TableChangedError where a file is another one than was opened: rows of two versions would be mixed.

        Parameters
        ----------
        name : of the column
        """
        parts = []
        for file, version in zip(self.files, self.versions, strict=True):
            try:
                parts.append(self.kind.read(file, [name]))
                same = _version_of(file) == version
            except (OSError, pl.exceptions.PolarsError):
                same = False
            if not same:
                what = "has changed while it was read; begin again once it is written"
                raise TableChangedError([Problem(file.name, what)])
        return pl.concat(parts)[name]


def _version_of(file: Path) -> _Version:
    """What no other version of a file has in common with it."""
    found = file.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def open_table(path: Path, rows_in_memory: int = 0) -> pl.DataFrame | ColumnTable:
    """A table to be read a column at a time where it is in Parquet or Arrow files, or in a large CSV file.

    The cells of the CSV file are read now, and lie in a scratch file. Tables of other kinds are read as a whole.

    Parameters
    ----------
    path : a file of any kind, or a folder of Parquet files; SchemaError if it cannot be read
    rows_in_memory : files with columns are read as a whole, too, where they have no more rows
    """
    ending = path.suffix.lower()
    if path.is_dir() and is_parquet_folder(path):
        files = find_parts(path)
        if all(file.parent == path for file in files):  # names of other folders may be columns, too
            return _open_files(path, files, _PARQUET, rows_in_memory)
    elif ending == ".parquet" or ending in ARROW_FILES:
        return _open_files(path, [path], _ARROW if ending in ARROW_FILES else _PARQUET, rows_in_memory)
    with explain_errors(path):
        if ending in TEXT_FILES and path.stat().st_size > BYTES_IN_MEMORY and can_be_read_in_blocks(path):
            return put_on_disk(read_csv_blocks(path))
    return read_table(path)


def _open_files(path: Path, files: list[Path], kind: _Kind, rows_in_memory: int) -> pl.DataFrame | ColumnTable:
    try:
        versions = tuple(map(_version_of, files))
        schemas = [kind.schema(file) for file in files]
        height = sum(kind.scan(file).select(pl.len()).collect().item() for file in files)
    except (OSError, pl.exceptions.PolarsError):
        return read_table(path)  # which says what is wrong
    if any(schema != schemas[0] for schema in schemas):
        raise SchemaError([Problem(path.name, "its files have different columns, or columns of different types")])
    if height <= rows_in_memory:
        return read_table(path)
    return ColumnTable(list(schemas[0]), height, FileColumns(tuple(files), versions, kind))
