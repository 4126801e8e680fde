"""A study on files that are not held, in a process of its own: time and most memory.

People come in lots of a quarter of a million, so that no process ever holds them all, not even the one that makes them.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import polars as pl
from threadpoolctl import threadpool_limits

from benchmarks.scale_cases import SETTINGS, WARM_UP, Taken, peak_mb
from verticopula import Policy, Synthesizer
from verticopula.data.table_source import party_source
from verticopula.datasets import make_sme
from verticopula.protocol.party.member import Member
from verticopula.storage.vault import Vault
from verticopula.transport.in_process_transport import InProcessTransport

LOT = 250_000
# How the parties keep their tables, and what they are to each other; or by which method.
HOUSE, VAULT, CSV, MEMBERS = "parquet", "parquet, a vault", "csv, a vault", "parquet, five organisations"
REFINED = "parquet, refined"
KINDS = (HOUSE, VAULT, CSV, MEMBERS, REFINED)
_KEY = bytes(32)


def write_people(folder: Path, n_subjects: int, kind: str) -> None:
    """The SME study's five tables, as folders of Parquet files or as CSV files."""
    for number, start in enumerate(range(0, n_subjects, LOT)):
        for name, table in make_sme(min(LOT, n_subjects - start), random_state=number).tables.items():
            ids = (f"{number:03d}" + pl.col("subject_id")).alias("subject_id")
            _write_lot(folder / f"{name}.{ending_of(kind)}", table.with_columns(ids), number)


def ending_of(kind: str) -> str:
    """Of the files of a kind."""
    return kind.partition(",")[0]


def method_of(kind: str) -> str:
    """By which a study of a kind is."""
    return "refined" if kind == REFINED else "vcds"


def _write_lot(place: Path, table: pl.DataFrame, number: int) -> None:
    if place.suffix == ".csv":
        with place.open("ab") as file:
            table.write_csv(file, include_header=number == 0)
        return
    place.mkdir(exist_ok=True)
    table.write_parquet(place / f"part-{number:06d}.parquet")


def measure_files(folder: Path, n_subjects: int, kind: str) -> Taken:
    """A study on these files and as many synthetic rows, written in parts; in this process."""
    warnings.simplefilter("ignore")
    small = make_sme(WARM_UP)
    method = method_of(kind)
    made = Synthesizer(small.federation, method, 1.0, random_state=0, **SETTINGS[method])
    with threadpool_limits(1):
        made.fit(small.tables).write_sample(folder / "out", WARM_UP)
        before, start = peak_mb(), time.process_time()
        paths = {party.name: folder / f"{party.name}.{ending_of(kind)}" for party in small.federation.parties}
        if kind == MEMBERS:
            fit_members(made, paths, folder)
        else:
            made.fit(paths, vault=None if kind in (HOUSE, REFINED) else folder / "vault")
        middle = time.process_time()
        made.write_sample(folder / "out", n_subjects)
        return Taken(middle - start, time.process_time() - middle, before, peak_mb())


def fit_members(made: Synthesizer, paths: Mapping[str, Path], folder: Path) -> None:
    """The study between organisations, all of them in this process: each has a vault, and reads its file as `join`."""
    with ExitStack() as opened:
        members = {}
        for name, path in paths.items():
            vault = opened.enter_context(Vault.open(folder / "vaults" / name))
            table = party_source(name, str(path)).read()
            members[name] = Member(
                made.federation, name, table, key=_KEY, vault=vault, policy=Policy(allow_seeded=True)
            )
        made.fit_transport(InProcessTransport(members))


def measure_files_apart(n_subjects: int, kind: str) -> dict[str, Any]:
    """The same in a process of its own, after another one has written the files."""
    with tempfile.TemporaryDirectory() as name:
        call_apart(write_people, Path(name), n_subjects, kind)
        taken = call_apart(measure_files, Path(name), n_subjects, kind)
    return {"method": method_of(kind), "kind": kind, "n_subjects": n_subjects, **asdict(taken)}


def call_apart(task: Callable[..., Any], *given: Any) -> Any:
    """What a task returns in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        return executor.submit(task, *given).result()
