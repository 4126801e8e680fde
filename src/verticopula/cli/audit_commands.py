"""`verticopula audit`: attack a study's claims and its synthetic tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verticopula.cli.option_records import with_options
from verticopula.cli.shared_options import Quiet, progress_bar
from verticopula.cli.study_inputs import (
    DatabaseOptions,
    PeopleVault,
    leave_out_of_comparison,
    read_party_tables,
)
from verticopula.errors import SchemaError, SettingsError
from verticopula.formatting import readable
from verticopula.schema.methods import STRICT

if TYPE_CHECKING:
    import polars as pl

    from verticopula.auditing import AuditReport
    from verticopula.estimators.synthesizer import Synthesizer


REFUTED_CODE = 3
_MANY_TRIALS = 1000  # from here on starting processes pays


@with_options
def audit(
    folder: Annotated[Path, typer.Argument(help="The folder that `run` or `demo` wrote.", show_default=False)],
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            help="The study's own real tables: a folder, or a database that has them, as for run; with --party also "
            "that party's file. Not needed with --claims-only.",
            show_default=False,
        ),
    ] = None,
    holdout: Annotated[
        str,
        typer.Option(
            help="People who were not in the study: a folder with their tables; or a fraction to leave out of a "
            "repetition of the study in memory, which releases nothing and spends nothing."
        ),
    ] = "0.5",
    trials: Annotated[int, typer.Option(help="Releases per claim.")] = 4000,
    output_trials: Annotated[
        int,
        typer.Option(
            help="Also whole studies by its method, attacked through their synthetic tables; slow, none by default."
        ),
    ] = 0,
    columns: Annotated[
        str | None,
        typer.Option(
            help="Whose claims are attacked one by one: `all` columns, or `one-per-kind`, the one that spends most. "
            "Default: all with --party, one per kind of a whole study.",
            show_default=False,
        ),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of all bounds together, and of every interval.")] = 0.95,
    claims_only: Annotated[bool, typer.Option("--claims-only", help="Attack the claims only.")] = False,
    tables_only: Annotated[bool, typer.Option("--tables-only", help="Attack the synthetic tables only.")] = False,
    party: Annotated[
        str | None,
        typer.Option(
            help="Only this party's part, inside its own house: only its table is needed. Of a study of method "
            f"{STRICT.name} the claims only, with --claims-only."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Also write audit.json and audit.txt there.", show_default=False)
    ] = None,
    *,
    database: DatabaseOptions,
    vault: PeopleVault = None,
    seed: Annotated[
        int | None, typer.Option(help="Makes the audit repeatable, but for what SDMetrics draws; it protects nobody.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Attack a study: can its claims be refuted, and do its tables say more about its own people than about others?

    Ends with 3 if a claim is refuted. Example: [bold]verticopula audit my-study --data tables/ --trials 4000[/]
    """
    from verticopula.auditing import AuditSettings, audit_study

    if claims_only and tables_only:
        raise SettingsError("give either --claims-only or --tables-only")
    if data is None and not claims_only:
        raise SettingsError("--data is needed to attack tables; or give --claims-only")
    if vault is not None and data is None:
        raise SettingsError("--vault says who is left out of the tables of --data: give --data, too")
    if out is not None and out.exists() and not out.is_dir():
        raise SettingsError(f"{out} is a file; --out needs a folder")
    fraction, people = _holdout(holdout)
    study, synthetic, aligned = read_for_audit(folder, party)
    workers = 1 if trials < _MANY_TRIALS else min(os.cpu_count() or 1, 8)
    settings = AuditSettings(trials, confidence, fraction, party, seed, workers, output_trials, columns)
    federation = study.federation
    real = others = None
    if data is not None:
        real = read_party_tables(federation, data, database, party=party)
        real = leave_out_of_comparison(federation, real, vault)
    if people is not None and not claims_only:
        others = read_party_tables(federation, people, party=party)
        others = leave_out_of_comparison(federation, others, vault)
    with progress_bar(quiet) as progress:
        report = audit_study(
            study,
            settings,
            synthetic=synthetic,
            real=real,
            holdout=others,
            aligned_rows=aligned,
            attack_claims=not tables_only,
            attack_tables=not claims_only,
            progress=progress,
        )
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "audit.json").write_text(report.to_json(), encoding="utf-8")
        (out / "audit.txt").write_text(report.to_text(), encoding="utf-8")
    if not quiet:
        show_audit(report, Console(highlight=False))
    if not report.holds:
        raise typer.Exit(REFUTED_CODE)


def read_for_audit(folder: Path, party: str | None) -> tuple[Synthesizer, dict[str, pl.DataFrame], bool]:
    """The fitted study, the synthetic tables under audit, and whether its rows follow its people."""
    from verticopula.data.table_files import read_table
    from verticopula.estimators.synthesizer import Synthesizer
    from verticopula.privacy.statement import NOTICE_FILE
    from verticopula.study.study_folder import STUDY_FILE
    from verticopula.study.study_warnings import ALIGNED_ROWS

    if not (folder / STUDY_FILE).is_file():
        raise SettingsError(f"{folder} holds no study: give the folder that `run` or `demo` wrote")
    study = Synthesizer.load(folder / STUDY_FILE)
    names = [p.name for p in study.federation.parties]
    if party is not None and party not in names:
        raise SettingsError(f"no party {party!r} in this study; there are {', '.join(names)}")
    try:
        tables = {name: read_table(folder / "synthetic" / f"{name}.parquet") for name in names if party in (None, name)}
    except SchemaError as error:
        raise SettingsError(f"{folder}: its synthetic tables cannot be read ({error.problems[0].where})") from None
    notice = folder / "synthetic" / NOTICE_FILE
    return study, tables, notice.is_file() and ALIGNED_ROWS.title in notice.read_text(encoding="utf-8")


def _holdout(text: str) -> tuple[float, str | None]:
    """A fraction, or a folder."""
    try:
        fraction = float(text)
    except ValueError:
        if not Path(text).is_dir():
            raise SettingsError(f"--holdout {text}: neither a fraction nor a folder") from None
        return 0.5, text
    if not 0.0 < fraction < 1.0:
        raise SettingsError("--holdout needs a fraction between 0 and 1, or a folder")
    return fraction, None


def show_audit(report: AuditReport, console: Console) -> None:
    """The report on a terminal; what is refuted in red."""
    from verticopula.auditing.audit_report import describe_mechanism, describe_value, meaning, verdict
    from verticopula.privacy.statement import format_epsilon

    if report.mechanism:
        title = f"Claims (all bounds together hold with confidence {report.confidence:g})"
        table = _folding_table(("what, and what differs", "claimed ε", "measured ε ≥", "trials can show ≤", ""), title)
        for figures in table.columns[1:4]:
            figures.max_width = 12  # short, under long heads: the rest is for names
        for f in report.mechanism:
            m = f.measured
            at = f", δ {m.claim.delta:g}" if m.claim.delta else ""
            cells = (
                f"{f.what}, {f.change} of {f.n_subjects}, {f.pairs} people",
                f"{format_epsilon(m.claim.epsilon)} per {m.claim.unit}{at}",
                f"{m.epsilon_low:.3f}",
                f"{m.visible:.3f}",
                m.outcome,
            )
            table.add_row(*(_text(cell) for cell in cells), style=None if m.holds else "bold red")
        console.print(table)
        for f in report.mechanism:
            if not f.measured.holds:
                console.print(_text("\n".join([*describe_mechanism(f), meaning(f)]), style="bold red"))
        strongest = max(report.mechanism, key=lambda f: f.measured.epsilon_low)
        console.print(_text(f"Strongest attack: {strongest.what}, {strongest.change}. {meaning(strongest)}"))
        lines = report.left_open()
        if lines:
            console.print(_text(f"What a claim per {report.unit} leaves open:" if lines else ""))
            for line in lines:
                console.print(_text(f"  {line}"), soft_wrap=True)
    if report.tables:
        table = _folding_table(("attack on the synthetic table", "found", "what it means"), "Tables")
        for found in report.tables:
            style = "yellow" if found.is_suspicious else None
            table.add_row(_text(found.name), _text(describe_value(found)), _text(found.means), style=style)
        console.print(table)
    for note in report.notes:
        console.print(_text(note), soft_wrap=True)
    console.print(_text(verdict(report), style="" if report.holds else "bold red"), soft_wrap=True)


def _folding_table(heads: Sequence[str], title: str) -> Table:
    """A table that breaks long names on a narrow screen: cut off, two of them could look the same."""
    table = Table(title=title)
    for head in heads:
        table.add_column(head, overflow="fold")
    return table


def _text(line: str, style: str = "") -> Text:
    """Names in it come from other organisations' files."""
    return Text(readable(line), style=style)
