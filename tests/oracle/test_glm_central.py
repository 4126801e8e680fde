"""The central solver: optimality conditions, and the answers of scikit-learn, skglm and R's ncvreg."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from skglm.utils.prox_funcs import prox_MCP, prox_SCAD
from sklearn.linear_model import Lasso, LinearRegression, LogisticRegression, PoissonRegressor

from experiments.central_path import trace_path
from verticopula.glm.central_solver import largest_strength, maximise_likelihood, null_point, violations
from verticopula.glm.families import FAMILIES
from verticopula.glm.feature_design import Features, Standardised, join_features, standardise
from verticopula.glm.penalties import Penalty
from verticopula.glm.strength_path import PATH_TUNING, PathPoint, RefitRule

Floats = NDArray[np.float64]

NCVREG = Path(__file__).parent / "ncvreg"
FAMILY_NAMES = ["gaussian", "binomial", "poisson"]
TOLERANCE = 1e-8
WEIGHT_SLACK = 10.0  # by how many tolerances a concave penalty's weights may still move, relative to the strength
every_family = pytest.mark.parametrize("family", FAMILY_NAMES)
every_penalty = pytest.mark.parametrize("penalty", ["lasso", "scad", "mcp", "none"])


def draw_response(family: str, predictor: Floats, rng: np.random.Generator) -> Floats:
    z = (predictor - predictor.mean()) / predictor.std()
    if family == "gaussian":
        return np.asarray(5.0 + 2.0 * z + rng.standard_normal(z.size))
    if family == "binomial":
        return (rng.random(z.size) < 1.0 / (1.0 + np.exp(-1.5 * z - 0.3))).astype(np.float64)
    return rng.poisson(np.exp(0.7 * z + 0.4)).astype(np.float64)


def draw_numbers(n: int, q: int, shared: float, rng: np.random.Generator) -> Floats:
    """Correlated columns with means and scales of their own."""
    x = np.sqrt(shared) * rng.standard_normal((n, 1)) + np.sqrt(1.0 - shared) * rng.standard_normal((n, q))
    return np.asarray(x * rng.uniform(0.3, 3.0, q) + rng.standard_normal(q))


def mixed_problem(family: str, n: int = 300) -> tuple[Features, Floats]:
    """Six numbers and two categories, of which half matter."""
    rng = np.random.default_rng(1)
    x = draw_numbers(n, 6, 0.4, rng)
    codes, idle = rng.integers(0, 4, n), rng.integers(0, 3, n)
    flags = np.column_stack([codes == level for level in (1, 2, 3)]).astype(np.float64)
    noise = np.column_stack([idle == level for level in (1, 2)]).astype(np.float64)
    scaled = (x - x.mean(axis=0)) / x.std(axis=0)
    y = draw_response(family, scaled[:, :3] @ [1.0, -0.8, 0.4] + flags @ [1.0, -1.0, 0.3], rng)
    parts = [
        Features.plain(x[:, :3], ["a", "b", "c"]),
        Features(flags, np.array([0, 3]), ("d=1", "d=2", "d=3"), ("d",)),
        Features(noise, np.array([0, 2]), ("e=1", "e=2"), ("e",)),
        Features.plain(x[:, 3:], ["f", "g", "h"]),
    ]
    return join_features(parts), y


def plain(x: Floats) -> Features:
    return Features.plain(x, [f"x{j}" for j in range(x.shape[1])])


def entry_strength(design: Standardised, y: Floats, family: str, *, fit_intercept: bool = True) -> float:
    null = null_point(design, y, FAMILIES[family], fit_intercept=fit_intercept)
    residual = FAMILIES[family].residual(np.full(y.size, null.intercept), y)
    return largest_strength(design.columns, residual, design.starts, design.factors)


def naive_violation(
    features: Features, y: Floats, family: str, penalty: Penalty, point: PathPoint, *, fit_intercept: bool = True
) -> float:
    """The largest violation of the optimality conditions, group by group, relative to the group's strength.

    Written out from Eq. (3): columns whitened inside groups by an eigendecomposition of their covariance, the
    negative gradient within P'(0) of zero where a group is out, and equal to P'(||b||) b / ||b|| where it is in.
    """
    mean = {"gaussian": lambda e: e, "binomial": lambda e: 1.0 / (1.0 + np.exp(-e)), "poisson": np.exp}[family]
    residual = mean(features.values @ point.coef + point.intercept) - y
    worst = abs(float(residual.mean())) / max(point.strength, 1e-300) if fit_intercept else 0.0
    for first, last in zip(features.starts, features.starts[1:], strict=False):
        part = features.values[:, first:last]
        eigenvalues, vectors = np.linalg.eigh(np.atleast_2d(np.cov(part, rowvar=False, bias=True)))
        columns = (part - part.mean(axis=0) if fit_intercept else part) @ (vectors / np.sqrt(eigenvalues))
        coef = np.sqrt(eigenvalues) * (vectors.T @ point.coef[first:last])
        gradient, norm = columns.T @ residual / y.size, float(np.linalg.norm(coef))
        own = point.strength * np.sqrt(last - first)
        slope = float(penalty.slope(norm, own))
        if norm > 0.0:
            distance = float(np.linalg.norm(gradient + slope * coef / norm))
        else:
            distance = float(np.linalg.norm(gradient)) - slope
        worst = max(worst, distance / own)
    return worst


# ---- optimality --------------------------------------------------------------------------


@every_family
@every_penalty
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_every_point_of_a_path_meets_the_optimality_conditions(family: str, penalty: str, fit_intercept: bool) -> None:
    features, y = mixed_problem(family)
    design = standardise(features, centre=fit_intercept)
    chosen = Penalty.build(penalty)
    top = entry_strength(design, y, family, fit_intercept=fit_intercept)
    strengths = top * np.geomspace(0.95, 0.03, 8)
    points = list(
        trace_path(design, y, FAMILIES[family], chosen, strengths, fit_intercept=fit_intercept, tolerance=TOLERANCE)
    )
    assert len(points) == strengths.size
    assert all(point.converged for point in points)
    # Each weighted lasso to TOLERANCE (coordinate descent: every later move of 0.1 may undo as much), and the
    # weights to WEIGHT_SLACK times it; relative to the strength, as the rounding of the gradient is below that.
    allowed = (WEIGHT_SLACK + max(1.0, 0.1 * (design.factors.size + 2))) * TOLERANCE
    for point in points:
        assert naive_violation(features, y, family, chosen, point, fit_intercept=fit_intercept) <= allowed
        eta = features.values @ point.coef + point.intercept
        assert point.loss == pytest.approx(FAMILIES[family].loss(eta, y), rel=1e-12)
        assert fit_intercept or point.intercept == 0.0
    if penalty != "none":
        sizes = [point.degrees_of_freedom for point in points]
        assert sizes[0] < sizes[-1]


@every_family
def test_no_column_enters_at_the_largest_strength_and_one_just_below(family: str) -> None:
    features, y = mixed_problem(family)
    design = standardise(features, centre=True)
    top = entry_strength(design, y, family)
    at, below = trace_path(
        design, y, FAMILIES[family], Penalty.build("lasso"), np.array([top * (1 + 1e-9), top * 0.999]), tolerance=1e-6
    )
    assert not at.coef.any()
    assert at.intercept == pytest.approx(FAMILIES[family].link(float(y.mean())), rel=1e-9)
    assert below.coef.any()


@every_family
@pytest.mark.parametrize("penalty", ["lasso", "scad", "mcp"])
def test_a_solution_does_not_depend_on_how_the_path_was_cut(family: str, penalty: str) -> None:
    features, y = mixed_problem(family)
    design = standardise(features, centre=True)
    last = 0.1 * entry_strength(design, y, family)
    chosen = Penalty.build(penalty)
    fine, coarse = (
        list(trace_path(design, y, FAMILIES[family], chosen, strengths, tolerance=TOLERANCE))[-1]
        for strengths in (last * np.geomspace(10.0, 1.0, 13), np.array([last]))
    )
    assert ((fine.coef != 0.0) == (coarse.coef != 0.0)).all()
    # The objective is flat at a minimum: it differs by the violation times a distance that is no larger than the
    # coefficients, so by TOLERANCE relative to the penalty.
    assert fine.objective == pytest.approx(coarse.objective, rel=100 * TOLERANCE)


@every_family
@pytest.mark.parametrize("penalty", ["lasso", "scad", "mcp"])
def test_the_penalty_of_a_point_is_that_of_its_standardised_groups(family: str, penalty: str) -> None:
    features, y = mixed_problem(family)
    design = standardise(features, centre=True)
    strength = 0.2 * entry_strength(design, y, family)
    chosen = Penalty.build(penalty)
    (point,) = trace_path(design, y, FAMILIES[family], chosen, np.array([strength]))
    total, df = 0.0, 0
    for first, last in zip(features.starts, features.starts[1:], strict=False):
        part = features.values[:, first:last] @ point.coef[first:last]
        # A group's norm is the spread of its prediction, whatever its coding.
        total += float(chosen.value(part.std(), strength * np.sqrt(last - first)))
        df += int(last - first) if point.coef[first:last].any() else 0
    assert point.penalty == pytest.approx(total, rel=1e-9)
    assert point.objective == point.loss + point.penalty
    assert point.degrees_of_freedom == df


@every_family
@every_penalty
def test_the_columns_of_a_category_are_in_or_out_together(family: str, penalty: str) -> None:
    features, y = mixed_problem(family)
    design = standardise(features, centre=True)
    strengths = entry_strength(design, y, family) * np.geomspace(0.99, 0.01, 25)
    seen = set()
    for point in trace_path(design, y, FAMILIES[family], Penalty.build(penalty), strengths):
        for first, last in zip(features.starts, features.starts[1:], strict=False):
            inside = point.coef[first:last] != 0.0
            assert inside.all() or not inside.any()
            seen.add((int(last - first), bool(inside.any())))
    assert (3, True) in seen
    assert penalty == "none" or (3, False) in seen


# ---- scikit-learn and skglm --------------------------------------------------------------


@pytest.mark.parametrize("share", [0.5, 0.1, 0.02])
def test_the_gaussian_lasso_is_scikit_learns(share: float) -> None:
    rng = np.random.default_rng(2)
    x = draw_numbers(200, 8, 0.5, rng)
    y = draw_response("gaussian", x[:, :3] @ [1.0, -1.0, 0.5], rng)
    design = standardise(plain(x), centre=True)
    strength = share * entry_strength(design, y, "gaussian")
    (point,) = trace_path(
        design, y, FAMILIES["gaussian"], Penalty.build("lasso"), np.array([strength]), tolerance=TOLERANCE
    )
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    model = Lasso(alpha=strength, tol=1e-12, max_iter=100_000).fit(z, y)
    # Through the duality gap: ||b - b*||^2 <= 2 gap / eigenvalue; and our own optimality, over the eigenvalue.
    bend = float(np.linalg.eigvalsh(z.T @ z / 200)[0])
    distance = np.sqrt(2.0 * abs(model.dual_gap_) / bend) + 8 * TOLERANCE * strength / bend
    np.testing.assert_allclose(point.coef * x.std(axis=0), model.coef_, rtol=0.0, atol=distance)
    np.testing.assert_allclose(x @ point.coef + point.intercept, model.predict(z), rtol=0.0, atol=20 * distance)


@pytest.mark.parametrize("share", [0.5, 0.1])
def test_the_logistic_lasso_is_scikit_learns(share: float) -> None:
    rng = np.random.default_rng(3)
    x = draw_numbers(300, 6, 0.3, rng)
    y = draw_response("binomial", x[:, :3] @ [1.0, -1.0, 0.5], rng)
    design = standardise(plain(x), centre=True)
    strength = share * entry_strength(design, y, "binomial")
    (point,) = trace_path(
        design, y, FAMILIES["binomial"], Penalty.build("lasso"), np.array([strength]), tolerance=TOLERANCE
    )
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    model = LogisticRegression(
        C=1.0 / (300 * strength), l1_ratio=1.0, solver="saga", tol=1e-10, max_iter=100_000, random_state=0
    ).fit(z, y)
    # saga stops when an epoch changes no coefficient by more than 1e-10 of the largest; it contracts by about
    # 1 - curvature / (3 n L) per step, hence by no less than a hundredth per epoch here.
    np.testing.assert_allclose(point.coef * x.std(axis=0), model.coef_[0], rtol=0.0, atol=1e-7)
    assert ((point.coef != 0.0) == (model.coef_[0] != 0.0)).all()


def sweep_with_skglm(z: Floats, y: Floats, penalty: str, strength: float, concavity: float) -> Floats:
    """Sweeps of its proximal steps over centred columns of unit curvature, to a violation of 1e-10.

    These are its solvers' sweeps; the solvers themselves compile for many seconds.
    """
    step = {"scad": prox_SCAD, "mcp": prox_MCP}[penalty]
    gram, linear, coef = z.T @ z / y.size, z.T @ y / y.size, np.zeros(z.shape[1])
    for _ in range(10_000):
        before = coef.copy()
        for j in range(coef.size):
            coef[j] = step(coef[j] - gram[j] @ coef + linear[j], 1.0, strength, concavity)
        if np.abs(coef - before).sum() <= 1e-10:  # what moves after a column's turn changes its gradient by no more
            return coef
    raise AssertionError("the sweeps did not come to rest")


@pytest.mark.parametrize("share", [0.5, 0.2, 0.05])
@pytest.mark.parametrize("penalty", ["scad", "mcp"])
def test_concave_gaussian_solutions_are_skglms(penalty: str, share: float) -> None:
    """Columns of unit curvature, so that its proximal steps are valid, and so little correlated that the loss
    is more convex than the penalty is concave: there is one minimum, and nothing to argue about."""
    rng = np.random.default_rng(4)
    x = draw_numbers(500, 8, 0.1, rng)
    y = draw_response("gaussian", x[:, :4] / x[:, :4].std(axis=0) @ [1.0, -0.7, 0.4, 0.2], rng)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    chosen = Penalty.build(penalty)
    concave = {"scad": 1.0 / 2.7, "mcp": 1.0 / 3.0}[penalty]
    spare = float(np.linalg.eigvalsh(z.T @ z / 500)[0]) - concave
    assert spare > 0.1
    design = standardise(plain(x), centre=True)
    strength = share * entry_strength(design, y, "gaussian")
    (point,) = trace_path(design, y, FAMILIES["gaussian"], chosen, np.array([strength]), tolerance=TOLERANCE)
    theirs = sweep_with_skglm(z, y - y.mean(), penalty, strength, chosen.concavity)
    # Both violate the optimality conditions by at most their tolerances, column by column.
    distance = np.sqrt(8) * (1e-10 + (WEIGHT_SLACK + 1.0) * TOLERANCE * strength) / spare
    np.testing.assert_allclose(point.coef * x.std(axis=0), theirs, rtol=0.0, atol=distance)
    assert ((point.coef != 0.0) == (theirs != 0.0)).all()


def fit_unpenalised(x: Floats, y: Floats, family: str) -> tuple[Floats, float]:
    """scikit-learn's maximum likelihood, by Newton's method to a gradient of 1e-10."""
    model: Any = {
        "gaussian": LinearRegression(),
        "binomial": LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10, max_iter=1000),
        "poisson": PoissonRegressor(alpha=0.0, solver="newton-cholesky", tol=1e-10, max_iter=1000),
    }[family]
    model.fit(x, y)
    return np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])


@every_family
def test_without_a_penalty_it_is_maximum_likelihood(family: str) -> None:
    features, y = mixed_problem(family)
    coef, intercept = fit_unpenalised(features.values, y, family)
    design = standardise(features, centre=True)
    (point,) = trace_path(design, y, FAMILIES[family], Penalty.build("none"), np.array([1.0]), tolerance=TOLERANCE)
    # Gradients of at most 1e-8 over a curvature of at least 0.01 on the standardised scale, where spreads are
    # between 0.3 and 3.
    np.testing.assert_allclose(point.coef, coef, rtol=0.0, atol=1e-5)
    assert point.intercept == pytest.approx(intercept, abs=1e-5)
    assert point.penalty == 0.0
    found, found_intercept, fine = maximise_likelihood(features, y, FAMILIES[family])
    assert fine
    np.testing.assert_allclose(found, coef, rtol=0.0, atol=1e-5)
    assert found_intercept == pytest.approx(intercept, abs=1e-5)


def test_poisson_takes_rates() -> None:
    features, y = mixed_problem("poisson")
    rates = y / 3.0
    coef, intercept = fit_unpenalised(features.values, rates, "poisson")
    found, found_intercept, fine = maximise_likelihood(features, rates, FAMILIES["poisson"])
    assert fine
    np.testing.assert_allclose(found, coef, rtol=0.0, atol=1e-5)
    assert found_intercept == pytest.approx(intercept, abs=1e-5)


@every_family
@pytest.mark.parametrize("penalty", ["lasso", "scad"])
def test_a_refit_is_maximum_likelihood_on_what_was_selected(family: str, penalty: str) -> None:
    features, y = mixed_problem(family)
    design = standardise(features, centre=True)
    strengths = entry_strength(design, y, family) * np.geomspace(0.9, 0.1, 4)
    rule = RefitRule(charge=float(np.log(y.size)), n_subjects=float(y.size))
    points = list(
        trace_path(design, y, FAMILIES[family], Penalty.build(penalty), strengths, tolerance=1e-6, refit=rule)
    )
    sizes = set()
    for point in points:
        assert point.refit is not None
        assert point.refit.converged
        kept = np.flatnonzero(point.coef)
        assert kept.size > 0
        sizes.add(kept.size)
        coef, intercept = fit_unpenalised(features.values[:, kept], y, family)
        np.testing.assert_array_equal(np.flatnonzero(point.refit.coef), kept)
        # A gradient of 1e-8 of the largest strength, over a curvature of at least 0.01.
        np.testing.assert_allclose(point.refit.coef[kept], coef, rtol=0.0, atol=1e-5)
        assert point.refit.intercept == pytest.approx(intercept, abs=1e-5)
        best = FAMILIES[family].loss(features.values[:, kept] @ coef + intercept, y)
        assert point.refit.loss == pytest.approx(best, abs=1e-10)
    assert len(sizes) > 1


# ---- ncvreg ------------------------------------------------------------------------------


def stored_cases(*, agreed: bool) -> list[Any]:
    """The stored fits of our objective, without ncvreg's rescaling; where asked, those that all starts agree on."""
    cases = json.loads((NCVREG / "answers.json").read_text(encoding="utf-8"))["cases"]
    return [
        pytest.param(case, id=f"{case['family']}-{case['penalty']}-{case['gamma']}-{case['method']}")
        for case in cases
        if case["rescaling"] == "none" and (not agreed or all(case.get("starts_agree", [True])))
    ]


def stored_problem(case: dict[str, Any]) -> tuple[Floats, Floats, Penalty]:
    table = np.genfromtxt(NCVREG / "data.csv", delimiter=",", names=True)
    names = table.dtype.names or ()
    x = np.column_stack([table[name] for name in names if name.startswith("x")])
    return x, table[case["family"]], Penalty.build(case["penalty"].lower(), case["gamma"])


def local_shape(
    z: Floats, coef: Floats, eta: Floats, family: str, penalty: Penalty, strength: float
) -> tuple[float, float]:
    """Among the selected columns, the intercept taken out: the least curvature of the objective, and what share of
    an error a step of local linear approximation leaves."""
    inside = np.flatnonzero(coef)
    if inside.size == 0:
        return 1.0, 0.0
    weight = FAMILIES[family].curvature(eta)
    part = z[:, inside] - weight @ z[:, inside] / weight.sum()
    hessian = (part.T * weight) @ part / len(z)
    step, size = 1e-6 * strength, np.abs(coef[inside])
    concave = (penalty.slope(size - step, strength) - penalty.slope(size + step, strength)) / (2.0 * step)
    left = np.abs(np.linalg.eigvals(np.linalg.solve(hessian, np.diag(concave)))).max()
    return float(np.linalg.eigvalsh(hessian - np.diag(concave))[0]), float(left)


@pytest.mark.parametrize("case", stored_cases(agreed=True))
def test_paths_agree_with_ncvreg_where_the_minimum_is_one(case: dict[str, Any]) -> None:
    """Binomial with the usual concavities (3.7 and 3) is not among them: its loss is flatter than these penalties
    are concave, minima are several, and which one a path meets depends on where it starts. The test below has them."""
    x, y, penalty = stored_problem(case)
    family, strengths, stored = case["family"], np.array(case["lambda"]), np.array(case["coef"]).T
    design = standardise(plain(x), centre=True)
    points = list(trace_path(design, y, FAMILIES[family], penalty, strengths, tolerance=TOLERANCE))
    assert len(points) == strengths.size
    z, scale = (x - x.mean(axis=0)) / x.std(axis=0), x.std(axis=0)
    for point, theirs, missed in zip(points, stored, case["kkt_violation"], strict=True):
        expected = theirs[1:] * scale
        bend, left = local_shape(z, expected, theirs[0] + x @ theirs[1:], family, penalty, point.strength)
        assert bend > 0.0
        # Two points that violate the optimality conditions by so much, over the curvature; twice, because the
        # curvature changes on the way.
        ours = (WEIGHT_SLACK + 1.4) * TOLERANCE * point.strength
        distance = 2.0 * np.sqrt(x.shape[1]) * (missed + ours) / bend
        if not point.converged:  # as it says itself, and only where its steps are too short to get there
            assert left**PATH_TUNING.most_lla_steps > TOLERANCE
            distance += left**PATH_TUNING.most_lla_steps * float(np.linalg.norm(expected))
        np.testing.assert_allclose(point.coef * scale, expected, rtol=0.0, atol=distance)
        assert (point.coef[np.abs(expected) > distance] != 0.0).all()
    assert sum(point.converged for point in points) >= 0.8 * len(points)


@pytest.mark.parametrize("case", stored_cases(agreed=False))
def test_every_stored_point_of_ncvreg_is_stationary_for_our_objective(case: dict[str, Any]) -> None:
    """Also where minima are several: our slopes, residuals and optimality conditions judge them as ncvreg's do."""
    x, y, penalty = stored_problem(case)
    family = FAMILIES[case["family"]]
    z, starts = (x - x.mean(axis=0)) / x.std(axis=0), np.arange(x.shape[1] + 1)
    for strength, theirs, missed in zip(case["lambda"], np.array(case["coef"]).T, case["kkt_violation"], strict=True):
        residual = family.residual(theirs[0] + x @ theirs[1:], y)
        coef = theirs[1:] * x.std(axis=0)
        weights = penalty.slope(np.abs(coef), np.full(coef.size, strength))
        wrong = violations(coef, z.T @ residual / y.size, weights, starts)
        # Coefficients were stored with 15 digits; the mean of 200 products rounds by no more.
        assert float(wrong.max()) <= missed + 1e-12


# ---- where a path must end ---------------------------------------------------------------


@pytest.mark.parametrize("penalty", ["scad", "mcp", "lasso"])
def test_a_path_ends_before_the_classes_are_separated(penalty: str) -> None:
    rng = np.random.default_rng(5)
    x = draw_numbers(200, 5, 0.2, rng)
    y = (x[:, 0] > np.median(x[:, 0])).astype(np.float64)
    design = standardise(plain(x), centre=True)
    strengths = entry_strength(design, y, "binomial") * np.geomspace(1.0, 1e-3, 30)
    points = list(trace_path(design, y, FAMILIES["binomial"], Penalty.build(penalty), strengths))
    assert len(points) < strengths.size
    for point in points:
        assert np.isfinite(point.coef).all()
        assert point.loss >= 0.2 * np.log(2.0)  # at most 0.8 of the null deviance explained, log 2 for equal classes
    if penalty == "lasso":  # the only one that bounds the coefficients, so that a path may go on where it is told to
        onward = trace_path(design, y, FAMILIES["binomial"], Penalty.build(penalty), strengths, end_early=False)
        losses = [point.loss for point in onward]
        assert len(losses) == strengths.size
        assert losses[-1] < 0.2 * np.log(2.0)


def test_a_path_ends_before_it_takes_more_columns_than_half_the_rows() -> None:
    rng = np.random.default_rng(6)
    x = rng.standard_normal((40, 60))
    y = rng.standard_normal(40)
    design = standardise(plain(x), centre=True)
    strengths = entry_strength(design, y, "gaussian") * np.geomspace(1.0, 1e-3, 30)
    points = list(trace_path(design, y, FAMILIES["gaussian"], Penalty.build("lasso"), strengths))
    assert 0 < len(points) < strengths.size
    assert max(point.degrees_of_freedom for point in points) <= 20
