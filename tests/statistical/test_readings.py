"""Readings of noisy grades: mean 0, variance 1 and the promised correlation with the score."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from verticopula.privacy.coins import flip_probability
from verticopula.privacy.noise import SeededNoise
from verticopula.stats.grade_table import GradeTable
from verticopula.stats.ranks import debias_ranks, flip_comparisons, rank_noise_variance
from verticopula.stats.readings import (
    READING_TUNING,
    GradeReader,
    LatentCells,
    ScoreScale,
    heights_on_grid,
    reading_noise,
)

Floats = NDArray[np.float64]

N = 3_000
REPEATS = 8
SHARES = {
    "continuous": np.full(READING_TUNING.continuous_cells, 1.0 / READING_TUNING.continuous_cells),
    "binary": np.array([0.8, 0.2]),
    "ordinal": np.array([0.1, 0.5, 0.25, 0.15]),
}


def simulate(shares: Floats, epsilon: float, is_continuous: bool, seed: int) -> tuple[Floats, Floats, LatentCells]:
    """(true cells, noisy grades, what else is known) of N subjects whose cells have exactly these shares."""
    rng = np.random.default_rng(seed)
    grades = rng.permutation((np.arange(N) + 0.5) / N)
    cells = np.searchsorted(np.cumsum(shares)[:-1], grades, side="right")
    values = grades if is_continuous else cells.astype(np.float64)
    flip = flip_probability(epsilon)
    ranks = flip_comparisons(values, epsilon, SeededNoise(seed).stream("coins"))
    tied = 0.0 if is_continuous else float(np.sum(shares**2))
    noisy = (debias_ranks(ranks, flip) - (N + 1) / 2.0) / N + 0.5
    return cells, noisy, LatentCells(shares, rank_noise_variance(N, flip, tied) / N**2, is_continuous)


def read_scores(
    grades: Floats, latent: LatentCells, reader: GradeReader, curve: Floats
) -> tuple[Floats, float, ScoreScale]:
    """(readings, reliability, scale) of the observed subjects under a population curve."""
    heights, reliability, scale = heights_on_grid(latent, reader, curve)
    everybody = np.ones(grades.size, dtype=np.bool_)
    table = GradeTable.of([grades], [everybody], reader.grid[None, :], np.array([True]))
    table.set_heights(0, heights)
    return table.fill_latent(0), reliability, scale


def tilted(shares: Floats, shift: float) -> Floats:
    """Cumulative shares in a population whose latent normal lies higher by `shift` than among the observed."""
    return np.asarray(norm.cdf(norm.ppf(np.cumsum(shares)[:-1]) - shift))


@pytest.mark.parametrize("shift", [0.0, 0.5], ids=["same population", "another population"])
@pytest.mark.parametrize("epsilon", [3.0, 0.2, 0.01], ids=["light", "middle", "heavy"])
@pytest.mark.parametrize("kind", list(SHARES))
def test_readings_have_unit_variance_and_the_reported_reliability_in_the_population(
    kind: str, epsilon: float, shift: float
) -> None:
    shares = SHARES[kind]
    curve = tilted(shares, shift)
    weight = np.diff(curve, prepend=0.0, append=1.0) / shares
    moments = []
    reported = 0.0
    for seed in range(REPEATS):
        cells, grades, latent = simulate(shares, epsilon, kind == "continuous", seed)
        readings, reported, scale = read_scores(grades, latent, GradeReader.of(latent), curve)
        scores = scale.scores[cells]
        w = weight[cells] / weight[cells].sum()
        mean = float(w @ readings)
        variance = float(w @ readings**2) - mean**2
        score_mean = float(w @ scores)
        score_variance = float(w @ scores**2) - score_mean**2
        both = float(w @ (readings * scores)) - mean * score_mean
        moments.append([mean, variance, both / math.sqrt(variance * score_variance)])
    size = N * REPEATS / float(np.sum(weight**2 * shares))  # subjects that unequal weights are worth
    found = np.mean(moments, axis=0)
    assert found[0] == pytest.approx(0.0, abs=5 / math.sqrt(size))
    # The model takes the noise of a discrete column for equal in all its cells: two hundredths.
    assert found[1] == pytest.approx(1.0, abs=0.02 + 5 * math.sqrt(3 / size))
    assert found[2] == pytest.approx(reported, abs=0.01 + 5 / math.sqrt(size))


@pytest.mark.parametrize("kind", list(SHARES))
def test_reliability_falls_with_the_noise_and_is_one_without(kind: str) -> None:
    found = []
    for epsilon in (8.0, 1.0, 0.1, 0.01, 0.001):
        _, grades, latent = simulate(SHARES[kind], epsilon, kind == "continuous", 1)
        _, reliability, _ = read_scores(grades, latent, GradeReader.of(latent), latent.start)
        found.append(reliability)
    assert found == sorted(found, reverse=True)
    assert found[0] > 0.99
    assert 0.0 <= found[-1] < 0.1


@pytest.mark.parametrize("kind", list(SHARES))
def test_scores_have_unit_variance_and_their_strength_is_the_correlation_with_the_latent(kind: str) -> None:
    z = np.random.default_rng(1).standard_normal(200_000)
    curve = tilted(SHARES[kind], -0.3)
    scale = ScoreScale.of(curve)
    scores = scale.scores[np.searchsorted(scale.thresholds, z)]
    limit = 5 / math.sqrt(z.size)
    assert scores.mean() == pytest.approx(0.0, abs=limit)
    assert scores.var() == pytest.approx(1.0, abs=2 * limit)
    assert np.corrcoef(scores, z)[0, 1] == pytest.approx(scale.strength, abs=limit)
    if kind == "continuous":
        assert scale.strength > 0.99


def test_readings_are_interpolated_between_the_grid_s_points() -> None:
    for kind, shares in SHARES.items():
        _, grades, latent = simulate(shares, 0.2, kind == "continuous", 3)
        reader = GradeReader.of(latent)
        grades = np.concatenate([grades, reader.grid, [-9.0, 9.0], np.nextafter(reader.grid, 9.0)])
        found, _, _ = read_scores(grades, latent, reader, latent.start)
        at_grid, _, _ = read_scores(reader.grid, latent, reader, latent.start)
        np.testing.assert_allclose(found, np.interp(grades, reader.grid, at_grid), rtol=1e-13, atol=1e-15)


def test_a_reading_rises_with_the_noisy_grade() -> None:
    for kind, shares in SHARES.items():
        _, grades, latent = simulate(shares, 0.2, kind == "continuous", 2)
        readings, _, _ = read_scores(grades, latent, GradeReader.of(latent), tilted(shares, 0.7))
        assert np.all(np.diff(readings[np.argsort(grades)]) >= -1e-12)


def test_the_coins_noise_in_a_correlation_of_readings_is_the_one_seen() -> None:
    """Two independent columns: the correlation of their readings varies as `reading_noise` says, plus 1/n."""
    found = []
    reliability = 0.0
    for seed in range(200):
        pair = []
        for part in (0, 1):
            rng = np.random.default_rng([seed, part])
            ranks = flip_comparisons(rng.random(300), 0.05, SeededNoise(seed).stream(str(part)))
            flip = flip_probability(0.05)
            noisy = (debias_ranks(ranks, flip) - 150.5) / 300 + 0.5
            latent = LatentCells(SHARES["continuous"], rank_noise_variance(300, flip, 0.0) / 300**2, is_continuous=True)
            readings, reliability, _ = read_scores(noisy, latent, GradeReader.of(latent), latent.start)
            pair.append(readings)
        found.append(float(pair[0] @ pair[1]) / 300)
    promised = reading_noise(np.array([reliability] * 2), np.full((2, 2), 300.0), 300)[0, 1]
    assert reliability < 0.6
    # 200 repeats know a variance to a tenth of itself; 1/n at most comes from the sample.
    assert promised * 0.55 < float(np.var(found)) < (promised + 1 / 300) * 1.5
