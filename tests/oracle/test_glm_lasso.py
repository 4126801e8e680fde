"""The weighted group lasso against its optimality conditions and scikit-learn, and the scale that it works on."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.linear_model import Lasso

from experiments.central_path import trace_path
from verticopula.glm.families import FAMILIES
from verticopula.glm.feature_design import Features, Standardised, join_features, standardise
from verticopula.glm.lasso import CLOSED, MAX_SWEEPS, group_curvatures, group_norms, solve_lasso
from verticopula.glm.penalties import Penalty

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TOLERANCE = 1e-11


def singles(q: int) -> Ints:
    return np.arange(q + 1)


def moments(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    return np.ascontiguousarray(x.T @ x / y.size), x.T @ y / y.size


def solve(gram: Floats, linear: Floats, weights: Floats, starts: Ints, tolerance: float = TOLERANCE) -> Floats:
    """From zero, to rest."""
    coef = np.zeros(linear.size)
    curvatures = group_curvatures(gram, starts)
    sweeps = solve_lasso(gram, linear, weights, starts, curvatures, coef, tolerance, MAX_SWEEPS)
    assert sweeps < MAX_SWEEPS
    return coef


def naive_objective(gram: Floats, linear: Floats, weights: Floats, starts: Ints, coef: Floats) -> float:
    penalty = sum(w * float(np.linalg.norm(coef[a:b])) for w, a, b in zip(weights, starts, starts[1:], strict=False))
    return float(coef @ gram @ coef / 2.0 - linear @ coef + penalty)


def naive_violation(gram: Floats, linear: Floats, weights: Floats, starts: Ints, coef: Floats) -> float:
    """The largest distance of a group's negative gradient from its subdifferential."""
    worst = 0.0
    gradient = gram @ coef - linear
    for w, a, b in zip(weights, starts, starts[1:], strict=False):
        norm = float(np.linalg.norm(coef[a:b]))
        if norm > 0.0:
            worst = max(worst, float(np.linalg.norm(gradient[a:b] + w * coef[a:b] / norm)))
        else:
            worst = max(worst, float(np.linalg.norm(gradient[a:b])) - w)
    return worst


def slack_of_moves(gram: Floats, tolerance: float = TOLERANCE) -> float:
    """What groups that moved by up to the tolerance leave of the optimality conditions.

    A move is measured by its effect on the fit, so it changes another group's gradient by at most that effect
    times the root of the other's curvature; every group may have moved since, and a group's own step, which
    majorises, leaves as much again. Rounding of the running gradient comes on top.
    """
    bend = float(np.linalg.eigvalsh(gram)[-1])
    return (gram.shape[0] + 2) * tolerance * float(np.sqrt(bend)) + 1e-12


def draw_columns(n: int, q: int, shared: float, rng: np.random.Generator) -> Floats:
    """Unit variance; every two correlated by `shared`."""
    common = rng.standard_normal((n, 1))
    return np.asarray(np.sqrt(shared) * common + np.sqrt(1.0 - shared) * rng.standard_normal((n, q)))


# ---- against scikit-learn ----------------------------------------------------------------


@pytest.mark.parametrize("strength", [0.5, 0.1, 0.01])
@pytest.mark.parametrize("shared", [0.0, 0.6])
def test_a_weighted_lasso_is_scikit_learns_on_scaled_columns(strength: float, shared: float) -> None:
    rng = np.random.default_rng(1)
    x = draw_columns(150, 8, shared, rng) * rng.uniform(0.5, 2.0, 8)
    y = x[:, :3] @ [1.0, -0.7, 0.3] + rng.standard_normal(150)
    weights = strength * rng.uniform(0.3, 3.0, 8)
    gram, linear = moments(x, y)
    found = solve(gram, linear, weights, singles(8))
    # w_j |b_j| is |c_j| for c_j = w_j b_j, a coefficient of x_j / w_j.
    model = Lasso(alpha=1.0, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(x / weights, y)
    # A duality gap bounds the squared distance, through the curvature: ||b - b*||^2 <= 2 gap / eigenvalue.
    distance = np.sqrt(2.0 * abs(model.dual_gap_) / np.linalg.eigvalsh(gram)[0]) + 1e-10
    np.testing.assert_allclose(found, model.coef_ / weights, rtol=0.0, atol=distance)
    clear = np.abs(model.coef_ / weights) > distance
    assert (found[clear] != 0.0).all()


# ---- optimality --------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [0.0, 0.5, 0.99, 0.9999])
@settings(max_examples=60)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=7),
    strength=st.floats(1e-4, 1.0),
    seed=st.integers(0, 10_000),
)
def test_groups_of_any_size_meet_the_optimality_conditions(
    shared: float, sizes: list[int], strength: float, seed: int
) -> None:
    """Raw columns, not whitened: the majorised steps of larger groups and the leaps between them do the work."""
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    x = draw_columns(60, int(starts[-1]), shared, rng) * rng.uniform(0.3, 3.0, starts[-1])
    y = x @ (rng.standard_normal(starts[-1]) * (rng.random(starts[-1]) < 0.5)) + rng.standard_normal(60)
    gram, linear = moments(x, y)
    weights = strength * rng.uniform(0.5, 2.0, len(sizes))
    found = solve(gram, linear, weights, starts)
    assert naive_violation(gram, linear, weights, starts, found) <= slack_of_moves(gram)


def test_sweeps_that_creep_are_helped_and_not_carried_away() -> None:
    """Columns so alike that a Newton step over a group's norm overshoots by a hundred times the solution."""
    rng = np.random.default_rng(0)
    x = draw_columns(60, 4, 0.9999, rng) * rng.uniform(0.3, 3.0, 4)
    y = x @ (rng.standard_normal(4) * (rng.random(4) < 0.5)) + rng.standard_normal(60)
    gram, linear = moments(x, y)
    weights, starts = 0.5 * rng.uniform(0.5, 2.0, 3), np.array([0, 1, 3, 4])
    curvatures, lowest = group_curvatures(gram, starts), 0.0
    for sweeps in (24, 25, 26, 100, 1000):  # a leap follows every twenty-fifth sweep
        coef = np.zeros(4)
        solve_lasso(gram, linear, weights, starts, curvatures, coef, TOLERANCE, sweeps)
        reached = naive_objective(gram, linear, weights, starts, coef)
        assert reached <= lowest + 1e-12
        lowest = reached


@settings(max_examples=40)
@given(shared=st.sampled_from([0.0, 0.9]), strength=st.floats(1e-3, 1.0), seed=st.integers(0, 10_000))
def test_a_sweep_never_raises_the_objective(shared: float, strength: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    starts = np.array([0, 1, 4, 5, 9])
    x = draw_columns(40, 9, shared, rng) * rng.uniform(0.3, 3.0, 9)
    gram, linear = moments(x, rng.standard_normal(40) + x[:, 2])
    weights = strength * np.sqrt(np.diff(starts))
    coef = rng.standard_normal(9)
    before = naive_objective(gram, linear, weights, starts, coef)
    first = before
    for _ in range(10):
        solve_lasso(gram, linear, weights, starts, group_curvatures(gram, starts), coef, 0.0, 1)
        after = naive_objective(gram, linear, weights, starts, coef)
        assert after <= before + 1e-13 * (1.0 + abs(first))
        before = after
    assert before < first


def test_a_group_enters_and_leaves_as_a_whole() -> None:
    rng = np.random.default_rng(2)
    starts = np.array([0, 3, 6])
    x = rng.standard_normal((200, 6))
    y = 2.0 * x[:, 0] + 0.01 * rng.standard_normal(200)  # one column of the first group, none of the second
    gram, linear = moments(x, y)
    entry = group_norms(linear, starts)
    just_out = solve(gram, linear, 1.001 * entry, starts)
    np.testing.assert_array_equal(just_out, np.zeros(6))
    inside = solve(gram, linear, np.array([0.3, 0.3]) * entry[0], starts)
    assert (inside[:3] != 0.0).all()
    np.testing.assert_array_equal(inside[3:], np.zeros(3))


# ---- columns that say the same, or nothing -----------------------------------------------


@pytest.mark.parametrize("strength", [0.3, 0.05, 1e-3])
def test_exact_duplicates_share_what_one_column_would_have(strength: float) -> None:
    rng = np.random.default_rng(3)
    x = draw_columns(100, 5, 0.3, rng)
    y = x @ [1.0, -1.0, 0.5, 0.0, 0.0] + rng.standard_normal(100)
    twice = np.hstack([x, x[:, :3]])
    gram, linear = moments(twice, y)
    found = solve(gram, linear, np.full(8, strength), singles(8))
    assert naive_violation(gram, linear, np.full(8, strength), singles(8), found) <= slack_of_moves(gram)
    alone = solve(*moments(x, y), np.full(5, strength), singles(5))
    together = found[:5] + np.append(found[5:], [0.0, 0.0])
    # The objective in the sums is that of five columns; optimality to slack, over the curvature.
    bend = float(np.linalg.eigvalsh(gram[:5, :5])[0])
    np.testing.assert_allclose(together, alone, rtol=0.0, atol=np.sqrt(8) * 2 * slack_of_moves(gram) / bend)


@pytest.mark.parametrize("noise", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("strength", [0.1, 1e-3])
def test_near_duplicates_do_not_keep_the_sweeps_from_coming_to_rest(noise: float, strength: float) -> None:
    """The Gram matrix holds the square of the noise, so that less than 1e-7 would be lost in its rounding."""
    rng = np.random.default_rng(4)
    x = draw_columns(100, 6, 0.5, rng)
    x = np.hstack([x, x + noise * rng.standard_normal((100, 6))])
    y = x[:, :3].sum(axis=1) - x[:, 6] + rng.standard_normal(100)
    gram, linear = moments(x, y)
    found = solve(gram, linear, np.full(12, strength), singles(12))
    assert naive_violation(gram, linear, np.full(12, strength), singles(12), found) <= slack_of_moves(gram)


@pytest.mark.parametrize("left", [0.0, 1e-9])
def test_a_column_of_zeros_or_of_rounding_stays_out_even_without_a_penalty(left: float) -> None:
    rng = np.random.default_rng(5)
    x = draw_columns(80, 6, 0.2, rng)
    x[:, [1, 3, 4]] *= left
    starts = np.array([0, 1, 2, 3, 5, 6])  # the fourth and fifth columns are a group of nothing
    y = rng.standard_normal(80) + x[:, 0]
    gram, linear = moments(x, y)
    found = solve(gram, linear, np.zeros(5), starts)
    np.testing.assert_array_equal(found[[1, 3, 4]], np.zeros(3))
    kept = [0, 2, 5]
    np.testing.assert_allclose(found[kept], np.linalg.lstsq(x[:, kept], y)[0], rtol=0.0, atol=1e-9)


def test_a_closed_group_stays_out_and_an_unweighted_one_is_least_squares() -> None:
    rng = np.random.default_rng(6)
    x = draw_columns(100, 7, 0.4, rng)
    starts = np.array([0, 1, 3, 4, 7])
    y = x @ np.ones(7) + rng.standard_normal(100)
    gram, linear = moments(x, y)
    weights = np.array([0.0, CLOSED, CLOSED, 0.0])
    coef = np.ones(7)  # a start that is not closed: it must be emptied
    solve_lasso(gram, linear, weights, starts, group_curvatures(gram, starts), coef, TOLERANCE, MAX_SWEEPS)
    np.testing.assert_array_equal(coef[1:4], np.zeros(3))
    kept = [0, 4, 5, 6]
    slack = np.sqrt(7) * slack_of_moves(gram) / float(np.linalg.eigvalsh(gram)[0])
    np.testing.assert_allclose(coef[kept], np.linalg.lstsq(x[:, kept], y)[0], rtol=0.0, atol=slack)


def test_nothing_is_solved_where_there_are_no_columns() -> None:
    empty, none = np.zeros((0, 0)), np.zeros(0)
    assert group_curvatures(empty, np.zeros(1, dtype=np.int64)).size == 0
    assert solve(empty, none, none, np.zeros(1, dtype=np.int64)).size == 0


def test_the_curvature_of_a_group_is_its_largest_eigenvalue() -> None:
    gram = np.array([[2.0, 0.0, 0.0], [0.0, 3.0, 1.0], [0.0, 1.0, 3.0]])
    np.testing.assert_allclose(group_curvatures(gram, np.array([0, 1, 3])), [2.0, 4.0], rtol=1e-14)
    np.testing.assert_allclose(group_norms(np.array([-2.0, 3.0, 4.0]), np.array([0, 1, 3])), [2.0, 5.0], rtol=1e-15)


# ---- the common scale --------------------------------------------------------------------


def code_category(codes: Ints, n_levels: int, reference: int | None, name: str = "branch") -> Features:
    """Indicators of all levels but the reference; of all levels where there is none."""
    levels = [level for level in range(n_levels) if level != reference]
    values = np.column_stack([codes == level for level in levels]).astype(np.float64)
    return Features(values, np.array([0, len(levels)]), tuple(f"{name}={level}" for level in levels), (name,))


def mixed_features(reference: int | None, n_levels: int = 4) -> tuple[Features, Floats]:
    """Two numbers around a category of four levels, and a response that depends on both kinds."""
    rng = np.random.default_rng(7)
    codes = rng.choice(4, 300, p=[0.5, 0.3, 0.15, 0.05])
    left, right = 5.0 + 3.0 * rng.standard_normal((300, 1)) + codes[:, None], 1e-3 * rng.standard_normal((300, 1))
    y = 0.3 * left[:, 0] + np.array([0.0, 1.0, -1.0, 2.0])[codes] + rng.standard_normal(300)
    parts = [Features.plain(left, ["a"]), code_category(codes, n_levels, reference), Features.plain(right, ["b"])]
    return join_features(parts), y


def test_joined_features_keep_names_groups_and_order() -> None:
    features, _ = mixed_features(reference=0)
    assert features.names == ("a", "branch=1", "branch=2", "branch=3", "b")
    assert features.sources == ("a", "branch", "b")
    assert features.starts.tolist() == [0, 1, 4, 5]


@pytest.mark.parametrize("reference", [0, 2])
@pytest.mark.parametrize("centre", [True, False])
def test_every_group_has_unit_covariance_and_a_way_back(reference: int, centre: bool) -> None:
    features, _ = mixed_features(reference)
    design = standardise(features, centre=centre)
    for first, last in zip(design.starts, design.starts[1:], strict=False):
        found = np.cov(design.columns[:, first:last], rowvar=False, bias=True).reshape(last - first, last - first)
        np.testing.assert_allclose(found, np.eye(last - first), rtol=0.0, atol=1e-11)
    assert design.sizes.tolist() == [1, 3, 1]
    np.testing.assert_allclose(design.factors, np.sqrt([1.0, 3.0, 1.0]))
    assert not design.constant.any()
    if centre:
        np.testing.assert_allclose(design.columns.mean(axis=0), np.zeros(5), rtol=0.0, atol=1e-11)
    else:
        np.testing.assert_array_equal(design.centre, np.zeros(5))
    coef = np.random.default_rng(8).standard_normal((3, 5))
    raw = design.to_raw(coef)
    np.testing.assert_allclose((features.values - design.centre) @ raw.T, design.columns @ coef.T, rtol=0.0, atol=1e-10)
    np.testing.assert_allclose(design.apply(features.values), design.columns, rtol=0.0, atol=1e-12)


def fitted_values(features: Features, y: Floats, penalty: str, strengths: Floats) -> tuple[Floats, list[int]]:
    design: Standardised = standardise(features, centre=True)
    path = trace_path(design, y, FAMILIES["gaussian"], Penalty.build(penalty), strengths, tolerance=1e-10)
    points = list(path)
    return (
        np.array([features.values @ point.coef + point.intercept for point in points]),
        [point.degrees_of_freedom for point in points],
    )


@pytest.mark.parametrize("penalty", ["lasso", "scad", "mcp", "none"])
@pytest.mark.parametrize("other", [3, None])
def test_the_choice_of_a_reference_category_does_not_change_the_fit(penalty: str, other: int | None) -> None:
    """Every coding spans the same columns; unit covariance inside the group makes the penalty forget which it was."""
    strengths = np.array([0.5, 0.2, 0.05, 0.01])
    features, y = mixed_features(reference=0)
    expected, sizes = fitted_values(features, y, penalty, strengths)
    found, found_sizes = fitted_values(mixed_features(other)[0], y, penalty, strengths)
    assert len(set(sizes)) > 1 or penalty == "none"
    assert found_sizes == sizes
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-7)


def test_a_category_that_does_not_occur_has_no_coefficient_and_no_degree_of_freedom() -> None:
    strengths = np.array([0.2, 0.01])
    features, y = mixed_features(reference=0, n_levels=5)  # the fifth level never occurs
    design = standardise(features, centre=True)
    assert design.sizes.tolist() == [1, 3, 1]
    empty = features.names.index("branch=4")
    raw = design.to_raw(np.random.default_rng(9).standard_normal(6))
    assert raw[empty] == pytest.approx(0.0, abs=1e-12)
    expected = fitted_values(mixed_features(reference=0)[0], y, "scad", strengths)
    found = fitted_values(features, y, "scad", strengths)
    assert found[1] == expected[1]
    np.testing.assert_allclose(found[0], expected[0], rtol=0.0, atol=1e-7)


@pytest.mark.parametrize("value", [0.0, 0.1, -1e8])
def test_a_constant_column_cannot_enter_beside_an_intercept(value: float) -> None:
    x = np.column_stack([np.random.default_rng(10).standard_normal(50), np.full(50, value)])
    design = standardise(Features.plain(x, ["a", "flat"]), centre=True)
    assert design.constant.tolist() == [False, True]
    np.testing.assert_array_equal(design.columns[:, 1], np.zeros(50))
    points = list(trace_path(design, x[:, 0] + 1.0, FAMILIES["gaussian"], Penalty.build("none"), np.array([0.0])))
    assert points[0].coef[1] == 0.0


@pytest.mark.parametrize("value", [0.1, -1e8])
def test_a_constant_column_is_the_intercept_where_none_is_fitted(value: float) -> None:
    rng = np.random.default_rng(11)
    x = np.column_stack([rng.standard_normal(50) + 2.0, np.full(50, value)])
    design = standardise(Features.plain(x, ["a", "flat"]), centre=False)
    assert not design.constant.any()
    assert np.mean(design.columns[:, 1] ** 2) == pytest.approx(1.0, rel=1e-12)
    y = 3.0 + x[:, 0] + 0.1 * rng.standard_normal(50)
    (point,) = trace_path(
        design, y, FAMILIES["gaussian"], Penalty.build("none"), np.array([0.0]), fit_intercept=False, tolerance=1e-10
    )
    expected = np.linalg.lstsq(np.column_stack([x[:, 0], np.ones(50)]), y)[0]
    np.testing.assert_allclose(point.coef * [1.0, value], expected, rtol=1e-6)


def test_a_column_of_zeros_is_constant_with_and_without_centring() -> None:
    x = np.column_stack([np.arange(5.0), np.zeros(5)])
    for centre in (True, False):
        assert standardise(Features.plain(x, ["a", "nil"]), centre=centre).constant.tolist() == [False, True]
