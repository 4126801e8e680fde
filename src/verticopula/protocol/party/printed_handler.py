"""A party's releases in a study by the paper's algorithms as they are printed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from verticopula.data.column_ranges import public_range
from verticopula.data.tables import AlignedTable
from verticopula.errors import PolicyRefused, ProtocolError
from verticopula.privacy.release import Release
from verticopula.protocol.consent_messages import StudyProposal
from verticopula.protocol.party.column_work import ColumnWork
from verticopula.protocol.party.release_control import ReleaseControl
from verticopula.protocol.printed_messages import (
    NoisyCoefficients,
    PrintedMarginsReply,
    PrintedMarginsRequest,
    PrintedQuery,
    PrintedRanksReply,
    PrintedRanksRequest,
    PrintedReply,
    PrintedRequest,
)
from verticopula.protocol.study_proposal import own_columns_of
from verticopula.schema.printed_choices import PrintedChoices
from verticopula.stats.printed.bernstein_margins import release_coefficients
from verticopula.stats.printed.rounds_at_client import Completed, PrintedRound, impute_column, margin_spline
from verticopula.stats.printed.row_order_ranks import as_number, rank_at_random, rank_by_row
from verticopula.stats.ranks import flip_comparisons


@dataclass(frozen=True)
class PrintedHandler:
    """What leaves one party, and what it costs.

    Attributes
    ----------
    choices : how the party reads what the paper leaves open
    work : how columns are worked on, and who is told
    replayed : columns as they were completed last, so that the next round continues there
    """

    control: ReleaseControl
    choices: PrintedChoices
    work: ColumnWork
    replayed: dict[str, Completed] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        return self.control.name

    @property
    def _table(self) -> AlignedTable:
        return self.control.table

    # ---- what was consented to -------------------------------------------------------------

    def price_all(self, proposal: StudyProposal) -> list[Release]:
        """The ledger entries of everything that a proposal asks of this party."""
        own = own_columns_of(proposal, self.name)
        if not len(proposal.ranks[own]) == len(proposal.marginals[own]) == len(self._table.party.columns):
            raise ProtocolError(f"party {self.name!r}: the study asks for no ranks of its columns")
        entries = []
        for column, epsilon in zip(self._table.party.columns, proposal.ranks[own], strict=True):
            numbers = range(1, proposal.rounds + 1)
            entries += [self._price_ranks(proposal.study, column.name, float(epsilon), number) for number in numbers]
            entries.append(self._price_margin(proposal.study, column.name))
        return entries

    def place_of(self, request: PrintedRequest) -> str:
        """Which place of a study the request is for."""
        return "margins" if isinstance(request, PrintedMarginsRequest) else f"round {request.round_number}"

    def is_planned(self, proposal: StudyProposal, request: PrintedRequest) -> bool:
        """Whether the request asks for what the proposal says, of all columns."""
        numbers = proposal.marginals if isinstance(request, PrintedMarginsRequest) else proposal.ranks
        planned = numbers[own_columns_of(proposal, self.name)]
        names = [column.name for column in self._table.party.columns]
        asked = [(query.column, query.epsilon) for query in request.queries]
        fits = asked == list(zip(names, map(float, planned), strict=True))
        return fits and (isinstance(request, PrintedMarginsRequest) or 1 <= request.round_number <= proposal.rounds)

    # ---- prices ----------------------------------------------------------------------------

    def price(self, request: PrintedRequest) -> list[Release]:
        """The ledger entries that answering would cost; PolicyRefused where the request does not fit the table."""
        self._check(request)
        if isinstance(request, PrintedMarginsRequest):
            return [self._price_margin(request.study, query.column) for query in request.queries]
        number = request.round_number
        return [self._price_ranks(request.study, query.column, query.epsilon, number) for query in request.queries]

    def _price_ranks(self, study: str, name: str, epsilon: float, round_number: int) -> Release:
        seen = self._table.columns[name].observed
        n_missing = int((~seen).sum()) if round_number > 1 else 0
        return self.control.pricing(study).printed_ranks(
            self._table.party.column(name), int(seen.sum()), n_missing, epsilon
        )

    def _price_margin(self, study: str, name: str) -> Release:
        seen = self._table.columns[name].observed
        return self.control.pricing(study).printed_margin(self._table.party.column(name), int(seen.sum()))

    def _check(self, request: PrintedRequest) -> None:
        for query in request.queries:
            seen = self._table.columns[query.column].observed
            fits = bool(seen.any())
            if isinstance(request, PrintedRanksRequest):
                fits = fits and len(query.history) == request.round_number - 1
            for number, done in enumerate(query.history):
                size = seen.size if number else int(seen.sum())
                fits = fits and done.ranks.shape == (size,) and done.latents.shape == seen.shape
                fits = fits and bool(np.isfinite(done.latents).all())
                fits = fits and bool((done.ranks >= 1).all() and (done.ranks <= size).all())
            if not fits:
                raise PolicyRefused(f"party {self.name!r}, column {query.column!r}: the earlier rounds do not fit")

    # ---- releases --------------------------------------------------------------------------

    def answer(self, request: PrintedRequest) -> PrintedReply:
        """The reply, drawn anew."""
        if isinstance(request, PrintedMarginsRequest):
            margins = self.work.map(lambda query: self.release_margin(request, query), request.queries)
            return PrintedMarginsReply(self.name, tuple(margins))
        ranks = self.work.map(lambda query: self.rank_column(request, query), request.queries)
        return PrintedRanksReply(self.name, tuple(ranks))

    def rank_column(self, request: PrintedRanksRequest, query: PrintedQuery) -> NDArray[np.int64]:
        """Noisy ranks of one column, completed by its history. Implements Eq. (1).

        Privacy
        -------
        Leaves the party. ε per comparison; which comparisons one replaced value may change says `Pricing`.
        """
        column = as_number(self._table.party.column(query.column))
        encoded = self._table.columns[query.column]
        completed = impute_column(
            column, encoded.values, encoded.observed, _rounds(query), self.choices, self.replayed.get(query.column)
        )
        self.replayed[query.column] = completed
        label = request.study, column.name, "0", "coins", f"printed round {request.round_number}"
        values = completed.values[completed.known]
        if self.choices.ties_by_row:
            ranks = rank_by_row(values)
        else:
            ranks = rank_at_random(values, self.control.noise.stream(*label, "ties").words(values.size))
        noisy = flip_comparisons(ranks.astype(np.float64), query.epsilon, self.control.noise.stream(*label))
        self.work.on_column(ranks.size * (ranks.size - 1) // 2)
        return noisy

    def release_margin(self, request: PrintedMarginsRequest, query: PrintedQuery) -> NoisyCoefficients:
        """One column's margin: noisy coefficients, and the exact range that they are on. Implements Eq. (9).

        Privacy
        -------
        Leaves the party. The range has no noise: epsilon is infinite.
        """
        column = as_number(self._table.party.column(query.column))
        encoded = self._table.columns[query.column]
        earlier = self.replayed.get(query.column)
        spline, values = margin_spline(column, encoded.values, encoded.observed, _rounds(query), self.choices, earlier)
        own = float(values.min()), float(values.max())
        low, high = own if self.choices.own_range else public_range(column)
        label = request.study, column.name, "printed margin"
        noisy = release_coefficients(
            spline, low, high, values.size, query.epsilon, self.choices, self.control.noise, *label
        )
        return NoisyCoefficients(query.column, low, high, noisy)


def _rounds(query: PrintedQuery) -> list[PrintedRound]:
    return [PrintedRound(done.ranks, done.latents) for done in query.history]
