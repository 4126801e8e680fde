"""Pending requests over sessions that are only a list, and a clock that goes on only while they wait."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verticopula import errors
from verticopula.errors import PartyUnavailable, PolicyRefused, ProtocolError, WireError
from verticopula.network.connection.control_messages import InProgress, Refusal
from verticopula.network.connection.message_parts import MessageParts
from verticopula.network.connection.refusal_errors import as_error
from verticopula.network.coordinator import network_transport as transport_module
from verticopula.network.coordinator.network_transport import NetworkTransport, PendingRequests
from verticopula.protocol.consent_messages import PresenceReply, PresenceRequest
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.study_messages import CloseReply, CloseRequest
from verticopula.protocol.wire import encode
from verticopula.storage.round_journal import Journal

TICK, RESEND_AFTER = transport_module._TICK, transport_module._RESEND_AFTER
REQUESTS = {"a": ("key-a", b"ask a"), "b": ("key-b", b"ask b")}


class Clock:
    """Stands for the module `time`: seconds pass only while requests are pending."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class FakeSessions:
    """Remembers what is sent; `on_ask` may answer it as soon as the caller waits."""

    def __init__(self, on_ask: Callable[[str, str, bytes], None] = lambda *_: None) -> None:
        self.sent: list[tuple[str, str]] = []
        self.away: set[str] = set()
        self.on_ask = on_ask
        self.under_way: list[tuple[str, str, bytes]] = []
        self.parts = MessageParts(2**20, lambda *_: True, lambda *_: None, lambda peer: "")

    def connected(self, peer: str) -> bool:
        return peer not in self.away

    def send(self, peer: str, topic: str, key: str, body: bytes, study: str = "") -> bool:
        if peer in self.away:
            return False
        assert topic == "ask"
        self.sent.append((peer, key))
        self.under_way.append((peer, key, body))
        return True

    def deliver(self) -> None:
        asked, self.under_way = self.under_way, []
        for request in asked:
            self.on_ask(*request)


class Waiting(threading.Condition):
    """Waits without waiting: what was sent arrives, then the time has passed."""

    def __init__(self, sessions: FakeSessions) -> None:
        super().__init__()
        self.sessions = sessions
        self.meanwhile: Callable[[], None] = lambda: None

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.sessions.deliver()
        self.meanwhile()
        CLOCK.now += timeout
        return True


CLOCK = Clock()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "time", CLOCK)


def pending_of(
    on_ask: Callable[[PendingRequests, str, str], None] = lambda *_: None,
) -> tuple[PendingRequests, FakeSessions]:
    sessions = FakeSessions()
    pending = PendingRequests(sessions, _changed=Waiting(sessions))  # type: ignore[arg-type]
    sessions.on_ask = lambda peer, key, body: on_ask(pending, peer, key)
    return pending, sessions


def meanwhile(pending: PendingRequests, happens: Callable[[], None]) -> None:
    """Have this happen in each wait."""
    assert isinstance(pending._changed, Waiting)
    pending._changed.meanwhile = happens


def answer_all(pending: PendingRequests, peer: str, key: str) -> None:
    pending.on_message(peer, "answer", key, f"answer of {peer}".encode())


def test_everybody_answers() -> None:
    pending, sessions = pending_of(answer_all)
    seen: list[tuple[str, ...]] = []
    assert pending.await_replies(REQUESTS, 5.0, seen.append) == {"a": b"answer of a", "b": b"answer of b"}
    assert sorted(sessions.sent) == [("a", "key-a"), ("b", "key-b")]
    assert seen[0] == ("a", "b")
    assert seen[-1] == ()


def test_one_refusal_ends_the_round_at_once() -> None:
    def refuse(pending: PendingRequests, peer: str, key: str) -> None:
        if peer == "b":
            pending.on_message(peer, "refusal", key, encode(Refusal("PolicyRefused", "not with us")))

    pending, _ = pending_of(refuse)
    start = CLOCK.now
    with pytest.raises(PolicyRefused, match="not with us"):
        pending.await_replies(REQUESTS, 30.0)
    assert CLOCK.now - start == TICK


def test_who_is_silent_is_named_and_who_is_away_too() -> None:
    def only_a(pending: PendingRequests, peer: str, key: str) -> None:
        if peer == "a":
            answer_all(pending, peer, key)

    pending, sessions = pending_of(only_a)
    with pytest.raises(PartyUnavailable, match=r"party 'b' did not answer within 0.3 s.*can be resumed"):
        pending.await_replies(REQUESTS, 0.3)
    sessions.away = {"a", "b"}
    with pytest.raises(PartyUnavailable, match=r"parties 'a' \(not connected\), 'b' \(not connected\)"):
        pending.await_replies(REQUESTS, 0.3)


def test_a_party_that_comes_back_is_asked_again() -> None:
    asked: list[str] = []

    def answer_second(pending: PendingRequests, peer: str, key: str) -> None:
        asked.append(peer)
        if asked.count("a") > 1:
            answer_all(pending, peer, key)
        elif peer == "a":
            pending.on_session("a")

    pending, _ = pending_of(answer_second)
    assert pending.await_replies({"a": REQUESTS["a"]}, 5.0) == {"a": b"answer of a"}
    assert asked == ["a", "a"]


def test_silence_is_asked_again_and_work_is_not() -> None:
    pending, sessions = pending_of()
    with pytest.raises(PartyUnavailable):
        pending.await_replies({"a": REQUESTS["a"]}, 3.5 * RESEND_AFTER)
    assert len(sessions.sent) == 4

    pending, sessions = pending_of()
    meanwhile(pending, lambda: pending.on_message("a", "working", "key-a", encode(InProgress("computation"))))
    with pytest.raises(PartyUnavailable):  # work is no excuse for a deadline
        pending.await_replies({"a": REQUESTS["a"]}, 3.5 * RESEND_AFTER)
    assert len(sessions.sent) == 1


@pytest.mark.parametrize("case", ["nobody asked", "another key", "another party's key"])
def test_answers_to_nothing_are_dropped(case: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    pending, _ = pending_of()
    if case == "nobody asked":
        pending.on_message("a", "answer", "key-a", b"")
    else:

        def wrong(pending: PendingRequests, peer: str, key: str) -> None:
            pending.on_message(peer, "answer", "other" if case == "another key" else "key-b", b"")

        pending, _ = pending_of(wrong)
        with pytest.raises(PartyUnavailable):
            pending.await_replies({"a": REQUESTS["a"]}, 0.2)
    assert "to a request that is not open, or not its own" in caplog.text


def test_an_answer_after_the_deadline_is_not_taken_for_the_next_question() -> None:
    pending, _ = pending_of()
    with pytest.raises(PartyUnavailable):
        pending.await_replies({"a": ("old", b"")}, 0.1)
    pending.sessions.on_ask = lambda *_: pending.on_message("a", "answer", "old", b"late")  # type: ignore[attr-defined]
    with pytest.raises(PartyUnavailable):
        pending.await_replies({"a": ("new", b"")}, 0.2)


def test_a_party_sends_no_requests() -> None:
    pending, _ = pending_of()
    with pytest.raises(ProtocolError, match="it sends no requests"):
        pending.on_message("a", "ask", "key-a", b"")


def test_a_refusal_that_is_none_is_an_error_of_its_sender() -> None:
    def refuse(pending: PendingRequests, peer: str, key: str) -> None:
        with pytest.raises(WireError):
            pending.on_message(peer, "refusal", key, b"nonsense")

    pending, _ = pending_of(refuse)
    with pytest.raises(PartyUnavailable):
        pending.await_replies({"a": REQUESTS["a"]}, 0.2)


def test_a_suspended_coordinator_gives_the_time_back() -> None:
    pending, _ = pending_of()
    waits = 0

    def suspend_and_answer() -> None:
        nonlocal waits
        waits += 1
        if waits == 1:
            CLOCK.now += 3_600.0
        elif waits == 5:
            pending.on_message("a", "answer", "key-a", b"after all")

    meanwhile(pending, suspend_and_answer)
    assert pending.await_replies({"a": REQUESTS["a"]}, 10.0) == {"a": b"after all"}


def test_no_deadline_counts_before_parties_could_come_back() -> None:
    pending, sessions = pending_of(answer_all)
    pending.deadlines_from, sessions.away = CLOCK.now + 15.0, {"a", "b"}
    back = CLOCK.now + 12.0
    meanwhile(pending, lambda: sessions.away.clear() if CLOCK.now >= back else None)
    assert set(pending.await_replies(REQUESTS, 3.0)) == {"a", "b"}
    sessions.away, back = {"a", "b"}, CLOCK.now + 12.0
    with pytest.raises(PartyUnavailable, match="did not answer within 3 s"):  # and after that it does
        pending.await_replies(REQUESTS, 3.0)


def test_closing_ends_a_wait() -> None:
    pending, _ = pending_of()
    meanwhile(pending, pending.close)
    start = CLOCK.now
    with pytest.raises(ProtocolError, match="stopped"):
        pending.await_replies(REQUESTS, 30.0)
    assert CLOCK.now - start == TICK
    assert pending.closed


@pytest.mark.parametrize("how", ["answer", "close"])
def test_a_wait_is_ended_from_another_thread(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Not by a tick: the next one would come in an hour."""
    monkeypatch.setattr(transport_module, "_TICK", 3_600.0)
    sessions = FakeSessions()
    pending = PendingRequests(sessions)  # type: ignore[arg-type]

    def act() -> None:
        pending.on_message("a", "answer", "key-a", b"from a thread") if how == "answer" else pending.close()

    def send(peer: str, topic: str, key: str, body: bytes, study: str) -> bool:
        threading.Thread(target=act).start()
        return True

    monkeypatch.setattr(sessions, "send", send)
    if how == "answer":
        assert pending.await_replies({"a": REQUESTS["a"]}, 7_200.0) == {"a": b"from a thread"}
    else:
        with pytest.raises(ProtocolError, match="stopped"):
            pending.await_replies({"a": REQUESTS["a"]}, 7_200.0)


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

    def __call__(self, pending: PendingRequests, peer: str, key: str) -> None:
        self.asked += 1
        pending.on_message(peer, "answer", key, encode(self.answers[peer]))


def test_rounds_of_the_journal_are_not_asked_again(tmp_path: Path) -> None:
    parties = Parties(a=CloseReply("a", 1, "x"), b=CloseReply("b", 2, "y"))
    requests = {"a": CloseRequest("study"), "b": CloseRequest("study")}
    pending, _ = pending_of(parties)
    first = NetworkTransport(pending, Journal(tmp_path / "journal"), 5.0)
    replies = first.deliver(requests)
    first.journal.close()
    assert parties.asked == 2
    again = NetworkTransport(pending, Journal(tmp_path / "journal"), 5.0)
    assert again.deliver(requests) == replies
    assert parties.asked == 2
    again.deliver({"a": CloseRequest("study")})  # the next round is a new one
    assert parties.asked == 3
    again.journal.close()


def test_two_parties_may_be_asked_the_same_and_not_answer_for_each_other(tmp_path: Path) -> None:
    pending, _ = pending_of(Parties(a=CloseReply("b", 1, "x"), b=CloseReply("b", 1, "x")))
    transport = NetworkTransport(pending, Journal(tmp_path / "journal"), 5.0)
    with pytest.raises(ProtocolError, match="'a' answered under another name"):
        transport.deliver({"a": CloseRequest("study"), "b": CloseRequest("study")})
    assert (tmp_path / "journal").stat().st_size == 0, "what was not accepted is not kept"
    transport.journal.close()


def test_what_is_no_message_is_named_and_not_kept(tmp_path: Path) -> None:
    pending, sessions = pending_of()
    sessions.on_ask = lambda peer, key, body: pending.on_message(peer, "answer", key, b"nonsense")
    transport = NetworkTransport(pending, Journal(tmp_path / "journal"), 5.0)
    with pytest.raises(WireError, match="party 'a'"):
        transport.deliver({"a": PresenceRequest("study", "vcds")})
    assert (tmp_path / "journal").stat().st_size == 0
    transport.journal.close()


def test_arrays_come_back_as_they_were(tmp_path: Path) -> None:
    mask = np.random.default_rng(0).random((57, 3)) < 0.5
    pending, _ = pending_of(Parties(a=PresenceReply("a", mask, b"")))
    request = PresenceRequest("study", "vcds")
    for _ in range(2):  # from the party, then from the journal
        transport = NetworkTransport(pending, Journal(tmp_path / "journal"), 5.0)
        reply = transport.deliver({"a": request})["a"]
        assert isinstance(reply, PresenceReply)
        np.testing.assert_array_equal(reply.observed, mask)
        transport.journal.close()
    assert fingerprint(request) == fingerprint(PresenceRequest("study", "vcds"))
