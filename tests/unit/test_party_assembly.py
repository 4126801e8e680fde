"""A party's process as `join` puts it together: one member for each federation file, with stewards, vault and table."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.network.harness import PATIENCE, POLICY, Net
from verticopula.data.table_source import party_source
from verticopula.errors import ConsentPending
from verticopula.network.party.party_assembly import AssembledParty, PartyParts
from verticopula.privacy.policy_file import PolicyFile
from verticopula.protocol.study_messages import BeginReply, BeginRequest
from verticopula.schema.federation_digest import federation_fingerprint
from verticopula.storage.request_store import RequestStore
from verticopula.storage.vault import Vault


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Net:
    return Net.prepare(tmp_path_factory.mktemp("net"))


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Vault]:
    with Vault.open(tmp_path / "vault") as opened:
        yield opened


def assemble(net: Net, vault: Vault, *, review: bool = False) -> AssembledParty:
    kit, source = net.kit("left"), party_source("left", str(net.folder / "left.csv"))
    rules = PolicyFile(net.folder / "left.toml", "left")
    requests = RequestStore(vault.folder / "requests.db")
    parts = PartyParts(kit, source, rules, requests, vault, vault.folder / "synthetic", review)
    return AssembledParty(parts, source.read(), source.version())


def opening(net: Net, study: str) -> BeginRequest:
    return BeginRequest(study, "vcds", federation_fingerprint(net.federation), "hash", None, 0, "")


def test_it_answers_with_its_table(net: Net, vault: Vault) -> None:
    party = assemble(net, vault)
    assert party.member.subjects == 120
    reply = party.process.member.handle(opening(net, "plain"))
    assert isinstance(reply, BeginReply)
    assert len(reply.hashes) == 120
    assert party.member.has_joined("plain")


def test_with_review_its_stewards_are_asked_first(net: Net, vault: Vault) -> None:
    party = assemble(net, vault, review=True)
    with pytest.raises(ConsentPending):
        party.process.member.handle(opening(net, "asked"))
    assert [request.content.study for request in RequestStore(vault.folder / "requests.db").all("pending")] == ["asked"]


def test_retention_runs_until_it_is_told_to_stop(net: Net, vault: Vault) -> None:
    (net.folder / "left.toml").write_text(POLICY, "utf-8")
    stopped, before = threading.Event(), set(threading.enumerate())  # other tests' processes may run one, too
    assemble(net, vault).start_retention(stopped)
    (own,) = (thread for thread in threading.enumerate() if thread not in before)
    assert own.name == "retention"
    stopped.set()
    own.join(PATIENCE)
    assert not own.is_alive()
