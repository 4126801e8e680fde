"""The ledger: nothing is altered, removed or reordered unseen, and nothing leaves before it is written."""

from __future__ import annotations

import hashlib
import json
import math
import os
import resource
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from verticopula.errors import LedgerError
from verticopula.privacy.accounting import Coins
from verticopula.privacy.pricing import Pricing
from verticopula.privacy.release import Release, hash_line
from verticopula.privacy.statement import state_privacy
from verticopula.storage.ledger import GENESIS, Ledger, read_ledger


def release(column: str = "a", **changes: Any) -> Release:
    entry = Release(
        time="2025-01-01T00:00:00+00:00",
        study="study",
        party="left",
        column=column,
        what="ranks",
        mechanism="randomized response on every comparison",
        n_subjects=100,
        epsilon=0.5,
        coins_epsilon=0.5,
        coins_count=99,
        noise="secure",
        bounds="public",
    )
    return replace(entry, **changes)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ledger of four entries, written in two batches."""
    file = tmp_path / "ledger.jsonl"
    ledger = Ledger(file)
    ledger.append([release("a"), release("b")])
    ledger.append([release("c"), release("d", epsilon=math.inf, coins_epsilon=math.inf, bounds="from-data")])
    return file


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(line + "\n" for line in lines))


def test_entries_come_back_as_they_were(path: Path) -> None:
    entries = read_ledger(path)
    assert [entry.column for entry in entries] == ["a", "b", "c", "d"]
    assert entries[0].previous == GENESIS
    assert entries[0].coins == Coins(0.5, 99)
    assert entries[3].epsilon == math.inf
    assert entries[3].coins_epsilon == math.inf
    assert tuple(Ledger(path)) == tuple(entries)
    assert [e.column for e in Ledger(path).of_party("left")] == ["a", "b", "c", "d"]
    assert Ledger(path).of_party("right") == []
    assert all(json.loads(line)["epsilon"] in (0.5, "inf") for line in lines_of(path))


def test_a_chain_goes_on_after_it_is_read_again(path: Path) -> None:
    again = Ledger(path)
    again.append([release("e")])
    assert len(read_ledger(path)) == len(again) == 5


@pytest.mark.parametrize("field", ["epsilon", "column", "party", "coins_count", "noise", "n_subjects", "time", "study"])
@pytest.mark.parametrize("line", [0, 2, 3])
def test_an_altered_line_is_found(path: Path, field: str, line: int) -> None:
    lines = lines_of(path)
    entry = json.loads(lines[line])
    entry[field] = 0.25 if isinstance(entry[field], float) else 7 if isinstance(entry[field], int) else "other"
    lines[line] = json.dumps(entry, sort_keys=True)
    write(path, lines)
    with pytest.raises(LedgerError, match=f"line {line + 1}"):
        read_ledger(path)


@pytest.mark.parametrize(
    "order", [[1, 2, 3], [0, 2, 3], [0, 1, 3], [1, 0, 2, 3], [0, 1, 3, 2], [0, 0, 1, 2, 3]], ids=str
)
def test_removed_repeated_or_reordered_lines_are_found(path: Path, order: list[int]) -> None:
    lines = lines_of(path)
    write(path, [lines[i] for i in order])
    with pytest.raises(LedgerError):
        read_ledger(path)


def test_lines_cut_from_the_end_are_seen_by_whoever_kept_the_last_hash(path: Path) -> None:
    """A chain alone cannot see this; the entries that are left are intact."""
    last = read_ledger(path)[-1].hash
    write(path, lines_of(path)[:2])
    left = read_ledger(path)
    assert [entry.column for entry in left] == ["a", "b"]
    assert left[-1].hash != last


@pytest.mark.parametrize(
    "content",
    [
        "not json\n",
        "{}\n",
        '{"party": "left"}\n',
        "\n",
        "[]\n",
        "3\n",
        '"text"\n',
        "null\n",
    ],
)
def test_what_is_no_ledger_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_text(content)
    with pytest.raises(LedgerError, match="line 1"):
        Ledger(file)


def test_an_unreadable_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(LedgerError):
        Ledger(file)
    with pytest.raises(LedgerError):
        read_ledger(tmp_path)


def test_a_half_written_line_is_found(path: Path) -> None:
    text = path.read_text()
    path.write_text(text[:-20])
    with pytest.raises(LedgerError, match="line 4"):
        read_ledger(path)


def test_names_with_odd_characters_stay_on_one_line(tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    Ledger(file).append([release("naïve \u2028 \x85 \n{}", study='"\\')])
    assert len(lines_of(file)) == 1
    assert read_ledger(file)[0].column == "naïve \u2028 \x85 \n{}"


def test_threads_do_not_break_the_chain(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    threads = [
        threading.Thread(target=lambda k=k: [ledger.append([release(f"{k}-{i}")]) for i in range(10)]) for k in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_ledger(tmp_path / "ledger.jsonl")) == 60


def test_a_batch_that_fails_half_way_leaves_nothing(path: Path) -> None:
    ledger = Ledger(path)

    def batch() -> Any:
        yield release("e")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        ledger.append(batch())
    assert len(ledger) == len(read_ledger(path)) == 4


def test_a_disk_that_fails_leaves_a_ledger_that_can_go_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(path)

    def fail(descriptor: int) -> None:
        raise OSError("no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="space"):
            ledger.append([release("e")])
    ledger.append([release("f")])
    assert [entry.column for entry in read_ledger(path)] == [entry.column for entry in ledger]


def test_a_full_disk_leaves_no_half_line(path: Path) -> None:
    """A write that gets only part of its bytes to the disk, as a full one does."""
    ledger, size = Ledger(path), path.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 60, hard))
    try:
        with pytest.raises(OSError, match="large"):
            ledger.append([release("e"), release("f")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.stat().st_size == size
    ledger.append([release("g")])
    assert [entry.column for entry in read_ledger(path)] == ["a", "b", "c", "d", "g"]


def test_two_ledgers_on_one_file_keep_one_chain(path: Path) -> None:
    first, second = Ledger(path), Ledger(path)
    first.append([release("e")])
    second.append([release("f")])
    assert [entry.column for entry in read_ledger(path)] == ["a", "b", "c", "d", "e", "f"]


def test_a_line_with_something_added_is_found(path: Path) -> None:
    lines = lines_of(path)
    lines[1] = json.dumps({**json.loads(lines[1]), "note": "approved"}, sort_keys=True)
    write(path, lines)
    with pytest.raises(LedgerError):
        read_ledger(path)


def test_a_later_version_s_line_with_a_new_field_still_fits(path: Path) -> None:
    """Fields are only ever added: what was hashed is the line, not the reader's idea of it."""
    last = json.loads(lines_of(path)[-1])
    entry = {**json.loads(release("e").to_json()), "round": 2, "previous": last["hash"], "hash": ""}
    entry["hash"] = hashlib.sha256(json.dumps(entry, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
    write(path, [*lines_of(path), json.dumps(entry, sort_keys=True, ensure_ascii=True)])
    assert len(read_ledger(path)) == 5


def test_raw_values_of_old_ledgers_are_read_under_their_new_name(path: Path) -> None:
    """Those of version 0.1 call them `exact`, like a sampler. The chain goes over what stands there."""
    raw = release("y", what="raw", epsilon=math.inf, coins_epsilon=math.inf, coins_count=1)
    Ledger(path).append([raw])
    old = {**json.loads(lines_of(path)[-1]), "what": "exact"}
    write(path, [*lines_of(path)[:-1], json.dumps({**old, "hash": hash_line(old)}, sort_keys=True)])
    Ledger(path).append([release("z")])
    entries = read_ledger(path)
    assert [entry.what for entry in entries[-2:]] == ["raw", "ranks"]
    assert state_privacy(entries).raw
    assert state_privacy(entries).person == math.inf


def test_gram_matrices_of_old_ledgers_are_read_under_their_new_name(path: Path) -> None:
    Ledger(path).append([Pricing("s", "a").gram(100, 0.3, 0.4)])
    priced = state_privacy(read_ledger(path)).person
    old = {**json.loads(lines_of(path)[-1]), "what": "moments"}
    write(path, [*lines_of(path)[:-1], json.dumps({**old, "hash": hash_line(old)}, sort_keys=True)])
    entries = read_ledger(path)
    assert entries[-1].what == "gram"
    assert state_privacy(entries).person == priced
