"""Latents of missing values stay bounded, however nearly singular the correlation is and whatever was read."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.builders import correlated_normals
from verticopula.stats.em import find_patterns
from verticopula.stats.loadings import Loadings
from verticopula.stats.matrix_repair import to_correlation

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

N = 1_000


def nearly_singular(q: int, smallest: float, rng: np.random.Generator) -> Floats:
    """Two factors and next to nothing else, and a last latent that depends on all directions of the others alike.

    Of a direction with variance v it predicts the last latent with a weight of about 1/sqrt(v).
    """
    factors = rng.standard_normal((q - 1, 2))
    others = to_correlation(factors @ factors.T + smallest * np.eye(q - 1))
    values, vectors = np.linalg.eigh(others)
    along = vectors @ (np.sqrt(values) * rng.choice([-1.0, 1.0], q - 1)) * math.sqrt(0.8 / (q - 1))
    return np.block([[others, along[:, None]], [along, np.ones((1, 1))]])


def known_error(correlation: Floats, error: float) -> Loadings:
    """Readings of every latent with errors of that variance."""
    eye = np.eye(len(correlation))
    return Loadings(correlation, math.sqrt(1.0 - error) * eye, error * eye)


def hide(n: int, q: int, share: float, rng: np.random.Generator) -> Bools:
    """All latents are observed but the last one, which a share of the subjects lacks."""
    observed = np.ones((n, q), dtype=bool)
    observed[:, -1] = rng.random(n) >= share
    observed[:2, -1] = False
    return observed


@settings(max_examples=60)
@given(
    q=st.integers(4, 8),
    smallest=st.sampled_from([1e-7, 1e-5, 1e-3]),
    error=st.sampled_from([1e-6, 1e-4, 1e-2]),
    mixed=st.floats(0.0, 1.0),
    share=st.floats(0.05, 1.0),
    seed=st.integers(0, 10_000),
)
def test_redrawn_latents_stay_bounded_whatever_the_readings_are(
    q: int, smallest: float, error: float, mixed: float, share: float, seed: int
) -> None:
    """Readings hang together from as the correlation says to not at all; the bound is that of `allow_for`."""
    rng = np.random.default_rng(seed)
    correlation = nearly_singular(q, smallest, rng)
    readings = correlated_normals((1.0 - mixed) * correlation + mixed * np.eye(q), N, rng)
    observed = hide(N, q, share, rng)
    patterns, missing = find_patterns(observed), ~observed[:, -1]
    readings[~observed] = 0.0
    drawn = known_error(correlation, error).allow_for(readings, patterns).draw_latents(readings, patterns, rng)
    n_missing = int(missing.sum())
    bound = (1.0 + math.sqrt(q / N)) ** 2 * N / n_missing
    sampling = 1.0 + 6.0 * math.sqrt(2.0 / n_missing)  # the draws' own noise
    assert np.mean(drawn[missing, -1] ** 2) <= bound * sampling


def test_a_nearly_singular_correlation_that_the_readings_contradict_is_not_believed() -> None:
    """Without the allowance the same draws are many times too large."""
    rng = np.random.default_rng(1)
    correlation = nearly_singular(6, 1e-5, rng)
    readings = correlated_normals(0.9 * correlation + 0.1 * np.eye(6), N, rng)
    observed = hide(N, 6, 0.5, rng)
    patterns, missing = find_patterns(observed), ~observed[:, -1]
    readings[~observed] = 0.0
    believed = known_error(correlation, 1e-4)
    exact = believed.draw_latents(readings, patterns, np.random.default_rng(2))[missing, -1]
    allowed = believed.allow_for(readings, patterns).draw_latents(readings, patterns, np.random.default_rng(2))
    assert exact.std() > 3.0
    assert abs(allowed[missing, -1].std() - 1.0) < 0.1


@settings(max_examples=30)
@given(q=st.integers(4, 8), smallest=st.sampled_from([1e-5, 1e-3, 0.1]), seed=st.integers(0, 10_000))
def test_a_correlation_that_the_readings_bear_out_is_believed(q: int, smallest: float, seed: int) -> None:
    """Also where the last latent is missing at random: the largest readings of the first one lack it."""
    rng = np.random.default_rng(seed)
    believed = known_error(nearly_singular(q, smallest, rng), 1e-2)
    readings = correlated_normals(believed.implied, N, rng)
    observed = np.ones((N, q), dtype=bool)
    observed[:, -1] = readings[:, 0] < 0.5
    readings[~observed] = 0.0
    allowed = believed.allow_for(readings, find_patterns(observed))
    # The edge is where the largest ratio of a sample tends to; single samples pass it by a few per cent.
    growth = np.linalg.eigvals(np.linalg.solve(believed.implied, allowed.implied)).real
    assert np.max(growth) <= 1.15
