"""Kits that are renewed while a study is open, an authority of one's own, a steward who takes a week, fifty studies."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.network.attackers import LogTail
from tests.network.breaking import reconnect_soon
from tests.network.faults import METHODS, SERVER, Fault, FaultyNetwork, faulty_network, process_starter
from tests.network.harness import METHODS_ALLOWED, PARTIES, PATIENCE, Net, network
from tests.network.years import years
from verticopula.network.kit.certificate_authority import Root
from verticopula.network.kit.certificate_issuing import (
    certificates_pem,
    current_time,
    issue_certificate,
    key_pem,
    new_key,
    new_root,
)
from verticopula.network.lead.study_lead import Lead
from verticopula.network.network_demo import free_port
from verticopula.schema.federation import Federation
from verticopula.storage.request_store import RequestStore
from verticopula.storage.steward_requests import StewardRequest

pytestmark = pytest.mark.network

LARGE = shutil.ignore_patterns("vault", "studies", "synthetic")

# ---- kits ---------------------------------------------------------------------------------------------


@pytest.fixture
def found(tmp_path: Path) -> Iterator[FaultyNetwork]:
    """A federation whose kits were handed over: `provisioned` has the authority's copies."""
    with faulty_network(tmp_path) as net:
        shutil.copytree(tmp_path / "kits", tmp_path / "provisioned", ignore=LARGE)
        shutil.rmtree(tmp_path / "kits" / "authority")
        yield net


def provision_again(found: FaultyNetwork, *options: str) -> None:
    command = [sys.executable, "-m", "verticopula", "provision", "federation.toml", "--out", "provisioned", "--quiet"]
    subprocess.run([*command, *options], cwd=found.net.folder, check=True, timeout=PATIENCE)


def hand_over(found: FaultyNetwork, name: str, *files: str) -> None:
    for file in files:
        shutil.copy(found.net.folder / "provisioned" / name / file, found.net.folder / "kits" / name / file)


def log_of(found: FaultyNetwork, name: str) -> LogTail:
    return LogTail(found.net.folder / "kits" / name / "log.txt").mark()


def stop_in(found: FaultyNetwork, method: str, name: str) -> tuple[str, float]:
    """A study in which left stands still when it is asked in this round; and when it began.

    What a party signs is part of what all agree on: the study is replayed with the keys of its beginning.
    """
    found.signing = None
    found.reference(method)
    start = time.time()
    found.signing = found.net.folder / f"kits-{start}"
    shutil.copytree(found.net.folder / "kits", found.signing, ignore=LARGE)
    study = found.begin(method, [Fault("left", "stop", name, "asked")])
    found.wait_until_stopped("left")
    return study, start


def assert_done(found: FaultyNetwork, method: str, study: str, start: float) -> None:
    record = found.wait_until(study, "done", "failed")
    assert record.state == "done", record.note
    reference = found.reference(method)
    assert found.check_budget(reference, study, start) + found.check_tables(reference, study) == []


@pytest.mark.fault_row(
    "all certificates renewed in round {name} of {method}; afterwards a party is {then}",
    "went on; ledgers as undisturbed; tables identical",
)
@pytest.mark.parametrize(
    ("method", "name", "then"),
    [("vcds", "release", "awake"), ("strict", "shares", "awake"), ("strict", "sums", "killed")],
)
def test_certificates_are_renewed_while_a_study_is_open(
    found: FaultyNetwork, method: str, name: str, then: str
) -> None:
    study, start = stop_in(found, method, name)
    provision_again(found, "--renew-all")
    renewed = {party: log_of(found, party) for party in PARTIES}
    for kit in (SERVER, "lead", *PARTIES):
        hand_over(found, kit, "certificate.pem", "private-key.pem")
    for party in ("middle", "right"):  # they are in the middle of the study, too
        renewed[party].wait("connecting again with it")
    found.go_on("left", killed=then == "killed")
    assert_done(found, method, study, start)
    if then == "awake":
        renewed["left"].wait("connecting again with it")
    found.signing = None
    assert found.run_with_faults(method, []).problems == ()


@pytest.mark.fault_row(
    "a party changes to an authority of its own in a round of vcds, and renews itself in the next study",
    "failed with that reason, resumed; the next went on; ledgers as undisturbed; tables identical",
)
def test_an_authority_of_ones_own_over_a_live_connection(found: FaultyNetwork) -> None:
    root = new_root(current_time())
    study, start = stop_in(found, "vcds", "release")
    change_authority(found, root, study)
    found.resume(study)
    assert_done(found, "vcds", study, start)
    study, start = stop_in(found, "vcds", "release")
    renewed = log_of(found, "left")
    certify(found, root)
    found.go_on("left")
    renewed.wait("connecting again with it")
    assert_done(found, "vcds", study, start)


@pytest.mark.fault_row(
    "the same in a round of strict, after keys were signed by the certificate that counts no more",
    "ended with that reason; nothing was opened; another study was done",
)
def test_keys_that_an_authority_signed_do_not_outlive_it(found: FaultyNetwork) -> None:
    study, start = stop_in(found, "strict", "shares")
    change_authority(found, new_root(current_time()), study)
    found.resume(study)
    assert "the public key of 'left' is not signed by it" in found.wait_until(study, "failed", "done").note
    rounds = [event["round"] for event in found.events(start) if event["what"] == "kept"]
    assert "keys" in rounds
    assert "sums" not in rounds
    found.signing = None
    assert found.run_with_faults("strict", []).problems == ()


def change_authority(found: FaultyNetwork, root: Root, study: str) -> None:
    """From now on left's own authority alone counts for it; in the middle of a study."""
    authority = found.net.folder / "left-ca.pem"
    authority.write_text(certificates_pem([root.certificate]), "ascii")
    provision_again(found, "--own-ca", f"left={certify(found, root)},{authority}")
    ended, taken = log_of(found, SERVER), log_of(found, "right")
    hand_over(found, SERVER, "notice.json")
    ended.wait("ended the connection of left: .*not signed by a root that is trusted here for that name")
    taken.wait("notice .* was taken from the coordinator")
    # Until left connects with the new certificate, it is a stranger: nobody waits for it, and nothing is lost.
    assert "not signed by a root that is trusted here" in found.wait_until(study, "failed", "done").note
    found.go_on("left")
    found.net.wait_until_connected("left")


@pytest.mark.fault_row(
    "two processes with one identity: a copy of a party's kit, without its vault, is started in mid-study",
    "the older is told; failed, named; the copy stopped, resumed; ledgers as undisturbed; tables identical",
)
def test_two_processes_with_one_identity(found: FaultyNetwork) -> None:
    study, start = stop_in(found, "vcds", "release")
    folder = found.net.folder
    shutil.copytree(folder / "kits" / "left", folder / "copy" / "left", ignore=LARGE)
    told = log_of(found, "left")
    assert found.process_starter is not None
    arguments = ["join", str(folder / "copy" / "left"), "--data", "left.csv", "--policy", "left.toml"]
    copy = found.process_starter.run(found.net, arguments, folder / "copy" / "output.txt")
    try:
        assert "party 'left' was not asked to open this study" in found.wait_until(study, "failed", "done").note
        assert found.entries("left", study) == []
        found.go_on("left")  # it answers what it was asked, and nobody hears it yet
        told.wait("another process that was started later is connected with the kit of 'left'")
    finally:
        back = log_of(found, "left")
        copy.terminate()
        copy.wait(PATIENCE)
    back.wait("coordinator connected")  # by itself
    found.resume(study)
    assert_done(found, "vcds", study, start)


def certify(found: FaultyNetwork, root: Root) -> Path:
    """A new key and a certificate of left's own authority, in left's kit: without a word to anybody else."""
    key, kit = new_key(), found.net.kit("left")
    made = issue_certificate(root, "left", key.public_key(), current_time())
    kit.certificate.write_text(certificates_pem([made]), "ascii")
    kit.private_key.write_text(key_pem(key), "ascii")
    return Path(shutil.copy(kit.certificate, found.net.folder / "left.pem"))


# ---- people -------------------------------------------------------------------------------------------


@pytest.mark.fault_row(
    "a steward answers after a week, twice, and a third question runs out after 30 days",
    "both waits shown with their day, then done; ledger once; the third is asked again",
)
def test_a_steward_who_answers_after_a_week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with years(tmp_path) as found:
        (tmp_path / "middle.toml").write_text((tmp_path / "middle.toml").read_text("utf-8") + 'review = "everything"\n')
        for key, value in found.environment.items():
            monkeypatch.setenv(key, value)
        found.net.start_all()
        for key in found.environment:
            monkeypatch.delenv(key)
        found.wait_until_connected(*PARTIES)
        lead, store = ("--kit", "kits/lead"), RequestStore.of_kit(tmp_path / "kits" / "middle")
        asked = ("submit", "federation.toml", *lead, "--method", "vcds", "--epsilon", "4", "--out", "out")
        study = found.command(*asked, "--no-wait").stdout.split()[1]
        for week in (1, 2):
            question = until_pending(found.net, store, study)
            found.set_day(7 * week)
            shown = " ".join(found.command("status", *lead).stdout.split())
            assert f"the steward of middle since {time.strftime('%Y-%m-%d', time.localtime(question.asked))}" in shown
            answered = found.command("approve", "kits/middle", question.id, "--yes")
            assert answered.returncode == 0, answered.stderr
        fetched = found.command("submit", "federation.toml", *lead, "--out", "out", "--resume", study, "--quiet")
        assert fetched.returncode == 0, fetched.stderr
        entries = found.net.ledger("middle")
        assert sorted(entry["what"] for entry in entries) == ["marginal", "ranks"]
        late = time.strftime("%Y-%m-%d", time.gmtime(time.time() + 14 * 86_400 - 3_600))
        assert all(entry["time"][:10] >= late for entry in entries)
        second = found.command(*asked[:-1], "out2", "--no-wait").stdout.split()[1]
        first_question = until_pending(found.net, store, second)
        found.set_day(14 + 31)
        late_yes = found.command("approve", "kits/middle", first_question.id, "--yes")
        assert late_yes.returncode != 0
        assert "expired" in late_yes.stderr
        question = until_pending(found.net, store, second, first_question.id)
        assert question.content.question == first_question.content.question
        assert found.net.ledger("middle") == entries
        assert not any("Traceback" in found.net.output(name) for name in found.net.processes)


def until_pending(net: Net, store: RequestStore, study: str, other_than: str = "") -> StewardRequest:
    """The request of this study that waits, once one does, and the coordinator knows."""
    end = time.monotonic() + PATIENCE
    while True:
        record = net.record(study)
        assert record.state != "failed", record.note
        waiting = [one for one in store.all(study=study) if one.state == "pending" and one.id != other_than]
        if waiting and record.state == "waiting":
            return waiting[0]
        assert time.monotonic() < end
        time.sleep(0.05)


# ---- many ---------------------------------------------------------------------------------------------

LEADS = tuple(f"lead{number}" for number in range(5))


@pytest.mark.fault_row(
    "50 studies at once, by 5 leads over 10 parties",
    "all done, nobody restarted; each on every ledger once",
)
def test_fifty_studies_of_five_leads_drain_by_themselves(tmp_path: Path) -> None:
    reconnect_soon()
    names = [f"party{number}" for number in range(10)]
    policies = dict.fromkeys(names, METHODS_ALLOWED + "open_studies = 60\nnew_studies = 60\n")
    with contextlib.ExitStack() as stack:
        starter = stack.enter_context(process_starter())
        made = many_federation(names)
        net = stack.enter_context(network(tmp_path, federation=made, tables=many_tables(names), policies=policies))
        net.starter = starter.start
        net.start_all()
        net.wait_until_connected(lead=LEADS[0])
        processes = {name: process.pid for name, process in net.processes.items()}
        with ThreadPoolExecutor(len(LEADS)) as pool:
            ended = [entry for found in pool.map(lambda lead: run_ten(net, lead), LEADS) for entry in found]
        assert Counter(ended) == {("done", ""): 50}
        assert {name: process.pid for name, process in net.processes.items()} == processes
        assert all(process.poll() is None for process in net.processes.values())
        for name in names:
            entries = Counter((entry["study"], entry["what"]) for entry in net.ledger(name))
            assert len(entries) == 100, name
            assert set(entries.values()) == {1}
        assert not any("Traceback" in net.output(name) for name in processes)


def run_ten(net: Net, lead: str) -> list[tuple[str, str]]:
    """How ten studies of one lead have ended, all of which were handed in at once."""
    with Lead(net.kit(lead)) as own:
        studies = [net.submit(own, **METHODS["vcds"]) for _ in range(10)]
        assert len(set(studies)) == 10
        return [net.wait(own, study) for study in studies]


def many_federation(names: list[str]) -> Federation:
    parties = [{"name": n, "column": [{"name": "x", "kind": "continuous", "bounds": [-6, 6]}]} for n in names]
    where = {"host": "localhost", "port": free_port(), "leads": list(LEADS)}
    return Federation.from_dict({"name": "many", "response": f"{names[0]}.x", "network": where, "party": parties})


def many_tables(names: list[str], n: int = 60) -> dict[str, pl.DataFrame]:
    rng = np.random.default_rng(6)
    common, ids = rng.standard_normal(n), [f"person-{i:05d}" for i in range(n)]
    values = {name: np.clip(0.6 * common + 0.8 * rng.standard_normal(n), -6, 6) for name in names}
    return {name: pl.DataFrame({"subject_id": ids, "x": x}) for name, x in values.items()}
