"""One organisation's side of a study after a crash, and the synthetic block that it gets in the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.builders import all_required
from tests.members import SEEDED, MemoryVault, make_member, make_members, run
from tests.privacy.member_study import (
    BY_WAY,
    RELEASE,
    FromWhere,
    agree_in,
    answered,
    federation,
    member,
    opening,
    place_of,
    ready,
    tables,
)
from verticopula import NotPrivateWarning, Policy, Synthesizer
from verticopula.data.synthetic_marks import read_file_mark
from verticopula.errors import BudgetExceeded, LedgerError, ProtocolError
from verticopula.privacy.policy import Caps
from verticopula.protocol.consent_messages import PresenceReply, PresenceRequest
from verticopula.protocol.study_lifecycle import close_study, deliver_blocks
from verticopula.protocol.study_messages import BlockReply, BlockRequest, CloseReply, CloseRequest
from verticopula.protocol.wire import encode
from verticopula.storage.vault import Vault
from verticopula.transport.in_process_transport import InProcessTransport

# ---- restarts ----------------------------------------------------------------------------


@BY_WAY
@pytest.mark.parametrize("seed", [None, 6])
def test_a_member_made_anew_goes_on_where_it_was(seed: int | None, way: FromWhere) -> None:
    policy, vault = Policy(allow_seeded=True), MemoryVault()
    asked = opening(seed=seed, alignment=way.alignment)
    first = member(policy=policy, vault=vault, key=way.key)
    opened = answered(first.handle(asked))
    second = member(policy=policy, vault=vault, key=way.key)
    np.testing.assert_array_equal(answered(second.handle(asked)).hashes, opened.hashes)
    second.handle(place_of(opened))
    third = member(policy=policy, vault=vault, key=way.key)
    presence = third.handle(PresenceRequest("study", "vcds"))
    assert isinstance(presence, PresenceReply)
    expected = first.handle(PresenceRequest("study", "vcds"))
    assert isinstance(expected, PresenceReply)
    np.testing.assert_array_equal(presence.observed, expected.observed)


@BY_WAY
def test_a_restart_on_disk_repeats_the_release_and_pays_once(tmp_path: Path, way: FromWhere) -> None:
    with Vault.open(tmp_path) as vault:
        one = member(vault=vault, key=way.key)
        one.handle(place_of(answered(one.handle(opening(alignment=way.alignment)))))
        agree_in(one)
        first = one.handle(RELEASE)
    with Vault.open(tmp_path) as vault:
        two = member(vault=vault, key=way.key)
        second = two.handle(RELEASE)
        assert len(vault.ledger) == 4
        assert len({entry.table for entry in vault.ledger}) == 1
    assert encode(first) == encode(second)


def test_caps_hold_over_studies_and_restarts(tmp_path: Path) -> None:
    policy = Policy(caps=Caps(variable=3.0))
    with Vault.open(tmp_path) as vault:
        ready(vault=vault, policy=policy).handle(RELEASE)
    with Vault.open(tmp_path) as vault:
        one = member(vault=vault, policy=policy)
        one.handle(replace(place_of(answered(one.handle(opening("next")))), study="next"))
        with pytest.raises(BudgetExceeded, match="above its cap"):
            agree_in(one, "next")
        one.handle(RELEASE)  # sent before


def test_a_changed_table_does_not_go_on_with_an_old_study() -> None:
    vault = MemoryVault()
    ready(vault=vault)
    frame = tables()["right"]
    other = frame.with_columns(pl.when(pl.col("n") == 3).then(4).otherwise(pl.col("n")).alias("n"))
    changed = make_member(federation(), "right", other, vault=vault)
    with pytest.raises(ProtocolError, match="has changed since"):
        changed.handle(RELEASE)
    with pytest.raises(ProtocolError, match="another table"):
        changed.handle(opening())
    make_member(federation(), "right", frame.reverse(), vault=vault).handle(RELEASE)  # the same table


@pytest.mark.parametrize("seed", [None, 2])
def test_a_table_or_key_changed_before_the_place_is_known_does_not_go_on(seed: int | None) -> None:
    vault, frame = MemoryVault(), tables()["right"]
    opened = answered(member(vault=vault, policy=SEEDED).handle(opening(seed=seed)))
    for other in (
        make_member(federation(), "right", frame, vault=vault, key=bytes(32)),
        make_member(federation(), "right", frame[1:], vault=vault),
    ):
        with pytest.raises(ProtocolError, match="has changed since"):
            other.handle(place_of(opened))


def test_one_organisation_may_be_two_parties() -> None:
    vault = MemoryVault()
    members = make_members(federation(), tables(), right={"vault": vault}, third={"vault": vault})
    Synthesizer(federation(), "refined").fit_transport(InProcessTransport(members), study="study")
    assert {entry.party for entry in vault.ledger} == {"right", "third"}


def test_a_ledger_that_lost_entries_is_not_opened_again() -> None:
    one = ready()
    one.handle(RELEASE)
    closed = one.handle(CloseRequest("study"))
    assert isinstance(closed, CloseReply)
    assert closed.ledger_count == 4
    one.handle(opening("next", witness_count=closed.ledger_count, witness_head=closed.ledger_head))
    with pytest.raises(LedgerError):
        member().handle(opening("next", witness_count=closed.ledger_count, witness_head=closed.ledger_head))
    with pytest.raises(LedgerError):
        one.handle(opening("more", witness_count=4, witness_head="0" * 64))


def test_closing_tells_every_ledgers_end() -> None:
    members = make_members(federation(), tables())
    Synthesizer(federation(), "refined", epsilon=1.0).fit_transport(InProcessTransport(members), study="study")
    heads = run(close_study(federation(), "study"), members)
    assert heads == {name: m.vault.head() for name, m in members.items()}
    again = Synthesizer(federation(), "refined", epsilon=1.0)
    again.fit_transport(InProcessTransport(members), study="next", witnesses=heads)
    with pytest.raises(ProtocolError, match="was not asked to open"):
        run(close_study(federation(), "unknown"), members)


# ---- synthetic blocks --------------------------------------------------------------------


def block(**values: Any) -> BlockRequest:
    given = {"n": np.array([0.0, 3.0, 50.0]), "g": np.array([0.0, 2.0, 1.0]), **values}
    return BlockRequest("study", tuple(given), tuple(given.values()))


def test_a_block_is_written_at_its_own_party_only(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in tables()}
    members = make_members(federation(), tables(), **{name: {"out": folder} for name, folder in folders.items()})
    fit = Synthesizer(federation(), "refined", epsilon=8.0).fit_transport(InProcessTransport(members), study="study")
    values = fit.draw(30)
    run(deliver_blocks(federation(), "study", values), members)
    expected = fit.decode(values)
    for name, folder in folders.items():
        files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
        assert files == [f"study/{name}{ending}" for ending in (".csv", ".csv-metadata.json", ".parquet")]
        assert read_file_mark(folder / "study" / f"{name}.csv") == read_file_mark(folder / "study" / f"{name}.parquet")
        assert pl.read_parquet(folder / "study" / f"{name}.parquet").equals(expected[name])


def test_a_seeded_block_says_that_it_is_not_private(tmp_path: Path) -> None:
    members = make_members(federation(), tables(), out=tmp_path)
    with pytest.warns(NotPrivateWarning):
        fit = Synthesizer(federation(), "refined", random_state=1).fit_transport(
            InProcessTransport(members), study="study"
        )
    run(deliver_blocks(federation(), "study", fit.draw(5)), members)
    assert "NOT PRIVATE" in (tmp_path / "study" / "READ-ME-FIRST.txt").read_text()


def test_a_party_may_want_no_block() -> None:
    reply = ready().handle(block())
    assert isinstance(reply, BlockReply)
    assert reply.rows == 0


@pytest.mark.parametrize(
    "request_",
    [
        block(n=np.array([0.0, 3.0, 51.0])),
        block(n=np.array([0.0, -1.0, 5.0])),
        block(n=np.array([0.0, 0.5, 5.0])),
        block(n=np.array([0.0, np.inf, 5.0])),
        block(n=np.array([0, 1, 5])),
        block(g=np.array([0.0, 3.0, 1.0])),
        block(g=np.array([0.0, 0.5, 1.0])),
        block(g=np.array([0.0, 1.0])),
        block(n=np.empty(0), g=np.empty(0)),
        block(other=np.zeros(3)),
        BlockRequest("study", ("g", "n"), (np.zeros(3), np.zeros(3))),
        BlockRequest("study", ("n", "g"), (np.zeros(3),)),
        BlockRequest("study", (), ()),
    ],
)
def test_a_block_that_does_not_fit_is_not_written(tmp_path: Path, request_: BlockRequest) -> None:
    with pytest.raises(ProtocolError, match="does not fit"):
        ready(out=tmp_path).handle(request_)
    assert list(tmp_path.iterdir()) == []


def test_a_block_may_have_empty_values_and_missing_rows(tmp_path: Path) -> None:
    members = make_members(federation(), tables(), out=tmp_path)
    fit = Synthesizer(federation(), "refined", epsilon=8.0).fit_transport(InProcessTransport(members), study="study")
    values = fit.draw(30)
    for key, own in values.items():
        own[3:5] = np.nan
        own[5 + list(values).index(key)] = np.nan
    run(deliver_blocks(federation(), "study", values), members)
    for name in members:
        written = pl.read_parquet(tmp_path / "study" / f"{name}.parquet")
        assert written.equals(fit.decode(values)[name])
        assert written[3].null_count().sum_horizontal().item() == written.width


@pytest.mark.parametrize("required", ["n", "g"])
def test_a_block_with_an_empty_value_in_a_required_column_is_not_written(tmp_path: Path, required: str) -> None:
    """It is empty where the whole row is: there the party does not know the synthetic person."""
    strict = all_required(federation(), but={"y", "a", "n", "g", "o", "z"} - {required})
    members = make_members(strict, tables(), out=tmp_path)
    Synthesizer(strict, "refined", epsilon=8.0).fit_transport(InProcessTransport(members), study="study")
    gap = block()
    place = gap.columns.index(required)
    gap.values[place][1] = np.nan
    with pytest.raises(ProtocolError, match="does not fit"):
        members["right"].handle(gap)
    assert list(tmp_path.iterdir()) == []
    gap.values[1 - place][1] = np.nan
    reply = members["right"].handle(gap)
    assert isinstance(reply, BlockReply)
    assert reply.rows == 3
    assert pl.read_parquet(tmp_path / "study" / "right.parquet")[1].null_count().sum_horizontal().item() == 2


@pytest.mark.parametrize("study", ["../up", "/etc/passwd", "..", ".", "a/../../b", "nul:", "über", "a b"])
def test_a_study_cannot_be_named_out_of_its_folder(tmp_path: Path, study: str) -> None:
    out = tmp_path / "out"
    one = member(out=out)
    opened = answered(one.handle(opening(study)))
    one.handle(replace(place_of(opened), study=study))
    agree_in(one, study)
    one.handle(replace(block(), study=study))
    written = list(tmp_path.rglob("*.csv"))
    assert len(written) == 1
    assert written[0].parent.parent == out


def test_keep_or_lead() -> None:
    assert not answered(member().handle(opening())).keeps_block
    assert answered(member(policy=Policy(synthetic="keep")).handle(opening())).keeps_block
