"""A party's side of the strict mode: margins of all its columns once, then secure sums over their cells.

Raw data is touched here and in `local_party.py`, nowhere else. What a party shares are the pooled
cells of its values; how cells are pooled and what they count for is a public function of all released margins.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verticopula.data.tables import AlignedTable
from verticopula.errors import PolicyRefused, ProtocolError
from verticopula.mpc.sealed_messages import Authenticity
from verticopula.mpc.sums_plan import MACHINE_TOLERANCE, SumsPlan, block_factor, own_rows, person_mu, same_plan
from verticopula.privacy.noise import Noise
from verticopula.privacy.pricing import Pricing
from verticopula.privacy.release import Release
from verticopula.protocol.gathered_margins import gather_margins
from verticopula.protocol.messages import (
    GaussianMarginsReply,
    GaussianMarginsRequest,
    MarginQuery,
    PlanEvidence,
    Reply,
    SecureReply,
    SecureRequest,
    StudyProposal,
    SumsKeyRequest,
    fingerprint,
)
from verticopula.protocol.party.study_consents import StudyConsents
from verticopula.protocol.party.sums_handler import SumsHandler
from verticopula.protocol.study_proposal import are_rows_agreed, own_columns_of, own_place_of, strict_budget_of
from verticopula.schema.federation import ColumnKey, Federation
from verticopula.schema.methods import STRICT
from verticopula.schema.units import Unit
from verticopula.stats.copula import Layout
from verticopula.stats.marginals import Marginal, to_cells
from verticopula.stats.strict.gaussian_margins import (
    gaussian_cell_count,
    margin_mu,
    release_gaussian_cells,
    settle_margin,
)
from verticopula.stats.strict.score_plan import plan_sums, share_cells, sums_roles
from verticopula.storage.records import RecordStore

Ints = NDArray[np.int64]

_SMALLEST_DEVIATION, _LARGEST_DEVIATION = 1e-9, 1e9


@dataclass(repr=False)
class StrictHandler:
    """A party's handler of strict studies. No repr: it can reach data.

    Attributes
    ----------
    allow : raises unless the policy allows the method and shares all columns
    records : where a study's margins and its secrets are kept
    authenticity : how its public keys are signed and the others' are known; None where it has no means to
    federation : the party's own file; None where it has none, and then it takes no part in sums
    consents : what it has consented to; None where nobody is asked
    pricing : study -> how releases are entered
    charge : ledger entries and the request they answer: recorded if the policy and the steward allow it, or refused
    stored : a request's key -> the reply that was stored under it
    noise_label : as `LocalParty` has it
    """

    table: AlignedTable
    allow: Callable[[], None]
    noise: Noise
    records: RecordStore
    authenticity: Authenticity | None
    federation: Federation | None
    consents: StudyConsents | None
    pricing: Callable[[str], Pricing]
    charge: Callable[[list[Release], str], None]
    stored: Callable[[str], GaussianMarginsReply | None]
    noise_label: str = ""

    def __post_init__(self) -> None:
        self._sums_handlers: dict[str, SumsHandler] = {}

    @property
    def name(self) -> str:
        return self.table.party.name

    # ---- margins -------------------------------------------------------------------------

    def price_all(self, proposal: StudyProposal) -> list[Release]:
        """The ledger entries of a whole study, its sums at what they may cost at most."""
        mu = float(proposal.mu[own_place_of(proposal, self.name)]) if proposal.mu.size else math.nan
        if not (math.isfinite(mu) and mu > 0.0):
            raise PolicyRefused(f"party {self.name!r}: mu must be positive")
        known = int(self.table.observed().any(axis=1).sum())
        margins = GaussianMarginsRequest(proposal.study, proposal.method, self.planned_queries(proposal))
        moments = self.pricing(proposal.study).moments(known, mu, self._person_limit(proposal))
        return [*self.price_margins(margins), moments]

    def _person_limit(self, proposal: StudyProposal) -> float:
        """The most that the sums may cost a person: what all blocks may cost, where every party has a mu of its own."""
        return math.fsum(proposal.mu) if proposal.unit == Unit.BLOCK.value else float(proposal.mu.max())

    def planned_queries(self, proposal: StudyProposal) -> tuple[MarginQuery, ...]:
        """The margins that a proposal asks of this party."""
        own = proposal.deviations[own_columns_of(proposal, self.name)]
        if own.size != len(self.table.party.columns):
            raise PolicyRefused(f"party {self.name!r}: margins are sent of all its columns at once, in their order")
        return tuple(MarginQuery(c.name, float(d)) for c, d in zip(self.table.party.columns, own, strict=True))

    def price_margins(self, request: GaussianMarginsRequest) -> list[Release]:
        """The ledger entries of the margins."""
        self._check_queries(request)
        pricing, entries = self.pricing(request.study), []
        for query in request.queries:
            column, n = self.table.party.column(query.column), self._n_observed(query.column)
            entries.append(pricing.gaussian_marginal(column, n, margin_mu(column, n, query.deviation)))
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
        """Noisy cell counts of all columns.

        Privacy
        -------
        To the coordinator, and from there to everybody: counts with discrete Gaussian noise, mu as `price_margins`
        says for each column; a person's whole block moves all of them, by the root of the sum of squares.
        """
        self.check_margins(request, key)
        deviations = [query.deviation for query in request.queries]
        self.records.put(self._record_name(request.study), {"request": key, "deviations": deviations})
        study, cells = self.noise_label or request.study, []
        for query in request.queries:
            column, encoded = self.table.party.column(query.column), self.table.columns[query.column]
            values = encoded.values[encoded.observed]
            n_cells = gaussian_cell_count(column, values.size, query.deviation)
            places = to_cells(values, column, n_cells)
            label = (study, column.name, "gaussian cells")
            cells.append(release_gaussian_cells(places, n_cells, query.deviation, self.noise, *label))
        reply = GaussianMarginsReply(self.name, tuple(cells), b"")
        return reply if self.consents is None else self.consents.sign_margins(request.study, reply)

    def _check_queries(self, request: GaussianMarginsRequest) -> None:
        _check_method(self.name, request.method)
        if [query.column for query in request.queries] != [column.name for column in self.table.party.columns]:
            raise PolicyRefused(f"party {self.name!r}: margins are sent of all its columns at once, in their order")
        for query in request.queries:
            if not _SMALLEST_DEVIATION <= query.deviation <= _LARGEST_DEVIATION:  # False for NaN, too
                raise PolicyRefused(f"party {self.name!r}, column {query.column!r}: the noise cannot be of this size")

    def _n_observed(self, column: str) -> int:
        return int(self.table.columns[column].observed.sum())

    # ---- sums ----------------------------------------------------------------------------

    def handle(self, request: SecureRequest) -> SecureReply:
        """Answer a round of secure sums, or refuse it with a reason."""
        _check_method(self.name, request.method)
        self.allow()  # in every round: a policy may have been tightened, and consent may have ended
        if self.consents is not None and not isinstance(request, SumsKeyRequest):
            self.consents.agreed(request.study)
        return self._sums_handler(request.study).handle(request)

    def close(self, study: str) -> None:
        """The study is over: what is kept stays, what is in memory goes."""
        self._sums_handlers.pop(study, None)

    def _sums_handler(self, study: str) -> SumsHandler:
        if self.authenticity is None:
            raise ProtocolError(f"party {self.name!r} has no key to sign with, so it takes no part in secure sums")
        if study not in self._sums_handlers:
            self._sums_handlers[study] = SumsHandler(
                self.name,
                lambda plan: share_cells(plan, self.name, self.table, self._margins(study)),
                records=self.records,
                noise=self.noise,
                authenticity=self.authenticity,
                approve=self._approve_plan,
                noise_label=self.noise_label,
            )
        return self._sums_handlers[study]

    def _approve_plan(self, study: str, plan: SumsPlan, digest: str, evidence: PlanEvidence | None) -> None:
        """Enter the plan in the ledger, if it is the one that the party computes and the policy allows it.

        Privacy
        -------
        What is opened is mu-Gaussian differentially private with plan.mu for a person, and plan.mu times
        `block_factor` for what this party holds about one. It is paid for once per plan and secret: who has lost the
        secret draws other noise, and pays again.
        """
        self._margins(study)
        self._check_plan(plan)
        rows_agreed = self.consents is None or self._check_computed(self.consents, study, plan, evidence)
        factor = block_factor(plan, self.name)
        if factor == 0.0:
            return  # none of its columns is in any pattern: nothing of it is opened
        public = self._sums_handler(study).handle(SumsKeyRequest(study, STRICT.name))
        joint = fingerprint((study, digest))  # the same at every party of this release, and of no other
        known, person = int(own_rows(plan, self.name).sum()), person_mu(plan, rows_agreed=rows_agreed)
        if self.consents is not None:
            self._check_limits(self.consents.agreed(study), plan.mu * factor, person)
        entry = self.pricing(study).moments(known, plan.mu * factor, person, joint=joint)
        self.charge([entry], fingerprint((self.name, study, plan, public)))

    def _check_limits(self, proposal: StudyProposal, block: float, person: float) -> None:
        """ProtocolError if the sums cost more than was consented to."""
        most = float(proposal.mu[own_place_of(proposal, self.name)]), self._person_limit(proposal)
        if block > most[0] * (1.0 + MACHINE_TOLERANCE) or person > most[1] * (1.0 + MACHINE_TOLERANCE):
            raise ProtocolError(f"party {self.name!r}: the sums would cost more than was consented to")

    def _check_plan(self, plan: SumsPlan) -> None:
        """ProtocolError unless who shares how much with whom is as the party's own federation file has it.

        A coordinator that could add a party with columns of its own would read everybody's scores from their products
        with columns that it chose; one that could name compute parties would hold their shares.
        """
        if self.federation is None:
            raise ProtocolError(f"party {self.name!r} has no federation file, so it takes no part in secure sums")
        parties, widths, compute = sums_roles(self.federation)
        if plan.parties != parties or plan.widths != widths:
            raise ProtocolError(f"party {self.name!r}: the plan of secure sums names other parties or columns")
        if plan.compute != compute:
            raise ProtocolError(f"party {self.name!r}: the plan of secure sums names other compute parties")
        if plan.pattern_of.size != self.table.observed().shape[0]:
            raise ProtocolError(f"party {self.name!r}: the plan of secure sums is about another cohort")

    def _check_computed(
        self, consents: StudyConsents, study: str, plan: SumsPlan, evidence: PlanEvidence | None
    ) -> bool:
        """Whether rows were agreed on; ProtocolError unless the party computes this plan itself.

        From its own federation file, the masks and margins that their parties signed, and the proposal that everybody
        consented to. Bounds and mu may differ in their last digits between machines; who is in which pattern may not.
        """
        if evidence is None:
            raise ProtocolError(f"party {self.name!r}: the plan of secure sums came without masks and margins")
        federation = consents.federation
        proposal = consents.check_evidence(study, evidence)
        observed = {
            ColumnKey(party.name, column.name): mask[:, index]
            for party, mask in zip(federation.parties, evidence.masks, strict=True)
            for index, column in enumerate(party.columns)
        }
        deviations = dict(zip(federation.keys, map(float, proposal.deviations), strict=True))
        replies: dict[str, Reply] = {reply.party: reply for reply in evidence.margins}
        marginals = gather_margins(federation, replies, observed, deviations)
        layout = Layout.of({key: federation.column(key) for key in federation.keys})
        rows_agreed = are_rows_agreed(proposal.alignment)
        budget = strict_budget_of(federation, proposal)
        expected = plan_sums(federation, layout, observed, marginals, budget, rows_agreed=rows_agreed)
        if not same_plan(plan, expected):
            raise ProtocolError(
                f"party {self.name!r}: the plan of secure sums is not the one that follows from masks, "
                "margins and budget"
            )
        return rows_agreed

    def _margins(self, study: str) -> dict[str, Marginal]:
        """The party's margins as everybody can compute them from what it has sent."""
        record = self.records.get(self._record_name(study))
        reply = None if record is None else self.stored(record["request"])
        if record is None or reply is None:
            raise ProtocolError(f"party {self.name!r} has sent no margins in this study, so it has no scores")
        return {
            column.name: settle_margin(column, cells, self._n_observed(column.name), deviation)
            for column, cells, deviation in zip(
                self.table.party.columns, reply.cells, record["deviations"], strict=True
            )
        }

    def _record_name(self, study: str) -> str:
        return f"strict/{self.name}/{study}"


def _check_method(party: str, method: str) -> None:
    """What the policy allows under another name is not allowed under this one."""
    if method != STRICT.name:
        raise ProtocolError(f"party {party!r}: this request belongs to method {STRICT.name!r}, not to the one it names")
