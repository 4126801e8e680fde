"""What every transport must do, and what the protocol does with parties that misbehave."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from verticopula import Federation, Policy
from verticopula.errors import PartyUnavailable, PolicyRefused, ProtocolError, VersionMismatch
from verticopula.privacy.budget import BudgetRequest
from verticopula.privacy.noise import SeededNoise
from verticopula.protocol.messages import (
    PresenceReply,
    PresenceRequest,
    ReleaseReply,
    ReleaseRequest,
    Reply,
    Request,
    ReviewReply,
)
from verticopula.protocol.party import LocalParty
from verticopula.protocol.vcds import vcds
from verticopula.result import FitResult
from verticopula.tables import align_tables
from verticopula.transport.base import Transport, drive
from verticopula.transport.inprocess import InProcessTransport

FEDERATION = Federation.from_dict(
    {
        "response": "a.y",
        "party": [
            {"name": "a", "column": [{"name": "y", "kind": "binary"}]},
            {"name": "b", "column": [{"name": "x", "kind": "continuous", "bounds": [-6, 6]}]},
        ],
    }
)
BUDGET = BudgetRequest.build(FEDERATION, unit="variable", epsilon=2.0, delta=None)


def parties(seed: int = 0) -> dict[str, LocalParty]:
    rng = np.random.default_rng(3)
    x = rng.normal(size=200)
    tables = {
        "a": pl.DataFrame({"subject_id": range(200), "y": (x + rng.normal(size=200) > 0).astype(int)}),
        "b": pl.DataFrame({"subject_id": range(150), "x": x[:150]}),
    }
    aligned = align_tables(FEDERATION, tables)
    return {name: LocalParty(table, SeededNoise(seed).derive(name)) for name, table in aligned.items()}


def run(transport: Transport) -> FitResult:
    return drive(vcds(FEDERATION, BUDGET, "study"), transport)


TRANSPORTS: list[Callable[[dict[str, LocalParty]], Transport]] = [InProcessTransport]


@pytest.mark.parametrize("make", TRANSPORTS)
def test_same_seed_same_arrays(make: Callable[[dict[str, LocalParty]], Transport]) -> None:
    first, second, other = run(make(parties())), run(make(parties())), run(make(parties(1)))
    np.testing.assert_array_equal(first.copula.correlation, second.copula.correlation)
    assert not np.array_equal(first.copula.correlation, other.copula.correlation)


@pytest.mark.parametrize("make", TRANSPORTS)
def test_a_lost_party_raises_and_is_named(make: Callable[[dict[str, LocalParty]], Transport]) -> None:
    present = parties()
    del present["b"]
    with pytest.raises(PartyUnavailable, match="'b'"):
        run(make(present))


class Tampering:
    """Delivers faithfully, but changes one party's replies on the way."""

    def __init__(self, change: Callable[[Reply], Reply]) -> None:
        self._inner = InProcessTransport(parties())
        self._change = change

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        replies = self._inner.deliver(requests)
        return {**replies, "b": self._change(replies["b"])}


def shorter_presence(reply: Reply) -> Reply:
    return replace(reply, observed=reply.observed[:-1]) if isinstance(reply, PresenceReply) else reply


def extra_presence_column(reply: Reply) -> Reply:
    return replace(reply, observed=np.tile(reply.observed, 2)) if isinstance(reply, PresenceReply) else reply


def no_release(reply: Reply) -> Reply:
    return replace(reply, columns=()) if isinstance(reply, ReleaseReply) else reply


def rank_out_of_range(reply: Reply) -> Reply:
    if isinstance(reply, ReleaseReply):
        return replace(reply, columns=tuple(replace(c, ranks=c.ranks + 10**6) for c in reply.columns))
    return reply


def too_few_cells(reply: Reply) -> Reply:
    if isinstance(reply, ReleaseReply):
        return replace(reply, columns=tuple(replace(c, cells=c.cells[:-1]) for c in reply.columns))
    return reply


def wrong_kind(reply: Reply) -> Reply:
    return PresenceReply("b", np.ones((200, 1), dtype=bool)) if isinstance(reply, ReleaseReply) else reply


def no_agreement(reply: Reply) -> Reply:
    return PresenceReply("b", np.ones((200, 1), dtype=bool)) if isinstance(reply, ReviewReply) else reply


@pytest.mark.parametrize(
    "change",
    [no_agreement, shorter_presence, extra_presence_column, no_release, rank_out_of_range, too_few_cells, wrong_kind],
)
def test_malformed_replies_are_errors_not_results(change: Callable[[Reply], Reply]) -> None:
    with pytest.raises(ProtocolError):
        run(Tampering(change))


def test_a_party_refuses_another_message_version() -> None:
    party = parties()["a"]
    for request in (PresenceRequest("s", "vcds", version=99), ReleaseRequest("s", "vcds", "exact", (), version=99)):
        with pytest.raises(VersionMismatch, match="99"):
            party.handle(request)


def test_who_has_a_value_in_an_unshared_column_is_not_told() -> None:
    party = parties()["a"]
    party.policy = Policy(columns=("something else",))
    with pytest.raises(PolicyRefused, match="does not share column 'y'"):
        party.handle(PresenceRequest("s", "vcds"))
