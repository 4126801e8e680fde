"""VCDS against SDV's Gaussian copula on the same study: processor time of fitting and of sampling as many rows.

SDV gets all tables in one place, joined, with gaps; VCDS gets them as the parties hold them and
adds its noise. SDV lives in an environment of its own (`.venv-sdv`), made here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl

from benchmarks import ROOT
from benchmarks.environments import prepare_environment
from benchmarks.sdv_ours import EPSILON, UNIT
from reporting.catalogue import Measured, Places
from reporting.records import Record
from reporting.tables import Table, verdict
from verticopula.datasets import SmeStudy, make_sme
from verticopula.schema.federation import Federation

VERSIONS = {"sdv": "2.0.0", "pyarrow": "26.0.1"}
ENVIRONMENT = ROOT / ".venv-sdv"
DEFAULT_DISTRIBUTION = "beta"  # SDV's own default
DISTRIBUTIONS = (DEFAULT_DISTRIBUTION, "norm")  # "norm" is the cheapest it offers
MOST = {DEFAULT_DISTRIBUTION: 0.1, "norm": 0.5}  # of SDV's time
COMPILING = "VCDS, compiling"
SAMPLERS = {"exact": "VCDS", "binomial": "VCDS, binomial ranks"}

Seconds = dict[str, float]


def join_tables(study: SmeStudy) -> pl.DataFrame:
    """All columns as `party.column`, one row per subject of the response's party, without the id."""
    federation = study.federation
    key = federation.id.name
    named = {
        party: table.rename({c: f"{party}.{c}" for c in table.columns if c != key})
        for party, table in study.tables.items()
    }
    joined = named.pop(federation.response.party)
    for table in named.values():
        joined = joined.join(table, on=key, how="left")
    return joined.drop(key)


def describe_columns(federation: Federation) -> dict[str, str]:
    """SDV's type of every joined column."""
    return {
        f"{party.name}.{column.name}": "numerical" if column.kind in ("continuous", "count") else "categorical"
        for party in federation.parties
        for column in party.columns
    }


def time_sdv(python: Path, folder: Path, distribution: str) -> dict[str, Any]:
    """What `sdv_baseline` measures on the table in `folder`."""
    script = ROOT / "benchmarks" / "sdv_baseline.py"
    # -P: this folder's own `sdv` module must not stand in for the package.
    return _run_json([python, "-P", script, folder / "joined.parquet", folder / "sdtypes.json", distribution])


def time_ours(n: int, sampler: str, *, cache: Path | None = None) -> Seconds:
    """What `sdv_ours` measures; with an empty `cache` folder, compilation included."""
    state = "warm" if cache is None else "cold"
    extra = {} if cache is None else {"NUMBA_CACHE_DIR": str(cache)}
    seconds: Seconds = _run_json([sys.executable, "-m", "benchmarks.sdv_ours", str(n), sampler, state], extra)[
        "seconds"
    ]
    return seconds


def _run_json(command: list[str | Path], extra: Mapping[str, str] | None = None) -> dict[str, Any]:
    environment = {**os.environ, **(extra or {})}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    # Libraries may print before; the answer is the last line.
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def run(options: Namespace) -> Measured:
    """Take turns: SDV, then VCDS by both samplers, `repetitions` times; then VCDS once with nothing compiled."""
    n, repetitions = (1_000, 1) if options.quick else (71_827, 3)
    python = prepare_environment(ENVIRONMENT, VERSIONS)
    study = make_sme(n)
    runs: dict[str, list[Seconds]] = {name: [] for name in (*SAMPLERS.values(), *map(_sdv_label, DISTRIBUTIONS))}
    versions: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        join_tables(study).write_parquet(folder / "joined.parquet")
        (folder / "sdtypes.json").write_text(json.dumps(describe_columns(study.federation)), encoding="utf-8")
        for _ in range(repetitions):
            for distribution in DISTRIBUTIONS:
                answer = time_sdv(python, folder, distribution)
                runs[_sdv_label(distribution)].append(answer["seconds"])
                versions = answer["versions"]
            for sampler, label in SAMPLERS.items():
                runs[label].append(time_ours(n, sampler))
        runs[COMPILING] = [time_ours(n, "exact", cache=folder / "numba")]
    return (
        {
            "n_subjects": n,
            "n_columns": len(describe_columns(study.federation)),
            "epsilon": EPSILON,
            "unit": UNIT,
            "noise": "secure",
            "repetitions": repetitions,
            "sdv_versions": versions,
        },
        {"processor_seconds": runs},
    )


def present(record: Record, places: Places) -> list[Table]:
    """Medians of all runs."""
    return [_tabulate(record.settings["n_subjects"], record.results["processor_seconds"])]


def _sdv_label(distribution: str) -> str:
    return f"SDV, {distribution}" + (" (its default)" if distribution == DEFAULT_DISTRIBUTION else "")


def _median(runs: list[Seconds], part: str = "total") -> float:
    return median(run[part] for run in runs)


def _tabulate(n: int, runs: dict[str, list[Seconds]]) -> Table:
    rows = []
    for label, seconds in runs.items():
        parts = (f"{_median(seconds, part):.2f}" for part in ("fit", "sample", "total"))
        ratios = {d: _median(seconds) / _median(runs[_sdv_label(d)]) for d in DISTRIBUTIONS}
        judged = label in SAMPLERS.values()
        said = (f"{ratio:.3f}" + (f": {verdict(ratio, MOST[d])}" if judged else "") for d, ratio in ratios.items())
        rows.append((label, *parts, *said))
    targets = (f"ratio to {_sdv_label(d)}, target {MOST[d]}" for d in DISTRIBUTIONS)
    header = ("", "fit s", "sample s", "total s", *targets)
    return Table(f"SME study, N = {n:,}, medians of processor time", header, tuple(rows))
