"""Tables of a PostgreSQL server, through psycopg."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from verticopula.data.database_cells import CellType, DatabaseColumn, Row, to_frame
from verticopula.data.database_query import (
    LOST_SERVER,
    NO_COLUMN,
    NO_CONVERSION,
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

_CURSOR = "DECLARE verticopula NO SCROLL CURSOR FOR\n"
_TYPES: Mapping[int, CellType] = {
    **{16: "boolean", 17: "bytes", 20: "whole", 21: "whole", 23: "whole", 26: "whole", 700: "float", 701: "float"},
    **{1184: "moment", 1700: "decimal"},
}
_ERRORS = {
    "28": REFUSED_LOGIN,
    "3D": NO_DATABASE,
    "25006": NOT_READING,
    "0A": NOT_READING,
    "42P11": NOT_READING,
    "42601": NO_SQL,
    "42P01": "the query names a table that is not there, or that this user may not see",
    "42703": NO_COLUMN,
    "42501": NO_PERMISSION,
    "57014": TOO_SLOW,
    "57P": LOST_SERVER,
    "08": LOST_SERVER,
    "53": "the server has no room for another connection, or no memory or disk left",
    "40": "the server gave the snapshot up while it was read; try again",
    "22": NO_CONVERSION,
}


def connect_postgresql(query: DatabaseQuery) -> Any:
    """A connection; psycopg.Error where there is none. Everything that it gives is the server's own text.

    Parameters
    ----------
    query : where, how one logs in, and how long to wait; without a password libpq looks in PGPASSWORD, PGPASSFILE,
        ~/.pgpass
    """
    import psycopg
    from psycopg.types.string import TextLoader

    address, limits = query.address, query.limits
    settings = {
        "statement_timeout": int(1000 * limits.statement),
        "TimeZone": "UTC",
        "DateStyle": "ISO",
        "extra_float_digits": 1,
    }
    given: dict[str, Any] = {
        "host": address.options.get("host") or address.host or None,
        "port": address.port,
        "user": address.user or None,
        "password": query.password,
        **{name: address.options[name] for name in ("sslrootcert", "sslcert", "sslkey") if name in address.options},
    }
    if address.tls_mode == "verify-full" and "sslrootcert" not in address.options:
        given["sslrootcert"] = "system"
    connection = psycopg.connect(
        dbname=address.database,
        connect_timeout=limits.connect,
        application_name="verticopula",
        client_encoding="UTF8",
        sslmode=address.tls_mode,
        tcp_user_timeout=int(1000 * limits.statement),
        options=" ".join(f"-c {name}={value}" for name, value in settings.items()),
        autocommit=True,
        **{name: value for name, value in given.items() if value is not None},
    )
    for info in psycopg.adapters.types:
        for oid in (info.oid, info.array_oid):
            if oid:
                connection.adapters.register_loader(oid, TextLoader)
    return connection


def read_postgresql(query: DatabaseQuery) -> ReadResult:
    """What the query gives; SchemaError where it cannot be read.

    Parameters
    ----------
    query : what is read, from where
    """
    import psycopg

    try:
        with closing(connect_postgresql(query)) as connection:
            cursor = connection.cursor()
            cursor.execute("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            # Prepared, because the server takes a single statement then, and a cursor only of one that reads.
            cursor.execute((_CURSOR + query.statement()).encode(), prepare=True)
            fetch = f"FETCH FORWARD {query.limits.rows} FROM verticopula".encode()
            cursor.execute(fetch)
            columns = [DatabaseColumn(found.name, _TYPES.get(found.type_code, "text")) for found in cursor.description]
            tables = {cursor.pgresult.ftable(k) for k in range(len(columns))} - {0}

            def chunks() -> Iterator[Sequence[Row]]:
                while rows := cursor.fetchall():
                    yield rows
                    cursor.execute(fetch)

            table = to_frame(columns, chunks(), query.where)
            asked = "SELECT obj_description(oid, 'pg_class') FROM pg_class WHERE oid::bigint = ANY(%s::bigint[])"
            said = cursor.execute(asked, [f"{{{','.join(map(str, sorted(tables)))}}}"]).fetchall()
            return ReadResult(table, tuple(comment for (comment,) in said if comment))
    except psycopg.Error as error:
        raise postgresql_problem(query, error) from None


def postgresql_problem(query: DatabaseQuery, error: Any) -> SchemaError:
    """What is wrong, by the error's code; its text may quote cells.

    Parameters
    ----------
    query : that failed
    error : psycopg's
    """
    code = error.sqlstate
    if code is None:
        text = str(error)
        if "password" in text or "authentication" in text:
            return query.problem(REFUSED_LOGIN)
        if "SSL" in text or "certificate" in text:
            return query.problem(NO_TLS)
        if "does not exist" in text and "database" in text:
            return query.problem(_ERRORS["3D"])
        lost = error.pgconn is None or not getattr(error, "pgresult", None)
        in_query = "server closed the connection" in text or "terminating connection" in text
        return query.problem(LOST_SERVER if in_query and lost else NO_SERVER)
    position = error.diag.statement_position
    line = 0
    if position is not None and query.text is not None and int(position) > len(_CURSOR):
        line = (_CURSOR + query.text)[: int(position)].count("\n")
    return query.problem(_by_code(_ERRORS, code) or "the query failed", f"SQLSTATE {code}", line)


def _by_code(table: Mapping[str, str], code: str) -> str | None:
    return next((table[code[:size]] for size in (5, 3, 2) if code[:size] in table), None)
