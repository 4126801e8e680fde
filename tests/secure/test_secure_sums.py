"""The rounds of secure sums: exact without noise, the same again, and refused where they do not fit."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from tests.secure.sums_world import KEY, STUDY, Dropping, NoNoise, Recorded, World, run, some_scores
from verticopula.errors import PartyUnavailable, ProtocolError, SettingsError, VersionMismatch
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.mpc.sums_plan import choose_compute, code_scores
from verticopula.privacy.noise import SecureNoise, SeededNoise
from verticopula.protocol.messages import (
    MESSAGE_VERSION,
    SumsKeyReply,
    SumsKeyRequest,
    SumsReply,
    SumsRequest,
    SumsShareReply,
    SumsShareRequest,
)
from verticopula.protocol.party.sums_handler import SumsHandler
from verticopula.protocol.secure_sums import secure_sums
from verticopula.protocol.wire import REPLY_KINDS, decode, encode
from verticopula.schema.study_settings import COORDINATOR
from verticopula.storage.records import MemoryRecords
from verticopula.storage.vault import Vault

TWO = {"left": 2, "right": 3}
FOUR = {"a": 2, "b": 1, "c": 3, "d": 2}


@pytest.fixture
def world() -> World:
    return World(some_scores(FOUR, 60))


@pytest.mark.parametrize("widths", [TWO, {"a": 1, "b": 2, "c": 2}, FOUR])
def test_without_noise_the_opened_sums_are_exact(widths: dict[str, int]) -> None:
    world = World(some_scores(widths, 80))
    plan = world.plan()
    handlers = world.handlers(noises={name: NoNoise() for name in [*widths, COORDINATOR]})
    opened = run(plan, handlers)
    assert len(opened) == 2 ** (len(widths) - 1)
    assert sum(sums.n_subjects for sums in opened) == 80
    for pattern, sums in enumerate(opened):
        totals, products = world.moments(plan, pattern)
        np.testing.assert_array_equal(sums.sums, totals)
        np.testing.assert_array_equal(sums.products, products)
        np.testing.assert_array_equal(sums.columns, np.flatnonzero(plan.columns[pattern]))


def test_scattered_empty_cells_are_patterns_too_and_subjects_without_values_none() -> None:
    scores = some_scores({"a": 3, "b": 2, "c": 2}, 50, missing=0.0)
    scores["a"][::7, 1] = np.nan
    for values in scores.values():
        values[5] = np.nan
    world = World(scores)
    plan = world.plan()
    assert plan.pattern_of[5] == -1
    opened = run(plan, world.handlers(noises={name: NoNoise() for name in scores}))
    assert sorted(sums.n_subjects for sums in opened) == [8, 41]
    for pattern, sums in enumerate(opened):
        np.testing.assert_array_equal(sums.products, world.moments(plan, pattern)[1])


def test_the_same_seed_gives_the_same_arrays_and_the_same_bytes(world: World) -> None:
    plan = world.plan()
    seen = []
    for _ in range(2):
        again = World(world.scores)  # nothing kept
        transport = Recorded(again.handlers(seed=5))
        opened = run(plan, {}, transport)
        seen.append((transport.answered, [sums.products.tobytes() + sums.sums.tobytes() for sums in opened]))
    assert seen[0] == seen[1]
    other = run(plan, World(world.scores).handlers(seed=6))
    assert other[0].products.tobytes() not in seen[0][1][0]


def test_secure_runs_differ(world: World) -> None:
    plan = world.plan()
    first, second = (run(plan, World(world.scores).handlers()) for _ in range(2))
    assert not np.array_equal(first[0].products, second[0].products)


@pytest.mark.parametrize("round_number", [1, 2, 3])
@pytest.mark.parametrize("widths", [TWO, FOUR])
def test_after_dropping_out_and_a_restart_the_answers_are_the_same_bytes(
    widths: dict[str, int], round_number: int
) -> None:
    world = World(some_scores(widths, 40))
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
    for one, other in zip(opened, once_more, strict=True):
        np.testing.assert_array_equal(one.products, other.products)


def test_a_vault_keeps_what_is_needed(world: World, tmp_path: object) -> None:
    plan = world.plan()
    opened = []
    for _ in range(2):
        with Vault.open(f"{tmp_path}/vault") as vault:
            world.records = dict.fromkeys(world.scores, vault.studies)
            opened.append(run(plan, world.handlers()))
    np.testing.assert_array_equal(opened[0][0].products, opened[1][0].products)


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


def opened_rounds(world: World) -> tuple[dict[str, SumsHandler], SumsShareRequest, dict[str, SumsRequest]]:
    """Handlers after the first two rounds, and the third round's requests."""
    plan, handlers = world.plan(), world.handlers()
    protocol = secure_sums(plan, STUDY, "strict")
    replies = {name: handlers[name].handle(request) for name, request in next(protocol).items()}  # type: ignore[arg-type]
    asked = protocol.send(replies)  # type: ignore[arg-type]
    share = asked["a"]
    assert isinstance(share, SumsShareRequest)
    replies = {name: handlers[name].handle(request) for name, request in asked.items()}  # type: ignore[arg-type]
    requests = protocol.send(replies)  # type: ignore[arg-type]
    return handlers, share, requests  # type: ignore[return-value]


def test_one_plan_a_study(world: World) -> None:
    handlers, share, requests = opened_rounds(world)
    other = replace(share.plan, mu=2.0)
    with pytest.raises(ProtocolError, match="another plan"):
        handlers["a"].handle(replace(share, plan=other))
    with pytest.raises(ProtocolError, match="another plan"):
        handlers["b"].handle(replace(requests["b"], plan=other))


def test_everybody_has_to_be_shown_the_same_plan(world: World) -> None:
    plan, handlers = world.plan(), world.handlers()
    keys = tuple(handlers[name].handle(SumsKeyRequest(STUDY, "strict")).key for name in FOUR)  # type: ignore[union-attr]
    shown = {name: plan if name != "d" else replace(plan, mu=2.0 * plan.mu) for name in FOUR}
    sealed = [handlers[name].handle(SumsShareRequest(STUDY, "strict", shown[name], keys)).boxes[0] for name in FOUR]  # type: ignore[union-attr]
    with pytest.raises(ProtocolError, match="'d' shared its scores for another plan"):
        handlers["a"].handle(SumsRequest(STUDY, "strict", plan, keys, tuple(sealed)))


def test_one_set_of_shares_a_study(world: World) -> None:
    handlers, share, requests = opened_rounds(world)
    handlers["a"].handle(requests["a"])
    moved = World({**world.scores, "d": world.scores["d"] + 0.1}, records=world.records)
    reply = moved.handler("d").handle(share)
    assert isinstance(reply, SumsShareReply)
    sealed = (*requests["a"].boxes[:3], reply.boxes[0])
    with pytest.raises(ProtocolError, match="another message in this place"):
        handlers["a"].handle(replace(requests["a"], boxes=sealed))
    with pytest.raises(ProtocolError, match="other shares"):  # a restarted handler knows it too
        world.handler("a").handle(replace(requests["a"], boxes=sealed))


def test_own_scores_that_changed_are_noticed_too(world: World) -> None:
    handlers, _, requests = opened_rounds(world)
    handlers["a"].handle(requests["a"])
    moved = World({**world.scores, "a": world.scores["a"] + 0.1}, records=world.records)
    with pytest.raises(ProtocolError, match="other shares"):
        moved.handler("a").handle(requests["a"])


def test_sealed_messages_in_the_wrong_order_cannot_be_opened(world: World) -> None:
    handlers, _, requests = opened_rounds(world)
    first, second, third, fourth = requests["a"].boxes
    with pytest.raises(ProtocolError, match="altered, or meant for another place"):
        handlers["a"].handle(replace(requests["a"], boxes=(first, third, second, fourth)))
    with pytest.raises(ProtocolError, match="altered, or meant for another place"):
        handlers["a"].handle(replace(requests["a"], boxes=(first, *requests["b"].boxes[2:], fourth)))
    with pytest.raises(ProtocolError, match="a sealed message from each"):
        handlers["a"].handle(replace(requests["a"], boxes=(first, second)))
    handlers["a"].handle(requests["a"])  # a wrong request does no harm to the right one


def test_keys_that_are_not_signed_are_refused(world: World) -> None:
    handlers, share, _ = opened_rounds(World(world.scores))
    stranger = SumsHandler(
        "b", None, records=MemoryRecords(), noise=SecureNoise(), authenticity=shared_authenticity(bytes(16))
    )
    reply = stranger.handle(SumsKeyRequest(STUDY, "strict"))
    assert isinstance(reply, SumsKeyReply)
    forged = tuple(reply.key if key.party == "b" else key for key in share.keys)
    with pytest.raises(ProtocolError, match="'b' is not signed"):
        World(world.scores).handler("c").handle(replace(share, keys=forged))
    with pytest.raises(ProtocolError, match="one public key of each"):
        handlers["a"].handle(replace(share, keys=share.keys[:-1]))


def test_who_does_not_compute_is_not_asked_to(world: World) -> None:
    handlers, _, requests = opened_rounds(world)
    with pytest.raises(ProtocolError, match="no compute party"):
        handlers["d"].handle(requests["a"])
    with pytest.raises(VersionMismatch):
        handlers["d"].handle(SumsKeyRequest(STUDY, "strict", version=MESSAGE_VERSION + 1))


def test_approval_comes_before_anything_is_bound_or_shared(world: World) -> None:
    _, share, _ = opened_rounds(World(world.scores))
    asked = []

    def refuse(*plan: object) -> None:
        asked.append(plan[0])
        raise ProtocolError("no")

    reluctant = World(world.scores)
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


@pytest.mark.parametrize("wrong", ["shape", "dtype", "long", "outside"])
def test_scores_that_do_not_fit_the_plan_stay_in_the_house(wrong: str) -> None:
    scores = some_scores({"a": 2, "b": 1, "c": 3}, 30, missing=0.0)
    scores["a"][3, 1] = np.nan
    world = World(scores)
    plan = world.plan()
    right = world.integers(plan, "a")
    broken = right.copy()
    broken[3, 1 if wrong == "outside" else 0] = 1 if wrong == "outside" else 2**40
    given = {"shape": right[:-1], "dtype": right.astype(np.float64), "long": broken, "outside": broken}[wrong]
    handlers = world.handlers()
    handlers["a"] = SumsHandler(
        "a", lambda plan: given, records=MemoryRecords(), noise=SecureNoise(), authenticity=shared_authenticity(KEY)
    )
    with pytest.raises((ProtocolError, SettingsError), match=r"shape|longer than its bound|stands where"):
        run(plan, handlers)


def test_a_plan_that_counts_on_values_the_party_does_not_have_is_refused(world: World) -> None:
    everything = World({name: np.nan_to_num(values) for name, values in world.scores.items()})
    with pytest.raises(ProtocolError, match="'a': the plan counts on values"):
        run(everything.plan(), world.handlers())
    with pytest.raises(ProtocolError, match="shape"):
        code_scores(world.plan(), "a", world.scores["a"][:-1])


def test_noise_that_could_not_be_kept_is_not_used(world: World) -> None:
    handlers, _, requests = opened_rounds(world)

    class FullDisk(MemoryRecords):
        def get(self, name: str) -> dict[str, object] | None:
            return world.records["a"].get(name)

        def put(self, name: str, record: dict[str, object]) -> None:
            raise OSError("no space left")

    handler = World(world.scores, records={"a": FullDisk()}).handler("a")
    with pytest.raises(OSError, match="no space"):
        handler.handle(requests["a"])
    first = handlers["a"].handle(requests["a"])
    assert encode(world.handler("a").handle(requests["a"])) == encode(first)


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
                replies["b"] = replace(reply, terms=(reply.terms[0][:-1], *reply.terms[1:]))
            if isinstance(reply, SumsShareReply) and self.kind is SumsShareReply:
                replies["b"] = replace(reply, boxes=reply.boxes[:-1])
            if isinstance(reply, SumsKeyReply) and self.kind is SumsKeyReply:
                replies["b"] = replace(reply, key=replies["a"].key)
            return replies

    for kind, said in ((SumsReply, "wrong shape"), (SumsShareReply, "did not seal"), (SumsKeyReply, "another name")):
        with pytest.raises(ProtocolError, match=said):
            run(plan, {}, Spoiling(kind))


def test_plans_that_contradict_themselves_are_refused(world: World) -> None:
    plan = world.plan()
    wrong = [
        replace(plan, compute=("a", "a", "b")),
        replace(plan, compute=("a", "x", "y")),
        replace(plan, widths=plan.widths[:-1]),
        replace(plan, pattern_of=plan.pattern_of + plan.columns.shape[0]),
        replace(plan, columns=plan.columns[:, :-1]),
        replace(plan, bounds=np.zeros_like(plan.bounds)),
        replace(plan, bits=30),
        replace(
            plan, columns=np.vstack([plan.columns, plan.columns[:1]]), bounds=np.vstack([plan.bounds, plan.bounds[:1]])
        ),
    ]
    for bad in wrong:
        with pytest.raises(ProtocolError):
            next(secure_sums(bad, STUDY, "strict"))
    with pytest.raises(SettingsError, match="64 bits"):
        next(secure_sums(replace(plan, bounds=plan.bounds * 2**20), STUDY, "strict"))
    with pytest.raises(SettingsError):
        next(secure_sums(replace(plan, mu=0.0), STUDY, "strict"))


def test_who_computes() -> None:
    assert choose_compute(["a", "b", "c", "d"]) == ("a", "b", "c")
    assert choose_compute(["a", "b"]) == ("a", "b", COORDINATOR)
    for few in (["a"], ["a", COORDINATOR]):
        with pytest.raises(SettingsError):
            choose_compute(few)
    plan = World(some_scores(TWO, 20)).plan()
    with pytest.raises(ProtocolError, match="handler of its own"):
        next(secure_sums(plan, STUDY, "strict"))


def test_messages_and_handlers_show_nothing_when_printed(world: World) -> None:
    handlers, share, requests = opened_rounds(world)
    reply = handlers["a"].handle(share)
    for shown in (repr(reply), repr(requests["a"]), repr(handlers["a"]), repr(handlers["a"]._channel(STUDY))):
        assert len(shown) < 200
    assert encode(decode(encode(reply), REPLY_KINDS)) == encode(reply)
    assert not SeededNoise(1).is_private


# ---- formats that do not change --------------------------------------------------------------------------------------


def test_records_of_a_seeded_run_have_the_same_bytes_as_in_version_0_1() -> None:
    """Old vaults hold digests of plans, keys and shares, so neither type names nor key derivation may change."""
    scores = {
        "a": np.array([[0.5], [0.25], [-1.0], [0.75]]),
        "b": np.array([[1.0, -0.5], [0.5, 0.5], [0.25, -0.75], [-0.5, 1.0]]),
        "c": np.array([[0.125], [0.5], [-0.25], [1.0]]),
    }
    world = World(scores)
    transport = Recorded(world.handlers(seed=5))
    run(world.plan(), {}, transport)
    kept = {name: world.records[name].get(f"sums/{name}/{STUDY}") for name in scores}
    stored = hashlib.sha256(json.dumps(kept, sort_keys=True).encode())
    assert stored.hexdigest() == "916050ee66bdee7d52bbfda6b1f1bd4f860fcd8fbcbf223d06c919d8fbc92736"
