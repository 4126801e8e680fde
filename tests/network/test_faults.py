"""Every party and the coordinator, in every round of every protocol: killed, stopped, restarted. And odder things."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.network.consent_faults import ASKED, consent_plans, measure_consent
from tests.network.fault_table import TABLED, measure, plans_of, rows_of, summarise
from tests.network.faults import EVERYBODY, METHODS, SERVER, STEWARD, Fault, FaultyNetwork, faulty_network, is_named
from tests.network.harness import PATIENCE, Net
from verticopula.network.kit.provisioning import provision

_CUT = 60.0  # seconds after which gRPC's keepalive closes a silent connection: 30 without a frame, 20 without a reply

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyNetwork]:
    with faulty_network(tmp_path_factory.mktemp("faulty")) as found:
        yield found


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("method", TABLED)
def test_every_process_in_every_round(method: str, record_property: Callable[[str, str], None]) -> None:
    outcomes = measure([method])
    record_property("result", json.dumps(summarise(outcomes)))  # for `python -m benchmarks faults`
    assert {outcome.study: outcome.problems for outcome in outcomes if outcome.problems} == {}
    planned = [fault for plan in plans_of(method) for fault in plan.faults]
    assert len(rows_of(outcomes)) == len(planned)
    assert {row["who"] for row in rows_of(outcomes)} == set(EVERYBODY)


@pytest.mark.timeout(3600)
def test_consent_of_a_steward_killed_at_every_step(record_property: Callable[[str, str], None]) -> None:
    outcomes = measure_consent(consent_plans())
    record_property("result", json.dumps(summarise(outcomes)))
    assert {outcome.study: outcome.problems for outcome in outcomes if outcome.problems} == {}
    assert len(rows_of(outcomes)) == sum(map(len, consent_plans()))
    assert {row["who"] for row in rows_of(outcomes)} == {ASKED, SERVER, STEWARD}


def test_processes_that_were_started_and_not_forked_fare_the_same(tmp_path: Path) -> None:
    with faulty_network(tmp_path, forked=False) as found:
        faults = [Fault("left", "kill", "release", "stored"), Fault(SERVER, "kill", "release", "answered")]
        assert found.run_with_faults("vcds", faults).problems == ()


@pytest.mark.parametrize("point", ["recorded", "stored", "sent"])
def test_seeded_study_gives_the_same_tables_whatever_was_killed(faulty: FaultyNetwork, point: str) -> None:
    faults = [Fault("left", "kill", "release", point), Fault(SERVER, "kill", "release", "half kept")]
    assert faulty.run_with_faults("vcds", faults, random_state=7).problems == ()


@pytest.mark.fault_row(
    "a party killed twice while the coordinator is down",
    "went on; ledgers as undisturbed; tables identical",
)
def test_party_killed_while_the_coordinator_is_down(faulty: FaultyNetwork) -> None:
    reference, start = faulty.reference("vcds"), time.time()
    study = faulty.begin("vcds", [Fault(SERVER, "kill", "release", "answered")])
    faulty.net.wait_for_end(SERVER)
    faulty.net.signal("left", signal.SIGKILL)
    faulty.start("left")
    time.sleep(0.5)
    faulty.net.signal("left", signal.SIGKILL)
    faulty.start(SERVER)
    time.sleep(0.5)
    faulty.start("left")
    assert_done(faulty, reference.method, study, start)


@pytest.mark.fault_row(
    "the coordinator killed with two studies in its queue",
    "both went on; ledgers as undisturbed; tables identical",
)
def test_two_studies_are_queued_when_the_coordinator_is_killed(faulty: FaultyNetwork) -> None:
    start = time.time()
    faulty.reference("vcds")
    first = faulty.begin("vcds", [Fault(SERVER, "kill", "release", "asked")])
    second = faulty.net.submit(faulty.lead, **METHODS["vcds"])
    faulty.net.wait_for_end(SERVER)
    faulty.start(SERVER)
    for study in (first, second):  # a vault is copied, and replayed, when nobody writes into it
        faulty.wait_until(study, "done", "failed")
    assert_done(faulty, "vcds", first, start)
    assert_done(faulty, "vcds", second, start)


@pytest.mark.fault_row(
    "the lead's command killed while it waits",
    "the study went on; fetched later, byte for byte",
)
def test_lead_killed_while_it_waits_fetches_the_study_later(faulty: FaultyNetwork, tmp_path: Path) -> None:
    own = ["submit", str(faulty.net.folder / "federation.toml"), "--kit", str(faulty.net.folder / "kits" / "lead")]
    command = [sys.executable, "-u", "-m", "verticopula", *own, "--out"]
    faulty.reference("vcds")
    faulty.plan([Fault("left", "stop", "release", "asked")])
    lead = subprocess.Popen([*command, str(tmp_path / "one"), "--method", "vcds"], stdout=subprocess.PIPE, text=True)
    with lead:
        assert lead.stdout is not None
        study = next(line for line in lead.stdout if line.startswith("Study ")).split()[1]
        faulty.wait_for_faults(1)
        lead.kill()
    faulty.net.signal("left", signal.SIGCONT)
    assert faulty.wait_until(study, "done", "failed").state == "done"
    subprocess.run(
        [*command, str(tmp_path / "two"), "--resume", study, "--quiet"], check=True, timeout=PATIENCE, text=True
    )
    assert (tmp_path / "two" / "synthetic" / "left.csv").read_bytes() == faulty.tables(study)["synthetic/left.csv"]


@pytest.mark.fault_row(
    "resumed while the party is still silent; the coordinator killed then",
    "failed again, named; resumed; ledgers as undisturbed; tables identical",
)
def test_resumed_too_early_it_fails_again_and_the_next_time_it_is_done(faulty: FaultyNetwork) -> None:
    reference, start = faulty.reference("vcds"), time.time()
    study = faulty.begin("vcds", [Fault("left", "stop", "release", "asked")], reference.stop_deadline)
    record, deadline = faulty.wait_for_silence(study, "left", reference.stop_deadline)
    assert is_named(record.note, "left", deadline)
    faulty.resume(study, 0.5 * deadline)
    record, deadline = faulty.wait_for_silence(study, "left", 0.5 * deadline)
    assert is_named(record.note, "left", deadline)
    faulty.net.signal(SERVER, signal.SIGKILL)  # what failed stays failed, and can still be resumed
    faulty.start(SERVER)
    faulty.net.signal("left", signal.SIGKILL)  # stopped as it is
    faulty.start("left")
    faulty.resume(study)
    assert_done(faulty, reference.method, study, start)


def test_a_party_that_only_the_machine_made_late_is_not_taken_for_the_silent_one(faulty: FaultyNetwork) -> None:
    reference, start = faulty.reference("vcds"), time.time()
    faults = [Fault(who, "stop", "release", "asked") for who in ("left", "right")]
    study = faulty.begin("vcds", faults, reference.stop_deadline)
    faulty.wait_for_faults(2)
    assert faulty.wait_until(study, "failed", "done").note.startswith("parties 'left'")
    faulty.net.signal("left", signal.SIGCONT)  # the machine is quick again
    record, deadline = faulty.wait_for_silence(study, "right", reference.stop_deadline)
    assert is_named(record.note, "right", deadline)
    assert deadline > reference.stop_deadline
    faulty.net.signal("right", signal.SIGCONT)
    faulty.resume(study)
    assert_done(faulty, reference.method, study, start)


@pytest.mark.fault_row(
    "{who} stopped for so long that its line is cut",
    "went on, or named and resumed; ledgers as undisturbed; tables identical",
)
@pytest.mark.parametrize("who", ["left", SERVER])
def test_stopped_for_so_long_that_the_line_is_cut(faulty: FaultyNetwork, who: str) -> None:
    reference, start = faulty.reference("vcds"), time.time()
    study = faulty.begin("vcds", [Fault(who, "stop", "release", "asked")], 5.0)
    faulty.wait_for_faults(1)
    time.sleep(_CUT)
    if who != SERVER:
        assert f"party {who!r} " in faulty.wait_for_silence(study, who, 5.0)[0].note
    faulty.net.signal(who, signal.SIGCONT)
    if who != SERVER or faulty.wait_until(study, "done", "failed").state == "failed":
        faulty.resume(study)
    assert_done(faulty, reference.method, study, start)


@pytest.mark.fault_row(
    "the coordinator's disk full, twice in a round",
    "failed, resumed; ledgers as undisturbed; tables identical",
)
def test_full_disk_of_the_coordinator_fails_the_study_and_not_the_coordinator(faulty: FaultyNetwork) -> None:
    faults = [Fault(SERVER, "full disk", "release", "half kept"), Fault(SERVER, "full disk", "release", "failing")]
    outcome = faulty.run_with_faults("vcds", faults)
    assert outcome.problems == ()
    assert outcome.resumed == 1


@pytest.mark.fault_row(
    "a party's disk full in round design of raw-glm",
    "failed, resumed; ledgers as undisturbed; tables identical",
)
def test_full_disk_in_a_regression_is_no_step_of_it(faulty: FaultyNetwork) -> None:
    outcome = faulty.run_with_faults("raw-glm", [Fault("right", "full disk", "design", "drawn")])
    assert outcome.problems == ()
    assert outcome.resumed == 1


@pytest.mark.fault_row(
    "a party started without its vault",
    "failed, named; with the vault resumed; ledgers as undisturbed; tables identical",
)
def test_party_without_its_vault_is_named_and_goes_on_with_it(faulty: FaultyNetwork) -> None:
    reference, start = faulty.reference("vcds"), time.time()
    study = faulty.begin("vcds", [Fault("left", "kill", "release", "stored")])
    faulty.net.wait_for_end("left")
    vault, aside = faulty.net.folder / "kits" / "left" / "vault", faulty.net.folder / "aside"
    vault.rename(aside)
    faulty.start("left")
    assert "party 'left' was not asked to open this study" in faulty.wait_until(study, "failed", "done").note
    later = faulty.net.submit(faulty.lead, **METHODS["vcds"])
    assert "entries of this ledger, and it does not hold them now" in faulty.wait_until(later, "failed", "done").note
    faulty.stop("left")
    shutil.rmtree(vault)
    aside.rename(vault)
    faulty.start("left")
    faulty.resume(study)
    assert_done(faulty, reference.method, study, start)


@pytest.mark.fault_row(
    "a party started with the keys of another federation",
    "not let in, named; with its own resumed; ledgers as undisturbed",
)
def test_party_with_the_keys_of_another_federation_is_not_let_in(faulty: FaultyNetwork, tmp_path: Path) -> None:
    reference, start = faulty.reference("vcds"), time.time()
    provision(faulty.net.federation, tmp_path / "kits")
    kit, stranger = (Net(folder, faulty.net.federation).kit("left") for folder in (faulty.net.folder, tmp_path))
    study = faulty.begin("vcds", [Fault("left", "kill", "release", "asked")], 5.0)
    faulty.net.wait_for_end("left")
    own = {path: path.read_bytes() for path in (kit.certificate, kit.private_key, kit.authority)}
    for path in own:
        shutil.copy(stranger.folder / path.name, path)
    faulty.start("left")
    record, deadline = faulty.wait_for_silence(study, "left", 5.0)
    assert f"party 'left' (not connected) did not answer within {deadline:g} s" in record.note
    faulty.stop("left")
    for path, content in own.items():
        path.write_bytes(content)
    faulty.start("left")
    faulty.resume(study)
    assert_done(faulty, reference.method, study, start)


def assert_done(faulty: FaultyNetwork, method: str, study: str, start: float) -> None:
    record = faulty.wait_until(study, "done", "failed")
    assert record.state == "done", record.note
    reference = faulty.reference(method)
    assert faulty.check_budget(reference, study, start) + faulty.check_tables(reference, study) == []
