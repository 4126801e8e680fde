"""Environments of their own for packages that ours cannot hold."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path


def prepare_environment(folder: Path, versions: Mapping[str, str]) -> Path:
    """The Python of an environment with these versions, which is made unless it is there."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run(["python3.11", "-m", "venv", folder], check=True)
    question = f"from importlib.metadata import version; print(*(version(p).split('+')[0] for p in {list(versions)}))"
    found = subprocess.run([python, "-c", question], capture_output=True, text=True, check=False)
    if found.stdout.split() != list(versions.values()):
        wanted = [f"{name}=={version}" for name, version in versions.items()]
        subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=True)
    return python
