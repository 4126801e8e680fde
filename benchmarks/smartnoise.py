"""Strict mode against a trusted curator: SmartNoise's MST on the joined, mean-imputed table, at the same budget.

MST gets all tables in one place, joined and imputed, every domain for nothing, and the number of cells per continuous
column that suits it best on the truth. Strict mode gets what the parties hold, and nobody to trust. SmartNoise lives
in an environment of its own (`.venv-smartnoise`), made here. Finished runs are kept there too, so that a benchmark that
was interrupted goes on: `--part` measures those of one side again.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
import warnings
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import polars as pl

from benchmarks import ROOT
from benchmarks.environments import prepare_environment
from benchmarks.smartnoise_codes import code_tables, decode_codes
from benchmarks.smartnoise_measures import ComparedPopulation
from experiments.baselines.imputed import fill
from reporting.catalogue import Measured, Places
from reporting.records import Record, write_text
from reporting.tables import Table
from verticopula import Synthesizer
from verticopula.datasets import SmeStudy, make_sme

VERSIONS = {"smartnoise-synth": "1.0.8", "mbi": "1.1.0", "torch": "2.13.0", "pyarrow": "26.0.1"}
ENVIRONMENT = ROOT / ".venv-smartnoise"
EPSILONS, DELTA = (1.0, 3.0), 1e-6
BINS = (8, 16, 32)
STRICT_RUNS, MST_RUNS = 5, 1
QUICK_TO_COMPILE = "--xla_llvm_disable_expensive_passes=true --xla_backend_optimization_level=1"
STRICT, MST, REFERENCE = "strict", "mst", "reference"
REFERENCES = ("the population itself", "the imputed table itself", "the population, every column shuffled")
PARTS = (REFERENCE, STRICT, MST)

Tables = Mapping[str, pl.DataFrame]


@dataclass(frozen=True)
class Run:
    """One synthetic table, or one table that is none.

    Attributes
    ----------
    name : of what is compared; `bins` and `epsilon` are 0 where they mean nothing
    """

    side: str
    name: str
    epsilon: float
    bins: int
    seed: int

    @property
    def file(self) -> str:
        return f"{self.name.replace(' ', '_')}-{self.epsilon:g}-{self.bins}-{self.seed}.json"


def list_runs(*, quick: bool) -> list[Run]:
    """In an order in which an interrupted benchmark knows most."""
    runs = [Run(REFERENCE, name, 0.0, 0, 0) for name in REFERENCES]
    ours, theirs = (1, 1) if quick else (STRICT_RUNS, MST_RUNS)
    runs += [Run(STRICT, "strict mode", epsilon, 0, seed) for seed in range(1, ours + 1) for epsilon in EPSILONS]
    return runs + [Run(MST, "MST", e, bins, seed) for seed in range(1, theirs + 1) for bins in BINS for e in EPSILONS]


def run_strict(study: SmeStudy, wanted: Run) -> tuple[Tables, dict[str, float]]:
    """Fitted and sampled in this process."""
    synthesizer = Synthesizer(
        study.federation, method="strict", unit="person", epsilon=wanted.epsilon, delta=DELTA, random_state=wanted.seed
    )
    start, processor = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        synthesizer.fit(study.tables)
        fitted = time.perf_counter()
        tables = dict(synthesizer.sample())
    seconds = {"fit": fitted - start, "sample": time.perf_counter() - fitted}
    return tables, {**seconds, "processor": time.process_time() - processor}


def run_mst(study: SmeStudy, imputed: Tables, wanted: Run) -> tuple[Tables, dict[str, float]]:
    """Fitted and sampled in SmartNoise's environment."""
    script = ROOT / "benchmarks" / "smartnoise_baseline.py"
    python = prepare_environment(ENVIRONMENT, VERSIONS)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        codes, cardinalities = code_tables(study.federation, imputed, wanted.bins)
        codes.write_parquet(folder / "codes.parquet")
        (folder / "cardinalities.json").write_text(json.dumps(cardinalities), encoding="utf-8")
        files = [folder / "codes.parquet", folder / "cardinalities.json"]
        settings = [str(wanted.epsilon), str(DELTA), str(wanted.seed)]
        # -P: nothing of this folder may stand in for a package
        command = [python, "-P", script, *files, *settings, folder / "out.parquet"]
        environment = {**os.environ, "XLA_FLAGS": QUICK_TO_COMPILE}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        synthetic = pl.read_parquet(folder / "out.parquet")
    answer = json.loads(done.stdout.splitlines()[-1])
    rng = np.random.default_rng([wanted.seed, wanted.bins])
    return decode_codes(study.federation, synthetic, wanted.bins, rng), answer["seconds"]


def run(options: Namespace) -> Measured:
    """All runs that are not kept from before; with `--part`, those of that side again."""
    n, held_out = (2_000, 2_000) if options.quick else (71_827, 20_000)
    folder, wanted = ENVIRONMENT / "runs" / str(n), list_runs(quick=options.quick)
    bench = Bench.of(n, held_out)
    again = () if len(options.parts) == len(PARTS) else options.parts
    runs = []
    for one in wanted:
        path = folder / one.file
        if one.side in again or not path.exists():
            write_text(path, json.dumps(bench.measure(one)))
        runs.append(json.loads(path.read_text(encoding="utf-8")))
    best = {epsilon: _best_bins(runs, epsilon) for epsilon in EPSILONS}
    verdicts = {f"{epsilon:g}": _verdict(runs, epsilon, best[epsilon]) for epsilon in EPSILONS}
    settings = {
        "n_subjects": n,
        "held_out": held_out,
        "delta": DELTA,
        "unit": "person",
        "bins": BINS,
        "smartnoise_versions": VERSIONS,
    }
    return settings, {"verdicts": verdicts, "runs": runs}


def present(record: Record, places: Places) -> list[Table]:
    """The page `smartnoise.md`, and its table."""
    runs = record.results["runs"]
    table = _tabulate(runs, {epsilon: _best_bins(runs, epsilon) for epsilon in EPSILONS})
    write_text(places.pages / "smartnoise.md", _page(record, table))
    return [table]


@dataclass(frozen=True)
class Bench:
    """The study, its truth, and what the curator holds."""

    study: SmeStudy
    truth: ComparedPopulation
    imputed: Tables

    @classmethod
    def of(cls, n: int, held_out: int) -> Bench:
        study = make_sme(n)
        return cls(study, ComparedPopulation.of(study, held_out), fill(study.federation, study.tables)[0])

    def measure(self, wanted: Run) -> dict[str, Any]:
        """One run, as it is kept."""
        if wanted.side == STRICT:
            tables, seconds = run_strict(self.study, wanted)
        elif wanted.side == MST:
            tables, seconds = run_mst(self.study, self.imputed, wanted)
        else:
            tables, seconds = self._reference(wanted.name), {}
        return {**asdict(wanted), **asdict(self.truth.compare(tables)), "seconds": seconds}

    def _reference(self, name: str) -> Tables:
        itself, imputed, _ = REFERENCES
        complete = self.study.truth.complete
        if name in (itself, imputed):
            return complete if name == itself else self.imputed
        rng = np.random.default_rng(0)
        return {
            party: table.with_columns(pl.col(c).gather(rng.permutation(len(table))) for c in table.columns)
            for party, table in complete.items()
        }


def _of(runs: list[dict[str, Any]], side: str, epsilon: float, bins: int = 0) -> list[dict[str, Any]]:
    return [r for r in runs if (r["side"], r["epsilon"], r["bins"]) == (side, epsilon, bins)]


def _bins(runs: list[dict[str, Any]], epsilon: float) -> list[int]:
    """Those that were tried."""
    return [bins for bins in BINS if _of(runs, MST, epsilon, bins)]


def _best_bins(runs: list[dict[str, Any]], epsilon: float) -> dict[str, int]:
    """By each measure its own best number of cells: more than any curator could know."""
    tried = _bins(runs, epsilon)
    return {
        "association": min(tried, key=lambda b: mean(r["association"] for r in _of(runs, MST, epsilon, b))),
        "auc": max(tried, key=lambda b: mean(r["auc"] for r in _of(runs, MST, epsilon, b))),
    }


def _verdict(runs: list[dict[str, Any]], epsilon: float, best: Mapping[str, int]) -> dict[str, Any]:
    ours = {m: mean(r[m] for r in _of(runs, STRICT, epsilon)) for m in ("association", "auc")}
    theirs = {m: mean(r[m] for r in _of(runs, MST, epsilon, best[m])) for m in ("association", "auc")}
    met = ours["association"] < theirs["association"] and ours["auc"] >= theirs["auc"]
    return {"strict": ours, "mst": theirs, "best_bins": dict(best), "met": met}


def _tabulate(runs: list[dict[str, Any]], best: Mapping[float, Mapping[str, int]]) -> Table:
    rows = [_row(r["name"], "", "", [r]) for r in runs if r["side"] == REFERENCE]
    for epsilon in EPSILONS:
        rows.append(_row("strict mode", f"{epsilon:g}", "", _of(runs, STRICT, epsilon)))
        for bins in _bins(runs, epsilon):
            mark = "".join(f", best {measure}" for measure, found in best[epsilon].items() if found == bins)
            rows.append(_row("MST" + mark, f"{epsilon:g}", str(bins), _of(runs, MST, epsilon, bins)))
    header = ("", "ε", "cells", "association error", "across parties", "within", "AUC", "runs", "min of a core")
    title = "pairs of columns against the population, and a regression on held-out people"
    return Table(title, header, tuple(rows), heads=3)


def _row(name: str, epsilon: str, bins: str, runs: list[dict[str, Any]]) -> tuple[str, ...]:
    measures = [_spread([r[m] for r in runs]) for m in ("association", "across", "within", "auc")]
    minutes = [r["seconds"].get("processor", 0.0) / 60.0 for r in runs]
    return (name, epsilon, bins, *measures, str(len(runs)), f"{mean(minutes):.1f}" if any(minutes) else "")


def _spread(values: list[float]) -> str:
    error = f" ± {stdev(values):.4f}" if len(values) > 1 else ""
    return f"{mean(values):.4f}{error}"


def _page(record: Record, table: Table) -> str:
    lines = []
    for epsilon, found in record.results["verdicts"].items():
        ours, theirs = found["strict"], found["mst"]
        lines.append(
            f"- ({epsilon}, {DELTA:g}): association error {ours['association']:.4f} against "
            f"{theirs['association']:.4f}, AUC {ours['auc']:.4f} against {theirs['auc']:.4f}: "
            f"{'reached' if found['met'] else 'not reached'}."
        )
    verdicts = "\n".join(lines)
    versions = f"smartnoise-synth {VERSIONS['smartnoise-synth']}, mbi {VERSIONS['mbi']}"
    n, held_out = record.settings["n_subjects"], record.settings["held_out"]
    return f"""# Strict mode against a trusted curator

`make bench-smartnoise`. The SME study, N = {n:,}, 55 columns at five parties, blocks missing at random;
(ε, δ)-differential privacy for a whole person with δ = {DELTA:g}. The target: strict mode has the lower association
error, and no lower AUC.

{verdicts}

{table.to_markdown()}

± is the standard deviation over runs (noise and sampling; the study is the same).

*Association error.* Spearman's correlation of two ordered columns, Cramér's V where one is nominal (an ordered one cut
at the population's deciles): mean absolute difference to the same measure of the whole population without any gap,
over all 1,485 pairs.

*AUC.* A logistic regression (SCAD, BIC) is fitted to the synthetic table and predicts
{held_out:,} people of the same population who were in no study, all of whose columns are known.

*What the curator gets.* SmartNoise's MST ({versions}) gets the five tables joined, empty
cells filled with the column's mean (the nearest legal value, or the most frequent category). It pays nothing for the
means, for the number of people or for domains: every column's public cells are given, equal pieces of the public range
on the public scale.

Where several numbers of cells are tried, each measure takes the one that suits MST best on the
truth. Its privacy is for adding or removing a person, which asks for less noise than replacing one, as strict mode
does.

*Why.* The imputed table itself, without any privacy, is the second row; the third is what a table without any
association gets. A mean says nothing about the other columns, so
where blocks are missing, associations shrink. Strict mode takes each pattern of missing blocks as it is. MST keeps
one tree of 54 pairs; all other pairs go through it.
"""
