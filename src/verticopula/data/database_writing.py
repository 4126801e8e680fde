"""Synthetic tables in a database: all of them or none, each with its mark, and none in the place of real data.

A table that is there is never overwritten, unless it is to be replaced and its own mark says that it is synthetic.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import polars as pl

from verticopula.data.database_address import DatabaseAddress
from verticopula.data.database_query import DatabaseLimits, DatabaseQuery, quote_name
from verticopula.data.database_reading import check_installed
from verticopula.data.file_database_reading import connect_duckdb
from verticopula.data.mysql_reading import connect_mysql, mysql_problem
from verticopula.data.postgresql_reading import connect_postgresql, postgresql_problem
from verticopula.data.synthetic_marks import SyntheticMark, mark_in_comments
from verticopula.errors import Problem, SchemaError

_ROWS_A_STATEMENT = 200
_LONGEST_NAME = {"postgresql": 63, "mysql": 64}  # PostgreSQL would cut longer ones, and two could become one
_TYPES: Mapping[str, Mapping[str, str]] = {
    "postgresql": {"whole": "bigint", "float": "double precision", "text": "text", "time": "timestamp"},
    "mysql": {"whole": "bigint", "float": "double", "text": "longtext", "time": "datetime(6)"},
    "sqlite": {"whole": "INTEGER", "float": "REAL", "text": "TEXT", "time": "TEXT", "date": "TEXT"},
    "duckdb": {"whole": "BIGINT", "float": "DOUBLE", "text": "VARCHAR", "time": "TIMESTAMP"},
}


def write_database(
    address: DatabaseAddress,
    tables: Mapping[str, pl.DataFrame],
    mark: SyntheticMark,
    password: str | None = None,
    *,
    replace: bool = False,
    limits: DatabaseLimits | None = None,
) -> None:
    """Write synthetic tables, all of them or none; SchemaError where that cannot be done, and nothing has changed then.

    Parameters
    ----------
    address : of the database
    tables : name -> rows
    mark : what each table says of itself, in its comment
    password : of the address's user
    replace : whether tables of these names may go, if they are marked as synthetic themselves
    limits : how long to wait
    """
    _check_names(address, tables)
    with _opened(address, password, limits) as writer:
        writer.write(tables, mark, replace=replace)


def check_writable(
    address: DatabaseAddress,
    names: Sequence[str],
    password: str | None = None,
    *,
    replace: bool = False,
) -> None:
    """SchemaError where tables of these names could not be written; asked before anything is spent.

    Parameters
    ----------
    names : of the tables
    address, password, replace : as for `write_database`
    """
    _check_names(address, dict.fromkeys(names, pl.DataFrame()))
    with _opened(address, password, None) as writer:
        for name in names:
            writer.check_free(name, replace=replace)
        writer.check_may_create()


def _check_names(address: DatabaseAddress, tables: Mapping[str, pl.DataFrame]) -> None:
    longest = _LONGEST_NAME.get(address.kind)
    for name, table in tables.items():
        for part in (name, *table.columns):
            if "\0" in part or (longest is not None and len(part.encode()) > longest):
                what = f"a table or column has a name of more than {longest} bytes, or with a zero byte: {part[:80]!r}"
                raise SchemaError([Problem(address.label, what)])


@dataclass
class _Writer:
    """An open connection, and how this kind of database says things.

    Attributes
    ----------
    run : carries a statement out
    ask : what a statement gives
    insert : (table, columns, rows) into the database
    """

    address: DatabaseAddress
    run: Callable[[str], Any]
    ask: Callable[[str], Sequence[Sequence[Any]]]
    insert: Callable[[str, Sequence[str], Sequence[Sequence[Any]]], Any]
    text: Callable[[str], str]

    @property
    def kind(self) -> str:
        return self.address.kind

    def quoted(self, name: str) -> str:
        return quote_name(name, "`" if self.kind == "mysql" else '"')

    def comments(self, name: str) -> list[str] | None:
        """What the table of this name says of itself; None where there is no such table or view."""
        own = self.text(name)
        asked = {
            "postgresql": "SELECT coalesce(obj_description(c.oid, 'pg_class'), '') FROM pg_class c "
            f"WHERE c.relnamespace = current_schema()::regnamespace AND c.relname = {own}",
            "mysql": "SELECT table_comment FROM information_schema.tables "
            f"WHERE table_schema = database() AND table_name = {own}",
            "sqlite": f"SELECT coalesce(sql, '') FROM sqlite_master WHERE lower(name) = lower({own})",
            "duckdb": f"SELECT coalesce(comment, '') FROM duckdb_tables() WHERE lower(table_name) = lower({own}) "
            f"UNION ALL SELECT '' FROM duckdb_views() WHERE lower(view_name) = lower({own})",
        }
        found = [str(comment) for (comment,) in self.ask(asked[self.kind])]
        return found or None

    def check_free(self, name: str, *, replace: bool) -> bool:
        """Whether a table of this name has to go; SchemaError where it may not."""
        comments = self.comments(name)
        if comments is None:
            return False
        if not replace:
            what = f"a table {name!r} is there already; choose another --table-prefix, or --replace it"
            raise SchemaError([Problem(self.address.label, what)])
        if mark_in_comments(comments) is None:
            what = f"the table {name!r} is not marked as synthetic, and is not replaced; choose another --table-prefix"
            raise SchemaError([Problem(self.address.label, what)])
        return True

    def check_may_create(self) -> None:
        """Make a table and take it back."""
        name = f"verticopula_{secrets.token_hex(8)}"
        self.begin()
        self.run(f"CREATE TABLE {self.quoted(name)} (x {_TYPES[self.kind]['whole']})")
        if self.kind == "mysql":
            self.run(f"DROP TABLE {self.quoted(name)}")
        else:
            self.run("ROLLBACK")

    def begin(self) -> None:
        if self.kind != "mysql":  # it has no transactions about tables
            self.run("BEGIN IMMEDIATE" if self.kind == "sqlite" else "BEGIN")

    def write(self, tables: Mapping[str, pl.DataFrame], mark: SyntheticMark, *, replace: bool) -> None:
        if self.kind == "mysql":
            self._write_and_rename(tables, mark, replace=replace)
            return
        self.begin()
        try:
            for name, table in tables.items():
                if self.check_free(name, replace=replace):
                    self.run(f"DROP TABLE {self.quoted(name)}")
                self._fill(name, table, mark)
            self.run("COMMIT")
        except BaseException:
            with suppress(Exception):  # a lost connection has rolled back already
                self.run("ROLLBACK")
            raise

    def _write_and_rename(self, tables: Mapping[str, pl.DataFrame], mark: SyntheticMark, *, replace: bool) -> None:
        """Under other names at first; one statement then gives all of them their own, where those are free."""
        token = secrets.token_hex(6)
        new = {name: f"new_{token}_{k}" for k, name in enumerate(tables)}
        old = {name: f"old_{token}_{k}" for k, name in enumerate(tables) if self.check_free(name, replace=replace)}
        try:
            for name, table in tables.items():
                self._fill(new[name], table, mark)
            moves = [*old.items(), *((new[name], name) for name in tables)]
            self.run("RENAME TABLE " + ", ".join(f"{self.quoted(a)} TO {self.quoted(b)}" for a, b in moves))
        except BaseException:
            with suppress(Exception):
                self._drop(new.values())
            raise
        self._drop(old.values())

    def _drop(self, names: Any) -> None:
        for name in names:
            self.run(f"DROP TABLE IF EXISTS {self.quoted(name)}")

    def _fill(self, name: str, table: pl.DataFrame, mark: SyntheticMark) -> None:
        types = _TYPES[self.kind]
        columns = [f"{self.quoted(c)} {types.get(kind := _type_of(t), kind)}" for c, t in table.schema.items()]
        inside = f"/* {mark.to_json().replace('*/', '*' + chr(92) + '/')} */ " if self.kind == "sqlite" else ""
        after = f" COMMENT = {self.text(mark.to_json())}" if self.kind == "mysql" else ""
        self.run(f"CREATE TABLE {self.quoted(name)} ({inside}{', '.join(columns)}){after}")
        if self.kind in ("postgresql", "duckdb"):
            self.run(f"COMMENT ON TABLE {self.quoted(name)} IS {self.text(mark.to_json())}")
        plain = table.cast({pl.Date: pl.String, pl.Datetime: pl.String}) if self.kind == "sqlite" else table
        for part in plain.iter_slices(_ROWS_A_STATEMENT):
            self.insert(name, table.columns, part.rows())


def _type_of(dtype: pl.DataType) -> str:
    if dtype.is_integer():
        return "whole"
    if dtype.is_float() or dtype.is_decimal():
        return "float"
    if dtype == pl.Boolean:
        return "boolean"
    return "date" if dtype == pl.Date else "time" if dtype == pl.Datetime else "text"


def _quoted_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@contextmanager
def _opened(address: DatabaseAddress, password: str | None, limits: DatabaseLimits | None) -> Iterator[_Writer]:
    check_installed(address)
    limits = limits or DatabaseLimits()
    about = DatabaseQuery(address, None, "", password, limits)
    openers = {"postgresql": _postgresql, "mysql": _mysql, "sqlite": _sqlite, "duckdb": _duckdb}
    with openers[address.kind](about) as writer:
        yield writer


def _not_written(about: DatabaseQuery, error: Exception) -> SchemaError:
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return about.problem("the tables cannot be written; nothing has changed", name)


@contextmanager
def _postgresql(about: DatabaseQuery) -> Iterator[_Writer]:
    import psycopg

    try:
        with closing(connect_postgresql(about)) as connection:

            def insert(name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
                listed = ", ".join(map(quote_name, columns))
                with connection.cursor().copy(f"COPY {quote_name(name)} ({listed}) FROM STDIN".encode()) as copy:
                    for row in rows:
                        copy.write_row(row)

            yield _Writer(
                about.address,
                lambda text: connection.execute(text.encode()),
                lambda text: connection.execute(text.encode()).fetchall(),
                insert,
                lambda text: f"E{_quoted_text(text.replace(chr(92), 2 * chr(92)))}",
            )
    except psycopg.Error as error:
        if error.sqlstate and error.sqlstate[:2] not in ("28", "3D", "53", "57"):
            what = "this user may not make tables here" if error.sqlstate == "42501" else "the tables cannot be written"
            raise about.problem(f"{what}; nothing has changed", f"SQLSTATE {error.sqlstate}") from None
        raise postgresql_problem(about, error) from None


@contextmanager
def _mysql(about: DatabaseQuery) -> Iterator[_Writer]:
    import pymysql
    from pymysql.cursors import Cursor

    try:
        with closing(connect_mysql(about)) as connection:
            connection.encoders = pymysql.converters.encoders
            cursor = connection.cursor(Cursor)

            def ask(text: str) -> Sequence[Sequence[Any]]:
                cursor.execute(text)
                return list(cursor.fetchall())

            def insert(name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
                cells = f"({', '.join(['%s'] * len(columns))})"
                listed = ", ".join(quote_name(column, "`").replace("%", "%%") for column in columns)
                statement = f"INSERT INTO {quote_name(name, '`')} ({listed}) VALUES {', '.join([cells] * len(rows))}"
                cursor.execute(statement, [cell for row in rows for cell in row])

            yield _Writer(about.address, cursor.execute, ask, insert, connection.escape)
    except pymysql.Error as error:
        code = error.args[0] if error.args else 0
        if isinstance(error, pymysql.err.OperationalError) and code in (1045, 1698, 1044, 1049, 2003, 2006, 2013, 2026):
            raise mysql_problem(about, error) from None
        what = "this user may not make tables here" if code == 1142 else "the tables cannot be written"
        raise about.problem(f"{what}; nothing has changed", f"error {code}") from None


@contextmanager
def _sqlite(about: DatabaseQuery) -> Iterator[_Writer]:
    assert about.address.path is not None
    try:
        with closing(
            sqlite3.connect(about.address.path, timeout=about.limits.connect, isolation_level=None)
        ) as connection:

            def insert(name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
                cells = ", ".join("?" * len(columns))
                connection.executemany(f"INSERT INTO {quote_name(name)} VALUES ({cells})", rows)

            yield _Writer(
                about.address,
                connection.execute,
                lambda text: connection.execute(text).fetchall(),
                insert,
                _quoted_text,
            )
    except sqlite3.Error as error:
        raise _not_written(about, error) from None


@contextmanager
def _duckdb(about: DatabaseQuery) -> Iterator[_Writer]:
    import duckdb

    assert about.address.path is not None
    try:
        with closing(connect_duckdb(about.address.path, read_only=False)) as connection:

            def insert(name: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
                cells = f"({', '.join('?' * len(columns))})"
                statement = f"INSERT INTO {quote_name(name)} VALUES {', '.join([cells] * len(rows))}"
                connection.execute(statement, [cell for row in rows for cell in row])

            yield _Writer(
                about.address,
                connection.execute,
                lambda text: connection.execute(text).fetchall(),
                insert,
                _quoted_text,
            )
    except duckdb.Error as error:
        raise _not_written(about, error) from None
