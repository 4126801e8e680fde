"""What strict mode costs: computing and bytes of the secure sums per party, and the whole fit beside VCDS's.

`python -m benchmarks strict_cost [--quick]`. The SME study, parties as in a real one, cryptographic noise. Seconds are
the processor's, on all cores together, so that other processes do not count; the two fits take turns.
"""

from __future__ import annotations

import warnings
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.metering import Metered, add_up
from benchmarks.timing import Timing, time_interleaved
from reporting.catalogue import Measured, Places
from reporting.records import Record, write_text
from reporting.tables import Table, verdict
from verticopula import Synthesizer
from verticopula.data.tables import align_tables
from verticopula.datasets import SmeStudy, make_sme
from verticopula.mpc.sealed_messages import shared_authenticity
from verticopula.privacy.budget import StudyBudget
from verticopula.privacy.noise import SecureNoise
from verticopula.protocol.coordinator_side import CoordinatorSide
from verticopula.protocol.party.local_party import LocalParty
from verticopula.protocol.party.membership import Membership
from verticopula.protocol.party.release_control import ReleaseControl
from verticopula.protocol.strict_messages import SumsKeyRequest, SumsProofRequest, SumsRequest, SumsShareRequest
from verticopula.protocol.strict_method import strict
from verticopula.transport.delivery import drive

EPSILON, DELTA = 1.0, 1e-6
MOST_SECONDS, MOST_MB, MOST_RATIO = 5.0, 200.0, 4.0
WARM_UP = 500
MOMENTS = (SumsKeyRequest, SumsShareRequest, SumsProofRequest, SumsRequest)


def meter(study: SmeStudy) -> Metered:
    """One strict study at (1, 1e-6) per person."""
    federation = study.federation
    request = StudyBudget.build(federation, unit="person", epsilon=EPSILON, delta=DELTA)
    aligned = align_tables(federation, study.tables, need_overlap=False)
    common = shared_authenticity(bytes(32))
    parties = {
        name: LocalParty(ReleaseControl(table, SecureNoise()), membership=Membership(federation, common))
        for name, table in aligned.items()
    }
    metered = Metered(parties)
    drive(strict(federation, request, "benchmark", CoordinatorSide(np.random.default_rng(0))), metered)
    return metered


def describe(metered: Metered, party: str) -> dict[str, float]:
    """What the secure sums cost a party, and the other rounds; coding of messages counts as computing."""
    others = {kind for _, kind in metered.sent} - set(MOMENTS)
    seconds, other_seconds = (
        add_up(metered.seconds, party, kinds) + add_up(metered.coding_seconds, party, kinds)
        for kinds in (MOMENTS, others)
    )
    return {
        "seconds": seconds,
        "sent_mb": add_up(metered.sent, party, MOMENTS) / 1e6,
        "received_mb": add_up(metered.received, party, MOMENTS) / 1e6,
        "other_rounds_seconds": other_seconds,
        "other_rounds_sent_mb": add_up(metered.sent, party, others) / 1e6,
    }


def fit(study: SmeStudy, method: str, unit: str) -> None:
    """A whole fit in process, with secure noise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Synthesizer(study.federation, method=method, unit=unit, epsilon=EPSILON, delta=DELTA).fit(study.tables)


def run(options: Namespace) -> Measured:
    """Both parts, in one run."""
    n, repetitions = (2_000, 1) if options.quick else (71_827, 3)
    small, study = make_sme(WARM_UP), make_sme(n)
    with threadpool_limits(1):
        meter(small)  # compiled and loaded
        metered = meter(study)
    fits = {"strict": ("strict", "person"), "VCDS": ("vcds", "variable")}
    for method, unit in fits.values():
        fit(small, method, unit)
    times = time_interleaved({k: lambda m=m, u=u: fit(study, m, u) for k, (m, u) in fits.items()}, repetitions)
    ratio = times["strict"].median / times["VCDS"].median
    parties = [party.name for party in study.federation.parties]
    sums = {name: describe(metered, name) for name in parties}
    worst = {
        "seconds": max(found["seconds"] for found in sums.values()),
        "mb": max(found["sent_mb"] for found in sums.values()),
        "ratio": ratio,
    }
    met = worst["seconds"] < MOST_SECONDS and worst["mb"] < MOST_MB and ratio <= MOST_RATIO
    settings = {"n_subjects": n, "epsilon": EPSILON, "delta": DELTA, "repetitions": repetitions}
    results: dict[str, Any] = {
        "sums": sums,
        "fit": {name: timing.to_dict() for name, timing in times.items()},
        "worst": worst,
        "target": {"seconds": MOST_SECONDS, "mb": MOST_MB, "ratio": MOST_RATIO, "met": met},
    }
    return settings, results


def present(record: Record, places: Places) -> list[Table]:
    """The page `strict_cost.md`, and its tables."""
    times = {name: Timing.of(saved) for name, saved in record.results["fit"].items()}
    tables = [_sums_table(record.results["sums"]), _fit_table(times, record.results["worst"]["ratio"])]
    write_text(places.pages / "strict_cost.md", _page(record.settings["n_subjects"], tables))
    return tables


def _sums_table(sums: Mapping[str, Mapping[str, float]]) -> Table:
    rows = tuple(
        (
            name,
            f"{found['seconds']:.2f}",
            f"{found['sent_mb']:.1f}",
            f"{found['received_mb']:.1f}",
            verdict(found["seconds"], MOST_SECONDS),
            verdict(found["sent_mb"], MOST_MB),
            f"{found['other_rounds_seconds']:.2f}",
            f"{found['other_rounds_sent_mb']:.2f}",
        )
        for name, found in sums.items()
    )
    header = ("party", "s", "MB sent", "MB received", f"target {MOST_SECONDS:g} s", f"target {MOST_MB:g} MB sent")
    return Table("secure sums, per party", (*header, "other rounds, s", "MB sent"), rows)


def _fit_table(times: Mapping[str, Timing], ratio: float) -> Table:
    rows = tuple(
        (
            name,
            f"{timing.median:.1f}",
            f"{timing.minimum:.1f}",
            f"{min(timing.wall):.1f}",
            f"{ratio:.2f}" if name == "strict" else "1",
            verdict(ratio, MOST_RATIO) if name == "strict" else "",
        )
        for name, timing in times.items()
    )
    header = ("", "processor s, median", "least", "wall s, least", "ratio of medians", f"target {MOST_RATIO:g}")
    return Table("whole fits in process", header, rows)


def _page(n: int, tables: list[Table]) -> str:
    return f"""# What strict mode costs

`python -m benchmarks strict_cost`. The SME study, N = {n:,}, 55 columns at five parties; ({EPSILON:g}, {DELTA:g})
per person; cryptographic noise. Seconds are the processor's.

## Secure sums, per party
Keys, shares, proofs and sums; coding and decoding of messages counts as computing.

{tables[0].to_markdown()}

## Whole fits, in process
Strict at ({EPSILON:g}, {DELTA:g}) per person, VCDS at ε = {EPSILON:g} per variable, in turns.

{tables[1].to_markdown()}
"""
