"""`--as-printed` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from tests.builders import Call
from tests.unit.test_cli_methods import N, arguments, write
from verticopula.privacy.pricing import PRINTED_MARGIN
from verticopula.storage.ledger import read_ledger


@pytest.fixture
def study(tmp_path: Path) -> Path:
    write(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("method", "rounds"), [("vcds", 1), ("evcds", 1), ("ievcds", 2)])
def test_run_as_printed(study: Path, call: Call, method: str, rounds: int) -> None:
    options = ["--method", method, "--as-printed", "--epsilon", 8, *(["--rounds", 2] if rounds == 2 else [])]
    said = call(*arguments(study, *options))
    assert said.code == 0, said.err
    assert len(pl.read_csv(study / "out" / "synthetic" / "joined.csv")) == N
    ledger = read_ledger(study / "out" / "ledger.jsonl")
    assert len(ledger) == 4 * (1 + rounds)
    assert sum(entry.mechanism == PRINTED_MARGIN for entry in ledger) == 4
    settings = json.loads((study / "out" / "study.json").read_text("utf-8"))["settings"]
    assert (settings["method"], settings["variant"], settings["rank_correlation"]) == (method, "as-printed", "kendall")
    notice = (study / "out" / "synthetic" / "READ-ME-FIRST.txt").read_text("utf-8")
    for text in (said.out, (study / "out" / "summary.txt").read_text("utf-8"), notice):
        assert "ranges of the data are in the open" in text
        assert ("Aligned rows" in text) == (method != "vcds")
    assert (study / "out" / "report.html").exists()
    assert call("report", study / "out").code == 0  # from the saved study


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--method", "refined", "--as-printed"], "is not in the paper"),
        (["--method", "strict", "--as-printed", "--delta", "1e-6"], "is not in the paper"),
        (["--as-printed"], "is not in the paper"),
        (["--method", "vcds", "--as-printed", "--sampler", "binomial"], "exact"),
        (["--method", "vcds", "--as-printed", "--rank-correlation", "pearson"], "unknown rank_correlation"),
        (["--rank-correlation", "spearman"], "is for variant"),
        (["--method", "evcds", "--as-printed", "--rows", str(N + 1)], "multiples of the cohort's 60 subjects"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_spent(
    study: Path, call: Call, options: list[str], expected: str
) -> None:
    said = call(*arguments(study, *options))
    assert said.code == 1
    assert expected in " ".join(said.err.split())
    assert not (study / "out").exists()


def test_a_policy_must_allow_it(study: Path, call: Call) -> None:
    (study / "rules").mkdir()
    rules = study / "rules" / "north.toml"
    rules.write_text('methods = ["vcds"]\n', "utf-8")
    run = arguments(
        study, "--method", "vcds", "--as-printed", "--policies", study / "rules", "--vault", study / "vault"
    )
    said = call(*run)
    assert said.code == 1
    assert "allow_as_printed" in said.err
    rules.write_text('methods = ["vcds"]\nallow_as_printed = true\n', "utf-8")
    assert call(*run).code == 0


def test_check_knows_it(study: Path, call: Call) -> None:
    check = [
        "check",
        study / "federation.toml",
        "--data",
        study,
        "--unit",
        "variable",
        "--method",
        "vcds",
        "--as-printed",
    ]
    assert call(*check).code == 0
    said = call(*check, "--method", "refined")
    assert said.code == 1
    assert "is not in the paper" in " ".join(said.err.split())


def test_the_demo_runs_it(tmp_path: Path, call: Call) -> None:
    demo = ["demo", "--out", tmp_path / "demo", "--subjects", 300, "--method", "evcds", "--as-printed", "--seed", 1]
    said = call(*demo)
    assert said.code == 0, said.err
    assert "ranges of the data are in the open" in said.out
    assert "Aligned rows" in said.out
    assert call("demo", "--out", tmp_path / "other", "--subjects", 300, "--as-printed").code == 1  # strict: not in it
    assert not (tmp_path / "other").exists()


def test_an_audit_attacks_its_tables_and_no_claims(study: Path, call: Call) -> None:
    assert call(*arguments(study, "--method", "vcds", "--as-printed", "--epsilon", 8)).code == 0
    said = call("audit", study / "out", "--claims-only")
    assert said.code == 1
    assert "make no claim that an attack could break" in " ".join(said.err.split())
