"""Which pairs are chosen, how rows are weighted, and sums of products against naive loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from verticopula.data.missingness import unique_masks
from verticopula.simulate.strict_openings import simulate_gram
from verticopula.stats.tilting.cell_features import make_features
from verticopula.stats.tilting.opening_plan import CodedColumn, plan_openings
from verticopula.stats.tilting.openings import OpenedGram, gram_deviation
from verticopula.stats.tilting.pair_choice import PairEvidence, select_pairs
from verticopula.stats.tilting.pooling import pool_column
from verticopula.stats.tilting.population_fit import BudgetSplit, fit_population
from verticopula.stats.tilting.row_weights import choose_row_weights
from verticopula.stats.tilting.table_prior import DeviationVariance, fit_deviation_variance
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING

COLUMNS = [pool_column(np.full(5, 0.2), ordered=False, least_share=0.01, most_cells=16) for _ in range(6)]
PEOPLE = np.full((6, 6), 10_000.0)


def evidence_of(*spreads: float, evidence: float = 50.0) -> list[PairEvidence]:
    return [PairEvidence((0, b + 1), DeviationVariance(squared, evidence)) for b, squared in enumerate(spreads)]


def test_pairs_without_evidence_are_never_chosen() -> None:
    assert select_pairs(evidence_of(1.0, 1.0, evidence=0.5), COLUMNS, PEOPLE, 1.0, 100) == []
    assert select_pairs([], COLUMNS, PEOPLE, 1.0, 100) == []
    nobody = np.zeros((6, 6))
    assert select_pairs(evidence_of(1.0, 1.0), COLUMNS, nobody, 1.0, 100) == []


def test_the_strongest_pair_comes_first_and_noise_limits_their_number() -> None:
    known = evidence_of(0.01, 0.3, 0.02, 0.01, 0.01)
    quiet = select_pairs(known, COLUMNS, PEOPLE, 5.0, 100)
    assert quiet[0] == (0, 2)
    assert len(quiet) == 5
    noisy = select_pairs(known, COLUMNS, PEOPLE, 0.05, 100)
    assert noisy[0] == (0, 2)
    assert len(noisy) < 5
    assert len(select_pairs(known, COLUMNS, PEOPLE, 5.0, 2)) == 2


def test_pairs_of_the_response_count_more() -> None:
    known = evidence_of(0.02, 0.03, 0.02)
    assert select_pairs(known, COLUMNS, PEOPLE, 0.1, 1) == [(0, 2)]
    assert select_pairs(known, COLUMNS, PEOPLE, 0.1, 1, response=3) == [(0, 3)]


def test_spread_is_found_where_there_is_one() -> None:
    rng = np.random.default_rng(0)
    sizes = rng.uniform(0.5, 2.0, 400)
    for true in (0.03, 0.5, 4.0):
        squares = (rng.standard_normal(400) * np.sqrt(true * sizes + 0.01)) ** 2
        assert fit_deviation_variance(squares, sizes, 0.01).squared == pytest.approx(true, rel=0.5)
    nothing = fit_deviation_variance((rng.standard_normal(400) * 0.1) ** 2, sizes, 0.01)
    assert nothing.squared <= 0.002
    assert nothing.evidence < 3.0


def test_weighted_records_have_the_allowed_length_and_rare_parties_more_of_it() -> None:
    rng = np.random.default_rng(1)
    known = rng.random((5_000, 3)) < np.array([0.1, 0.8, 1.0])
    known[:, 2] = True
    longest = np.array([4.0, 4.0, 8.0])
    patterns, pattern_of, counts = unique_masks(known)
    assert (patterns[pattern_of] == known).all()
    weights = choose_row_weights(patterns, counts, longest, np.array([4, 4, 8]), 2.0)[pattern_of]
    assert (weights[~known] == 0.0).all()
    np.testing.assert_allclose((weights**2 @ longest)[known.any(axis=1)], 1.0)
    all_three = known.all(axis=1)
    squared = (weights[all_three] ** 2)[0]
    assert squared[0] > squared[1] > squared[2]


@pytest.mark.parametrize("noise", [2.0, 30.0, 500.0])
def test_the_search_for_weights_is_as_good_as_a_general_optimiser(noise: float) -> None:
    rng = np.random.default_rng(3)
    patterns, _, counts = unique_masks(rng.random((20_000, 5)) < rng.uniform(0.1, 1.0, 5))
    longest, n_columns = rng.uniform(3.0, 30.0, 5), rng.integers(1, 15, 5)

    def weights_at(logs: np.ndarray) -> np.ndarray:
        lengths = patterns @ (np.exp(logs) * longest)
        return np.sqrt(patterns * np.exp(logs) / np.where(lengths > 0.0, lengths, 1.0)[:, None])

    def lost(u: np.ndarray) -> float:
        totals, squares = (u.T * counts) @ u, (u.T**2 * counts) @ u**2
        variance = (noise**2 + squares) / totals**2
        return float(np.sum(np.outer(n_columns, n_columns) / (1.0 / TILTED_TUNING.prior_variance + 1.0 / variance)))

    best = minimize(lambda x: lost(weights_at(x)), np.zeros(5), method="L-BFGS-B", bounds=[(-4.0, 4.0)] * 5).fun
    found = lost(choose_row_weights(patterns, counts, longest, n_columns, noise))
    assert found <= 1.005 * best
    assert found < lost(weights_at(np.zeros(5)))


def test_everybody_known_means_equal_weights() -> None:
    weights = choose_row_weights(
        np.ones((1, 2), dtype=bool), np.array([50]), np.array([3.0, 5.0]), np.array([3, 5]), 10.0
    )
    np.testing.assert_allclose(weights, np.sqrt(1.0 / 8.0))


def test_sums_of_products_against_a_loop_over_people() -> None:
    rng = np.random.default_rng(2)
    n, owners = 60, np.array([0, 0, 1])
    coded = [CodedColumn(3, True, 0), CodedColumn(4, False, 0), CodedColumn(2, True, 1)]
    margins = [np.array([0.2, 0.3, 0.5]), np.array([0.3, 0.3, 0.2, 0.2]), np.array([0.4, 0.6])]
    known = rng.random((n, 2)) < 0.7
    plan = plan_openings(coded, known, BudgetSplit(1.0, 1e12, 1.0, 0.0), margins, np.zeros(3))
    plan = replace(plan, weights=np.where(plan.patterns, np.array([0.5, 2.0]), 0.0))
    features, weights = plan.features, plan.weights[plan.pattern_of]
    pooled = np.column_stack([rng.integers(0, column.n_cells, n) for column in plan.columns])
    pooled[~known[:, 0], :2] = -1
    pooled[~known[:, 1], 2] = -1
    found = simulate_gram(pooled, plan, rng)
    expected = np.zeros(found.matrix.shape)
    for i in range(n):
        record = []
        for j, f in enumerate(features):
            own = f.table[pooled[i, j]] if pooled[i, j] >= 0 else np.zeros(f.table.shape[1])
            record += (weights[i, owners[j]] * own).tolist()
        expected += np.outer(record, record)
    np.testing.assert_allclose(found.matrix, expected, atol=1e-8)
    assert found.totals[0, 1] == pytest.approx(float((known[:, 0] & known[:, 1]).sum()))
    longest = 0.25 * (features[0].largest + features[1].largest) + 4.0 * features[2].largest
    assert found.deviation == pytest.approx(gram_deviation(longest, 1e12))


@pytest.mark.parametrize("r", [-0.8, 0.0, 0.4, 0.9])
def test_the_copula_of_many_people_without_noise_is_theirs(r: float) -> None:
    rng = np.random.default_rng(3)
    n = 200_000
    latent = rng.standard_normal((n, 2)) @ np.linalg.cholesky(np.array([[1.0, r], [r, 1.0]])).T
    cuts = (np.array([-1.0, 0.3, 1.2]), np.array([0.8]))
    pooled = np.column_stack([np.searchsorted(cut, latent[:, j]) for j, cut in enumerate(cuts)])
    coded = [CodedColumn(cut.size + 1, True, j) for j, cut in enumerate(cuts)]
    margins = [np.bincount(pooled[:, j]) / n for j in range(2)]
    known = np.ones((n, 2), dtype=bool)
    plan = plan_openings(coded, known, BudgetSplit(1.0, 1e9, 1.0, 0.0), margins, np.zeros(2))
    gram = simulate_gram(pooled, plan, rng)
    found = fit_population(gram, plan.features, plan.columns, plan.owners, None, rng=rng).copula
    assert found.correlation[0, 1] == pytest.approx(r, abs=0.02)


def test_products_of_pure_noise_leave_columns_independent() -> None:
    rng = np.random.default_rng(4)
    columns = [pool_column(np.full(6, 1 / 6), ordered=True, least_share=0.01, most_cells=16) for _ in range(12)]
    features = [make_features(column, 1.0, centred=True) for column in columns]
    width = sum(f.table.shape[1] for f in features)
    noise = rng.normal(0.0, 300.0, (width, width))
    gram = OpenedGram(noise + noise.T, 300.0 * np.sqrt(2.0), np.full((1, 1), 1_000.0), np.full((1, 1), 1_000.0))
    found = fit_population(gram, features, columns, np.zeros(12, dtype=np.int64), None, rng=rng).copula
    assert np.abs(found.correlation - np.eye(12)).max() < 0.2
    assert np.linalg.eigvalsh(found.correlation)[0] > 0.0
