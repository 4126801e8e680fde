"""The paper's Algorithms 1 to 3 as they are printed, as rounds.

Who is observed and everybody's consent come first, as in every study. Then ranks, once or in T rounds, and at the end
the margins.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.data.missingness import Missingness, overlap_problems, summarise_missingness
from verticopula.errors import Problem, ProtocolError, SchemaError
from verticopula.privacy.budget import ColumnBudget, StudyBudget
from verticopula.protocol.column_replies import column_parts
from verticopula.protocol.coordinator_side import CoordinatorSide
from verticopula.protocol.messages import Reply
from verticopula.protocol.printed_messages import (
    EarlierRound,
    NoisyCoefficients,
    PrintedMarginsReply,
    PrintedMarginsRequest,
    PrintedQuery,
    PrintedRanksReply,
    PrintedRanksRequest,
)
from verticopula.protocol.shared_rounds import Rounds, ask_consent, ask_presence
from verticopula.protocol.study_proposal import propose
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation
from verticopula.schema.methods import EVCDS, IEVCDS, PRINTED_VARIANT, VCDS, Method
from verticopula.schema.printed_choices import PrintedChoices
from verticopula.stats.copula import Layout
from verticopula.stats.fit_result import FitResult
from verticopula.stats.printed.bernstein_margins import BernsteinMargin, choose_degree
from verticopula.stats.printed.printed_fit import RankedRound, build_printed_result, fit_ranks
from verticopula.stats.printed.row_order_ranks import as_number

History = Mapping[ColumnKey, tuple[EarlierRound, ...]]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


def vcds_as_printed(
    federation: Federation, budget: StudyBudget, study: str, side: CoordinatorSide
) -> Rounds[FitResult]:
    """Algorithm 1: ranks, then margins from the observed values alone."""
    asked = yield from open_printed(federation, budget, study, VCDS, side)
    ranked = yield from asked.ask_ranks(1, {})
    return (yield from asked.ask_margins(ranked, {}))


def evcds_as_printed(
    federation: Federation, budget: StudyBudget, study: str, side: CoordinatorSide
) -> Rounds[FitResult]:
    """Algorithm 2: ranks, latents in their order, then margins from the latents."""
    asked = yield from open_printed(federation, budget, study, EVCDS, side)
    ranked = yield from asked.ask_ranks(1, {})
    return (yield from asked.ask_margins(ranked, asked.add_round({}, ranked, side.rng)))


def ievcds_as_printed(
    federation: Federation, budget: StudyBudget, study: str, side: CoordinatorSide
) -> Rounds[FitResult]:
    """Algorithm 3: T rounds of ranks, from the second on of completed columns, then margins from the last latents."""
    asked = yield from open_printed(federation, budget, study, IEVCDS, side)
    history: History = {}
    for number in range(1, budget.rounds + 1):
        ranked = yield from asked.ask_ranks(number, history)
        history = asked.add_round(history, ranked, side.rng)
    return (yield from asked.ask_margins(ranked, history))


@dataclass(frozen=True)
class PrintedStudy:
    """A study that everybody has consented to.

    Attributes
    ----------
    keys : all columns, the response first
    observed : column -> who has a value
    budgets : column -> what its ranks spend in one round, and its margin
    """

    federation: Federation
    study: str
    method: Method
    keys: tuple[ColumnKey, ...]
    observed: Mapping[ColumnKey, Bools]
    missingness: Missingness
    budgets: Mapping[ColumnKey, ColumnBudget]
    choices: PrintedChoices

    def ask_ranks(self, number: int, history: History) -> Rounds[RankedRound]:
        """One round of ranks, and the correlation that they give."""
        replies = yield {
            party.name: PrintedRanksRequest(
                self.study, self.method.name, number, self._queries(party.name, history, ranks=True)
            )
            for party in self.federation.parties
        }
        ranked = {key: mask if number == 1 else np.ones_like(mask) for key, mask in self.observed.items()}
        ranks = gather_printed_ranks(self.federation, replies, ranked)
        return fit_ranks(self.keys, ranked, ranks, self.budgets, self.choices)

    def ask_margins(self, last: RankedRound, history: History) -> Rounds[FitResult]:
        """The last round of every algorithm, and the study's result."""
        replies = yield {
            party.name: PrintedMarginsRequest(
                self.study, self.method.name, self._queries(party.name, history, ranks=False)
            )
            for party in self.federation.parties
        }
        sent = gather_printed_margins(self.federation, replies)
        layout = Layout.of({key: as_number(self.federation.column(key)) for key in self.federation.keys})
        margins = {key: self._margin(key, sent[key], completed=len(history.get(key, ())) > 1) for key in layout.keys}
        aligned = self.method.aligned_rows
        return build_printed_result(
            layout, last, margins, self.missingness, self.budgets, self.choices, aligned=aligned
        )

    def add_round(self, history: History, ranked: RankedRound, rng: np.random.Generator) -> History:
        """The history with this round's ranks and the latents drawn for them."""
        latents = ranked.draw_all(rng, self.choices)
        return {
            key: (*history.get(key, ()), EarlierRound(ranked.ranks[j], latents[:, j].copy()))
            for j, key in enumerate(self.keys)
        }

    def _queries(self, party: str, history: History, *, ranks: bool) -> tuple[PrintedQuery, ...]:
        keys = [key for key in self.federation.keys if key.party == party]
        budgets = [self.budgets[key] for key in keys]
        return tuple(
            PrintedQuery(key.column, own.epsilon_ranks if ranks else own.epsilon_marginal, history.get(key, ()))
            for key, own in zip(keys, budgets, strict=True)
        )

    def _margin(self, key: ColumnKey, sent: NoisyCoefficients, *, completed: bool) -> BernsteinMargin:
        """The margin that a party sent, checked; where rounds completed the column, it is of all subjects."""
        column, epsilon = as_number(self.federation.column(key)), self.budgets[key].epsilon_marginal
        n = self.missingness.n_subjects if completed else int(self.observed[key].sum())
        degree = choose_degree(n, epsilon, self.choices)
        low, high, noisy = sent.low, sent.high, sent.coefficients
        if noisy.shape != (degree + 1,) or not np.isfinite([low, high, *noisy]).all() or low > high:
            raise ProtocolError(f"{key}: the margin is missing or has the wrong shape or range")
        return BernsteinMargin.build(column, n, epsilon, low, high, noisy, self.choices)


def open_printed(
    federation: Federation, budget: StudyBudget, study: str, method: Method, side: CoordinatorSide
) -> Rounds[PrintedStudy]:
    """Three rounds that spend nothing: who is observed where, whether everybody consents, and that everybody has."""
    observed, presence = yield from ask_presence(federation, study, method.name)
    missingness = summarise_missingness(observed)
    problems = [
        *(Problem(str(key), "nobody has a value, so there is no range") for key, m in observed.items() if not m.any()),
        *overlap_problems(missingness.never_together),
    ]
    if problems:
        raise SchemaError(problems)
    proposal = propose(
        federation, budget, study, method.name, presence, missingness.n_subjects, side.context, PRINTED_VARIANT
    )
    yield from ask_consent(federation, proposal)
    budgets = {
        key: ColumnBudget(float(ranks), float(margin))
        for key, ranks, margin in zip(federation.keys, proposal.ranks, proposal.marginals, strict=True)
    }
    keys = (federation.response, *(key for key in federation.keys if key != federation.response))
    return PrintedStudy(federation, study, method, keys, observed, missingness, budgets, side.printed_choices)


def gather_printed_ranks(
    federation: Federation, replies: Mapping[str, Reply], ranked: Mapping[ColumnKey, Bools]
) -> dict[ColumnKey, Ints]:
    """Ranks by column, checked for shape and range."""
    found: dict[ColumnKey, Ints] = {}
    what = "the ranks of its columns"
    for key, ranks in column_parts(federation, replies, PrintedRanksReply, lambda reply: reply.ranks, what):
        n = int(ranked[key].sum())
        if ranks.shape != (n,) or ranks.min() < 1 or ranks.max() > n:
            raise ProtocolError(f"{key}: the ranks are missing or have the wrong shape or range")
        found[key] = ranks
    return found


def gather_printed_margins(federation: Federation, replies: Mapping[str, Reply]) -> dict[ColumnKey, NoisyCoefficients]:
    """Margins by column."""
    found: dict[ColumnKey, NoisyCoefficients] = {}
    what = "the margins of its columns"
    for key, margin in column_parts(federation, replies, PrintedMarginsReply, lambda reply: reply.margins, what):
        if margin.column != key.column:
            raise ProtocolError(f"party {key.party!r} did not answer with {what}")
        found[key] = margin
    return found
