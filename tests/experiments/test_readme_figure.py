"""The README's figure and table are functions of the tables' CSV files."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.__main__ import main
from experiments.readme_figure import BEGIN, END, fill_marks, read_figures, write_snippet
from verticopula.errors import SettingsError

COMPLETE = """table,model,N,epsilon,method,judge,metric,mean,se,replications
table1,linear,1000,1,VCDS,paper,rmse,0.1,0.01,30
table1,linear,1000,1,Oracle,paper,rmse,0.04,0.001,30
table1,linear,1000,3,VCDS,paper,rmse,0.08,0.01,30
table1,linear,1000,1,VCDS,bayes,rmse,0.01,0.01,30
table1,linear,1000,1,VCDS-printed,paper,rmse,0.15,0.01,30
"""
MISSING = """table,model,mechanism,N,epsilon,method,judge,metric,mean,se,replications
table4,linear,MCAR,1000,1,VCDS,paper,rmse,0.2,,1
table4,linear,MCAR,1000,1,Refined,paper,rmse,0.09,0.01,30
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "table1.csv").write_text(COMPLETE)
    (tmp_path / "table4.csv").write_text(MISSING)
    return tmp_path


def test_cells_stand_beside_the_papers_and_the_oracles(folder: Path) -> None:
    first = read_figures(folder)[0]
    assert (first.mean, first.error, first.replications, first.oracle) == (0.1, 0.01, 30, 0.04)
    assert first.printed is not None
    assert first.printed.mean == 0.149


def test_the_snippet_by_hand(folder: Path) -> None:
    lines = write_snippet(read_figures(folder)).splitlines()
    assert lines[2] == "| method | linear, complete | linear, MCAR |"
    assert any(line.startswith("| VCDS | 0.100 (0.149) | 0.200 (") for line in lines)
    assert "| Refined |  | 0.090 |" in lines
    # two cells of VCDS have an error and a printed figure; one data set alone cannot be judged
    assert "ours: 2 of 2 better, 0 equal within two standard errors, 0 worse" in lines[-1]
    assert "as printed: 0 of 1 better, 1 equal" in lines[-1]


def test_the_command_fills_the_marks_and_nothing_else(folder: Path) -> None:
    readme = folder / "README.md"
    readme.write_text(f"# Title\n{BEGIN}\nold\n{END}\nrest\n")
    options = [
        "--results",
        str(folder),
        "--image",
        str(folder / "images/tables.png"),
        "--snippet",
        str(folder / "s.md"),
    ]
    assert main(["figure", *options, "--readme", str(readme)]) == 0
    text = readme.read_text()
    assert text.startswith(f"# Title\n{BEGIN}\nRMSE at N = 1,000")
    assert text.endswith(f"{END}\nrest\n")
    assert "old" not in text
    assert (folder / "images/tables.png").read_bytes().startswith(b"\x89PNG")
    assert main(["figure", *options, "--readme", str(readme)]) == 0
    assert readme.read_text() == text


def test_missing_marks_and_missing_tables_are_errors(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="once"):
        fill_marks(f"{END} {BEGIN}", "x")
    assert main(["figure", "--results", str(tmp_path)]) == 2
