"""A response with classes: all of its tables are opened, they sharpen the copula, and it has no latent."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtr

from benchmarks.coded_studies import simulate_opening
from verticopula.privacy.gaussian_dp import mu_of
from verticopula.stats.tilting.cell_features import make_features
from verticopula.stats.tilting.copula_estimate import plain_copula
from verticopula.stats.tilting.opening_plan import CodedColumn
from verticopula.stats.tilting.openings import OpenedGram, OpenedTable
from verticopula.stats.tilting.pair_choice import PairEvidence, select_pairs
from verticopula.stats.tilting.pooling import pool_column
from verticopula.stats.tilting.table_prior import DeviationVariance
from verticopula.stats.tilting.table_products import add_tables
from verticopula.stats.tilting.tilted_fit import split_classes
from verticopula.stats.tilting.tilted_model import decode_rows

CELLS = (2, 5, 5, 5, 4)
COLUMNS = [pool_column(np.full(c, 1.0 / c), ordered=False, least_share=0.01, most_cells=16) for c in CELLS]
PEOPLE = np.full((5, 5), 10_000.0)


def test_all_tables_of_a_response_with_classes_are_opened() -> None:
    assert sorted(select_pairs([], COLUMNS, PEOPLE, 1.0, 100, response=0)) == [(0, 1), (0, 2), (0, 3), (0, 4)]
    assert sorted(select_pairs([], COLUMNS, PEOPLE, 1.0, 100, response=4)) == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert select_pairs([], COLUMNS, PEOPLE, 1.0, 100, response=1) == []  # five cells are no classes
    assert select_pairs([], COLUMNS, PEOPLE, 1.0, 100) == []


def test_others_come_after_them_and_all_together_stay_within_the_most() -> None:
    known = [PairEvidence((1, 2), DeviationVariance(1.0, 50.0)), PairEvidence((0, 3), DeviationVariance(0.5, 9.0))]
    chosen = select_pairs(known, COLUMNS, PEOPLE, 1.0, 100, response=0)
    assert chosen[0] == (0, 3)
    assert chosen[-1] == (1, 2)
    assert len(chosen) == len(set(chosen)) == 5
    assert select_pairs(known, COLUMNS, PEOPLE, 1.0, 2, response=0) == [(0, 3), (0, 1)]


def test_a_table_of_nobody_is_not_opened() -> None:
    people = PEOPLE.copy()
    people[0, 2] = people[2, 0] = 0.0
    assert (0, 2) not in select_pairs([], COLUMNS, people, 1.0, 100, response=0)


def test_products_are_averaged_with_what_a_table_says_by_their_noise() -> None:
    """Errors over many draws of both noises against the standard deviations that are reported."""
    rng = np.random.default_rng(0)
    columns = [
        pool_column(shares, ordered=True, least_share=0.01, most_cells=16)
        for shares in (np.array([0.8, 0.2]), np.array([0.5, 0.2, 0.2, 0.1]))
    ]
    features = [make_features(column, 1.0, centred=True) for column in columns]
    joint = np.outer(columns[0].shares, columns[1].shares)
    joint += 0.03 * np.outer([1.0, -1.0], [1.0, 0.0, 0.0, -1.0])
    left, right = features[0].table, features[1].table
    width, total = left.shape[1] + right.shape[1], 5_000.0
    truth = left.T @ joint @ right
    exact = np.zeros((width, width))
    exact[: left.shape[1], left.shape[1] :] = total * truth
    errors, reported = [], np.zeros(0)
    for _ in range(4_000):
        noisy = exact + rng.normal(0.0, 100.0, exact.shape)
        gram = OpenedGram(noisy, 100.0, np.full((2, 2), total), np.full((2, 2), total))
        table = OpenedTable((0, 1), joint + rng.normal(0.0, 0.01, joint.shape), 0.01, 5_000)
        both = add_tables(gram, features, columns, np.array([0, 1]), [table])
        errors.append(both.matrix[: left.shape[1], left.shape[1] :] / total - truth)
        reported = both.noise_at(np.arange(left.shape[1]), np.arange(left.shape[1], width)) / total
    found = np.std(errors, axis=0)
    assert found == pytest.approx(reported, rel=0.06)  # five standard errors of a deviation from 4,000 draws
    assert np.abs(np.mean(errors, axis=0)).max() < 5.0 * reported.max() / math.sqrt(4_000)
    assert (reported < 100.0 / total).all()


def test_the_copula_without_a_column_is_that_of_the_others() -> None:
    correlation = np.array([[1.0, 0.5, 0.2], [0.5, 1.0, 0.1], [0.2, 0.1, 1.0]])
    copula = plain_copula(np.array([True, False, True, True]), correlation, {1: np.arange(6.0).reshape(2, 3)})
    less = copula.without(2)
    assert less.latent_of.tolist() == [0, -1, -1, 1]
    assert np.array_equal(less.correlation, correlation[np.ix_([0, 2], [0, 2])])
    assert np.array_equal(less.shifts[1], [[0.0, 2.0], [3.0, 5.0]])
    assert copula.without(1) is copula


def atom_study(n: int) -> tuple[np.ndarray, list[CodedColumn]]:
    """A spike in three quarters of the rows, which alone decides on the response; the third follows its latent."""
    rng = np.random.default_rng(1)
    spiked = rng.standard_normal(n)
    other = 0.7 * spiked + math.sqrt(1.0 - 0.49) * rng.standard_normal(n)
    cells = np.searchsorted([0.7, 0.9, 1.2, 1.6], spiked)
    response = (rng.random(n) < np.where(cells == 0, 0.05, 0.6)).astype(np.int64)
    codes = np.column_stack([cells, np.minimum((8 * ndtr(other)).astype(np.int64), 7), response])
    return codes, [CodedColumn(5, True, 0), CodedColumn(8, True, 1), CodedColumn(2, True, 1)]


def slope_in_the_spike(codes: np.ndarray) -> float:
    """How much more frequent the response is in the upper half of the other column, among those in the spike."""
    inside, upper = codes[:, 0] == 0, codes[:, 1] >= 4
    return float(codes[inside & upper, 2].mean() - codes[inside & ~upper, 2].mean())


def test_the_response_does_not_depend_on_latents_inside_of_a_spike() -> None:
    codes, coded = atom_study(40_000)
    slopes = {}
    for response in (2, None):
        rng = np.random.default_rng(2)
        opened = simulate_opening(codes, coded, mu_of(50.0, 1e-6), rng=rng, response=response)
        fit = opened.fit(40_000, rng=rng)
        slopes[response] = slope_in_the_spike(decode_rows(fit.model, fit.rows, rng)[0])
        assert (fit.model.latent_of[2] < 0) == (response == 2)
    assert abs(slope_in_the_spike(codes)) < 0.01
    assert abs(slopes[2]) < 0.02
    assert slopes[None] > 0.03  # what the latent made of it


def test_the_response_keeps_its_latent_where_no_tables_are_opened() -> None:
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 2, (2_000, 4))
    opened = simulate_opening(
        codes, [CodedColumn(2, True, j % 2) for j in range(4)], mu_of(3.0, 1e-6), rng=rng, response=3
    )
    assert opened.chosen.classes is None
    copula, fixed = split_classes(opened.settled)
    assert copula.latent_of[3] >= 0
    assert fixed == {}
