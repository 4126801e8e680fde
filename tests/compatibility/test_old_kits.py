"""Kits of before modules moved, with what processes wrote into them: all of it loads, and none names a module."""

from __future__ import annotations

import re
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from verticopula.network.connection.connection_state import read_state
from verticopula.network.coordinator.study_records import StudyStore
from verticopula.network.kit.certificate_expiry import days_left
from verticopula.network.kit.startup_kit import Kit
from verticopula.network.kit.trust_store import read_trust
from verticopula.schema.defaults import COORDINATOR
from verticopula.schema.federation_digest import federation_fingerprint
from verticopula.storage.vault_files import inspect_vault

OLD = Path(__file__).parent / "kits_0_1"
STUDY = "small-852b66d53cb63562"
WRITTEN = datetime(2026, 11, 18, tzinfo=UTC)


@pytest.fixture
def kits(tmp_path: Path) -> Path:
    shutil.copytree(OLD, tmp_path / "kits")
    for folder in ("server", "left"):
        (tmp_path / "kits" / folder / "private-key.pem").touch()  # no private key is kept here, and none is read
    return tmp_path / "kits"


@pytest.mark.parametrize(
    ("folder", "role", "name"), [("server", "coordinator", COORDINATOR), ("left", "party", "left")]
)
def test_a_kit_loads_with_its_federation_and_whom_it_trusts(kits: Path, folder: str, role: str, name: str) -> None:
    kit = Kit.read(kits / folder)
    assert (kit.role, kit.name) == (role, name)
    assert [party.name for party in kit.federation.parties] == ["left", "middle", "right"]
    assert len(read_trust(kit).roots_for(COORDINATOR)) == 1


def test_the_coordinator_knows_its_studies_and_who_has_connected(kits: Path) -> None:
    kit, store = Kit.read(kits / "server"), StudyStore(kits / "server" / "studies")
    record = store.get(STUDY)
    assert store.all() == [record]
    assert (record.state, record.method, record.rounds) == ("done", "vcds", 8)
    assert record.federation == federation_fingerprint(kit.federation)
    assert set(store.witnesses()) == {"left", "middle", "right"}
    left = days_left(kit, WRITTEN)
    assert set(left) == {"certificate", "root", "lead", "left", "middle", "right"}
    assert min(left.values()) > 300


def test_a_party_has_its_connection_and_its_vault(kits: Path) -> None:
    state = read_state(kits / "left")
    assert state is not None
    assert (state.problem, state.mismatch) == ("", "")
    assert inspect_vault(kits / "left" / "vault") == (4, 1)


def test_no_file_of_a_kit_names_a_module() -> None:
    """So modules can move, and no file can name code that is then run."""
    module = re.compile(rb"verticopula\.[a-z]+")
    files = [path for path in OLD.rglob("*") if path.is_file()]
    assert len(files) > 20
    assert [path.name for path in files if module.search(path.read_bytes())] == []
