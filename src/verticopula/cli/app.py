"""The command line: thin. It reads options, calls the library, and shows what happened."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verticopula.cli.audit_commands import audit
from verticopula.cli.forecast_commands import forecast
from verticopula.cli.glm_commands import fit_and_write, glm
from verticopula.cli.init_command import init
from verticopula.cli.network_commands import register as register_network_commands
from verticopula.cli.shared_options import (
    AsPrinted,
    ChosenMethod,
    Delta,
    Epsilon,
    FederationFile,
    Method,
    Overwrite,
    Quiet,
    RankCorrelationName,
    Seed,
    UnitName,
    progress_bar,
    variant_of,
    whole_epsilon,
)
from verticopula.errors import (
    AlignedWarning,
    NotPrivateWarning,
    Problem,
    SchemaError,
    SettingsError,
    StudyWarning,
    VerticopulaError,
    WeakPrivacyWarning,
)
from verticopula.formatting import count_of, readable
from verticopula.schema.defaults import DEFAULT_DELTA, DEFAULT_ROUNDS, IN_HOUSE_FILE, REPORT_FILE
from verticopula.schema.methods import DEFAULT_METHOD, IEVCDS, REFINED
from verticopula.schema.printed_choices import DEFAULT_RANK_CORRELATION

if TYPE_CHECKING:
    import polars as pl

    from verticopula.data.tables import AlignedTable
    from verticopula.estimators.synthesizer import Synthesizer
    from verticopula.privacy.policy import Policy
    from verticopula.privacy.release import Release
    from verticopula.schema.federation import Federation
    from verticopula.storage.known_tables import TableAccount
    from verticopula.storage.vault import Vault


Found = TypeVar("Found")

app = typer.Typer(
    name="verticopula",
    help="Private synthetic data from tables that are split by column across organisations.\n\n"
    "Start with [bold]verticopula demo[/]. For your own tables: [bold]init[/] writes a federation file, "
    "[bold]check[/] says what is wrong or open, [bold]run[/] makes synthetic tables.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    add_completion=False,
    pretty_exceptions_enable=False,  # its tracebacks show local variables, which may hold data
)
ledger_app = typer.Typer(
    help="Look at what was released, and see that nobody changed the record.", no_args_is_help=True
)
app.add_typer(ledger_app, name="ledger")
app.command("init")(init)
app.command("forecast")(forecast)
app.command("glm")(glm)
app.command("audit")(audit)
register_network_commands(app)

DataFolder = Annotated[
    Path, typer.Option("--data", help="Folder with one <party>.csv or <party>.parquet each.", show_default=False)
]


def main() -> None:
    """Entry point: errors in one place, in words, and without any cell of anybody's data."""
    console = Console(stderr=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotPrivateWarning)  # the summary says it first
            warnings.simplefilter("ignore", AlignedWarning)  # and this
            warnings.simplefilter("ignore", WeakPrivacyWarning)  # and this
            app()
    except VerticopulaError as error:
        console.print(Text.assemble(("error: ", "bold red"), readable(str(error))))
        sys.exit(1)
    except KeyboardInterrupt:
        console.print("interrupted; what the ledger says was released stays released")
        sys.exit(130)
    except BrokenPipeError:  # whoever read the output has gone, as in `verticopula ledger show study | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else type(error).__name__
        where = f"{error.filename}: " if isinstance(error.filename, str) else ""
        console.print(Text.assemble(("error: ", "bold red"), readable(f"{where}cannot be read or written ({why})")))
        sys.exit(1)
    except Exception as error:
        # A message from below may quote data, so only its kind is shown.
        console.print(Text.assemble(("internal error: ", "bold red"), f"{type(error).__name__}. "), end="")
        console.print("This is a defect; please report it with the command you ran, not with your data.")
        sys.exit(70)


@app.callback(invoke_without_command=True)
def _root(
    show_version: Annotated[bool, typer.Option("--version", help="Show the version and stop.")] = False,
) -> None:
    if show_version:
        print(version("verticopula"))
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Where to write.")] = Path("verticopula-demo"),
    subjects: Annotated[
        int, typer.Option(help="Number of simulated enterprises (the paper's study has 71827).")
    ] = 20_000,
    method: Method = REFINED.name,
    epsilon: Epsilon = 4.0,
    delta: Delta = None,
    unit: UnitName = None,
    as_printed: AsPrinted = False,
    rank_correlation: RankCorrelationName = DEFAULT_RANK_CORRELATION,
    seed: Seed = None,
    quiet: Quiet = False,
) -> None:
    """A five-party study on a built-in federation with blocks missing at random: inputs, tables, ledger, regression."""
    from verticopula.cli.builtin_demo import compare_with_truth
    from verticopula.data.input_files import write_inputs
    from verticopula.datasets import make_sme
    from verticopula.estimators.synthesizer import Synthesizer
    from verticopula.report.report_data import ReportData, read_real
    from verticopula.report.report_page import write_report
    from verticopula.study.study_folder import LEDGER_FILE, REGRESSION_FOLDER, prepare_folder, read_regression
    from verticopula.study.study_warnings import ALIGNED_ROWS

    study = make_sme(subjects)
    variant = variant_of(as_printed)
    synthesizer = Synthesizer(
        study.federation, method, epsilon, delta, unit, seed, variant=variant, rank_correlation=rank_correlation
    )
    synthesizer.check()
    prepare_folder(out, overwrite=True)
    write_inputs(study.federation, study.tables, out)
    with progress_bar(quiet) as progress:
        synthesizer.fit(study.tables, ledger=out / LEDGER_FILE, progress=progress)
    tables = synthesizer.sample()
    aligned = synthesizer.study_.gives_aligned_rows
    truth = "\n".join(compare_with_truth(study, synthesizer, tables))
    _finish(out, synthesizer, tables, quiet, f"\n{truth}\n", notes=(str(ALIGNED_ROWS),) if aligned else ())
    with progress_bar(quiet) as progress:
        regression = fit_and_write(tables, str(study.federation.response), out / REGRESSION_FOLDER, progress=progress)
    facts = read_regression(out)
    fitted, real = synthesizer.study_, read_real(study.federation, study.tables)
    reports = [
        write_report(out / REPORT_FILE, ReportData(fitted, regression=facts, aligned=aligned)),
        write_report(out / IN_HOUSE_FILE, ReportData(fitted, real, facts, aligned)),
    ]
    if not quiet:
        print(f"\n{regression}")
        print("Look at:   " + "\n           ".join(f"{path}" for path in reports))
        command = Path(sys.argv[0])  # as it was called: it need not be on the PATH
        inputs = f"{out}/federation.toml --data {out}/data"
        print(f"Try next:  {command} check {inputs}")
        print(f"           {command} run {inputs} --out my-study --epsilon 4 --method {REFINED.name}")
        print(f"           {command} glm {out} --bootstrap 20")


@app.command()
def run(
    federation: FederationFile,
    data: DataFolder,
    out: Annotated[Path, typer.Option("--out", help="Where to write the study.", show_default=False)],
    method: ChosenMethod = None,
    epsilon: Epsilon = None,
    delta: Delta = None,
    unit: UnitName = None,
    epsilon_ranks: Annotated[float | None, typer.Option(help="Instead of --epsilon: the ranks' part.")] = None,
    epsilon_marginals: Annotated[float | None, typer.Option(help="Instead of --epsilon: the marginals' part.")] = None,
    rows: Annotated[int | None, typer.Option("--rows", help="Synthetic rows. Default: as many as subjects.")] = None,
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
    from verticopula.forecasting.before_spending import expect_in_words, warn_before_spending
    from verticopula.report.report_data import ReportData
    from verticopula.report.report_page import write_report
    from verticopula.schema.federation import Federation
    from verticopula.storage.charged_ledger import ChargedLedger, open_accounts
    from verticopula.storage.ledger import Ledger
    from verticopula.study.study_folder import LEDGER_FILE, REGRESSION_FILE, REGRESSION_FOLDER, new_folder
    from verticopula.study.study_warnings import ALIGNED_ROWS

    whole = whole_epsilon(epsilon, epsilon_ranks, epsilon_marginals)
    if rows is not None and rows < 1:
        raise SettingsError("--rows must be at least 1")
    study = Federation.from_toml(federation)
    console = Console(stderr=True, quiet=quiet)
    if aligned and method is None:
        raise SettingsError(
            "--aligned needs a --method: of the method that is taken otherwise rows may belong to nobody"
        )
    raw = _read_tables(study, data)
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
    )
    tables = align_tables(study, raw, need_overlap=synthesizer.needs_overlap)
    _show_notes(console, tables)
    rules = _read_policies(study, policies)
    aligned = aligned or synthesizer.check().gives_aligned_rows
    if aligned:  # before anything is spent
        synthesizer.check_aligned(rows, next(iter(tables.values())).observed().shape[0])
    kept = vault or (default_vault() if policies is not None else None)
    if kept is not None and kept.resolve() == out.resolve():
        raise SettingsError("--vault and --out need folders of their own")
    with new_folder(out, overwrite=overwrite), ExitStack() as opened, _saying_what_was_charged(out / LEDGER_FILE):
        charged = None if kept is None else opened.enter_context(_open_vault(kept))
        accounts = None if charged is None else open_accounts(charged, study, raw, study.id)
        if charged is not None and accounts is not None and policies is not None:
            _remember_policies(charged, accounts, rules, policies, drop_rule or [])
        book = Ledger(out / LEDGER_FILE)
        counted = book if charged is None else ChargedLedger(charged.ledger, book)
        if not quiet:
            settings = synthesizer.check()
            found = warn_before_spending(study, settings, tables, policies=rules, spent=counted, accounts=accounts)
            _show_warnings(console, found)
            console.print(Text(expect_in_words(study, settings, tables)), soft_wrap=True)
        with progress_bar(quiet) as progress:
            synthesizer.fit_aligned(
                tables, policies=rules, ledger=book, vault=charged, accounts=accounts, progress=progress
            )
        notes = (str(ALIGNED_ROWS),) if aligned else ()
        synthetic = synthesizer.sample(rows, aligned=aligned)
        _finish(out, synthesizer, synthetic, quiet, notes=notes)
        for stale in (out / REGRESSION_FOLDER / REGRESSION_FILE, out / IN_HOUSE_FILE):  # an earlier study's
            stale.unlink(missing_ok=True)
        facts = None if aligned else fit_if_cheap(synthesizer.study_, synthetic)
        written = [write_report(out / REPORT_FILE, ReportData(synthesizer.study_, regression=facts, aligned=aligned))]
        if in_house:
            written.append(write_report(out / IN_HOUSE_FILE, ReportData(synthesizer.study_, tables, facts, aligned)))
    if not quiet:
        for path in written:
            print(f"  {path}")
        if kept is not None:
            print(f"Charged, for all runs about these people, in {kept}")


@app.command()
def check(
    federation: FederationFile,
    data: Annotated[
        Path | None, typer.Option("--data", help="Folder with the parties' tables.", show_default=False)
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
    quiet: Quiet = False,
) -> None:
    """Everything that is wrong with a study, open or unwise, all at once, before any budget is spent."""
    from verticopula.data.tables import align_tables
    from verticopula.estimators.synthesizer import Synthesizer
    from verticopula.forecasting.before_spending import choose_method, expect_in_words, warn_before_spending
    from verticopula.schema.federation import Federation

    problems: list[Problem] = []
    study = _collect(problems, lambda: Federation.from_toml(federation))
    aligned: dict[str, AlignedTable] | None = None
    found: list[StudyWarning] = []
    said = ""
    if study is not None:
        known = study
        rules = _collect(problems, lambda: _read_policies(known, policies))
        raw = None if data is None else _collect(problems, lambda: _read_tables(known, data))
        aligned = None if raw is None else _collect(problems, lambda: align_tables(known, raw, need_overlap=False))
        chosen = method or (DEFAULT_METHOD if aligned is None else choose_method(aligned, as_printed=as_printed)).name
        whole = 1.0 if epsilon is None else epsilon
        synthesizer = Synthesizer(known, chosen, whole, delta, unit, sampler=sampler, variant=variant_of(as_printed))
        settings = _collect(problems, synthesizer.check)
        if raw is not None and aligned is not None and settings is not None:
            if settings.record.needs_overlap:
                _collect(problems, lambda: align_tables(known, raw, need_overlap=True))
            if not problems and rules is not None:
                spent, accounts = _spent(vault, policies, known, raw)
                found = warn_before_spending(known, settings, aligned, policies=rules, spent=spent, accounts=accounts)
                said = "" if quiet else f"Method {chosen}. {expect_in_words(known, settings, aligned)}"
    if problems:
        _show_problems(problems)
        raise typer.Exit(1)
    if study is not None and not quiet:
        _show_check(study, aligned)
        console = Console()
        _show_warnings(console, found)
        if said:
            console.print(Text(said), soft_wrap=True)


@app.command()
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
            "--out", help=f"Default: DIR/{REPORT_FILE}; with --data, DIR/{IN_HOUSE_FILE}.", show_default=False
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


@ledger_app.command("show")
def ledger_show(
    folder: Annotated[Path, typer.Argument(help="A study's folder, a party's vault, or a ledger file.")],
    delta: Annotated[float, typer.Option(help="The delta at which block and person are counted.")] = DEFAULT_DELTA,
) -> None:
    """Every release, and what all of them together cost at every unit."""
    from verticopula.privacy.statement import format_price, state_privacy
    from verticopula.storage.ledger import read_ledger

    entries = read_ledger(_ledger_path(folder))
    console = Console()
    for study in dict.fromkeys(e.study for e in entries):
        own = [e for e in entries if e.study == study]
        tables = [f"table {table}" for table in dict.fromkeys(_short_table(e) for e in own) if table]
        marks = ", ".join([*sorted({f"{e.noise} noise, {e.bounds} bounds" for e in own}), *tables])
        console.print(Text(readable(f"{study}, {own[0].time} ({marks})"), style="bold"), soft_wrap=True)
        table = Table("party.column", "what", "subjects", "epsilon")
        for e in own:
            cells = (f"{e.party}.{e.column}", e.what, f"{e.n_subjects:,}", format_price(e))
            table.add_row(*(Text(readable(cell)) for cell in cells))
        console.print(table)
    print("\n".join(state_privacy(entries, delta).lines()))


@ledger_app.command("verify")
def ledger_verify(
    folder: Annotated[Path, typer.Argument(help="A study's folder, a party's vault, or a ledger file.")],
) -> None:
    """See that no entry was changed, removed from the middle or put in another order; in a vault, nor from the end."""
    from verticopula.storage.ledger import read_ledger
    from verticopula.storage.vault import inspect_vault, is_vault

    if is_vault(folder):
        entries, replies = inspect_vault(folder)
        print(f"{entries} entries, chain intact and complete; {replies} stored replies, all whole and recorded")
        return
    print(f"{len(read_ledger(_ledger_path(folder)))} entries, chain intact")


# ---- helpers -----------------------------------------------------------------------------


def _show_problems(problems: list[Problem]) -> None:
    """What is wrong, and apart from it what is not answered yet."""
    console = Console(stderr=True)
    wrong = [problem for problem in problems if not problem.is_open]
    asked = [problem for problem in problems if problem.is_open]
    if wrong:
        console.print(Text(f"{len(wrong)} problem(s) found; nothing was spent", style="bold red"))
    for problem in wrong:
        console.print(Text(f"  - {readable(str(problem))}"))
    if asked:
        head = f"{count_of(len(asked), 'question is', 'questions are')} still open in the federation file"
        console.print(Text(f"{head}; nothing was spent", style="bold"))
    for problem in asked:
        console.print(Text(f"  ? {readable(str(problem))}"))


def _collect(problems: list[Problem], action: Callable[[], Found]) -> Found | None:
    """The action's result; if it fails, its problems are added to the list instead."""
    try:
        return action()
    except SchemaError as error:
        problems += error.problems
    except SettingsError as error:
        problems.append(Problem("settings", str(error)))
    return None


def _short_table(entry: Release) -> str:
    """The beginnings of a table's names."""
    return "+".join(name[:6] for name in entry.table.split("+"))


def _ledger_path(folder: Path) -> Path:
    from verticopula.study.study_folder import LEDGER_FILE

    path = folder / LEDGER_FILE if folder.is_dir() else folder
    if not path.is_file():
        raise SettingsError(f"no ledger at {path}")
    return path


def _read_tables(study: Federation, data: Path) -> dict[str, pl.DataFrame]:
    from verticopula.data.table_files import read_tables

    if not data.is_dir():
        raise SettingsError(f"--data {data}: no such folder")
    return read_tables(study, data)


def _method_for(study: Federation, raw: dict[str, pl.DataFrame], console: Console, *, as_printed: bool) -> str:
    """The method where nobody named one, and a word about it."""
    from verticopula.data.tables import align_tables
    from verticopula.forecasting.before_spending import choose_method

    chosen = choose_method(align_tables(study, raw, need_overlap=False), as_printed=as_printed)
    console.print(Text(f"Method {chosen.name} ({chosen.help}); --method chooses another."), soft_wrap=True)
    return chosen.name


def _spent(
    vault: Path | None, policies: Path | None, study: Federation, raw: dict[str, pl.DataFrame]
) -> tuple[list[Release], dict[str, TableAccount] | None]:
    """What a vault holds about these people, without telling it about them; nothing where there is no vault yet."""
    from verticopula.storage.charged_ledger import open_accounts
    from verticopula.storage.vault import is_vault

    folder = vault or (default_vault() if policies is not None else None)
    if folder is None or not is_vault(folder):
        return [], None
    with _open_vault(folder) as known:
        return list(known.ledger), open_accounts(known, study, raw, study.id, remember=False)


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
                f"{cost.delta:g}. They stay charged: a new run in this folder adds to them, and shows the sum."
            )
        Console(stderr=True).print(Text(said), soft_wrap=True)
        sys.exit(130)


def _show_warnings(console: Console, found: list[StudyWarning]) -> None:
    """What somebody should know before spending; it may rest on cells, so it is shown here and written nowhere."""
    for warning in found:
        style = "bold red" if warning.level == "stop" else "yellow" if warning.level == "care" else ""
        console.print(Text(f"! {readable(str(warning))}", style=style), soft_wrap=True)


def default_vault() -> Path:
    """Where `run` keeps what was spent, unless it is told otherwise: one vault, which knows tables by their people."""
    given = Path(os.environ.get("XDG_DATA_HOME", ""))
    try:
        base = given if given.is_absolute() else Path.home() / ".local" / "share"
    except RuntimeError:
        raise SettingsError("there is no home folder to keep what was spent in; give --vault") from None
    return base / "verticopula" / "vaults" / "runs"


def _open_vault(folder: Path) -> Vault:
    from verticopula.storage.vault import Vault

    try:
        return Vault.open(folder)
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else type(error).__name__
        raise SettingsError(f"the vault {folder} cannot be used ({why}); choose another with --vault") from None


def _read_policies(study: Federation, folder: Path | None) -> dict[str, Policy]:
    from verticopula.privacy.policy import Policy

    if folder is None:
        return {}
    if not folder.is_dir():
        raise SettingsError(f"--policies {folder}: no such folder")
    names = {party.name for party in study.parties}
    strangers = sorted(p.name for p in folder.glob("*.toml") if p.stem not in names)
    if strangers:
        raise SettingsError(f"--policies {folder}: {', '.join(strangers)} belong to no party of this federation")
    return {name: Policy.from_toml(folder / f"{name}.toml") for name in names if (folder / f"{name}.toml").is_file()}


def _remember_policies(
    vault: Vault, accounts: dict[str, TableAccount], rules: dict[str, Policy], folder: Path, dropped: list[str]
) -> None:
    """SettingsError if a party's file has lost rules that the vault remembers, unless they are given up by name."""
    from verticopula.privacy.policy_file import has_end, remember_rules

    if strangers := [name for name in dropped if name.partition(".")[0] not in accounts]:
        raise SettingsError(f"--drop-rule {strangers[0]}: it begins with the name of no party of this federation")
    for name, account in accounts.items():
        own = [rule.removeprefix(f"{name}.") for rule in dropped if rule.startswith(f"{name}.")]
        found = rules[name].rules() if name in rules else {}
        file, met = folder / f"{name}.toml", account.overlapping
        is_whole = not file.is_file() or has_end(file.read_text("utf-8"))
        remember_rules(
            vault.studies, account.table, found, str(file), own, f"{name}.", is_whole=is_whole, overlapping=met
        )


def _finish(
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


def _show_check(study: Federation, aligned: dict[str, AlignedTable] | None) -> None:
    console = Console()
    console.print(Text(f"No problems found; nothing was spent. {study}"), soft_wrap=True)
    if study.bounds_source == "from-data":
        console.print(
            Text("! Bounds or categories were taken from the data: epsilon will be infinite.", style="bold red")
        )
    if aligned is None:
        console.print("Tables were not checked: give --data DIR.")
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
    _show_notes(console, aligned)


def _show_notes(console: Console, tables: dict[str, AlignedTable]) -> None:
    """What the tables' holder should know about single cells; it is shown here and written nowhere."""
    for note in (note for table in tables.values() for note in table.notes()):
        console.print(Text(f"note: {readable(str(note))}"), soft_wrap=True)
