"""The intruder table: what somebody tries, against whom, what refuses it, and the line that the victim writes down.

Every attack is real: processes with kits on one side, and on the other forged certificates, altered kits, hand-written
frames, or a coordinator that does what it likes. `python -m benchmarks intruders` makes the page from the same table.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tests.network.attackers import (
    PREFACE,
    Caller,
    Canary,
    EvilCoordinator,
    LogTail,
    RawStream,
    forged_kit,
    resident,
    rogue_server,
    shorten,
)
from tests.network.harness import Net
from verticopula.errors import VerticopulaError
from verticopula.network.lead import Lead
from verticopula.network.letters import (
    Envelope,
    Refusal,
    ResultFile,
    ResultReply,
    ResultRequest,
    ResumeRequest,
    StatusReply,
    StatusRequest,
    StudyState,
    SubmitReply,
    SubmitRequest,
)
from verticopula.network.provision import provision
from verticopula.network.signing import certificate_authenticity
from verticopula.protocol.messages import (
    MESSAGE_VERSION,
    ColumnOrder,
    GaussianMarginsRequest,
    MarginOrder,
    OpenReply,
    OpenRequest,
    PlaceRequest,
    ReleaseRequest,
    ReviewReply,
    ReviewRequest,
    StrictReviewRequest,
    SumsKeyRequest,
    SumsShareRequest,
    fingerprint,
)
from verticopula.protocol.opening import federation_fingerprint
from verticopula.protocol.sums_plan import make_plan
from verticopula.protocol.wire import encode
from verticopula.schema import Federation
from verticopula.secure.sealed import SealedPost

FLARE_CELLS = 1  # the F3 application of FLARE's own cell network, which carries jobs and FOBS objects
ESCAPES = "\x1b[2J\x1b[31mAll is well\x07\r\n[bold]<script>\u202e"
POLICIES = {
    "left": 'methods = ["vcds", "strict"]\nmin_subjects = 50\n[caps]\nclient = 2.0\n',
    "middle": 'methods = ["vcds"]\ncolumns = ["another"]\n',
    "right": 'methods = ["vcds"]\nmin_subjects = 5000\n',
}
MEGABYTE = 1 << 20

Where = Literal["coordinator", "party", "lead"]


@dataclass
class Scene:
    """Victims at work."""

    net: Net
    scratch: Path
    coordinator: EvilCoordinator | None = None

    def kit(self, name: str) -> Any:
        return self.net.kit(name)

    def log(self, name: str) -> LogTail:
        return LogTail(self.net.folder / "kits" / name / "log.txt")

    def pid(self, name: str) -> int:
        return self.net.processes[name].pid

    @property
    def evil(self) -> EvilCoordinator:
        assert self.coordinator is not None
        return self.coordinator

    def own_folder(self) -> Path:
        return self.scratch / f"{time.monotonic_ns()}"

    def canary(self) -> Canary:
        return Canary(self.scratch / f"canary-{time.monotonic_ns()}")


@dataclass(frozen=True)
class Attack:
    """One row.

    Attributes
    ----------
    against : the kit whose log must hold a line that fits `expected`; for the lead, its terminal
    run : does it; AssertionError if it succeeds
    """

    name: str
    where: Where
    against: str
    refused_by: str
    expected: str
    quick: bool
    run: Callable[[Scene], str | None]

    def carry_out(self, scene: Scene) -> str:
        """The victim's line."""
        tail = scene.log(self.against).mark()
        said = self.run(scene)
        if said is not None:
            return shorten(said)
        line = tail.wait(self.expected)
        process = scene.net.processes.get(self.against)
        assert process is not None
        assert process.poll() is None, "the victim died"
        return shorten(line)


ATTACKS: list[Attack] = []


def attack(
    name: str, where: Where, against: str, refused_by: str, expected: str, *, quick: bool = False
) -> Callable[[Callable[[Scene], str | None]], Callable[[Scene], str | None]]:
    def register(run: Callable[[Scene], str | None]) -> Callable[[Scene], str | None]:
        ATTACKS.append(Attack(name, where, against, refused_by, expected, quick, run))
        return run

    return register


def against_coordinator(name: str, by: str, expected: str, *, quick: bool = False) -> Any:
    return attack(name, "coordinator", "server", by, expected, quick=quick)


def against_party(name: str, by: str, expected: str, *, party: str = "left", quick: bool = False) -> Any:
    return attack(name, "party", party, by, expected, quick=quick)


# ---- scenes ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def coordinator_alone(folder: Path) -> Iterator[Scene]:
    """A coordinator; its parties' kits are in the intruder's hands."""
    net = Net.prepare(folder)
    scratch = folder / "scratch"
    scratch.mkdir()
    try:
        net.start("server")
        LogTail(folder / "kits" / "server" / "log.txt").wait("added secure port", 60.0)
        yield Scene(net, scratch)
    finally:
        net.close()


@contextlib.contextmanager
def parties_alone(folder: Path, *names: str) -> Iterator[Scene]:
    """Parties with strict policies; the coordinator's kit is in the intruder's hands."""
    net = Net.prepare(folder, policies=POLICIES)
    scratch = folder / "scratch"
    scratch.mkdir()
    try:
        net.start(*names)
        with EvilCoordinator(net.kit("server")) as coordinator:
            coordinator.wait_for(*names)
            yield Scene(net, scratch, coordinator)
    finally:
        net.close()


@contextlib.contextmanager
def nobody_yet(folder: Path) -> Iterator[Scene]:
    """Kits only: the attack starts its victim itself."""
    net = Net.prepare(folder)
    scratch = folder / "scratch"
    scratch.mkdir()
    try:
        yield Scene(net, scratch)
    finally:
        net.close()


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


def _call_in_vain(kit: Any) -> None:
    with Caller(kit) as caller:
        time.sleep(1.5)
        assert caller.link._communicator.find_endpoint("coordinator") is None


@against_coordinator(
    "a certificate of another authority", "mutual TLS", "refused a connection.*VERIFY_FAILED", quick=True
)
def another_authority(scene: Scene) -> None:
    folder = scene.own_folder()
    provision(scene.net.federation, folder)
    shutil.copy(scene.kit("left").authority, folder / "left" / "authority.pem")  # so that it believes the coordinator
    _call_in_vain(replace(scene.kit("left"), folder=folder / "left"))


@against_coordinator("a self-signed certificate", "mutual TLS", "refused a connection.*VERIFY_FAILED")
def self_signed(scene: Scene) -> None:
    _call_in_vain(forged_kit(scene.net, "left", scene.own_folder(), how="self-signed"))


@against_coordinator(
    "an expired certificate of the right authority", "mutual TLS", "refused a connection.*VERIFY_FAILED"
)
def expired(scene: Scene) -> None:
    _call_in_vain(forged_kit(scene.net, "left", scene.own_folder(), how="expired"))


def _claim(name: str) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        with Caller(scene.kit("left"), name) as caller:
            for _ in range(10):
                with contextlib.suppress(Exception):  # there may be no line at all
                    caller.say_hello("x")
                time.sleep(0.1)
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
    "TLS: host name in the certificate",
    "no line to the coordinator: .*Hostname Verification Check failed",
)
def rogue(scene: Scene) -> None:
    with rogue_server(scene.net, "left", scene.own_folder()) as link:
        scene.net.start("right")
        scene.log("right").wait("Hostname Verification", 60.0)
        assert link._communicator.find_endpoint("right") is None
    scene.net.close()
    scene.net.start("right")  # alive when it is looked at
    scene.log("right").wait("no line", 60.0)


# ---- bytes -----------------------------------------------------------------------------------------


def _sends(make: Callable[[Caller, Scene], None]) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        with Caller(scene.kit("left")) as caller:
            make(caller.hello(), scene)
            time.sleep(0.3)

    return run


against_coordinator(
    "random bytes as a letter", "the wire format", "refused a letter from left: the bytes are", quick=True
)(_sends(lambda caller, scene: caller.raw(os.urandom(5_000))))
against_coordinator("an envelope that is cut off", "the wire format", "refused a letter from left: an array is larger")(
    _sends(lambda caller, scene: caller.raw(caller.envelope("answer", "k", bytes(1_000))[:-10]))
)


def _lie(caller: Caller, scene: Scene) -> None:
    caller.raw(caller.envelope("answer", "k", bytes(1_000)).replace(b'"shape":[1000]', b'"shape":[9e9]', 1))
    honest = caller.envelope("answer", "k", bytes(1_000))
    lying = honest.replace(b'"shape":[1000]', b'"shape":[1000000000000]')
    header = int.from_bytes(lying[6:10], "little") + len(lying) - len(honest)
    caller.raw(lying[:6] + header.to_bytes(4, "little") + lying[10:])


against_coordinator(
    "an envelope whose array claims a terabyte", "the wire format", "refused a letter from left: an array is larger"
)(_sends(_lie))
against_coordinator(
    "another message version", "the wire format", "refused a letter.*speaks message version", quick=True
)(_sends(lambda caller, scene: caller.letter("answer", "k", b"", version=MESSAGE_VERSION + 1)))


def _nested(caller: Caller, scene: Scene) -> None:
    header = b"[" * 1_000_000
    caller.raw(b"VCMS" + (1).to_bytes(2, "little") + len(header).to_bytes(4, "little") + header)


against_coordinator(
    "a header of a million brackets", "the wire format", "refused a letter from left: the header cannot"
)(_sends(_nested))


def _replay(caller: Caller, scene: Scene) -> None:
    caller.letter("answer", "k", b"")
    caller.raw(caller.sent[-1])


against_coordinator(
    "a letter sent again", "serial numbers", "refused a letter from left: it was received before", quick=True
)(_sends(_replay))


@against_coordinator(
    "a captured letter of an earlier session", "session numbers", "refused a letter from left: it belongs to an earlier"
)
def earlier_session(scene: Scene) -> None:
    with Caller(scene.kit("left")) as caller:
        caller.hello().letter("answer", "k", b"")
        captured = caller.sent[-1]
    with Caller(scene.kit("left")) as caller:
        caller.hello().raw(captured)
        time.sleep(0.3)


@against_coordinator(
    "a message of 1.5 GB", "gRPC, at its announced length", "a line of left has ended.*more than 1,073,741,824"
)
def oversized(scene: Scene) -> None:
    before = resident(scene.pid("server"))
    stream = RawStream(scene.kit("left"))
    sent = stream.send(1_500 * MEGABYTE)
    stream.close()
    assert sent < 100 * MEGABYTE, "the coordinator took it"
    assert resident(scene.pid("server")) - before < 100 * MEGABYTE


@against_coordinator(
    "400 letters of 1 MB, as fast as they go", "one frame of a line at a time", "refused a letter from left: the bytes"
)
def letter_flood(scene: Scene) -> None:
    before = resident(scene.pid("server"))
    with Caller(scene.kit("left")) as caller:
        caller.hello()
        for _ in range(400):
            caller.raw(bytes(MEGABYTE))
            caller.sent.clear()
        time.sleep(3.0)
    assert resident(scene.pid("server")) - before < 150 * MEGABYTE


@against_coordinator(
    "a flood of hellos, each a new session", "a limit on greetings", "refused a letter from left: too many", quick=True
)
def hello_flood(scene: Scene) -> None:
    with Caller(scene.kit("left")) as caller:
        caller.connect()
        for number in range(2_000):
            caller.say_hello(f"session-{number}")
        time.sleep(1.0)
        assert caller.received.qsize() < 100


@against_coordinator("forty lines of one party at once", "a limit on lines", "refused a line of left")
def many_lines(scene: Scene) -> None:
    streams = [RawStream(scene.kit("left")) for _ in range(40)]
    scene.log("server").wait("refused a line of left")
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
        time.sleep(0.5)
    assert not canary.sang


@against_coordinator(
    "a pickle as a letter", "the wire format", "refused a letter from left: the bytes are not", quick=True
)
def pickle_as_letter(scene: Scene) -> None:
    canary = scene.canary()
    with Caller(scene.kit("left")) as caller:
        caller.hello().raw(canary.pickled())
        time.sleep(0.5)
    assert not canary.sang


@against_coordinator("a pickle as the lead's question", "the wire format", "refused the study lead: the bytes are not")
def pickle_as_question(scene: Scene) -> None:
    canary = scene.canary()
    with Caller(scene.kit("lead")) as caller:
        caller.hello().letter("ask", "k", canary.pickled())
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
            before = lead.ask(StatusRequest()).studies
            try:
                lead.ask(make(scene))
            except VerticopulaError:
                assert lead.ask(StatusRequest()).studies == before
                return
        raise AssertionError("it was accepted")

    return run


against_coordinator(
    "a study with a method nobody wrote (os.system)",
    "the settings' names",
    "refused the study lead: unknown method",
    quick=True,
)(_refuses(lambda scene: _submission(scene, settings={"method": "os.system"})))
against_coordinator(
    "a study with a setting that names code", "the settings' names", "refused the study lead: .*does not know"
)(_refuses(lambda scene: _submission(scene, settings={"method": "vcds", "executor": "os.system"})))
against_coordinator(
    "a regression whose penalty is a class", "the settings' names", "refused the study lead: unknown penalty"
)(_refuses(lambda scene: _submission(scene, "regression", settings={"penalty": "subprocess.Popen"})))
against_coordinator("settings of ten thousand brackets", "JSON, bounded", "refused the study lead: .*cannot be read")(
    _refuses(lambda scene: replace(_submission(scene), settings="[" * 9_999))
)
against_coordinator(
    "a study for another federation file", "the federation's fingerprint", "refused the study lead: the federation file"
)(_refuses(lambda scene: _submission(scene, federation=federation_fingerprint(_altered(scene.net.federation)))))
against_coordinator(
    "a study's name that leads to another folder", "names of studies", "refused the study lead: no study of that name"
)(_refuses(lambda scene: ResultRequest("../../authority")))
against_coordinator("a deadline that never comes", "checked when resuming", "refused the study lead: the deadline")(
    _refuses(lambda scene: ResumeRequest("any", float("nan")))
)


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
    "a party that asks what only the lead may", "roles", "refused a letter from left: a party answers", quick=True
)(_sends(lambda caller, scene: caller.letter("ask", "k", encode(StatusRequest()))))
against_coordinator("a lead that answers", "roles", "refused a letter from lead: the study lead asks")(
    lambda scene: _as_lead(scene, lambda caller: caller.letter("answer", "k", b""))
)


def _as_lead(scene: Scene, act: Callable[[Caller], None]) -> None:
    with Caller(scene.kit("lead")) as caller:
        act(caller.hello())
        time.sleep(0.3)


@contextlib.contextmanager
def _asked(scene: Scene, *names: str) -> Iterator[tuple[Lead, str, list[Caller], list[Envelope]]]:
    """A study whose parties are the intruder's; yields the question that each was asked."""
    with contextlib.ExitStack() as stack:
        callers = [stack.enter_context(Caller(scene.kit(name))).hello() for name in names]
        lead = stack.enter_context(Lead(scene.kit("lead")))
        study = lead.ask(_submission(scene, deadline=20.0)).study
        yield lead, study, callers, [caller.wait_for("ask") for caller in callers]


@against_coordinator(
    "an answer to another party's question", "one question a party", "dropped: answer of left to a question"
)
def answer_for_another(scene: Scene) -> None:
    with _asked(scene, "left", "right") as (lead, study, (left, right), (_, asked)):
        wrong = fingerprint(OpenRequest(study, "vcds", "", "hash", None, 0, ""))
        left.letter("answer", wrong, encode(ReviewReply("right")))
        right.letter("refusal", asked.key, encode(Refusal("PolicyRefused", "enough")))
        scene.net.wait(lead, study)


@against_coordinator("an answer after the round", "closed questions", "dropped: answer of left to a question")
def answer_too_late(scene: Scene) -> None:
    with _asked(scene, "left") as (lead, study, (left,), (asked,)):
        left.letter("refusal", asked.key, encode(Refusal("PolicyRefused", "enough")))
        scene.net.wait(lead, study)
        left.letter("answer", asked.key, encode(ReviewReply("left")))
        time.sleep(0.3)


@against_coordinator(
    "an answer in another party's name", "names in answers", "failed in round 1: party 'left' answered under"
)
def answer_as_another(scene: Scene) -> None:
    with _asked(scene, "left", "middle", "right") as (lead, study, callers, asked):
        for caller, question in zip(callers, asked, strict=True):
            name = "right" if caller.kit.name == "left" else caller.kit.name
            empty = np.zeros((1, 16), dtype=np.uint8)
            reply = OpenReply(name, np.zeros(32, dtype=np.uint8), empty, False, 0, "")
            caller.letter("answer", question.key, encode(reply))
        assert scene.net.wait(lead, study)[0] == "failed"


@against_coordinator(
    "an answer that is a pickle", "the wire format", "failed in round 1: party '\\w+': the bytes are not"
)
def pickle_as_answer(scene: Scene) -> None:
    canary = scene.canary()
    with _asked(scene, "left", "middle", "right") as (lead, study, callers, asked):
        for caller, question in zip(callers, asked, strict=True):
            caller.letter("answer", question.key, canary.pickled())
        assert scene.net.wait(lead, study)[0] == "failed"
    assert not canary.sang


@against_coordinator(
    "a refusal with terminal escapes and markup", "texts are made plain", "failed in round 1:.*All is well", quick=True
)
def hostile_refusal(scene: Scene) -> None:
    with _asked(scene, "left") as (lead, study, (left,), (asked,)):
        left.letter("refusal", asked.key, encode(Refusal("SystemExit", ESCAPES * 100)))
        state, note = scene.net.wait(lead, study)
        assert state == "failed"
        assert note.isprintable()
        assert len(note) <= 500
    text = scene.log("server").text
    assert "\x1b" not in text
    assert "\u202e" not in text


@against_coordinator(
    "a refusal with a text of 1 MB", "the wire format", "refused a letter from left: a text has more than 10000"
)
def long_refusal(scene: Scene) -> None:
    with _asked(scene, "left") as (lead, study, (left,), (asked,)):
        honest = encode(Refusal("ProtocolError", "X"))
        header = honest[10:].replace(b'"X"', b'"' + b"x" * MEGABYTE + b'"')
        left.letter("refusal", asked.key, honest[:6] + len(header).to_bytes(4, "little") + header)
        time.sleep(0.5)
        left.letter("refusal", asked.key, encode(Refusal("ProtocolError", "enough")))
        scene.net.wait(lead, study)


# ---- a coordinator that oversteps ------------------------------------------------------------------


def _altered(federation: Federation) -> Federation:
    said = federation.to_dict()
    said["party"][0]["column"][1]["bounds"] = [-1, 1]
    return Federation.from_dict(said)


def _opening(scene: Scene, study: str = "study", **changes: Any) -> OpenRequest:
    request = OpenRequest(study, "vcds", federation_fingerprint(scene.net.federation), "hash", None, 0, "")
    return replace(request, **changes)


def _release(study: str = "study", **changes: Any) -> ReleaseRequest:
    orders = (ColumnOrder("y", 0.1, 0.1), ColumnOrder("x1", 0.1, 0.1))
    return replace(ReleaseRequest(study, "vcds", "exact", orders), **changes)


def _opened(scene: Scene, party: str = "left") -> EvilCoordinator:
    """The study, open and with a cohort at this party."""
    evil = scene.evil
    reply = evil.ask(party, _opening(scene))
    assert isinstance(reply, OpenReply), reply
    n_rows = reply.hashes.shape[0]
    place = PlaceRequest("study", 120, np.arange(n_rows, dtype=np.int64))
    assert not isinstance(evil.ask(party, place), Refusal)
    return evil


def _is_refused(make: Callable[[Scene], Any], party: str = "left", *, opened: bool = True) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        evil = _opened(scene, party) if opened else scene.evil
        before = scene.net.ledger(party)
        reply = evil.ask(party, make(scene))
        assert isinstance(reply, Refusal), reply
        assert scene.net.ledger(party) == before

    return run


_MUCH = (ColumnOrder("y", 5.0, 5.0), ColumnOrder("x1", 5.0, 5.0))

against_party(
    "epsilon beyond the cap", "its policy", "refused: party 'left': epsilon per client would become", quick=True
)(_is_refused(lambda scene: ReviewRequest(_release(orders=_MUCH))))


@against_party(
    "more epsilon than was reviewed, beyond the cap", "its policy, again", "refused: party 'left': epsilon per client"
)
def more_than_reviewed(scene: Scene) -> None:
    evil = _opened(scene)
    assert isinstance(evil.ask("left", ReviewRequest(_release())), ReviewReply)
    assert isinstance(evil.ask("left", _release(orders=_MUCH)), Refusal)
    assert scene.net.ledger("left") == []


against_party(
    "more rounds than were reviewed, beyond the cap", "its policy", "refused: party 'left': epsilon per client"
)(_is_refused(lambda scene: ReviewRequest(_release(), rounds=1_000)))
against_party("another sampler than it knows", "its rules", "refused: party 'left' does not know the sampler")(
    _is_refused(lambda scene: _release(sampler="none"))
)
against_party("an epsilon that is infinite", "its rules", "refused: party 'left', column 'y': epsilon must be")(
    _is_refused(lambda scene: _release(orders=(ColumnOrder("y", float("inf"), 1.0),)))
)
against_party("a column that it does not hold", "its rules", "refused: party 'left': the request names columns")(
    _is_refused(lambda scene: _release(orders=(ColumnOrder("x2", 0.1, 0.1),)))
)
against_party("the same column twice", "its rules", "refused: party 'left': the request names columns twice")(
    _is_refused(lambda scene: _release(orders=(ColumnOrder("y", 0.1, 0.1),) * 2))
)
against_party(
    "a method that the policy does not name",
    "its policy",
    "refused: party 'left' does not take part in method",
    quick=True,
)(_is_refused(lambda scene: _opening(scene, "other", method="raw-glm"), opened=False))
against_party(
    "another method than the study was opened for",
    "what was agreed",
    "refused: party 'left': this study was opened for",
)(_is_refused(lambda scene: _release(method="evcds")))
against_party(
    "a column that is not shared", "its policy", "refused: party 'middle' does not share column", party="middle"
)(_is_refused(lambda scene: _opening(scene), "middle", opened=False))
against_party(
    "too few people",
    "its policy",
    "refused: party 'right', column 'x3': 120 observed subjects are fewer",
    party="right",
)(
    _is_refused(
        lambda scene: ReviewRequest(_release(orders=(ColumnOrder("x3", 0.1, 0.1), ColumnOrder("x4", 0.1, 0.1)))),
        "right",
    )
)
against_party(
    "noise from a seed that the coordinator knows",
    "its policy",
    "refused: party 'left' does not take part in seeded",
    quick=True,
)(_is_refused(lambda scene: _opening(scene, "seeded", seed=1), opened=False))
against_party(
    "another federation file",
    "the federation's fingerprint",
    "refused: party 'left': the coordinator's federation",
    quick=True,
)(
    _is_refused(
        lambda scene: _opening(scene, "altered", federation=federation_fingerprint(_altered(scene.net.federation))),
        opened=False,
    )
)
against_party(
    "a release in a study that was never opened", "what was agreed", "refused: party 'left' was not asked to open"
)(_is_refused(lambda scene: _release("unknown"), opened=False))
against_party(
    "a study opened again with another cohort",
    "what was agreed",
    "refused: party 'left': the cohort of this study is settled",
)(_is_refused(lambda scene: PlaceRequest("study", 120, np.arange(120, dtype=np.int64)[::-1].copy())))
against_party("places outside the cohort", "checks on arrays", "refused: party 'left': a place lies outside")(
    _is_refused(lambda scene: PlaceRequest("study", 120, np.arange(120, dtype=np.int64) + 10**9))
)
against_party(
    "a name with terminal escapes for a study", "names of studies", "refused: party 'left': a study's name has"
)(_is_refused(lambda scene: _opening(scene, ESCAPES), opened=False))
against_party("a ledger that was never seen, as witness", "its ledger", "refused: .*ledger")(
    _is_refused(lambda scene: _opening(scene, "witness", witness_count=50, witness_head="0" * 64), opened=False)
)


# ---- strict studies ------------------------------------------------------------------------


def _opened_strict(scene: Scene) -> EvilCoordinator:
    """A strict study, open and with a cohort at the left party."""
    evil = scene.evil
    reply = evil.ask("left", _opening(scene, _STRICT, method="strict"))
    assert isinstance(reply, OpenReply), reply
    places = np.arange(reply.hashes.shape[0], dtype=np.int64)
    assert not isinstance(evil.ask("left", PlaceRequest(_STRICT, 120, places)), Refusal)
    return evil


def _strict_is_refused(make: Callable[[Scene, EvilCoordinator], Any]) -> Callable[[Scene], None]:
    def run(scene: Scene) -> None:
        evil = _opened_strict(scene)
        before = scene.net.ledger("left")
        reply = evil.ask("left", make(scene, evil))
        assert isinstance(reply, Refusal), reply
        assert scene.net.ledger("left") == before

    return run


_STRICT = "strict-study"


def _margin_orders(deviation: float) -> tuple[MarginOrder, ...]:
    return MarginOrder("y", deviation), MarginOrder("x1", deviation)


def _share_request(scene: Scene, evil: EvilCoordinator, *, forged: bool) -> SumsShareRequest:
    """Everybody's keys: the left party's own, and for the others keys of the coordinator's, signed by whom it can."""
    widths, names = {"left": 2, "middle": 1, "right": 2}, ("left", "middle", "right")
    plan = make_plan(widths, np.ones((120, 5), dtype=bool), 0.01, 1.5, names)
    kits = {name: scene.kit("server" if forged else name) for name in names}
    posts = [SealedPost(_STRICT, name, bytes(32), certificate_authenticity(kits[name])) for name in names[1:]]
    own = evil.ask("left", SumsKeyRequest(_STRICT, "strict")).key
    return SumsShareRequest(_STRICT, "strict", plan, (own, *(post.introduce() for post in posts)))


against_party("margins of a strict study beyond the cap", "its policy", "refused: party 'left': epsilon per client")(
    _strict_is_refused(lambda scene, evil: GaussianMarginsRequest(_STRICT, "strict", _margin_orders(0.5)))
)
against_party(
    "a strict review whose sums go beyond the cap", "its policy", "refused: party 'left': epsilon per client"
)(_strict_is_refused(lambda scene, evil: StrictReviewRequest(_STRICT, "strict", _margin_orders(50.0), 3.0)))
against_party("margins without noise", "its rules", "refused: party 'left', column 'y': the noise cannot be")(
    _strict_is_refused(lambda scene, evil: GaussianMarginsRequest(_STRICT, "strict", _margin_orders(0.0)))
)
against_party(
    "the coordinator's own keys in place of the parties'",
    "signatures by certificates",
    "refused: party 'left': the public key of 'middle' is not signed by it",
)(_strict_is_refused(lambda scene, evil: _share_request(scene, evil, forged=True)))
against_party("secure sums before margins", "its rules", "refused: party 'left' has sent no margins in this study")(
    _strict_is_refused(lambda scene, evil: _share_request(scene, evil, forged=False))
)
against_party(
    "secure sums in a study of another method", "what was agreed", "refused: party 'left': this study was opened for"
)(_is_refused(lambda scene: SumsKeyRequest("study", "strict")))


def _question(scene: Scene, body: bytes, key: str = "k", party: str = "left") -> None:
    scene.evil.send(party, "ask", key, body)
    time.sleep(0.3)


@against_party(
    "a request of an unknown type", "the wire format", "refused: the message is of a type that is not", quick=True
)
def unknown_request(scene: Scene) -> None:
    _question(scene, encode(StatusRequest()))


@against_party("a request to run code", "the wire format", "refused: the message is of a type that is not")
def code_request(scene: Scene) -> None:
    header = json.dumps({"kind": "RunRequest", "fields": {"code": "import os", "version": MESSAGE_VERSION}}).encode()
    _question(scene, b"VCMS" + (1).to_bytes(2, "little") + len(header).to_bytes(4, "little") + header)


@against_party("a pickle as a question", "the wire format", "refused: the bytes are not a message", quick=True)
def pickled_question(scene: Scene) -> None:
    canary = scene.canary()
    _question(scene, canary.pickled())
    time.sleep(0.5)
    assert not canary.sang


@against_party(
    "a FLARE job for the party's cell network, pickled", "nobody listens there", "F3 application 1 is not served"
)
def job_for_party(scene: Scene) -> None:
    canary = scene.canary()
    scene.evil.raw("left", canary.pickled(), FLARE_CELLS)
    time.sleep(0.5)
    assert not canary.sang


@against_party("a question under another question's key", "keys are fingerprints", "refused: the question's key is not")
def wrong_key(scene: Scene) -> None:
    _question(scene, encode(_opening(scene)), key=fingerprint(_release()))


@against_party("another message version in a question", "the wire format", "refused: this side speaks message version")
def party_version(scene: Scene) -> None:
    _question(scene, encode(replace(_opening(scene), version=MESSAGE_VERSION + 1)))


@against_party("an answer to a party", "roles", "refused a letter from coordinator: a party is asked")
def answer_to_party(scene: Scene) -> None:
    scene.evil.send("left", "answer", "k", encode(ReviewReply("left")))


@against_party(
    "a question sent again by hand", "serial numbers", "refused a letter from coordinator: it was received before"
)
def question_replayed(scene: Scene) -> None:
    post = scene.evil.post
    session = post._peers["left"].session
    body = np.frombuffer(encode(_opening(scene, "again")), dtype=np.uint8)
    letter = encode(Envelope("ask", session, next(post._peers["left"].serials), "k", body))
    scene.evil.raw("left", letter)
    scene.evil.raw("left", letter)


@against_party(
    "a question of an earlier session", "session numbers", "refused a letter from coordinator: it belongs to an"
)
def question_of_old(scene: Scene) -> None:
    scene.evil.raw("left", encode(Envelope("ask", "0" * 32, 10**6, "k", np.zeros(0, dtype=np.uint8))))


@against_party(
    "ten thousand questions at once", "a limit on open questions", "refused a letter from coordinator: more than 16"
)
def question_flood(scene: Scene) -> None:
    before = resident(scene.pid("left"))
    for number in range(10_000):
        scene.evil.post.send("left", "ask", f"{number}", bytes(10_000))
    scene.log("left").wait("more than 16 questions")
    time.sleep(5.0)
    assert resident(scene.pid("left")) - before < 100 * MEGABYTE
    while not scene.evil.answers.empty():
        scene.evil.answers.get()


# ---- the lead's side -------------------------------------------------------------------------------


class _EvilForLead(EvilCoordinator):
    """Answers the lead whatever it is told to."""

    def __init__(self, kit: Any, state: StudyState, files: tuple[ResultFile, ...]) -> None:
        super().__init__(kit)
        self._state, self._files = state, files
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        while True:
            peer, _, key, body = self.answers.get()
            reply: Any = StatusReply((), (self._state,))
            if b'"SubmitRequest"' in body:
                reply = SubmitReply(self._state.study)
            elif b'"ResultRequest"' in body:
                reply = ResultReply(self._files)
            self.post.send(peer, "answer", key, encode(reply))


def _submit(scene: Scene, state: StudyState, files: tuple[ResultFile, ...] = ()) -> tuple[str, Path]:
    """What `verticopula submit` says when this coordinator answers it, and where it writes."""
    out = scene.own_folder()
    folder = scene.net.folder
    with _EvilForLead(scene.kit("server"), state, files):
        command = ["submit", folder / "federation.toml", "--kit", folder / "kits" / "lead", "--out", out]
        done = subprocess.run(
            [sys.executable, "-m", "verticopula", *map(str, command)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, "COLUMNS": "300"},
        )
    assert done.returncode == 1, done
    return " ".join((done.stdout + done.stderr).split()), out


_DONE = StudyState("study", "vcds", "done", 1, (), "")


@attack("a result file that leads out of the folder", "lead", "lead", "names of files", "leads out of its folder")
def result_outside(scene: Scene) -> str:
    stolen = ResultFile("../../stolen.txt", np.zeros(3, dtype=np.uint8))
    said, out = _submit(scene, _DONE, (stolen,))
    assert not (out / "../../stolen.txt").exists()
    assert "leads out of its folder" in said
    return said


@attack("a failed study's note with terminal escapes", "lead", "lead", "texts are made plain", "All is well")
def hostile_note(scene: Scene) -> str:
    said, _ = _submit(scene, StudyState("study", "vcds", "failed", 1, (), ESCAPES))
    assert "All is well" in said
    assert "\x1b" not in said
    assert "\u202e" not in said
    return said


def in_scene(where: Where, *, quick: bool = False) -> list[Attack]:
    """The table's rows for one scene, in its order."""
    return [row for row in ATTACKS if row.where == where and (row.quick or not quick)]


@contextlib.contextmanager
def scene_of(where: Where, folder: Path, *, quick: bool = False) -> Iterator[Scene]:
    if where == "coordinator":
        with coordinator_alone(folder) as scene:
            yield scene
    elif where == "party":
        with parties_alone(folder, *(["left"] if quick else ["left", "middle", "right"])) as scene:
            yield scene
    else:
        with nobody_yet(folder) as scene:
            yield scene
