"""What every method makes of (epsilon, delta) for everything that all parties hold about one person.

To add a method, add a line to `METHODS`: a function of a study, epsilon and delta that returns an `Answer` whose
`outcome.spent.person` is at most epsilon.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from experiments.baselines import imputed, vertigan
from experiments.study import MethodFailure, Outcome, Spent, Study, keep_complete_cases
from verticopula import Synthesizer
from verticopula.errors import AlignedWarning, NotPrivateWarning, VerticopulaError
from verticopula.privacy import gaussian_dp as gaussian
from verticopula.privacy.accounting import Coins, calibrate, composed_epsilon
from verticopula.privacy.budget import coins_per_comparison, rank_coins
from verticopula.schema.defaults import DEFAULT_DELTA

ROUNDS = 10
LARGEST_COIN = 40.0


@dataclass(frozen=True)
class Answer:
    """What a method found.

    Attributes
    ----------
    per_comparison, per_value : the least epsilon that a column's comparisons (in one round) and its marginal get; NaN
        for a method that has no such thing
    """

    outcome: Outcome
    per_comparison: float = math.nan
    per_value: float = math.nan


Fit = Callable[[Study, float, float], Answer]
Touched = tuple[
    tuple[float, int], ...
]  # per column: share of epsilon that a coin gets, and coins that a person touches


def copula(study: Study, epsilon: float, delta: float, *, method: str, aligned: bool = False) -> Answer:
    """The library's method at unit `person`: half for ranks and half for marginals, IEVCDS's rounds sharing theirs."""
    federation, rounds = study.federation, ROUNDS if method == "ievcds" else 1
    n = study.tables[federation.response.party].height
    touched = []
    for key in federation.keys:
        seen = study.tables[key.party][key.column].drop_nulls().len()
        coins = rank_coins(federation.column(key), "exact", 1.0, seen, n - seen if rounds > 1 else 0)
        touched.append((coins.epsilon, rounds * coins.count))
    ranks = calibrate_ranks(tuple(sorted(touched)), epsilon / 2.0, delta)
    margins = epsilon / 2.0 / len(federation.keys)
    return _fit(study, method, ranks * rounds, margins, delta, aligned=aligned)


def complete_cases(study: Study, epsilon: float, delta: float, *, method: str, aligned: bool = False) -> Answer:
    """The same on subjects whom every party knows: fewer comparisons, so each may be truer."""
    return copula(keep_complete_cases(study), epsilon, delta, method=method, aligned=aligned)


def mean_imputed(study: Study, epsilon: float, delta: float, *, method: str, aligned: bool = False) -> Answer:
    """The same on columns filled with their means, at what `imputed.charge` says that this costs."""
    tables, counts = imputed.fill(study.federation, study.tables)
    n = tables[study.federation.response.party].height
    touched = []
    for key in study.federation.keys:
        times = coins_per_comparison(study.federation.column(key), "exact")
        touched.append((1.0 / times, times * (n - 1 + counts[key] * (n - counts[key]))))
    ranks = calibrate_ranks(tuple(sorted(touched)), epsilon / 2.0, delta)
    margins = epsilon / 2.0 / sum(1 + counts[key] for key in study.federation.keys)
    filled = replace(study, tables=tables)
    return _fit(filled, method, ranks, margins, delta, aligned=aligned, charged=counts)


@lru_cache(maxsize=4_096)
def calibrate_ranks(touched: Touched, epsilon: float, delta: float) -> float:
    """The largest epsilon of a comparison with which all these coins together stay within (epsilon, delta)."""
    return calibrate(
        lambda scale: [Coins(scale * share, count) for share, count in touched], epsilon, delta, largest=LARGEST_COIN
    )


@lru_cache(maxsize=4_096)
def compose(coins: tuple[tuple[float, int], ...], delta: float) -> float:
    """Epsilon of all coins together."""
    return composed_epsilon((Coins(epsilon, count) for epsilon, count in coins), delta)


def _fit(
    study: Study,
    method: str,
    ranks: float,
    margins: float,
    delta: float,
    *,
    aligned: bool = False,
    charged: Mapping[tuple[str, str], int] | None = None,
) -> Answer:
    """The library's method with these epsilons for every comparison (of all rounds) and for every value."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AlignedWarning)
        warnings.simplefilter("ignore", NotPrivateWarning)
        try:
            fitted = Synthesizer(
                study.federation,
                method,
                unit="variable",
                random_state=study.seed,
                rounds=ROUNDS,
                epsilon_ranks=ranks,
                epsilon_marginals=margins,
            ).fit(study.tables)
        except (VerticopulaError, ValueError) as error:
            raise MethodFailure(str(error)) from error
        tables = fitted.sample(study.rows_per_subject * fitted.n_subjects_, aligned=aligned)
    entries = fitted.ledger_
    if charged is not None:
        entries = tuple(imputed.charge(entry, charged[entry.party, entry.column]) for entry in entries)
    person = compose(tuple(sorted((entry.coins.epsilon, entry.coins.count) for entry in entries)), delta)
    budgets = fitted.result_.budgets.values()
    return Answer(
        Outcome(Spent(person=person, note="the other units were not asked for"), fitted.n_subjects_, tables),
        min(b.epsilon_ranks for b in budgets),
        min(b.epsilon_marginal for b in budgets),
    )


def strict(study: Study, epsilon: float, delta: float) -> Answer:
    """Gaussian noise on margins and on secret-shared moments: made for this unit, so there is nothing to invert."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NotPrivateWarning)
            fitted = Synthesizer(
                study.federation, "strict", epsilon, delta, unit="person", random_state=study.seed
            ).fit(study.tables)
    except (VerticopulaError, ValueError) as error:
        raise MethodFailure(str(error)) from error
    tables = fitted.sample(study.rows_per_subject * fitted.n_subjects_)
    return Answer(Outcome(Spent.stated(fitted.privacy_), fitted.n_subjects_, tables))


def gan(study: Study, epsilon: float, delta: float) -> Answer:
    """Vertigan with noise for all its critics together (needs torch)."""
    several = vertigan.Budget.split(study.federation, 1.0).person  # of a person, for every 1 of a block
    block = gaussian.gaussian_epsilon(gaussian.mu_of(epsilon, delta) / several, DEFAULT_DELTA)
    return Answer(vertigan.fit(replace(study, epsilon=block)))


METHODS: Mapping[str, Fit] = {
    "VCDS": partial(copula, method="vcds"),
    "EVCDS": partial(copula, method="evcds", aligned=True),
    "IEVCDS": partial(copula, method="ievcds", aligned=True),
    "Refined": partial(copula, method="refined"),
    "Refined-aligned": partial(copula, method="refined", aligned=True),
    "Strict": strict,
    "CC-VCDS": partial(complete_cases, method="vcds"),
    "CC-EVCDS": partial(complete_cases, method="evcds", aligned=True),
    "Impute-VCDS": partial(mean_imputed, method="vcds"),
    "Impute-EVCDS": partial(mean_imputed, method="evcds", aligned=True),
    "Vertigan": gan,
}
NEEDS_TORCH = ("Vertigan",)
# What only differs from VCDS where blocks are missing.
FOR_MISSING = ("IEVCDS", "CC-VCDS", "CC-EVCDS", "Impute-VCDS", "Impute-EVCDS")
# No epsilon is finite for these at any noise, so there is nothing to invert; the page says so.
NEVER_FINITE = {
    "Original-C, Original-VFL": "everything is exchanged as it is",
    "VFL-ADMM-DP": "its noise lies in the column space of the data (`tests/experiments/test_baselines.py`)",
}
# What an epsilon does not say when methods are compared by it.
ASKS_FOR_MORE = {
    "Vertigan": "every party's critic sees the real response beside its own columns, so the parties show it to each "
    "other; no other method here asks for that. It learns associations with the response alone, not among covariates",
}
