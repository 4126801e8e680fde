"""What margins and moments may cost together, and the mechanism of the margins."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.strict_central import draw, factor_correlation, make, open_all
from verticopula.errors import SettingsError
from verticopula.mpc.sums_plan import block_factor
from verticopula.privacy.budget import StudyBudget
from verticopula.privacy.gaussian_dp import compose, mu_of
from verticopula.privacy.noise import SeededNoise
from verticopula.schema.columns import Column
from verticopula.stats.margin_cells import cell_count
from verticopula.stats.strict.gaussian_margins import (
    cell_sensitivity,
    estimate_margin,
    gaussian_cell_count,
    release_gaussian_cells,
)
from verticopula.stats.strict.noise_budget import plan_strict_budget


def study(n: int = 400, **seen):
    return make({"a": "cob", "b": "cn", "c": "bb"}, draw(factor_correlation(7), n), seen)


def price(made, budget, keys) -> float:
    """Of the margins of some columns."""
    sensitivities = [
        cell_sensitivity(gaussian_cell_count(made.federation.column(k), 400, budget.deviations[k])) for k in keys
    ]
    return compose(s / budget.deviations[k] for s, k in zip(sensitivities, keys, strict=True))


def test_all_releases_cost_a_person_what_was_asked():
    made = study(b=np.arange(400) < 90)
    opened = open_all(made, 2.0)
    sums = opened.plan.sums
    margins = price(made, opened.budget, made.federation.keys)
    spent = compose([margins, sums.mu, sums.mu_tables, sums.mu_selection])
    assert min(sums.mu, sums.mu_tables, sums.mu_selection) > 0.0
    assert spent == pytest.approx(mu_of(2.0, 1e-6), rel=1e-6)


def test_no_blocks_first_opening_costs_more_than_its_party_allows():
    made = study(b=np.arange(400) < 90)
    opened = open_all(made, 2.0, unit="block")
    sums = opened.plan.sums
    for party in made.federation.parties:
        own = [k for k in made.federation.keys if k.party == party.name]
        spent = compose([price(made, opened.budget, own), sums.mu * block_factor(sums, party.name)])
        assert spent < mu_of(2.0, 1e-6)
    assert sums.mu >= (1.0 - 1e-9) * opened.budget.parts().gram  # a block is no more than a person


def test_fewer_people_get_less_noise():
    made = study(b=np.arange(400) < 100)
    deviations = open_all(made, 1.0).budget.deviations
    rare, common = (deviations[k] for k in made.federation.keys if k.column in ("b0", "a0"))
    assert rare**2 == pytest.approx(common**2 / 4.0) or common**2 == pytest.approx(rare**2 / 4.0)


def test_only_a_persons_units_make_sense():
    made = study()
    request = StudyBudget.build(made.federation, unit="variable", epsilon=1.0, delta=None)
    with pytest.raises(SettingsError, match="whole person"):
        plan_strict_budget(made.federation, request, dict.fromkeys(made.federation.keys, 10), 10)


@pytest.mark.parametrize("n_cells", [2, 3, 7])
def test_one_replaced_value_moves_the_counted_cells_by_the_sensitivity_at_most(n_cells):
    values = np.array([0, 1, 1, n_cells - 1, 0])
    worst = 0.0
    for person in range(values.size):
        for cell in range(n_cells):
            other = values.copy()
            other[person] = cell
            counts = [np.bincount(v, minlength=n_cells)[: 1 if n_cells == 2 else n_cells] for v in (values, other)]
            worst = max(worst, float(np.linalg.norm(counts[0] - counts[1])))
    assert worst == pytest.approx(cell_sensitivity(n_cells))


def test_noise_on_cells_has_the_promised_deviation():
    cells = np.zeros(50, dtype=np.int64)
    drawn = np.array([release_gaussian_cells(cells, 40, 20.0, SeededNoise(i), "x") for i in range(100)]) - np.bincount(
        cells, minlength=40
    )
    # 4,000 draws: the standard deviation of their standard deviation is 20 / sqrt(8,000).
    assert drawn.std() == pytest.approx(math.sqrt(20.0**2 + 9.0), abs=4 * 20.0 / math.sqrt(8000))


def test_two_cells_add_up_to_the_public_number():
    noisy = release_gaussian_cells(np.array([0, 1, 1]), 2, 5.0, SeededNoise(1), "x")
    assert noisy.sum() == 3


def test_settled_margins_are_probabilities_however_large_the_noise():
    column = Column(name="x", kind="count", bounds=(0, 30))
    cells = cell_count(column, 100, 1.0)
    for seed in range(20):
        noisy = release_gaussian_cells(np.zeros(100, dtype=np.int64), cells, 500.0, SeededNoise(seed), "x")
        margin = estimate_margin(column, noisy, 100, 500.0)
        assert margin.probabilities.min() >= 0.0
        assert margin.probabilities.sum() == pytest.approx(1.0)


def test_settling_helps_a_sparse_column():
    # 30 of 41 values never occur. Mean over 50 draws; the gain is far beyond the draws' own spread.
    column = Column(name="x", kind="count", bounds=(0, 40))
    truth = np.append(0.5 ** np.arange(1, 11), np.zeros(31))
    truth /= truth.sum()
    values = np.repeat(np.arange(41), np.round(5000 * truth).astype(int))
    raw, settled = [], []
    for seed in range(50):
        noisy = release_gaussian_cells(values, 41, 60.0, SeededNoise(seed), "x")
        margin = estimate_margin(column, noisy, values.size, 60.0)
        raw.append(np.max(np.abs(np.cumsum(noisy / values.size - truth))))
        settled.append(np.max(np.abs(np.cumsum(margin.probabilities - truth))))
    assert np.mean(settled) < 0.7 * np.mean(raw)
