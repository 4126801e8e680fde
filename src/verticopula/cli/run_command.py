"""`verticopula run`: a study on tables in this process, with policies, vault, ledger and report."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from verticopula.cli.screen_output import show_notes, show_warnings, write_and_show
from verticopula.cli.shared_options import (
    AsPrinted,
    ChosenMethod,
    ConditionTexts,
    Delta,
    DependenceName,
    Epsilon,
    FederationFile,
    MissingName,
    Overwrite,
    Quiet,
    RankCorrelationName,
    Seed,
    UnitName,
    progress_bar,
    variant_of,
    whole_epsilon,
)
from verticopula.cli.study_inputs import (
    DEFAULT_QUERY_TIMEOUT,
    DataPlace,
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
from verticopula.cli.write_table_command import (
    DEFAULT_PREFIX,
    Replace,
    TablePrefix,
    check_target,
)
from verticopula.cli.write_table_command import write_table as write_into_database
from verticopula.errors import SchemaError, SettingsError
from verticopula.formatting import count_of
from verticopula.schema.defaults import DEFAULT_ROUNDS, IN_HOUSE_FILE, REPORT_FILE
from verticopula.schema.dependence import DEFAULT_DEPENDENCE
from verticopula.schema.methods import IEVCDS, default_method
from verticopula.schema.printed_choices import DEFAULT_RANK_CORRELATION

if TYPE_CHECKING:
    import polars as pl

    from verticopula.schema.federation import Federation


def run(
    federation: FederationFile,
    data: DataPlace,
    out: Annotated[Path, typer.Option("--out", help="Where to write the study.", show_default=False)],
    method: ChosenMethod = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    unit: UnitName = None,
    epsilon_ranks: Annotated[float | None, typer.Option(help="Instead of --epsilon: the ranks' part.")] = None,
    epsilon_marginals: Annotated[float | None, typer.Option(help="Instead of --epsilon: the marginals' part.")] = None,
    rows: Annotated[int | None, typer.Option("--rows", help="Synthetic rows. Default: as many as subjects.")] = None,
    condition: ConditionTexts = None,
    missing: MissingName = None,
    sampler: Annotated[
        str, typer.Option(help="exact, or binomial for very many subjects (two coins a comparison).")
    ] = "exact",
    rounds: Annotated[int, typer.Option(help=f"{IEVCDS.name}: how often ranks are sent.")] = DEFAULT_ROUNDS,
    per_round: Annotated[
        bool,
        typer.Option("--per-round", help=f"{IEVCDS.name}: the ranks' epsilon in every round, not split over them."),
    ] = False,
    aligned: Annotated[
        bool,
        typer.Option("--aligned", help="Row i follows subject i: a noisy copy of the cohort. For comparisons only."),
    ] = False,
    as_printed: AsPrinted = False,
    rank_correlation: RankCorrelationName = DEFAULT_RANK_CORRELATION,
    dependence: DependenceName = DEFAULT_DEPENDENCE,
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
    query: Queries = None,
    password_file: PasswordFile = None,
    query_timeout: QueryTimeout = DEFAULT_QUERY_TIMEOUT,
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
    seed: Seed = None,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Fit on the parties' tables and write complete synthetic ones, and a report.

    Before anything is drawn, what it costs is written into the ledger in --out and, with --policies, into the vault,
    whose ledger the caps are counted on. A run that a policy refuses spends nothing and leaves no --out behind.
    """
    from verticopula.data.tables import align_tables
    from verticopula.estimators.default_regression import fit_if_cheap
    from verticopula.estimators.synthesizer import Synthesizer
    from verticopula.forecasting.preflight_checks import describe_expectation, use_of_caps, warn_before_spending
    from verticopula.report.report_data import ReportData
    from verticopula.report.report_page import write_report
    from verticopula.schema.conditions import (
        ALIGNED_EXCLUDES,
        describe_conditions,
        parse_conditions,
        read_conditions,
    )
    from verticopula.schema.federation import JOINED, Federation
    from verticopula.storage.charged_ledger import ChargedLedger, open_accounts, remember_policies
    from verticopula.storage.ledger import Ledger
    from verticopula.study.missing_values import check_missing
    from verticopula.study.study_folder import LEDGER_FILE, REGRESSION_FILE, REGRESSION_FOLDER, check_folder, new_folder
    from verticopula.study.study_warnings import ALIGNED_ROWS

    whole = whole_epsilon(epsilon, epsilon_ranks, epsilon_marginals)
    if rows is not None and rows < 1:
        raise SettingsError("--rows must be at least 1")
    study = Federation.from_toml(federation)
    conditions = parse_conditions(condition or [])
    read_conditions(study, conditions)  # before anything is spent
    check_missing(missing)
    if aligned and (conditions or missing is not None):
        raise SettingsError(ALIGNED_EXCLUDES)
    console = Console(stderr=True, quiet=quiet)
    if aligned and method is None:
        raise SettingsError(
            "--aligned needs a --method: of the method that is taken otherwise rows may belong to nobody"
        )
    kept = find_vault(vault, policies)
    raw = read_party_tables(study, data, query, password_file, query_timeout)
    raw, left_out = leave_out_people(study, raw, kept)
    if left_out:
        console.print(Text(left_out), soft_wrap=True)
    method = method or _method_for(study, raw, console, as_printed=as_printed)
    synthesizer = Synthesizer(
        study,
        method=method,
        epsilon=whole,
        delta=delta,
        unit=unit,
        random_state=seed,
        epsilon_ranks=epsilon_ranks,
        epsilon_marginals=epsilon_marginals,
        sampler=sampler,
        rounds=rounds,
        per_round=per_round,
        variant=variant_of(as_printed),
        rank_correlation=rank_correlation,
        dependence=dependence,
    )
    if epsilon is None and whole is not None:
        per = synthesizer.check().unit
        console.print(
            Text(f"Epsilon {whole:g} per {per}, as none was given; --epsilon chooses another."), soft_wrap=True
        )
    tables = align_tables(study, raw, need_overlap=synthesizer.needs_overlap)
    show_notes(console, tables)
    rules = read_policies(study, policies)
    aligned = aligned or (synthesizer.check().gives_aligned_rows and not conditions and missing is None)
    if aligned:  # before anything is spent
        synthesizer.check_aligned(rows, next(iter(tables.values())).observed().shape[0])
    if kept is not None and kept.resolve() == out.resolve():
        raise SettingsError("--vault and --out need folders of their own")
    check_folder(out, overwrite=overwrite)
    names = [*(party.name for party in study.parties), JOINED]
    check_target(write_table, names, table_prefix, password_file, replace=replace)
    if out.is_dir() and any(file.name != LEDGER_FILE for file in out.iterdir()) and not overwrite:
        console.print(Text(f"{out} holds other files, which stay as they are."), soft_wrap=True)
    if kept is not None:
        say_what_vault_counts(Console(stderr=True), kept, rules, quiet=quiet)
    with new_folder(out, overwrite=overwrite), ExitStack() as opened, _saying_what_was_charged(out / LEDGER_FILE):
        charged = None if kept is None else opened.enter_context(open_vault(kept))
        accounts = None if charged is None else open_accounts(charged, study, raw, study.id)
        if charged is not None and accounts is not None:
            remember_policies(charged, accounts, rules, policies, drop_rule or [])
        book = Ledger(out / LEDGER_FILE)
        counted = book if charged is None else ChargedLedger(charged.ledger, book)
        if not quiet:
            settings = synthesizer.check()
            found = warn_before_spending(study, settings, tables, policies=rules, spent=counted, accounts=accounts)
            show_warnings(console, found)
            console.print(Text(describe_expectation(study, settings, tables)), soft_wrap=True)
        with progress_bar(quiet) as progress:
            synthesizer.fit_aligned(
                tables, policies=rules, ledger=book, vault=charged, accounts=accounts, progress=progress
            )
        notes: tuple[str, ...] = (str(ALIGNED_ROWS),) if aligned else ()
        if conditions:
            notes += (describe_conditions(condition or ()),)
        synthetic = synthesizer.sample(rows, aligned=aligned, conditions=conditions, missing=missing)
        if synthesizer.kept_ is not None:
            notes += (str(synthesizer.kept_),)
        write_and_show(out, synthesizer, synthetic, quiet, notes=notes)
        for stale in (out / REGRESSION_FOLDER / REGRESSION_FILE, out / IN_HOUSE_FILE):  # an earlier study's
            stale.unlink(missing_ok=True)
        facts = None if aligned or conditions else fit_if_cheap(synthesizer.study_, synthetic)
        written = [write_report(out / REPORT_FILE, ReportData(synthesizer.study_, regression=facts, aligned=aligned))]
        if in_house:
            caps = use_of_caps(rules or {}, counted, accounts)
            own = ReportData(synthesizer.study_, tables, facts, aligned, caps=caps)
            written.append(write_report(out / IN_HOUSE_FILE, own))
    if not quiet:
        for path in written:
            print(f"  {path}")
        if kept is not None:
            print(f"Charged, for all runs about these people, in {kept}")
    if write_table is not None:
        try:
            write_into_database(out, write_table, table_prefix, replace, password_file, query_timeout, quiet)
        except SchemaError as error:  # the study was paid for, and its files are there
            said = f"the study is in {out}, but not in the database. {error}\nTo try again: verticopula write-table"
            raise SettingsError(said) from None


def _method_for(study: Federation, raw: dict[str, pl.DataFrame], console: Console, *, as_printed: bool) -> str:
    """The method where nobody named one, and a word about it."""
    from verticopula.data.tables import align_tables, knows_everybody

    complete = knows_everybody(align_tables(study, raw, need_overlap=False))
    chosen = default_method(complete, as_printed=as_printed)
    console.print(Text(f"Method {chosen.name} ({chosen.help}); --method chooses another."), soft_wrap=True)
    return chosen.name


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
