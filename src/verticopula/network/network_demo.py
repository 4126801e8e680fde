"""Five organisations on one machine: real processes, real mutual TLS on loopback, all stopped at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import polars as pl

from verticopula.data.input_files import write_inputs
from verticopula.errors import SettingsError, VerticopulaError
from verticopula.network.connection.control_messages import StatusRequest
from verticopula.network.kit.provisioning import provision
from verticopula.network.kit.startup_kit import Kit
from verticopula.network.lead.study_lead import Lead
from verticopula.network.operations.kit_process import LOG_FILE
from verticopula.schema.federation import Federation
from verticopula.schema.methods import REFINED, STRICT, VCDS

_PATIENCE = 120.0
_POLICY = """# {party}'s own rules; no coordinator can change them
methods = {methods}
min_subjects = 50
[caps]
{caps}
"""


def free_port() -> int:
    """A port on loopback that nobody uses right now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def prepare_demo(
    out: Path,
    federation: Federation,
    tables: Mapping[str, pl.DataFrame],
    caps: Mapping[str, float],
    methods: Sequence[str] = (VCDS.name, REFINED.name, STRICT.name),
) -> tuple[Federation, list[Kit]]:
    """Tables, policies with caps by unit, and kits below a folder, on a free port of this machine."""
    network = {"host": "localhost", "port": free_port(), "deadline": 300.0}
    federation = Federation.from_dict({**federation.to_dict(), "network": network})
    shutil.rmtree(out / "kits", ignore_errors=True)
    write_inputs(federation, tables, out)
    (out / "policies").mkdir(exist_ok=True)
    capped = "\n".join(f"{unit} = {cap}" for unit, cap in caps.items())
    for party in federation.parties:
        text = _POLICY.format(party=party.name, methods=list(methods), caps=capped)
        (out / "policies" / f"{party.name}.toml").write_text(text, encoding="utf-8")
    return federation, provision(federation, out / "kits")


@contextlib.contextmanager
def running(out: Path, kits: Sequence[Kit]) -> Iterator[None]:
    """The coordinator and all parties, each in a process of its own, until the block ends."""
    with start_processes(out, [kit for kit in kits if kit.role != "lead"]) as processes:
        _wait_until_all_are_there(kits, processes)
        yield


@contextlib.contextmanager
def start_processes(out: Path, kits: Sequence[Kit]) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A process for each of these kits; all have ended when the block has."""
    processes: list[subprocess.Popen[bytes]] = []
    with contextlib.ExitStack() as files:
        try:
            for kit in kits:
                output = files.enter_context((kit.folder / "output.txt").open("wb"))
                processes.append(_start(_command(out, kit), output))
            yield processes
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                try:
                    process.wait(15.0)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _command(out: Path, kit: Kit) -> list[str]:
    if kit.role == "coordinator":
        return ["serve", str(kit.folder)]
    if kit.role == "compute":
        return ["compute", str(kit.folder)]
    data, policy = out / "data" / f"{kit.name}.csv", out / "policies" / f"{kit.name}.toml"
    return ["join", str(kit.folder), "--data", str(data), "--policy", str(policy)]


def _start(arguments: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "verticopula", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )


def _wait_until_all_are_there(kits: Sequence[Kit], processes: Sequence[subprocess.Popen[bytes]]) -> None:
    end = time.monotonic() + _PATIENCE
    lead = next(kit for kit in kits if kit.role == "lead")

    def look() -> None:
        if any(process.poll() is not None for process in processes):
            raise VerticopulaError(f"a process of the demo ended; see {lead.folder.parent}/*/{LOG_FILE}")
        if time.monotonic() > end:
            raise SettingsError("the demo's processes did not find each other")
        time.sleep(0.1)

    while not _listens(lead.port):
        look()
    with Lead(lead) as connection:
        while True:
            with contextlib.suppress(VerticopulaError):
                if all(party.connected for party in connection.ask(StatusRequest(), seconds=1.0).parties):
                    return
            look()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
