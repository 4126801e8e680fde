"""Three parties that allow a regression on their raw columns, for tests of what that means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tests.builders import CONTINUOUS, make_federation, make_tables
from tests.study_parties import make_study_party
from verticopula.data.tables import align_tables
from verticopula.errors import PartyUnavailable
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.privacy.noise import Keystream
from verticopula.privacy.policy import Policy
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.party.local_party import LocalParty
from verticopula.schema.federation import Federation
from verticopula.schema.methods import RAW_REGRESSION
from verticopula.storage.ledger import Ledger
from verticopula.transport.in_process_transport import InProcessTransport

Floats = NDArray[np.float64]

N = 100
NUMBER = 7.123456789  # planted, inside the bounds
ALLOWED = Policy(methods=(RAW_REGRESSION,))


class Untouchable:
    """A source of noise that nobody may ask: a regression on raw columns draws nothing."""

    is_private = True

    def stream(self, *label: str) -> Keystream:
        raise AssertionError("somebody asked for randomness")

    def discrete_laplace(self, values: NDArray[np.int64], scale: float, *label: str) -> NDArray[np.int64]:
        raise AssertionError("somebody asked for randomness")


def federation() -> Federation:
    return make_federation(
        {
            "hub": {"y": CONTINUOUS, "flag": {"kind": "binary"}},
            "north": {"a": CONTINUOUS, "g": {"kind": "nominal", "categories": ["u", "v", "w"]}},
            "south": {"b": CONTINUOUS, "o": {"kind": "ordinal", "categories": ["low", "mid", "high"]}},
        }
    )


def tables() -> dict[str, pl.DataFrame]:
    """North lacks a block of subjects, south a single cell, in an order of its own."""
    rng = np.random.default_rng(1)
    a, b, g, o, flag = (
        rng.standard_normal(N),
        rng.standard_normal(N),
        *(rng.integers(0, 3, N) for _ in range(2)),
        rng.integers(0, 2, N),
    )
    a[3] = NUMBER
    y = np.clip(a - b + 0.8 * o + (g == 1) + 0.5 * rng.standard_normal(N), -8, 8)
    frames = make_tables(
        federation(),
        {
            "y": y,
            "flag": flag,
            "a": a,
            "g": np.array(["u", "v", "w"])[g],
            "b": b,
            "o": np.array(["low", "mid", "high"])[o],
        },
    )
    frames["north"] = frames["north"][:80]
    cells = frames["south"]["b"].to_list()
    cells[10] = None
    frames["south"] = frames["south"].with_columns(b=pl.Series(cells)).sample(fraction=1.0, shuffle=True, seed=1)
    return frames


def complete_cases() -> dict[str, pl.DataFrame]:
    """The same tables, joined by id and taken apart again, in the cohort's order."""
    joined = tables()["hub"]
    for name in ("north", "south"):
        joined = joined.join(tables()[name], on="subject_id", how="left", maintain_order="left")
    joined = joined.drop_nulls()
    return {p.name: joined.select([c.name for c in p.columns]) for p in federation().parties}


def parties(
    policies: Mapping[str, Policy] | None = None, frames: Mapping[str, pl.DataFrame] | None = None
) -> dict[str, LocalParty]:
    chosen = dict.fromkeys(("hub", "north", "south"), ALLOWED) | dict(policies or {})
    return {
        name: make_study_party(
            table,
            noise=Untouchable(),
            ledger=Ledger(),
            policy=chosen[name],
            authenticity=shared_authenticity(b"k" * 16),
        )
        for name, table in align_tables(federation(), frames or tables()).items()
    }


class Watched(InProcessTransport):
    """Keeps every reply, and can lose a party or alter what it says."""

    def __init__(self, members: Mapping[str, LocalParty], lose: int | None = None, alter: Any = None) -> None:
        super().__init__(members)
        self.replies: list[Reply] = []
        self._lose, self._alter, self._round = lose, alter, 0

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        self._round += 1
        if self._round == self._lose:
            raise PartyUnavailable("party 'south' did not answer")
        found = super().deliver(requests)
        if self._alter is not None:
            found = {name: self._alter(name, reply) for name, reply in found.items()}
        self.replies += found.values()
        return found


def entries(members: Mapping[str, LocalParty]) -> list[tuple[str, str]]:
    return [(e.party, e.column) for p in members.values() for e in p.control.ledger]
