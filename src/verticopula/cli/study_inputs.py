"""What commands are given: the parties' tables, their policies, and the vault where everything spent is kept."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from verticopula.engine.engine_address import LOCAL_ENGINE, EngineAddress, parse_engine
from verticopula.errors import SettingsError
from verticopula.formatting import readable
from verticopula.schema.methods import METHODS, OWN_VARIANT, runs_on_engine

if TYPE_CHECKING:
    import polars as pl

    from verticopula.data.engine_table import EngineTable
    from verticopula.data.synthetic_marks import SyntheticMark
    from verticopula.data.table_source import Held, MarkedTable, TableSource
    from verticopula.data.tables import RawTable
    from verticopula.engine.chunk_engine import ChunkEngine
    from verticopula.privacy.policy import Policy
    from verticopula.schema.federation import Federation
    from verticopula.storage.vault import Vault
    from verticopula.storage.withdrawals import Table

_FILES = "CSV, Parquet, Arrow, spreadsheet, SQLite, DuckDB, or a folder of Parquet files"
_SERVERS = "postgresql://user@host/name or mysql://user@host/name"
_PANEL = "Databases"

DataPlace = Annotated[
    str,
    typer.Option(
        "--data",
        help=f"Folder with one table for each party, named as the party ({_FILES}): bank.csv. Or a database with the "
        f"tables of all parties: {_SERVERS}.",
        show_default=False,
    ),
]
PartyData = Annotated[
    str,
    typer.Option(
        "--data",
        help=f"The party's table ({_FILES}), or the database that has it: {_SERVERS}. Without --query, the database's "
        "table of the party's name.",
        show_default=False,
    ),
]
Queries = Annotated[
    list[Path] | None,
    typer.Option(
        "--query",
        help="For a database: a file with one SELECT, named as the party (bank.sql), or a folder of such files; may be "
        "given several times. A party without one has a table of its name.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
PartyQuery = Annotated[
    Path | None,
    typer.Option(
        "--query",
        help="For a database: a file with one SELECT. It runs in a read-only transaction.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
PasswordFile = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        help="The database password, in the first line of a file that only its owner can read (mode 0600). Or set "
        "VERTICOPULA_DATABASE_PASSWORD; PGPASSFILE, ~/.pgpass and MYSQL_PWD work, too. Never in the address.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
QueryTimeout = Annotated[
    float,
    typer.Option("--query-timeout", help="Seconds that a query may take.", min=1.0, rich_help_panel=_PANEL),
]
_METHODS_ON_ENGINE = ", ".join(name for name in METHODS if runs_on_engine(name, OWN_VARIANT))
_ENGINE_PANEL = "Where tables are read and ranked"
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        help="local is this machine. tls://host:8786 is the scheduler of your own Dask cluster, dask://127.0.0.1:8786 "
        "of one on this machine. Its workers read Parquet files, which they find under the same path, and no value "
        "comes here; the numbers are the same. It needs --sampler binomial, and method "
        f"{_METHODS_ON_ENGINE}. TLS is Dask's own: distributed.comm.tls in its configuration.",
        rich_help_panel=_ENGINE_PANEL,
    ),
]
EngineWithoutTls = Annotated[
    bool,
    typer.Option(
        "--engine-without-tls",
        help="Allow dask:// to other machines: rows and keys then travel in the clear, and whoever reaches the "
        "scheduler can read the tables.",
        rich_help_panel=_ENGINE_PANEL,
    ),
]
PeopleVault = Annotated[
    Path | None,
    typer.Option(
        "--vault",
        help="The vault of `run`, or of a party (kits/bank/vault): people who have withdrawn are left out of "
        "the real tables.",
        show_default=False,
    ),
]
DEFAULT_QUERY_TIMEOUT = 600.0


@dataclass(frozen=True)
class DatabaseOptions:
    """How tables are read that lie in databases."""

    query: Queries = None
    password_file: PasswordFile = None
    query_timeout: QueryTimeout = DEFAULT_QUERY_TIMEOUT

    @property
    def queries(self) -> tuple[Path, ...]:
        return tuple(self.query or ())


@dataclass(frozen=True)
class PartyDatabaseOptions:
    """The same of one party's table."""

    query: PartyQuery = None
    password_file: PasswordFile = None
    query_timeout: QueryTimeout = DEFAULT_QUERY_TIMEOUT


@dataclass(frozen=True)
class EngineOptions:
    """Where tables are read and ranked."""

    engine: EngineName = LOCAL_ENGINE
    engine_without_tls: EngineWithoutTls = False

    def address(self) -> EngineAddress | None:
        """Of the engine, None for this process; SettingsError where it is no safe one."""
        return parse_engine(self.engine, without_tls=self.engine_without_tls)


def read_party_tables(
    study: Federation,
    data: str,
    database: DatabaseOptions | None = None,
    *,
    party: str | None = None,
    all_parties: bool = True,
) -> dict[str, pl.DataFrame]:
    """Party -> its table, from files or from a database; a table that is marked as synthetic is named on the screen.

    Parameters
    ----------
    database : how it is read, where `data` is one
    party : the only one whose table is read; otherwise all
    all_parties : whether a party that has no table in a folder is a problem, or left out
    """
    from verticopula.data.table_source import load_all

    names = [each.name for each in study.parties]
    if party is not None and party not in names:
        raise SettingsError(f"no party {party!r} in this study; there are {', '.join(names)}")
    wanted = names if party is None else [party]
    sources = _find_sources(wanted, data, database, all_parties=all_parties)
    return show_marks(load_all(sources))


def open_party_tables(
    study: Federation, data: str, database: DatabaseOptions, engine: ChunkEngine | None
) -> dict[str, RawTable]:
    """The same for all parties; large tables are read a column at a time where their files allow it.

    Parameters
    ----------
    database : how it is read, where `data` is one
    engine : whose workers read the tables; None for this process
    """
    from verticopula.data.table_source import open_sources

    if engine is not None:
        return {**_open_engine_tables(study, data, database, engine)}
    return {**show_marks(open_sources(_find_sources([party.name for party in study.parties], data, database)))}


def _find_sources(
    parties: list[str], data: str, database: DatabaseOptions | None, *, all_parties: bool = True
) -> Iterable[TableSource]:
    from verticopula.data.table_source import federation_sources

    how = DatabaseOptions() if database is None else database
    return federation_sources(
        parties, data, how.queries, how.password_file, how.query_timeout, all_parties=all_parties
    ).values()


def _open_engine_tables(
    study: Federation, data: str, database: DatabaseOptions, engine: ChunkEngine
) -> dict[str, EngineTable]:
    """Party -> its table, which the workers of an engine read, as `read_party_tables` finds it.

    Parameters
    ----------
    database : as there; engines read files only
    engine : that reads them
    """
    from verticopula.data.synthetic_marks import read_file_mark
    from verticopula.data.table_source import federation_sources
    from verticopula.estimators.engine_tables import open_on_engine

    sources = federation_sources([party.name for party in study.parties], data, database.queries)
    places = {name: source.place for name, source in sources.items()}
    files = {name: place for name, place in places.items() if isinstance(place, Path)}
    if len(files) < len(places):
        raise SettingsError("--engine reads Parquet files; this --data is a database")
    opened = open_on_engine(engine, files)
    marks = engine.fetch([engine.submit(read_file_mark, path.absolute()) for path in files.values()])
    say_marks(dict(zip(files, marks, strict=True)))
    return opened


def show_marks(loaded: Mapping[str, MarkedTable[Held]]) -> dict[str, Held]:
    """The tables; of those that are marked as synthetic, a word on the screen."""
    say_marks({party: found.mark for party, found in loaded.items()})
    return {party: found.table for party, found in loaded.items()}


def say_marks(marks: Mapping[str, SyntheticMark | None]) -> None:
    """A word on the screen about every table that is marked as synthetic."""
    console = Console(stderr=True)
    for party, mark in marks.items():
        if mark is not None:
            said = (
                f"! The table of {party!r} is {mark.sentence()}. It is nobody's: a study of it says nothing new "
                "about people."
            )
            console.print(Text(readable(said), style="yellow"), soft_wrap=True)


def read_policies(study: Federation, folder: Path | None) -> dict[str, Policy]:
    from verticopula.data.table_files import check_is_folder
    from verticopula.privacy.policy import Policy

    if folder is None:
        return {}
    check_is_folder("--policies", folder)
    names = {party.name for party in study.parties}
    unknown = sorted(p.name for p in folder.glob("*.toml") if p.stem not in names)
    if unknown:
        raise SettingsError(f"--policies {folder}: {', '.join(unknown)} belong to no party of this federation")
    return {name: Policy.from_toml(folder / f"{name}.toml") for name in names if (folder / f"{name}.toml").is_file()}


def default_vault() -> Path:
    """Where `run` keeps what was spent, unless it is told otherwise: one vault, which knows tables by their people."""
    given = Path(os.environ.get("XDG_DATA_HOME", ""))
    try:
        base = given if given.is_absolute() else Path.home() / ".local" / "share"
    except RuntimeError:
        raise SettingsError("there is no home folder to keep what was spent in; give --vault") from None
    return base / "verticopula" / "vaults" / "runs"


def find_vault(given: Path | None, policies: Path | None) -> Path | None:
    """The vault that a study is counted in: as given, one for all runs where there are policies, none otherwise."""
    return given or (default_vault() if policies is not None else None)


def say_what_vault_counts(console: Console, folder: Path, policies: Mapping[str, Policy], *, quiet: bool) -> None:
    """Where caps are counted. That a vault is new is said in any case: with a mistyped name all caps begin anew."""
    from verticopula.privacy.policy import Caps
    from verticopula.storage.vault_files import is_vault

    if not any(policy.caps != Caps() for policy in policies.values()):
        return
    if is_vault(folder):
        if not quiet:
            console.print(Text(f"Caps are counted in {folder}."), soft_wrap=True)
        return
    said = f"! Caps are counted in {folder}, which is new: no earlier study counts there."
    console.print(Text(said, style="bold yellow"), soft_wrap=True)


def leave_out_people(study: Federation, raw: Mapping[str, Table], folder: Path | None) -> tuple[dict[str, Table], str]:
    """The tables without those who withdrew, as a vault knows; and how many rows that are, in words."""
    from verticopula.storage.charged_ledger import leave_out_withdrawn

    if folder is None:
        return dict(raw), ""
    left = leave_out_withdrawn(folder, raw, study.id)
    gone = {name: table.height - left[name].height for name, table in raw.items()}
    said = ", ".join(f"{count:,} of {name}" for name, count in gone.items() if count)
    return left, f"Left out, because people have withdrawn: {said}." if said else ""


def leave_out_of_comparison(
    study: Federation, raw: dict[str, pl.DataFrame], vault: Path | None
) -> dict[str, pl.DataFrame]:
    """Real tables to compare with, without those who withdrew; SettingsError where that is no vault."""
    from verticopula.storage.vault_files import is_vault

    if vault is not None and not is_vault(vault):
        raise SettingsError(f"--vault {vault}: no vault, so nobody could be left out; name that of `run` or `join`")
    left, said = leave_out_people(study, raw, vault)
    if said:
        Console(stderr=True).print(Text(readable(said)), soft_wrap=True)
    return left


def open_vault(folder: Path) -> Vault:
    from verticopula.storage.vault import Vault

    try:
        return Vault.open(folder)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else type(error).__name__
        raise SettingsError(f"the vault {folder} cannot be used ({why}); choose another with --vault") from None
