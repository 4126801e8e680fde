"""A strict study simulated on assumed data: its plan and its fit, without parties and without shares.

What a strict study opens is the Gram matrix of the scores that the parties code, and Gaussian noise of a known
deviation on it. Both are drawn here directly; how they come about under a secret sharing makes no difference to
them. A study of very many subjects is simulated on fewer, with as much more mu that noise, too, is larger by the root
of how many fewer there are; all errors are then scaled as in `rank_simulation.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from verticopula.data.missingness import summarise_missingness
from verticopula.mpc.gram_noise import SMOOTHING
from verticopula.mpc.opened_sums import PatternSums
from verticopula.mpc.sums_plan import SumsPlan, noise_deviation, own_columns, own_mask, own_rows, score_cells
from verticopula.privacy.budget import StudyBudget
from verticopula.schema.federation import ColumnKey, Federation
from verticopula.simulate.rank_simulation import Cohort, kolmogorov, same_party, scale_margin
from verticopula.stats.marginals import Marginal
from verticopula.stats.strict.gaussian_margins import gaussian_cell_count, settle_margin
from verticopula.stats.strict.latent_scores import share_column
from verticopula.stats.strict.noise_budget import StrictBudget, plan_strict
from verticopula.stats.strict.score_plan import plan_sums
from verticopula.stats.strict.strict_fit import fit_strict

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class StrictErrors:
    """What one simulation of a strict study found.

    Attributes
    ----------
    after : (pairs,) errors of the latent correlations that are used
    raw : (pairs,) standard error of each from noise and overlap alone, before other pairs help
    within : (pairs,) whether both columns are one party's
    margins : (columns,) Kolmogorov distances
    mu : of the sums, as the whole study would have it
    """

    after: Floats
    raw: Floats
    within: Bools
    margins: Floats
    mu: float


def simulate_strict(
    federation: Federation, study_budget: StudyBudget, cohort: Cohort, rng: np.random.Generator
) -> StrictErrors:
    """Errors of correlations and margins of one strict study."""
    layout, truth = cohort.truth.layout, cohort.truth
    observed = {key: cohort.observed[:, part.start] for key, part in zip(layout.keys, layout.slices, strict=True)}
    counts = {key: int(mask.sum()) for key, mask in observed.items()}
    budget = plan_strict(federation, study_budget, counts)  # noise by shares observed, not by numbers
    marginals = _draw_margins(cohort, budget, rng)
    more = 1.0 / cohort.reduction
    louder = replace(budget, mu=more * budget.mu, totals={name: more * mu for name, mu in budget.totals.items()})
    plan = plan_sums(federation, layout, observed, marginals, louder)
    coded = _code(federation, plan, cohort, marginals, observed)
    sums = open_centrally(plan, coded, rng)
    fit = fit_strict(sums, plan, layout, marginals, louder, summarise_missingness(observed))
    upper = np.triu(~layout.nominal_blocks(), 1)
    corrected = {key: scale_margin(cohort, marginals[key], found, key) for key, found in fit.marginals.items()}
    return StrictErrors(
        after=cohort.reduction * (fit.correlation - truth.correlation)[upper],
        raw=cohort.reduction * fit.report.standard_error[upper],
        within=same_party(layout)[upper],
        margins=np.array([kolmogorov(truth.margins[key], marginal) for key, marginal in corrected.items()]),
        mu=plan.mu * cohort.reduction,
    )


def open_centrally(plan: SumsPlan, coded: Mapping[str, Ints], rng: np.random.Generator) -> tuple[PatternSums, ...]:
    """What secure sums of these integers would open, with ordinary noise of the same deviation: for simulations only.

    `coded` : party -> (n_k, q_k) what its cells stand for, in the plan's rows
    """
    whole = np.zeros((plan.pattern_of.size, sum(plan.widths)))
    for party, integers in coded.items():
        whole[own_rows(plan, party), own_columns(plan, party)] = integers / 2.0**plan.bits
    found = []
    for pattern in range(plan.columns.shape[0]):
        columns = np.flatnonzero(plan.columns[pattern])
        rows = whole[plan.pattern_of == pattern][:, columns]
        off, on = noise_deviation(plan, pattern)
        drawn = np.triu(off * rng.standard_normal((columns.size, columns.size)), 1)
        noise = drawn + drawn.T + np.diag(on * rng.standard_normal(columns.size))
        sums = rows.sum(axis=0) + off * rng.standard_normal(columns.size)
        found.append(PatternSums(rows.shape[0], columns, sums, rows.T @ rows + noise, off, on))
    return tuple(found)


def _draw_margins(cohort: Cohort, budget: StrictBudget, rng: np.random.Generator) -> dict[ColumnKey, Marginal]:
    """Noisy margins of the observed, as the whole study would have them."""
    found = {}
    for key, n in cohort.counts().items():
        column, deviation = cohort.truth.margins[key].column, budget.deviations[key]
        n_cells = gaussian_cell_count(column, n, deviation)
        counts = n * cohort.seen_shares(key, n_cells)
        noisy = np.round(counts + math.hypot(deviation, SMOOTHING) * rng.standard_normal(n_cells)).astype(np.int64)
        if n_cells == 2:
            noisy[1] = n - noisy[0]
        found[key] = settle_margin(column, noisy, n, deviation)
    return found


def _code(
    federation: Federation,
    plan: SumsPlan,
    cohort: Cohort,
    marginals: Mapping[ColumnKey, Marginal],
    observed: Mapping[ColumnKey, Bools],
) -> dict[str, Ints]:
    """What every party's cells would stand for: `score_plan.share_cells`, from assumed values."""
    coded = {}
    for party in federation.parties:
        rows, mask = own_rows(plan, party.name), own_mask(plan, party.name)
        codes = np.zeros(mask.shape, dtype=np.int64)
        for index, column in enumerate(party.columns):
            key = ColumnKey(party.name, column.name)
            found = np.zeros(rows.size, dtype=np.int64)
            groups = share_column(marginals[key], plan.cap).groups
            found[observed[key]] = groups[cohort.truth.margins[key].cells(cohort.values[key], groups.size)]
            codes[:, index] = np.where(mask[:, index], found[rows], 0)
        coded[party.name] = score_cells(plan, party.name, codes)
    return coded
