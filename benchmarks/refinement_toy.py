"""Theorem 3's toy: two columns with correlation 0.7, the first missing where the second is high."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from threadpoolctl import threadpool_limits

from reporting.parallel import run_all
from reporting.tables import Table, verdict
from verticopula import Synthesizer
from verticopula.errors import NotPrivateWarning
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation

Task = tuple[str, float, int]  # method, epsilon and seed

METHODS = ("vcds", "evcds", "ievcds", "refined")
UNIT = "variable"
ROUNDS = 10
TOY_SUBJECTS, TOY_CORRELATION, TOY_MARGIN = 5_000, 0.7, 0.5
TOY_TARGETS = {0.5: (0.04, 0.02), 3.0: (0.02, 0.01)}  # epsilon per comparison: bias of correlation, of F1(0)


@dataclass(frozen=True)
class ToyResult:
    """Mean and standard deviation over runs, and the bias's verdict."""

    method: str
    epsilon: float
    correlation: tuple[float, float]
    margin: tuple[float, float]

    @property
    def biases(self) -> tuple[float, float]:
        return abs(self.correlation[0] - TOY_CORRELATION), abs(self.margin[0] - TOY_MARGIN)


def make_toy(seed: int) -> tuple[Federation, dict[str, pl.DataFrame]]:
    """Two standard normal columns at two parties; X1 is missing where X2 is above a N(0, 1/4) draw."""
    columns = {name: [{"name": name, "kind": "continuous", "bounds": (-5, 5), "clamp": True}] for name in ("x1", "x2")}
    parties = [{"name": f"holds_{name}", "column": column} for name, column in columns.items()]
    federation = Federation.from_dict({"name": "toy", "response": "holds_x2.x2", "id": "id", "party": parties})
    rng = np.random.default_rng(seed)
    x2, rest = rng.standard_normal((2, TOY_SUBJECTS))
    x1 = TOY_CORRELATION * x2 + np.sqrt(1.0 - TOY_CORRELATION**2) * rest
    known = x2 <= 0.5 * rng.standard_normal(TOY_SUBJECTS)
    ids = pl.Series("id", [f"s{i}" for i in range(TOY_SUBJECTS)])
    first = pl.DataFrame([ids, pl.Series("x1", x1)]).filter(pl.Series(known))
    return federation, {"holds_x1": first, "holds_x2": pl.DataFrame([ids, pl.Series("x2", x2)])}


def run_toy(method: str, epsilon: float, seed: int) -> tuple[float, float]:
    """Correlation and F1(0) that one method finds in one run."""
    federation, tables = make_toy(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        copula = (
            Synthesizer(
                federation,
                method,
                unit=UNIT,
                random_state=seed,
                epsilon_ranks=epsilon,
                epsilon_marginals=epsilon,
                rounds=ROUNDS,
                per_round=method == "ievcds",
            )
            .fit(tables)
            .result_.copula
        )
    margin = copula.margins[ColumnKey("holds_x1", "x1")].cdf(np.zeros(1))
    return float(copula.correlation[0, 1]), float(margin[0])


def _run_task(task: Task) -> tuple[Task, tuple[float, float]]:
    with threadpool_limits(1):
        return task, run_toy(*task)


def measure_toy(runs: int, jobs: int) -> list[ToyResult]:
    """Every method at every epsilon."""
    settings = [(method, epsilon) for epsilon in TOY_TARGETS for method in METHODS]
    tasks = [(method, epsilon, seed) for method, epsilon in settings for seed in range(runs)]
    answers = dict(run_all(_run_task, tasks, label="fits", jobs=jobs))
    found = np.array([answers[task] for task in tasks]).reshape(len(settings), runs, 2)
    means, deviations = found.mean(axis=1), found.std(axis=1)
    return [
        ToyResult(*setting, *((float(means[i, k]), float(deviations[i, k])) for k in (0, 1)))
        for i, setting in enumerate(settings)
    ]


def tabulate_toy(results: Sequence[ToyResult], runs: int) -> Table:
    rows = []
    for r in results:
        targets = TOY_TARGETS[r.epsilon]
        shown = [f"{mean:.3f} ({deviation:.3f})" for mean, deviation in (r.correlation, r.margin)]
        verdicts = [verdict(bias, target) for bias, target in zip(r.biases, targets, strict=True)]
        rows.append((f"{r.epsilon:g}", r.method, *shown, f"{targets[0]:g} / {targets[1]:g}", *verdicts))
    header = ("ε per comparison", "method", "correlation (s.d.)", "F1(0) (s.d.)", "largest biases", "first", "second")
    return Table(f"Theorem 3's toy, truth 0.7 and 0.5, N = {TOY_SUBJECTS:,}, {runs} runs", header, tuple(rows), heads=2)
