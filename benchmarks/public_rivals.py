"""Rows of other packages, each in an environment of its own that is made when it is first needed.

Rows of a curator are kept in its environment: one run takes up to minutes. A run made elsewhere may be laid there.
VertiMRF has no package: its rows are always laid there, made with its authors' own code.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import ROOT
from benchmarks.environments import prepare_environment
from benchmarks.public_cells import COMPLETE_CASES, IMPUTED, VERTIMRF, PublicCell
from benchmarks.public_gaps import fill_blocks, keep_complete
from verticopula.errors import SettingsError
from verticopula.stats.tilting.opening_plan import CodedColumn

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MBI_VERSIONS = {"mbi": "2.0.0", "jax": "0.10.2", "numba": "0.68.1"}
MBI = ROOT / ".venv-mbi"
SDV_VERSIONS = {"sdv": "2.0.0", "pyarrow": "26.0.1"}
SDV = ROOT / ".venv-sdv"


def find_kept(cell: PublicCell) -> Path:
    """Where a curator's rows of a cell are kept."""
    return MBI / "runs" / f"{cell.setting.name}-{cell.source}-{cell.epsilon:g}-{cell.seed}.npz"


def curate_rows(
    cell: PublicCell, held: Ints, coded: Sequence[CodedColumn], sizes: Sequence[int]
) -> tuple[Ints, dict[str, str]]:
    """As many rows as people of AIM or MST with a trusted curator or of VertiMRF, and on what they were computed."""
    method, _, relation = cell.source.partition("-")
    codes = held
    if cell.source == IMPUTED:
        codes, relation = fill_blocks(held, coded), "shares"
    elif cell.source == COMPLETE_CASES:
        codes, relation = keep_complete(held), "shares"
    kept = find_kept(cell)
    if cell.source == VERTIMRF and not kept.exists():
        raise SettingsError(
            f"lay rows of its authors' code at {kept} (codes), with device, versions and seconds in .json"
        )
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        python = prepare_environment(MBI, MBI_VERSIONS)
        with tempfile.TemporaryDirectory() as name:
            given, made = Path(name) / "given.npz", Path(name) / "made.npz"
            np.savez(given, codes=codes, sizes=np.asarray(sizes))
            words = [method, f"{cell.epsilon:g}", f"{cell.delta:g}", relation, str(cell.seed)]
            script = ROOT / "benchmarks" / "curator_baseline.py"
            done = _run([python, script, given, *words, made])
            kept.with_suffix(".json").write_text(done, encoding="utf-8")
            draft = kept.with_suffix(f".{os.getpid()}")  # whole or not there
            draft.write_bytes(made.read_bytes())
            draft.replace(kept)
    answer = json.loads(kept.with_suffix(".json").read_text(encoding="utf-8"))
    rows = np.load(kept)["codes"].astype(np.int64)
    versions = ", ".join(f"{package} {number}" for package, number in answer["versions"].items())
    made_on = {"device": answer["device"], "versions": versions, "made_s": round(answer["seconds"]["processor"], 1)}
    rng = np.random.default_rng([cell.seed, 5])
    return rows[rng.integers(len(rows), size=len(held))] if len(rows) != len(held) else rows, made_on


def draw_sdv(numbers: Floats, ordered: Sequence[bool]) -> Floats:
    """As many rows of SDV's Gaussian copula at its defaults, without privacy."""
    python = prepare_environment(SDV, SDV_VERSIONS)
    with tempfile.TemporaryDirectory() as name:
        given, made = Path(name) / "given.npz", Path(name) / "made.npz"
        np.savez(given, numbers=numbers, ordered=np.asarray(ordered))
        _run([python, "-P", ROOT / "benchmarks" / "sdv_rows.py", given, made])
        found: Floats = np.load(made)["numbers"]
        return found


def _run(command: Sequence[str | Path]) -> str:
    """The last line that a script prints."""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "JAX_ENABLE_COMPILATION_CACHE": "false"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        script = next(Path(word).name for word in command[1:] if str(word).endswith(".py"))
        raise SettingsError(f"{script} ended with status {done.returncode}; what it printed is above")
    return (done.stdout.splitlines() or [""])[-1]
