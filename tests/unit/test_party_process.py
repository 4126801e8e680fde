"""A party's process: it answers or refuses every request, and neither its text nor its log quotes its table."""

from __future__ import annotations

import logging
import queue
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from tests.agreements import agree, place_request, proposal_of
from tests.members import make_member
from tests.network.harness import small_federation
from verticopula import Policy
from verticopula.errors import ConsentPending, PolicyRefused, ProtocolError
from verticopula.network.connection.control_messages import InProgress, Refusal
from verticopula.network.connection.message_parts import MessageParts
from verticopula.network.kit.startup_kit import Kit
from verticopula.network.party import party_process as process_module
from verticopula.network.party.party_process import PartyProcess
from verticopula.protocol.messages import REPLY_KINDS, REQUEST_KINDS, fingerprint
from verticopula.protocol.party.consent_question import ConsentQuestion
from verticopula.protocol.regression_messages import DesignReply, DesignRequest
from verticopula.protocol.study_messages import BeginReply, BeginRequest, CloseRequest, PlaceReply
from verticopula.protocol.study_proposal import StudyContext, federation_fingerprint
from verticopula.protocol.wire import decode, encode

CANARY = "4.7110815"
PERSON = "canary-person"
WORDS = ["study", "raw", "other", "", "y", "x1", "x2", "vcds", "raw-glm", "exact", "binomial", "scad", "none", "fit"]


class NoSessions:
    def __init__(self, kit: Kit, on_message: Any, **_: Any) -> None:
        self.parts = MessageParts(16 * 2**20, lambda *_: True, lambda *_: None, lambda peer: "")


def tables() -> pl.DataFrame:
    n = 30
    x = np.linspace(-5.0, 5.0, n)
    x[7] = float(CANARY)
    return pl.DataFrame({"subject_id": [f"{PERSON}-{i}" for i in range(n)], "y": [i % 2 for i in range(n)], "x1": x})


def make_process(monkeypatch: pytest.MonkeyPatch, **own: Any) -> PartyProcess:
    monkeypatch.setattr(process_module, "PeerSessions", NoSessions)
    federation = small_federation()
    policy = Policy(methods=("vcds", "raw-glm", "ievcds"))
    member = make_member(federation, "left", tables(), policy=policy, **own)
    process = PartyProcess(Kit(Path(), "party", "left", "localhost", 1), member)
    for study, method in (("study", "vcds"), ("raw", "raw-glm")):
        opening = BeginRequest(study, method, federation_fingerprint(federation), "hash", None, 0, "")
        opened = reply_of(process, opening)
        assert isinstance(opened, BeginReply)
        placed = reply_of(process, place_request(study, opened.hashes))
        assert isinstance(placed, PlaceReply)
        context = StudyContext(alignment="hash", cohort=placed.cohort)
        agree(member, "left", proposal_of(member, "left", federation, study=study, method=method, context=context))
    design = DesignRequest("raw", "fit", ("x1",), None, True, None, None)
    assert isinstance(reply_of(process, design), DesignReply)
    return process


def reply_of(process: PartyProcess, request: Any) -> Any:
    topic, body, _ = process._reply_to(fingerprint(request), encode(request))
    return decode(body, REPLY_KINDS if topic == "answer" else (Refusal,))


# ---- requests of every kind, from their type hints ---------------------------------------------------


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    origin = get_origin(hint)
    if origin is Literal:
        return st.sampled_from(get_args(hint))
    if origin in (types.UnionType, Union):
        return st.one_of(*(st.none() if part is type(None) else values_of(part) for part in get_args(hint)))
    if origin is tuple and Ellipsis not in get_args(hint):
        return st.tuples(*map(values_of, get_args(hint)))
    if origin is tuple:
        return st.lists(values_of(get_args(hint)[0]), max_size=3).map(tuple)
    if origin is get_origin(NDArray[np.int64]):
        last = get_args(hint)[-1]  # dtype[...], or the scalar itself where NDArray is a type alias
        (scalar,) = get_args(last) or (last,)
        shapes = st.sampled_from([(0,), (1,), (30,), (30, 1), (31,), (2, 16), (3, 32), (1, 1, 1)])
        sizes = st.integers(-2, 40) if scalar is np.int64 else None
        return shapes.flatmap(lambda shape: hnp.arrays(scalar, shape, elements=sizes))
    plain = {
        str: st.sampled_from(WORDS),
        int: st.integers(-2, 40) | st.sampled_from([2**62, -(2**62)]),
        float: st.sampled_from([0.0, 0.1, 1.0, -1.0, 1e300, float("inf"), float("nan")]) | st.floats(0, 2),
        bool: st.booleans(),
        bytes: st.binary(max_size=40),
    }
    return plain[hint] if hint in plain else requests_of(hint)


def requests_of(kind: Any) -> st.SearchStrategy[Any]:
    hints = {name: hint for name, hint in get_type_hints(kind).items() if name != "version"}
    return st.builds(kind, **{name: values_of(hint) for name, hint in hints.items()})


@pytest.mark.parametrize("kind", REQUEST_KINDS, ids=lambda kind: kind.__name__)
def test_any_request_is_answered_or_refused(kind: type, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.MonkeyPatch.context() as patch:
        process = make_process(patch)

        @given(requests_of(kind))
        @settings(max_examples=60)
        def ask(request: Any) -> None:
            found = reply_of(process, request)
            if isinstance(found, Refusal):
                assert "internal error" not in found.reason, (request, caplog.text[-2_000:])
                assert CANARY not in found.reason
                assert PERSON not in found.reason

        ask()
    assert CANARY not in caplog.text
    assert PERSON not in caplog.text


def test_an_internal_error_tells_nothing_of_the_data(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    process = make_process(monkeypatch)

    def fail(request: Any) -> Any:
        try:
            int(CANARY)
        except ValueError as error:
            raise KeyError(f"{PERSON}-7") from error

    monkeypatch.setattr(process.member, "handle", fail)
    found = reply_of(process, CloseRequest("study"))
    assert found == Refusal("ProtocolError", "party 'left': internal error (KeyError)")
    assert "internal error KeyError: test_party_process.py:" in caplog.text
    assert CANARY not in caplog.text
    assert PERSON not in caplog.text


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(body: bytes) -> None:
    logging.disable(logging.CRITICAL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_module, "PeerSessions", NoSessions)
        process = PartyProcess(Kit(Path(), "party", "left", "localhost", 1), None)  # type: ignore[arg-type]
        assert process._reply_to("key", body)[0] == "refusal"
    logging.disable(logging.NOTSET)


# ---- questions that wait -------------------------------------------------------------------------------


class Line:
    """Sessions of a process, without a network: what it sends is kept."""

    def __init__(self, kit: Kit, on_message: Any, **_: Any) -> None:
        self.parts = MessageParts(16 * 2**20, lambda *_: True, lambda *_: None, lambda peer: "")
        self.sent: queue.Queue[tuple[str, str, Any]] = queue.Queue()

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def send(self, peer: str, topic: str, key: str, body: bytes, study: str = "") -> bool:
        kinds = {"answer": REPLY_KINDS, "refusal": (Refusal,), "working": (InProgress,)}[topic]
        self.sent.put((topic, key, decode(body, kinds)))
        return True


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[PartyProcess, Line, threading.Event]]:
    """A running process whose steward says no once the event is set."""
    answers = threading.Event()

    def thinks(question: ConsentQuestion) -> None:
        answers.wait()
        raise PolicyRefused("party 'left': its steward said no")

    monkeypatch.setattr(process_module, "PeerSessions", Line)
    member = make_member(small_federation(), "left", tables(), ask_steward=thinks)
    process = PartyProcess(Kit(Path(), "party", "left", "localhost", 1), member)
    thread = threading.Thread(target=process.run)
    thread.start()
    yield process, process._sessions, answers  # type: ignore[misc]
    answers.set()
    process.stop()
    thread.join()


def ask(process: PartyProcess, request: Any) -> str:
    key = fingerprint(request)
    process._on_message("server", "ask", key, encode(request))
    return key


def question(number: int) -> BeginRequest:
    made = federation_fingerprint(small_federation())
    return BeginRequest(f"study {number}", "vcds", made, "hash", None, 0, "", purpose=f"reason {number}")


def test_questions_leave_room_for_everything_else(slow: tuple[PartyProcess, Line, threading.Event]) -> None:
    process, line, answers = slow
    keys = [ask(process, question(number)) for number in range(8)]
    ninth = ask(process, question(8))
    topic, key, refusal = line.sent.get()
    assert (topic, key) == ("refusal", ninth)
    assert "it looks at too many studies at once" in refusal.reason
    ask(process, question(3))  # it waits already
    assert line.sent.get() == ("working", keys[3], InProgress("computation"))
    other = ask(process, CloseRequest("study 3"))  # answered while the steward thinks
    topic, key, refusal = line.sent.get()
    assert (topic, key) == ("refusal", other)
    assert "was not asked to open this study" in refusal.reason
    answers.set()
    assert [line.sent.get()[1] for _ in keys] == keys


def test_a_process_that_is_stopped_answers_no_further_question(
    slow: tuple[PartyProcess, Line, threading.Event],
) -> None:
    process, line, answers = slow
    answers.set()
    first = ask(process, question(0))
    assert line.sent.get()[1] == first
    thread = next(one for one in threading.enumerate() if one.name == "questions")  # before it may have ended
    process.stop()
    ask(process, question(1))
    thread.join()
    assert line.sent.empty()


def test_requests_that_wait_are_bounded_in_bytes(slow: tuple[PartyProcess, Line, threading.Event]) -> None:
    process, line, answers = slow
    line.parts.part_bytes = len(encode(question(0)))
    keys = [ask(process, question(number)) for number in range(2)]
    with pytest.raises(ProtocolError, match="would not fit into memory"):
        ask(process, question(2))
    answers.set()
    assert [line.sent.get()[1] for _ in keys] == keys
    ask(process, question(2))
    assert line.sent.get()[1] == fingerprint(question(2))


# ---- stewards who decide later ---------------------------------------------------------------------------


def test_a_question_that_is_not_decided_waits_nowhere_and_is_taken_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    said: dict[str, bool] = {}
    decided: set[str] = set()

    def steward(question: ConsentQuestion) -> None:
        if question.study not in said:
            raise ConsentPending("party 'left': its stewards were asked", 12.5)
        if not said[question.study]:
            raise PolicyRefused("party 'left': its steward said no")

    monkeypatch.setattr(process_module, "PeerSessions", Line)
    monkeypatch.setattr(process_module, "_LOOK_FOR_DECISIONS", 0.01)
    member = make_member(small_federation(), "left", tables(), policy=Policy(open_studies=99), ask_steward=steward)
    process = PartyProcess(Kit(Path(), "party", "left", "localhost", 1), member, lambda waiting: decided & {*waiting})
    thread = threading.Thread(target=process.run)
    thread.start()
    line: Any = process._sessions
    try:
        keys = []
        for number in range(20):  # more than may wait in memory
            keys.append(ask(process, question(number)))
            assert line.sent.get() == ("working", keys[-1], InProgress("steward", since=12.5))
        said |= {"study 3": True, "study 4": False}
        decided |= {"study 3", "study 4"}
        assert {line.sent.get()[:2] for _ in range(2)} == {("working", keys[3]), ("working", keys[4])}
        assert [ask(process, question(number)) for number in (3, 4, 5)] == keys[3:6]
        assert [line.sent.get()[0] for _ in range(3)] == ["answer", "refusal", "working"]
    finally:
        process.stop()
        thread.join()


class SlowLine(Line):
    """A line on which the word that a steward was asked takes its time, and the next one is lost at first."""

    is_slow, is_cut = True, True

    def send(self, peer: str, topic: str, key: str, body: bytes, study: str = "") -> bool:
        waits_for = decode(body, (InProgress,)).waits_for
        if waits_for == "steward" and self.is_slow:
            self.is_slow = False
            time.sleep(0.2)  # twenty looks at what was decided
        if waits_for == "computation" and self.is_cut:
            self.is_cut = False
            return False
        return super().send(peer, topic, key, body)


def test_a_decision_is_told_after_the_question_and_again_where_it_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told before the question, a decision would wake nobody, and the study would wait for ever."""

    def steward(question: ConsentQuestion) -> None:
        raise ConsentPending("party 'left': its stewards were asked", 12.5)

    monkeypatch.setattr(process_module, "PeerSessions", SlowLine)
    monkeypatch.setattr(process_module, "_LOOK_FOR_DECISIONS", 0.01)
    member = make_member(small_federation(), "left", tables(), ask_steward=steward)
    process = PartyProcess(Kit(Path(), "party", "left", "localhost", 1), member, lambda waiting: waiting)
    thread = threading.Thread(target=process.run)
    thread.start()
    line: Any = process._sessions
    try:
        key = ask(process, question(0))
        assert line.sent.get() == ("working", key, InProgress("steward", since=12.5))
        assert line.sent.get() == ("working", key, InProgress("computation"))
    finally:
        process.stop()
        thread.join()
