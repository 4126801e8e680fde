"""What every benchmark hands back, and how it is shown and kept."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("verticopula", "numpy", "scipy", "numba", "cryptography", "opendp", "polars", "skglm")


@dataclass(frozen=True)
class Table:
    """A table of finished cells."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def to_markdown(self) -> str:
        """The table as GitHub shows it, without the title."""
        lines = [self.header, tuple("---" for _ in self.header), *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


@dataclass(frozen=True)
class Report:
    """One benchmark's settings, plain results and tables."""

    name: str
    settings: Mapping[str, Any]
    results: Mapping[str, Any]
    tables: Sequence[Table]


@dataclass(frozen=True)
class Places:
    """Where files go. Quick runs have a place of their own: they must not replace real figures."""

    results: Path
    images: Path
    pages: Path

    @classmethod
    def of(cls, *, quick: bool) -> Places:
        if quick:
            folder = ROOT / "benchmarks" / "results" / "quick"
            places = cls(folder, folder, folder)
        else:
            places = cls(ROOT / "benchmarks" / "results", ROOT / "docs" / "images", ROOT / "docs" / "benchmarks")
        for folder in (places.results, places.images, places.pages):
            folder.mkdir(parents=True, exist_ok=True)
        return places


def show(report: Report, console: Console) -> None:
    """Print the report's tables."""
    for table in report.tables:
        shown = RichTable(title=table.title, title_justify="left")
        for column in table.header:
            shown.add_column(column)
        for row in table.rows:
            shown.add_row(*row)
        console.print(shown)


def save(report: Report, places: Places, command: str) -> Path:
    """Write the report as JSON, with everything needed to judge it."""
    record = {
        "benchmark": report.name,
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": describe_machine(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "settings": dict(report.settings),
        "results": dict(report.results),
    }
    path = places.results / f"{report.name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return path


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


def verdict(value: float, target: float) -> str:
    """Whether a figure that should be small is small enough."""
    return "reached" if value <= target else "not reached"
