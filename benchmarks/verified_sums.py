"""Verified sums at the size of the SME study: seconds and bytes. `python -m benchmarks verified_sums [--quick]`.

Three designs with 55 columns: the study's own parties, columns and missing blocks; three parties that know everybody;
two parties that know everybody, with the coordinator as the third that computes. Columns are pooled to at most ten
cells; in the two designs where everybody is known, each column has ten. Cells are drawn at random: the work does not
depend on them. Seconds are those of the processor, one core; bytes are those of encoded and sealed messages.
"""

from __future__ import annotations

import secrets
import time
from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reporting.catalogue import Measured, Places
from reporting.records import Record
from reporting.tables import Table, verdict
from verticopula.datasets import make_sme
from verticopula.mpc.cell_proofs import FOLD
from verticopula.mpc.fixed_point import bound_of
from verticopula.mpc.prime_field import PRIME, Field, pack_field
from verticopula.mpc.proof_rounds import CellsDealer, CellsVerifier, VerifiedCells
from verticopula.mpc.sums_plan import choose_compute
from verticopula.mpc.verified_cells import CellsStatement, body_receivers, receive_cells, verifiers_of
from verticopula.mpc.verified_sums import (
    check_field_room,
    choose_field_bits,
    draw_term_noise,
    map_cells,
    noised_term,
    open_terms,
    stack_records,
    tables_bound,
    term_scales,
)
from verticopula.privacy.gaussian_dp import mu_of
from verticopula.privacy.noise import SecureNoise
from verticopula.protocol.wire import encode

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

N = 71_827
MOST_CELLS = 10
EPSILON, DELTA = 1.0, 1e-6
TARGET_MB, TARGET_SECONDS = 400.0, 5.0
SEAL_BYTES = 48  # salt and tag of a sealed message
CAP = 1.2  # largest score
CHECKING = ("deal", "receive", "prove", "verify")
STAGES = (*CHECKING, "product")
SOUNDNESS_ERROR = (2 * FOLD + 4) / (PRIME - FOLD)  # the probability that bad cells pass, for ideal coefficients


@dataclass
class Meter:
    """Processor seconds by party and stage, bytes by party."""

    seconds: defaultdict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    sent: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))
    received: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))

    @contextmanager
    def count(self, party: str, stage: str) -> Iterator[None]:
        start = time.process_time()
        yield
        self.seconds[party, stage] += time.process_time() - start

    def carry(self, sender: str, receivers: Mapping[str, Any]) -> None:
        """Count the messages of one sender, each sealed for its receiver."""
        for receiver, message in receivers.items():
            size = len(encode(message)) + SEAL_BYTES
            self.sent[sender] += size
            self.received[receiver] += size


@dataclass(frozen=True)
class CellsDesign:
    """Whose columns have how many cells, and whom each party knows."""

    cells: dict[str, tuple[int, ...]]
    rows: dict[str, Bools]


def sme_design(n: int) -> CellsDesign:
    """The parties of `make_sme`: at most ten cells a column, and one more where single cells are empty."""
    study = make_sme(n)
    cells, rows = {}, {}
    for party in study.federation.parties:
        table = study.tables[party.name]
        mask = np.zeros(n, dtype=bool)
        mask[table["subject_id"].str.slice(3).cast(int).to_numpy() - 1] = True
        rows[party.name] = mask
        sizes = []
        for column in party.columns:
            public = MOST_CELLS if column.kind in ("continuous", "count") else len(column.categories or ())
            sizes.append(min(public, MOST_CELLS) + int(table[column.name].null_count() > 0))
        cells[party.name] = tuple(sizes)
    return CellsDesign(cells, rows)


def complete_design(n: int, *widths: int) -> CellsDesign:
    """Parties that know everybody, with ten cells a column."""
    names = [f"party {number + 1}" for number in range(len(widths))]
    known = np.ones(n, dtype=bool)
    return CellsDesign(
        {name: (MOST_CELLS,) * width for name, width in zip(names, widths, strict=True)}, dict.fromkeys(names, known)
    )


def make_tables(cells: tuple[int, ...], bits: int, rng: np.random.Generator) -> list[Ints]:
    """A score for every column, and a sketch of ±1 for those of more than two cells."""
    tables = []
    for count in cells:
        scores = np.rint(np.linspace(-CAP, CAP, count) * 2**bits).astype(np.int64)
        sketch = rng.choice(np.array([-1, 1]) << bits, count)
        tables.append(np.column_stack([scores, sketch] if count > 2 else [scores]))
    return tables


def prove_dealing(
    meter: Meter, statement: CellsStatement, codes: Ints, secrets_of: Mapping[str, bytes]
) -> dict[str, VerifiedCells]:
    """All rounds of one dealing; the compute parties' verified shares."""
    dealer_name, names = statement.dealer, verifiers_of(statement)
    with meter.count(dealer_name, "deal"):
        dealer = CellsDealer(statement, codes, secrets_of[dealer_name])
        dealing = dealer.deal()
    meter.carry(dealer_name, {name: dealing.bundles[name] for name in names})
    meter.sent[dealer_name] += len(dealing.body)
    machines = {}
    for name in names:
        body = dealing.body if name in body_receivers(statement) else b""
        meter.received[name] += len(body)
        with meter.count(name, "receive"):
            held = receive_cells(statement, name, dealing.bundles[name], body)
            keys = {other: bytes(32) for other in names if other != name}
            machines[name] = CellsVerifier(held, secrets_of[name], keys)
    del dealing
    everybody = (*names, dealer_name)
    commitments = _round(meter, machines, dict.fromkeys(names, ()), "commit", everybody)
    reveals = _round(meter, machines, {n: (commitments[n],) for n in names}, "reveal_coefficients", everybody)
    with meter.count(dealer_name, "prove"):
        proofs = dealer.prove(commitments[dealer_name], reveals[dealer_name])
    meter.carry(dealer_name, proofs)
    points = _round(meter, machines, {n: (reveals[n], proofs[n]) for n in names}, "reveal_point", names)
    openings = _round(meter, machines, {n: (points[n],) for n in names}, "open_queries", names)
    verdicts = _round(meter, machines, {n: (openings[n],) for n in names}, "judge", everybody)
    verified = {name: machine.conclude(verdicts[name]) for name, machine in machines.items()}
    with meter.count(dealer_name, "deal"):
        own = dealer.conclude(verdicts[dealer_name])
    return verified if own is None else {**verified, dealer_name: own}


def _round(
    meter: Meter,
    machines: Mapping[str, CellsVerifier],
    inputs: Mapping[str, tuple[Any, ...]],
    step: str,
    receivers: tuple[str, ...],
) -> dict[str, dict[str, Any]]:
    """One step of all verifiers: receiver -> sender -> message."""
    arrived: dict[str, dict[str, Any]] = {name: {} for name in receivers}
    for sender, machine in machines.items():
        with meter.count(sender, "verify"):
            made = getattr(machine, step)(*inputs[sender])
        others = [name for name in receivers if name != sender]
        messages = made if isinstance(made, dict) else dict.fromkeys(others, made)
        meter.carry(sender, messages)
        for receiver, message in messages.items():
            arrived[receiver][sender] = message
    return arrived


def measure(design: CellsDesign, n: int) -> dict[str, Any]:
    """Every party's seconds and bytes, from the cells to the opened sums."""
    rng, meter = np.random.default_rng(0), Meter()
    parties = list(design.cells)
    compute = choose_compute(parties)
    everybody = dict.fromkeys([*parties, *compute])
    secrets_of = {name: secrets.token_bytes(32) for name in everybody}
    mu = mu_of(EPSILON, DELTA)
    largest = sum((CAP**2 + 1.0) * len(cells) for cells in design.cells.values()) + 1.0
    bits = choose_field_bits(n, largest, mu)
    parts: dict[str, list[tuple[Bools, tuple[Field, Field]]]] = {name: [] for name in compute}
    bound = 1 << 2 * bits  # of the squared norm of a record that everybody has a part in
    for name, cells in design.cells.items():
        rows = design.rows[name]
        codes = rng.integers(0, cells, (int(rows.sum()), len(cells)))
        statement = CellsStatement("benchmark", "plan", name, compute, 0, int(rows.sum()), cells)
        tables = make_tables(cells, bits, rng)
        bound += tables_bound(tables)
        verified = prove_dealing(meter, statement, codes, secrets_of)
        for holder in compute:
            with meter.count(holder, "product"):
                parts[holder].append((rows, map_cells(verified[holder], tables)))
    assert bound <= bound_of(largest * 1.01, bits)
    check_field_room(n, bound, mu)
    terms = []
    for index, name in enumerate(compute):
        keys = {other: bytes([min(index, other), max(index, other)]).ljust(16) for other in range(3) if other != index}
        with meter.count(name, "product"):
            records = stack_records(index, parts[name], 1 << bits)
            noise = draw_term_noise(SecureNoise(), term_scales(records[0].shape[1], bound, mu))
            terms.append(noised_term(index, records, keys, noise))
        meter.sent[name] += len(pack_field(terms[-1]))
    features = records[0].shape[1]
    assert open_terms(terms).size == features * (features + 1) // 2 - 1
    return {
        "columns": {name: len(cells) for name, cells in design.cells.items()},
        "cells": {name: sum(cells) for name, cells in design.cells.items()},
        "rows": {name: int(rows.sum()) for name, rows in design.rows.items()},
        "compute": list(compute),
        "features": features,
        "fractional_bits": bits,
        "sent_mb": {name: meter.sent[name] / 1e6 for name in everybody},
        "received_mb": {name: meter.received[name] / 1e6 for name in everybody},
        "seconds": {name: {stage: meter.seconds[name, stage] for stage in STAGES} for name in everybody},
    }


def run(options: Namespace) -> Measured:
    """The three designs."""
    n = 2_000 if options.quick else N
    measure(complete_design(100, 2, 2, 2), 100)  # compiles
    results = {
        "the study's parties": measure(sme_design(n), n),
        "three parties, everybody known": measure(complete_design(n, 19, 18, 18), n),
        "two parties, everybody known": measure(complete_design(n, 28, 27), n),
    }
    settings = {"n_subjects": n, "epsilon": EPSILON, "delta": DELTA, "most_cells": MOST_CELLS}
    return settings, {"soundness_error": SOUNDNESS_ERROR, "designs": results}


def present(record: Record, places: Places) -> list[Table]:
    """Bytes, and seconds, per party."""
    volume, seconds = [], []
    for label, found in record.results["designs"].items():
        for name in found["sent_mb"]:
            shares = f"{found['cells'][name]} × {found['rows'][name]:,}" if name in found["cells"] else ""
            sent, received = found["sent_mb"][name], found["received_mb"][name]
            total = f"{sent:.1f} / {received:.1f}"
            volume.append((label, name, shares, total, verdict(sent + received, TARGET_MB)))
            spent = found["seconds"][name]
            checking = sum(spent[stage] for stage in CHECKING)
            parts = " / ".join(f"{spent[stage]:.2f}" for stage in CHECKING)
            sums = f"{spent['product']:.2f}"
            seconds.append((label, name, parts, sums, verdict(checking, TARGET_SECONDS)))
    n = record.settings["n_subjects"]
    return [
        Table(
            f"verified sums, N = {n:,}, 55 columns: megabytes",
            ("design", "party", "cells × rows", "MB sent / received", "target 400 MB"),
            volume,
        ),
        Table(
            f"verified sums, N = {n:,}, 55 columns: processor seconds",
            ("design", "party", "deal / receive / prove / verify", "sums", "check: target 5 s"),
            seconds,
        ),
    ]
