"""`join --engine` between organisations: real processes, of which one party's leaves its rows with a cluster."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.dask_processes import DaskProcesses, kill
from tests.cluster.test_dask_engine import after, assert_same, connect
from tests.engines import FEDERATION, make_tables, write_folders
from tests.members import KEY, SEEDED, make_member
from tests.network.harness import network, small_tables
from verticopula import ProtocolError, Synthesizer
from verticopula.data.engine_source import EngineSource
from verticopula.data.table_source import TableSource
from verticopula.storage.vault import Vault
from verticopula.transport.in_process_transport import InProcessTransport


def test_a_party_joins_with_its_rows_on_a_cluster(cluster: DaskProcesses, tmp_path: Path) -> None:
    """The coordinator and the other parties run as always; another method is refused, and nothing is spent for it."""
    folder = write_folders({"left": small_tables()["left"]}, tmp_path / "shared", 50)["left"]
    (tmp_path / "net").mkdir()
    with network(tmp_path / "net") as net:
        (net.folder / "left.csv").unlink()
        net.start("server", "middle", "right")
        net.start("left", extra=["--data", str(folder), "--engine", cluster.engine])
        net.wait_until_connected()
        with net.lead() as lead:
            study = net.submit(lead, method="vcds", epsilon=8.0, sampler="binomial")
            assert net.wait(lead, study)[0] == "done", net.output("left")
            spent = len(net.ledger("left"))
            assert spent == 4
            refused = net.submit(lead, method="ievcds", epsilon=8.0, sampler="binomial")
            state, note = net.wait(lead, refused)
            assert state == "failed"
            assert "engine" in note
            assert len(net.ledger("left")) == spent


def test_a_member_goes_on_once_its_scheduler_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was recorded before the scheduler died is not charged again, and the numbers are those of frames."""
    monkeypatch.setattr("verticopula.engine.dask_engine._CONNECT_SECONDS", 2.0)
    tables = make_tables(80_000)
    paths = write_folders(tables, tmp_path / "tables", 30_000)
    first = DaskProcesses(tmp_path / "first")
    first.add_worker()
    with Vault.open(tmp_path / "vault") as vault:
        source = EngineSource.of(connect(first), TableSource("bank", paths["bank"]), KEY)
        bank = make_member(FEDERATION, "bank", source.read(), vault=vault, policy=SEEDED)
        agency = make_member(FEDERATION, "agency", tables["agency"], policy=SEEDED)
        parties = {"bank": bank, "agency": agency}
        with monkeypatch.context() as patch:
            after(patch, "release_chunk", 2, lambda: kill(first.scheduler))
            with pytest.raises(ProtocolError, match="can be resumed"):
                study_of(parties)
        first.stop()
        assert len(vault.ledger) == 2 * 4
        second = DaskProcesses(tmp_path / "second", port=first.port)
        try:
            second.add_worker()
            found = study_of(parties)
        finally:
            source.engine.close()
            second.stop()
        assert len(vault.ledger) == 2 * 4
    held = {name: make_member(FEDERATION, name, table, policy=SEEDED) for name, table in tables.items()}
    assert_same(found, study_of(held))


def study_of(parties: dict[str, Any]) -> Synthesizer:
    made = Synthesizer(FEDERATION, "vcds", 4.0, unit="variable", sampler="binomial", random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return made.fit_transport(InProcessTransport(parties), study="one")
