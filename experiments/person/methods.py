"""What every method makes of (epsilon, delta) for everything that all parties hold about one person.

To add a method, add a line to `METHODS`: a function of a study, epsilon and delta that returns an `Answer` whose
`outcome.spent.person` is at most epsilon.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from experiments.baselines import imputed, vertigan
from experiments.study import MethodFailure, Outcome, Spent, Study, keep_common
from verticopula import Synthesizer
from verticopula.errors import VerticopulaError
from verticopula.privacy.accounting import Coins, calibrate
from verticopula.privacy.budget import coins_per_comparison
from verticopula.privacy.statement import state_privacy
from verticopula.synthesizer import AlignedWarning, NotPrivateWarning

ROUNDS = 10
FEWEST = 10
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


def copula(study: Study, epsilon: float, delta: float, *, method: str, aligned: bool = False) -> Answer:
    """The library's method at unit `person`: half for ranks and half for marginals, IEVCDS's rounds sharing theirs."""
    return _fit(study, aligned, method=method, unit="person", epsilon=epsilon, delta=delta)


def complete_cases(study: Study, epsilon: float, delta: float, *, method: str = "vcds") -> Answer:
    """The same on subjects whom every party knows: fewer comparisons, so each may be truer."""
    tables = keep_common(study.federation, study.tables)
    n = tables[study.federation.response.party].height
    if n < FEWEST:
        raise MethodFailure(f"{n} complete cases, {FEWEST} are needed")
    return copula(replace(study, tables=tables), epsilon, delta, method=method)


def mean_imputed(study: Study, epsilon: float, delta: float, *, method: str = "vcds") -> Answer:
    """The same on columns filled with their means, at what `imputed.charge` says that this costs."""
    tables, counts = imputed.fill(study.federation, study.tables)
    n = tables[study.federation.response.party].height
    columns = {key: study.federation.column(key) for key in study.federation.keys}

    def coins_at(scale: float) -> list[Coins]:
        found = []
        for key, column in columns.items():
            times = coins_per_comparison(column, "exact")
            touched = n - 1 + counts[key] * (n - counts[key])
            found.append(Coins(scale / times, times * touched))
        return found

    ranks = calibrate(coins_at, epsilon / 2.0, delta, largest=LARGEST_COIN)
    marginals = epsilon / 2.0 / sum(1 + counts[key] for key in columns)
    return _fit(
        replace(study, tables=tables),
        False,
        charge=counts,
        method=method,
        unit="variable",
        epsilon_ranks=ranks,
        epsilon_marginals=marginals,
        delta=delta,
    )


def _fit(
    study: Study, aligned: bool, *, charge: Mapping[tuple[str, str], int] | None = None, **settings: object
) -> Answer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        warnings.simplefilter("ignore", AlignedWarning)
        try:
            fitted = Synthesizer(
                study.federation,
                random_state=study.seed,
                rounds=ROUNDS,
                **settings,  # type: ignore[arg-type]
            ).fit(study.tables)
        except (VerticopulaError, ValueError) as error:
            raise MethodFailure(str(error)) from error
        tables = fitted.sample(study.rows_per_subject * fitted.n_subjects_, aligned=aligned)
    entries = fitted.ledger_
    if charge is not None:
        entries = tuple(imputed.charge(entry, charge[entry.party, entry.column]) for entry in entries)
    budgets = fitted.result_.budgets.values()
    return Answer(
        Outcome(Spent.stated(state_privacy(entries, fitted.delta)), fitted.n_subjects_, tables),
        min(b.epsilon_ranks for b in budgets),
        min(b.epsilon_marginal for b in budgets),
    )


def gan(study: Study, epsilon: float, delta: float) -> Answer:
    """Vertigan with noise for all its critics together (needs torch)."""
    n = keep_common(study.federation, study.tables)[study.federation.response.party].height
    rate = min(vertigan.BATCH, n) / n
    steps = vertigan.STEPS * len(vertigan.split_columns(study.federation))
    sigma = vertigan.calibrate(epsilon, delta, rate, steps)
    block = vertigan.replaced_epsilon(sigma, rate, vertigan.STEPS, delta)
    return Answer(vertigan.fit(replace(study, epsilon=block)))


METHODS: Mapping[str, Fit] = {
    "VCDS": partial(copula, method="vcds"),
    "EVCDS": partial(copula, method="evcds", aligned=True),
    "IEVCDS": partial(copula, method="ievcds", aligned=True),
    "Refined": partial(copula, method="refined"),
    "CC-VCDS": complete_cases,
    "Impute-VCDS": mean_imputed,
    "Vertigan": gan,
}
NEEDS_TORCH = ("Vertigan",)
# What only differs from VCDS where blocks are missing.
FOR_MISSING = ("IEVCDS", "CC-VCDS", "Impute-VCDS")
# No epsilon is finite for these at any noise, so there is nothing to invert; the page says so.
NEVER_FINITE = {
    "Original-C, Original-VFL": "everything is exchanged as it is",
    "VFL-ADMM-DP": "its noise lies in the column space of the data (`tests/experiments/test_baselines.py`)",
}
