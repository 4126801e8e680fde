"""What IEVCDS costs: ten rounds against ten rank releases of the completed table.

All rounds but the first rank a table without gaps, whose continuous columns stand in a strict order: tied values and
completed subjects get places of their own (`complete_column`). A strict order is what takes longest to
rank, because every comparison needs a coin of the right probability, where ties need only fair ones. So the
release to compare with ranks the complete table's continuous columns in a strict order too. The release with its ties
is timed beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.refinement_cost import EPSILON, UNIT, rank_all
from benchmarks.timing import Timing, time_interleaved
from reporting.tables import Table, verdict
from verticopula import Synthesizer
from verticopula.data.tables import AlignedTable, align_tables
from verticopula.datasets import SmeStudy, make_sme

ROUNDS = 10
MOST_PER_RELEASES = 1.3


@contextmanager
def one_processor() -> Iterator[None]:
    """Keep this process on one processor, where the system can.

    Parties rank their columns on several threads, and threads that share a core or its caches take
    more processor time for the same work; the releases to compare with have one.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def order_strictly(table: AlignedTable, rng: np.random.Generator) -> AlignedTable:
    """The table with every continuous column's values replaced by their places, tied ones in random order."""
    columns = {}
    for column in table.party.columns:
        encoded = table.columns[column.name]
        if column.kind == "continuous":
            places = np.empty(encoded.values.size)
            places[np.lexsort((rng.random(places.size), encoded.values))] = np.arange(places.size)
            encoded = replace(encoded, values=places)
        columns[column.name] = encoded
    return replace(table, columns=columns)


def fit(study: SmeStudy) -> None:
    """IEVCDS as a caller runs it."""
    Synthesizer(study.federation, "ievcds", EPSILON, unit=UNIT, rounds=ROUNDS, per_round=True).fit(study.tables)


def measure_ievcds(repetitions: Mapping[int, int]) -> dict[int, dict[str, Timing]]:
    """By number of subjects: seconds of IEVCDS and of the releases to compare with."""
    with one_processor():
        measure_size(500, 1)  # compiles
        return {n: measure_size(n, times) for n, times in repetitions.items()}


def measure_size(n: int, repetitions: int) -> dict[str, Timing]:
    """IEVCDS, and one rank release of the same study without gaps: in a strict order, and with ties."""
    study = make_sme(n)
    complete = align_tables(study.federation, study.truth.complete)
    rng = np.random.default_rng(0)
    strict = {name: order_strictly(table, rng) for name, table in complete.items()}
    tasks = {"fit": partial(fit, study), "ranks": partial(rank_all, strict), "tied": partial(rank_all, complete)}
    return time_interleaved(tasks, repetitions)


def compare(times: Mapping[str, Timing], base: str = "ranks") -> float:
    """IEVCDS in units of ten rank releases."""
    return times["fit"].minimum / (ROUNDS * times[base].minimum)


def tabulate_ievcds(measured: Mapping[int, Mapping[str, Timing]]) -> Table:
    rows = []
    for n, times in measured.items():
        seconds = [f"{times[name].minimum:.2f}" for name in ("fit", "ranks", "tied")]
        ratio, tied = compare(times), compare(times, "tied")
        judged = (f"{MOST_PER_RELEASES:g}", verdict(ratio, MOST_PER_RELEASES)) if n == max(measured) else ("", "")
        rows.append((f"{n:,}", *seconds, f"{ratio:.2f}", *judged, f"{tied:.2f}"))
    header = (
        "N",
        "IEVCDS, seconds",
        "one release, strict order",
        "one release, ties",
        f"IEVCDS / {ROUNDS} releases, strict order",
        "target",
        "verdict",
        f"IEVCDS / {ROUNDS} releases, ties",
    )
    return Table(f"IEVCDS, {ROUNDS} rounds, on the SME study", header, tuple(rows))
