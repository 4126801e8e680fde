"""`verticopula check`: everything that is wrong with a study, open or unwise, before any budget is spent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verticopula.cli.screen_output import show_notes, show_warnings
from verticopula.cli.shared_options import (
    AsPrinted,
    ChosenMethod,
    Delta,
    Epsilon,
    FederationFile,
    Quiet,
    UnitName,
    variant_of,
)
from verticopula.cli.study_inputs import (
    DEFAULT_QUERY_TIMEOUT,
    PasswordFile,
    Queries,
    QueryTimeout,
    find_vault,
    leave_out_people,
    open_vault,
    read_party_tables,
    read_policies,
    say_what_vault_counts,
)
from verticopula.errors import Problem, SchemaError, SettingsError, StudyWarning
from verticopula.formatting import count_of, readable
from verticopula.schema.methods import default_method

if TYPE_CHECKING:
    import polars as pl

    from verticopula.data.tables import AlignedTable
    from verticopula.privacy.policy import Policy
    from verticopula.privacy.release import Release
    from verticopula.report.steward_page import StewardStudy
    from verticopula.schema.federation import Federation
    from verticopula.storage.known_tables import TableAccount

Found = TypeVar("Found")


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
    method: ChosenMethod = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    unit: UnitName = None,
    as_printed: AsPrinted = False,
    sampler: Annotated[str, typer.Option(help="exact or binomial, as for run.")] = "exact",
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
    query: Queries = None,
    password_file: PasswordFile = None,
    query_timeout: QueryTimeout = DEFAULT_QUERY_TIMEOUT,
    quiet: Quiet = False,
) -> None:
    """Everything that is wrong with a study, open or unwise, all at once, before any budget is spent.

    Ends with 1 if something is wrong with the files, if a question in them is open, or if a party would refuse the
    study.
    """
    from verticopula.data.tables import align_tables, knows_everybody
    from verticopula.estimators.synthesizer import Synthesizer
    from verticopula.forecasting.preflight_checks import describe_expectation, warn_before_spending, would_refuse
    from verticopula.forecasting.steward_proposal import propose_to_stewards
    from verticopula.report.steward_page import write_steward_page
    from verticopula.schema.federation import Federation

    if out is not None and data is None:
        raise SettingsError("--out needs --data: prices depend on how many people a party knows")
    problems: list[Problem] = []
    pages: dict[str, StewardStudy] = {}
    study = _collect(problems, lambda: Federation.from_toml(federation))
    aligned: dict[str, AlignedTable] | None = None
    rules: dict[str, Policy] | None = None
    found: list[StudyWarning] = []
    said, left_out = "", ""
    if study is not None:
        known = study
        rules = _collect(problems, lambda: read_policies(known, policies))
        raw = (
            None
            if data is None
            else _collect(problems, lambda: read_party_tables(known, data, query, password_file, query_timeout))
        )
        if raw is not None:
            raw, left_out = leave_out_people(known, raw, find_vault(vault, policies))
        aligned = None if raw is None else _collect(problems, lambda: align_tables(known, raw, need_overlap=False))
        complete = aligned is None or knows_everybody(aligned)
        chosen = method or default_method(complete, as_printed=as_printed).name
        whole = 1.0 if epsilon is None else epsilon
        synthesizer = Synthesizer(known, chosen, whole, delta, unit, sampler=sampler, variant=variant_of(as_printed))
        settings = _collect(problems, synthesizer.check)
        if raw is not None and aligned is not None and settings is not None:
            if settings.record.needs_overlap:
                _collect(problems, lambda: align_tables(known, raw, need_overlap=True))
            if not problems and rules is not None:
                asked = _collect(problems, lambda: _ask_vault(vault, policies, known, raw, rules))
                spent, accounts = asked or ([], None)
                found = warn_before_spending(known, settings, aligned, policies=rules, spent=spent, accounts=accounts)
                if out is not None:
                    pages = propose_to_stewards(known, settings, aligned, rules, spent, accounts)
                said = "" if quiet else f"Method {chosen}. {describe_expectation(known, settings, aligned)}"
    if problems:
        _show_problems(problems)
        raise typer.Exit(1)
    refused = would_refuse(found)
    written = [] if out is None else [write_steward_page(out / f"{name}.html", page) for name, page in pages.items()]
    if study is not None and not quiet:
        _show_check(study, aligned)
        console = Console()
        if left_out:
            console.print(Text(left_out), soft_wrap=True)
        show_warnings(console, found)
        if said:
            console.print(Text(said), soft_wrap=True)
        if rules and (folder := find_vault(vault, policies)) is not None:
            say_what_vault_counts(console, folder, rules, quiet=quiet)
        if written:
            console.print(Text(f"For the stewards: {', '.join(map(str, written))}"), soft_wrap=True)
        _show_outcome(console, aligned, found, refused)
    if refused:
        raise typer.Exit(1)


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
    vault: Path | None,
    policies: Path | None,
    study: Federation,
    raw: dict[str, pl.DataFrame],
    rules: dict[str, Policy],
) -> tuple[list[Release], dict[str, TableAccount] | None]:
    """What a vault holds about these people, without telling it about them; nothing where there is no vault yet.

    SettingsError if it remembers rules that are not given.
    """
    from verticopula.storage.charged_ledger import open_accounts, remember_policies
    from verticopula.storage.vault_files import is_vault

    folder = find_vault(vault, policies)
    if folder is None or not is_vault(folder):
        return [], None
    with open_vault(folder) as known:
        accounts = open_accounts(known, study, raw, study.id, remember=False)
        remember_policies(known, accounts, rules, policies, keep=False)
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


def _show_check(study: Federation, aligned: dict[str, AlignedTable] | None) -> None:
    console = Console()
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
