"""The command line: the demo, internal errors and the version in processes of their own, as a user starts them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from tests.builders import Call
from tests.shared_folders import build_once
from verticopula import Federation
from verticopula.study.study_folder import file_names


def verticopula(*args: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from verticopula.cli.app import main; main()", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_once(tmp_path_factory, "demo", run_demo) / "out"


def run_demo(folder: Path) -> None:
    done = verticopula("demo", "--out", folder / "out", "--subjects", 600, "--method", "refined", "--epsilon", 4)
    assert done.returncode == 0, done.stderr
    assert "epsilon by unit" in done.stdout
    assert "Against the truth" in done.stdout
    assert "report.html" in done.stdout


def test_demo_writes_everything(demo: Path) -> None:
    names = [
        "credit_agency",
        "market_supervision",
        "judicial_authority",
        "commerce_bureau",
        "law_enforcement",
        "joined",
    ]
    for name in names:
        csv, parquet = (
            pl.read_csv(demo / "synthetic" / f"{name}.csv"),
            pl.read_parquet(demo / "synthetic" / f"{name}.parquet"),
        )
        assert csv.shape == parquet.shape
        assert len(parquet) == 600
    assert pl.read_parquet(demo / "synthetic" / "joined.parquet").width == 55
    assert len((demo / "ledger.jsonl").read_text().splitlines()) == 110
    assert "person" in (demo / "summary.txt").read_text()
    assert json.loads((demo / "study.json").read_text())["settings"]["unit"] == "client"
    assert not (demo / "synthetic" / "READ-ME-FIRST.txt").exists()


def test_demo_writes_a_report_to_send_and_one_to_keep(demo: Path) -> None:
    assert 'data-code="in-house"' not in (demo / "report.html").read_text("utf-8")
    assert 'data-code="in-house"' in (demo / "report-in-house.html").read_text("utf-8")


def test_demo_writes_what_was_missing_and_how_margins_were_corrected(demo: Path) -> None:
    missing = json.loads((demo / "diagnostics" / "missingness.json").read_text())
    assert sum(pattern["subjects"] for pattern in missing["patterns"]) == missing["n_subjects"] == 600
    assert missing["missing_rates"]["law_enforcement"] == 0.0
    margins = pl.read_csv(demo / "diagnostics" / "margins.csv")
    assert margins["column"].n_unique() == 55
    assert margins["observed"].is_between(0.0, 1.0 + 1e-9).all()
    assert margins["corrected"].is_between(0.0, 1.0 + 1e-9).all()


@pytest.mark.filterwarnings("ignore::verticopula.errors.CellsWarning")
def test_a_demo_whose_rows_have_one_class_only_ends_without_a_regression(tmp_path: Path, call: Call) -> None:
    made = ("demo", "--subjects", 60, "--method", "refined", "--unit", "variable", "--epsilon", 0.01, "--seed", 2)
    said = call(*made, "--out", tmp_path / "demo")
    assert (said.code, said.err) == (0, "")
    assert "No regression: the response has only one class" in said.out
    assert "</html>" in (tmp_path / "demo" / "report.html").read_text("utf-8")


def test_check_then_run_on_the_demos_inputs(demo: Path, tmp_path: Path, call: Call) -> None:
    checked = call("check", demo / "federation.toml", "--data", demo / "data", "--method", "vcds")
    assert checked.code == 0, checked.err
    assert "Nothing was spent" in checked.out
    options = ["--data", demo / "data", "--out", tmp_path / "s", "--seed", 3, "--rows", 50, "--unit", "variable"]
    options += ["--method", "vcds"]
    done = call("run", demo / "federation.toml", *options)
    assert done.code == 0, done.err
    assert "NOT PRIVATE" in done.out
    assert "NOT PRIVATE" in (tmp_path / "s" / "synthetic" / "READ-ME-FIRST.txt").read_text()
    assert len(pl.read_csv(tmp_path / "s" / "synthetic" / "joined.csv")) == 50
    again = call("run", demo / "federation.toml", *options)
    assert again.code == 1
    assert "already holds a study" in again.err
    quiet = call("run", demo / "federation.toml", *options, "--overwrite", "-q")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    assert len((tmp_path / "s" / "ledger.jsonl").read_text().splitlines()) == 220
    written = {path.relative_to(tmp_path / "s").as_posix() for path in (tmp_path / "s").rglob("*") if path.is_file()}
    assert written <= file_names(Federation.from_toml(demo / "federation.toml"))  # a lead accepts no other


def test_ledger_show_and_verify(demo: Path, tmp_path: Path, call: Call) -> None:
    assert "110 entries, chain intact" in call("ledger", "verify", demo).out
    shown = call("ledger", "show", demo)
    assert "per" in shown.out
    assert "person" in shown.out
    lines = (demo / "ledger.jsonl").read_text().splitlines()
    (tmp_path / "ledger.jsonl").write_text("\n".join([lines[0], *lines[2:]]) + "\n")
    cut = call("ledger", "verify", tmp_path)
    assert cut.code == 1
    assert "line 2" in cut.err
    assert call("ledger", "verify", tmp_path / "none").code == 1


def test_check_reports_all_problems_of_all_parties_and_no_cell(demo: Path, tmp_path: Path, call: Call) -> None:
    for path in (demo / "data").glob("*.csv"):
        (tmp_path / path.name).write_text(path.read_text())
    credit = pl.read_csv(demo / "data" / "credit_agency.csv").with_columns(roe=pl.lit(987654.321))
    credit.write_csv(tmp_path / "credit_agency.csv")
    (tmp_path / "law_enforcement.csv").write_text((demo / "data" / "law_enforcement.csv").read_text().replace(",", ";"))
    (tmp_path / "judicial_authority.csv").unlink()
    checked = call("check", demo / "federation.toml", "--data", tmp_path, "--unit", "galaxy")
    said = " ".join(checked.err.split())
    assert checked.code == 1
    assert "nothing was spent" in said
    assert "unknown unit 'galaxy'" in said
    assert "judicial_authority" in said
    assert "987654" not in checked.err + checked.out


def test_check_and_run_tell_the_tables_holder_about_cells_that_do_not_fit_and_go_on(
    demo: Path, tmp_path: Path, call: Call
) -> None:
    for path in (demo / "data").glob("*.csv"):
        (tmp_path / path.name).write_text(path.read_text())
    credit = pl.read_csv(demo / "data" / "credit_agency.csv")
    roe = pl.when(pl.int_range(pl.len()) < 3).then(987654.321).otherwise(pl.col("roe"))
    credit.with_columns(roe=roe).write_csv(tmp_path / "credit_agency.csv")
    said = "column 'roe': 3 cells are outside the public bounds"
    checked = call("check", demo / "federation.toml", "--data", tmp_path)
    assert checked.code == 0, checked.err
    assert said in checked.out
    options = ["--out", tmp_path / "s", "--epsilon", "4", "--method", "vcds"]
    done = call("run", demo / "federation.toml", "--data", tmp_path, *options)
    assert done.code == 0, done.err
    assert said in done.err
    written = [path for path in (tmp_path / "s").rglob("*") if path.suffix in (".txt", ".json", ".jsonl", ".html")]
    assert written
    assert [path for path in written if "outside the public bounds" in path.read_text("utf-8")] == []
    assert "987654" not in checked.err + checked.out + done.err + done.out


def test_a_failed_run_writes_nothing(demo: Path, tmp_path: Path, call: Call) -> None:
    done = call("run", demo / "federation.toml", "--data", tmp_path, "--out", tmp_path / "s")
    assert done.code == 1
    assert "5 problems" in done.err
    assert not (tmp_path / "s").exists()


def test_policies_cap_a_run(demo: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "law_enforcement.toml").write_text("[caps]\nclient = 0.5\n")
    options = ["--data", demo / "data", "--out", tmp_path / "s", "--policies", tmp_path, "--method", "vcds"]
    done = call("run", demo / "federation.toml", *options)
    assert done.code == 1
    assert "above its cap of 0.5" in " ".join(done.err.split())
    (tmp_path / "bank.toml").write_text("")
    assert "belong to no party" in " ".join(call("run", demo / "federation.toml", *options).err.split())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--epsilon", "0"], "epsilon must be a positive"),
        (["--epsilon", "nan"], "epsilon must be a positive"),
        (["--epsilon", "one"], "--epsilon"),
        (["--unit", "galaxy"], "unknown unit"),
        (["--unit", "client"], "method 'strict' has the units 'person' or 'block'"),
        (["--method", "magic"], "unknown method"),
        (["--rows", "0"], "at least 1"),
        (["--epsilon", "1", "--epsilon-ranks", "1"], "give either epsilon"),
        (["--data", "nowhere"], "no such folder"),
        (["--sampler", "lazy"], "unknown sampler"),
    ],
)
def test_bad_options_are_named(demo: Path, tmp_path: Path, call: Call, options: list[str], expected: str) -> None:
    done = call("run", demo / "federation.toml", "--data", demo / "data", "--out", tmp_path / "s", *options)
    assert done.code in (1, 2)
    assert expected in " ".join(done.err.replace("│", " ").split())
    assert "Traceback" not in done.err
    assert not (tmp_path / "s").exists()


def test_internal_errors_quote_nothing(tmp_path: Path) -> None:
    code = (
        "import verticopula.cli.app as c, verticopula.datasets as d\n"
        "def boom(*a, **k): raise RuntimeError('cell 987654.321')\n"
        "d.make_sme = boom\nimport sys; sys.argv = ['verticopula', 'demo', '--out', sys.argv[1]]\nc.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 70
    assert "RuntimeError" in done.stderr
    assert "987654" not in done.stderr


def test_help_and_version(call: Call) -> None:
    assert "synthetic" in call("--help").out
    assert verticopula("--version").stdout.strip().count(".") == 2
    assert "what epsilon bounds" in " ".join(call("run", "--help").out.lower().replace("│", " ").split())
