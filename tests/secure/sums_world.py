"""A few parties with made-up cells, their handlers, and transports that look or fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.sums_plans import CELLS, make_plan
from verticopula.errors import PartyUnavailable
from verticopula.mpc import sums_plan
from verticopula.mpc.opened_sums import PatternSums
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.mpc.sums_plan import SumsPlan, choose_compute
from verticopula.privacy.noise import Noise, SecureNoise, SeededNoise
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.party.sums_handler import SumsHandler
from verticopula.protocol.secure_sums import secure_sums
from verticopula.protocol.wire import REPLY_KINDS, REQUEST_KINDS, decode, encode
from verticopula.schema.study_settings import COORDINATOR
from verticopula.storage.records import MemoryRecords, RecordStore
from verticopula.transport.delivery import Transport, drive
from verticopula.transport.in_process_transport import InProcessTransport

KEY = bytes(range(32))
STUDY = "study"
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NONE = -1  # where a party has no value


class NoNoise(SecureNoise):
    """A compute party that does not add its share: the dishonest one."""

    def discrete_gaussian(self, values: NDArray[np.int64], scale: float, *label: str) -> NDArray[np.int64]:
        return values


@dataclass
class World:
    """Cells, a plan, and everybody's records."""

    cells: dict[str, Ints]  # party -> (N, p_k); NONE where it has no value
    mu: float = 1.0
    per_column: float = 1.5
    records: dict[str, RecordStore] = field(default_factory=dict)

    @property
    def observed(self) -> NDArray[np.bool_]:
        return np.column_stack(list(self.cells.values())) != NONE

    def plan(self) -> SumsPlan:
        widths = {name: values.shape[1] for name, values in self.cells.items()}
        return make_plan(widths, self.observed, self.mu, self.per_column, choose_compute(list(widths)))

    def codes(self, plan: SumsPlan, party: str) -> Ints:
        """What a party shares."""
        mask = sums_plan.own_mask(plan, party)
        return np.where(mask, self.cells[party][sums_plan.own_rows(plan, party)], 0)

    def integers(self, plan: SumsPlan, party: str) -> Ints:
        """What its cells stand for."""
        return sums_plan.score_cells(plan, party, self.codes(plan, party))

    def handler(self, party: str, noise: Noise | None = None, **settings: Any) -> SumsHandler:
        return SumsHandler(
            party,
            (lambda plan: self.codes(plan, party)) if party in self.cells else None,
            records=self.records.setdefault(party, MemoryRecords()),
            noise=SecureNoise() if noise is None else noise,
            authenticity=shared_authenticity(KEY),
            **settings,
        )

    def handlers(self, seed: int | None = None, noises: Mapping[str, Noise] | None = None) -> dict[str, SumsHandler]:
        names = dict.fromkeys([*self.cells, *self.plan().compute])
        noises = {name: SeededNoise(seed).derive(name) for name in names} if seed is not None else noises or {}
        return {name: self.handler(name, noises.get(name)) for name in names}

    def moments(self, plan: SumsPlan, pattern: int) -> tuple[Floats, Floats]:
        """The exact sums and products of what cells stand for."""
        subjects = plan.pattern_of == pattern
        parts = []
        for party in plan.parties:
            whole = np.zeros((subjects.size, self.cells[party].shape[1]))
            whole[sums_plan.own_rows(plan, party)] = self.integers(plan, party)
            parts.append(whole)
        rows = np.column_stack(parts)[subjects][:, plan.columns[pattern]].astype(np.int64)
        return rows.sum(axis=0) * 2.0**plan.bits / 4.0**plan.bits, (rows.T @ rows) / 4.0**plan.bits


class Recorded(InProcessTransport):
    """Everything travels as bytes, and is kept for a look."""

    def __init__(self, parties: Mapping[str, Any]) -> None:
        super().__init__(parties)
        self.sent: list[tuple[str, bytes]] = []
        self.answered: list[tuple[str, bytes]] = []

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        coded = {name: encode(request) for name, request in requests.items()}
        self.sent += coded.items()
        replies = super().deliver({name: decode(data, REQUEST_KINDS) for name, data in coded.items()})
        answers = {name: encode(reply) for name, reply in replies.items()}
        self.answered += answers.items()
        return {name: decode(data, REPLY_KINDS) for name, data in answers.items()}


class Dropping(Recorded):
    """Loses one party in one round; everybody else may have answered."""

    def __init__(self, parties: Mapping[str, Any], party: str, round_number: int) -> None:
        super().__init__(parties)
        self._party, self._left = party, round_number

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        self._left -= 1
        replies = super().deliver(requests)
        if self._left == 0 and self._party in replies:
            raise PartyUnavailable(f"party {self._party!r} did not answer")
        return replies


def run(
    plan: SumsPlan, handlers: Mapping[str, SumsHandler], transport: Transport | None = None
) -> tuple[PatternSums, ...]:
    own = handlers.get(COORDINATOR)
    way = Recorded({name: handler for name, handler in handlers.items() if name != COORDINATOR})
    return drive(secure_sums(plan, STUDY, "strict", own), transport or way)


def some_cells(widths: Mapping[str, int], n: int, seed: int = 1, missing: float = 0.3) -> dict[str, Ints]:
    """Any cells; the last party knows everybody, the others not."""
    rng = np.random.default_rng(seed)
    cells = {name: rng.integers(0, CELLS, (n, width)) for name, width in widths.items()}
    for name in list(widths)[:-1]:
        cells[name][rng.random(n) < missing] = NONE
    return cells
