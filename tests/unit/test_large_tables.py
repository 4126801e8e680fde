"""Tables that are not held: columns and ranks on disk, Parquet files that are read a column at a time."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import weakref
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.builders import CONTINUOUS, make_federation, make_party
from verticopula import Federation, SettingsError, Synthesizer
from verticopula.data import csv_reading, large_tables, scratch_file
from verticopula.data.column_encoding import StoredColumn
from verticopula.data.column_table import ColumnTable
from verticopula.data.large_tables import open_table
from verticopula.data.scratch_file import ScratchFile, forget_pages
from verticopula.data.table_files import read_table
from verticopula.data.tables import OwnTable, align_tables
from verticopula.datasets import SmeStudy, make_sme
from verticopula.errors import SchemaError
from verticopula.privacy.noise import Keystream, SeededNoise
from verticopula.protocol.party import rank_handler
from verticopula.protocol.rank_messages import ColumnQuery, ReleaseRequest
from verticopula.stats import binomial_ranks, grade_table, rank_release
from verticopula.storage.vault import Vault

FEW = 50  # rows that may be held


@pytest.fixture(scope="module")
def study() -> SmeStudy:
    return make_sme(700, random_state=5)


@pytest.fixture
def files(study: SmeStudy, tmp_path: Path) -> dict[str, Path]:
    """The same tables as folders of Parquet files, the first as a single file."""
    paths = {name: tmp_path / f"{name}.parquet" for name in study.tables}
    for index, (name, table) in enumerate(study.tables.items()):
        if index == 0:
            table.write_parquet(paths[name])
            continue
        paths[name].mkdir()
        for start in range(0, len(table), 101):
            table[start : start + 101].write_parquet(paths[name] / f"part-{start:06d}.parquet")
    return paths


def fit(federation: Federation, tables: Mapping[str, Any], sampler: str = "binomial", **how: Any) -> Synthesizer:
    made = Synthesizer(federation, "vcds", 4.0, unit="variable", sampler=sampler, random_state=1)
    with pytest.warns(UserWarning, match="NOT PRIVATE"):
        return made.fit(tables, **how)


def with_few_columns(study: SmeStudy) -> SmeStudy:
    """At most three columns of each party."""
    parties = tuple(p.model_copy(update={"columns": p.columns[:3]}) for p in study.federation.parties)
    tables = {p.name: study.tables[p.name].select("subject_id", *(c.name for c in p.columns)) for p in parties}
    return replace(study, federation=study.federation.model_copy(update={"parties": parties}), tables=tables)


# ---- the same numbers ---------------------------------------------------------------------


@pytest.mark.parametrize("sampler", ["exact", "binomial"])
def test_files_that_are_not_held_give_the_numbers_of_frames(
    study: SmeStudy, files: dict[str, Path], sampler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = fit(study.federation, study.tables, sampler)
    monkeypatch.setattr(rank_handler, "ROWS_IN_MEMORY", FEW)  # ranks lie on disk, too
    stored = fit(study.federation, files, sampler, rows_at_once=FEW)
    np.testing.assert_array_equal(stored.correlation_, held.correlation_)
    assert stored.margins_.equals(held.margins_)
    assert stored.missingness_.to_dict() == held.missingness_.to_dict()


@pytest.mark.parametrize("method", ["refined", "evcds", "ievcds", "strict"])
def test_other_methods_give_the_same_numbers_from_columns_on_disk(
    study: SmeStudy, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    how: dict[str, Any] = {"unit": "variable"}
    if method == "strict":  # whose time grows with the square of the columns
        how, study = {"unit": "person", "delta": 1e-5}, with_few_columns(study)
    found = []
    for rows in (10_000, FEW):
        made = Synthesizer(study.federation, method, 20.0, random_state=1, rounds=2, **how)
        with pytest.warns(UserWarning, match="NOT PRIVATE"):
            found.append(made.fit(study.tables, rows_at_once=rows).correlation_)
        monkeypatch.setattr(rank_handler, "ROWS_IN_MEMORY", FEW)  # ranks lie on disk, too
        monkeypatch.setattr(grade_table, "ROWS_IN_MEMORY", FEW)  # and the coordinator's grades
    np.testing.assert_array_equal(*found)


class Ranks(np.ndarray[Any, Any]):
    """Ranks that can be watched."""


def test_ranks_of_many_people_are_put_away_before_the_next_column_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_handler, "ROWS_IN_MEMORY", FEW)
    names, made, held = [f"c{k}" for k in range(12)], list[Any](), list[int]()
    draw = rank_handler.RankHandler._noisy_ranks

    def watched(self: Any, *given: Any) -> Any:
        ranks = draw(self, *given).view(Ranks)
        made.append(weakref.ref(ranks))
        held.append(sum(one() is not None for one in made))
        return ranks

    monkeypatch.setattr(rank_handler.RankHandler, "_noisy_ranks", watched)
    federation = make_federation({"left": dict.fromkeys(names, CONTINUOUS)})
    party = make_party(federation, "left", {name: np.linspace(-1.0, 1.0, 3 * FEW) for name in names})
    party.handle(ReleaseRequest("s", "vcds", "binomial", tuple(ColumnQuery(name, 0.5, 0.25) for name in names)))
    assert len(held) == len(names)
    assert max(held) <= 2


def test_grades_in_blocks_are_those_of_whole_columns(study: SmeStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fit(study.federation, study.tables).correlation_
    monkeypatch.setattr(rank_release, "GRADE_ROWS", 32)
    monkeypatch.setattr(rank_release, "_BLOCKS_AT_ONCE", 2)
    np.testing.assert_allclose(fit(study.federation, study.tables).correlation_, whole, atol=1e-9)


def test_values_in_a_party_s_own_order_are_those_of_its_table(study: SmeStudy) -> None:
    """And numbers in that order go to the places of the cohort."""
    for rows_at_once in (10_000, FEW):
        aligned = align_tables(study.federation, study.tables, need_overlap=False, rows_at_once=rows_at_once)
        for table in aligned.values():
            own = OwnTable.check(table.party, study.tables[table.party.name], study.federation.id)
            for name, column in own.columns.items():
                values, seen = table.in_own_order(name)
                np.testing.assert_array_equal(values[seen], column.values[column.observed])
                numbers = np.arange(seen.sum(), dtype=np.int32)[:, None]
                places, cohort = table.in_cohort_order(numbers, seen, table.columns[name]), table.columns[name]
                np.testing.assert_array_equal(values[seen][places[:, 0]], cohort.values[cohort.observed])


def test_every_block_of_rows_has_random_bits_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binomial_ranks, "NOISE_ROWS", 100)
    observed = np.arange(350) % 7 != 0
    labels: list[str] = []

    def stream(label: str) -> Keystream:
        labels.append(label)
        return SeededNoise(1).stream(label)

    values = np.random.default_rng(0).permutation(int(observed.sum())).astype(np.float64)
    ranks = binomial_ranks.draw_binomial_ranks(values, 0.5, stream, observed)
    assert labels == [f"rows {k}" for k in range(4)]
    assert ranks.shape == values.shape
    assert np.corrcoef(ranks, values)[0, 1] > 0.5


# ---- on disk ------------------------------------------------------------------------------


def test_large_tables_lie_on_disk_in_as_few_bytes_as_the_schema_allows(study: SmeStudy) -> None:
    aligned = align_tables(study.federation, study.tables, need_overlap=False, rows_at_once=FEW)
    held = align_tables(study.federation, study.tables, need_overlap=False)
    widths = set()
    for party in study.federation.parties:
        for column in party.columns:
            stored, plain = aligned[party.name].columns[column.name], held[party.name].columns[column.name]
            assert isinstance(stored, StoredColumn)
            assert not isinstance(plain, StoredColumn)
            assert stored.values.dtype == np.float64
            np.testing.assert_array_equal(stored.observed, plain.observed)
            np.testing.assert_array_equal(stored.values[stored.observed], plain.values[plain.observed])
            assert (stored.notes, stored.clamped, stored.doubt) == (plain.notes, plain.clamped, plain.doubt)
            widths.add(stored.read_own()[0].dtype.itemsize)
    assert {1, 8} <= widths
    assert aligned[party.name].notes() == held[party.name].notes()


def test_a_scratch_file_has_no_name_and_reads_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    file = ScratchFile()
    arrays = [np.arange(7, dtype=np.int32), np.empty((0, 2)), np.arange(6.0).reshape(2, 3), np.array([True, False])]
    stored = [file.append(array) for array in arrays]
    mapped = file.map()
    for array, one in zip(arrays, stored, strict=True):
        np.testing.assert_array_equal(one.read(), array)
        np.testing.assert_array_equal(one.within(mapped), array)
    forget_pages(mapped)
    np.testing.assert_array_equal(stored[0].within(mapped), arrays[0])
    assert list(tmp_path.iterdir()) == []
    assert ScratchFile().map().size == 0


def test_parquet_is_read_a_column_at_a_time(study: SmeStudy, files: dict[str, Path], tmp_path: Path) -> None:
    for name, path in files.items():
        table = open_table(path)
        assert isinstance(table, ColumnTable)
        assert (len(table), table.width) == study.tables[name].shape
        for column in table.columns:
            assert table[column].equals(study.tables[name][column])
    assert isinstance(open_table(path, 10_000), pl.DataFrame)
    (tmp_path / "keys.parquet" / "year=2024").mkdir(parents=True)
    csv_rows = pl.DataFrame({"id": [1]})
    csv_rows.write_parquet(tmp_path / "keys.parquet" / "year=2024" / "part.parquet")
    assert open_table(tmp_path / "keys.parquet").columns == ["id", "year"]
    torn = tmp_path / "torn.parquet"
    torn.write_bytes(b"PAR1")
    with pytest.raises(SchemaError, match="cannot be read as Parquet"):
        open_table(torn)


def test_arrow_files_are_read_a_column_at_a_time(study: SmeStudy, tmp_path: Path) -> None:
    whole = study.tables["credit_agency"]
    whole.write_ipc(tmp_path / "table.arrow")
    table = open_table(tmp_path / "table.arrow")
    assert isinstance(table, ColumnTable)
    assert pl.DataFrame([table[name] for name in table.columns]).equals(whole)
    whole.reverse().write_ipc(tmp_path / "table.arrow")
    with pytest.raises(SchemaError, match="has changed while it was read"):
        table[table.columns[0]]


def test_a_large_csv_file_lies_on_disk_as_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_tables, "BYTES_IN_MEMORY", 64)
    monkeypatch.setattr(csv_reading, "_BLOCK", 64)
    small, large, wide = (tmp_path / f"{name}.csv" for name in ("small", "large", "wide"))
    text = "id;x\n" + "".join(f"{k};{k},5\n" for k in range(50))
    small.write_text("id;x\n1;2,5\n", "utf-8")
    large.write_text(text, "utf-8")
    wide.write_text(text, "utf-16")
    assert isinstance(open_table(small), pl.DataFrame)
    assert isinstance(open_table(wide), pl.DataFrame)  # it is read at once
    table = open_table(large)
    assert isinstance(table, ColumnTable)
    assert pl.DataFrame([table[name] for name in table.columns]).equals(read_table(large))
    large.unlink()  # what was read is what is used
    assert table["x"].to_list() == [f"{k},5" for k in range(50)]
    with pytest.raises(SchemaError, match="no such file"):
        open_table(large)


def test_a_full_disk_for_temporary_values_is_not_the_table_s_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(large_tables, "BYTES_IN_MEMORY", 64)
    (tmp_path / "large.csv").write_text("id;x\n" + "".join(f"{k};{k}\n" for k in range(50)), "utf-8")

    def full(*given: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(scratch_file.os, "pwrite", full)
    with pytest.raises(OSError, match="set TMPDIR to a folder on a disk with more room"):
        open_table(tmp_path / "large.csv")


def test_rows_that_are_left_out_are_in_no_column(tmp_path: Path) -> None:
    whole = pl.DataFrame({"id": ["a", "b", "c", "d"], "x": [1.0, 2.0, 3.0, 4.0]})
    whole.write_parquet(tmp_path / "t.parquet")
    table = open_table(tmp_path / "t.parquet")
    assert isinstance(table, ColumnTable)
    some = table.with_rows(np.array([True, False, True, True])).with_rows(np.array([False, True, True]))
    assert (len(some), some["id"].to_list(), some["x"].to_list()) == (2, ["c", "d"], [3.0, 4.0])


@pytest.mark.parametrize("ending", ["parquet", "csv"])
def test_a_vault_knows_a_table_whether_it_is_held_or_not(
    study: SmeStudy, tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same numbers, same accounts, same digests, and the same people are left out."""
    monkeypatch.setattr(large_tables, "BYTES_IN_MEMORY", 64)
    gone = study.tables["law_enforcement"]["subject_id"].to_list()[:5]
    with Vault.open(tmp_path / "vault") as vault:
        vault.withdrawals.record("withdrawn", gone, "they asked", "steward")
    paths = {name: tmp_path / f"{name}.{ending}" for name in study.tables}
    for name, table in study.tables.items():
        table.write_csv(paths[name]) if ending == "csv" else table.write_parquet(paths[name])
    found = []
    for tables, rows in ((study.tables, 10_000), (paths, FEW)):
        made = fit(study.federation, tables, vault=tmp_path / "vault", rows_at_once=rows)
        known = (tmp_path / "vault" / "tables.json").read_bytes()
        entries = [(entry.party, entry.column, entry.table, entry.content, entry.snapshot) for entry in made.ledger_]
        found.append((made.correlation_.to_numpy().tolist(), made.n_subjects_, known, entries))
    assert found[0] == found[1]
    assert found[0][3][0][-1]


def test_parts_with_different_columns_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "agency.parquet"
    folder.mkdir()
    pl.DataFrame({"id": [1]}).write_parquet(folder / "a.parquet")
    pl.DataFrame({"id": ["1"]}).write_parquet(folder / "b.parquet")
    with pytest.raises(SchemaError, match="different columns"):
        open_table(folder)


def test_rows_at_once_is_a_whole_number(study: SmeStudy) -> None:
    with pytest.raises(SettingsError, match="rows_at_once must be a whole number of at least 1"):
        Synthesizer(study.federation).fit(study.tables, rows_at_once=0)


def test_a_parquet_file_that_changes_between_two_columns_is_refused(tmp_path: Path) -> None:
    """Rows of two versions would be one person's."""
    for path in (tmp_path / "one.parquet", tmp_path / "folder" / "part.parquet"):
        path.parent.mkdir(exist_ok=True)
        before = pl.DataFrame({"id": ["a", "b"], "x": [1.0, 2.0]})
        before.write_parquet(path)
        table = open_table(path if path.parent == tmp_path else path.parent)
        assert table["id"].to_list() == ["a", "b"]
        before.reverse().write_parquet(path)
        with pytest.raises(SchemaError, match="has changed while it was read"):
            table["x"]
        path.unlink()
        with pytest.raises(SchemaError, match="has changed while it was read"):
            table["x"]


@pytest.mark.parametrize("read", [open_table, read_table])
def test_a_file_whose_name_is_a_pattern_is_itself(tmp_path: Path, read: Any) -> None:
    pl.DataFrame({"id": ["other"]}).write_parquet(tmp_path / "table1.parquet")
    pl.DataFrame({"id": ["own"]}).write_parquet(tmp_path / "table[1].parquet")
    assert read(tmp_path / "table[1].parquet")["id"].to_list() == ["own"]


def test_a_scratch_file_that_was_cut_off_is_not_read_for_ever() -> None:
    file = ScratchFile()
    stored = file.append(np.arange(1000))
    os.ftruncate(file._file.fileno(), 80)
    with pytest.raises(OSError, match="lost some of them"):
        stored.read()


def test_a_full_disk_says_where_there_should_be_room() -> None:
    program = """
import resource
import numpy as np
from verticopula.data.scratch_file import ScratchFile
file = ScratchFile()
kept = file.append(np.arange(10))
resource.setrlimit(resource.RLIMIT_FSIZE, (800, 800))
try:
    file.append(np.zeros(1000))
except OSError as error:
    print(error)
assert (file.append(np.arange(5, 15)).read() == np.arange(5, 15)).all()  # nothing of the failed one is in between
assert (kept.read() == np.arange(10)).all()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "set TMPDIR to a folder on a disk with more room" in done.stdout
