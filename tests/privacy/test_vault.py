"""A party's vault: one process at a time, tables recognised by their people, and old copies that do not pass."""

from __future__ import annotations

import json
import logging
import os
import shutil
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.privacy.durable import OTHERS, open_and_close
from verticopula.cli.app import app
from verticopula.errors import LedgerError, VerticopulaError
from verticopula.privacy.release import Release, hash_line, spent_on
from verticopula.storage.blobs import FolderBlobs
from verticopula.storage.id_sketch import SKETCH_SIZE, is_same_table, sketch_ids
from verticopula.storage.ledger import GENESIS, Ledger, read_ledger
from verticopula.storage.vault import Vault, inspect_vault, is_vault

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
                vault.ledger.append([release("x", key, vault.identify(ids(100 * number, 100 * number + 10)))])
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
        name = vault.identify(ids(0, n))
        assert vault.identify(reversed(ids(0, n))) == name
        assert vault.identify(ids(0, n) * 2) == name
        assert vault.identify(ids(n // 10, n + n // 10)) == name  # a tenth left, a tenth came
    with Vault.open(tmp_path) as vault:
        assert vault.identify(ids(0, n)) == name
        assert vault.identify(ids(0, int(0.6 * n))) == name
        assert vault.identify(ids(0, n // 50)) == name  # a small part of it
        assert vault.identify(ids(0, 3 * n)) == name  # and a table that it is a part of


@pytest.mark.parametrize("n", [1000, 20_000])
def test_other_people_are_another_table(tmp_path: Path, n: int) -> None:
    with Vault.open(tmp_path) as vault:
        names = {
            vault.identify(ids(0, n)),
            vault.identify(ids(2 * n, 3 * n)),
            vault.identify(ids(3 * n - n // 20, 4 * n)),  # 5 % in common
            vault.identify(ids(10 * n, 10 * n + n // 50)),
        }
    assert len(names) == 4


def test_parts_of_a_table_do_not_shrink_it(tmp_path: Path) -> None:
    """The whole, one half, then the other half: the other half is still the same table."""
    with Vault.open(tmp_path) as vault:
        name = vault.identify(ids(0, 1000))
        assert vault.identify(ids(0, 500)) == name
        assert vault.identify(ids(500, 1000)) == name


def test_a_table_that_is_two_known_ones_joins_them(tmp_path: Path) -> None:
    with Vault.open(tmp_path) as vault:
        one, two, other = (vault.identify(ids(start, start + 500)) for start in (0, 500, 1000))
        assert len({one, two, other}) == 3
        joined = vault.identify(ids(0, 1000))
        assert set(joined.split("+")) == {one, two}
        assert vault.identify(ids(0, 500)) == vault.identify(ids(500, 1000)) == joined
        assert vault.identify(ids(1000, 1500)) == other
        entries = [release(c, table=t) for c, t in zip("abc", (one, two, other), strict=True)]
        assert [e.column for e in spent_on(entries, "left", joined)] == ["a", "b"]
        assert [e.column for e in spent_on(entries, "left", one)] == ["a"]
        entries.append(release("d", table=joined))
        assert [e.column for e in spent_on(entries, "left", one)] == ["a", "b", "d"]  # the ledger tells of the link


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


def test_without_the_secret_ids_cannot_be_tried(tmp_path: Path) -> None:
    one, two = sketch_ids(ids(0, 10), b"k" * 32), sketch_ids(ids(0, 10), b"l" * 32)
    assert not set(one) & set(two)
    assert not is_same_table(one, two)
    assert len(sketch_ids(ids(0, SKETCH_SIZE + 5), b"k")) == SKETCH_SIZE
    with Vault.open(tmp_path) as vault, pytest.raises(VerticopulaError, match="nobody"):
        vault.identify([])


def test_overlap_is_estimated_well_enough() -> None:
    rng = np.random.default_rng(3)
    for _ in range(5):
        key = rng.bytes(32)
        whole = sketch_ids(ids(0, 30_000), key)
        assert is_same_table(whole, sketch_ids(ids(13_500, 43_500), key))  # 55 %
        assert not is_same_table(whole, sketch_ids(ids(16_500, 46_500), key))  # 45 %


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


def old_ledger_and_head(folder: Path) -> None:
    """Both put back, from before anything was released."""
    empty_ledger(folder)
    (folder / "head.json").unlink()


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


def test_tables_and_their_key_cannot_be_lost_unseen(tmp_path: Path) -> None:
    with Vault.open(tmp_path) as vault:
        vault.ledger.append([release(table=vault.identify(ids(0, 10)))])
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
    with Vault.open(tmp_path) as vault:
        (entry,) = vault.ledger
        assert (entry.table, entry.request) == ("", "")
        vault.ledger.append([release()])
    assert len(read_ledger(tmp_path / "ledger.jsonl")) == 2


# ---- the command line ------------------------------------------------------------------------


def test_verify_and_show_know_vaults(folder: Path) -> None:
    with Vault.open(folder) as vault:
        one, two = vault.identify(ids(0, 10)), vault.identify(ids(10, 20))
        vault.ledger.append([release(table=one), release(table=vault.identify(ids(0, 20)))])
    runner = CliRunner()
    said = runner.invoke(app, ["ledger", "verify", str(folder)])
    assert "5 entries, chain intact and complete; 1 stored replies" in said.stdout
    shown = runner.invoke(app, ["ledger", "show", str(folder)])
    assert f"table {one[:6]}, table {one[:6]}+{two[:6]}" in shown.stdout
    cut_ledger(folder)
    refused = runner.invoke(app, ["ledger", "verify", str(folder)])
    assert isinstance(refused.exception, LedgerError)
    assert "5 entries" not in refused.stdout
