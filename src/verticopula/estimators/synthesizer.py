"""The front door: fit on tables, get complete synthetic tables, in the manner of scikit-learn and SDV."""

from __future__ import annotations

import copy
import secrets
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from verticopula.data.large_tables import open_table
from verticopula.data.missingness import Missingness
from verticopula.data.scratch_file import ROWS_IN_MEMORY
from verticopula.data.tables import AlignedTable, RawTable, align_tables
from verticopula.engine.chunk_engine import ChunkEngine
from verticopula.engine.dask_engine import DaskEngine
from verticopula.engine.engine_address import LOCAL_ENGINE, parse_engine
from verticopula.errors import CellsWarning, SettingsError, VerticopulaError
from verticopula.estimators.engine_tables import check_for_engine, open_on_engine
from verticopula.estimators.row_sampler import RowSampler, check_aligned_rows, check_at_least_one, warn_of
from verticopula.mpc.sealed_messages import Authenticity
from verticopula.notebook import box, live_progress, text_html
from verticopula.privacy.budget import StudyBudget
from verticopula.privacy.noise import Noise, SecureNoise, SeededNoise, server_generator
from verticopula.privacy.policy import Policy
from verticopula.privacy.release import Release
from verticopula.privacy.statement import PrivacyStatement
from verticopula.protocol.coordinator_side import own_handler
from verticopula.protocol.secure_sums import ComputeHandler
from verticopula.protocol.study_lifecycle import BegunStudy, LedgerHead
from verticopula.protocol.study_rounds import study_rounds
from verticopula.schema.columns import ColumnKey
from verticopula.schema.defaults import DEFAULT_ROUNDS
from verticopula.schema.dependence import DEFAULT_DEPENDENCE
from verticopula.schema.federation import Federation, IdRule, seeded_study_name
from verticopula.schema.frames import backend_of, to_polars
from verticopula.schema.methods import DEFAULT_METHOD, OWN_VARIANT
from verticopula.schema.printed_choices import DEFAULT_RANK_CORRELATION
from verticopula.schema.progress import Progress, show_nothing
from verticopula.schema.setting_choices import EXACT_SAMPLER, Alignment
from verticopula.schema.study_settings import StudySettings, check_roles
from verticopula.simulate.in_process import run_in_process
from verticopula.stats.fit_result import FitResult
from verticopula.storage.charged_ledger import ChargedLedger, leave_out_withdrawn, open_accounts, remember_policies
from verticopula.storage.known_tables import TableAccount
from verticopula.storage.ledger import Ledger
from verticopula.storage.record_store import RecordStore
from verticopula.storage.vault import Vault
from verticopula.study.fitted_study import FittedStudy
from verticopula.study.saved_study import load_study, save_study
from verticopula.study.study_box import study_html
from verticopula.study.study_pricing import name_sampler, price_study
from verticopula.study.study_warnings import find_warnings
from verticopula.study.synthetic_tables import SyntheticTables, decode_tables
from verticopula.study.text_summary import margins_table, summarise_study
from verticopula.transport.delivery import Transport, drive

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


_NO_SETTINGS = ("federation", "engine", "engine_without_tls")  # a study is the same wherever it is computed


class ReportableRegression(Protocol):
    """A fitted regression, such as `VerticalGLM`, that can say what a report shows of it."""

    def to_dict(self, confidence: float) -> dict[str, Any]:
        """What a report shows of it, as plain values.

        Parameters
        ----------
        confidence : of the intervals
        """
        ...


class StudyNotFittedError(VerticopulaError, NotFittedError):  # type: ignore[misc]
    """Something was asked of a synthesizer that only a fitted one knows.

    *What to do:* call `fit` first, or load a saved study.
    """


class Synthesizer(BaseEstimator):  # type: ignore[misc]
    """Complete synthetic tables from a vertical federation.

    Parameters
    ----------
    federation : who holds which column
    method : None for `strict`, which protects a person: no ranks, but sums that nobody sees without noise; of two
        parties it needs a third that computes, `Federation(..., network={"compute": "NAME"})`. Others of
        `verticopula.METHODS` release ranks, and a person's epsilon is far larger than what they are given: `vcds` (data
        complete or missing completely at random), `refined` (missing at random, at the same cost), `evcds` and `ievcds`
        (the paper's, for comparison: they correct little or in part)
    epsilon : `unit` says what it bounds; None for 3 by `strict` and 1 by others, or where its parts are given. Half
        goes to ranks, half to marginals; `strict` splits it
    delta : of units `block` and `person`; None for 1e-6
    unit : `variable`, `client`, `block` or `person`; by default `person` for `strict`, `client` otherwise
    epsilon_ranks, epsilon_marginals : in place of `epsilon`, the two parts
    sampler : `exact` flips every comparison; `binomial` is O(n) and costs twice the coins; `auto` is exact up to
        3e11 comparisons in all, about a minute of one core, then binomial. The fitted study says which it was
    rounds : how often `ievcds` ranks; other methods rank once
    per_round : `ievcds` spends the ranks' epsilon in every round instead of splitting it over them
    random_state : a seed, or None; a seed makes everything reproducible and **not private**. No Generator: each party's
        noise is derived from the seed and the party's name, so that the order of parties does not matter
    variant : `verticopula` for our variants; `as-printed` runs the paper's Algorithms 1 to 3 as they stand, for `vcds`,
        `evcds` and `ievcds`. That sends ranges of the data: epsilon is infinite, and a warning says so
    rank_correlation : which one `as-printed` computes correlations from: `kendall` or `spearman`
    dependence : of methods that rank: `copula`, or `tilted` by tables of pairs that the same ranks tell, at no cost
    engine : where `fit` reads tables and ranks columns: `local` is this process. `tls://host:port` is the scheduler of
        your own Dask cluster, `dask://127.0.0.1:port` of one on this machine. Its workers read Parquet files, and no
        value comes to this process. The numbers are the same
    engine_without_tls : allows `dask://` to other machines, where rows and keys travel in the clear

    Attributes
    ----------
    correlation_ : pandas DataFrame (polars has no names of rows) of latent correlations labelled `party.column`, or
        `party.column=category` for each category of a nominal column
    ledger_ : tuple of every release in the study's ledger, also of earlier studies: what was spent stays spent
    privacy_ : epsilon at every unit
    missingness_ : who is observed where
    margins_ : polars DataFrame of every column's observed and corrected distribution function
    n_subjects_ : size of the cohort
    result_ : the fitted copula and how it came about, a `FitResult`
    settings_ : the settings that it was fitted with, as plain values
    study_ : all of it as one record, a `FittedStudy`
    kept_ : of the last `sample`, `draw` or `write_sample`: how many rows were drawn again or moved to keep the parties'
        constraints; None without any
    begun_ : after `fit_transport`, what the parties said when the study began; None otherwise

    Notes
    -----
    Parameters are stored as given, and checked by `fit` or `check`. Before `fit`, results raise `NotFittedError`;
    `study_` and `begun_` are not there.
    """

    def __init__(
        self,
        federation: Federation,
        method: str | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        unit: str | None = None,
        random_state: int | None = None,
        *,
        epsilon_ranks: float | None = None,
        epsilon_marginals: float | None = None,
        sampler: str = EXACT_SAMPLER,
        rounds: int = DEFAULT_ROUNDS,
        per_round: bool = False,
        variant: str = OWN_VARIANT,
        rank_correlation: str = DEFAULT_RANK_CORRELATION,
        dependence: str = DEFAULT_DEPENDENCE,
        engine: str = LOCAL_ENGINE,
        engine_without_tls: bool = False,
    ) -> None:
        self.federation = federation
        self.method = method
        self.epsilon = epsilon
        self.delta = delta
        self.unit = unit
        self.random_state = random_state
        self.epsilon_ranks = epsilon_ranks
        self.epsilon_marginals = epsilon_marginals
        self.sampler = sampler
        self.rounds = rounds
        self.per_round = per_round
        self.variant = variant
        self.rank_correlation = rank_correlation
        self.dependence = dependence
        self.engine = engine
        self.engine_without_tls = engine_without_tls

    @classmethod
    def from_settings(cls, federation: Federation, settings: StudySettings) -> Synthesizer:
        """An unfitted synthesizer with these settings.

        Parameters
        ----------
        federation : who holds which column
        settings : what is asked for
        """
        return cls(federation, **settings.to_arguments())

    # ---- settings ------------------------------------------------------------------------

    def check(self) -> StudySettings:
        """The settings with all defaults filled in; SettingsError says what makes no sense. Spends nothing."""
        settings = self._filled_settings()
        check_roles(self.federation, settings.record)
        return settings

    def _filled_settings(self) -> StudySettings:
        """The same, also of a study by an earlier version, in which nobody had to name a third that computes."""
        if not isinstance(self.federation, Federation):
            raise SettingsError(f"federation must be a Federation, not {type(self.federation).__name__}")
        given = {name: value for name, value in self.get_params(deep=False).items() if name not in _NO_SETTINGS}
        if self.method is None:
            given["method"] = DEFAULT_METHOD.name
        settings = StudySettings.from_dict(given).checked(self.federation)
        StudyBudget.of(self.federation, settings)
        return settings

    @property
    def settings_(self) -> dict[str, Any]:
        """The settings that it was fitted with, as plain values."""
        return self._fitted().settings.to_dict()

    @property
    def budget(self) -> StudyBudget:
        """What the settings allow to be spent."""
        return StudyBudget.of(self.federation, self._filled_settings())

    @property
    def needs_overlap(self) -> bool:
        """Whether two columns without common subjects are an error."""
        return self._filled_settings().record.needs_overlap

    # ---- fitting -------------------------------------------------------------------------

    def fit(
        self,
        tables: Mapping[str, Any],
        *,
        id: str | None = None,
        policies: Mapping[str, Policy] | None = None,
        ledger: str | Path | Ledger | None = None,
        vault: str | Path | Vault | None = None,
        progress: Progress | None = None,
        rows_at_once: int = ROWS_IN_MEMORY,
    ) -> Synthesizer:
        """This synthesizer, fitted on one table per party in this process.

        Parameters
        ----------
        tables : party name -> pandas or polars DataFrame, or the path of a file; a subject absent from a party's table
            is a missing block. Of Parquet and Arrow files one column at a time is read, and large CSV files in parts
        id : name of the subject-id column, if it differs from the federation's
        policies : party name -> what that party allows; none means no limits
        ledger : where releases are recorded; a file also counts what earlier studies spent
        vault : a folder where caps are kept over all studies about the same people, whatever their ledgers are; none
            means that caps count what is in `ledger`. Rules that it remembers must be among `policies`. People who
            withdrew, as it knows, are left out of all tables
        progress : called with (what, done, total); None shows a bar in notebooks, and nothing elsewhere
        rows_at_once : tables with more rows are not held: their columns lie in a file without a name where the system
            keeps temporary files (`TMPDIR`), and are read one at a time. The numbers are the same. With an engine, the
            rows that a worker works on
        """
        rows_at_once = check_at_least_one(rows_at_once, "rows_at_once")
        self.check()  # before a table is read
        rule = self.federation.id if id is None else IdRule(name=id, rules=self.federation.id.rules)
        with ExitStack() as opened:
            engine = self.open_engine()
            if engine is not None:
                opened.callback(engine.close)
            frames = self._open_tables(tables, engine, rows_at_once)
            if vault is not None:
                frames = leave_out_withdrawn(vault.folder if isinstance(vault, Vault) else Path(vault), frames, rule)
            aligned = self._align(frames, rule, rows_at_once)
            if vault is not None and not isinstance(vault, Vault):
                vault = opened.enter_context(Vault.open(vault))
            accounts = None
            if vault is not None:
                accounts = open_accounts(vault, self.federation, frames, rule, rows_at_once=rows_at_once)
            book = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
            self.fit_aligned(aligned, policies=policies, ledger=book, vault=vault, accounts=accounts, progress=progress)
        held = {name: table for name, table in tables.items() if not isinstance(table, str | Path)}
        self._backends = {name: backend_of(table) for name, table in held.items()}
        return self

    def open_engine(self) -> ChunkEngine | None:
        """The engine that `fit` would use, to be closed; None for this process. SettingsError where it cannot."""
        address = parse_engine(self.engine, without_tls=self.engine_without_tls)
        if address is None:
            return None
        check_for_engine(self.check())
        return DaskEngine(address)

    def _open_tables(self, tables: Mapping[str, Any], engine: ChunkEngine | None, rows_at_once: int) -> dict[str, Any]:
        if engine is not None:
            return dict(open_on_engine(engine, tables, rows_at_once))
        return {name: _open(table, name) for name, table in tables.items()}

    def _align(self, tables: Mapping[str, RawTable], rule: IdRule, rows_at_once: int) -> dict[str, AlignedTable]:
        """Checked and aligned tables, and a warning for every note about their cells."""
        overlap = self.needs_overlap
        aligned = align_tables(self.federation, tables, rule, need_overlap=overlap, rows_at_once=rows_at_once)
        for note in (note for table in aligned.values() for note in table.notes()):
            warnings.warn(str(note), CellsWarning, stacklevel=3)
        return aligned

    def fit_aligned(
        self,
        aligned: Mapping[str, AlignedTable],
        *,
        policies: Mapping[str, Policy] | None = None,
        ledger: str | Path | Ledger | None = None,
        vault: Vault | None = None,
        accounts: Mapping[str, TableAccount] | None = None,
        progress: Progress | None = None,
    ) -> Synthesizer:
        """The same on tables that are checked and aligned already.

        Parameters
        ----------
        aligned : party name -> its table, all of them over the same cohort
        policies, ledger, progress : as `fit` has them
        vault, accounts : an open vault, and what `open_accounts` found there
        """
        settings = self.check()
        if vault is not None:
            remember_policies(vault, accounts or {}, policies or {})
        book = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        # A seeded study has a fixed name, because the parties' streams are keyed by it.
        study = self._unused_name() if settings.is_private else seeded_study_name(self.federation)
        result = run_in_process(
            self.federation,
            settings,
            aligned,
            study=study,
            noise=self._noise,
            rng=server_generator(settings.seed, "fit"),
            ledger=book if vault is None else ChargedLedger(vault.ledger, book),
            policies=policies,
            accounts=accounts,
            progress=progress or live_progress(),
        )
        named = name_sampler(settings, self.federation, result)
        return self._adopt(FittedStudy(study, self.federation, named, result, tuple(book)), None)

    def fit_transport(
        self,
        transport: Transport,
        *,
        study: str | None = None,
        alignment: Alignment = "hash",
        witnesses: Mapping[str, LedgerHead] | None = None,
        requester: str = "",
        purpose: str = "",
        progress: Progress | None = None,
        compute_handler: ComputeHandler | None = None,
        server_seed: int | None = None,
    ) -> Synthesizer:
        """The same on tables that members hold, over any transport; the study begins first.

        `ledger_` is then what parties were asked for, at their prices.

        Parameters
        ----------
        transport : the way to the members
        study : its name; None for one that nobody used before
        alignment : how rows of one person are found: `hash` or `psi`
        witnesses : party -> the end of its ledger as `begun_` last showed it
        requester, purpose : who asks for the study and why, shown to every party's steward
        progress : called with (what, done, total)
        compute_handler : what `make_compute_handler` made, for a strict study of two parties
        server_seed : of the coordinator's own draws, which protect nobody; repeats them after a crash
        """
        name = study or self._unused_name()
        rounds = study_rounds(
            self.federation,
            self.check(),
            name,
            alignment=alignment,
            witnesses=witnesses,
            requester=requester,
            purpose=purpose,
            progress=progress or live_progress() or show_nothing,
            compute_handler=compute_handler,
            server_seed=server_seed,
        )
        begun, result = drive(rounds, transport)
        settings = name_sampler(self.check(), self.federation, result)
        return self._adopt(price_study(name, self.federation, settings, result), begun, server_seed)

    def make_compute_handler(self, records: RecordStore, authenticity: Authenticity) -> ComputeHandler | None:
        """The coordinator's own handler, for a strict study of two parties; None where it has no part in the sums.

        Parameters
        ----------
        records : where its secret and its noise are kept; over a network they must outlive the process
        authenticity : how parties know that a public key is the coordinator's
        """
        return own_handler(self.federation, self.check().method, self._noise, records, authenticity)

    def _adopt(self, fitted: FittedStudy, begun: BegunStudy | None, server_seed: int | None = None) -> Synthesizer:
        self.study_, self.begun_ = fitted, begun
        self._backends = dict[str, str]()
        self._rows = RowSampler(fitted, server_seed if fitted.settings.is_private else fitted.settings.seed)
        for warning in find_warnings(fitted):
            warn_of(warning, stacklevel=4)
        return self

    def _unused_name(self) -> str:
        return f"{self.federation.name}-{secrets.token_hex(8)}"

    def _noise(self, party: str) -> Noise:
        seed = self._filled_settings().seed
        if seed is None:
            return SecureNoise()
        return SeededNoise(seed, study=seeded_study_name(self.federation)).derive(party)

    # ---- results -------------------------------------------------------------------------

    def _fitted(self) -> FittedStudy:
        if not hasattr(self, "study_"):
            raise StudyNotFittedError(
                "this synthesizer is not fitted yet: call fit(...) first, or Synthesizer.load(...) for a saved study"
            )
        return self.study_

    def _sampler(self) -> RowSampler:
        self._fitted()
        return self._rows

    def __copy__(self) -> Synthesizer:
        """The same fit, whose samples do not depend on what is drawn from this one from now on."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        if hasattr(self, "_rows"):
            made._rows = copy.copy(self._rows)
        return made

    @property
    def result_(self) -> FitResult:
        return self._fitted().result

    @property
    def correlation_(self) -> pd.DataFrame:
        import pandas as pd  # only here: everything else works without it

        copula = self.result_.copula
        return pd.DataFrame(copula.correlation, index=list(copula.layout.labels), columns=list(copula.layout.labels))

    @property
    def ledger_(self) -> tuple[Release, ...]:
        return self._fitted().releases

    @property
    def privacy_(self) -> PrivacyStatement:
        return self._fitted().privacy

    @property
    def n_subjects_(self) -> int:
        return self.result_.n_subjects

    @property
    def missingness_(self) -> Missingness:
        return self.result_.missingness

    @property
    def margins_(self) -> pl.DataFrame:
        """Observed and corrected distribution function of every column at the upper end of its cells."""
        return margins_table(self.result_)

    def sample(
        self,
        n_rows: int | None = None,
        aligned: bool | None = None,
        *,
        num_rows: int | None = None,
        conditions: Mapping[str, Any] | None = None,
        missing: str | None = None,
    ) -> SyntheticTables:
        """Synthetic tables, one per party, rows belonging together across parties; no id column.

        Parameters
        ----------
        n_rows : any number; None for the size of the cohort; a multiple of it if aligned
        aligned : row i follows subject i of the cohort, where the method can: a noisy copy of that person's data,
            and a warning says so. None for what the algorithm gives out: the paper's Algorithms 2 and 3 as printed
            give aligned rows, everything else free ones
        num_rows : another name of `n_rows`, which SDV's users know
        conditions : `party.column` -> a value that all rows are to have there, or a pair (low, high), both included;
            the other columns are drawn given these
        missing : `complete` for tables without gaps; `as-observed` for blocks that are missing by the public patterns
            of who is known to whom, and single values as often as they are; None for what the method gives: empty
            values and no missing block by `strict`, no gaps by others

        Notes
        -----
        Every call draws afresh. With a seed, the k-th call after `fit` gives the same rows.
        """
        if n_rows is not None and num_rows is not None:
            raise SettingsError("give either n_rows or num_rows: they are the same")
        rows = num_rows if n_rows is None else n_rows
        tables = self.decode(self.draw(rows, aligned, conditions=conditions, missing=missing))
        if conditions:
            tables.study = None  # the errors of a part of the people are not those of the study
        return tables

    def draw(
        self,
        n_rows: int | None = None,
        aligned: bool | None = None,
        *,
        conditions: Mapping[str, Any] | None = None,
        missing: str | None = None,
    ) -> dict[ColumnKey, NDArray[np.float64]]:
        """What `sample` samples, as numbers: category codes where a column has categories.

        Parameters
        ----------
        n_rows, aligned, conditions, missing : as `sample` has them
        """
        drawn = self._sampler().draw(n_rows, aligned, conditions, missing)
        self.kept_ = self._sampler().kept
        return drawn

    def write_sample(
        self,
        folder: str | Path,
        n_rows: int | None = None,
        *,
        rows_at_once: int = ROWS_IN_MEMORY,
        conditions: Mapping[str, Any] | None = None,
        missing: str | None = None,
    ) -> list[Path]:
        """Write synthetic rows without holding them all: one folder `party.parquet` of Parquet files for each party.

        Returns the files. `read_table`, Polars and DuckDB read such a folder as one table. Rows belong together across
        parties and belong to nobody: they are never aligned.

        Parameters
        ----------
        folder : where to; files that an earlier call wrote are replaced
        n_rows, conditions, missing : as `sample` has them
        rows_at_once : rows of a file, and in memory. Without constraints and gaps, and where the model is one copula,
            rows are those of `sample`, whatever multiple of 65,536 it is

        Notes
        -----
        Counts as one sample: with a seed, the k-th sample after `fit` has the same rows again.
        """
        written = self._sampler().write(Path(folder), n_rows, rows_at_once, conditions, missing)
        self.kept_ = self._sampler().kept
        return written

    def decode(self, values: Mapping[ColumnKey, NDArray[np.float64]]) -> SyntheticTables:
        """Numbers that `draw` drew, as tables.

        Parameters
        ----------
        values : column -> its rows
        """
        return decode_tables(values, self.federation, self.result_, self._backends, self._fitted())

    def check_aligned(self, n_rows: int | None, n_subjects: int) -> None:
        """SettingsError if so many aligned rows of such a cohort cannot be had; can be asked before `fit`.

        Parameters
        ----------
        n_rows : None for the size of the cohort
        n_subjects : that size
        """
        method = (self.study_.settings if hasattr(self, "study_") else self._filled_settings()).record
        check_aligned_rows(method, n_rows, n_subjects)

    def summary(self) -> str:
        """A page of text: what was fitted, what it cost, what was repaired."""
        return summarise_study(self._fitted())

    def _repr_html_(self) -> str:
        if not hasattr(self, "study_"):
            return box([f"<b>{text_html(repr(self))}</b>", "Not fitted yet."], [], [])
        return study_html(self.study_)

    def report(
        self,
        path: str | Path,
        *,
        tables: Mapping[str, Any] | None = None,
        id: str | None = None,
        regression: ReportableRegression | None = None,
    ) -> Path:
        """Path of `report.html`: everything about the study on one page that opens without a network.

        Parameters
        ----------
        path : where to write it
        tables : real tables of those parties that the caller speaks for. The page then compares real and synthetic
            data, holds exact figures, and says so first: it must stay in the house.
        id : name of the subject-id column, if it differs from the federation's
        regression : a `VerticalGLM` fitted on synthetic tables of this study
        """
        from verticopula.report.report_data import ReportData, read_real
        from verticopula.report.report_page import (
            write_report,  # scikit-learn's trees and Jinja: most studies need none
        )

        real = {} if tables is None else read_real(self.federation, tables, id)
        facts = None if regression is None else regression.to_dict(0.95)
        return write_report(path, ReportData(self._fitted(), real, facts, aligned=self._rows.has_drawn_aligned))

    def plot(self, what: str = "margins", *, columns: Sequence[str] | None = None) -> go.Figure:
        """An interactive figure of the study, from the same numbers as the report's.

        Parameters
        ----------
        what : `margins` (observed and corrected), `correlations` or `missingness` (who is known to whom)
        columns : `party.column`, those to draw; all by default, the first 24 for margins
        """
        from verticopula.report.report_data import ReportData
        from verticopula.report.study_plots import plot_study  # only here: fitting needs no figures

        return plot_study(ReportData(self._fitted()), what, columns)

    # ---- keeping -------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write settings, fitted copula and releases as JSON: numbers and names, nothing executable.

        Parameters
        ----------
        path : the file to write
        """
        save_study(path, self._fitted())

    @classmethod
    def from_study(cls, fitted: FittedStudy) -> Synthesizer:
        """A synthesizer that is fitted with this study.

        Parameters
        ----------
        fitted : as `study_` has it, or as it was read from a folder
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said when it was fitted, and in its summary
            return cls.from_settings(fitted.federation, fitted.settings)._adopt(fitted, None)

    @classmethod
    def load(cls, path: str | Path) -> Synthesizer:
        """A fitted synthesizer from what `save` wrote. Samples come as polars frames.

        Parameters
        ----------
        path : the file to read
        """
        return cls.from_study(load_study(path))


def _open(table: Any, party: str) -> Any:
    """A party's table as polars, or a file that is read a column at a time."""
    if not isinstance(table, str | Path):
        return to_polars(table, party)
    return open_table(Path(table))
