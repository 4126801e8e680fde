"""A table that is read again before each study: what studies see of it, and what becomes of one that cannot be read."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.members import KEY
from tests.network.harness import small_federation, small_tables
from verticopula import Policy, Synthesizer
from verticopula.data import table_source
from verticopula.data.column_table import ColumnTable
from verticopula.data.large_tables import open_table
from verticopula.data.table_source import TableSource, party_source
from verticopula.errors import BudgetExceeded, Problem, ProtocolError, SchemaError
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.privacy.policy import Caps
from verticopula.protocol.party.member import Member
from verticopula.protocol.party.refreshed_member import MOST_TABLES, RefreshedMember
from verticopula.protocol.study_lifecycle import begin_study
from verticopula.storage.vault import Vault
from verticopula.transport.delivery import drive
from verticopula.transport.in_process_transport import InProcessTransport

FEDERATION, TABLES = small_federation(), small_tables(80)


class Source:
    """A table whose owner changes it, or whose database goes away."""

    def __init__(self, table: pl.DataFrame) -> None:
        self.table, self.gone, self.reads = table, False, 0

    def version(self) -> object:
        return None

    def read(self) -> pl.DataFrame:
        self.reads += 1
        if self.gone:
            raise SchemaError([Problem("the database", "no server answers at 10.0.0.7")])
        return self.table


def member_of(name: str, vault: Vault, policy: Policy | None = None) -> Callable[[pl.DataFrame], Member]:
    settings: dict[str, Any] = {"key": KEY, "vault": vault, "authenticity": shared_authenticity(KEY)}
    return partial(Member, FEDERATION, name, policy=policy or Policy(), **settings)


@pytest.fixture
def parties(tmp_path: Path) -> Any:
    vaults = {name: Vault.open(tmp_path / name) for name in TABLES}
    source = Source(TABLES["right"])
    members: dict[str, Any] = {name: member_of(name, vaults[name])(TABLES[name]) for name in ("left", "middle")}
    members["right"] = RefreshedMember(source, member_of("right", vaults["right"]), TABLES["right"], fresh_seconds=0.0)
    yield source, members, vaults
    for vault in vaults.values():
        vault.close()


def fit(members: Any, study: str) -> None:
    Synthesizer(FEDERATION, "vcds", epsilon=4.0).fit_transport(InProcessTransport(members), study=study)


def snapshots(vault: Vault) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for entry in vault.ledger:
        found.setdefault(entry.study, set()).add(entry.snapshot)
    return found


def test_each_study_has_the_table_of_its_beginning_and_the_ledger_says_which(parties: Any) -> None:
    source, members, vaults = parties
    fit(members, "first")
    fit(members, "second")
    source.table = TABLES["right"].with_columns(x4=pl.col("x4") * 0.5)
    fit(members, "third")
    found = snapshots(vaults["right"])
    assert [len(digests) for digests in found.values()] == [1, 1, 1]
    assert found["first"] == found["second"] != found["third"]
    assert len({entry.table for entry in vaults["right"].ledger}) == 1  # the same people: one account, one cap
    assert source.reads == 3


def test_a_study_that_has_begun_goes_on_with_its_table(parties: Any) -> None:
    source, members, vaults = parties
    transport = InProcessTransport(members)
    drive(begin_study(FEDERATION, "early", "vcds"), transport)
    source.table = TABLES["right"].with_columns(x4=pl.col("x4") * 0.5)
    fit(members, "late")
    fit(members, "early")  # its rounds go on, after another study has read the new table
    found = snapshots(vaults["right"])
    assert found["early"] != found["late"]


def test_a_database_that_is_gone_spends_nothing_and_the_study_can_be_resumed(
    parties: Any, caplog: pytest.LogCaptureFixture
) -> None:
    source, members, vaults = parties
    source.gone = True
    with pytest.raises(ProtocolError, match="cannot read its table at the moment; nothing was spent") as caught:
        fit(members, "unlucky")
    assert "10.0.0.7" not in str(caught.value)  # it goes to the coordinator; the party's own log has it
    assert "10.0.0.7" in caplog.text
    assert [len(vault.ledger) for vault in vaults.values()] == [0, 0, 0]
    source.gone = False
    fit(members, "unlucky")
    assert set(snapshots(vaults["right"])) == {"unlucky"}


def test_a_table_that_no_longer_fits_is_no_table(parties: Any) -> None:
    source, members, vaults = parties
    source.table = TABLES["right"].drop("x4")
    with pytest.raises(ProtocolError, match="cannot read its table at the moment"):
        fit(members, "wrong")
    with pytest.raises(SchemaError, match="x4"):
        members["right"].refresh()
    source.table = TABLES["right"]
    assert members["right"].refresh() is False
    source.table = TABLES["right"].with_columns(x4=pl.col("x4") * 0.5)
    assert members["right"].refresh() is True
    assert [len(vault.ledger) for vault in vaults.values()] == [0, 0, 0]


def test_a_cap_holds_over_tables_that_were_read_again(tmp_path: Path) -> None:
    """Another state of the table has the same people: it is no new budget."""
    policy = Policy(caps=Caps(client=5.0))
    vaults = {name: Vault.open(tmp_path / name) for name in TABLES}
    source = Source(TABLES["right"])
    members: dict[str, Any] = {name: member_of(name, vaults[name])(TABLES[name]) for name in ("left", "middle")}
    make = member_of("right", vaults["right"], policy)
    members["right"] = RefreshedMember(source, make, TABLES["right"], fresh_seconds=0.0)
    fit(members, "first")
    source.table = TABLES["right"].with_columns(x4=pl.col("x4") * 0.5)
    with pytest.raises(Exception, match="above its cap"):
        fit(members, "second")
    assert set(snapshots(vaults["right"])) == {"first"}
    for vault in vaults.values():
        vault.close()


@pytest.mark.parametrize(("shared", "charged"), [(1, (4, 8, 8)), (20, (4, 8, 8)), (79, (4, 8, 12))])
def test_releases_of_refreshed_tables_are_charged_to_the_people_whom_they_share(
    tmp_path: Path, shared: int, charged: tuple[int, ...]
) -> None:
    """Each state of the table has lost people and won others. Whoever was in several of them has lost all of it."""
    vaults = {name: Vault.open(tmp_path / name) for name in TABLES}
    source = Source(TABLES["right"])
    members: dict[str, Any] = {name: member_of(name, vaults[name])(TABLES[name]) for name in ("left", "middle")}
    make = member_of("right", vaults["right"], Policy(caps=Caps(client=13.0)))
    members["right"] = RefreshedMember(source, make, TABLES["right"], fresh_seconds=0.0)
    ids = TABLES["right"]["subject_id"].sort()
    for number, first in enumerate((0, 80 - shared, 2 * (80 - shared))):
        people = [f"person-{place:05d}" for place in range(first, first + 80)]
        renamed = pl.col("subject_id").replace_strict(dict(zip(ids.to_list(), people, strict=True)))
        tables = {name: table.with_columns(renamed) for name, table in TABLES.items()}
        source.table = tables["right"]
        members |= {name: member_of(name, vaults[name])(tables[name]) for name in ("left", "middle")}
        fit(members, f"study-{number}")
        assert members["right"].current.count_against_caps().client == pytest.approx(charged[number])
    if charged[-1] == 12:  # one more would go above the cap
        with pytest.raises(BudgetExceeded, match="above its cap"):
            fit(members, "one-more")
    for vault in vaults.values():
        vault.close()


def test_a_coordinator_does_not_make_the_database_work_all_the_time(tmp_path: Path) -> None:
    source, now = Source(TABLES["right"]), itertools.count(0, 1)
    policy = Policy(new_studies=99, open_studies=99)
    with Vault.open(tmp_path) as vault:
        make = member_of("right", vault, policy)
        member = RefreshedMember(source, make, TABLES["right"], fresh_seconds=10.0, clock=lambda: float(next(now)))
        for number in range(30):
            member.handle(next(begin_study(FEDERATION, f"s{number}", "vcds"))["right"])
        assert 1 <= source.reads <= 4


def test_tables_of_earlier_studies_do_not_fill_the_memory(tmp_path: Path) -> None:
    source = Source(TABLES["right"])
    with Vault.open(tmp_path) as vault:
        policy = Policy(new_studies=99, open_studies=99)
        member = RefreshedMember(source, member_of("right", vault, policy), TABLES["right"], fresh_seconds=0.0)
        for number in range(MOST_TABLES + 4):
            source.table = TABLES["right"].with_columns(x4=pl.col("x4") * (1 - number / 100))
            member.handle(next(begin_study(FEDERATION, f"s{number}", "vcds"))["right"])
        assert len({id(one) for one in member._begun.values()}) == MOST_TABLES


def test_files_are_read_again_when_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "right.csv"
    TABLES["right"].write_csv(path)
    source = party_source("right", str(path))
    version, table = source.version(), source.read()
    with Vault.open(tmp_path / "vault") as vault:
        member = RefreshedMember(source, member_of("right", vault), table, version)
        assert member.refresh() is False
        TABLES["right"].reverse().write_csv(path)
        assert member.refresh() is False  # other bytes, the same table
        TABLES["right"].with_columns(x4=pl.col("x4") * 0.5).write_csv(path)
        assert member.refresh() is True
        path.unlink()
        with pytest.raises(SchemaError, match="no such file"):
            member.refresh()


def test_a_large_file_that_changes_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its columns are read one after the other; a table of two versions is nobody's."""
    monkeypatch.setattr(table_source, "ROWS_IN_MEMORY", 10)
    path = tmp_path / "right.parquet"
    TABLES["right"].write_parquet(path)
    source = party_source("right", str(path))
    version, table = source.version(), source.read()
    assert isinstance(table, ColumnTable)
    TABLES["right"].reverse().write_parquet(path)
    with Vault.open(tmp_path / "vault") as vault:
        member = RefreshedMember(source, member_of("right", vault), table, version)
        assert member.current.subjects == len(table)
        assert (
            len({entry["names"][0] for entry in json.loads((tmp_path / "vault" / "tables.json").read_text())["tables"]})
            == 1
        )
        assert member.refresh() is False  # other bytes, the same table
        TABLES["right"].with_columns(x4=pl.col("x4") * 0.5).write_parquet(path)
        assert member.refresh() is True

        def torn() -> ColumnTable:
            read = open_table(path)
            TABLES["right"].write_parquet(path)
            assert isinstance(read, ColumnTable)
            return read

        monkeypatch.setattr(TableSource, "read", lambda self: torn())
        TABLES["right"].reverse().write_parquet(path)
        with pytest.raises(SchemaError, match="has changed while it was read"):
            member.refresh()
