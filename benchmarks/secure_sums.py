"""Secure sums at the size of the SME study: seconds and bytes per party. `python -m benchmarks secure_sums [--quick]`.

Two designs with 55 columns: the study's own missing blocks, and everybody known to everybody, which is the most that
can be sent. Seconds are those of the processor, one core, per party and round; bytes are those of encoded messages.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from benchmarks.metering import Metered, add_up
from benchmarks.sums_plans import make_plan
from reporting.catalogue import Measured, Places
from reporting.records import Record
from reporting.tables import Table, verdict
from verticopula.mpc import sums_plan
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.mpc.secret_sharing import gram_share
from verticopula.mpc.sums_plan import SumsPlan, choose_compute
from verticopula.privacy.gaussian_dp import mu_of
from verticopula.privacy.noise import SecureNoise
from verticopula.protocol.messages import SumsRequest, SumsShareRequest
from verticopula.protocol.party.sums_handler import SumsHandler
from verticopula.protocol.secure_sums import secure_sums
from verticopula.storage.records import MemoryRecords
from verticopula.transport.delivery import drive

N = 71_827
TARGET_MB, TARGET_SECONDS = 100.0, 1.0
PER_COLUMN = 1.5  # bound of a squared norm, per observed column
SME = {"registry": 13, "tax": 6, "customs": 6, "bank": 19, "agency": 11}
MISSING = {"registry": 0.72, "tax": 0.84, "customs": 0.87, "bank": 0.27, "agency": 0.0}
COMPLETE = {"first": 19, "second": 18, "third": 18}
DESIGNS: dict[str, tuple[dict[str, int], dict[str, float]]] = {
    "missing blocks": (SME, MISSING),
    "everybody known": (COMPLETE, {}),
}


def make_handler(party: str, scores: NDArray[np.float64] | None) -> SumsHandler:
    """A party that shares its scores (None: it only computes), with noise of its own."""
    return SumsHandler(
        party,
        None if scores is None else lambda plan: sums_plan.code_scores(plan, party, scores),
        records=MemoryRecords(),
        noise=SecureNoise(),
        authenticity=shared_authenticity(bytes(32)),
    )


def measure(widths: Mapping[str, int], missing: Mapping[str, float], n: int) -> tuple[SumsPlan, Metered]:
    rng = np.random.default_rng(0)
    scores = {name: rng.standard_normal((n, width)) for name, width in widths.items()}
    for name, rate in missing.items():
        scores[name][rng.random(n) < rate] = np.nan
    observed = ~np.isnan(np.column_stack(list(scores.values())))
    plan = make_plan(widths, observed, mu_of(1.0, 1e-6), PER_COLUMN, choose_compute(list(widths)))
    transport = Metered({name: make_handler(name, scores.get(name)) for name in (*widths, *plan.compute)})
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


def run(options: Namespace) -> Measured:
    """Both designs, and one compute party's product by itself."""
    n, repetitions = (2_000, 1) if options.quick else (N, 5)
    gram = time_gram(n, sum(SME.values()), repetitions)
    results = {}
    for label, (widths, missing) in DESIGNS.items():
        plan, seen = measure(widths, missing, n)
        results[label] = {
            "patterns": plan.columns.shape[0],
            "opened_numbers": sum(sums_plan.pattern_size(plan, pattern) for pattern in range(plan.columns.shape[0])),
            "fractional_bits": plan.bits,
            "sent_mb": {name: add_up(seen.sent, name) / 1e6 for name in widths},
            "received_mb": {name: add_up(seen.received, name) / 1e6 for name in widths},
            "seconds_share": {name: seen.seconds[name, SumsShareRequest] for name in widths},
            "seconds_add_up": {name: seen.seconds[name, SumsRequest] for name in plan.compute},
        }
    settings = {"n_subjects": n, "epsilon": 1.0, "delta": 1e-6, "missing": MISSING, "repetitions": repetitions}
    return settings, {"product_seconds": gram, **results}


def present(record: Record, places: Places) -> list[Table]:
    """Bytes and seconds per party, and the product by itself."""
    rows = []
    for label, (widths, _) in DESIGNS.items():
        found = record.results[label]
        for name, width in widths.items():
            sent, received, added = found["sent_mb"][name], found["received_mb"][name], found["seconds_add_up"]
            rows.append(
                (
                    label,
                    name,
                    f"{width}",
                    f"{sent:.1f}",
                    f"{received:.1f}",
                    f"{found['seconds_share'][name]:.2f}",
                    f"{added[name]:.2f}" if name in added else "",
                    verdict(sent + received, TARGET_MB),
                )
            )
    header = ("design", "party", "columns", "MB sent", "MB received", "s to share", "s to add up", "target 100 MB")
    n, repetitions = record.settings["n_subjects"], record.settings["repetitions"]
    gram = record.results["product_seconds"]
    product = (f"{sum(SME.values())} + 1", f"{gram:.2f}", verdict(gram, TARGET_SECONDS))
    title = f"one local product, N = {n:,}, best of {repetitions}"
    return [
        Table(f"secure sums, N = {n:,}, 55 columns", header, rows),
        Table(title, ("columns", "seconds", "target 1 s"), [product]),
    ]
