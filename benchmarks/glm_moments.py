"""A gaussian regression on raw columns: from second moments, and beside it from columns that leave when wanted.

Section 5.1, linear: N = 5000, p = 100 at five parties, the response at a sixth, 40 strengths, refits by BIC. Bytes are
those of the messages as they are sent. Both are compared with the central path at a tight tolerance.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.glm_common import (
    SOURCE,
    Floats,
    MeteredTransport,
    Problem,
    differences,
    fit_central,
    fit_federated,
    make_section_5_1,
    other_supports,
)
from benchmarks.glm_rounds_page import CENTRAL_TOLERANCE, MOST_BYTES, MOST_DIFFERENCE, MOST_ROUNDS, TOLERANCE
from reporting.catalogue import Measured, Places
from reporting.pages import markdown_page
from reporting.records import Record, write_text
from reporting.tables import Table, verdict
from verticopula.glm.feature_design import Features
from verticopula.glm.penalties import Penalty
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.protocol.moments_path import gather_second_moments, moments_path
from verticopula.protocol.party.moments_handler import MomentsHandler
from verticopula.protocol.regression_path import FederatedPath, RegressionSettings
from verticopula.schema.columns import ColumnKey
from verticopula.storage.record_store import MemoryRecords
from verticopula.transport.delivery import drive

RESPONSE = ColumnKey("response", "y")


@dataclass(frozen=True)
class PathTraffic:
    """One path by one way.

    Attributes
    ----------
    way : `second moments` or `columns`
    bytes : of all messages both ways
    worst : the largest relative difference of an objective from the central one
    other_supports : strengths at which other columns are selected than in the central path
    seconds : of processor time, all parties' and the coordinator's
    """

    way: str
    penalty: str
    seed: int
    rounds: int
    bytes: int
    worst: float
    other_supports: int
    seconds: float


def moments_handlers(problem: Problem) -> dict[str, MomentsHandler]:
    """A handler for every party's columns, and one for the response's."""
    signed = shared_authenticity(bytes(range(32)))
    made = {}
    for k, block in enumerate(problem.blocks):
        own = problem.features(block)
        made[f"party{k}"] = MomentsHandler(f"party{k}", lambda request, own=own: (own, None), MemoryRecords(), signed)
    nothing = Features.plain(np.zeros((problem.y.size, 0)), [])
    made[RESPONSE.party] = MomentsHandler(RESPONSE.party, lambda request: (nothing, problem.y), MemoryRecords(), signed)
    return made


def fit_moments(problem: Problem, penalty: str, strengths: Floats) -> tuple[FederatedPath, int]:
    """The path from second moments, and the bytes of all messages."""
    handlers = moments_handlers(problem)
    transport = MeteredTransport(handlers)
    everybody = np.ones(problem.y.size, dtype=bool)
    gathered = drive(gather_second_moments(tuple(handlers), RESPONSE, everybody, None, "bench"), transport)
    settings = RegressionSettings(
        problem.family, Penalty.build(penalty), problem.fit_intercept, TOLERANCE, refit=problem.bic()
    )
    return moments_path(gathered, settings, lambda largest: strengths), transport.sent


def measure(penalty: str, seed: int, n: int) -> list[PathTraffic]:
    """Both ways on one data set."""
    problem, _ = make_section_5_1("linear", n, seed)
    strengths = problem.strengths()
    central = fit_central(problem, penalty, strengths, CENTRAL_TOLERANCE)
    found = []
    for way in ("second moments", "columns"):
        began = time.process_time()
        if way == "second moments":
            path, size = fit_moments(problem, penalty, strengths)
        else:
            path = fit_federated(problem, penalty, strengths, TOLERANCE, problem.bic())
            size = path.traffic.bytes
        seconds = time.process_time() - began
        worst = float(np.max(np.abs(differences(path.points, central))))
        others = other_supports(path.points, central)
        found.append(PathTraffic(way, penalty, seed, path.traffic.rounds, size, worst, others, seconds))
    return found


def run(options: Namespace) -> Measured:
    """All penalties and seeds."""
    n, seeds, penalties = (500, (0,), ("scad",)) if options.quick else (5000, (0, 1, 2), ("scad", "mcp", "lasso"))
    with threadpool_limits(1):
        measure("lasso", 0, 400)  # what is compiled at first
        paths = [one for penalty in penalties for seed in seeds for one in measure(penalty, seed, n)]
    settings = {"source": SOURCE, "rows": n, "seeds": seeds, "penalties": penalties, "tolerance": TOLERANCE}
    return settings, {"paths": [asdict(path) for path in paths]}


def present(record: Record, places: Places) -> list[Table]:
    """The page `glm_moments.md`, and its table."""
    paths = [PathTraffic(**saved) for saved in record.results["paths"]]
    table = tabulate(paths)
    parts = ["Written by `python -m benchmarks glm_moments`.", *introduce(paths, record.settings["rows"]), table]
    write_text(places.pages / "glm_moments.md", markdown_page("Regression on second moments", parts))
    return [table]


def tabulate(paths: Sequence[PathTraffic]) -> Table:
    rows = tuple(
        (
            path.way,
            path.penalty,
            str(path.seed),
            f"{path.rounds:,}",
            f"{path.bytes / 1e6:,.1f} MB",
            f"{path.worst:.1e}",
            f"{path.seconds:.1f} s",
        )
        for path in sorted(paths, key=lambda path: path.way, reverse=True)
    )
    header = ("way", "penalty", "seed", "rounds", "traffic", "worst relative difference", "processor time")
    return Table("Whole paths on the linear data of Section 5.1", header, rows, heads=3)


def introduce(paths: Sequence[PathTraffic], n: int) -> list[str]:
    mine = [path for path in paths if path.way == "second moments"]
    size, rounds = max(path.bytes for path in mine), max(path.rounds for path in mine)
    worst = max(path.worst for path in mine)
    return [
        f"Section 5.1, linear: N = {n:,}, p = 100 at five parties, the response at a sixth, 40 strengths, tolerance "
        f"{TOLERANCE:g}, refits by BIC. Objectives are compared with the central path's at a tolerance of "
        f"{CENTRAL_TOLERANCE:g}.\n\n"
        "*Second moments*: what a regression on raw columns does with a gaussian response "
        "([how](../how-to/regression.md#on-raw-columns)). Bytes are those of the messages as they are sent; rounds of "
        "consent come before. *Columns*: the rounds that the other families take, on the same data.",
        f"At most {size / 1e6:.1f} MB ({verdict(size, MOST_BYTES)}: at most {MOST_BYTES / 1e6:g} MB) and {rounds} "
        f"rounds ({verdict(rounds, MOST_ROUNDS)}: at most {MOST_ROUNDS}). The worst relative difference of an "
        f"objective is {worst:.1e} ({verdict(worst, MOST_DIFFERENCE)}: at most {MOST_DIFFERENCE:g}).",
    ]
