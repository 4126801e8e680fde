"""What is tried with long messages, which come in parts: by parties that reply, and by a coordinator that asks."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.network.attackers import Caller, resident
from tests.network.attacks_on_coordinator import asked_party
from tests.network.intruder_scenes import MEGABYTE, Scene, against_coordinator, against_party
from tests.network.lying import opening
from verticopula.network.connection.control_messages import CancelRequest, Refusal
from verticopula.network.connection.part_messages import MessagePart, PartRequest, PartsNotice, announce, read_part
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.study_messages import BeginReply, CloseRequest, PlaceRequest
from verticopula.protocol.wire import decode, encode

BODY = os.urandom(2 * MEGABYTE + 1_000)  # three parts
_BROKEN = "failed in round 1: party 'left': its reply was not taken: "
_REFUSED = "refused a message from left: "

LyingPart = Callable[[PartsNotice], MessagePart]


def _true(number: int, notice: PartsNotice) -> MessagePart:
    return MessagePart(notice.name, number, np.frombuffer(read_part(BODY, notice, number), dtype=np.uint8))


def _messages_at(scene: Scene, name: str) -> int:
    """Bytes that a victim has on its disk of messages in parts."""
    folder = scene.net.folder / "kits" / name
    found = [*folder.glob("*/messages/*")]
    return sum(path.stat().st_size for path in found)


# ---- a party against the coordinator -----------------------------------------------------


def _reply_in_parts(make: LyingPart, *, before: int = 0, is_fatal: bool = True) -> Callable[[Scene], None]:
    """The left party announces its reply, sends so many true parts, and then this one."""

    def run(scene: Scene) -> None:
        memory = resident(scene.pid("server"))
        with asked_party(scene) as (lead, study, left, key):
            notice = announce("answer", study, BODY, MEGABYTE)
            left.message("parts", key, encode(notice))
            for number in range(before):
                _wait_for_want(left, number)
                left.message("part", key, encode(_true(number, notice)))
            _wait_for_want(left, before)
            left.message("part", key, encode(make(notice)))
            scene.expect()
            if not is_fatal:
                left.message("refusal", key, encode(Refusal("PolicyRefused", "enough")))
            assert scene.net.wait(lead, study)[0] == "failed"
            lead.ask(CancelRequest(study, ""))
        assert _messages_at(scene, "server") == 0
        assert resident(scene.pid("server")) - memory < 100 * MEGABYTE

    return run


def _wait_for_want(left: Caller, number: int) -> None:
    assert decode(left.wait_for("want").body.tobytes(), (PartRequest,)).number == number


_ONE = np.zeros(1, dtype=np.uint8)
_LONG = np.zeros(MEGABYTE + 1, dtype=np.uint8)

against_coordinator("a part with other bytes than announced", "a digest for every part", _BROKEN, quick=True)(
    _reply_in_parts(lambda notice: replace(_true(0, notice), data=np.zeros(MEGABYTE, dtype=np.uint8)))
)
against_coordinator("endless parts of one byte", "the length of every part", f"{_BROKEN}part 2 of 3 has 1 bytes")(
    _reply_in_parts(lambda notice: MessagePart(notice.name, 1, _ONE), before=1)
)
against_coordinator("a part longer than announced", "the length of every part", f"{_BROKEN}part 1 of 3 has 1,048,577")(
    _reply_in_parts(lambda notice: MessagePart(notice.name, 0, _LONG))
)
against_coordinator(
    "more parts than announced", "parts are asked for one by one", f"{_REFUSED}part 4 of 3 was not asked for"
)(_reply_in_parts(lambda notice: MessagePart(notice.name, 3, _ONE), before=2, is_fatal=False))
against_coordinator(
    "parts out of order", "parts are asked for one by one", f"{_REFUSED}part 3 of 3 was not asked for; part 1"
)(_reply_in_parts(lambda notice: _true(2, notice), is_fatal=False))
against_coordinator(
    "a part twice", "parts are asked for one by one", f"{_REFUSED}part 1 of 3 was not asked for; part 2", quick=True
)(_reply_in_parts(lambda notice: _true(0, notice), before=1, is_fatal=False))
against_coordinator(
    "a part of another message", "the digest of what was announced", f"{_REFUSED}a part of a message that was not"
)(_reply_in_parts(lambda notice: replace(_true(0, notice), name=hashlib.sha256().hexdigest()), is_fatal=False))


def _announced(change: Callable[[PartsNotice], PartsNotice]) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        with asked_party(scene) as (lead, study, left, key):
            left.message("parts", key, encode(change(announce("answer", study, BODY, MEGABYTE))))
            scene.expect()
            assert scene.net.wait(lead, study)[0] == "failed"
        assert _messages_at(scene, "server") == 0

    return run


against_coordinator(
    "a reply announced with a terabyte", "a limit on long messages", f"{_BROKEN}a message of 1,099,511,627,776 bytes"
)(_announced(lambda notice: replace(notice, size=2**40)))
against_coordinator("a reply in parts of one byte", "limits on parts", f"{_BROKEN}a message is announced in parts")(
    _announced(lambda notice: replace(notice, part_bytes=1))
)
against_coordinator(
    "a reply announced with other parts than its size has",
    "what was announced",
    f"{_BROKEN}a message is announced with",
)(_announced(lambda notice: replace(notice, digests=notice.digests[:2])))
against_coordinator(
    "a reply announced for another study", "one study a request", f"{_BROKEN}its reply says that it is"
)(_announced(lambda notice: replace(notice, study="another")))


@against_coordinator(
    "thirty long replies, each without its last part", "one at a time", "removed what left has sent of a message of 3"
)
def never_the_last_part(scene: Scene) -> None:
    with asked_party(scene) as (lead, study, left, key):
        for number in range(30):
            body = bytes([number]) * len(BODY)
            notice = announce("answer", study, body, MEGABYTE)
            left.message("parts", key, encode(notice))
            for part in range(2):
                _wait_for_want(left, part)
                data = np.frombuffer(read_part(body, notice, part), dtype=np.uint8)
                left.message("part", key, encode(MessagePart(notice.name, part, data)))
            _wait_for_want(left, 2)
            assert _messages_at(scene, "server") < len(BODY) + 10_000
        lead.ask(CancelRequest(study, ""))
    assert _messages_at(scene, "server") == 0


@against_coordinator(
    "a long reply that nobody waits for", "closed requests", "not taken: a long reply of left to a request", quick=True
)
def long_answer_in_vain(scene: Scene) -> None:
    with Caller(scene.kit("left")) as left:
        left.hello().message("parts", "0" * 64, encode(announce("answer", "study", BODY, MEGABYTE)))
        scene.expect()
    assert _messages_at(scene, "server") == 0


# ---- a coordinator against a party -------------------------------------------------------


def _open(scene: Scene, study: str) -> str:
    reply = scene.evil.ask("left", opening(scene, study))
    assert isinstance(reply, BeginReply), reply
    return study


def _refusal(scene: Scene, key: str) -> str:
    """Why the party refuses, as it tells the coordinator."""
    while True:
        peer, topic, about, body = scene.evil.replies.get(timeout=120.0)
        if (peer, topic, about) == ("left", "refusal", key):
            assert isinstance(body, bytes)
            return str(decode(body, (Refusal,)).reason)


@against_party("a long request about a study that has not begun", "studies that have begun", "that has not begun here")
def long_request_about_nothing(scene: Scene) -> None:
    scene.evil.send("left", "parts", "k", encode(announce("ask", "nothing", BODY, MEGABYTE)))
    assert "has not begun here" in _refusal(scene, "k")
    assert _messages_at(scene, "left") == 0


@against_party(
    "a request of two gigabytes about 120 people",
    "how long a message of so many people can be",
    "at most 1,073,741,824",
)
def request_too_long(scene: Scene) -> None:
    notice = announce("ask", _open(scene, "too-long"), BODY, MEGABYTE)
    long = replace(notice, size=2**31, digests=np.zeros((2**11, 32), dtype=np.uint8))
    scene.evil.send("left", "parts", "k", encode(long))
    assert "a message of 2,147,483,648 bytes" in _refusal(scene, "k")
    assert _messages_at(scene, "left") == 0


@against_party("a request with a part of other bytes", "a digest for every part", "has other bytes than", quick=True)
def request_with_wrong_part(scene: Scene) -> None:
    notice = announce("ask", _open(scene, "wrong-part"), BODY, MEGABYTE)
    scene.evil.send("left", "parts", "k", encode(notice))
    scene.evil.send("left", "part", "k", encode(MessagePart(notice.name, 0, np.zeros(MEGABYTE, dtype=np.uint8))))
    assert "part 1 of 3 has other bytes than were announced" in _refusal(scene, "k")
    assert _messages_at(scene, "left") == 0


@against_party(
    "thirty long requests without their last part",
    "one at a time",
    "removed what coordinator has sent of a message of 3",
)
def requests_without_an_end(scene: Scene) -> None:
    study, before = _open(scene, "endless"), resident(scene.pid("left"))
    for number in range(30):
        body = bytes([number]) * len(BODY)
        notice = announce("ask", study, body, MEGABYTE)
        scene.evil.send("left", "parts", f"{number}", encode(notice))
        for part in range(2):
            data = np.frombuffer(read_part(body, notice, part), dtype=np.uint8)
            scene.evil.send("left", "part", f"{number}", encode(MessagePart(notice.name, part, data)))
    scene.evil.ask("left", CloseRequest(study))
    assert _messages_at(scene, "left") == 0
    assert resident(scene.pid("left")) - before < 100 * MEGABYTE


@against_party(
    "a long request under another request's key", "keys are fingerprints", "refused: the request's key is not its"
)
def long_request_with_wrong_key(scene: Scene) -> None:
    study = _open(scene, "wrong-key")
    place = PlaceRequest(study, 120, np.arange(3 * MEGABYTE) + 2**40, np.zeros((120, 16), dtype=np.uint8))
    body = scene.evil.sessions.parts.pack(place)
    assert isinstance(body, Path)
    key = fingerprint(replace(place, n_subjects=121))
    assert scene.evil.sessions.send("left", "ask", key, body, study)
    assert "the request's key is not its fingerprint" in _refusal(scene, key)
    scene.evil.ask("left", CloseRequest(study))
    assert _messages_at(scene, "left") == 0
