"""A study on Parquet files that are read a column at a time, in a process of its own: time and most memory.

People come in lots of a quarter of a million, so that no process ever holds them all, not even the one that makes them.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import polars as pl
from threadpoolctl import threadpool_limits

from benchmarks.scale_cases import SETTINGS, WARM_UP, Taken, peak_mb
from verticopula import Synthesizer
from verticopula.datasets import make_sme

LOT = 250_000
METHOD = "vcds"


def write_people(folder: Path, n_subjects: int) -> None:
    """The SME study's five tables as folders of Parquet files."""
    for number, start in enumerate(range(0, n_subjects, LOT)):
        for name, table in make_sme(min(LOT, n_subjects - start), random_state=number).tables.items():
            place = folder / f"{name}.parquet"
            place.mkdir(exist_ok=True)
            ids = (f"{number:03d}" + pl.col("subject_id")).alias("subject_id")
            table.with_columns(ids).write_parquet(place / f"part-{number:06d}.parquet")


def measure_files(folder: Path, n_subjects: int) -> Taken:
    """A study on these files and as many synthetic rows, written in parts; in this process."""
    warnings.simplefilter("ignore")
    small = make_sme(WARM_UP)
    made = Synthesizer(small.federation, METHOD, 1.0, random_state=0, **SETTINGS[METHOD])
    with threadpool_limits(1):
        made.fit(small.tables).write_sample(folder / "out", WARM_UP)
        before, start = peak_mb(), time.process_time()
        made.fit({party.name: folder / f"{party.name}.parquet" for party in small.federation.parties})
        middle = time.process_time()
        made.write_sample(folder / "out", n_subjects)
        return Taken(middle - start, time.process_time() - middle, before, peak_mb())


def measure_files_apart(n_subjects: int) -> dict[str, Any]:
    """The same in a process of its own, after another one has written the files."""
    with tempfile.TemporaryDirectory() as name:
        call_apart(write_people, Path(name), n_subjects)
        return {
            "method": METHOD,
            "n_subjects": n_subjects,
            **asdict(call_apart(measure_files, Path(name), n_subjects)),
        }


def call_apart(task: Callable[..., Any], *given: Any) -> Any:
    """What a task returns in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        return executor.submit(task, *given).result()
