"""Functions of some rows of a table in Parquet files: read, look at ids, check and encode columns.

They are run where the files are read, by a worker of an engine. What they return to whoever started a study has no
value and no id: facts that are counted, masks, and keyed hashes.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.data.cell_facts import CellFacts, CellNotes, note_cells
from verticopula.data.column_encoding import EncodedCells, encode_apart, encode_rows
from verticopula.data.id_checks import IdFacts, hash_ids, normalise_ids
from verticopula.engine.chunk_task import Secret
from verticopula.errors import Problem, SchemaError
from verticopula.schema.columns import Column
from verticopula.schema.federation import IdRule, Party


@dataclass(frozen=True)
class FileFacts:
    """A Parquet file as it was found.

    Attributes
    ----------
    path : its name, the same for all workers
    columns : name -> type
    rows : how many
    state : what changes when it is written again
    """

    path: str
    columns: dict[str, pl.DataType]
    rows: int
    state: tuple[int, int]


@dataclass(frozen=True)
class RowChunk:
    """Rows of a table that follow each other.

    Attributes
    ----------
    start, stop : which rows of the whole table, of which some rows of the files may be left out
    parts : files, each with the first of its rows and how many of them
    kept : which rows of the parts are in the table, eight a byte; None for all of them
    """

    start: int
    stop: int
    parts: tuple[tuple[FileFacts, int, int], ...]
    kept: bytes | None = None

    def read(self, names: Sequence[str]) -> pl.DataFrame:
        """Some columns of these rows; SchemaError where a file is not what it was when the study began.

        Parameters
        ----------
        names : of the columns
        """
        read = pl.concat([_read_part(file, first, count, list(names)) for file, first, count in self.parts])
        if self.kept is None:
            return read
        packed = np.frombuffer(self.kept, dtype=np.uint8)
        return read.filter(pl.Series(np.unpackbits(packed, count=read.height).view(np.bool_)))


def _read_part(file: FileFacts, first: int, count: int, names: list[str]) -> pl.DataFrame:
    path = Path(file.path)
    try:
        frame = pl.scan_parquet(path, glob=False, hive_partitioning=False).select(names).slice(first, count).collect()
        is_same = _state_of(path) == file.state
    except (OSError, pl.exceptions.PolarsError) as error:
        kind = type(error).__name__  # its message may hold a cell
    else:
        if is_same and frame.height == count:
            return frame
        kind = "it was written again since the study began"
    raise SchemaError([Problem(path.name, f"cannot be read on a worker ({kind})")])


def _state_of(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


def look_at_files(paths: Sequence[str]) -> list[FileFacts]:
    """What is known of a table's files before any of their cells is read; SchemaError where they make no table.

    Parameters
    ----------
    paths : in the order of the table's rows
    """
    found, problems = [], []
    for path in map(Path, paths):
        try:
            schema, state = pl.read_parquet_schema(path), _state_of(path)
            rows = pl.scan_parquet(path, glob=False, hive_partitioning=False).select(pl.len()).collect().item()
            types = {name: _without_cells(dtype) for name, dtype in schema.items()}
            found.append(FileFacts(str(path), types, int(rows), state))
        except (OSError, pl.exceptions.PolarsError) as error:
            why = f"a worker cannot read it as Parquet ({type(error).__name__}); it needs the same path on all workers"
            problems.append(Problem(path.name, why))
    if not problems and any(facts.columns != found[0].columns for facts in found):
        problems.append(
            Problem(Path(paths[0]).parent.name, "its files have different columns, or columns of different types")
        )
    if problems:
        raise SchemaError(problems)
    return found


def _without_cells(dtype: pl.DataType) -> pl.DataType:
    """The type that cells are read as; that of categories would list them."""
    return pl.String() if isinstance(dtype, (pl.Enum, pl.Categorical)) else dtype


def cut_rows(files: Sequence[FileFacts], rows_at_once: int) -> list[RowChunk]:
    """A table's rows in chunks.

    Parameters
    ----------
    files : in the order of its rows
    rows_at_once : of every chunk but the last
    """
    height = sum(file.rows for file in files)
    return [_chunk_of(files, start, min(start + rows_at_once, height)) for start in range(0, height, rows_at_once)]


def cut_kept_rows(files: Sequence[FileFacts], kept: NDArray[np.bool_], rows_at_once: int) -> list[RowChunk]:
    """The same where some rows of the files are left out.

    Parameters
    ----------
    files, rows_at_once : as `cut_rows` has them
    kept : (rows,) which rows of the files are the table's
    """
    places, found = np.flatnonzero(kept), []
    for start in range(0, places.size, rows_at_once):
        own = places[start : start + rows_at_once]
        first, last = int(own[0]), int(own[-1]) + 1
        parts, mask = _chunk_of(files, first, last).parts, np.packbits(kept[first:last]).tobytes()
        found.append(RowChunk(start, start + own.size, parts, mask))
    return found


def _chunk_of(files: Sequence[FileFacts], start: int, stop: int) -> RowChunk:
    parts, above = [], 0
    for file in files:
        first, last = max(start - above, 0), min(stop - above, file.rows)
        if first < last:
            parts.append((file, first, last - first))
        above += file.rows
    return RowChunk(start, stop, tuple(parts))


# ---- ids ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class HashedIds:
    """Subject ids of some rows.

    Attributes
    ----------
    hashes : (rows, 16) keyed hashes
    facts : what is wrong with the ids
    """

    hashes: NDArray[np.uint8]
    facts: IdFacts


def hash_chunk(chunk: RowChunk, rule: IdRule, key: Secret) -> HashedIds:
    """Keyed hashes of the rows' ids.

    Parameters
    ----------
    rule : where the ids are, and how they are normalised
    key : whoever has it can find out the ids by trying
    """
    ids = normalise_ids(chunk.read([rule.name])[rule.name], rule)
    return HashedIds(hash_ids(ids.fill_null(""), key.value), IdFacts.of(ids, chunk.start))


def digest_chunk(chunk: RowChunk, rule: IdRule, readings: Sequence[ColumnReading], key: Secret) -> bytes:
    """A keyed digest of some rows: their ids, and which values they have.

    Parameters
    ----------
    rule : where the ids are, and how they are normalised
    readings : one for each column
    key : without it nobody can test guesses about the rows
    """
    digest = hmac.new(key.value, digestmod=hashlib.sha256)
    digest.update(hash_ids(normalise_ids(chunk.read([rule.name])[rule.name], rule), key.value).tobytes())
    for reading in readings:
        cells = reading.encode(chunk)
        digest.update(cells.observed.tobytes() + np.where(cells.observed, cells.values, 0.0).tobytes())
    return digest.digest()


# ---- columns -----------------------------------------------------------------------------


@dataclass(frozen=True)
class ColumnReading:
    """How a column's cells become numbers.

    Attributes
    ----------
    column : its public description
    related : that of the column that it is a difference from; None for none
    decimal : the party's decimal mark
    """

    column: Column
    related: Column | None = None
    decimal: str | None = None

    @property
    def names(self) -> list[str]:
        """The columns that are read."""
        return [self.column.name, *([] if self.related is None else [self.related.name])]

    @property
    def read_as(self) -> Column:
        """The description by which the column's own cells are read."""
        return self.column if self.related is None else self.column.as_written(self.related)

    def encode(self, chunk: RowChunk) -> EncodedCells:
        """The chunk's values and mask.

        Parameters
        ----------
        chunk : of the table
        """
        table = chunk.read(self.names)
        own = table[self.column.name]
        if self.related is None:
            return encode_rows(own, self.column, self.decimal, chunk.start)
        return encode_apart(own, table[self.related.name], (self.column, self.related), self.decimal, chunk.start)


def read_party(party: Party) -> list[ColumnReading]:
    """How all of a party's columns are read.

    Parameters
    ----------
    party : which columns it has
    """
    return [ColumnReading(column, party.related(column), party.decimal) for column in party.columns]


@dataclass(frozen=True, repr=False)
class RowsChecked:
    """What is known of some rows' columns; it stays where it is made, because extreme values are in it. No repr.

    Attributes
    ----------
    facts : of each column
    masks : who has a value of it, eight rows a byte
    """

    facts: list[CellFacts]
    masks: list[NDArray[np.uint8]]


@dataclass(frozen=True)
class ColumnChecked:
    """What a party is told of a whole column.

    Attributes
    ----------
    notes : about its cells
    mask : who has a value of it, eight rows a byte
    """

    notes: CellNotes
    mask: NDArray[np.uint8]


def check_chunk(chunk: RowChunk, readings: Sequence[ColumnReading]) -> RowsChecked:
    """Facts and masks of the rows' columns, which are encoded one at a time.

    Parameters
    ----------
    readings : one for each column
    """
    facts, masks = [], []
    for reading in readings:
        cells = reading.encode(chunk)
        facts.append(cells.facts)
        masks.append(np.packbits(cells.observed))
    return RowsChecked(facts, masks)


def add_checks(parts: Sequence[RowsChecked], readings: Sequence[ColumnReading]) -> list[ColumnChecked]:
    """What is said of whole columns, by all chunks in their order.

    Parameters
    ----------
    parts : every chunk but the last of a multiple of eight rows
    readings : one for each column
    """
    found = []
    for j, reading in enumerate(readings):
        facts = parts[0].facts[j]
        for part in parts[1:]:
            facts = facts + part.facts[j]
        notes = note_cells(facts, reading.column, reading.read_as, reading.decimal)
        found.append(ColumnChecked(notes, np.concatenate([part.masks[j] for part in parts])))
    return found


def as_series(hashes: NDArray[np.uint8]) -> pl.Series:
    """Keyed hashes as ids of a table: bytes, which stand for nobody without the key.

    Parameters
    ----------
    hashes : (n, b)
    """
    data, width = np.ascontiguousarray(hashes).tobytes(), hashes.shape[1]
    cells: list[Any] = [data[at : at + width] for at in range(0, len(data), width)]
    return pl.Series(cells, dtype=pl.Binary)
