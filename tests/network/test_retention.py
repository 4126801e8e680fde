"""Retention in real processes: at its start a party removes what ended long ago, and a study cannot go on with it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.network.faults import Fault, FaultyNetwork, faulty_network
from tests.network.harness import PATIENCE, POLICY

pytestmark = pytest.mark.processes

AT_ONCE = f"{POLICY}consent_days = 1e-6\nretention_days = 1e-6\n"


@pytest.fixture
def faulty(tmp_path: Path) -> Iterator[FaultyNetwork]:
    with faulty_network(tmp_path) as found:
        yield found


def command(*arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "verticopula", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return " ".join(done.stdout.split())


def test_a_study_whose_replies_are_gone_is_refused_by_name_and_pays_nothing_more(faulty: FaultyNetwork) -> None:
    net = faulty.net
    kit, rules = net.folder / "kits" / "right", net.folder / "right.toml"
    study = faulty.begin("vcds", [Fault("left", "kill", "release", "asked")])
    net.wait_for_end("left")
    end = time.monotonic() + PATIENCE
    while not list((kit / "vault" / "replies").glob("*.bin")):  # the right party has released
        assert time.monotonic() < end
        time.sleep(0.05)
    faulty.stop("right")
    ledger = (kit / "vault" / "ledger.jsonl").read_bytes()
    rules.write_text(AT_ONCE, "utf-8")
    assert f"would remove what is stored of study {study}" in command("prune", kit, "--policy", rules, "--dry-run")
    faulty.start("right")
    while list((kit / "vault" / "replies").glob("*.bin")):
        assert time.monotonic() < end
        time.sleep(0.05)
    faulty.start("left")
    record = faulty.wait_until(study, "failed", "done")
    assert record.state == "failed"
    assert record.note.startswith("party 'right': this study ended long ago, and what was stored of it was removed")
    faulty.resume(study)
    assert "retention_days in its policy" in faulty.wait_until(study, "failed", "done").note
    assert (kit / "vault" / "ledger.jsonl").read_bytes() == ledger
    faulty.stop("right")
    assert "chain intact and complete; 0 stored replies" in command("ledger", "verify", kit / "vault")
    assert "0 replies and 0 requests removed" in command("prune", kit, "--policy", rules)
    command("ledger", "export", kit, "--out", net.folder / "trail")
    assert "stored replies of 1 study were removed" in command("ledger", "verify", net.folder / "trail")
    rules.write_text(POLICY + "consent_days = 30.0\nretention_days = 300.0\n", "utf-8")
    faulty.start("right")
    assert faulty.run_with_faults("vcds", []).problems == ()  # others go on
