"""Schemes that draw ranks by fewer comparisons: unbiased, at the price that they say, and each pair compared once."""

from __future__ import annotations

from argparse import Namespace

import numpy as np
import pytest

from benchmarks import rank_samplers
from benchmarks.rank_samplers import ALL_COLUMNS, DELTA, EPSILONS, coin_epsilon, list_schemes, measure_scheme
from verticopula.privacy.accounting import Coins, composed_epsilon

N = 90
SCHEMES = list_schemes(N)
SURE = 40.0  # epsilon of a coin that does not flip in this world's lifetime


@pytest.mark.parametrize("name", SCHEMES)
def test_ranks_are_unbiased(name: str) -> None:
    """Over coins and public randomness."""
    values = np.random.default_rng(0).permutation(N).astype(np.float64)
    drawn = np.array([SCHEMES[name].draw(values, 2.0, np.random.default_rng(k)) for k in range(400)])
    truth = (values + 0.5) / N
    half_a_place = 0.5 / N  # with partners and members nobody is compared with themselves
    beyond = np.abs(drawn.mean(axis=0) - truth) - half_a_place
    assert (beyond <= 4.5 * drawn.std(axis=0) / np.sqrt(len(drawn))).all()


@pytest.mark.parametrize("name", [name for name in SCHEMES if name.startswith(("partners", "members"))])
def test_a_replaced_value_changes_no_more_comparisons_than_are_charged(name: str) -> None:
    """Without flips, a move from lowest to highest changes one answer of the person and one of each partner."""
    values = np.random.default_rng(1).permutation(N).astype(np.float64)
    for person in range(0, N, 7):
        moved = values.copy()
        moved[person] = -1.0 if values[person] > N / 2 else N + 1.0
        before, after = (SCHEMES[name].draw(each, SURE, np.random.default_rng(3)) for each in (values, moved))
        assert 0 < np.count_nonzero(~np.isclose(before, after)) <= 1 + SCHEMES[name].touched(N)


def test_every_partner_has_as_many_partners() -> None:
    """The largest value wins against all of them, and the sum over everybody is that of as many wins as pairs."""
    values = np.arange(N, dtype=np.float64)
    ranks = rank_samplers.draw_partners(values, SURE, np.random.default_rng(0), 40)
    assert ranks[-1] == pytest.approx(1.0)
    assert ranks[0] == pytest.approx(0.0)
    assert ranks.sum() == pytest.approx(N / 2)


@pytest.mark.parametrize("unit", EPSILONS)
@pytest.mark.parametrize("name", SCHEMES)
def test_all_schemes_cost_the_same_at_a_unit(name: str, unit: str) -> None:
    scheme, epsilon = SCHEMES[name], coin_epsilon(SCHEMES[name], unit, EPSILONS[unit], N)
    assert epsilon > 0.0
    if unit == "person":
        spent = composed_epsilon([Coins(epsilon, scheme.touched(N) * ALL_COLUMNS)], DELTA)
        assert spent == pytest.approx(EPSILONS[unit], rel=1e-3)
        assert spent <= EPSILONS[unit]
    if unit == "variable":
        assert epsilon * scheme.behind_one == pytest.approx(EPSILONS[unit])


def test_a_small_run_measures_all_schemes_at_all_units() -> None:
    settings, found = rank_samplers.run(Namespace(quick=True, people=N, repetitions=2))
    assert settings["n_subjects"] == 300
    assert set(found) == set(EPSILONS)
    assert all(case["rank"] > 0.0 for cases in found.values() for case in cases.values())
    assert measure_scheme(SCHEMES["exact"], SURE, N, 2)["rank"] == pytest.approx(0.0)
