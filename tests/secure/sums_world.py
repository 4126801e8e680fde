"""A few parties with made-up cells, their handlers, and transports that look or fail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.sums_plans import CELLS, all_pairs, make_plan
from verticopula.errors import PartyUnavailable
from verticopula.mpc import sums_plan
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.mpc.sums_plan import SumsPlan, choose_compute, own_features
from verticopula.privacy.noise import Noise, SecureNoise, SeededNoise
from verticopula.protocol.messages import REPLY_KINDS, REQUEST_KINDS, Reply, Request
from verticopula.protocol.party.sums_handler import SumsHandler
from verticopula.protocol.secure_sums import ChoosePairs, SecureOpenings, secure_sums
from verticopula.protocol.wire import decode, encode
from verticopula.schema.study_settings import COORDINATOR
from verticopula.storage.record_store import MemoryRecords, RecordStore
from verticopula.transport.delivery import Transport, drive
from verticopula.transport.in_process_transport import InProcessTransport

KEY = bytes(range(32))
STUDY = "study"
Ints = NDArray[np.int64]

NONE = -1  # where a party does not know a person


class NoNoise(SecureNoise):
    """A compute party that does not add its share: the dishonest one."""

    def discrete_gaussian(self, values: NDArray[np.int64], scale: float, *label: str) -> NDArray[np.int64]:
        return values


@dataclass
class World:
    """Cells, a plan, and everybody's records."""

    cells: dict[str, Ints]  # party -> (N, p_k); NONE in rows of people whom it does not know
    mu: float = 1.0
    records: dict[str, RecordStore] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)  # of `make_plan`

    @property
    def known(self) -> NDArray[np.bool_]:
        return np.column_stack([values[:, 0] != NONE for values in self.cells.values()])

    def plan(self) -> SumsPlan:
        widths = {name: values.shape[1] for name, values in self.cells.items()}
        return make_plan(widths, self.known, self.mu, choose_compute(list(widths)), **self.settings)

    def codes(self, plan: SumsPlan, party: str) -> Ints:
        """What a party shares."""
        return self.cells[party][sums_plan.own_rows(plan, party)]

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

    def integers(self, plan: SumsPlan, party: str) -> Ints:
        """(N, features) what its cells stand for in records, the slow way."""
        index, rows = plan.parties.index(party), []
        for person, cells in enumerate(self.cells[party]):
            weight = int(plan.weights[plan.pattern_of[person], index])
            parts = [own_features(plan, party)[j][max(int(cell), 0)] for j, cell in enumerate(cells)]
            rows.append(weight * np.concatenate(parts))
        return np.array(rows)

    def products(self, plan: SumsPlan) -> Ints:
        """The exact products of what cells stand for, person by person."""
        records = np.column_stack([self.integers(plan, party) for party in plan.parties])
        return np.asarray(sum(np.outer(record, record) for record in records))

    def table(self, pair: tuple[int, int]) -> Ints:
        """(3, 3) the exact counts of a pair of columns, person by person."""
        everything, counts = np.column_stack(list(self.cells.values())), np.zeros((CELLS, CELLS), dtype=np.int64)
        for person in everything:
            if NONE not in (person[pair[0]], person[pair[1]]):
                counts[person[pair[0]], person[pair[1]]] += 1
        return counts


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


def nearest_pairs(plan: SumsPlan) -> ChoosePairs:
    """Chooses as many pairs as the plan allows."""
    return lambda gram, selection: all_pairs(plan)


def run(
    plan: SumsPlan,
    handlers: Mapping[str, SumsHandler],
    transport: Transport | None = None,
    choose: ChoosePairs | None = None,
) -> SecureOpenings:
    own = handlers.get(COORDINATOR)
    way = Recorded({name: handler for name, handler in handlers.items() if name != COORDINATOR})
    return drive(secure_sums(plan, STUDY, "strict", own, None, choose or nearest_pairs(plan)), transport or way)


def some_cells(widths: Mapping[str, int], n: int, seed: int = 1, missing: float = 0.3) -> dict[str, Ints]:
    """Any cells; the last party knows everybody, the others not."""
    rng = np.random.default_rng(seed)
    cells = {name: rng.integers(0, CELLS, (n, width)) for name, width in widths.items()}
    for name in list(widths)[:-1]:
        cells[name][rng.random(n) < missing] = NONE
    return cells
