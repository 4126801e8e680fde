"""Settings for the whole suite."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

# One thread a process: the suite's processes fill the cores. Libraries read this when they are imported, later.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ.setdefault(name, "1")

# Compiling on first use takes longer than any deadline; the same examples every time, so that a
# failure on one machine is a failure on every machine.
settings.register_profile("suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")

_numbers = itertools.count()
_HERE = Path(__file__).parent
_TARGETS = {  # folder -> the mark that its target of the Makefile runs
    "audit": "audit",
    "cluster": "cluster",
    "console": "console",
    "databases": "databases",
    "experiments": "experiments",
    "report": "report",
    "statistical": "statistics",
    "strict": "statistics",
    "tilting": "statistics",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of some folders, and those with a browser, have targets of their own."""
    for item in items:
        mark = _TARGETS.get(item.path.relative_to(_HERE).parts[0])
        if mark is not None:
            item.add_marker(mark)
        if "browser" in getattr(item, "fixturenames", ()) and item.get_closest_marker("docs") is None:
            item.add_marker("browser")


@pytest.fixture(scope="session", autouse=True)
def _no_data_folder_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test, and no fixture that several tests share, writes into the vault of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(autouse=True)
def data_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A test's own data folder: no test sees what another has spent."""
    folder = tmp_path_factory.getbasetemp() / f"data-of-test-{next(_numbers)}"  # `mktemp` lists all of them each time
    folder.mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(folder))
    return folder


@pytest.fixture(scope="module")
def few_fitted_rows() -> Iterator[None]:
    """Tilted copulas fitted with 1,000 rows, not 20,000: for tests of what works and what is refused, not how well."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("strict.strict_fit", "tilted_ranks.rank_tilting", "tilted_ranks.class_tilting"):
            patch.setattr(f"verticopula.stats.{module}.count_fitted_rows", lambda n_subjects, n_columns: 1_000)
        yield


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A real browser; imported here, since few tests need one."""
    from tests.browsers import open_browser

    yield from open_browser()


@pytest.fixture(autouse=True)
def fault_row(request: pytest.FixtureRequest) -> None:
    """Record the row of a test that has one, for `python -m benchmarks faults`; it counts only if the test passes."""
    marker = request.node.get_closest_marker("fault_row")
    if marker is not None:
        called = getattr(request.node, "callspec", None)
        fault, ended = (words.format(**({} if called is None else called.params)) for words in marker.args)
        row = json.dumps({"fault": fault, "ended": ended})
        request.node.user_properties.append(("result", row))
