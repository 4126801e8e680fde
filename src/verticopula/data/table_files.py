"""The parties' tables as files: CSV of several habits, Parquet, Arrow, spreadsheets, and databases in a file.

Cells of CSV files and spreadsheets stay text here, and `tables.py` reads each of them by the column's public
description. So a file and a data frame with the same cells give the same numbers.
"""

from __future__ import annotations

import csv
import datetime
import importlib.util
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl

from verticopula.data.csv_reading import read_csv
from verticopula.data.database_address import DatabaseAddress
from verticopula.data.database_cells import name_columns, unmistakable
from verticopula.data.database_query import DatabaseLimits, ReadResult
from verticopula.data.database_reading import find_only_table, read_database
from verticopula.data.scratch_file import ScratchFileError
from verticopula.errors import Problem, SchemaError, SettingsError
from verticopula.schema.cell_text import suggest_name

TEXT_FILES = (".csv", ".tsv", ".txt")
_SPREADSHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
ARROW_FILES = (".arrow", ".feather", ".ipc")
_DATABASES = (".sqlite", ".sqlite3", ".db", ".duckdb", ".ddb")
_DUCKDB_MARK = (8, b"DUCK")  # where in a file it stands
TABLE_FILES = (".parquet", *ARROW_FILES, *TEXT_FILES, *_SPREADSHEETS, *_DATABASES)
_NO_PARTY_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def party_name_of(path: Path) -> str:
    """The party whose table a file holds: the file's name without its ending, and `_` for what no name may have.

    Parameters
    ----------
    path : the file
    """
    return _NO_PARTY_NAME.sub("_", path.stem).strip("_-")


def read_table(path: Path) -> pl.DataFrame:
    """A table from a file of any kind, or from a folder of Parquet files; SchemaError if it cannot be read.

    Parameters
    ----------
    path : the file or folder
    """
    kind = path.suffix.lower()
    with explain_errors(path):
        if path.is_dir():
            return _read_folder(path)
        if kind == ".parquet":
            return pl.read_parquet(path, glob=False)
        if kind in ARROW_FILES:
            return pl.scan_ipc(path, glob=False).collect()
        if kind in _SPREADSHEETS:
            return _read_spreadsheet(path)
        if kind in _DATABASES:
            return read_file_database(path).table
        return read_csv(path)


@contextmanager
def explain_errors(path: Path) -> Iterator[None]:
    """SchemaError, which quotes no cell, in place of what the system and libraries say while a file is read.

    Parameters
    ----------
    path : the file
    """
    kind = path.suffix.lower()
    try:
        yield
    except FileNotFoundError:
        raise SchemaError([Problem(path.name, "no such file")]) from None
    except ScratchFileError:
        raise  # it is not this file that is at fault
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else type(error).__name__
        raise SchemaError([Problem(path.name, f"cannot be read as {_format_of(kind)} ({why})")]) from None
    except (pl.exceptions.PolarsError, csv.Error) as error:
        what = f"cannot be read as {_format_of(kind)} ({type(error).__name__})"
        raise SchemaError([Problem(path.name, what)]) from None


def _format_of(kind: str) -> str:
    if kind in _DATABASES:
        return "a database"
    if kind in ARROW_FILES:
        return "Arrow"
    return "Parquet" if kind in (".parquet", "") else "a spreadsheet" if kind in _SPREADSHEETS else "CSV"


def is_database_file(path: Path) -> bool:
    """Whether a file is a database by its name.

    Parameters
    ----------
    path : the file
    """
    return path.suffix.lower() in _DATABASES


def read_file_database(
    path: Path, query: str | None = None, table: str = "", limits: DatabaseLimits | None = None
) -> ReadResult:
    """What a query of an SQLite or DuckDB database gives; without one the table or view that is called as the file is.

    Parameters
    ----------
    path : the file
    query : one SELECT
    table : the name of a table or view, where that is known
    limits : how long to wait
    """
    address = file_address(path)
    if query is None and not table:
        table = find_only_table(address, lambda name: party_name_of(Path(f"{name}.db")) == party_name_of(path))
    return read_database(address, query, table, limits=limits)


def file_address(path: Path) -> DatabaseAddress:
    """The database that a file holds, by what stands at its beginning: its name may say either.

    Parameters
    ----------
    path : the file; OSError where it cannot be read
    """
    start, mark = _DUCKDB_MARK
    with path.open("rb") as file:
        is_duckdb = file.read(start + len(mark))[start:] == mark
    return DatabaseAddress("duckdb" if is_duckdb else "sqlite", path=path)


def check_is_folder(option: str, folder: Path) -> None:
    """SettingsError unless it is a folder.

    Parameters
    ----------
    option : that it was given with, for the message
    """
    if not folder.is_dir():
        found = "is a file; give the folder that it is in" if folder.exists() else "no such folder"
        raise SettingsError(f"{option} {folder}: {found}")


def find_table(party: str, files: list[Path], folder: Path) -> Path | Problem:
    """The file with a party's table, or what is wrong.

    Parameters
    ----------
    party : its name
    files : as `list_tables` found them
    folder : where they are
    """
    found = [path for path in files if party_name_of(path) == party]
    if len(found) == 1:
        return found[0]
    names = " and ".join(path.name for path in found)
    hint = suggest_name(party, [path.name for path in files]) or suggest_name(party, [path.stem for path in files])
    what = f"{names} are both there; keep one" if found else "no .csv or .parquet file, spreadsheet or database"
    return Problem(f"party {party!r}", f"{what} in {folder.name or 'the data folder'}{'' if found else hint}")


def list_tables(folder: Path) -> list[Path]:
    """The files of a folder that can be tables, and folders of Parquet files, by name.

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
    named = [path for path in found if not path.name.startswith(hidden)]
    return [p for p in named if (p.suffix.lower() in TABLE_FILES and p.is_file()) or is_parquet_folder(p)]


# ---- folders of Parquet files ------------------------------------------------------------


def is_parquet_folder(path: Path) -> bool:
    """Whether it is a folder that holds one table in several Parquet files, as Spark and others write it.

    Parameters
    ----------
    path : a file or folder
    """
    if not path.is_dir():
        return False
    others = set(TABLE_FILES) - {".parquet"}
    return bool(find_parts(path)) and not any(part.suffix.lower() in others for part in path.iterdir())


def find_parts(folder: Path) -> list[Path]:
    """A folder's Parquet files, also below folders such as `year=2024`; hidden ones and other programs' marks left out.

    Parameters
    ----------
    folder : where to look
    """
    found = sorted(folder.rglob("*.parquet"))
    return [p for p in found if p.is_file() and not any(n.startswith((".", "_")) for n in p.relative_to(folder).parts)]


def _read_folder(folder: Path) -> pl.DataFrame:
    parts = find_parts(folder)
    if not parts:
        raise SchemaError(
            [Problem(folder.name, "has no Parquet file in it; give a file, or a folder of Parquet files")]
        )
    tables = []
    for part in parts:
        above = [name.partition("=") for name in part.relative_to(folder).parts[:-1]]
        keys = {key: value for key, equals, value in above if equals}
        tables.append(
            pl.read_parquet(part, hive_partitioning=False, glob=False).with_columns(
                **{k: pl.lit(v) for k, v in keys.items()}
            )
        )
    if any(table.schema != tables[0].schema for table in tables):
        raise SchemaError([Problem(folder.name, "its files have different columns, or columns of different types")])
    return pl.concat(tables)


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
    header = name_columns([_cell_text(cell) or "" for cell in rows[0]], name)
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
    return unmistakable(str(cell)) if isinstance(cell, float) else str(cell)
