"""The rounds of a proof: honest ones always end in acceptance; a cheat, a replay or a wrong order is refused."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.secure.cells_world import (
    COMPUTE,
    DEALERS,
    STEPS,
    ForgedProver,
    Session,
    cheat,
    exact_folds,
    forge_dealing,
    key_of,
    keys_of,
    make_codes,
    make_statement,
    make_verifier,
    secret_of,
    shared_values,
)
from tests.secure.test_cell_proofs import KINDS, bad_values
from verticopula.errors import ProtocolError
from verticopula.mpc import proof_rounds
from verticopula.mpc.cell_proofs import (
    PieceOpening,
    draw_coefficients,
    draw_point,
    held_pieces,
    lacked_piece,
    pack_opening,
    unpack_opening,
)
from verticopula.mpc.prime_field import PRIME, add, invert, multiply, subtract
from verticopula.mpc.proof_messages import (
    CellsCommitment,
    CellsVerdict,
    CoefficientReveal,
    PointReveal,
    ProofShare,
    QueryOpening,
    rounds_of,
)
from verticopula.mpc.proof_rounds import CellsDealer, CellsVerifier, VerifierRecord
from verticopula.mpc.sealed_messages import SealedChannel, shared_authenticity
from verticopula.mpc.verified_cells import (
    NO_BYTES,
    CellsBundle,
    CellsStatement,
    body_receivers,
    deal_values,
    encode_cells,
    receive_cells,
    verifiers_of,
)
from verticopula.protocol.wire import decode, encode

NOT_PROVEN = "not proven to be one-hot"
TWO_KINDS_OF_DEALERS = pytest.mark.parametrize("dealer", ["a", "d"], ids=["computes", "does not compute"])


def joint_seed(session: Session, round_name: str) -> bytes:
    """The challenge that all verifiers' seeds make."""
    names = verifiers_of(session.statement)
    seeds = {s: m.seed for (s, _), m in session.sent[round_name].items()}
    total = 0
    for name in names:
        total ^= int.from_bytes(seeds[name])
    return total.to_bytes(32)


# ---- honest ------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(DEALERS),
    st.integers(1, 90),
    st.lists(st.integers(2, 12), min_size=1, max_size=4),
    st.integers(0, 2**32),
)
def test_honest_cells_are_always_accepted(dealer: str, rows: int, cells: list[int], seed: int) -> None:
    statement = make_statement(dealer, rows, tuple(cells))
    codes = make_codes(statement, seed)
    verified = Session(statement, codes).run()
    assert set(verified) == set(COMPUTE)
    np.testing.assert_array_equal(shared_values(statement, verified), encode_cells(statement, codes))


@TWO_KINDS_OF_DEALERS
def test_rounds_are_those_that_are_listed(dealer: str) -> None:
    statement = make_statement(dealer)
    session = Session(statement, make_codes(statement))
    session.run()
    listed = rounds_of(statement)
    assert [each.name for each in listed] == list(session.sent)
    for each in listed:
        pairs = {(s, r) for s in each.senders for r in each.receivers if s != r}
        assert set(session.sent[each.name]) == pairs
        assert {type(message) for message in session.sent[each.name].values()} == {each.message}


@TWO_KINDS_OF_DEALERS
def test_all_of_it_travels_sealed_as_bytes(dealer: str) -> None:
    """Through the channel that secure sums use: keys, seals, the one reader of bytes."""
    names = [*COMPUTE, "d"]
    channels = {n: SealedChannel("study", n, secret_of(n), shared_authenticity(bytes(32))) for n in names}
    for channel in channels.values():
        channel.accept_keys(other.sign_public_key() for other in channels.values() if other is not channel)
    kinds = (CellsBundle, CellsCommitment, CoefficientReveal, ProofShare, PointReveal, QueryOpening, CellsVerdict)

    def carry(round_name: str, sender: str, receiver: str, message: Any) -> Any:
        sealed = channels[sender].seal(receiver, f"cells {round_name}", 0, encode(message))
        return decode(channels[receiver].open(sender, f"cells {round_name}", 0, sealed), kinds)

    statement = make_statement(dealer)
    assert set(Session(statement, make_codes(statement), carry).run()) == set(COMPUTE)


# ---- a dealer of bad cells ---------------------------------------------------------------


@pytest.mark.parametrize("hide", [False, True], ids=["true Q", "Q with d = 0"])
@pytest.mark.parametrize("kind", KINDS)
@TWO_KINDS_OF_DEALERS
def test_bad_cells_are_refused(dealer: str, kind: str, hide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    statement = make_statement(dealer)
    values = bad_values(statement, kind)
    cheat(monkeypatch, values, ForgedProver(values, hide))
    session = Session(statement, make_codes(statement))
    with pytest.raises(ProtocolError, match=NOT_PROVEN):
        session.run()
    assert not any(machine.record.accepted for machine in session.verifiers.values())


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_row_is_refused_wherever_it_is(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    statement = make_statement(rows=50)
    for row in (0, 20, 21, 42, 49):
        values = encode_cells(statement, make_codes(statement))
        values[row] = bad_values(statement, kind)[7]
        with monkeypatch.context() as patch:
            cheat(patch, values, ForgedProver(values, True))
            with pytest.raises(ProtocolError, match=NOT_PROVEN):
                Session(statement, make_codes(statement)).run()


# ---- a dealer that computes --------------------------------------------------------------


def test_a_dealer_does_not_verify_its_own_cells() -> None:
    statement = make_statement("a")
    dealing = CellsDealer(statement, make_codes(statement), secret_of("a")).deal()
    held = receive_cells(statement, "a", dealing.bundles["a"], dealing.body)
    with pytest.raises(ProtocolError, match="does not verify its own"):
        CellsVerifier(held, secret_of("a"), {name: key_of("a", name) for name in ("b", "c")})


def test_a_dealer_cannot_cancel_a_check_with_an_opening_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows everything that verifiers open, and sends the negative of what its bad cells add to the check."""
    statement = make_statement("a")
    values = bad_values(statement, "large")
    cheat(monkeypatch, values, ForgedProver(values, False))
    session = Session(statement, make_codes(statement)).run_until("open_queries")
    opened = [unpack_opening(statement, m.values) for m in session.sent["openings"].values()]
    difference = -sum(opening.difference for opening in opened) % PRIME
    transcript = session.sent["openings"]["b", "c"].transcript
    own = PieceOpening(difference, 0, np.zeros_like(opened[0].folded))
    message = QueryOpening(statement.digest, transcript, pack_opening(own))
    for name in ("b", "c"):
        with pytest.raises(ProtocolError, match="needs a message from each of"):
            session.verifiers[name].judge({**session.got("openings", name), "a": message})
        with pytest.raises(ProtocolError, match="needs a message from each of"):
            session.verifiers[name].judge({"a": message})


# ---- inconsistent shares -----------------------------------------------------------------


def test_a_computing_dealer_that_deals_two_versions_of_a_share_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof alone would pass: one verifier proves with its version, the other one sums with another."""
    statement = make_statement("a")
    codes = make_codes(statement)
    session = Session(statement, codes)
    dealing = session.dealer.deal()
    b, c = dealing.bundles["b"], dealing.bundles["c"]  # they hold S_1, S_2 and S_2, S_0
    lied_to = replace(dealing, bundles={**dealing.bundles, "c": replace(c, seeds=(bytes(16), c.seeds[1]))})
    assert b.seeds[1] == c.seeds[0] != bytes(16)
    with pytest.raises(ProtocolError, match="different shares"):
        Session(statement, codes, dealings={"c": lied_to}).run()
    monkeypatch.setattr(proof_rounds, "check_tag", lambda *args: None)
    verified = Session(statement, codes, dealings={"c": lied_to}).run()  # what the tags prevent
    assert not np.array_equal(verified["b"].held.second, verified["c"].held.first)


def test_another_dealer_that_deals_two_versions_of_a_share_is_refused() -> None:
    """S_2 at the one holder is larger by 1,000,000 in one place than at the other."""
    statement = make_statement("d")
    codes = make_codes(statement)
    values = encode_cells(statement, codes)
    moved = values.copy()
    moved[3, 1] += 1_000_000
    seeds = tuple(bytes([5, index]).ljust(16) for index in range(3))
    dealings = {
        "a": deal_values(statement, values, seeds),
        "b": deal_values(statement, values, seeds),
        "c": deal_values(statement, moved, seeds),
    }
    session = Session(statement, codes, dealings=dealings).run_until("commit")
    with pytest.raises(ProtocolError, match="different shares"):
        session.reveal_coefficients()
    session.verifiers["a"].reveal_coefficients(session.got("commit", "a"))  # it holds neither version
    for name in ("b", "c"):
        with pytest.raises(ProtocolError, match="different shares"):
            session.verifiers[name].reveal_coefficients(session.got("commit", name))


def test_nothing_is_revealed_without_the_other_holders_tag() -> None:
    statement = make_statement("a")

    def without_tag(round_name: str, sender: str, receiver: str, message: Any) -> Any:
        return replace(message, tag=b"") if round_name == "commit" else message

    session = Session(statement, make_codes(statement), without_tag).run_until("commit")
    with pytest.raises(ProtocolError, match="different shares"):
        session.verifiers["b"].reveal_coefficients(session.got("commit", "b"))


# ---- challenges that are known too early -------------------------------------------------


@TWO_KINDS_OF_DEALERS
def test_steps_come_in_order(dealer: str) -> None:
    statement = make_statement(dealer)
    session = Session(statement, make_codes(statement))
    session.run()
    name = verifiers_of(statement)[0]
    inputs = {
        "reveal_coefficients": (session.got("commit", name),),
        "reveal_point": (session.got("coefficients", name), session.sent["proof"][dealer, name]),
        "open_queries": (session.got("point", name),),
        "judge": (session.got("openings", name),),
        "conclude": (session.got("verdicts", name),),
    }
    fresh = make_verifier(statement, name, session.dealer.deal())
    for number, step in enumerate(inputs):
        for later in list(inputs)[number + 1 :]:
            with pytest.raises(ProtocolError, match="before the one that precedes it"):
                getattr(fresh, later)(*inputs[later])
        getattr(fresh, step)(*inputs[step])


def test_no_seed_is_revealed_before_everybody_has_committed() -> None:
    statement = make_statement("d")
    session = Session(statement, make_codes(statement)).run_until("commit")
    got = session.got("commit", "a")
    with pytest.raises(ProtocolError, match="needs a message from each of"):
        session.verifiers["a"].reveal_coefficients({"b": got["b"]})


def coefficients_of(session: Session) -> Any:
    return draw_coefficients(session.statement, joint_seed(session, "coefficients"))


@TWO_KINDS_OF_DEALERS
def test_a_dealer_that_deals_again_meets_other_coefficients(dealer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the coefficients of its first dealing it finds bad cells that satisfy the equation. It deals these to
    verifiers that have lost their records.
    """
    statement = make_statement(dealer)
    first = Session(statement, make_codes(statement))
    first.run()
    coefficients = coefficients_of(first)
    values = encode_cells(statement, make_codes(statement))
    values[7, :3] = (3, 5, 0)
    u, v = exact_folds(statement, values, coefficients)[7 * 3]
    values[7, :3] = [x * v * invert(u * u) % PRIME for x in (3, 5, 0)]
    cheat(monkeypatch, values, ForgedProver(values, False))
    again = Session(statement, make_codes(statement))
    with pytest.raises(ProtocolError, match=NOT_PROVEN):
        again.run()
    assert coefficients_of(again).weights.tolist() != coefficients.weights.tolist()
    with monkeypatch.context() as patch:  # the same cells pass where the verifiers' seeds stay what they were
        seeds = {name: machine._seeds for name, machine in first.verifiers.items()}
        careless = Session(statement, make_codes(statement)).run_until("deal")
        for name, machine in careless.verifiers.items():
            patch.setattr(machine, "_seeds", seeds[name])
        for step in STEPS[1:]:
            getattr(careless, step)()
        assert set(careless.conclude()) == set(COMPUTE)


def test_a_dealer_is_refused_that_deals_again_to_verifiers_with_records() -> None:
    statement = make_statement("a")
    session = Session(statement, make_codes(statement)).run_until("commit")
    other = forge_dealing(statement, encode_cells(statement, make_codes(statement)), seed=9)
    with pytest.raises(ProtocolError, match="fixed something else in this proof before: held"):
        make_verifier(statement, "b", other, session.verifiers["b"].record)


@TWO_KINDS_OF_DEALERS
def test_a_second_proof_for_a_known_point_is_refused(dealer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the point is known a dealer can prove anything: so one proof only is taken, after a restart too."""
    statement = make_statement(dealer)
    values = bad_values(statement, "large")
    cheat(monkeypatch, values, ForgedProver(values, True))
    session = Session(statement, make_codes(statement)).run_until("reveal_point")
    point = draw_point(statement, joint_seed(session, "point"))
    monkeypatch.setattr(proof_rounds, "prove_codes", ForgedProver(values, True, point))
    records = {name: machine.record for name, machine in session.verifiers.items()}
    session.prove()
    got_last = [name for name in verifiers_of(statement) if session.sent["proof"][dealer, name].correction]
    assert got_last
    for name in got_last:
        proof = session.sent["proof"][dealer, name]
        with pytest.raises(ProtocolError, match="fixed something else in this proof before: proof"):
            session.verifiers[name].reveal_point(session.got("coefficients", name), proof)
        restarted = make_verifier(statement, name, session.dealer.deal(), records[name])
        restarted.reveal_coefficients(session.got("commit", name))
        with pytest.raises(ProtocolError, match="fixed something else in this proof before: proof"):
            restarted.reveal_point(session.got("coefficients", name), proof)
    for name in verifiers_of(statement):  # without records it would pass
        session.verifiers[name] = make_verifier(statement, name, session.dealer.deal())
        session.verifiers[name].reveal_coefficients(session.got("commit", name))
    for step in STEPS[STEPS.index("reveal_point") :]:
        getattr(session, step)()
    assert set(session.conclude()) == set(COMPUTE)


# ---- unequal challenges ------------------------------------------------------------------


@TWO_KINDS_OF_DEALERS
def test_a_dealer_does_not_prove_where_a_verifier_tells_it_another_challenge(dealer: str) -> None:
    statement = make_statement(dealer)
    liar = verifiers_of(statement)[0]

    def other_seed(round_name: str, sender: str, receiver: str, message: Any) -> Any:
        if (round_name, sender, receiver) == ("coefficients", liar, dealer):
            return replace(message, seed=bytes(32))
        return message

    session = Session(statement, make_codes(statement), other_seed).run_until("reveal_coefficients")
    with pytest.raises(ProtocolError, match="another seed than it committed"):
        session.prove()


def two_faces(statement: CellsStatement, liar: str, victim: str) -> Session:
    """A verifier that commits itself to other seeds towards one receiver, and reveals those to it."""
    second = {stage: bytes([n + 1]) * 32 for n, stage in enumerate(("coefficients", "point"))}

    def meddle(round_name: str, sender: str, receiver: str, message: Any) -> Any:
        if sender != liar or receiver != victim:
            return message
        if round_name == "commit":
            first, point = (
                proof_rounds._commit(statement, liar, stage, second[stage]) for stage in ("coefficients", "point")
            )
            return replace(message, coefficients=first, point=point)
        if round_name in second:
            transcript = message.transcript
            if round_name == "coefficients":  # what the victim sees itself
                got = {**session.got("commit", victim)}
                if victim in session.verifiers:
                    got[victim] = session.verifiers[victim]._own_commitment()
                transcript = proof_rounds._transcript_of(statement, verifiers_of(statement), got)
            return replace(message, seed=second[round_name], transcript=transcript)
        return message

    session = Session(statement, make_codes(statement), meddle)
    return session


@TWO_KINDS_OF_DEALERS
def test_a_dealer_does_not_prove_where_verifiers_saw_other_commitments(dealer: str) -> None:
    statement = make_statement(dealer)
    session = two_faces(statement, verifiers_of(statement)[0], dealer).run_until("reveal_coefficients")
    with pytest.raises(ProtocolError, match="has seen other challenges"):
        session.prove()


def test_a_verifier_does_not_go_on_where_another_saw_other_commitments() -> None:
    """Otherwise two verifiers would open the part that the liar lacks at two points, with one mask."""
    statement = make_statement("d")
    session = two_faces(statement, "c", "b").run_until("reveal_coefficients")
    for name in ("a", "b"):
        machine, got = session.verifiers[name], session.got("coefficients", name)
        proof = ProofShare(statement.digest, b"", (), b"")
        with pytest.raises(ProtocolError, match="has seen other challenges"):
            machine.reveal_point(got, proof)


@TWO_KINDS_OF_DEALERS
def test_a_verifier_does_not_open_a_proof_for_another_challenge(dealer: str) -> None:
    """An honest dealer that a lying verifier has misled proves for other coefficients; opening that would tell."""
    statement = make_statement(dealer)
    session = Session(statement, make_codes(statement)).run_until("reveal_coefficients")
    honest = verifiers_of(statement)[-1]
    misled = CellsDealer(statement, make_codes(statement), secret_of(dealer))
    commitments, reveals = session.got("commit", dealer), session.got("coefficients", dealer)
    liar = verifiers_of(statement)[0]
    other = proof_rounds._commit(statement, liar, "coefficients", bytes(32))
    commitments[liar] = replace(commitments[liar], coefficients=other)
    transcript = proof_rounds._transcript_of(statement, verifiers_of(statement), commitments)
    reveals = {name: replace(reveal, transcript=transcript) for name, reveal in reveals.items()}
    reveals[liar] = replace(reveals[liar], seed=bytes(32))
    proof = misled.prove(commitments, reveals)[honest]
    with pytest.raises(ProtocolError, match="proved for another challenge"):
        session.verifiers[honest].reveal_point(session.got("coefficients", honest), proof)


@TWO_KINDS_OF_DEALERS
@pytest.mark.parametrize("stage", ["coefficients", "point"])
def test_a_verifier_cannot_choose_its_seed_after_the_others(stage: str, dealer: str) -> None:
    statement = make_statement(dealer)
    liar, *others = verifiers_of(statement)

    def late(round_name: str, sender: str, receiver: str, message: Any) -> Any:
        return replace(message, seed=bytes(32)) if (round_name, sender) == (stage, liar) else message

    session = Session(statement, make_codes(statement), late)
    with pytest.raises(ProtocolError, match="another seed than it committed"):
        session.run()
    assert all(not session.verifiers[name].record.accepted for name in others)


def test_a_verifier_cannot_repeat_anothers_commitment() -> None:
    """Two equal seeds would cancel, and leave the challenge to the third."""
    statement = make_statement("d")

    def copy(round_name: str, sender: str, receiver: str, message: Any) -> Any:
        if sender == "c" and round_name == "commit":
            theirs = session.verifiers["b"]._own_commitment()
            return replace(message, coefficients=theirs.coefficients, point=theirs.point)
        if sender == "c" and round_name == "coefficients":
            return replace(message, seed=session.verifiers["b"]._seeds["coefficients"])
        return message

    session = Session(statement, make_codes(statement), copy)
    session.run_until("reveal_coefficients")
    reveals = {
        name: replace(message, transcript=bytes.fromhex(session.verifiers["a"].record.commitments))
        for name, message in session.got("coefficients", "a").items()
    }
    with pytest.raises(ProtocolError, match="another seed than it committed"):
        session.verifiers["a"].reveal_point(reveals, ProofShare(statement.digest, b"", (), b""))


def test_a_challenge_depends_on_every_verifiers_seed() -> None:
    seeds = {name: bytes([number]) * 32 for number, name in enumerate("abc", start=1)}
    for name in seeds:
        assert proof_rounds._combine({**seeds, name: bytes(32)}) != proof_rounds._combine(seeds)


def test_a_dealer_proves_for_one_challenge_only() -> None:
    statement = make_statement("a")
    session = Session(statement, make_codes(statement)).run_until("prove")
    other = Session(statement, make_codes(statement))
    other.dealings = {
        n: forge_dealing(statement, encode_cells(statement, make_codes(statement)), 3) for n in ("b", "c")
    }
    other.run_until("reveal_coefficients")
    restarted = CellsDealer(statement, make_codes(statement), secret_of("a"), session.dealer.record)
    for machine in (session.dealer, restarted):
        with pytest.raises(ProtocolError, match="fixed something else in this proof before: challenge"):
            machine.prove(other.got("commit", "a"), other.got("coefficients", "a"))
    changed = CellsDealer(statement, make_codes(statement, 5), secret_of("a"), session.dealer.record)
    with pytest.raises(ProtocolError, match="fixed something else in this proof before: cells"):
        changed.deal()


def test_a_proof_hides_behind_keystreams_of_its_own() -> None:
    """One for each part; other challenges, cells, statements and secrets have others: no keystream hides two proofs."""
    statement = make_statement("d")
    seen = []
    for change, cells, secret in (({}, 0, "d"), ({"opening": 1}, 0, "d"), ({}, 1, "d"), ({}, 0, "e")):
        other = replace(statement, **change)  # type: ignore[arg-type]
        session = Session(other, make_codes(other, cells))
        session.dealer = CellsDealer(other, make_codes(other, cells), secret_of(secret))
        session.run_until("prove")
        seen += [seed for share in session.got_by("proof", "d").values() for seed in share.seeds]
        if not change and not cells:  # the same dealing at verifiers with other secrets, who choose another challenge
            dealt = session.dealer.deal()
            body = {"a": NO_BYTES, "b": dealt.body, "c": dealt.body}
            session.verifiers = {
                name: CellsVerifier(
                    receive_cells(other, name, dealt.bundles[name], body[name]), bytes(32), keys_of(other, name)
                )
                for name in COMPUTE
            }
            session.dealer = CellsDealer(other, make_codes(other, cells), secret_of(secret))
            for step in STEPS[1:4]:
                getattr(session, step)()
            seen += [seed for share in session.got_by("proof", "d").values() for seed in share.seeds]
    assert len(seen) == 6 * 6
    assert len(set(seen)) == 6 * 3  # two verifiers hold each part


# ---- replays -----------------------------------------------------------------------------


OTHERS = {
    "study": {"study": "another study"},
    "plan": {"plan": "another plan"},
    "opening": {"opening": 1},
    "rows and cells": {"rows": 29},
}
RECEIVED = ("commit", "coefficients", "proof", "point", "openings", "verdicts")


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS.keys())
@pytest.mark.parametrize("round_name", RECEIVED)
@TWO_KINDS_OF_DEALERS
def test_messages_of_another_proof_are_refused(dealer: str, round_name: str, change: dict[str, Any]) -> None:
    statement = make_statement(dealer)
    other = replace(statement, **change)
    before = Session(other, make_codes(other))
    before.run()

    def replayed(name: str, sender: str, receiver: str, message: Any) -> Any:
        return before.sent[name][sender, receiver] if name == round_name else message

    with pytest.raises(ProtocolError, match=r"about another proof|different shares"):
        Session(statement, make_codes(statement), replayed).run()


@pytest.mark.parametrize("round_name", RECEIVED)
def test_messages_of_another_dealers_proof_are_refused(round_name: str) -> None:
    statement, other = make_statement("d"), make_statement("e")
    before = Session(other, make_codes(other))
    before.run()

    def replayed(name: str, sender: str, receiver: str, message: Any) -> Any:
        rename = {"d": "e"}
        key = rename.get(sender, sender), rename.get(receiver, receiver)
        return before.sent[name][key] if name == round_name else message

    with pytest.raises(ProtocolError, match=r"about another proof|different shares"):
        Session(statement, make_codes(statement), replayed).run()


@pytest.mark.parametrize("round_name", ["coefficients", "proof", "point", "openings", "verdicts"])
def test_messages_of_another_dealing_under_the_same_statement_are_refused(round_name: str) -> None:
    """Of a proof that was begun and started over: they name the statement, and still fit nowhere."""
    statement = make_statement("d")
    before = Session(statement, make_codes(statement, 1))
    before.run()

    def replayed(name: str, sender: str, receiver: str, message: Any) -> Any:
        return before.sent[name][sender, receiver] if name == round_name else message

    with pytest.raises(ProtocolError, match=r"other challenges|another challenge|not about one proof"):
        Session(statement, make_codes(statement), replayed).run()


def test_a_message_of_another_kind_is_refused() -> None:
    statement = make_statement("a")
    session = Session(statement, make_codes(statement)).run_until("reveal_coefficients")
    with pytest.raises(ProtocolError, match="about another proof"):
        session.verifiers["b"].reveal_coefficients(session.got("coefficients", "b"))


# ---- wrong proofs ------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["seed", "correction"])
@TWO_KINDS_OF_DEALERS
def test_a_changed_proof_is_refused(dealer: str, place: str) -> None:
    statement = make_statement(dealer)
    changed = []

    def meddle(round_name: str, sender: str, receiver: str, message: Any) -> Any:
        if round_name != "proof":
            return message
        if place == "seed" and not changed:
            changed.append(receiver)
            return replace(message, seeds=(bytes(16), *message.seeds[1:]))
        if place == "correction" and message.correction:
            return replace(message, correction=bytes([message.correction[0] ^ 1]) + message.correction[1:])
        return message

    session = Session(statement, make_codes(statement), meddle)
    with pytest.raises(ProtocolError, match=NOT_PROVEN):
        session.run()


@TWO_KINDS_OF_DEALERS
def test_a_share_of_a_proof_that_is_not_the_receivers_is_refused(dealer: str) -> None:
    statement = make_statement(dealer)
    session = Session(statement, make_codes(statement)).run_until("prove")
    for name in verifiers_of(statement):
        machine, got = session.verifiers[name], session.got("coefficients", name)
        proof = session.sent["proof"][dealer, name]
        other = b"" if proof.correction else bytes(8 * 129)
        for wrong in (replace(proof, seeds=proof.seeds[1:]), replace(proof, correction=other)):
            with pytest.raises(ProtocolError, match="not its own"):
                machine.reveal_point(got, wrong)
        with pytest.raises(ProtocolError):
            machine.reveal_point(got, replace(proof, seeds=tuple(seed[1:] for seed in proof.seeds)))
        machine.reveal_point(got, proof)


# ---- a verifier that lies ----------------------------------------------------------------


def flip(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


LIES = [
    (round_name, field.name)
    for round_name, kind in (
        ("commit", CellsCommitment),
        ("coefficients", CoefficientReveal),
        ("point", PointReveal),
        ("openings", QueryOpening),
        ("verdicts", CellsVerdict),
    )
    for field in fields(kind)
]


@pytest.mark.parametrize(("round_name", "field"), LIES)
@TWO_KINDS_OF_DEALERS
def test_a_verifier_that_lies_only_stops_the_study(dealer: str, round_name: str, field: str) -> None:
    statement = make_statement(dealer)
    liar, victim, *_ = verifiers_of(statement)

    def lie(name: str, sender: str, receiver: str, message: Any) -> Any:
        if (name, sender, receiver) != (round_name, liar, victim):
            return message
        said = getattr(message, field)
        other = not said if isinstance(said, bool) else flip(said) if isinstance(said, bytes) else said[::-1]
        return replace(message, **{field: other})

    session = Session(statement, make_codes(statement), lie)
    with pytest.raises(ProtocolError):
        session.run()


@pytest.mark.parametrize("liar", COMPUTE)
def test_a_verifier_that_works_with_the_dealer_convinces_no_honest_one(
    liar: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It opens, in place of a part that it holds, what makes the receiver's check come out right."""
    statement = make_statement("d")
    values = bad_values(statement, "large")
    cheat(monkeypatch, values, ForgedProver(values, False))
    convinced = []

    def lie(round_name: str, sender: str, receiver: str, message: Any) -> Any:
        if round_name == "verdicts" and sender == liar:
            return replace(message, accepted=True)
        if round_name != "openings" or sender != liar:
            return message
        machine = session.verifiers[receiver]
        own = list(machine._openings.values()) or opened_by(session, receiver)
        coefficients = coefficients_of(session)
        true = unpack_opening(statement, message.values)
        folded = true.folded
        for opening in own:
            folded = add(folded, opening.folded)
        wanted = sum(int(a) * int(b) for a, b in zip(coefficients.across, multiply(folded, folded), strict=True)) - sum(
            opening.value for opening in own
        )
        difference = -sum(opening.difference for opening in own)
        convinced.append(receiver)
        return replace(message, values=pack_opening(PieceOpening(difference % PRIME, wanted % PRIME, true.folded)))

    session = Session(statement, make_codes(statement), lie)
    session.run_until("judge")
    assert len(convinced) == 2
    for name in verifiers_of(statement):
        if name != liar:
            assert not session.verifiers[name].record.accepted
            with pytest.raises(ProtocolError, match=NOT_PROVEN):
                session.verifiers[name].conclude(session.got("verdicts", name))


def opened_by(session: Session, name: str) -> list[PieceOpening]:
    """What a verifier will open of its own parts; a dealer knows it from its own numbers."""
    machine = session.verifiers[name]
    machine.open_queries(session.got("point", name))
    return list(machine._openings.values())


def test_a_verifier_has_a_key_in_common_with_each_other_one() -> None:
    statement = make_statement("d")
    dealing = CellsDealer(statement, make_codes(statement), secret_of("d")).deal()
    held = receive_cells(statement, "b", dealing.bundles["b"], dealing.body)
    for keys in ({"a": key_of("a", "b")}, {"a": key_of("a", "b"), "c": key_of("b", "c"), "d": bytes(32)}):
        with pytest.raises(ProtocolError, match="key in common"):
            CellsVerifier(held, secret_of("b"), keys)
    short = CellsVerifier(held, secret_of("b"), {"a": b"short", "c": b"short"})
    with pytest.raises(ProtocolError, match="at least 16 bytes"):
        short.commit()


ANY_BYTES = st.binary(max_size=40) | st.just(bytes(8 * 129)) | st.just(b"\xff" * 8 * 129)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_message_makes_anything_but_a_refusal(data: st.DataObject) -> None:
    """Any bytes in any field of any message, from a dealer too: everybody accepts what is right, or refuses."""
    statement = make_statement(data.draw(st.sampled_from("ad")), 4, (3, 2))
    codes = make_codes(statement)
    target = data.draw(st.sampled_from(["deal", *RECEIVED]))
    hit: list[bool] = []  # whether somebody reads what was changed

    def garble(round_name: str, sender: str, receiver: str, message: Any) -> Any:
        if round_name != target or hit or not data.draw(st.booleans()):
            return message
        name = data.draw(st.sampled_from([field.name for field in fields(message)]))
        said = getattr(message, name)
        other: Any = data.draw(ANY_BYTES)
        if isinstance(said, bool):
            other = not said
        elif isinstance(said, str):
            other = data.draw(st.text(max_size=70))
        elif isinstance(said, tuple):
            other = tuple(data.draw(st.lists(st.binary(min_size=15, max_size=17), max_size=3)))
        # the dealer reads no tag, and a body's digest is read by those who receive the body
        unread = name == "tag" and receiver == statement.dealer
        unread |= round_name == "deal" and name == "body" and receiver not in body_receivers(statement)
        if other != said:
            hit.append(not unread)
        return replace(message, **{name: other})

    session = Session(statement, codes, garble)
    try:
        session.run()
    except ProtocolError:
        assert hit
    else:
        assert not any(hit)


def test_openings_for_other_challenges_are_refused() -> None:
    statement = make_statement("d")
    session = Session(statement, make_codes(statement)).run_until("open_queries")
    got = session.got("openings", "a")
    with pytest.raises(ProtocolError, match="has seen other challenges"):
        session.verifiers["a"].judge({**got, "b": replace(got["b"], transcript=bytes(32))})


def test_one_refusal_is_enough() -> None:
    statement = make_statement("d")
    session = Session(statement, make_codes(statement)).run_until("judge")
    for receiver, machine in (*session.verifiers.items(), ("d", session.dealer)):
        got = session.got("verdicts", receiver)
        for name in got:
            refused = {**got, name: replace(got[name], accepted=False)}
            with pytest.raises(ProtocolError, match=f"say {name}"):
                machine.conclude(refused)
            missing = {other: verdict for other, verdict in got.items() if other != name}
            with pytest.raises(ProtocolError, match="needs a message from each of"):
                machine.conclude(missing)


def test_verdicts_about_two_proofs_are_refused() -> None:
    statement = make_statement("d")
    session = Session(statement, make_codes(statement)).run_until("judge")
    got = session.got("verdicts", "d")
    with pytest.raises(ProtocolError, match="not about one proof"):
        session.dealer.conclude({**got, "a": replace(got["a"], transcript=bytes(32))})
    unproven = CellsDealer(statement, make_codes(statement), secret_of("d"))
    with pytest.raises(ProtocolError, match="not about one proof"):
        unproven.conclude(got)
    assert session.dealer.conclude(got) is None


def test_a_verifier_that_does_not_accept_does_not_go_on_though_the_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    statement = make_statement("a")
    values = bad_values(statement, "two")
    cheat(monkeypatch, values, ForgedProver(values, False))
    session = Session(statement, make_codes(statement)).run_until("judge")
    for name in ("b", "c"):
        said = {other: replace(m, accepted=True) for other, m in session.got("verdicts", name).items()}
        with pytest.raises(ProtocolError, match=f"say {name}"):
            session.verifiers[name].conclude(said)


# ---- restarts ----------------------------------------------------------------------------


@TWO_KINDS_OF_DEALERS
def test_the_same_input_gets_the_same_messages_after_a_restart(dealer: str) -> None:
    statement = make_statement(dealer)
    session = Session(statement, make_codes(statement))
    session.run()
    name = verifiers_of(statement)[-1]
    machine = make_verifier(statement, name, session.dealer.deal(), session.verifiers[name].record)
    assert machine.commit() == {r: m for (s, r), m in session.sent["commit"].items() if s == name}
    first = machine.reveal_coefficients(session.got("commit", name))
    second = machine.reveal_point(session.got("coefficients", name), session.sent["proof"][dealer, name])
    other = next(each for each in verifiers_of(statement) if each != name)
    assert first == session.sent["coefficients"][name, other]
    assert second == session.sent["point"][name, other]
    assert machine.open_queries(session.got("point", name))[other] == session.sent["openings"][name, other]
    assert machine.judge(session.got("openings", name))[other] == session.sent["verdicts"][name, other]
    assert machine.record == session.verifiers[name].record
    dealt = CellsDealer(statement, make_codes(statement), secret_of(dealer), session.dealer.record)
    again = dealt.prove(session.got("commit", dealer), session.got("coefficients", dealer))
    assert again == session.got_by("proof", dealer)


@pytest.mark.parametrize("stage", ["commitments", "coefficients", "proof", "point", "openings"])
def test_what_a_record_has_fixed_stays(stage: str) -> None:
    statement = make_statement("d")
    session = Session(statement, make_codes(statement))
    session.run()
    record = replace(session.verifiers["a"].record, **{stage: "another digest"})
    machine = make_verifier(statement, "a", session.dealer.deal(), record)
    with pytest.raises(ProtocolError, match=f"fixed something else in this proof before: {stage}"):
        _run_verifier(machine, session, "a")
    _run_verifier(make_verifier(statement, "a", session.dealer.deal(), VerifierRecord()), session, "a")


def _run_verifier(machine: CellsVerifier, session: Session, name: str) -> None:
    machine.reveal_coefficients(session.got("commit", name))
    machine.reveal_point(session.got("coefficients", name), session.sent["proof"][session.statement.dealer, name])
    machine.open_queries(session.got("point", name))
    machine.judge(session.got("openings", name))


# ---- what verifiers see ------------------------------------------------------------------


@TWO_KINDS_OF_DEALERS
def test_what_is_opened_to_a_verifier_follows_from_uniform_numbers(dealer: str) -> None:
    """The simulator of the docstring: from h alone it makes the opening that each verifier is sent."""
    statement = make_statement(dealer)
    session = Session(statement, make_codes(statement))
    session.run()
    coefficients = coefficients_of(session)
    for (_sender, receiver), message in session.sent["openings"].items():
        own = session.verifiers[receiver]._openings
        assert tuple(own) == held_pieces(statement, receiver)
        assert lacked_piece(statement, receiver) not in own
        sent = unpack_opening(statement, message.values)
        folded = sent.folded
        for opening in own.values():
            folded = add(folded, opening.folded)
        squares = sum(int(a) * int(b) for a, b in zip(coefficients.across, multiply(folded, folded), strict=True))
        rest = folded
        for opening in own.values():
            rest = subtract(rest, opening.folded)
        made = PieceOpening(
            -sum(opening.difference for opening in own.values()) % PRIME,
            (squares - sum(opening.value for opening in own.values())) % PRIME,
            rest,
        )
        assert pack_opening(made) == message.values


def test_reprs_show_no_shares() -> None:
    statement = make_statement("a")
    session = Session(statement, make_codes(statement))
    verified = session.run()
    shown = " ".join(
        repr(each)
        for each in (
            session.dealer.deal(),
            session.dealer.deal().bundles["b"],
            verified["b"],
            verified["b"].held,
            session.verifiers["b"],
            session.dealer,
            session.sent["proof"]["a", "b"],
            session.sent["openings"]["b", "c"],
        )
    )
    assert session.dealer.deal().bundles["b"].seeds[0].hex() not in shown
    assert "seeds" not in shown
    assert "values" not in shown
    assert keys_of(statement, "b")["c"].decode() not in shown
