"""A party's side of the strict mode: margins of all its columns once, then secure sums over their cells.

What a party shares are the pooled cells of its values; how cells are pooled and what they count for is a public
function of all released margins.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.data.tables import AlignedTable
from verticopula.errors import PolicyRefused, ProtocolError
from verticopula.mpc.sums_plan import (
    SumsPlan,
    block_factor,
    count_rows,
    person_mu,
    selection_mu,
    tables_person_mu,
)
from verticopula.privacy.release import Release
from verticopula.protocol.consent_messages import StudyProposal
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.party.made_replies import MadeReplies
from verticopula.protocol.party.membership import Membership
from verticopula.protocol.party.release_control import ReleaseControl
from verticopula.protocol.party.study_consents import StudyConsents
from verticopula.protocol.party.sums_handler import SumsHandler
from verticopula.protocol.strict_messages import (
    GaussianMarginsReply,
    GaussianMarginsRequest,
    MarginQuery,
    PlanEvidence,
    SecureReply,
    SecureRequest,
    SumsKeyRequest,
)
from verticopula.protocol.study_proposal import are_rows_agreed, own_columns_of, own_place_of
from verticopula.schema.methods import STRICT
from verticopula.schema.units import Unit
from verticopula.stats.strict.gaussian_margins import (
    code_values,
    gaussian_cell_count,
    margin_mu,
    release_gaussian_cells,
)
from verticopula.stats.strict.strict_plan import pool_cells, sums_roles
from verticopula.storage.record_store import RecordStore

Bools = NDArray[np.bool_]

_SMALLEST_DEVIATION, _LARGEST_DEVIATION = 1e-9, 1e9


@dataclass(repr=False)
class StrictHandler:
    """A party's handler of strict studies. No repr: it can reach data.

    Attributes
    ----------
    membership : the party's own federation file, and how it signs; it takes no part in sums without them
    records : where a study's margins and its secrets are kept
    made : replies that were made before, each under its request's key
    consents : what it has consented to; None where nobody is asked
    """

    control: ReleaseControl
    membership: Membership
    records: RecordStore
    made: MadeReplies
    consents: StudyConsents | None

    def __post_init__(self) -> None:
        self._sums_handlers: dict[str, SumsHandler] = {}

    @property
    def name(self) -> str:
        return self.control.name

    @property
    def _table(self) -> AlignedTable:
        return self.control.table

    # ---- margins -------------------------------------------------------------------------

    def price_all(self, proposal: StudyProposal) -> list[Release]:
        """The ledger entries of a whole study, its openings at what they may cost at most."""
        if proposal.mu.shape != (3, len(proposal.presence)) or not (
            np.isfinite(proposal.mu).all() and (proposal.mu >= 0.0).all() and (proposal.mu[0] > 0.0).all()
        ):
            raise PolicyRefused(f"party {self.name!r}: mu must be positive")
        own, person = proposal.mu[:, own_place_of(proposal, self.name)].tolist(), self._person_limits(proposal)
        margins = GaussianMarginsRequest(proposal.study, proposal.method, self.planned_queries(proposal))
        pricing, known = self.control.pricing(proposal.study), self._n_known()
        entries = [*self.price_margins(margins), pricing.gram(known, own[0], person[0])]
        if own[1] > 0.0:
            entries.append(pricing.tables(known, own[1], person[1]))
        if own[2] > 0.0:
            entries.append(pricing.selection(known, own[2]))
        return entries

    def _person_limits(self, proposal: StudyProposal) -> tuple[float, float]:
        """The most that both openings may cost a person: what all blocks may, where every party has a mu of its own."""
        gram, tables = proposal.mu[0], proposal.mu[1]
        if proposal.unit == Unit.BLOCK.value:
            return math.fsum(gram), math.fsum(tables)
        return float(gram.max()), float(tables.max())

    def planned_queries(self, proposal: StudyProposal) -> tuple[MarginQuery, ...]:
        """The margins that a proposal asks of this party."""
        own = proposal.deviations[own_columns_of(proposal, self.name)]
        if own.size != len(self._table.party.columns):
            raise PolicyRefused(f"party {self.name!r}: margins are sent of all its columns at once, in their order")
        return tuple(MarginQuery(c.name, float(d)) for c, d in zip(self._table.party.columns, own, strict=True))

    def price_margins(self, request: GaussianMarginsRequest) -> list[Release]:
        """The ledger entries of the margins."""
        self._check_queries(request)
        pricing, entries = self.control.pricing(request.study), []
        for query in request.queries:
            column, n = self._table.party.column(query.column), self._n_known()
            empty = self._table.party.may_be_empty(query.column)
            mu = margin_mu(column, n, query.deviation, may_be_empty=empty)
            entries.append(pricing.gaussian_margin(column, n, mu))
        return entries

    def check_margins(self, request: GaussianMarginsRequest, key: str) -> None:
        """ProtocolError if this party has sent margins in this study before, for another request."""
        known = self.records.get(self._record_name(request.study))
        if known is not None and known["request"] != key:
            raise ProtocolError(
                f"party {self.name!r} has sent its margins in this study already, with other noise: its scores are "
                "made from those"
            )

    def release_margins(self, request: GaussianMarginsRequest, key: str) -> GaussianMarginsReply:
        """Noisy cell counts of all columns; an empty value of somebody whom the party knows is a cell, too.

        Privacy
        -------
        To the coordinator, and from there to everybody: counts with discrete Gaussian noise, mu as `price_margins`
        says for each column; a person's whole block moves all of them, by the root of the sum of squares.
        """
        self.check_margins(request, key)
        deviations = [query.deviation for query in request.queries]
        self.records.put(self._record_name(request.study), {"request": key, "deviations": deviations})
        cells = []
        for query in request.queries:
            column, encoded = self._table.party.column(query.column), self._table.columns[query.column]
            n_cells = gaussian_cell_count(column, self._n_known(), query.deviation)
            empty = self._table.party.may_be_empty(column.name)
            places = code_values(encoded, column, self._known(), n_cells, may_be_empty=empty)
            label = (request.study, column.name, "gaussian cells")
            cells.append(release_gaussian_cells(places, n_cells + empty, query.deviation, self.control.noise, *label))
        reply = GaussianMarginsReply(self.name, tuple(cells), b"")
        return reply if self.consents is None else self.consents.sign_margins(request.study, reply)

    def _check_queries(self, request: GaussianMarginsRequest) -> None:
        _check_method(self.name, request.method)
        if [query.column for query in request.queries] != [column.name for column in self._table.party.columns]:
            raise PolicyRefused(f"party {self.name!r}: margins are sent of all its columns at once, in their order")
        for query in request.queries:
            if not _SMALLEST_DEVIATION <= query.deviation <= _LARGEST_DEVIATION:  # False for NaN, too
                raise PolicyRefused(f"party {self.name!r}, column {query.column!r}: the noise cannot be of this size")

    def _known(self) -> Bools:
        """(N,) whom the party has a value of."""
        return self._table.known()

    def _n_known(self) -> int:
        return int(self._known().sum())

    # ---- sums ----------------------------------------------------------------------------

    def handle(self, request: SecureRequest) -> SecureReply:
        """Answer a round of secure sums, or refuse it with a reason."""
        _check_method(self.name, request.method)
        self.control.check_method(STRICT.name)  # in every round: a policy may be tightened, and consent may end
        if self.consents is not None and not isinstance(request, SumsKeyRequest):
            self.consents.agreed(request.study)
        return self._sums_handler(request.study).handle(request)

    def close(self, study: str) -> None:
        """The study is over: what is kept stays, what is in memory goes."""
        self._sums_handlers.pop(study, None)

    def _sums_handler(self, study: str) -> SumsHandler:
        if self.membership.authenticity is None:
            raise ProtocolError(f"party {self.name!r} has no key to sign with, so it takes no part in secure sums")
        if study not in self._sums_handlers:
            self._sums_handlers[study] = SumsHandler(
                self.name,
                lambda plan: pool_cells(plan, self.name, self._table),
                records=self.records,
                noise=self.control.noise,
                authenticity=self.membership.authenticity,
                approve=self._approve_plan,
            )
        return self._sums_handlers[study]

    def _approve_plan(self, study: str, plan: SumsPlan, digest: str, evidence: PlanEvidence | None) -> None:
        """Enter the plan in the ledger, if it is the one that the party computes and the policy allows it.

        Privacy
        -------
        The first opening is mu-Gaussian differentially private with plan.mu for a person, and plan.mu times
        `block_factor` for what this party holds about one. The second is so with plan.mu_tables, whatever pairs are
        chosen: it is entered now, since only compute parties are told of the choice. What a base party releases about
        its own columns costs `selection_mu`. All of it is paid for once per plan and secret: who has lost the secret
        draws other noise, and pays again.
        """
        self._check_margins_sent(study)
        self._check_plan(plan)
        content = fingerprint(plan)
        rows_agreed = self.consents is None or self._check_computed(self.consents, study, content, evidence)
        if not count_rows(plan, self.name):
            return  # it knows nobody: nothing of it is opened
        public = self._sums_handler(study).handle(SumsKeyRequest(study, STRICT.name))
        block = plan.mu * block_factor(plan, self.name), plan.mu_tables, selection_mu(plan, self.name)
        person = person_mu(plan, rows_agreed=rows_agreed), tables_person_mu(plan, rows_agreed=rows_agreed)
        if self.consents is not None:
            self._check_limits(self.consents.agreed(study), block, person)
        pricing, known, entries = self.control.pricing(study), self._n_known(), []
        if block[0] > 0.0:
            # the same at every party of this release, and of no other
            entries.append(pricing.gram(known, block[0], person[0], joint=fingerprint((study, digest))))
        if block[1] > 0.0:
            entries.append(pricing.tables(known, block[1], person[1], joint=fingerprint((study, digest, "tables"))))
        if block[2] > 0.0:
            entries.append(pricing.selection(known, block[2]))
        key = fingerprint((self.name, study, content, public))
        self.control.record(STRICT.name, entries, key, once=self.made.is_durable)

    def _check_limits(
        self, proposal: StudyProposal, block: tuple[float, float, float], person: tuple[float, float]
    ) -> None:
        """ProtocolError if the openings cost more than was consented to."""
        own = proposal.mu[:, own_place_of(proposal, self.name)].tolist()
        limits = zip((*block, *person), (*own, *self._person_limits(proposal)), strict=True)
        if any(cost > most for cost, most in limits):
            raise ProtocolError(f"party {self.name!r}: the sums would cost more than was consented to")

    def _check_plan(self, plan: SumsPlan) -> None:
        """ProtocolError unless who shares how much with whom is as the party's own federation file has it.

        A coordinator that could add a party with columns of its own would read everybody's scores from their products
        with columns that it chose; one that could name compute parties would hold their shares.
        """
        if self.membership.federation is None:
            raise ProtocolError(f"party {self.name!r} has no federation file, so it takes no part in secure sums")
        parties, widths, compute = sums_roles(self.membership.federation)
        if plan.parties != parties or plan.n_columns != widths:
            raise ProtocolError(f"party {self.name!r}: the plan of secure sums names other parties or columns")
        if plan.compute != compute:
            raise ProtocolError(f"party {self.name!r}: the plan of secure sums names other compute parties")
        if plan.pattern_of.size != self._table.n_subjects:
            raise ProtocolError(f"party {self.name!r}: the plan of secure sums is about another cohort")

    def _check_computed(self, consents: StudyConsents, study: str, plan: str, evidence: PlanEvidence | None) -> bool:
        """Whether rows were agreed on; ProtocolError unless the party computes the plan of this digest itself.

        From its own federation file, the masks and margins that their parties signed, and the proposal that everybody
        consented to.
        """
        if evidence is None:
            raise ProtocolError(f"party {self.name!r}: the plan of secure sums came without masks and margins")
        proposal = consents.check_evidence(study, evidence)
        if plan != self.membership.plans.digest(consents.federation, proposal, evidence):
            raise ProtocolError(
                f"party {self.name!r}: the plan of secure sums is not the one that follows from masks, "
                "margins and budget (all parties and the coordinator need the same version of verticopula)"
            )
        return are_rows_agreed(proposal.alignment)

    def _check_margins_sent(self, study: str) -> None:
        record = self.records.get(self._record_name(study))
        if record is None or self.made.find(record["request"], (GaussianMarginsReply,)) is None:
            raise ProtocolError(f"party {self.name!r} has sent no margins in this study, so it has no cells to share")

    def _record_name(self, study: str) -> str:
        return self.record_name(self.name, study)

    @staticmethod
    def record_name(party: str, study: str) -> str:
        """The name under which is kept which margins a party has sent."""
        return f"strict/{party}/{study}"


def _check_method(party: str, method: str) -> None:
    """What the policy allows under another name is not allowed under this one."""
    if method != STRICT.name:
        raise ProtocolError(f"party {party!r}: this request belongs to method {STRICT.name!r}, not to the one it names")
