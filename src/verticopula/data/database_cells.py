"""Cells of databases as columns: types come from what the database declares, never from what single cells hold.

If one cell could change how others are read, one person's value would move everybody's, and no epsilon would cover
that. So whole numbers, floating-point numbers and booleans get a type where the database says so, and everything else
stays text that `tables.py` reads cell by cell: decimals with all of their digits, dates as the database writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from verticopula.errors import Problem, SchemaError

CellType = Literal["text", "whole", "float", "boolean", "decimal", "moment", "bytes"]
Row = Sequence[str | None]

_TYPES = {"whole": pl.Int64, "float": pl.Float64}
_TRUE, _FALSE = ["t", "true", "1"], ["f", "false", "0"]
_TWO_WAYS = re.compile(r"[+-]?[1-9][0-9]{0,2}\.[0-9]{3}")


@dataclass(frozen=True)
class DatabaseColumn:
    """One column of a query's result.

    Attributes
    ----------
    type : what the database declares; `moment` is a time with a zone, written in UTC
    """

    name: str
    type: CellType = "text"


def unmistakable(number: str) -> str:
    """A number's text as it is read whatever the party's decimal mark is: `1.234` with a zero behind it.

    Parameters
    ----------
    number : with a decimal point, and without marks between thousands
    """
    return f"{number}0" if _TWO_WAYS.fullmatch(number) else number


def name_columns(header: Sequence[str], where: str) -> list[str]:
    """The header, with a name for all but the first column that has none; SchemaError if two share one.

    Parameters
    ----------
    header : one name a column
    where : the file or the database, for the message
    """
    blank = [number for number, cell in enumerate(header) if not cell.strip()]
    named = [f"unnamed {k + 1}" if k in blank[1:] else cell for k, cell in enumerate(header)]
    repeated = sorted({cell for cell in named if named.count(cell) > 1})
    if repeated:
        raise SchemaError([Problem(where, f"two columns have the same name: {repeated[0]!r}")])
    return named


def to_frame(columns: Sequence[DatabaseColumn], chunks: Iterable[Sequence[Row]], where: str) -> pl.DataFrame:
    """A query's result as a table; SchemaError if two columns share a name, or one holds bytes.

    Parameters
    ----------
    columns : their names and declared types
    chunks : rows, some at a time, every cell as the database's own text
    where : the database, for messages
    """
    if not columns:
        raise SchemaError([Problem(where, "the query gives no columns")])
    names = name_columns([column.name for column in columns], where)
    if bytes_in := [name for name, column in zip(names, columns, strict=True) if column.type == "bytes"]:
        what = (
            f"column {bytes_in[0]!r} holds bytes, not single values; leave it out of the query, or write them as text"
        )
        raise SchemaError([Problem(where, what)])
    text = dict.fromkeys(names, pl.String)
    typed = [_typed(name, column.type) for name, column in zip(names, columns, strict=True)]
    empty = pl.DataFrame(schema=text).select(typed)
    parts = (pl.DataFrame(chunk, schema=text, orient="row").select(typed) for chunk in chunks if chunk)
    return pl.concat([empty, *parts])


def _typed(name: str, kind: CellType) -> pl.Expr:
    cell = pl.col(name)
    if kind in _TYPES:
        return cell.cast(_TYPES[kind], strict=False)
    if kind == "boolean":
        lower = cell.str.to_lowercase()
        return pl.when(lower.is_in(_TRUE)).then(True).when(lower.is_in(_FALSE)).then(False).alias(name)
    if kind == "decimal":
        return cell.str.replace(f"^({_TWO_WAYS.pattern})$", "${1}0")
    return cell.str.replace(r"\+00(:00)?$", "Z") if kind == "moment" else cell
