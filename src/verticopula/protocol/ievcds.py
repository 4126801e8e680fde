"""IEVCDS (Algorithm 3): T rounds of ranks, each of columns completed with what the round before implied.

Every round after the first ranks imputed values too, and those move with any replaced record: one
replacement can flip N - 1 + (number missing) comparisons there, and is charged for them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from verticopula.copula import FittedCopula, Layout
from verticopula.curves import correct_marginals
from verticopula.errors import ProtocolError
from verticopula.nominal import choose_category, thresholds_for
from verticopula.pairwise import fit_pairwise
from verticopula.privacy.budget import BudgetRequest, ColumnBudget
from verticopula.protocol.evcds import (
    align_with,
    draw_cohort,
    largest_sensitivity,
    observed_curves,
    response_latents,
)
from verticopula.protocol.messages import CompletedRanksReply, CompletedRanksRequest, Imputation, Reply, Request
from verticopula.protocol.rounds import Rounds, check_ranks, collect
from verticopula.released import Released
from verticopula.result import FitResult
from verticopula.schema import ColumnKey, Federation

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def ievcds(
    federation: Federation,
    request: BudgetRequest,
    study: str,
    rng: np.random.Generator,
) -> Rounds[FitResult]:
    """The shared rounds, which are the first of `request.rounds`, then the others."""
    got = yield from collect(federation, request, study, "ievcds")
    released = got.released
    observed = released.observed
    first = response_latents(federation, released)
    correlation, report = fit_pairwise(released)
    latents = draw_cohort(released, correlation, first, rng)
    curves = observed_curves(latents, observed)
    everybody = {key: np.ones(released.n_subjects, dtype=bool) for key in released.layout.keys}
    for round_number in range(2, request.rounds + 1):
        marginals = correct_marginals(got.released.layout, got.released.marginals, curves)
        copula = FittedCopula(got.released.layout, marginals, correlation)
        requests = ask_completed(federation, request, study, round_number, copula, latents, observed, got.budgets)
        replies = yield dict(requests)
        ranks = gather_completed(federation, replies, released.n_subjects)
        released = Released.build(got.released.layout, marginals, everybody, ranks, got.budgets, request.sampler)
        correlation, report = fit_pairwise(released)
        latents = draw_cohort(released, correlation, first, rng)
        curves = observed_curves(latents, observed)
    marginals = correct_marginals(got.released.layout, got.released.marginals, curves)
    return FitResult(
        FittedCopula(got.released.layout, marginals, correlation),
        got.released.marginals,
        report,
        got.missingness,
        got.budgets,
        margin_sensitivity=largest_sensitivity(latents, observed),
        draw_aligned=align_with(released, correlation, first),
    )


def ask_completed(
    federation: Federation,
    request: BudgetRequest,
    study: str,
    round_number: int,
    copula: FittedCopula,
    latents: Floats,
    observed: Bools,
    budgets: Mapping[ColumnKey, ColumnBudget],
) -> dict[str, Request]:
    """One request per party: where the model puts the subjects it has no value of."""
    asked: dict[str, list[Imputation]] = {party.name: [] for party in federation.parties}
    layout: Layout = copula.layout
    for key, part in zip(layout.keys, layout.slices, strict=True):
        seen = observed[:, part.start]
        epsilon = budgets[key].epsilon_ranks
        if part.stop - part.start == 1:
            column = latents[:, part.start]
            curve, grades = np.sort(ndtr(column[seen])), ndtr(column[~seen])
            asked[key.party].append(Imputation(key.column, epsilon, curve, grades, None))
        else:
            probabilities = copula.marginals[key].probabilities
            thresholds = thresholds_for(probabilities, copula.correlation[part, part])
            codes = choose_category(latents[~seen][:, part], thresholds)
            asked[key.party].append(Imputation(key.column, epsilon, np.empty(0), np.empty(0), codes))
    return {
        name: CompletedRanksRequest(study, "ievcds", request.sampler, round_number, tuple(imputations))
        for name, imputations in asked.items()
    }


def gather_completed(
    federation: Federation, replies: Mapping[str, Reply], n_subjects: int
) -> dict[ColumnKey, NDArray[np.int64]]:
    """Ranks of all subjects by column, checked for shape and range."""
    ranks: dict[ColumnKey, NDArray[np.int64]] = {}
    for party in federation.parties:
        reply = replies[party.name]
        if not isinstance(reply, CompletedRanksReply) or len(reply.ranks) != len(party.columns):
            raise ProtocolError(f"party {party.name!r} did not answer with ranks of completed columns")
        for column, found in zip(party.columns, reply.ranks, strict=True):
            key = ColumnKey(party.name, column.name)
            check_ranks(federation, key, found, n_subjects)
            ranks[key] = found
    return ranks
