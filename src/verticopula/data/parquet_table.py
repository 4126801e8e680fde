"""A table in Parquet files that may be larger than memory: one column at a time is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from verticopula.data.table_files import find_parts, is_parquet_folder, read_table
from verticopula.errors import Problem, SchemaError

_Version = tuple[int, ...]


@dataclass(frozen=True)
class ParquetTable:
    """What `tables.py` asks of a table, of which one column at a time is read.

    Attributes
    ----------
    files : of the table, in the order of its rows
    columns : their names
    height : number of rows
    versions : of each file, as it was opened
    """

    files: tuple[Path, ...]
    columns: list[str]
    height: int
    versions: tuple[_Version, ...]

    def __len__(self) -> int:
        return self.height

    @property
    def width(self) -> int:
        return len(self.columns)

    def __getitem__(self, name: str) -> pl.Series:
        """A column; SchemaError where a file is another one than was opened: rows of two versions would be mixed."""
        parts = []
        for file, version in zip(self.files, self.versions, strict=True):
            try:
                parts.append(pl.read_parquet(file, columns=[name], hive_partitioning=False, glob=False))
                same = _version_of(file) == version
            except (OSError, pl.exceptions.PolarsError):
                same = False
            if not same:
                raise SchemaError([Problem(file.name, "has changed while it was read; begin again once it is written")])
        return pl.concat(parts)[name]


def _version_of(file: Path) -> _Version:
    """What no other version of a file has in common with it."""
    found = file.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def open_table(path: Path) -> pl.DataFrame | ParquetTable:
    """A table to be read a column at a time where it is in Parquet files; read as a whole otherwise.

    Parameters
    ----------
    path : a file of any kind, or a folder of Parquet files; SchemaError if it cannot be read
    """
    is_folder = path.is_dir() and is_parquet_folder(path)
    files = find_parts(path) if is_folder else [path]
    if not (is_folder or path.suffix.lower() == ".parquet") or any(file.parent != path for file in files if is_folder):
        return read_table(path)  # names of folders may be columns, too
    try:
        versions = tuple(map(_version_of, files))
        schemas = [pl.read_parquet_schema(file) for file in files]
        height = sum(pl.scan_parquet(file, glob=False).select(pl.len()).collect().item() for file in files)
    except (OSError, pl.exceptions.PolarsError):
        return read_table(path)  # which says what is wrong
    if any(schema != schemas[0] for schema in schemas):
        raise SchemaError([Problem(path.name, "its files have different columns, or columns of different types")])
    return ParquetTable(tuple(files), list(schemas[0]), height, versions)
