"""Tables read from noisy ranks, against simulation and against expectation-maximisation written out."""

from __future__ import annotations

import numpy as np
import pytest

from verticopula.schema.columns import Column
from verticopula.stats.marginals import Marginal
from verticopula.stats.tilted_ranks.rank_tables import (
    ReadColumn,
    _read_nominal,
    _read_ordered,
    category_confusion,
    deconvolve,
    margin_scale,
    rake,
    read_rank_tables,
)
from verticopula.stats.tilting.pooling import pool_column

BLURRED = np.array([[0.8, 0.2, 0.0], [0.1, 0.7, 0.2], [0.0, 0.25, 0.75]])
SHARP = np.array([[0.95, 0.05], [0.1, 0.9]])
TRUE = np.array([[0.2, 0.05], [0.1, 0.25], [0.05, 0.35]])


def naive_em(counts: np.ndarray, first: np.ndarray, second: np.ndarray, steps: int = 500) -> np.ndarray:
    """The most likely table, cell by cell."""
    table = np.full((len(first), len(second)), 1.0 / (len(first) * len(second)))
    for _ in range(steps):
        grown = np.zeros_like(table)
        for k in range(first.shape[1]):
            for m in range(second.shape[1]):
                chance = np.array(
                    [[table[i, j] * first[i, k] * second[j, m] for j in range(len(second))] for i in range(len(first))]
                )
                grown += counts[k, m] * chance / chance.sum()
        table = grown / grown.sum()
    return table


def test_the_true_table_comes_back_from_what_is_read_on_average() -> None:
    shares, _ = deconvolve(BLURRED.T @ TRUE @ SHARP, np.zeros((3, 2)), BLURRED, SHARP)
    np.testing.assert_allclose(shares, TRUE, atol=1e-12)


def test_it_is_the_most_likely_table_where_no_cell_is_negative() -> None:
    rng = np.random.default_rng(1)
    counts = rng.multinomial(20_000, (BLURRED.T @ TRUE @ SHARP).ravel()).reshape(3, 2).astype(float)
    shares, _ = deconvolve(counts, counts, BLURRED, SHARP)
    assert shares.min() > 0.0
    np.testing.assert_allclose(shares, naive_em(counts, BLURRED, SHARP), atol=1e-6)


def test_its_variance_is_that_of_many_samples() -> None:
    rng = np.random.default_rng(2)
    chances = (BLURRED.T @ TRUE @ SHARP).ravel()
    drawn = rng.multinomial(2_000, chances, size=4_000).reshape(-1, 3, 2).astype(float)
    found = np.array([deconvolve(counts, counts, BLURRED, SHARP)[0] for counts in drawn])
    _, variance = deconvolve(2_000.0 * chances.reshape(3, 2), 2_000.0 * chances.reshape(3, 2), BLURRED, SHARP)
    # The relative error of a variance from m samples is about sqrt(2/m): four of those.
    np.testing.assert_allclose(found.var(axis=0), variance, rtol=4.0 * np.sqrt(2.0 / len(found)))


def test_confusion_of_categories_is_that_of_simulated_grades() -> None:
    rng = np.random.default_rng(3)
    p, deviations, n = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.25, 0.3]), 200_000
    expected = category_confusion(p, deviations)
    for true in range(3):
        middles = (1.0 - p) / 2.0 + 0.5 * (np.arange(3) == true)
        grades = [m + d * rng.standard_normal(n) for m, d in zip(middles, deviations, strict=True)]
        read, pooled = _read_nominal(p, np.arange(3), grades, deviations)
        np.testing.assert_allclose(pooled, expected, atol=1e-12)
        shares = np.bincount(read, minlength=3) / n
        np.testing.assert_allclose(shares, expected[true], atol=4.0 * np.sqrt(0.25 / n))


@pytest.mark.parametrize("kind", ["ordinal", "continuous"])
def test_confusion_of_ordered_cells_is_that_of_simulated_grades(kind: str) -> None:
    rng = np.random.default_rng(4)
    p, groups, deviation, n = np.array([0.3, 0.1, 0.4, 0.2]), np.array([0, 0, 1, 2]), 0.05, 200_000
    bounds = {"bounds": (0.0, 1.0)} if kind == "continuous" else {"categories": (0, 1, 2, 3)}
    margin = Marginal(Column(name="x", kind=kind, **bounds), p, 0.0)
    cells = rng.choice(4, n, p=p)
    below = np.concatenate([[0.0], np.cumsum(p)])[cells]
    inside = rng.random(n) if kind == "continuous" else 0.5
    read, confusion = _read_ordered(
        margin, groups, below + inside * p[cells] + deviation * rng.standard_normal(n), deviation
    )
    for true in range(3):
        own = read[groups[cells] == true]
        np.testing.assert_allclose(
            np.bincount(own, minlength=3) / own.size, confusion[true], atol=4.0 * np.sqrt(0.25 / own.size)
        )


def _read(cells: np.ndarray, shares: np.ndarray) -> ReadColumn:
    column = pool_column(shares, ordered=True, least_share=0.0, most_cells=16)
    return ReadColumn(column, cells, np.eye(shares.size))


def test_weights_give_the_base_the_shares_it_has_among_everybody() -> None:
    rng = np.random.default_rng(5)
    base = [rng.integers(3, size=5_000), rng.integers(2, size=5_000)]
    rows = np.flatnonzero(rng.random(5_000) < np.where(base[0] == 2, 0.4, 0.8) * np.where(base[1] == 1, 0.7, 1.0))
    weights = rake([_read(own, np.bincount(own) / own.size) for own in base], rows, 5_000)
    for own in base:
        found = np.bincount(own[rows], weights=weights) / weights.sum()
        np.testing.assert_allclose(found, np.bincount(own) / own.size, atol=1e-6)


def test_a_table_is_that_of_everybody_though_a_third_column_selects() -> None:
    rng = np.random.default_rng(6)
    n = 40_000
    base = rng.integers(2, size=n)
    first = (rng.random(n) < np.where(base, 0.8, 0.2)).astype(np.int64)
    second = (rng.random(n) < np.where(base, 0.8, 0.2)).astype(np.int64)
    known = rng.random(n) < np.where(base, 0.3, 0.9)
    columns = [_read(np.where(known, own, -1), np.array([0.5, 0.5])) for own in (first, second)]
    reading = read_rank_tables([*columns, _read(base, np.array([0.5, 0.5]))])[0]
    truth = np.array([[0.34, 0.16], [0.16, 0.34]])
    assert reading.pair == (0, 1)
    np.testing.assert_allclose(reading.values, truth, atol=4.0 * np.sqrt(0.25 / reading.people))


def test_scaling_brings_a_table_to_its_margins() -> None:
    table = np.array([[0.3, 0.2], [0.1, 0.4]])
    scaled = table * margin_scale(table, np.array([0.4, 0.6]), np.array([0.5, 0.5]), 1e6)
    np.testing.assert_allclose(scaled.sum(axis=1), [0.4, 0.6], atol=1e-6)
    np.testing.assert_allclose(scaled.sum(axis=0), [0.5, 0.5], atol=1e-6)
    assert scaled[0, 0] * scaled[1, 1] / (scaled[0, 1] * scaled[1, 0]) == pytest.approx(6.0)
