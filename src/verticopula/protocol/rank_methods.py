"""The methods that rank, as rounds: VCDS, EVCDS and refined ask once, IEVCDS asks again for completed columns.

Everything after the releases is post-processing at the coordinator, in `stats/`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from verticopula.privacy.budget import ColumnBudget, StudyBudget
from verticopula.protocol.column_replies import column_parts
from verticopula.protocol.coordinator_side import CoordinatorSide
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.rank_messages import CompletedRanksReply, CompletedRanksRequest, Imputation
from verticopula.protocol.shared_rounds import Rounds, check_ranks, collect
from verticopula.schema.columns import ColumnKey
from verticopula.schema.dependence import TILTED_DEPENDENCE
from verticopula.schema.federation import Federation
from verticopula.schema.methods import EVCDS, IEVCDS, REFINED, VCDS
from verticopula.stats.copula import FittedCopula
from verticopula.stats.evcds import fit_evcds, prepare_missing
from verticopula.stats.fit_result import FitResult
from verticopula.stats.ievcds import finish_rounds, fit_round, place_missing
from verticopula.stats.rank_release import CollectedReleases, RankRelease
from verticopula.stats.refined_method import fit_refined
from verticopula.stats.sampler_choice import choose_sampler
from verticopula.stats.tilted_ranks.rank_tilting import tilt_result
from verticopula.stats.vcds import fit_vcds

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def vcds(federation: Federation, budget: StudyBudget, study: str, side: CoordinatorSide) -> Rounds[FitResult]:
    """verticopula's variant of Algorithm 1: the shared rounds, then correlations pair by pair."""
    collected = yield from collect(federation, budget, study, VCDS.name, side.context)
    return _tilt_if_asked(fit_vcds(collected), collected, federation, side)


def evcds(federation: Federation, budget: StudyBudget, study: str, side: CoordinatorSide) -> Rounds[FitResult]:
    """verticopula's variant of Algorithm 2: the shared rounds, then one rank-constrained draw of all latents."""
    collected = yield from collect(federation, budget, study, EVCDS.name, side.context)
    return _tilt_if_asked(fit_evcds(collected, federation.response, side.rng), collected, federation, side)


def refined(federation: Federation, budget: StudyBudget, study: str, side: CoordinatorSide) -> Rounds[FitResult]:
    """The shared rounds, then the coordinator undoes what missingness did, for no further budget."""
    collected = yield from collect(federation, budget, study, REFINED.name, side.context)
    result = fit_refined(collected, lambda done, most: side.progress("refining", done, most))
    side.progress("refining", 1, 1)  # it mostly needs far fewer rounds than it may take
    return _tilt_if_asked(result, collected, federation, side)


def ievcds(federation: Federation, budget: StudyBudget, study: str, side: CoordinatorSide) -> Rounds[FitResult]:
    """verticopula's variant of Algorithm 3: the shared rounds, the first of `budget.rounds`, then the others."""
    collected = yield from collect(federation, budget, study, IEVCDS.name, side.context)
    known = collected.missingness
    budget = choose_sampler(federation, budget, known.observed, known.n_subjects)
    release, layout, observed = collected.release, collected.release.layout, collected.release.observed
    everybody = {key: np.ones(release.n_subjects, dtype=bool) for key in layout.keys}
    fit = fit_round(collected, release, federation.response, side.rng)
    for round_number in range(2, budget.rounds + 1):
        completed = prepare_missing(release, fit.copula, observed)(fit.latents, side.rng)
        replies = yield ask_completed(
            federation, budget, study, round_number, fit.copula, completed, observed, collected.budgets
        )
        ranks = gather_completed(federation, replies, release.n_subjects)
        release = RankRelease.build(layout, fit.copula.margins, everybody, ranks, collected.budgets, budget.sampler)
        fit = fit_round(collected, release, federation.response, side.rng)
    result = finish_rounds(collected, release, fit, federation.response)
    return _tilt_if_asked(result, collected, federation, side)


def _tilt_if_asked(
    result: FitResult, collected: CollectedReleases, federation: Federation, side: CoordinatorSide
) -> FitResult:
    """The result as it is, or tilted by tables that the first round's ranks tell: those of values that are real."""
    if side.dependence != TILTED_DEPENDENCE:
        return result
    tilted: FitResult = tilt_result(
        result,
        collected.release,
        federation.response,
        side.rng,
        lambda done, most: side.progress("tilting", done, most),
    )
    return tilted


def ask_completed(
    federation: Federation,
    budget: StudyBudget,
    study: str,
    round_number: int,
    copula: FittedCopula,
    latents: Floats,
    observed: Bools,
    budgets: Mapping[ColumnKey, ColumnBudget],
) -> dict[str, Request]:
    """One request per party: where the model puts the subjects it has no value of."""
    asked: dict[str, list[Imputation]] = {party.name: [] for party in federation.parties}
    layout = copula.layout
    for key, part in zip(layout.keys, layout.slices, strict=True):
        places = place_missing(copula, latents, observed, key, part)
        asked[key.party].append(Imputation(key.column, budgets[key].epsilon_ranks, *places))
    return {
        name: CompletedRanksRequest(study, IEVCDS.name, budget.sampler, round_number, tuple(imputations))
        for name, imputations in asked.items()
    }


def gather_completed(
    federation: Federation, replies: Mapping[str, Reply], n_subjects: int
) -> dict[ColumnKey, NDArray[np.int64]]:
    """Ranks of all subjects by column, checked for shape and range."""
    ranks: dict[ColumnKey, NDArray[np.int64]] = {}
    what = "ranks of completed columns"
    for key, found in column_parts(federation, replies, CompletedRanksReply, lambda reply: reply.ranks, what):
        check_ranks(federation, key, found, n_subjects)
        ranks[key] = found
    return ranks
