"""Coded public tables: read, cut into two parties, and compared by their marginals."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import CATALOGUE
from benchmarks.public_cells import CODED, MIXED, PublicSetting, list_cells, locate, read_entries, write_entry
from benchmarks.public_page import label_of
from benchmarks.public_rivals import find_kept
from benchmarks.public_tables import cut_columns, read_coded, total_variation
from reporting.records import Record
from verticopula.stats.tilting.tuning_tilted import TiltedTuning


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three columns of codes: the second is the first most of the time; labels of the third are not sorted."""
    rng = np.random.default_rng(4)
    first = rng.integers(4, size=800)
    second = np.where(rng.random(800) < 0.8, first, rng.integers(4, size=800))
    third, fourth = rng.integers(2, size=(2, 800))
    lines = [",".join(map(str, row)) for row in zip(first, second, third, fourth, strict=True)]
    (tmp_path / "nltcs.csv").write_text("\n".join(["0,1,2,3", *lines]), encoding="utf-8")
    (tmp_path / "nltcs_domain.json").write_text(json.dumps({str(j): {"domain": (4, 4, 2, 2)[j]} for j in range(4)}))
    numbers = {str(code): str(10 * code) for code in range(4)}
    labels = [numbers, numbers, {"0": "yes", "1": "no"}, {"0": "a", "1": "b"}]
    (tmp_path / "nltcs_int_to_str.json").write_text(json.dumps(labels), encoding="utf-8")
    return tmp_path


def test_labels_are_sorted_and_parties_hold_half_of_the_columns(folder: Path) -> None:
    table = read_coded(folder, "nltcs")
    raw = np.loadtxt(folder / "nltcs.csv", delimiter=",", skiprows=1, dtype=int)
    assert np.array_equal(table.codes[:, :2], raw[:, :2])
    assert np.array_equal(table.codes[:, 2], 1 - raw[:, 2])  # "no" comes before "yes"
    federation = table.federation()
    assert [len(party.columns) for party in federation.parties] == [2, 2]
    assert table.tables(federation)["second"]["c2"].to_list() == [str(value) for value in table.codes[:, 2]]


def test_the_distance_is_that_of_counted_cells(folder: Path) -> None:
    table = read_coded(folder, "nltcs")
    assert total_variation(table.codes, table.codes, table.sizes, 3) == 0.0
    other = table.codes.copy()
    other[:, 2] = 1 - other[:, 2]
    shares = np.bincount(table.codes[:, 2], minlength=2) / len(other)
    assert total_variation(table.codes[:, [2]], other[:, [2]], (2,), 1) == pytest.approx(abs(shares[0] - shares[1]))
    # a table with far more cells than people is counted in another way, and is as far
    moved = np.random.default_rng(0).permutation(table.codes)[:600]
    narrow, wide = (
        total_variation(table.codes, moved, sizes, 3) for sizes in (table.sizes, (4_000, 4_000, 2_000, 2_000))
    )
    assert narrow > 0.0
    assert narrow == pytest.approx(wide)


def test_columns_are_dealt_out_in_their_order(folder: Path) -> None:
    assert cut_columns(15, 2) == [0] * 7 + [1] * 8
    assert cut_columns(18, 4) == [0] * 4 + [1] * 5 + [2] * 4 + [3] * 5
    table = read_coded(folder, "nltcs")
    federation = table.federation(4)
    assert [len(party.columns) for party in federation.parties] == [1, 1, 1, 1]
    held = table.codes.copy()
    held[:300, 1] = -1
    tables = table.tables(federation, held)
    assert [len(tables[party.name]) for party in federation.parties] == [800, 500, 800, 800]
    assert tables["second"]["id"][0] == "000300"


def test_the_grid_has_every_cell_once() -> None:
    cells = list(list_cells(CODED, ("strict", "aim-shares", "aim-imputed", "resampled"), seeds=2))
    assert len(set(cells)) == len(cells)
    strict = [c for c in cells if c.source == "strict"]
    assert len(strict) == 2 * len(CODED) * 2 * 2 * 4
    for source, gaps in (("aim-shares", False), ("aim-imputed", True)):
        own = [c for c in cells if c.source == source]
        assert {(c.setting.parties, c.setting.missing, c.epsilon) for c in own} == {(2, gaps, 0.8), (2, gaps, 3.2)}
    mixed = list(list_cells(("sba",), ("strict",), seeds=1, parties=(4,), missing=(True,)))
    assert [(c.epsilon, c.delta) for c in mixed if c.delta != 1e-5] == [(3.0, 1e-6)]


def test_runs_at_the_same_time_lose_nothing_of_each_other(tmp_path: Path) -> None:
    cells = list(list_cells(("nltcs",), ("strict", "independent"), seeds=1, parties=(2,), missing=(False,)))
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            list(pool.map(lambda cell: write_entry(tmp_path, cell, {"tvd": [0.0]}), cells))
            assert set(read_entries(tmp_path, cells[0].setting, 0)) == {cell.entry for cell in cells}
            locate(tmp_path, cells[0].setting, 0).unlink()


def test_the_grid_takes_a_folder_and_goes_on_where_it_stopped(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "out"
    words = ["public", "--quick", "--data", str(folder), "--out", str(out)]
    first = [*words, "--part", "nltcs", "--gaps", "complete", "--epsilon", "3.2"]
    assert CATALOGUE.main([*first, "--source", "resampled", "--source", "independent"]) == 0
    setting = PublicSetting("nltcs", 2, missing=False)
    before = read_entries(out, setting, 0)
    assert set(before) == {"resampled", "independent@3.2"}
    capsys.readouterr()
    assert CATALOGUE.main(first) == 0
    assert "4 cells, 2 of them saved, 2 to measure" in capsys.readouterr().out
    found = read_entries(out, setting, 0)
    assert found["resampled"] == before["resampled"]
    assert found["resampled"]["tvd"][0] < found["strict@3.2"]["tvd"][0] < found["independent@3.2"]["tvd"][0]
    assert str(folder) not in Record.read(out / "public.json").command
    page = (out / "public.md").read_text(encoding="utf-8")
    assert (
        f"| nltcs, ε = 3.2 | {found['independent@3.2']['tvd'][1]:.4f} | {found['strict@3.2']['tvd'][1]:.4f} | – |"
        in page
    )
    locate(out, setting, 0).write_text("{", encoding="utf-8")
    assert CATALOGUE.main(first) == 2
    assert "is damaged" in capsys.readouterr().out


def test_the_grid_says_what_is_missing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["public", "--quick", "--data", str(folder), "--out", str(folder / "out")]
    assert CATALOGUE.main([*words, "--part", "acs"]) == 2
    assert "has no table 'acs'" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        CATALOGUE.main(["public", "--quick"])
    with pytest.raises(SystemExit):
        CATALOGUE.main([*words, "--seeds", "0"])


def test_a_curator_that_fails_leaves_nothing_behind(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.public_rivals.MBI", folder / "curators")
    monkeypatch.setattr("benchmarks.public_rivals.prepare_environment", lambda *_: "/bin/false")
    out = folder / "out"
    words = ["public", "--quick", "--data", str(folder), "--out", str(out), "--part", "nltcs", "--gaps", "complete"]
    assert CATALOGUE.main([*words, "--source", "resampled", "--source", "aim-shares", "--epsilon", "0.8"]) == 2
    assert "curator_baseline.py ended with status 1" in capsys.readouterr().out
    assert set(read_entries(out, PublicSetting("nltcs", 2, missing=False), 0)) == {"resampled"}
    assert not list((folder / "curators").rglob("*.npz"))


def test_rows_of_vertimrf_are_laid_there_or_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.public_rivals.MBI", folder / "curators")
    words = ["public", "--quick", "--data", str(folder), "--out", str(folder / "out"), "--part", "nltcs"]
    assert CATALOGUE.main([*words, "--source", "vertimrf", "--epsilon", "0.8"]) == 2
    assert "nltcs-2-complete-vertimrf-0.8-0.npz" in capsys.readouterr().out.replace("\n", "")
    assert {cell.setting.name for cell in list_cells(CODED, ("vertimrf",), seeds=1)} == {"nltcs-2-complete"}


def test_rows_that_a_curator_made_before_are_not_made_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.public_rivals.MBI", folder / "curators")
    table, out = read_coded(folder, "nltcs"), folder / "out"
    cells = list(list_cells(("nltcs",), ("aim-shares",), seeds=1))
    kept = find_kept(cells[0])
    kept.parent.mkdir(parents=True)
    np.savez(kept, codes=table.codes[:400].astype(np.uint8))
    answer = {"versions": {"mbi": "2.0.0"}, "device": "elsewhere", "seconds": {"processor": 7.0}}
    kept.with_suffix(".json").write_text(json.dumps(answer), encoding="utf-8")
    words = ["public", "--quick", "--data", str(folder), "--out", str(out), "--part", "nltcs", "--ready"]
    assert CATALOGUE.main([*words, "--source", "curators"]) == 0
    found = read_entries(out, cells[0].setting, 0)
    assert set(found) == {"aim-shares@0.8"}  # of the others nothing is ready
    assert (found["aim-shares@0.8"]["device"], found["aim-shares@0.8"]["made_s"]) == ("elsewhere", 7.0)
    assert 0.0 < found["aim-shares@0.8"]["tvd"][0] < 0.1


def test_tables_that_were_seen_before_are_marked_wherever_they_are_reported() -> None:
    """By the constants' own words: which tables they were chosen on, and which were looked at."""
    said = " ".join((TiltedTuning.__doc__ or "").split())
    assert "decided on magic, bean and tables of `benchmarks/generated_tables.py`" in said
    assert "splits 0, 10 and 11 of shoppers and SBA loans were looked at" in said
    marked = {table for table in (*CODED, *MIXED) if label_of(table) != table}
    assert marked == {"magic", "bean", "shoppers", "sba"}
    page = (Path(__file__).parents[2] / "docs/results/public.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith(("| ", "- "))]
    plain = [line for line in rows for table in marked if line[2:].startswith((f"{table},", f"{table} |"))]
    assert plain == []
