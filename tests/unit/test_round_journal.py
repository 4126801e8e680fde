"""The coordinator's journal: what a crash, a flipped byte or another study does to it."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verticopula.errors import ProtocolError
from verticopula.storage.round_journal import Journal

ROUNDS = [{"a": b"first", "b": b""}, {"a": b"\x00" * 1_000, "b": bytes(range(256))}, {"b": b"third alone"}]


def keys(number: int) -> dict[str, str]:
    return {name: f"{number:02d}{name}" * 4 for name in ROUNDS[number]}


def write(path: Path, rounds: int = 3) -> None:
    journal = Journal(path)
    for number in range(rounds):
        assert journal.next_round(keys(number)) is None
        journal.append(keys(number), ROUNDS[number])
    journal.close()


def read(path: Path) -> list[dict[str, bytes]]:
    """All rounds that are there; the journal is ready for the next one afterwards."""
    journal, found = Journal(path), []
    for number in range(3):
        answers = journal.next_round(keys(number))
        if answers is None:
            break
        found.append(answers)
    journal.close()
    return found


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write(tmp_path / "deep" / "journal")
    assert read(tmp_path / "deep" / "journal") == ROUNDS
    assert stat.S_IMODE((tmp_path / "deep" / "journal").stat().st_mode) == 0o600


@given(st.data())
def test_a_torn_tail_is_dropped_and_the_rest_is_kept(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        ends = []
        for rounds in (1, 2, 3):
            path.unlink(missing_ok=True)
            write(path, rounds)
            ends.append(path.stat().st_size)
        cut = data.draw(st.integers(0, ends[-1]))
        path.write_bytes(path.read_bytes()[:cut])
        whole = sum(end <= cut for end in ends)
        assert read(path) == ROUNDS[:whole]
        journal = Journal(path)  # and it goes on from there as if nothing had happened
        for number in range(3):
            if journal.next_round(keys(number)) is None:
                journal.append(keys(number), ROUNDS[number])
        journal.close()
        assert path.stat().st_size == ends[-1]
        assert read(path) == ROUNDS


@given(st.data())
def test_a_flipped_byte_never_becomes_an_answer(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        write(path)
        raw = bytearray(path.read_bytes())
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(raw)
        found = read(path)
        assert len(found) < 3
        assert found == ROUNDS[: len(found)]


@given(st.binary(max_size=200))
def test_any_file_is_survived(content: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        path.write_bytes(content)
        assert read(path) == []
        write(path)
        assert read(path) == ROUNDS


def test_a_length_beyond_the_file_allocates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes((2**60).to_bytes(8, "little") + bytes(32) + b"x")
    assert read(path) == []


def test_other_questions_are_an_error_that_keeps_the_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(path)
    before = path.read_bytes()
    for other in ({"a": "other", "b": "other"}, {"a": keys(0)["a"]}, {**keys(0), "c": "more"}, {}):
        journal = Journal(path)
        with pytest.raises(ProtocolError, match="holds other rounds"):
            journal.next_round(other)
        journal.close()
    assert path.read_bytes() == before


def test_after_its_end_it_says_so_and_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(path, 1)
    journal = Journal(path)
    assert journal.next_round(keys(0)) == ROUNDS[0]
    assert journal.next_round(keys(1)) is None
    assert journal.next_round(keys(1)) is None
    journal.remove()
    assert not path.exists()
    journal.close()


# ---- answers that came as files --------------------------------------------------------------


def file_of(folder: Path, content: bytes) -> Path:
    path = folder / "came.parts"
    path.write_bytes(content)
    return path


def test_an_answer_that_came_as_a_file_lies_beside_the_journal(tmp_path: Path) -> None:
    path, came = tmp_path / "deep" / "journal", file_of(tmp_path, b"long" * 1_000)
    journal = Journal(path)
    assert journal.next_round(keys(0)) is None
    journal.append(keys(0), {"a": came, "b": b"short"})
    journal.append(keys(1), ROUNDS[1])
    journal.close()
    came.unlink()
    assert path.stat().st_size < 3_000  # the file is there once
    journal = Journal(path)
    found = journal.next_round(keys(0))
    assert found is not None
    assert isinstance(found["a"], Path)
    assert (found["a"].read_bytes(), found["b"]) == (b"long" * 1_000, b"short")
    assert stat.S_IMODE(found["a"].parent.stat().st_mode) == 0o700
    assert journal.next_round(keys(1)) == ROUNDS[1]
    journal.remove()
    assert list(path.parent.iterdir()) == []


def test_on_another_disk_an_answer_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "another disk")

    monkeypatch.setattr(os, "link", refuse)
    journal = Journal(tmp_path / "journal")
    journal.append(keys(0), {"a": file_of(tmp_path, b"long" * 1_000), "b": b""})
    journal.close()
    journal = Journal(tmp_path / "journal")
    found = journal.next_round(keys(0))
    assert found is not None
    assert isinstance(found["a"], Path)
    assert found["a"].read_bytes() == b"long" * 1_000
    journal.close()


@pytest.mark.parametrize("damage", ["lost", "altered"])
def test_a_round_whose_file_is_not_what_it_was_is_asked_for_again(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "journal"
    journal = Journal(path)
    journal.append(keys(0), ROUNDS[0])
    journal.append(keys(1), {"a": file_of(tmp_path, b"long" * 1_000), "b": b"short"})
    journal.append(keys(2), ROUNDS[2])
    journal.close()
    (kept,) = path.with_name("journal.answers").iterdir()
    if damage == "lost":
        kept.unlink()
    else:
        kept.write_bytes(b"lone" * 1_000)
    assert read(path) == ROUNDS[:1]
    journal = Journal(path)
    assert journal.next_round(keys(0)) == ROUNDS[0]
    journal.append(keys(1), {"a": file_of(tmp_path, b"long" * 1_000), "b": b"short"})
    journal.close()
    journal = Journal(path)
    journal.next_round(keys(0))
    again = journal.next_round(keys(1))
    assert again is not None
    assert isinstance(again["a"], Path)
    journal.close()
