"""Secure sums through their handlers at the size of the SME study. `python -m benchmarks secure_sums [--quick]`.

Two designs with 55 columns: the study's own missing blocks, and everybody known to everybody, which is the most that
can be sent. Seconds are those of the processor, one core, per party and round; bytes are those of encoded messages.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from benchmarks.metering import Metered, add_up
from benchmarks.sums_plans import all_pairs, make_plan
from reporting.catalogue import Measured, Places
from reporting.records import Record
from reporting.tables import Table, verdict
from verticopula.mpc import sums_plan
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.mpc.sums_plan import SumsPlan, choose_compute
from verticopula.privacy.gaussian_dp import mu_of
from verticopula.privacy.noise import SecureNoise
from verticopula.protocol.party.sums_handler import SumsHandler
from verticopula.protocol.secure_sums import secure_sums
from verticopula.protocol.strict_messages import SumsProofRequest, SumsRequest, SumsShareRequest, TablesRequest
from verticopula.storage.record_store import MemoryRecords
from verticopula.transport.delivery import drive

N = 71_827
TARGET_MB = 500.0
CELLS, TABLES = 16, 200  # cells of a column, and tables of the second opening
NONE = -1
SME = {"registry": 13, "tax": 6, "customs": 6, "bank": 19, "agency": 11}
MISSING = {"registry": 0.72, "tax": 0.84, "customs": 0.87, "bank": 0.27, "agency": 0.0}
COMPLETE = {"first": 19, "second": 18, "third": 18}
DESIGNS: dict[str, tuple[dict[str, int], dict[str, float]]] = {
    "missing blocks": (SME, MISSING),
    "everybody known": (COMPLETE, {}),
}


def make_handler(party: str, cells: NDArray[np.int64] | None) -> SumsHandler:
    """A party that shares its cells (None: it only computes), with noise of its own."""
    return SumsHandler(
        party,
        None if cells is None else lambda plan: cells[sums_plan.own_rows(plan, party)],
        records=MemoryRecords(),
        noise=SecureNoise(),
        authenticity=shared_authenticity(bytes(32)),
    )


def measure(widths: Mapping[str, int], missing: Mapping[str, float], n: int) -> tuple[SumsPlan, Metered]:
    rng = np.random.default_rng(0)
    cells = {name: rng.integers(0, CELLS, (n, width)) for name, width in widths.items()}
    for name, rate in missing.items():
        cells[name][rng.random(n) < rate] = NONE
    known = np.column_stack([values[:, 0] for values in cells.values()]) != NONE
    mu = mu_of(1.0, 1e-6) / math.sqrt(2.0)
    compute = choose_compute(list(widths))
    plan = make_plan(widths, known, mu, compute, cells=CELLS, mu_tables=mu, most_tables=TABLES)
    transport = Metered({name: make_handler(name, cells.get(name)) for name in (*widths, *plan.compute)})
    drive(secure_sums(plan, "benchmark", "strict", choose=lambda products, selection: all_pairs(plan)), transport)
    return plan, transport


def run(options: Namespace) -> Measured:
    """Both designs."""
    n = 2_000 if options.quick else N
    results = {}
    for label, (widths, missing) in DESIGNS.items():
        plan, seen = measure(widths, missing, n)
        results[label] = {
            "patterns": len(plan.weights),
            "opened_numbers": sums_plan.gram_size(plan) + TABLES * CELLS**2,
            "fractional_bits": plan.bits,
            "sent_mb": {name: add_up(seen.sent, name) / 1e6 for name in widths},
            "received_mb": {name: add_up(seen.received, name) / 1e6 for name in widths},
            "seconds_share": {name: seen.seconds[name, SumsShareRequest] for name in widths},
            "seconds_prove": {name: seen.seconds[name, SumsProofRequest] for name in widths},
            "seconds_add_up": {name: seen.seconds[name, SumsRequest] for name in plan.compute},
            "seconds_tables": {name: seen.seconds[name, TablesRequest] for name in plan.compute},
        }
    settings = {"n_subjects": n, "epsilon": 1.0, "delta": 1e-6, "missing": MISSING, "cells": CELLS, "tables": TABLES}
    return settings, results


def present(record: Record, places: Places) -> list[Table]:
    """Bytes and seconds per party."""
    rows = []
    for label, (widths, _) in DESIGNS.items():
        found = record.results[label]
        for name, width in widths.items():
            sent, received, added = found["sent_mb"][name], found["received_mb"][name], found["seconds_add_up"]
            tables = found["seconds_tables"]
            rows.append(
                (
                    label,
                    name,
                    f"{width}",
                    f"{sent:.1f}",
                    f"{received:.1f}",
                    f"{found['seconds_share'][name]:.2f} / {found['seconds_prove'][name]:.2f}",
                    f"{added[name]:.2f} / {tables[name]:.2f}" if name in added else "",
                    verdict(sent + received, TARGET_MB),
                )
            )
    sizes, times = ("columns", "MB sent", "MB received"), ("s to share / prove", "s to add up / for tables")
    header = ("design", "party", *sizes, *times, "target 500 MB")
    n = record.settings["n_subjects"]
    return [Table(f"secure sums, N = {n:,}, 55 columns", header, rows)]
