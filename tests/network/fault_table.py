"""The fault table: every party and the coordinator, in every round of every protocol.

One coordinator and three parties as real processes with mutual TLS. A study suffers the same fault of the same process
in every one of its rounds. Noise is secure, so a release that was made twice would show: tables are compared with those
that an undisturbed run makes of the releases in the parties' vaults, byte for byte.
"""

from __future__ import annotations

import logging
import multiprocessing
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.network.faults import (
    BEFORE_RELEASE,
    COLUMNS_POINTS,
    DESIGN_POINTS,
    METHODS,
    RELEASE_POINTS,
    RESULT_POINTS,
    SERVER,
    SERVER_POINTS,
    SHARE_POINTS,
    STEP_POINTS,
    STOP_DEADLINE,
    Fault,
    Kind,
    StudyOutcome,
    faulty_network,
)
from tests.network.harness import PARTIES
from verticopula.protocol.proof_routes import STEPS

CONSENT = ("consent", "agreement")
PROOFS = tuple(f"proof {step}" for step in STEPS[1:])


TABLED = tuple(method for method in METHODS if method != "raw-glm, second moments")  # test_faults_short.py has it


@dataclass(frozen=True)
class Plan:
    """The faults of one study, by the names of rounds that an undisturbed one showed."""

    method: str
    faults: tuple[Fault, ...]


def rounds_of(method: str) -> list[str]:
    """The rounds in which something happens."""
    opening, end = list(BEFORE_RELEASE), ["close"]
    if method == "raw-glm":
        return [*opening, "response", "design", "columns 0", "columns 1", *end]
    if method == "strict":
        return [*opening, "margins", "keys", "shares", *PROOFS, "sums", "tables", "block", *end]
    ranks = [f"ranks {number}" for number in range(2, METHODS[method].get("rounds", 1) + 1)]
    return [*opening, "release", *ranks, "block", *end]


def plans_of(method: str, parties: Sequence[str] = PARTIES) -> Iterator[Plan]:
    """All studies of one method."""
    rounds = rounds_of(method)
    for party in parties:
        own = [name for name in rounds if name != "response" or party == "left"]
        kinds: dict[Kind, str] = {"kill": "answered", "restart": "asked", "stop": "asked"}
        for kind, point in kinds.items():
            yield Plan(method, tuple(Fault(party, kind, name, point) for name in own))
        for name, chains in _fine_points(method).items():
            if name in own:
                yield from (Plan(method, tuple(Fault(party, "kill", name, p) for p in chain)) for chain in chains)
    points = {name: SERVER_POINTS if method == "vcds" or name in CONSENT else ("answered",) for name in rounds}
    killed = [Fault(SERVER, "kill", name, point) for name in rounds for point in points[name]]
    if method != "raw-glm":
        killed.insert(len(killed) - len(points[rounds[-1]]), Fault(SERVER, "kill", "result", "half written"))
    yield Plan(method, (*killed, *(Fault(SERVER, "kill", "result", point) for point in RESULT_POINTS)))
    yield Plan(method, tuple(Fault(SERVER, "restart", name, "asked") for name in rounds))
    yield Plan(method, tuple(Fault(SERVER, "stop", name, "asked") for name in rounds))


def _fine_points(method: str) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Rounds in which a party is killed at every step of its work."""
    consent = dict.fromkeys(CONSENT, STEP_POINTS)
    return consent | {
        "vcds": {"release": RELEASE_POINTS},
        "ievcds": {"ranks 3": RELEASE_POINTS},
        "strict": {"margins": RELEASE_POINTS, "shares": SHARE_POINTS}
        | dict.fromkeys(("keys", *PROOFS, "sums", "tables"), STEP_POINTS),
        "raw-glm": {
            "response": RELEASE_POINTS,
            "design": DESIGN_POINTS,
            "columns 1": COLUMNS_POINTS,
        },
    }.get(method, {})


def measure_share(
    methods: Sequence[str], share: int, shares: int, parties: Sequence[str] = PARTIES
) -> list[StudyOutcome]:
    """Every `shares`-th study, in a federation of its own."""
    logging.getLogger("verticopula.network").setLevel(logging.ERROR)  # lost lines are what this is about
    with tempfile.TemporaryDirectory() as folder, faulty_network(Path(folder)) as found:
        plans: list[Plan] = []
        for method in methods:
            plans += plans_of(method, parties)
        costs = [sum(1.0 if fault.kind == "stop" or fault.who == SERVER else 0.2 for fault in p.faults) for p in plans]
        order = sorted(range(len(plans)), key=lambda number: -costs[number])
        return [
            found.run_with_faults(plans[number].method, plans[number].faults) for number in sorted(order[share::shares])
        ]


def measure(methods: Sequence[str] = TABLED, workers: int = 4, parties: Sequence[str] = PARTIES) -> list[StudyOutcome]:
    """All studies, in several federations at a time."""
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
        runs = [pool.submit(measure_share, methods, share, workers, parties) for share in range(workers)]
        return [outcome for run in runs for outcome in run.result()]


def rows_of(outcomes: Sequence[StudyOutcome]) -> list[dict[str, Any]]:
    """One record for every fault that happened."""
    return [
        {
            "method": outcome.method,
            "round": one.fault.round,
            "who": one.fault.who,
            "fault": one.fault.kind,
            "point": one.fault.point,
            "outcome": one.outcome,
            "seconds": round(one.seconds, 2),
            "named_after": None if one.named_after is None else round(one.named_after, 2),
            "entries": outcome.entries,
            "budget_right": outcome.is_budget_right,
            "tables_identical": outcome.are_tables_same,
            "problems": list(outcome.problems),
        }
        for outcome in outcomes
        for one in outcome.injected
    ]


def summarise(outcomes: Sequence[StudyOutcome]) -> dict[str, Any]:
    """What the page of `python -m benchmarks faults` is made of."""
    rows = rows_of(outcomes)
    return {
        "stop_deadline": STOP_DEADLINE,
        "studies": len(outcomes),
        "cases": len(rows),
        "resumed": sum(outcome.resumed for outcome in outcomes),
        "sent_again": sum(outcome.sent_again for outcome in outcomes),
        "named_after_longest": max((row["named_after"] or 0.0 for row in rows), default=0.0),
        "problems": sorted({f"{outcome.method}: {problem}" for outcome in outcomes for problem in outcome.problems}),
        "rows": rows,
    }
