"""What a page says about how it was made: command, versions, processor time."""

from __future__ import annotations

import platform
from importlib.metadata import version

PACKAGES = ("verticopula", "numpy", "scipy", "polars")


def describe_run(command: str, seconds: float | None = None) -> str:
    """One line."""
    versions = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    took = "" if seconds is None else f" {seconds / 60.0:.1f} minutes of one core."
    return f"Made by `{command}`; Python {platform.python_version()}, {versions}.{took}"
