"""Tables of a MySQL or MariaDB server, through PyMySQL."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from verticopula.data.database_address import DatabaseAddress
from verticopula.data.database_cells import CellType, DatabaseColumn, Row, to_frame
from verticopula.data.database_query import (
    LOST_SERVER,
    NO_COLUMN,
    NO_DATABASE,
    NO_PERMISSION,
    NO_SERVER,
    NO_SQL,
    NO_TLS,
    NOT_READING,
    REFUSED_LOGIN,
    TOO_SLOW,
    DatabaseQuery,
    ReadResult,
)
from verticopula.errors import SchemaError

_ERRORS = {
    1045: REFUSED_LOGIN,
    1698: REFUSED_LOGIN,
    1044: "this user may not use the database",
    1049: NO_DATABASE,
    1142: NO_PERMISSION,
    1143: NO_PERMISSION,
    1146: "the query names a table that is not there",
    1054: NO_COLUMN,
    1064: NO_SQL,
    1792: NOT_READING,
    1969: TOO_SLOW,
    3024: TOO_SLOW,
    2003: NO_SERVER,
    2006: LOST_SERVER,
    2013: LOST_SERVER,
    2026: NO_TLS,
}


def connect_mysql(query: DatabaseQuery) -> Any:
    """A connection; pymysql.Error where there is none. Everything that it gives is the server's own text.

    Parameters
    ----------
    query : where, how one logs in, and how long to wait
    """
    import pymysql
    from pymysql.cursors import SSCursor

    address, limits = query.address, query.limits
    own = {"ssl_cert": address.options.get("sslcert"), "ssl_key": address.options.get("sslkey")}
    connection = pymysql.connect(
        host=address.host or "localhost",
        port=address.port or 3306,
        unix_socket=address.options.get("socket"),
        user=address.user or None,
        password=query.password or "",
        database=address.database,
        charset="utf8mb4",
        connect_timeout=limits.connect,
        read_timeout=int(limits.statement) + limits.connect,
        write_timeout=int(limits.statement) + limits.connect,
        autocommit=True,
        local_infile=False,
        cursorclass=SSCursor,
        conv={},
        **_mysql_tls(address),
        **{name: value for name, value in own.items() if value},
    )
    with connection.cursor() as cursor:
        is_mariadb = "mariadb" in connection.get_server_info().lower()
        in_ms = f"max_execution_time = {int(1000 * limits.statement)}"  # of MySQL; MariaDB counts seconds
        cursor.execute(f"SET SESSION {f'max_statement_time = {limits.statement}' if is_mariadb else in_ms}")
        cursor.execute("SET SESSION time_zone = '+00:00'")
    return connection


def _mysql_tls(address: DatabaseAddress) -> dict[str, Any]:
    if address.tls_mode == "disable":
        return {"ssl_disabled": True}
    if address.tls_mode == "prefer":
        return {}
    context = ssl.create_default_context(cafile=address.options.get("sslrootcert"))
    if address.tls_mode == "require":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if address.options.get("sslcert"):
        context.load_cert_chain(address.options["sslcert"], address.options.get("sslkey"))
    return {"ssl": context}


def _mysql_type(field: Any) -> CellType:
    from pymysql.constants import FIELD_TYPE, FLAG

    if field.type_code in (FIELD_TYPE.TINY, FIELD_TYPE.SHORT, FIELD_TYPE.INT24, FIELD_TYPE.LONG, FIELD_TYPE.LONGLONG):
        # The largest unsigned numbers stay text: they do not fit into 64 bits with a sign.
        return "text" if field.type_code == FIELD_TYPE.LONGLONG and field.flags & FLAG.UNSIGNED else "whole"
    if field.type_code in (FIELD_TYPE.FLOAT, FIELD_TYPE.DOUBLE):
        return "float"
    if field.type_code in (FIELD_TYPE.DECIMAL, FIELD_TYPE.NEWDECIMAL):
        return "decimal"
    if field.type_code == FIELD_TYPE.TIMESTAMP:
        return "moment"
    is_binary = field.charsetnr == 63 and field.type_code in _BYTE_TYPES
    return "bytes" if is_binary or field.type_code in (FIELD_TYPE.BIT, FIELD_TYPE.GEOMETRY) else "text"


# FIELD_TYPE: VARCHAR, TINY_BLOB, MEDIUM_BLOB, LONG_BLOB, BLOB, VAR_STRING, STRING
_BYTE_TYPES = (15, 249, 250, 251, 252, 253, 254)


def read_mysql(query: DatabaseQuery) -> ReadResult:
    """What the query gives; SchemaError where it cannot be read.

    Parameters
    ----------
    query : what is read, from where
    """
    import pymysql

    try:
        with closing(connect_mysql(query)) as connection:
            cursor = connection.cursor()
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            cursor.execute(query.statement("`"))
            if cursor.description is None:
                raise query.problem("the query gives no table")
            # What a cursor's description leaves out: flags, the character set, and where a column comes from.
            result = cursor._result
            columns = [DatabaseColumn(field.name, _mysql_type(field)) for field in result.fields]
            moments = [k for k, column in enumerate(columns) if column.type == "moment"]

            def chunks() -> Iterator[Sequence[Row]]:
                while rows := cursor.fetchmany(query.limits.rows):
                    yield [_with_zone(row, moments) for row in rows] if moments else rows

            try:
                table = to_frame(columns, chunks(), query.where)
            finally:  # after an error nobody waits for the rest
                result.unbuffered_active = False
            origins = {(field.db, field.org_table) for field in result.fields if field.org_table}
            return ReadResult(table, tuple(_comments(cursor, sorted(origins))))
    except pymysql.Error as error:
        raise mysql_problem(query, error) from None
    except OSError:  # a socket or a certificate
        raise query.problem(_ERRORS[2026 if query.address.tls_mode != "prefer" else 2003]) from None


def _comments(cursor: Any, tables: Sequence[tuple[str, str]]) -> Iterator[str]:
    for database, name in tables:
        where = f"table_schema = {_hexadecimal(database)} AND table_name = {_hexadecimal(name)}"
        cursor.execute(f"SELECT table_comment FROM information_schema.tables WHERE {where}")
        yield from (comment for (comment,) in cursor.fetchall() if comment)


def _with_zone(row: Sequence[str | None], moments: list[int]) -> list[str | None]:
    """MySQL writes moments of the session's zone, which is UTC, without a word about it."""
    return [f"{cell}Z" if k in moments and cell is not None else cell for k, cell in enumerate(row)]


def _hexadecimal(value: Any) -> str:
    text = value.decode() if isinstance(value, bytes) else str(value)
    return "0x" + text.encode().hex()


def mysql_problem(query: DatabaseQuery, error: Any) -> SchemaError:
    """What is wrong, by the error's number; its text may quote cells.

    Parameters
    ----------
    query : that failed
    error : PyMySQL's
    """
    code = error.args[0] if error.args and isinstance(error.args[0], int) else None
    if code == 2003 and "SSL" in str(error).upper():
        code = 2026
    what = _ERRORS.get(code, "") if code is not None else ""
    return query.problem(what or "the query failed", f"error {code}" if code else type(error).__name__)
