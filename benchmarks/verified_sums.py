"""Verified sums at the size of the SME study: seconds and bytes. `python -m benchmarks verified_sums [--quick]`.

Three designs with 55 columns: the study's own parties, columns and missing blocks; three parties that know everybody;
two parties that know everybody, with the coordinator as the third that computes. Columns are pooled to at most sixteen
cells; in the two designs where everybody is known, each column has sixteen. The second opening has 200 tables. Cells
and pairs are drawn at random: the work does not depend on them. Seconds are those of the processor, one core; bytes are
those of encoded and sealed messages.
"""

from __future__ import annotations

import math
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
from verticopula.mpc.gram_noise import share_scale
from verticopula.mpc.opening_terms import products_term, tables_term
from verticopula.mpc.prime_field import PRIME, pack_field
from verticopula.mpc.proof_rounds import CellsDealer, CellsVerifier, VerifiedCells
from verticopula.mpc.sums_plan import SumsPlan, check_plan, choose_compute, gram_size, own_statement, share_scales
from verticopula.mpc.table_noise import table_bits, table_scale, tables_sensitivity
from verticopula.mpc.verified_cells import CellsStatement, body_receivers, receive_cells, verifiers_of
from verticopula.mpc.verified_sums import draw_term_noise, noised_term, open_terms
from verticopula.privacy.gaussian_dp import mu_of
from verticopula.privacy.noise import SecureNoise
from verticopula.protocol.wire import encode

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

N = 71_827
MOST_CELLS = 16
TABLES = 200
EPSILON, DELTA = 1.0, 1e-6
TARGET_MB, TARGET_SECONDS = 500.0, 5.0
SEAL_BYTES = 48  # salt and tag of a sealed message
BITS = 11  # fractional bits of tables
WEIGHT = 400.0  # of a party's part, were it alone in a record of one column
CHECKING = ("deal", "receive", "prove", "verify")
STAGES = (*CHECKING, "sums", "tables")
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
    """The parties of `make_sme`: at most sixteen cells a column, and one more where single cells are empty."""
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
    """Parties that know everybody, with sixteen cells a column."""
    names = [f"party {number + 1}" for number in range(len(widths))]
    known = np.ones(n, dtype=bool)
    return CellsDesign(
        {name: (MOST_CELLS,) * width for name, width in zip(names, widths, strict=True)}, dict.fromkeys(names, known)
    )


def make_plan(design: CellsDesign, rng: np.random.Generator) -> SumsPlan:
    """A score for every column, and a second feature for those of more than two cells."""
    known = np.column_stack(list(design.rows.values()))
    patterns, labels = np.unique(known, axis=0, return_inverse=True)
    sizes = patterns @ np.array([len(cells) for cells in design.cells.values()], dtype=np.float64)
    weights = np.where(patterns, np.rint(WEIGHT / np.sqrt(2.0 * np.maximum(sizes, 1.0)))[:, None], 0.0)
    tables = []
    for count in (count for cells in design.cells.values() for count in cells):
        scores = np.rint(np.linspace(-1.0, 1.0, count) * 2**BITS).astype(np.int64)
        other = rng.choice(np.array([-1, 1]) << BITS, count)
        tables.append(np.column_stack([scores, other] if count > 2 else [scores]))
    parties, mu = tuple(design.cells), mu_of(EPSILON, DELTA) / math.sqrt(2.0)
    plan = SumsPlan(
        parties=parties,
        n_columns=tuple(map(len, design.cells.values())),
        compute=choose_compute(parties),
        pattern_of=labels.reshape(-1).astype(np.int64),
        weights=weights.astype(np.int64),
        features=tuple(tables),
        groups=tuple(np.arange(len(table)) for table in tables),
        bits=BITS,
        cap=1.0,
        selecting=np.zeros(len(parties), dtype=bool),
        base=np.zeros(len(parties), dtype=bool),
        most_tables=TABLES,
        several_rows=False,
        mu=mu,
        mu_tables=mu,
        mu_selection=0.0,
    )
    check_plan(plan)
    return plan


def draw_pairs(n_columns: int, rng: np.random.Generator) -> Ints:
    """Different pairs of columns, at most 200."""
    pairs = np.column_stack(np.triu_indices(n_columns, 1)).astype(np.int64)
    return pairs[rng.permutation(len(pairs))[:TABLES]]


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


def measure(design: CellsDesign) -> dict[str, Any]:
    """Every party's seconds and bytes, from the cells to the opened sums and tables."""
    rng, meter = np.random.default_rng(0), Meter()
    plan = make_plan(design, rng)
    n, everybody = plan.pattern_of.size, dict.fromkeys([*plan.parties, *plan.compute])
    secrets_of = {name: secrets.token_bytes(32) for name in everybody}
    held: dict[str, dict[str, VerifiedCells]] = {name: {} for name in plan.compute}
    for name, cells in design.cells.items():
        statement = own_statement(plan, "benchmark", "plan", name)
        codes = rng.integers(0, cells, (statement.rows, len(cells)))
        for holder, found in prove_dealing(meter, statement, codes, secrets_of).items():
            held[holder][name] = found
    pairs = draw_pairs(len(plan.features), rng)
    scale = share_scale(table_scale(n, plan.mu_tables, tables_sensitivity(pairs, plan.owners, several_rows=False)))
    sums, tables = [], []
    for index, name in enumerate(plan.compute):
        keys = {other: bytes([min(index, other), max(index, other)]).ljust(16) for other in range(3) if other != index}
        with meter.count(name, "sums"):
            noise = draw_term_noise(SecureNoise(), share_scales(plan))
            sums.append(noised_term(index, products_term(plan, held[name]), keys, noise))
        with meter.count(name, "tables"):
            term = tables_term(plan, held[name], pairs)
            noise = draw_term_noise(SecureNoise(), np.full(term.size, scale))
            tables.append(noised_term(index, term, keys, noise))
        meter.sent[name] += len(pack_field(sums[-1])) + len(pack_field(tables[-1]))
    assert open_terms(sums).size == gram_size(plan)
    counts = open_terms(tables) / 2.0 ** table_bits(n, plan.mu_tables)
    return {
        "columns": {name: len(cells) for name, cells in design.cells.items()},
        "cells": {name: sum(cells) for name, cells in design.cells.items()},
        "rows": {name: int(rows.sum()) for name, rows in design.rows.items()},
        "compute": list(plan.compute),
        "features": plan.width,
        "tables": len(pairs),
        "counts": counts.size,
        "sent_mb": {name: meter.sent[name] / 1e6 for name in everybody},
        "received_mb": {name: meter.received[name] / 1e6 for name in everybody},
        "seconds": {name: {stage: meter.seconds[name, stage] for stage in STAGES} for name in everybody},
    }


def run(options: Namespace) -> Measured:
    """The three designs."""
    n = 2_000 if options.quick else N
    measure(complete_design(100, 2, 2, 2))  # compiles
    results = {
        "the study's parties": measure(sme_design(n)),
        "three parties, everybody known": measure(complete_design(n, 19, 18, 18)),
        "two parties, everybody known": measure(complete_design(n, 28, 27)),
    }
    settings = {"n_subjects": n, "epsilon": EPSILON, "delta": DELTA, "most_cells": MOST_CELLS, "tables": TABLES}
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
            sums = f"{spent['sums']:.2f} / {spent['tables']:.2f}"
            seconds.append((label, name, parts, sums, verdict(checking, TARGET_SECONDS)))
    n = record.settings["n_subjects"]
    return [
        Table(
            f"verified sums, N = {n:,}, 55 columns: megabytes",
            ("design", "party", "cells × rows", "MB sent / received", "target 500 MB"),
            volume,
        ),
        Table(
            f"verified sums, N = {n:,}, 55 columns: processor seconds",
            ("design", "party", "deal / receive / prove / verify", "sums / tables", "check: target 5 s"),
            seconds,
        ),
    ]
