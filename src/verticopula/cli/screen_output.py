"""What several commands show: warnings before a study, notes on single cells, a study that was written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from verticopula.errors import StudyWarning
from verticopula.formatting import readable

if TYPE_CHECKING:
    import polars as pl

    from verticopula.data.tables import AlignedTable
    from verticopula.estimators.synthesizer import Synthesizer


def show_warnings(console: Console, found: list[StudyWarning]) -> None:
    """What somebody should know before spending; it may rest on cells, so it is shown here and written nowhere."""
    for warning in found:
        style = "bold red" if warning.level == "stop" else "yellow" if warning.level == "care" else ""
        console.print(Text(f"! {readable(str(warning))}", style=style), soft_wrap=True)


def show_notes(console: Console, tables: dict[str, AlignedTable]) -> None:
    """What the tables' holder should know about single cells; it is shown here and written nowhere."""
    for note in (note for table in tables.values() for note in table.notes()):
        console.print(Text(f"note: {readable(str(note))}"), soft_wrap=True)


def write_and_show(
    out: Path,
    synthesizer: Synthesizer,
    tables: dict[str, pl.DataFrame],
    quiet: bool,
    more: str = "",
    notes: tuple[str, ...] = (),
) -> None:
    from verticopula.study.study_folder import write_study

    summary = synthesizer.summary() + more + "".join(f"\n! {note}\n" for note in notes)
    written = write_study(out, synthesizer.study_, tables, summary, notes)
    if quiet:
        return
    console = Console(highlight=False)
    for line in summary.splitlines():
        console.print(Text(line, style="bold red" if line.startswith("!") else ""), soft_wrap=True)
    print("\nWritten:")
    for path in written:
        print(f"  {path}")
