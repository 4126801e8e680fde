"""A query against a database, or a whole table: read only, in one snapshot, and within a time limit."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence

from verticopula.data.database_address import DatabaseAddress
from verticopula.data.database_query import DatabaseLimits, DatabaseQuery, ReadResult, check_reads
from verticopula.data.file_database_reading import read_duckdb, read_sqlite
from verticopula.data.mysql_reading import read_mysql
from verticopula.data.postgresql_reading import read_postgresql
from verticopula.errors import Problem, SchemaError

_MODULES = {"postgresql": "psycopg", "mysql": "pymysql", "duckdb": "duckdb"}
_READERS: Mapping[str, Callable[[DatabaseQuery], ReadResult]] = {
    "postgresql": read_postgresql,
    "mysql": read_mysql,
    "sqlite": read_sqlite,
    "duckdb": read_duckdb,
}
_CATALOGUES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND substr(name, 1, 7) <> 'sqlite_'",
    "duckdb": "SELECT table_name AS name FROM information_schema.tables WHERE table_schema = 'main'",
}


def read_database(
    address: DatabaseAddress,
    query: str | None,
    table: str = "",
    password: str | None = None,
    limits: DatabaseLimits | None = None,
) -> ReadResult:
    """What a query gives, or a whole table; SchemaError where it cannot be read.

    It is read in one read-only transaction that sees one state of the database. Cells are as `database_cells` has them.

    Parameters
    ----------
    address : of the database
    query : one SELECT; None for a table or view
    table : its name, where there is no query
    password : of the address's user
    limits : how long to wait
    """
    if query is not None:
        check_reads(query, address.label)
    check_installed(address)
    if address.path is not None and not address.path.is_file():
        raise SchemaError([Problem(address.path.name, "no such file")])
    return _READERS[address.kind](DatabaseQuery(address, query, table, password, limits or DatabaseLimits()))


def check_installed(address: DatabaseAddress) -> None:
    """SchemaError where the library that speaks with such a database is not there.

    Parameters
    ----------
    address : of the database
    """
    module = _MODULES.get(address.kind)
    if module is not None and importlib.util.find_spec(module) is None:
        raise SchemaError([Problem(address.label, "it needs: pip install 'verticopula[databases]'")])


def find_only_table(address: DatabaseAddress, is_own: Callable[[str], bool]) -> str:
    """The table of a database in a file: the one that is called as it should, or the only one; SchemaError otherwise.

    Parameters
    ----------
    address : of the file
    is_own : whether a table of this name is meant
    """
    names: Sequence[str] = read_database(address, _CATALOGUES[address.kind]).table["name"].to_list()
    chosen = [name for name in names if is_own(name)] or names
    if len(chosen) != 1:
        assert address.path is not None
        what = f"has {len(names)} tables; call one as the file is, keep one, or give a --query" if names else ""
        raise SchemaError([Problem(address.path.name, what or "has no table")])
    return chosen[0]
