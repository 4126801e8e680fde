"""What the coordinator keeps of its studies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from verticopula.errors import SettingsError, VerticopulaError
from verticopula.network.connection.control_messages import SubmitRequest
from verticopula.network.coordinator.study_records import RECORD_FILE, WITNESS_FILE, StudyRecord, StudyStore
from verticopula.storage.blobs import write_atomically


def request(**changes: object) -> SubmitRequest:
    fields = {
        "federation": "f",
        "kind": "synthesis",
        "settings": "{}",
        "rows": None,
        "aligned": False,
        "alignment": "hash",
        "deadline": 60.0,
        "token": "token",
        **changes,
    }
    known = SubmitRequest.__dataclass_fields__
    return SubmitRequest(**{name: value for name, value in fields.items() if name in known})  # type: ignore[arg-type]


def new(name: str = "study", **changes: object) -> StudyRecord:
    return StudyRecord.new(name, request(**changes), {"method": "refined"}, {"a": (3, "abc")})


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    records = StudyStore(tmp_path / "studies")
    record = new(conditions=("a.x=1", "b.y=2..3"), missing="complete")
    records.save(record)
    assert records.get(record.study) == record
    assert records.all() == [record]
    assert records.change(record.study, state="failed", note="why").note == "why"
    assert records.get(record.study).state == "failed"
    assert records.get(record.study).witnesses == {"a": (3, "abc")}


@pytest.mark.parametrize("name", ["../../etc", "with space", "", "ä", "a/b", "\x1b[2J", "x" * 500])
def test_a_study_has_a_name_of_its_own_that_is_a_folder(name: str) -> None:
    first, second = new(name), new(name)
    assert first.study != second.study
    assert all(part.isalnum() for part in first.study.replace("_", "-").split("-"))
    assert len(first.study) < 100


def test_from_old_to_new(tmp_path: Path) -> None:
    records = StudyStore(tmp_path)
    made = [new(f"study-{letter}") for letter in "cab"]
    for number, record in enumerate(made):
        made[number] = replace(record, created=f"2026-01-0{number + 1}")
        records.save(made[number])
    assert records.all() == made


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/etc/passwd", "a/../b", "x" * 500, "\n", "none", "a\x00b"])
def test_only_names_of_studies_are_looked_up(tmp_path: Path, name: str) -> None:
    (tmp_path / RECORD_FILE).write_text("{}")
    records = StudyStore(tmp_path / "studies")
    (tmp_path / "studies" / RECORD_FILE).write_text("{}")
    with pytest.raises(SettingsError, match="no study of that name"):
        records.get(name)


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"study": 1}', "{", '{"witnesses": 3}'])
def test_a_record_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    records = StudyStore(tmp_path)
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / RECORD_FILE).write_text(text)
    with pytest.raises(VerticopulaError, match="cannot be read as a study's record"):
        records.get("study")


def test_witnesses_are_added_to_and_survive(tmp_path: Path) -> None:
    records = StudyStore(tmp_path)
    assert records.witnesses() == {}
    records.remember_witnesses({"a": (1, "x")})
    records.remember_witnesses({"b": (2, "y")})
    records.remember_witnesses({"a": (5, "z")})
    assert StudyStore(tmp_path).witnesses() == {"a": (5, "z"), "b": (2, "y")}


@pytest.mark.parametrize("text", ["", "[]", '{"a": 3}', '{"a": ["x", "y"]}'])
def test_witnesses_that_cannot_be_read_are_no_empty_ones(tmp_path: Path, text: str) -> None:
    (tmp_path / WITNESS_FILE).write_text(text)
    with pytest.raises(VerticopulaError, match="cannot be read"):
        StudyStore(tmp_path).witnesses()


def test_a_crash_while_writing_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file.json"
    write_atomically(path, json.dumps({"old": 1}).encode())

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, b"new")
    assert json.loads(path.read_text()) == {"old": 1}


def test_the_method_is_known_for_both_kinds() -> None:
    assert new().method == "refined"
    assert new(kind="regression").method == "raw-glm"
