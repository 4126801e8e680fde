"""`verticopula write-table`: a study's synthetic tables, into a database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verticopula.cli.shared_options import Quiet
from verticopula.cli.study_inputs import DEFAULT_QUERY_TIMEOUT, PasswordFile, QueryTimeout
from verticopula.errors import SettingsError

DEFAULT_PREFIX = "synthetic_"
TablePrefix = Annotated[
    str,
    typer.Option(
        "--table-prefix",
        help="What the tables' names begin with; the party's name, or `joined`, follows.",
        rich_help_panel="Databases",
    ),
]
Replace = Annotated[
    bool,
    typer.Option(
        "--replace",
        help="Replace tables of these names. Only those that are marked as synthetic themselves ever are.",
        rich_help_panel="Databases",
    ),
]


def write_table(
    folder: Annotated[
        Path, typer.Argument(help="The folder that `run`, `demo` or `submit` wrote.", show_default=False)
    ],
    to: Annotated[
        str,
        typer.Argument(
            help="The database: postgresql://user@host/name, mysql://user@host/name, or a file, sqlite:///file or "
            "duckdb:///file.",
            show_default=False,
        ),
    ],
    table_prefix: TablePrefix = DEFAULT_PREFIX,
    replace: Replace = False,
    password_file: PasswordFile = None,
    query_timeout: QueryTimeout = DEFAULT_QUERY_TIMEOUT,
    quiet: Quiet = False,
) -> None:
    """Write a study's synthetic tables into a database, all of them or none.

    Each table's comment says what it is: synthetic, of which study, by which method, at which epsilon. No table is
    overwritten without --replace, and one that does not say that it is synthetic never is.
    """
    from verticopula.data.database_address import find_password, parse_address
    from verticopula.data.database_query import DatabaseLimits
    from verticopula.data.database_writing import write_database
    from verticopula.data.synthetic_marks import read_file_mark
    from verticopula.data.table_files import read_table
    from verticopula.study.study_folder import SYNTHETIC_FOLDER

    files = sorted((folder / SYNTHETIC_FOLDER).glob("*.parquet"))
    marks = [read_file_mark(path) for path in files]
    if not files or marks[0] is None or any(mark is None for mark in marks):
        raise SettingsError(f"{folder} holds no synthetic tables with marks; give what `run`, `demo` or `submit` wrote")
    address = parse_address(to, "the database")
    tables = {f"{table_prefix}{path.stem}": read_table(path) for path in files}
    limits = DatabaseLimits(statement=query_timeout)
    write_database(address, tables, marks[0], find_password(address, password_file), replace=replace, limits=limits)
    if not quiet:
        for name, table in tables.items():
            print(f"  {name}: {table.height:,} rows")


def check_target(to: str | None, names: list[str], prefix: str, password_file: Path | None, *, replace: bool) -> None:
    """SettingsError or SchemaError where a run's tables could not be written, before it begins."""
    from verticopula.data.database_address import find_password, parse_address
    from verticopula.data.database_writing import check_writable

    if to is None:
        return
    address = parse_address(to, "--write-table")
    check_writable(address, [f"{prefix}{n}" for n in names], find_password(address, password_file), replace=replace)
