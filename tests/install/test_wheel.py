"""Wheel and sdist in an empty environment: what a user gets from pip, without the tools that the other tests need."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SUBJECTS = 3_000  # of fewer a person's noise leaves so little that there may be no second class to explain

# Everything below shares one environment, which takes minutes and asks the registry for every dependency.
pytestmark = [pytest.mark.install, pytest.mark.timeout(1800)]

Run = Callable[..., str]


PIP = ("-m", "pip", "--disable-pip-version-check", "-q")


def start(folder: Path, *command: object) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, env=clean, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Wheel and sdist: those of `make dist`, or built here; the wheel is built from the sdist."""
    given = os.environ.get("DIST")
    folder = Path(given) if given else tmp_path_factory.mktemp("dist")
    if not given:
        start(folder, sys.executable, "-m", "build", "--outdir", folder, ROOT)
    (wheel,) = folder.glob(f"verticopula-{PROJECT['version']}-*.whl")
    (sdist,) = folder.glob(f"verticopula-{PROJECT['version']}.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, built: dict[str, Path]) -> Path:
    """One with the dependencies, and the wheel."""
    folder = tmp_path_factory.mktemp("installed")
    start(folder, sys.executable, "-m", "venv", folder / "env")
    start(folder, folder / "env/bin/python", *PIP, "install", built["wheel"])
    return folder


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def run(request: pytest.FixtureRequest, environment: Path, built: dict[str, Path]) -> Run:
    """Runs a program of the environment, with the package from that file; returns what it printed."""
    python = environment / "env/bin/python"
    start(environment, python, *PIP, "install", "--no-deps", "--force-reinstall", built[request.param])

    def run(program: str, *arguments: object) -> str:
        return start(environment, environment / "env/bin" / program, *arguments)

    return run


def test_the_sdist_has_the_repository_and_the_wheel_the_package(built: dict[str, Path], tmp_path: Path) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    home = ROOT / "src"
    files = {path.relative_to(home).as_posix() for path in (home / "verticopula").rglob("*") if path.is_file()}
    assert packed == {name for name in files if "__pycache__" not in name}
    with tarfile.open(built["sdist"]) as archive:
        archive.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    for name in ("Makefile", ".ci/run", "LICENSE", "tests/unit/test_docs.py", "docs/conf.py", "experiments/README.md"):
        assert (tree / name).is_file(), name
    # Every link, path and name on its pages is there: nothing that they need was left out.
    start(tree, sys.executable, "-m", "pytest", "tests/unit/test_docs.py", "-p", "no:cacheprovider")


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
