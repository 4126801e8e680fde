"""Two machines compute the same plan, to the last bit: a party takes no other than its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.secure.planned_studies import make_plan, make_study
from verticopula.privacy.gaussian_dp import gaussian_delta, mu_of
from verticopula.protocol.messages import fingerprint
from verticopula.stats.strict import strict_plan
from verticopula.stats.strict.strict_plan import plan_strict_sums
from verticopula.stats.tilting import row_weights

STUDIES, PROPOSALS = 40, 1

# Other sums of vectors, exponentials and matrix products: as on processors of other years.
OLD_MACHINE = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR AVX2 FMA3 AVX512F",
    "OPENBLAS_CORETYPE": "Prescott",
    "OPENBLAS_NUM_THREADS": "1",
}


def digests(**environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.secure.planned_studies", str(STUDIES), str(PROPOSALS)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_another_instruction_set_gives_the_same_plans() -> None:
    here, there = digests(), digests(**OLD_MACHINE)
    assert len(here) == STUDIES + 4 * PROPOSALS
    assert len(set(here)) > STUDIES
    assert here == there


@pytest.mark.parametrize("number", range(0, 60, 3))
def test_last_digits_of_margins_and_losses_do_not_show(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number that two machines might differ in is moved by more than they could."""
    plan = make_plan(number).sums
    federation, budget, known, margins = make_study(number)
    rng = np.random.default_rng(number)
    moved = {
        key: replace(margin, probabilities=margin.probabilities * (1.0 + 1e-14 * rng.standard_normal(1)))
        for key, margin in margins.items()
    }
    rounded, weights = strict_plan.round_plan, row_weights._weights

    def moved_plan(opening, mu):  # type: ignore[no-untyped-def]
        features = tuple(
            replace(f, table=f.table * (1.0 + 1e-14 * rng.standard_normal(f.table.shape))) for f in opening.features
        )
        return rounded(replace(opening, features=features), mu)

    def moved_weights(*given):  # type: ignore[no-untyped-def]
        found = weights(*given)
        return found * (1.0 + 1e-14 * rng.standard_normal(found.shape))

    monkeypatch.setattr(strict_plan, "round_plan", moved_plan)
    monkeypatch.setattr(row_weights, "_weights", moved_weights)
    again = plan_strict_sums(federation, known, moved, budget, rows_agreed=number % 4 < 3).sums
    assert fingerprint(again) == fingerprint(plan)


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 3.0, 20.0])
def test_mu_is_a_point_that_bisection_stops_at_from_below(epsilon: float) -> None:
    mu = mu_of(epsilon, 1e-6)
    assert gaussian_delta(mu, epsilon) <= 1e-6 < gaussian_delta(mu * (1.0 + 2e-7), epsilon)
    fraction, _ = np.frexp(mu)
    assert float(fraction * 2**26).is_integer()  # few digits: those beyond them are where machines differ
