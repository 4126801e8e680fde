"""The audit of parties that share no cells: the code as it is refuses them, and each planted fault is found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.audit_sums import PROOF_FAULTS, ProofFault, halve_scales, none, understate_bounds
from benchmarks.sums_plans import complete_plan
from verticopula.auditing import audit_sums, replaced_block, replaced_record
from verticopula.auditing.sums.dealer_attacks import (
    ForgedRelease,
    audit_forgeries,
    audit_forgery,
    dishonest_parties,
    find_target,
)
from verticopula.auditing.sums.forged_cells import FORGERIES, LENGTH, Forgery
from verticopula.auditing.sums.sums_neighbours import without_tables
from verticopula.errors import SettingsError
from verticopula.mpc.cell_proofs import FOLD
from verticopula.mpc.prime_field import PRIME
from verticopula.mpc.sums_plan import own_statement
from verticopula.mpc.verified_cells import column_starts, encode_cells
from verticopula.privacy.noise import SeededNoise

pytestmark = pytest.mark.audit

NAMED = {forgery.name: forgery for forgery in FORGERIES}
WIDTHS = {"a": 2, "b": 1, "c": 1, "d": 2}  # the last one does not compute
PAIR = without_tables(replaced_block(complete_plan(0.5, WIDTHS), "b"), "b")
TRIALS = 100


def nothing(*forged: object) -> list[int]:
    return [0]


# ---- what is shared --------------------------------------------------------------------------


@pytest.mark.parametrize("forgery", FORGERIES, ids=lambda forgery: forgery.name)
def test_a_forgery_is_bad_in_the_rows_that_it_names(forgery: Forgery) -> None:
    release = ForgedRelease(PAIR.plan, "a", forgery, PAIR.pair.first)
    forged, target = release.forge(), find_target(PAIR.plan, "a", release.copies)
    assert forged.rows.size
    assert set(forged.rows) <= set(target.rows)
    place = column_starts(own_statement(PAIR.plan, "", "", "a"))[target.column] + target.cell
    assert all(LENGTH <= number < LENGTH + 20 for number in forged.values[forged.rows, place].tolist())


def test_cancelling_rows_make_one_sum_zero_and_stand_where_they_should() -> None:
    statement = own_statement(PAIR.plan, "", "", "a")
    for name, same_group in (("rows that cancel in a group", True), ("rows that cancel across groups", False)):
        release = ForgedRelease(PAIR.plan, "a", NAMED[name], PAIR.pair.first)
        values = release.forge().values
        rows, places = np.nonzero(values > 1)
        numbers = [int(values[row, place]) for row, place in zip(rows, places, strict=True)]
        assert sum(x * x - x for x in numbers) % PRIME == 0
        column = find_target(PAIR.plan, "a", 1).column
        first, second = sorted(rows)[0], min(row for row in rows if row > rows.min() and values[row].max() > 10**6)
        spots = [(int(row) * len(statement.cells) + column) for row in (first, second)]
        assert (spots[0] // FOLD == spots[1] // FOLD) is same_group
        assert same_group or spots[0] % FOLD == spots[1] % FOLD


def test_what_the_attacker_subtracts_is_what_is_opened_but_for_noise() -> None:
    """Good cells through the dishonest dealer: they pass, and what is left is noise of the claimed size."""
    honest = ForgedRelease(PAIR.plan, "a", Forgery("nothing", nothing), PAIR.pair.first, copies=2)
    left = honest(PAIR.pair.first, SeededNoise(1))
    assert left.any()
    assert np.abs(left).max() < 6.0
    assert np.linalg.norm(honest.direction(PAIR.pair.second)) == pytest.approx(PAIR.mu, rel=0.02)


def test_good_cells_stay_as_they_are_elsewhere() -> None:
    plan, forgery = PAIR.plan, NAMED["an entry of 1000 in the first group alone"]
    release = ForgedRelease(plan, "a", forgery, PAIR.pair.first, copies=32)
    forged = release.forge()
    statement = replace(own_statement(plan, "", "", "a"), rows=32 * plan.pattern_of.size)
    good = encode_cells(statement, np.tile(PAIR.pair.first["a"], (32, 1)))
    changed = np.flatnonzero((forged.values != good).any(axis=1))
    assert changed.tolist() == forged.rows.tolist()
    assert changed.max() * len(statement.cells) < FOLD


# ---- verdicts --------------------------------------------------------------------------------


def test_the_code_as_it_is_refuses_all_of_them() -> None:
    """One party that computes and one that does not; nothing is opened, so nothing is refuted."""
    assert dishonest_parties(PAIR) == ["a", "d"]
    found = audit_forgeries(PAIR, TRIALS, seed=1)
    assert found.holds
    assert (found.statistic, found.mu_low) == ("refused", 0.0)
    assert found.trials == 2 * len(FORGERIES) * 2


@pytest.mark.parametrize("dealer", ["a", "d"], ids=["computes", "does not compute"])
@pytest.mark.parametrize("fault", PROOF_FAULTS, ids=lambda fault: fault.name)
def test_each_fault_in_the_check_of_cells_is_found(fault: ProofFault, dealer: str) -> None:
    with fault.plant():
        found = audit_forgery(PAIR, dealer, NAMED[fault.forgery], TRIALS, seed=1)
    assert found is not None
    assert found.statistic != "refused"
    assert not found.holds
    assert found.mu_low > 2.0 * found.mu


def test_a_party_cannot_attack_its_own_block() -> None:
    with pytest.raises(SettingsError, match="its own replaced block"):
        audit_forgery(PAIR, "b", FORGERIES[0], TRIALS)


# ---- faults in noise and bounds of verified sums -----------------------------------------------


@pytest.mark.parametrize("plant", [halve_scales, understate_bounds], ids=["noise halved", "mean squares for the bound"])
def test_too_little_noise_on_verified_sums_is_found(plant: Callable[[], AbstractContextManager[Any]]) -> None:
    """With one compute party that adds none: the claim holds exactly, and half the noise or 2/3 of a bound break it."""
    plan = complete_plan(2.0)
    settings: dict[str, Any] = {"seed": 3, "copies": 400, "noises": {"b": none}}
    assert audit_sums(without_tables(replaced_record(plan)), 800, **settings).holds
    with plant():
        found = audit_sums(without_tables(replaced_record(plan)), 800, **settings)
    assert not found.holds
