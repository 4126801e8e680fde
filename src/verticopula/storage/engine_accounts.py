"""Whom a table is about, where an engine's workers have it: sketches and digests are made there, with a vault's secret.

A sketch says where the values of some people stand in their columns, so it stays with the workers. What comes back is
what the vault keeps: hashes of people and sealed places.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.data.column_encoding import EncodedColumn
from verticopula.data.engine_table import EngineTable
from verticopula.data.id_checks import normalise_ids
from verticopula.data.row_chunks import ColumnReading, RowChunk
from verticopula.engine.chunk_engine import ChunkEngine
from verticopula.engine.chunk_task import Secret
from verticopula.schema.federation import IdRule
from verticopula.schema.id_rules import apply_id_rules
from verticopula.storage.id_sketch import hash_withdrawn
from verticopula.storage.known_tables import KnownTable, TableAccount, TableSketch, charge, charge_parties
from verticopula.storage.snapshot_digest import digest_snapshot


@dataclass(frozen=True, repr=False)
class SketchedTable:
    """What a worker finds out about a whole table. No repr: it holds data.

    Attributes
    ----------
    sketch : its people, and where their values stand
    snapshot : digest of the table
    """

    sketch: TableSketch
    snapshot: str


@dataclass(frozen=True, repr=False)
class ColumnsOfChunk(Mapping[str, EncodedColumn]):
    """Columns that are read and encoded when they are asked for, so that one at a time is held. No repr."""

    chunk: RowChunk
    readings: Mapping[str, ColumnReading]

    def __getitem__(self, name: str) -> EncodedColumn:
        cells = self.readings[name].encode(self.chunk)
        return EncodedColumn(cells.values, cells.observed)

    def __iter__(self) -> Iterator[str]:
        return iter(self.readings)

    def __len__(self) -> int:
        return len(self.readings)


def sketch_on_worker(chunk: RowChunk, rule: IdRule, readings: Sequence[ColumnReading], secret: Secret) -> SketchedTable:
    """The sketch and the digest of a whole table, of which ids and one column at a time are read.

    Parameters
    ----------
    chunk : all rows of the table
    rule : where its ids are
    readings : one for each column
    secret : the vault's
    """
    columns = ColumnsOfChunk(chunk, {reading.column.name: reading for reading in readings})
    ids = normalise_ids(chunk.read([rule.name])[rule.name], rule)
    return SketchedTable(TableSketch.of(ids, columns, secret.value), digest_snapshot(ids, columns, secret.value))


def charge_on_worker(
    known: list[KnownTable], table: SketchedTable, secret: Secret
) -> tuple[TableAccount, list[KnownTable], str]:
    """`known_tables.charge`, and the digest of the table."""
    return *charge(known, table.sketch, secret.value), table.snapshot


def charge_parties_on_worker(
    known: list[KnownTable], names: list[str], tables: list[SketchedTable], secret: Secret
) -> tuple[dict[str, TableAccount], list[KnownTable], dict[str, str]]:
    """`known_tables.charge_parties`, and the digests of the tables."""
    found = {name: table.sketch for name, table in zip(names, tables, strict=True)}
    digests = {name: table.snapshot for name, table in zip(names, tables, strict=True)}
    return *charge_parties(known, found, secret.value), digests


def find_staying(chunk: RowChunk, column: str, key: Secret, people: frozenset[str]) -> NDArray[np.bool_]:
    """(rows,) whose rows belong to nobody who withdrew.

    Parameters
    ----------
    column : the one with ids
    key : of the hashes of those who withdrew
    people : these hashes
    """
    ids = apply_id_rules(chunk.read([column])[column], ()).fill_null("").to_list()  # what lacks an id is refused later
    return np.array([one not in people for one in hash_withdrawn(ids, key.value)], dtype=bool)


# ---- where the vault is ------------------------------------------------------------------


def charge_on_engine(
    known: list[KnownTable], table: EngineTable, rule: IdRule, readings: Sequence[ColumnReading], secret: Secret
) -> tuple[TableAccount, list[KnownTable], str]:
    """What `charge_on_worker` returns for one party's table.

    Parameters
    ----------
    known : tables that the vault knows
    table, rule, readings : as `sketch_on_worker` has them
    secret : the vault's
    """
    engine = table.engine
    sketched = engine.submit(sketch_on_worker, table.all_rows, rule, list(readings), secret)
    (found,) = engine.fetch([engine.submit(charge_on_worker, known, sketched, secret)])
    account: tuple[TableAccount, list[KnownTable], str] = found
    return account


def charge_parties_on_engine(
    engine: ChunkEngine,
    known: list[KnownTable],
    tables: Mapping[str, tuple[RowChunk, IdRule, list[ColumnReading]]],
    secret: Secret,
) -> tuple[dict[str, TableAccount], list[KnownTable], dict[str, str]]:
    """What `charge_parties_on_worker` returns for the parties of one study.

    Parameters
    ----------
    engine : of all of them
    known : tables that the vault knows
    tables : party -> all its rows, and how they are read
    secret : the vault's
    """
    sketched = [engine.submit(sketch_on_worker, *given, secret) for given in tables.values()]
    (found,) = engine.fetch([engine.submit(charge_parties_on_worker, known, list(tables), sketched, secret)])
    accounts: tuple[dict[str, TableAccount], list[KnownTable], dict[str, str]] = found
    return accounts
