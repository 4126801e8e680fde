"""Whole studies of a given size, each fitted and sampled in a process of its own.

A process of its own shows what a case alone takes of memory. It fits a small study first, so that nothing is compiled
while the clock runs.
"""

from __future__ import annotations

import resource
import time
import warnings
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
import polars as pl
from threadpoolctl import threadpool_limits

from experiments.designs import SimulationDesign, make_complete, mask_mar
from verticopula import Synthesizer
from verticopula.datasets import make_sme
from verticopula.schema.federation import Federation

WARM_UP = 1_000
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "vcds": {"unit": "variable", "sampler": "binomial"},
    "refined": {"unit": "variable", "sampler": "binomial"},
    "strict": {"unit": "person", "delta": 1e-6},
}
PATTERN_PARTIES = 16
Tables = Mapping[str, pl.DataFrame]


@dataclass(frozen=True)
class ScaleCase:
    """One study.

    Attributes
    ----------
    design : `sme` (55 columns at five parties, blocks missing at random), `wide` (500 covariates, the same),
        `parties` (100 covariates, complete) or `patterns` (64 covariates at 16 parties)
    amount : how many parties or patterns there are, where the design leaves it open
    """

    method: str
    design: str
    n_subjects: int
    amount: int = 0


@dataclass(frozen=True)
class Taken:
    """What a case took: processor seconds of fitting and of drawing as many rows as there are people, and memory.

    Attributes
    ----------
    data_mb, peak_mb : most memory of the process before the fit, and in all
    """

    fit: float
    sample: float
    data_mb: float
    peak_mb: float

    @property
    def total(self) -> float:
        return self.fit + self.sample


def make_study(case: ScaleCase, n_subjects: int) -> tuple[Federation, Tables]:
    """A case's tables with so many people."""
    if case.design == "sme":
        study = make_sme(n_subjects)
        return study.federation, study.tables
    rng = np.random.default_rng(0)
    if case.design == "wide":
        data = make_complete(SimulationDesign(kind_counts=(125, 125, 125, 125)), n_subjects, rng=rng)
        return data.federation(), data.tables(mask_mar(data, rng=rng, case="complex"))
    if case.design == "parties":
        data = make_complete(SimulationDesign(n_clients=case.amount), n_subjects, rng=rng)
        return data.federation(), data.tables(None)
    design = SimulationDesign(kind_counts=(16, 16, 16, 16), n_clients=PATTERN_PARTIES)
    data = make_complete(design, n_subjects, rng=rng)
    return data.federation(), data.tables(draw_patterns(case.amount, n_subjects, rng))


def draw_patterns(amount: int, n_subjects: int, rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """(N, parties) who is known where: different patterns, seven parties of ten in each, as many people in all."""
    different: dict[bytes, np.ndarray[Any, np.dtype[np.bool_]]] = {}
    while len(different) < amount:
        mask = rng.random(PATTERN_PARTIES) < 0.7
        different.setdefault(mask.tobytes(), mask)
    return np.array(list(different.values()))[np.arange(n_subjects) % amount]


def measure(case: ScaleCase) -> Taken:
    """In this process."""
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        federation, tables = make_study(case, WARM_UP)
        _make(case, federation).fit(tables).sample(WARM_UP)
        federation, tables = make_study(case, case.n_subjects)
        before, start = peak_mb(), time.process_time()
        fitted = _make(case, federation).fit(tables)
        middle = time.process_time()
        fitted.sample(case.n_subjects)
        return Taken(middle - start, time.process_time() - middle, before, peak_mb())


def _make(case: ScaleCase, federation: Federation) -> Synthesizer:
    return Synthesizer(federation, case.method, 1.0, random_state=0, **SETTINGS[case.method])


def peak_mb() -> float:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def measure_apart(case: ScaleCase, repetitions: int) -> dict[str, Any]:
    """The fastest of some repetitions, in processes of their own, as plain values."""
    taken = []
    for _ in range(repetitions):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
            taken.append(executor.submit(measure, case).result())
    return {**asdict(case), **asdict(min(taken, key=lambda each: each.total))}
