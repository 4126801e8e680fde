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
from tests.members import MemoryVault, make_member
from verticopula import Synthesizer
from verticopula.errors import BudgetExceeded, PolicyRefused, SchemaError, SettingsError
from verticopula.privacy.policy import Policy
from verticopula.privacy.policy_file import PolicyFile
from verticopula.protocol.party.member import Member
from verticopula.protocol.party.release_control import ReleaseControl
from verticopula.storage.vault import Vault
from verticopula.transport.in_process_transport import InProcessTransport

FEDERATION = make_federation({"hub": {"y": CONTINUOUS}, "bank": {"x": CONTINUOUS}})
VALUES = np.random.default_rng(9).normal(size=(60, 2)).clip(-7, 7)
TABLES = {
    name: pl.DataFrame({"subject_id": [f"s{i}" for i in range(60)], column: VALUES[:, k]})
    for k, (name, column) in enumerate({"hub": "y", "bank": "x"}.items())
}
METHODS, CAPS = 'methods = ["refined"]\n', "[caps]\nclient = 8.0\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "bank.toml").write_text(METHODS + CAPS)
    return tmp_path / "bank.toml"


def make_bank(path: Path, vault: Any = None, dropped: tuple[str, ...] = ()) -> Member:
    rules = PolicyFile(path, "bank", dropped)
    return make_member(FEDERATION, "bank", TABLES["bank"], policy=rules, vault=vault or MemoryVault())


def make_members(path: Path) -> dict[str, Member]:
    return {"hub": make_member(FEDERATION, "hub", TABLES["hub"]), "bank": make_bank(path)}


def study(members: dict[str, Member], **settings: Any) -> Synthesizer:
    return Synthesizer(FEDERATION, "refined", epsilon=1.0, **settings).fit_transport(InProcessTransport(members))


@pytest.mark.parametrize(
    ("tightened", "error", "said"),
    [
        (f"{METHODS}[caps]\nclient = 1.5\n", BudgetExceeded, "per client would go above its cap"),
        (f"{METHODS}{CAPS}person = 0.5\n", BudgetExceeded, "per person"),
        (f'methods = ["strict"]\n{CAPS}', PolicyRefused, "does not take part"),
        (f'columns = ["z"]\n{METHODS}{CAPS}', PolicyRefused, "does not share"),
        (f"min_subjects = 61\n{METHODS}{CAPS}", PolicyRefused, "fewer subjects"),
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
        lambda path: path.write_text(METHODS),
        lambda path: path.write_text(METHODS + "[caps]\n"),
        lambda path: path.write_text(CAPS),
        lambda path: path.write_text(METHODS + "[caps]\nclient = 80"),
    ],
    ids=[
        *("gone", "torn", "negative", "unknown", "binary", "empty", "comment"),
        *("cut before the caps", "cut before the cap", "without its beginning", "half a line"),
    ],
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


@pytest.mark.parametrize("cut", [METHODS, f"{METHODS}[caps]\n", "", CAPS])
def test_a_policy_that_lost_rules_while_its_party_was_not_running_is_refused_until_they_are_given_up(
    path: Path, cut: str
) -> None:
    vault = MemoryVault()
    make_bank(path, vault)
    whole = path.read_text()
    path.write_text(cut)
    lost = [name for name, line in (("methods", METHODS), ("caps.client", "client")) if line not in cut]
    with pytest.raises(SettingsError, match=f"half written.*add --drop-rule {lost[0]}"):
        make_bank(path, vault)
    path.write_text(whole)
    make_bank(path, vault)  # it is whole again
    path.write_text(cut)
    with pytest.raises(SettingsError, match="half written"):
        make_bank(path, vault)
    with pytest.raises(SettingsError, match="has lost no such rule"):
        make_bank(path, vault, (*lost, "delta"))
    make_bank(path, vault, tuple(lost))
    make_bank(path, vault)  # once is enough


def test_a_rule_that_is_changed_or_added_is_remembered(path: Path) -> None:
    vault = MemoryVault()
    bank = make_bank(path, vault)
    path.write_text(f"{METHODS}[caps]\nclient = 9.0\nblock = 20.0\n")
    assert bank.policy.caps.block == 20.0
    path.write_text(METHODS + CAPS)
    with pytest.raises(SettingsError, match=r"has no caps\.block"):
        make_bank(path, vault)
    path.write_text(f"{METHODS}[caps]\nclient = 9.0\nblock = 2")
    with pytest.raises(SettingsError, match="middle of a line"):
        make_bank(path, vault)


def test_a_policy_whose_last_line_has_no_end_can_be_begun_with(path: Path) -> None:
    vault = MemoryVault()
    path.write_text((METHODS + CAPS).rstrip())
    make_bank(path, vault)
    assert make_bank(path, vault).policy.caps.client == 8.0


def test_other_people_have_rules_of_their_own(path: Path) -> None:
    vault = MemoryVault()
    make_bank(path, vault)
    path.write_text(METHODS)
    others = TABLES["bank"].with_columns(pl.col("subject_id") + "x")
    make_member(FEDERATION, "bank", others, policy=PolicyFile(path, "bank"), vault=vault)


@pytest.mark.parametrize("common", [29, 1])
def test_a_new_table_with_some_of_the_people_has_their_rules_to_keep(path: Path, tmp_path: Path, common: int) -> None:
    """49 % of the people, or one: another table to the vault, and the same promise to them."""
    ids = [f"s{i}" for i in range(60 - common, 120 - common)]
    other = pl.DataFrame({"subject_id": ids, "x": VALUES[:, 1]})

    def start(vault: Vault, *dropped: str) -> Member:
        return make_member(FEDERATION, "bank", other, policy=PolicyFile(path, "bank", dropped), vault=vault)

    with Vault.open(tmp_path / "vault") as vault:
        make_bank(path, vault)
        whole = path.read_text()
        path.write_text("")
        with pytest.raises(SettingsError, match=r"has no methods, caps\.client, which it had"):
            start(vault)
        start(vault, "methods", "caps.client")
        start(vault)  # they were given up for this table
        path.write_text(whole)
        make_bank(path, vault)  # whose own rules stay
        path.write_text("")
        with pytest.raises(SettingsError, match="has no methods"):
            make_bank(path, vault)


def test_rules_are_not_forgotten_by_way_of_a_table_in_between(path: Path, tmp_path: Path) -> None:
    """A short file with other people, then with some of the first ones among them: the first ones' rules hold."""

    def start(vault: Vault, numbers: range, *dropped: str) -> Member:
        table = pl.DataFrame({"subject_id": [f"s{i}" for i in numbers], "x": VALUES[:, 1]})
        return make_member(FEDERATION, "bank", table, policy=PolicyFile(path, "bank", dropped), vault=vault)

    with Vault.open(tmp_path / "vault") as vault:
        start(vault, range(60))
        path.write_text("")
        start(vault, range(100, 160))
        for numbers in (range(80, 140), range(60, 120)):
            start(vault, numbers)  # nobody of the first ones
        with pytest.raises(SettingsError, match=r"has no methods, caps\.client, which it had"):
            start(vault, range(40, 100))
        start(vault, range(40, 100), "caps.client", "methods")
        start(vault, range(40, 100))  # once is enough
        path.write_text(METHODS + CAPS)
        start(vault, range(40, 100))
        path.write_text(METHODS)
        with pytest.raises(SettingsError, match=r"has no caps\.client, which it had"):
            start(vault, range(40, 100))  # they are back, and are given up anew or not at all


def test_a_policy_is_asked_again_when_a_release_is_recorded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tightened after consent and before the ledger: nothing is written."""
    members = make_members(path)
    record = ReleaseControl.record

    def late(self: ReleaseControl, *args: Any, **settings: Any) -> None:
        path.write_text(f"{METHODS}[caps]\nclient = 0.1\n")
        record(self, *args, **settings)

    monkeypatch.setattr(ReleaseControl, "record", late)
    with pytest.raises(BudgetExceeded, match="'bank'"):
        study(members)
    assert len(members["bank"].vault.ledger) == 0


def test_a_policy_file_answers_as_the_policy_does(path: Path) -> None:
    path.write_text('columns = ["x"]\nsynthetic = "keep"\ndelta = 1e-7\n')
    file = PolicyFile(path, "bank")
    for name in Policy.model_fields:
        assert getattr(file, name) == getattr(file.current(), name)
    path.write_text('columns = ["x"]\nsynthetic = "lead"\ndelta = 1e-7\nallow_seeded = true\n')
    assert file.allow_seeded
    assert file.synthetic == "lead"


def test_a_party_that_began_without_rules_may_go_on_without(tmp_path: Path) -> None:
    path = tmp_path / "bank.toml"
    path.write_text("")
    file = PolicyFile(path, "bank")
    assert file.current() == Policy()
    os.remove(path)
    with pytest.raises(PolicyRefused):
        file.check("bank", "refined", (), ())
    with pytest.raises(SchemaError):
        PolicyFile(path, "bank")
