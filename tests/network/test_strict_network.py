"""Strict studies of two parties between real processes: the third that computes is killed, and goes on."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest

from tests.builders import make_federation
from tests.network.attackers import LogTail
from tests.network.faults import BREAKING
from tests.network.harness import network, small_federation, tables_beyond_a_copula
from verticopula.errors import ProtocolError
from verticopula.network.coordinator.study_records import COMPUTE_FOLDER
from verticopula.network.network_demo import free_port
from verticopula.privacy.release import Release
from verticopula.privacy.statement import state_privacy
from verticopula.schema.federation import Federation

pytestmark = pytest.mark.network

EPSILON = 100.0  # a study in which tables are opened


def two_parties(**roles: str) -> tuple[Federation, dict[str, pl.DataFrame]]:
    columns = {p.name: {c.name: c.model_dump(exclude_none=True) for c in p.columns} for p in small_federation().parties}
    chosen = {
        name: {c: {k: v for k, v in said.items() if k != "name"} for c, said in columns[name].items()}
        for name in ("left", "right")
    }
    network = {"host": "localhost", "port": free_port(), "deadline": 60.0, **roles}
    tables = tables_beyond_a_copula()
    federation = Federation.from_dict({**make_federation(chosen).to_dict(), "network": network})
    return federation, {name: tables[name] for name in chosen}


def assert_all_spent(entries: Sequence[Release]) -> None:
    """The ledgers say what was asked for a person, and no more; mu has few digits, so that all machines agree on it."""
    assert EPSILON * (1.0 - 1e-6) <= state_privacy(entries, 1e-6).person <= EPSILON * (1.0 + 1e-9)


def test_the_coordinator_of_two_parties_is_killed_in_every_round_of_the_sums_and_goes_on(tmp_path: Path) -> None:
    federation, tables = two_parties(operator="office")
    with network(tmp_path, federation=federation, tables=tables) as net:
        (tmp_path / "faults").mkdir()
        proofs = [(f"proof {step}", "answered") for step in ("commit", "proof", "verdicts")]
        openings = [(name, point) for name in ("sums", "tables") for point in ("answered", "kept")]
        rounds = [("keys", "answered"), *proofs, *openings]
        lines = [
            json.dumps({"who": "server", "round": r, "point": p, "kind": "kill", "signal": "SIGKILL"})
            for r, p in rounds
        ]
        (tmp_path / "faults" / "server.plan").write_text("".join(line + "\n" for line in lines), "utf-8")
        net.start("server", program=(BREAKING,))
        net.start("left", "right")
        with net.lead() as lead:
            study = net.submit(lead, method="strict", epsilon=EPSILON, delta=1e-6)
            for _ in rounds:
                assert net.wait_for_end("server") == -signal.SIGKILL
                net.processes["server"].stdin.close()  # type: ignore[union-attr]
                net.start("server", program=(BREAKING,))
            state, note = net.wait(lead, study)
        assert (state, note) == ("done", "")
        assert [len(net.ledger(name)) for name in ("left", "right")] == [4, 4]
        entries = [Release.from_json(json.dumps(line)) for name in ("left", "right") for line in net.ledger(name)]
        assert_all_spent(entries)
        folder = net.result(study).parent
        # The coordinator reports the study as done first, and removes its secret then.
        LogTail(net.folder / "kits" / "server" / "log.txt").wait(f"study {study} is done")
        assert not (folder / COMPUTE_FOLDER).exists()
        assert re.search(rf"person +{EPSILON:g} at delta", (net.result(study) / "summary.txt").read_text("utf-8"))


def test_a_third_party_without_data_computes_is_killed_and_goes_on(tmp_path: Path) -> None:
    federation, tables = two_parties(operator="left", compute="notary")
    with network(tmp_path, federation=federation, tables=tables) as net:
        assert not (tmp_path / "kits" / "notary" / "id.key").exists()
        (tmp_path / "faults").mkdir()
        for who, rounds in (("notary", ("sums", "tables")), ("left", ("tables",))):
            lines = [
                json.dumps({"who": who, "round": r, "point": "answered", "kind": "kill", "signal": "SIGKILL"})
                for r in rounds
            ]
            (tmp_path / "faults" / f"{who}.plan").write_text("".join(line + "\n" for line in lines), "utf-8")
        net.start("server", "right")
        net.start("notary", "left", program=(BREAKING,))
        with net.lead() as lead:
            study = net.submit(lead, method="strict", epsilon=EPSILON, delta=1e-6)
            for who in ("notary", "notary", "left"):
                assert net.wait_for_end(who) == -signal.SIGKILL
                net.processes[who].stdin.close()  # type: ignore[union-attr]
                net.start(who, program=(BREAKING,))
            state, note = net.wait(lead, study)
            again = net.submit(lead, method="vcds", epsilon=4.0)  # in which nobody computes
            assert net.wait(lead, again) == ("done", "")
        assert (state, note) == ("done", "")
        entries = [Release.from_json(json.dumps(line)) for name in ("left", "right") for line in net.ledger(name)]
        assert_all_spent([e for e in entries if e.study == study])
        assert not (net.result(study).parent / COMPUTE_FOLDER).exists()  # the coordinator holds no shares
        assert "computes for left, right" in net.output("notary")
        assert f"study {study} is over" in net.output("notary")


def test_a_party_that_runs_the_coordinator_gets_no_second_role(tmp_path: Path) -> None:
    federation, tables = two_parties(operator="left")
    with network(tmp_path, federation=federation, tables=tables) as net:
        net.start("server")
        with net.lead() as lead, pytest.raises(ProtocolError, match="two of the three compute roles"):
            net.submit(lead, method="strict", epsilon=EPSILON, delta=1e-6)
