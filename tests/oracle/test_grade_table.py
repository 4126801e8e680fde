"""Readings that are computed when they are asked for, against ones that are looked up subject by subject."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from verticopula.stats import grade_table
from verticopula.stats.em import gather_moments
from verticopula.stats.grade_table import GradeTable

Q, POINTS = 5, 33
IN_MEMORY = 10**9


def make_grades(n: int, seed: int) -> tuple[list[NDArray[np.float64]], list[NDArray[np.bool_]]]:
    """Grades of those with a value, beyond the grid, too; two latents share their subjects, one has nobody's."""
    rng = np.random.default_rng(seed)
    shares = np.array([1.0, 0.5, 0.5, 0.7, 0.0])
    drawn = rng.random((n, Q)) < shares
    drawn[:, 2] = drawn[:, 1]
    masks = [np.ascontiguousarray(mask) for mask in drawn.T]
    return [rng.uniform(-2.0, 3.0, int(mask.sum())) for mask in masks], masks


def naive_readings(
    grades: list[NDArray[np.float64]],
    masks: list[NDArray[np.bool_]],
    grids: NDArray[np.float64],
    heights: NDArray[np.float64],
    informative: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """(N, q) one subject after the other."""
    full = np.zeros((masks[0].size, Q))
    for j in np.flatnonzero(informative).tolist():
        left = iter(grades[j])
        for i in np.flatnonzero(masks[j]).tolist():
            full[i, j] = np.interp(next(left), grids[j], heights[j])
    return full


@pytest.mark.parametrize("informative", [[True] * Q, [True, False, True, True, False], [False] * Q], ids=str)
@pytest.mark.parametrize("n", [1, 90])
@pytest.mark.parametrize("in_memory", [IN_MEMORY, 0], ids=["held", "on disk"])
def test_readings_are_those_of_each_subject(
    n: int, informative: list[bool], in_memory: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grade_table, "ROWS_IN_MEMORY", in_memory)
    monkeypatch.setattr(grade_table, "SUBJECTS_AT_ONCE", 7)
    monkeypatch.setattr(grade_table, "_BLOCKS_IN_MEMORY", 2)
    rng, used = np.random.default_rng(n), np.array(informative)
    grades, masks = make_grades(n, n)
    grids = np.stack([np.linspace(-low, 1.0 + low, POINTS) for low in rng.random(Q)])
    heights = np.cumsum(rng.random((Q, POINTS)), axis=1)
    table = GradeTable.of(grades, masks, grids, used)
    assert not table.fill().any()
    for j in range(Q):
        table.set_heights(j, heights[j])
    expected = naive_readings(grades, masks, grids, heights, used)
    np.testing.assert_allclose(table.fill(), expected, rtol=1e-13, atol=1e-13)
    assert table.shape == expected.shape
    seen, met = np.array(masks).T & used, np.zeros(n, dtype=np.int64)
    for pattern in table.patterns:
        met[pattern.rows] += 1
        np.testing.assert_array_equal(seen[pattern.rows][:, pattern.observed], True)
        np.testing.assert_array_equal(seen[pattern.rows][:, pattern.missing], False)
        blocks = np.concatenate(list(table.blocks(pattern)), axis=1)
        np.testing.assert_allclose(blocks, expected[np.ix_(pattern.rows, pattern.observed)].T, rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(met, 1)


def test_moments_are_the_same_numbers_from_memory_and_from_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    grades, masks = make_grades(5_000, 3)
    grids = np.tile(np.linspace(-1.0, 2.0, POINTS), (Q, 1))
    found = []
    for in_memory in (IN_MEMORY, 0):
        monkeypatch.setattr(grade_table, "ROWS_IN_MEMORY", in_memory)
        table = GradeTable.of(grades, masks, grids, np.array([True] * Q))
        for j in range(Q):
            table.set_heights(j, np.sqrt(np.arange(POINTS) + j))
        found.append(gather_moments(table, table.patterns))
    for held, stored in zip(*found, strict=True):
        np.testing.assert_array_equal(held.means, stored.means)
        np.testing.assert_array_equal(held.products, stored.products)
