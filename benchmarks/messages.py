"""What a long message takes at both ends, in memory: two real processes with mutual TLS, and a message in parts.

A party sends a reply of one array, which is stored as it lies in memory. The coordinator receives it and reads it. Each
process reads the kernel's high-water mark of its own memory, which it has lowered before (see `memory.py`).
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import ROOT
from benchmarks.memory import CLEAR_REFS, LOWER_PEAK, status_mb
from reporting.catalogue import Measured, Places
from reporting.pages import markdown_page
from reporting.records import Record, write_text
from reporting.tables import Table
from verticopula.datasets import make_sme
from verticopula.network.connection.sessions import PeerSessions
from verticopula.network.kit.startup_kit import Kit
from verticopula.network.network_demo import prepare_demo
from verticopula.protocol.message_files import Body, body_size
from verticopula.protocol.rank_messages import CompletedRanksReply
from verticopula.protocol.wire import decode
from verticopula.schema.defaults import COORDINATOR

KEY, STUDY, SENDER, PATIENCE = "0" * 64, "study", "credit_agency", 120.0
_INTRODUCTION = """
`python -m benchmarks messages`: a reply goes from a party to the coordinator, two processes on this machine, in parts
of {part_mib} MiB. Memory is the most that each process had, above what it had when both were connected. The reply is
one array, stored as it lies in memory. So the sender holds it once because it made it, and the receiver because it has
read it. What is above that is the price of sending. It does not grow with the message.
"""


def send(kit: Kit, megabytes: int) -> dict[str, float]:
    """The party's side; to be called in a fresh process."""
    sessions = PeerSessions(kit, lambda *_: None)
    sessions.start()
    _wait_until(lambda: sessions.connected(COORDINATOR))
    before = _lower_peak()
    message = CompletedRanksReply(kit.name, (np.arange(megabytes * 10**6 // 8, dtype=np.int64) + 2**40,))
    body = sessions.parts.pack(message)
    size = body_size(body)
    while not sessions.send(COORDINATOR, "answer", KEY, body, STUDY):
        time.sleep(0.1)
    _wait_until(lambda: not (isinstance(body, Path) and body.exists()))  # the receiver has said that it has all of it
    peak = status_mb("VmHWM") - before
    sessions.stop()
    return {"size": size / 1e6, "above": peak}


def receive(kit: Kit) -> dict[str, float]:
    """The coordinator's side; likewise."""
    arrived: queue.Queue[Body] = queue.Queue()
    sessions = PeerSessions(kit, lambda peer, topic, key, body: arrived.put(body))
    sessions.start()
    _wait_until(lambda: sessions.connected(SENDER))
    before = _lower_peak()
    body = arrived.get(timeout=PATIENCE)
    received = status_mb("VmHWM") - before
    message = decode(body, (CompletedRanksReply,))
    read = status_mb("VmHWM") - before
    assert message.ranks[0][-1] > 2**40
    sessions.parts.give_back(body)
    sessions.stop()
    return {"received": received, "read": read}


def _lower_peak() -> float:
    CLEAR_REFS.write_text(LOWER_PEAK, encoding="ascii")
    return status_mb("VmRSS")


def _wait_until(is_so: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError("the other end does not answer")
        time.sleep(0.05)


def measure(folder: Path, megabytes: int) -> dict[str, float]:
    """Both ends' memory for one message of this size."""
    sme = make_sme(100)
    prepare_demo(folder, sme.federation, sme.tables, caps={"client": 1.0})
    roles = {"receive": folder / "kits" / "server", "send": folder / "kits" / SENDER}
    started = {
        role: subprocess.Popen(
            [sys.executable, "-m", "benchmarks.messages", role, str(kit), str(megabytes)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        for role, kit in roles.items()
    }
    found: dict[str, float] = {}
    for role, process in started.items():
        said, _ = process.communicate(timeout=3 * PATIENCE)
        if process.returncode != 0:
            raise RuntimeError(f"the process that was to {role} has failed")
        found |= json.loads(said.splitlines()[-1])
    return found


def run(options: Namespace) -> Measured:
    """Messages of several sizes. Needs Linux."""
    sizes = (20, 40) if options.quick else (75, 150, 300, 600)
    measured = []
    for megabytes in sizes:
        with tempfile.TemporaryDirectory() as folder:
            measured.append(measure(Path(folder), megabytes))
    return {"part_mib": 16, "sizes": list(sizes)}, {"messages": measured}


def present(record: Record, places: Places) -> list[Table]:
    """The page `messages.md`, and its table."""
    rows = [
        (
            f"{one['size']:.0f}",
            f"{one['above']:.0f} ({one['above'] / one['size']:.2f})",
            f"{one['received']:.0f} ({one['received'] / one['size']:.2f})",
            f"{one['read']:.0f} ({one['read'] / one['size']:.2f})",
        )
        for one in record.results["messages"]
    ]
    header = ("MB of the message", "sender, with the message", "receiver, all of it there", "receiver, read")
    table = Table("Peak memory above the start, in MB, and as a share of the message", header, rows)
    introduction = _INTRODUCTION.format(part_mib=record.settings["part_mib"])
    page = markdown_page("Long messages", [introduction, table.to_markdown()])
    write_text(places.pages / "messages.md", page)
    return [table]


if __name__ == "__main__":
    asked = Kit.read(sys.argv[2])
    print(json.dumps(send(asked, int(sys.argv[3])) if sys.argv[1] == "send" else receive(asked)), flush=True)
