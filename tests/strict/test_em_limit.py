"""Without noise, the strict fit's EM is EM on the people's own rows."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.strict_central import draw, factor_correlation
from verticopula.stats.em import em_step, find_patterns, gather_moments
from verticopula.stats.strict.em_iterations import em_round
from verticopula.stats.strict.noisy_moments import NoisyMoments
from verticopula.stats.strict.population_moments import expect, find_base, pool, settle


def patterns_of(rows, observed, noise=0.0, seed=0):
    """Noisy moments of rows with a 1 in the last column."""
    rng = np.random.default_rng(seed)
    found = []
    for pattern in find_patterns(observed):
        part = rows[pattern.rows][:, pattern.observed]
        size = (pattern.observed.size, pattern.observed.size)
        errors = np.triu(rng.normal(0.0, noise, size))
        errors = errors + np.triu(errors, 1).T
        errors[-1, -1] = 0.0
        deviations = np.full(size, noise)
        deviations[-1, -1] = 0.0
        found.append(
            NoisyMoments(
                pattern.observed,
                pattern.missing,
                float(pattern.rows.size),
                part.T @ part / pattern.rows.size + errors,
                deviations,
            )
        )
    return found


def missing_at_random(n=4000, q=6, seed=1):
    """Rows with a 1 appended; two blocks missing given the first two latents, which everybody has."""
    rng = np.random.default_rng(seed)
    rows = np.column_stack([draw(factor_correlation(q), n, seed), np.ones(n)])
    observed = np.ones((n, q + 1), dtype=bool)
    observed[:, 2:4] = (rng.random(n) < 1.0 / (1.0 + np.exp(-2.0 * rows[:, 0])))[:, None]
    observed[:, 4:6] = (rng.random(n) < 1.0 / (1.0 + np.exp(2.0 * rows[:, 1])))[:, None]
    return rows, observed


@pytest.mark.parametrize("prior", [0.0, 3.0])
def test_without_noise_every_em_step_is_that_of_the_rows(prior):
    rows, observed = missing_at_random()
    noisy = patterns_of(rows, observed)
    by_rows = gather_moments(rows, find_patterns(observed))
    base = find_base(noisy, 6)
    assert base.tolist() == [0, 1]
    ours = theirs = np.eye(7)
    for _ in range(50):
        ours, theirs = em_round(noisy, ours, base, prior), em_step(theirs, by_rows, prior)
    assert ours == pytest.approx(theirs, abs=1e-10)


def test_without_noise_em_finds_the_means_that_missingness_hides():
    rows, observed = missing_at_random(n=40_000)
    noisy = patterns_of(rows, observed)
    moments = np.eye(7)
    for _ in range(200):
        moments = em_round(noisy, moments, find_base(noisy, 6))
    hidden = np.array([rows[observed[:, j], j].mean() for j in range(6)])
    assert np.max(np.abs(hidden)) > 0.1
    # Half of 40,000 are observed; regression carries the rest.
    assert moments[:-1, -1] == pytest.approx(rows[:, :-1].mean(axis=0), abs=0.03)


def test_pooled_moments_of_selected_people_are_those_of_everybody():
    rows, observed = missing_at_random(n=40_000)
    noisy = patterns_of(rows, observed)
    truth = rows.T @ rows / rows.shape[0]
    pooled, variance = pool(noisy, expect(noisy, truth, find_base(noisy, 6)), truth)
    naive, _ = pool(noisy, expect(noisy, truth, np.empty(0, dtype=np.int64)), truth)
    miss, naive_miss = (np.max(np.abs(m - truth)) for m in (pooled, naive))
    assert naive_miss > 0.1
    # At least 8,000 people have any pair; five standard errors of a mean product, below sqrt(2 / 8,000) each.
    assert miss < 5.0 * np.sqrt(2.0 / 8000.0)
    assert np.isfinite(variance).all()


def test_a_pattern_that_is_all_noise_is_taken_for_what_is_expected():
    rows, observed = missing_at_random()
    truth = rows.T @ rows / rows.shape[0]
    noisy = patterns_of(rows, observed, noise=1e4)
    expected = expect(noisy, truth, find_base(noisy, 6))
    for pattern, model in zip(noisy, expected, strict=True):
        inner = np.setdiff1d(np.arange(pattern.seen.size), model.inside)
        settled = settle(pattern, model).products
        assert settled[np.ix_(inner, inner)] == pytest.approx(model.products[np.ix_(inner, inner)], abs=0.05)


def test_pairs_that_nobody_has_stay_as_they_are_and_are_known_to_be_unknown():
    rows, observed = missing_at_random()
    observed[:, 4:6] &= ~observed[:, 2:3]
    noisy = patterns_of(rows, observed)
    start = np.eye(7)
    start[2, 4] = start[4, 2] = 0.123
    pooled, variance = pool(noisy, expect(noisy, start, find_base(noisy, 6)), start)
    assert pooled[2, 4] == 0.123
    assert np.isinf(variance[2, 4])
    assert np.isfinite(variance[2, 3])
