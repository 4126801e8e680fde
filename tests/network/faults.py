"""Studies whose processes are killed, stopped and restarted in chosen rounds, and what is true afterwards.

One study may meet many faults. When it is done, four things are checked, whatever happened: every party's ledger
says what an undisturbed study's says, neither more nor less; it said so before anything left; a release that was sent
twice was sent in the same bytes; and the tables are those that an undisturbed run makes of the stored releases.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from threadpoolctl import threadpool_limits

from tests.network.breaking import PART_BYTES, digest_ledgers, reconnect_soon
from tests.network.harness import LONG_DEADLINE, PARTIES, PATIENCE, Net, network, tables_beyond_a_copula
from verticopula.data.table_files import read_table
from verticopula.network.connection.control_messages import ResumeRequest
from verticopula.network.coordinator.study_records import StudyRecord, StudyStore
from verticopula.network.coordinator.study_runner import run_study
from verticopula.network.kit.key_signing import certificate_authenticity
from verticopula.network.kit.startup_kit import Kit
from verticopula.network.lead.study_lead import Lead
from verticopula.privacy.policy import Policy
from verticopula.privacy.release import Release
from verticopula.privacy.statement import state_privacy
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.party.member import Member
from verticopula.schema.methods import STRICT
from verticopula.storage.vault import Vault

Kind = Literal["kill", "stop", "restart", "full disk"]

SERVER, STEWARD = "server", "steward"  # a steward's command is a process, too
EVERYBODY = (SERVER, *PARTIES)
BREAKING = str(Path(__file__).with_name("breaking.py"))
SIGNALS: dict[Kind, str] = {"kill": "SIGKILL", "stop": "SIGSTOP", "restart": "SIGTERM", "full disk": "NOSPACE"}
METHODS: dict[str, dict[str, Any]] = {
    "vcds": {"method": "vcds", "epsilon": 8.0},
    "evcds": {"method": "evcds", "epsilon": 8.0},
    "ievcds": {"method": "ievcds", "epsilon": 8.0, "rounds": 3},
    "refined": {"method": "refined", "epsilon": 8.0},
    "strict": {"method": "strict", "epsilon": 100.0, "delta": 1e-6},  # enough for a table to be opened
    "raw-glm": {"kind": "regression", "family": "binomial", "penalty": "lasso", "n_strengths": 4},
    "raw-glm, second moments": {"kind": "regression", "family": "gaussian", "penalty": "lasso", "n_strengths": 4},
}
RELEASES = (  # replies that must never differ
    *("presence", "consent", "agreement", "release", "ranks", "response", "design", "columns"),
    *("margins", "keys", "shares", "proof", "sums", "tables", "moment keys", "moments", "cross moments"),
)
# In the order in which a release passes them, as far as they can follow one another: what is recorded once is not
# recorded again, so the points after that are in the second list.
RELEASE_POINTS = (
    ("asked", "unrecorded", "half recorded", "recorded uncounted", "drawn", "half stored", "stored uncounted", "sent"),
    ("recorded", "stored"),
)
DESIGN_POINTS = (
    ("asked", "unrecorded", "half recorded", "recorded uncounted", "drawn", "half stored", "stored", "sent"),
    ("recorded",),
)
SHARE_POINTS = (
    ("asked", "unrecorded", "half recorded", "recorded uncounted", "drawn", "half stored", "stored", "sent"),
    ("recorded",),
)
STEP_POINTS = (("asked", "drawn", "half stored", "stored", "sent"),)
COLUMNS_POINTS = (("asked", "answered", "sent"),)  # a party keeps nothing of them
SERVER_POINTS = ("asking", "asked", "answered", "half kept", "kept")
RESULT_POINTS = ("renamed", "done")
BEFORE_RELEASE = ("begin", "place", "presence", "consent", "agreement")  # no ledger has changed by then
STOP_DEADLINE = 2.0  # at least: ten times the longest round of an undisturbed study where that is longer
LONGER = 2.0  # by what a deadline grows that the machine itself has missed


@dataclass(frozen=True)
class Fault:
    """One thing that happens to one process, once.

    Attributes
    ----------
    round, point : see `breaking`
    """

    who: str
    kind: Kind
    round: str
    point: str

    @property
    def is_before_releases(self) -> bool:
        """Whether it happens before the coordinator can have seen that everybody agreed."""
        return self.round in BEFORE_RELEASE and (self.round, self.point) != (BEFORE_RELEASE[-1], "sent")


@dataclass
class InjectedFault:
    """A fault that happened, what every party's ledger held then, and how the study went on."""

    fault: Fault
    time: float
    ledgers: Mapping[str, str] = field(default_factory=dict)
    named_after: float | None = None
    outcome: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Reference:
    """An undisturbed study of one method."""

    method: str
    rounds: tuple[str, ...]
    budget: Mapping[str, Counter[tuple[Any, ...]]]
    tables: Mapping[str, bytes]
    stop_deadline: float


@dataclass(frozen=True)
class StudyOutcome:
    """A disturbed study after its end."""

    method: str
    study: str
    injected: tuple[InjectedFault, ...]
    problems: tuple[str, ...]
    is_budget_right: bool
    are_tables_same: bool
    entries: int
    resumed: int
    sent_again: int


class Child:
    """A process that the starter forked; as much of Popen as `Net` needs."""

    stdin = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._handle = os.pidfd_open(pid)

    def poll(self) -> int | None:
        return 0 if select.select([self._handle], [], [], 0.0)[0] else None

    def wait(self, timeout: float | None = None) -> int:
        if not select.select([self._handle], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return 0

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._handle, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@dataclass
class ProcessStarter:
    """Forks processes that are as good as started ones; `breaking.process_starter` is its other end."""

    process: subprocess.Popen[str]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, net: Net, name: str) -> None:
        kit = net.folder / "kits" / name
        role = {SERVER: "serve", net.federation.network.compute: "compute"}.get(name, "join")
        files = ["--data", f"{name}.csv", "--policy", f"{name}.toml"] if role == "join" else []
        arguments = [role, str(kit), *files]
        net.processes[name] = self.run(net, arguments, kit / "output.txt")  # type: ignore[assignment]

    def run(self, net: Net, arguments: Sequence[str], output: Path) -> Child:
        """A process of this command."""
        order = {"arguments": list(arguments), "folder": str(net.folder), "output": str(output)}
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with self._lock:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
            return Child(int(self.process.stdout.readline()))


@contextlib.contextmanager
def process_starter() -> Iterator[ProcessStarter]:
    small = {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, BREAKING, "process_starter"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **small, "PYTHONUNBUFFERED": "1", "GRPC_ENABLE_FORK_SUPPORT": "False"},
    ) as process:
        yield ProcessStarter(process)


@dataclass
class FaultyNetwork:
    """A federation whose processes break on order, and are started again."""

    net: Net
    lead: Lead
    process_starter: ProcessStarter | None = None
    references: dict[str, Reference] = field(default_factory=dict)
    signing: Path | None = None  # copies of the kits that a replay signs with, where they have been renewed since

    @property
    def records(self) -> StudyStore:
        return StudyStore(self.net.folder / "kits" / SERVER / "studies")

    def start(self, *names: str) -> None:
        for name in names:
            if self.process_starter is None:
                old = self.net.processes.get(name)
                if old is not None and old.stdin is not None:
                    old.stdin.close()
                self.net.start(name, program=(BREAKING,))
            else:
                self.process_starter.start(self.net, name)

    def stop(self, name: str) -> None:
        self.net.signal(name, signal.SIGTERM)
        self.net.wait_for_end(name)

    # ---- studies --------------------------------------------------------------------------

    def reference(self, method: str, **settings: Any) -> Reference:
        """An undisturbed study. It is the second: in the first, processes start, connect and compile."""
        key = json.dumps([method, settings])
        if key not in self.references:
            self._run_undisturbed(method, settings)
            start = time.time()
            study = self._run_undisturbed(method, settings)
            steps = [event for event in self.events(start) if event["what"] in ("asking", "kept")]
            # Where stewards were asked, a round is asked twice and kept once.
            kept = [(one, after) for one, after in itertools.pairwise(steps) if after["what"] == "kept"]
            assert all((one["what"], one["round"]) == ("asking", after["round"]) for one, after in kept)
            rounds = tuple(after["round"] for _, after in kept)
            # A deadline is for parties: what the coordinator computes between two rounds is no part of it.
            longest = max(after["time"] - before["time"] for before, after in kept)
            deadline = max(STOP_DEADLINE, math.ceil(10.0 * longest))  # a busy machine is slow, and nobody is stopped
            self.references[key] = Reference(method, rounds, self.budget(study), self.tables(study), deadline)
        return self.references[key]

    def _run_undisturbed(self, method: str, settings: dict[str, Any]) -> str:
        study = self.net.submit(self.lead, deadline=LONG_DEADLINE, **METHODS[method], **settings)
        record = self.wait_until(study, "done", "failed")
        assert record.state == "done", record.note
        return study

    def begin(self, method: str, faults: Sequence[Fault], deadline: float = LONG_DEADLINE, **settings: Any) -> str:
        """Hand in a study in which these faults will happen, each party's in this order."""
        self.plan(faults)
        return self.net.submit(self.lead, deadline=deadline, **METHODS[method], **settings)

    def resume(self, study: str, deadline: float = LONG_DEADLINE) -> None:
        self.lead.ask(ResumeRequest(study, deadline), seconds=PATIENCE)

    def run_with_faults(self, method: str, faults: Sequence[Fault], **settings: Any) -> StudyOutcome:
        """Run a study with these faults, treat them, resume it where it fails for them, until it is done."""
        reference = self.reference(method, **settings)
        stops = any(fault.kind == "stop" for fault in faults)
        deadline = reference.stop_deadline if stops else LONG_DEADLINE
        start, before = time.time(), digest_ledgers(self.net.folder)
        study = self.begin(method, faults, deadline, **settings)
        injected, resumed, problems = self._recover(study, faults, deadline)
        early = [one for one in injected if one.fault.is_before_releases]
        problems += [f"{one.fault}: a ledger changed before everybody agreed" for one in early if one.ledgers != before]
        self._measure(study, injected, start)
        is_seeded = settings.get("random_state") is not None
        wrong_budget = self.check_budget(reference, study, start)
        wrong_tables = self.check_tables(reference, study, is_seeded=is_seeded)
        problems += wrong_budget + wrong_tables
        left = [fault for fault in faults if fault not in {s.fault for s in injected}]
        problems += [f"did not happen: {fault}" for fault in left]
        return StudyOutcome(
            method,
            study,
            tuple(injected),
            tuple(problems),
            not wrong_budget,
            not wrong_tables,
            sum(len(self.entries(party, study)) for party in PARTIES),
            resumed,
            self._sent_again(start),
        )

    def plan(self, faults: Sequence[Fault]) -> None:
        """What happens from now on; what was planned before and did not happen is forgotten."""
        plan_faults(self.net.folder, (*EVERYBODY, STEWARD), faults)

    def next_faults(self) -> list[Fault]:
        """The fault of each process that is to happen next."""
        happened, found = Counter(one.fault.who for one in self.happened()), []
        for who in (*EVERYBODY, STEWARD):
            plan = self.net.folder / "faults" / f"{who}.plan"
            lines = plan.read_text("utf-8").splitlines() if plan.exists() else []
            found += [json.loads(line) for line in lines[happened[who] :][:1]]
        return [Fault(one["who"], one["kind"], one["round"], one["point"]) for one in found]

    def wait_for_faults(self, count: int) -> None:
        end = time.monotonic() + PATIENCE
        while len(self.happened()) < count:
            if time.monotonic() > end:
                raise TimeoutError("a planned fault does not happen")
            time.sleep(0.02)

    def wait_until_stopped(self, who: str) -> None:
        """Until the planned SIGSTOP has come; a SIGCONT before it would be lost."""
        self.wait_for_faults(1)
        stat = Path(f"/proc/{self.net.processes[who].pid}/stat")
        end = time.monotonic() + PATIENCE
        while stat.read_text("ascii").rpartition(") ")[2][0] != "T":
            assert time.monotonic() < end
            time.sleep(0.01)

    def go_on(self, who: str, *, killed: bool = False) -> None:
        """Let a process that was stopped go on; or kill it as it is, and start it again."""
        if killed:
            self.net.signal(who, signal.SIGKILL)
            self.start(who)
        else:
            self.net.signal(who, signal.SIGCONT)

    def _recover(
        self, study: str, faults: Sequence[Fault], deadline: float
    ) -> tuple[list[InjectedFault], int, list[str]]:
        injected: list[InjectedFault] = []
        problems: list[str] = []
        resumed, due = 0, 0  # `due`: failures that faults explain, and that are still to be resumed
        end = time.monotonic() + PATIENCE + 15.0 * len(faults)
        while time.monotonic() < end:
            ended = {name: process for name, process in self.net.processes.items() if process.poll() is not None}
            for new in self.happened(len(injected)):
                found, deadline = self._recover_from(study, new, deadline)
                problems += found
                injected.append(new)
                due += new.named_after is not None or new.fault.kind == "full disk"
            for name, process in ended.items():
                if self.net.processes[name] is process and not self.happened(len(injected)):
                    problems.append(f"{name} has ended, and no fault says so")
                    return injected, resumed, problems
            record = self.records.get(study)
            if record.state == "done" and len(injected) < len(faults):
                end = min(end, time.monotonic() + 600.0)  # the last may happen after the end
            elif record.state == "done":
                return sorted(injected, key=lambda s: s.time), resumed, problems
            if record.state == "failed" and due > 0 and self._is_expected(record.note, injected):
                resumed, due = resumed + 1, due - 1
                self.resume(study, deadline)
            elif record.state == "failed" and not self.happened(len(injected)):
                if "did not answer" not in record.note or deadline >= LONG_DEADLINE:
                    problems.append(f"failed: {record.note}")
                    break
                deadline = self._resume_longer(study, deadline)  # it was the machine
            time.sleep(0.02)
        else:
            problems.append("did not end")
        return injected, resumed, problems

    def wait_for_silence(self, study: str, who: str, deadline: float) -> tuple[StudyRecord, float]:
        """The record once the study is done, or has failed after the fault because `who` alone did not answer; and
        the deadline that it had then. Where a busy machine made others late, it is resumed with a longer one."""
        while True:
            record = self.wait_until(study, "failed", "done")
            is_hurt = any(one.fault.who == who for one in self.happened())
            late = "did not answer within" in record.note and not (is_hurt and is_named(record.note, who, deadline))
            if record.state == "done" or not late or deadline >= LONG_DEADLINE:
                return record, deadline
            deadline = self._resume_longer(study, deadline)

    def _resume_longer(self, study: str, deadline: float) -> float:
        longer = min(LONGER * deadline, LONG_DEADLINE)
        self.resume(study, longer)
        return longer

    @staticmethod
    def _is_expected(note: str, injected: Sequence[InjectedFault]) -> bool:
        """Whether a study may fail for this reason after these faults."""
        late = "did not answer" in note and any(one.fault.kind == "stop" for one in injected)
        return late or ("No space left" in note and any(one.fault.kind == "full disk" for one in injected))

    def happened(self, skip: int = 0) -> list[InjectedFault]:
        """The planned faults that have happened, in their order, without the first few."""
        found = []
        for who in (*EVERYBODY, STEWARD):
            done = self.net.folder / "faults" / f"{who}.done"
            for line in done.read_text("utf-8").splitlines() if done.exists() else ():
                with contextlib.suppress(ValueError):
                    raw = json.loads(line)
                    fault = Fault(who, raw["kind"], raw["round"], raw["point"])
                    found.append(InjectedFault(fault, raw["time"], raw["ledgers"]))
        return sorted(found, key=lambda s: s.time)[skip:]

    def _recover_from(self, study: str, new: InjectedFault, deadline: float) -> tuple[list[str], float]:
        """Start it again, or let it go on once the deadline is over. Problems, and the study's deadline from now on."""
        who, kind = new.fault.who, new.fault.kind
        if who == STEWARD:  # they give the command again where their answer did not arrive
            return [], deadline
        if kind in ("kill", "restart"):
            self.net.wait_for_end(who)
            self.start(who)
            return [], deadline
        if kind != "stop":
            return [], deadline
        if who == SERVER:
            time.sleep(max(0.0, new.time + deadline + 0.5 - time.time()))
            self.net.signal(who, signal.SIGCONT)
            return [], deadline
        record, deadline = self.wait_for_silence(study, who, deadline)
        new.named_after = time.time() - new.time
        self.net.signal(who, signal.SIGCONT)
        if record.state == "done":
            return [f"{new.fault}: the study was done without it"], deadline
        return [] if is_named(record.note, who, deadline) else [f"{new.fault}: {record.note}"], deadline

    def _measure(self, study: str, injected: Sequence[InjectedFault], start: float) -> None:
        """When the study went on after each fault: the next round that the coordinator kept, the study's end, or
        that the same process came as far as its next fault."""
        kept = [event["time"] for event in self.events(start) if event["what"] == "kept"]
        done = (self.records.folder / study / "record.json").stat().st_mtime
        for one in injected:
            next_ones = [other.time for other in injected if other.fault.who == one.fault.who]
            after = [moment for moment in (*kept, *next_ones, done) if moment > one.time]
            one.seconds = min(after) - one.time if after else 0.0
            failed = one.named_after is not None or one.fault.kind == "full disk"
            one.outcome = "failed, named, resumed" if failed else "went on"

    # ---- what must be true ----------------------------------------------------------------

    def check_budget(self, reference: Reference, study: str, start: float) -> list[str]:
        """Where a ledger says more or less than it should, or said it too late."""
        problems = []
        for party in PARTIES:
            spent, planned = self.budget(study)[party], reference.budget[party]
            if spent != planned:
                problems.append(f"{party}: its ledger says {sum(spent.values())} entries, not {sum(planned.values())}")
        if reference.method == STRICT.name:  # one price for a person, however noisy margins share it out
            lines = [json.dumps(entry) for party in PARTIES for entry in self.entries(party, study)]
            person = state_privacy([Release.from_json(line) for line in lines], METHODS[STRICT.name]["delta"]).person
            asked = METHODS[STRICT.name]["epsilon"]
            if not asked * (1.0 - 1e-6) <= person <= asked * (1.0 + 1e-9):
                problems.append(f"the ledgers say epsilon {person} for a person")
        return problems + self._check_messages(start)

    def check_tables(self, reference: Reference, study: str, *, is_seeded: bool = False) -> list[str]:
        """Tables that are not what the releases imply; of a seeded study, not those of the reference."""
        if self.records.get(study).state != "done":
            return [f"the study is {self.records.get(study).state}: {self.records.get(study).note}"]
        wanted = reference.tables if is_seeded else self.replay(study)
        found = self.tables(study)
        return (
            [] if wanted and found == wanted else [f"other tables: {[n for n in wanted if found.get(n) != wanted[n]]}"]
        )

    def _check_messages(self, start: float) -> list[str]:
        problems = []
        sent: dict[tuple[str, str], set[str]] = {}
        for event in self.events(start):
            if event["what"] != "answer" or event["round"].split(" ")[0] not in RELEASES:
                continue
            sent.setdefault((event["who"], event["key"]), set()).add(event["digest"])
            per_column = {"release": 2, "ranks": 1, "response": 1, "design": 1, "margins": 1}
            needs = per_column.get(event["round"].split(" ")[0], 0)
            columns = {"left": 2, "middle": 1, "right": 2}[event["who"]]
            columns -= 1 if event["who"] == "left" and event["round"] in ("design", "response") else 0
            if needs and event["paid"] != needs * columns:
                problems.append(f"{event['who']} sent {event['round']} with {event['paid']} entries on its ledger")
        problems += [f"{who} answered one request in two ways" for (who, _), seen in sent.items() if len(seen) > 1]
        return problems

    def _sent_again(self, start: float) -> int:
        """How many releases left more than once, in the same bytes."""
        answers = [e for e in self.events(start) if e["what"] == "answer" and e["round"].split(" ")[0] in RELEASES]
        return len(answers) - len({(event["who"], event["key"]) for event in answers})

    def replay(self, study: str) -> dict[str, bytes]:
        """The tables that an undisturbed run in one process makes of what the vaults hold."""
        record = self.records.get(study)
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as vaults:
            members: dict[str, Member] = {}
            for name in PARTIES:
                copy = Path(folder) / name
                # Without the states of regressions: they are to be fitted from the start. Without half-written files:
                # a party may note the end of a study at this moment.
                vault = self.net.folder / "kits" / name / "vault"
                shutil.copytree(vault, copy, ignore=shutil.ignore_patterns("fits", "messages", "*.tmp"))
                members[name] = Member(
                    self.net.federation,
                    name,
                    read_table(self.net.folder / f"{name}.csv"),
                    key=self.net.kit(name).id_key(),
                    vault=vaults.enter_context(Vault.open(copy)),
                    policy=Policy.from_toml(self.net.folder / f"{name}.toml"),
                    authenticity=certificate_authenticity(Kit.read((self.signing or self.net.folder / "kits") / name)),
                )
            before = [len(members[name].vault.ledger) for name in PARTIES]
            records = StudyStore(Path(folder) / "studies")
            records.save(record)
            with threadpool_limits(1):  # as the processes have it: sums in the same order
                run_study(record, self.net.federation, _Together(members), records)
            if before != [len(members[name].vault.ledger) for name in PARTIES]:
                return {}  # a release was not stored: it was made anew
            return _read_tables(records.result_folder(study))

    def tables(self, study: str) -> dict[str, bytes]:
        return _read_tables(self.net.result(study))

    def entries(self, party: str, study: str) -> list[dict[str, Any]]:
        return [entry for entry in self.net.ledger(party) if entry["study"] == study]

    def budget(self, study: str) -> dict[str, Counter[tuple[Any, ...]]]:
        wanted = (
            "column",
            "what",
            "mechanism",
            "n_subjects",
            "epsilon",
            "coins_epsilon",
            "coins_count",
            "mu_person",
        )
        return {
            party: Counter(
                tuple(entry[name] for name in wanted if (entry["what"], name) != ("selection", "mu_person"))
                for entry in self.entries(party, study)
            )
            for party in PARTIES
        }

    def events(self, start: float) -> list[dict[str, Any]]:
        path = self.net.folder / "faults" / "events.jsonl"
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
        return [event for event in map(json.loads, lines) if event["time"] >= start]

    def wait_until(self, study: str, *states: str, seconds: float = PATIENCE) -> StudyRecord:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            record = self.records.get(study)
            if record.state in states:
                return record
            time.sleep(0.02)
        raise TimeoutError(f"study {study} is {record.state} after {seconds} s")


def plan_faults(folder: Path, everybody: Sequence[str], faults: Sequence[Fault]) -> None:
    """What happens from now on to the processes of a federation below this folder."""
    plans = folder / "faults"
    plans.mkdir(exist_ok=True)
    for who in everybody:
        (plans / f"{who}.plan").unlink(missing_ok=True)
        (plans / f"{who}.done").unlink(missing_ok=True)
        lines = [json.dumps({**vars(f), "signal": SIGNALS[f.kind]}) + "\n" for f in faults if f.who == who]
        scratch = plans / f"{who}.new"
        scratch.write_text("".join(lines), "utf-8")
        scratch.replace(plans / f"{who}.plan")


@dataclass(frozen=True)
class _Together:
    """A transport to members in this process."""

    members: Mapping[str, Member]

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        return {name: self.members[name].handle(request) for name, request in requests.items()}


def is_named(note: str, who: str, deadline: float) -> bool:
    """Whether a study failed because this party alone was silent; after 50 seconds the line to it is cut, too."""
    silent = f"did not answer within {deadline:g} s"
    return note.startswith((f"party {who!r} {silent}", f"party {who!r} (not connected) {silent}"))


def _read_tables(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*.csv"))}


@contextlib.contextmanager
def faulty_network(
    folder: Path, *, forked: bool = True, policies: Mapping[str, str] | None = None, part_bytes: int = 0
) -> Iterator[FaultyNetwork]:
    """A running federation; all of its processes have ended when the block has.

    `part_bytes` : of messages in parts, where they are to be so short that there are some
    """
    if part_bytes:
        (folder / PART_BYTES).parent.mkdir()
        (folder / PART_BYTES).write_text(f"{part_bytes}", "ascii")
    reconnect_soon()  # the lead's connection, in this process
    with contextlib.ExitStack() as stack:
        hands = stack.enter_context(process_starter()) if forked else None
        net = stack.enter_context(network(folder, tables=tables_beyond_a_copula(), policies=policies))
        found = FaultyNetwork(net, stack.enter_context(net.lead()), hands)
        found.start(*EVERYBODY)
        yield found
