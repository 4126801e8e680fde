"""Where a party's table is: a file, a folder of Parquet files, or a database; read as often as somebody asks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

import polars as pl

from verticopula.data.column_table import ColumnTable
from verticopula.data.database_address import DatabaseAddress, find_password, is_address, parse_address
from verticopula.data.database_query import DatabaseLimits
from verticopula.data.database_reading import read_database
from verticopula.data.large_tables import open_table
from verticopula.data.scratch_file import ROWS_IN_MEMORY
from verticopula.data.synthetic_marks import SyntheticMark, mark_in_comments, read_file_mark
from verticopula.data.table_files import (
    TABLE_FILES,
    check_is_folder,
    find_table,
    is_database_file,
    list_tables,
    party_name_of,
    read_file_database,
    read_table,
)
from verticopula.errors import Problem, SchemaError, SettingsError

Read = TypeVar("Read")
Held = TypeVar("Held", bound=pl.DataFrame | ColumnTable, covariant=True)

_MOST_TRIES = 3  # a file that is being written is read again


@dataclass(frozen=True)
class MarkedTable(Generic[Held]):
    """A table as it was read or opened.

    Attributes
    ----------
    mark : what says that it is synthetic; None where nothing does
    """

    table: Held
    mark: SyntheticMark | None = None


@dataclass(frozen=True)
class TableSource:
    """Where one party's table is. Nothing secret is in it: passwords are looked up when it is read.

    Attributes
    ----------
    party : whose it is
    place : a file or a folder, or a database on a server
    query : file with one SELECT, read again every time
    table : a database's table, where there is no query; "" for the one that is called as the file is, or the only one
    password_file : holds the password of the database's user
    timeout : seconds that a query may take
    """

    party: str
    place: Path | DatabaseAddress
    query: Path | None = None
    table: str = ""
    password_file: Path | None = None
    timeout: float = DatabaseLimits.statement

    @property
    def name(self) -> str:
        """What a message may call it: a file's name, or the kind of the database."""
        return self.place.name if isinstance(self.place, Path) else self.place.label

    def read(self) -> pl.DataFrame | ColumnTable:
        """The table as it is at this moment, a column at a time where it is large and its file allows it.

        SchemaError where it cannot be read, and nothing of it is kept then.
        """
        return self.open().table

    def open(self) -> MarkedTable[pl.DataFrame | ColumnTable]:
        """The same, and what says that it is synthetic."""
        if self._is_plain_file:
            place = Path(str(self.place))
            return MarkedTable(_read_unchanged(place, _open_large), read_file_mark(place))
        loaded = self.load()
        return MarkedTable(loaded.table, loaded.mark)

    @property
    def _is_plain_file(self) -> bool:
        return isinstance(self.place, Path) and not is_database_file(self.place)

    def version(self) -> object:
        """What changes whenever a file is written; None for a database, which is asked each time."""
        if isinstance(self.place, DatabaseAddress) or is_database_file(self.place):
            return None
        return _state_of(self.place)

    def load(self) -> MarkedTable[pl.DataFrame]:
        """The whole table, in memory, and what says that it is synthetic."""
        limits = DatabaseLimits(statement=self.timeout)
        text = None if self.query is None else _read_query(self.query)
        if isinstance(self.place, DatabaseAddress):
            password = find_password(self.place, self.password_file)
            found = read_database(self.place, text, self.table, password, limits)
        elif is_database_file(self.place):
            if not self.place.is_file():
                raise SchemaError([Problem(self.place.name, "no such file")])
            found = read_file_database(self.place, text, self.table, limits)
        else:
            return MarkedTable(_read_unchanged(self.place, read_table), read_file_mark(self.place))
        return MarkedTable(found.table, mark_in_comments(found.comments))


def _open_large(path: Path) -> pl.DataFrame | ColumnTable:
    return open_table(path, ROWS_IN_MEMORY)


def _read_unchanged(path: Path, read: Callable[[Path], Read]) -> Read:
    """The table of one state of the file: one that changes while it is read is read again."""
    for _ in range(_MOST_TRIES):
        before = _state_of(path)
        table = read(path)
        if _state_of(path) == before:
            return table
    raise SchemaError([Problem(path.name, "changes while it is read; write it under another name, then rename it")])


def _state_of(path: Path) -> list[tuple[str, int, int, int]]:
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    states = []
    for file in files:
        try:
            found = os.stat(file)
        except OSError:
            continue
        states.append((str(file), found.st_ino, found.st_size, found.st_mtime_ns))
    return states


def _read_query(path: Path) -> str:
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        raise SettingsError(f"--query {path.name}: no such file; it holds one SELECT") from None
    except UnicodeDecodeError:
        raise SettingsError(f"--query {path.name}: is not UTF-8 text") from None
    if not text.strip():
        raise SettingsError(f"--query {path.name}: is empty; it holds one SELECT")
    return text


def party_source(
    party: str,
    data: str,
    query: Path | None = None,
    password_file: Path | None = None,
    timeout: float = DatabaseLimits.statement,
) -> TableSource:
    """Where one party's table is, as a command was told.

    Parameters
    ----------
    party : whose it is; without a query, the table of this name is read from a database
    data : a path, or the address of a database
    query : file with one SELECT
    password_file : holds the password of the database's user
    timeout : seconds that a query may take
    """
    place = parse_address(data) if is_address(data) else Path(data)
    if query is not None and isinstance(place, Path) and not is_database_file(place):
        raise SettingsError("--query is for databases; this --data is a file or a folder")
    if password_file is not None and (isinstance(place, Path) or place.path is not None):
        raise SettingsError("--password-file is for databases on a server; this --data has no password")
    table = "" if isinstance(place, Path) else party
    return TableSource(party, place, query, table, password_file, timeout)


def federation_sources(
    parties: Sequence[str],
    data: str,
    queries: tuple[Path, ...] = (),
    password_file: Path | None = None,
    timeout: float = DatabaseLimits.statement,
    *,
    all_parties: bool = True,
) -> dict[str, TableSource]:
    """Party -> where its table is; SchemaError lists every party that has none.

    Parameters
    ----------
    parties : whose names are those of files, or of a database's tables
    data : a folder with one table for each party, or a database that holds all of them; of one party also its own file
    queries : files with one SELECT each, named as the party (`bank.sql`); a party without one has a table of its name
    password_file : holds the password of the database's user
    timeout : seconds that a query may take
    all_parties : whether a party that has no table in a folder is a problem, or left out
    """
    asked = _queries_by_party(queries, parties)
    if is_address(data) or is_database_file(Path(data)):
        sources = {name: party_source(name, data, asked.get(name), password_file, timeout) for name in parties}
        return {name: replace(source, table=name) for name, source in sources.items()}
    if queries:
        raise SettingsError("--query is for databases; this --data is a folder of files")
    place = Path(data)
    if len(parties) == 1 and place.exists() and _is_one_table(place):
        return {parties[0]: TableSource(parties[0], place, timeout=timeout)}
    return _folder_sources(parties, place, all_parties=all_parties)


def _folder_sources(parties: Sequence[str], folder: Path, *, all_parties: bool) -> dict[str, TableSource]:
    check_is_folder("--data", folder)
    files = list_tables(folder)
    found_here: dict[str, TableSource] = {}
    problems: list[Problem] = []
    for name in parties:
        if not all_parties and not any(party_name_of(path) == name for path in files):
            continue
        found = find_table(name, files, folder)
        if isinstance(found, Problem):
            problems.append(found)
        else:
            found_here[name] = TableSource(name, found)
    if problems:
        raise SchemaError(problems)
    if not found_here:
        raise SettingsError(f"--data {folder}: no table of any party of this study")
    return found_here


def _is_one_table(path: Path) -> bool:
    """Whether a path that was given is a table itself, or a folder of tables."""
    return not path.is_dir() or path.suffix.lower() == ".parquet"


def load_all(sources: Iterable[TableSource]) -> dict[str, MarkedTable[pl.DataFrame]]:
    """Party -> its table, in memory; SchemaError lists everything that cannot be read.

    Parameters
    ----------
    sources : where the tables are
    """
    return _of_each(sources, TableSource.load)


def open_sources(sources: Iterable[TableSource]) -> dict[str, MarkedTable[pl.DataFrame | ColumnTable]]:
    """Party -> its table, large ones to be read a column at a time; SchemaError lists everything that cannot be read.

    Parameters
    ----------
    sources : where the tables are
    """
    return _of_each(sources, TableSource.open)


def _of_each(sources: Iterable[TableSource], read: Callable[[TableSource], Read]) -> dict[str, Read]:
    loaded: dict[str, Read] = {}
    problems: list[Problem] = []
    for source in sources:
        if source.party in loaded:
            problems.append(Problem(source.name, f"is a second table of party {source.party!r}; keep one"))
            continue
        try:
            loaded[source.party] = read(source)
        except SchemaError as error:
            problems += error.problems
    if problems:
        raise SchemaError(problems)
    return loaded


def draft_sources(
    data: list[str],
    queries: tuple[Path, ...] = (),
    password_file: Path | None = None,
    timeout: float = DatabaseLimits.statement,
) -> list[TableSource]:
    """The tables of a federation that has no file yet, in the order in which they were given.

    Parameters
    ----------
    data : folders and files, or the address of one database
    queries : for a database: files with one SELECT each, named as the party
    password_file : holds the password of the database's user
    timeout : seconds that a query may take
    """
    first = data[0]
    if is_address(first) or queries:
        if len(data) > 1:
            raise SettingsError("give one database, and a --query for each party; or files")
        if not queries:
            raise SettingsError("a database needs a --query for each party, in a file named as the party: bank.sql")
        return [
            party_source(party_name_of(query), first, query, password_file, timeout)
            for query in expand_queries(queries)
        ]
    found: list[Path] = []
    for path in map(Path, data):
        found += [path] if _is_one_table(path) else list_tables(path)
    if missing := [path for path in found if not path.exists()]:
        raise SettingsError(f"{missing[0]}: no such file or folder")
    if not found:
        raise SettingsError(f"no tables there: {', '.join(TABLE_FILES)} are read, one file for each party")
    return [TableSource(party_name_of(path), path) for path in found]


def expand_queries(queries: tuple[Path, ...]) -> list[Path]:
    """Files with a query each: those that were given, and those of folders that were.

    Parameters
    ----------
    queries : files, and folders of `.sql` files
    """
    return [file for path in queries for file in (sorted(path.glob("*.sql")) if path.is_dir() else [path])]


def _queries_by_party(queries: tuple[Path, ...], names: Sequence[str]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in expand_queries(queries):
        party = party_name_of(path)
        if party not in names:
            raise SettingsError(f"--query {path.name}: is named after no party of this federation ({', '.join(names)})")
        if party in found:
            raise SettingsError(f"--query {path.name}: is a second query of party {party!r}")
        found[party] = path
    return found
