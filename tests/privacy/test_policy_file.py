"""A policy that changes on disk holds from the next request on; one that cannot be read refuses everything."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.builders import CONTINUOUS, make_federation
from tests.members import make_member
from verticopula import Synthesizer
from verticopula.errors import BudgetExceeded, PolicyRefused, SchemaError
from verticopula.privacy.policy import Policy
from verticopula.privacy.policy_file import PolicyFile
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.party.member import Member
from verticopula.transport.in_process_transport import InProcessTransport

FEDERATION = make_federation({"hub": {"y": CONTINUOUS}, "bank": {"x": CONTINUOUS}})
VALUES = np.random.default_rng(9).normal(size=(60, 2)).clip(-7, 7)
TABLES = {
    name: pl.DataFrame({"subject_id": [f"s{i}" for i in range(60)], column: VALUES[:, k]})
    for k, (name, column) in enumerate({"hub": "y", "bank": "x"}.items())
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "bank.toml").write_text('methods = ["vcds"]\n[caps]\nclient = 8.0\n')
    return tmp_path / "bank.toml"


def make_members(path: Path) -> dict[str, Member]:
    return {
        "hub": make_member(FEDERATION, "hub", TABLES["hub"]),
        "bank": make_member(FEDERATION, "bank", TABLES["bank"], policy=PolicyFile(path, "bank")),
    }


def study(members: dict[str, Member], **settings: Any) -> Synthesizer:
    return Synthesizer(FEDERATION, epsilon=1.0, **settings).fit_transport(InProcessTransport(members))


@pytest.mark.parametrize(
    ("tightened", "error", "said"),
    [
        ("[caps]\nclient = 1.5\n", BudgetExceeded, "above its cap of 1.5"),
        ("[caps]\nperson = 0.5\n", BudgetExceeded, "per person"),
        ('methods = ["strict"]\n', PolicyRefused, "does not take part"),
        ('columns = ["z"]\n', PolicyRefused, "does not share"),
        ("min_subjects = 61\n", PolicyRefused, "fewer subjects"),
    ],
)
def test_a_tightened_policy_holds_for_the_next_study(
    path: Path, tightened: str, error: type[Exception], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    members = make_members(path)
    study(members)
    entries = len(members["bank"].vault.ledger)
    path.write_text(tightened)
    with caplog.at_level(logging.WARNING), pytest.raises(error, match=said):
        study(members)
    assert len(members["bank"].vault.ledger) == entries
    assert "has changed" in caplog.text


@pytest.mark.parametrize(
    "broken",
    [
        lambda path: path.unlink(),
        lambda path: path.write_text("caps = "),
        lambda path: path.write_text("[caps]\nclient = -1\n"),
        lambda path: path.write_text("secret_rule = 3\n"),
        lambda path: path.write_bytes(b"\xff\xfe"),
        lambda path: path.write_text(""),
        lambda path: path.write_text("# nothing yet\n"),
    ],
    ids=["gone", "torn", "negative", "unknown", "binary", "empty", "comment"],
)
def test_a_policy_that_became_unreadable_or_empty_refuses_everything(path: Path, broken: Any) -> None:
    members = make_members(path)
    before = path.read_text()
    broken(path)
    with pytest.raises(PolicyRefused, match="'bank': its policy file") as caught:
        study(members)
    assert "secret_rule" not in str(caught.value)  # what it says stays in the party's log
    assert len(members["bank"].vault.ledger) == 0
    path.write_text(before)
    study(members)


def test_a_policy_is_asked_again_when_a_release_is_recorded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tightened after consent and before the ledger: nothing is written."""
    members = make_members(path)
    record = LocalParty._record

    def late(self: LocalParty, *args: Any, **settings: Any) -> None:
        path.write_text("[caps]\nclient = 0.1\n")
        record(self, *args, **settings)

    monkeypatch.setattr(LocalParty, "_record", late)
    with pytest.raises(BudgetExceeded, match="'bank'"):
        study(members)
    assert len(members["bank"].vault.ledger) == 0


def test_a_policy_file_answers_as_the_policy_does(path: Path) -> None:
    path.write_text('columns = ["x"]\nsynthetic = "keep"\ndelta = 1e-7\n')
    file = PolicyFile(path, "bank")
    for name in Policy.model_fields:
        assert getattr(file, name) == getattr(file.current(), name)
    path.write_text('synthetic = "lead"\nallow_seeded = true\n')
    assert file.allow_seeded
    assert file.synthetic == "lead"


def test_a_party_that_began_without_rules_may_go_on_without(tmp_path: Path) -> None:
    path = tmp_path / "bank.toml"
    path.write_text("")
    file = PolicyFile(path, "bank")
    assert file.current() == Policy()
    os.remove(path)
    with pytest.raises(PolicyRefused):
        file.check("bank", "vcds", (), ())
    with pytest.raises(SchemaError):
        PolicyFile(path, "bank")
