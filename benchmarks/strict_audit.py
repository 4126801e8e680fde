"""The audit of opened sums: does it accuse anybody wrongly, and does it find what is broken?

`python -m benchmarks strict_audit [--quick]`. Secure sums of three parties as a study runs them, with cryptographic
noise, at (1, 1e-6): a replaced person and a replaced block, with three noises, with one compute party that adds none
(which is tolerated), and broken in three ways.
"""

from __future__ import annotations

import math
import time
from argparse import Namespace
from dataclasses import asdict
from typing import Any

from scipy.special import ndtri

from benchmarks.audit_sums import CASES, SumsCase
from benchmarks.sums_plans import PARTIES, complete_plan
from reporting.catalogue import Measured, Places
from reporting.records import Record, write_text
from reporting.tables import Table
from verticopula.auditing import SumsNeighbours, audit_sums, replaced_block, replaced_record
from verticopula.auditing.sums_neighbours import SUBJECTS
from verticopula.privacy.gaussian_dp import gaussian_epsilon, mu_of

EPSILON, DELTA = 1.0, 1e-6
TRIALS = 40_000
FEWER = {"all noise halved": 20_000}  # further from the claim
CONFIDENCE = 0.95  # of all findings together
QUICK_MU = 3.0
_COUNTED = 0.8


def run(options: Namespace) -> Measured:
    """Every case, for both units; quick ones have a twentieth of the trials, at a mu that so few can test."""
    plan = complete_plan(QUICK_MU if options.quick else mu_of(EPSILON, DELTA))
    pairs = {"a replaced person": replaced_record(plan), "a replaced block": replaced_block(plan, "a")}
    each = 1.0 - (1.0 - CONFIDENCE) / (len(CASES) * len(pairs))
    found = [
        measure(case, label, pair, FEWER.get(case.name, TRIALS) // (20 if options.quick else 1), each)
        for label, pair in pairs.items()
        for case in CASES
    ]
    settings = {
        "subjects": SUBJECTS,
        "columns": PARTIES,
        "mu": plan.mu,
        "delta": DELTA,
        "noise": "secure",
        "confidence_of_all": CONFIDENCE,
        "confidence_of_each": each,
    }
    power = {str(ratio): trials_needed(plan.mu, ratio, 1.0 - each) for ratio in (math.sqrt(2.0), math.sqrt(8.0 / 3.0))}
    return settings, {"findings": found, "trials_needed": power}


def present(record: Record, places: Places) -> list[Table]:
    """The page `strict_audit.md`, and its table."""
    table = _tabulate(record.results["findings"])
    write_text(places.pages / "strict_audit.md", _page(record, table))
    return [table]


def measure(case: SumsCase, label: str, pair: SumsNeighbours, trials: int, confidence: float) -> dict[str, Any]:
    """One finding, and what it took."""
    start = time.process_time()
    found = audit_sums(pair, trials, delta=DELTA, confidence=confidence, **case.settings())
    return {
        "case": case.name,
        "differs_in": label,
        "correct": case.keeps_it,
        "passes": found.holds,
        "cpu_seconds": time.process_time() - start,
        **asdict(found),
    }


def trials_needed(mu: float, ratio: float, alpha: float, errors: float = 3.0) -> int:
    """Trials of both data sets after which a true mu of `ratio` times the claim is refuted but for one in 700 audits.

    Cut in the middle, a probit has a standard error of sqrt(pi/2/n); the bound gives away two half-widths, and the
    difference itself varies by sqrt(2) of them.
    """
    give_away = 2.0 * float(-ndtri(alpha / 2.0)) + errors * math.sqrt(2.0)
    counted = math.pi / 2.0 * (give_away / ((ratio - 1.0) * mu)) ** 2
    return math.ceil(2.0 * counted / _COUNTED)


def _tabulate(found: list[dict[str, Any]]) -> Table:
    rows = tuple(
        (
            f["case"],
            f["differs_in"],
            "correct" if f["correct"] else "broken",
            f"{f['mu']:.4f}",
            f"{f['mu_estimate']:.4f}",
            f"{f['mu_low']:.4f}",
            f"{f['epsilon']:.3f}",
            f"{f['epsilon_low']:.3f}",
            "passes" if f["passes"] else "refuted",
            f"{f['trials']:,}",
            f"{f['cpu_seconds']:.0f}",
            "as it should be" if f["passes"] is f["correct"] else "WRONG",
        )
        for f in found
    )
    header = ("case", "differs in", "is", "claimed μ", "estimated μ", "measured μ ≥", "claimed ε", "measured ε ≥")
    return Table("opened sums", (*header, "audit says", "trials", "s of a core", ""), rows)


def _page(record: Record, table: Table) -> str:
    settings, needed = record.settings, record.results["trials_needed"]
    mu = settings["mu"]
    tight, wide = (f"{count:,}" for count in needed.values())
    wrong = sum(f["passes"] is not f["correct"] for f in record.results["findings"])
    widths = ", ".join(map(str, PARTIES.values()))
    return f"""# The audit of the opened sums

`python -m benchmarks strict_audit`. Secure sums of three parties with {widths} columns and
{settings["subjects"]} people, run as a study runs them (handlers, sealed shares, three noises from OpenDP, opening), at
μ = {mu:.4f}, which is (ε, δ) = ({gaussian_epsilon(mu, DELTA):.3g}, {DELTA:g}). Two data sets
differ in one person, or in one party's part of one person, as far apart as cells can be.

{table.to_markdown()}

*What is attacked.* What is opened, less the exact sums of the first data set, is projected on the difference of the
two, in units of the noise that is claimed: N(0, 1) against N(μ, 1) if the noise is exactly what is claimed and the two
data sets are worst. With all three noises there is 1.5 times the variance that is needed; with one missing, exactly
what is needed; with two missing, half.

*The bound.* A fifth of the trials may learn a better statistic and choose where to cut. On the others, Clopper–Pearson
bounds of the two shares above the cut give μ ≥ Φ⁻¹(P_low) − Φ⁻¹(P′_high), whatever the noise looks like. The bounds
hold together with {100 * CONFIDENCE:g} %. The ε beside a measured μ is that of Gaussian noise of that μ, at the same δ:
at δ = {DELTA:g} no number of trials could measure it directly.

*Power.* To refute a true μ of √2 times the claim (two shares missing) but for one in 700 audits takes {tight} trials,
of √(8/3) times (all noise halved) {wide}. One study holds 100 copies of the pattern, each with shares and noise of
its own, and each is a trial.

{"All verdicts are as they should be." if wrong == 0 else f"**{wrong} verdicts are wrong.**"}
"""
