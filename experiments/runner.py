"""Runs what is missing: data sets in parallel, every method on its own draws, nothing twice.

A data set's seed is its cell and its replication number, a method's is its replication number: who computes what, and
in which order, changes nothing.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from experiments.designs import SimulationDesign
from experiments.draws import Cell, Drawn, draw
from experiments.judge import INCLUSION, JudgeName, MuBound, judge, judge_numbers, score
from experiments.methods import METHODS, ORACLE, ORIGINAL, UNPROTECTED
from experiments.scad import SeparatedClassesError, fit_oracle
from experiments.store import Entry, Replication, locate, name_entry, read, write
from experiments.study import MethodFailure, Study
from reporting.parallel import run_all
from verticopula.errors import VerticopulaError

ROWS_PER_SUBJECT = {1_000: 5, 3_000: 3, 5_000: 3}
# A logistic path takes as long as there are rows, and is the slow part of everything: about 5,000 rows there.
ROWS_ON_LOGISTIC_PATHS = {1_000: 5, 3_000: 2, 5_000: 1}
# Processor time relative to VCDS with its judge, for the time that is left.
RELATIVE_COST = {"Original-VFL": 8.0, "Vertigan": 20.0, "IEVCDS": 8.0, "Refined-aligned": 4.0, ORACLE: 0.02}
SMALL_DESIGN = {"kind_counts": (4, 4, 4, 3)}  # 15 columns instead of 100: to see that all runs
MARGINS = "margins"  # the score of a method's marginals


@dataclass(frozen=True)
class Settings:
    """What a number depends on besides its cell, method and epsilon.

    Attributes
    ----------
    design : changes to the paper's design, for small runs
    """

    judge: JudgeName = "bayes"
    design: Mapping[str, tuple[int, ...]] | None = None

    def rows_per_subject(self, cell: Cell) -> int:
        slow = cell.model == "logistic" and self.judge != "bayes"
        return (ROWS_ON_LOGISTIC_PATHS if slow else ROWS_PER_SUBJECT).get(cell.n_subjects, 1)

    def record(self, cell: Cell) -> dict[str, Any]:
        """As it is kept with every replication."""
        kept: dict[str, Any] = {"judge": self.judge, "rows_per_subject": self.rows_per_subject(cell)}
        if self.judge == "bayes":
            kept["inclusion"] = INCLUSION[cell.model]
        return kept | ({"design": {k: list(v) for k, v in self.design.items()}} if self.design else {})

    def make_design(self, cell: Cell) -> SimulationDesign:
        return SimulationDesign(model=cell.model, **(self.design or {}))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Task:
    """One data set, and what is still wanted of it: methods with their epsilons, None where that does not matter."""

    cell: Cell
    replication: int
    wanted: tuple[tuple[str, float | None], ...]

    @property
    def cost(self) -> float:
        """Roughly in proportion to the processor time."""
        slow = 4.0 if self.cell.model == "logistic" else 1.0
        return slow * self.cell.n_subjects * sum(RELATIVE_COST.get(method, 1.0) for method, _ in self.wanted)


def list_wanted(methods: Iterable[str], epsilons: Sequence[float]) -> tuple[tuple[str, float | None], ...]:
    """Every method at every epsilon, those without protection once, and the oracle."""
    pairs: list[tuple[str, float | None]] = [(ORACLE, None)]
    for method in methods:
        pairs += [(method, None)] if method in UNPROTECTED else [(method, epsilon) for epsilon in epsilons]
    return tuple(dict.fromkeys(pairs))


def list_tasks(
    wanted: Mapping[Cell, Sequence[tuple[str, float | None]]], replications: int, settings: Settings, folder: Path
) -> list[Task]:
    """What is not there yet, the longest first."""
    tasks = []
    for cell, pairs in wanted.items():
        for replication in range(replications):
            found = read(locate(folder, cell, replication), settings.record(cell))
            done = set() if found is None else set(found.entries)
            left = tuple(pair for pair in pairs if name_entry(*pair) not in done)
            if left:
                tasks.append(Task(cell, replication, left))
    return sorted(tasks, key=lambda task: -task.cost)


def run_task(task: Task, settings: Settings, folder: Path) -> Task:
    """Add what is wanted to the replication's file, one method after the other; an interruption loses one at most."""
    path, record = locate(folder, task.cell, task.replication), settings.record(task.cell)
    drawn = draw(task.cell, task.replication, settings.make_design(task.cell))
    found = read(path, record) or Replication(record, drawn.complete_cases)
    studies: dict[float | None, Study] = {}
    for method, epsilon in task.wanted:
        if epsilon not in studies:
            rows = settings.rows_per_subject(task.cell)
            studies[epsilon] = drawn.study(epsilon or 1.0, task.replication, rows)
        # One thread: sums of floating-point numbers depend on how many share them.
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            entry = measure(drawn, method, studies[epsilon], settings.judge)
        found.entries[name_entry(method, epsilon)] = entry
        write(path, found)
    return task


def measure(drawn: Drawn, method: str, study: Study, rule: JudgeName) -> Entry:
    """One method on one data set; a failure is an answer too."""
    began, truth = time.process_time(), drawn.data.coef
    spent, margins = None, {}
    try:
        if method == ORACLE:
            found = MuBound(fit_oracle(drawn.data.x, drawn.data.y, truth != 0, drawn.data.design.model))
        elif method == ORIGINAL:
            found = judge_numbers(drawn.data.x, drawn.data.y, drawn.data.design.model, rule)
        else:
            outcome = METHODS[method](study)
            spent = outcome.spent
            if outcome.marginals:
                margins = {MARGINS: drawn.margin_error(outcome.marginals)}
            found = judge(outcome, study, rule)
    except (MethodFailure, SeparatedClassesError, VerticopulaError, np.linalg.LinAlgError) as error:
        return Entry({}, spent, f"{type(error).__name__}: {error}", time.process_time() - began)
    return Entry(score(found, truth) | margins, spent, "", time.process_time() - began)


def run_tasks(tasks: Sequence[Task], settings: Settings, folder: Path, *, backend: str = "loky", jobs: int = 1) -> None:
    """All tasks, each kept in its file."""
    for _ in run_all(
        run_task, tasks, settings, folder, label="data sets", backend=backend, jobs=jobs, cost=lambda task: task.cost
    ):
        pass
