"""Folders that several processes of the suite share."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def build_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], None]) -> Path:
    """A folder that the first process in need of it builds, and that the others only read.

    A fixture of a module is made again by every process that takes over some of the module's tests.
    """
    base = factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, built = base / name, base / f"{name}.built"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            folder.mkdir()
            build(folder)
            built.touch()
    return folder
