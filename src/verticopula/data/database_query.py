"""What is read from a database, and what may go wrong: a query that reads, limits, and errors that quote no cell.

The databases' own messages may quote cells (`invalid input syntax for type integer: "…"`), so only the kind of an error
is shown, and where in the query it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import polars as pl

from verticopula.data.database_address import DatabaseAddress
from verticopula.errors import Problem, SchemaError

REFUSED_LOGIN = "the login was refused: is the password right, and may this user connect?"
NO_SERVER = "no server answers at this address"
LOST_SERVER = "the connection was lost while the table was read; nothing was used of what had been read"
NO_TLS = "the server's certificate was not accepted, or it speaks no TLS; see sslmode and sslrootcert in the address"
NO_DATABASE = "there is no database of this name on the server"
NO_COLUMN = "the query names a column that is not there"
NO_PERMISSION = "this user may not read what the query names"
NO_CONVERSION = "a cell cannot be converted as the query asks"
TOO_SLOW = "the query took longer than the time limit; see --query-timeout"
NOT_READING = "the query writes, or is more than one statement; only one that reads is allowed"
NO_SQL = "the query is not SQL that the database understands; give one SELECT"

_OPENING = re.compile(r"\A(?:\s+|--[^\n]*(?:\n|\Z)|\#[^\n]*(?:\n|\Z)|/\*(?!!).*?\*/|\()*", re.DOTALL)
_READING = ("SELECT", "WITH", "VALUES", "TABLE", "FROM")
_WRITES_A_FILE = re.compile(r"\bINTO\s+(?:OUTFILE|DUMPFILE)\b", re.IGNORECASE)


@dataclass(frozen=True)
class DatabaseLimits:
    """How long somebody waits for a database, in seconds, and how much is fetched at a time. All chosen by hand."""

    connect: int = 10
    statement: float = 600.0
    rows: int = 10_000


@dataclass(frozen=True)
class ReadResult:
    """What a query gave.

    Attributes
    ----------
    comments : of the tables that its columns come from, as far as the database tells
    """

    table: pl.DataFrame
    comments: tuple[str, ...] = ()


def check_reads(query: str, where: str) -> None:
    """SchemaError unless the query begins as one that reads; the database itself refuses what writes nevertheless.

    Parameters
    ----------
    query : SQL
    where : the database or the file, for the message
    """
    opening = _OPENING.match(query)
    first = re.match(r"[A-Za-z]+", query[opening.end() if opening else 0 :])
    if first is None or first[0].upper() not in _READING or _WRITES_A_FILE.search(query):
        raise SchemaError([Problem(where, "the query is not one that reads: give one SELECT, and no other statement")])


@dataclass(frozen=True, repr=False)
class DatabaseQuery:
    """What is read, from where. It has no repr: it holds a password.

    Attributes
    ----------
    text : the query; None for the whole table
    """

    address: DatabaseAddress
    text: str | None
    table: str
    password: str | None
    limits: DatabaseLimits

    @property
    def where(self) -> str:
        return self.address.label if self.address.path is None else self.address.path.name

    def statement(self, mark: str = '"') -> str:
        """The query, or one for the whole table with its name quoted.

        Parameters
        ----------
        mark : what the database quotes names with
        """
        if self.text is not None:
            return self.text
        return f"SELECT * FROM {quote_name(self.table, mark)}"

    def problem(self, what: str, code: object = "", line: int = 0) -> SchemaError:
        """An error about it.

        Parameters
        ----------
        what : is wrong
        code : the database's own name for that
        line : of the query; 0 where it is not known
        """
        known = f" ({code})" if code else ""
        at = f"; line {line} of the query" if line else ""
        return SchemaError([Problem(self.where, f"{what}{known}{at}")])


def quote_name(name: str, mark: str = '"') -> str:
    """A table's or column's name as SQL has it; whatever it holds, it ends nowhere but at its end.

    Parameters
    ----------
    name : any text without a zero byte
    mark : what the database quotes names with
    """
    if "\0" in name:
        raise SchemaError([Problem("a table's name", "has a zero byte in it")])
    return f"{mark}{name.replace(mark, 2 * mark)}{mark}"
