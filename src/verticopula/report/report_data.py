"""What a report is about: a fitted study, and what its caller holds besides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.data.column_encoding import EncodedColumn
from verticopula.data.tables import AlignedTable, OwnTable, align_tables
from verticopula.errors import Problem, SchemaError
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation, IdRule, Party
from verticopula.schema.frames import to_polars
from verticopula.stats.copula import Layout
from verticopula.stats.fit_result import FitResult
from verticopula.study.fitted_study import FittedStudy

Floats = NDArray[np.float64]

_DRAWS = 5_000  # rows from the copula that stand for the synthetic tables wherever they are compared


@dataclass(frozen=True)
class CapUse:
    """How much of a party's cap was spent, over all studies about the same people."""

    party: str
    unit: str
    spent: float
    cap: float


@dataclass(frozen=True)
class CapChange:
    """What a study would add to what counts against a party's cap, over all studies about the same people.

    Attributes
    ----------
    at_most : whether `after` is more than the study will cost at this unit
    """

    party: str
    unit: str
    before: float
    after: float
    cap: float
    at_most: bool = False


@dataclass(frozen=True, repr=False)
class ReportData:
    """A study and what is known beside it.

    Attributes
    ----------
    real : party -> its real table; only where the caller holds it. Tables of several parties share the cohort's order.
    regression : as `VerticalGLM.to_dict` gives it, or None
    aligned : whether the released rows follow the cohort's own subjects
    notes : whatever else a reader must know
    audit : what an audit of the study wrote, or None; only the page in the house shows it
    caps : what was spent of each party's caps. It tells of other studies, so only the page in the house shows it
    """

    fitted: FittedStudy
    real: Mapping[str, AlignedTable] = field(default_factory=dict)
    regression: Mapping[str, Any] | None = None
    aligned: bool = False
    notes: tuple[str, ...] = ()
    caps: tuple[CapUse, ...] = ()
    audit: Mapping[str, Any] | None = None

    @property
    def federation(self) -> Federation:
        return self.fitted.federation

    @property
    def result(self) -> FitResult:
        return self.fitted.result

    @property
    def layout(self) -> Layout:
        return self.result.copula.layout

    @property
    def latent_keys(self) -> list[ColumnKey]:
        """The column behind every latent."""
        return self.layout.latent_keys

    def missing_share(self, key: ColumnKey) -> float:
        """Share of the cohort without a value in this column."""
        return 1.0 - self.result.missingness.observed[key] / self.result.n_subjects

    def draw(self, n_rows: int = _DRAWS) -> dict[ColumnKey, Floats]:
        """Synthetic values from the fitted copula, the same each time; costs no budget and moves no counter."""
        return self.result.copula.sample(n_rows, np.random.default_rng(0))


def read_real(federation: Federation, tables: Mapping[str, Any], id: str | None = None) -> dict[str, AlignedTable]:
    """The caller's real tables, checked: aligned where all parties' are there, each in its own order otherwise."""
    rule = federation.id if id is None else IdRule(name=id, rules=federation.id.rules)
    frames = {name: to_polars(table, name) for name, table in tables.items()}
    if set(frames) == {party.name for party in federation.parties}:
        return align_tables(federation, frames, rule, need_overlap=False)
    found = {}
    for name, frame in frames.items():
        party = _party(federation, name)
        own = OwnTable.check(party, frame, rule)
        found[name] = AlignedTable(party, own.columns)
    return found


def _party(federation: Federation, name: str) -> Party:
    try:
        return federation.party(name)
    except KeyError:
        raise SchemaError([Problem(f"party {name!r}", "is not in this study's federation")]) from None


def real_columns(subject: ReportData) -> dict[ColumnKey, EncodedColumn]:
    """Every real column that is here."""
    return {
        ColumnKey(name, column): values
        for name, table in subject.real.items()
        for column, values in table.columns.items()
    }
