"""How a study's epsilon becomes one epsilon per column and release.

| unit       | a column's share                                                                     |
|------------|--------------------------------------------------------------------------------------|
| `variable` | all of it: every column is released at the party's epsilon; weights do not matter     |
| `client`   | the party's epsilon, split over its columns by weight (Theorem 1's own formula)       |
| `block`    | coins as strong as (ε, δ) for one person's whole block at the party allows            |
| `person`   | the same, for all parties together                                                    |

The split into ranks and marginals is the caller's. δ is spent on the ranks; marginals are pure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, Protocol

from verticopula.errors import SettingsError
from verticopula.privacy.accounting import Coins, calibrate
from verticopula.schema.columns import Column, ColumnKey, is_number
from verticopula.schema.federation import Federation
from verticopula.schema.setting_choices import BINOMIAL_SAMPLER, EXACT_SAMPLER, SAMPLER_CHOICES
from verticopula.schema.study_settings import StudySettings
from verticopula.schema.units import Unit

# The settings that a budget is built from, besides `epsilon`; settings, budgets and proposals have them by these names.
BUDGET_TERMS = ("unit", "epsilon_ranks", "epsilon_marginals", "delta", "sampler", "rounds", "per_round")


class Calibrate(Protocol):
    """Finds the largest scale whose coins stay within (epsilon, delta)."""

    def __call__(
        self, coins_at: Callable[[float], list[Coins]], epsilon: float, delta: float, *, largest: float
    ) -> float: ...


LARGEST_EPSILON = 1e4  # no request asks for more: sums over all coins of a study stay far from what a float can hold
_LARGEST_COIN = 40.0  # a coin of epsilon 40 flips once in 10^17
SMALLEST_EPSILON = 1e-9  # below it a coin is fair to all 64 bits, and nothing would be learnt for the price


@dataclass(frozen=True)
class ColumnBudget:
    """What one column may spend: per comparison for its ranks, per person's value for its marginal."""

    epsilon_ranks: float
    epsilon_marginal: float


@dataclass(frozen=True)
class StudyBudget:
    """What the study lead asks for.

    `epsilon_ranks` and `epsilon_marginals` are per column, party or person, as the unit says;
    `parties` holds the pairs of parties with an epsilon of their own. A method that ranks in several
    `rounds` splits `epsilon_ranks` over them, or spends it in each if `per_round`.
    """

    unit: Unit
    epsilon_ranks: float
    epsilon_marginals: float
    delta: float | None
    parties: Mapping[str, tuple[float, float]]
    sampler: str = EXACT_SAMPLER
    rounds: int = 1
    per_round: bool = False

    @classmethod
    def build(
        cls,
        federation: Federation,
        *,
        unit: str,
        epsilon: float | None,
        delta: float | None,
        epsilon_ranks: float | None = None,
        epsilon_marginals: float | None = None,
        sampler: str = EXACT_SAMPLER,
        rounds: int = 1,
        per_round: bool = False,
    ) -> StudyBudget:
        """Check the settings and fill in the defaults; SettingsError says what makes no sense.

        Parameters
        ----------
        federation : whose parties may have an epsilon of their own
        unit : `variable`, `client`, `block` or `person`
        epsilon : half of it goes to the ranks, half to the marginals; None where the two parts are given
        delta : needed for units `block` and `person`
        epsilon_ranks, epsilon_marginals : the two parts
        sampler : `exact`, `binomial`, or `auto` where that is not known yet
        rounds : how often ranks are released
        per_round : spend the ranks' epsilon in every round instead of splitting it over them
        """
        parsed = Unit.parse(unit)
        if isinstance(rounds, bool) or not isinstance(rounds, Integral) or rounds < 1:
            raise SettingsError("rounds must be a whole number of at least 1")
        if sampler not in SAMPLER_CHOICES:
            raise SettingsError(f"unknown sampler {sampler!r}; known: {', '.join(SAMPLER_CHOICES)}")
        ranks, margins = _split(epsilon, epsilon_ranks, epsilon_marginals)
        if parsed.needs_delta and delta is None:
            raise SettingsError(
                f"unit {parsed.value!r} needs a delta well below 1/number of subjects: --delta 1e-6, or delta=1e-6"
            )
        if delta is not None and not (is_number(delta) and 0.0 < delta < 1.0):
            raise SettingsError("delta must lie between 0 and 1")
        share = ranks / (ranks + margins)
        own = {
            p.name: (own * share, own * (1 - share))
            for p in federation.parties
            if p.epsilon is not None
            for own in [positive(p.epsilon, f"the epsilon of party {p.name!r}")]
        }
        if own and parsed is Unit.PERSON:
            raise SettingsError(
                f"unit 'person' has one epsilon in total, but these parties set their own: {', '.join(own)}. "
                "Choose unit 'block' or a method with another one, or leave theirs out of the federation file"
            )
        return cls(parsed, ranks, margins, delta, own, sampler, int(rounds), per_round)

    @classmethod
    def of(cls, federation: Federation, settings: StudySettings) -> StudyBudget:
        """What these settings ask for; SettingsError says what makes no sense.

        Parameters
        ----------
        federation : whose parties may have an epsilon of their own
        settings : of the study
        """
        checked = settings.checked(federation)
        given = {name: getattr(checked, name) for name in BUDGET_TERMS}
        given["rounds"] = checked.rounds if checked.record.repeats_ranks else 1
        return cls.build(federation, epsilon=checked.epsilon, **given)

    @property
    def terms(self) -> dict[str, Any]:
        """All that a budget is built from, by the settings' names: what a proposal says of it."""
        return {**{name: getattr(self, name) for name in BUDGET_TERMS}, "unit": self.unit.value}

    @property
    def split_over(self) -> int:
        """How many rounds of ranks the budget must last."""
        return 1 if self.per_round else self.rounds

    def of_party(self, party: str) -> tuple[float, float]:
        """(ranks, marginals) of one party.

        Parameters
        ----------
        party : its name
        """
        return self.parties.get(party, (self.epsilon_ranks, self.epsilon_marginals))


def _split(epsilon: float | None, ranks: float | None, margins: float | None) -> tuple[float, float]:
    if (ranks is None) != (margins is None):
        raise SettingsError("give epsilon_ranks and epsilon_marginals together, or only epsilon")
    if ranks is None or margins is None:
        if epsilon is None:
            raise SettingsError("an epsilon is needed")
        positive(epsilon, "epsilon")
        return epsilon / 2, epsilon / 2
    positive(ranks, "epsilon_ranks")
    positive(margins, "epsilon_marginals")
    return ranks, margins


def positive(value: float, name: str) -> float:
    """The value, if it is a positive number that a party may be asked for; SettingsError otherwise."""
    if not (is_number(value) and math.isfinite(value) and value > 0.0):
        raise SettingsError(f"{name} must be a positive, finite number")
    if value > LARGEST_EPSILON:
        raise SettingsError(f"{name} must be at most {LARGEST_EPSILON:g}; above about 40 nothing is hidden any more")
    return float(value)


def coins_per_comparison(column: Column, sampler: str) -> int:
    """How many coins one comparison of this column is behind.

    A nominal column of three or more categories is released as one rank vector per category, and
    a changed value touches two of them. The binomial sampler draws each comparison twice. A sampler that is not chosen
    yet has no price: KeyError.
    """
    indicators = 2 if column.kind == "nominal" and len(column.categories or ()) > 2 else 1
    return indicators * {EXACT_SAMPLER: 1, BINOMIAL_SAMPLER: 2}[sampler]


def rank_coins(column: Column, sampler: str, epsilon_ranks: float, n_observed: int, n_missing: int = 0) -> Coins:
    """The coins that replacing one person's value in this column may touch.

    Where the `n_missing` others were completed, they are ranked too, and each of them may change
    its place with one observed value when that value's neighbours move up or down by one.
    """
    per_comparison = coins_per_comparison(column, sampler)
    comparisons = max(n_observed + n_missing - 1, 0) + n_missing
    return Coins(epsilon_ranks / per_comparison, per_comparison * comparisons)


def plan_budget(
    federation: Federation,
    budget: StudyBudget,
    n_observed: Mapping[ColumnKey, int],
    n_subjects: int,
    find_scale: Calibrate = calibrate,
) -> dict[ColumnKey, ColumnBudget]:
    """One budget per column; its `epsilon_ranks` is for one round.

    Parameters
    ----------
    n_observed : (public) the subjects with a value
    n_subjects : all of them
    find_scale : how strong coins may be at units `block` and `person`; exact by default
    """
    plan = _plan(federation, budget, n_observed, n_subjects, find_scale)
    too_small = [str(key) for key, b in plan.items() if min(b.epsilon_ranks, b.epsilon_marginal) < SMALLEST_EPSILON]
    if too_small:
        short = ", ".join(too_small[:3])
        raise SettingsError(f"epsilon is too small: less than {SMALLEST_EPSILON:g} is left for {short}")
    return plan


def _plan(
    federation: Federation,
    budget: StudyBudget,
    n_observed: Mapping[ColumnKey, int],
    n_subjects: int,
    find_scale: Calibrate,
) -> dict[ColumnKey, ColumnBudget]:
    if budget.unit is Unit.PERSON:
        keys = list(federation.keys)
        return _share(
            federation,
            keys,
            budget,
            budget.epsilon_ranks,
            budget.epsilon_marginals,
            n_observed,
            n_subjects,
            find_scale,
        )
    plan: dict[ColumnKey, ColumnBudget] = {}
    for party in federation.parties:
        keys = [ColumnKey(party.name, c.name) for c in party.columns]
        ranks, margins = budget.of_party(party.name)
        if budget.unit is Unit.VARIABLE:
            plan |= dict.fromkeys(keys, ColumnBudget(ranks / budget.split_over, margins))
        else:
            plan |= _share(federation, keys, budget, ranks, margins, n_observed, n_subjects, find_scale)
    return plan


def _share(
    federation: Federation,
    keys: list[ColumnKey],
    budget: StudyBudget,
    ranks: float,
    margins: float,
    n_observed: Mapping[ColumnKey, int],
    n_subjects: int,
    find_scale: Calibrate,
) -> dict[ColumnKey, ColumnBudget]:
    """Split by weight; for `block` and `person` the ranks' part is calibrated to (ranks, delta)."""
    columns = {key: federation.column(key) for key in keys}
    weights = {key: column.weight for key, column in columns.items()}
    total = math.fsum(weights.values())

    def coins_at(scale: float) -> list[Coins]:
        # The dearest round, as often as the budget must last; the first is no dearer than the others.
        return [
            Coins(coins.epsilon, coins.count * budget.split_over)
            for k in keys
            for missing in [n_subjects - n_observed[k] if budget.rounds > 1 else 0]
            for coins in [rank_coins(columns[k], budget.sampler, scale * weights[k], n_observed[k], missing)]
        ]

    if budget.unit is Unit.CLIENT:
        scale = ranks / total / budget.split_over
    else:
        assert budget.delta is not None  # StudyBudget.build has checked it
        scale = find_scale(coins_at, ranks, budget.delta, largest=_LARGEST_COIN / max(weights.values()))
    return {key: ColumnBudget(scale * weights[key], margins * weights[key] / total) for key in keys}
