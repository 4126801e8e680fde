"""`verticopula check`: everything that is wrong with a study, open or unwise, before any budget is spent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verticopula.cli.option_records import with_options
from verticopula.cli.screen_output import show_notes, show_warnings
from verticopula.cli.shared_options import FederationFile, Quiet, StudyOptions
from verticopula.cli.study_inputs import (
    DatabaseOptions,
    find_vault,
    leave_out_people,
    open_vault,
    read_party_tables,
    read_policies,
    say_what_vault_counts,
)
from verticopula.errors import Problem, SchemaError, SettingsError, StudyWarning
from verticopula.formatting import count_of, readable
from verticopula.schema.study_settings import StudySettings

if TYPE_CHECKING:
    import polars as pl

    from verticopula.data.tables import AlignedTable
    from verticopula.privacy.policy import Policy
    from verticopula.privacy.release import Release
    from verticopula.report.steward_page import StewardStudy
    from verticopula.schema.federation import Federation
    from verticopula.storage.known_tables import TableAccount

Found = TypeVar("Found")


@with_options
def check(
    federation: FederationFile,
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            help="Folder with the parties' tables, or a database that has them, as for run.",
            show_default=False,
        ),
    ] = None,
    *,
    asked: StudyOptions,
    policies: Annotated[
        Path | None, typer.Option(help="Folder with the parties' own <party>.toml policy files.")
    ] = None,
    vault: Annotated[
        Path | None,
        typer.Option(help="Folder where everything spent on these people is kept, as for run.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for one page for each party's steward, <party>.html: what would leave, to whom, at which "
            "price, and what it would use of caps; to print and to sign.",
            show_default=False,
        ),
    ] = None,
    database: DatabaseOptions,
    quiet: Quiet = False,
) -> None:
    """Everything that is wrong with a study, open or unwise, all at once, before any budget is spent.

    Ends with 1 if something is wrong with the files, if a question in them is open, or if a party would refuse the
    study.
    """
    from verticopula.schema.federation import Federation

    if out is not None and data is None:
        raise SettingsError("--out needs --data: prices depend on how many people a party knows")
    problems: list[Problem] = []
    study = _collect(problems, lambda: Federation.from_toml(federation))
    if study is None:
        raise _stopped_by(problems)
    read = None if data is None else partial(read_party_tables, study, data, database)
    inputs = _read_inputs(problems, study, read, vault, policies)
    settings = _collect(problems, lambda: _check_settings(study, asked))
    found = _Findings() if settings is None else _judge(problems, inputs, settings, out, quiet=quiet)
    if problems:
        raise _stopped_by(problems)
    written = _write_pages(out, found.pages)
    if not quiet:
        _show_findings(inputs, found, written)
    if found.refused:
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Inputs:
    """What is checked; None where it could not be read, or was not given.

    Attributes
    ----------
    rules : party -> its policy
    raw, aligned : the parties' tables as they were read, without people who withdrew, and in cohort order
    left_out : how many people withdrew, in words
    vault, policies : folders
    """

    study: Federation
    rules: dict[str, Policy] | None
    raw: dict[str, pl.DataFrame] | None
    aligned: dict[str, AlignedTable] | None
    left_out: str
    vault: Path | None
    policies: Path | None


@dataclass(frozen=True)
class _Findings:
    """What speaks against a study, what it asks of stewards, and how well it will do."""

    warnings: list[StudyWarning] = field(default_factory=list)
    refused: list[StudyWarning] = field(default_factory=list)
    pages: dict[str, StewardStudy] = field(default_factory=dict)
    expected: str = ""


def _read_inputs(
    problems: list[Problem],
    study: Federation,
    read: Callable[[], dict[str, pl.DataFrame]] | None,
    vault: Path | None,
    policies: Path | None,
) -> _Inputs:
    """Policies and tables; what is wrong with them is added to the problems."""
    from verticopula.data.tables import align_tables

    rules = _collect(problems, lambda: read_policies(study, policies))
    raw = None if read is None else _collect(problems, read)
    folder = find_vault(vault, policies)
    if raw is None:
        return _Inputs(study, rules, None, None, "", folder, policies)
    known, left_out = leave_out_people(study, raw, folder)
    aligned = _collect(problems, lambda: align_tables(study, known, need_overlap=False))
    return _Inputs(study, rules, known, aligned, left_out, folder, policies)


def _check_settings(study: Federation, asked: StudyOptions) -> StudySettings:
    """What a study would be made with; SettingsError where that makes no sense."""
    from verticopula.estimators.synthesizer import Synthesizer

    return Synthesizer.from_settings(study, asked.settings()).check()


def _judge(
    problems: list[Problem], inputs: _Inputs, settings: StudySettings, out: Path | None, *, quiet: bool
) -> _Findings:
    """What speaks against the study where nothing is wrong with it; pages for stewards where there is a folder."""
    from verticopula.data.tables import align_tables
    from verticopula.forecasting.preflight_checks import describe_expectation, warn_before_spending, would_refuse
    from verticopula.forecasting.steward_proposal import propose_to_stewards

    study, raw, aligned, rules = inputs.study, inputs.raw, inputs.aligned, inputs.rules
    if raw is None or aligned is None:
        return _Findings()
    if settings.record.needs_overlap:
        _collect(problems, lambda: align_tables(study, raw, need_overlap=True))
    if problems or rules is None:
        return _Findings()
    asked = _collect(problems, lambda: _ask_vault(inputs, raw, rules))
    if asked is None:
        return _Findings()
    spent, accounts = asked
    found = warn_before_spending(study, settings, aligned, policies=rules, spent=spent, accounts=accounts)
    pages = {} if out is None else propose_to_stewards(study, settings, aligned, rules, spent, accounts)
    expected = "" if quiet else f"Method {settings.method}. {describe_expectation(study, settings, aligned)}"
    return _Findings(found, would_refuse(found), pages, expected)


def _write_pages(out: Path | None, pages: dict[str, StewardStudy]) -> list[Path]:
    if out is None:
        return []
    from verticopula.report.steward_page import write_steward_page

    return [write_steward_page(out / f"{name}.html", page) for name, page in pages.items()]


def _stopped_by(problems: list[Problem]) -> typer.Exit:
    _show_problems(problems)
    return typer.Exit(1)


def _collect(problems: list[Problem], action: Callable[[], Found]) -> Found | None:
    """The action's result; if it fails, its problems are added to the list instead."""
    try:
        return action()
    except SchemaError as error:
        problems += error.problems
    except SettingsError as error:
        problems.append(Problem("settings", str(error)))
    return None


def _ask_vault(
    inputs: _Inputs, raw: dict[str, pl.DataFrame], rules: dict[str, Policy]
) -> tuple[list[Release], dict[str, TableAccount] | None]:
    """What a vault holds about these people, without telling it about them; nothing where there is no vault yet.

    SettingsError if it remembers rules that are not given.
    """
    from verticopula.storage.charged_ledger import open_accounts, remember_policies
    from verticopula.storage.vault_files import is_vault

    study, folder = inputs.study, inputs.vault
    if folder is None or not is_vault(folder):
        return [], None
    with open_vault(folder) as known:
        accounts = open_accounts(known, study, raw, study.id, remember=False)
        remember_policies(known, accounts, rules, inputs.policies, keep=False)
        return list(known.ledger), accounts


def _show_problems(problems: list[Problem]) -> None:
    """What is wrong, and apart from it what is not answered yet."""
    console = Console(stderr=True)
    wrong = [problem for problem in problems if not problem.is_open]
    asked = [problem for problem in problems if problem.is_open]
    if wrong:
        console.print(Text(f"{count_of(len(wrong), 'problem')} found; nothing was spent", style="bold red"))
    for problem in wrong:
        console.print(Text(f"  - {readable(str(problem))}"))
    if asked:
        head = f"{count_of(len(asked), 'question is', 'questions are')} still open in the federation file"
        console.print(Text(f"{head}; nothing was spent", style="bold"))
    for problem in asked:
        console.print(Text(f"  ? {readable(str(problem))}"))


def _show_findings(inputs: _Inputs, found: _Findings, written: list[Path]) -> None:
    console = Console()
    _show_check(console, inputs.study, inputs.aligned)
    if inputs.left_out:
        console.print(Text(inputs.left_out), soft_wrap=True)
    show_warnings(console, found.warnings)
    if found.expected:
        console.print(Text(found.expected), soft_wrap=True)
    if inputs.rules and inputs.vault is not None:
        say_what_vault_counts(console, inputs.vault, inputs.rules, quiet=False)
    if written:
        console.print(Text(f"For the stewards: {', '.join(map(str, written))}"), soft_wrap=True)
    _show_outcome(console, inputs.aligned, found.warnings, found.refused)


def _show_outcome(
    console: Console,
    tables: dict[str, AlignedTable] | None,
    found: list[StudyWarning],
    refused: list[StudyWarning],
) -> None:
    """The last line: what would stop the study, or how many things there are to look at."""
    notes = sum(len(table.notes()) for table in (tables or {}).values())
    open_ = notes + len(found) - len(refused)
    looked = f"{count_of(open_, 'thing')} to look at above" if open_ else ""
    if refused:
        said = f"Nothing was spent; {count_of(len(refused), 'thing')} would stop the study: "
        said += "; ".join(warning.title for warning in refused) + (f". And {looked}." if looked else ".")
    elif tables is None:
        said = "Nothing was spent; the federation file is complete."
    else:
        said = f"Nothing was spent; nothing would stop the study{f'; {looked}' if looked else ''}."
    console.print(Text(readable(said), style="bold red" if refused else "bold"), soft_wrap=True)


def _show_check(console: Console, study: Federation, aligned: dict[str, AlignedTable] | None) -> None:
    console.print(Text(f"The files have no errors. {study}"), soft_wrap=True)
    if study.bounds_from_data:
        console.print(
            Text("! Bounds or categories were taken from the data: epsilon will be infinite.", style="bold red")
        )
    if aligned is None:
        console.print("Tables were not checked: give --data.")
        return
    table = Table("party", "columns", "subjects", "of cohort", "empty", "clamped", "unused")
    table.columns[0].no_wrap = True
    for name, part in aligned.items():
        seen = part.observed()
        known = seen.any(axis=1)
        clamped = sum(column.clamped for column in part.columns.values())
        empty = int((~seen[known]).sum())
        table.add_row(
            name,
            str(seen.shape[1]),
            f"{known.sum():,}",
            f"{known.mean():.1%}",
            f"{empty:,}",
            f"{clamped:,}",
            str(part.ignored),
        )
    console.print(table)
    show_notes(console, aligned)
