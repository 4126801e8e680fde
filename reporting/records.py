"""The saved format: a JSON object with `name`, `settings` and `results`, and where it comes from.

A run's record also has `command`, `date`, `machine` and `versions`. A piece of a longer run, such as one replication,
is kept in the same format without these: its run's record has them. Seeds are among the settings.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from verticopula.errors import SettingsError

PACKAGES = ("verticopula", "numpy", "scipy", "numba", "cryptography", "opendp", "polars", "skglm")
SHOWN_PACKAGES = ("verticopula", "numpy", "scipy", "polars")


@dataclass(frozen=True)
class Record:
    """What was measured, with which settings, and by which command on which machine."""

    name: str
    settings: Mapping[str, Any]
    results: Mapping[str, Any]
    command: str = ""
    date: str = ""
    machine: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_run(cls, name: str, settings: Mapping[str, Any], results: Mapping[str, Any], command: str) -> Record:
        """The record of a run that ends now on this machine."""
        versions = {"python": platform.python_version(), **{package: version(package) for package in PACKAGES}}
        return cls(name, settings, results, command, now(), describe_machine(), versions)

    @classmethod
    def read(cls, path: Path, settings: Mapping[str, Any] | None = None) -> Record:
        """A saved record; SettingsError if the file holds none, or one that was made with other `settings`."""
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            raw = None
        if not isinstance(raw, dict):
            raise SettingsError(f"{path} is damaged: delete it, and it is made again")
        try:
            record = cls(**raw)
        except TypeError:
            raise SettingsError(f"{path} was made by another version: take another --out") from None
        if settings is not None and record.settings != settings:
            raise SettingsError(f"{path} was made with other settings ({record.settings}): take another --out")
        return record

    def save(self, path: Path) -> None:
        """Write the record as JSON: a piece on one line, a run's record for people to read."""
        raw = {name: value for name, value in vars(self).items() if value or name in ("settings", "results")}
        layout = {"indent": 1} if self.command else {"separators": (",", ":")}
        write_text(path, json.dumps(raw, ensure_ascii=False, **layout) + "\n")

    def describe(self, seconds: float | None = None) -> str:
        """One line for the foot of a page."""
        versions = ", ".join(f"{name} {self.versions[name]}" for name in SHOWN_PACKAGES)
        took = "" if seconds is None else f" {seconds / 60.0:.1f} minutes of one core."
        return f"Made by `{self.command}`; Python {self.versions['python']}, {versions}.{took}"


def now() -> str:
    """This second, in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def describe_machine() -> dict[str, Any]:
    """Processor, number of processors and load: timings mean little without them."""
    return {
        "processor": _processor_name(),
        "cpu_count": os.cpu_count(),
        "system": platform.system(),
        "load_average": round(os.getloadavg()[0], 2),
    }


def _processor_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write_text(path: Path, text: str) -> None:
    """Write a file in one step: a reader sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)
