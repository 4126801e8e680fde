"""Caps of `run`: kept in a vault, over all runs about the same people, whatever their folders and names are."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.builders import CONTINUOUS, Call, make_federation
from verticopula import Federation, Policy, Synthesizer
from verticopula.data import large_tables, table_source
from verticopula.data.input_files import write_inputs
from verticopula.errors import BudgetExceeded, SettingsError, VerticopulaError
from verticopula.privacy.policy import Caps
from verticopula.privacy.statement import state_privacy
from verticopula.storage.ledger import read_ledger
from verticopula.storage.vault import Vault
from verticopula.storage.vault_files import inspect_vault

N = 90
BLOCK = np.random.default_rng(4).normal(size=(N, 3)).clip(-7, 7)


def inputs(
    folder: Path, *, party: str = "bank", columns: tuple[str, ...] = ("x", "z"), people: int = N, first: int = 0
) -> Path:
    """Two parties' inputs below a folder, under these names."""
    federation = make_federation({"hub": {"y": CONTINUOUS}, party: dict.fromkeys(columns, CONTINUOUS)})
    ids = [f"s{i}" for i in range(first, first + people)]
    tables = {
        "hub": pl.DataFrame({"subject_id": ids, "y": BLOCK[:people, 0]}),
        party: pl.DataFrame({"subject_id": ids, **{c: BLOCK[:people, k + 1] for k, c in enumerate(columns)}}),
    }
    folder.mkdir(exist_ok=True)
    write_inputs(federation, tables, folder)
    (folder / "policies").mkdir(exist_ok=True)
    (folder / "policies" / f"{party}.toml").write_text("[caps]\nclient = 4.0\n")
    return folder


def run(call: Call, folder: Path, out: str, *more: Any) -> Any:
    given = ["--data", folder / "data", "--out", folder / out, "--policies", folder / "policies", "--quiet"]
    return call("run", folder / "federation.toml", *given, "--method", "vcds", "--epsilon", 4, *more)


def test_a_cap_holds_over_runs_with_folders_of_their_own(tmp_path: Path, call: Call, data_folder: Path) -> None:
    folder = inputs(tmp_path / "in")
    assert run(call, folder, "one").code == 0
    for out in ("two", "three"):
        said = run(call, folder, out)
        assert said.code == 1
        assert "epsilon per client would become 8, above its cap of 4" in said.err
        assert not (folder / out).exists()
    kept = data_folder / "verticopula" / "vaults" / "runs"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    entries = read_ledger(folder / "one" / "ledger.jsonl")
    assert inspect_vault(kept) == (len(entries), 0)
    charged = read_ledger(kept / "ledger.jsonl")
    assert [(e.party, e.column, e.what, e.epsilon) for e in charged] == [
        (e.party, e.column, e.what, e.epsilon) for e in entries
    ]


def test_a_table_is_read_a_column_at_a_time_and_nothing_changes(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `join` does it; the vault knows the people again, whichever way they were read."""
    folder, read = inputs(tmp_path / "in"), []
    for party in ("hub", "bank"):
        place = folder / "data" / f"{party}.csv"
        pl.read_csv(place).write_parquet(place.with_suffix(".parquet"))
        place.unlink()
    seeded = ("--seed", 5, "--vault", tmp_path / "vault")
    column_of = large_tables.FileColumns.read
    monkeypatch.setattr(
        large_tables.FileColumns, "read", lambda self, name: (read.append(name), column_of(self, name))[1]
    )
    (folder / "policies" / "bank.toml").write_text("allow_seeded = true\n")
    assert run(call, folder, "whole", *seeded).code == 0
    assert read == []
    monkeypatch.setattr(table_source, "ROWS_IN_MEMORY", 10)
    assert run(call, folder, "by-column", *seeded).code == 0
    assert {"subject_id", "x", "y", "z"} == set(read)
    one, other = (folder / out / "synthetic" / "joined.parquet" for out in ("whole", "by-column"))
    assert pl.read_parquet(one).equals(pl.read_parquet(other))
    charged = read_ledger(tmp_path / "vault" / "ledger.jsonl")
    assert len({(entry.party, entry.table) for entry in charged}) == 2
    assert len(charged) == 2 * len(read_ledger(folder / "whole" / "ledger.jsonl"))


@pytest.mark.parametrize(
    "changed",
    [
        {"party": "insurer"},
        {"party": "insurer", "columns": ("income", "savings")},
        {"columns": ("x",)},
        {"people": 30},
    ],
    ids=["party", "party and columns", "one column", "a third"],
)
def test_other_names_and_parts_of_a_table_have_no_new_budget(tmp_path: Path, call: Call, changed: Any) -> None:
    assert run(call, inputs(tmp_path / "in"), "one").code == 0
    said = run(call, inputs(tmp_path / "again", **changed), "two")
    assert said.code == 1
    assert "above its cap of 4" in said.err
    assert run(call, inputs(tmp_path / "others", first=1000), "three").code == 0


def test_a_vault_of_ones_own_and_none_without_policies(tmp_path: Path, call: Call, data_folder: Path) -> None:
    folder = inputs(tmp_path / "in")
    own = ("--vault", tmp_path / "vault")
    assert run(call, folder, "one", *own).code == 0
    assert run(call, folder, "two", *own).code == 1
    assert list(data_folder.iterdir()) == []
    plain = ["--data", folder / "data", "--quiet", "--method", "vcds", "--epsilon", 4]
    assert call("run", folder / "federation.toml", *plain, "--out", folder / "three").code == 0
    assert list(data_folder.iterdir()) == []
    new = ("--vault", tmp_path / "new")
    loud = [word for word in plain if word != "--quiet"]
    said = call("run", folder / "federation.toml", *loud, "--out", folder / "four", *new)
    assert said.code == 0  # no policy, no cap; but it is written down
    assert "Charged" in said.out
    assert len(read_ledger(tmp_path / "new" / "ledger.jsonl")) == len(read_ledger(folder / "four/ledger.jsonl"))


def test_a_vault_s_rules_hold_for_a_run_without_policies(tmp_path: Path, call: Call) -> None:
    """Nobody gets round a cap by leaving --policies away."""
    folder, own = inputs(tmp_path / "in"), ("--vault", tmp_path / "vault")
    assert run(call, folder, "one", *own).code == 0
    spent = (tmp_path / "vault" / "ledger.jsonl").read_bytes()
    plain = (folder / "federation.toml", "--data", folder / "data", "--method", "vcds", "--epsilon", 4, *own)
    for command in (("run", *plain, "--out", folder / "two", "--quiet"), ("check", *plain)):
        said = call(*command)
        assert said.code == 1
        assert "party 'bank' has rules that the vault remembers: caps.client" in " ".join(said.err.split())
        assert (tmp_path / "vault" / "ledger.jsonl").read_bytes() == spent
    assert not (folder / "two").exists()
    given_up = ("--drop-rule", "bank.caps.client")
    assert call("run", *plain, "--out", folder / "two", "--quiet", *given_up).code == 0


def test_a_cap_at_person_counts_all_parties_of_a_run(tmp_path: Path, call: Call) -> None:
    """They share the vault, so it knows what every one of them has released about the same people."""
    folder = inputs(tmp_path / "in")
    for party in ("hub", "bank"):
        (folder / "policies" / f"{party}.toml").write_text('methods = ["strict"]\n[caps]\nperson = 2.0\n')
    strict = ("--method", "strict", "--delta", 1e-6, "--unit", "person")
    assert run(call, folder, "one", *strict, "--epsilon", 1.9).code == 0
    said = run(call, folder, "two", *strict, "--epsilon", 1)
    assert said.code == 1
    assert "epsilon per person" in said.err
    entries = read_ledger(folder / "one" / "ledger.jsonl")
    assert state_privacy(entries, 1e-6).person == pytest.approx(1.9, rel=1e-6)
    both = [entry for entry in entries if entry.party == "bank"]
    alone = state_privacy(both, 1e-6).person
    assert alone < 1.88
    for party in ("hub", "bank"):  # room for one party's releases, and not for those of both
        (folder / "policies" / f"{party}.toml").write_text(f'methods = ["strict"]\n[caps]\nperson = {alone + 0.005}\n')
    said = run(call, folder, "three", *strict, "--epsilon", 1.9, "--vault", tmp_path / "v")
    assert said.code == 1
    assert "epsilon per person" in said.err


def test_a_policy_that_lost_its_cap_is_taken_for_half_written(tmp_path: Path, call: Call) -> None:
    folder = inputs(tmp_path / "in")
    policy = folder / "policies" / "bank.toml"
    assert run(call, folder, "one").code == 0
    for lose in (lambda: policy.write_text("[caps]\n"), policy.unlink):
        lose()
        said = run(call, folder, "two")
        assert said.code == 1
        assert "bank.toml has no caps.client" in said.err
        assert "add --drop-rule bank.caps.client" in said.err
        assert not (folder / "two").exists()
    assert "no party" in run(call, folder, "two", "--drop-rule", "caps.client").err
    assert "has lost no such rule" in run(call, folder, "two", "--drop-rule", "hub.caps.client").err
    assert run(call, folder, "two", "--drop-rule", "bank.caps.client").code == 0
    assert run(call, folder, "three").code == 0  # it was given up


def test_a_policy_that_ends_in_the_middle_of_a_line_is_taken_for_half_written(tmp_path: Path, call: Call) -> None:
    folder = inputs(tmp_path / "in")
    policy = folder / "policies" / "bank.toml"
    assert run(call, folder, "one").code == 0
    policy.write_text("[caps]\nclient = 400")
    said = run(call, folder, "two")
    assert said.code == 1
    assert "ends in the middle of a line" in said.err
    assert not (folder / "two").exists()
    policy.write_text("[caps]\nclient = 400\n")
    assert run(call, folder, "two").code == 0


def test_what_a_folder_s_ledger_held_before_there_was_a_vault_counts(tmp_path: Path, call: Call) -> None:
    folder = inputs(tmp_path / "in")
    plain = ["--data", folder / "data", "--out", folder / "one", "--quiet", "--method", "vcds", "--epsilon", 1]
    assert call("run", folder / "federation.toml", *plain).code == 0
    said = run(call, folder, "one", "--overwrite")
    assert "epsilon per client would become 5, above its cap of 4" in said.err
    assert (folder / "one" / "study.json").exists()
    assert run(call, folder, "one", "--overwrite", "--epsilon", 2).code == 0
    assert run(call, folder, "one", "--overwrite", "--epsilon", 2).code == 1  # 1 + 2 + 2, none of it twice
    assert run(call, folder, "one", "--overwrite", "--epsilon", 1).code == 0


def test_a_vault_in_use_or_out_of_reach_is_said_and_nothing_is_left(tmp_path: Path, call: Call) -> None:
    folder = inputs(tmp_path / "in")
    with Vault.open(tmp_path / "vault"):
        said = run(call, folder, "deep/one", "--vault", tmp_path / "vault")
        assert "another process uses this vault" in said.err
    (tmp_path / "file").write_text("")
    said = run(call, folder, "deep/one", "--vault", tmp_path / "file")
    assert said.code == 1
    assert "cannot be used" in said.err
    assert not (folder / "deep").exists()
    said = run(call, folder, "one", "--vault", folder / "one")
    assert "need folders of their own" in said.err
    assert not (folder / "one").exists()


def test_help_teaches_where_caps_are_kept(call: Call) -> None:
    said = call("run", "--help").out
    assert "--vault" in said
    assert "XDG_DATA_HOME" in said


# ---- in Python -------------------------------------------------------------------------------


def study() -> tuple[Federation, dict[str, pl.DataFrame]]:
    federation = make_federation({"hub": {"y": CONTINUOUS}, "bank": {"x": CONTINUOUS}})
    ids = [f"s{i}" for i in range(N)]
    return federation, {
        name: pl.DataFrame({"subject_id": ids, column: BLOCK[:, k]})
        for k, (name, column) in enumerate({"hub": "y", "bank": "x"}.items())
    }


def test_fit_keeps_caps_in_a_vault(tmp_path: Path) -> None:
    federation, tables = study()
    policies = {"bank": Policy(caps=Caps(client=1.5))}
    first = Synthesizer(federation, "vcds", epsilon=1.0).fit(tables, policies=policies, vault=tmp_path / "v")
    assert len(first.ledger_) == 4
    with pytest.raises(BudgetExceeded, match="'bank'"):
        Synthesizer(federation, "vcds", epsilon=1.0).fit(tables, policies=policies, vault=tmp_path / "v")
    with Vault.open(tmp_path / "v") as opened:
        assert len(opened.ledger) == 4
        with pytest.raises(BudgetExceeded):
            Synthesizer(federation, "vcds", epsilon=1.0).fit(tables, policies=policies, vault=opened)
        with pytest.raises(SettingsError, match=r"vault remembers: caps\.client"):
            Synthesizer(federation, "vcds", epsilon=1.0).fit(tables, vault=opened)
    Synthesizer(federation, "vcds", epsilon=1.0).fit(tables, policies=policies)  # as before: only its own ledger counts


def test_the_vault_is_charged_before_anything_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def look(*args: Any) -> Any:
        seen.append([len(read_ledger(tmp_path / name)) for name in ("v/ledger.jsonl", "own.jsonl")])
        raise VerticopulaError("stopped")

    monkeypatch.setattr("verticopula.protocol.party.rank_handler.flip_comparisons", look)
    federation, tables = study()
    with pytest.raises(VerticopulaError, match="stopped"):
        Synthesizer(federation, "vcds", epsilon=1.0).fit(tables, vault=tmp_path / "v", ledger=tmp_path / "own.jsonl")
    assert min(min(counts) for counts in seen) >= 2
