"""The audit of opened sums: does it accuse anybody wrongly, and does it find what is broken?

`python -m benchmarks strict_audit [--quick] [--part ...]`. Secure sums as a study runs them, with cryptographic noise,
at (3, 1e-6).

1. *person*, *block*: a replaced person and a replaced block of three parties, with three noises, with one compute party
   that adds none (which is tolerated), and broken in five ways.
2. *forgeries*: a fourth party or a compute party shares numbers that are no cells, with the code as it is and with
   planted faults in the check of cells.
"""

from __future__ import annotations

import math
import time
from argparse import Namespace
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any

from scipy.special import ndtri

from benchmarks.audit_sums import CASES, PROOF_FAULTS, SumsCase
from benchmarks.sums_plans import PARTIES, complete_plan
from reporting.catalogue import Measured, Places
from reporting.records import Record, describe_machine, now, write_text
from reporting.tables import Table
from verticopula.auditing import SumsNeighbours, audit_sums, replaced_block, replaced_record
from verticopula.auditing.sums.dealer_attacks import audit_forgery, dishonest_parties
from verticopula.auditing.sums.forged_cells import FORGERIES
from verticopula.auditing.sums.sums_neighbours import SUBJECTS, without_tables
from verticopula.mpc.sums_plan import SumsPlan
from verticopula.privacy.gaussian_dp import gaussian_epsilon, mu_of

EPSILON, DELTA = 3.0, 1e-6
TRIALS = 6_000  # twice what refutes two missing shares (`trials_needed`); a smaller epsilon takes more, by 1/mu^2
FEWER = {"all noise halved": 3_000, "tables without noise": 1_000}  # further from the claim
CONFIDENCE = 0.95  # of all findings of opened sums together, and of all forgeries
COPIES = 500  # openings of one study's cells
DEALERS = {"a": 2, "b": 1, "c": 1, "d": 2}  # the last one does not compute
FORGED_TRIALS = 100
PARTS = ("person", "block", "forgeries")
OPENINGS = 2  # a matrix and tables; results that were saved before there were tables do not say how many
QUICK_MU = 3.0
_COUNTED = 0.8


PAIRS: dict[str, Callable[[SumsPlan], SumsNeighbours]] = {
    "person": replaced_record,
    "block": lambda plan: replaced_block(plan, "a"),
}


def run(options: Namespace) -> Measured:
    """All parts, or those named; the others are kept. Quick ones have a twentieth of the trials, at a larger mu."""
    mu = QUICK_MU if options.quick else mu_of(EPSILON, DELTA)
    plan = complete_plan(mu)
    each = 1.0 - (1.0 - CONFIDENCE) / (len(CASES) * len(PAIRS))
    found: dict[str, Any] = {part: options.kept.results[part] for part in PARTS if part in options.kept.results}
    measured = {part: when for part, when in options.kept.results.get("measured", {}).items() if part in found}
    for part in options.parts:
        if part == "forgeries":
            found[part] = measure_forgeries(complete_plan(mu, DEALERS))
        else:
            found[part] = [
                measure(case, part, plan, FEWER.get(case.name, TRIALS) // (20 if options.quick else 1), each)
                for case in CASES
            ]
        measured[part] = {"date": now(), **describe_machine()}
    settings = {
        "subjects": SUBJECTS,
        "columns": PARTIES,
        "mu": plan.mu,
        "delta": DELTA,
        "noise": "secure",
        "openings": OPENINGS,
        "confidence_of_all": CONFIDENCE,
        "confidence_of_each": each,
    }
    power = {
        str(ratio): trials_needed(math.sqrt(2.0) * plan.mu, ratio, 1.0 - each)
        for ratio in (math.sqrt(2.0), math.sqrt(8.0 / 3.0))
    }
    return settings, {**found, "trials_needed": power, "measured": measured}


def present(record: Record, places: Places) -> list[Table]:
    """The page `strict_audit.md`, and its tables."""
    found = record.results
    tables = [
        _tabulate([one for part in PAIRS for one in found.get(part, [])]),
        _tabulate_forgeries(found.get("forgeries", [])),
    ]
    write_text(places.pages / "strict_audit.md", _page(record, tables))
    return tables


def measure(case: SumsCase, part: str, plan: SumsPlan, trials: int, confidence: float) -> dict[str, Any]:
    """One finding, and what it took."""
    start = time.process_time()
    with case.plant():
        found = audit_sums(
            PAIRS[part](plan), trials, delta=DELTA, confidence=confidence, copies=COPIES, **case.settings()
        )
    return {
        "case": case.name,
        "differs_in": f"a replaced {part}",
        "correct": case.keeps_it,
        "passes": found.holds,
        "cpu_seconds": time.process_time() - start,
        **asdict(found),
    }


def measure_forgeries(plan: SumsPlan) -> list[dict[str, Any]]:
    """Every forgery against the code as it is, and every planted fault against the forgery that it lets through."""
    pair, named = without_tables(replaced_block(plan, "b"), "b"), {forgery.name: forgery for forgery in FORGERIES}
    tries: list[tuple[str, str, Callable[[], AbstractContextManager[Any]]]] = [
        *(("nothing", name, nullcontext) for name in named),
        *((fault.name, fault.forgery, fault.plant) for fault in PROOF_FAULTS),
    ]
    dealers = dishonest_parties(pair)
    each = 1.0 - (1.0 - CONFIDENCE) / (len(tries) * len(dealers))
    findings = []
    for planted, name, plant in tries:
        for dealer in dealers:
            with plant():
                found = audit_forgery(pair, dealer, named[name], FORGED_TRIALS, delta=DELTA, confidence=each)
            if found is None:
                raise RuntimeError(f"{name!r} does not fit into the cells of {dealer!r}")
            findings.append(
                {
                    "planted": planted,
                    "forgery": name,
                    "dealer": "computes" if dealer in plan.compute else "does not compute",
                    "correct": planted == "nothing",
                    "passes": found.holds,
                    **asdict(found),
                }
            )
    return findings


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
    return Table("opened sums", (*header, "audit says", "trials", "s of a core", ""), rows, heads=3)


def _tabulate_forgeries(found: list[dict[str, Any]]) -> Table:
    rows = tuple(
        (
            f["planted"],
            f["forgery"],
            f["dealer"],
            "refused" if f["statistic"] == "refused" else f"μ ≥ {f['mu_low']:.2f}, claimed {f['mu']:.2f}",
            ("passes" if f["passes"] else "refuted") + ("" if f["passes"] is f["correct"] else ": WRONG"),
        )
        for f in found
    )
    return Table("forged cells", ("planted fault", "what a party shares", "the party", "found", "audit says"), rows)


def _page(record: Record, tables: list[Table]) -> str:
    settings, needed = record.settings, record.results["trials_needed"]
    mu = settings["mu"]
    tight, wide = (f"{count:,}" for count in needed.values())
    wrong = sum(f["passes"] is not f["correct"] for part in PARTS for f in record.results.get(part, []))
    table, forged = tables
    when = "\n".join(
        f"- {part}: {made['date']}, {made['processor']}{made.get('note', '')}"
        for part, made in record.results["measured"].items()
    )
    widths = ", ".join(map(str, PARTIES.values()))
    opened, trials = _describe_trials(settings.get("openings", 1))
    return f"""# The audit of the opened sums

`python -m benchmarks strict_audit`. Secure sums of three parties with {widths} columns and
{settings["subjects"]} people, run as a study runs them: handlers, sealed shares, proofs, three noises from OpenDP,
{opened} claimed to have
μ = {mu:.4f}, which is (ε, δ) = ({gaussian_epsilon(mu, DELTA):.3g}, {DELTA:g}). Two data sets
differ in one person, or in one party's part of one person, as far apart as cells can be.

{when}

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
of √(8/3) times (all noise halved) {wide}.

{trials}

## Parties that share no cells

A dishonest party shares numbers that make one person's scores a thousand times as long as they can be, and the best
proof that it can make for them. Another party's block of that person is replaced. Where a check refuses, nothing is
opened.

Each planted fault is a check that is not made, or a random combination that is none. The forgery beside it is
one that only this check would stop ([how](../../src/verticopula/auditing/sums/forged_cells.py)). Where a forgery passes
there are {FORGED_TRIALS} trials. The bounds of this table hold together with {100 * CONFIDENCE:g} %.

{forged.to_markdown()}

{"All verdicts are as they should be." if wrong == 0 else f"**{wrong} verdicts are wrong.**"}
"""


def _describe_trials(openings: int) -> tuple[str, str]:
    """What was opened, and what a trial is."""
    if openings == 1:
        return (
            "opening. They are",
            f"""One study holds {COPIES} copies of the pattern, each with shares and noise of
its own, and each is a trial. Bounds of records that are 5/7 of what they should be are as far from the claim as two
missing shares, once one compute party adds none. These figures do not have the tables of pairs that are opened now.""",
        )
    return (
        "both openings. Each opening is",
        f"""The proven cells of one study are opened {COPIES} times, each time with noise
of its own, and each is a trial. Bounds of records that are 2/3 of what they should be are a little further from the
claim than two missing shares, once one compute party adds none.""",
    )
