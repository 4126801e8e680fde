"""`verticopula run`: a study on tables in this process, with policies, vault, ledger and report."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from verticopula.cli.option_records import with_options
from verticopula.cli.screen_output import show_notes
from verticopula.cli.shared_options import FederationFile, Overwrite, Quiet, RowOptions, StudyOptions
from verticopula.cli.study_inputs import (
    DatabaseOptions,
    DataPlace,
    EngineOptions,
    find_vault,
    open_party_tables,
    read_policies,
    say_what_vault_counts,
)
from verticopula.cli.write_table_command import (
    DEFAULT_PREFIX,
    Replace,
    TablePrefix,
    check_target,
)
from verticopula.cli.write_table_command import write_table as write_into_database
from verticopula.errors import SchemaError, SettingsError
from verticopula.formatting import count_of
from verticopula.schema.defaults import IN_HOUSE_FILE


@with_options
def run(
    federation: FederationFile,
    data: DataPlace,
    out: Annotated[Path, typer.Option("--out", help="Where to write the study.", show_default=False)],
    asked: StudyOptions,
    rows: RowOptions,
    policies: Annotated[
        Path | None,
        typer.Option(
            help="Folder with the parties' own <party>.toml policy files. Their caps hold over all runs about the same "
            "people, whatever --out is: see --vault."
        ),
    ] = None,
    vault: Annotated[
        Path | None,
        typer.Option(
            help="Folder where everything spent on these people is kept, over all runs. With --policies the default is "
            "one folder for all of your runs, in $XDG_DATA_HOME/verticopula (~/.local/share/verticopula); without, "
            "none.",
            show_default=False,
        ),
    ] = None,
    drop_rule: Annotated[
        list[str] | None,
        typer.Option(
            help="A rule that is no longer in a party's policy file and is given up, such as bank.caps.client; may be "
            "given several times. Otherwise a file that has lost a rule is taken for half written, and refused.",
            metavar="PARTY.RULE",
        ),
    ] = None,
    in_house: Annotated[
        bool,
        typer.Option(
            "--in-house",
            help=f"Also write {IN_HOUSE_FILE}, which compares with the real tables: not private, not to be shared.",
        ),
    ] = False,
    *,
    engine: EngineOptions,
    database: DatabaseOptions,
    write_table: Annotated[
        str | None,
        typer.Option(
            "--write-table",
            help="Also write the synthetic tables into this database, with their marks; `verticopula write-table` does "
            "it later.",
            show_default=False,
            rich_help_panel="Databases",
        ),
    ] = None,
    table_prefix: TablePrefix = DEFAULT_PREFIX,
    replace: Replace = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Fit on the parties' tables and write complete synthetic ones, and a report.

    Before anything is drawn, what it costs is written into the ledger in --out and, with --policies, into the vault,
    whose ledger the caps are counted on. A run that a policy refuses spends nothing and leaves no --out behind.
    """
    from verticopula.cli import run_steps as steps
    from verticopula.data.tables import align_tables
    from verticopula.estimators.synthesizer import Synthesizer
    from verticopula.schema.federation import JOINED, Federation
    from verticopula.study.study_folder import LEDGER_FILE, new_folder

    study = Federation.from_toml(federation)
    wanted = steps.WantedRows(rows.rows, rows.conditions, rows.missing, rows.aligned)
    wanted.check(study)
    console = Console(stderr=True, quiet=quiet)
    kept = find_vault(vault, policies)
    settings = asked.settings()
    synthesizer = Synthesizer.from_settings(study, settings)
    synthesizer.check()  # before a table is read
    steps.say_defaults(settings, method=asked.method is not None, epsilon=asked.epsilon is not None, console=console)
    computing = steps.open_engine(engine, settings, in_house=in_house)
    found = open_party_tables(study, data, database, computing)
    raw = steps.read_people(study, found, kept, console)
    tables = align_tables(study, raw, need_overlap=synthesizer.needs_overlap)
    show_notes(console, tables)
    inputs = steps.RunInputs(study, raw, tables, read_policies(study, policies))
    wanted = wanted.of_method(synthesizer, tables)
    steps.check_places(out, kept, overwrite=overwrite)
    names = [*(party.name for party in study.parties), JOINED]
    check_target(write_table, names, table_prefix, database.password_file, replace=replace)
    if not overwrite:
        steps.say_what_stays(out, console)
    if kept is not None:
        say_what_vault_counts(Console(stderr=True), kept, inputs.rules, quiet=quiet)
    with new_folder(out, overwrite=overwrite), ExitStack() as opened, _saying_what_was_charged(out / LEDGER_FILE):
        books = steps.open_books(inputs, out, kept, policies, drop_rule or [], opened)
        if not quiet:
            steps.say_what_to_expect(inputs, books, synthesizer, console)
        steps.charge_and_fit(inputs, books, synthesizer, quiet=quiet)
        if computing is not None:
            computing.close()
        written = steps.write_results(out, inputs, books, synthesizer, wanted, in_house=in_house, quiet=quiet)
    if not quiet:
        for path in written:
            print(f"  {path}")
        if kept is not None:
            print(f"Charged, for all runs about these people, in {kept}")
    if write_table is not None:
        try:
            write_into_database(
                out, write_table, table_prefix, replace, database.password_file, database.query_timeout, quiet
            )
        except SchemaError as error:  # the study was paid for, and its files are there
            said = f"the study is in {out}, but not in the database. {error}\nTo try again: verticopula write-table"
            raise SettingsError(said) from None


@contextmanager
def _saying_what_was_charged(path: Path) -> Iterator[None]:
    """If somebody interrupts what follows, a word about what was charged by then, and exit."""
    from verticopula.privacy.statement import format_epsilon, state_privacy
    from verticopula.schema.units import Unit
    from verticopula.storage.ledger import Ledger

    before = len(Ledger(path))
    try:
        yield
    except KeyboardInterrupt:
        charged = list(Ledger(path))[before:]
        said = "interrupted; nothing was charged"
        if charged:
            cost = state_privacy(charged)
            said = (
                f"interrupted; {count_of(len(charged), 'release was', 'releases were')} charged: epsilon per client "
                f"{format_epsilon(cost.epsilon(Unit.CLIENT))}, per person {format_epsilon(cost.person)} at delta = "
                f"{cost.delta:g}. They stay charged: a new run in this folder adds to them, and shows the sum. A run "
                "cannot be resumed: the next one is charged anew, and a cap may refuse it."
            )
        Console(stderr=True).print(Text(said), soft_wrap=True)
        sys.exit(130)
