"""VCDS against SDV's Gaussian copula on the same study: fitting and sampling as many rows.

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
TARGET = 0.3

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


def time_ours(n: int, *, cache: Path | None = None) -> Seconds:
    """What `sdv_ours` measures; with an empty `cache` folder, compilation included."""
    state = "warm" if cache is None else "cold"
    extra = {} if cache is None else {"NUMBA_CACHE_DIR": str(cache)}
    seconds: Seconds = _run_json([sys.executable, "-m", "benchmarks.sdv_ours", str(n), state], extra)["seconds"]
    return seconds


def _run_json(command: list[str | Path], extra: Mapping[str, str] | None = None) -> dict[str, Any]:
    environment = {**os.environ, **(extra or {})}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    # Libraries may print before; the answer is the last line.
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def run(options: Namespace) -> Measured:
    """Take turns: SDV, then VCDS, `repetitions` times; then VCDS once with nothing compiled."""
    n, repetitions = (1_000, 1) if options.quick else (71_827, 3)
    python = prepare_environment(ENVIRONMENT, VERSIONS)
    study = make_sme(n)
    ours: list[Seconds] = []
    sdv: dict[str, list[Seconds]] = {distribution: [] for distribution in DISTRIBUTIONS}
    versions: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        join_tables(study).write_parquet(folder / "joined.parquet")
        (folder / "sdtypes.json").write_text(json.dumps(describe_columns(study.federation)), encoding="utf-8")
        for _ in range(repetitions):
            for distribution in DISTRIBUTIONS:
                answer = time_sdv(python, folder, distribution)
                sdv[distribution].append(answer["seconds"])
                versions = answer["versions"]
            ours.append(time_ours(n))
        cold = time_ours(n, cache=folder / "numba")
    runs = {"VCDS": ours, **{_sdv_label(d): seconds for d, seconds in sdv.items()}, "VCDS, compiling": [cold]}
    ratios = {label: _ratio(ours, sdv[d]) for d, label in ((d, _sdv_label(d)) for d in DISTRIBUTIONS)}
    ratio = ratios[_sdv_label(DEFAULT_DISTRIBUTION)]
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
        {
            "seconds": runs,
            "ratio_of_medians": ratios,
            "ratio_with_compilation": cold["total"] / _median(sdv[DEFAULT_DISTRIBUTION]),
            "target": {"ratio_to_sdv_default": TARGET, "met": ratio <= TARGET},
        },
    )


def present(record: Record, places: Places) -> list[Table]:
    """Medians of all runs."""
    runs, label = record.results["seconds"], _sdv_label(DEFAULT_DISTRIBUTION)
    return [_tabulate(record.settings["n_subjects"], runs, runs[label], record.results["ratio_of_medians"][label])]


def _sdv_label(distribution: str) -> str:
    return f"SDV, {distribution}" + (" (its default)" if distribution == DEFAULT_DISTRIBUTION else "")


def _median(runs: list[Seconds], part: str = "total") -> float:
    return median(run[part] for run in runs)


def _ratio(ours: list[Seconds], theirs: list[Seconds]) -> float:
    return _median(ours) / _median(theirs)


def _tabulate(n: int, runs: dict[str, list[Seconds]], default: list[Seconds], ratio: float) -> Table:
    rows = tuple(
        (
            label,
            *(f"{_median(seconds, part):.2f}" for part in ("fit", "sample", "total")),
            f"{_ratio(seconds, default):.3f}",
            verdict(ratio, TARGET) if label == "VCDS" else "",
        )
        for label, seconds in runs.items()
    )
    header = ("", "fit s", "sample s", "total s", "ratio to SDV's default", f"target {TARGET}")
    return Table(f"SME study, N = {n:,}, medians", header, rows)
