"""Coded public tables: read, cut into two parties, and compared by their marginals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import CATALOGUE
from benchmarks.public import WAYS
from benchmarks.public_tables import read_coded, total_variation
from reporting.records import Record


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


def test_the_benchmark_takes_a_folder_and_says_what_is_missing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = folder / "out"
    words = ["public", "--quick", "--data", str(folder), "--out", str(out)]
    assert CATALOGUE.main([*words, "--part", "nltcs"]) == 0
    found = Record.read(out / "public.json").results["tables"]["nltcs"]
    floor, independent = found["resampled rows"], found["independent columns"]
    assert len(floor) == len(independent) == len(WAYS)
    assert floor[0] < independent[0]
    page = (out / "public.md").read_text(encoding="utf-8")
    assert "strict, ε = 3.2" in page
    assert found["3.2"]["distances"][0][0] < independent[0]
    assert CATALOGUE.main([*words, "--part", "acs"]) == 2
    assert "has no table 'acs'" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        CATALOGUE.main(["public", "--quick"])
