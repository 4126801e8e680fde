"""Strict: margins and second moments with noise for a whole person, then the coordinator fits a copula to them.

No rank and no row of anybody is released. See docs/explanation/strict.md for what each round says, to whom, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from verticopula.data.missingness import Missingness, summarise_missingness
from verticopula.mpc.opened_sums import PatternSums
from verticopula.mpc.sums_plan import SumsPlan, block_factor, check_bodies, own_rows, person_mu
from verticopula.privacy.budget import StudyBudget
from verticopula.protocol.coordinator_side import CoordinatorSide
from verticopula.protocol.gathered_margins import gather_margins
from verticopula.protocol.messages import (
    GaussianMarginsReply,
    GaussianMarginsRequest,
    MarginQuery,
    PlanEvidence,
)
from verticopula.protocol.secure_sums import ComputeHandler, secure_sums
from verticopula.protocol.shared_rounds import Rounds, ask_consent, ask_presence
from verticopula.protocol.study_proposal import NO_CONTEXT, StudyContext, are_rows_agreed, propose
from verticopula.schema.federation import ColumnKey, Federation
from verticopula.schema.methods import STRICT
from verticopula.schema.progress import Progress
from verticopula.schema.study_settings import COORDINATOR, check_parties
from verticopula.stats.copula import FittedCopula, Layout
from verticopula.stats.fit_result import FitResult, StrictSpending, find_unidentified
from verticopula.stats.marginals import Marginal
from verticopula.stats.rank_release import Masks
from verticopula.stats.strict.gaussian_margins import gaussian_cell_count
from verticopula.stats.strict.noise_budget import StrictBudget, plan_strict
from verticopula.stats.strict.score_plan import plan_sums
from verticopula.stats.strict.strict_fit import fit_strict
from verticopula.stats.strict.tuning import STRICT_TUNING


@dataclass(frozen=True)
class StrictReleases:
    """Everything that a strict study releases."""

    layout: Layout
    observed: Masks
    missingness: Missingness
    budget: StrictBudget
    marginals: Mapping[ColumnKey, Marginal]
    plan: SumsPlan
    sums: tuple[PatternSums, ...]


def strict(
    federation: Federation,
    budget: StudyBudget,
    study: str,
    side: CoordinatorSide,
) -> Rounds[FitResult]:
    """Thirteen rounds: who is observed, two of consent, margins, and nine of secure sums; then the fit."""
    opened = yield from open_all(federation, budget, study, side.progress, side.compute_handler, side.context)
    fit = fit_strict(
        opened.sums,
        opened.plan,
        opened.layout,
        opened.marginals,
        opened.budget,
        opened.missingness,
        lambda done, most: side.progress("fitting", done, most),
    )
    return FitResult(
        FittedCopula(opened.layout, fit.marginals, fit.correlation),
        opened.marginals,
        fit.report,
        opened.missingness,
        {},
        unidentified=find_unidentified(fit.correlation, opened.layout, fit.report.overlap),
        strict=fit.strict,
        spending=StrictSpending(
            opened.budget.deviations,
            opened.plan.mu,
            person_mu(opened.plan, rows_agreed=are_rows_agreed(side.context.alignment)),
            {party: block_factor(opened.plan, party) for party in opened.plan.parties},
            {party: int(own_rows(opened.plan, party).sum()) for party in opened.plan.parties},
        ),
    )


def open_all(
    federation: Federation,
    study_budget: StudyBudget,
    study: str,
    progress: Progress,
    compute_handler: ComputeHandler | None,
    context: StudyContext = NO_CONTEXT,
) -> Rounds[StrictReleases]:
    """All rounds of a strict study. Nothing is spent before everybody has consented to all of it."""
    check_parties(federation, STRICT)
    observed, presence = yield from ask_presence(federation, study, STRICT.name)
    missingness = summarise_missingness(observed)
    budget = plan_strict(federation, study_budget, missingness.observed)
    check_shared_size(federation, observed, budget)
    progress("asking for consent", 0, 4)
    proposal = propose(federation, study_budget, study, STRICT.name, presence, missingness.n_subjects, context)
    yield from ask_consent(federation, proposal)
    progress("collecting margins", 1, 4)
    replies = yield {
        party.name: GaussianMarginsRequest(
            study,
            STRICT.name,
            tuple(MarginQuery(c.name, budget.deviations[ColumnKey(party.name, c.name)]) for c in party.columns),
        )
        for party in federation.parties
    }
    marginals = gather_margins(federation, replies, observed, budget.deviations)
    evidence = PlanEvidence(
        tuple(np.column_stack([observed[ColumnKey(p.name, c.name)] for c in p.columns]) for p in federation.parties),
        tuple(reply for p in federation.parties if isinstance(reply := replies[p.name], GaussianMarginsReply)),
    )
    progress("secure sums", 2, 4)
    layout = Layout.of({key: federation.column(key) for key in federation.keys})
    plan = plan_sums(federation, layout, observed, marginals, budget, rows_agreed=are_rows_agreed(context.alignment))
    own = compute_handler if COORDINATOR in plan.compute else None
    sums = yield from secure_sums(plan, study, STRICT.name, own, evidence)
    progress("secure sums", 4, 4)
    return StrictReleases(layout, observed, missingness, budget, marginals, plan, sums)


def check_shared_size(federation: Federation, observed: Masks, budget: StrictBudget) -> None:
    """SettingsError if the shares of all cells may not fit in one message: from public numbers, before anybody pays.

    How cells are pooled follows from the noisy margins. Nothing is known of those here, so every column counts with
    the most cells that it may be pooled to.
    """
    numbers = 0
    for party in federation.parties:
        keys = [ColumnKey(party.name, column.name) for column in party.columns]
        people = int(np.logical_or.reduce([observed[key] for key in keys]).sum())
        numbers += people * sum(_most_cells(federation, key, observed, budget) - 1 for key in keys)
    check_bodies(numbers)


def _most_cells(federation: Federation, key: ColumnKey, observed: Masks, budget: StrictBudget) -> int:
    cells = gaussian_cell_count(federation.column(key), int(observed[key].sum()), budget.deviations[key])
    return min(cells, STRICT_TUNING.most_cells)
