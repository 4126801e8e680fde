"""A table in Parquet files that the workers of an engine read, seen from the process that started the study.

That process has names and types of columns, who has a value of which column, notes, and keyed hashes of ids. Whoever
asks for a value is refused.
"""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.data.cell_facts import CellNotes
from verticopula.data.column_encoding import NO_VALUES, EncodedColumn, StoredColumn, ValuesElsewhere
from verticopula.data.id_checks import IdFacts
from verticopula.data.row_chunks import (
    ColumnChecked,
    ColumnReading,
    HashedIds,
    RowChunk,
    add_checks,
    as_series,
    check_chunk,
    cut_kept_rows,
    cut_rows,
    digest_chunk,
    hash_chunk,
    look_at_files,
)
from verticopula.data.scratch_file import ScratchFile
from verticopula.data.table_files import find_parts, is_parquet_folder
from verticopula.engine.chunk_engine import ChunkEngine
from verticopula.engine.chunk_task import Secret
from verticopula.errors import EngineError, Problem, SchemaError
from verticopula.schema.federation import IdRule

_FILES_AT_ONCE = 64  # looked at by one task


class EngineTable:
    """What `tables.py` asks of a table that workers read.

    Parameters
    ----------
    engine : of the party
    path : a Parquet file, or a folder of them, that all workers find under this name
    rows_at_once : rows of a chunk, a multiple of `binomial_ranks.NOISE_ROWS`
    id_key : of the hashes of ids; all tables of a study have the same

    Attributes
    ----------
    columns : their names
    height : number of rows
    """

    def __init__(self, engine: ChunkEngine, path: Path, rows_at_once: int, id_key: Secret) -> None:
        self.engine, self._id_key = engine, id_key
        files = _fetch_all(engine, look_at_files, _batches(_parquet_files(path)))
        found = [file for batch in files for file in batch]
        if any(file.columns != found[0].columns for file in found):
            raise SchemaError([Problem(path.name, "its files have different columns, or columns of different types")])
        if not any(file.rows for file in found):
            raise SchemaError([Problem(path.name, "has no rows")])
        self._files, self._rows_at_once = found, rows_at_once
        self._kept: NDArray[np.bool_] | None = None
        self.chunks = cut_rows(found, rows_at_once)
        self.types, self.columns = found[0].columns, list(found[0].columns)
        self.height: int = self.chunks[-1].stop
        self._checked: dict[tuple[str, ...], list[ColumnChecked]] = {}
        self._ids: dict[IdRule, tuple[pl.Series, IdFacts]] = {}

    def __len__(self) -> int:
        return self.height

    @property
    def width(self) -> int:
        return len(self.columns)

    def __getitem__(self, name: str) -> pl.Series:
        raise EngineError(NO_VALUES)

    @property
    def all_rows(self) -> RowChunk:
        """The whole table as one chunk, for what is done by one worker."""
        if self._kept is None:
            return cut_rows(self._files, self.height)[0]
        return cut_kept_rows(self._files, self._kept, self.height)[0]

    def with_rows(self, kept: NDArray[np.bool_]) -> EngineTable:
        """The same table without some of its rows.

        Parameters
        ----------
        kept : (rows,) which rows stay; SchemaError where none does
        """
        if kept.all():
            return self
        if not kept.any():
            raise SchemaError([Problem("the table", "has no rows")])
        left = np.ones(self.height, dtype=bool) if self._kept is None else self._kept.copy()
        left[left] = kept
        table = copy.copy(self)
        table._kept, table.height = left, int(kept.sum())
        table.chunks = cut_kept_rows(self._files, left, self._rows_at_once)
        table._checked, table._ids = {}, {}
        return table

    def digest(self, rule: IdRule, readings: Sequence[ColumnReading], key: Secret) -> str:
        """A keyed digest of the table in the order of its rows, in hex.

        Parameters
        ----------
        rule, readings, key : as `digest_chunk` has them
        """
        return hashlib.sha256(b"".join(self.run(digest_chunk, rule, list(readings), key))).hexdigest()

    def ids(self, rule: IdRule) -> tuple[pl.Series, IdFacts]:
        """Keyed hashes of all ids, and what is wrong with these.

        Parameters
        ----------
        rule : where they are, and how they are normalised
        """
        if rule not in self._ids:
            hashes, facts = self.hash_ids(rule, self._id_key)
            self._ids[rule] = as_series(hashes), facts
        return self._ids[rule]

    def hash_ids(self, rule: IdRule, key: Secret) -> tuple[NDArray[np.uint8], IdFacts]:
        """The same under any key.

        Parameters
        ----------
        rule : where they are, and how they are normalised
        key : of the hashes
        """
        parts: list[HashedIds] = self.run(hash_chunk, rule, key)
        facts = parts[0].facts
        for part in parts[1:]:
            facts = facts + part.facts
        return np.concatenate([part.hashes for part in parts]), facts

    def encode(self, readings: Sequence[ColumnReading]) -> dict[str, EncodedColumn]:
        """Columns without their values: masks, and notes about their cells.

        Parameters
        ----------
        readings : one for each column
        """
        names = tuple(reading.column.name for reading in readings)
        if names not in self._checked and names:
            parts = [self.engine.submit(check_chunk, chunk, list(readings)) for chunk in self.chunks]
            (self._checked[names],) = self.engine.fetch([self.engine.submit(add_checks, parts, list(readings))])
        file, found = ScratchFile(), self._checked.get(names, [])
        return {name: self._column(checked, file) for name, checked in zip(names, found, strict=True)}

    def _column(self, checked: ColumnChecked, file: ScratchFile) -> StoredColumn:
        noted = _without_cells(checked.notes)
        return StoredColumn(noted, ValuesElsewhere((self.height,)), file.append(checked.mask))

    def run(self, function: Callable[..., Any], *given: Any) -> list[Any]:
        """What a function returns for each chunk, in the order of the rows.

        Parameters
        ----------
        function : of a chunk and what is given
        given : to all of them
        """
        return self.engine.fetch([self.engine.submit(function, chunk, *given) for chunk in self.chunks])


def _without_cells(notes: CellNotes) -> EncodedColumn:
    nothing = np.empty(0)
    return EncodedColumn(nothing, nothing.astype(bool), **vars(notes))


def _fetch_all(engine: ChunkEngine, function: Callable[..., Any], given: Sequence[Any]) -> list[Any]:
    return engine.fetch([engine.submit(function, one) for one in given])


def _batches(files: list[str]) -> list[list[str]]:
    return [files[at : at + _FILES_AT_ONCE] for at in range(0, len(files), _FILES_AT_ONCE)]


def _parquet_files(path: Path) -> list[str]:
    """The names of a table's files, as workers find them; this process reads none of them."""
    is_folder = path.is_dir() and is_parquet_folder(path)
    if not is_folder and (path.suffix.lower() != ".parquet" or not path.is_file()):
        what = "an engine reads Parquet only: a .parquet file, or a folder of them, on a disk that all workers have"
        raise SchemaError([Problem(path.name, what)])
    files = find_parts(path) if is_folder else [path]
    if any(file.parent != path for file in files if is_folder):
        what = "an engine reads a folder's own files; in folders such as year=2024 it would miss a column"
        raise SchemaError([Problem(path.name, what)])
    return [os.path.abspath(file) for file in files]
