"""What a `strict` study takes, step by step, beside what its arithmetic takes at the machine's speed.

Processor seconds of all parties and the coordinator together, in one process. Without the proofs of cells: these are
counted apart.
"""

from __future__ import annotations

import math
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numba import njit
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.growth import fit_exponent
from benchmarks.scale_cases import SETTINGS, WARM_UP, ScaleCase, make_study, peak_mb
from benchmarks.scale_files import HOUSE, call_apart, write_people
from reporting.tables import Table, verdict
from verticopula import Synthesizer
from verticopula.mpc.limb_products import PLANE_ROWS, PLANES, TILE, multiply_tile
from verticopula.mpc.prime_field import FieldStream
from verticopula.mpc.sums_plan import SumsPlan, own_statement
from verticopula.mpc.verified_cells import N_COMPUTE
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.proof_routes import STEPS
from verticopula.protocol.strict_messages import (
    SumsProofRequest,
    SumsRequest,
    SumsShareReply,
    SumsShareRequest,
    TablesRequest,
)
from verticopula.simulate import in_process
from verticopula.transport.in_process_transport import InProcessTransport

STAGES = ("deal", "receive", "gram", "tables")  # of the sums; proofs are apart
MOST_SECONDS = {("sme", 1_000_000): 20.0, ("sme", 10_000_000): 900.0, ("wide", 20_000): 15.0}
MOST_RATIO = 1.3  # fifty parties against five
LARGE = 100_000_000, 500, 50  # people, columns, parties of the study whose cost is worked out


@dataclass
class Work:
    """What the sums have to do: elements of keystreams, and multiplications of floating-point numbers."""

    drawn: float = 0.0
    multiplied: float = 0.0


class TimedTransport(InProcessTransport):
    """Function calls, with the seconds of every stage and party, and the bytes of corrections."""

    seconds: defaultdict[tuple[str, str], float]
    corrections: int
    plan: SumsPlan | None
    pairs: NDArray[np.int64]

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        replies: dict[str, Reply] = {}
        for name, request in requests.items():
            start = time.process_time()
            replies |= super().deliver({name: request})
            type(self).seconds[stage_of(request), name] += time.process_time() - start
            if isinstance(reply := replies[name], SumsShareReply):
                type(self).corrections += reply.body.size
            if isinstance(request, TablesRequest):
                type(self).plan, type(self).pairs = request.plan, request.pairs
        return replies


def stage_of(request: Request) -> str:
    """Which part of a study a request belongs to."""
    if isinstance(request, SumsShareRequest):
        return "deal"
    if isinstance(request, SumsProofRequest):
        return "receive" if request.step == STEPS[1] else "proofs"
    if isinstance(request, SumsRequest):
        return "gram"
    return "tables" if isinstance(request, TablesRequest) else "other rounds"


def count_work(plan: SumsPlan, pairs: NDArray[np.int64]) -> dict[str, Work]:
    """The work of every stage, of all parties together."""
    drawn = sum(math.prod(own_statement(plan, "", "", party).shape) for party in plan.parties)
    known, cells = plan.weights > 0, np.array([len(table) for table in plan.features])
    features = np.bincount(plan.owners, [table.shape[1] for table in plan.features], len(plan.parties))
    squares = float(plan.counts @ (known @ features) ** 2)
    together = (known * plan.counts[:, None]).T.astype(np.float64) @ known
    products = float((together[tuple(plan.owners[pairs].T)] * cells[pairs].prod(axis=1)).sum())
    both = 2.0 * N_COMPUTE  # shares at every compute party, which combines them before it multiplies
    return {
        "deal": Work(drawn=3.0 * drawn),
        "receive": Work(),
        "gram": Work(both * drawn, N_COMPUTE * PLANES * squares / 2.0),  # half of a symmetric matrix
        "tables": Work(both * drawn, N_COMPUTE * PLANES * products),
    }


def measure_speeds() -> tuple[float, float]:
    """Seconds for an element of a keystream, and for a multiplication of planes that are in the nearest cache."""
    room, planes = np.zeros(2**20, dtype=np.uint64), np.random.default_rng(0).standard_normal(2 * TILE * PLANE_ROWS)
    stream, tile = FieldStream(bytes(16), 2**24), np.empty((TILE, TILE))
    draw = min(_timed(lambda: stream.add_to(room)) for _ in range(8)) / room.size
    multiply_tiles(planes, tile, 1)
    times = min(_timed(lambda: multiply_tiles(planes, tile, 1_000)) for _ in range(8))
    return draw, times / (1_000 * TILE**2 * PLANE_ROWS)


@njit(cache=True)
def multiply_tiles(planes: NDArray[np.float64], tile: NDArray[np.float64], repetitions: int) -> None:
    """The same products over and over."""
    for _ in range(repetitions):
        multiply_tile(planes, 0, TILE * PLANE_ROWS, PLANE_ROWS, tile)


def _timed(task: Any) -> float:
    start = time.process_time()
    task()
    return time.process_time() - start


def measure_strict(case: ScaleCase, folder: Path) -> dict[str, Any]:
    """One study, in this process. Files of the SME study are in the folder."""
    warnings.simplefilter("ignore")
    with threadpool_limits(1), mock.patch.object(in_process, "InProcessTransport", TimedTransport):
        small, tables = make_study(case, WARM_UP)
        _fit(small, tables)
        if case.design == "sme":
            federation = small
            given: Mapping[str, Any] = {p.name: folder / f"{p.name}.parquet" for p in federation.parties}
        else:
            federation, given = make_study(case, case.n_subjects)
        before, start = peak_mb(), time.process_time()
        _fit(federation, given)
        whole, peak = time.process_time() - start, peak_mb()
        assert TimedTransport.plan is not None
        work, (draw, multiply) = count_work(TimedTransport.plan, TimedTransport.pairs), measure_speeds()
    seconds = {stage: _of_stage(stage) for stage in (*STAGES, "proofs", "other rounds")}
    computing = {name for stage, name in TimedTransport.seconds if stage == "tables"}
    return {
        "n_subjects": case.n_subjects,
        "amount": case.amount,
        "columns": len(TimedTransport.plan.features),
        "parties": len(TimedTransport.plan.parties),
        "tables": len(TimedTransport.pairs),
        "whole": whole - seconds["proofs"],
        "seconds": seconds,
        "busiest": max(sum(TimedTransport.seconds[stage, name] for stage in STAGES) for name in computing),
        "limits": {stage: draw * own.drawn + multiply * own.multiplied for stage, own in work.items()},
        "corrections_mb": TimedTransport.corrections / 1e6,
        "data_mb": before,
        "peak_mb": peak,
    }


def _of_stage(stage: str) -> float:
    return sum(amount for (own, _), amount in TimedTransport.seconds.items() if own == stage)


def _fit(federation: Any, tables: Mapping[str, Any]) -> None:
    TimedTransport.seconds, TimedTransport.corrections, TimedTransport.plan = defaultdict(float), 0, None
    Synthesizer(federation, "strict", 1.0, random_state=0, **SETTINGS["strict"]).fit(tables)


def measure_strict_apart(case: ScaleCase) -> dict[str, Any]:
    """The same in a process of its own, after another one has written the files."""
    with tempfile.TemporaryDirectory() as name:
        if case.design == "sme":
            call_apart(write_people, Path(name), case.n_subjects, HOUSE)
        found: dict[str, Any] = call_apart(measure_strict, case, Path(name))
        return {**found, "design": case.design}


# ---- the page ----------------------------------------------------------------------------


Rows = Sequence[Mapping[str, Any]]


def tabulate_strict(cases: Rows, core_hour: float, gigabyte: float) -> list[Table]:
    """Times and memory of all studies; their steps; and what a very large one would cost."""
    people = [case for case in cases if case["design"] == "sme"]
    tables = [_tabulate_totals(cases), _tabulate_steps(people[-1])]
    return [*tables, _tabulate_cost(people, core_hour, gigabyte)] if len(people) > 1 else tables


def _tabulate_totals(cases: Rows) -> Table:
    rows = []
    few = next((case for case in cases if case["design"] == "parties"), None)
    for case in cases:
        target = MOST_SECONDS.get((case["design"], case["n_subjects"]))
        judged = "" if target is None else f"{target:g} s: {verdict(case['whole'], target)}"
        if few is not None and case["design"] == "parties" and case is not few:
            ratio = case["whole"] / few["whole"]
            judged = f"{ratio:.2f} times, at most {MOST_RATIO:g}: {verdict(ratio, MOST_RATIO)}"
        name = f"{case['n_subjects']:,} x {case['columns']}, {case['parties']} parties"
        proofs, peak = case["seconds"]["proofs"], f"{case['peak_mb']:,.0f} ({case['data_mb']:,.0f} before)"
        rows.append((name, f"{case['whole']:.1f}", f"{proofs:.1f}", peak, judged))
    header = ("people x columns", "fit without proofs, s", "proofs, s", "peak MB", "target")
    note = """Seconds of everybody together. The SME study's tables are files, read a column at a time; with 500 columns
blocks are missing at random; five and fifty parties know everybody."""
    return Table("Strict", header, tuple(rows), note)


def _tabulate_steps(case: Mapping[str, Any]) -> Table:
    names = {
        "deal": "cells are dealt",
        "receive": "corrections are checked",
        "gram": "first opening",
        "tables": f"second opening, {case['tables']} tables",
    }
    rows = []
    for stage, name in names.items():
        own, limit = case["seconds"][stage], case["limits"][stage]
        rows.append((name, f"{own:.1f}", f"{limit:.1f}", f"{limit / own:.0%}" if limit else ""))
    header = ("step", "s", "limit, s", "share of the limit")
    note = f"""N = {case["n_subjects"]:,}, the SME study, all parties together. The limit: keystreams and products of
floating-point numbers at the speed that each has alone. {case["corrections_mb"]:,.0f} MB of corrections are dealt."""
    return Table("Steps of strict", header, tuple(rows), note)


def _tabulate_cost(people: Rows, core_hour: float, gigabyte: float) -> Table:
    """Steps grow with N as measured, and with columns as their arithmetic does; tables are as many as ever."""
    last, (n, columns, parties) = people[-1], LARGE
    sizes, wider = [case["n_subjects"] for case in people], columns / last["columns"]
    rows, hours = [], 0.0
    for stage, power in {"deal": 1, "receive": 1, "proofs": 1, "gram": 2, "tables": 0}.items():
        exponent = fit_exponent(sizes, [case["seconds"][stage] for case in people])
        own = last["seconds"][stage] * (n / last["n_subjects"]) ** exponent * wider**power / 3600.0
        hours += own
        rows.append((stage, f"{exponent:.2f}", str(power), f"{own:,.1f}", f"{own * core_hour:,.2f}"))
    sent = last["corrections_mb"] / 1e3 * n / last["n_subjects"] * wider
    rows.append(("corrections, GB", "1", "1", f"{sent:,.0f}", f"{2.0 * sent * gigabyte:,.2f}"))
    rows.append(("all", "", "", f"{hours:,.1f}", f"{hours * core_hour + 2.0 * sent * gigabyte:,.2f}"))
    header = ("step", "exponent of N", "of columns", "core hours, or GB", "price")
    note = f"""Worked out, not measured: {n:,} people, {columns} columns, {parties} parties, as many blocks missing
as in the SME study. Assumed are {core_hour:g} for a core hour and {gigabyte:g} for a gigabyte, which travels
twice: to the coordinator, and to a party that computes. Three parties compute, whatever the number of parties is."""
    return Table("A very large strict study", header, tuple(rows), note)
