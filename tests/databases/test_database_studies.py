"""Whole studies on tables of real servers: what they leave behind, and what a server that goes away costs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.databases.servers import PASSWORD, USER, Server, mariadb, postgresql
from tests.members import KEY
from tests.network.harness import small_federation, small_tables
from verticopula import Policy, Synthesizer
from verticopula.data.database_address import PASSWORD_VARIABLE
from verticopula.data.database_writing import write_database
from verticopula.data.synthetic_marks import SyntheticMark
from verticopula.data.table_source import party_source
from verticopula.errors import ProtocolError
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.protocol.party.member import Member
from verticopula.protocol.party.refreshed_member import RefreshedMember
from verticopula.storage.vault import Vault
from verticopula.transport.in_process_transport import InProcessTransport

FEDERATION, TABLES = small_federation(), small_tables(120)  # an audit of tables needs a hundred people
MARK = SyntheticMark("made up", "by hand", 1.0, "person", 0.0, "2026-01-02", "tests")


def store(server: Server) -> None:
    """The parties' tables; they are made up, and say so."""
    if server.kind == "postgresql":
        server.administer(f"GRANT ALL ON SCHEMA public TO {USER}")
    source = party_source("x", server.address)
    assert not isinstance(source.place, Path)
    write_database(source.place, TABLES, MARK, PASSWORD, replace=True)


def run(*arguments: Any, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, PASSWORD_VARIABLE: PASSWORD, "COLUMNS": "200"}
    command = [sys.executable, "-m", "verticopula", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment)


def test_a_study_of_a_server_leaves_no_secret_anywhere(server: Server, tmp_path: Path) -> None:
    store(server)
    FEDERATION.to_toml(tmp_path / "federation.toml")
    (tmp_path / "middle.sql").write_text("SELECT subject_id, x2 FROM middle WHERE x2 IS NOT NULL;")
    data = ["--data", server.address, "--query", "middle.sql"]
    said = []
    given = ["--epsilon", 2, "--method", "refined", "--vault", "vault", "--in-house"]
    target = ["--write-table", server.address, "--table-prefix", "drawn_", "--replace"]
    for command in (
        ["check", "federation.toml", *data, "--out", "pages"],
        ["run", "federation.toml", *data, "--out", "study", *given, *target],
        ["run", "federation.toml", *data, "--out", "study", "--overwrite", *given, *target],
        ["write-table", "study", server.address, "--table-prefix", "again_", "--replace"],
        ["ledger", "snapshot", "vault", "federation.toml", "left", "--data", server.address],
        ["report", "study", *data],
        ["audit", "study", *data, "--tables-only", "--out", "audit"],
    ):
        done = run(*command, folder=tmp_path)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout + done.stderr)
    assert said[1].count("is synthetic data of study 'made up'") == 3
    assert "drawn_left" in said[1]
    assert said[4].count("read by study") == 2
    assert 'data-code="in-house"' in (tmp_path / "study" / "report-in-house.html").read_text("utf-8")
    assert "closest record" in said[6]
    drawn = party_source("drawn_left", server.address, password_file=password_file(tmp_path)).load()
    assert drawn.table.columns == ["y", "x1"]
    assert drawn.mark is not None
    assert drawn.mark.method == "refined"
    (tmp_path / "password").unlink()
    written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "secret"}
    written |= {Path(f"said {k}"): text.encode() for k, text in enumerate(said)}
    for private in (PASSWORD, f"127.0.0.1:{server.port}", server.address):
        assert [path for path, content in written.items() if private.encode() in content] == []
    wrong = run("run", "federation.toml", *data, "--out", "study", *given, folder=tmp_path)
    assert wrong.returncode == 1  # a study is there


def password_file(folder: Path) -> Path:
    file = folder / "password"
    file.write_text(PASSWORD)
    file.chmod(0o600)
    return file


def test_tables_that_cannot_be_written_stop_a_run_before_it_spends(server: Server, tmp_path: Path) -> None:
    store(server)
    FEDERATION.to_toml(tmp_path / "federation.toml")
    kept = ["--data", server.address, "--out", "study", "--vault", "vault"]
    done = run("run", "federation.toml", *kept, "--write-table", server.address, "--table-prefix", "", folder=tmp_path)
    assert done.returncode == 1
    assert "a table 'left' is there already" in done.stderr
    assert not (tmp_path / "study").exists()
    assert not (tmp_path / "vault").exists()


@pytest.mark.fault_row(
    "a party's database ({kind}) killed while its table is read",
    "failed, named, nothing spent; with the database resumed; every ledger once",
)
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_server_that_is_killed_while_it_is_read_costs_nothing_and_the_study_is_resumed(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    settings: dict[str, Any] = {"key": KEY, "policy": Policy(), "authenticity": shared_authenticity(KEY)}
    vaults = {name: Vault.open(tmp_path / name) for name in TABLES}
    with postgresql() if kind == "postgresql" else mariadb() as own:
        store(own)
        query = tmp_path / "right.sql"
        query.write_text("SELECT * FROM right_side")
        view = 'SELECT * FROM "right"' if kind == "postgresql" else "SELECT * FROM `right`"
        own.administer(f"CREATE VIEW right_side AS {view}")
        if kind == "postgresql":
            own.administer(f"GRANT ALL ON right_side TO {USER}")
        source = party_source("right", own.address, query)
        members: dict[str, Any] = {
            name: Member(FEDERATION, name, TABLES[name], vault=vaults[name], **settings) for name in ("left", "middle")
        }
        make = partial(Member, FEDERATION, "right", vault=vaults["right"], **settings)
        members["right"] = RefreshedMember(source, make, source.read(), fresh_seconds=0.0)
        wait = "pg_sleep(0.2)::text" if kind == "postgresql" else "SLEEP(0.2)"
        query.write_text(f"SELECT r.*, {wait} AS slow FROM right_side r")  # 16 seconds
        timer = threading.Timer(3.0, own.kill)
        timer.start()
        fit = partial(Synthesizer(FEDERATION, "vcds", epsilon=4.0).fit_transport, InProcessTransport(members))
        with pytest.raises(ProtocolError, match="party 'right' cannot read its table at the moment; nothing was spent"):
            fit(study="unlucky")
        timer.join()
        assert [len(vault.ledger) for vault in vaults.values()] == [0, 0, 0]
        with pytest.raises(ProtocolError, match="cannot read its table"):  # the server is still gone
            fit(study="unlucky")
        own.start()
        query.write_text("SELECT * FROM right_side")
        fit(study="unlucky")
        own.administer("UPDATE right_side SET x4 = 0.5" if kind == "postgresql" else "UPDATE `right` SET x4 = 0.5")
        fit(study="later")
    entries = list(vaults["right"].ledger)
    assert len({(entry.study, entry.snapshot) for entry in entries}) == 2
    assert len({entry.snapshot for entry in entries}) == 2
    for vault in vaults.values():
        vault.close()
