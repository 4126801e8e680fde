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

from tests.network.fault_table import measure, plans_of, rows_of, summarise
from tests.network.faults import EVERYBODY, METHODS, SERVER, Fault, Ward, is_named, ward
from tests.network.harness import PATIENCE, Net
from verticopula.network.provisioning import provision

_CUT = 60.0  # seconds after which gRPC's keepalive closes a silent connection: 30 without a frame, 20 without a reply

pytestmark = pytest.mark.network


@pytest.fixture(scope="module")
def hurt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    with ward(tmp_path_factory.mktemp("ward")) as found:
        yield found


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("method", METHODS)
def test_every_process_in_every_round(method: str, record_property: Callable[[str, str], None]) -> None:
    stories = measure([method])
    record_property("result", json.dumps(summarise(stories)))  # for `python -m benchmarks faults`
    assert {story.study: story.problems for story in stories if story.problems} == {}
    planned = [fault for plan in plans_of(method, 40) for fault in plan.faults]
    assert len(rows_of(stories)) == len(planned)
    assert {row["who"] for row in rows_of(stories)} == set(EVERYBODY)


def test_processes_that_were_started_and_not_forked_fare_the_same(tmp_path: Path) -> None:
    with ward(tmp_path, forked=False) as found:
        faults = [Fault("left", "kill", "release", "stored"), Fault(SERVER, "kill", "release", "answered")]
        assert found.suffer("vcds", faults).problems == ()


@pytest.mark.parametrize("point", ["recorded", "stored", "sent"])
def test_seeded_study_gives_the_same_tables_whatever_was_killed(hurt: Ward, point: str) -> None:
    faults = [Fault("left", "kill", "release", point), Fault(SERVER, "kill", "release", "half kept")]
    assert hurt.suffer("vcds", faults, random_state=7).problems == ()


def test_party_killed_while_the_coordinator_is_down(hurt: Ward) -> None:
    reference, start = hurt.reference("vcds"), time.time()
    study = hurt.begin("vcds", [Fault(SERVER, "kill", "release", "answered")])
    hurt.net.wait_for_end(SERVER)
    hurt.net.signal("left", signal.SIGKILL)
    hurt.start("left")
    time.sleep(0.5)
    hurt.net.signal("left", signal.SIGKILL)
    hurt.start(SERVER)
    time.sleep(0.5)
    hurt.start("left")
    assert_done(hurt, reference.method, study, start)


def test_two_studies_are_queued_when_the_coordinator_is_killed(hurt: Ward) -> None:
    start = time.time()
    hurt.reference("vcds")
    first = hurt.begin("vcds", [Fault(SERVER, "kill", "release", "asked")])
    second = hurt.net.submit(hurt.lead, **METHODS["vcds"])
    hurt.net.wait_for_end(SERVER)
    hurt.start(SERVER)
    assert_done(hurt, "vcds", first, start)
    assert_done(hurt, "vcds", second, start)


def test_lead_killed_while_it_waits_fetches_the_study_later(hurt: Ward, tmp_path: Path) -> None:
    own = ["submit", str(hurt.net.folder / "federation.toml"), "--kit", str(hurt.net.folder / "kits" / "lead")]
    command = [sys.executable, "-u", "-m", "verticopula", *own, "--out"]
    hurt.reference("vcds")
    hurt.plan([Fault("left", "stop", "release", "asked")])
    lead = subprocess.Popen([*command, str(tmp_path / "one"), "--method", "vcds"], stdout=subprocess.PIPE, text=True)
    with lead:
        assert lead.stdout is not None
        study = next(line for line in lead.stdout if line.startswith("Study ")).split()[1]
        hurt.wait_for_faults(1)
        lead.kill()
    hurt.net.signal("left", signal.SIGCONT)
    assert hurt.wait_until(study, "done", "failed").state == "done"
    subprocess.run(
        [*command, str(tmp_path / "two"), "--resume", study, "--quiet"], check=True, timeout=PATIENCE, text=True
    )
    assert (tmp_path / "two" / "synthetic" / "left.csv").read_bytes() == hurt.tables(study)["synthetic/left.csv"]


def test_resumed_too_early_it_fails_again_and_the_next_time_it_is_done(hurt: Ward) -> None:
    reference, start = hurt.reference("vcds"), time.time()
    study = hurt.begin("vcds", [Fault("left", "stop", "release", "asked")], reference.stop_deadline)
    record, deadline = hurt.wait_for_silence(study, "left", reference.stop_deadline)
    assert is_named(record.note, "left", deadline)
    hurt.resume(study, 0.5 * deadline)
    record, deadline = hurt.wait_for_silence(study, "left", 0.5 * deadline)
    assert is_named(record.note, "left", deadline)
    hurt.net.signal(SERVER, signal.SIGKILL)  # what failed stays failed, and can still be resumed
    hurt.start(SERVER)
    hurt.net.signal("left", signal.SIGKILL)  # stopped as it is
    hurt.start("left")
    hurt.resume(study)
    assert_done(hurt, reference.method, study, start)


def test_a_party_that_only_the_machine_made_late_is_not_taken_for_the_silent_one(hurt: Ward) -> None:
    reference, start = hurt.reference("vcds"), time.time()
    faults = [Fault(who, "stop", "release", "asked") for who in ("left", "right")]
    study = hurt.begin("vcds", faults, reference.stop_deadline)
    hurt.wait_for_faults(2)
    assert hurt.wait_until(study, "failed", "done").note.startswith("parties 'left'")
    hurt.net.signal("left", signal.SIGCONT)  # the machine is quick again
    record, deadline = hurt.wait_for_silence(study, "right", reference.stop_deadline)
    assert is_named(record.note, "right", deadline)
    assert deadline > reference.stop_deadline
    hurt.net.signal("right", signal.SIGCONT)
    hurt.resume(study)
    assert_done(hurt, reference.method, study, start)


@pytest.mark.parametrize("who", ["left", SERVER])
def test_stopped_for_so_long_that_the_line_is_cut(hurt: Ward, who: str) -> None:
    reference, start = hurt.reference("vcds"), time.time()
    study = hurt.begin("vcds", [Fault(who, "stop", "release", "asked")], 5.0)
    hurt.wait_for_faults(1)
    time.sleep(_CUT)
    if who != SERVER:
        assert f"party {who!r} " in hurt.wait_for_silence(study, who, 5.0)[0].note
    hurt.net.signal(who, signal.SIGCONT)
    if who != SERVER or hurt.wait_until(study, "done", "failed").state == "failed":
        hurt.resume(study)
    assert_done(hurt, reference.method, study, start)


def test_full_disk_of_the_coordinator_fails_the_study_and_not_the_coordinator(hurt: Ward) -> None:
    faults = [Fault(SERVER, "full disk", "release", "half kept"), Fault(SERVER, "full disk", "release", "failing")]
    story = hurt.suffer("vcds", faults)
    assert story.problems == ()
    assert story.resumed == 1


@pytest.mark.parametrize("name", ["design", "update 9"])
def test_full_disk_in_a_regression_is_no_step_of_it(hurt: Ward, name: str) -> None:
    story = hurt.suffer("raw-glm", [Fault("right", "full disk", name, "drawn")])
    assert story.problems == ()
    assert story.resumed == 1


def test_party_without_its_vault_is_named_and_goes_on_with_it(hurt: Ward) -> None:
    reference, start = hurt.reference("vcds"), time.time()
    study = hurt.begin("vcds", [Fault("left", "kill", "release", "stored")])
    hurt.net.wait_for_end("left")
    vault, aside = hurt.net.folder / "kits" / "left" / "vault", hurt.net.folder / "aside"
    vault.rename(aside)
    hurt.start("left")
    assert "party 'left' was not asked to open this study" in hurt.wait_until(study, "failed", "done").note
    later = hurt.net.submit(hurt.lead, **METHODS["vcds"])
    assert "entries of this ledger, and it does not hold them now" in hurt.wait_until(later, "failed", "done").note
    hurt.stop("left")
    shutil.rmtree(vault)
    aside.rename(vault)
    hurt.start("left")
    hurt.resume(study)
    assert_done(hurt, reference.method, study, start)


def test_party_with_the_keys_of_another_federation_is_not_let_in(hurt: Ward, tmp_path: Path) -> None:
    reference, start = hurt.reference("vcds"), time.time()
    provision(hurt.net.federation, tmp_path / "kits")
    kit, stranger = (Net(folder, hurt.net.federation).kit("left") for folder in (hurt.net.folder, tmp_path))
    study = hurt.begin("vcds", [Fault("left", "kill", "release", "asked")], 5.0)
    hurt.net.wait_for_end("left")
    own = {path: path.read_bytes() for path in (kit.certificate, kit.private_key, kit.authority)}
    for path in own:
        shutil.copy(stranger.folder / path.name, path)
    hurt.start("left")
    record, deadline = hurt.wait_for_silence(study, "left", 5.0)
    assert f"party 'left' (not connected) did not answer within {deadline:g} s" in record.note
    hurt.stop("left")
    for path, content in own.items():
        path.write_bytes(content)
    hurt.start("left")
    hurt.resume(study)
    assert_done(hurt, reference.method, study, start)


def assert_done(hurt: Ward, method: str, study: str, start: float) -> None:
    record = hurt.wait_until(study, "done", "failed")
    assert record.state == "done", record.note
    reference = hurt.reference(method)
    assert hurt.check_budget(reference, study, start) + hurt.check_tables(reference, study) == []
