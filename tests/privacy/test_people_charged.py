"""Caps belong to people: new names, other id rules and other people around them give nobody a new budget."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.builders import CONTINUOUS, identify, make_federation
from tests.members import KEY, MemoryVault, make_member
from verticopula import Federation, Policy, Synthesizer
from verticopula.errors import BudgetExceeded
from verticopula.privacy.policy import Caps
from verticopula.protocol.party.member import Member
from verticopula.storage.vault import Vault
from verticopula.transport.in_process_transport import InProcessTransport

OLD = Path(__file__).parent.parent / "compatibility" / "v0_1"
N = 120
BLOCK = np.random.default_rng(6).normal(size=(3 * N, 3)).clip(-7, 7)


def study(
    vault: Vault,
    caps: Caps,
    *,
    names: tuple[str, ...] = ("y", "x", "z"),
    party: str = "bank",
    people: list[int] | None = None,
    spell: Any = "s{}".format,
    rules: tuple[str, ...] = (),
) -> Synthesizer:
    """A study of two parties at epsilon 1 per client; one of them on this vault, under these names and rules."""
    chosen = list(range(N)) if people is None else people
    named = make_federation({party: dict.fromkeys(names, CONTINUOUS), "other": {"w": CONTINUOUS}}).to_dict()
    federation = Federation.from_dict({**named, "id": {"name": "subject_id", "rules": list(rules)}})
    ids = [spell(i) for i in chosen]
    table = pl.DataFrame({"subject_id": ids, **{name: BLOCK[chosen, k] for k, name in enumerate(names)}})
    other = pl.DataFrame({"subject_id": ids, "w": BLOCK[chosen, 0] + BLOCK[chosen, 1]})
    members: dict[str, Member] = {
        party: make_member(federation, party, table, vault=vault, policy=Policy(caps=caps)),
        "other": make_member(federation, "other", other, vault=MemoryVault()),
    }
    return Synthesizer(federation, "vcds", 1.0, unit="client").fit_transport(InProcessTransport(members))


def refused(vault: Vault, unit: str, caps: Caps, **changes: Any) -> None:
    entries = len(vault.ledger)
    with pytest.raises(BudgetExceeded, match=f"per {unit}"):
        study(vault, caps, **changes)
    assert len(vault.ledger) == entries


@pytest.fixture
def vault(tmp_path: Path) -> Any:
    with Vault.open(tmp_path / "vault") as opened:
        yield opened


def test_renamed_columns_and_parties_keep_their_budget_at_variable(vault: Vault) -> None:
    caps = Caps(variable=0.5)  # a study spends a third per column
    study(vault, caps)
    refused(vault, "variable", caps, names=("outcome", "first", "second"))
    refused(vault, "variable", caps, names=("x", "z", "y"), party="another")


def test_other_id_rules_give_the_same_people_no_new_budget(vault: Vault) -> None:
    caps = Caps(client=1.5)
    study(vault, caps)
    for rules in (("upper",), ("strip", "lower"), ("zfill:9",), ("upper", "zfill:12")):
        refused(vault, "client", caps, rules=rules)
    refused(vault, "client", caps, spell="S-{:07d}".format)
    refused(vault, "client", caps, spell=" s{} ".format, rules=("strip",))


@pytest.mark.parametrize("common", [58, 12, 1])
def test_the_same_few_people_among_others_are_charged_every_time(vault: Vault, common: int) -> None:
    """49 % of the table, a tenth, one person."""
    caps = Caps(client=1.5)
    study(vault, caps)
    refused(vault, "client", caps, people=[*range(common), *range(N, 2 * N - common)])
    study(vault, caps, people=list(range(N, 2 * N)))  # nobody in common: others' budget
    refused(vault, "client", caps, people=list(range(N, N + 30)))


@pytest.mark.parametrize("common", [58, 1])
def test_a_member_counts_what_another_one_opened_later_on_the_same_vault_released(vault: Vault, common: int) -> None:
    caps, federation = Caps(client=1.5), make_federation({"bank": {"y": CONTINUOUS}, "other": {"w": CONTINUOUS}})

    def members_of(first: int) -> dict[str, Member]:
        rows = list(range(first, first + N))
        ids, values = [f"s{i}" for i in rows], {name: BLOCK[rows, k] for k, name in enumerate("yw")}
        tables = {name: pl.DataFrame({"subject_id": ids, c: values[c]}) for name, c in (("bank", "y"), ("other", "w"))}
        bank = make_member(federation, "bank", tables["bank"], vault=vault, policy=Policy(caps=caps))
        return {"bank": bank, "other": make_member(federation, "other", tables["other"], vault=MemoryVault())}

    def begin(members: dict[str, Member]) -> None:
        Synthesizer(federation, "vcds", 1.0, unit="client").fit_transport(InProcessTransport(members))

    early = members_of(0)
    late = members_of(N - common)  # `common` people are in both tables
    begin(late)
    with pytest.raises(BudgetExceeded, match="per client"):
        begin(early)
    assert len(vault.ledger) == 2


def test_people_of_an_old_vault_are_known_and_then_known_by_any_spelling(tmp_path: Path) -> None:
    shutil.copytree(OLD / "vault", tmp_path / "old")
    federation = Federation.from_toml(OLD / "federation.toml")
    table = pl.read_csv(OLD / "tables" / "left.csv")
    id_name = federation.id.name
    with Vault.open(tmp_path / "old") as opened:
        (known,) = {entry.table for entry in opened.ledger}
        member = Member(federation, "left", table, key=KEY, vault=opened)
        assert member._account.table == known
        assert identify(opened, (f"  {text}".upper() for text in table[id_name].cast(pl.String).to_list()[:5])) == known
    with Vault.open(tmp_path / "old") as opened:
        assert identify(opened, (f"000{text}" for text in table[id_name].cast(pl.String).to_list())) == known
        assert identify(opened, ["somebody else"]) != known
