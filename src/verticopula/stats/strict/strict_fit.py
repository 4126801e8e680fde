"""From opened sums to a copula.

Rounds as in `em_iterations.py` until correlations rest. All of it is computed from released numbers and costs no
budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from verticopula.data.missingness import Missingness
from verticopula.mpc.opened_sums import PatternSums
from verticopula.mpc.sums_plan import SumsPlan
from verticopula.schema.federation import ColumnKey
from verticopula.stats.copula import Layout
from verticopula.stats.margin_curves import correct_marginals
from verticopula.stats.marginals import Marginal
from verticopula.stats.matrix_repair import nearest_correlation
from verticopula.stats.pairwise import FitReport
from verticopula.stats.strict.em_iterations import StrictState, advance, iterate_em, sampling_dominates
from verticopula.stats.strict.factor_structure import posterior_variance
from verticopula.stats.strict.latent_scores import share_column
from verticopula.stats.strict.noise_budget import StrictBudget
from verticopula.stats.strict.noisy_moments import NoisyMoments, read_sums
from verticopula.stats.strict.score_model import ScoreModel, correlate, margin_curves
from verticopula.stats.strict.strict_report import StrictReport, by_parties
from verticopula.stats.strict.tuning import STRICT_TUNING as TUNING

__all__ = ["StrictFit", "StrictReport", "fit_strict"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class StrictFit:
    """What a strict study found."""

    correlation: Floats
    marginals: Mapping[ColumnKey, Marginal]
    report: FitReport
    strict: StrictReport


@threadpool_limits.wrap(limits=1, user_api="blas")  # the matrices are small: threads only wait for each other
def fit_strict(
    sums: Sequence[PatternSums],
    plan: SumsPlan,
    layout: Layout,
    marginals: Mapping[ColumnKey, Marginal],
    budget: StrictBudget,
    missingness: Missingness,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> StrictFit:
    """The copula of the population, from what was opened.

    Parameters
    ----------
    sums : of every pattern, in the plan's order
    marginals : of the observed, settled from noisy cells
    """
    shared = [share_column(marginals[key], plan.cap) for key in layout.keys]
    scores = [score for column in shared for score in column.scores]
    owners = np.repeat(np.arange(len(plan.parties)), plan.widths)
    tables = {key: column.table for key, column in zip(layout.keys, shared, strict=True)}
    model = ScoreModel(layout, marginals, scores, tables, owners)
    noisy = read_sums(sums, plan, shared)
    overlap = count_overlap(noisy, len(scores))
    state: StrictState | None = None
    change = np.inf
    rounds = 0
    while rounds < TUNING.most_rounds and change >= TUNING.tolerance:
        rounds += 1
        before = state
        state = advance(noisy, model, before)
        change = np.inf if before is None else float(np.max(np.abs(state.fitted - before.fitted)))
        progress(rounds, TUNING.most_rounds)
    assert state is not None
    if sampling_dominates(noisy):
        state, rounds, change = iterate_em(noisy, model, state)
    pairs = correlate(model, state.placed, state.fitted, state.variance, overlap)
    repaired = nearest_correlation(pairs.correlation)
    counted = state.structure.groups >= 0
    report = FitReport(
        overlap=overlap,
        standard_error=np.sqrt(np.where(np.isfinite(state.variance), pairs.variance, 1.0)),
        shrink_rank=state.structure.rank,
        shrink_change=float(np.mean(np.abs(state.fitted - state.raw)[counted])) if counted.any() else 0.0,
        psd_change=repaired.change,
        smallest_eigenvalue=repaired.smallest_eigenvalue_before,
        marginal_repairs={key: marginal.repair for key, marginal in marginals.items()},
    )
    strict = summarise(state, plan, layout, model)
    corrected = correct_marginals(layout, marginals, margin_curves(model, state.placed))
    return StrictFit(repaired.correlation, corrected, report, strict)


def count_overlap(noisy: Sequence[NoisyMoments], q: int) -> Ints:
    """(q, q) people counted with both."""
    overlap = np.zeros((q, q), dtype=np.int64)
    for pattern in noisy:
        overlap[np.ix_(pattern.seen[:-1], pattern.seen[:-1])] += int(pattern.count)
    return overlap


def summarise(state: StrictState, plan: SumsPlan, layout: Layout, model: ScoreModel) -> StrictReport:
    """What can be relied on, party by party."""
    structure, owners, k = state.structure, model.owners, len(plan.parties)
    counted = structure.groups >= 0
    expected = by_parties(posterior_variance(structure, state.variance), counted, owners, k)
    met = by_parties(np.isfinite(state.variance).astype(np.float64), counted, owners, k) > 0.0
    residual = np.where(np.isfinite(state.variance), state.raw - state.fitted, 0.0)
    return StrictReport(
        rank=structure.rank,
        spread_within=float(np.sqrt(structure.spread[0])),
        spread_between=float(np.sqrt(structure.spread[1])),
        patterns=plan.columns.shape[0],
        parties=plan.parties,
        raw_error=np.where(met, by_parties(state.variance, counted & np.isfinite(state.variance), owners, k), np.inf),
        expected_error=expected,
        realised_error=by_parties(residual**2, counted, owners, k),
        supported=met & (expected <= TUNING.largest_error),
        flat=tuple(layout.labels[j] for j in np.flatnonzero(model.flat)),
    )
