"""How a study's (epsilon, delta) becomes noise on margins and openings, in terms of Gaussian differential privacy.

Everything one person has anywhere is covered by one mu: mu^2 = (margins of all columns) + (base features by presence)
+ (first opening) + (second opening). The parts are fixed before anything is released. For unit `block` every party has
a mu of its own, and the margins of its columns with its part in the rest stay within that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from verticopula.errors import SettingsError
from verticopula.privacy.budget import StudyBudget
from verticopula.privacy.gaussian_dp import mu_of
from verticopula.schema.columns import Column, ColumnKey
from verticopula.schema.federation import Federation
from verticopula.schema.methods import STRICT
from verticopula.schema.units import Unit
from verticopula.stats.margin_cells import count_cells
from verticopula.stats.strict.gaussian_margins import cell_sensitivity
from verticopula.stats.tilting.opening_plan import CodedColumn
from verticopula.stats.tilting.population_fit import BudgetSplit, split_budget
from verticopula.stats.tilting.selection import find_base


@dataclass(frozen=True)
class StrictBudget:
    """What a strict study may spend, and on what.

    Attributes
    ----------
    delta : of the whole study
    totals : for unit `block`, every party's mu; empty for `person`
    mu : of everything for unit `person`; the smallest of `totals` for `block`
    split : of a mu of 1
    deviations : standard deviation of the noise on each cell count of a column
    empties : whether people whom a column's party knows may be without a value in it, as the schema says
    """

    unit: Unit
    delta: float
    totals: Mapping[str, float]
    mu: float
    split: BudgetSplit
    deviations: Mapping[ColumnKey, float]
    empties: Mapping[ColumnKey, bool]

    def parts(self, party: str | None = None) -> BudgetSplit:
        """What every release may cost, for one party's block or for everything."""
        total = self.mu if party is None else self.totals[party]
        split = self.split
        return BudgetSplit(*(total * part for part in (split.margins, split.gram, split.tables, split.selection)))

    def limits(self, parties: Sequence[str]) -> list[BudgetSplit]:
        """What every release may cost each party's block at most."""
        return [self.parts(party if self.totals else None) for party in parties]


def plan_strict_budget(
    federation: Federation,
    budget: StudyBudget,
    counts: Mapping[ColumnKey, int],
    n_subjects: int,
) -> StrictBudget:
    """The budget of a strict study; SettingsError for a unit that makes no sense here.

    Parameters
    ----------
    budget : its two epsilons are added up: how they are split is decided here
    counts : how many people the party of each column knows, which is public
    n_subjects : of the cohort
    """
    if budget.unit not in (Unit.PERSON, Unit.BLOCK) or budget.delta is None:
        raise SettingsError(f"method {STRICT.name!r} protects a whole person: unit 'person' or 'block', with a delta")
    empty = {key: federation.party(key.party).may_be_empty(key.column) for key in federation.keys}
    split = split_budget(
        1.0,
        [CodedColumn(_sensitivity_cells(federation.column(key)), True, 0, empty[key]) for key in federation.keys],
        corrected=is_corrected(federation, counts, n_subjects),
    )
    if budget.unit is Unit.PERSON:
        mu = mu_of(budget.epsilon_ranks + budget.epsilon_marginals, budget.delta)
        deviations = split_noise(federation, federation.keys, counts, split.margins * mu, empty)
        return StrictBudget(budget.unit, budget.delta, {}, mu, split, deviations, empty)
    totals = {party.name: mu_of(sum(budget.of_party(party.name)), budget.delta) for party in federation.parties}
    deviations = {}
    for party in federation.parties:
        keys = [ColumnKey(party.name, column.name) for column in party.columns]
        deviations |= split_noise(federation, keys, counts, split.margins * totals[party.name], empty)
    return StrictBudget(budget.unit, budget.delta, totals, min(totals.values()), split, deviations, empty)


def is_corrected(federation: Federation, counts: Mapping[ColumnKey, int], n_subjects: int) -> bool:
    """Whether base features by presence are released: blocks are missing, and a party knows all but everybody."""
    known = [counts[ColumnKey(party.name, party.columns[0].name)] for party in federation.parties]
    base = [is_base(count, n_subjects) for count in known]
    return any(base) and not all(base)


def is_base(n_known: int, n_subjects: int) -> bool:
    """Whether a party that knows so many people knows all but everybody."""
    return bool(find_base(np.array([n_known / max(n_subjects, 1)]))[0])


def split_noise(
    federation: Federation,
    keys: Sequence[ColumnKey],
    counts: Mapping[ColumnKey, int],
    mu: float,
    empties: Mapping[ColumnKey, bool],
) -> dict[ColumnKey, float]:
    """Standard deviations d_j of the columns' noise with sum_j (s_j/d_j)^2 = `mu`^2.

    Columns differ in how many people they have: d_j^2 proportional to s_j n_j minimises the sum of squared relative
    errors (d_j/n_j)^2. A column's weight counts as that many columns.
    """
    sensitivities = {key: cell_sensitivity(_sensitivity_cells(federation.column(key)) + empties[key]) for key in keys}
    size = {key: sensitivities[key] * max(counts[key], 1) / math.sqrt(federation.column(key).weight) for key in keys}
    total = math.fsum(sensitivities[key] * sensitivities[key] / size[key] for key in keys)
    return {key: math.sqrt(size[key] * total) / mu for key in keys}


def _sensitivity_cells(column: Column) -> int:
    """Two cells, or more: all that the sensitivity depends on. Continuous columns always have more."""
    if column.kind == "continuous":
        return 3
    if column.kind == "count":
        return count_cells(column).size - 1
    return len(column.categories or ())
