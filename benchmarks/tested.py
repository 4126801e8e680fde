"""Tables that a test makes: pytest runs it in a process of its own, and its `result` properties are the rows."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from benchmarks import ROOT


def run_tests(*selected: str) -> list[dict[str, Any]]:
    """What the selected tests recorded as `result`, in their order; RuntimeError if one of them fails."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-m",
            "",
            *selected,
            "-o",
            "junit_family=xunit1",
            f"--junitxml={report}",
        ]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"the tests failed:\n{done.stdout[-4000:]}{done.stderr[-2000:]}")
        found = ElementTree.parse(report).iter("property")
        return [json.loads(one.attrib["value"]) for one in found if one.attrib["name"] == "result"]
