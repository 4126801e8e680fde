"""The posterior over columns: against enumeration, against maximum likelihood, whole and in parts."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from experiments.bayes_parts import sample_in_parts
from tests.regressions import FAMILIES, blocks, columns_of, response
from verticopula.glm.bayes import BAYES_TUNING, Posterior, default_bar, lay_out_sizes, sample_posterior
from verticopula.glm.bayes_sweeps import sweep_columns
from verticopula.glm.central_solver import maximise_likelihood
from verticopula.glm.families import find_family
from verticopula.glm.feature_design import Features

Floats = NDArray[np.float64]

SIZES = np.array([0.3, 0.8])
WIDTH = 0.2
WEIGHTS = np.array([0.5, 0.3, 0.2])
NOISE = 1.3
SWEEPS = 40_000


def plain(x: Floats) -> Features:
    return Features.plain(x, [f"x{j}" for j in range(x.shape[1])])


def make_quadratic(q: int = 3, n: int = 25, seed: int = 3) -> tuple[Floats, Floats]:
    """Gram matrix and linear term of correlated columns with effects that may or may not be there."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, q)) + 0.8 * rng.standard_normal((n, 1))
    y = x @ np.array([0.5, 0.0, -0.3, 0.2])[:q] + rng.standard_normal(n)
    return x.T @ x, x.T @ y


def log_evidence(gram: Floats, linear: Floats, means: Floats, variances: Floats) -> tuple[float, Floats]:
    """Of b ~ N(means, diag variances), zero variance for b = mean, up to a constant; and the posterior mean."""
    free = variances > 0.0
    mean = means.copy()
    if not free.any():
        return 0.0, mean
    prior = np.diag(1.0 / variances[free])
    posterior = gram[np.ix_(free, free)] / NOISE + prior
    pull = linear[free] / NOISE + prior @ means[free]
    mean[free] = np.linalg.solve(posterior, pull)
    level = 0.5 * (pull @ mean[free] - means[free] @ prior @ means[free])
    return level + 0.5 * (np.linalg.slogdet(prior)[1] - np.linalg.slogdet(posterior)[1]), mean


def enumerate_posterior(
    gram: Floats, linear: Floats, choices: list[list[tuple[float, Floats, Floats]]]
) -> tuple[Floats, Floats]:
    """Mean and inclusion probabilities; every group chooses from (weight, means, variances), zero first."""
    levels, means, included = [], [], []
    for picked in product(*(range(len(c)) for c in choices)):
        parts = [c[k] for c, k in zip(choices, picked, strict=True)]
        level, mean = log_evidence(
            gram, linear, np.concatenate([m for _, m, _ in parts]), np.concatenate([v for _, _, v in parts])
        )
        levels.append(level + sum(np.log(w) for w, _, _ in parts))
        means.append(mean)
        included.append([float(k > 0) for k in picked])
    weights = np.exp(np.array(levels) - max(levels))
    weights /= weights.sum()
    return weights @ np.array(means), weights @ np.array(included)


def single() -> list[tuple[float, Floats, Floats]]:
    """The choices of one column."""
    spikes = [(WEIGHTS[0], np.zeros(1), np.zeros(1))]
    slabs = [
        (w / 2.0, np.array([s * m]), np.array([WIDTH**2]))
        for w, m in zip(WEIGHTS[1:], SIZES, strict=True)
        for s in (1, -1)
    ]
    return spikes + slabs


def group(d: int) -> list[tuple[float, Floats, Floats]]:
    """The choices of d columns that belong together."""
    return [(WEIGHTS[0], np.zeros(d), np.zeros(d))] + [
        (w, np.zeros(d), np.full(d, m**2 / d)) for w, m in zip(WEIGHTS[1:], SIZES, strict=True)
    ]


def sweep(gram: Floats, linear: Floats, starts: list[int], seed: int) -> tuple[Floats, Floats]:
    n_groups = len(starts) - 1
    mean, included, *_ = sweep_columns(
        gram,
        linear,
        np.zeros(linear.size),
        np.array(starts),
        np.tile(SIZES, (n_groups, 1)),
        np.full((n_groups, SIZES.size), WIDTH**-2.0),
        WEIGHTS.copy(),
        NOISE,
        0.0,
        0.0,
        SWEEPS,
        SWEEPS // 10,
        SWEEPS,
        False,
        np.random.default_rng(seed),
    )
    return mean, included


@pytest.mark.statistics
@pytest.mark.parametrize("grouped", [False, True])
def test_draws_have_the_posterior_that_enumeration_gives(grouped: bool) -> None:
    gram, linear = make_quadratic()
    starts, choices = ([0, 1, 3], [single(), group(2)]) if grouped else ([0, 1, 2, 3], [single()] * 3)
    if grouped:  # directions of the group that do not disturb each other
        turn = np.eye(3)
        turn[1:, 1:] = np.linalg.eigh(gram[1:, 1:])[1]
        gram, linear = np.ascontiguousarray(turn.T @ gram @ turn), turn.T @ linear
    mean, included = enumerate_posterior(gram, linear, choices)
    runs = [sweep(gram, linear, starts, seed) for seed in range(4)]
    for exact, drawn in ((mean, np.array([r[0] for r in runs])), (included, np.array([r[1] for r in runs]))):
        error = np.maximum(drawn.std(axis=0, ddof=1) / 2.0, 5e-4)
        assert np.all(np.abs(drawn.mean(axis=0) - exact) <= 5.0 * error)


@pytest.mark.statistics
@pytest.mark.parametrize("family", FAMILIES)
def test_strong_columns_have_nearly_their_maximum_likelihood(family: str) -> None:
    x, y = columns_of(blocks(2000)), response(family, 2000)
    found = sample_posterior(plain(x), y, find_family(family))
    kept = [0, 2]
    best, _, _ = maximise_likelihood(plain(x[:, kept]), y, find_family(family))
    coef = found.select(np.arange(5), BAYES_TUNING.least_bar)
    assert np.flatnonzero(coef).tolist() == kept
    # The sizes' widths are a twentieth of them: that far means may be drawn towards each other.
    assert coef[kept] == pytest.approx(best, rel=0.05)
    assert found.chain_difference < 0.1


@pytest.mark.statistics
def test_rows_count_as_the_subjects_they_stand_for() -> None:
    x, y = columns_of(blocks()), response("binomial")
    once = sample_posterior(plain(x), y, find_family("binomial"))
    copied = sample_posterior(
        plain(np.tile(x, (20, 1))), np.tile(y, 20), find_family("binomial"), n_effective=float(y.size)
    )
    believed = sample_posterior(plain(np.tile(x, (20, 1))), np.tile(y, 20), find_family("binomial"))
    assert copied.inclusion == pytest.approx(once.inclusion, abs=0.1)
    assert copied.mean == pytest.approx(once.mean, abs=0.1)
    assert believed.inclusion[2] > 0.999 > copied.inclusion[2]


def test_noise_alone_selects_nothing() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 20))
    for family, y in (("gaussian", rng.standard_normal(300)), ("binomial", (rng.random(300) < 0.4).astype(float))):
        found = sample_posterior(plain(x), y, find_family(family))
        assert not found.select(np.arange(21), BAYES_TUNING.least_bar).any()
        assert found.share_of_zero > 0.5


def test_columns_with_common_sizes_lend_each_other_strength() -> None:
    rng = np.random.default_rng(1)
    truth = np.repeat([0.25, -0.25, 0.0], 10)
    x = rng.standard_normal((400, 30))
    y = x @ truth + rng.standard_normal(400)
    mean = sample_posterior(plain(x), y, find_family("gaussian"), fit_intercept=False).mean
    oracle, _, _ = maximise_likelihood(plain(x[:, :20]), y, find_family("gaussian"), fit_intercept=False)
    assert np.mean((mean - truth) ** 2) < 0.5 * np.mean((np.append(oracle, np.zeros(10)) - truth) ** 2)


def test_a_constant_column_and_more_columns_than_rows_do_no_harm() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((50, 80))
    x[:, 7] = 3.0
    y = 2.0 * x[:, 0] - 2.0 * x[:, 1] + rng.standard_normal(50)
    found = sample_posterior(plain(x), y, find_family("gaussian"))
    assert found.inclusion[7] == 0.0
    assert np.flatnonzero(found.select(np.arange(81), BAYES_TUNING.least_bar)).tolist() == [0, 1]


@pytest.mark.parametrize("family", FAMILIES)
def test_parties_that_keep_their_columns_find_the_same(family: str) -> None:
    tables, y = blocks(600), response(family, 600)
    whole = sample_posterior(plain(columns_of(tables)), y, find_family(family))
    parts, asked = sample_in_parts([plain(t) for t in tables.values()], y, find_family(family))
    assert parts.inclusion == pytest.approx(whole.inclusion, abs=0.1)
    assert parts.mean == pytest.approx(whole.mean, abs=0.05)
    assert asked % 2 == 0


def test_sizes_begin_where_they_can_be_told_from_zero_and_end_at_the_largest() -> None:
    grid = lay_out_sizes(0.1, 1.0)
    assert (grid[0], grid[-1]) == pytest.approx((0.2, 1.0))
    assert np.all(grid[1:] / grid[:-1] <= 1.13)
    assert lay_out_sizes(0.1, 0.0)[-1] == pytest.approx(0.4)


def test_a_group_is_selected_as_one() -> None:
    found = Posterior(np.array([1.0, 2.0, 3.0]), np.array([0.9, 0.6]), 0.5, 0.0)
    assert found.select(np.array([0, 2, 3]), BAYES_TUNING.least_bar).tolist() == [1.0, 2.0, 0.0]
    assert found.select(np.array([0, 2, 3]), 0.5).tolist() == [1.0, 2.0, 3.0]


def test_the_bar_grows_with_the_number_of_subjects_like_bics_charge() -> None:
    assert default_bar(10.0) == BAYES_TUNING.least_bar
    bars = np.array([default_bar(n) for n in (1_000.0, 3_000.0, 5_000.0)])
    np.testing.assert_allclose(bars, [0.778, 0.859, 0.887], atol=5e-4)
    np.testing.assert_allclose(bars / (1.0 - bars), np.sqrt([1_000.0, 3_000.0, 5_000.0]) / 9.0)
