"""What the network costs: round trips, rounds of a regression, a whole study against one process, and two commands.

The parties are real processes on loopback with mutual TLS, each with its own vault on disk; this process is the
coordinator, with its journal. Times start at the first request, when everybody is connected. The commands, `status` and
`demo-network`, are processes of their own, timed from start to end; processor time is that of all processes they start.
"""

from __future__ import annotations

import contextlib
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from reporting.catalogue import Measured, Places
from reporting.records import Record
from reporting.tables import Table, verdict
from verticopula import VerticalGLM
from verticopula.datasets import make_sme
from verticopula.estimators.synthesizer import Synthesizer
from verticopula.network.connection.sessions import PeerSessions
from verticopula.network.coordinator.network_transport import NetworkTransport, PendingRequests
from verticopula.network.kit.startup_kit import Kit
from verticopula.network.network_demo import prepare_demo, running, start_processes
from verticopula.protocol.study_lifecycle import begin_study
from verticopula.protocol.study_messages import CloseRequest
from verticopula.schema.federation import Federation
from verticopula.schema.methods import RAW_REGRESSION
from verticopula.storage.round_journal import Journal
from verticopula.transport.delivery import drive

STUDIES, COMMANDS = "studies", "commands"
PARTS = (STUDIES, COMMANDS)
TARGETS = {"round_trip": 0.15, "regression_200_rounds": 40.0, "vcds_ratio": 1.5, "status": 1.0, "demo_network": 60.0}
EPSILON = 4.0
DEADLINE = 600.0
_FULL = (71_827, 5_000, 201, 5_000)  # subjects, those of the regression, round trips, subjects of the demo


@contextlib.contextmanager
def federation_at_work(
    folder: Path, federation: Federation, tables: Mapping[str, pl.DataFrame], methods: Sequence[str]
) -> Iterator[tuple[Federation, Any]]:
    """A federation whose parties run and are connected, and a way to make transports to them."""
    federation, kits = prepare_demo(folder, federation, tables, caps={"client": math.inf}, methods=methods)
    room: list[PendingRequests] = []
    kit = next(kit for kit in kits if kit.role == "coordinator")
    sessions = PeerSessions(kit, lambda *message: room[0].on_message(*message), lambda peer: room[0].on_session(peer))
    room.append(PendingRequests(sessions))
    sessions.start()
    try:
        with start_processes(folder, [kit for kit in kits if kit.role == "party"]):
            _wait_for(sessions, kits)
            yield federation, lambda name: NetworkTransport(room[0], Journal(folder / f"{name}.journal"), DEADLINE)
    finally:
        sessions.stop()


def _wait_for(sessions: PeerSessions, kits: list[Kit]) -> None:
    end = time.monotonic() + 120.0
    while not all(sessions.connected(kit.name) for kit in kits if kit.role == "party"):
        if time.monotonic() > end:
            raise TimeoutError("the parties did not connect")
        time.sleep(0.1)


def make_regression_tables(subjects: int) -> tuple[Federation, dict[str, pl.DataFrame]]:
    """Five parties with twenty columns each, everybody known to all of them; twenty columns matter."""
    rng = np.random.default_rng(0)
    x = np.clip(rng.standard_normal((subjects, 100)), -8.0, 8.0)
    coef = np.where(np.arange(100) % 5 == 0, 0.5, 0.0)
    y = (rng.random(subjects) < 1.0 / (1.0 + np.exp(-x @ coef))).astype(np.int64)
    ids = [f"S{row:07d}" for row in range(subjects)]
    tables, parties = {}, []
    for k in range(5):
        names = [f"x{20 * k + j}" for j in range(20)]
        columns = [{"name": name, "kind": "continuous", "bounds": [-8, 8]} for name in names]
        values = {name: x[:, 20 * k + j] for j, name in enumerate(names)}
        if k == 0:
            columns, values = [{"name": "y", "kind": "binary"}, *columns], {"y": y, **values}
        parties.append({"name": f"party{k}", "column": columns})
        tables[f"party{k}"] = pl.DataFrame({"subject_id": ids, **values})
    return Federation.from_dict({"name": "regression", "response": "party0.y", "party": parties}), tables


def time_round_trips(federation: Federation, transport: NetworkTransport, count: int) -> list[float]:
    """Seconds of rounds that ask next to nothing of all parties, after the study has begun."""
    drive(begin_study(federation, "round-trips", "vcds"), transport)
    times = []
    for number in range(count):
        start = time.perf_counter()
        transport.deliver({p.name: CloseRequest("round-trips") for p in federation.parties})
        if number > 0:
            times.append(time.perf_counter() - start)
    return times


def time_regression(federation: Federation, transport: NetworkTransport) -> tuple[float, int]:
    """Seconds and rounds of a regression on raw columns."""
    begun = drive(begin_study(federation, "regression", RAW_REGRESSION), transport)
    before, start = transport.number, time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        VerticalGLM("binomial", "scad").fit_transport(transport, federation, begun=begun)
    return time.perf_counter() - start, transport.number - before


def time_vcds(
    federation: Federation, tables: Mapping[str, pl.DataFrame], transport: NetworkTransport
) -> tuple[float, float]:
    """Seconds of one VCDS study over the network and in this process, on the same tables."""
    here = Synthesizer(federation, "vcds", EPSILON)
    start = time.perf_counter()
    here.fit(tables)
    in_process = time.perf_counter() - start
    there = Synthesizer(federation, "vcds", EPSILON)
    start = time.perf_counter()
    there.fit_transport(transport, study="whole-study")
    return time.perf_counter() - start, in_process


def time_command(*arguments: str) -> tuple[float, float]:
    """Processor and wall seconds of one `verticopula` command and all that it starts; RuntimeError if it fails."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "verticopula", *arguments]
    warm = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=warm)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"failed: verticopula {' '.join(arguments)}")
    return used.ru_utime + used.ru_stime, time.perf_counter() - start


def time_commands(folder: Path, subjects: int, repetitions: int) -> dict[str, Any]:
    """`status` of a running federation of five parties, and `demo-network`; several times, the first left out."""
    sme = make_sme(subjects)
    _, kits = prepare_demo(folder / "status", sme.federation, sme.tables, caps={"client": math.inf})
    with running(folder / "status", kits):
        lead = next(kit for kit in kits if kit.role == "lead")
        shown = [time_command("status", "--kit", str(lead.folder)) for _ in range(repetitions + 1)][1:]
    asked = ("demo-network", "--out", str(folder / "demo"), "--subjects", str(subjects), "--method", "refined")
    asked += ("--epsilon", "4")
    demos = [time_command(*asked) for _ in range(repetitions + 1)][1:]
    return {
        "status": {"processor_seconds": [p for p, _ in shown], "wall_seconds": [w for _, w in shown]},
        "demo_network": {"processor_seconds": [p for p, _ in demos], "wall_seconds": [w for _, w in demos]},
    }


def time_studies(subjects: int, regression_subjects: int, trips_wanted: int) -> dict[str, Any]:
    """Round trips, a regression and a study by VCDS, on five parties."""
    with tempfile.TemporaryDirectory() as scratch:
        small, large = Path(scratch) / "small", Path(scratch) / "large"
        federation, tables = make_regression_tables(regression_subjects)
        methods = ("vcds", RAW_REGRESSION)
        with federation_at_work(small, federation, tables, methods) as (federation, transport_to):
            trips = time_round_trips(federation, transport_to("trips"), trips_wanted)
            seconds, rounds = time_regression(federation, transport_to("regression"))
        sme = make_sme(subjects)
        with federation_at_work(large, sme.federation, sme.tables, methods) as (federation, transport_to):
            there, here = time_vcds(federation, sme.tables, transport_to("vcds"))
    return {
        "round_trip_median_seconds": statistics.median(trips),
        "round_trip_largest_seconds": max(trips),
        "round_trips": len(trips),
        "regression_seconds": seconds,
        "regression_rounds": rounds,
        "seconds_per_200_rounds": 200.0 * seconds / rounds,
        "vcds_network_seconds": there,
        "vcds_in_process_seconds": here,
        "vcds_ratio": there / here,
    }


def run(options: Namespace) -> Measured:
    """The parts that are named, or both; the other's figures are kept."""
    subjects, regression_subjects, trips, demo_subjects = (2_000, 1_000, 20, 500) if options.quick else _FULL
    results = dict(options.kept.results)
    if STUDIES in options.parts:
        results |= time_studies(subjects, regression_subjects, trips)
    if COMMANDS in options.parts:
        with tempfile.TemporaryDirectory() as scratch:
            results |= time_commands(Path(scratch), demo_subjects, 1 if options.quick else 3)
    sizes = {"subjects": subjects, "regression_subjects": regression_subjects, "demo_subjects": demo_subjects}
    return {"parties": 5, **sizes, "epsilon": EPSILON}, {**results, "targets": TARGETS}


def present(record: Record, places: Places) -> list[Table]:
    """One table with targets, of what was measured."""
    found, settings = record.results, record.settings
    rows = [*(_study_rows(found, settings) if "round_trips" in found else ()), *_command_rows(found, settings)]
    return [Table("The network on loopback, mutual TLS", ("what", "measured", "target", "verdict"), rows)]


def _command_rows(found: Mapping[str, Any], settings: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """`status` by processor time, the demo by the wall clock; medians."""
    if "status" not in found:
        return []
    status, demo = found["status"], found["demo_network"]
    processor, wall = statistics.median(status["processor_seconds"]), statistics.median(demo["wall_seconds"])
    used, waited = statistics.median(demo["processor_seconds"]), statistics.median(status["wall_seconds"])
    return [
        (
            f"`status`, five parties, processor time of the whole command ({waited:.1f} s by the wall clock)",
            f"{processor:.2f} s",
            "1 s",
            verdict(processor, TARGETS["status"]),
        ),
        (
            f"`demo-network`, {settings['demo_subjects']:,} subjects, wall clock ({used:.0f} s of processor time)",
            f"{wall:.1f} s",
            "60 s",
            verdict(wall, TARGETS["demo_network"]),
        ),
    ]


def _study_rows(found: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[tuple[str, str, str, str], ...]:
    median, per_200 = found["round_trip_median_seconds"], found["seconds_per_200_rounds"]
    there, here = found["vcds_network_seconds"], found["vcds_in_process_seconds"]
    return (
        ("small round trip, five parties, median", f"{median:.4f} s", "0.15 s", verdict(median, TARGETS["round_trip"])),
        ("small round trip, largest", f"{found['round_trip_largest_seconds']:.4f} s", "", ""),
        (
            f"200 rounds of a regression ({settings['regression_subjects']:,} subjects; "
            f"{found['regression_rounds']} rounds run in {found['regression_seconds']:.1f} s)",
            f"{per_200:.1f} s",
            "40 s",
            verdict(per_200, TARGETS["regression_200_rounds"]),
        ),
        (
            f"VCDS, {settings['subjects']:,} subjects, 55 columns: network {there:.1f} s, one process {here:.1f} s",
            f"{there / here:.2f}",
            "1.5",
            verdict(there / here, TARGETS["vcds_ratio"]),
        ),
    )
