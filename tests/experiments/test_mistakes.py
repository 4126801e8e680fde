"""Commands that cannot work say why, and folders that do not fit are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.__main__ import main
from experiments.draws import Cell
from experiments.runner import SMALL_DESIGN, Settings, list_tasks, list_wanted
from experiments.store import locate
from verticopula.errors import SettingsError

SMALL = Settings(design=SMALL_DESIGN)
ONE = ("table1", "--methods", "VCDS", "--replications", 1, "--epsilons", 2, "--models", "linear")


def call(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str]:
    """Exit status and everything that was said."""
    try:
        code = main([str(a) for a in argv])
    except SystemExit as stopped:
        code = int(str(stopped.code))
    said = capsys.readouterr()
    return code, " ".join((said.out + said.err).split())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["table1", "--epsilons", "100"], "epsilons lie between 0 and 70"),
        (["table1", "--epsilons", "inf"], "epsilons lie between 0 and 70"),
        (["table1", "--epsilons", "0"], "epsilons lie between 0 and 70"),
        (["table1", "--replications", "0"], "at least 1"),
        (["table1", "--methods", "VCSD"], "unknown method 'VCSD'"),
        (["table1", "--methods", "VCDS", "--headline"], "leave --methods out"),
        (["table1", "--seed-offset", "-1"], "seed offset of at least 0"),
        (["table4", "--models", "logistic"], "table4: none has such a model"),
        (["table8", "--methods", "Original-C"], "none of these methods is in table8"),
        (["table8", "--epsilons", "2"], "table8 has one epsilon"),
        (["table4", "--sizes", "8", "--methods", "VCDS", "--replications", "1"], "N = 8 is too small"),
        (["person", "--replications", "0"], "at least 1"),
        (["person", "--epsilons", "inf"], "epsilons are above 0"),
        (["missing", "--replications", "0"], "at least 1"),
        (["real", "--csv", "none.csv", "--study", "none.toml", "--splits", "0"], "at least 1"),
        (["real", "--csv", "none.csv", "--study", "none.toml", "--epsilon", "-1"], "epsilon is above 0"),
    ],
)
def test_a_mistake_is_named(options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = call(capsys, *options, "--out", tmp_path)
    assert code == 2
    assert words in said


def test_a_file_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = Path(__file__).parents[2] / "experiments" / "real" / "sba_loans.toml"
    code, said = call(capsys, "real", "--csv", tmp_path / "none.csv", "--study", study, "--out", tmp_path)
    assert code == 2
    assert "none.csv: No such file" in said


def test_a_file_where_a_folder_should_be_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "taken"
    out.write_text("")
    code, said = call(capsys, *ONE, "--quick", "--sizes", 80, "--out", out)
    assert code == 2
    assert "taken: File exists" in said


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_damaged_file_is_named(text: str, tmp_path: Path) -> None:
    cell = Cell("linear", "MCAR", 80)
    damaged = locate(tmp_path, cell, 0)
    damaged.parent.mkdir(parents=True)
    damaged.write_text(text)
    with pytest.raises(SettingsError, match=r"0000\.json is damaged: delete it"):
        list_tasks({cell: list_wanted(["VCDS"], [2.0])}, range(1), SMALL, tmp_path)


def test_one_page_does_not_mix_designs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, *ONE, "--quick", "--sizes", 80, "--out", tmp_path)[0] == 0
    code, said = call(capsys, *ONE, "--sizes", 90, "--out", tmp_path)
    assert code == 2
    assert "other settings" in said


@pytest.mark.parametrize("options", [["--effects", "uniform"], ["--seed-offset", "1000"]])
def test_other_data_sets_have_a_folder_of_their_own(
    options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(capsys, *ONE, *options, "--quick", "--sizes", 80, "--out", tmp_path)[0] == 0
    folder = tmp_path / {"--effects": "effects-uniform", "--seed-offset": "seeds-from-1000"}[options[0]]
    (kept,) = folder.glob("replications/*/*.json")
    assert kept.name == ("1000.json" if "1000" in options else "0000.json")
    assert not (tmp_path / "replications").exists()
    assert (folder / "table1.csv").exists()


def test_a_small_design_is_compared_with_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["table1", "--methods", "Original-C", "--replications", "2", "--models", "linear", "--sizes", "1000"]
    code, said = call(capsys, *command, "--quick", "--out", tmp_path)
    assert code == 0
    assert "0 better, 0 equal, 0 worse" in said
    page = (tmp_path / "results.html").read_text()
    assert "--quick" in page
    assert "paper 0." not in page


def test_tables_that_were_not_asked_for_are_not_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables 4 and 6 are about the same data sets, and the oracle of these alone makes no table."""
    command = ["table4", "--methods", "VCDS", "--replications", 1, "--sizes", 80, "--mechanisms", "MCAR"]
    code, said = call(capsys, *command, "--quick", "--out", tmp_path)
    assert code == 0
    assert "table6" not in said
    assert [path.name for path in tmp_path.glob("*.csv")] == ["table4.csv"]
