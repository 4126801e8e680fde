"""`verticopula report`: a study's page, written again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from verticopula.cli.shared_options import Quiet
from verticopula.schema.defaults import IN_HOUSE_FILE, REPORT_FILE


def report(
    folder: Annotated[
        Path, typer.Argument(help="The folder that `run`, `demo` or `submit` wrote.", show_default=False)
    ],
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help="Folder with real tables, of one party or of all. A report that compares with them is not private.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help=f"Default: FOLDER/{REPORT_FILE}; with --data, FOLDER/{IN_HOUSE_FILE}.", show_default=False
        ),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write a study's report again, for instance after a regression: one page that opens without a network."""
    from verticopula.report.read_report_data import read_report_data
    from verticopula.report.report_page import write_report

    subject = read_report_data(folder, data)
    path = write_report(out or folder / (IN_HOUSE_FILE if subject.real else REPORT_FILE), subject)
    if not quiet:
        print(f"Written to {path}")
