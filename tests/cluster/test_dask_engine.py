"""Studies on a real Dask cluster: the same numbers, nothing raw on the wire, workers and schedulers that die."""

from __future__ import annotations

import gc
import json
import os
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.cluster.dask_processes import DaskProcesses, kill, recorded
from tests.engines import FEDERATION, make_tables, write_folders
from verticopula import EngineError, SchemaError, SettingsError, Synthesizer
from verticopula.data.row_chunks import look_at_files
from verticopula.data.tables import align_tables
from verticopula.engine.chunk_task import Secret
from verticopula.engine.dask_engine import DaskEngine
from verticopula.engine.engine_address import is_loopback, parse_engine
from verticopula.estimators.engine_tables import open_on_engine
from verticopula.privacy.noise import derive_key
from verticopula.schema.federation import seeded_study_name

CHUNK = 65_536


def fit(tables: Any, engine: str = "local", method: str = "vcds", **how: Any) -> Synthesizer:
    made = Synthesizer(FEDERATION, method, 4.0, unit="variable", sampler="binomial", random_state=1, engine=engine)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # seeded, and cells that were planted
        return made.fit(tables, rows_at_once=CHUNK, **how)


def fit_aligned(tables: Any) -> Synthesizer:
    made = Synthesizer(FEDERATION, "vcds", 4.0, unit="variable", sampler="binomial", random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return made.fit_aligned(tables)


def assert_same(one: Synthesizer, two: Synthesizer) -> None:
    np.testing.assert_array_equal(one.correlation_, two.correlation_)
    assert one.margins_.equals(two.margins_)
    assert one.missingness_.to_dict() == two.missingness_.to_dict()


def connect(cluster: DaskProcesses) -> DaskEngine:
    address = parse_engine(cluster.engine)
    assert address is not None
    return DaskEngine(address)


@pytest.mark.parametrize("method", ["vcds", "refined", "evcds"])
def test_the_numbers_are_those_of_the_local_engine(
    cluster: DaskProcesses, tables: dict[str, pl.DataFrame], paths: dict[str, Path], method: str
) -> None:
    assert_same(fit(tables, method=method), fit(paths, cluster.engine, method))


# ---- what comes back ----------------------------------------------------------------------

PLANTED_ID, PLANTED_CELL, PLANTED_INCOME, PLANTED_AGE = "q9planted9id", "q9planted9cell", 31_415.926_535, 97


def planted_tables() -> dict[str, pl.DataFrame]:
    """One person with an id, a strange cell and numbers that nobody else has; two columns are constant but for them."""
    tables = make_tables(70_000, seed=3)
    bank = tables["bank"].with_row_index("row")
    here = pl.col("row") == 5
    bank = bank.with_columns(
        customer=pl.when(here).then(pl.lit(PLANTED_ID)).otherwise("customer"),
        income=pl.when(here).then(pl.lit(str(PLANTED_INCOME))).otherwise("income"),
        region=pl.when(here).then(pl.lit(PLANTED_CELL)).otherwise("region"),
    ).drop("row")
    bank = bank.cast({"region": pl.Enum(sorted(set(bank["region"])))})  # the file's own description lists its cells
    gone = tables["bank"]["customer"][5]
    agency = tables["agency"].with_columns(customer=pl.col("customer").replace({gone: PLANTED_ID}))
    return {"bank": bank, "agency": agency}


def spellings() -> list[bytes]:
    numbers = [struct.pack(f"{order}d", PLANTED_INCOME) for order in "<>"]
    texts = [PLANTED_ID, PLANTED_CELL, str(PLANTED_INCOME), "31415.92"]
    return [*numbers, *(text.encode() for text in texts)]


def test_no_planted_value_comes_to_the_process_that_started_the_study(cluster: DaskProcesses, tmp_path: Path) -> None:
    paths = write_folders(planted_tables(), tmp_path, 30_000)
    with recorded(cluster.port) as wire:
        fit(paths, f"dask://127.0.0.1:{wire.port}")
    assert len(wire.received) > 4 * 56_000 * 3  # ranks of four bytes came this way
    assert [found for found in spellings() if found in wire.received] == []
    assert [found for found in spellings() if found.decode("latin-1") in cluster.logs()] == []


def test_the_recording_would_find_a_planted_value(cluster: DaskProcesses) -> None:
    """A result that holds the values is found in the bytes that come back: they are neither packed nor encrypted."""
    array, texts = np.array([PLANTED_INCOME]), [PLANTED_ID, PLANTED_CELL, str(PLANTED_INCOME)]
    with recorded(cluster.port) as wire:
        address = parse_engine(f"dask://127.0.0.1:{wire.port}")
        assert address is not None
        engine = DaskEngine(address)
        engine.fetch([engine.submit(np.array, [array]), engine.submit(list, texts)])
        engine.close()
    assert len([found for found in spellings() if found in wire.received]) >= 5


def test_what_fails_on_a_worker_quotes_no_cell(cluster: DaskProcesses) -> None:
    engine = connect(cluster)
    with pytest.raises(EngineError, match="ValueError") as caught:
        engine.fetch([engine.submit(int, PLANTED_CELL)])
    engine.close()
    assert PLANTED_CELL not in str(caught.value)
    assert PLANTED_CELL not in cluster.logs()


def test_no_key_is_in_a_log(cluster: DaskProcesses, paths: dict[str, Path]) -> None:
    fit(paths, cluster.engine)
    key = derive_key(1, "bank", seeded_study_name(FEDERATION), "age", "0", "coins", "rows 0")
    engine = connect(cluster)
    with pytest.raises(EngineError, match="TypeError"):
        engine.fetch([engine.submit(int, Secret(key))])  # what it was given is what a worker would log
    engine.close()
    assert "Register worker" in cluster.logs()
    for text in (repr(key)[2:-1], key.hex()):
        assert text not in cluster.logs()


def count_tasks(dask_scheduler: Any) -> int:
    return len(dask_scheduler.tasks)


def test_the_scheduler_forgets_tasks_and_their_keys(cluster: DaskProcesses, paths: dict[str, Path]) -> None:
    engine = connect(cluster)
    aligned = align_tables(FEDERATION, open_on_engine(engine, paths, CHUNK), need_overlap=False)
    fit_aligned(aligned)
    gc.collect()
    for _ in range(100):
        left = engine._client.run_on_scheduler(count_tasks)
        if left == 0:
            break
        time.sleep(0.1)
    assert left == 0
    engine.close()


# ---- what dies ----------------------------------------------------------------------------


def after(monkeypatch: pytest.MonkeyPatch, step: str, times: int, act: Callable[[], None]) -> None:
    """Do something once so many of a step's functions have been submitted."""
    original, lock, seen = DaskEngine.submit, threading.Lock(), [0]

    def submit(self: DaskEngine, function: Callable[..., Any], *given: Any) -> Any:
        handle = original(self, function, *given)
        with lock:
            seen[0] += function.__name__ == step
            is_now = function.__name__ == step and seen[0] == times
        if is_now:
            act()
        return handle

    monkeypatch.setattr(DaskEngine, "submit", submit)


@pytest.mark.parametrize("step", ["check_chunk", "add_chunks", "release_chunk"])
def test_a_worker_that_is_killed_costs_time_only(
    own_cluster: DaskProcesses,
    tables: dict[str, pl.DataFrame],
    paths: dict[str, Path],
    step: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    doomed, _ = own_cluster.add_worker(), own_cluster.add_worker()
    after(monkeypatch, step, 2, lambda: kill(doomed))
    found = fit(paths, own_cluster.engine)
    assert doomed.poll() is not None
    assert_same(found, fit(tables))


def test_a_lost_scheduler_is_an_error_and_the_ledger_says_what_was_spent(
    own_cluster: DaskProcesses, paths: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_cluster.add_worker()
    after(monkeypatch, "release_chunk", 2, lambda: kill(own_cluster.scheduler))
    ledger = tmp_path / "ledger.jsonl"
    with pytest.raises(EngineError, match="is lost") as caught:
        fit(paths, own_cluster.engine, ledger=ledger)
    assert "Nothing is spent beyond what the ledger has" in str(caught.value)
    entries = [json.loads(line) for line in ledger.read_text("utf-8").splitlines()]
    assert {entry["party"] for entry in entries} <= {"bank", "agency"}
    assert len(entries) in (2, 8)  # of one party or both: each was recorded before it was drawn


def test_a_scheduler_that_is_lost_before_anything_is_drawn_spends_nothing(
    own_cluster: DaskProcesses, paths: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_cluster.add_worker()
    after(monkeypatch, "check_chunk", 1, lambda: kill(own_cluster.scheduler))
    ledger = tmp_path / "ledger.jsonl"
    with pytest.raises(EngineError, match="is lost"):
        fit(paths, own_cluster.engine, ledger=ledger)
    assert not ledger.exists() or ledger.read_text("utf-8") == ""


# ---- what does not fit --------------------------------------------------------------------


def test_an_address_without_a_scheduler(monkeypatch: pytest.MonkeyPatch, paths: dict[str, Path]) -> None:
    monkeypatch.setattr("verticopula.engine.dask_engine._CONNECT_SECONDS", 1.0)
    with pytest.raises(EngineError, match="no Dask scheduler answers there"):
        fit(paths, "dask://127.0.0.1:9")


def test_a_scheduler_without_workers(own_cluster: DaskProcesses, paths: dict[str, Path]) -> None:
    with pytest.raises(EngineError, match="has no workers"):
        fit(paths, own_cluster.engine)


def test_a_scheduler_that_listens_for_other_machines_needs_tls(tmp_path: Path) -> None:
    """Whoever reaches it could bring a worker later, and get keys of rows and run programs here."""
    open_to_all = DaskProcesses(tmp_path / "open", host="0.0.0.0")
    try:
        open_to_all.add_worker()
        only_here = is_loopback(open_to_all.listens_at)  # of a machine without a network, which nobody reaches
        wanted = nullcontext() if only_here else pytest.raises(SettingsError, match="for other machines, without TLS")
        with wanted:
            connect(open_to_all).close()
        address = parse_engine(open_to_all.engine, without_tls=True)
        assert address is not None
        DaskEngine(address).close()
    finally:
        open_to_all.stop()


def test_workers_of_another_version(own_cluster: DaskProcesses, paths: dict[str, Path], tmp_path: Path) -> None:
    other = tmp_path / "other" / "verticopula-0.0.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: verticopula\nVersion: 0.0.9\n", "utf-8")
    own_cluster.add_worker(settings={"PYTHONPATH": str(other.parent)})
    with pytest.raises(EngineError, match=r"workers of the engine have verticopula 0\.0\.9"):
        fit(paths, own_cluster.engine)


def test_a_worker_of_another_version_that_comes_later(
    own_cluster: DaskProcesses, paths: dict[str, Path], tmp_path: Path
) -> None:
    other = tmp_path / "other" / "verticopula-0.0.9.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: verticopula\nVersion: 0.0.9\n", "utf-8")
    first = own_cluster.add_worker()
    engine = connect(own_cluster)
    own_cluster.add_worker(settings={"PYTHONPATH": str(other.parent)})
    kill(first)
    with pytest.raises(EngineError, match=r"0\.0\.9"):
        open_on_engine(engine, paths)
    engine.close()


def test_files_that_workers_do_not_find(cluster: DaskProcesses, paths: dict[str, Path]) -> None:
    engine = connect(cluster)
    with pytest.raises(SchemaError, match="it needs the same path on all workers"):
        engine.fetch([engine.submit(look_at_files, ["/nowhere/part.parquet"])])
    engine.close()


# ---- the command --------------------------------------------------------------------------


def test_the_command_runs_a_study_on_a_cluster(cluster: DaskProcesses, tmp_path: Path) -> None:
    paths = write_folders(make_tables(3_000), tmp_path / "tables", 1_000)
    (tmp_path / "federation.toml").write_text(FEDERATION.to_toml(), "utf-8")
    command = [sys.executable, "-m", "verticopula", "run", str(tmp_path / "federation.toml")]
    command += ["--data", str(paths["bank"].parent), "--method", "vcds", "--epsilon", "4", "--rows", "100"]
    command += ["--engine", cluster.engine]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *options], capture_output=True, text=True, env=env, timeout=600)

    refused = run("--out", str(tmp_path / "exact"))
    assert refused.returncode != 0
    assert "--sampler binomial" in refused.stderr
    done = run("--out", str(tmp_path / "out"), "--sampler", "binomial")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "report.html").exists()
    made = pl.read_csv(tmp_path / "out" / "synthetic" / "bank.csv")
    assert made.height == 100
    refused = run("--out", str(tmp_path / "other"), "--sampler", "binomial", "--in-house")
    assert refused.returncode != 0
    assert "stay on the engine" in " ".join(refused.stderr.split())
    assert not (tmp_path / "other").exists()
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "bank.toml").write_text("[caps]\nclient = 5.0\n", "utf-8")
    capped = ["--sampler", "binomial", "--policies", str(tmp_path / "policies"), "--vault", str(tmp_path / "vault")]
    assert run("--out", str(tmp_path / "one"), *capped).returncode == 0
    refused = run("--out", str(tmp_path / "two"), *capped)
    assert refused.returncode != 0
    assert "cap" in refused.stderr
