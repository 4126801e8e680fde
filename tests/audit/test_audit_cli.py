"""`verticopula audit` on the output of a small `run`: what it says, what it refuses, and what it never shows."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

import duckdb
import polars as pl
import pytest
from typer.testing import CliRunner

from tests.audit.studies import N, federation, people, write_tables
from tests.builders import Call
from verticopula.auditing import study_audit as audit_study_module
from verticopula.auditing.releases.attack_plan import plan_attacks
from verticopula.cli import audit_commands as cli_audit
from verticopula.cli.app import app
from verticopula.estimators.synthesizer import Synthesizer
from verticopula.formatting import json_numbers
from verticopula.storage.ledger import Ledger
from verticopula.storage.vault import Vault
from verticopula.storage.withdrawals import Withdrawals
from verticopula.study.study_folder import write_study

NUMBER = 6.123456789
ID = "zq-canary-4711"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished study, its tables with a planted value and id, and people who were left out."""
    folder = tmp_path_factory.mktemp("audit")
    tables = people(0, N, 1)
    bank = tables["bank"].with_row_index()
    tables["bank"] = bank.with_columns(
        pl.when(pl.col("index") == 3).then(NUMBER).otherwise(pl.col("y")).alias("y")
    ).drop("index")
    for name, table in tables.items():
        tables[name] = table.with_columns(pl.col("subject_id").replace({"p3": ID}))
    write_tables(tables, folder / "data")
    write_tables(people(1000, 120, 2), folder / "left-out")
    study = Synthesizer(federation(), method="refined", epsilon=4.0, unit="client")
    study.fit(tables, ledger=Ledger(folder / "study" / "ledger.jsonl"))
    write_study(folder / "study", study.study_, study.sample(), study.summary())
    return folder


def assert_no_cell(text: str) -> None:
    for spelling in (*(f"{NUMBER:.{digits}f}" for digits in range(4, 10)), ID):
        assert spelling not in text


def test_a_whole_audit_says_what_it_found_and_shows_no_cell(home: Path, call: Call, tmp_path: Path) -> None:
    before = (home / "study" / "ledger.jsonl").read_bytes()
    said = call("audit", home / "study", "--data", home / "data", "--trials", 100, "--seed", 1, "--out", tmp_path / "o")
    assert said.code == 0, said.err
    assert "not refuted" in said.out
    assert "leaves open" in said.out
    assert "no budget was spent" in said.out
    assert (home / "study" / "ledger.jsonl").read_bytes() == before
    assert not (home / "study" / "audit.json").exists()
    raw = json.loads((tmp_path / "o" / "audit.json").read_text())
    assert raw["holds"] is True
    assert {m["unit"] for m in raw["mechanism"]} == {"variable", "client", "block", "person"}
    assert {m["pairs"] for m in raw["mechanism"]} == {"chosen", "typical"}
    assert all(m["means"] and m["trials"] >= 100 for m in raw["mechanism"])
    assert len(raw["left_open"]) == 6  # two parties and the person, chosen and typical
    assert all(t["means"] and t["low"] <= t["value"] <= t["high"] for t in raw["tables"])
    text = (tmp_path / "o" / "audit.txt").read_text()
    assert_no_cell(said.out + said.err + json.dumps(raw) + text)


def test_a_narrow_terminal_cuts_no_name(home: Path, tmp_path: Path) -> None:
    options = ["--data", home / "data", "--trials", 100, "--seed", 1, "--out", tmp_path / "o"]
    said = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["audit", *map(str, [home / "study", *options])]).stdout
    rows = [line for line in said.splitlines() if line.startswith("│")]
    assert len(rows) > 20
    assert {len(row) for row in rows} == {80}
    assert "…" not in said
    # Read down the first column, every name is there in full.
    cells = [row.split("│")[1].strip() for row in rows]
    raw = json.loads((tmp_path / "o" / "audit.json").read_text())
    for name in {row["what"] for row in raw["mechanism"]} | {row["name"] for row in raw["tables"]}:
        assert name.replace(" ", "") in "".join(cells).replace(" ", ""), name


def test_a_holdout_folder_audits_the_study_itself(home: Path, call: Call) -> None:
    said = call("audit", home / "study", "--data", home / "data", "--holdout", home / "left-out", "--tables-only")
    assert said.code == 0, said.err
    assert "no budget was spent" not in said.out  # nothing was repeated
    assert "closest record" in said.out
    assert_no_cell(said.out)


def test_one_party_needs_nothing_but_its_own_table(home: Path, call: Call, tmp_path: Path) -> None:
    shutil.copytree(home / "study", tmp_path / "study")
    for name in ("clinic", "joined"):
        (tmp_path / "study" / "synthetic" / f"{name}.parquet").unlink()
    (tmp_path / "data").mkdir()
    shutil.copy(home / "data" / "bank.csv", tmp_path / "data")
    options = ("--party", "bank", "--trials", 100, "--seed", 1)
    said = call("audit", tmp_path / "study", "--data", tmp_path / "data", *options)
    assert said.code == 0, said.err
    assert "clinic" not in said.out


def test_a_database_or_one_partys_file_is_audited_as_a_folder_is(
    home: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_study_module, "is_installed", lambda: False)  # SDMetrics draws what no seed repeats
    with closing(duckdb.connect(str(tmp_path / "all.duckdb"))) as database:
        database.execute(f"CREATE TABLE bank AS SELECT * FROM read_csv('{home / 'data' / 'bank.csv'}')")
        database.execute(f"CREATE TABLE visits AS SELECT * FROM read_csv('{home / 'data' / 'clinic.csv'}')")
    (tmp_path / "clinic.sql").write_text("SELECT * FROM visits")
    database_given = ("--data", tmp_path / "all.duckdb", "--query", tmp_path / "clinic.sql")
    found = []
    for given in (
        ("--data", home / "data", "--tables-only"),
        (*database_given, "--tables-only"),
        ("--data", home / "data", "--party", "bank", "--trials", 100),
        ("--data", home / "data" / "bank.csv", "--party", "bank", "--trials", 100),
        ("--data", tmp_path / "all.duckdb", "--party", "bank", "--trials", 100),
    ):
        said = call("audit", home / "study", *given, "--seed", 1)
        assert said.code == 0, said.err
        found.append(said.out)
    assert found[0] == found[1] != found[2] == found[3] == found[4]


def test_people_who_withdrew_before_the_study_are_left_out_of_its_audit(
    home: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_study_module, "is_installed", lambda: False)  # SDMetrics draws what no seed repeats
    more = {name: pl.concat([table, people(5000, 4, 3)[name]]) for name, table in people(0, N, 1).items()}
    write_tables(more, tmp_path / "data")
    Vault.open(tmp_path / "vault").close()
    Withdrawals(tmp_path / "vault").record("withdrawn", [f"p{5000 + n}" for n in range(4)], "", "anna")
    given = ("--data", tmp_path / "data", "--tables-only", "--seed", 1)
    assert "does not hold the study's own tables" in call("audit", home / "study", *given).err
    said = call("audit", home / "study", *given, "--vault", tmp_path / "vault")
    assert said.code == 0, said.err
    assert "Left out, because people have withdrawn: 4 of " in said.err
    claims = call("audit", home / "study", "--claims-only", "--vault", tmp_path / "vault")
    assert "give --data, too" in claims.err


def test_a_claim_that_is_too_small_is_red_and_ends_with_three(
    home: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def understate(*args: object, **options: object) -> object:
        attacks = plan_attacks(*args, **options)  # type: ignore[arg-type]
        attack = next(a for a in attacks if a.change == "one replaced block")
        claim = type(attack.claim)("block", 0.1, 1e-6)
        return [type(attack)(**{**vars(attack), "claim": claim})]

    monkeypatch.setattr(audit_study_module, "plan_attacks", understate)
    said = call("audit", home / "study", "--claims-only", "--trials", 400, "--seed", 1)
    assert said.code == cli_audit.REFUTED_CODE
    assert "REFUTED" in said.out
    assert "protected less than you were promised" in said.out


def test_without_sdmetrics_it_says_how_to_install_it(home: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_study_module, "is_installed", lambda: False)
    said = call("audit", home / "study", "--data", home / "data", "--tables-only", "--seed", 1)
    assert said.code == 0
    assert "pip install 'verticopula[audit]'" in said.out
    assert "closest record" in said.out


def test_bad_input_is_named(home: Path, call: Call, tmp_path: Path) -> None:
    study, data = home / "study", ("--data", home / "data")
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(study / "study.json", bare)
    write_tables(people(5000, N, 9), tmp_path / "others")
    overlapping = people(1000, 120, 2)
    # one of these four has the planted id in the study
    overlapping["bank"] = pl.concat([overlapping["bank"], people(0, N, 1)["bank"].head(4)])
    write_tables(overlapping, tmp_path / "overlapping")
    write_tables(people(1000, 20, 2), tmp_path / "few")
    (tmp_path / "file").write_text("x")
    for arguments, expected in (
        ((tmp_path, *data), "holds no study"),
        ((bare, *data), "synthetic tables cannot be read"),
        ((study, "--data", tmp_path / "others"), "does not hold the study's own tables"),
        ((study, *data, "--holdout", tmp_path / "overlapping"), "3 of the 124 people"),
        ((study, *data, "--holdout", tmp_path / "few"), "at least 50 people"),
        ((study, *data, "--holdout", "0.01"), "at least 50 people"),
        ((study, *data, "--holdout", "1.5"), "between 0 and 1"),
        ((study, *data, "--holdout", tmp_path / "nowhere"), "neither a fraction nor a folder"),
        ((study, *data, "--trials", 99), "at least 100 trials"),
        ((study, *data, "--confidence", 1.0), "confidence"),
        ((study, *data, "--party", "nobody"), "no party 'nobody'"),
        ((study,), "--data is needed"),
        ((study, *data, "--claims-only", "--tables-only"), "either"),
        ((study, *data, "--out", tmp_path / "file"), "is a file"),
    ):
        said = call("audit", *arguments, "--quiet")
        assert said.code == 1, arguments
        assert expected in said.err, (expected, said.err)
        assert_no_cell(said.err)


def test_reports_have_no_words_that_json_lacks() -> None:
    assert json_numbers({"a": [float("inf"), float("nan"), 1.0]}, "inf") == {"a": ["inf", None, 1.0]}
