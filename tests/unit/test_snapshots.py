"""Which data left: a keyed digest in the ledger, which tells nothing to whoever lacks the vault's secret."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import CONTINUOUS, Call, make_federation
from verticopula.data.column_encoding import EncodedColumn
from verticopula.data.input_files import write_inputs
from verticopula.data.tables import OwnTable
from verticopula.errors import LedgerError
from verticopula.storage.ledger import read_ledger
from verticopula.storage.snapshot_digest import digest_snapshot
from verticopula.storage.vault import Vault
from verticopula.storage.vault_files import digest_with_secret

SECRET = bytes(range(32))
FEDERATION = make_federation({"hub": {"y": CONTINUOUS}, "bank": {"x": CONTINUOUS, "z": CONTINUOUS}})
N = 60


def digest_of(ids: list[str], columns: dict[str, EncodedColumn], secret: bytes = SECRET) -> str:
    return digest_snapshot(pl.Series(ids, dtype=pl.String), columns, secret)


def whole_column(values: list[float], observed: list[bool] | None = None) -> EncodedColumn:
    return EncodedColumn(np.array(values), np.array(observed or [True] * len(values)))


def test_the_digest_is_of_the_table_whatever_its_order_and_type() -> None:
    ids, a, b = ["1", "2", "3"], [1.0, 2.0, 3.0], [0.0, -0.0, 5.0]
    digest = digest_of(ids, {"a": whole_column(a), "b": whole_column(b)})
    for order in itertools.permutations(range(3)):
        moved = {"b": whole_column([b[k] for k in order]), "a": whole_column([a[k] for k in order])}
        assert digest_of([ids[k] for k in order], moved) == digest
    unseen = whole_column([9.0, 2.0, 3.0], [False, True, True])
    hidden = whole_column([1.0, 2.0, 3.0], [False, True, True])  # whatever stands where nothing was observed
    assert digest_of(ids, {"a": unseen}) == digest_of(ids, {"a": hidden})


TABLES = st.lists(
    st.tuples(st.text(max_size=3), st.sampled_from([0.0, 1.0, 2.5]), st.booleans()),
    max_size=4,
    unique_by=lambda row: row[0],
)


@given(TABLES, TABLES, st.sampled_from(["a", "b", "ab"]), st.sampled_from(["a", "b", "ab"]))
def test_two_tables_share_a_digest_only_if_they_are_one(one: Any, two: Any, name: str, other: str) -> None:
    def digest(rows: Any, called: str) -> str:
        ids, values, seen = ([row[k] for row in rows] for k in range(3))
        encoded = EncodedColumn(np.array(values, dtype=float), np.array(seen, dtype=bool))
        return digest_of(ids, {called: encoded})

    def content(rows: Any) -> set[Any]:
        return {(key, value if seen else None) for key, value, seen in rows}

    same = content(one) == content(two) and name == other
    assert (digest(one, name) == digest(two, other)) == same


def test_guesses_about_a_table_of_few_values_cannot_be_tested_without_the_secret(tmp_path: Path) -> None:
    """Somebody knows all but one bit of the table, the code, and the ledger; the secret is what they lack."""
    ids = ["anna", "bert"]
    with Vault.open(tmp_path / "vault") as vault:
        found = vault.account(ids, {"ill": whole_column([1.0, 0.0])}).snapshot
    guesses = [
        digest_of(ids, {"ill": whole_column([a, 0.0])}, key) for a in (0.0, 1.0) for key in (b"", bytes(32), SECRET)
    ]
    unkeyed = hashlib.sha256(b"").hexdigest()
    assert found not in (*guesses, unkeyed)
    with Vault.open(tmp_path / "other") as vault:
        assert vault.account(ids, {"ill": whole_column([1.0, 0.0])}).snapshot != found
    with Vault.open(tmp_path / "vault") as vault:  # whoever has the vault can show it
        assert vault.account(ids, {"ill": whole_column([1.0, 0.0])}).snapshot == found
        assert vault.account(ids, {"ill": whole_column([0.0, 0.0])}).snapshot != found


def inputs(folder: Path) -> Path:
    rng = np.random.default_rng(2)
    ids = [f"s{k}" for k in range(N)]
    tables = {
        party.name: pl.DataFrame(
            {"subject_id": ids, **{c.name: rng.normal(size=N).clip(-7, 7).round(6) for c in party.columns}}
        )
        for party in FEDERATION.parties
    }
    folder.mkdir()
    write_inputs(FEDERATION, tables, folder)
    return folder


def test_a_steward_shows_which_data_left(tmp_path: Path, call: Call) -> None:
    folder = inputs(tmp_path / "in")
    federation, bank = folder / "federation.toml", folder / "data" / "bank.csv"
    vault = tmp_path / "vault"

    def run(name: str) -> None:
        given = ["--data", folder / "data", "--vault", vault, "--out", tmp_path / name, "--quiet", "--epsilon", 1]
        assert call("run", federation, *given).code == 0

    def snapshot(data: Path) -> Any:
        return call("ledger", "snapshot", vault, federation, "bank", "--data", data)

    run("first")
    kept = tmp_path / "kept.parquet"
    pl.read_csv(bank).sample(fraction=1.0, shuffle=True, seed=1).write_parquet(kept)  # a copy of another kind and order
    cells = pl.read_csv(bank)
    cells.with_columns(x=pl.when(pl.col("subject_id") == "s3").then(0.123).otherwise("x")).write_csv(bank)
    said = snapshot(bank)
    assert said.code == 1
    assert "read by none of 1 studies of bank" in said.out
    run("second")
    entries = read_ledger(vault / "ledger.jsonl")
    digests = {(entry.study, entry.party): entry.snapshot for entry in entries}
    assert len(set(digests.values())) == 3  # the hub's table was the same twice
    assert all(len(digest) == 64 for digest in digests.values())
    studies = list(dict.fromkeys(entry.study for entry in entries))
    assert f"read by study {studies[0]}," in snapshot(kept).out
    assert studies[1] not in snapshot(kept).out
    assert f"read by study {studies[1]}," in snapshot(bank).out
    assert f"snapshot {digests[studies[1], 'bank'][:12]}" in call("ledger", "show", vault).out.replace("\n", " ")


def test_without_a_vault_there_is_no_digest(tmp_path: Path, call: Call) -> None:
    """There is no secret that nobody else has, and a digest without one could be tested."""
    folder = inputs(tmp_path / "in")
    given = ["--data", folder / "data", "--out", tmp_path / "out", "--quiet", "--epsilon", 1]
    assert call("run", folder / "federation.toml", *given).code == 0
    assert {entry.snapshot for entry in read_ledger(tmp_path / "out" / "ledger.jsonl")} == {""}
    (tmp_path / "empty").mkdir()
    table = OwnTable.check(FEDERATION.party("hub"), pl.read_csv(folder / "data" / "hub.csv"), FEDERATION.id)
    with pytest.raises(LedgerError, match="secret is missing"):
        digest_with_secret(tmp_path / "empty", table)
    said = call(
        "ledger", "snapshot", tmp_path / "empty", folder / "federation.toml", "hub", "--data", folder / "data/hub.csv"
    )
    assert "is no vault" in said.err
