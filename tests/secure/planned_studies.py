"""Plans of made-up studies, from whole numbers alone: what a party computes to compare with the coordinator's.

As a program it prints a digest of every plan, so that two processes with different instruction sets can be compared.
"""

from __future__ import annotations

import sys

import numpy as np
from numpy.typing import NDArray

from tests.builders import make_federation
from verticopula.privacy.budget import StudyBudget
from verticopula.protocol.messages import fingerprint
from verticopula.protocol.study_proposal import plan_numbers
from verticopula.schema.columns import ColumnKey
from verticopula.schema.federation import Federation
from verticopula.schema.units import Unit
from verticopula.stats.marginals import Marginal
from verticopula.stats.strict.gaussian_margins import estimate_margin, gaussian_cell_count
from verticopula.stats.strict.noise_budget import StrictBudget, plan_strict_budget
from verticopula.stats.strict.strict_plan import StrictPlan, plan_strict_sums

KINDS = (
    {"kind": "continuous", "bounds": [-8, 8]},
    {"kind": "ordinal", "categories": [1, 2, 3, 4, 5]},
    {"kind": "binary"},
    {"kind": "count", "bounds": [0, 40]},
    {"kind": "nominal", "categories": list("abcdefg"), "required": False},
    {"kind": "continuous", "bounds": [0, 1], "weight": 1.7},
)
Bools = NDArray[np.bool_]


def make_study(number: int) -> tuple[Federation, StrictBudget, dict[str, Bools], dict[ColumnKey, Marginal]]:
    """What is public before the first opening: parties, budget, who is known to whom, and noisy margins."""
    rng = np.random.default_rng(number)
    n, parties = int(rng.integers(50, 3000)), [f"p{k}" for k in range(int(rng.integers(2, 6)))]
    columns = {
        p: {f"{p}x{j}": KINDS[int(rng.integers(len(KINDS)))] for j in range(int(rng.integers(1, 5)))} for p in parties
    }
    federation = make_federation(columns)
    known = {p: rng.random(n) < (1.0 if number % 3 == 0 or p == "p0" else rng.uniform(0.2, 1.0)) for p in parties}
    settings = StudyBudget.build(
        federation, unit=(Unit.PERSON, Unit.BLOCK)[number % 2].value, epsilon=float(rng.uniform(0.3, 8.0)), delta=1e-6
    )
    counts = {key: int(known[key.party].sum()) for key in federation.keys}
    budget = plan_strict_budget(federation, settings, counts, n)
    margins = {}
    for key in federation.keys:
        column, deviation, empty = federation.column(key), budget.deviations[key], budget.empties[key]
        size = gaussian_cell_count(column, counts[key], deviation) + empty
        cells = rng.multinomial(counts[key], rng.dirichlet(np.full(size, 0.7)))
        noisy = np.rint(cells + deviation * rng.standard_normal(size)).astype(np.int64)
        if size == 2:
            noisy[1] = counts[key] - noisy[0]
        margins[key] = estimate_margin(column, noisy, counts[key], deviation, may_be_empty=empty)
    return federation, budget, known, margins


def make_plan(number: int) -> StrictPlan:
    """The plan of that study's sums."""
    federation, budget, known, margins = make_study(number)
    return plan_strict_sums(federation, known, margins, budget, rows_agreed=number % 4 < 3)


def number_digests(number: int) -> list[str]:
    """Digests of the noise of all methods' proposals for a study."""
    federation, _, known, _ = make_study(number)
    counts = {key: int(known[key.party].sum()) for key in federation.keys}
    n, found = next(iter(known.values())).size, []
    for method, unit, rounds in (("vcds", "variable", 1), ("ievcds", "person", 2)):
        delta = None if unit == "variable" else 1e-6
        budget = StudyBudget.build(federation, unit=unit, epsilon=2.0, delta=delta, rounds=rounds)
        found.append(fingerprint(plan_numbers(federation, budget, method, counts, n)))
    for unit in ("person", "block"):
        budget = StudyBudget.build(federation, unit=unit, epsilon=3.0, delta=1e-6)
        found.append(fingerprint(plan_numbers(federation, budget, "strict", counts, n)))
    return found


if __name__ == "__main__":
    for study in range(int(sys.argv[1])):
        print(fingerprint(make_plan(study).sums))
        if study < int(sys.argv[2]):
            print(*number_digests(study))
