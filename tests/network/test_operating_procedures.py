"""The procedures of `docs/how-to/operations.md`, run with real processes: backup, restore, moving, upgrading."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.network.faults import METHODS, SERVER, Fault, FaultyNetwork, faulty_network
from tests.network.harness import PATIENCE
from verticopula.errors import LedgerError
from verticopula.protocol.message_version import MESSAGE_VERSION
from verticopula.storage.vault import Vault
from verticopula.storage.vault_files import inspect_vault

pytestmark = pytest.mark.processes  # those that are marked `network`, too, run with the whole tables

PARTY = "left"


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultyNetwork]:
    with faulty_network(tmp_path_factory.mktemp("procedures")) as found:
        found.reference("vcds")
        yield found


def kit_of(faulty: FaultyNetwork) -> Path:
    return faulty.net.folder / "kits" / PARTY


def verticopula(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "verticopula", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def back_up(faulty: FaultyNetwork, archive: Path) -> Path:
    """As the page says: stop, archive the kit's folder, start again, verify."""
    done = verticopula("stop", kit_of(faulty))
    assert done.returncode == 0, done.stderr
    faulty.net.wait_for_end(PARTY)
    with tarfile.open(archive, "w:gz") as file:
        file.add(kit_of(faulty), arcname=PARTY)
    faulty.start(PARTY)
    return archive


def lose_the_machine(faulty: FaultyNetwork) -> None:
    if faulty.net.processes[PARTY].poll() is None:
        faulty.net.processes[PARTY].kill()
        faulty.net.wait_for_end(PARTY)
    shutil.rmtree(kit_of(faulty))


def restore(faulty: FaultyNetwork, archive: Path) -> None:
    with tarfile.open(archive) as file:
        file.extractall(kit_of(faulty).parent, filter="fully_trusted")  # as `tar xpzf` does: owner and modes, too
    done = verticopula("ledger", "verify", kit_of(faulty) / "vault")
    assert done.returncode == 0, done.stderr
    faulty.start(PARTY)


def run_study(faulty: FaultyNetwork) -> tuple[str, str, str]:
    """A new study's name, and how it ended."""
    study = faulty.begin("vcds", [])
    record = faulty.wait_until(study, "done", "failed")
    return study, record.state, record.note


def assert_right(faulty: FaultyNetwork, study: str, start: float) -> None:
    reference = faulty.reference("vcds")
    assert faulty.check_budget(reference, study, start) + faulty.check_tables(reference, study) == []


def test_after_a_crash_the_newest_backup_goes_on(faulty: FaultyNetwork, tmp_path: Path) -> None:
    start = time.time()
    before, state, note = run_study(faulty)
    assert state == "done", note
    archive = back_up(faulty, tmp_path / "newest.tgz")
    spent = faulty.net.ledger(PARTY)
    lose_the_machine(faulty)
    restore(faulty, archive)
    assert faulty.net.ledger(PARTY) == spent
    study, state, note = run_study(faulty)
    assert state == "done", note
    assert_right(faulty, study, start)
    assert_right(faulty, before, start)


def test_an_old_backup_is_refused_with_what_to_do_and_the_newest_goes_on(faulty: FaultyNetwork, tmp_path: Path) -> None:
    start = time.time()
    old = back_up(faulty, tmp_path / "old.tgz")
    assert run_study(faulty)[1] == "done"
    newest = back_up(faulty, tmp_path / "newest.tgz")
    spent = faulty.net.ledger(PARTY)
    lose_the_machine(faulty)
    restore(faulty, old)
    others = {party: faulty.net.ledger(party) for party in ("middle", "right")}
    study, state, note = run_study(faulty)
    assert state == "failed"
    assert "it was put back from an old copy or replaced" in note
    assert "put back the newest copy of the whole folder" in note
    assert {party: faulty.net.ledger(party) for party in others} == others  # it costs nobody anything
    lose_the_machine(faulty)
    restore(faulty, newest)
    assert faulty.net.ledger(PARTY) == spent
    study, state, note = run_study(faulty)
    assert state == "done", note
    assert_right(faulty, study, start)


@pytest.mark.network
def test_where_no_newer_backup_exists_what_is_missing_is_read_at_the_coordinator(
    faulty: FaultyNetwork, tmp_path: Path
) -> None:
    old = back_up(faulty, tmp_path / "old.tgz")
    lost, state, note = run_study(faulty)
    assert state == "done", note
    entries = faulty.entries(PARTY, lost)
    lose_the_machine(faulty)
    restore(faulty, old)
    assert run_study(faulty)[1] == "failed"
    # What was spent and is in no ledger of the party's any more: the lead and the coordinator have the study's.
    said = verticopula("ledger", "show", faulty.net.result(lost)).stdout
    assert said.count(f"{PARTY}.") >= len(entries)
    shutil.copytree(faulty.net.result(lost), tmp_path / "given to the steward")
    # The two organisations agree, and the coordinator's operator takes back what it remembers of that ledger.
    faulty.stop(SERVER)
    heads = faulty.records.folder / "ledger-heads.json"
    known = json.loads(heads.read_text("utf-8"))
    del known[PARTY]
    heads.write_text(json.dumps(known), "utf-8")
    faulty.start(SERVER)
    start = time.time()
    study, state, note = run_study(faulty)
    assert state == "done", note
    assert_right(faulty, study, start)


def test_a_party_moves_to_another_machine_in_the_middle_of_a_study(faulty: FaultyNetwork, tmp_path: Path) -> None:
    start = time.time()
    study = faulty.begin("vcds", [Fault(PARTY, "restart", "release", "stored")])
    faulty.net.wait_for_end(PARTY)  # `verticopula stop`, after it has stored a release and before it was sent
    archive = tmp_path / "kit.tgz"
    with tarfile.open(archive, "w:gz") as file:
        file.add(kit_of(faulty), arcname=PARTY)
    shutil.rmtree(kit_of(faulty))
    there = tmp_path / "another machine"
    there.mkdir()
    with tarfile.open(archive) as file:
        file.extractall(there, filter="fully_trusted")
    kit_of(faulty).symlink_to(there / PARTY)
    faulty.start(PARTY)
    record = faulty.wait_until(study, "done", "failed")
    assert record.state == "done", record.note
    assert_right(faulty, study, start)
    faulty.stop(PARTY)
    kit_of(faulty).unlink()
    shutil.move(there / PARTY, kit_of(faulty))
    faulty.start(PARTY)


@pytest.mark.network
def test_the_old_machine_cannot_go_on_beside_the_new_one_unnoticed(faulty: FaultyNetwork, tmp_path: Path) -> None:
    archive = back_up(faulty, tmp_path / "kit.tgz")  # what is left on the old machine
    assert run_study(faulty)[1] == "done"  # on the new one
    faulty.stop(PARTY)
    kit_of(faulty).rename(tmp_path / "new")
    restore(faulty, archive)  # somebody starts the old one
    study, state, note = run_study(faulty)
    assert state == "failed"
    assert "it does not hold them now" in note
    assert faulty.entries(PARTY, study) == []
    faulty.stop(PARTY)
    shutil.rmtree(kit_of(faulty))
    (tmp_path / "new").rename(kit_of(faulty))
    faulty.start(PARTY)
    assert run_study(faulty)[1] == "done"


@pytest.mark.network
def test_a_copy_that_is_made_while_the_party_runs_is_whole_or_is_found_out(
    faulty: FaultyNetwork, tmp_path: Path
) -> None:
    vault = kit_of(faulty) / "vault"
    study = faulty.begin("vcds", [])
    found = []
    for number in range(200):
        copy = tmp_path / str(number)
        is_copied = (
            subprocess.run(["cp", "-a", str(vault), str(copy)], capture_output=True, check=False).returncode == 0
        )
        verified = verify(copy) if is_copied else False
        if verified:
            with Vault.open(copy):  # whatever verify lets pass can be used
                found.append(number)
        shutil.rmtree(copy, ignore_errors=True)
        if faulty.records.get(study).state == "done" and number >= 5:
            break
    assert faulty.wait_until(study, "done", "failed").state == "done"
    assert found


def verify(vault: Path) -> bool:
    try:
        inspect_vault(vault)
    except LedgerError:
        return False
    return True


@pytest.mark.network
def test_a_party_of_another_message_version_costs_nobody_anything_and_goes_on_after_its_upgrade(
    faulty: FaultyNetwork, tmp_path: Path
) -> None:
    start = time.time()
    old = tmp_path / "old_release.py"
    old.write_text(
        "import sys\n"
        "import verticopula.protocol.message_version as own\n"
        f"own.MESSAGE_VERSION = {MESSAGE_VERSION - 1}\n"
        "from verticopula.cli.app import main\n"
        "sys.argv = ['verticopula', *sys.argv[1:]]\n"
        "main()\n",
        "utf-8",
    )
    faulty.stop(PARTY)
    before = {party: faulty.net.ledger(party) for party in ("left", "middle", "right")}
    faulty.net.start(PARTY, program=(str(old),))
    study = faulty.net.submit(faulty.lead, deadline=5.0, **METHODS["vcds"])
    record = faulty.wait_until(study, "done", "failed")
    assert record.state == "failed"
    assert repr(PARTY) in record.note
    assert {party: faulty.net.ledger(party) for party in before} == before
    faulty.stop(PARTY)
    stdin = faulty.net.processes[PARTY].stdin
    assert stdin is not None
    stdin.close()
    faulty.start(PARTY)
    faulty.net.wait_until_connected(PARTY)  # until then the coordinator knows the old release only
    faulty.resume(study)
    record = faulty.wait_until(study, "done", "failed")
    assert record.state == "done", record.note
    assert_right(faulty, study, start)
