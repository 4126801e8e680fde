"""`verticopula` as it is, except that the process breaks where a plan says: `python breaking.py join ...`.

The plan is `faults/NAME.plan` below the current folder, one fault a line. Only the first that has not happened is
armed, and it is written to `faults/NAME.done` before it happens, so it happens once, whoever is started again.
`python breaking.py process_starter` imports everything once and then forks a process for every line that it reads: real
processes as well, which are there in a tenth of the time.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

FAULTS = Path("faults")
EVENTS = FAULTS / "events.jsonl"
PART_BYTES = FAULTS / "part-bytes"  # of messages in parts, where they are to be short
LONG_REQUEST = "long request"  # the round of parts of a request, which its receiver cannot read before the last

_ROUNDS = {
    "CompletedRanksRequest": "ranks",
    "GaussianMarginsRequest": "margins",
    "SumsKeyRequest": "keys",
    "EnteringColumnsRequest": "columns",
    "MomentsKeyRequest": "moment keys",
    "CrossMomentsRequest": "cross moments",
    "SumsShareRequest": "shares",
    "SumsProofRequest": "proof",
}
# replies that follow from a study's record
_RECORDED = ("consent", "agreement", "keys", "shares", "proof", "sums", "tables")
_DISK_IS_FULL = "NOSPACE"


def name_round(request: Any) -> str:
    """What a round is called in plans and tables: `release`, `ranks 2`, `columns 3`, `proof point`."""
    kind = type(request).__name__
    name = _ROUNDS.get(kind, kind.removesuffix("Request").lower())
    number = getattr(request, "round_number", getattr(request, "number", getattr(request, "step", None)))
    return name if number is None or (isinstance(number, int) and number < 0) else f"{name} {number}"


class Breaker:
    """Knows which round this process is in, and breaks it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._here = threading.local()  # a party answers questions beside other requests
        self._breaking = threading.Lock()
        self.rounds: dict[str, str] = {}  # by the key of the request
        self._plan, self._done = FAULTS / f"{name}.plan", FAULTS / f"{name}.done"

    @property
    def round(self) -> str:
        """The round that this thread is in."""
        return str(getattr(self._here, "round", ""))

    @round.setter
    def round(self, name: str) -> None:
        self._here.round = name

    @property
    def paid_by(self) -> str:
        """Under which key the ledger has what this thread's round costs."""
        return str(getattr(self._here, "paid_by", ""))

    @paid_by.setter
    def paid_by(self, key: str) -> None:
        self._here.paid_by = key

    def armed(self, point: str) -> dict[str, Any] | None:
        """The fault that is to happen here and now."""
        if not self._plan.exists():
            return None
        happened = len(self._done.read_text("utf-8").splitlines()) if self._done.exists() else 0
        left = [json.loads(line) for line in self._plan.read_text("utf-8").splitlines()][happened:]
        is_here = bool(left) and left[0]["point"] == point and left[0]["round"] == self.round
        return left[0] if is_here else None

    def at(self, point: str) -> None:
        with self._breaking:  # threads of several connections: it happens once
            fault = self.armed(point)
            if fault is not None:
                self.happen(fault)

    def happen(self, fault: dict[str, Any], ledgers: dict[str, str] | None = None) -> None:
        held = digest_ledgers() if ledgers is None else ledgers
        append_line(self._done, {**fault, "time": time.time(), "ledgers": held})
        if fault["signal"] == _DISK_IS_FULL:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.kill(os.getpid(), signal.Signals[fault["signal"]])
        if fault["signal"] != "SIGTERM":
            time.sleep(0.1)  # not a step further

    def tell(self, **event: Any) -> None:
        append_line(EVENTS, {"time": time.time(), "who": self.name, "round": self.round, **event})


def digest_ledgers(folder: Path = Path()) -> dict[str, str]:
    """What every party's ledger below this folder holds at this moment."""
    found = sorted((folder / "kits").glob("*/vault/ledger.jsonl"))
    return {path.parts[-3]: hashlib.sha256(path.read_bytes()).hexdigest() for path in found if path.stat().st_size}


def append_line(path: Path, record: dict[str, Any]) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, json.dumps(record).encode() + b"\n")
        os.fsync(handle)
    finally:
        os.close(handle)


def break_party(breaker: Breaker) -> None:
    """Points, in the order in which a release passes them: asked, unrecorded, half recorded, recorded uncounted,
    recorded, drawn, half stored, stored uncounted, stored, answered, sent. A regression's columns are kept nowhere:
    they are asked, answered, sent. A step of secure sums is `drawn` when its noise, or what the party binds itself to,
    is about to be kept, and consent or an agreement when its record is about to be."""
    from verticopula.network.connection.control_messages import ChangeRequest
    from verticopula.network.connection.sessions import PeerSessions
    from verticopula.network.party.party_process import PartyProcess
    from verticopula.protocol.messages import REQUEST_KINDS, fingerprint
    from verticopula.protocol.wire import decode
    from verticopula.storage import blobs
    from verticopula.storage.ledger import Ledger
    from verticopula.storage.vault import Vault

    reply_to, send, append, put = PartyProcess._reply_to, PeerSessions.send, Ledger.append, blobs.FolderBlobs.put
    write, count_entries, count_replies = blobs.write_atomically, Vault._entries_written, Vault._reply_written

    def breaking_reply_to(self: Any, key: str, body: bytes | Path) -> Any:
        request = decode(body, (*REQUEST_KINDS, ChangeRequest))
        breaker.round = breaker.rounds[key] = name_round(request)
        breaker.paid_by = fingerprint((breaker.name, request))
        breaker.at("asked")
        result = reply_to(self, key, body)
        breaker.at("answered")
        return result

    def breaking_send(self: Any, peer: str, topic: Any, key: str, body: bytes | Path, *study: str) -> bool:
        if topic not in ("answer", "refusal"):
            return send(self, peer, topic, key, body, *study)
        content = body.read_bytes() if isinstance(body, Path) else body
        ledger = Path("kits") / breaker.name / "vault" / "ledger.jsonl"
        paid = ledger.read_text("ascii").count(f'"request": "{breaker.paid_by}"') if ledger.exists() else 0
        # A party that was started anew may ask for the bodies first: that says nothing about anybody.
        said = "lacks bodies" if b'"lacks_bodies":true' in content[:1000] else topic
        breaker.tell(what=said, key=key, digest=hashlib.sha256(content).hexdigest(), paid=paid)
        fault, ledgers = breaker.armed("sent"), digest_ledgers()  # then: other threads answer the next round meanwhile
        sent = send(self, peer, topic, key, body, *study)
        if fault is not None:
            time.sleep(0.1)  # the link sends from a thread of its own
            breaker.happen(fault, ledgers)
        return sent

    def breaking_append(self: Any, releases: Any, *rest: Any, **more: Any) -> None:
        entries = list(releases)
        breaker.at("unrecorded")
        if (fault := breaker.armed("half recorded")) is not None:
            lines = "".join(entry.to_json() + "\n" for entry in self._seal(entries)).encode("ascii")
            with self.path.open("ab") as file:
                file.write(lines[: len(lines) - len(lines) // (2 * len(entries))])
            breaker.happen(fault)
        append(self, entries, *rest, **more)
        breaker.at("recorded")

    def is_watched(folder: Path) -> bool:
        recorded = breaker.round.split(" ")[0] in _RECORDED
        return folder.name in ("replies", "fits") or (folder.name == "studies" and recorded)

    def breaking_put(self: Any, key: str, data: bytes) -> None:
        watched = is_watched(self.folder)
        if watched:
            breaker.at("drawn")
        put(self, key, data)
        if watched:
            breaker.at("stored")

    def breaking_write(path: Path, data: bytes, **more: Any) -> None:
        if is_watched(path.parent) and (fault := breaker.armed("half stored")) is not None:
            path.with_name(path.name + ".tmp").write_bytes(data[: len(data) // 2])
            breaker.happen(fault)
        write(path, data, **more)

    def breaking_count_entries(self: Any, *arguments: Any) -> None:
        breaker.at("recorded uncounted")
        count_entries(self, *arguments)

    def breaking_count_replies(self: Any) -> None:
        breaker.at("stored uncounted")
        count_replies(self)

    PartyProcess._reply_to, PeerSessions.send = breaking_reply_to, breaking_send  # type: ignore[method-assign]
    Ledger.append, blobs.FolderBlobs.put = breaking_append, breaking_put  # type: ignore[method-assign]
    blobs.write_atomically = breaking_write
    Vault._entries_written, Vault._reply_written = breaking_count_entries, breaking_count_replies  # type: ignore[method-assign]


def break_coordinator(breaker: Breaker) -> None:
    """Points of a round, in order: asking, asked, answered, half kept, kept; failing. Of the round `result`: half
    written, renamed, done."""
    from verticopula.network.coordinator import study_runner
    from verticopula.network.coordinator.network_transport import NetworkTransport, PendingRequests
    from verticopula.network.coordinator.study_records import StudyStore
    from verticopula.storage.round_journal import Journal

    deliver, await_replies, send_open = (
        NetworkTransport.deliver,
        PendingRequests.await_replies,
        PendingRequests._send_open,
    )
    append, change, write_study = Journal.append, StudyStore.change, study_runner.write_study

    def breaking_deliver(self: Any, requests: Any) -> Any:
        breaker.round = name_round(next(iter(requests.values())))
        return deliver(self, requests)

    def breaking_await_replies(self: Any, requests: Any, *arguments: Any, **more: Any) -> Any:
        breaker.rounds.update({key: breaker.round for key, _ in requests.values()})
        breaker.tell(what="asking")
        breaker.at("asking")
        replies = await_replies(self, requests, *arguments, **more)
        breaker.at("answered")
        return replies

    def breaking_send_open(self: Any, names: tuple[str, ...]) -> None:
        send_open(self, names)
        if any(pending.sent is not None for pending in self._requests.values()):
            breaker.at("asked")

    def breaking_append(self: Any, keys: Any, replies: Any) -> None:
        if (fault := breaker.armed("half kept")) is not None:
            before = self._path.stat().st_size
            append(self, keys, replies)
            os.truncate(self._path, (before + self._path.stat().st_size) // 2)
            breaker.happen(fault)
        append(self, keys, replies)
        breaker.tell(what="kept")
        breaker.at("kept")

    def breaking_change(self: Any, study: str, **changes: Any) -> Any:
        if changes.get("state") == "failed":
            breaker.at("failing")
        if changes.get("state") != "done":
            return change(self, study, **changes)
        breaker.round = "result"
        breaker.at("renamed")
        record = change(self, study, **changes)
        breaker.at("done")
        return record

    def breaking_write_study(out: Path, *arguments: Any) -> Any:
        written = write_study(out, *arguments)
        breaker.round = "result"
        if (fault := breaker.armed("half written")) is not None:
            for path in written[::2]:
                os.truncate(path, path.stat().st_size // 2)
            breaker.happen(fault)
        return written

    NetworkTransport.deliver, PendingRequests.await_replies = breaking_deliver, breaking_await_replies  # type: ignore[method-assign]
    PendingRequests._send_open, Journal.append = breaking_send_open, breaking_append  # type: ignore[method-assign]
    StudyStore.change, study_runner.write_study = breaking_change, breaking_write_study  # type: ignore[method-assign]


def break_parts(breaker: Breaker) -> None:
    """Points of a part, in order: part asked for, part sent; at its receiver: part came, part kept."""
    from verticopula.network.connection import flare_link, part_messages, sessions
    from verticopula.network.connection.message_parts import MessageParts

    if not PART_BYTES.exists():
        return
    part_messages.LEAST_PART = flare_link.LEAST_PART = 1
    flare_link.part_bytes_of = sessions.part_bytes_of = lambda kit: int(PART_BYTES.read_text("ascii"))
    on_part, on_request = MessageParts.on_part, MessageParts.on_request

    def breaking_on_part(self: Any, peer: str, key: str, part: Any) -> None:
        breaker.round = breaker.rounds.get(key, LONG_REQUEST)
        breaker.at("part came")
        on_part(self, peer, key, part)
        breaker.tell(what="part kept", key=key, name=part.name, number=part.number)
        breaker.at("part kept")

    def breaking_on_request(self: Any, peer: str, key: str, request: Any) -> None:
        breaker.round = breaker.rounds.get(key, LONG_REQUEST)
        breaker.at("part asked for")
        on_request(self, peer, key, request)
        if breaker.armed("part sent") is not None:
            time.sleep(0.1)  # the link sends from a thread of its own
            breaker.at("part sent")

    MessageParts.on_part, MessageParts.on_request = breaking_on_part, breaking_on_request  # type: ignore[method-assign]


def reconnect_soon() -> None:
    """F3 waits 1 to 10 s before it connects again, longer each time; here always 1 s, so that tables of faults end."""
    from nvflare.fuel.f3.sfm import conn_manager

    conn_manager.MAX_WAIT = conn_manager.INIT_WAIT


def run(arguments: Sequence[str]) -> None:
    """One process of a kit; does not return before it ends."""
    from breaking_consent import break_coordinator_that_waits, break_party_that_waits, break_store

    from verticopula.cli.app import main

    FAULTS.mkdir(exist_ok=True)
    command, kit = arguments[:2]
    breaker = Breaker("steward" if command == "approve" else Path(kit).name)
    reconnect_soon()
    broken = {"serve": (break_coordinator, break_coordinator_that_waits), "approve": (break_store,)}
    for break_one in (break_parts, *broken.get(command, (break_party, break_store, break_party_that_waits))):
        break_one(breaker)
    sys.argv = ["verticopula", *arguments]
    main()


def process_starter() -> None:
    """Fork a process for every line of standard input, and write its number."""
    import verticopula.cli.app
    import verticopula.network.coordinator.coordinator_process
    import verticopula.network.party.party_process  # noqa: F401

    signal.signal(signal.SIGCHLD, _say_who_ended)
    for line in sys.stdin:
        order = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(order, run)
        print(child, flush=True)


def _say_who_ended(*_: Any) -> None:
    """Wait for children, and name those that nobody has killed: their end is no fault of a plan."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            if code not in (0, -signal.SIGKILL, -signal.SIGTERM):
                print(f"process {pid} has ended with {code}", file=sys.stderr, flush=True)


def _become(order: dict[str, Any], work: Callable[[Sequence[str]], None]) -> None:
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.chdir(order["folder"])
        output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        work(order["arguments"])
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    process_starter() if sys.argv[1:] == ["process_starter"] else run(sys.argv[1:])
