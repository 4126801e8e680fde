"""What commands are given: the parties' tables, their policies, and the vault where everything spent is kept."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from verticopula.errors import SettingsError

if TYPE_CHECKING:
    import polars as pl

    from verticopula.privacy.policy import Policy
    from verticopula.schema.federation import Federation
    from verticopula.storage.vault import Vault

DataFolder = Annotated[
    Path,
    typer.Option(
        "--data",
        help="Folder with one table for each party (CSV, Parquet, spreadsheet, SQLite), named as the party: bank.csv.",
        show_default=False,
    ),
]


def read_data_folder(study: Federation, data: Path) -> dict[str, pl.DataFrame]:
    from verticopula.data.table_files import check_is_folder, read_tables

    check_is_folder("--data", data)
    return read_tables(study, data)


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
    from verticopula.storage.vault import is_vault

    if not any(policy.caps != Caps() for policy in policies.values()):
        return
    if is_vault(folder):
        if not quiet:
            console.print(Text(f"Caps are counted in {folder}."), soft_wrap=True)
        return
    said = f"! Caps are counted in {folder}, which is new: no earlier study counts there."
    console.print(Text(said, style="bold yellow"), soft_wrap=True)


def open_vault(folder: Path) -> Vault:
    from verticopula.storage.vault import Vault

    try:
        return Vault.open(folder)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else type(error).__name__
        raise SettingsError(f"the vault {folder} cannot be used ({why}); choose another with --vault") from None
