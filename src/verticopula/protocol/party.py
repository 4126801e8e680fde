"""A party: the only code that sees raw data.

It holds its own table, its own policy, its own ledger and its own source of noise. It checks
every request against the policy before anything is drawn, writes every release to the ledger
before it is sent, and makes a release once: the same request gets the same answer again.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticopula.copula import latent_count
from verticopula.errors import PolicyRefused, ProtocolError, VersionMismatch
from verticopula.marginals import cell_count, release_cells, to_cells
from verticopula.privacy.budget import SAMPLERS, coins_per_comparison, rank_coins
from verticopula.privacy.ledger import Ledger, Release
from verticopula.privacy.noise import Noise
from verticopula.privacy.policy import Policy
from verticopula.protocol.messages import (
    MESSAGE_VERSION,
    ColumnOrder,
    ColumnRelease,
    PresenceReply,
    PresenceRequest,
    ReleaseReply,
    ReleaseRequest,
    Reply,
    Request,
    ReviewReply,
    ReviewRequest,
)
from verticopula.ranks import draw_binomial_ranks, flip_comparisons
from verticopula.schema import Column
from verticopula.tables import AlignedTable

logger = logging.getLogger(__name__)

_MECHANISMS = {"exact": "randomized response on every comparison", "binomial": "binomial ranks"}


@dataclass(repr=False)
class LocalParty:
    """One organisation's side of every protocol.

    Attributes
    ----------
    bounds_from_data : True where ranges or categories were taken from the data
    executor : where columns are worked on in parallel; None for one after the other
    on_column : called with the number of comparisons after each column, for progress bars
    """

    table: AlignedTable
    noise: Noise
    ledger: Ledger = field(default_factory=Ledger)
    policy: Policy = field(default_factory=Policy)
    bounds_from_data: bool = False
    executor: Executor | None = None
    on_column: Callable[[int], None] = lambda comparisons: None
    _made: dict[ReleaseRequest, ReleaseReply] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.table.party.name

    def handle(self, request: Request) -> Reply:
        """Answer a request, or refuse it with a reason."""
        if request.version != MESSAGE_VERSION:
            raise VersionMismatch(
                f"party {self.name!r} speaks message version {MESSAGE_VERSION}, the coordinator {request.version}"
            )
        if isinstance(request, PresenceRequest):
            self.policy.check(self.name, request.method, (), ())
            self.policy.check_columns(self.name, (column.name for column in self.table.party.columns))
            return PresenceReply(self.name, self.table.observed())
        if isinstance(request, ReviewRequest):
            self._approve(request.release.method, self._price(request.release), list(self.ledger))
            return ReviewReply(self.name)
        if isinstance(request, ReleaseRequest):
            if request not in self._made:
                self._made[request] = self._release(request)
            return self._made[request]
        raise ProtocolError(f"party {self.name!r} does not know requests of type {type(request).__name__}")

    # ---- releases ------------------------------------------------------------------------

    def _release(self, request: ReleaseRequest) -> ReleaseReply:
        entries = self._price(request)
        self.ledger.append(entries, approve=lambda spent: self._approve(request.method, entries, spent))
        logger.info("party %s: %d releases recorded", self.name, len(entries))
        run = map if self.executor is None else self.executor.map
        return ReleaseReply(self.name, tuple(run(lambda order: self._release_column(request, order), request.orders)))

    def _price(self, request: ReleaseRequest) -> list[Release]:
        """The ledger entries that answering would cost."""
        self._check_orders(request)
        return [entry for order in request.orders for entry in self._entries(request, order)]

    def _approve(self, method: str, proposed: list[Release], spent: list[Release]) -> None:
        self.policy.check(self.name, method, proposed, [entry for entry in spent if entry.party == self.name])

    def _check_orders(self, request: ReleaseRequest) -> None:
        known = {column.name for column in self.table.party.columns}
        asked = [order.column for order in request.orders]
        if len(set(asked)) != len(asked) or not set(asked) <= known:
            raise PolicyRefused(f"party {self.name!r}: the request names columns twice or columns it does not hold")
        if request.sampler not in SAMPLERS:
            raise PolicyRefused(f"party {self.name!r} does not know the sampler the request names")
        for order in request.orders:
            for epsilon in (order.epsilon_ranks, order.epsilon_marginal):
                if not (math.isfinite(epsilon) and epsilon > 0.0):
                    raise PolicyRefused(f"party {self.name!r}, column {order.column!r}: epsilon must be positive")

    def _entries(self, request: ReleaseRequest, order: ColumnOrder) -> tuple[Release, Release]:
        column = self.table.party.column(order.column)
        n_observed = int(self.table.columns[order.column].observed.sum())
        coins = rank_coins(column, request.sampler, order.epsilon_ranks, n_observed)
        marginal = math.inf if self.bounds_from_data else order.epsilon_marginal
        common: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "study": request.study,
            "party": self.name,
            "column": order.column,
            "n_subjects": n_observed,
            "noise": "secure" if self.noise.is_private else "seeded",
            "bounds": "from-data" if self.bounds_from_data else "public",
        }
        ranks = Release(
            **common,
            what="ranks",
            mechanism=_MECHANISMS[request.sampler],
            epsilon=order.epsilon_ranks,
            coins_epsilon=coins.epsilon,
            coins_count=coins.count,
        )
        cells = Release(
            **common,
            what="marginal",
            mechanism="discrete Laplace on cell counts",
            epsilon=marginal,
            coins_epsilon=marginal,
            coins_count=1,
        )
        return ranks, cells

    def _release_column(self, request: ReleaseRequest, order: ColumnOrder) -> ColumnRelease:
        column = self.table.party.column(order.column)
        encoded = self.table.columns[order.column]
        values = encoded.values[encoded.observed]
        per_coin = order.epsilon_ranks / coins_per_comparison(column, request.sampler)
        ranks = [
            self._noisy_ranks(latent, request, column, index, per_coin)
            for index, latent in enumerate(_latent_values(values, column))
        ]
        cells = cell_count(column, values.size, order.epsilon_marginal)
        noisy = release_cells(
            to_cells(values, column, cells),
            cells,
            order.epsilon_marginal,
            self.noise,
            request.study,
            column.name,
            "cells",
        )
        return ColumnRelease(column.name, np.column_stack(ranks), noisy)

    def _noisy_ranks(
        self, values: NDArray[np.float64], request: ReleaseRequest, column: Column, index: int, epsilon: float
    ) -> NDArray[np.int64]:
        draw = flip_comparisons if request.sampler == "exact" else draw_binomial_ranks
        ranks = draw(values, epsilon, self.noise.stream(request.study, column.name, str(index), "coins"))
        self.on_column(values.size * (values.size - 1) // 2)
        return ranks


def _latent_values(values: NDArray[np.float64], column: Column) -> list[NDArray[np.float64]]:
    """The column itself, or one indicator per category of a nominal column."""
    count = latent_count(column)
    return [values] if count == 1 else [(values == code).astype(np.float64) for code in range(count)]
