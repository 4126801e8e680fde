"""Strict: margins and second moments with noise for a whole person, then the coordinator fits a copula to them.

No rank and no row of anybody is released. See docs/explanation/strict.md for what each round says, to whom, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from verticopula.data.missingness import Missingness, summarise_missingness
from verticopula.errors import ProtocolError
from verticopula.mpc.opened_sums import PatternSums
from verticopula.mpc.sums_plan import SumsPlan, block_factor, own_rows
from verticopula.privacy.budget import StudyBudget
from verticopula.protocol.coordinator_side import CoordinatorSide
from verticopula.protocol.messages import (
    ConsentReply,
    GaussianMarginsReply,
    GaussianMarginsRequest,
    MarginQuery,
    PresenceRequest,
    Reply,
    StrictConsentRequest,
)
from verticopula.protocol.secure_sums import ComputeHandler, secure_sums
from verticopula.protocol.shared_rounds import Rounds, gather_presence
from verticopula.schema.federation import ColumnKey, Federation
from verticopula.schema.methods import STRICT
from verticopula.schema.progress import Progress
from verticopula.schema.study_settings import COORDINATOR, check_parties
from verticopula.stats.copula import FittedCopula, Layout
from verticopula.stats.fit_result import FitResult, StrictSpending, find_unidentified
from verticopula.stats.marginals import Marginal
from verticopula.stats.rank_release import Masks
from verticopula.stats.strict.gaussian_margins import gaussian_cell_count, settle_margin
from verticopula.stats.strict.noise_budget import StrictBudget, plan_strict
from verticopula.stats.strict.score_plan import plan_sums
from verticopula.stats.strict.strict_fit import fit_strict

_FURTHEST = 50.0  # standard deviations: no noise is ever further off


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
    """Six rounds: who is observed, whether everybody agrees, margins, and three of secure sums; then the fit."""
    opened = yield from open_all(federation, budget, study, side.progress, side.compute_handler)
    fit = fit_strict(
        opened.sums,
        opened.plan,
        opened.layout,
        opened.marginals,
        opened.budget,
        opened.missingness,
        side.rng,
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
) -> Rounds[StrictReleases]:
    """All rounds of a strict study. The second spends nothing: if one party refuses, no other has released anything."""
    check_parties(federation, STRICT)
    names = [party.name for party in federation.parties]
    replies = yield {name: PresenceRequest(study, STRICT.name) for name in names}
    observed = gather_presence(federation, replies)
    missingness = summarise_missingness(observed)
    budget = plan_strict(federation, study_budget, observed)
    orders = {
        party.name: tuple(
            MarginQuery(column.name, budget.deviations[ColumnKey(party.name, column.name)]) for column in party.columns
        )
        for party in federation.parties
    }
    progress("asking for agreement", 0, 4)
    replies = yield {
        name: StrictConsentRequest(study, STRICT.name, orders[name], budget.moments_mu(name if budget.totals else None))
        for name in names
    }
    for name in names:
        if not isinstance(replies.get(name), ConsentReply):
            raise ProtocolError(f"party {name!r} did not agree to the releases asked of it")
    progress("collecting margins", 1, 4)
    replies = yield {name: GaussianMarginsRequest(study, STRICT.name, orders[name]) for name in names}
    marginals = gather_margins(federation, replies, observed, budget)
    progress("secure sums", 2, 4)
    layout = Layout.of({key: federation.column(key) for key in federation.keys})
    plan = plan_sums(federation, layout, observed, marginals, budget)
    own = compute_handler if COORDINATOR in plan.compute else None
    sums = yield from secure_sums(plan, study, STRICT.name, own)
    progress("secure sums", 4, 4)
    return StrictReleases(layout, observed, missingness, budget, marginals, plan, sums)


def gather_margins(
    federation: Federation, replies: Mapping[str, Reply], observed: Masks, budget: StrictBudget
) -> dict[ColumnKey, Marginal]:
    """Margins by column, checked for shape and range before anything is computed from them."""
    marginals: dict[ColumnKey, Marginal] = {}
    for party in federation.parties:
        reply = replies.get(party.name)
        if not isinstance(reply, GaussianMarginsReply) or len(reply.cells) != len(party.columns):
            raise ProtocolError(f"party {party.name!r} did not answer with the margins of its columns")
        for column, cells in zip(party.columns, reply.cells, strict=True):
            key = ColumnKey(party.name, column.name)
            n, deviation = int(observed[key].sum()), budget.deviations[key]
            size, reach = gaussian_cell_count(column, n, deviation), _FURTHEST * (deviation + 3.0)
            fits = cells.dtype == np.int64 and cells.shape == (size,)
            fits = fits and int(cells.min()) >= -reach and int(cells.max()) <= n + reach
            if not fits or (size == 2 and int(cells[0]) + int(cells[1]) != n):
                raise ProtocolError(f"{key}: the noisy cells are missing or have the wrong shape or range")
            marginals[key] = settle_margin(column, cells, n, deviation)
    return marginals
