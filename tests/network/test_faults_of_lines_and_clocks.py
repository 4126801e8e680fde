"""Slow and lossy lines, clocks that jump, full disks, twenty parties; checked as in `test_faults`."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.network.breaking import reconnect_soon
from tests.network.faults import (
    EVERYBODY,
    METHODS,
    SERVER,
    Fault,
    FaultyNetwork,
    ProcessStarter,
    faulty_network,
    plan_faults,
    process_starter,
)
from tests.network.harness import LONG_DEADLINE, PARTIES, PATIENCE, Net, network, tables_beyond_a_copula
from tests.network.slow_line import SlowLine, slow_line
from verticopula.errors import PartyUnavailable
from verticopula.network.connection.control_messages import StatusReply, StatusRequest
from verticopula.network.coordinator.study_records import StudyStore
from verticopula.network.network_demo import free_port
from verticopula.schema.federation import Federation

pytestmark = pytest.mark.network

_KEEPALIVE = 60.0  # seconds after which gRPC closes a line without a sign of life
_DAY = 86_400
CLOCKED = str(Path(__file__).with_name("clocked.py"))


# ---- lines -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FaultyNetwork, SlowLine]]:
    """All parties reach the coordinator by one line: 200 ms there and back, and 5 % of packets lost."""
    reconnect_soon()
    with contextlib.ExitStack() as stack:
        starter = stack.enter_context(process_starter())
        net = stack.enter_context(network(tmp_path_factory.mktemp("lined"), tables=tables_beyond_a_copula()))
        line = stack.enter_context(slow_line(net.federation.network.port, delay=0.1, loss=0.05))
        for party in PARTIES:
            replace(net.kit(party), port=line.port).write()
        found = FaultyNetwork(net, stack.enter_context(net.lead()), starter)
        found.start(*EVERYBODY)
        yield found, line


@pytest.mark.fault_row(
    "200 ms and 5 % of packets lost, a study by {method}",
    "ledgers as undisturbed; tables identical",
)
@pytest.mark.parametrize("method", ["vcds", "strict"])
def test_loss_and_latency_change_nothing_but_the_time(lined: tuple[FaultyNetwork, SlowLine], method: str) -> None:
    found, line = lined
    passed, lost = line.passed, line.lost
    assert found.run_with_faults(method, []).problems == ()
    assert line.lost > lost
    assert line.passed > passed + 100


@pytest.mark.fault_row(
    "two parties and the coordinator killed behind 200 ms and 5 % loss",
    "went on; ledgers as undisturbed; tables identical",
)
def test_processes_die_behind_a_slow_line(lined: tuple[FaultyNetwork, SlowLine]) -> None:
    found, _ = lined
    faults = [Fault("left", "kill", "release", "stored"), Fault(SERVER, "kill", "release", "half kept")]
    faults.append(Fault("right", "kill", "consent", "answered"))
    assert found.run_with_faults("vcds", faults).problems == ()


@pytest.mark.fault_row(
    "all lines cut in the middle of every round",
    "went on; ledgers as undisturbed; tables identical",
)
def test_a_line_that_breaks_in_the_middle_of_every_round(lined: tuple[FaultyNetwork, SlowLine]) -> None:
    found, line = lined
    reference, start, cuts = found.reference("vcds"), time.time(), line.cuts
    study = found.begin("vcds", [])
    kept = 0
    while found.records.get(study).state in ("queued", "running") and line.cuts < cuts + 20:
        rounds = sum(event["what"] == "kept" for event in found.events(start))
        if rounds > kept:
            kept = rounds
            time.sleep(0.15)  # the next requests are on their way
            line.cut()
        time.sleep(0.02)
    assert found.wait_until(study, "done", "failed").state == "done"
    assert line.cuts > cuts + 3
    assert found.check_budget(reference, study, start) + found.check_tables(reference, study) == []


@pytest.mark.fault_row(
    "all lines silent for a minute",
    "status names who is waited for; went on; ledgers as undisturbed; tables identical",
)
def test_a_line_that_falls_silent_for_longer_than_keepalive(lined: tuple[FaultyNetwork, SlowLine]) -> None:
    found, line = lined
    reference, start = found.reference("vcds"), time.time()
    study = found.begin("vcds", [Fault("left", "stop", "release", "asked")])
    found.wait_until_stopped("left")
    line.fall_silent()
    found.net.signal("left", signal.SIGCONT)
    time.sleep(_KEEPALIVE)
    assert found.records.get(study).state == "running"
    reply: StatusReply = found.lead.ask(StatusRequest(), seconds=PATIENCE)
    waited_for = next(entry.waiting_for for entry in reply.studies if entry.study == study)
    assert "left" in waited_for  # whoever waits is told for whom
    line.go_on()
    assert found.wait_until(study, "done", "failed").state == "done"
    assert found.check_budget(reference, study, start) + found.check_tables(reference, study) == []


# ---- clocks ------------------------------------------------------------------------------------------


@dataclass
class ClockedNetwork(FaultyNetwork):
    """A federation in which every process has a clock of its own, which can be set while it runs."""

    def start(self, *names: str) -> None:
        for name in names:
            if not (self.net.folder / f"{name}.clock").exists():
                self.set_clock(name, 0)
            self.net.start(name, program=(CLOCKED,))

    def set_clock(self, name: str, seconds: int) -> None:
        """From now on this process's clock is so far ahead."""
        scratch = self.net.folder / f"{name}.clock.new"
        scratch.write_text(f"{seconds:+d}\n", "ascii")
        scratch.replace(self.net.folder / f"{name}.clock")

    def set_right(self, *names: str) -> None:
        """Set these clocks right, and wait until everybody is let in again, the lead too."""
        for name in names:
            self.set_clock(name, 0)
        end = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(PartyUnavailable):
                reply: StatusReply = self.lead.ask(StatusRequest(), seconds=PATIENCE)
                if all(party.connected for party in reply.parties):
                    return
            assert time.monotonic() < end
            time.sleep(0.1)

    def jump(self, who: str, name: str, point: str, seconds: int) -> str:
        """A study in which one clock jumps at this point of this round; what becomes of it is up to the caller."""
        study = self.begin("vcds", [Fault(who, "stop", name, point)])
        self.wait_until_stopped(who)
        self.set_clock(who, seconds)
        self.net.signal(who, signal.SIGCONT)
        return study


@pytest.fixture(scope="module")
def clocked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClockedNetwork]:
    reconnect_soon()
    folder = tmp_path_factory.mktemp("clocked")
    with network(folder, tables=tables_beyond_a_copula()) as net, net.lead() as lead:
        found = ClockedNetwork(net, lead)
        found.start(*EVERYBODY)
        yield found


@pytest.fixture
def clocks(clocked: ClockedNetwork) -> Iterator[ClockedNetwork]:
    yield clocked
    clocked.set_right(*EVERYBODY)


def assert_goes_on(found: ClockedNetwork, study: str, who: str) -> None:
    """Done; or ended for a certificate's dates, where the coordinator looked at them before the study was done."""
    record = found.wait_until(study, "done", "failed")
    if record.state == "failed":
        assert "cannot take part: the certificate of" in record.note
        found.set_right(who)
        found.resume(study)
        record = found.wait_until(study, "done", "failed")
    assert record.state == "done", record.note


def assert_charged_once(found: ClockedNetwork, study: str) -> None:
    # All events of all studies: those of a process whose clock was set cannot be told apart by their time.
    reference = found.reference("vcds")
    assert found.check_budget(reference, study, 0.0) + found.check_tables(reference, study) == []


def test_the_clocks_of_the_processes_can_be_set(clocks: ClockedNetwork) -> None:
    clocks.reference("vcds")
    clocks.set_clock("left", 5 * _DAY)
    study = clocks.begin("vcds", [])
    assert clocks.wait_until(study, "done", "failed").state == "done"
    times = {party: clocks.entries(party, study)[0]["time"][:10] for party in PARTIES}
    assert times["left"] > times["middle"]


@pytest.mark.fault_row(
    "the clock of {who} jumps by {seconds:+} s in round {name}",
    "went on, or failed with a certificate's date and resumed; ledgers as undisturbed; tables identical",
)
@pytest.mark.parametrize(
    ("who", "name", "seconds"), [(SERVER, "release", _DAY), (SERVER, "release", -_DAY), ("left", "begin", _DAY)]
)
def test_a_clock_that_jumps_by_a_day_is_nobodys_business(
    clocks: ClockedNetwork, who: str, name: str, seconds: int
) -> None:
    clocks.reference("vcds")
    study = clocks.jump(who, name, "asked", seconds)
    assert_goes_on(clocks, study, who)
    assert_charged_once(clocks, study)


@pytest.mark.fault_row(
    "a party's clock 40 days back, before its certificate's first day",
    "failed, named, nothing spent; resumed; ledgers as undisturbed",
)
def test_a_clock_that_goes_back_before_the_certificates_first_day_costs_nobody_anything(clocks: ClockedNetwork) -> None:
    clocks.reference("vcds")
    study = clocks.jump("left", "begin", "asked", -40 * _DAY)
    record = clocks.wait_until(study, "done", "failed")
    assert record.state == "failed"
    assert "party 'left'" in record.note
    assert all(clocks.entries(party, study) == [] for party in PARTIES)
    clocks.set_clock("left", 0)
    clocks.resume(study)
    record = clocks.wait_until(study, "done", "failed")
    assert record.state == "done", record.note
    assert_charged_once(clocks, study)


@pytest.mark.fault_row(
    "the clock of a party jumps by {seconds:+} s between its yes and its release",
    "asked again: the yes is over; resumed; ledgers as undisturbed",
)
@pytest.mark.parametrize("seconds", [40 * _DAY, -40 * _DAY, -_DAY])
def test_a_yes_does_not_outlive_its_days_whichever_way_the_clock_jumps(clocks: ClockedNetwork, seconds: int) -> None:
    clocks.reference("vcds")
    study = clocks.jump("left", "release", "asked", seconds)
    record = clocks.wait_until(study, "done", "failed")
    assert record.state == "failed"
    assert "consent to this study has ended; it has to be asked again" in record.note
    assert clocks.entries("left", study) == []
    clocks.set_clock("left", 0)
    clocks.resume(study)
    record = clocks.wait_until(study, "done", "failed")
    assert record.state == "done", record.note
    assert_charged_once(clocks, study)


@pytest.mark.fault_row(
    "the coordinator's clock ten years ahead in mid-study",
    "went on, or failed with a certificate's date and resumed; ledgers as undisturbed; tables identical",
)
def test_a_coordinator_whose_clock_is_ten_years_ahead_loses_nothing(clocks: ClockedNetwork) -> None:
    clocks.reference("vcds")
    study = clocks.jump(SERVER, "release", "asked", 3_650 * _DAY)
    assert_goes_on(clocks, study, SERVER)
    assert_charged_once(clocks, study)


# ---- disks ---------------------------------------------------------------------------------------------


@pytest.mark.fault_row(
    "disks full at every step of a release, of consent and of the journal",
    "failed and resumed each time; ledgers as undisturbed; tables identical",
)
def test_a_disk_that_is_full_at_every_step_of_a_release_and_of_the_journal(tmp_path: Path) -> None:
    # `half recorded` is what is left where the ledger could not take back what it wrote.
    points = ("unrecorded", "half recorded", "recorded uncounted", "drawn", "half stored", "stored uncounted")
    faults = [Fault("left", "full disk", "release", point) for point in points]
    faults += [Fault("right", "full disk", name, "drawn") for name in ("consent", "agreement")]
    faults.append(Fault(SERVER, "full disk", "release", "half kept"))
    with faulty_network(tmp_path) as found:
        outcome = found.run_with_faults("vcds", faults)
    assert outcome.problems == ()
    assert outcome.resumed == len(faults)


# ---- many --------------------------------------------------------------------------------------------


@pytest.mark.fault_row(
    "20 parties, of which eight and the coordinator are killed",
    "went on; every ledger once",
)
def test_twenty_parties_of_which_some_die(tmp_path: Path) -> None:
    reconnect_soon()
    names = [f"party{number:02d}" for number in range(20)]
    with contextlib.ExitStack() as stack:
        starter = stack.enter_context(process_starter())
        net = stack.enter_context(network(tmp_path, federation=wide_federation(names), tables=wide_tables(names)))
        for name in (SERVER, *names):
            starter.start(net, name)
        lead = stack.enter_context(net.lead())
        net.wait_until_connected()
        killed = [Fault(name, "kill", "release", "stored") for name in names[::6]]
        killed += [Fault(name, "kill", "consent", "answered") for name in names[1::6]]
        plan_faults(tmp_path, [SERVER, *names], [*killed, Fault(SERVER, "kill", "release", "answered")])
        study = net.submit(lead, **METHODS["vcds"], deadline=LONG_DEADLINE)
        records = StudyStore(tmp_path / "kits" / SERVER / "studies")
        end = time.monotonic() + PATIENCE
        while records.get(study).state in ("queued", "running"):
            assert time.monotonic() < end
            restart_the_dead(net, starter)
            time.sleep(0.05)
        assert records.get(study).state == "done", records.get(study).note
        happened = [path.stem for path in (tmp_path / "faults").glob("*.done")]
        assert set(happened) == {fault.who for fault in killed} | {SERVER}
        for name in names:
            entries = [entry["what"] for entry in net.ledger(name) if entry["study"] == study]
            assert sorted(entries) == ["marginal", "ranks"], name
        assert len(list(net.result(study).rglob("party*.csv"))) == 20


def wide_federation(names: list[str]) -> Federation:
    parties = [{"name": n, "column": [{"name": "x", "kind": "continuous", "bounds": [-6, 6]}]} for n in names]
    where = {"host": "localhost", "port": free_port()}
    return Federation.from_dict({"name": "wide", "response": f"{names[0]}.x", "network": where, "party": parties})


def wide_tables(names: list[str], n: int = 80) -> dict[str, pl.DataFrame]:
    rng = np.random.default_rng(5)
    common, ids = rng.standard_normal(n), [f"person-{i:05d}" for i in range(n)]
    values = {name: np.clip(0.6 * common + 0.8 * rng.standard_normal(n), -6, 6) for name in names}
    return {name: pl.DataFrame({"subject_id": ids, "x": x}) for name, x in values.items()}


def restart_the_dead(net: Net, starter: ProcessStarter) -> None:
    for name, process in list(net.processes.items()):
        if process.poll() is not None:
            starter.start(net, name)
