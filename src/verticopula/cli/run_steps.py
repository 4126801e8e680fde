"""The steps of `verticopula run`: which rows are wanted, what is checked before anything is spent, fit and files."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.text import Text

from verticopula.cli.screen_output import show_warnings, write_and_show
from verticopula.cli.shared_options import progress_bar
from verticopula.cli.study_inputs import EngineOptions, leave_out_people, open_vault
from verticopula.data.tables import AlignedTable, RawTable
from verticopula.engine.chunk_engine import ChunkEngine
from verticopula.engine.dask_engine import DaskEngine
from verticopula.errors import SettingsError
from verticopula.estimators.default_regression import fit_if_cheap
from verticopula.estimators.engine_tables import check_for_engine
from verticopula.estimators.synthesizer import Synthesizer
from verticopula.forecasting.preflight_checks import describe_expectation, use_of_caps, warn_before_spending
from verticopula.privacy.policy import Policy
from verticopula.report.report_data import ReportData
from verticopula.report.report_page import write_report
from verticopula.schema.conditions import ALIGNED_EXCLUDES, describe_conditions, parse_conditions, read_conditions
from verticopula.schema.defaults import IN_HOUSE_FILE, REPORT_FILE
from verticopula.schema.federation import Federation
from verticopula.schema.study_settings import StudySettings
from verticopula.storage.charged_ledger import ChargedLedger, open_accounts, remember_policies
from verticopula.storage.known_tables import TableAccount
from verticopula.storage.ledger import Ledger
from verticopula.storage.vault import Vault
from verticopula.study.missing_values import check_missing
from verticopula.study.study_folder import LEDGER_FILE, REGRESSION_FILE, REGRESSION_FOLDER, check_folder
from verticopula.study.study_warnings import ALIGNED_ROWS
from verticopula.study.synthetic_tables import SyntheticTables


@dataclass(frozen=True)
class WantedRows:
    """Which synthetic rows are wanted.

    Attributes
    ----------
    count : how many; None for as many as subjects
    texts : conditions on columns, as they were written
    missing : which values are missing
    aligned : whether row i follows subject i
    """

    count: int | None
    texts: tuple[str, ...]
    missing: str | None
    aligned: bool

    @property
    def conditions(self) -> dict[str, str]:
        return parse_conditions(self.texts)

    def check(self, study: Federation) -> None:
        """SettingsError where nobody can draw such rows; before anything is spent."""
        if self.count is not None and self.count < 1:
            raise SettingsError("--rows must be at least 1")
        read_conditions(study, self.conditions)
        check_missing(self.missing)
        if self.aligned and (self.conditions or self.missing is not None):
            raise SettingsError(ALIGNED_EXCLUDES)

    def of_method(self, synthesizer: Synthesizer, tables: Mapping[str, AlignedTable]) -> WantedRows:
        """The same, aligned also where the method gives no others; SettingsError where that cannot be."""
        plain = not self.conditions and self.missing is None
        aligned = self.aligned or (synthesizer.check().gives_aligned_rows and plain)
        if aligned:  # before anything is spent
            synthesizer.check_aligned(self.count, next(iter(tables.values())).observed().shape[0])
        return replace(self, aligned=aligned)

    def draw(self, synthesizer: Synthesizer) -> SyntheticTables:
        return synthesizer.sample(self.count, aligned=self.aligned, conditions=self.conditions, missing=self.missing)

    def notes(self, synthesizer: Synthesizer) -> tuple[str, ...]:
        """What readers of the rows have to know."""
        notes: tuple[str, ...] = (str(ALIGNED_ROWS),) if self.aligned else ()
        if self.texts:
            notes += (describe_conditions(self.texts),)
        return notes if synthesizer.kept_ is None else (*notes, str(synthesizer.kept_))


@dataclass(frozen=True)
class RunInputs:
    """What a run is about.

    Attributes
    ----------
    raw, tables : the parties' tables as they were read, and in cohort order
    rules : party -> its policy
    """

    study: Federation
    raw: Mapping[str, RawTable]
    tables: Mapping[str, AlignedTable]
    rules: Mapping[str, Policy]


@dataclass(frozen=True)
class RunBooks:
    """Where a run is written down before anything is drawn.

    Attributes
    ----------
    own : the study's ledger
    counted : what caps are counted on
    vault, accounts : everything spent on these people, and whose budget is charged; None without a vault
    """

    own: Ledger
    counted: Ledger | ChargedLedger
    vault: Vault | None
    accounts: dict[str, TableAccount] | None


def read_people(
    study: Federation, raw: Mapping[str, RawTable], vault: Path | None, console: Console
) -> Mapping[str, RawTable]:
    """The tables without those who withdrew, and a word about how many."""
    known, left_out = leave_out_people(study, raw, vault)
    if left_out:
        console.print(Text(left_out), soft_wrap=True)
    return known


def open_engine(engine: EngineOptions, asked: StudySettings, *, in_house: bool) -> ChunkEngine | None:
    """The engine of a run, once it is certain that it can do all of it; None for this process.

    Parameters
    ----------
    engine : as its options have it
    asked : the settings
    in_house : whether a page with exact figures is wanted
    """
    address = engine.address()
    if address is None:
        return None
    check_for_engine(asked)
    if in_house:
        raise SettingsError("--engine: --in-house compares with the real tables, which stay on the engine")
    return DaskEngine(address)


def say_defaults(asked: StudySettings, *, method: bool, epsilon: bool, console: Console) -> None:
    """A word about the method and the epsilon that are taken where none was given.

    Parameters
    ----------
    method, epsilon : whether it was given
    """
    if not method:
        said = f"Method {asked.method} ({asked.record.help}); --method chooses another."
        console.print(Text(said), soft_wrap=True)
    if not epsilon and asked.epsilon is not None:
        at = f" at delta = {asked.delta:g}" if asked.delta is not None else ""
        said = f"Epsilon {asked.epsilon:g} per {asked.unit}{at}, as none was given; --epsilon chooses another."
        console.print(Text(said), soft_wrap=True)


def check_places(out: Path, vault: Path | None, *, overwrite: bool) -> None:
    """SettingsError where a run may not write; before anything is spent."""
    if vault is not None and vault.resolve() == out.resolve():
        raise SettingsError("--vault and --out need folders of their own")
    check_folder(out, overwrite=overwrite)


def say_what_stays(out: Path, console: Console) -> None:
    """A word about files in the folder that are not a study's."""
    if out.is_dir() and any(file.name != LEDGER_FILE for file in out.iterdir()):
        console.print(Text(f"{out} holds other files, which stay as they are."), soft_wrap=True)


def open_books(
    inputs: RunInputs, out: Path, vault: Path | None, policies: Path | None, dropped: list[str], opened: ExitStack
) -> RunBooks:
    """The study's ledger and, with a vault, the one of all runs; the vault remembers the policies' rules.

    Parameters
    ----------
    policies : the folder with the parties' policy files
    dropped : rules that are given up
    opened : closes the vault
    """
    own = Ledger(out / LEDGER_FILE)
    if vault is None:
        return RunBooks(own, own, None, None)
    kept = opened.enter_context(open_vault(vault))
    accounts = open_accounts(kept, inputs.study, inputs.raw, inputs.study.id)
    remember_policies(kept, accounts, inputs.rules, policies, dropped)
    return RunBooks(own, ChargedLedger(kept.ledger, own), kept, accounts)


def say_what_to_expect(inputs: RunInputs, books: RunBooks, synthesizer: Synthesizer, console: Console) -> None:
    """What speaks against the study as it is asked for, and how well it will do."""
    study, tables, settings = inputs.study, inputs.tables, synthesizer.check()
    found = warn_before_spending(
        study, settings, tables, policies=inputs.rules, spent=books.counted, accounts=books.accounts
    )
    show_warnings(console, found)
    console.print(Text(describe_expectation(study, settings, tables)), soft_wrap=True)


def charge_and_fit(inputs: RunInputs, books: RunBooks, synthesizer: Synthesizer, *, quiet: bool) -> None:
    """Charge the study, and fit it."""
    with progress_bar(quiet) as progress:
        synthesizer.fit_aligned(
            inputs.tables,
            policies=inputs.rules,
            ledger=books.own,
            vault=books.vault,
            accounts=books.accounts,
            progress=progress,
        )


def write_results(
    out: Path,
    inputs: RunInputs,
    books: RunBooks,
    synthesizer: Synthesizer,
    wanted: WantedRows,
    *,
    in_house: bool,
    quiet: bool,
) -> list[Path]:
    """Draw the rows, write everything into the study's folder, and return where its pages are."""
    synthetic = wanted.draw(synthesizer)
    write_and_show(out, synthesizer, synthetic, quiet, notes=wanted.notes(synthesizer))
    for stale in (out / REGRESSION_FOLDER / REGRESSION_FILE, out / IN_HOUSE_FILE):  # an earlier study's
        stale.unlink(missing_ok=True)
    study, aligned = synthesizer.study_, wanted.aligned
    facts = None if aligned or wanted.texts else fit_if_cheap(study, synthetic)
    written = [write_report(out / REPORT_FILE, ReportData(study, regression=facts, aligned=aligned))]
    if in_house:
        caps = use_of_caps(inputs.rules, books.counted, books.accounts)
        own = ReportData(study, inputs.tables, facts, aligned, caps=caps)
        written.append(write_report(out / IN_HOUSE_FILE, own))
    return written
