"""Records by name: the same in memory and in a folder, and what a folder adds."""

from __future__ import annotations

from pathlib import Path

import pytest

from verticopula.errors import LedgerError
from verticopula.storage.record_store import FolderRecords, MemoryRecords, RecordStore


@pytest.fixture(params=["memory", "folder"])
def records(request: pytest.FixtureRequest, tmp_path: Path) -> RecordStore:
    return MemoryRecords() if request.param == "memory" else FolderRecords(tmp_path / "records")


@pytest.mark.parametrize("name", ["sums/a/study", "any/../name ü", "", "../../etc/passwd"])
def test_any_text_is_a_name_and_the_last_record_counts(records: RecordStore, name: str) -> None:
    assert records.get(name) is None
    records.put(name, {"n": 3, "text": "ä"})
    records.put(name, {"n": 4})
    assert records.get(name) == {"n": 4}
    assert records.get(f"{name}x") is None


def test_a_record_is_a_copy(records: RecordStore) -> None:
    given = {"list": [1]}
    records.put("name", given)
    given["list"].append(2)
    found = records.get("name")
    assert found == {"list": [1]}
    found["list"].append(3)
    assert records.get("name") == {"list": [1]}


def test_a_folder_of_records_survives_and_is_its_owner_s_only(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    FolderRecords(folder).put("name", {"secret": "00"})
    assert FolderRecords(folder).get("name") == {"secret": "00"}
    assert folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())


def test_the_first_put_clears_what_a_crash_left_half_written(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    FolderRecords(folder).put("name", {"n": 1})
    torn = folder / "torn.bin.tmp"
    torn.write_bytes(b"half")
    FolderRecords(folder).put("other", {"n": 2})
    assert not torn.exists()


def test_removed_records_are_gone_and_new_ones_can_be_put(tmp_path: Path) -> None:
    records = FolderRecords(tmp_path / "records")
    records.put("name", {"n": 1})
    records.remove()
    assert not (tmp_path / "records").exists()
    assert records.get("name") is None
    records.put("name", {"n": 2})
    assert records.get("name") == {"n": 2}


def test_a_copy_whose_records_do_not_belong_together_is_found_without_changing_it(tmp_path: Path) -> None:
    records = FolderRecords(tmp_path / "studies", tmp_path / "records.json")
    records.put("one", {"yes": True})
    state = (tmp_path / "records.json").read_bytes()
    records.put("two", {"yes": False})
    assert FolderRecords(tmp_path / "studies", tmp_path / "records.json").inspect() == 2
    (tmp_path / "records.json").write_bytes(state)  # as a copy has it that was made while the second was written
    with pytest.raises(LedgerError, match="put back the newest copy"):
        FolderRecords(tmp_path / "studies", tmp_path / "records.json").inspect()
    assert (tmp_path / "records.json").read_bytes() == state
