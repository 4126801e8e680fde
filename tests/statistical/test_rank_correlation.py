"""Debiased ranks and pairwise Spearman: bias and stated variance, from replicates."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tests.builders import correlated_normals
from verticopula.privacy.coins import flip_probability
from verticopula.privacy.noise import Keystream, SeededNoise
from verticopula.stats.correlation import PairwiseSpearman, spearman_pairwise
from verticopula.stats.ranks import debias_ranks, flip_comparisons, rank_noise_variance

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

Z_LIMIT = 5.0  # two-sided, 6e-7 per comparison


def z_score(replicates: Floats, wanted: float) -> float:
    return float((replicates.mean() - wanted) / (replicates.std(ddof=1) / math.sqrt(replicates.size)))


def tied_share(values: Floats) -> float:
    counts = np.unique(values, return_counts=True)[1]
    return float(np.sum(counts * (counts - 1)) / (values.size * (values.size - 1)))


def grade_variance(values: Floats) -> float:
    counts = np.unique(values, return_counts=True)[1] / values.size
    return float(1 - np.sum(counts**3)) / 12


def make_columns(n: int, rng: np.random.Generator) -> dict[str, Floats]:
    z = correlated_normals(np.full((4, 4), 0.5) + 0.5 * np.eye(4), n, rng)
    return {
        "continuous": z[:, 0],
        "continuous too": z[:, 1],
        "ordinal": np.digitize(z[:, 2], [-1, 0, 0.8]).astype(np.float64),
        "binary": (z[:, 3] > 0.5).astype(np.float64),
    }


@pytest.mark.parametrize("name", ["continuous", "ordinal", "binary"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_debiased_ranks_are_right_on_average_with_the_stated_variance(name: str, epsilon: float) -> None:
    n, times = 60, 2_000
    values = make_columns(n, np.random.default_rng(0))[name]
    theta = flip_probability(epsilon)
    keystream = SeededNoise(50).stream(name, str(epsilon))
    drawn = np.array([debias_ranks(flip_comparisons(values, epsilon, keystream), theta) for _ in range(times)])
    true = stats.rankdata(values)
    errors = drawn - true
    z = errors.mean(axis=0) / (errors.std(axis=0, ddof=1) / math.sqrt(times))
    assert np.max(np.abs(z)) < Z_LIMIT
    stated = rank_noise_variance(n, theta, tied_share(values))
    assert abs(z_score((errors**2).mean(axis=1), stated)) < Z_LIMIT


def estimate(
    columns: list[Floats], masks: list[Bools], epsilons: list[float], keystream: Keystream
) -> PairwiseSpearman:
    """Ranks to correlations, as the coordinator does it, with exact marginals."""
    n_subjects, q = columns[0].size, len(columns)
    grades, seen = np.zeros((n_subjects, q)), np.column_stack(masks)
    noise, spread = np.zeros(q), np.zeros(q)
    for j, (column, mask, epsilon) in enumerate(zip(columns, masks, epsilons, strict=True)):
        values, n, theta = column[mask], int(mask.sum()), flip_probability(epsilon)
        debiased = debias_ranks(flip_comparisons(values, epsilon, keystream), theta)
        grades[mask, j] = (debiased - (n + 1) / 2) / n
        noise[j] = rank_noise_variance(n, theta, tied_share(values)) / n**2
        spread[j] = grade_variance(values)
    return spearman_pairwise(grades, seen, noise, spread)


def noiseless(a: Floats, b: Floats) -> float:
    n = a.size
    ranks = [stats.rankdata(column) - (n + 1) / 2 for column in (a, b)]
    return float(12 / (n * (n * n - 1)) * np.sum(ranks[0] * ranks[1]))


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize(
    ("first", "second"),
    [("continuous", "continuous too"), ("continuous", "binary"), ("ordinal", "binary"), ("continuous", "ordinal")],
)
def test_complete_data_give_the_inner_product_back_with_the_stated_variance(
    first: str, second: str, epsilon: float
) -> None:
    n, times = 150, 800
    columns = make_columns(n, np.random.default_rng(1))
    pair = [columns[first], columns[second]]
    everybody = [np.ones(n, dtype=bool)] * 2
    keystream = SeededNoise(51).stream(first, second, str(epsilon))
    found = [estimate(pair, everybody, [epsilon, 0.7 * epsilon], keystream) for _ in range(times)]
    errors = np.array([f.rho[0, 1] for f in found]) - noiseless(*pair)
    assert abs(z_score(errors, 0.0)) < Z_LIMIT
    stated = found[0].variance[0, 1]
    # The grades' own noise varies from subject to subject where there are ties, hence 3 % beside the error.
    assert abs(np.mean(errors**2) / stated - 1) < 0.03 + Z_LIMIT * math.sqrt(2 / times) * math.sqrt(1.5)


def test_the_coins_variance_is_the_notes_formula() -> None:
    n, epsilon = 400, 0.3
    theta = flip_probability(epsilon)
    columns = make_columns(n, np.random.default_rng(2))
    found = estimate(
        [columns["continuous"], columns["continuous too"]],
        [np.ones(n, dtype=bool)] * 2,
        [epsilon] * 2,
        SeededNoise(52).stream("x"),
    )
    c = theta * (1 - theta) / (1 - 2 * theta) ** 2
    assert found.variance[0, 1] == pytest.approx(24 * c / n**2 + 144 * c**2 / n**3, rel=3 / n)
    assert found.overlap[0, 1] == n


@pytest.mark.parametrize("r", [0.0, 0.6])
@pytest.mark.parametrize("epsilon", [0.4, 3.0])
def test_pairwise_complete_data_are_unbiased_when_missing_completely_at_random(r: float, epsilon: float) -> None:
    n, times = 250, 400
    rng = np.random.default_rng(3)
    keystream = SeededNoise(53).stream("mcar", str(r), str(epsilon))
    errors, standard = np.zeros(times), np.zeros(times)
    for k in range(times):
        z = correlated_normals(np.array([[1, r], [r, 1]]), n, rng)
        masks = [rng.random(n) < share for share in (0.8, 0.6)]
        found = estimate([z[:, 0], z[:, 1]], masks, [epsilon] * 2, keystream)
        errors[k] = found.rho[0, 1] - noiseless(z[:, 0], z[:, 1])  # what missing people and coins did
        standard[k] = errors[k] / math.sqrt(found.variance[0, 1])
    # Normalising by an estimated variance leaves a bias of the order 1/overlap (here 120).
    assert abs(errors.mean()) < 1 / 120 + Z_LIMIT * errors.std() / math.sqrt(times)
    # The sampling part is the normal-theory figure; Spearman's own is up to 15 % off.
    assert abs(np.mean(standard**2) - 1) < 0.2 + Z_LIMIT * np.std(standard**2) / math.sqrt(times)


def test_a_selected_overlap_is_centred_and_scaled_by_itself() -> None:
    """Both columns depend on what selects them; without coins this is the correlation of grades on the overlap."""
    n = 600
    rng = np.random.default_rng(6)
    selector = rng.standard_normal(n)
    columns = [selector + rng.standard_normal(n), selector + rng.standard_normal(n)]
    masks = [selector > -0.5, selector < 0.5]
    both = masks[0] & masks[1]
    grades = []
    for column, mask in zip(columns, masks, strict=True):
        ranks = np.full(n, np.nan)
        ranks[mask] = stats.rankdata(column[mask])
        grades.append(ranks[both])
    assert abs(np.mean(grades[0]) / masks[0].sum() - 0.5) > 0.1  # the overlap is lopsided
    found = estimate(columns, masks, [30.0, 30.0], SeededNoise(56).stream("selected"))
    assert found.rho[0, 1] == pytest.approx(np.corrcoef(grades)[0, 1], abs=1e-4)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.1, 0.3)])
def test_independent_binary_columns_stay_uncorrelated(shares: tuple[float, float]) -> None:
    """Breaking ties by row number would give a correlation near 1 - (9/12 for shares of one half)."""
    n, times = 200, 500
    rng = np.random.default_rng(4)
    keystream = SeededNoise(54).stream("binary", str(shares))
    everybody = [np.ones(n, dtype=bool)] * 2
    found = np.array(
        [
            estimate([(rng.random(n) < p).astype(np.float64) for p in shares], everybody, [2.0, 2.0], keystream).rho[
                0, 1
            ]
            for _ in range(times)
        ]
    )
    assert abs(z_score(found, 0.0)) < Z_LIMIT
    assert found.std() < 0.1


def test_columns_without_common_subjects_do_not_break_the_others() -> None:
    n = 40
    rng = np.random.default_rng(5)
    columns = [rng.standard_normal(n) for _ in range(3)]
    first_half = np.arange(n) < n // 2
    masks = [first_half, ~first_half, np.ones(n, dtype=bool)]
    found = estimate(columns, masks, [5.0] * 3, SeededNoise(55).stream("apart"))
    assert found.overlap[0, 1] == 0
    assert np.all(np.isfinite(found.rho))
    assert np.all(np.isfinite(found.variance))
