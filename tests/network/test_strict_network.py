"""A strict study of two parties between real processes: the coordinator computes too, is killed, and goes on."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import polars as pl
import pytest

from tests.builders import make_federation
from tests.network.attackers import LogTail
from tests.network.faults import BREAKING
from tests.network.harness import network, small_federation, small_tables
from verticopula.network.network_demo import free_port
from verticopula.network.study_records import COMPUTE_FOLDER
from verticopula.privacy.release import Release
from verticopula.privacy.statement import state_privacy
from verticopula.schema.federation import Federation

pytestmark = pytest.mark.network


def two_parties() -> tuple[Federation, dict[str, pl.DataFrame]]:
    columns = {p.name: {c.name: c.model_dump(exclude_none=True) for c in p.columns} for p in small_federation().parties}
    chosen = {
        name: {c: {k: v for k, v in said.items() if k != "name"} for c, said in columns[name].items()}
        for name in ("left", "right")
    }
    network = {"host": "localhost", "port": free_port(), "deadline": 60.0}
    tables = small_tables()
    federation = Federation.from_dict({**make_federation(chosen).to_dict(), "network": network})
    return federation, {name: tables[name] for name in chosen}


def test_the_coordinator_of_two_parties_is_killed_in_every_round_of_the_sums_and_goes_on(tmp_path: Path) -> None:
    federation, tables = two_parties()
    with network(tmp_path, federation=federation, tables=tables) as net:
        (tmp_path / "faults").mkdir()
        proofs = [(f"proof {step}", "answered") for step in ("commit", "proof", "verdicts")]
        rounds = [("keys", "answered"), *proofs, ("sums", "answered"), ("sums", "kept")]
        lines = [
            json.dumps({"who": "server", "round": r, "point": p, "kind": "kill", "signal": "SIGKILL"})
            for r, p in rounds
        ]
        (tmp_path / "faults" / "server.plan").write_text("".join(line + "\n" for line in lines), "utf-8")
        net.start("server", program=(BREAKING,))
        net.start("left", "right")
        with net.lead() as lead:
            study = net.submit(lead, method="strict", epsilon=6.0, delta=1e-6)
            for _ in rounds:
                assert net.wait_for_end("server") == -signal.SIGKILL
                net.processes["server"].stdin.close()  # type: ignore[union-attr]
                net.start("server", program=(BREAKING,))
            state, note = net.wait(lead, study)
        assert (state, note) == ("done", "")
        assert [len(net.ledger(name)) for name in ("left", "right")] == [3, 3]
        entries = [Release.from_json(json.dumps(line)) for name in ("left", "right") for line in net.ledger(name)]
        assert state_privacy(entries, 1e-6).person == pytest.approx(6.0, rel=1e-9)
        folder = net.result(study).parent
        # The coordinator reports the study as done first, and removes its secret then.
        LogTail(net.folder / "kits" / "server" / "log.txt").wait(f"study {study} is done")
        assert not (folder / COMPUTE_FOLDER).exists()
        assert re.search(r"person +6 at delta", (net.result(study) / "summary.txt").read_text("utf-8"))
