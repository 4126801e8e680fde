"""Real processes on loopback: one coordinator, the parties, and faults to inject."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from verticopula.network.connection.control_messages import StatusReply, StatusRequest, SubmitRequest
from verticopula.network.coordinator.study_records import StudyRecord, StudyStore
from verticopula.network.kit.provisioning import provision
from verticopula.network.kit.startup_kit import Kit
from verticopula.network.lead.study_lead import Lead
from verticopula.network.network_demo import free_port
from verticopula.protocol.study_proposal import federation_fingerprint
from verticopula.schema.federation import Federation

PARTIES = ("left", "middle", "right")
METHODS_ALLOWED = 'methods = ["vcds", "evcds", "ievcds", "refined", "strict", "raw-glm"]\n'
POLICY = METHODS_ALLOWED + "allow_seeded = true\nnew_studies = 9999\n"
PATIENCE = 1500.0  # seconds that a busy machine may need for anything; a test may take 1800 in all
LONG_DEADLINE = 1200.0  # of a round in which nobody is silent on purpose; shorter, so that a study's own reason is told


def until(look: Callable[[], Any]) -> Any:
    """What `look` finds, once it finds something."""
    end = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.05)
    return found


def small_federation(deadline: float = 60.0) -> Federation:
    """Three parties, five columns, all kinds of margins."""
    return Federation.from_dict(
        {
            "name": "small",
            "response": "left.y",
            "network": {"host": "localhost", "port": free_port(), "deadline": deadline},
            "party": [
                {
                    "name": "left",
                    "column": [
                        {"name": "y", "kind": "binary", "required": True},
                        {"name": "x1", "kind": "continuous", "bounds": [-6, 6]},
                    ],
                },
                {"name": "middle", "column": [{"name": "x2", "kind": "continuous", "bounds": [-6, 6]}]},
                {
                    "name": "right",
                    "column": [
                        {"name": "x3", "kind": "ordinal", "categories": ["low", "mid", "high"]},
                        {"name": "x4", "kind": "continuous", "bounds": [-6, 6]},
                    ],
                },
            ],
        }
    )


def small_tables(n: int = 120, seed: int = 3) -> dict[str, pl.DataFrame]:
    """Correlated columns; the middle party misses a fifth of the subjects."""
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((n, 1))
    x = np.clip(0.6 * common + 0.8 * rng.standard_normal((n, 4)), -6, 6)
    ids = [f"person-{i:05d}" for i in range(n)]
    y = (x[:, 0] + rng.standard_normal(n) > 0).astype(int)
    levels = np.array(["low", "mid", "high"])[np.digitize(x[:, 2], [-0.5, 0.5])]
    known = rng.random(n) > 0.2
    return {
        "left": pl.DataFrame({"subject_id": ids, "y": y, "x1": x[:, 0]}),
        "middle": pl.DataFrame({"subject_id": ids, "x2": x[:, 1]}).filter(pl.Series(known)),
        "right": pl.DataFrame({"subject_id": ids, "x3": levels, "x4": x[:, 3]}).reverse(),
    }


def tables_beyond_a_copula() -> dict[str, pl.DataFrame]:
    """As `small_tables`, with two columns that no copula fits: a strict study with enough epsilon opens their table."""
    tables = small_tables()
    apart = pl.when(pl.col("x3") == "mid").then(5.0).otherwise(0.2)
    tables["right"] = tables["right"].with_columns(x4=apart * pl.when(pl.col("x4") > 0).then(1).otherwise(-1))
    return tables


@dataclass
class Net:
    """A federation below one folder, and its processes.

    `starter` : starts one process in another way than `start` does by itself
    """

    folder: Path
    federation: Federation
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    starter: Callable[[Net, str], None] | None = None

    @classmethod
    def prepare(
        cls,
        folder: Path,
        federation: Federation | None = None,
        tables: Mapping[str, pl.DataFrame] | None = None,
        policies: Mapping[str, str] | None = None,
    ) -> Net:
        federation = small_federation() if federation is None else federation
        for name, table in (small_tables() if tables is None else tables).items():
            table.write_csv(folder / f"{name}.csv")
            (folder / f"{name}.toml").write_text((policies or {}).get(name, POLICY), "utf-8")
        federation.to_toml(folder / "federation.toml")
        provision(federation, folder / "kits")
        return cls(folder, federation)

    def kit(self, name: str) -> Kit:
        return Kit.read(self.folder / "kits" / name)

    # ---- processes ------------------------------------------------------------------------

    def start(self, *names: str, extra: Sequence[str] = (), program: Sequence[str] = ("-m", "verticopula")) -> None:
        """Start `server` or parties; `program` may be a script that breaks something first."""
        for name in names:
            if self.starter is not None:
                self.starter(self, name)
                continue
            if name in self.processes and (stdin := self.processes[name].stdin) is not None:
                stdin.close()
            kit = self.folder / "kits" / name
            command = ["serve", str(kit)]
            if name == self.federation.network.compute:
                command = ["compute", str(kit)]
            elif name != "server":
                files = ("--data", self.folder / f"{name}.csv", "--policy", self.folder / f"{name}.toml")
                command = ["join", str(kit), *map(str, files)]
            with (kit / "output.txt").open("ab") as output:
                self.processes[name] = subprocess.Popen(
                    [sys.executable, *program, *command, *extra],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=self.folder,
                    env={**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
                )

    def start_all(self) -> None:
        self.start("server", *(party.name for party in self.federation.parties))

    def signal(self, name: str, number: signal.Signals) -> None:
        self.processes[name].send_signal(number)
        if number == signal.SIGKILL:
            self.processes[name].wait()

    def wait_for_end(self, name: str, seconds: float = PATIENCE) -> int:
        return self.processes[name].wait(seconds)

    def close(self) -> None:
        for process in self.processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(10.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdin is not None:
                process.stdin.close()

    def output(self, name: str) -> str:
        """What the process wrote to its terminal and to its log."""
        kit = self.folder / "kits" / name
        return "".join(p.read_text("utf-8", "replace") for p in (kit / "output.txt", kit / "log.txt") if p.exists())

    # ---- studies --------------------------------------------------------------------------

    @contextlib.contextmanager
    def lead(self, name: str = "lead") -> Iterator[Lead]:
        with Lead(self.kit(name)) as lead:
            yield lead

    def submit(self, lead: Lead, *, kind: str = "synthesis", deadline: float = LONG_DEADLINE, **settings: Any) -> str:
        """Hand in a study and return its name."""
        request = SubmitRequest(
            federation_fingerprint(self.federation),
            kind,  # type: ignore[arg-type]
            json.dumps(settings),
            None,
            False,
            deadline,
            os.urandom(16).hex(),
        )
        return str(lead.ask(request, seconds=PATIENCE).study)

    def wait(self, lead: Lead, study: str, seconds: float = PATIENCE) -> tuple[str, str]:
        """State and note of a study once it is done or has failed."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            reply: StatusReply = lead.ask(StatusRequest(), seconds=PATIENCE)
            found = next(entry for entry in reply.studies if entry.study == study)
            if found.state in ("done", "failed"):
                return found.state, found.note
            time.sleep(0.05)
        raise TimeoutError(f"study {study} took longer than {seconds} s: {found}")

    def wait_until_connected(self, *names: str, lead: str = "lead") -> None:
        """Until the coordinator has a session with each of these parties; with all where none is named."""
        wanted = set(names) or {party.name for party in self.federation.parties}
        end = time.monotonic() + PATIENCE
        with self.lead(lead) as asking:
            while True:
                reply: StatusReply = asking.ask(StatusRequest(), seconds=PATIENCE)
                if wanted <= {party.name for party in reply.parties if party.connected}:
                    return
                assert time.monotonic() < end, f"not connected: {reply.parties}"
                time.sleep(0.05)

    def record(self, study: str) -> StudyRecord:
        """What the coordinator has on disk of a study."""
        return StudyStore(self.folder / "kits" / "server" / "studies").get(study)

    def result(self, study: str) -> Path:
        """What the coordinator made for the lead."""
        return self.folder / "kits" / "server" / "studies" / study / "result"

    def ledger(self, party: str) -> list[dict[str, Any]]:
        path = self.folder / "kits" / party / "vault" / "ledger.jsonl"
        return [json.loads(line) for line in path.read_text("ascii").splitlines()] if path.exists() else []


@contextlib.contextmanager
def network(folder: Path, **prepare: Any) -> Iterator[Net]:
    """A federation whose processes are all stopped at the end, whatever happens."""
    net = Net.prepare(folder, **prepare)
    try:
        yield net
    finally:
        net.close()
