"""Secure sums at the size of the SME study: seconds and bytes per party. `python -m benchmarks secure_sums [--quick]`.

Two designs with 55 columns: the study's own missing blocks, and everybody known to everybody, which is the most that
can be sent. Seconds are those of the processor, one core, per party and round; bytes are those of encoded messages.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from benchmarks.record import Places, Report, Table, verdict
from tests.secure.sums_world import World
from verticopula.mpc import sums_plan
from verticopula.mpc.gram_noise import mu_of
from verticopula.mpc.secret_sharing import gram_share
from verticopula.mpc.sums_plan import SumsPlan
from verticopula.protocol.messages import Reply, Request
from verticopula.protocol.party.sums_handler import SumsHandler
from verticopula.protocol.secure_sums import secure_sums
from verticopula.protocol.wire import REPLY_KINDS, REQUEST_KINDS, decode, encode
from verticopula.transport.base import drive

N = 71_827
TARGET_MB, TARGET_SECONDS = 100.0, 1.0
SME = {"registry": 13, "tax": 6, "customs": 6, "bank": 19, "agency": 11}
MISSING = {"registry": 0.72, "tax": 0.84, "customs": 0.87, "bank": 0.27, "agency": 0.0}
COMPLETE = {"first": 19, "second": 18, "third": 18}


class Measured:
    """Carries messages as bytes, and counts those and the seconds that each party's answer takes."""

    def __init__(self, handlers: Mapping[str, SumsHandler]) -> None:
        self._handlers = handlers
        self.sent: defaultdict[str, int] = defaultdict(int)
        self.received: defaultdict[str, int] = defaultdict(int)
        self.seconds: defaultdict[tuple[str, str], float] = defaultdict(float)

    def deliver(self, requests: Mapping[str, Request]) -> dict[str, Reply]:
        replies: dict[str, Reply] = {}
        for name, request in requests.items():
            data = encode(request)
            self.received[name] += len(data)
            asked = decode(data, REQUEST_KINDS)
            start = time.process_time()
            reply = self._handlers[name].handle(asked)
            self.seconds[name, type(request).__name__] += time.process_time() - start
            answer = encode(reply)
            self.sent[name] += len(answer)
            replies[name] = decode(answer, REPLY_KINDS)
        return replies


def measure(widths: Mapping[str, int], missing: Mapping[str, float], n: int) -> tuple[SumsPlan, Measured]:
    rng = np.random.default_rng(0)
    scores = {name: rng.standard_normal((n, width)) for name, width in widths.items()}
    for name, rate in missing.items():
        scores[name][rng.random(n) < rate] = np.nan
    world = World(scores, mu=mu_of(1.0, 1e-6))
    plan = world.plan()
    transport = Measured(world.handlers())
    drive(secure_sums(plan, "benchmark", "strict"), transport)
    return plan, transport


def time_gram(n: int, width: int, repetitions: int) -> float:
    """The best of several local products of one compute party, in seconds."""
    rng = np.random.default_rng(0)
    first, second = (rng.integers(0, 2**64, (n, width + 1), dtype=np.uint64) for _ in range(2))
    gram_share(first[:2], second[:2])
    spent = []
    for _ in range(repetitions):
        start = time.process_time()
        gram_share(first, second)
        spent.append(time.process_time() - start)
    return min(spent)


def run(places: Places, *, quick: bool) -> Report:
    """Both designs, and one compute party's product by itself."""
    n, width, repetitions = (2_000 if quick else N), sum(SME.values()), 1 if quick else 5
    gram = time_gram(n, width, repetitions)
    designs = {"missing blocks": (SME, MISSING), "everybody known": (COMPLETE, dict[str, float]())}
    rows, results = [], {}
    for label, (widths, missing) in designs.items():
        plan, seen = measure(widths, missing, n)
        entries = sum(sums_plan.pattern_size(plan, pattern) for pattern in range(plan.columns.shape[0]))
        results[label] = {
            "patterns": plan.columns.shape[0],
            "opened_numbers": entries,
            "fractional_bits": plan.bits,
            "sent_mb": {name: seen.sent[name] / 1e6 for name in widths},
            "received_mb": {name: seen.received[name] / 1e6 for name in widths},
            "seconds_share": {name: seen.seconds[name, "SumsShareRequest"] for name in widths},
            "seconds_add_up": {name: seen.seconds[name, "SumsRequest"] for name in plan.compute},
        }
        rows += [
            (
                label,
                name,
                f"{widths[name]}",
                f"{seen.sent[name] / 1e6:.1f}",
                f"{seen.received[name] / 1e6:.1f}",
                f"{seen.seconds[name, 'SumsShareRequest']:.2f}",
                f"{seen.seconds[name, 'SumsRequest']:.2f}" if name in plan.compute else "",
                verdict((seen.sent[name] + seen.received[name]) / 1e6, TARGET_MB),
            )
            for name in widths
        ]
    header = ("design", "party", "columns", "MB sent", "MB received", "s to share", "s to add up", "target 100 MB")
    tables = [
        Table(f"secure sums, N = {n:,}, 55 columns", header, tuple(rows)),
        Table(
            f"one local product, N = {n:,}, best of {repetitions}",
            ("columns", "seconds", "target 1 s"),
            ((f"{width} + 1", f"{gram:.2f}", verdict(gram, TARGET_SECONDS)),),
        ),
    ]
    settings = {"n_subjects": n, "epsilon": 1.0, "delta": 1e-6, "missing": MISSING, "repetitions": repetitions}
    return Report("secure_sums", settings, {"product_seconds": gram, **results}, tables)
