"""A party's vault: one process at a time, tables recognised by their people, and old copies that do not pass."""

from __future__ import annotations

import base64
import errno
import json
import logging
import os
import shutil
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.builders import CONTINUOUS, identify, make_federation
from tests.privacy.durable import OTHERS, open_and_close
from verticopula.cli.app import app
from verticopula.data.column_encoding import EncodedColumn
from verticopula.data.id_checks import normalise_ids
from verticopula.data.tables import OwnTable
from verticopula.errors import BudgetExceeded, LedgerError, VerticopulaError
from verticopula.privacy.policy import Caps, Policy
from verticopula.privacy.release import Release, hash_line, spent_on, spent_on_people
from verticopula.privacy.statement import party_epsilons
from verticopula.schema.federation import IdRule
from verticopula.storage import blobs, record_store
from verticopula.storage.blobs import FolderBlobs
from verticopula.storage.id_sketch import SKETCH_SIZE, canonical_id, hash_people, is_same_table, sketch_ids, smallest
from verticopula.storage.known_tables import TableAccount
from verticopula.storage.ledger import GENESIS, Ledger, read_ledger
from verticopula.storage.vault import Vault
from verticopula.storage.vault_files import inspect_vault, is_vault

KEY = "a" * 64
OTHER = "b" * 64


PLAIN = Release("2025-01-01T00:00:00+00:00", "s", "left", "x", "ranks", "m", 10, 0.5, 0.5, 9, "secure", "public")


def release(column: str = "x", request: str = KEY, table: str = "", party: str = "left") -> Release:
    return replace(PLAIN, column=column, request=request, table=table, party=party)


def ids(start: int, stop: int) -> list[str]:
    return [f"person-{i}" for i in range(start, stop)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A vault with two entries of one request, its stored reply, and one more entry."""
    folder = tmp_path / "vault"
    with Vault.open(folder) as vault:
        vault.ledger.append([release("x"), release("y")])
        vault.replies.put(KEY, b"reply")
        vault.ledger.append([release("z", OTHER)])
    return folder


# ---- one folder, one process -----------------------------------------------------------------


def test_a_vault_is_for_its_owner_only(folder: Path) -> None:
    for path in (folder, folder / "replies", folder / "fits", folder / "studies"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    for path in (folder / "secret", folder / "head.json", folder / "replies" / f"{KEY}.bin"):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    assert len((folder / "secret").read_bytes()) == 32


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_was_open_to_others_is_closed(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(mode)
    with caplog.at_level(logging.WARNING):
        Vault.open(folder).close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert f"mode {mode:04o}" in caplog.text
    caplog.clear()
    Vault.open(folder).close()
    assert caplog.text == ""


def test_a_folder_that_cannot_be_closed_to_others_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    folder.chmod(0o755)

    def refuse(path: Path, mode: int) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(VerticopulaError, match="mode 0755"):
        Vault.open(folder)
    assert list(folder.iterdir()) == []


def test_what_is_kept_is_there_again(folder: Path) -> None:
    with Vault.open(folder) as vault:
        assert [entry.column for entry in vault.ledger] == ["x", "y", "z"]
        assert vault.replies.get(KEY) == b"reply"
        assert vault.replies.get(OTHER) is None
        assert vault.studies.get("any/../name ü") is None
        vault.studies.put("any/../name ü", {"n": 3})
        vault.studies.put("any/../name ü", {"n": 4})
        assert vault.head() == (3, read_ledger(folder / "ledger.jsonl")[-1].hash)
    with Vault.open(folder) as vault:
        assert vault.studies.get("any/../name ü") == {"n": 4}
    assert inspect_vault(folder) == (3, 1)


def test_a_second_process_is_told(folder: Path) -> None:
    with Vault.open(folder), pytest.raises(VerticopulaError, match="another process uses this vault"):
        Vault.open(folder)
    with ProcessPoolExecutor(1, mp_context=OTHERS) as other:
        with Vault.open(folder), pytest.raises(VerticopulaError, match="another process uses this vault"):
            other.submit(open_and_close, folder).result()
        other.submit(open_and_close, folder).result()


def test_a_vault_that_is_in_use_can_be_looked_at(folder: Path) -> None:
    with Vault.open(folder):
        assert inspect_vault(folder) == (3, 1)
    assert is_vault(folder)
    assert not is_vault(folder / "replies")


def test_looking_at_a_vault_while_it_grows(tmp_path: Path) -> None:
    with Vault.open(tmp_path) as vault:
        done = threading.Event()

        def work() -> None:
            for number in range(40):
                key = f"{number:064x}"
                vault.ledger.append([release("x", key, identify(vault, ids(100 * number, 100 * number + 10)))])
                vault.replies.put(key, b"reply")
            done.set()

        worker = threading.Thread(target=work)
        worker.start()
        while not done.is_set():
            inspect_vault(tmp_path)
        worker.join()
        assert inspect_vault(tmp_path) == (40, 40)


def test_an_empty_vault(tmp_path: Path) -> None:
    with Vault.open(tmp_path / "deep" / "vault") as vault:
        assert vault.head() == (0, GENESIS)
        vault.check_witness(0, "")
        vault.check_witness(0, GENESIS)
        with pytest.raises(LedgerError):
            vault.check_witness(1, GENESIS)
    Vault.open(tmp_path / "deep" / "vault").close()


# ---- whom a table is about -------------------------------------------------------------------


@pytest.mark.parametrize("n", [1000, 20_000])
def test_the_same_people_are_the_same_table(tmp_path: Path, n: int) -> None:
    with Vault.open(tmp_path) as vault:
        name = identify(vault, ids(0, n))
        assert identify(vault, reversed(ids(0, n))) == name
        assert identify(vault, ids(0, n) * 2) == name
        assert identify(vault, ids(n // 10, n + n // 10)) == name  # a tenth left, a tenth came
    with Vault.open(tmp_path) as vault:
        assert identify(vault, ids(0, n)) == name
        assert identify(vault, ids(0, int(0.6 * n))) == name
        assert identify(vault, ids(0, n // 50)) == name  # a small part of it
        assert identify(vault, ids(0, 3 * n)) == name  # and a table that it is a part of


@pytest.mark.parametrize("n", [1000, 20_000])
def test_other_people_are_another_table(tmp_path: Path, n: int) -> None:
    with Vault.open(tmp_path) as vault:
        names = {
            identify(vault, ids(0, n)),
            identify(vault, ids(2 * n, 3 * n)),
            identify(vault, ids(3 * n, 4 * n)),
            identify(vault, ids(10 * n, 10 * n + n // 50)),
        }
    assert len(names) == 4


@pytest.mark.parametrize("common", [147, 49, 10, 1])
def test_who_is_in_two_tables_is_charged_for_both(tmp_path: Path, common: int) -> None:
    """The same few people six times, each time among others: one budget."""
    with Vault.open(tmp_path) as vault:
        found = [vault.account(ids(0, common) + ids(1000 * k, 1000 * k + 300 - common), {}) for k in range(1, 7)]
        entries = [release(str(k), table=account.table) for k, account in enumerate(found)]
        for k, account in enumerate(found):
            about = spent_on(entries[: k + 1], "left", account.table, account.overlapping)
            assert about == entries[: k + 1]
        alone = vault.account(ids(2000, 2150), {})
        assert spent_on(entries, "left", alone.table, alone.overlapping) == entries[1:2]  # not in any of the others


def test_large_tables_are_compared_by_as_many_people_as_a_sketch_holds(tmp_path: Path) -> None:
    n = 2 * SKETCH_SIZE
    with Vault.open(tmp_path) as vault:
        name = identify(vault, ids(0, n))
        assert name in vault.account(ids(n - n // 1000, 2 * n - n // 1000), {}).overlapping  # a thousandth of them
        assert vault.account(ids(4 * n, 5 * n), {}).overlapping == ()


def test_nobody_is_forgotten_when_a_table_grows_beyond_a_sketch(tmp_path: Path) -> None:
    n = SKETCH_SIZE - 5_000
    with Vault.open(tmp_path) as vault:
        names = {identify(vault, ids(first, first + n)) for first in (0, n // 3, 2 * n // 3)}
        assert len(names) == 1  # each has most of the one before
        for i in range(0, n, n // 20):
            account = vault.account(ids(i, i + 1), {})
            assert names & {*account.table.split("+"), *account.overlapping}


@pytest.mark.parametrize(
    "spell",
    [
        lambda i: f"AB-{i}",
        lambda i: f"  ab-{i:06d} ",
        lambda i: f"00Ab{i}",
        lambda i: f"ａｂ {i}",
    ],
    ids=["upper", "zeros", "padded", "wide"],
)
def test_another_spelling_of_the_same_ids_is_the_same_table(tmp_path: Path, spell: Callable[[int], str]) -> None:
    with Vault.open(tmp_path) as vault:
        name = identify(vault, (f"ab{i}" for i in range(300)))
        assert identify(vault, (spell(i) for i in range(300))) == name
        assert identify(vault, (f"abc{i}" for i in range(300))) != name


@given(
    st.text(min_size=1, max_size=12),
    st.lists(st.sampled_from(["strip", "upper", "lower", "zfill:4", "zfill:9"]), max_size=4, unique=True),
)
@example("ß", ["upper"])
@example("İı", ["lower", "upper"])
@example("-5", ["zfill:9"])
@example("0", ["zfill:4"])
@settings(max_examples=400)
def test_no_id_rule_changes_whom_an_id_is_about(text: str, rules: list[str]) -> None:
    try:
        rule = IdRule(name="id", rules=tuple(rules))
    except ValueError:
        return
    (applied,) = normalise_ids(pl.Series([text]), rule).to_list()
    if applied.strip():
        assert canonical_id(applied) == canonical_id(text)


@pytest.mark.parametrize(("one", "two"), [("1", "1.0"), ("7", "007"), ("a-1", "A_01"), ("0", "000"), ("x", "0x")])
def test_spellings_of_one_id(one: str, two: str) -> None:
    assert canonical_id(one) == canonical_id(two)


@pytest.mark.parametrize(("one", "two"), [("1", "2"), ("10", "1"), ("a1", "b1"), ("12", "21"), ("0", "1"), ("-", "_")])
def test_ids_that_stay_apart(one: str, two: str) -> None:
    assert canonical_id(one) != canonical_id(two)


def test_parts_of_a_table_do_not_shrink_it(tmp_path: Path) -> None:
    """The whole, one half, then the other half: the other half is still the same table."""
    with Vault.open(tmp_path) as vault:
        name = identify(vault, ids(0, 1000))
        assert identify(vault, ids(0, 500)) == name
        assert identify(vault, ids(500, 1000)) == name


def test_a_table_that_is_two_known_ones_joins_them(tmp_path: Path) -> None:
    with Vault.open(tmp_path) as vault:
        one, two, other = (identify(vault, ids(start, start + 500)) for start in (0, 500, 1000))
        assert len({one, two, other}) == 3
        joined = identify(vault, ids(0, 1000))
        assert set(joined.split("+")) == {one, two}
        assert identify(vault, ids(0, 500)) == identify(vault, ids(500, 1000)) == joined
        assert identify(vault, ids(1000, 1500)) == other
        entries = [release(c, table=t) for c, t in zip("abc", (one, two, other), strict=True)]
        assert [e.column for e in spent_on(entries, "left", joined)] == ["a", "b"]
        assert [e.column for e in spent_on(entries, "left", one)] == ["a"]
        entries.append(release("d", table=joined))
        assert [e.column for e in spent_on(entries, "left", one)] == ["a", "b", "d"]  # the ledger tells of the link


def test_what_counts_at_person_is_what_any_party_released_about_the_people() -> None:
    entries = [
        release("a", table="t", party="left"),
        release("b", table="u", party="right"),
        release("c", table="v", party="left"),
        release("d", party="right"),
        release("e", table="w", party="left"),
    ]
    assert [e.column for e in spent_on_people(entries, "left", "t", ["v"], ["u"])] == ["a", "b", "c", "d"]
    assert spent_on_people(entries, "left", "") == entries


def test_what_counts_against_a_table() -> None:
    entries = [
        release("a", table="t", party="left"),
        release("b", table="t", party="called otherwise"),
        release("c", table="u", party="left"),
        release("d", party="left"),
        release("e", party="other"),
    ]
    assert [e.column for e in spent_on(entries, "left", "t")] == ["a", "b", "d"]
    assert [e.column for e in spent_on(entries, "left", "")] == ["a", "c", "d"]


def test_tables_joined_through_others_count_together() -> None:
    tables = {"a": "t+u", "b": "u+v", "c": "v+w", "d": "x", "e": "w"}
    entries = [release(name, table=table, party="left") for name, table in tables.items()]
    assert [e.column for e in spent_on(entries, "left", "t")] == ["a", "b", "c", "e"]


def test_without_the_secret_ids_cannot_be_tried(tmp_path: Path) -> None:
    people = pl.Series(ids(0, 10))
    one, two = sketch_ids(people, b"k" * 32), sketch_ids(people, b"l" * 32)
    assert not set(one) & set(two)
    assert not set(hash_people(ids(0, 10), b"k" * 32)) & set(hash_people(ids(0, 10), b"l" * 32))
    assert len(smallest(hash_people(ids(0, SKETCH_SIZE + 5), b"k"))) == SKETCH_SIZE
    with Vault.open(tmp_path) as vault, pytest.raises(VerticopulaError, match="nobody"):
        identify(vault, [])


def test_half_of_the_people_is_estimated_well_enough() -> None:
    key, n = np.random.default_rng(3).bytes(32), SKETCH_SIZE + SKETCH_SIZE // 2
    whole = smallest(hash_people(ids(0, n), key))
    assert is_same_table(whole, smallest(hash_people(ids(9 * n // 20, n + 9 * n // 20), key)))  # 55 %
    assert not is_same_table(whole, smallest(hash_people(ids(11 * n // 20, n + 11 * n // 20), key)))  # 45 %


# ---- which column it is ----------------------------------------------------------------------

PEOPLE = 400
DRAWN = np.random.default_rng(8)
INCOME = DRAWN.lognormal(size=PEOPLE)
AREA = DRAWN.integers(0, 5, PEOPLE).astype(float)
FLAG = (DRAWN.random(PEOPLE) < 0.1).astype(float)
VISITS = DRAWN.poisson(1.0, PEOPLE).astype(float)


def encoded(values: np.ndarray, seen: np.ndarray | None = None) -> EncodedColumn:
    return EncodedColumn(values, np.ones(values.size, dtype=bool) if seen is None else seen)


KNOWN = {"income": INCOME, "area": AREA, "flag": FLAG, "visits": VISITS}


@pytest.mark.parametrize(
    ("same_as", "values"),
    [
        ("income", INCOME),
        ("income", INCOME * 1000.0),
        ("income", -INCOME),
        ("income", np.log(INCOME)),
        ("income", np.round(INCOME, 2)),
        ("income", INCOME + np.random.default_rng(2).normal(0.0, 0.01, PEOPLE)),
        ("flag", FLAG),
        ("flag", 1.0 - FLAG),
        ("area", np.array([3.0, 0.0, 4.0, 2.0, 1.0])[AREA.astype(int)]),
        ("visits", VISITS),
        ("visits", np.minimum(VISITS, 4.0)),
    ],
    ids=["renamed", "rescaled", "negated", "log", "rounded", "jittered", "flag", "swapped", "relabelled", "v", "cut"],
)
def test_a_column_is_known_by_its_values(tmp_path: Path, same_as: str, values: np.ndarray) -> None:
    with Vault.open(tmp_path) as vault:
        first = vault.account(ids(0, PEOPLE), {name: encoded(column) for name, column in KNOWN.items()})
        assert len(set(first.columns.values())) == len(KNOWN)
    order = np.random.default_rng(3).permutation(PEOPLE)[: PEOPLE - 40]  # other rows first, and a tenth missing
    with Vault.open(tmp_path) as vault:
        again = vault.account([ids(0, PEOPLE)[i] for i in order], {"another name": encoded(values[order])})
    assert again.table == first.table
    assert again.columns == {"another name": first.columns[same_as]}


@pytest.mark.parametrize("positives", [0, 1])
def test_a_constant_column_is_known_like_its_neighbour(tmp_path: Path, positives: int) -> None:
    values = (np.arange(PEOPLE) < positives).astype(float)
    with Vault.open(tmp_path) as vault:
        first = vault.account(ids(0, PEOPLE), {"hiv": encoded(values), "income": encoded(INCOME)})
        again = vault.account(ids(0, PEOPLE), {"name": encoded(1.0 - values), "income": encoded(INCOME)})
    assert again.columns["name"] == first.columns["hiv"]


def test_a_column_is_known_in_another_table_with_some_of_its_people(tmp_path: Path) -> None:
    """A quarter of the people are in both: two tables, whose common column has one budget under any name."""
    with Vault.open(tmp_path) as vault:
        first = vault.account(ids(0, 200), {"income": encoded(INCOME[:200]), "area": encoded(AREA[:200])})
        more = vault.account(ids(150, 400), {"another name": encoded(INCOME[150:]), "visits": encoded(VISITS[150:])})
    assert more.overlapping == (first.table,)
    assert more.columns["another name"] == first.columns["income"]
    assert more.columns["visits"] not in first.columns.values()


def test_other_columns_of_the_same_people_have_a_budget_of_their_own(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    others = {
        "independent": rng.lognormal(size=PEOPLE),
        "related": INCOME + rng.normal(0.0, 1.0, PEOPLE),
        "as rare": (rng.random(PEOPLE) < 0.1).astype(float),
        "as many": rng.integers(0, 5, PEOPLE).astype(float),
    }
    with Vault.open(tmp_path) as vault:
        first = vault.account(ids(0, PEOPLE), {name: encoded(column) for name, column in KNOWN.items()})
        more = vault.account(ids(0, PEOPLE), {name: encoded(column) for name, column in others.items()})
        assert len({*first.columns.values(), *more.columns.values()}) == len(KNOWN) + len(others)


def test_columns_of_one_table_are_never_joined_whatever_their_values_are(tmp_path: Path) -> None:
    """Whether two columns agree depends on single people, and a cap would tell."""
    with Vault.open(tmp_path) as vault:
        for other in (2.0 * INCOME, np.where(np.arange(PEOPLE) == 7, 0.0, INCOME), -INCOME):
            found = vault.account(ids(0, PEOPLE), {"a": encoded(INCOME), "b": encoded(other)})
            assert found.columns["a"] != found.columns["b"]


def test_a_column_that_keeps_its_name_keeps_its_account_whatever_its_values_are(tmp_path: Path) -> None:
    with Vault.open(tmp_path) as vault:
        first = vault.account(ids(0, PEOPLE), {"a": encoded(INCOME), "b": encoded(AREA)})
        for a, b in ((AREA, INCOME), (AREA, AREA), (VISITS, FLAG)):
            assert vault.account(ids(0, PEOPLE), {"a": encoded(a), "b": encoded(b)}) == first


def test_a_new_name_is_not_compared_with_columns_that_are_still_there(tmp_path: Path) -> None:
    with Vault.open(tmp_path) as vault:
        first = vault.account(ids(0, PEOPLE), {"a": encoded(INCOME)})
        found = vault.account(ids(0, PEOPLE), {"a": encoded(INCOME), "b": encoded(INCOME)})
        assert found.columns["a"] == first.columns["a"] != found.columns["b"]


def test_a_column_that_stays_is_not_compared_with_one_that_is_gone(tmp_path: Path) -> None:
    with Vault.open(tmp_path) as vault:
        first = vault.account(ids(0, PEOPLE), {"a": encoded(INCOME), "b": encoded(INCOME)})
        assert vault.account(ids(0, PEOPLE), {"a": encoded(INCOME)}).columns == {"a": first.columns["a"]}


def test_a_name_that_another_table_has_does_not_hide_a_renamed_column(tmp_path: Path) -> None:
    """`x` is known of a table with a quarter of the people; here it is what was called income."""
    with Vault.open(tmp_path) as vault:
        vault.account(ids(300, 600), {"x": encoded(DRAWN.normal(size=300))})
        first = vault.account(ids(0, PEOPLE), {"income": encoded(INCOME)})
        found = vault.account(ids(0, PEOPLE), {"x": encoded(INCOME)})
        assert first.columns["income"] in found.columns["x"].split("+")


def test_both_new_names_of_a_column_that_was_renamed_keep_its_budget(tmp_path: Path) -> None:
    with Vault.open(tmp_path) as vault:
        first = vault.account(ids(0, PEOPLE), {"income": encoded(INCOME)})
        for _ in range(3):
            found = vault.account(ids(0, PEOPLE), {"a": encoded(INCOME), "b": encoded(-INCOME)})
            assert set(found.columns.values()) == set(first.columns.values())
        back = vault.account(ids(0, PEOPLE), {"income": encoded(AREA), "a": encoded(INCOME)})
        assert set(back.columns.values()) == set(first.columns.values())


def test_columns_that_turn_out_to_be_one_are_joined(tmp_path: Path) -> None:
    """Two halves of the people, then all of them."""
    low, high = slice(0, 200), slice(200, 400)
    with Vault.open(tmp_path) as vault:
        parts = [vault.account(ids(0, 400)[part], {"x": encoded(INCOME[part])}) for part in (low, high)]
        assert parts[0].columns["x"] != parts[1].columns["x"]
        whole = vault.account(ids(0, 400), {"y": encoded(INCOME)})
        assert set(whole.columns["y"].split("+")) == {part.columns["x"] for part in parts}


def test_a_renamed_column_is_charged_to_its_budget() -> None:
    entries = [replace(PLAIN, column="x", content="c"), replace(PLAIN, column="y", content="c")]
    assert party_epsilons(entries, 1e-6).variable == 2 * PLAIN.epsilon
    other = replace(PLAIN, column="y", content="d")
    assert party_epsilons([entries[0], other], 1e-6).variable == PLAIN.epsilon
    assert party_epsilons([*entries, other], 1e-6).variable == 3 * PLAIN.epsilon  # y by name, x by content
    joined = [replace(PLAIN, column=name, content=name) for name in "xy"] + [replace(PLAIN, column="z", content="y+x")]
    assert party_epsilons(joined, 1e-6).variable == 3 * PLAIN.epsilon
    for name in "xyz":  # joined columns stay one under each of their names
        later = party_epsilons([*joined, replace(PLAIN, column=name)], 1e-6)
        assert later.variable == later.client == 4 * PLAIN.epsilon
    old = replace(PLAIN, column="x")  # from before columns were recognised
    assert party_epsilons([old, entries[0]], 1e-6).variable == 2 * PLAIN.epsilon
    policy = Policy(caps=Caps(variable=1.5 * PLAIN.epsilon))
    policy.check("left", "vcds", [other], entries[:1])
    with pytest.raises(BudgetExceeded, match="per variable"):
        policy.check("left", "vcds", entries[1:], entries[:1])


def test_places_cannot_be_read_without_the_secret(tmp_path: Path) -> None:
    """Equal columns, sketched twice, have nothing in common on disk."""
    for name in ("one", "two"):
        with Vault.open(tmp_path / name) as vault:
            vault.account(ids(0, PEOPLE), {"x": encoded(FLAG)})
    first, second = (
        json.loads((tmp_path / name / "tables.json").read_text())["tables"][0]["columns"][0] for name in ("one", "two")
    )
    assert first["people"] != second["people"]
    masked = np.frombuffer(base64.b64decode(first["places"]), dtype=np.uint16)
    assert len(set(masked.tolist())) > 0.9 * PEOPLE  # two places, hidden among all numbers


def shared(vault: Vault, **parties: tuple[list[str], dict[str, np.ndarray]]) -> dict[str, TableAccount]:
    """The accounts of parties of one study in a vault that they share."""
    tables = {}
    for name, (people, columns) in parties.items():
        party = make_federation({name: dict.fromkeys(columns, CONTINUOUS)}).party(name)
        tables[name] = OwnTable(party, pl.Series(people), {key: encoded(column) for key, column in columns.items()})
    return vault.accounts(tables)


def charged_with(account: TableAccount) -> set[str]:
    return {*account.table.split("+"), *account.overlapping}


def test_parties_that_share_a_vault_and_their_people_keep_their_own_budgets(tmp_path: Path) -> None:
    """As in a study in one process; a party that changes its name keeps its budget by its columns."""
    everybody = ids(0, PEOPLE)
    with Vault.open(tmp_path) as vault:
        first = shared(vault, bank=(everybody, {"income": INCOME}), clinic=(ids(0, 300), {"flag": FLAG[:300]}))
        bank, clinic = first["bank"].table, first["clinic"].table
        assert charged_with(first["bank"]) == {bank}
        assert charged_with(first["clinic"]) == {clinic}
        assert (first["bank"].same_people, first["clinic"].same_people) == ((clinic,), (bank,))
        assert charged_with(shared(vault, bank=(ids(0, 200), {"area": AREA[:200]}))["bank"]) == {bank}
        present = (everybody, {"income": INCOME})
        hospital = shared(vault, hospital=(ids(0, 300), {"f": FLAG[:300]}), bank=present)["hospital"]
        assert charged_with(hospital) == {hospital.table, clinic}
        later = shared(vault, hospital=(ids(0, 50), {"v": VISITS[:50]}), bank=(everybody, {"income": INCOME}))
        assert charged_with(later["hospital"]) == {hospital.table, clinic}  # once linked, always
        assert charged_with(later["bank"]) == {bank}
        back = shared(vault, clinic=(ids(0, 300), {"flag": FLAG[:300]}))["clinic"]
        assert charged_with(back) == {clinic, hospital.table}  # and both ways
        assert bank not in charged_with(shared(vault, bank=(ids(900, 950), {"income": INCOME[:50]}))["bank"])
        whole = vault.account(ids(0, 10), {"z": encoded(np.arange(10.0))})  # as one organisation's
        assert {bank, clinic} <= charged_with(whole)
        new = shared(vault, new=(ids(0, 9), {"n": -np.arange(9.0)}))["new"]
        assert set(whole.table.split("+")) <= charged_with(new)


def test_a_new_name_counts_with_parties_that_are_absent_whatever_its_columns_are(tmp_path: Path) -> None:
    """Income cut into other classes is another column, and may be the same party's all the same."""
    people = ids(0, PEOPLE)
    low, high = ((np.quantile(INCOME, q) < INCOME).astype(float) for q in (0.2, 0.8))
    with Vault.open(tmp_path) as vault:
        first = shared(vault, other=(people, {"w": AREA}), bank=(people, {"low": low}))
        again = shared(vault, other=(people, {"w": AREA}), insurer=(people, {"high": high}))
        assert first["bank"].table in charged_with(again["insurer"])
        assert charged_with(again["other"]) == charged_with(first["other"])
        both = shared(vault, other=(people, {"w": AREA}), shop=(people, {"v": VISITS}), bank=(people, {"low": low}))
        assert first["bank"].table not in charged_with(both["shop"])


def test_a_column_that_two_parties_hold_does_not_make_them_one(tmp_path: Path) -> None:
    people = ids(0, PEOPLE)
    both: dict[str, Any] = {
        "bank": (people, {"age": INCOME, "x": AREA}),
        "clinic": (people, {"age": INCOME, "y": FLAG}),
    }
    with Vault.open(tmp_path) as vault:
        first = shared(vault, **both)
        assert charged_with(first["bank"]).isdisjoint(charged_with(first["clinic"]))
        for name in both:  # in a study without the other one, too
            assert charged_with(shared(vault, **{name: both[name]})[name]) == charged_with(first[name])


def test_a_decoy_under_the_old_name_does_not_free_the_columns(tmp_path: Path) -> None:
    """Another party takes over the columns; the old name stays in the study, with others."""
    people = ids(0, PEOPLE)
    with Vault.open(tmp_path) as vault:
        bank = shared(vault, bank=(people, {"x": INCOME}))["bank"].table
        for _ in range(2):  # refused or not, the second time it is no other
            found = shared(vault, insurer=(people, {"z": 3.0 * INCOME}), bank=(people, {"junk": AREA}))
            assert bank in charged_with(found["insurer"])


def test_a_small_part_of_a_large_table_keeps_its_budgets(tmp_path: Path) -> None:
    """Thirty people of five thousand, all from one end of the column, under other names."""
    values = np.random.default_rng(12).normal(size=5000)
    lowest = np.argsort(values)[:30]
    with Vault.open(tmp_path) as vault:
        whole = shared(vault, bank=(ids(0, 5000), {"x": values}))["bank"]
        part = shared(vault, insurer=([f"person-{i}" for i in lowest], {"y": -values[lowest]}))["insurer"]
        assert whole.table in charged_with(part)
        assert part.columns["y"] == whole.columns["x"]


def test_where_columns_cannot_be_compared_the_same_people_are_charged(tmp_path: Path) -> None:
    """Four people: whether it is another party's table nobody can tell, unless that party is in the same study."""
    rest = np.random.default_rng(1).normal(size=104)
    with Vault.open(tmp_path) as vault:
        bank = shared(vault, bank=(ids(0, PEOPLE), {"income": INCOME}))["bank"]
        clinic = (ids(0, 4) + ids(900, 1000), {"z": rest})
        both = shared(vault, clinic=clinic, bank=(ids(0, PEOPLE), {"income": INCOME}))
        assert bank.table not in charged_with(both["clinic"])
        for _ in range(2):
            found = shared(vault, insurer=(ids(5, 9) + ids(1900, 2000), {"z": -rest}))
            assert bank.table in charged_with(found["insurer"])


def test_many_columns_are_recognised_in_one_go(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    block = rng.normal(size=(300, 80))
    block[:, 40:60] = (block[:, 40:60] > 1.0).astype(float)
    block[:, 60:] = rng.integers(0, 4, size=(300, 20))
    with Vault.open(tmp_path) as vault:
        first = vault.account(ids(0, 300), {f"c{j}": encoded(block[:, j]) for j in range(80)})
        assert len(set(first.columns.values())) == 80
        written = (tmp_path / "tables.json").read_bytes()
        again = vault.account(ids(0, 300), {f"d{j}": encoded(-block[:, j]) for j in range(80)})
        assert [again.columns[f"d{j}"] for j in range(80)] == [first.columns[f"c{j}"] for j in range(80)]
        same = vault.account(ids(0, 300), {f"c{j}": encoded(block[:, j]) for j in range(80)})
        assert same == first
    assert len((tmp_path / "tables.json").read_bytes()) < 2 * len(written)


def test_a_folder_of_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    """Nobody's home folder is closed because it was given as a vault."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "letter.txt").write_text("")
    home.chmod(0o755)
    with pytest.raises(VerticopulaError, match="is no vault"):
        Vault.open(home)
    assert stat.S_IMODE(home.stat().st_mode) == 0o755
    assert [path.name for path in home.iterdir()] == ["letter.txt"]


# ---- files that do not belong together -------------------------------------------------------


def cut_ledger(folder: Path) -> None:
    path = folder / "ledger.jsonl"
    path.write_text("".join(line + "\n" for line in path.read_text().splitlines()[:2]))


def empty_ledger(folder: Path) -> None:
    (folder / "ledger.jsonl").write_text("")


def lose_ledger(folder: Path) -> None:
    (folder / "ledger.jsonl").unlink()


def other_history(folder: Path) -> None:
    """An old copy, on which somebody went on."""
    cut_ledger(folder)
    Ledger(folder / "ledger.jsonl").append([release("other", OTHER), release("more", OTHER)])


def old_ledger_and_no_head(folder: Path) -> None:
    empty_ledger(folder)
    (folder / "head.json").unlink()


def cut_ledger_and_no_head(folder: Path) -> None:
    cut_ledger(folder)
    (folder / "head.json").unlink()


def old_ledger_and_head(folder: Path) -> None:
    """Both put back, from before anything was released."""
    empty_ledger(folder)
    (folder / "head.json").write_text(json.dumps({"count": 0, "hash": GENESIS, "replies": 0, "guarded": True}))


def lose_replies(folder: Path) -> None:
    shutil.rmtree(folder / "replies")


def strange_head(folder: Path) -> None:
    (folder / "head.json").write_text('{"count": "3"}')


def torn_head(folder: Path) -> None:
    (folder / "head.json").write_text('{"count"')


def stray_reply(folder: Path) -> None:
    shutil.copy(folder / "replies" / f"{KEY}.bin", folder / "replies" / f"{'c' * 64}.bin")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (cut_ledger, "has 2 entries and had 3"),
        (empty_ledger, "has 0 entries and had 3"),
        (lose_ledger, "has 0 entries and had 3"),
        (other_history, "entry 3 of the ledger is not the one"),
        (old_ledger_and_no_head, "head.json is missing"),
        (cut_ledger_and_no_head, "head.json is missing"),
        (old_ledger_and_head, "1 stored replies answer requests that the ledger does not know"),
        (lose_replies, "1 stored replies are missing"),
        (strange_head, "head.json cannot be read"),
        (torn_head, "head.json cannot be read"),
        (stray_reply, "does not know"),
    ],
)
def test_old_copies_and_lost_files_are_noticed(folder: Path, change: Callable[[Path], None], said: str) -> None:
    change(folder)
    with pytest.raises(LedgerError, match=said) as caught:
        Vault.open(folder)
    assert "newest copy" in str(caught.value)
    with pytest.raises(LedgerError):
        Vault.open(folder)  # and the refusal has mended nothing; the lock was given back
    if change is not lose_ledger:
        with pytest.raises(LedgerError):
            inspect_vault(folder)


# ---- records of studies ----------------------------------------------------------------------


@pytest.fixture
def kept(folder: Path) -> Path:
    """The same vault with two records, one of which has changed; beside it the copies from before that."""
    with Vault.open(folder) as vault:
        vault.studies.put("no", {"said": 1})
        vault.studies.put("noise", {"drawn": False})
        shutil.copytree(folder / "studies", folder.with_name("copy"))
        vault.studies.put("noise", {"drawn": True})
    return folder


def put_back_one(folder: Path) -> None:
    for path in folder.with_name("copy").iterdir():
        shutil.copy(path, folder / "studies" / path.name)


def lose_one(folder: Path) -> None:
    next((folder / "studies").iterdir()).unlink()


def lose_all(folder: Path) -> None:
    shutil.rmtree(folder / "studies")


def stray_record(folder: Path) -> None:
    shutil.copy(next((folder / "studies").iterdir()), folder / "studies" / f"{'c' * 64}.bin")


def torn_state(folder: Path) -> None:
    (folder / "records.json").write_text("[")


@pytest.mark.parametrize("change", [put_back_one, lose_one, lose_all, stray_record, torn_state])
def test_records_that_are_lost_or_old_are_noticed(kept: Path, change: Callable[[Path], None]) -> None:
    """Without them noise would be drawn anew on what was paid for once, and a steward's no be forgotten."""
    change(kept)
    for _ in range(2):  # the refusal has mended nothing
        with pytest.raises(LedgerError, match=r"records of studies are missing, or were put back.*newest copy"):
            Vault.open(kept)


def test_records_without_their_digest_are_noticed(kept: Path) -> None:
    """Whoever could put back old records could delete what tells on them."""
    put_back_one(kept)
    (kept / "records.json").unlink()
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"records\.json is missing.*newest copy"):
            Vault.open(kept)


def test_records_of_an_earlier_version_are_taken_as_they_are_and_watched_from_then_on(kept: Path) -> None:
    (kept / "records.json").unlink()
    head = json.loads((kept / "head.json").read_text())
    (kept / "head.json").write_text(json.dumps({name: head[name] for name in ("count", "hash", "replies")}))
    Vault.open(kept).close()
    put_back_one(kept)
    with pytest.raises(LedgerError, match="records of studies"):
        Vault.open(kept)


@pytest.mark.parametrize("dies_at", range(1, 4), ids=["said", "stored", "settled"])
def test_a_crash_while_a_record_is_put_leaves_a_vault_that_opens(
    kept: Path, dies_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the record is on disk, after it, and in the middle of a full disk; then the next record is put."""
    written, write = [0], record_store.write_atomically

    def fail(path: Path, data: bytes, **more: Any) -> None:
        written[0] += 1
        if written[0] == dies_at:
            raise OSError(errno.ENOSPC, "no space left")
        write(path, data, **more)

    with Vault.open(kept) as vault:
        with monkeypatch.context() as patch:
            patch.setattr(record_store, "write_atomically", fail)
            patch.setattr(blobs, "write_atomically", fail)
            with pytest.raises(OSError, match="no space"):
                vault.studies.put("noise", {"drawn": "again"})
        shutil.copytree(kept, kept.with_name("crashed"))
        vault.studies.put("another", {})
    for folder in (kept, kept.with_name("crashed")):
        with Vault.open(folder) as vault:
            assert vault.studies.get("noise") == {"drawn": "again" if dies_at == 3 else True}


def test_records_that_are_put_at_the_same_time_leave_a_vault_that_opens(folder: Path) -> None:
    with Vault.open(folder) as vault, ThreadPoolExecutor(4) as several:
        list(several.map(lambda number: vault.studies.put(str(number % 5), {"n": number}), range(40)))
    with Vault.open(folder) as vault:
        assert all(vault.studies.get(str(number)) is not None for number in range(5))


def test_tables_and_their_key_cannot_be_lost_unseen(tmp_path: Path) -> None:
    with Vault.open(tmp_path) as vault:
        vault.ledger.append([release(table=identify(vault, ids(0, 10)))])
    kept = (tmp_path / "tables.json").read_bytes()
    for content in (b'{"tables": []}', b"{", b'{"tables": [{"names": ["x"]}]}', None):
        (tmp_path / "tables.json").unlink()
        if content is not None:
            (tmp_path / "tables.json").write_bytes(content)
        with pytest.raises(LedgerError, match=r"tables\.json"):
            Vault.open(tmp_path)
        (tmp_path / "tables.json").write_bytes(kept)
    (tmp_path / "secret").unlink()
    with pytest.raises(LedgerError, match="secret is missing"):
        Vault.open(tmp_path)


def test_a_head_that_lags_behind_is_mended(folder: Path) -> None:
    """A crash after the entries are on disk and before the head is."""
    Ledger(folder / "ledger.jsonl").append([release("late", OTHER)])
    assert inspect_vault(folder) == (4, 1)
    with Vault.open(folder) as vault:
        assert len(vault.ledger) == 4
    assert json.loads((folder / "head.json").read_text())["count"] == 4


def test_a_witness_notices_what_the_folder_cannot(folder: Path) -> None:
    """The whole folder was put back: only somebody outside can know."""
    old = folder.with_name("copy")
    shutil.copytree(folder, old)
    with Vault.open(folder) as vault:
        vault.ledger.append([release("late", OTHER)])
        seen = vault.head()
        vault.check_witness(*seen)
    with Vault.open(old) as vault:
        with pytest.raises(LedgerError, match="seen 4 entries"):
            vault.check_witness(*seen)
        vault.ledger.append([release("another", OTHER)])
        with pytest.raises(LedgerError, match="seen 4 entries"):
            vault.check_witness(*seen)  # as long again, and still another one
        vault.check_witness(2, list(vault.ledger)[1].hash)


@pytest.mark.parametrize("damage", [b"", b"short", b"\x00" * 40])
def test_a_damaged_reply_is_an_error(folder: Path, damage: bytes) -> None:
    (folder / "replies" / f"{KEY}.bin").write_bytes(damage)
    with Vault.open(folder) as vault, pytest.raises(LedgerError, match="damaged"):
        vault.replies.get(KEY)
    with pytest.raises(LedgerError, match="damaged"):
        inspect_vault(folder)


def test_replies_cannot_change_places(folder: Path) -> None:
    with Vault.open(folder) as vault:
        vault.replies.put(OTHER, b"another reply")
        os.replace(folder / "replies" / f"{OTHER}.bin", folder / "replies" / f"{KEY}.bin")
        with pytest.raises(LedgerError, match="damaged"):
            vault.replies.get(KEY)


def test_a_key_is_no_path(tmp_path: Path) -> None:
    blobs = FolderBlobs(tmp_path, sync=False)
    for key in ("../../etc/passwd", "a", "A" * 64, "a" * 64 + "\n"):
        with pytest.raises(ValueError, match="hex digest"):
            blobs.put(key, b"")


# ---- a line cut short ------------------------------------------------------------------------


@pytest.mark.parametrize("left", [1, 2, 30, -2])
def test_a_torn_last_line_is_taken_back(folder: Path, left: int, caplog: pytest.LogCaptureFixture) -> None:
    """Written by a crash, before the head: nothing was released under it."""
    path = folder / "ledger.jsonl"
    whole = path.read_bytes()
    Ledger(path).append([release("torn", OTHER)])
    torn = path.read_bytes()[len(whole) :]
    path.write_bytes(whole + torn[:left])
    with caplog.at_level(logging.WARNING), Vault.open(folder) as vault:
        assert [entry.column for entry in vault.ledger] == ["x", "y", "z"]
    assert "cut short" in caplog.text
    assert path.read_bytes() == whole


def test_an_entry_that_lacks_only_its_end_is_kept(folder: Path) -> None:
    path = folder / "ledger.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with Vault.open(folder) as vault:
        vault.ledger.append([release("next", OTHER)])
    assert path.read_bytes().startswith(whole)
    assert len(read_ledger(path)) == 4


def test_a_torn_line_left_by_another_process_does_not_stop_an_append(folder: Path) -> None:
    path = folder / "ledger.jsonl"
    ledger = Ledger(path)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"bounds": "pu')
    ledger.append([release("next", OTHER)])
    assert [entry.column for entry in read_ledger(path)] == ["x", "y", "z", "next"]


@pytest.mark.parametrize("tail", [b"{}", b"hello", b"\xff", b"\n{"], ids=str)
def test_only_the_beginning_of_an_entry_is_taken_back(folder: Path, tail: bytes) -> None:
    path = folder / "ledger.jsonl"
    content = path.read_bytes() + tail
    path.write_bytes(content)
    with pytest.raises(LedgerError):
        Vault.open(folder)
    assert path.read_bytes() == content


def test_a_torn_line_after_a_release_is_no_crash(folder: Path) -> None:
    """The head knows of three entries: somebody cut the third."""
    path = folder / "ledger.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(LedgerError, match="has 2 entries and had 3"):
        Vault.open(folder)


def test_old_lines_without_the_new_fields_still_verify(tmp_path: Path) -> None:
    """As ledgers were written before tables and requests were named."""
    raw = json.loads(replace(PLAIN, previous=GENESIS).to_json())
    del raw["table"], raw["request"]
    raw["hash"] = hash_line(raw)
    (tmp_path / "ledger.jsonl").write_text(json.dumps(raw) + "\n")
    (tmp_path / "head.json").write_text(json.dumps({"count": 1, "hash": raw["hash"], "replies": 0}))
    with Vault.open(tmp_path) as vault:
        (entry,) = vault.ledger
        assert (entry.table, entry.request) == ("", "")
        vault.ledger.append([release()])
    assert len(read_ledger(tmp_path / "ledger.jsonl")) == 2


# ---- the command line ------------------------------------------------------------------------


def test_verify_and_show_know_vaults(folder: Path) -> None:
    with Vault.open(folder) as vault:
        one, two = identify(vault, ids(0, 10)), identify(vault, ids(10, 20))
        vault.ledger.append([release(table=one), release(table=identify(vault, ids(0, 20)))])
    runner = CliRunner()
    said = runner.invoke(app, ["ledger", "verify", str(folder)])
    assert "5 entries, chain intact and complete; 1 stored replies" in said.stdout
    shown = runner.invoke(app, ["ledger", "show", str(folder)])
    assert f"table {one[:6]}, table {one[:6]}+{two[:6]}" in shown.stdout
    cut_ledger(folder)
    refused = runner.invoke(app, ["ledger", "verify", str(folder)])
    assert isinstance(refused.exception, LedgerError)
    assert "5 entries" not in refused.stdout
