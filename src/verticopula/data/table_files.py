"""The parties' tables as files: CSV of several habits, Parquet, spreadsheets, and databases in a file.

Cells of CSV files, spreadsheets and databases stay text here, and `tables.py` reads each of them by the column's public
description. So a file and a data frame with the same cells give the same numbers.
"""

from __future__ import annotations

import csv
import datetime
import importlib.util
import io
import os
import re
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import polars as pl

from verticopula.errors import Problem, SchemaError, SettingsError
from verticopula.schema.cell_text import suggest_name
from verticopula.schema.federation import Federation

_SEPARATORS = (",", ";", "\t", "|")
_TEXT_FILES = (".csv", ".tsv", ".txt")
_SPREADSHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
_DATABASES = (".sqlite", ".sqlite3", ".db")
TABLE_FILES = (".parquet", *_TEXT_FILES, *_SPREADSHEETS, *_DATABASES)
_NO_PARTY_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def party_name_of(path: Path) -> str:
    """The party whose table a file holds: the file's name without its ending, and `_` for what no name may have.

    Parameters
    ----------
    path : the file
    """
    return _NO_PARTY_NAME.sub("_", path.stem).strip("_-")


def read_table(path: Path) -> pl.DataFrame:
    """A CSV file, spreadsheet or SQLite database (cells as text), or a Parquet file; SchemaError if it cannot be read.

    Parameters
    ----------
    path : the file
    """
    kind = path.suffix.lower()
    try:
        if kind == ".parquet":
            return pl.read_parquet(path)
        if kind in _SPREADSHEETS:
            return _read_spreadsheet(path)
        if kind in _DATABASES:
            return _read_database(path)
        return _read_csv(path)
    except FileNotFoundError:
        raise SchemaError([Problem(path.name, "no such file")]) from None
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else type(error).__name__
        raise SchemaError([Problem(path.name, f"cannot be read as {_format_of(kind)} ({why})")]) from None
    except pl.exceptions.PolarsError as error:
        what = f"cannot be read as {_format_of(kind)} ({type(error).__name__})"
        raise SchemaError([Problem(path.name, what)]) from None


def _format_of(kind: str) -> str:
    if kind in _DATABASES:
        return "an SQLite database"
    return "Parquet" if kind == ".parquet" else "a spreadsheet" if kind in _SPREADSHEETS else "CSV"


def check_is_folder(option: str, folder: Path) -> None:
    """SettingsError unless it is a folder.

    Parameters
    ----------
    option : that it was given with, for the message
    """
    if not folder.is_dir():
        found = "is a file; give the folder that it is in" if folder.exists() else "no such folder"
        raise SettingsError(f"{option} {folder}: {found}")


def read_tables(federation: Federation, folder: Path, *, all_parties: bool = True) -> dict[str, pl.DataFrame]:
    """Each party's table from a folder; SchemaError lists every file that fails.

    Parameters
    ----------
    federation : whose parties' names are the files' names
    folder : with one file for each party
    all_parties : whether a party without a file is a problem
    """
    tables: dict[str, pl.DataFrame] = {}
    problems: list[Problem] = []
    files = list_tables(folder)
    for party in federation.parties:
        found = [path for path in files if party_name_of(path) == party.name]
        if not found and not all_parties:
            continue
        if len(found) != 1:
            names = " and ".join(path.name for path in found)
            hint = suggest_name(party.name, [path.name for path in files]) or suggest_name(
                party.name, [path.stem for path in files]
            )
            what = f"{names} are both there; keep one" if found else "no .csv or .parquet file, spreadsheet or database"
            where = folder.name or "the data folder"
            problems.append(Problem(f"party {party.name!r}", f"{what} in {where}{'' if found else hint}"))
            continue
        try:
            tables[party.name] = read_table(found[0])
        except SchemaError as error:
            problems += error.problems
    if problems:
        raise SchemaError(problems)
    return tables


def list_tables(folder: Path) -> list[Path]:
    """The files of a folder that can be tables, by name.

    Parameters
    ----------
    folder : where to look; SchemaError if that is not allowed
    """
    try:
        found = sorted(folder.iterdir())
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else type(error).__name__
        raise SchemaError([Problem(str(folder), f"the folder cannot be read ({why})")]) from None
    hidden = (".", "~$")  # a spreadsheet that is open leaves a second file
    return [p for p in found if p.suffix.lower() in TABLE_FILES and p.is_file() and not p.name.startswith(hidden)]


# ---- CSV ---------------------------------------------------------------------------------


def _read_csv(path: Path) -> pl.DataFrame:
    data = path.read_bytes()
    text = _decoded(data, path.name)
    first = text[: text.find("\n") + 1] or text
    separator = None
    if found := re.fullmatch(r'"?sep=(.)"?\s*', first):  # a spreadsheet's own hint
        separator, text = found[1], text[len(first) :]
    if not text.strip():
        raise SchemaError([Problem(path.name, "is empty")])
    separator = separator or _separator_of(text)
    # polars leaves doubled quotes in header names as they are; Python's reader resolves them.
    header = _named(next(csv.reader(io.StringIO(text), delimiter=separator), []), path.name)
    try:
        table = pl.read_csv(text.encode(), separator=separator, infer_schema=False, new_columns=header)
    except pl.exceptions.NoDataError:
        raise SchemaError([Problem(path.name, "is empty")]) from None
    except pl.exceptions.ComputeError:
        raise SchemaError([Problem(path.name, f"cannot be read as CSV{_ragged(text, separator)}")]) from None
    if _is_cut_otherwise(table, separator):
        what = f"no row is cut by {separator!r}, as the header is; write the same mark between cells in all lines"
        raise SchemaError([Problem(path.name, what)])
    return table


def _is_cut_otherwise(table: pl.DataFrame, separator: str) -> bool:
    """Whether all rows have one cell that has another mark in it, under a header of several: no one row decides it."""
    first, *others = table.get_columns()
    if not others or not len(table) or any(column.null_count() < len(table) for column in others):
        return False
    marks = [mark for mark in _SEPARATORS if mark != separator]
    return any(bool(first.str.contains(mark, literal=True).fill_null(False).all()) for mark in marks)


def _decoded(data: bytes, name: str) -> str:
    is_wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
    try:
        return data.decode("utf-16" if is_wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise SchemaError(
            [Problem(name, f"is not UTF-8 text (line {line}); save it as UTF-8, in a spreadsheet as “CSV UTF-8”")]
        ) from None


def _separator_of(text: str) -> str:
    """The separator that cuts the header into most names: it depends on names only, and on nobody's cells."""
    return max(_SEPARATORS, key=lambda mark: len(next(csv.reader(io.StringIO(text), delimiter=mark), [])))


def _named(header: list[str], name: str) -> list[str]:
    """The header, with a name for all but the first column that has none; SchemaError if two share one."""
    blank = [number for number, cell in enumerate(header) if not cell.strip()]
    named = [f"unnamed {k + 1}" if k in blank[1:] else cell for k, cell in enumerate(header)]
    repeated = sorted({cell for cell in named if named.count(cell) > 1})
    if repeated:
        raise SchemaError([Problem(name, f"two columns have the same name: {repeated[0]!r}")])
    return named


def _ragged(text: str, separator: str) -> str:
    """Which line does not have the header's number of cells, in words."""
    rows = csv.reader(io.StringIO(text), delimiter=separator)
    expected = len(next(rows))
    if expected == 1:
        return ": the header has a single cell; write a comma, semicolon, tab or | between cells"
    for row in rows:
        if len(row) > expected:
            hint = "; are decimals written with commas? Save it with semicolons between cells" * (separator == ",")
            return f": line {rows.line_num} has {len(row)} cells, the header has {expected}{hint}"
    return ": are all quotation marks closed?"


# ---- spreadsheets ------------------------------------------------------------------------


def _read_spreadsheet(path: Path) -> pl.DataFrame:
    """The only sheet that has cells, with names in its first row."""
    if importlib.util.find_spec("python_calamine") is None:
        what = "is a spreadsheet: pip install 'verticopula[excel]', or save it as CSV"
        raise SchemaError([Problem(path.name, what)])
    import python_calamine

    try:
        with python_calamine.load_workbook(path) as book:
            sheets = [book.get_sheet_by_index(k).to_python() for k in range(len(book.sheet_names))]
    except python_calamine.CalamineError as error:
        raise SchemaError([Problem(path.name, f"cannot be read as a spreadsheet ({type(error).__name__})")]) from None
    filled = [rows for rows in sheets if rows]
    if not filled:
        raise SchemaError([Problem(path.name, "is empty")])
    if len(filled) > 1:
        what = f"has {len(filled)} sheets with cells; keep one, or save each as a file of its own"
        raise SchemaError([Problem(path.name, what)])
    return _from_rows(filled[0], path.name)


def _from_rows(rows: list[list[Any]], name: str) -> pl.DataFrame:
    header = _named([_cell_text(cell) or "" for cell in rows[0]], name)
    cells: Iterable[list[str | None]] = ([_cell_text(cell) for cell in row] for row in rows[1:])
    kept = [row for row in cells if any(cell is not None for cell in row)]
    return pl.DataFrame(kept, schema=dict.fromkeys(header, pl.String), orient="row")


def _cell_text(cell: Any) -> str | None:
    """A cell as CSV would have it; spreadsheets keep whole numbers as decimals."""
    if cell is None or cell == "":
        return None
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    if isinstance(cell, datetime.datetime) and cell.time() == datetime.time():
        return str(cell.date())
    return str(cell)


# ---- databases ---------------------------------------------------------------------------


def _read_database(path: Path) -> pl.DataFrame:
    """The table or view that is called as the file is, or the only one there."""
    path.open("rb").close()  # says why, where SQLite would only say that it cannot
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            listed = database.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')").fetchall()
            names = [name for (name,) in listed if not name.startswith("sqlite_")]
            own = [name for name in names if party_name_of(Path(f"{name}.db")) == party_name_of(path)] or names
            if len(own) != 1:
                what = f"has {len(names)} tables; call one as the file is, or keep one" if names else "has no table"
                raise SchemaError([Problem(path.name, what)])
            quoted = own[0].replace('"', '""')
            found = database.execute(f'SELECT * FROM "{quoted}"')
            header = [column[0] for column in found.description]
            return _from_rows([header, *map(list, found)], path.name)
    except sqlite3.Error as error:
        what = f"cannot be read as {_format_of(path.suffix.lower())} ({type(error).__name__})"
        raise SchemaError([Problem(path.name, what)]) from None
