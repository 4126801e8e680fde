"""How a study's (epsilon, delta) becomes noise on margins and on moments, in terms of Gaussian differential privacy.

Everything one person has anywhere is covered by one mu: mu^2 = (margins of all columns) + (moments). For unit `block`
every party has a mu of its own, and the margins of its columns with its part in the moments stay within that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from verticopula.errors import SettingsError
from verticopula.privacy.budget import StudyBudget
from verticopula.privacy.gaussian_dp import mu_of
from verticopula.schema.federation import Column, ColumnKey, Federation
from verticopula.schema.methods import STRICT
from verticopula.schema.units import Unit
from verticopula.stats.marginals import count_ranges
from verticopula.stats.strict.gaussian_margins import cell_sensitivity
from verticopula.stats.strict.tuning import STRICT_TUNING as TUNING


@dataclass(frozen=True)
class StrictBudget:
    """What a strict study may spend, and on what.

    Attributes
    ----------
    delta : of the whole study
    totals : for unit `block`, every party's mu; empty for `person`
    mu : of everything for unit `person`; the smallest of `totals` for `block`
    share : part of mu^2 that goes to the moments; the margins have the rest
    deviations : standard deviation of the noise on each cell count of a column
    """

    unit: Unit
    delta: float
    totals: Mapping[str, float]
    mu: float
    share: float
    deviations: Mapping[ColumnKey, float]

    def moments_mu(self, party: str | None = None) -> float:
        """What the moments may cost, for one party's block or for everything."""
        return math.sqrt(self.share) * (self.mu if party is None else self.totals[party])


def plan_strict(federation: Federation, budget: StudyBudget, counts: Mapping[ColumnKey, int]) -> StrictBudget:
    """The budget of a strict study; SettingsError for a unit that makes no sense here.

    Parameters
    ----------
    budget : its two epsilons are added up: how they are split is decided here
    counts : observed subjects of each column, which are public
    """
    if budget.unit not in (Unit.PERSON, Unit.BLOCK) or budget.delta is None:
        raise SettingsError(f"method {STRICT.name!r} protects a whole person: unit 'person' or 'block', with a delta")
    if budget.unit is Unit.PERSON:
        mu = mu_of(budget.epsilon_ranks + budget.epsilon_marginals, budget.delta)
        deviations = split_noise(federation, federation.keys, counts, (1.0 - TUNING.moments_share) * mu**2)
        return StrictBudget(budget.unit, budget.delta, {}, mu, TUNING.moments_share, deviations)
    totals = {party.name: mu_of(sum(budget.of_party(party.name)), budget.delta) for party in federation.parties}
    deviations = {}
    for party in federation.parties:
        keys = [ColumnKey(party.name, column.name) for column in party.columns]
        deviations |= split_noise(federation, keys, counts, (1.0 - TUNING.moments_share) * totals[party.name] ** 2)
    return StrictBudget(budget.unit, budget.delta, totals, min(totals.values()), TUNING.moments_share, deviations)


def split_noise(
    federation: Federation, keys: Sequence[ColumnKey], counts: Mapping[ColumnKey, int], square: float
) -> dict[ColumnKey, float]:
    """Standard deviations d_j of the columns' noise with sum_j (s_j/d_j)^2 = `square`.

    Columns differ in how many people they have: d_j^2 proportional to s_j n_j minimises the sum of squared relative
    errors (d_j/n_j)^2. A column's weight counts as that many columns.
    """
    sensitivities = {key: cell_sensitivity(_most_cells(federation.column(key))) for key in keys}
    size = {key: sensitivities[key] * max(counts[key], 1) / math.sqrt(federation.column(key).weight) for key in keys}
    total = math.fsum(sensitivities[key] ** 2 / size[key] for key in keys)
    return {key: math.sqrt(size[key] * total / square) for key in keys}


def _most_cells(column: Column) -> int:
    """Two cells, or more: all that the sensitivity depends on. Continuous columns always have more."""
    if column.kind == "continuous":
        return 3
    if column.kind == "count":
        low, high = column.bounds or (0, 1)
        return count_ranges(int(low), int(high)).size - 1
    return len(column.categories or ())
