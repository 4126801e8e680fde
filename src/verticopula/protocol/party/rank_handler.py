"""A party's releases in a study by ranks: noisy ranks and cells of its columns, then ranks of completed columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.data.column_encoding import EncodedColumn
from verticopula.data.column_ranges import can_hold
from verticopula.data.engine_table import EngineTable
from verticopula.data.row_chunks import ColumnReading
from verticopula.data.scratch_file import ROWS_IN_MEMORY
from verticopula.data.tables import AlignedTable
from verticopula.errors import PolicyRefused, ProtocolError
from verticopula.privacy.budget import LARGEST_EPSILON, SMALLEST_EPSILON, coins_per_comparison
from verticopula.privacy.release import Release
from verticopula.protocol.consent_messages import StudyProposal
from verticopula.protocol.party.column_work import ColumnWork
from verticopula.protocol.party.ranks_on_disk import keep_on_disk
from verticopula.protocol.party.release_control import ReleaseControl
from verticopula.protocol.rank_messages import (
    ColumnQuery,
    ColumnRelease,
    CompletedRanksReply,
    CompletedRanksRequest,
    Imputation,
    ReleaseReply,
    ReleaseRequest,
)
from verticopula.protocol.study_proposal import MOST_ROUNDS, own_columns_of
from verticopula.schema.columns import Column
from verticopula.schema.federation import Party
from verticopula.schema.setting_choices import EXACT_SAMPLER, SAMPLERS
from verticopula.stats.binomial_ranks import draw_binomial_ranks
from verticopula.stats.copula import latent_count
from verticopula.stats.margin_cells import cell_count, to_cells
from verticopula.stats.marginals import release_cells, release_counted
from verticopula.stats.rank_chunks import latent_values, release_on_engine
from verticopula.stats.ranks import flip_comparisons


@dataclass(frozen=True, repr=False)
class RankHandler:
    """What leaves one party, and what it costs. No repr: it can reach data.

    Attributes
    ----------
    work : how columns are worked on, and who is told
    """

    control: ReleaseControl
    work: ColumnWork

    @property
    def name(self) -> str:
        return self.control.name

    @property
    def _table(self) -> AlignedTable:
        return self.control.table

    # ---- what was consented to -------------------------------------------------------------

    def price_all(self, proposal: StudyProposal) -> list[Release]:
        """The ledger entries of everything that a proposal asks of this party."""
        first = self._planned_release(proposal)
        entries = self._price_first(first)  # checks the queries, so what follows knows its columns
        if not 1 <= proposal.rounds <= MOST_ROUNDS:
            raise PolicyRefused(f"party {self.name!r}: a protocol has 1 to {MOST_ROUNDS} rounds")
        if proposal.rounds > 1:
            self._refuse_rounds_on_engine()
        for query in first.queries if proposal.rounds > 1 else ():
            entry = self._completed_entry(first, query.column, query.epsilon_ranks)
            entries += [entry] * (proposal.rounds - 1)
        return entries

    def place_of(self, request: ReleaseRequest | CompletedRanksRequest) -> str:
        """Which place of a study the request is for."""
        return "release" if isinstance(request, ReleaseRequest) else f"round {request.round_number}"

    def is_planned(self, proposal: StudyProposal, request: ReleaseRequest | CompletedRanksRequest) -> bool:
        """Whether it is exactly what was consented to."""
        planned = self._planned_release(proposal)
        if isinstance(request, ReleaseRequest):
            return request == planned
        number = request.round_number
        asked = tuple((item.column, item.epsilon_ranks) for item in request.imputations)
        fits = asked == tuple((query.column, query.epsilon_ranks) for query in planned.queries)
        return fits and request.sampler == proposal.sampler and 2 <= number <= proposal.rounds

    def _planned_release(self, proposal: StudyProposal) -> ReleaseRequest:
        """The one request for first releases that a proposal allows."""
        own, columns = own_columns_of(proposal, self.name), self._table.party.columns
        if not len(proposal.ranks[own]) == len(proposal.marginals[own]) == len(columns):
            raise ProtocolError(f"party {self.name!r}: the study asks for no ranks of its columns")
        parts = zip(columns, proposal.ranks[own], proposal.marginals[own], strict=True)
        queries = tuple(ColumnQuery(column.name, float(ranks), float(margin)) for column, ranks, margin in parts)
        return ReleaseRequest(proposal.study, proposal.method, proposal.sampler, queries)

    # ---- prices ----------------------------------------------------------------------------

    def price(self, request: ReleaseRequest | CompletedRanksRequest) -> list[Release]:
        """The ledger entries that answering costs; PolicyRefused where the request makes no sense."""
        if isinstance(request, ReleaseRequest):
            return self._price_first(request)
        self._check_completion(request)
        return [self._completed_entry(request, item.column, item.epsilon_ranks) for item in request.imputations]

    def _price_first(self, request: ReleaseRequest) -> list[Release]:
        """The ledger entries that answering would cost."""
        self._check_queries(request)
        return [entry for query in request.queries for entry in self._entries(request, query)]

    def _entries(self, request: ReleaseRequest, query: ColumnQuery) -> tuple[Release, Release]:
        column = self._table.party.column(query.column)
        n_observed = int(self._table.columns[query.column].observed.sum())
        return self.control.pricing(request.study).first_round(
            column, request.sampler, n_observed, query.epsilon_ranks, query.epsilon_marginal
        )

    def _completed_entry(self, request: ReleaseRequest | CompletedRanksRequest, name: str, epsilon: float) -> Release:
        """The ledger entry of one column's ranks in a round on completed columns."""
        seen = self._table.columns[name].observed
        n_observed, n_missing = int(seen.sum()), int((~seen).sum())
        column = self._table.party.column(name)
        return self.control.pricing(request.study).completed_round(
            column, request.sampler, n_observed, n_missing, epsilon
        )

    def _check_queries(self, request: ReleaseRequest) -> None:
        check_asked_columns(self._table.party, [query.column for query in request.queries], request.sampler)
        if self._table.source is not None and request.sampler == EXACT_SAMPLER:
            raise PolicyRefused(f"party {self.name!r}: its engine draws ranks by the binomial sampler only")
        for query in request.queries:
            for epsilon in (query.epsilon_ranks, query.epsilon_marginal):
                check_asked_epsilon(self.name, query.column, epsilon)

    def _check_completion(self, request: CompletedRanksRequest) -> None:
        self._refuse_rounds_on_engine()
        check_asked_columns(self._table.party, [item.column for item in request.imputations], request.sampler)
        for item in request.imputations:
            check_asked_epsilon(self.name, item.column, item.epsilon_ranks)
            seen = self._table.columns[item.column].observed
            n_observed, n_missing = int(seen.sum()), int((~seen).sum())
            column = self._table.party.column(item.column)
            if column.is_discrete:
                fits = item.codes is not None and item.codes.shape == (n_missing,) and can_hold(column, item.codes)
            else:
                fits = item.codes is None and item.curve.shape == (n_observed,) and item.grades.shape == (n_missing,)
                fits = fits and bool(np.all(np.diff(item.curve) >= 0.0) and np.isfinite(item.curve).all())
                fits = fits and bool(np.isfinite(item.grades).all())
            if not fits:
                raise PolicyRefused(f"party {self.name!r}, column {item.column!r}: the completion does not fit")

    def _refuse_rounds_on_engine(self) -> None:
        if self._table.source is not None:
            raise PolicyRefused(f"party {self.name!r}: its engine does not rank completed columns")

    # ---- releases --------------------------------------------------------------------------

    def answer(self, request: ReleaseRequest | CompletedRanksRequest) -> ReleaseReply | CompletedRanksReply:
        """The reply, drawn anew."""
        if isinstance(request, ReleaseRequest):
            columns = self.work.map(lambda query: self._release_column(request, query), request.queries)
            is_large = self._table.n_subjects > ROWS_IN_MEMORY
            return ReleaseReply(self.name, keep_on_disk(columns) if is_large else tuple(columns))
        ranks = self.work.map(lambda item: self._rank_completed_column(request, item), request.imputations)
        return CompletedRanksReply(self.name, tuple(ranks))

    def _release_column(self, request: ReleaseRequest, query: ColumnQuery) -> ColumnRelease:
        if self._table.source is not None:
            return self._release_on_engine(self._table.source, request, query)
        column = self._table.party.column(query.column)
        in_cohort, encoded = request.sampler == EXACT_SAMPLER, self._table.columns[column.name]
        own, seen = (encoded.values, encoded.observed) if in_cohort else self._table.in_own_order(column.name)
        values = own[seen]
        ranks = self._noisy_ranks(values, seen, column, query.epsilon_ranks, request.sampler, request.study)
        cells = cell_count(column, values.size, query.epsilon_marginal)
        noisy = release_cells(
            to_cells(values, column, cells),
            cells,
            query.epsilon_marginal,
            self.control.noise,
            request.study,
            column.name,
            "cells",
        )
        if not in_cohort:
            ranks = self._table.in_cohort_order(ranks, seen, encoded)
        return ColumnRelease(column.name, ranks, noisy)

    def _release_on_engine(self, source: EngineTable, request: ReleaseRequest, query: ColumnQuery) -> ColumnRelease:
        """The same where workers have the table: they draw ranks with keys of this release, and count in cells."""
        column, encoded = self._table.party.column(query.column), self._table.columns[query.column]
        seen, study = self._table.own_mask(column.name), request.study
        n_observed = int(seen.sum())
        drawn = release_on_engine(
            source,
            ColumnReading(column, self._table.party.related(column), self._table.party.decimal),
            query.epsilon_ranks / coins_per_comparison(column, request.sampler),
            cell_count(column, n_observed, query.epsilon_marginal),
            lambda index, label: self.control.noise.stream_key(study, column.name, str(index), "coins", label),
        )
        noisy = release_counted(drawn.counts, query.epsilon_marginal, self.control.noise, study, column.name, "cells")
        self.work.on_column(latent_count(column) * (n_observed * (n_observed - 1) // 2))
        return ColumnRelease(column.name, self._table.in_cohort_order(drawn.ranks, seen, encoded), noisy)

    def _rank_completed_column(self, request: CompletedRanksRequest, item: Imputation) -> NDArray[np.int64]:
        column = self._table.party.column(item.column)
        label = f"round {request.round_number}"
        study = request.study
        keys = self.control.noise.stream(study, column.name, label, "ties").words(self._table.observed().shape[0])
        values = complete_column(self._table.columns[item.column], item, keys)
        everybody = np.ones(values.size, dtype=bool)
        ranks = self._noisy_ranks(values, everybody, column, item.epsilon_ranks, request.sampler, study, label)
        return ranks.astype(np.int64)

    def _noisy_ranks(
        self,
        values: NDArray[Any],
        observed: NDArray[np.bool_],
        column: Column,
        epsilon: float,
        sampler: str,
        study: str,
        *label: str,
    ) -> NDArray[np.int32]:
        """(n, L) noisy ranks of the observed; the coins are labelled, so that no two releases share any."""
        per_coin = epsilon / coins_per_comparison(column, sampler)
        ranks = np.empty((values.size, latent_count(column)), dtype=np.int32, order="F")
        for index, latent in enumerate(latent_values(values, column)):
            stream = partial(self.control.noise.stream, study, column.name, str(index), "coins", *label)
            if sampler == EXACT_SAMPLER:
                ranks[:, index] = flip_comparisons(latent, per_coin, stream())
            else:
                ranks[:, index] = draw_binomial_ranks(latent, per_coin, stream, observed)
            self.work.on_column(values.size * (values.size - 1) // 2)
        return ranks


def check_asked_columns(party: Party, asked: list[str], sampler: str) -> None:
    """PolicyRefused unless the party holds these columns, each named once, and knows the sampler."""
    known = {column.name for column in party.columns}
    if len(set(asked)) != len(asked) or not set(asked) <= known:
        raise PolicyRefused(f"party {party.name!r}: the request names columns twice or columns it does not hold")
    if sampler not in SAMPLERS:
        raise PolicyRefused(f"party {party.name!r} does not know the sampler the request names")


def check_asked_epsilon(party: str, column: str, epsilon: float) -> None:
    """PolicyRefused unless it is one that can be charged."""
    if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:  # False for NaN, too
        raise PolicyRefused(
            f"party {party!r}, column {column!r}: epsilon must be positive, and at most {LARGEST_EPSILON:g}; "
            f"below {SMALLEST_EPSILON:g} nothing would be learnt"
        )


def complete_column(encoded: EncodedColumn, item: Imputation, keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Where every subject stands in the completed column: places in it, or values of a discrete one.

    Stays inside the party. The coordinator names the missing values of a discrete column: it knows the margin as
    well as anybody outside may, and no completed value moves with an observed one.

    In a continuous column the k-th smallest observed value has the grade curve[k], so a subject
    without a value stands right after the observed values whose grades are below its own. That is all
    its imputed value would be used for, and given the curve it is public *which place* that is.
    Equal values stand in the random order of `keys`. Not by fair coins, as in the first round: one
    replaced value shifts those between its old and new place by one, and with ties that would move whole
    groups of completed subjects past whole groups of observed ones. In a strict order every completed
    subject changes its place with one observed subject at most, which is what the round is charged for.
    """
    if item.codes is not None:
        values = encoded.values.copy()
        values[~encoded.observed] = item.codes
        return values
    seen, unseen = np.flatnonzero(encoded.observed), np.flatnonzero(~encoded.observed)
    ordered = seen[np.lexsort((keys[seen], encoded.values[seen]))]
    by_grade = np.argsort(item.grades, kind="stable")
    passed = np.searchsorted(item.curve, item.grades[by_grade])  # observed values before each completed subject
    places = np.empty(encoded.observed.size)
    places[unseen[by_grade]] = passed + np.arange(unseen.size)
    places[ordered] = np.arange(seen.size) + np.searchsorted(passed, np.arange(1, seen.size + 1))
    return places
