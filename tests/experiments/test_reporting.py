"""The runner, the saved format and the page writer that benchmarks and experiments share."""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

import benchmarks.__main__
import experiments.__main__
from benchmarks.__main__ import CATALOGUE
from reporting.catalogue import Catalogue, Entry, Measured, Places
from reporting.pages import html_page, markdown_page
from reporting.parallel import run_all
from reporting.records import Record
from reporting.tables import Table, mean, standard_error, to_csv, to_html
from verticopula.errors import SettingsError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def catalogue(monkeypatch: pytest.MonkeyPatch) -> Catalogue:
    """Two names of one module with two parts, which counts what it measures."""
    module = ModuleType("counting")

    def run(options: argparse.Namespace) -> Measured:
        found = {part: options.kept.results.get(part, 0) + 1 for part in options.parts}
        return {"quick": options.quick, "names": options.names}, {**options.kept.results, **found}

    def present(record: Record, places: Places) -> list[Table]:
        table = Table("Counted", ("part", "times"), [(part, str(times)) for part, times in record.results.items()])
        (places.pages / "page.md").write_text(markdown_page("A page", [record.command, table]))
        return [table]

    module.PARTS, module.run, module.present = ("one", "two"), run, present  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "counting", module)
    entry = Entry("counting", "counts", "Counts.", "no time", "counts.json")
    places = Places.together
    return Catalogue("counting", "About counting.", {"first": entry, "second": entry}, lambda out, quick: places(out))


def test_a_run_is_saved_with_where_it_comes_from(catalogue: Catalogue, tmp_path: Path) -> None:
    assert catalogue.main(["first", "second", "--quick", "--out", str(tmp_path)]) == 0
    record = Record.read(tmp_path / "counts.json")
    assert record.results == {"one": 1, "two": 1}
    assert record.settings == {"quick": True, "names": ["first", "second"]}
    assert record.command.startswith("python -m counting first second --quick")
    assert {"python", "numpy", "verticopula"} <= set(record.versions)
    assert record.machine["cpu_count"] >= 1


def test_parts_that_are_not_measured_are_kept(catalogue: Catalogue, tmp_path: Path) -> None:
    out = ["--out", str(tmp_path)]
    assert catalogue.main(["first", *out]) == 0
    assert catalogue.main(["first", "--part", "two", *out]) == 0
    assert Record.read(tmp_path / "counts.json").results == {"one": 1, "two": 2}


def test_a_page_is_made_again_without_measuring(catalogue: Catalogue, tmp_path: Path) -> None:
    out = ["--out", str(tmp_path)]
    assert catalogue.main(["first", "--page", *out]) == 2  # nothing is saved yet
    assert catalogue.main(["first", *out]) == 0
    saved, page = (tmp_path / "counts.json").read_bytes(), (tmp_path / "page.md").read_text()
    (tmp_path / "page.md").unlink()
    assert catalogue.main(["--page", "first", *out]) == 0
    assert (tmp_path / "counts.json").read_bytes() == saved
    assert (tmp_path / "page.md").read_text() == page


@pytest.mark.parametrize("words", [["third"], [], ["first", "--part", "three"], ["first", "--jobs", "0"]])
def test_what_cannot_be_run_is_refused(
    words: list[str], catalogue: Catalogue, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        catalogue.main(words)
    assert stopped.value.code == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize("program", [benchmarks.__main__, experiments.__main__])
def test_help_says_what_each_name_measures_takes_and_writes(
    program: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        program.main(["--help"])
    assert stopped.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    for name, entry in program.ENTRIES.items():
        assert f"{name} {' '.join(entry.measures.split())} Takes {entry.takes}. Writes {entry.writes}." in said


@pytest.mark.parametrize("program", [benchmarks.__main__, experiments.__main__])
def test_every_name_has_a_module_that_can_be_imported(program: ModuleType) -> None:
    for module in {entry.module for entry in program.ENTRIES.values()}:
        assert callable(importlib.import_module(module).present), module


def test_a_wide_table_is_cut_into_several_with_the_same_rows() -> None:
    rows = [("a", "1", *"bcdefg"), ("a", "2", *"hijklm")]
    table = Table("", ("model", "N", *"BCDEFG"), rows, heads=2)
    assert table.to_markdown().split("\n\n") == [
        "| model, N | B | C | D |\n| --- | --- | --- | --- |\n| a, 1 | b | c | d |\n| a, 2 | h | i | j |",
        "| model, N | E | F | G |\n| --- | --- | --- | --- |\n| a, 1 | e | f | g |\n| a, 2 | k | l | m |",
    ]
    assert Table("", "ABCDE", ["vwxyz"], heads=2).to_markdown().splitlines()[0] == "| A | B | C | D | E |"


def test_every_saved_result_of_the_benchmarks_is_a_record() -> None:
    folder = ROOT / "benchmarks" / "results"
    assert {path.stem for path in folder.glob("*.json")} == set(CATALOGUE.entries)
    for path in folder.glob("*.json"):
        record = Record.read(path)
        assert record.name == path.stem
        assert record.results


@pytest.mark.parametrize(
    "name",
    ["faults", "glm_agreement", "glm_moments", "glm_speed", "public", "scale", "strict", "strict_audit", "strict_cost"],
)
def test_published_pages_are_those_of_the_saved_results(name: str, tmp_path: Path) -> None:
    saved = ROOT / "benchmarks" / "results"
    (tmp_path / f"{name}.json").write_bytes((saved / f"{name}.json").read_bytes())
    if (saved / name).is_dir():  # of a benchmark that saves its cells one by one
        shutil.copytree(saved / name, tmp_path / name)
    assert CATALOGUE.main([name, "--page", "--out", str(tmp_path)]) == 0
    published = (ROOT / "docs" / "results" / f"{name}.md").read_text(encoding="utf-8")
    here = published.replace("](../images/", "](")  # a page elsewhere has its figures beside it
    assert (tmp_path / f"{name}.md").read_text(encoding="utf-8") == here


def test_benchmarks_and_experiments_do_not_import_tests() -> None:
    files = [path for folder in ("benchmarks", "experiments", "reporting") for path in (ROOT / folder).rglob("*.py")]
    lines = [(path.name, line.split()) for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    named = [(name, words[1]) for name, words in lines if len(words) > 1 and words[0] in ("from", "import")]
    assert len(named) > 500
    assert [found for found in named if found[1].split(".")[0] == "tests"] == []


def test_records_survive_being_saved(tmp_path: Path) -> None:
    piece = Record("cell", {"ε": 1.0}, {"found": [0.1, None]})
    piece.save(tmp_path / "deep" / "piece.json")
    assert Record.read(tmp_path / "deep" / "piece.json", {"ε": 1.0}) == piece
    assert set(json.loads((tmp_path / "deep" / "piece.json").read_text())) == {"name", "settings", "results"}
    with pytest.raises(SettingsError, match="other settings"):
        Record.read(tmp_path / "deep" / "piece.json", {"ε": 2.0})
    (tmp_path / "old.json").write_text('{"format": 1, "settings": {}}')
    with pytest.raises(SettingsError, match="another version"):
        Record.read(tmp_path / "old.json")


def test_tables_by_hand() -> None:
    table = Table("T", ("a", "b"), [("1", "2")], "why")
    assert markdown_page("P", ["text", table]) == "# P\n\ntext\n\n## T\n\nwhy\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    head, row = "<th>a</th><th>b</th><th>c</th>", "<th>&lt;</th><td><b>1</b></td><td class='x'>2</td>"
    made = to_html(("a", "b", "c"), [("<", "<b>1</b>", "<td class='x'>2</td>")])
    assert made == f"<table><tr>{head}</tr><tr>{row}</tr></table>"
    assert to_csv(["a"], [["x,y"], [1]]) == 'a\n"x,y"\n1\n'
    page = html_page("A < B", ["<p>text</p>"], "made & done")
    assert "<h1>A &lt; B</h1>" in page
    assert page.endswith("<p>text</p>\n<p><small>made &amp; done</small></p></body></html>\n")


def test_means_by_hand() -> None:
    assert (mean([1.0, 2.0, 3.0]), standard_error([1.0, 3.0])) == (2.0, 1.0)
    assert all(value != value for value in (mean([]), standard_error([1.0])))


def test_every_task_is_answered_once() -> None:
    assert list(run_all(divmod, [7, 8, 9], 4, label="tasks")) == [(1, 3), (2, 0), (2, 1)]
    assert list(run_all(divmod, [], 4, label="tasks")) == []
