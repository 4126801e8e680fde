"""Who writes a report, where, and what is in it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import duckdb
import polars as pl
import pytest

from tests.builders import Call
from tests.report import studies
from verticopula.datasets import make_sme
from verticopula.estimators.default_regression import fit_if_cheap
from verticopula.estimators.synthesizer import Synthesizer
from verticopula.report.report_data import ReportData, read_real
from verticopula.report.report_page import render_report
from verticopula.storage.vault import Vault
from verticopula.storage.withdrawals import Withdrawals


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    studies.federation().to_toml(tmp_path / "federation.toml")
    (tmp_path / "tables").mkdir()
    for name, table in studies.tables().items():
        table.write_csv(tmp_path / "tables" / f"{name}.csv")
    return tmp_path


def run(call: Call, inputs: Path, *more: object) -> Path:
    out = inputs / "study"
    said = call(
        "run",
        inputs / "federation.toml",
        "--data",
        inputs / "tables",
        "--out",
        out,
        "--method",
        "refined",
        "-e",
        8,
        *more,
    )
    assert said.code == 0, said.err
    return out


def test_run_writes_a_report_without_real_data(call: Call, inputs: Path) -> None:
    out = run(call, inputs)
    text = (out / "report.html").read_text("utf-8")
    assert 'data-code="in-house"' not in text
    assert "binomial regression of bank.default" in text
    assert not (out / "report-in-house.html").exists()


def test_run_writes_the_in_house_report_when_asked(call: Call, inputs: Path) -> None:
    out = run(call, inputs, "--in-house")
    assert 'data-code="in-house"' in (out / "report-in-house.html").read_text("utf-8")
    assert 'data-code="in-house"' not in (out / "report.html").read_text("utf-8")
    run(call, inputs, "--overwrite")
    assert not (out / "report-in-house.html").exists()  # it would be about another study


def test_aligned_rows_are_told_of_then_and_later(call: Call, inputs: Path) -> None:
    out = run(call, inputs, "--aligned")
    assert 'data-code="aligned"' in (out / "report.html").read_text("utf-8")
    (out / "report.html").unlink()
    assert call("report", out).code == 0
    assert 'data-code="aligned"' in (out / "report.html").read_text("utf-8")


def test_report_takes_up_a_later_regression(call: Call, inputs: Path) -> None:
    out = run(call, inputs, "--rows", 700)
    assert call("glm", out, "--response", "bank.income", "--quiet").code == 0
    said = call("report", out)
    assert said.code == 0
    assert "report.html" in said.out
    assert "gaussian regression of bank.income" in (out / "report.html").read_text("utf-8")


def test_report_with_one_partys_data(call: Call, inputs: Path) -> None:
    out = run(call, inputs)
    (inputs / "tables" / "shop.csv").unlink()
    (inputs / "tables" / "bank.csv").unlink()
    assert call("report", out, "--data", inputs / "tables").code == 0
    text = (out / "report-in-house.html").read_text("utf-8")
    assert "exact shares and counts of court" in text
    elsewhere = inputs / "mine.html"
    assert call("report", out, "--data", inputs / "tables", "--out", elsewhere, "--quiet").out == ""
    assert elsewhere.is_file()


def test_report_reads_real_tables_from_a_database_or_one_partys_file(call: Call, inputs: Path) -> None:
    out = run(call, inputs)
    with closing(duckdb.connect(str(inputs / "all.duckdb"))) as database:
        for name in ("bank", "court"):
            database.execute(f"CREATE TABLE {name} AS SELECT * FROM read_csv('{inputs / 'tables' / name}.csv')")
        database.execute(f"CREATE TABLE sales AS SELECT * FROM read_csv('{inputs / 'tables' / 'shop'}.csv')")
    (inputs / "shop.sql").write_text("SELECT subject_id, sector, spent FROM sales")
    data = ("--data", inputs / "all.duckdb")
    assert "something that is not there" in call("report", out, *data).err
    pages = {}
    for name, given in {
        "files": ("--data", inputs / "tables"),
        "database": (*data, "--query", inputs / "shop.sql"),
        "file": ("--data", inputs / "tables" / "court.csv", "--party", "court"),
        "table": (*data, "--party", "court"),
    }.items():
        said = call("report", out, *given, "--out", inputs / name)
        assert said.code == 0, said.err
        pages[name] = (inputs / name).read_text("utf-8")
    assert pages["database"] == pages["files"] != pages["file"] == pages["table"]
    assert "exact shares and counts of court" in pages["table"]


def test_report_compares_with_nobody_who_withdrew(call: Call, inputs: Path) -> None:
    out, vault, rest = run(call, inputs), inputs / "vault", inputs / "rest"
    Vault.open(vault).close()
    gone = ["s1", "s2", "s599"]
    Withdrawals(vault).record("withdrawn", gone, "by letter", "anna")
    rest.mkdir()
    for name, table in studies.tables().items():
        table.filter(~pl.col("subject_id").is_in(gone)).write_csv(rest / f"{name}.csv")
    found = []
    for number, given in enumerate((("tables",), ("tables", "--vault", vault), ("rest",))):
        page = inputs / f"{number}.html"
        said = call("report", out, "--data", inputs / given[0], *given[1:], "--out", page)
        assert said.code == 0, said.err
        assert ("Left out, because people have withdrawn: 3 of bank" in said.err) == (number == 1)
        found.append(page.read_text("utf-8"))
    assert found[0] != found[1] == found[2]
    mistyped = call("report", out, "--data", inputs / "tables", "--vault", inputs / "valt")
    assert "no vault, so nobody could be left out" in mistyped.err
    assert "give --data, too" in call("report", out, "--vault", vault).err


def test_report_says_what_it_cannot_read(call: Call, inputs: Path) -> None:
    assert "holds no study" in call("report", inputs).err
    out = run(call, inputs)
    (inputs / "nothing").mkdir()
    assert "no table of any party" in call("report", out, "--data", inputs / "nothing").err
    assert "no such folder" in call("report", out, "--data", inputs / "nowhere").err
    one = ("--data", inputs / "tables" / "court.csv")
    assert "is a file; give the folder that it is in" in call("report", out, *one).err
    assert (
        "no party 'nobody' in this study; there are bank, court, shop"
        in call("report", out, *one, "--party", "nobody").err
    )
    assert "give --data, too" in call("report", out, "--party", "court").err
    (out / "regression").mkdir(exist_ok=True)
    (out / "regression" / "regression.json").write_text("[]")
    assert "cannot be read as a regression" in call("report", out).err


def test_the_method_takes_tables_and_a_regression(tmp_path: Path) -> None:
    synthesizer = studies.fitted()
    path = synthesizer.report(
        tmp_path / "deep" / "report.html", tables={"court": studies.tables()["court"].to_pandas()}
    )
    assert path == tmp_path / "deep" / "report.html"
    assert "exact shares and counts of court" in path.read_text("utf-8")


def test_a_study_of_one_column_has_a_report(tmp_path: Path) -> None:
    from tests.builders import CONTINUOUS, make_federation

    alone = make_federation({"only": {"y": CONTINUOUS}})
    table = pl.DataFrame({"subject_id": ["a", "b", "c", "d"], "y": [0.0, 1.0, -1.0, 2.0]})
    text = Synthesizer(alone, "vcds", epsilon=2.0).fit({"only": table}).report(tmp_path / "r.html").read_text("utf-8")
    assert "no two columns" in text


def test_fifty_five_columns_and_five_parties_stay_small() -> None:
    study = make_sme(400)
    synthesizer = Synthesizer(study.federation, "refined", epsilon=8.0).fit(study.tables)
    assert len(study.federation.keys) == 55
    facts = fit_if_cheap(synthesizer.study_, synthesizer.sample())
    real = read_real(study.federation, study.tables)
    size = len(render_report(ReportData(synthesizer.study_, real, facts)).encode())
    assert size < 1_000_000  # the limit is 5 MB
