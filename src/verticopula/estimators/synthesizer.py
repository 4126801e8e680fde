"""The front door: fit on tables, get complete synthetic tables, in the manner of scikit-learn and SDV."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from verticopula.data.missingness import Missingness
from verticopula.data.tables import AlignedTable, align_tables, knows_everybody
from verticopula.errors import CellsWarning, SettingsError, StudyWarning, VerticopulaError
from verticopula.formatting import readable
from verticopula.mpc.sealed_messages import Authenticity
from verticopula.notebook import box, live_progress, text_html
from verticopula.privacy.budget import StudyBudget
from verticopula.privacy.noise import Noise, SecureNoise, SeededNoise, server_generator
from verticopula.privacy.policy import Policy
from verticopula.privacy.release import Release
from verticopula.privacy.statement import PrivacyStatement
from verticopula.protocol.coordinator_side import own_handler
from verticopula.protocol.secure_sums import ComputeHandler
from verticopula.protocol.study_lifecycle import Alignment, BegunStudy, LedgerHead
from verticopula.protocol.study_rounds import study_rounds
from verticopula.schema.columns import ColumnKey
from verticopula.schema.conditions import Conditions, check_met, read_conditions
from verticopula.schema.defaults import DEFAULT_ROUNDS
from verticopula.schema.dependence import DEFAULT_DEPENDENCE
from verticopula.schema.federation import Federation, IdRule, seeded_study_name
from verticopula.schema.frames import backend_of, to_polars
from verticopula.schema.methods import OWN_VARIANT, PRINTED_VARIANT, default_method
from verticopula.schema.printed_choices import DEFAULT_RANK_CORRELATION
from verticopula.schema.progress import Progress, show_nothing
from verticopula.schema.study_settings import StudySettings
from verticopula.simulate.in_process import run_in_process
from verticopula.stats.fit_result import AlignedDraw, FitResult
from verticopula.storage.charged_ledger import ChargedLedger, leave_out_withdrawn, open_accounts, remember_policies
from verticopula.storage.known_tables import TableAccount
from verticopula.storage.ledger import Ledger
from verticopula.storage.record_store import RecordStore
from verticopula.storage.vault import Vault
from verticopula.study.fitted_study import FittedStudy
from verticopula.study.kept_constraints import KeptConstraints, add_kept, keep_constraints
from verticopula.study.missing_values import AS_OBSERVED, COMPLETE, check_missing, empty_as_observed
from verticopula.study.relation_sums import add_related
from verticopula.study.saved_study import load_study, save_study
from verticopula.study.study_box import study_html
from verticopula.study.study_folder import mark_study, write_parts
from verticopula.study.study_pricing import price_releases
from verticopula.study.study_warnings import ALIGNED_ROWS, CATEGORIES, find_warnings
from verticopula.study.synthetic_tables import SyntheticTables, decode_frames, decode_tables
from verticopula.study.text_summary import margins_table, summarise_study
from verticopula.transport.delivery import Transport, drive

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


ROWS_PER_FILE = 1 << 18  # of `write_sample`: 55 columns of them take about 200 MB


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
    method : None for `refined` where blocks are missing and `vcds` otherwise (over a transport, where that is not known
        before, for `refined`); or one of `verticopula.METHODS`: `vcds` (data complete or missing completely at random),
        `refined` (missing at random, at the same cost), `evcds` and `ievcds` (the paper's, for comparison: they correct
        little or in part), `strict` (for units `person` and `block`: no ranks, but sums that nobody sees without noise)
    epsilon : 1 unless given; `unit` says what it bounds. Half goes to ranks, half to marginals; `strict` splits it
    delta : needed for units `block` and `person`
    unit : `variable`, `client`, `block` or `person`; by default `person` for `strict`, `client` otherwise
    epsilon_ranks, epsilon_marginals : in place of `epsilon`, the two parts
    sampler : `exact` flips every comparison; `binomial` is O(n) and costs twice the coins
    rounds : how often `ievcds` ranks; other methods rank once
    per_round : `ievcds` spends the ranks' epsilon in every round instead of splitting it over them
    random_state : a seed makes everything reproducible and **not private**
    variant : `verticopula` for our variants; `as-printed` runs the paper's Algorithms 1 to 3 as they stand, for `vcds`,
        `evcds` and `ievcds`. That sends ranges of the data: epsilon is infinite, and a warning says so
    rank_correlation : which one `as-printed` computes correlations from: `kendall` or `spearman`
    dependence : of methods that rank: `copula`, or `tilted` by tables of pairs that the same ranks tell, at no cost

    Attributes
    ----------
    correlation_ : DataFrame of latent correlations labelled `party.column`, or
        `party.column=category` for each category of a nominal column
    ledger_ : tuple of every release in the study's ledger, also of earlier studies: what was spent stays spent
    privacy_ : epsilon at every unit
    missingness_ : who is observed where
    margins_ : DataFrame of every column's observed and corrected distribution function
    n_subjects_ : size of the cohort
    study_ : all of it as one record, a `FittedStudy`
    kept_ : after `sample`, how many rows were drawn again or moved to keep the parties' constraints; None without any
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
        epsilon: float | None = 1.0,
        delta: float | None = None,
        unit: str | None = None,
        random_state: int | None = None,
        *,
        epsilon_ranks: float | None = None,
        epsilon_marginals: float | None = None,
        sampler: str = "exact",
        rounds: int = DEFAULT_ROUNDS,
        per_round: bool = False,
        variant: str = OWN_VARIANT,
        rank_correlation: str = DEFAULT_RANK_CORRELATION,
        dependence: str = DEFAULT_DEPENDENCE,
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

    @classmethod
    def from_settings(cls, federation: Federation, settings: StudySettings) -> Synthesizer:
        """An unfitted synthesizer with these settings.

        Parameters
        ----------
        federation : who holds which column
        settings : what is asked for
        """
        return cls(federation, **vars(settings))

    # ---- settings ------------------------------------------------------------------------

    def check(self) -> StudySettings:
        """The settings with method and unit filled in; SettingsError says what makes no sense. Spends nothing.

        A method that is not named is the one of a study over a transport; `fit` looks at who is missing.
        """
        return self._settings_where(complete=None)

    def _settings_where(self, *, complete: bool | None) -> StudySettings:
        """The same for tables in which every party knows everybody, or not; None where nobody knows that yet."""
        if not isinstance(self.federation, Federation):
            raise SettingsError(f"federation must be a Federation, not {type(self.federation).__name__}")
        given = {name: value for name, value in self.get_params(deep=False).items() if name != "federation"}
        if self.method is None:
            given["method"] = default_method(complete, as_printed=self.variant == PRINTED_VARIANT).name
        settings = StudySettings(**given)
        StudyBudget.of(self.federation, settings)
        return settings.checked(self.federation)

    @property
    def settings_(self) -> dict[str, Any]:
        """The settings that it was fitted with, as plain values."""
        return self._fitted().settings.to_dict()

    @property
    def budget(self) -> StudyBudget:
        """What the settings allow to be spent."""
        return StudyBudget.of(self.federation, self.check())

    @property
    def needs_overlap(self) -> bool:
        """Whether two columns without common subjects are an error."""
        return self.check().record.needs_overlap

    # ---- fitting -------------------------------------------------------------------------

    def fit(
        self,
        tables: Mapping[str, Any],
        id: str | None = None,
        *,
        policies: Mapping[str, Policy] | None = None,
        ledger: str | Path | Ledger | None = None,
        vault: str | Path | Vault | None = None,
        progress: Progress | None = None,
    ) -> Synthesizer:
        """This synthesizer, fitted on one table per party in this process.

        Parameters
        ----------
        tables : party name -> pandas or polars DataFrame; a subject absent from a party's table is
            a missing block
        id : name of the subject-id column, if it differs from the federation's
        policies : party name -> what that party allows; none means no limits
        ledger : where releases are recorded; a file also counts what earlier studies spent
        vault : a folder where caps are kept over all studies about the same people, whatever their ledgers are; none
            means that caps count what is in `ledger`. Rules that it remembers must be among `policies`. People who
            withdrew, as it knows, are left out of all tables
        progress : called with (what, done, total); None shows a bar in notebooks, and nothing elsewhere
        """
        needs_overlap = self.needs_overlap
        rule = self.federation.id if id is None else IdRule(name=id, rules=self.federation.id.rules)
        frames = {name: to_polars(table, name) for name, table in tables.items()}
        if vault is not None:
            frames = leave_out_withdrawn(vault.folder if isinstance(vault, Vault) else Path(vault), frames, rule)
        aligned = align_tables(self.federation, frames, rule, need_overlap=needs_overlap)
        if not needs_overlap and self._settings_where(complete=knows_everybody(aligned)).record.needs_overlap:
            aligned = align_tables(self.federation, frames, rule, need_overlap=True)
        for note in (note for table in aligned.values() for note in table.notes()):
            warnings.warn(str(note), CellsWarning, stacklevel=2)
        with ExitStack() as opened:
            if vault is not None and not isinstance(vault, Vault):
                vault = opened.enter_context(Vault.open(vault))
            accounts = None if vault is None else open_accounts(vault, self.federation, frames, rule)
            book = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
            self.fit_aligned(aligned, policies=policies, ledger=book, vault=vault, accounts=accounts, progress=progress)
        self._backends = {name: backend_of(table) for name, table in tables.items()}
        return self

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
        settings = self._settings_where(complete=knows_everybody(aligned))
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
            rng=server_generator(settings.random_state, "fit"),
            ledger=book if vault is None else ChargedLedger(vault.ledger, book),
            policies=policies,
            accounts=accounts,
            progress=progress or live_progress(),
        )
        return self._adopt(FittedStudy(study, self.federation, settings, result, tuple(book)), None)

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
        return self._price_and_adopt(name, *drive(rounds, transport), server_seed=server_seed)

    def make_compute_handler(self, records: RecordStore, authenticity: Authenticity) -> ComputeHandler | None:
        """The coordinator's own handler, for a strict study of two parties; None where it has no part in the sums.

        Parameters
        ----------
        records : where its secret and its noise are kept; over a network they must outlive the process
        authenticity : how parties know that a public key is the coordinator's
        """
        settings = self.check()
        label = "" if settings.is_private else seeded_study_name(self.federation)
        return own_handler(self.federation, settings.method, self._noise, records, authenticity, label)

    def _price_and_adopt(
        self, study: str, begun: BegunStudy, result: FitResult, server_seed: int | None = None
    ) -> Synthesizer:
        """This synthesizer, fitted with what `study_rounds` returned.

        `ledger_` is then what parties were asked for, at their prices.

        Parameters
        ----------
        study : its name
        begun, result : what the rounds gave
        server_seed : as `fit_transport` has it
        """
        settings = self.check()
        entries = price_releases(
            self.federation, self.budget, study, result, is_private=settings.is_private, variant=settings.variant
        )
        return self._adopt(FittedStudy(study, self.federation, settings, result, tuple(entries)), begun, server_seed)

    def _adopt(self, fitted: FittedStudy, begun: BegunStudy | None, server_seed: int | None = None) -> Synthesizer:
        self.study_, self.begun_ = fitted, begun
        self._samples, self._drew_aligned, self._backends = 0, False, dict[str, str]()
        self._server_seed = server_seed if fitted.settings.is_private else fitted.settings.random_state
        for warning in find_warnings(fitted):
            _warn(warning, stacklevel=4)
        return self

    def _unused_name(self) -> str:
        return f"{self.federation.name}-{secrets.token_hex(8)}"

    def _noise(self, party: str) -> Noise:
        seed = self.check().random_state
        return SecureNoise() if seed is None else SeededNoise(seed).derive(party)

    # ---- results -------------------------------------------------------------------------

    def _fitted(self) -> FittedStudy:
        if not hasattr(self, "study_"):
            raise StudyNotFittedError(
                "this synthesizer is not fitted yet: call fit(...) first, or Synthesizer.load(...) for a saved study"
            )
        return self.study_

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
        check_missing(missing)
        asked = read_conditions(self.federation, conditions or {})
        rows = self._check_rows(n_rows, "n_rows")
        free = bool(asked) or missing is not None
        wanted = self._fitted().gives_aligned_rows and not free if aligned is None else aligned
        if wanted and free:
            raise SettingsError("aligned rows follow people as they are: neither conditions nor gaps can be chosen")
        draw = self._aligned_draw(rows) if wanted else None
        rng = self._next_generator()
        if draw is None:
            drawn, self.kept_ = self._draw_free(rows, rng, asked, missing)
            return drawn
        copies = rows // self.n_subjects_
        decoded = self.result_.copula.decode((draw(rng) for _ in range(copies)), rows)
        found, self.kept_ = keep_constraints(self.federation, add_related(self.federation, decoded), None)
        return found

    def _next_generator(self) -> np.random.Generator:
        """Of the next sample: with a seed, the k-th has the same numbers again."""
        self._samples += 1
        return server_generator(self._server_seed, "sample", str(self._samples - 1))

    def _draw_free(
        self, n_rows: int, rng: np.random.Generator, asked: Conditions, missing: str | None
    ) -> tuple[dict[ColumnKey, NDArray[np.float64]], KeptConstraints | None]:
        """Rows that belong to nobody, and what it took to keep the constraints."""
        copula = self.result_.copula

        def draw_rows(count: int) -> dict[ColumnKey, NDArray[np.float64]]:
            return add_related(self.federation, copula.sample(count, rng, asked, complete=missing == COMPLETE))

        drawn, kept = keep_constraints(self.federation, draw_rows(n_rows), draw_rows)
        check_met(asked, drawn)
        if missing == AS_OBSERVED:
            required = [key for key in self.federation.keys if self.federation.column(key).required]
            drawn = empty_as_observed(drawn, self.missingness_, rng, asked, required)
        return drawn, kept

    def write_sample(
        self,
        folder: str | Path,
        n_rows: int | None = None,
        *,
        rows_at_once: int = ROWS_PER_FILE,
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
        check_missing(missing)
        asked = read_conditions(self.federation, conditions or {})
        rows, at_once = self._check_rows(n_rows, "n_rows"), self._check_rows(rows_at_once, "rows_at_once")
        rng, kept = self._next_generator(), []

        def draw_parts() -> Iterator[dict[str, pl.DataFrame]]:
            for start in range(0, rows, at_once):
                drawn, own = self._draw_free(min(at_once, rows - start), rng, asked, missing)
                kept.append(own)
                yield decode_frames(drawn, self.federation)

        written = write_parts(Path(folder), draw_parts(), mark_study(self._fitted()))
        self.kept_ = add_kept(kept)
        return written

    def _check_rows(self, given: int | None, name: str) -> int:
        rows = self.n_subjects_ if given is None else given
        if isinstance(rows, bool) or not isinstance(rows, (int, np.integer)) or rows < 1:
            raise SettingsError(f"{name} must be a whole number of at least 1")
        return int(rows)

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
        method = (self.study_.settings if hasattr(self, "study_") else self.check()).record
        if not method.aligned_rows:
            raise SettingsError(f"method {method.name!r} has no aligned release: its rows belong to no subject")
        if n_rows is not None and n_rows % n_subjects:
            raise SettingsError(f"aligned rows come in multiples of the cohort's {n_subjects} subjects")

    def _aligned_draw(self, rows: int) -> AlignedDraw:
        self.check_aligned(rows, self.n_subjects_)
        if self.result_.draw_aligned is None:
            raise SettingsError(
                "aligned rows need the parties' releases, which a saved study does not keep: fit again, or "
                "sample with aligned=False"
            )
        _warn(ALIGNED_ROWS, stacklevel=5)
        self._drew_aligned = True  # the report says so
        return self.result_.draw_aligned

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
        return write_report(path, ReportData(self._fitted(), real, facts, aligned=self._drew_aligned))

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


def _warn(warning: StudyWarning, stacklevel: int) -> None:
    """Python's own warning, for those that have one."""
    category = CATEGORIES.get(warning.code)
    if category is not None:
        warnings.warn(readable(str(warning)), category, stacklevel=stacklevel)
