"""The wheel in an empty environment: what a user gets from pip, without the tools that the other tests need."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SUBJECTS = 300

# Everything below shares one installation, which takes minutes and asks the registry for every dependency.
pytestmark = [pytest.mark.install, pytest.mark.timeout(1800)]

Run = Callable[..., str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a program of an environment that holds the built wheel and its dependencies; returns what it printed."""
    folder = tmp_path_factory.mktemp("installed")
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def start(*command: object) -> str:
        done = subprocess.run(
            [str(part) for part in command], cwd=folder, env=clean, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    pip = ("-m", "pip", "--disable-pip-version-check", "-q")
    start(sys.executable, *pip, "wheel", "--no-deps", "--wheel-dir", folder, ROOT)
    start(sys.executable, "-m", "venv", folder / "env")
    (wheel,) = folder.glob("verticopula-*.whl")
    start(folder / "env/bin/python", *pip, "install", wheel)

    def run(program: str, *arguments: object) -> str:
        return start(folder / "env/bin" / program, *arguments)

    return run


def test_the_environment_holds_the_wheel_and_what_it_declares(run: Run) -> None:
    where = run("python", "-c", "import verticopula; print(verticopula.__file__, verticopula.__version__)")
    path, version = where.split()
    assert "site-packages" in path
    assert version == PROJECT["version"]
    assert run("verticopula", "--version").strip() == PROJECT["version"]
    run("python", "-m", "pip", "check")
    installed = {re.sub("[-_.]+", "-", p["name"]).lower() for p in json.loads(run("pip", "list", "--format", "json"))}
    declared = {re.split("[<>=!~ ]", line)[0] for line in PROJECT["dependencies"]}
    assert declared <= installed
    assert not installed & {"nvflare", "pytest", "sdmetrics", "torch"}  # those are extras


def test_the_demo_runs_with_nothing_but_the_dependencies(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "demo"
    said = run("verticopula", "demo", "--subjects", SUBJECTS, "--seed", 1, "--out", out)
    assert "Against the truth" in said
    tables = {path.stem: pl.read_parquet(path) for path in (out / "synthetic").glob("*.parquet")}
    parties = {path.stem for path in (out / "data").glob("*.csv")}
    assert len(parties) == 5
    assert set(tables) == parties | {"joined"}
    assert {table.height for table in tables.values()} == {SUBJECTS}
    assert sum(table.null_count().sum_horizontal().item() for table in tables.values()) == 0
    assert json.loads((out / "study.json").read_text())["versions"]["verticopula"] == PROJECT["version"]
    assert (out / "regression/coefficients.csv").read_text().startswith("party,column,feature,coefficient")
    # The page is made from files of the package that are not Python, and stands alone.
    for name in ("report.html", "report-in-house.html"):
        page = (out / name).read_text()
        assert "</html>" in page, name
        assert not re.search(r'(src|href)="https?:', page), name
    assert "chain intact" in run("verticopula", "ledger", "verify", out)
    assert run("verticopula", "check", out / "federation.toml", "--data", out / "data")
