"""The waiting room with a post that is only a list, and a clock that goes on only while the room waits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verticopula import errors
from verticopula.errors import PartyUnavailable, PolicyRefused, ProtocolError, WireError
from verticopula.network import network_transport as rounds_module
from verticopula.network.control_messages import Refusal, Working
from verticopula.network.network_transport import NetworkTransport, WaitingRoom, as_error
from verticopula.protocol.messages import CloseReply, CloseRequest, PresenceReply, PresenceRequest, fingerprint
from verticopula.protocol.wire import encode
from verticopula.storage.round_journal import Journal

TICK, ASK_AGAIN = rounds_module._TICK, rounds_module._ASK_AGAIN
QUESTIONS = {"a": ("key-a", b"ask a"), "b": ("key-b", b"ask b")}


class Clock:
    """Stands for the module `time`: seconds pass only while a room waits."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class FakePost:
    """Remembers what is sent; `on_ask` may answer it as soon as the room waits."""

    def __init__(self, on_ask: Callable[[str, str, bytes], None] = lambda *_: None) -> None:
        self.sent: list[tuple[str, str]] = []
        self.away: set[str] = set()
        self.on_ask = on_ask
        self.under_way: list[tuple[str, str, bytes]] = []

    def connected(self, peer: str) -> bool:
        return peer not in self.away

    def send(self, peer: str, topic: str, key: str, body: bytes) -> bool:
        if peer in self.away:
            return False
        assert topic == "ask"
        self.sent.append((peer, key))
        self.under_way.append((peer, key, body))
        return True

    def deliver(self) -> None:
        asked, self.under_way = self.under_way, []
        for question in asked:
            self.on_ask(*question)


class Waiting(threading.Condition):
    """Waits without waiting: what was sent arrives, then the time has passed."""

    def __init__(self, post: FakePost) -> None:
        super().__init__()
        self.post = post
        self.meanwhile: Callable[[], None] = lambda: None

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.post.deliver()
        self.meanwhile()
        CLOCK.now += timeout
        return True


CLOCK = Clock()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds_module, "time", CLOCK)


def room_of(on_ask: Callable[[WaitingRoom, str, str], None] = lambda *_: None) -> tuple[WaitingRoom, FakePost]:
    post = FakePost()
    room = WaitingRoom(post, _changed=Waiting(post))  # type: ignore[arg-type]
    post.on_ask = lambda peer, key, body: on_ask(room, peer, key)
    return room, post


def meanwhile(room: WaitingRoom, happens: Callable[[], None]) -> None:
    """Have this happen in each of the room's waits."""
    assert isinstance(room._changed, Waiting)
    room._changed.meanwhile = happens


def answer_all(room: WaitingRoom, peer: str, key: str) -> None:
    room.on_letter(peer, "answer", key, f"answer of {peer}".encode())


def test_everybody_answers() -> None:
    room, post = room_of(answer_all)
    seen: list[tuple[str, ...]] = []
    assert room.ask(QUESTIONS, 5.0, seen.append) == {"a": b"answer of a", "b": b"answer of b"}
    assert sorted(post.sent) == [("a", "key-a"), ("b", "key-b")]
    assert seen[0] == ("a", "b")
    assert seen[-1] == ()


def test_one_refusal_ends_the_round_at_once() -> None:
    def refuse(room: WaitingRoom, peer: str, key: str) -> None:
        if peer == "b":
            room.on_letter(peer, "refusal", key, encode(Refusal("PolicyRefused", "not with us")))

    room, _ = room_of(refuse)
    start = CLOCK.now
    with pytest.raises(PolicyRefused, match="not with us"):
        room.ask(QUESTIONS, 30.0)
    assert CLOCK.now - start == TICK


def test_who_is_silent_is_named_and_who_is_away_too() -> None:
    def only_a(room: WaitingRoom, peer: str, key: str) -> None:
        if peer == "a":
            answer_all(room, peer, key)

    room, post = room_of(only_a)
    with pytest.raises(PartyUnavailable, match=r"party 'b' did not answer within 0.3 s.*can be resumed"):
        room.ask(QUESTIONS, 0.3)
    post.away = {"a", "b"}
    with pytest.raises(PartyUnavailable, match=r"parties 'a' \(not connected\), 'b' \(not connected\)"):
        room.ask(QUESTIONS, 0.3)


def test_a_party_that_comes_back_is_asked_again() -> None:
    asked: list[str] = []

    def answer_second(room: WaitingRoom, peer: str, key: str) -> None:
        asked.append(peer)
        if asked.count("a") > 1:
            answer_all(room, peer, key)
        elif peer == "a":
            room.on_session("a")

    room, _ = room_of(answer_second)
    assert room.ask({"a": QUESTIONS["a"]}, 5.0) == {"a": b"answer of a"}
    assert asked == ["a", "a"]


def test_silence_is_asked_again_and_work_is_not() -> None:
    room, post = room_of()
    with pytest.raises(PartyUnavailable):
        room.ask({"a": QUESTIONS["a"]}, 3.5 * ASK_AGAIN)
    assert len(post.sent) == 4

    room, post = room_of()
    meanwhile(room, lambda: room.on_letter("a", "working", "key-a", encode(Working("computation"))))
    with pytest.raises(PartyUnavailable):  # work is no excuse for a deadline
        room.ask({"a": QUESTIONS["a"]}, 3.5 * ASK_AGAIN)
    assert len(post.sent) == 1


@pytest.mark.parametrize("case", ["nobody asked", "another key", "another party's key"])
def test_answers_to_nothing_are_dropped(case: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    room, _ = room_of()
    if case == "nobody asked":
        room.on_letter("a", "answer", "key-a", b"")
    else:

        def wrong(room: WaitingRoom, peer: str, key: str) -> None:
            room.on_letter(peer, "answer", "other" if case == "another key" else "key-b", b"")

        room, _ = room_of(wrong)
        with pytest.raises(PartyUnavailable):
            room.ask({"a": QUESTIONS["a"]}, 0.2)
    assert "to a question that is not open, or not its own" in caplog.text


def test_an_answer_after_the_deadline_is_not_taken_for_the_next_question() -> None:
    room, _ = room_of()
    with pytest.raises(PartyUnavailable):
        room.ask({"a": ("old", b"")}, 0.1)
    room.post.on_ask = lambda *_: room.on_letter("a", "answer", "old", b"late")  # type: ignore[attr-defined]
    with pytest.raises(PartyUnavailable):
        room.ask({"a": ("new", b"")}, 0.2)


def test_a_party_asks_nothing() -> None:
    room, _ = room_of()
    with pytest.raises(ProtocolError, match="it asks nothing"):
        room.on_letter("a", "ask", "key-a", b"")


def test_a_refusal_that_is_none_is_an_error_of_its_sender() -> None:
    def refuse(room: WaitingRoom, peer: str, key: str) -> None:
        with pytest.raises(WireError):
            room.on_letter(peer, "refusal", key, b"nonsense")

    room, _ = room_of(refuse)
    with pytest.raises(PartyUnavailable):
        room.ask({"a": QUESTIONS["a"]}, 0.2)


def test_a_suspended_coordinator_gives_the_time_back() -> None:
    room, _ = room_of()
    waits = 0

    def suspend_and_answer() -> None:
        nonlocal waits
        waits += 1
        if waits == 1:
            CLOCK.now += 3_600.0
        elif waits == 5:
            room.on_letter("a", "answer", "key-a", b"after all")

    meanwhile(room, suspend_and_answer)
    assert room.ask({"a": QUESTIONS["a"]}, 10.0) == {"a": b"after all"}


def test_closing_ends_a_wait() -> None:
    room, _ = room_of()
    meanwhile(room, room.close)
    start = CLOCK.now
    with pytest.raises(ProtocolError, match="stopped"):
        room.ask(QUESTIONS, 30.0)
    assert CLOCK.now - start == TICK
    assert room.closed


@pytest.mark.parametrize("how", ["answer", "close"])
def test_a_wait_is_ended_from_another_thread(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Not by a tick: the next one would come in an hour."""
    monkeypatch.setattr(rounds_module, "_TICK", 3_600.0)
    post = FakePost()
    room = WaitingRoom(post)  # type: ignore[arg-type]

    def act() -> None:
        room.on_letter("a", "answer", "key-a", b"from a thread") if how == "answer" else room.close()

    def send(peer: str, topic: str, key: str, body: bytes) -> bool:
        threading.Thread(target=act).start()
        return True

    monkeypatch.setattr(post, "send", send)
    if how == "answer":
        assert room.ask({"a": QUESTIONS["a"]}, 7_200.0) == {"a": b"from a thread"}
    else:
        with pytest.raises(ProtocolError, match="stopped"):
            room.ask({"a": QUESTIONS["a"]}, 7_200.0)


@pytest.mark.parametrize("kind", ["PolicyRefused", "BudgetExceeded", "LedgerError", "VersionMismatch"])
def test_a_refusal_keeps_its_kind(kind: str) -> None:
    assert type(as_error(Refusal(kind, "why"))) is getattr(errors, kind)


@pytest.mark.parametrize("kind", ["SystemExit", "SchemaError", "Problem", "annotations", "__doc__", "", "eval"])
def test_a_refusal_names_no_other_class(kind: str) -> None:
    error = as_error(Refusal(kind, "\x1b[2J\r\nwhy\u202e" + "x" * 5_000))
    assert type(error) is ProtocolError
    assert str(error).isprintable()
    assert len(str(error)) <= 500


# ---- the transport -----------------------------------------------------------------------------------


class Parties:
    """Answers like a party, and counts."""

    def __init__(self, **answers: Any) -> None:
        self.asked = 0
        self.answers = answers

    def __call__(self, room: WaitingRoom, peer: str, key: str) -> None:
        self.asked += 1
        room.on_letter(peer, "answer", key, encode(self.answers[peer]))


def test_rounds_of_the_journal_are_not_asked_again(tmp_path: Path) -> None:
    parties = Parties(a=CloseReply("a", 1, "x"), b=CloseReply("b", 2, "y"))
    requests = {"a": CloseRequest("study"), "b": CloseRequest("study")}
    room, _ = room_of(parties)
    first = NetworkTransport(room, Journal(tmp_path / "journal"), 5.0)
    replies = first.deliver(requests)
    first.journal.close()
    assert parties.asked == 2
    again = NetworkTransport(room, Journal(tmp_path / "journal"), 5.0)
    assert again.deliver(requests) == replies
    assert parties.asked == 2
    again.deliver({"a": CloseRequest("study")})  # the next round is a new one
    assert parties.asked == 3
    again.journal.close()


def test_two_parties_may_be_asked_the_same_and_not_answer_for_each_other(tmp_path: Path) -> None:
    room, _ = room_of(Parties(a=CloseReply("b", 1, "x"), b=CloseReply("b", 1, "x")))
    transport = NetworkTransport(room, Journal(tmp_path / "journal"), 5.0)
    with pytest.raises(ProtocolError, match="'a' answered under another name"):
        transport.deliver({"a": CloseRequest("study"), "b": CloseRequest("study")})
    assert (tmp_path / "journal").stat().st_size == 0, "what was not accepted is not kept"
    transport.journal.close()


def test_what_is_no_message_is_named_and_not_kept(tmp_path: Path) -> None:
    room, post = room_of()
    post.on_ask = lambda peer, key, body: room.on_letter(peer, "answer", key, b"nonsense")
    transport = NetworkTransport(room, Journal(tmp_path / "journal"), 5.0)
    with pytest.raises(WireError, match="party 'a'"):
        transport.deliver({"a": PresenceRequest("study", "vcds")})
    assert (tmp_path / "journal").stat().st_size == 0
    transport.journal.close()


def test_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    mask = np.random.default_rng(0).random((57, 3)) < 0.5
    room, _ = room_of(Parties(a=PresenceReply("a", mask)))
    request = PresenceRequest("study", "vcds")
    for _ in range(2):  # from the party, then from the journal
        transport = NetworkTransport(room, Journal(tmp_path / "journal"), 5.0)
        reply = transport.deliver({"a": request})["a"]
        assert isinstance(reply, PresenceReply)
        np.testing.assert_array_equal(reply.observed, mask)
        transport.journal.close()
    assert fingerprint(request) == fingerprint(PresenceRequest("study", "vcds"))
