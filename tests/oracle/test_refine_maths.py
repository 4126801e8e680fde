"""The refinement's steps against brute force, and what the whole of it promises."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import ndtr

from tests.builders import CONTINUOUS, correlated_normals
from verticopula.data.missingness import count_common, summarise_missingness
from verticopula.privacy.budget import ColumnBudget
from verticopula.privacy.noise import SeededNoise
from verticopula.schema.columns import Column, ColumnKey
from verticopula.stats import em
from verticopula.stats.copula import Layout
from verticopula.stats.em import (
    PackedMoments,
    Pattern,
    count_together,
    em_step,
    find_patterns,
    gather_moments,
    log_likelihood,
    regress,
    start_covariance,
)
from verticopula.stats.fit_result import find_unidentified
from verticopula.stats.marginals import Marginal
from verticopula.stats.matrix_repair import keep_definite, to_correlation
from verticopula.stats.pairwise import fit_pairwise
from verticopula.stats.rank_release import RankRelease
from verticopula.stats.ranks import flip_comparisons
from verticopula.stats.refinement import Refinement, correction_errors, locate_missing, predict_latents, refine

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

THREE = np.array([[1.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 1.0]])


def random_covariance(q: int, rng: np.random.Generator) -> Floats:
    root = rng.standard_normal((q, q + 1))
    return np.asarray(root @ root.T / q + 0.05 * np.eye(q))


def random_mask(n: int, q: int, rng: np.random.Generator) -> Bools:
    return rng.random((n, q)) < rng.uniform(0.3, 1.0, q)


# ---- patterns ----------------------------------------------------------------------------


@given(n=st.integers(1, 60), q=st.integers(1, 20), seed=st.integers(0, 10_000))
def test_subjects_are_grouped_by_exactly_what_is_observed(n: int, q: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    observed = random_mask(n, q, rng)
    if q > 2:
        observed[:, 2:] = observed[:, :1]  # few patterns, far apart in the bytes
    naive: dict[tuple[bool, ...], list[int]] = {}
    for row, mask in enumerate(observed.tolist()):
        naive.setdefault(tuple(mask), []).append(row)
    found = find_patterns(observed)
    assert sorted(p.rows.tolist() for p in found) == sorted(naive.values())
    for pattern in found:
        mask = observed[pattern.rows[0]]
        np.testing.assert_array_equal(pattern.observed, np.flatnonzero(mask))
        np.testing.assert_array_equal(pattern.missing, np.flatnonzero(~mask))


def test_missingness_counts_patterns_of_parties_and_empty_cells() -> None:
    a, b, c = ColumnKey("left", "a"), ColumnKey("left", "b"), ColumnKey("right", "c")
    masks = {
        a: np.array([1, 1, 1, 0, 0, 0], dtype=bool),
        b: np.array([1, 1, 0, 0, 0, 0], dtype=bool),
        c: np.array([1, 0, 0, 1, 1, 0], dtype=bool),
    }
    found = summarise_missingness(masks)
    assert found.n_subjects == 6
    assert dict(found.patterns) == {(True, True): 1, (True, False): 2, (False, True): 2, (False, False): 1}
    assert found.complete_cases == 1
    assert found.empty_cells == {"left": 1, "right": 0}
    assert found.overlap.tolist() == [[3, 1], [1, 3]]
    assert found.rate("left") == pytest.approx(0.5)
    assert set(found.never_together) == {(a, c), (b, c)}
    assert type(found).from_dict(found.to_dict()).to_dict() == found.to_dict()


# ---- EM ----------------------------------------------------------------------------------


@settings(max_examples=60)
@given(q=st.integers(1, 5), n=st.integers(1, 40), far=st.booleans(), seed=st.integers(0, 10_000))
def test_an_em_step_never_lowers_the_likelihood(q: int, n: int, far: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    observed = random_mask(n, q, rng)
    readings = np.where(observed, correlated_normals(random_covariance(q, rng), n, rng), 0.0)
    moments = gather_moments(readings, find_patterns(observed))
    covariance = random_covariance(q, rng) * (100.0 if far else 1.0)
    before = log_likelihood(covariance, moments)
    for _ in range(4):
        # Few subjects and no ridge: the maximum may lie at a singular matrix, where EM is heading.
        if np.linalg.eigvalsh(covariance)[0] < 1e-6:
            break
        covariance = em_step(covariance, PackedMoments.of(moments))
        np.testing.assert_array_equal(covariance, covariance.T)
        if np.linalg.eigvalsh(covariance)[0] < 1e-6:
            break
        after = log_likelihood(covariance, moments)
        assert after >= before - 1e-8 * (1.0 + abs(before))
        before = after


def naive_log_likelihood(covariance: Floats, readings: Floats, observed: Bools) -> float:
    """One subject at a time, density by density, without the constant."""
    total = 0.0
    for values, mask in zip(readings, observed, strict=True):
        if mask.any():
            own = covariance[np.ix_(mask, mask)]
            total -= 0.5 * (np.linalg.slogdet(own)[1] + values[mask] @ np.linalg.inv(own) @ values[mask])
    return float(total)


def test_the_likelihood_is_the_sum_over_subjects() -> None:
    rng = np.random.default_rng(1)
    observed = random_mask(50, 4, rng)
    readings = np.where(observed, rng.standard_normal((50, 4)), 0.0)
    covariance = random_covariance(4, rng)
    found = log_likelihood(covariance, gather_moments(readings, find_patterns(observed)))
    assert found == pytest.approx(naive_log_likelihood(covariance, readings, observed), rel=1e-10)


@pytest.mark.parametrize("prior", [0.0, 7.0])
def test_one_em_step_on_complete_data_gives_the_second_moments(prior: float) -> None:
    rng = np.random.default_rng(2)
    readings = rng.standard_normal((30, 4))
    moments = gather_moments(readings, find_patterns(np.ones((30, 4), dtype=bool)))
    found = em_step(random_covariance(4, rng), PackedMoments.of(moments), prior)
    np.testing.assert_allclose(found, (readings.T @ readings + prior * np.eye(4)) / (30 + prior), atol=1e-12)


def naive_em_step(covariance: Floats, readings: Floats, observed: Bools) -> Floats:
    """Completes every subject's products one by one, through the precision matrix."""
    precision = np.linalg.inv(covariance)
    total = np.zeros_like(covariance)
    for values, mask in zip(readings, observed, strict=True):
        mean, spread = values.copy(), np.zeros_like(covariance)
        if not mask.all():
            hidden = np.linalg.inv(precision[np.ix_(~mask, ~mask)])
            mean[~mask] = -hidden @ precision[np.ix_(~mask, mask)] @ values[mask]
            spread[np.ix_(~mask, ~mask)] = hidden
        total += np.outer(mean, mean) + spread
    return total / len(readings)


@pytest.mark.parametrize("largest", [0.0, 1e6], ids=["from the covariance", "from the precision"])
@pytest.mark.parametrize("seed", range(3))
def test_an_em_step_completes_every_subject_with_its_conditional_moments(
    seed: int, largest: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(em, "EM_TUNING", em.EmTuning(largest_precision=largest))
    rng = np.random.default_rng(seed)
    observed = np.array(list(itertools.product((True, False), repeat=3)) * 4)  # the empty pattern too
    readings = np.where(observed, rng.standard_normal(observed.shape), 0.0)
    found = em_step(THREE, PackedMoments.of(gather_moments(readings, find_patterns(observed))))
    np.testing.assert_allclose(found, naive_em_step(THREE, readings, observed), atol=1e-12)


def test_em_finds_the_correlation_under_mar_where_pairs_do_not() -> None:
    """Z_0 is missing where Z_1 is high: its correlation with Z_2 is not the one among the rest."""
    n = 20_000
    rng = np.random.default_rng(3)
    truth = np.array([[1.0, 0.7, 0.5], [0.7, 1.0, 0.6], [0.5, 0.6, 1.0]])
    z = correlated_normals(truth, n, rng)
    observed = np.ones((n, 3), dtype=bool)
    observed[:, 0] = z[:, 1] < 0.3
    moments = gather_moments(np.where(observed, z, 0.0), find_patterns(observed))
    covariance = start_covariance(moments, 3)
    pairwise = covariance.copy()
    for _ in range(100):
        covariance = em_step(covariance, PackedMoments.of(moments))
    # 5 standard errors with the 60 % that are observed
    np.testing.assert_allclose(to_correlation(covariance), truth, atol=5 / math.sqrt(0.6 * n))
    assert pairwise[0, 1] < 0.67  # 3 standard errors and more below


# ---- predictions -------------------------------------------------------------------------


@pytest.mark.parametrize("seen", list(itertools.product((True, False), repeat=3))[:-1], ids=str)
def test_predictions_have_the_moments_of_latents_given_readings(seen: tuple[bool, ...]) -> None:
    """Readings are link * latent + error; brute force on the joint normal of latents and readings."""
    mask = np.array(seen)
    links = np.array([0.9, 0.7, 0.8])
    error = np.diag(1.0 - links**2)
    readings_covariance = THREE * np.outer(links, links) + error
    pattern = Pattern(np.arange(1), np.flatnonzero(mask), np.flatnonzero(~mask))
    weights, deviations = predict_latents(readings_covariance, links, pattern)
    cross = (THREE * links)[np.ix_(~mask, mask)]  # Cov(latent_j, reading_k)
    inner = readings_covariance[np.ix_(mask, mask)]
    np.testing.assert_allclose(weights, cross @ np.linalg.inv(inner), atol=1e-12)
    left = THREE[np.ix_(~mask, ~mask)] - cross @ np.linalg.inv(inner) @ cross.T
    np.testing.assert_allclose(deviations, np.sqrt(np.diag(left)), atol=1e-12)
    own = regress(readings_covariance, pattern.observed, pattern.observed)
    np.testing.assert_allclose(own, np.eye(int(mask.sum())), atol=1e-12)
    between = readings_covariance[np.ix_(~mask, mask)] @ np.linalg.inv(inner)
    np.testing.assert_allclose(regress(readings_covariance, pattern.observed, pattern.missing), between, atol=1e-12)


def test_nothing_observed_predicts_a_standard_normal() -> None:
    pattern = Pattern(np.arange(2), np.empty(0, dtype=np.int64), np.arange(3))
    weights, deviations = predict_latents(THREE, np.ones(3), pattern)
    assert weights.shape == (3, 0)
    np.testing.assert_array_equal(deviations, 1.0)
    located = locate_missing(np.zeros((2, 3)), [pattern], THREE, np.ones(3))
    np.testing.assert_allclose(located[0], 2 * ndtr(np.linspace(-5, 5, 101)), atol=1e-6)


def test_a_prediction_never_claims_to_explain_everything() -> None:
    tight = np.array([[1.0, 0.95], [0.95, 1.0]])
    pattern = Pattern(np.arange(1), np.array([0]), np.array([1]))
    weights, deviations = predict_latents(tight, np.array([0.5, 0.5]), pattern)  # 0.95/0.5 is "explained 3.6"
    assert np.all(deviations > 0.2)
    assert weights[0, 0] ** 2 + deviations[0] ** 2 == pytest.approx(1.0)


def test_the_missing_are_located_where_the_conditional_normal_puts_them() -> None:
    rng = np.random.default_rng(5)
    n = 300
    readings = np.zeros((n, 2))
    readings[:, 0] = rng.standard_normal(n)
    observed = np.tile([True, False], (n, 1))
    covariance = np.array([[1.0, 0.6], [0.6, 1.0]])
    located = locate_missing(readings, find_patterns(observed), covariance, np.ones(2))
    grid = np.linspace(-5, 5, 101)
    exact = ndtr((grid[None, :] - 0.6 * readings[:, :1]) / 0.8).sum(axis=0)
    np.testing.assert_allclose(located[1], exact, atol=0.002 * n)  # a grid of 0.1 rounds means by half that
    np.testing.assert_array_equal(located[0], 0.0)


def naive_correction_errors(readings: Floats, covariance: Floats, links: Floats, observed: Bools) -> Floats:
    """With a product over all subjects for every sum."""
    seen = observed.astype(np.float64)
    unseen = 1.0 - seen
    counts, lacking = seen.sum(axis=0), unseen.sum(axis=0)
    among_them = seen.T @ unseen
    apart = readings.T @ unseen / np.maximum(among_them, 1.0) - readings.T @ seen / np.maximum(seen.T @ seen, 1.0)
    errors = np.zeros(links.size)
    for j in np.flatnonzero(lacking > 0.0):
        given = np.flatnonzero(among_them[:, j] > 0.5 * lacking[j])
        if given.size:
            factor = cho_factor(covariance[np.ix_(given, given)], lower=True)
            left = 1.0 - covariance[j, given] @ cho_solve(factor, covariance[given, j])
            distance = apart[given, j] @ cho_solve(factor, apart[given, j])
            errors[j] = lacking[j] / len(seen) * math.sqrt(max(left, 0.0) * distance / max(counts[j], 1.0))
    return np.asarray(errors / np.maximum(links, 1e-6) / (2.0 * math.sqrt(math.pi)))


@pytest.mark.parametrize("seed", range(4))
def test_errors_of_corrections_need_patterns_sums_only(seed: int) -> None:
    rng = np.random.default_rng(seed)
    observed = rng.random((500, 3)) < [0.9, 0.6, 0.7]
    observed = observed[:, [0, 0, 1, 2, 2]]
    readings = np.where(observed, rng.standard_normal(observed.shape) + 0.3, 0.0)
    covariance, links = to_correlation(random_covariance(5, rng)), rng.uniform(0.5, 1.0, 5)
    patterns = find_patterns(observed)
    overlap = count_together(patterns, 5)
    np.testing.assert_array_equal(overlap, count_common(observed.T))
    found = correction_errors(gather_moments(readings, patterns), covariance, links, overlap)
    expected = naive_correction_errors(readings, covariance, links, observed)
    assert expected.all()
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("order", ["C", "F"])
def test_moments_of_patterns_longer_than_a_block_are_those_of_their_rows(order: Literal["C", "F"]) -> None:
    rng = np.random.default_rng(1)
    observed = (rng.random((20_000, 2)) < [0.9, 0.4])[:, [0, 1, 1]]
    readings = np.array(np.where(observed, rng.standard_normal(observed.shape), 0.0), order=order)
    patterns = find_patterns(observed)
    for pattern, found in zip(patterns, gather_moments(readings, patterns), strict=True):
        rows = readings[np.ix_(pattern.rows, pattern.observed)]
        assert found.count == len(rows)
        np.testing.assert_allclose(found.means, rows.mean(axis=0), atol=1e-13)
        np.testing.assert_allclose(found.products, rows.T @ rows / len(rows), atol=1e-13)


# ---- where it starts ---------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_the_start_is_a_correlation_matrix_even_where_parties_never_meet(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, q = 200, 6
    z = correlated_normals(to_correlation(random_covariance(q, rng)), n, rng)
    observed = np.ones((n, q), dtype=bool)
    observed[: n // 2, 2:4] = False
    observed[n // 2 :, 4:6] = False  # 2, 3 and 4, 5 are never seen together
    start = start_covariance(gather_moments(np.where(observed, z, 0.0), find_patterns(observed)), q)
    np.testing.assert_allclose(np.diag(start), 1.0)
    np.testing.assert_array_equal(start, start.T)
    assert np.linalg.eigvalsh(start)[0] > 0.0


def test_unknown_pairs_start_independent_given_the_others() -> None:
    n = 20_000
    rng = np.random.default_rng(6)
    z = correlated_normals(np.array([[1.0, 0.6, 0.5], [0.6, 1.0, 0.9], [0.5, 0.9, 1.0]]), n, rng)
    observed = np.ones((n, 3), dtype=bool)
    observed[: n // 2, 1] = observed[n // 2 :, 2] = False
    moments = gather_moments(np.where(observed, z, 0.0), find_patterns(observed))
    start = start_covariance(moments, 3)
    assert start[1, 2] == pytest.approx(0.6 * 0.5, abs=5 / math.sqrt(n / 2))
    covariance = start
    for _ in range(20):
        covariance = em_step(covariance, PackedMoments.of(moments))
    assert covariance[1, 2] == pytest.approx(0.3, abs=5 / math.sqrt(n / 2))  # EM learns nothing about it


@given(q=st.integers(1, 6), seed=st.integers(0, 1_000))
def test_anything_symmetric_becomes_positive_definite(q: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = np.clip(rng.standard_normal((q, q)), -1, 1)
    matrix = (matrix + matrix.T) / 2
    np.fill_diagonal(matrix, 1.0)
    found = keep_definite(matrix)
    np.testing.assert_allclose(np.diag(found), 1.0)
    assert np.linalg.eigvalsh(found)[0] > 0.0


# ---- what cannot be known ----------------------------------------------------------------


@pytest.mark.parametrize(("r", "s"), [(0.6, 0.5), (0.0, 0.0), (-0.8, 0.7), (0.9, 0.9)])
def test_the_range_of_an_unknown_correlation_is_where_the_matrix_stays_valid(r: float, s: float) -> None:
    keys = [ColumnKey("p", name) for name in "abc"]
    layout = Layout.of({key: Column(name=key.column, kind="continuous", bounds=(0, 1)) for key in keys})
    correlation = np.array([[1.0, r, s], [r, 1.0, r * s], [s, r * s, 1.0]])
    overlap = np.array([[9, 9, 9], [9, 9, 0], [9, 0, 9]])
    (pair,) = find_unidentified(correlation, layout, overlap)
    assert (pair.first, pair.second) == ("p.b", "p.c")
    assert pair.low <= pair.used <= pair.high
    for value, valid in ((pair.low, True), (pair.high, True), (pair.low - 0.02, False), (pair.high + 0.02, False)):
        changed = correlation.copy()
        changed[1, 2] = changed[2, 1] = value
        assert (np.linalg.eigvalsh(changed)[0] > -1e-9) == valid or abs(value) > 1.0


def test_two_columns_known_with_nothing_in_common_may_have_any_correlation() -> None:
    keys = [ColumnKey("p", name) for name in "ab"]
    layout = Layout.of({key: Column(name=key.column, kind="continuous", bounds=(0, 1)) for key in keys})
    (pair,) = find_unidentified(np.eye(2), layout, np.array([[5, 1], [1, 5]]))
    assert (pair.low, pair.used, pair.high) == (-1.0, 0.0, 1.0)


# ---- the whole refinement ----------------------------------------------------------------


def release(
    columns: Sequence[Column], values: Sequence[Floats], observed: Bools, epsilon: float, seed: int = 1
) -> RankRelease:
    """Real noisy ranks; margins without noise."""
    keys = [ColumnKey("p", column.name) for column in columns]
    layout = Layout.of(dict(zip(keys, columns, strict=True)))
    margins, ranks = {}, {}
    for index, (key, column) in enumerate(zip(keys, columns, strict=True)):
        own = values[index][observed[:, index]]
        cells = 64 if column.kind == "continuous" else len(column.categories or ())
        codes = np.minimum(own * cells, cells - 1) if column.kind == "continuous" else own
        margins[key] = Marginal.from_release(column, np.bincount(codes.astype(int), minlength=cells), own.size, 40.0)
        stream = SeededNoise(seed).stream(column.name)
        ranks[key] = flip_comparisons(own, epsilon, stream)[:, None]
    masks = {key: observed[:, index] for index, key in enumerate(keys)}
    budgets = dict.fromkeys(keys, ColumnBudget(epsilon, epsilon))
    return RankRelease.build(layout, margins, masks, ranks, budgets, "exact")


def continuous(name: str) -> Column:
    return Column(name=name, **{**CONTINUOUS, "bounds": (0.0, 1.0)})  # type: ignore[arg-type]


def mar_release(n: int = 1_500, epsilon: float = 2.0, empty: float = 0.0) -> RankRelease:
    rng = np.random.default_rng(7)
    z = correlated_normals(np.array([[1.0, 0.7, 0.4], [0.7, 1.0, 0.4], [0.4, 0.4, 1.0]]), n, rng)
    observed = np.ones((n, 3), dtype=bool)
    observed[:, 0] = z[:, 1] < 0.3
    observed &= rng.random((n, 3)) >= empty
    columns = [continuous("a"), continuous("b"), Column(name="c", kind="ordinal", categories=("x", "y", "z"))]
    return release(columns, [ndtr(z[:, 0]), ndtr(z[:, 1]), np.digitize(z[:, 2], [-0.4, 0.6])], observed, epsilon)


def assert_sane(found: Refinement) -> None:
    assert np.all(np.isfinite(found.covariance))
    np.testing.assert_allclose(np.diag(found.covariance), 1.0)
    assert np.linalg.eigvalsh(found.covariance)[0] > 1e-12  # more than rounding
    assert np.all((found.readings.reliability >= 0.0) & (found.readings.reliability <= 1.0))
    for curve in found.curves:
        knots = np.concatenate([[0.0], curve.population, [1.0]])
        assert np.all(np.diff(knots) > 0.0)
        assert np.all(np.diff(curve.observed) > 0.0)


def test_the_refinement_settles_and_its_curves_increase() -> None:
    calls: list[tuple[int, int]] = []
    found = refine(mar_release(), progress=lambda done, most: calls.append((done, most)))
    assert found.report.converged
    assert found.report.rounds == len(found.report.log_likelihood) == len(calls)
    assert found.report.patterns == 2
    assert_sane(found)
    median = float(found.curves[0](np.array([0.5]))[0])
    assert median < 0.4  # the median of the observed is a low value in the population
    np.testing.assert_allclose(found.curves[1].population, found.curves[1].observed)  # nothing is missing there


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_refinement_cut_short_says_so(rounds: int) -> None:
    found = refine(mar_release(), rounds=rounds)
    assert found.report.rounds == rounds
    assert not found.report.converged
    assert_sane(found)


def test_complete_data_take_one_round_and_move_nothing() -> None:
    rng = np.random.default_rng(8)
    z = correlated_normals(THREE, 800, rng)
    columns = [continuous(name) for name in "abc"]
    found = refine(release(columns, list(ndtr(z).T), np.ones((800, 3), dtype=bool), 2.0))
    assert found.report.converged
    assert found.report.rounds == 1
    for curve in found.curves:
        np.testing.assert_array_equal(curve.population, curve.observed)


def test_empty_cells_inside_blocks_are_allowed() -> None:
    found = refine(mar_release(empty=0.15))
    assert found.report.patterns == 8
    assert found.report.converged
    assert_sane(found)
    assert float(found.curves[0](np.array([0.5]))[0]) < 0.4


FLAT = np.array([1.0, 0.0, 0.0])


def test_a_column_with_all_its_mass_in_one_cell_does_no_harm() -> None:
    n = 1_000
    rng = np.random.default_rng(9)
    z = correlated_normals(np.array([[1.0, 0.7], [0.7, 1.0]]), n, rng)
    observed = np.ones((n, 3), dtype=bool)
    observed[:, 0] = z[:, 1] < 0.3
    columns = [continuous("a"), continuous("b"), Column(name="c", kind="ordinal", categories=("x", "y", "z"))]
    values = [ndtr(z[:, 0]), ndtr(z[:, 1]), np.zeros(n)]
    with_flat = release(columns, values, observed, 2.0)
    without = release(columns[:2], values[:2], observed[:, :2], 2.0)
    assert with_flat.latent_margins[2].probabilities.tolist() == FLAT.tolist()
    found, plain = refine(with_flat), refine(without)
    assert_sane(found)
    np.testing.assert_array_equal(found.covariance[2, :2], 0.0)
    np.testing.assert_array_equal(found.readings.values[:, 2], 0.0)
    # The ridge counts latents, so the two differ by a little.
    assert found.covariance[0, 1] == pytest.approx(plain.covariance[0, 1], abs=0.01)


@pytest.mark.parametrize("n", [3, 5])
def test_fewer_subjects_than_latents_do_not_stop_it(n: int) -> None:
    rng = np.random.default_rng(n)
    columns = [continuous(name) for name in "abcdef"]
    found = refine(release(columns, list(rng.random((6, n))), np.ones((n, 6), dtype=bool), 2.0))
    assert_sane(found)


def test_the_toy_of_theorem_3_is_corrected_where_pairs_are_not() -> None:
    n = 4_000
    rng = np.random.default_rng(10)
    z = correlated_normals(np.array([[1.0, 0.7], [0.7, 1.0]]), n, rng)
    observed = np.ones((n, 2), dtype=bool)
    observed[:, 0] = z[:, 1] < 0.3
    released = release([continuous("a"), continuous("b")], list(ndtr(z).T), observed, 2.0)
    found = refine(released)
    between = found.readings.links[0] * found.readings.links[1]
    assert found.covariance[0, 1] / between == pytest.approx(0.7, abs=0.04)
    assert fit_pairwise(released)[0][0, 1] < 0.62
