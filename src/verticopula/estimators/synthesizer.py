"""The front door: fit on tables, get complete synthetic tables, in the manner of scikit-learn and SDV."""

from __future__ import annotations

import json
import os
import secrets
import threading
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.data.missingness import Missingness
from verticopula.data.tables import AlignedTable, align_tables, backend_of, decode_column, from_polars, to_polars
from verticopula.errors import SettingsError, VersionMismatch, VerticopulaError
from verticopula.mpc.sealed_messages import Authenticity, shared_authenticity
from verticopula.mpc.sums_plan import COORDINATOR
from verticopula.privacy.budget import BudgetRequest
from verticopula.privacy.noise import Noise, SecureNoise, SeededNoise, server_generator
from verticopula.privacy.policy import Policy
from verticopula.privacy.statement import PrivacyStatement, state_privacy
from verticopula.protocol.evcds import evcds
from verticopula.protocol.ievcds import ievcds
from verticopula.protocol.opening import Alignment, LedgerHead, Opened, open_study
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.party.strict_handler import STRICT
from verticopula.protocol.party.sums_handler import SumsHandler
from verticopula.protocol.refined import refined
from verticopula.protocol.secure_sums import ComputeHandler
from verticopula.protocol.shared_rounds import Rounds, needs_overlap
from verticopula.protocol.strict_method import check_parties, needs_compute_handler, strict
from verticopula.protocol.vcds import vcds
from verticopula.schema.federation import ColumnKey, Federation, IdRule, seeded_study_name
from verticopula.schema.units import Unit
from verticopula.stats.copula import latent_count
from verticopula.stats.fit_result import AlignedDraw, FindCertainty, FitResult
from verticopula.storage.ledger import Ledger, Release
from verticopula.storage.records import MemoryRecords, RecordStore
from verticopula.study.saved_study import result_from_dict, result_to_dict
from verticopula.study.study_pricing import price_releases
from verticopula.study.text_summary import delta_warning, margins_table, summarise
from verticopula.transport.base import Transport, drive
from verticopula.transport.inprocess import InProcessTransport

if TYPE_CHECKING:
    import pandas as pd

    from verticopula.estimators.vertical_glm import VerticalGLM

METHODS = ("vcds", "evcds", "ievcds", "refined", STRICT)
STUDY_FORMAT = 2
ALIGNED_NOTE = "Aligned rows: synthetic row i is a noisy copy of subject i. For comparisons, not for publication."

Progress = Callable[[str, int, int], None]


class NotPrivateWarning(UserWarning):
    """A result that must not leave the house."""


class WeakPrivacyWarning(UserWarning):
    """A delta that would allow everything about somebody to be told."""


class AlignedWarning(UserWarning):
    """Synthetic rows that follow the cohort's own subjects one by one."""


class SyntheticTables(dict[str, Any]):
    """Party -> table, with what a regression on them must know.

    Attributes
    ----------
    federation : kinds and categories of the columns
    n_subjects : real subjects behind the rows, however many rows there are
    find_certainty : how surely the correlations behind them are known; None where nobody knows. It holds what parties
        released, so it stays behind when the tables are pickled
    """

    def __init__(
        self,
        tables: Mapping[str, Any],
        federation: Federation,
        n_subjects: int,
        find_certainty: FindCertainty | None = None,
    ) -> None:
        super().__init__(tables)
        self.federation = federation
        self.n_subjects = n_subjects
        self.find_certainty = find_certainty

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"find_certainty": None}


class Synthesizer:
    """Complete synthetic tables from a vertical federation.

    Parameters
    ----------
    federation : who holds which column
    method : `vcds` (data complete or missing completely at random), `refined` (missing at random, at the
        same cost), `evcds` and `ievcds` (the paper's methods for missing at random), `strict` (for units `person`
        and `block`: no ranks, but second moments that nobody sees without noise)
    epsilon : what it bounds is said by `unit`; half goes to the ranks, half to the marginals; `strict` splits it itself
    delta : needed for units `block` and `person`
    unit : `variable`, `client`, `block` or `person`; by default `person` for `strict`, `client` otherwise
    epsilon_ranks, epsilon_marginals : in place of `epsilon`, the two parts
    sampler : `exact` flips every comparison; `binomial` is O(n) and costs twice the coins
    rounds : how often `ievcds` ranks; other methods rank once
    per_round : `ievcds` spends the ranks' epsilon in every round instead of splitting it over them
    random_state : a seed makes everything reproducible and **not private**

    Attributes
    ----------
    correlation_ : DataFrame of latent correlations labelled `party.column`, or
        `party.column=category` for each category of a nominal column
    ledger_ : tuple of every release
    privacy_ : epsilon at every unit
    missingness_ : who is observed where
    margins_ : DataFrame of every column's observed and corrected distribution function
    n_subjects_ : size of the cohort
    opened_ : after `fit_transport`, what the parties said when the study was opened; None otherwise
    """

    def __init__(
        self,
        federation: Federation,
        method: str = "vcds",
        epsilon: float | None = 1.0,
        delta: float | None = None,
        unit: str | None = None,
        random_state: int | None = None,
        *,
        epsilon_ranks: float | None = None,
        epsilon_marginals: float | None = None,
        sampler: str = "exact",
        rounds: int = 10,
        per_round: bool = False,
    ) -> None:
        if method not in METHODS:
            raise SettingsError(f"unknown method {method!r}; known: {', '.join(METHODS)}")
        if per_round and method != "ievcds":
            raise SettingsError(f"per_round is for method 'ievcds'; {method!r} ranks once")
        if random_state is not None and (
            isinstance(random_state, bool) or not isinstance(random_state, (int, np.integer))
        ):
            raise SettingsError("random_state must be a whole number or None")
        unit = (Unit.PERSON.value if method == STRICT else Unit.CLIENT.value) if unit is None else unit
        if method == STRICT:
            _check_strict(federation, unit)
        self.federation = federation
        self.method = method
        self.unit = unit
        self.delta = delta
        self.random_state = None if random_state is None else int(random_state)
        self.budget = BudgetRequest.build(
            federation,
            unit=unit,
            epsilon=epsilon,
            delta=delta,
            epsilon_ranks=epsilon_ranks,
            epsilon_marginals=epsilon_marginals,
            sampler=sampler,
            rounds=rounds if method == "ievcds" else 1,
            per_round=per_round,
        )
        self.server_seed: int | None = None  # a coordinator's: repeats its own draws after a crash; protects nobody
        self.opened_: Opened | None = None
        self._result: FitResult | None = None
        self._entries: tuple[Release, ...] = ()
        self._study = ""
        self._samples = 0
        self._drew_aligned = False
        self._backends: dict[str, str] = {}

    # ---- fitting -------------------------------------------------------------------------

    def fit(
        self,
        tables: Mapping[str, Any],
        id: str | None = None,
        *,
        policies: Mapping[str, Policy] | None = None,
        ledger: str | Path | Ledger | None = None,
        progress: Progress | None = None,
    ) -> Synthesizer:
        """Fit on one table per party, in this process.

        Parameters
        ----------
        tables : party name -> pandas or polars DataFrame; a subject absent from a party's table is
            a missing block
        id : name of the subject-id column, if it differs from the federation's
        policies : party name -> what that party allows; none means no limits
        ledger : where releases are recorded; a file also counts what earlier studies spent
        progress : called with (what, done, total)
        """
        rule = self.federation.id if id is None else IdRule(name=id, rules=self.federation.id.rules)
        frames = {name: to_polars(table, name) for name, table in tables.items()}
        aligned = align_tables(self.federation, frames, rule, need_overlap=self.needs_overlap)
        self._backends = {name: backend_of(table) for name, table in tables.items()}
        return self.fit_aligned(aligned, policies=policies, ledger=ledger, progress=progress)

    def fit_aligned(
        self,
        aligned: Mapping[str, AlignedTable],
        *,
        policies: Mapping[str, Policy] | None = None,
        ledger: str | Path | Ledger | None = None,
        progress: Progress | None = None,
    ) -> Synthesizer:
        """Fit on tables that are checked and aligned already."""
        book = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
        # A seeded study has a fixed name, because the parties' streams are keyed by it.
        study = seeded_study_name(self.federation) if self.random_state is not None else self._unused_name()
        total = sum(_comparisons(table, self.budget.rounds) for table in aligned.values())
        counter = _Counter(progress, "flipping comparisons", total)
        before = len(book)
        authenticity = shared_authenticity(secrets.token_bytes(32))
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as executor:
            parties = {
                name: LocalParty(
                    table,
                    noise=self._noise(name),
                    ledger=book,
                    policy=(policies or {}).get(name, Policy()),
                    bounds_from_data=self.federation.bounds_source == "from-data",
                    executor=executor,
                    on_column=counter.add,
                    authenticity=authenticity,
                    federation=self.federation,
                )
                for name, table in aligned.items()
            }
            compute_handler = self.make_compute_handler(MemoryRecords(), authenticity)
            result = drive(self._protocol(study, progress, compute_handler), InProcessTransport(parties))
        self._result, self._study, self._samples, self.opened_ = result, study, 0, None
        self._drew_aligned = False
        self._entries = tuple(book)[before:]
        self._warn()
        return self

    def fit_transport(
        self,
        transport: Transport,
        *,
        study: str | None = None,
        alignment: Alignment = "hash",
        witnesses: Mapping[str, LedgerHead] | None = None,
        progress: Progress | None = None,
        compute_handler: ComputeHandler | None = None,
    ) -> Synthesizer:
        """Fit on tables that members hold, over any transport; the study is opened first.

        Parameters
        ----------
        study : its name; None for one that nobody used before
        witnesses : party -> the end of its ledger as `opened_` last showed it
        compute_handler : what `make_compute_handler` made, for a strict study of two parties
        """
        name = study or self._unused_name()
        rounds = self.protocol(
            name, alignment=alignment, witnesses=witnesses, progress=progress, compute_handler=compute_handler
        )
        return self.adopt(name, *drive(rounds, transport))

    def protocol(
        self,
        study: str,
        *,
        alignment: Alignment = "hash",
        witnesses: Mapping[str, LedgerHead] | None = None,
        progress: Progress | None = None,
        compute_handler: ComputeHandler | None = None,
    ) -> Rounds[tuple[Opened, FitResult]]:
        """The whole study over members, as rounds; `adopt` takes what it returns."""
        if compute_handler is None and self.method == STRICT and needs_compute_handler(self.federation):
            raise SettingsError(
                "a strict study of two parties needs the coordinator as the third compute party: pass compute_handler"
            )
        opened = yield from open_study(
            self.federation, study, self.method, seed=self.random_state, alignment=alignment, witnesses=witnesses
        )
        return opened, (yield from self._protocol(study, progress, compute_handler))

    def make_compute_handler(self, records: RecordStore, authenticity: Authenticity) -> ComputeHandler | None:
        """The coordinator's own handler of secure sums; None unless it is a compute party, in a strict study of two.

        Parameters
        ----------
        records : where its secret and its noise are kept; over a network they must outlive the process
        authenticity : how parties know that a public key is the coordinator's
        """
        if self.method != STRICT or not needs_compute_handler(self.federation):
            return None
        label = "" if self.random_state is None else seeded_study_name(self.federation)
        noise = self._noise(COORDINATOR)
        return SumsHandler(
            COORDINATOR, None, records=records, noise=noise, authenticity=authenticity, noise_label=label
        )

    def adopt(self, study: str, opened: Opened, result: FitResult) -> Synthesizer:
        """Be fitted with what `protocol` returned; `ledger_` is then what parties were asked for, at their prices."""
        self._result, self._study, self._samples, self.opened_ = result, study, 0, opened
        self._drew_aligned = False
        is_private = self.random_state is None
        self._entries = tuple(price_releases(self.federation, self.budget, study, result, is_private=is_private))
        self._warn()
        return self

    def _unused_name(self) -> str:
        return f"{self.federation.name}-{secrets.token_hex(8)}"

    @property
    def needs_overlap(self) -> bool:
        """Whether two columns without common subjects are an error."""
        return needs_overlap(self.method)

    def _protocol(
        self, study: str, progress: Progress | None, compute_handler: ComputeHandler | None = None
    ) -> Rounds[FitResult]:
        rng = server_generator(self._server_seed, "fit")
        show = progress or (lambda what, done, total: None)
        if self.method == STRICT:
            return strict(self.federation, self.budget, study, rng, show, compute_handler)
        if self.method == "evcds":
            return evcds(self.federation, self.budget, study, rng)
        if self.method == "ievcds":
            return ievcds(self.federation, self.budget, study, rng)
        if self.method == "refined":
            return refined(self.federation, self.budget, study, lambda done, most: show("refining", done, most))
        return vcds(self.federation, self.budget, study)

    @property
    def _server_seed(self) -> int | None:
        return self.random_state if self.random_state is not None else self.server_seed

    def _noise(self, party: str) -> Noise:
        return SecureNoise() if self.random_state is None else SeededNoise(self.random_state).derive(party)

    def _warn(self) -> None:
        for line in self.privacy_.warnings:
            warnings.warn(line, NotPrivateWarning, stacklevel=3)
        weak = delta_warning(self.settings_, self.n_subjects_)
        if weak and self.method == STRICT:
            warnings.warn(weak, WeakPrivacyWarning, stacklevel=3)

    # ---- results -------------------------------------------------------------------------

    @property
    def result_(self) -> FitResult:
        if self._result is None:
            raise VerticopulaError("this synthesizer is not fitted yet: call fit(...) or Synthesizer.load(...)")
        return self._result

    @property
    def correlation_(self) -> pd.DataFrame:
        import pandas as pd  # only here: everything else works without it

        copula = self.result_.copula
        return pd.DataFrame(copula.correlation, index=list(copula.layout.labels), columns=list(copula.layout.labels))

    @property
    def ledger_(self) -> tuple[Release, ...]:
        return self._entries

    @property
    def privacy_(self) -> PrivacyStatement:
        return state_privacy(self.ledger_, self.delta)

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

    def sample(self, n_rows: int | None = None, aligned: bool = False) -> SyntheticTables:
        """Synthetic tables, one per party, rows belonging together across parties; no id column.

        Parameters
        ----------
        n_rows : any number; None for the size of the cohort; a multiple of it if aligned
        aligned : row i follows subject i of the cohort (`evcds`, `ievcds`, `refined`): a noisy copy
            of that person's data, and a warning says so

        Notes
        -----
        Every call draws afresh. With a seed, the k-th call after `fit` gives the same rows.
        """
        return self.decode(self.draw(n_rows, aligned))

    def draw(self, n_rows: int | None = None, aligned: bool = False) -> dict[ColumnKey, NDArray[np.float64]]:
        """What `sample` samples, as numbers: category codes where a column has categories."""
        rows = self.n_subjects_ if n_rows is None else n_rows
        if isinstance(rows, bool) or not isinstance(rows, (int, np.integer)) or rows < 1:
            raise SettingsError("n_rows must be a whole number of at least 1")
        draw = self._aligned_draw(int(rows)) if aligned else None
        rng = server_generator(self._server_seed, "sample", str(self._samples))
        self._samples += 1
        copula = self.result_.copula
        if draw is None:
            return copula.sample(int(rows), rng)
        copies = int(rows) // self.n_subjects_
        return copula.decode((draw(rng) for _ in range(copies)), int(rows))

    def decode(self, values: Mapping[ColumnKey, NDArray[np.float64]]) -> SyntheticTables:
        """Numbers that `draw` drew, as tables."""
        tables: dict[str, Any] = {}
        for party in self.federation.parties:
            columns = [
                decode_column(values[key], party.column(key.column)) for key in values if key.party == party.name
            ]
            tables[party.name] = from_polars(pl.DataFrame(columns), self._backends.get(party.name, "polars"))
        return SyntheticTables(tables, self.federation, self.n_subjects_, self.result_.find_certainty)

    def check_aligned(self, n_rows: int | None, n_subjects: int) -> None:
        """SettingsError if so many aligned rows of such a cohort cannot be had; can be asked before `fit`."""
        if self.method in ("vcds", STRICT):
            raise SettingsError(f"method {self.method!r} has no aligned release: its rows belong to no subject")
        if n_rows is not None and n_rows % n_subjects:
            raise SettingsError(f"aligned rows come in multiples of the cohort's {n_subjects} subjects")

    def _aligned_draw(self, rows: int) -> AlignedDraw:
        self.check_aligned(rows, self.n_subjects_)
        if self.result_.draw_aligned is None:
            raise SettingsError("aligned rows need the parties' releases, which a saved study does not keep: fit again")
        warnings.warn(ALIGNED_NOTE, AlignedWarning, stacklevel=4)
        self._drew_aligned = True  # the report says so
        return self.result_.draw_aligned

    def summary(self) -> str:
        """A page of text: what was fitted, what it cost, what was repaired."""
        return summarise(self.federation, self.settings_, self.result_, self.privacy_)

    def _repr_html_(self) -> str:
        from verticopula.report.notebook import synthesizer_html  # stands above this file

        return synthesizer_html(self)

    def report(
        self,
        path: str | Path,
        *,
        tables: Mapping[str, Any] | None = None,
        id: str | None = None,
        regression: VerticalGLM | None = None,
    ) -> Path:
        """Write `report.html`: everything about the study on one page that opens without a network.

        Parameters
        ----------
        tables : real tables of those parties that the caller speaks for. The page then compares real and synthetic
            data, holds exact figures, and says so first: it must stay in the house.
        id : name of the subject-id column, if it differs from the federation's
        regression : fitted on synthetic tables of this study
        """
        # Imported here: the report stands above everything that it reports on.
        from verticopula.estimators.study_files import regression_facts
        from verticopula.report import Subject, write_report
        from verticopula.report.report_subject import read_real

        real = {} if tables is None else read_real(self.federation, tables, id)
        facts = None if regression is None else regression_facts(regression, 0.95)
        return write_report(path, Subject(self, real, facts, aligned=self._drew_aligned))

    @property
    def settings_(self) -> dict[str, Any]:
        """The settings, as plain values."""
        if self.method == STRICT:
            return {
                "method": self.method,
                "unit": self.unit,
                "epsilon": self.budget.epsilon_ranks + self.budget.epsilon_marginals,
                "delta": self.delta,
                "random_state": self.random_state,
            }
        return {
            "method": self.method,
            "unit": self.unit,
            "epsilon_ranks": self.budget.epsilon_ranks,
            "epsilon_marginals": self.budget.epsilon_marginals,
            "delta": self.delta,
            "sampler": self.budget.sampler,
            **({"rounds": self.budget.rounds, "per_round": self.budget.per_round} if self.method == "ievcds" else {}),
            "random_state": self.random_state,
        }

    # ---- keeping -------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write settings, fitted copula and releases as JSON: numbers and names, nothing executable."""
        study = {
            "format": STUDY_FORMAT,
            "versions": {name: version(name) for name in ("verticopula", "numpy", "numba", "opendp", "cryptography")},
            "study": self._study,
            "settings": self.settings_,
            "federation": self.federation.to_dict(),
            "fit": result_to_dict(self.result_),
            "releases": [json.loads(entry.to_json()) for entry in self.ledger_],
            "privacy": self.privacy_.lines(),
        }
        Path(path).write_text(json.dumps(study, indent=1), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Synthesizer:
        """Read what `save` wrote. Samples come as polars frames."""
        try:
            raw = json.loads(Path(path).read_text(encoding="utf-8"))
            if raw["format"] != STUDY_FORMAT:
                raise VersionMismatch(
                    f"{Path(path).name}: study format {raw['format']}, this version reads {STUDY_FORMAT}"
                )
            federation = Federation.from_dict(raw["federation"])
            loaded = cls(federation, **{"epsilon": None, **raw["settings"]})
            loaded._result = result_from_dict(federation, raw["fit"])
            loaded._entries = tuple(Release.from_json(json.dumps(entry)) for entry in raw["releases"])
            loaded._study = raw["study"]
        except (OSError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, VerticopulaError):
                raise
            raise VerticopulaError(f"{Path(path).name}: cannot be read as a saved study") from None
        return loaded


def _check_strict(federation: Federation, unit: str) -> None:
    """SettingsError for a strict study that makes no sense."""
    check_parties(federation)
    if Unit.parse(unit) not in (Unit.PERSON, Unit.BLOCK):
        raise SettingsError(
            f"method 'strict' protects everything about one person: unit 'person' (at all parties) or 'block' (at "
            f"one), not {unit!r}. For {unit!r} use method 'refined' or 'vcds'"
        )


def _comparisons(table: AlignedTable, rounds: int) -> int:
    """Comparisons to be flipped: of the observed subjects once, of all of them in every later round."""
    total = 0
    for column in table.party.columns:
        seen = table.columns[column.name].observed
        n, everybody = int(seen.sum()), seen.size
        total += latent_count(column) * (n * (n - 1) // 2 + (rounds - 1) * everybody * (everybody - 1) // 2)
    return total


class _Counter:
    """Adds up work from several threads for a progress callback."""

    def __init__(self, progress: Progress | None, what: str, total: int) -> None:
        self._progress, self._what, self._total, self._done = progress, what, total, 0
        self._lock = threading.Lock()

    def add(self, amount: int) -> None:
        with self._lock:
            self._done += amount
            if self._progress is not None:
                self._progress(self._what, self._done, self._total)
