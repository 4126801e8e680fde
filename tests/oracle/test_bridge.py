"""The bridge from latent correlations to Spearman's, against numerical integration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate
from scipy.special import ndtr, ndtri

from verticopula.stats.bridge import _NODES, _WEIGHTS, GradeShape, _invert_one, bridge
from verticopula.stats.correlation import PairwiseSpearman, invert_bridge

CORRELATIONS = [-0.99, -0.9, -0.5, -0.1, 0.0, 0.2, 0.6, 0.9, 0.98]
CELLS = {
    "binary": [0.5, 0.5],
    "rare": [0.99, 0.01],
    "ordinal": [0.1, 0.4, 0.3, 0.2],
    "skewed": [0.7, 0.2, 0.06, 0.03, 0.01],
    "many": [1 / 30] * 30,
}
CONTINUOUS = GradeShape(np.empty(0), np.empty(0))


def shape_of(cells: list[float]) -> GradeShape:
    p = np.array(cells)
    return GradeShape(ndtri(np.cumsum(p)[:-1]), (p[1:] + p[:-1]) / 2)


def s_of(r: float, a: GradeShape, b: GradeShape) -> float:
    return float(bridge(r, a.thresholds, a.jumps, b.thresholds, b.jumps, _NODES, _WEIGHTS))


def integrated(r: float, a: GradeShape, b: GradeShape) -> float:
    """12 E[(g_a(Z_a) - 1/2) E[g_b(Z_b) | Z_a]], cut where g_a steps."""

    def grade(z: float) -> float:
        if not a.thresholds.size:
            return float(ndtr(z))
        first = 0.5 * float(ndtr(a.thresholds[0]))  # mid-grade of the first cell
        return first + float(np.sum(a.jumps[z > a.thresholds]))

    def expected(z: float) -> float:
        if not b.thresholds.size:
            return float(ndtr(r * z / math.sqrt(2 - r * r)))
        return float(np.sum(b.jumps * ndtr((r * z - b.thresholds) / math.sqrt(1 - r * r))))

    def integrand(z: float) -> float:
        return (grade(z) - 0.5) * expected(z) * math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)

    kinks = np.concatenate([a.thresholds, b.thresholds / r if r else []])
    cuts = [-9.0, *sorted(float(t) for t in kinks if abs(t) < 9), 9.0]
    return 12 * sum(
        integrate.quad(integrand, low, high, epsabs=1e-10, limit=200)[0] for low, high in itertools.pairwise(cuts)
    )


@pytest.mark.parametrize("r", CORRELATIONS)
def test_continuous_columns_have_the_closed_form(r: float) -> None:
    assert s_of(r, CONTINUOUS, CONTINUOUS) == pytest.approx(6 / math.pi * math.asin(r / 2), abs=1e-12)


@pytest.mark.parametrize("r", CORRELATIONS)
def test_balanced_binary_columns_have_the_closed_form(r: float) -> None:
    """Two medians: P(both above) = 1/4 + asin(r)/(2 pi), a jump of 1/2 each."""
    half = shape_of([0.5, 0.5])
    assert s_of(r, half, half) == pytest.approx(3 * math.asin(r) / (2 * math.pi), abs=1e-12)


@pytest.mark.parametrize("r", CORRELATIONS)
@pytest.mark.parametrize("name", CELLS)
def test_discrete_with_continuous_is_the_integral(name: str, r: float) -> None:
    wanted = integrated(r, shape_of(CELLS[name]), CONTINUOUS)
    assert s_of(r, shape_of(CELLS[name]), CONTINUOUS) == pytest.approx(wanted, abs=1e-7)
    assert s_of(r, CONTINUOUS, shape_of(CELLS[name])) == pytest.approx(wanted, abs=1e-7)


@pytest.mark.parametrize("r", [-0.9, -0.3, 0.1, 0.6, 0.95])
@pytest.mark.parametrize(
    ("first", "second"),
    [("binary", "ordinal"), ("rare", "skewed"), ("rare", "rare"), ("ordinal", "many"), ("skewed", "ordinal")],
)
def test_discrete_with_discrete_is_the_integral(first: str, second: str, r: float) -> None:
    a, b = shape_of(CELLS[first]), shape_of(CELLS[second])
    wanted = integrated(r, a, b)
    assert s_of(r, a, b) == pytest.approx(wanted, abs=1e-6)
    assert s_of(r, b, a) == pytest.approx(wanted, abs=1e-6)


def test_a_large_sample_has_the_bridges_spearman() -> None:
    """End to end once: mid-grades of simulated cells, no integral involved."""
    rng = np.random.default_rng(1)
    r, n = 0.6, 400_000
    z = rng.standard_normal((n, 2))
    z[:, 1] = r * z[:, 0] + math.sqrt(1 - r * r) * z[:, 1]
    names = ("skewed", "ordinal")
    grades = []
    for column, name in enumerate(names):
        p = np.array(CELLS[name])
        middles = np.cumsum(p) - p / 2
        grades.append(middles[np.searchsorted(ndtri(np.cumsum(p)[:-1]), z[:, column])])
    product = 12 * (grades[0] - 0.5) * (grades[1] - 0.5)
    error = product.std() / math.sqrt(n)
    assert abs(product.mean() - s_of(r, shape_of(CELLS[names[0]]), shape_of(CELLS[names[1]]))) < 5 * error


SHAPES = {"continuous": CONTINUOUS, **{name: shape_of(cells) for name, cells in CELLS.items()}}


@pytest.mark.parametrize("second", SHAPES)
@pytest.mark.parametrize("first", SHAPES)
def test_inverting_the_bridge_returns_the_correlation(first: str, second: str) -> None:
    a, b = SHAPES[first], SHAPES[second]
    args = (a.thresholds, a.jumps, b.thresholds, b.jumps, _NODES, _WEIGHTS)
    for r in (-0.95, -0.6, -0.05, 0.0, 0.3, 0.8, 0.97):
        s = s_of(r, a, b)
        if abs(s_of(r + 1e-3, a, b) - s) < 1e-8:  # S is flat there: no r can be told from its neighbours
            continue
        found, slope = _invert_one(s, *args)
        assert found == pytest.approx(r, abs=1e-6)
        numerical = (s_of(r + 1e-5, a, b) - s_of(r - 1e-5, a, b)) / 2e-5
        if numerical > 0.01:
            assert slope == pytest.approx(1 / numerical, rel=1e-3)


@pytest.mark.parametrize("name", SHAPES)
def test_impossible_correlations_stop_at_the_strongest(name: str) -> None:
    shape = SHAPES[name]
    for sign in (-1.0, 1.0):
        found, slope = _invert_one(
            sign * 1.7, shape.thresholds, shape.jumps, CONTINUOUS.thresholds, CONTINUOUS.jumps, _NODES, _WEIGHTS
        )
        assert 0.99 < sign * found < 1.0
        assert math.isfinite(slope)


def test_all_pairs_are_inverted_and_flat_columns_say_nothing() -> None:
    shapes = [SHAPES["continuous"], SHAPES["ordinal"], SHAPES["binary"], GradeShape(np.empty(0), np.empty(0))]
    r = np.array([[1, 0.5, -0.3, 0], [0.5, 1, 0.2, 0], [-0.3, 0.2, 1, 0], [0, 0, 0, 1]])
    rho = np.array([[s_of(r[j, k], shapes[j], shapes[k]) if j != k else 1.0 for k in range(4)] for j in range(4)])
    rho[3, :3] = rho[:3, 3] = 0.4
    spearman = PairwiseSpearman(rho, np.full((4, 4), 0.01), np.full((4, 4), 9))
    latent = invert_bridge(spearman, shapes, np.array([False, False, False, True]))
    np.testing.assert_allclose(latent.rho, r, atol=1e-6)
    np.testing.assert_allclose(latent.variance, latent.variance.T)
    assert np.all(latent.variance[:3, :3][~np.eye(3, dtype=bool)] > 0.01)  # tied columns: attenuated, so stretched
