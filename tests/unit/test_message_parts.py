"""Messages in parts: what a sender that lies can do to a receiver, and what is sent again after an interruption."""

from __future__ import annotations

import logging
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.unit.test_sessions import Ends, FakeLink
from verticopula.errors import ProtocolError, VersionMismatch
from verticopula.network.connection import sessions as sessions_module
from verticopula.network.connection.control_messages import Envelope, Refusal
from verticopula.network.connection.incoming_parts import DishonestSender
from verticopula.network.connection.message_parts import MessageParts, PartsRules
from verticopula.network.connection.part_messages import MessagePart, PartRequest, PartsNotice, announce, read_part
from verticopula.protocol.rank_messages import CompletedRanksReply
from verticopula.protocol.wire import decode, encode
from verticopula.schema.study_settings import COORDINATOR

PART, LIMIT = 1_000, 20_000
BODY = np.random.default_rng(0).bytes(9_500)  # ten parts, the last one shorter
NOTICE = announce("ask", "study", BODY, PART)


def part_of(number: int, body: bytes = BODY, notice: PartsNotice = NOTICE) -> MessagePart:
    data = np.frombuffer(read_part(body, notice, number), dtype=np.uint8)
    return MessagePart(notice.name, number, data)


@dataclass
class Receiver:
    """One end, whose messages to the other are only noted."""

    folder: Path
    most: int | None = LIMIT
    session: str = "first"
    now: float = 0.0
    wanted: list[int] = field(default_factory=list)
    arrived: list[tuple[str, str, bytes]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """As a process that was started again."""
        rules = PartsRules(lambda *_: self.most, on_broken=lambda peer, topic, key, reason: self.broken.append(reason))
        self.parts = MessageParts(
            PART, self._send, self._deliver, lambda peer: self.session, rules=rules, folder=self.folder
        )
        self.parts.clock = lambda: self.now
        self.parts.start()

    def _send(self, peer: str, topic: str, key: str, body: bytes) -> bool:
        assert topic == "want"
        self.wanted.append(decode(body, (PartRequest,)).number)
        return True

    def _deliver(self, peer: str, topic: str, key: str, path: Path) -> None:
        self.arrived.append((peer, key, path.read_bytes()))
        self.parts.give_back(path)

    def get(self, notice: PartsNotice = NOTICE, parts: int = 10) -> None:
        """Announce a message and send so many parts as they are asked for."""
        self.parts.on_notice("left", "key", notice)
        for _ in range(parts):
            self.parts.on_part("left", "key", part_of(self.wanted[-1]))

    @property
    def on_disk(self) -> int:
        return sum(path.stat().st_size for path in self.folder.rglob("*")) if self.folder.exists() else 0


@pytest.fixture
def receiver(tmp_path: Path) -> Receiver:
    return Receiver(tmp_path / "messages")


def test_parts_are_asked_for_one_by_one_and_become_the_message(receiver: Receiver) -> None:
    receiver.get()
    assert receiver.wanted == [*range(10), 10]  # the last one says that nothing is lacking
    assert receiver.arrived == [("left", "key", BODY)]
    assert receiver.on_disk == 0


def test_nobody_else_can_read_what_has_come(receiver: Receiver) -> None:
    receiver.get(parts=3)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in receiver.folder.iterdir()}
    assert (stat.S_IMODE(receiver.folder.stat().st_mode), modes) == (0o700, {0o600})


# ---- interruptions -----------------------------------------------------------------------


def test_after_a_restart_only_missing_parts_are_asked_for(receiver: Receiver) -> None:
    receiver.get(parts=6)
    receiver.start()
    receiver.wanted.clear()
    receiver.get(parts=4)
    assert receiver.wanted == [6, 7, 8, 9, 10]
    assert receiver.arrived == [("left", "key", BODY)]


def test_a_message_that_was_whole_before_a_restart_is_not_sent_again(receiver: Receiver) -> None:
    receiver.parts.deliver = lambda *_: None  # killed before it was of use
    receiver.get()
    receiver.start()
    receiver.wanted.clear()
    receiver.get(parts=0)
    assert receiver.wanted == [10]
    assert receiver.arrived == [("left", "key", BODY)]


def test_parts_that_a_crash_has_damaged_are_asked_for_again(receiver: Receiver) -> None:
    receiver.get(parts=6)
    (path,) = receiver.folder.glob("*.parts")
    damaged = bytearray(path.read_bytes()[:-1])
    damaged[2_500] ^= 1
    path.write_bytes(damaged)
    receiver.start()
    receiver.wanted.clear()
    receiver.get(parts=6)
    assert receiver.wanted == [2, 5, 6, 7, 8, 9, 10]
    assert receiver.arrived == [("left", "key", BODY)]


def test_a_part_on_its_way_is_not_asked_for_twice(receiver: Receiver) -> None:
    receiver.get(parts=2)
    receiver.parts.on_notice("left", "key", NOTICE)  # the sender thinks that nobody listens
    assert receiver.wanted == [0, 1, 2]
    receiver.session = "second"  # what was on its way is lost
    receiver.parts.on_notice("left", "key", NOTICE)
    assert receiver.wanted == [0, 1, 2, 2]
    assert receiver.parts.is_receiving("left", "key")
    receiver.now += 1_000.0  # or it was never sent
    assert not receiver.parts.is_receiving("left", "key")
    receiver.parts.on_notice("left", "key", NOTICE)
    assert receiver.wanted == [0, 1, 2, 2, 2]


def test_nothing_more_is_asked_for_once_nobody_waits(receiver: Receiver) -> None:
    receiver.get(parts=2)
    receiver.most = None
    receiver.parts.on_part("left", "key", part_of(2))
    assert receiver.wanted == [0, 1, 2]
    receiver.most = LIMIT
    receiver.get(parts=7)
    assert receiver.wanted == [*range(10), 10]


# ---- lies --------------------------------------------------------------------------------

_SMALL = MessagePart(NOTICE.name, 2, np.zeros(1, dtype=np.uint8))
_WRONG = MessagePart(NOTICE.name, 2, np.zeros(PART, dtype=np.uint8))


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (part_of(3), "part 4 of 10 was not asked for; part 3 was"),
        (part_of(1), "part 2 of 10 was not asked for; part 3 was"),
        (replace(part_of(0), number=10), "part 11 of 10 was not asked for"),
        (replace(part_of(0), number=-1), "part 0 of 10 was not asked for"),
        (replace(part_of(0), name="another"), "was not announced"),
    ],
    ids=["out of order", "twice", "more than announced", "before the first", "of another message"],
)
def test_a_part_that_was_not_asked_for_changes_nothing(receiver: Receiver, part: MessagePart, said: str) -> None:
    receiver.get(parts=2)
    before = receiver.on_disk
    with pytest.raises(ProtocolError, match=said):
        receiver.parts.on_part("left", "key", part)
    assert (receiver.on_disk, receiver.broken) == (before, [])
    receiver.get(parts=8)  # whatever came in between
    assert receiver.arrived == [("left", "key", BODY)]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (_SMALL, "part 3 of 10 has 1 bytes, and 1,000 were announced"),
        (replace(_SMALL, data=np.zeros(PART + 1, dtype=np.uint8)), "part 3 of 10 has 1,001 bytes, and 1,000 were"),
        (replace(_SMALL, data=np.zeros((PART, 1), dtype=np.uint8)), "has 1,000 bytes"),
        (_WRONG, "part 3 of 10 has other bytes than were announced"),
    ],
    ids=["small", "large", "of another shape", "other bytes"],
)
def test_of_a_sender_that_lies_nothing_is_kept(receiver: Receiver, part: MessagePart, said: str) -> None:
    receiver.get(parts=2)
    with pytest.raises(DishonestSender, match=said):
        receiver.parts.on_part("left", "key", part)
    assert receiver.on_disk == 0
    assert [said in reason for reason in receiver.broken] == [True]
    with pytest.raises(ProtocolError, match="not announced, or is not waited for any more"):
        receiver.parts.on_part("left", "key", part_of(2))


@pytest.mark.parametrize(
    ("notice", "said"),
    [
        (replace(NOTICE, size=LIMIT + 1), "a message of 20,001 bytes is announced, and at most 20,000 are taken"),
        (replace(NOTICE, size=2**62), "and at most 20,000 are taken"),
        (replace(NOTICE, size=10_001), "more or fewer parts than its size has"),
        (replace(NOTICE, digests=NOTICE.digests[:, :8]), "more or fewer parts"),
        (replace(NOTICE, part_bytes=PART + 1), "no parts, or shorter or longer than one may be"),
        (replace(NOTICE, part_bytes=PART - 1), "no parts, or shorter or longer than one may be"),
        (replace(NOTICE, part_bytes=0), "no parts"),
        (replace(NOTICE, part_bytes=-1), "no parts"),
        (replace(NOTICE, size=PART), "no parts"),
        (replace(NOTICE, size=-5), "no parts"),
    ],
)
def test_an_announcement_that_cannot_be_is_refused_before_anything_is_asked_for(
    receiver: Receiver, notice: PartsNotice, said: str
) -> None:
    with pytest.raises(ProtocolError, match=said):
        receiver.parts.on_notice("left", "key", notice)
    assert (receiver.wanted, receiver.on_disk) == ([], 0)
    assert [said in reason for reason in receiver.broken] == [True]


def test_many_messages_without_an_end_take_the_room_of_one(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for number in range(30):
        body = np.random.default_rng(number).bytes(9_500)
        notice = announce("ask", f"study {number}", body, PART)
        receiver.parts.on_notice("left", f"key {number}", notice)
        for part in range(9):  # never the last one
            receiver.parts.on_part("left", f"key {number}", part_of(part, body, notice))
    assert receiver.on_disk < 9_000 + 1_000
    assert "removed what left has sent of a message of 10 parts" in caplog.text


def test_what_came_is_removed_when_its_study_ends(receiver: Receiver) -> None:
    receiver.get(parts=9)
    receiver.parts.forget("another study")
    assert receiver.on_disk > 9_000
    receiver.parts.forget("study")
    assert receiver.on_disk == 0
    with pytest.raises(ProtocolError, match="not announced"):
        receiver.parts.on_part("left", "key", part_of(9))


def test_peers_do_not_take_each_others_place(receiver: Receiver) -> None:
    other = announce("ask", "study", BODY[::-1], PART)
    receiver.get(parts=5)
    receiver.parts.on_notice("right", "other key", other)
    with pytest.raises(ProtocolError, match="not announced"):
        receiver.parts.on_part("right", "key", part_of(5))
    receiver.wanted.append(5)
    receiver.get(parts=0)
    for number in range(5, 10):
        receiver.parts.on_part("left", "key", part_of(number))
    assert receiver.arrived == [("left", "key", BODY)]


def test_without_room_on_the_disk_nothing_is_asked_for(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=9_499))
    with pytest.raises(OSError, match="No space left on device"):
        receiver.get(parts=0)
    assert (receiver.wanted, receiver.broken, receiver.on_disk) == ([], ["No space left on device"], 0)
    monkeypatch.undo()
    receiver.get()
    assert receiver.arrived == [("left", "key", BODY)]


# ---- the sender --------------------------------------------------------------------------


def test_a_receiver_gets_what_was_announced_and_nothing_else(tmp_path: Path) -> None:
    sent: list[str] = []
    queued = 0
    parts = MessageParts(
        PART, lambda peer, topic, *_: sent.append(topic) is None, lambda *_: None, lambda peer: "", lambda peer: queued
    )
    assert parts.announce("left", "ask", "key", BODY, "study", PART)
    for request, said in (
        (PartRequest("another", 0), "was not announced"),
        (PartRequest(NOTICE.name, 11), "part 12 of 10"),
        (PartRequest(NOTICE.name, -1), "part 0 of 10"),
    ):
        with pytest.raises(ProtocolError, match=said):
            parts.on_request("left", "key", request)
    with pytest.raises(ProtocolError, match="was not announced"):
        parts.on_request("right", "key", PartRequest(NOTICE.name, 0))
    queued = 5
    with pytest.raises(ProtocolError, match="faster than it takes them"):
        parts.on_request("left", "key", PartRequest(NOTICE.name, 0))
    assert sent == ["parts"]


def test_what_nobody_has_fetched_is_removed_when_its_study_ends(tmp_path: Path) -> None:
    """A reply may be a column of exact values, and is not kept for longer than the vault keeps it."""
    parts = MessageParts(PART, lambda *_: True, lambda *_: None, lambda peer: "", folder=tmp_path / "messages")
    for study in ("study", "another study"):
        body = parts.pack(REPLY)
        assert isinstance(body, Path)
        parts.announce(COORDINATOR, "answer", study, body, study, PART)
    parts.forget("study")
    assert list((tmp_path / "messages").iterdir()) == [body]
    parts.forget("another study")
    assert list((tmp_path / "messages").iterdir()) == []


# ---- between two ends --------------------------------------------------------------------

REPLY = CompletedRanksReply("left", tuple(np.arange(1_000) + 1_000 * number for number in range(9)))


class LongEnds(Ends):
    """Two ends whose parts are short, and a line that may be cut."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.left = 10**9  # parts until the line is cut
        for name in (COORDINATOR, "left"):
            self.watch(name)

    def watch(self, name: str) -> None:
        link = FakeLink.ends[name]
        deliver = link.send

        def send(peer: str, payload: bytes) -> bool:
            is_part = decode(payload, (Envelope,)).topic == "part"
            if is_part and self.left == 0:
                return False
            self.left -= is_part
            return deliver(peer, payload)

        link.send = send  # type: ignore[method-assign]

    def parts_sent(self) -> list[int]:
        """Numbers of the parts that both have sent."""
        sent = (decode(payload, (Envelope,)) for link in FakeLink.ends.values() for payload in link.sent)
        return [decode(one.body.tobytes(), (MessagePart,)).number for one in sent if one.topic == "part"]


@pytest.fixture
def ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LongEnds]:
    monkeypatch.setattr(sessions_module, "Link", FakeLink)
    monkeypatch.setattr(sessions_module, "part_bytes_of", lambda kit: PART)
    made = LongEnds(tmp_path)
    made.connect()
    yield made
    made.coordinator.parts.stop()
    made.party.parts.stop()


def arrived(ends: LongEnds) -> list[Any]:
    """What has come to the coordinator, read from its files."""
    return [decode(body, (CompletedRanksReply,)) for *_, body in ends.at_coordinator]


def test_a_long_message_comes_as_a_file_and_a_short_one_as_it_was(ends: LongEnds) -> None:
    reply = ends.party.parts.pack(REPLY)
    assert isinstance(reply, Path)
    assert reply.read_bytes() == encode(REPLY)
    assert ends.party.send(COORDINATOR, "answer", "k", reply, "study")
    assert [encode(one) for one in arrived(ends)] == [encode(REPLY)]
    assert not reply.exists()  # the receiver has said that it has everything
    ends.party.send(COORDINATOR, "answer", "k", b"short")
    session, serial = ends.party._peers[COORDINATOR].session, next(ends.party._peers[COORDINATOR].serials) - 1
    whole = Envelope("answer", session, serial, "k", np.frombuffer(b"short", dtype=np.uint8))
    assert FakeLink.ends["left"].sent[-1] == encode(whole)


@pytest.mark.parametrize("which", ["cut", "sender", "receiver", "both"])
def test_every_part_is_sent_once_whatever_was_interrupted(ends: LongEnds, which: str) -> None:
    n_parts = -(-len(encode(REPLY)) // PART)
    sent: list[int] = []
    for left in (3, 1, 5):
        ends.left = left
        ends.party.send(COORDINATOR, "answer", "k", ends.party.parts.pack(REPLY), "study")
        sent += ends.parts_sent()
        restart(ends, which)
    ends.left = 10**9
    ends.party.send(COORDINATOR, "answer", "k", ends.party.parts.pack(REPLY), "study")
    assert sorted([*sent, *ends.parts_sent()]) == list(range(n_parts))
    assert [encode(one) for one in arrived(ends)] == [encode(REPLY)]


def restart(ends: LongEnds, which: str) -> None:
    """Cut the line, and start one end or both again, on the folders that they had."""
    for name, make in (("left", "new_party"), (COORDINATOR, "new_coordinator")):
        if which in ("both", "sender" if name == "left" else "receiver"):
            old = ends.party if name == "left" else ends.coordinator
            new = getattr(ends, make)()
            new.parts.incoming.folder = old.parts.incoming.folder
            setattr(ends, "party" if name == "left" else "coordinator", new)
            new.parts.start()
            ends.watch(name)
    for link in FakeLink.ends.values():
        link.sent.clear()
    ends.connect()


def test_an_end_of_an_earlier_release_is_named(ends: LongEnds) -> None:
    FakeLink.ends[COORDINATOR].part_bytes = 0
    body = ends.party.parts.pack(REPLY)
    with pytest.raises(
        VersionMismatch, match=r"'coordinator' runs a release .* no message in parts.* install the same"
    ):
        ends.party.send(COORDINATOR, "answer", "k", body)
    assert ends.party.send(COORDINATOR, "refusal", "k", encode(Refusal("ProtocolError", "short")))


def test_parts_are_as_short_as_the_receiver_wants_them(ends: LongEnds) -> None:
    FakeLink.ends[COORDINATOR].part_bytes = 500
    ends.coordinator.parts.part_bytes = 500
    ends.party.send(COORDINATOR, "answer", "k", ends.party.parts.pack(REPLY), "study")
    assert len(ends.parts_sent()) == -(-len(encode(REPLY)) // 500)
    assert [encode(one) for one in arrived(ends)] == [encode(REPLY)]


def test_without_a_session_the_file_stays_with_its_sender(ends: LongEnds) -> None:
    FakeLink.ends["left"].on_peer(COORDINATOR, False)
    body = ends.party.parts.pack(REPLY)
    assert isinstance(body, Path)
    assert not ends.party.send(COORDINATOR, "answer", "k", body)
    assert body.read_bytes() == encode(REPLY)
    ends.party.parts.throw_away(body)
    assert list(body.parent.iterdir()) == []
