"""`verticopula report`: a study's page, written again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verticopula.cli.option_records import with_options
from verticopula.cli.shared_options import Quiet
from verticopula.cli.study_inputs import (
    DatabaseOptions,
    PeopleVault,
    leave_out_of_comparison,
    read_party_tables,
)
from verticopula.errors import SettingsError
from verticopula.schema.defaults import IN_HOUSE_FILE, REPORT_FILE

if TYPE_CHECKING:
    import polars as pl

    from verticopula.schema.federation import Federation


@with_options
def report(
    folder: Annotated[
        Path, typer.Argument(help="The folder that `run`, `demo` or `submit` wrote.", show_default=False)
    ],
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            help="Real tables to compare with: a folder with those of some parties or all, or a database with all, as "
            "for run; with --party also that party's file. Such a report is not private.",
            show_default=False,
        ),
    ] = None,
    party: Annotated[str | None, typer.Option(help="Compare with this party's table only.", show_default=False)] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help=f"Default: FOLDER/{REPORT_FILE}; with --data, FOLDER/{IN_HOUSE_FILE}.", show_default=False
        ),
    ] = None,
    *,
    database: DatabaseOptions,
    vault: PeopleVault = None,
    quiet: Quiet = False,
) -> None:
    """Write a study's report again, for instance after a regression: one page that opens without a network."""
    from verticopula.report.read_report_data import read_report_data
    from verticopula.report.report_page import write_report

    if party is not None and data is None:
        raise SettingsError("--party says whose table --data has: give --data, too")
    if vault is not None and data is None:
        raise SettingsError("--vault says who is left out of the tables of --data: give --data, too")

    def real_tables(study: Federation) -> dict[str, pl.DataFrame]:
        assert data is not None
        raw = read_party_tables(study, data, database, party=party, all_parties=False)
        return leave_out_of_comparison(study, raw, vault)

    subject = read_report_data(folder, None if data is None else real_tables)
    path = write_report(out or folder / (IN_HOUSE_FILE if subject.real else REPORT_FILE), subject)
    if not quiet:
        print(f"Written to {path}")
