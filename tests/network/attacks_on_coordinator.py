"""What is tried against a coordinator: by strangers, with bytes, with code, and by parties that overstep."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from tests.network.attackers import (
    PREFACE,
    Caller,
    RawStream,
    forged_kit,
    resident,
    rogue_server,
)
from tests.network.intruder_scenes import (
    ESCAPES,
    FLARE_CELLS,
    MEGABYTE,
    Scene,
    against_coordinator,
    altered,
    attack,
)
from verticopula.errors import VerticopulaError
from verticopula.network.connection import flare_driver
from verticopula.network.connection.control_messages import (
    Envelope,
    Refusal,
    ResultRequest,
    ResumeRequest,
    StatusRequest,
    SubmitRequest,
)
from verticopula.network.kit.provisioning import provision
from verticopula.network.lead.study_lead import Lead
from verticopula.protocol.consent_messages import ConsentReply
from verticopula.protocol.message_version import MESSAGE_VERSION
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.study_messages import BeginReply, BeginRequest
from verticopula.protocol.study_proposal import federation_fingerprint
from verticopula.protocol.wire import encode

# ---- without a kit, or with somebody else's -------------------------------------------------------


@against_coordinator("plain TCP, no TLS", "TLS", "refused a connection.*HTTP_REQUEST", quick=True)
def plain_tcp(scene: Scene) -> None:
    with socket.create_connection(("127.0.0.1", scene.net.federation.network.port)) as line:
        line.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert b"200" not in line.recv(1000)


@against_coordinator("plain HTTP/2, no TLS", "TLS", "refused a connection.*WRONG_VERSION")
def plain_http2(scene: Scene) -> None:
    with socket.create_connection(("127.0.0.1", scene.net.federation.network.port)) as line:
        line.sendall(PREFACE)
        line.recv(1000)


@against_coordinator(
    "TLS without a certificate", "mutual TLS", "refused a connection.*NOT_RETURN_A_CERTIFICATE", quick=True
)
def no_certificate(scene: Scene) -> None:
    context = ssl.create_default_context(cafile=str(scene.kit("left").authority))
    context.set_alpn_protocols(["h2"])
    port = scene.net.federation.network.port
    with (
        contextlib.suppress(OSError),
        context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost") as line,
    ):
        line.sendall(PREFACE)
        assert line.recv(1000) == b""


def _call_in_vain(scene: Scene, kit: Any) -> None:
    with Caller(kit) as caller:
        scene.expect()
        assert caller.link._communicator.find_endpoint("coordinator") is None


@against_coordinator(
    "a certificate of another authority", "mutual TLS", "refused a connection.*VERIFY_FAILED", quick=True
)
def another_authority(scene: Scene) -> None:
    folder = scene.own_folder()
    provision(scene.net.federation, folder)
    for file in (scene.kit("left").authority, scene.kit("left").notice):  # so that it believes the coordinator
        shutil.copy(file, folder / "left" / file.name)
    _call_in_vain(scene, replace(scene.kit("left"), folder=folder / "left"))


@against_coordinator("a self-signed certificate", "mutual TLS", "refused a connection.*VERIFY_FAILED")
def self_signed(scene: Scene) -> None:
    _call_in_vain(scene, forged_kit(scene.net, "left", scene.own_folder(), how="self-signed"))


@against_coordinator(
    "an expired certificate of the right authority", "mutual TLS", "refused a connection.*VERIFY_FAILED"
)
def expired(scene: Scene) -> None:
    with mock.patch.object(flare_driver, "describe_dates", return_value=""):  # or it would not even try
        _call_in_vain(scene, forged_kit(scene.net, "left", scene.own_folder(), how="expired"))


def _claim(name: str) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        with Caller(scene.kit("left"), name) as caller:
            for _ in range(10):
                with contextlib.suppress(Exception):  # there may be no connection at all
                    caller.say_hello("x")
                time.sleep(0.1)
            scene.expect()
            assert all(found.topic != "welcome" for found in list(caller.received.queue))

    return run


for _name, _as, _line in (
    ("right", "another party", "authenticated as 'left' but claimed endpoint 'right'"),
    ("lead", "the study lead", "authenticated as 'left' but claimed endpoint 'lead'"),
    ("coordinator", "the coordinator", "Duplicate endpoint name coordinator"),
):
    against_coordinator(
        f"a party's kit that calls itself {_as}", "F3: name and certificate", _line, quick=_name == "lead"
    )(_claim(_name))

against_coordinator("a party's kit with a name below its own (left.x)", "list of peers", "refused left.x: no part")(
    _claim("left.x")
)
against_coordinator(
    "a party's kit with an admin's name of FLARE", "F3: no admin listens here", "Admin endpoint '_admin_"
)(_claim("_admin_00000000-0000-4000-8000-000000000000"))


@attack(
    "a server with a party's certificate, where the coordinator should be",
    "lead",
    "right",
    "TLS: what the certificate is for",
    "no connection to the coordinator: the coordinator's certificate is not one of a coordinator",
    honest="this party alone",
)
def rogue(scene: Scene) -> None:
    scene.net.close()
    with rogue_server(scene.net, "left", scene.own_folder()) as link:
        scene.net.start("right")
        scene.log("right").wait("is not one of a coordinator")
        assert link._communicator.find_endpoint("right") is None
    scene.net.close()
    scene.net.start("right")  # alive when it is looked at
    scene.log("right").wait("no connection")


# ---- bytes -----------------------------------------------------------------------------------------


def _sends(make: Callable[[Caller, Scene], None]) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        with Caller(scene.kit("left")) as caller:
            make(caller.hello(), scene)
            scene.expect()

    return run


against_coordinator(
    "random bytes as a message", "the wire format", "refused a message from left: the bytes are", quick=True
)(_sends(lambda caller, scene: caller.raw(os.urandom(5_000))))
against_coordinator(
    "an envelope that is cut off", "the wire format", "refused a message from left: an array is larger"
)(_sends(lambda caller, scene: caller.raw(caller.envelope("answer", "k", bytes(1_000))[:-10])))


def _lie(caller: Caller, scene: Scene) -> None:
    caller.raw(caller.envelope("answer", "k", bytes(1_000)).replace(b'"shape":[1000]', b'"shape":[9e9]', 1))
    honest = caller.envelope("answer", "k", bytes(1_000))
    lying = honest.replace(b'"shape":[1000]', b'"shape":[1000000000000]')
    header = int.from_bytes(lying[6:10], "little") + len(lying) - len(honest)
    caller.raw(lying[:6] + header.to_bytes(4, "little") + lying[10:])


against_coordinator(
    "an envelope whose array claims a terabyte", "the wire format", "refused a message from left: an array is larger"
)(_sends(_lie))
against_coordinator(
    "another message version", "the wire format", "refused a message.*speaks message version", quick=True
)(_sends(lambda caller, scene: caller.message("answer", "k", b"", version=MESSAGE_VERSION + 1)))


def _nested(caller: Caller, scene: Scene) -> None:
    header = b"[" * 1_000_000
    caller.raw(b"VCMS" + (1).to_bytes(2, "little") + len(header).to_bytes(4, "little") + header)


against_coordinator(
    "a header of a million brackets", "the wire format", "refused a message from left: the header cannot"
)(_sends(_nested))


def _replay(caller: Caller, scene: Scene) -> None:
    caller.message("answer", "k", b"")
    caller.raw(caller.sent[-1])


against_coordinator(
    "a message sent again", "serial numbers", "refused a message from left: it was received before", quick=True
)(_sends(_replay))


@against_coordinator(
    "a captured message of an earlier session",
    "session numbers",
    "refused a message from left: it belongs to an earlier",
)
def earlier_session(scene: Scene) -> None:
    with Caller(scene.kit("left")) as caller:
        caller.hello().message("answer", "k", b"")
        captured = caller.sent[-1]
    with Caller(scene.kit("left")) as caller:
        caller.hello().raw(captured)
        scene.expect()


@contextlib.contextmanager
def _raw_stream(scene: Scene) -> Iterator[RawStream]:
    """A stream of the left party that the coordinator has taken: it refuses one where another has not ended yet."""
    for _ in range(100):
        tail = scene.log("server").mark()
        with contextlib.closing(RawStream(scene.kit("left"))) as stream:
            if "is created" in tail.wait("SSL left. is created|refused a connection of left"):
                yield stream
                return
        time.sleep(0.1)
    raise AssertionError("the coordinator takes no stream of the left party")


@against_coordinator(
    "a message of 1.5 GB", "gRPC, at its announced length", "a connection of left has ended.*more than 17,825,792"
)
def oversized(scene: Scene) -> None:
    before = resident(scene.pid("server"))
    with _raw_stream(scene) as stream:
        sent = stream.send(1_500 * MEGABYTE)
    assert sent < 100 * MEGABYTE, "the coordinator took it"
    assert resident(scene.pid("server")) - before < 100 * MEGABYTE


@against_coordinator(
    "400 messages of 1 MB, as fast as they go",
    "one frame of a connection at a time",
    "refused a message from left: the bytes",
)
def message_flood(scene: Scene) -> None:
    before = resident(scene.pid("server"))
    with Caller(scene.kit("left")) as caller:
        caller.hello()
        for _ in range(400):
            caller.raw(bytes(MEGABYTE))
            caller.sent.clear()
        time.sleep(3.0)
    assert resident(scene.pid("server")) - before < 150 * MEGABYTE


@against_coordinator(
    "a flood of hellos, each a new session", "a limit on greetings", "refused a message from left: too many", quick=True
)
def hello_flood(scene: Scene) -> None:
    with Caller(scene.kit("left")) as caller:
        caller.connect()
        start = time.monotonic()
        for number in range(2_000):
            caller.say_hello(f"session-{number}")
        scene.expect()
        time.sleep(0.5)
        assert caller.received.qsize() < 60 + 3 * (time.monotonic() - start)  # 30 at once, then 2 a second


@against_coordinator("forty connections of one party at once", "a limit on connections", "refused a connection of left")
def many_lines(scene: Scene) -> None:
    streams = [RawStream(scene.kit("left")) for _ in range(40)]
    scene.log("server").wait("refused a connection of left")
    with Caller(scene.kit("right")) as other:
        other.hello()  # everybody else is still heard
    for stream in streams:
        stream.close()
    time.sleep(1.0)


# ---- FLARE's own machinery, and code ---------------------------------------------------------------


def _deploy(caller: Caller, scene: Scene) -> None:
    from nvflare.fuel.utils import fobs

    job = {"app": "job", "config": {"executor": {"path": "os.system", "args": {"command": "touch canary"}}}}
    headers = {"channel": "aux_communication", "topic": "train.deploy", "destination": "coordinator"}
    caller.raw(fobs.dumps(job), FLARE_CELLS, headers)


against_coordinator(
    "a FLARE job for FLARE's cell network, in FOBS",
    "nobody listens there",
    "F3 application 1 is not served",
    quick=True,
)(_sends(_deploy))


@against_coordinator("a pickle for FLARE's cell network", "nobody listens there", "F3 application 1 is not served")
def pickle_for_flare(scene: Scene) -> None:
    canary = scene.canary()
    with Caller(scene.kit("left")) as caller:
        caller.hello().raw(canary.pickled(), FLARE_CELLS)
        scene.expect()
    assert not canary.sang


@against_coordinator(
    "a pickle as a message", "the wire format", "refused a message from left: the bytes are not", quick=True
)
def pickle_as_message(scene: Scene) -> None:
    canary = scene.canary()
    with Caller(scene.kit("left")) as caller:
        caller.hello().raw(canary.pickled())
        scene.expect()
    assert not canary.sang


@against_coordinator(
    "a pickle as the lead's request", "the wire format", "refused the study lead [^:]*: the bytes are not"
)
def pickle_as_question(scene: Scene) -> None:
    canary = scene.canary()
    with Caller(scene.kit("lead")) as caller:
        caller.hello().message("ask", "k", canary.pickled())
        caller.wait_for("refusal")
    assert not canary.sang


def _submission(scene: Scene, kind: str = "synthesis", **changes: Any) -> SubmitRequest:
    settings = json.dumps(changes.pop("settings", {"method": "vcds"}))
    shown = federation_fingerprint(scene.net.federation)
    request = SubmitRequest(shown, kind, settings, None, False, 60.0, os.urandom(16).hex())  # type: ignore[arg-type]
    return replace(request, **changes)


def _refuses(make: Callable[[Scene], Any]) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        with Lead(scene.kit("lead")) as lead:
            request = make(scene)
            before = lead.ask(StatusRequest()).studies
            try:
                lead.ask(request)
            except VerticopulaError:
                assert lead.ask(StatusRequest()).studies == before
                return
        raise AssertionError("it was accepted")

    return run


against_coordinator(
    "a study with a method nobody wrote (os.system)",
    "the settings' names",
    "refused the study lead [^:]*: unknown method",
    quick=True,
)(_refuses(lambda scene: _submission(scene, settings={"method": "os.system"})))
against_coordinator(
    "a study with a setting that names code",
    "the settings' names",
    "refused the study lead [^:]*: .*no settings of a study",
)(_refuses(lambda scene: _submission(scene, settings={"method": "vcds", "executor": "os.system"})))
against_coordinator(
    "a regression whose penalty is a class", "the settings' names", "refused the study lead [^:]*: unknown penalty"
)(_refuses(lambda scene: _submission(scene, "regression", settings={"penalty": "subprocess.Popen"})))
against_coordinator(
    "settings of ten thousand brackets", "JSON, bounded", "refused the study lead [^:]*: .*cannot be read"
)(_refuses(lambda scene: replace(_submission(scene), settings="[" * 9_999)))
against_coordinator(
    "a study for another federation file",
    "the federation's fingerprint",
    "refused the study lead [^:]*: the federation file",
)(_refuses(lambda scene: _submission(scene, federation=federation_fingerprint(altered(scene.net.federation)))))
against_coordinator(
    "a study's name that leads to another folder",
    "names of studies",
    "refused the study lead [^:]*: no study of that name",
)(_refuses(lambda scene: ResultRequest("../../authority")))
against_coordinator(
    "a purpose in letters that no party would take",
    "as parties check it",
    "refused the study lead [^:]*: who asks and why",
)(_refuses(lambda scene: replace(_submission(scene), purpose="an \u13aaudit")))


def _ended_study(scene: Scene) -> str:
    """The name of a study of this lead that nobody answered in time."""
    with Lead(scene.kit("lead")) as lead:
        study: str = lead.ask(_submission(scene, deadline=0.3)).study
        scene.net.wait(lead, study)
    return study


against_coordinator(
    "a deadline that never comes", "checked when resuming", "refused the study lead [^:]*: the deadline"
)(_refuses(lambda scene: ResumeRequest(_ended_study(scene), float("nan"))))


@against_coordinator("the lead's submission sent again", "its token: one study", "INFO.*: study small-[0-9a-f]+: vcds")
def submit_twice(scene: Scene) -> None:
    with Lead(scene.kit("lead")) as lead:
        request = _submission(scene, deadline=0.3)
        first = lead.ask(request).study
        assert lead.ask(request).study == first
        assert [entry.study for entry in lead.ask(StatusRequest()).studies].count(first) == 1
        scene.net.wait(lead, first)


# ---- parties that overstep -------------------------------------------------------------------------


against_coordinator(
    "a party that requests what only the lead may", "roles", "refused a message from left: a party replies", quick=True
)(_sends(lambda caller, scene: caller.message("ask", "k", encode(StatusRequest()))))
against_coordinator("a lead that sends a reply", "roles", "refused a message from lead[^:]*: the study lead sends")(
    lambda scene: _as_lead(scene, lambda caller: caller.message("answer", "k", b""))
)


def _as_lead(scene: Scene, act: Callable[[Caller], None]) -> None:
    with Caller(scene.kit("lead")) as caller:
        act(caller.hello())
        scene.expect()


@contextlib.contextmanager
def _asked(scene: Scene, *names: str) -> Iterator[tuple[Lead, str, list[Caller], list[Envelope]]]:
    """A study whose parties are the intruder's; yields the request that each got."""
    with contextlib.ExitStack() as stack:
        callers = [stack.enter_context(Caller(scene.kit(name))).hello() for name in names]
        lead = stack.enter_context(Lead(scene.kit("lead")))
        study = lead.ask(_submission(scene, deadline=120.0)).study
        yield lead, study, callers, [_request_about(caller, study) for caller in callers]


def _request_about(caller: Caller, study: str) -> Envelope:
    """The request of this study; those who were away are also told that others were cancelled."""
    while study.encode() not in (found := caller.wait_for("ask")).body.tobytes():
        pass
    return found


@contextlib.contextmanager
def asked_party(scene: Scene) -> Iterator[tuple[Lead, str, Caller, str]]:
    """A study whose left party is the intruder's, and the key of the request that it got."""
    with _asked(scene, "left") as (lead, study, (left,), (asked,)):
        yield lead, study, left, asked.key


@against_coordinator(
    "a reply to another party's request", "one request a party", "dropped: answer of left to a request"
)
def answer_for_another(scene: Scene) -> None:
    with _asked(scene, "left", "right") as (lead, study, (left, right), (_, asked)):
        wrong = fingerprint(BeginRequest(study, "vcds", "", "hash", None, 0, ""))
        left.message("answer", wrong, encode(ConsentReply("right", 2e9, b"")))
        scene.expect()  # before the study ends, and with it the line
        right.message("refusal", asked.key, encode(Refusal("PolicyRefused", "enough")))
        scene.net.wait(lead, study)


@against_coordinator("a reply after the round", "closed requests", "dropped: answer of left to a request")
def answer_too_late(scene: Scene) -> None:
    with _asked(scene, "left") as (lead, study, (left,), (asked,)):
        left.message("refusal", asked.key, encode(Refusal("PolicyRefused", "enough")))
        scene.net.wait(lead, study)
        left.message("answer", asked.key, encode(ConsentReply("left", 2e9, b"")))
        scene.expect()


@against_coordinator(
    "a reply in another party's name", "names in replies", "failed in round 1: party 'left' answered under"
)
def answer_as_another(scene: Scene) -> None:
    with _asked(scene, "left", "middle", "right") as (lead, study, callers, asked):
        for caller, request in zip(callers, asked, strict=True):
            name = "right" if caller.kit.name == "left" else caller.kit.name
            empty = np.zeros((1, 16), dtype=np.uint8)
            reply = BeginReply(name, np.zeros(32, dtype=np.uint8), empty, False, 0, "")
            caller.message("answer", request.key, encode(reply))
        assert scene.net.wait(lead, study)[0] == "failed"


@against_coordinator(
    "a reply that is a pickle", "the wire format", "failed in round 1: party '\\w+': the bytes are not"
)
def pickle_as_answer(scene: Scene) -> None:
    canary = scene.canary()
    with _asked(scene, "left", "middle", "right") as (lead, study, callers, asked):
        for caller, request in zip(callers, asked, strict=True):
            caller.message("answer", request.key, canary.pickled())
        assert scene.net.wait(lead, study)[0] == "failed"
    assert not canary.sang


@against_coordinator(
    "a refusal with terminal escapes and markup", "sanitized text", "failed in round 1:.*All is well", quick=True
)
def hostile_refusal(scene: Scene) -> None:
    with _asked(scene, "left") as (lead, study, (left,), (asked,)):
        left.message("refusal", asked.key, encode(Refusal("SystemExit", ESCAPES * 100)))
        state, note = scene.net.wait(lead, study)
        assert state == "failed"
        assert note.isprintable()
        assert len(note) <= 500
    text = scene.log("server").text
    assert "\x1b" not in text
    assert "\u202e" not in text


@against_coordinator(
    "a refusal with a text of 1 MB", "the wire format", "refused a message from left: a text has more than 10000"
)
def long_refusal(scene: Scene) -> None:
    with _asked(scene, "left") as (lead, study, (left,), (asked,)):
        honest = encode(Refusal("ProtocolError", "X"))
        header = honest[10:].replace(b'"X"', b'"' + b"x" * MEGABYTE + b'"')
        left.message("refusal", asked.key, honest[:6] + len(header).to_bytes(4, "little") + header)
        scene.expect()
        left.message("refusal", asked.key, encode(Refusal("ProtocolError", "enough")))
        scene.net.wait(lead, study)
