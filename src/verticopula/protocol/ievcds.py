"""IEVCDS (Algorithm 3): T rounds of ranks, each of columns completed with what the round before implied.

Every round after the first ranks imputed values too, and those move with any replaced record: one
replacement can flip N - 1 + (number missing) comparisons there, and is charged for them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from verticopula.errors import ProtocolError
from verticopula.privacy.budget import BudgetRequest, ColumnBudget
from verticopula.protocol.evcds import (
    align_with,
    draw_in_order,
    largest_sensitivity,
    observed_curves,
    response_latents,
)
from verticopula.protocol.messages import CompletedRanksReply, CompletedRanksRequest, Imputation, Reply, Request
from verticopula.protocol.shared_rounds import Rounds, check_ranks, collect
from verticopula.schema.federation import ColumnKey, Federation
from verticopula.stats.copula import FittedCopula
from verticopula.stats.em import find_patterns
from verticopula.stats.fit_result import FitResult
from verticopula.stats.loadings import Measurement
from verticopula.stats.margin_curves import correct_marginals
from verticopula.stats.pairwise import fit_pairwise
from verticopula.stats.rank_release import Released
from verticopula.stats.readings import read_release

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
    released, layout, observed = got.released, got.released.layout, got.released.observed
    first = response_latents(federation, released)
    everybody = {key: np.ones(released.n_subjects, dtype=bool) for key in layout.keys}
    for round_number in range(1, request.rounds + 1):
        correlation, report = fit_pairwise(released, observed)
        latents = draw_in_order(released, correlation, first, rng)
        marginals = correct_marginals(layout, got.released.marginals, observed_curves(latents, observed))
        if round_number == request.rounds:
            break
        copula = FittedCopula(layout, marginals, correlation)
        completed = draw_missing(released, copula, latents, observed, rng)
        asked = ask_completed(federation, request, study, round_number + 1, copula, completed, observed, got.budgets)
        replies = yield dict(asked)
        ranks = gather_completed(federation, replies, released.n_subjects)
        released = Released.build(layout, marginals, everybody, ranks, got.budgets, request.sampler)
    return FitResult(
        FittedCopula(layout, marginals, correlation),
        got.released.marginals,
        report,
        got.missingness,
        got.budgets,
        margin_sensitivity=largest_sensitivity(latents, observed),
        draw_aligned=align_with(released, correlation, first, observed),
    )


def draw_missing(
    released: Released, copula: FittedCopula, latents: Floats, observed: Bools, rng: np.random.Generator
) -> Floats:
    """The latents, those of missing values drawn given what the subject's noisy ranks say about its other latents.

    Not given the other latents themselves, as they were drawn: noisy, and in a random order where values are tied,
    they hang together less than the correlation says, and whatever is predicted from them as if they were exact
    would too.
    """
    readings = read_release(released)
    seen = [observed[:, part.start] for part in copula.layout.slices]
    own = [
        readings.values[rows, part].T @ readings.values[rows, part] / max(int(rows.sum()), 1)
        for rows, part in zip(seen, copula.layout.slices, strict=True)
    ]
    measurement = Measurement.of(copula, readings, own)
    drawn = measurement.draw_latents(readings.values, find_patterns(observed), rng)
    return np.where(observed, latents, drawn)


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
    for key, part in zip(copula.layout.keys, copula.layout.slices, strict=True):
        seen = observed[:, part.start]
        epsilon = budgets[key].epsilon_ranks
        if federation.column(key).is_discrete:
            codes = copula.decoder(key, part)(latents[~seen, part]).astype(np.int64)
            asked[key.party].append(Imputation(key.column, epsilon, np.empty(0), np.empty(0), codes))
        else:
            column = latents[:, part.start]
            curve, grades = np.sort(ndtr(column[seen])), ndtr(column[~seen])
            asked[key.party].append(Imputation(key.column, epsilon, curve, grades, None))
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
