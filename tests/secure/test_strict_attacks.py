"""Strict studies of members where a member or the coordinator lies: refused by name before anything is opened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.builders import make_federation
from tests.members import KEY, make_members
from tests.secure.cells_world import ForgedProver, forge_dealing
from tests.secure.sums_world import Recorded
from verticopula import Federation, Synthesizer
from verticopula.errors import ProtocolError
from verticopula.mpc import proof_rounds
from verticopula.mpc.cell_proofs import prove_codes
from verticopula.mpc.proof_rounds import CellsDealer, CellsVerifier
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.mpc.verified_cells import CellsDealing, CellsStatement, deal_cells, encode_cells, verifiers_of
from verticopula.protocol.messages import REPLY_KINDS, Reply, Request
from verticopula.protocol.party.member import Member
from verticopula.protocol.proof_routes import STEPS
from verticopula.protocol.strict_messages import SumsProofRequest, SumsReply, SumsRequest
from verticopula.protocol.wire import decode
from verticopula.storage.record_store import MemoryRecords

N, EPSILON = 60, 60.0  # margins with so little noise that columns keep three cells or more
NAMES = ("a", "b", "c", "d")  # the first three compute
FEDERATION = make_federation(
    {name: {f"x{name}": {"kind": "continuous", "bounds": (-6, 6)}, f"y{name}": {"kind": "binary"}} for name in NAMES}
)
LIARS = pytest.mark.parametrize("liar", ["b", "d"], ids=["computes", "does not compute"])


def tables() -> dict[str, pl.DataFrame]:
    rng = np.random.default_rng(5)
    ids = [f"s{i}" for i in range(N)]
    return {
        name: pl.DataFrame(
            {"subject_id": ids, f"x{name}": rng.uniform(-2, 2, N), f"y{name}": rng.integers(0, 2, N)}
        ).with_columns(pl.col(f"y{name}").cast(pl.Int64))
        for name in NAMES
    }


def study(federation: Federation, transport: Recorded) -> Synthesizer:
    return Synthesizer(federation, "strict", EPSILON, 1e-6).fit_transport(transport, study="a study", server_seed=1)


def refused(transport: Recorded, members: dict[str, Member], said: str) -> None:
    """The study stops with this error; nobody has sent a term, and everybody's ledger has the sums at most once."""
    with pytest.raises(ProtocolError, match=said):
        study(FEDERATION, transport)
    assert not any(isinstance(decode(data, REPLY_KINDS), SumsReply) for _, data in transport.answered)
    for member in members.values():
        assert [entry.what for entry in member.vault.ledger] == ["marginal", "marginal", "gram", "tables"]


# ---- a party that lies -----------------------------------------------------------------------


def spoil(statement: CellsStatement, codes: np.ndarray, kind: str) -> np.ndarray:
    """Good cells but for one person's first column."""
    assert statement.cells[0] > 2
    spoilt = encode_cells(statement, codes)
    spoilt[7, :2] = {"two": [2, 0], "a million": [1_000_016, 0], "two ones": [1, 1]}[kind]
    return spoilt


@pytest.mark.parametrize("hide", [False, True], ids=["true Q", "Q with d = 0"])
@pytest.mark.parametrize("kind", ["two", "a million", "two ones"])
@LIARS
def test_cells_that_are_not_one_hot(liar: str, kind: str, hide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record longer than its bound would show one person's scores at all other parties."""

    def deal(statement: CellsStatement, codes: np.ndarray, secret: bytes) -> CellsDealing:
        if statement.dealer != liar:
            return deal_cells(statement, codes, secret)
        return forge_dealing(statement, spoil(statement, codes, kind))

    def prove(statement: CellsStatement, codes: np.ndarray, *rest: Any) -> bytes:
        if statement.dealer != liar:
            return prove_codes(statement, codes, *rest)
        return ForgedProver(spoil(statement, codes, kind), hide)(statement, codes, *rest)

    monkeypatch.setattr(proof_rounds, "deal_cells", deal)
    monkeypatch.setattr(proof_rounds, "prove_codes", prove)
    members = make_members(FEDERATION, tables())
    refused(Recorded(members), members, f"the cells of '{liar}' are not proven to be one-hot")


@LIARS
def test_other_cells_than_those_of_the_margins_are_the_partys_own_affair(
    liar: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are one-hot, so the bound holds: what a party says about its own people is what it says."""
    dealt = CellsDealer.__init__

    def other(self: Any, statement: CellsStatement, codes: np.ndarray, *rest: Any) -> None:
        dealt(self, statement, np.zeros_like(codes) if statement.dealer == liar else codes, *rest)

    monkeypatch.setattr(CellsDealer, "__init__", other)
    members = make_members(FEDERATION, tables())
    found = study(FEDERATION, Recorded(members))
    assert np.isfinite(found.result_.copula.correlation).all()
    assert all(len(list(member.vault.ledger)) == 4 for member in members.values())


@LIARS
def test_different_shares_to_two_holders(liar: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def deal(statement: CellsStatement, codes: np.ndarray, secret: bytes) -> CellsDealing:
        dealing = deal_cells(statement, codes, secret)
        if statement.dealer != liar:
            return dealing
        first = verifiers_of(statement)[0]
        other = deal_cells(statement, (codes + 1) % np.array(statement.cells), secret)
        moved = replace(other.bundles[first], body=dealing.bundles[first].body)
        return CellsDealing({**dealing.bundles, first: moved}, dealing.body)

    monkeypatch.setattr(proof_rounds, "deal_cells", deal)
    members = make_members(FEDERATION, tables())
    refused(Recorded(members), members, f"'{liar}' dealt different shares to it and to")


@LIARS
def test_a_proof_for_other_challenges(liar: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dealer that repeats a proof which it has made before, for a challenge of its own."""
    prove = CellsDealer.prove

    def again(self: Any, commitments: Any, reveals: Any) -> Any:
        made = prove(self, commitments, reveals)
        if self.statement.dealer != liar:
            return made
        return {name: replace(share, transcript=bytes(32)) for name, share in made.items()}

    monkeypatch.setattr(CellsDealer, "prove", again)
    members = make_members(FEDERATION, tables())
    refused(Recorded(members), members, f"'{liar}' proved for another challenge")


@pytest.mark.parametrize("shown", ["the dealer", "a verifier"])
def test_a_verifier_that_shows_unequal_challenges(shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two openings of one proof would tell about cells: nobody goes on unless all have seen the same commitments."""
    commit = CellsVerifier.commit

    def two_faced(self: Any) -> Any:
        made = commit(self)
        if self.party != "a" or self.statement.dealer != "d":
            return made
        to = "d" if shown == "the dealer" else "c"
        return {**made, to: replace(made[to], point=bytes(32))}

    monkeypatch.setattr(CellsVerifier, "commit", two_faced)
    members = make_members(FEDERATION, tables())
    refused(Recorded(members), members, "has seen other challenges in the proof of 'd'")


@pytest.mark.parametrize("stage", ["coefficients", "point"])
def test_a_seed_that_was_not_committed_to(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = {"coefficients": "reveal_coefficients", "point": "reveal_point"}[stage]
    reveal = getattr(CellsVerifier, name)

    def other(self: Any, *rest: Any) -> Any:
        made = reveal(self, *rest)
        return replace(made, seed=bytes(32)) if self.party == "a" else made

    monkeypatch.setattr(CellsVerifier, name, other)
    members = make_members(FEDERATION, tables())
    refused(Recorded(members), members, "'a' revealed another seed than it committed itself to")


def test_a_verifier_that_calls_good_cells_bad_stops_the_study_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = CellsVerifier.judge

    def slander(self: Any, openings: Any) -> Any:
        made = judge(self, openings)
        if self.party != "a":
            return made
        return {name: replace(verdict, accepted=False) for name, verdict in made.items()}

    monkeypatch.setattr(CellsVerifier, "judge", slander)
    members = make_members(FEDERATION, tables())
    refused(Recorded(members), members, "say a: the dealer or one of these")


# ---- a coordinator that lies -----------------------------------------------------------------


class Meddling(Recorded):
    """Changes what is asked of one party in one round."""

    def __init__(self, members: Any, step: str, change: Callable[[Any], Any], party: str = "a") -> None:
        super().__init__(members)
        self._step, self._change, self._party = step, change, party
        self.asked = 0

    def deliver(self, requests: Any) -> dict[str, Reply]:
        return super().deliver({name: self._changed(name, request) for name, request in requests.items()})

    def _changed(self, name: str, request: Request) -> Request:
        step = request.step if isinstance(request, SumsProofRequest) else "sums" * isinstance(request, SumsRequest)
        if name != self._party or step != self._step:
            return request
        self.asked += 1
        return self._change(request)  # type: ignore[no-any-return]


def last_boxes(change: Callable[[tuple[bytes, ...]], tuple[bytes, ...]]) -> Callable[[Any], Any]:
    """A change of the sealed messages of the last round before."""
    return lambda request: replace(request, boxes=(*request.boxes[:-1], change(request.boxes[-1])))


@pytest.mark.parametrize("change", ["swapped", "dropped", "one for another", "altered"])
@pytest.mark.parametrize("step", [*STEPS[1:], "sums"])
def test_messages_that_a_coordinator_changes(step: str, change: str) -> None:
    changes: dict[str, Callable[[tuple[bytes, ...]], tuple[bytes, ...]]] = {
        "swapped": lambda boxes: boxes[::-1],
        "dropped": lambda boxes: boxes[:-1],
        "one for another": lambda boxes: (boxes[-1], *boxes[1:]),
        "altered": lambda boxes: (bytes([boxes[0][0] ^ 1]) + boxes[0][1:], *boxes[1:]),
    }
    members = make_members(FEDERATION, tables())
    party = "b" if step == "point" else "a"  # with proofs of several dealers
    transport = Meddling(members, step, last_boxes(changes[change]), party)
    refused(transport, members, r"altered, or meant for another place|other messages in this round")
    assert transport.asked == 1


@pytest.mark.parametrize("step", STEPS[2:])
def test_a_round_that_is_asked_for_before_its_time(step: str) -> None:
    """A challenge would be known too early: without all earlier messages there is no answer."""
    members = make_members(FEDERATION, tables())
    early = Meddling(members, "commit", lambda request: replace(request, step=step))
    refused(early, members, "there is no such round of proofs")
    assert early.asked == 1
    members = make_members(FEDERATION, tables())
    repeated = Meddling(
        members, "commit", lambda request: replace(request, step=step, boxes=request.boxes * STEPS.index(step))
    )
    refused(repeated, members, r"altered, or meant for another place|other messages in this round")


def test_terms_before_the_proofs() -> None:
    members = make_members(FEDERATION, tables())

    def skip(request: SumsProofRequest) -> SumsRequest:
        return SumsRequest(request.study, request.method, request.plan, request.keys, request.boxes, request.bodies)

    refused(Meddling(members, "commit", skip), members, "expected the messages of all rounds of proofs")


def test_a_proof_of_another_study_is_not_one_of_this() -> None:
    """Messages are sealed for one study: repeated in the next one, by the same members, they cannot be opened."""
    members = make_members(FEDERATION, tables())
    first = Meddling(members, "verdicts", lambda request: request)
    kept: list[Any] = []
    first._change = lambda request: kept.append(request) or request  # type: ignore[func-returns-value]
    study(FEDERATION, first)
    again = Meddling(members, "verdicts", lambda request: replace(request, boxes=kept[0].boxes))
    with pytest.raises(ProtocolError, match=r"altered, or meant for another place|another message in this place"):
        Synthesizer(FEDERATION, "strict", EPSILON, 1e-6).fit_transport(again, study="another study", server_seed=1)
    assert again.asked == 1


def test_a_body_that_the_coordinator_exchanges() -> None:
    members = make_members(FEDERATION, tables())
    other = Meddling(
        members, "commit", lambda request: replace(request, bodies=tuple(np.zeros_like(b) for b in request.bodies))
    )
    refused(other, members, "the body is not the one that")


def test_the_third_compute_party_of_two_parties_checks_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator computes there: it verifies the cells of both as any party would."""
    made = make_federation(
        {name: {f"x{name}": {"kind": "continuous", "bounds": (-6, 6)}, f"y{name}": {"kind": "binary"}} for name in "ab"}
    )
    two = Federation.from_dict({**made.to_dict(), "network": {"operator": "office"}})
    monkeypatch.setattr(
        proof_rounds,
        "deal_cells",
        lambda statement, codes, secret: (
            forge_dealing(statement, spoil(statement, codes, "a million"))
            if statement.dealer == "a"
            else deal_cells(statement, codes, secret)
        ),
    )
    members = make_members(two, {name: table for name, table in tables().items() if name in "ab"})
    synthesizer = Synthesizer(two, "strict", EPSILON, 1e-6)
    handler = synthesizer.make_compute_handler(MemoryRecords(), shared_authenticity(KEY))
    transport = Recorded(members)
    with pytest.raises(ProtocolError, match=r"'a' are not proven to be one-hot, say b, coordinator"):
        synthesizer.fit_transport(transport, study="a study", compute_handler=handler, server_seed=1)
    assert not any(isinstance(decode(data, REPLY_KINDS), SumsReply) for _, data in transport.answered)
