"""Sessions, serial numbers and replays, over a link that is only a list."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.network.harness import small_federation
from verticopula.network.connection import sessions as sessions_module
from verticopula.network.connection.control_messages import Envelope, Greeting
from verticopula.network.connection.sessions import PeerSessions
from verticopula.network.kit.startup_kit import Kit
from verticopula.protocol.wire import decode, encode
from verticopula.schema.study_settings import COORDINATOR

Messages = list[tuple[str, str, str, bytes]]


class FakeLink:
    """Delivers at once to whoever is at the other end, and remembers everything."""

    ends: dict[str, FakeLink]

    def __init__(self, kit: Kit, peers: frozenset[str], on_bytes: Any, on_peer: Any, *, part_bytes: int) -> None:
        self.part_bytes = part_bytes
        self.name, self.on_bytes, self.on_peer = kit.name, on_bytes, on_peer
        self.sent: list[bytes] = []
        self.ends[self.name] = self

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def part_bytes_at(self, peer: str) -> int:
        return self.ends[peer].part_bytes

    def queued(self, peer: str) -> int:
        return 0

    def send(self, peer: str, payload: bytes) -> bool:
        self.sent.append(payload)
        if peer not in self.ends:
            return False
        self.ends[peer].on_bytes(self.name, payload)
        return True


class Ends:
    """A coordinator and a party."""

    def __init__(self, folder: Path) -> None:
        FakeLink.ends = {}
        small_federation().to_toml(folder / "federation.toml")
        self.folder, self.sessions = folder, list[str]()
        self.at_coordinator: Messages = []
        self.at_party: Messages = []
        self.coordinator = self.new_coordinator()
        self.party = self.new_party()

    def new_coordinator(self) -> PeerSessions:
        kit = Kit(self.folder, "coordinator", COORDINATOR, "localhost", 1)
        return PeerSessions(kit, lambda *message: self.at_coordinator.append(message), self.sessions.append)

    def new_party(self) -> PeerSessions:
        kit = Kit(self.folder, "party", "left", "localhost", 1)
        return PeerSessions(kit, lambda *message: self.at_party.append(message))

    def connect(self) -> None:
        """What F3 tells both when the connection is there."""
        FakeLink.ends[COORDINATOR].on_peer("left", True)
        FakeLink.ends["left"].on_peer(COORDINATOR, True)

    def deliver(self, payload: bytes, to: str = COORDINATOR) -> None:
        FakeLink.ends[to].on_bytes("left" if to == COORDINATOR else COORDINATOR, payload)

    def from_party(self, serial: int, **changes: Any) -> bytes:
        session = self.party._peers[COORDINATOR].session
        message = Envelope("answer", session, serial, "k", np.zeros(0, dtype=np.uint8))
        return encode(replace(message, **changes))


@pytest.fixture
def ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ends:
    monkeypatch.setattr(sessions_module, "Link", FakeLink)
    return Ends(tmp_path)


def test_nobody_is_written_to_before_the_greeting(ends: Ends) -> None:
    assert not ends.coordinator.connected("left")
    assert not ends.coordinator.send("left", "ask", "k", b"")
    ends.connect()
    assert ends.coordinator.connected("left")
    assert ends.party.connected(COORDINATOR)
    assert ends.sessions == ["left"]
    assert ends.coordinator.send("left", "ask", "k", b"body")
    assert ends.at_party == [(COORDINATOR, "ask", "k", b"body")]


def test_a_message_is_accepted_once(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    ends.connect()
    ends.party.send(COORDINATOR, "answer", "k", b"1")
    captured = FakeLink.ends["left"].sent[-1]
    ends.deliver(captured)
    ends.deliver(captured)
    assert len(ends.at_coordinator) == 1
    assert caplog.text.count("it was received before") == 2


def test_messages_may_arrive_out_of_order(ends: Ends) -> None:
    ends.connect()
    for serial in (5, 3, 900, 4, 1_500, 700):
        ends.deliver(ends.from_party(serial))
    assert len(ends.at_coordinator) == 6


@given(st.lists(st.integers(-10, 5_000), max_size=60))
def test_no_order_makes_one_pass_twice(serials: list[int]) -> None:
    window = sessions_module._WINDOW
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(sessions_module, "Link", FakeLink)
        logging.disable(logging.CRITICAL)
        ends = Ends(Path(folder))
        ends.connect()
        newest, expected = -1, set[int]()
        for serial in serials:
            if serial > newest - window:
                expected.add(serial)
            newest = max(newest, serial)
            ends.deliver(ends.from_party(serial))
        logging.disable(logging.NOTSET)
    assert len(ends.at_coordinator) == len(expected)


def test_what_is_remembered_of_a_peer_is_bounded(ends: Ends) -> None:
    ends.connect()
    for serial in range(10_000):
        ends.deliver(ends.from_party(serial))
    assert len(ends.at_coordinator) == 10_000
    assert len(ends.coordinator._peers["left"].seen) <= 2 * sessions_module._WINDOW + 1


def test_a_message_of_a_lost_connection_is_refused(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    ends.connect()
    ends.party.send(COORDINATOR, "answer", "k", b"1")
    captured = FakeLink.ends["left"].sent[-1]
    ends.connect()
    ends.deliver(captured)
    assert len(ends.at_coordinator) == 1
    assert "it belongs to an earlier session" in caplog.text
    assert ends.sessions == ["left", "left"]
    assert ends.party.send(COORDINATOR, "answer", "k", b"2")
    assert len(ends.at_coordinator) == 2


def test_a_request_of_a_lost_connection_is_refused(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    ends.connect()
    ends.coordinator.send("left", "ask", "k", b"1")
    captured = FakeLink.ends[COORDINATOR].sent[-1]
    ends.coordinator = ends.new_coordinator()  # it was started again
    ends.connect()
    ends.deliver(captured, to="left")
    assert len(ends.at_party) == 1
    assert "it belongs to an earlier session" in caplog.text
    assert ends.coordinator.send("left", "ask", "k", b"2")
    assert len(ends.at_party) == 2


def test_a_party_that_starts_again_is_a_new_session(ends: Ends) -> None:
    ends.connect()
    ends.party.send(COORDINATOR, "answer", "k", b"1")
    ends.party = ends.new_party()
    FakeLink.ends["left"].on_peer(COORDINATOR, True)
    assert ends.sessions == ["left", "left"]
    assert ends.party.send(COORDINATOR, "answer", "k", b"2")  # counts from the start again
    assert len(ends.at_coordinator) == 2


def test_the_same_hello_again_changes_nothing(ends: Ends) -> None:
    ends.connect()
    hello = next(p for p in FakeLink.ends["left"].sent if decode(p, (Envelope,)).topic == "hello")
    for _ in range(5):
        ends.deliver(hello)
    assert ends.sessions == ["left"]
    assert ends.party.send(COORDINATOR, "answer", "k", b"")
    assert len(ends.at_coordinator) == 1


def test_a_line_that_only_one_side_thinks_lost_is_found_again(ends: Ends) -> None:
    ends.connect()
    FakeLink.ends[COORDINATOR].on_peer("left", False)
    assert not ends.coordinator.connected("left")
    greeting = ends.party._greeting(COORDINATOR)
    ends.party._send(COORDINATOR, "hello", "", 0, "", greeting)  # as the greeter does now and then
    assert ends.coordinator.connected("left")
    assert ends.coordinator.send("left", "ask", "k", b"")
    assert ends.party.send(COORDINATOR, "answer", "k", b"")
    assert len(ends.at_party) == len(ends.at_coordinator) == 1


def test_a_flood_of_greetings_is_not_answered(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    now = time.monotonic()
    for limit in ends.coordinator._greeting_limits.values():
        limit.clock = lambda: now  # all of them at once
    ends.connect()
    before = len(FakeLink.ends[COORDINATOR].sent)
    for number in range(500):
        body = np.frombuffer(encode(Greeting(f"{number}", "0")), dtype=np.uint8)
        ends.deliver(encode(Envelope("hello", "", number, "", body)))
    assert len(FakeLink.ends[COORDINATOR].sent) - before <= sessions_module._GREETING_BURST
    assert "too many greetings" in caplog.text


def test_another_release_of_the_package_is_logged(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    ends.connect()
    assert "another release" not in caplog.text
    body = np.frombuffer(encode(Greeting("mine", "0\nforged line")), dtype=np.uint8)
    ends.deliver(encode(Envelope("hello", "", 1, "", body)))
    assert r"left runs another release of verticopula: '0\nforged line'" in caplog.text


@pytest.mark.parametrize("topic", ["hello", "welcome"])
def test_greetings_have_a_direction(ends: Ends, topic: Any, caplog: pytest.LogCaptureFixture) -> None:
    ends.connect()
    sessions = len(ends.sessions)
    body = np.frombuffer(encode(Greeting("mine", "0")), dtype=np.uint8)
    wrong_way = COORDINATOR if topic == "welcome" else "left"
    ends.deliver(encode(Envelope(topic, "", 0, "", body)), to=wrong_way)
    assert "a greeting in the wrong direction" in caplog.text
    assert len(ends.sessions) == sessions


def test_a_welcome_to_somebody_else_is_refused(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    ends.connect()
    body = np.frombuffer(encode(Greeting("mine", "0")), dtype=np.uint8)
    ends.deliver(encode(Envelope("welcome", "another", 0, "", body)), to="left")
    assert "a welcome to another session" in caplog.text
    assert ends.party.send(COORDINATOR, "answer", "k", b"")
    assert len(ends.at_coordinator) == 1


@given(st.binary(max_size=300))
def test_any_bytes_are_survived(payload: bytes) -> None:
    with pytest.MonkeyPatch.context() as patch, TemporaryDirectory() as folder:
        patch.setattr(sessions_module, "Link", FakeLink)
        logging.disable(logging.CRITICAL)
        ends = Ends(Path(folder))
        ends.connect()
        ends.deliver(payload)
        ends.deliver(b"VCMS\x01\x00" + payload)
        logging.disable(logging.NOTSET)
    assert ends.at_coordinator == []


def test_an_error_in_a_handler_is_logged_without_its_text(ends: Ends, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*message: Any) -> None:
        raise ValueError("patient 4711")

    ends.connect()
    ends.coordinator._on_message = fail
    ends.party.send(COORDINATOR, "answer", "k", b"")
    assert "could not be handled (ValueError)" in caplog.text
    assert "4711" not in caplog.text
