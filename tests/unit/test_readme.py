"""What the README shows works on two CSV files: its federation file, its commands, its lines of Python."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.builders import Call
from tests.unit.test_docs import ROOT

pytestmark = pytest.mark.docs

README = (ROOT / "README.md").read_text("utf-8")


def block(kind: str, containing: str) -> str:
    """The README's code block of this kind that contains a text."""
    blocks = re.findall(r"```(\w*)\n(.*?)```", README, re.DOTALL)
    return next(text for found, text in blocks if found == kind and containing in text)


@pytest.fixture
def bank_and_agency(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, pd.DataFrame]:
    """Two tables in the current folder, with a federation file as in the README; the bank lacks a third."""
    rng = np.random.default_rng(5)
    latent = rng.standard_normal(300)
    income = np.exp(10.0 + latent).round(2)
    age = np.clip(np.round(45 + 12 * rng.standard_normal(300)), 18, 100).astype(int)
    default = (rng.standard_normal(300) > latent).astype(int)
    customers = [f"c{number:04d}" for number in range(300)]
    bank = pd.DataFrame({"customer": customers, "income": income, "age": age}).iloc[:200]
    agency = pd.DataFrame({"customer": customers, "default": default})
    tables = tmp_path / "tables"
    tables.mkdir()
    bank.to_csv(tables / "bank.csv", index=False)
    agency.to_csv(tables / "agency.csv", index=False)
    (tmp_path / "federation.toml").write_text(block("toml", "loans"), "utf-8")
    monkeypatch.chdir(tmp_path)
    return {"bank": bank, "agency": agency}


def test_its_commands_run_one_after_the_other(bank_and_agency: dict[str, pd.DataFrame], call: Call) -> None:
    lines = [shlex.split(line, comments=True) for line in block("", "verticopula run").splitlines()]
    commands = [words[1:] for words in lines if words[0] == "verticopula"]
    assert [words[0] for words in commands] == ["forecast", "check", "run", "glm", "audit", "ledger"]
    fewer = {"glm": ["--bootstrap", "10"], "audit": ["--trials", "100", "--claims-only"]}
    for words in commands:
        said = call(*words, *fewer.get(words[0], ()))
        assert said.code == 0, (words, said.err)
    assert all(Path("study", name).exists() for name in ("report.html", "synthetic/joined.csv", "ledger.jsonl"))
    assert Path("study/regression/coefficients.csv").exists()
    assert call(*commands[2], "--overwrite").code == 0
    assert not list(Path("study/regression").glob("*.*"))  # it was about tables that are gone


def test_init_drafts_what_the_readme_shows(bank_and_agency: dict[str, pd.DataFrame], call: Call) -> None:
    (words,) = [
        shlex.split(line, comments=True) for line in block("", "verticopula init").splitlines() if "init" in line
    ]
    said = call(*words[1:], "--yes", "--out", "draft.toml")
    assert said.code == 0, said.err
    drafted, shown = (tomllib.loads(Path(name).read_text("utf-8")) for name in ("draft.toml", "federation.toml"))
    assert (drafted["id"], drafted["response"]) == (shown["id"], shown["response"])
    assert kinds(drafted) == kinds(shown)


def kinds(raw: dict[str, Any]) -> dict[str, str]:
    return {f"{party['name']}.{column['name']}": column["kind"] for party in raw["party"] for column in party["column"]}


@pytest.mark.filterwarnings("ignore")  # what a study warns about is not the point here
def test_its_lines_of_python_run(bank_and_agency: dict[str, pd.DataFrame], capsys: pytest.CaptureFixture[str]) -> None:
    names = dict(bank_and_agency)
    exec(block("python", "Synthesizer"), names)  # the README's own lines
    assert "person" in (said := capsys.readouterr().out)
    assert "(intercept)" in said
    assert names["tables"]["bank"].columns.tolist() == ["income", "age"]


def test_it_is_short() -> None:
    assert len(README.splitlines()) < 120
