"""The rounds of secure sums: exact without noise, the same again, and refused where they do not fit."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from benchmarks.sums_plans import all_pairs
from tests.secure.sums_world import (
    KEY,
    NONE,
    STUDY,
    Dropping,
    NoNoise,
    Recorded,
    World,
    nearest_pairs,
    run,
    some_cells,
)
from verticopula.errors import PartyUnavailable, ProtocolError, SettingsError, VersionMismatch
from verticopula.mpc import sums_plan
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.mpc.sums_plan import choose_compute, own_rows
from verticopula.privacy.noise import SecureNoise, SeededNoise
from verticopula.protocol.message_version import MESSAGE_VERSION
from verticopula.protocol.messages import REPLY_KINDS, fingerprint
from verticopula.protocol.party.sums_handler import SumsHandler
from verticopula.protocol.party.sums_record import unpack_noise
from verticopula.protocol.proof_routes import bodies_to, routes_from, statements_of
from verticopula.protocol.secure_sums import _RelayedMessages, secure_sums
from verticopula.protocol.strict_messages import (
    SumsKeyReply,
    SumsKeyRequest,
    SumsProofReply,
    SumsProofRequest,
    SumsReply,
    SumsRequest,
    SumsShareReply,
    SumsShareRequest,
    TablesReply,
    TablesRequest,
)
from verticopula.protocol.wire import decode, encode
from verticopula.schema.study_settings import COORDINATOR
from verticopula.storage.record_store import MemoryRecords
from verticopula.storage.vault import Vault

TWO = {"left": 2, "right": 3}
FOUR = {"a": 2, "b": 1, "c": 3, "d": 2}


@pytest.fixture
def world() -> World:
    return World(some_cells(FOUR, 60))


@pytest.mark.parametrize("widths", [TWO, {"a": 1, "b": 2, "c": 2}, FOUR])
def test_without_noise_both_openings_are_exact(widths: dict[str, int]) -> None:
    world = World(some_cells(widths, 80))
    plan = world.plan()
    assert len(plan.weights) == 2 ** (len(widths) - 1)
    opened = run(plan, world.handlers(noises={name: NoNoise() for name in [*widths, COORDINATOR]}))
    np.testing.assert_array_equal(opened.gram.matrix * 4.0**plan.bits, world.products(plan))
    assert [table.pair for table in opened.tables] == [tuple(pair) for pair in all_pairs(plan).tolist()]
    for table in opened.tables:
        np.testing.assert_array_equal(table.counts, world.table(table.pair))


def test_every_table_has_all_people_whom_both_parties_know() -> None:
    """Also one inside a party, one of two parties that have nobody in common, and one of a party that knows nobody."""
    cells = some_cells({"a": 2, "b": 2, "c": 1, "d": 1}, 50, missing=0.4)
    cells["b"][cells["a"][:, 0] != NONE] = NONE
    cells["d"][:] = NONE
    world = World(cells)
    plan = world.plan()
    pairs = np.array([[0, 1], [1, 2], [0, 4], [2, 5]])
    opened = run(plan, world.handlers(noises=dict.fromkeys("abc", NoNoise())), choose=lambda *said: pairs)
    people = [int(table.counts.sum()) for table in opened.tables]
    known = world.known
    assert people == [int(known[:, 0].sum()), 0, int((known[:, 0] & known[:, 2]).sum()), 0]
    np.testing.assert_array_equal(opened.tables[2].counts, world.table((0, 4)))


def test_any_number_of_presence_patterns_is_one_opening() -> None:
    """Twenty parties with independent gaps: nearly every person has a pattern of the own."""
    widths = {f"p{number:02}": 1 for number in range(20)}
    world = World(some_cells(widths, 60, missing=0.4))
    plan = world.plan()
    assert len(plan.weights) > 55
    opened = run(plan, world.handlers(noises={name: NoNoise() for name in plan.compute}))
    np.testing.assert_array_equal(opened.gram.matrix * 4.0**plan.bits, world.products(plan))


def test_base_parties_release_their_features_by_presence_once(world: World) -> None:
    """Only d knows everybody: three sums of its features, with noise of its own; the same ones when asked again."""
    world.settings = {"selection": True}
    plan = world.plan()
    exact = World(world.cells, settings=world.settings)
    opened = run(plan, exact.handlers(noises={name: NoNoise() for name in FOUR}))
    (sums,) = opened.selection.values()
    expected = [
        sum(
            np.concatenate([plan.features[6][row[0]], plan.features[7][row[1]]])
            for row, whom in zip(world.cells["d"], world.known[:, k], strict=True)
            if whom
        )
        for k in range(3)
    ]
    np.testing.assert_array_equal(sums, expected)
    first = run(plan, world.handlers())
    again = run(plan, world.handlers())
    np.testing.assert_array_equal(first.selection["d"], again.selection["d"])
    assert not np.array_equal(first.selection["d"], sums)
    scale = np.abs(first.selection["d"] - sums).max() / sums_plan.selection_deviation(plan)
    assert 0.3 < scale < 6.0


def test_the_same_seed_gives_the_same_arrays_and_the_same_bytes(world: World) -> None:
    plan = world.plan()
    seen = []
    for _ in range(2):
        again = World(world.cells)  # nothing kept
        transport = Recorded(again.handlers(seed=5))
        opened = run(plan, {}, transport)
        tables = [table.counts.tobytes() for table in opened.tables]
        seen.append((transport.answered, opened.gram.matrix.tobytes(), tables))
    assert seen[0] == seen[1]
    other = run(plan, World(world.cells).handlers(seed=6))
    assert other.gram.matrix.tobytes() != seen[0][1]
    assert other.tables[0].counts.tobytes() != seen[0][2][0]


def test_secure_runs_differ(world: World) -> None:
    plan = world.plan()
    first, second = (run(plan, World(world.cells).handlers()) for _ in range(2))
    assert not np.array_equal(first.gram.matrix, second.gram.matrix)
    assert not np.array_equal(first.tables[0].counts, second.tables[0].counts)


@pytest.mark.parametrize("round_number", range(1, 11))
@pytest.mark.parametrize("widths", [TWO, FOUR])
def test_after_dropping_out_and_a_restart_the_answers_are_the_same_bytes(
    widths: dict[str, int], round_number: int
) -> None:
    world = World(some_cells(widths, 40))
    plan = world.plan()
    name = next(iter(widths))
    handlers = world.handlers()
    own = handlers.pop(COORDINATOR, None)
    first = Dropping(handlers, name, round_number)
    with pytest.raises(PartyUnavailable, match=name):
        run(plan, {COORDINATOR: own} if own else {}, first)
    restarted = world.handlers()  # new handlers, new processes, on the same records
    own = restarted.pop(COORDINATOR, None)
    second = Recorded(restarted)
    opened = run(plan, {COORDINATOR: own} if own else {}, second)
    assert second.answered[: len(first.answered)] == first.answered
    once_more = run(plan, world.handlers())
    np.testing.assert_array_equal(opened.gram.matrix, once_more.gram.matrix)
    for one, other in zip(opened.tables, once_more.tables, strict=True):
        np.testing.assert_array_equal(one.counts, other.counts)


def test_a_vault_keeps_what_is_needed(world: World, tmp_path: object) -> None:
    plan = world.plan()
    opened = []
    for _ in range(2):
        with Vault.open(f"{tmp_path}/vault") as vault:
            world.records = dict.fromkeys(world.cells, vault.studies)
            opened.append(run(plan, world.handlers()))
    np.testing.assert_array_equal(opened[0].gram.matrix, opened[1].gram.matrix)
    np.testing.assert_array_equal(opened[0].tables[0].counts, opened[1].tables[0].counts)


def test_a_party_that_lost_its_record_does_not_get_a_second_look(world: World) -> None:
    plan = world.plan()
    run(plan, world.handlers())
    world.records.pop("a")
    with pytest.raises(ProtocolError, match=r"other keys|another public key"):
        run(plan, world.handlers())


def test_a_reply_that_is_missing_is_named(world: World) -> None:
    class Forgetful(Recorded):
        def deliver(self, requests):  # type: ignore[no-untyped-def]
            replies = super().deliver(requests)
            replies.pop("b", None)
            return replies

    with pytest.raises(PartyUnavailable, match="'b'"):
        run(world.plan(), {}, Forgetful(world.handlers()))


# ---- what a handler refuses -----------------------------------------------------------------


@dataclass
class Rounds:
    """A study driven by hand: the handlers, and every round's requests as they were made."""

    handlers: dict[str, SumsHandler]
    requests: list[dict[str, Any]]

    def last(self, kind: type) -> dict[str, Any]:
        """The requests of this kind in the last round that had them."""
        found = [batch for batch in self.requests if any(isinstance(r, kind) for r in batch.values())]
        return found[-1]


def opened_rounds(world: World, until: int = 9) -> Rounds:
    """Handlers after the rounds before this one, which has been asked for and not answered."""
    handlers, plan = world.handlers(), world.plan()
    protocol = secure_sums(plan, STUDY, "strict", choose=nearest_pairs(plan))
    batch: Any = next(protocol)
    requests = [batch]
    for _ in range(until - 1):
        batch = protocol.send({name: handlers[name].handle(request) for name, request in batch.items()})
        requests.append(batch)
    return Rounds(handlers, requests)


def test_one_plan_a_study(world: World) -> None:
    rounds = opened_rounds(world)
    for batch in rounds.requests[1:]:
        for name, request in batch.items():
            with pytest.raises(ProtocolError, match="another plan"):
                rounds.handlers[name].handle(replace(request, plan=replace(request.plan, mu=2.0)))


def test_everybody_has_to_be_shown_the_same_plan(world: World) -> None:
    """A dealing names the plan that its dealer was shown."""
    plan, handlers = world.plan(), world.handlers()
    keys = tuple(handlers[name].handle(SumsKeyRequest(STUDY, "strict")).key for name in FOUR)  # type: ignore[union-attr]
    shown = {name: plan if name != "d" else replace(plan, mu=2.0 * plan.mu) for name in FOUR}
    dealt = {name: handlers[name].handle(SumsShareRequest(STUDY, "strict", shown[name], keys)) for name in FOUR}
    post = _RelayedMessages(statements_of(plan, STUDY, fingerprint((plan, keys))))
    for name, reply in dealt.items():
        assert isinstance(reply, SumsShareReply)
        post.take("deal", name, reply.boxes)
        post.take_body(name, reply.body)
    asked = SumsProofRequest(STUDY, "strict", plan, keys, "commit", post.boxes("a", 1), post.bodies("a"))
    with pytest.raises(ProtocolError, match="'d' dealt its cells for another statement"):
        handlers["a"].handle(asked)


def test_one_dealing_a_study(world: World) -> None:
    """Another dealing of the same dealer is refused, by a handler that was started anew, too."""
    rounds = opened_rounds(world)
    share, commit = rounds.requests[1]["d"], rounds.requests[2]["a"]
    moved = {**world.cells, "d": 2 - world.cells["d"]}
    with pytest.raises(ProtocolError, match="has fixed something else in this proof before: cells"):
        World(moved, records=world.records).handler("d").handle(share)
    world.records.pop("d")
    lost = World(moved, records={"d": MemoryRecords()}).handler("d")
    lost._records.put(f"sums/d/{STUDY}", {**rounds.handlers["d"]._kept(STUDY).to_dict(), "proofs": {}})
    reply = lost.handle(share)
    assert isinstance(reply, SumsShareReply)
    statements = statements_of(share.plan, STUDY, fingerprint((share.plan, share.keys)))
    places = routes_from(statements, "deal", "d")
    box = reply.boxes[[route.receiver for route in places].index("a")]
    boxes = ((*commit.boxes[0][:-1], box),)
    bodies = tuple(
        reply.body if dealer == "d" else body
        for dealer, body in zip(bodies_to(statements, "a"), commit.bodies, strict=True)
    )
    again = replace(commit, boxes=boxes, bodies=bodies)
    with pytest.raises(ProtocolError, match="another message in this place"):
        rounds.handlers["a"].handle(again)
    with pytest.raises(ProtocolError, match="has fixed something else in this proof before: held"):
        world.handler("a").handle(again)


def test_own_cells_that_changed_are_noticed_too(world: World) -> None:
    rounds = opened_rounds(world)
    moved = World({**world.cells, "a": np.where(world.cells["a"] == NONE, NONE, 2 - world.cells["a"])})
    moved.records = world.records
    with pytest.raises(ProtocolError, match="has fixed something else in this proof before: cells"):
        moved.handler("a").handle(rounds.requests[1]["a"])


def test_sealed_messages_in_the_wrong_order_cannot_be_opened(world: World) -> None:
    rounds = opened_rounds(world, 3)
    handler, commit = rounds.handlers["a"], rounds.requests[2]["a"]
    (dealt,) = commit.boxes
    for boxes in ((dealt[::-1],), (rounds.requests[2]["b"].boxes[0],), (tuple(box[:-1] for box in dealt),)):
        with pytest.raises(ProtocolError, match="altered, or meant for another place"):
            handler.handle(replace(commit, boxes=boxes))
    for boxes in ((), (dealt[:-1],), ((*dealt, dealt[0]),), ((b"", *dealt[1:]),), (dealt, dealt)):
        with pytest.raises(ProtocolError, match=r"other messages in this round|no such round"):
            handler.handle(replace(commit, boxes=boxes))
    for step in ("deal", "verdicts", "terms", ""):
        with pytest.raises(ProtocolError, match="no such round"):
            handler.handle(replace(commit, step=step))
    handler.handle(commit)  # a wrong request does no harm to the right one


def test_bodies_that_are_not_the_dealers_are_refused(world: World) -> None:
    rounds = opened_rounds(world, 3)
    commit, handler = rounds.requests[2]["c"], world.handler("c")
    for bodies in (
        commit.bodies[::-1],
        tuple(body[:-8] for body in commit.bodies),
        (np.zeros(8, dtype=np.uint8), *commit.bodies[1:]),
    ):
        with pytest.raises(ProtocolError, match="the body is not the one that"):
            handler.handle(replace(commit, bodies=bodies))
    with pytest.raises(ProtocolError, match="expected the bodies of"):
        handler.handle(replace(commit, bodies=commit.bodies[:1]))
    assert not isinstance(handler.handle(commit), SumsReply)  # a wrong request does no harm to the right one


def test_who_was_started_anew_asks_for_the_bodies_and_gives_the_same_bytes(world: World) -> None:
    rounds = opened_rounds(world, 10)
    for number in range(2, 10):
        for name, request in rounds.requests[number].items():
            bodies = rounds.requests[2][name].bodies if name in rounds.requests[2] else ()
            reborn = world.handler(name)
            if bodies:
                lacking = reborn.handle(replace(request, bodies=()))
                assert isinstance(lacking, SumsProofReply)
                assert lacking.lacks_bodies
            given = encode(reborn.handle(replace(request, bodies=bodies)))
            assert given == encode(rounds.handlers[name].handle(replace(request, bodies=bodies)))


def test_keys_that_are_not_signed_are_refused(world: World) -> None:
    rounds = opened_rounds(World(world.cells), 2)
    handlers, share = rounds.handlers, rounds.requests[1]["a"]
    stranger = SumsHandler(
        "b", None, records=MemoryRecords(), noise=SecureNoise(), authenticity=shared_authenticity(bytes(16))
    )
    reply = stranger.handle(SumsKeyRequest(STUDY, "strict"))
    assert isinstance(reply, SumsKeyReply)
    forged = tuple(reply.key if key.party == "b" else key for key in share.keys)
    with pytest.raises(ProtocolError, match="'b' is not signed"):
        World(world.cells).handler("c").handle(replace(share, keys=forged))
    with pytest.raises(ProtocolError, match="one public key of each"):
        handlers["a"].handle(replace(share, keys=share.keys[:-1]))


def test_who_does_not_compute_is_not_asked_to(world: World) -> None:
    rounds = opened_rounds(world)
    handlers, requests = rounds.handlers, rounds.last(SumsRequest)
    with pytest.raises(ProtocolError, match="no compute party"):
        handlers["d"].handle(requests["a"])
    with pytest.raises(VersionMismatch):
        handlers["d"].handle(SumsKeyRequest(STUDY, "strict", version=MESSAGE_VERSION + 1))


def test_approval_comes_before_anything_is_bound_or_shared(world: World) -> None:
    share = opened_rounds(World(world.cells), 2).requests[1]["a"]
    asked = []

    def refuse(*plan: object) -> None:
        asked.append(plan[0])
        raise ProtocolError("no")

    reluctant = World(world.cells)
    keys = [reluctant.handler(name).handle(SumsKeyRequest(STUDY, "strict")).key for name in FOUR]  # type: ignore[union-attr]
    request = replace(share, keys=tuple(keys))
    with pytest.raises(ProtocolError, match="no"):
        reluctant.handler("a", approve=refuse).handle(request)
    assert asked == [STUDY]
    kept = reluctant.records["a"].get(f"sums/a/{STUDY}")
    assert kept is not None
    assert kept["plan"] == ""
    reluctant.handler("a").handle(request)
    reluctant.handler("a", approve=refuse).handle(request)  # bound: not asked a second time


@pytest.mark.parametrize("wrong", ["shape", "dtype", "too large", "below zero"])
def test_cells_that_do_not_fit_the_plan_stay_in_the_house(wrong: str) -> None:
    world = World(some_cells({"a": 2, "b": 1, "c": 3}, 30, missing=0.0))
    plan = world.plan()
    right = world.codes(plan, "a")
    broken = right.copy()
    broken[3, 0] = 3 if wrong == "too large" else -1
    given = {"shape": right[:-1], "dtype": right.astype(np.float64)}.get(wrong, broken)
    handlers = world.handlers()
    handlers["a"] = SumsHandler(
        "a", lambda plan: given, records=MemoryRecords(), noise=SecureNoise(), authenticity=shared_authenticity(KEY)
    )
    way = Recorded(handlers)
    with pytest.raises(ProtocolError, match=r"'a' do not have the shape|outside its column's cells"):
        run(plan, {}, way)
    assert not any(name == "a" and b"SumsShareReply" in data[:200] for name, data in way.answered)


def test_noise_that_could_not_be_kept_is_not_used(world: World) -> None:
    rounds = opened_rounds(world)
    handlers, requests = rounds.handlers, rounds.last(SumsRequest)
    requests["a"] = replace(requests["a"], bodies=rounds.requests[2]["a"].bodies)

    class FullDisk(MemoryRecords):
        def get(self, name: str) -> dict[str, object] | None:
            return world.records["a"].get(name)

        def put(self, name: str, record: dict[str, object]) -> None:
            raise OSError("no space left")

    handler = World(world.cells, records={"a": FullDisk()}).handler("a")
    with pytest.raises(OSError, match="no space"):
        handler.handle(requests["a"])
    first = handlers["a"].handle(requests["a"])
    assert encode(world.handler("a").handle(requests["a"])) == encode(first)


# ---- the choice of tables -------------------------------------------------------------------


def test_one_choice_of_tables_a_study(world: World) -> None:
    """The noise of one choice on the counts of another would show their difference; restarts make no difference."""
    rounds = opened_rounds(world, 10)
    asked = rounds.last(TablesRequest)
    first = {name: encode(rounds.handlers[name].handle(request)) for name, request in asked.items()}
    bodies = {name: rounds.requests[2][name].bodies for name in asked}
    others = [asked["a"].pairs[:-1], asked["a"].pairs[::-1].copy(), np.array([[0, 7]]), np.array([[0, 1], [0, 3]])]
    for pairs in others:
        for name, request in asked.items():
            with pytest.raises(ProtocolError, match="tables of other pairs"):
                rounds.handlers[name].handle(replace(request, pairs=pairs))
            with pytest.raises(ProtocolError, match="tables of other pairs"):
                world.handler(name).handle(replace(request, pairs=pairs, bodies=bodies[name]))
    for name, request in asked.items():
        assert encode(world.handler(name).handle(replace(request, bodies=bodies[name]))) == first[name]


def test_the_choice_is_stored_before_a_term_leaves(world: World) -> None:
    rounds = opened_rounds(world, 10)
    request = replace(rounds.last(TablesRequest)["a"], bodies=rounds.requests[2]["a"].bodies)

    class FullDisk(MemoryRecords):
        def get(self, name: str) -> dict[str, object] | None:
            return world.records["a"].get(name)

        def put(self, name: str, record: dict[str, object]) -> None:
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        World(world.cells, records={"a": FullDisk()}).handler("a").handle(request)
    rounds.handlers["a"].handle(request)
    kept = rounds.handlers["a"]._kept(STUDY)
    assert kept.choice == fingerprint(("pairs", request.pairs))
    assert kept.tables_noise


@pytest.mark.parametrize(
    "pairs",
    [
        np.zeros((0, 2), dtype=np.int64),
        np.array([[0, 1], [0, 1]]),
        np.array([[1, 0]]),
        np.array([[2, 2]]),
        np.array([[0, 8]]),
        np.array([[-1, 3]]),
        np.array([[0, j] for j in range(1, 8)]),
        np.array([[0, 1, 2]]),
        np.array([0, 1]),
        np.array([[0.0, 1.0]]),
    ],
)
def test_pairs_that_are_no_choice_are_refused(world: World, pairs: np.ndarray) -> None:
    """None, a pair twice, in the wrong order, with itself, out of range, more than the plan allows, not pairs."""
    rounds = opened_rounds(world, 10)
    for name, request in rounds.last(TablesRequest).items():
        with pytest.raises(ProtocolError, match="the second opening"):
            rounds.handlers[name].handle(replace(request, pairs=pairs))
        assert rounds.handlers[name]._kept(STUDY).choice == ""


def test_tables_come_after_the_first_opening_and_from_its_shares(world: World) -> None:
    rounds = opened_rounds(world)
    sums = rounds.last(SumsRequest)["a"]
    early = TablesRequest(STUDY, "strict", sums.plan, sums.keys, all_pairs(sums.plan), sums.boxes)
    with pytest.raises(ProtocolError, match="after the first opening"):
        rounds.handlers["a"].handle(early)
    rounds.handlers["a"].handle(sums)
    kept = rounds.handlers["a"]._kept(STUDY)
    rounds.handlers["a"]._keep(STUDY, replace(kept, inputs="other"))
    with pytest.raises(ProtocolError, match="has added up other shares"):
        rounds.handlers["a"].handle(early)


def test_the_two_openings_share_neither_noise_nor_keys(world: World) -> None:
    run(world.plan(), world.handlers(seed=3))
    for name in "abc":
        kept = world.handler(name)._kept(STUDY)
        first, second = unpack_noise(kept.noise), unpack_noise(kept.tables_noise)
        assert not set(first.tolist()) & set(second.tolist())
    handler, plan = world.handler("a"), world.plan()
    keys = tuple(world.handler(name).handle(SumsKeyRequest(STUDY, "strict")).key for name in FOUR)  # type: ignore[union-attr]
    handler._check_keys(STUDY, plan, keys)
    request = SumsRequest(STUDY, "strict", plan, keys, ())
    choices = (("zero",), ("zero tables", "one"), ("zero tables", "two"))
    made = [handler._zero_keys(request, *label)[1] for label in choices]
    assert len(set(made)) == 3


# ---- what the coordinator refuses --------------------------------------------------------


def test_terms_and_sealed_messages_of_the_wrong_shape_are_refused(world: World) -> None:
    plan, handlers = world.plan(), world.handlers()

    class Spoiling(Recorded):
        def __init__(self, kind: type) -> None:
            super().__init__(handlers)
            self.kind = kind

        def deliver(self, requests):  # type: ignore[no-untyped-def]
            replies = super().deliver(requests)
            reply = replies.get("b")
            if isinstance(reply, SumsReply) and self.kind is SumsReply:
                replies["b"] = replace(reply, term=reply.term[:-1])
            if isinstance(reply, TablesReply) and self.kind is TablesReply:
                replies["b"] = replace(reply, term=reply.term[:-1])
            if isinstance(reply, SumsShareReply) and self.kind is SumsShareReply:
                replies["b"] = replace(reply, boxes=reply.boxes[:-1])
            if isinstance(reply, SumsKeyReply) and self.kind is SumsKeyReply:
                replies["b"] = replace(reply, key=replies["a"].key)
            return replies

    for kind, said in (
        (SumsReply, "wrong shape"),
        (TablesReply, "wrong shape"),
        (SumsShareReply, "other messages in this round"),
        (SumsKeyReply, "another name"),
    ):
        with pytest.raises(ProtocolError, match=said):
            run(plan, {}, Spoiling(kind))


def test_features_that_a_base_party_did_not_owe_are_refused(world: World) -> None:
    class Talking(Recorded):
        def deliver(self, requests):  # type: ignore[no-untyped-def]
            replies = super().deliver(requests)
            for name, reply in replies.items():
                if isinstance(reply, SumsShareReply):
                    replies[name] = replace(reply, selection=np.ones((3, 4), dtype=np.int64))
            return replies

    with pytest.raises(ProtocolError, match="nobody asked for"):
        run(world.plan(), {}, Talking(world.handlers()))


def test_plans_that_contradict_themselves_are_refused(world: World) -> None:
    plan = world.plan()
    wrong = [
        replace(plan, compute=("a", "a", "b")),
        replace(plan, n_columns=plan.n_columns[:-1]),
        replace(plan, n_columns=(3, *plan.n_columns[1:])),
        replace(plan, pattern_of=plan.pattern_of + len(plan.weights)),
        replace(plan, pattern_of=plan.pattern_of - 1),
        replace(plan, weights=plan.weights[:, :-1]),
        replace(plan, weights=-plan.weights),
        replace(plan, weights=plan.weights * 2**28),
        replace(plan, weights=np.vstack([plan.weights, plan.weights[:1]])),
        replace(plan, features=plan.features[:-1]),
        replace(plan, features=(plan.features[0][:-1], *plan.features[1:])),
        replace(plan, features=(plan.features[0][:, :0], *plan.features[1:])),
        replace(plan, features=(plan.features[0] * 2**22, *plan.features[1:])),
        replace(plan, groups=plan.groups[:-1]),
        replace(plan, groups=(plan.groups[0][:-1], *plan.groups[1:])),
        replace(plan, groups=(plan.groups[0] + 1, *plan.groups[1:])),
        replace(plan, bits=30),
        replace(plan, most_tables=1001),
        replace(plan, mu_tables=0.0),
        replace(plan, mu_tables=np.nan),
        replace(plan, most_tables=0),
        replace(plan, mu_selection=0.1),
        replace(plan, base=~plan.selecting),
        replace(plan, base=plan.selecting, mu_selection=0.1),
        replace(plan, selecting=plan.selecting[:-1]),
    ]
    for bad in wrong:
        with pytest.raises(ProtocolError):
            next(secure_sums(bad, STUDY, "strict"))
    with pytest.raises(SettingsError, match="61 bits"):
        next(secure_sums(replace(plan, features=tuple(table * 2**12 for table in plan.features)), STUDY, "strict"))
    with pytest.raises(SettingsError, match="61 bits"):
        next(secure_sums(replace(plan, mu_tables=1e-12), STUDY, "strict"))
    with pytest.raises(SettingsError):
        next(secure_sums(replace(plan, mu=0.0), STUDY, "strict"))


def test_more_cells_than_fit_in_a_message_are_refused_before_anything_is_shared(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = world.plan()
    numbers = sum(2 * widths * int(own_rows(plan, name).sum()) for name, widths in FOUR.items())
    monkeypatch.setattr(sums_plan, "MOST_BODIES", 8 * numbers)
    next(secure_sums(plan, STUDY, "strict"))
    monkeypatch.setattr(sums_plan, "MOST_BODIES", 8 * numbers - 1)
    with pytest.raises(SettingsError, match="do not fit in one message"):
        next(secure_sums(plan, STUDY, "strict"))


def test_who_computes() -> None:
    assert choose_compute(["a", "b", "c", "d"]) == ("a", "b", "c")
    assert choose_compute(["a", "b"]) == ("a", "b", COORDINATOR)
    for few in (["a"], ["a", COORDINATOR]):
        with pytest.raises(SettingsError):
            choose_compute(few)
    plan = World(some_cells(TWO, 20)).plan()
    with pytest.raises(ProtocolError, match="handler of its own"):
        next(secure_sums(plan, STUDY, "strict"))


def test_messages_and_handlers_show_nothing_when_printed(world: World) -> None:
    rounds = opened_rounds(world)
    handlers, requests = rounds.handlers, rounds.last(SumsRequest)
    reply = handlers["a"].handle(rounds.requests[1]["a"])
    for shown in (repr(reply), repr(requests["a"]), repr(handlers["a"]), repr(handlers["a"]._channel(STUDY))):
        assert len(shown) < 200
    assert encode(decode(encode(reply), REPLY_KINDS)) == encode(reply)
    assert not SeededNoise(1).is_private


# ---- formats that do not change --------------------------------------------------------------------------------------


def test_records_of_a_seeded_run_have_the_same_bytes() -> None:
    """Vaults hold digests of plans, keys and shares, so neither type names nor key derivation may change."""
    cells = {"a": [[0], [1], [2], [1]], "b": [[2, 0], [1, 1], [0, 2], [2, 2]], "c": [[1], [0], [2], [2]]}
    world = World({name: np.array(values, dtype=np.int64) for name, values in cells.items()})
    run(world.plan(), {}, Recorded(world.handlers(seed=5)))
    kept = {name: world.records[name].get(f"sums/{name}/{STUDY}") for name in cells}
    stored = hashlib.sha256(json.dumps(kept, sort_keys=True).encode())
    assert stored.hexdigest() == "43655e338e0cb750fcd4ad9b126c839065bdf1d05799174e36c803eb687ae796"
