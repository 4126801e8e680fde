"""Pooled cells: total mass is kept, no pooled cell is rare, and what was pooled comes back by its margin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verticopula.stats.tilting.pooling import pool_column, restore_cells

MASSES = st.lists(st.floats(0.0, 1.0), min_size=2, max_size=220).filter(lambda masses: sum(masses) > 1e-3)


def shares_of(masses: list[float]) -> np.ndarray:
    p = np.array(masses)
    return p / p.sum()


@settings(max_examples=200, deadline=None)
@given(MASSES, st.booleans(), st.booleans(), st.integers(2, 16), st.floats(0.0, 0.1))
def test_mass_is_kept_and_there_are_few_cells(
    masses: list[float], ordered: bool, may_be_empty: bool, most: int, least: float
) -> None:
    p = shares_of(masses if not may_be_empty or len(masses) > 2 else [*masses, 0.5])
    column = pool_column(p, ordered=ordered, may_be_empty=may_be_empty, least_share=least, most_cells=most)
    assert column.shares.sum() == pytest.approx(1.0)
    assert 2 <= column.n_cells <= most + may_be_empty
    assert set(column.groups) == set(range(column.n_cells))
    if ordered:
        assert (np.diff(column.groups[: p.size - may_be_empty]) >= 0).all()


@settings(max_examples=100, deadline=None)
@given(MASSES, st.booleans(), st.floats(0.0, 0.1))
def test_no_pooled_cell_is_rare_where_there_are_more_than_two(masses: list[float], ordered: bool, least: float) -> None:
    column = pool_column(shares_of(masses), ordered=ordered, least_share=least, most_cells=16)
    if column.n_cells > 2:
        assert column.shares.min() >= least - 1e-12


@pytest.mark.parametrize("ordered", [True, False])
def test_two_hundred_categories_with_unused_ones(ordered: bool) -> None:
    p = np.concatenate([np.geomspace(1.0, 1e-4, 150), np.zeros(50)])
    p = np.random.default_rng(0).permutation(p / p.sum())
    column = pool_column(p, ordered=ordered, least_share=0.005, most_cells=16)
    assert column.n_cells <= 16
    assert column.shares.min() >= 0.005


def test_common_categories_keep_their_order_and_rare_ones_share_the_last_cell() -> None:
    column = pool_column(np.array([0.3, 0.004, 0.39, 0.006, 0.3]), ordered=False, least_share=0.01, most_cells=16)
    assert column.groups.tolist() == [0, 3, 1, 3, 2]


def test_a_frequent_value_stays_alone_among_rare_neighbours() -> None:
    p = np.full(64, 0.5 / 63)
    p[20] = 0.5
    column = pool_column(p, ordered=True, least_share=0.01, most_cells=12)
    assert (column.groups == column.groups[20]).sum() == 1


def test_an_empty_value_has_a_cell_of_its_own_unless_it_is_rare() -> None:
    frequent = pool_column(np.array([0.5, 0.3, 0.2]), ordered=True, may_be_empty=True, least_share=0.01, most_cells=8)
    assert frequent.empty
    assert frequent.groups.tolist() == [0, 1, 2]
    rare = pool_column(np.array([0.6, 0.399, 0.001]), ordered=True, may_be_empty=True, least_share=0.01, most_cells=8)
    assert not rare.empty
    assert rare.groups.tolist() == [0, 1, 0]


@pytest.mark.parametrize("ordered", [True, False])
def test_restored_cells_have_the_released_margin(ordered: bool) -> None:
    rng = np.random.default_rng(1)
    p = rng.dirichlet(np.full(40, 0.3))
    p[:5] = 0.0
    p /= p.sum()
    column = pool_column(p, ordered=ordered, least_share=0.03, most_cells=8)
    n = 200_000
    pooled = rng.choice(column.n_cells, n, p=column.shares)
    cells, inside = restore_cells(column, pooled, rng.random(n))
    found = np.bincount(cells, minlength=p.size) / n
    assert (column.groups[cells] == pooled).all()
    assert found[p == 0.0].sum() == 0.0
    assert np.abs(found - p).max() < 5.0 * np.sqrt(p.max() / n)
    assert 0.0 <= inside.min() <= inside.max() <= 1.0


def test_an_ordered_columns_cells_grow_with_the_position() -> None:
    column = pool_column(np.full(20, 0.05), ordered=True, least_share=0.2, most_cells=8)
    position = np.linspace(0.001, 0.999, 500)
    cells, _ = restore_cells(column, np.zeros(500, dtype=np.int64), position)
    assert (np.diff(cells) >= 0).all()
    assert len(set(cells)) == (column.groups == 0).sum()
