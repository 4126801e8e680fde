"""A cluster of two workers for tests that do no harm to it, and tables that are larger than a chunk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from tests.cluster.dask_processes import DaskProcesses
from tests.engines import make_tables, write_folders

ROWS = 150_000  # three chunks of 65,536


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskProcesses]:
    processes = DaskProcesses(tmp_path_factory.mktemp("dask"))
    try:
        for _ in range(2):
            processes.add_worker()
        yield processes
    finally:
        processes.stop()


@pytest.fixture
def own_cluster(tmp_path: Path) -> Iterator[DaskProcesses]:
    """One that may be harmed, without workers."""
    processes = DaskProcesses(tmp_path / "dask")
    try:
        yield processes
    finally:
        processes.stop()


@pytest.fixture(scope="session")
def tables() -> dict[str, pl.DataFrame]:
    return make_tables(ROWS)


@pytest.fixture(scope="session")
def paths(tables: dict[str, pl.DataFrame], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_folders(tables, tmp_path_factory.mktemp("tables"), 40_001)
