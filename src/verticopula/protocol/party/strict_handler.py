"""A party's side of the strict mode: margins of all its columns once, then secure sums of scores made from them.

Raw data is touched here and in `local_party.py`, nowhere else. A party's scores are a public function of its own
released cells, applied to its own values, so nothing about scores has to be sent before they are shared.
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
from verticopula.mpc.sums_plan import SumsPlan, block_factor, own_rows
from verticopula.privacy.noise import Noise
from verticopula.privacy.pricing import Pricing
from verticopula.privacy.release import Release
from verticopula.protocol.messages import (
    GaussianMarginsReply,
    GaussianMarginsRequest,
    SecureReply,
    SecureRequest,
    StrictConsentRequest,
    StrictRequest,
    SumsKeyRequest,
    fingerprint,
)
from verticopula.protocol.party.sums_handler import SumsHandler
from verticopula.schema.federation import Federation
from verticopula.schema.methods import STRICT
from verticopula.stats.marginals import Marginal, to_cells
from verticopula.stats.strict.gaussian_margins import (
    gaussian_cell_count,
    margin_mu,
    release_gaussian_cells,
    settle_margin,
)
from verticopula.stats.strict.score_plan import share_scores, sums_roles
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

    def price_all(self, request: StrictConsentRequest) -> list[Release]:
        """The ledger entries of a whole study, its sums at what they may cost at most."""
        if not (math.isfinite(request.mu_moments) and request.mu_moments > 0.0):
            raise PolicyRefused(f"party {self.name!r}: mu must be positive")
        known = int(self.table.observed().any(axis=1).sum())
        moments = self.pricing(request.study).moments(known, request.mu_moments, request.mu_moments)
        return [*self.price_margins(request), moments]

    def price_margins(self, request: StrictRequest) -> list[Release]:
        """The ledger entries of the margins."""
        self._check_orders(request)
        pricing, entries = self.pricing(request.study), []
        for order in request.orders:
            column, n = self.table.party.column(order.column), self._n_observed(order.column)
            entries.append(pricing.gaussian_marginal(column, n, margin_mu(column, n, order.deviation)))
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
        deviations = [order.deviation for order in request.orders]
        self.records.put(self._record_name(request.study), {"request": key, "deviations": deviations})
        study, cells = self.noise_label or request.study, []
        for order in request.orders:
            column, encoded = self.table.party.column(order.column), self.table.columns[order.column]
            values = encoded.values[encoded.observed]
            n_cells = gaussian_cell_count(column, values.size, order.deviation)
            places = to_cells(values, column, n_cells)
            label = (study, column.name, "gaussian cells")
            cells.append(release_gaussian_cells(places, n_cells, order.deviation, self.noise, *label))
        return GaussianMarginsReply(self.name, tuple(cells))

    def _check_orders(self, request: StrictRequest) -> None:
        _check_method(self.name, request.method)
        if [order.column for order in request.orders] != [column.name for column in self.table.party.columns]:
            raise PolicyRefused(f"party {self.name!r}: margins are sent of all its columns at once, in their order")
        for order in request.orders:
            if not _SMALLEST_DEVIATION <= order.deviation <= _LARGEST_DEVIATION:  # False for NaN, too
                raise PolicyRefused(f"party {self.name!r}, column {order.column!r}: the noise cannot be of this size")

    def _n_observed(self, column: str) -> int:
        return int(self.table.columns[column].observed.sum())

    # ---- sums ----------------------------------------------------------------------------

    def handle(self, request: SecureRequest) -> SecureReply:
        """Answer a round of secure sums, or refuse it with a reason."""
        _check_method(self.name, request.method)
        if isinstance(request, SumsKeyRequest):
            self.allow()
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
                lambda plan: self._scores(study, plan),
                records=self.records,
                noise=self.noise,
                authenticity=self.authenticity,
                approve=self._approve_plan,
                noise_label=self.noise_label,
            )
        return self._sums_handlers[study]

    def _approve_plan(self, study: str, plan: SumsPlan, digest: str) -> None:
        """Enter the plan in the ledger, if the policy and the steward allow it, before the party binds itself to it.

        Privacy
        -------
        What is opened is mu-Gaussian differentially private with plan.mu for a person, and plan.mu times
        `block_factor` for what this party holds about one. It is paid for once per plan and secret: who has lost the
        secret draws other noise, and pays again.
        """
        self.allow()
        self._margins(study)
        self._check_plan(plan)
        factor = block_factor(plan, self.name)
        if factor == 0.0:
            return  # none of its columns is in any pattern: nothing of it is opened
        public = self._sums_handler(study).handle(SumsKeyRequest(study, STRICT.name))
        joint = fingerprint((study, digest))  # the same at every party of this release, and of no other
        known = int(own_rows(plan, self.name).sum())
        entry = self.pricing(study).moments(known, plan.mu * factor, plan.mu, joint=joint)
        self.charge([entry], fingerprint((self.name, study, plan, public)))

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

    def _scores(self, study: str, plan: SumsPlan) -> Ints:
        """What is shared, and never sent otherwise."""
        return share_scores(plan, self.name, self.table, self._margins(study))

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
