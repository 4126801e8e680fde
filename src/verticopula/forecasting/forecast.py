"""What a study's correlations and margins will be worth, before any budget is spent.

Only public quantities enter: the schema, the number of subjects, the shares that the parties know,
epsilon; and an assumption about the truth (`simulate/assumptions.py`). The study is simulated on assumed data
(`simulate/rank_simulation.py`). docs/results/forecast.md compares forecasts with measurements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from verticopula.errors import SettingsError
from verticopula.forecasting.advice import ScalingLaw, advise, law_of, strict_law_of
from verticopula.forecasting.expected_errors import Expected, Forecast, SimulationSetting, sizes, typical
from verticopula.forecasting.strict_forecast import expect_strict
from verticopula.privacy.accounting import Coins
from verticopula.privacy.budget import ColumnBudget, StudyBudget, plan_budget
from verticopula.privacy.root_finding import bisect
from verticopula.schema.columns import ColumnKey
from verticopula.schema.defaults import DEFAULT_DELTA, DEFAULT_ROUNDS, TYPICAL_CORRELATION
from verticopula.schema.federation import Federation
from verticopula.schema.methods import DEFAULT_METHOD, METHODS, STRICT, find_method, releases_sums
from verticopula.schema.study_settings import can_have, check_parties, check_roles
from verticopula.schema.units import Unit
from verticopula.simulate.assumptions import AssumedPresence
from verticopula.simulate.rank_simulation import (
    Cohort,
    SimulatedErrors,
    has_large_rank_noise,
    simulate_ranking,
    simulate_release,
)
from verticopula.stats.copula import Layout

__all__ = ["METHODS", "Expected", "Forecast", "forecast", "plan_quickly"]

Floats = NDArray[np.float64]

FEWEST_SUBJECTS = 10
MOST_LOG_ODDS = 5.0

_SMALLEST_COIN = 1e-9


@dataclass(frozen=True)
class ForecastSize:
    """How much a forecast of ranking methods simulates: a choice of seconds against accuracy, made by hand.

    Attributes
    ----------
    values : simulated in all: subjects times latents times simulations
    subjects : in a simulation, if the study has them
    pairs : of latents to average over; small studies are simulated more often
    truths : fewest and most
    each : simulations of a truth: what both get wrong in the same way is no accident
    """

    values: int = 4_000_000
    subjects: int = 20_000
    pairs: int = 4_000
    truths: tuple[int, int] = (4, 30)
    each: int = 2


FORECAST_SIZE = ForecastSize()


def forecast(
    federation: Federation,
    n_subjects: int,
    epsilon: float | None = None,
    *,
    delta: float = DEFAULT_DELTA,
    units: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    observed: Mapping[str, float] | None = None,
    together: Mapping[tuple[str, str], float] | None = None,
    log_odds: float = 0.0,
    shares: Mapping[ColumnKey, Sequence[float]] | None = None,
    typical_correlation: float = TYPICAL_CORRELATION,
    random_state: int = 0,
) -> Forecast:
    """Expected errors of a study, without any data.

    Parameters
    ----------
    n_subjects : size of the cohort
    epsilon : the same for all units; half for the ranks. None for the methods' default, if they have the same
    delta : used for units `block` and `person`
    units : all that the methods have if not given; without `person` where parties have an epsilon of their own
    methods : `strict` if not given, which has rows for units `block` and `person` only
    observed : party -> share of the cohort it knows, in (0, 1]; 1 if not given
    together : two parties -> share that both know; about the product of their shares if not given
    log_odds : blocks are missing at random: log odds of presence per standard deviation of a mixture of what the
        response's party holds; 0: completely at random
    shares : what is known of categorical columns: the categories' shares among the subjects that the party has
    typical_correlation : assumed root mean square of the latent correlations

    Notes
    -----
    The same arguments give the same forecast.
    """
    check_size(n_subjects, typical_correlation)
    units, methods = choose_rows(federation, units, methods)
    epsilon = _common_epsilon(methods) if epsilon is None else epsilon
    presence = check_presence(federation, observed or {}, together or {}, log_odds)
    known_shares = check_shares(federation, shares or {})
    setting = SimulationSetting(federation, n_subjects, typical_correlation, presence, known_shares, random_state)
    by_name = {party.name: float(share) for party, share in zip(federation.parties, presence.shares, strict=True)}
    found: dict[tuple[str, str], Expected] = {}
    laws: dict[tuple[str, str], ScalingLaw] = {}
    ranking = [method for method in methods if METHODS[method].ranks]
    if ranking:
        requests = {
            (unit, rounds): StudyBudget.build(federation, unit=unit, epsilon=epsilon, delta=delta, rounds=rounds)
            for unit in units
            for rounds, _ in _by_rounds(ranking)
        }
        rows, budgets = _simulate_ranking(setting, requests, units, ranking)
        for row in rows:
            found[row.method, row.unit] = row
            planned = budgets[row.unit, _rounds_of(row.method)]
            laws[row.method, row.unit] = law_of(row.unit, planned, by_name, n_subjects, epsilon, delta)
    for method in filter(releases_sums, methods):
        for unit in (unit for unit in units if Unit.parse(unit) in METHODS[method].units):
            request = StudyBudget.build(federation, unit=unit, epsilon=epsilon, delta=delta)
            found[method, unit], raw, mu = expect_strict(setting, method, unit, request)
            laws[method, unit] = strict_law_of(unit, raw, mu, by_name, n_subjects, epsilon, delta)
    ordered = tuple(found[method, unit] for unit in units for method in methods if (method, unit) in found)
    advice = advise(ordered, laws, typical_correlation, strict_possible=can_have(federation, STRICT))
    lacking = " ".join(dict.fromkeys(_lacking_roles(federation, method) for method in methods))
    return Forecast(n_subjects, epsilon, delta, typical_correlation, by_name, ordered, f"{advice} {lacking}".strip())


def _lacking_roles(federation: Federation, method: str) -> str:
    """What has to be said in the federation file before the method can run; errors do not depend on it."""
    try:
        check_roles(federation, METHODS[method])
    except SettingsError as reason:
        return f"Before it can run: {reason}."
    return ""


def choose_rows(
    federation: Federation, units: Sequence[str] | None, methods: Sequence[str] | None
) -> tuple[list[str], list[str]]:
    """Units and methods of a forecast; SettingsError for methods that there are not, or not at these units."""
    known = [DEFAULT_METHOD] if methods is None else [find_method(method) for method in methods]
    for method in known:
        check_parties(federation, method)
        if units and not any(Unit.parse(unit) in method.units for unit in units):
            able = " and ".join(repr(unit.value) for unit in Unit if unit in method.units)
            raise SettingsError(f"method {method.name!r} has the units {able} only: it protects a whole person")
    if not units:
        own = any(party.epsilon is not None for party in federation.parties)
        possible = [unit for unit in Unit if any(unit in method.units for method in known)]
        units = [unit.value for unit in possible if not (own and unit is Unit.PERSON)]
    return list(dict.fromkeys(units)), list(dict.fromkeys(method.name for method in known))


def _common_epsilon(methods: Sequence[str]) -> float:
    """The default of all these methods; SettingsError where they have several."""
    found = {METHODS[method].default_epsilon for method in methods}
    if len(found) != 1:
        raise SettingsError("these methods have different defaults of epsilon; give one for all")
    return found.pop()


def _simulate_ranking(
    setting: SimulationSetting,
    requests: Mapping[tuple[str, int], StudyBudget],
    units: Sequence[str],
    methods: Sequence[str],
) -> tuple[list[Expected], dict[tuple[str, int], Mapping[ColumnKey, ColumnBudget]]]:
    """The rows of methods that rank, and what their columns may spend by unit and number of rounds."""
    federation, n_subjects = setting.federation, setting.n_subjects
    truths, simulated = _plan_simulations(federation, n_subjects)
    found: dict[tuple[str, str], list[list[SimulatedErrors]]] = {}
    budgets: dict[tuple[str, int], Mapping[ColumnKey, ColumnBudget]] = {}
    for number, again, cohort, _ in setting.cohorts(truths, FORECAST_SIZE.each, simulated, graded=True):
        for unit in units:
            for rounds, group in _by_rounds(methods):
                if (unit, rounds) not in budgets:
                    budgets[unit, rounds] = plan_quickly(federation, requests[unit, rounds], cohort)
                noise = np.random.default_rng([setting.seed, number, again, rounds])
                for method, errors in _simulate_methods(cohort, budgets[unit, rounds], group, noise).items():
                    by_truth = found.setdefault((method, unit), [[] for _ in range(truths)])
                    by_truth[number].append(errors)
    reduction = math.sqrt(simulated / n_subjects)
    rows = [
        _summarise(method, unit, found[method, unit], budgets[unit, _rounds_of(method)], reduction)
        for unit in units
        for method in methods
    ]
    return rows, budgets


def _rounds_of(method: str) -> int:
    return DEFAULT_ROUNDS if METHODS[method].repeats_ranks else 1


def _by_rounds(methods: Sequence[str]) -> list[tuple[int, list[str]]]:
    """Methods by how often they rank. EVCDS's correlations are VCDS's; so, to first order, are its margins."""
    groups = {rounds: [m for m in methods if _rounds_of(m) == rounds] for rounds in (1, DEFAULT_ROUNDS)}
    return [(rounds, group) for rounds, group in groups.items() if group]


def _plan_simulations(federation: Federation, n_subjects: int) -> tuple[int, int]:
    """(truths, subjects simulated): narrow schemas need more truths, wide ones take longer."""
    width = len(Layout.of({key: federation.column(key) for key in federation.keys}).labels)
    simulated = min(n_subjects, FORECAST_SIZE.subjects)
    wanted = FORECAST_SIZE.pairs / (FORECAST_SIZE.each * max(width * (width - 1) / 2, 1))
    affordable = FORECAST_SIZE.values / (FORECAST_SIZE.each * simulated * width)
    return int(np.clip(math.ceil(min(wanted, affordable)), *FORECAST_SIZE.truths)), simulated


def _simulate_methods(
    cohort: Cohort, budgets: Mapping[ColumnKey, ColumnBudget], methods: Sequence[str], rng: np.random.Generator
) -> dict[str, SimulatedErrors]:
    """Errors by method. Methods that differ in nothing that can be forecast are simulated once."""
    release = simulate_release(cohort, budgets, rng)
    done: dict[bool, SimulatedErrors] = {}
    found = {}
    for method in methods:
        refines = METHODS[method].models_missing and not has_large_rank_noise(release)
        if refines not in done:
            done[refines] = simulate_ranking(cohort, release, refines=refines)
        found[method] = done[refines]
    return found


def _summarise(
    method: str,
    unit: str,
    errors: Sequence[Sequence[SimulatedErrors]],
    budgets: Mapping[ColumnKey, ColumnBudget],
    reduction: float,
) -> Expected:
    """Typical figures over the truths, from some simulations of each."""
    before = sizes([[e.before for e in of_truth] for of_truth in errors], reduction)
    after = sizes([[e.after for e in of_truth] for of_truth in errors], reduction)
    every = [e for of_truth in errors for e in of_truth]
    pairs, within = np.concatenate([e.before for e in every]), np.concatenate([e.within for e in every])
    low, middle, high = np.quantile(before, [0.1, 0.5, 0.9])
    return Expected(
        method,
        str(unit),
        float(np.max([budget.epsilon_ranks for budget in budgets.values()])),
        float(middle),
        float(np.median(after)),
        typical(pairs[within]),
        typical(pairs[~within]),
        float(np.mean([e.margins.mean() for e in every])),
        float(low),
        float(high),
    )


# ---- what was asked ------------------------------------------------------------------------


def check_size(n_subjects: int, typical_correlation: float) -> None:
    """SettingsError for a cohort or a typical correlation that makes no sense."""
    if isinstance(n_subjects, bool) or not isinstance(n_subjects, (int, np.integer)) or n_subjects < FEWEST_SUBJECTS:
        raise SettingsError(f"the number of subjects must be a whole number of at least {FEWEST_SUBJECTS}")
    if not (math.isfinite(typical_correlation) and 0.0 < typical_correlation < 0.8):
        raise SettingsError("the assumed typical correlation must lie between 0 and 0.8")


def check_presence(
    federation: Federation, observed: Mapping[str, float], together: Mapping[tuple[str, str], float], log_odds: float
) -> AssumedPresence:
    """Shares by party and of two parties; SettingsError for those that cannot be."""
    names = [party.name for party in federation.parties]
    unknown = sorted({name for name in (*observed, *(n for pair in together for n in pair)) if name not in names})
    if unknown:
        raise SettingsError(f"no party of this federation: {', '.join(unknown)}; known: {', '.join(names)}")
    for name, share in observed.items():
        if not (math.isfinite(share) and 0.0 < share <= 1.0):
            raise SettingsError(f"party {name!r}: the share observed must lie in (0, 1]")
    cohort = federation.response.party
    if observed.get(cohort, 1.0) < 1.0:
        raise SettingsError(f"party {cohort!r} holds the response and knows the whole cohort: its share is 1")
    shares = np.array([float(observed.get(name, 1.0)) for name in names])
    joint: dict[tuple[int, int], float] = {}
    for (first, second), share in together.items():
        j, k = names.index(first), names.index(second)
        low, high = max(shares[j] + shares[k] - 1.0, 0.0), min(shares[j], shares[k])
        if j == k or not (math.isfinite(share) and low - 1e-9 <= share <= high + 1e-9 and share > 0.0):
            raise SettingsError(
                f"{first!r} and {second!r}: the share that two parties both know must be positive and lie in "
                f"[{low:.3g}, {high:.3g}], given their own"
            )
        joint[j, k] = share
    if not (math.isfinite(log_odds) and 0.0 <= log_odds <= MOST_LOG_ODDS):
        raise SettingsError(f"log_odds, log odds per standard deviation, must lie between 0 and {MOST_LOG_ODDS:g}")
    return AssumedPresence(shares, joint, float(log_odds))


def check_shares(federation: Federation, shares: Mapping[ColumnKey, Sequence[float]]) -> dict[ColumnKey, Floats]:
    """Categories' shares by column; SettingsError for those that cannot be. One number is the second category's."""
    known_shares = {}
    for key, given in shares.items():
        if key not in federation.keys:
            raise SettingsError(f"no column of this federation: {key}")
        categories = len(federation.column(key).categories or ())
        if categories < 2:
            raise SettingsError(f"{key} has no categories: only those of a categorical column have shares")
        found = np.array([1.0 - given[0], given[0]] if categories == 2 and len(given) == 1 else given, dtype=np.float64)
        if found.size != categories or not np.all(found > 0.0) or abs(found.sum() - 1.0) > 0.05:
            raise SettingsError(f"{key}: {categories} positive shares that add up to 1 are needed, one per category")
        known_shares[key] = found / found.sum()
    return known_shares


# ---- budgets, quickly ------------------------------------------------------------------------


def plan_quickly(federation: Federation, budget: StudyBudget, cohort: Cohort) -> Mapping[ColumnKey, ColumnBudget]:
    """`plan_budget`, with the privacy loss of very many coins taken as normal for units `block` and `person`."""
    return plan_budget(federation, budget, cohort.counts(), cohort.n_subjects, calibrate_roughly)


def calibrate_roughly(
    coins_at: Callable[[float], list[Coins]], epsilon: float, delta: float, *, largest: float
) -> float:
    """`calibrate`, with a normal privacy loss."""
    return bisect(
        lambda scale: _normal_delta(coins_at(scale), epsilon) <= delta,
        _SMALLEST_COIN,
        largest,
        relative=1e-4,
        geometric=True,
    )


def _normal_delta(coins: Sequence[Coins], epsilon: float) -> float:
    """E[(1 - e^(epsilon - loss))+] for a normal loss with the coins' mean and variance."""
    mean = sum(c.count * c.epsilon * math.tanh(c.epsilon / 2.0) for c in coins)
    deviation = math.sqrt(sum(c.count * (c.epsilon / math.cosh(min(c.epsilon / 2.0, 300.0))) ** 2 for c in coins))
    if deviation <= 1e-12 * mean:
        return 1.0 if mean > epsilon else 0.0
    tail = float(log_ndtr((mean - epsilon - deviation**2) / deviation))
    return float(ndtr((mean - epsilon) / deviation)) - math.exp(min(epsilon - mean + deviation**2 / 2.0 + tail, 0.0))
