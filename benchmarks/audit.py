"""The audit itself: how fast it is, whether it finds what is broken, and whether its bounds hold.

Three broken mechanisms and three correct ones (`audit_mechanisms`), one release of 200 subjects through the
product's own party, and the share of small audits of randomized response, whose epsilon is known, that claim too much.
"""

from __future__ import annotations

import math
import os
import time
from argparse import Namespace
from typing import Any

import numpy as np

from benchmarks.audit_mechanisms import CASES, FEDERATION, Case, N
from reporting.catalogue import Measured, Places
from reporting.records import Record
from reporting.tables import Table, verdict
from verticopula.auditing import Claim, audit_release
from verticopula.auditing import MeasuredClaim as Audited
from verticopula.auditing.bounds.mechanism_audit import judge
from verticopula.auditing.releases.attacked_releases import PartyRelease, claim_of
from verticopula.auditing.releases.neighbours import replaced_value
from verticopula.privacy.noise import SeededNoise
from verticopula.protocol.rank_messages import ColumnQuery
from verticopula.schema.units import Unit

TRIALS = 20_000
CONFIDENCE = 0.95
TARGET_SECONDS = 60.0
EPSILON = 1.0
ALPHA = 0.05
_WARM = 1000  # trials in this process, from which the processor time of all of them is told
SMALL = 60  # trials of each data set in a small audit


def run(options: Namespace) -> Measured:
    """All parts; quick ones have a tenth of the trials."""
    trials = TRIALS // 10 if options.quick else TRIALS
    cases = [_case(case, trials if "ranks" in case.name or "noise" in case.name else trials // 5) for case in CASES]
    release = _through_the_party(trials)
    coverage = _coverage(400 if options.quick else 4000)
    power = judge(_bits(np.random.default_rng(1), trials // 2), Claim.pure("variable", EPSILON), CONFIDENCE)
    results = {
        "cases": cases,
        "party_release": release,
        "coverage": coverage,
        "power": {"epsilon": EPSILON, "trials": power.trials, "measured": power.epsilon_low},
    }
    return {"subjects": N, "trials": trials, "confidence": CONFIDENCE, "noise": "secure"}, results


def _case(case: Case, trials: int) -> dict[str, Any]:
    audit_release(case.release, case.neighbours, case.claim, 100)  # compiled and loaded
    start = time.perf_counter()
    cpu = time.process_time()
    found = audit_release(case.release, case.neighbours, case.claim, trials, confidence=CONFIDENCE)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {"name": case.name, "correct": case.keeps_it, "seconds": seconds, "cpu_seconds": cpu, **_figures(found)}


def _figures(found: Audited) -> dict[str, Any]:
    point = found.point
    return {
        "claimed": found.claim.epsilon,
        "delta": found.claim.delta,
        "measured": found.epsilon_low,
        "visible": found.visible,
        "curve": None if point is None else [point.epsilon, point.delta, point.measured],
        "trials": found.trials,
        "passes": found.holds,
    }


def _through_the_party(trials: int) -> dict[str, Any]:
    """Ranks and cells of one column from `LocalParty.handle`, on all processors."""
    party = FEDERATION.party("left")
    pair = replaced_value(party, ["y"], N)
    release = PartyRelease("exact", (ColumnQuery("y", 0.05, 0.05),), (0,), ("ranks",))
    claim = claim_of(Unit.BLOCK, release.entries(pair.first, SeededNoise(0)), 1e-6)
    workers = os.cpu_count() or 1
    cpu = time.process_time()
    audit_release(release, pair, claim, _WARM)
    cpu = (time.process_time() - cpu) * trials / _WARM
    audit_release(release, pair, claim, 100, workers=workers)
    start = time.perf_counter()
    found = audit_release(release, pair, claim, trials, confidence=CONFIDENCE, workers=workers)
    return {"seconds": time.perf_counter() - start, "workers": workers, "cpu_seconds": cpu, **_figures(found)}


def _bits(rng: np.random.Generator, trials: int) -> list[tuple[Any, Any]]:
    """Randomized response on 0 and on 1."""
    flips = rng.random((2, trials, 1)) < 1.0 / (1.0 + math.exp(EPSILON))
    return [(flips[0].astype(float), 1.0 - flips[1])]


def _coverage(audits: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    claim = Claim.pure("variable", EPSILON)
    found = np.array([judge(_bits(rng, SMALL), claim, 1.0 - ALPHA).epsilon_low for _ in range(audits)])
    wrong = float(np.mean(found > EPSILON))
    error = math.sqrt(max(wrong * (1.0 - wrong), 1.0 / audits) / audits)
    return {"audits": audits, "trials_each": 2 * SMALL, "alpha": ALPHA, "too_high": wrong, "standard_error": error}


def present(record: Record, places: Places) -> list[Table]:
    """The six mechanisms, the party's release, and how often a bound is too high."""
    cases, release, coverage, power = (record.results[name] for name in ("cases", "party_release", "coverage", "power"))
    rows = [
        (
            c["name"],
            "correct" if c["correct"] else "broken",
            f"{c['claimed']:.2f}",
            f"{c['measured']:.2f}",
            "-" if c["curve"] is None else f"{c['curve'][2]:.2f} where {c['curve'][0]:.2f} is claimed",
            "passes" if c["passes"] else "refuted",
            f"{c['trials']:,}",
            f"{c['seconds']:.1f}",
            f"{c['cpu_seconds']:.1f}",
            "as it should be" if c["passes"] is c["correct"] else "WRONG",
        )
        for c in cases
    ]
    header = (
        "case",
        "is",
        "claimed ε",
        "measured ε ≥",
        "on its curve",
        "audit says",
        "trials",
        "seconds",
        "of a core",
        "",
    )
    seconds = release["seconds"]
    return [
        Table("Six mechanisms, one process", header, tuple(rows)),
        Table(
            f"One release of {N} subjects through the party",
            ("trials", "processes", "seconds", "of a core", "target", ""),
            (
                (
                    f"{release['trials']:,}",
                    str(release["workers"]),
                    f"{seconds:.1f}",
                    f"{release['cpu_seconds']:.1f}",
                    f"{TARGET_SECONDS:.0f}",
                    verdict(seconds, TARGET_SECONDS),
                ),
            ),
        ),
        Table(
            "Randomized response of one bit, ε = 1",
            ("small audits", "bound above the truth", "may be", "bound with many trials"),
            (
                (
                    f"{coverage['audits']:,}",
                    f"{coverage['too_high']:.4f} (s.e. {coverage['standard_error']:.4f})",
                    f"{coverage['alpha']:g}",
                    f"{power['measured']:.3f} from {power['trials']:,}",
                ),
            ),
        ),
    ]
