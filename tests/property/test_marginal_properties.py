"""Cells, simplex, smoothing and inversion of marginals, for any column and any numbers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from verticopula.privacy.noise import SeededNoise
from verticopula.schema.columns import Column
from verticopula.stats.margin_cells import (
    MARGIN_TUNING,
    cell_count,
    continuous_cell_count,
    count_cells,
    count_ranges,
    from_unit,
    to_cells,
    to_unit,
)
from verticopula.stats.marginals import (
    Marginal,
    iterate_bernstein,
    project_to_simplex,
    release_cells,
    smooth_cdf,
    smooth_tails,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GRID = np.linspace(0, 1, 1025)

weights = st.lists(st.floats(0.0, 1.0), min_size=2, max_size=40).map(np.array)
probabilities = weights.filter(lambda w: w.sum() > 1e-3).map(lambda w: w / w.sum())
grades = st.lists(st.floats(1e-9, 1 - 1e-9), min_size=1, max_size=20).map(lambda u: np.sort(u))
bounds = st.tuples(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6)).map(lambda b: (b[0], b[0] + b[1]))
positive_bounds = st.tuples(st.floats(1e-6, 1e3), st.floats(1.01, 1e6)).map(lambda b: (b[0], b[0] * b[1]))


@st.composite
def continuous_columns(draw: st.DrawFn) -> Column:
    scale = draw(st.sampled_from(["linear", "log", "symlog"]))
    return Column(name="x", kind="continuous", scale=scale, bounds=draw(positive_bounds if scale == "log" else bounds))


# ---- the public scale --------------------------------------------------------------------


@given(continuous_columns(), st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_positions_and_values_are_inverses(column: Column, positions: list[float]) -> None:
    t = np.array(positions)
    assert column.bounds is not None
    low, high = column.bounds
    values = from_unit(t, column)
    assert np.all((values >= low) & (values <= high))
    # A position is lost where neighbouring floats of the value are further apart than it.
    coarse = 4e-16 * max(abs(low), abs(high)) / (high - low) * (1 + math.log1p(max(abs(low), abs(high))))
    np.testing.assert_allclose(to_unit(values, column), t, atol=1e-9 + 10 * coarse)
    np.testing.assert_allclose(from_unit(to_unit(values, column), column), values, rtol=1e-9, atol=1e-9 * (high - low))
    assert to_unit(np.array([low]), column)[0] == 0.0
    assert to_unit(np.array([high]), column)[0] == 1.0


@given(continuous_columns(), st.integers(0, 6), st.floats(0, 1))
def test_rounded_values_stay_within_bounds(column: Column, decimals: int, t: float) -> None:
    rounded = column.model_copy(update={"decimals": decimals})
    assert column.bounds is not None
    value = from_unit(np.array([t]), rounded)[0]
    assert column.bounds[0] <= value <= column.bounds[1]
    assert value in column.bounds or value == round(value, decimals)


# ---- cells -------------------------------------------------------------------------------


@given(st.integers(-(2**53) + 1, 2**53 - 2), st.integers(1, 2**54), st.sampled_from(["even", "growing"]))
def test_count_cells_cover_every_whole_number_once(low: int, width: int, kind: str) -> None:
    high = min(low + width, 2**53 - 1)
    assume(high > low)
    column = Column(name="n", kind="count", bounds=(low, high), cells=kind)
    firsts = count_cells(column)
    assert firsts[0] == low
    assert firsts[-1] == high + 1
    assert np.all(np.diff(firsts) >= 1)
    most = MARGIN_TUNING.most_even_cells if kind == "even" else MARGIN_TUNING.most_count_cells
    assert 1 <= firsts.size - 1 <= most
    edges = np.concatenate([firsts[:-1], firsts[1:] - 1]).astype(np.float64)
    cells = to_cells(edges, column, firsts.size - 1)
    np.testing.assert_array_equal(cells, np.tile(np.arange(firsts.size - 1), 2))


def test_the_largest_count_is_in_the_last_cell() -> None:
    column = Column(name="n", kind="count", bounds=(2**53 - 4, 2**53 - 1))
    assert to_cells(np.array([2.0**53 - 1]), column, 4)[0] == 3


@given(st.integers(-1_000, 1_000), st.integers(1, 400))
def test_every_count_has_one_cell(low: int, width: int) -> None:
    column = Column(name="n", kind="count", bounds=(low, low + width))
    everything = np.arange(low, low + width + 1)
    cells = to_cells(everything.astype(np.float64), column, cell_count(column, 100, 1.0))
    firsts = count_cells(column)
    for value, cell in zip(everything, cells, strict=True):
        assert firsts[cell] <= value < firsts[cell + 1]


@given(continuous_columns(), st.integers(1, 300), st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_continuous_values_fall_into_equal_pieces(column: Column, cells: int, positions: list[float]) -> None:
    values = from_unit(np.array(positions), column)
    found = to_cells(values, column, cells)
    assert np.all((found >= 0) & (found < cells))
    np.testing.assert_allclose(found, np.clip(to_unit(values, column) * cells - 0.5, 0, cells - 1), atol=0.5 + 1e-9)


@given(st.integers(2, 10**7), st.floats(1e-6, 50.0), st.floats(1.0, 10.0))
def test_the_number_of_cells_is_public_and_grows(n: int, epsilon: float, factor: float) -> None:
    degree = continuous_cell_count(n, epsilon)
    assert MARGIN_TUNING.fewest_cells <= degree <= MARGIN_TUNING.most_cells
    assert continuous_cell_count(n, epsilon * factor) >= degree


class NoNoise:
    """Counts as they are, so that their sensitivity can be measured; keeps what was asked."""

    is_private = False

    def __init__(self) -> None:
        self.scales: list[float] = []

    def discrete_laplace(self, values: Ints, scale: float, *label: str) -> Ints:
        self.scales.append(scale)
        self.seen = values
        return values


@pytest.mark.parametrize("n_cells", [2, 3, 4])
def test_replacing_one_value_moves_the_counts_by_their_sensitivity(n_cells: int) -> None:
    """Exhaustive: all data sets of 4 subjects, every replacement of one value."""
    noise, epsilon = NoNoise(), 0.5
    counted = {}
    for cells in itertools.product(range(n_cells), repeat=4):
        release_cells(np.array(cells), n_cells, epsilon, noise, "x")  # type: ignore[arg-type]
        counted[cells] = noise.seen
    worst = max(
        int(np.abs(counted[a] - counted[b]).sum())
        for a in counted
        for b in counted
        if sum(x != y for x, y in zip(a, b, strict=True)) == 1
    )
    assert worst == (1 if n_cells == 2 else 2)
    assert set(noise.scales) == {worst / epsilon}


def test_two_cells_always_add_up_to_the_public_number() -> None:
    for k in range(50):
        noisy = release_cells(np.array([0, 1, 1]), 2, 0.1, SeededNoise(k), "x")
        assert noisy.sum() == 3


# ---- simplex -----------------------------------------------------------------------------


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=30).map(np.array), st.integers(0, 2**32))
def test_the_projection_is_the_nearest_point_of_the_simplex(w: Floats, seed: int) -> None:
    projected = project_to_simplex(w)
    assert np.all(projected >= 0)
    assert projected.sum() == pytest.approx(1.0, abs=1e-12)
    # Optimality: w - projected is constant where the projection is positive, and no larger elsewhere.
    excess = w - projected
    inside = projected > 1e-12
    assert np.ptp(excess[inside]) < 1e-9
    assert np.all(excess[~inside] <= excess[inside].min() + 1e-9)
    for other in np.random.default_rng(seed).dirichlet(np.ones(w.size), 5):
        assert np.sum((w - projected) ** 2) <= np.sum((w - other) ** 2) + 1e-9


@given(probabilities)
def test_probabilities_are_left_alone(p: Floats) -> None:
    np.testing.assert_allclose(project_to_simplex(p), p, atol=1e-12)


def test_very_noisy_counts_still_have_a_projection() -> None:
    projected = project_to_simplex(np.array([3e16, -1e16, 0.0]))
    np.testing.assert_allclose(projected, [1, 0, 0])


# ---- smoothing ---------------------------------------------------------------------------


@given(probabilities, st.integers(1, 30))
def test_a_smoothed_cdf_is_a_cdf(p: Floats, order: int) -> None:
    found = smooth_cdf(p, order)
    assert found.values[0] == 0.0
    assert found.values[-1] == 1.0
    assert np.all(np.diff(found.values) >= 0)
    assert np.all((found.values >= 0) & (found.values <= 1))
    assert found.repair >= 0


@given(probabilities)
def test_no_iteration_is_the_bernstein_polynomial(p: Floats) -> None:
    """Order 1: sum over v of F(v/l) C(l,v) x^v (1-x)^(l-v), which needs no repair."""
    cumulative = np.concatenate([[0], np.cumsum(p)])
    degree = p.size
    x = GRID[::64]
    naive = sum(cumulative[v] * math.comb(degree, v) * x**v * (1 - x) ** (degree - v) for v in range(degree + 1))
    found = smooth_cdf(p, 1)
    np.testing.assert_allclose(found.values[::64], naive, atol=1e-9)
    assert found.repair < 1e-9


@given(probabilities, st.integers(1, 8))
def test_iterating_is_the_binomial_sum_of_powers(p: Floats, order: int) -> None:
    """Eq. (9) as printed: sum over i of C(h,i) (-1)^(i-1) B^i, applied to the coefficients."""
    coefficients = np.concatenate([[0], np.cumsum(p)])
    degree = p.size
    matrix = np.array(
        [
            [math.comb(degree, v) * (w / degree) ** v * (1 - w / degree) ** (degree - v) for v in range(degree + 1)]
            for w in range(degree + 1)
        ]
    )
    printed = sum(
        math.comb(order, i) * (-1) ** (i - 1) * np.linalg.matrix_power(matrix, i - 1) @ coefficients
        for i in range(1, order + 1)
    )
    np.testing.assert_allclose(iterate_bernstein(coefficients, order), printed, atol=1e-7)


def test_uniform_cells_stay_uniform() -> None:
    np.testing.assert_allclose(smooth_cdf(np.full(16, 1 / 16)).values, GRID, atol=1e-9)


# ---- marginals ---------------------------------------------------------------------------


@given(continuous_columns(), probabilities, grades)
def test_continuous_quantiles_stay_within_bounds_and_invert(column: Column, p: Floats, u: Floats) -> None:
    margin = Marginal(column, p, 0.0)
    values = margin.quantile(u)
    assert column.bounds is not None
    assert np.all((values >= column.bounds[0]) & (values <= column.bounds[1]))
    assert np.all(np.diff(values) >= 0)
    reach = max(abs(b) for b in column.bounds)
    if (column.bounds[1] - column.bounds[0]) / reach > 1e-6:  # else its floats are too coarse to carry a grade
        np.testing.assert_allclose(margin.cdf(values), u, atol=1e-5)


@given(st.integers(-50, 50), st.integers(1, 500), weights, grades)
def test_count_quantiles_are_the_generalised_inverse(low: int, width: int, w: Floats, u: Floats) -> None:
    column = Column(name="n", kind="count", bounds=(low, low + width))
    p = np.resize(w + 0.01, cell_count(column, 100, 1.0))
    check_inverse(Marginal(column, p / p.sum(), 0.0), np.arange(low, low + width + 1).astype(np.float64), u)


@given(probabilities, grades)
def test_category_quantiles_are_the_generalised_inverse(p: Floats, u: Floats) -> None:
    column = Column(name="c", kind="ordinal", categories=tuple(range(p.size)))
    check_inverse(Marginal(column, p, 0.0), np.arange(p.size).astype(np.float64), u)


def check_inverse(margin: Marginal, support: Floats, u: Floats) -> None:
    """quantile(u) is a value of positive mass whose cdf reaches u, and whose predecessor's does not exceed it."""
    cdf = margin.cdf(support)
    assert np.all(np.diff(cdf) >= -1e-12)
    assert cdf[-1] == pytest.approx(1.0)
    assert margin.cdf(support[:1] - 1)[0] == 0.0
    values = margin.quantile(u)
    index = np.searchsorted(support, values)
    np.testing.assert_array_equal(support[index], values)
    before = np.where(index > 0, cdf[index - 1], 0.0)
    assert np.all(cdf[index] >= u - 1e-9)
    assert np.all(before <= u + 1e-9)
    assert np.all(cdf[index] - before > 0)


@given(probabilities)
def test_grade_steps_and_moments_of_categories(p: Floats) -> None:
    """Mean 1/2, and the variance of mid-grades from its definition."""
    margin = Marginal(Column(name="c", kind="ordinal", categories=tuple(range(p.size))), p, 0.0)
    middles = np.cumsum(p) - p / 2
    assert float(np.sum(p * middles)) == pytest.approx(0.5)
    assert margin.grade_variance == pytest.approx(float(np.sum(p * (middles - 0.5) ** 2)), abs=1e-9)
    steps, jumps = margin.grade_steps
    assert steps.size == jumps.size == max(np.sum(p > 1e-9) - 1, 0)
    assert np.all((steps > 0) & (steps < 1))
    kept = p[p > 1e-9]
    np.testing.assert_allclose(np.cumsum(jumps), (np.cumsum(kept) - kept / 2)[1:] - kept[0] / 2, atol=1e-6)
    assert margin.tied_share == pytest.approx(float(np.sum(p**2)))


def test_a_release_becomes_probabilities() -> None:
    column = Column(name="c", kind="nominal", categories=("a", "b", "c"))
    margin = Marginal.from_release(column, np.array([60, 45, -5]), 100, 1.0)
    np.testing.assert_allclose(margin.probabilities, [0.575, 0.425, 0.0])
    assert margin.repair == pytest.approx(0.025 + 0.025 + 0.05)
    binary = margin.latents()
    assert [round(b.probabilities[1], 3) for b in binary] == [0.575, 0.425, 0.0]
    assert Marginal(Column(name="x", kind="continuous", bounds=(0, 1)), np.ones(4) / 4, 0.0).grade_steps[0].size == 0


@given(st.integers(65, 10**9), st.lists(st.floats(0, 1), min_size=64, max_size=64).map(np.array))
def test_counts_in_wide_cells_are_hardly_tied(width: int, w: Floats) -> None:
    """Values of a cell share its mass: ties and mid-grades are those of single values."""
    column = Column(name="n", kind="count", bounds=(0, width))
    cells = cell_count(column, 100, 1.0)
    p = (w[:cells] + 0.01) / np.sum(w[:cells] + 0.01)
    margin = Marginal(column, p, 0.0)
    widths = np.diff(count_ranges(0, width))
    # A wide cell is cut into finitely many parts, so up to 1/16 of its own ties are too many.
    exact = float(np.sum(p**2 / widths))
    assert exact - 1e-9 <= margin.tied_share <= exact + float(np.sum(p**2)) / 16
    variance = (1 - float(np.sum(p**3 / widths**2))) / 12
    assert variance - float(np.sum(p**3)) / 12 / 256 - 1e-9 <= margin.grade_variance <= variance + 1e-9


def test_a_wide_count_has_few_steps() -> None:
    column = Column(name="n", kind="count", bounds=(0, 10**6))
    cells = cell_count(column, 100, 1.0)
    steps, _ = Marginal(column, np.full(cells, 1 / cells), 0.0).grade_steps
    assert steps.size < 200


@given(st.lists(st.floats(-50, 50), min_size=3, max_size=60).map(np.array), st.floats(0.1, 20.0))
def test_settling_the_tails_keeps_their_sums_and_leaves_the_middle_alone(counts: Floats, deviation: float) -> None:
    settled = smooth_tails(counts, deviation)
    assert settled.sum() == pytest.approx(counts.sum(), abs=1e-8)
    changed = np.flatnonzero(np.abs(settled - counts) > 1e-9)
    reach = 3.0 * deviation * np.sqrt(np.arange(1, counts.size + 1))
    from_left = int(np.argmax(np.cumsum(counts) > reach)) if (np.cumsum(counts) > reach).any() else 0
    if changed.size and changed.max() < from_left:  # only the left tail moved
        assert np.all(np.diff(settled[:from_left]) >= -1e-9)


def test_noise_in_empty_outer_cells_does_not_become_mass() -> None:
    """A narrow margin in a wide range: 40 of 200 cells are used."""
    rng = np.random.default_rng(3)
    column = Column(name="x", kind="continuous", bounds=(0.0, 200.0))
    counts = np.zeros(200, dtype=np.int64)
    counts[80:120] = 50
    outside = {}
    for name, epsilon in (("settled", 1.0), ("as it is", 1e9)):  # no noise expected, nothing settled
        shares = []
        for _ in range(20):
            noisy = counts + np.round(rng.laplace(0.0, 2.0, 200)).astype(np.int64)
            found = Marginal.from_release(column, noisy, 2_000, epsilon).probabilities
            shares.append(1.0 - found[78:122].sum())
        outside[name] = float(np.mean(shares))
    assert outside["settled"] < 0.25 * outside["as it is"]
