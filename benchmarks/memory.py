"""Peak memory that one rank release needs above its data.

Measured in a fresh process after a release of a small column, so that compiled code is not
counted. The kernel's high-water mark of the process's memory is lowered to what is in use just
before the release, and read just after it. `getrusage` would not do: its mark cannot be lowered,
and a new process inherits its parent's, which hides everything smaller.
"""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np

from benchmarks import ROOT
from benchmarks.growth import draw_from_one_stream
from reporting.catalogue import Measured, Places
from reporting.records import Record
from reporting.tables import Table, verdict
from verticopula.privacy.noise import SecureNoise
from verticopula.stats.ranks import flip_comparisons

EPSILON = 0.5  # per comparison
TARGET_MB = 100.0
STATUS, CLEAR_REFS, LOWER_PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs"), "5"
RELEASES = {"exact": flip_comparisons, "binomial": draw_from_one_stream}


def measure(sampler: str, n: int) -> dict[str, float]:
    """Megabytes in use before a release, and at its peak; to be called in a fresh process."""
    release = RELEASES[sampler]
    rng = np.random.default_rng(0)
    release(rng.standard_normal(2_000), EPSILON, SecureNoise().stream())
    values = rng.standard_normal(n)
    CLEAR_REFS.write_text(LOWER_PEAK, encoding="ascii")
    before = status_mb("VmRSS")
    release(values, EPSILON, SecureNoise().stream())
    peak = status_mb("VmHWM")
    return {"before": before, "peak": peak, "above": peak - before}


def status_mb(field: str) -> float:
    """Megabytes that the kernel says of this process's memory: `VmRSS` now, `VmHWM` at most since it was lowered."""
    for line in STATUS.read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(f"{STATUS} has no {field}")


def _measure_apart(sampler: str, n: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.memory", sampler, str(n)]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def _measure_largest(sampler: str, n: int, repetitions: int) -> dict[str, float]:
    return max((_measure_apart(sampler, n) for _ in range(repetitions)), key=lambda m: m["above"])


def run(options: Namespace) -> Measured:
    """Measure both samplers, each in a process of its own. Needs Linux."""
    n, repetitions = (5_000, 1) if options.quick else (71_827, 5)
    for sampler in RELEASES:
        _measure_apart(sampler, 500)  # fills the cache of compiled code
    measured = {sampler: _measure_largest(sampler, n, repetitions) for sampler in RELEASES}
    return (
        {"n_subjects": n, "epsilon_per_comparison": EPSILON, "data_mb": 8 * n / 1e6, "repetitions": repetitions},
        {
            "largest_megabytes": measured,
            "target": {"above": TARGET_MB, "met": measured["exact"]["above"] < TARGET_MB},
        },
    )


def present(record: Record, places: Places) -> list[Table]:
    """One table."""
    n, repetitions = record.settings["n_subjects"], record.settings["repetitions"]
    rows = tuple(
        (sampler, f"{m['before']:.1f}", f"{m['peak']:.1f}", f"{m['above']:.1f}", verdict(m["above"], TARGET_MB))
        for sampler, m in record.results["largest_megabytes"].items()
    )
    header = ("sampler", "MB in use before", "peak MB", "peak above before", f"target {TARGET_MB:.0f} MB")
    return [Table(f"memory of one rank release, N = {n:,}, largest of {repetitions}", header, rows)]


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
