"""A strict study simulated on assumed data: its plan and its fit, without parties and without shares.

What a strict study opens is sums over people, and Gaussian noise of a known deviation on them. Both are drawn here
directly (`strict_openings.py`); how they come about under a secret sharing makes no difference to them. A study of very
many subjects is simulated on fewer, with as much more mu that noise, too, is larger by the root of how many fewer there
are; all errors are then scaled as in `rank_simulation.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from verticopula.privacy.budget import StudyBudget
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation
from verticopula.simulate.rank_simulation import Cohort, kolmogorov, same_party, scale_margin
from verticopula.simulate.strict_openings import simulate_openings
from verticopula.stats.marginals import Marginal
from verticopula.stats.strict.gaussian_margins import count_deviation, estimate_margin, gaussian_cell_count
from verticopula.stats.strict.noise_budget import StrictBudget, plan_strict_budget
from verticopula.stats.strict.strict_fit import fit_strict
from verticopula.stats.strict.strict_plan import place_of_response, plan_strict_sums
from verticopula.stats.tilting.opening_plan import OpeningPlan

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

FITTED_ROWS = 8_000  # a forecast needs no third digit


@dataclass(frozen=True)
class StrictErrors:
    """What one simulation of a strict study found.

    Attributes
    ----------
    after : (pairs,) errors of the latent correlations that are used
    raw : (pairs,) standard error of each from noise and overlap alone, before other pairs help
    within : (pairs,) whether both columns are one party's
    margins : (columns,) Kolmogorov distances
    mu : of the first opening, as the whole study would have it
    """

    after: Floats
    raw: Floats
    within: Bools
    margins: Floats
    mu: float


def simulate_strict(
    federation: Federation, study_budget: StudyBudget, cohort: Cohort, rng: np.random.Generator
) -> StrictErrors:
    """Errors of correlations and margins of one strict study without empty values."""
    layout, truth = cohort.truth.layout, cohort.truth
    known = {key.party: cohort.observed[:, part.start] for key, part in zip(layout.keys, layout.slices, strict=True)}
    budget = plan_strict_budget(federation, study_budget, cohort.counts(), cohort.n_subjects)
    margins = _draw_margins(cohort, budget, rng)
    more = 1.0 / cohort.reduction
    louder = replace(budget, mu=more * budget.mu, totals={name: more * mu for name, mu in budget.totals.items()})
    planned = plan_strict_sums(federation, known, margins, louder)
    plan = _with_deviations(
        replace(
            planned.openings,
            split=replace(
                planned.openings.split,
                gram=planned.sums.mu,
                tables=planned.sums.mu_tables,
                selection=planned.sums.mu_selection,
            ),
        ),
        cohort,
        budget,
    )
    opened = simulate_openings(plan, _code(cohort, margins, known), rng, place_of_response(federation))
    fit = fit_strict(plan, opened.chosen, opened.tables, layout, margins, planned.sums.parties, rng, n_rows=FITTED_ROWS)
    upper = np.triu(~layout.nominal_blocks(), 1)
    corrected = {key: scale_margin(cohort, margins[key], found, key) for key, found in fit.copula.margins.items()}
    return StrictErrors(
        after=cohort.reduction * (fit.copula.correlation - truth.correlation)[upper],
        raw=cohort.reduction * fit.report.standard_error[upper],
        within=same_party(layout)[upper],
        margins=np.array([kolmogorov(truth.margins[key], margin) for key, margin in corrected.items()]),
        mu=planned.sums.mu * cohort.reduction,
    )


def _with_deviations(plan: OpeningPlan, cohort: Cohort, budget: StrictBudget) -> OpeningPlan:
    """The plan with the whole study's noise on margins, which are drawn as that would have them."""
    counts = cohort.counts()
    deviations = [count_deviation(budget.deviations[key]) / counts[key] for key in cohort.truth.layout.keys]
    return replace(plan, deviations=np.array(deviations))


def _draw_margins(cohort: Cohort, budget: StrictBudget, rng: np.random.Generator) -> dict[ColumnKey, Marginal]:
    """Noisy margins of the observed, as the whole study would have them."""
    found = {}
    for key, n in cohort.counts().items():
        column, deviation = cohort.truth.margins[key].column, budget.deviations[key]
        n_cells = gaussian_cell_count(column, n, deviation)
        counts = n * cohort.seen_shares(key, n_cells)
        noisy = np.round(counts + count_deviation(deviation) * rng.standard_normal(n_cells)).astype(np.int64)
        if n_cells == 2:
            noisy[1] = n - noisy[0]
        found[key] = estimate_margin(column, noisy, n, deviation)
    return found


def _code(cohort: Cohort, margins: Mapping[ColumnKey, Marginal], known: Mapping[str, Bools]) -> Ints:
    """(n, p) public cells of the assumed values; -1 where a party does not know a person."""
    codes = np.full((len(cohort.observed), len(margins)), -1, dtype=np.int64)
    for j, key in enumerate(cohort.truth.layout.keys):
        n_cells = margins[key].probabilities.size
        codes[known[key.party], j] = cohort.truth.margins[key].cells(cohort.values[key], n_cells)
    return codes
