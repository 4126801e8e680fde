"""Strict: margins and two openings with noise for a whole person, then the coordinator fits a copula to them.

No rank and no row of anybody is released. See docs/explanation/strict.md for what each round says, to whom, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.data.missingness import Missingness, summarise_missingness
from verticopula.mpc.opened_sums import NoisyGram
from verticopula.mpc.sums_plan import (
    block_factor,
    check_bodies,
    count_rows,
    person_mu,
    selection_mu,
    tables_person_mu,
)
from verticopula.privacy.budget import StudyBudget
from verticopula.protocol.coordinator_side import CoordinatorSide
from verticopula.protocol.gathered_margins import gather_margins
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.secure_sums import ComputeHandler, SecureOpenings, secure_sums
from verticopula.protocol.shared_rounds import Rounds, ask_consent, ask_presence
from verticopula.protocol.strict_messages import GaussianMarginsReply, GaussianMarginsRequest, MarginQuery, PlanEvidence
from verticopula.protocol.study_proposal import NO_CONTEXT, StudyContext, are_rows_agreed, propose
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation
from verticopula.schema.methods import STRICT
from verticopula.schema.progress import Progress
from verticopula.schema.study_settings import COORDINATOR, check_parties
from verticopula.stats.copula import Layout
from verticopula.stats.fit_result import FitResult, StrictSpending, find_unidentified
from verticopula.stats.marginals import Marginal
from verticopula.stats.rank_release import Masks
from verticopula.stats.strict.gaussian_margins import gaussian_cell_count
from verticopula.stats.strict.noise_budget import StrictBudget, plan_strict_budget
from verticopula.stats.strict.strict_fit import fit_strict
from verticopula.stats.strict.strict_plan import (
    StrictPlan,
    place_of_response,
    plan_strict_sums,
    read_counts,
    read_gram,
    read_selection,
)
from verticopula.stats.tilting.study_fit import ChosenTables, choose_tables
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class StrictReleases:
    """Everything that a strict study releases.

    Attributes
    ----------
    plan : of both openings
    opened : what they opened
    chosen : what the first opening says, and which tables were opened
    """

    layout: Layout
    observed: Masks
    missingness: Missingness
    budget: StrictBudget
    margins: Mapping[ColumnKey, Marginal]
    plan: StrictPlan
    opened: SecureOpenings
    chosen: ChosenTables


def strict(
    federation: Federation,
    budget: StudyBudget,
    study: str,
    side: CoordinatorSide,
) -> Rounds[FitResult]:
    """Thirteen rounds and one where tables are chosen: who is known, two of consent, margins, secure sums; then the
    fit.
    """
    releases = yield from open_all(federation, budget, study, side.progress, side.compute_handler, side.context)
    plan = releases.plan
    fit = fit_strict(
        plan.openings,
        releases.chosen,
        read_counts(plan, releases.opened.tables),
        releases.layout,
        releases.margins,
        plan.sums.parties,
        side.rng,
        lambda done, most: side.progress("fitting", done, most),
    )
    return FitResult(
        fit.copula,
        releases.margins,
        fit.report,
        releases.missingness,
        {},
        unidentified=find_unidentified(fit.copula.correlation, releases.layout, fit.report.overlap),
        strict=fit.strict,
        spending=spending_of(releases, rows_agreed=are_rows_agreed(side.context.alignment)),
    )


def spending_of(releases: StrictReleases, *, rows_agreed: bool) -> StrictSpending:
    """What a study has spent, as its parties' ledgers have it."""
    plan, budget = releases.plan.sums, releases.budget
    known = {party: count_rows(plan, party) for party in plan.parties}
    return StrictSpending(
        budget.deviations,
        plan.mu,
        person_mu(plan, rows_agreed=rows_agreed),
        {party: block_factor(plan, party) if known[party] else 0.0 for party in plan.parties},
        known,
        plan.mu_tables,
        tables_person_mu(plan, rows_agreed=rows_agreed),
        {party: cost for party in plan.parties if (cost := selection_mu(plan, party)) > 0.0},
        frozenset(key for key, empty in budget.empties.items() if empty),
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
    budget = plan_strict_budget(federation, study_budget, missingness.observed, missingness.n_subjects)
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
    known = {party.name: observed[ColumnKey(party.name, party.columns[0].name)] for party in federation.parties}
    margins = gather_margins(federation, replies, known, budget)
    sent = (reply for p in federation.parties if isinstance(reply := replies[p.name], GaussianMarginsReply))
    evidence = PlanEvidence.of(known.values(), sent)
    progress("secure sums", 2, 4)
    plan = plan_strict_sums(federation, known, margins, budget, rows_agreed=are_rows_agreed(context.alignment))
    chosen: list[ChosenTables] = []

    def choose(opened: NoisyGram, selection: Mapping[str, Ints]) -> Ints:
        chosen.append(choose_pairs(federation, plan, opened, selection))
        return np.array(chosen[-1].pairs, dtype=np.int64).reshape(-1, 2)

    own = compute_handler if COORDINATOR in plan.sums.compute else None
    opened = yield from secure_sums(plan.sums, study, STRICT.name, own, evidence, choose)
    progress("secure sums", 4, 4)
    layout = Layout.of({key: federation.column(key) for key in federation.keys})
    return StrictReleases(layout, observed, missingness, budget, margins, plan, opened, chosen[-1])


def choose_pairs(
    federation: Federation, plan: StrictPlan, opened: NoisyGram, selection: Mapping[str, Ints]
) -> ChosenTables:
    """What the first opening says, and the pairs of the second. Draws are from a generator that everybody knows."""
    rng = np.random.default_rng(int(fingerprint(plan.sums), 16))
    gram, reading = read_gram(plan, opened), read_selection(plan, selection)
    return choose_tables(plan.openings, gram, reading, rng, place_of_response(federation))


def check_shared_size(federation: Federation, observed: Masks, budget: StrictBudget) -> None:
    """SettingsError if the shares of all cells may not fit in one message: from public numbers, before anybody pays.

    How cells are pooled follows from the noisy margins. Nothing is known of those here, so every column counts with
    the most cells that it may be pooled to.
    """
    check_bodies(
        sum(int(observed[key].sum()) * (_most_cells(federation, key, observed, budget) - 1) for key in federation.keys),
        federation.network.message_gib * 2**30,
    )


def _most_cells(federation: Federation, key: ColumnKey, observed: Masks, budget: StrictBudget) -> int:
    cells = gaussian_cell_count(federation.column(key), int(observed[key].sum()), budget.deviations[key])
    return min(cells, TILTED_TUNING.most_cells) + budget.empties[key]
