"""Tables of databases in a file: SQLite and DuckDB."""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from verticopula.data.database_cells import CellType, DatabaseColumn, Row, to_frame, unmistakable
from verticopula.data.database_query import (
    NO_CONVERSION,
    NO_SQL,
    NOT_READING,
    TOO_SLOW,
    DatabaseQuery,
    ReadResult,
    quote_name,
)
from verticopula.errors import SchemaError

_NO_TABLE = re.compile(r"no such (table|column): ")
_DUCKDB_ERRORS = {
    "CatalogException": "the query names something that is not there",
    "BinderException": "the query names something that is not there, or compares what cannot be compared",
    "ParserException": NO_SQL,
    "PermissionException": "the query reaches for something outside of the database, which is not allowed",
    "InterruptException": TOO_SLOW,
    "InvalidInputException": NO_CONVERSION,
    "ConversionException": NO_CONVERSION,
    "IOException": "cannot be opened as a DuckDB database, or another program is writing to it",
}


@contextmanager
def _time_limit(interrupt: Callable[[], None], seconds: float) -> Iterator[None]:
    """Interrupt what follows if it takes longer."""
    timer = threading.Timer(seconds, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _only_reading(action: int, *_: object) -> int:
    allowed = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
    return sqlite3.SQLITE_OK if action in allowed else sqlite3.SQLITE_DENY


def read_sqlite(query: DatabaseQuery) -> ReadResult:
    """What the query gives; SchemaError where it cannot be read.

    Parameters
    ----------
    query : what is read, from where
    """
    path = query.address.path
    assert path is not None
    path.open("rb").close()  # says why, where SQLite would only say that it cannot
    try:
        with (
            closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database,
            _time_limit(database.interrupt, query.limits.statement),
        ):
            listed = database.execute("SELECT name, sql FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
            made = {name: sql or "" for name, sql in listed if not name.startswith("sqlite_")}
            database.text_factory = lambda text: text.decode("utf-8", errors="replace")
            database.set_authorizer(_only_reading)
            cursor = database.execute(query.statement())
            header = [found[0] for found in cursor.description]
            rows: list[Sequence[Any]] = []
            while part := cursor.fetchmany(query.limits.rows):
                rows += [[_sqlite_text(cell) for cell in row] for row in part]
            bytes_only = _columns_of_bytes(rows, len(header))
            columns = [DatabaseColumn(name, "bytes" if k in bytes_only else "text") for k, name in enumerate(header)]
            texts = [["" if cell is _BYTES else cell for cell in row] for row in rows]
            comments = [sql for name, sql in made.items() if query.text is None and name == query.table]
            return ReadResult(to_frame(columns, [texts], query.where), tuple(comments))
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise _sqlite_problem(query, error) from None


_BYTES = object()


def _sqlite_text(cell: Any) -> Any:
    """A cell as CSV would have it: SQLite declares no types, so every cell has its own."""
    if isinstance(cell, bytes):
        return _BYTES
    if isinstance(cell, float):
        return str(int(cell)) if cell.is_integer() and abs(cell) < 2**53 else unmistakable(repr(cell))
    return None if cell is None or cell == "" else str(cell)


def _columns_of_bytes(rows: Sequence[Sequence[Any]], width: int) -> set[int]:
    """Columns that hold nothing but bytes; single ones count as empty, so that no one row refuses a table."""
    found = set()
    for k in range(width):
        filled = [row[k] for row in rows if row[k] is not None]
        if filled and all(cell is _BYTES for cell in filled):
            found.add(k)
    return found


def _sqlite_problem(query: DatabaseQuery, error: Exception) -> SchemaError:
    text, name = str(error), getattr(error, "sqlite_errorname", type(error).__name__)
    if name == "SQLITE_AUTH" or "one statement at a time" in text:
        return query.problem(NOT_READING)
    if _NO_TABLE.match(text):
        return query.problem("the query names a table or column that is not there")
    if name == "SQLITE_INTERRUPT":
        return query.problem(TOO_SLOW)
    if name in ("SQLITE_NOTADB", "SQLITE_CORRUPT"):
        return query.problem("cannot be read as an SQLite database", type(error).__name__)
    if name in ("SQLITE_BUSY", "SQLITE_LOCKED"):
        return query.problem("another program is writing to it; try again")
    return query.problem("the query failed", name)


_DUCKDB_TYPES: Mapping[str, CellType] = {
    "BOOLEAN": "boolean",
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"), "whole"),
    **dict.fromkeys(("FLOAT", "DOUBLE"), "float"),
    "TIMESTAMP WITH TIME ZONE": "moment",
    "BLOB": "bytes",
}


def connect_duckdb(path: Path, *, read_only: bool) -> Any:
    """A connection to a DuckDB database that reaches for nothing outside of its file; duckdb.Error where there is none.

    Parameters
    ----------
    path : the file
    read_only : whether nothing may be written
    """
    import duckdb

    closed: Any = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    connection = duckdb.connect(str(path), read_only=read_only, config=closed)
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


def read_duckdb(query: DatabaseQuery) -> ReadResult:
    """What the query gives; SchemaError where it cannot be read.

    Parameters
    ----------
    query : what is read, from where
    """
    import duckdb

    assert query.address.path is not None
    try:
        with (
            closing(connect_duckdb(query.address.path, read_only=True)) as connection,
            _time_limit(connection.interrupt, query.limits.statement),
        ):
            found = connection.extract_statements(query.statement())
            if len(found) != 1 or found[0].type != duckdb.StatementType.SELECT:
                raise query.problem(NOT_READING)
            connection.execute("BEGIN TRANSACTION READ ONLY")
            text = found[0].query.strip().rstrip(";")
            described = connection.execute(f"DESCRIBE {text}").fetchall()
            columns = [DatabaseColumn(row[0], _duckdb_type(row[1])) for row in described]
            names = ", ".join(quote_name(f"c{k}") for k in range(len(columns)))
            texts = ", ".join(f"CAST({quote_name(f'c{k}')} AS VARCHAR)" for k in range(len(columns)))
            result = connection.execute(f"SELECT {texts} FROM (\n{text}\n) AS source({names})")

            def chunks() -> Iterator[Sequence[Row]]:
                while rows := result.fetchmany(query.limits.rows):
                    yield rows

            table = to_frame(columns, chunks(), query.where)
            comments: tuple[str, ...] = ()
            if query.text is None:
                asked = "SELECT comment FROM duckdb_tables() WHERE table_name = ? AND comment IS NOT NULL"
                comments = tuple(comment for (comment,) in connection.execute(asked, [query.table]).fetchall())
            return ReadResult(table, comments)
    except duckdb.Error as error:
        kind = type(error).__name__
        raise query.problem(_DUCKDB_ERRORS.get(kind, "the query failed"), kind) from None


def _duckdb_type(declared: str) -> CellType:
    return "decimal" if declared.startswith("DECIMAL") else _DUCKDB_TYPES.get(declared, "text")
