"""Runs what is missing: data sets in parallel, every method on its own draws, nothing twice.

A data set's seed is its cell and its replication number, a method's is its replication number: who computes what, and
in which order, changes nothing.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from experiments.designs import SimulationDesign
from experiments.draws import Cell, Drawn, draw
from experiments.judge import JUDGE_NAMES, ON_ONE_PATH, Coefs, JudgeName, judge, judge_numbers, name_score, score
from experiments.methods import METHODS, ORACLE, UNPROTECTED, YARDSTICKS
from experiments.scad import SeparatedClassesError, fit_oracle
from experiments.store import MethodScores, Replication, locate, name_entry, read, write
from experiments.study import MethodFailure, Outcome, Study
from reporting.parallel import run_all
from verticopula.errors import VerticopulaError

FAILURES = (MethodFailure, SeparatedClassesError, VerticopulaError, np.linalg.LinAlgError)
ROWS_PER_SUBJECT = {1_000: 10, 3_000: 4, 5_000: 2}  # about 10,000 rows; others as many as there are subjects
# Seconds of one core for a method and its judges at N = 1000, 3000, 5000, for the time that is left: measured once.
SECONDS = {"Original-VFL": 8.0, "Original-VFL-printed": 8.0, "Vertigan": 20.0, "IEVCDS": 8.0, "IEVCDS-printed": 12.0}
SMALL_DESIGN = {"kind_counts": (4, 4, 4, 3)}  # 15 columns instead of 100: to see that all runs
MARGINS = "margins"  # the score of a method's marginals


@dataclass(frozen=True)
class Settings:
    """What is asked for besides cells, methods and epsilons.

    Attributes
    ----------
    design : changes to the paper's design
    judges : those that are asked; no other's answer depends on them
    rows : synthetic rows per subject by the number of subjects
    """

    design: Mapping[str, Any] = field(default_factory=dict)
    judges: tuple[JudgeName, ...] = JUDGE_NAMES
    rows: Mapping[int, int] = field(default_factory=lambda: ROWS_PER_SUBJECT)

    def rows_per_subject(self, cell: Cell) -> int:
        return self.rows.get(cell.n_subjects, 1)

    def record(self, cell: Cell) -> dict[str, Any]:
        """What numbers depend on, as it is kept with every replication."""
        kept: dict[str, Any] = {"rows_per_subject": self.rows_per_subject(cell)}
        design = {k: list(v) if isinstance(v, tuple) else v for k, v in self.design.items()}
        return kept | ({"design": design} if design else {})

    def make_design(self, cell: Cell) -> SimulationDesign:
        return SimulationDesign(model=cell.model, **self.design)

    def is_answered(self, entry: MethodScores) -> bool:
        """Whether an entry has what all judges say, or why not."""
        return bool(entry.failure) or all(name_score(name, "rmse") in entry.scores for name in self.judges)


@dataclass(frozen=True)
class Task:
    """One data set, and what is still wanted of it: methods with their epsilons, None where that does not matter."""

    cell: Cell
    replication: int
    wanted: tuple[tuple[str, float | None], ...]

    @property
    def cost(self) -> float:
        """Roughly in proportion to the processor time."""
        return self.cell.n_subjects * sum(SECONDS.get(method, 1.5) for method, _ in self.wanted)


def list_wanted(methods: Iterable[str], epsilons: Sequence[float]) -> tuple[tuple[str, float | None], ...]:
    """Every method at every epsilon, those without protection once, and the yardsticks."""
    pairs: list[tuple[str, float | None]] = [(name, None) for name in YARDSTICKS]
    for method in methods:
        pairs += [(method, None)] if method in UNPROTECTED else [(method, epsilon) for epsilon in epsilons]
    return tuple(dict.fromkeys(pairs))


def list_tasks(
    wanted: Mapping[Cell, Sequence[tuple[str, float | None]]],
    replications: Iterable[int],
    settings: Settings,
    folder: Path,
) -> list[Task]:
    """What is not there yet: the first replication of every cell, then the second; the longest first within them."""
    numbers, tasks = list(replications), []
    for cell, pairs in wanted.items():
        for replication in numbers:
            found = read(locate(folder, cell, replication), settings.record(cell))
            entries = {} if found is None else found.entries
            done = {name for name, entry in entries.items() if settings.is_answered(entry)}
            left = tuple(pair for pair in pairs if name_entry(*pair) not in done)
            if left:
                tasks.append(Task(cell, replication, left))
    return sorted(tasks, key=lambda task: (task.replication, -task.cost))


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
            entry = measure(drawn, method, studies[epsilon], settings.judges)
        name = name_entry(method, epsilon)
        if name in found.entries:  # earlier judges' answers
            entry = replace(entry, scores={**found.entries[name].scores, **entry.scores})
        found.entries[name] = entry
        write(path, found)
    return task


def measure(drawn: Drawn, method: str, study: Study, judges: Sequence[JudgeName] = JUDGE_NAMES) -> MethodScores:
    """One method on one data set, by all judges; a failure is an answer too."""
    began, truth = time.process_time(), drawn.data.coef
    try:
        outcome = None if method in YARDSTICKS else METHODS[method](study)
    except FAILURES as error:
        return MethodScores({}, None, _describe(error), time.process_time() - began)
    scores: dict[str, float] = {}
    failures: dict[str, None] = {}
    for together in (ON_ONE_PATH, ("bayes",)):
        asked = [name for name in together if name in judges]
        try:
            scores |= score(find_coefs(drawn, method, outcome, study, asked), truth) if asked else {}
        except FAILURES as error:
            failures[_describe(error)] = None
    if outcome is not None and outcome.margins:
        scores[MARGINS] = drawn.margin_error(outcome.margins)
    spent = None if outcome is None else outcome.spent
    return MethodScores(scores, spent, "; ".join(failures), time.process_time() - began)


def find_coefs(drawn: Drawn, method: str, outcome: Outcome | None, study: Study, judges: Sequence[JudgeName]) -> Coefs:
    """By judge, of a method's outcome or of a yardstick."""
    data = drawn.data
    if outcome is not None:
        return judge(outcome, study, judges)
    if method == ORACLE:
        return dict.fromkeys(JUDGE_NAMES, fit_oracle(data.x, data.y, data.coef != 0, data.design.model))
    return judge_numbers(data.x, data.y, data.design.model, judges)


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def run_tasks(tasks: Sequence[Task], settings: Settings, folder: Path, *, backend: str = "loky", jobs: int = 1) -> None:
    """All tasks, each kept in its file."""
    for _ in run_all(
        run_task, tasks, settings, folder, label="data sets", backend=backend, jobs=jobs, cost=lambda task: task.cost
    ):
        pass
