"""Algorithm 4 as printed: its updates against general minimisers, its stopping rule, and what it selects."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from tests.members import make_members
from tests.privacy.member_study import federation, tables
from verticopula import VerticalGLM
from verticopula.errors import SettingsError
from verticopula.glm.families import find_family
from verticopula.glm.penalties import Penalty
from verticopula.glm.printed_admm import printed_bic, solve_printed, summed_bic, update_block
from verticopula.transport.in_process_transport import InProcessTransport

Floats = NDArray[np.float64]
SCAD, LASSO = Penalty.build("scad"), Penalty.build("lasso")


def make_blocks(n: int = 120, seed: int = 1) -> tuple[list[Floats], Floats, Floats]:
    """Three parties' correlated columns, the truth, and a linear response."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 6)) + 0.5 * rng.normal(size=(n, 1))
    truth = np.array([1.0, 0.0, -1.0, 0.0, 0.5, 0.0])
    return [x[:, :2], x[:, 2:4], x[:, 4:]], truth, x @ truth + rng.normal(size=n)


def naive_round(
    blocks: list[Floats], y: Floats, state: dict[str, Any], family: str, strength: float, rho: float
) -> dict[str, Any]:
    """Eqs. (6-1) to (6-3), each minimised by a general method."""
    n, beta, eta, gamma = y.size, state["beta"], state["eta"], state["gamma"]
    moved = []
    for k, block in enumerate(blocks):
        others = sum(blocks[j] @ beta[j] for j in range(len(blocks)) if j != k)
        weights = SCAD.slope(np.abs(beta[k]), strength)

        def objective(b: Floats, block: Floats = block, others: Floats = others, weights: Floats = weights) -> float:
            gap = others + block @ b - eta
            return float(weights @ np.abs(b) + gamma @ (block @ b) + rho / 2 * gap @ gap)

        start = minimize(objective, beta[k], method="Powell", options={"xtol": 1e-10, "ftol": 1e-14}).x
        moved.append(minimize(objective, start, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-15}).x)
    total = sum(block @ b for block, b in zip(blocks, moved, strict=True))

    def server(e: Floats) -> tuple[float, Floats]:
        psi, mean = (e**2 / 2, e) if family == "gaussian" else (np.logaddexp(0, e), 1 / (1 + np.exp(-e)))
        gap = total - e
        value = -y @ e / n + psi.sum() / n - gamma @ e + rho / 2 * gap @ gap
        return float(value), (mean - y) / n - gamma - rho * gap

    found = minimize(server, eta, jac=True, method="BFGS", options={"gtol": 1e-12}).x
    return {"beta": moved, "eta": found, "gamma": gamma + rho * (total - found)}


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_rounds_are_the_printed_updates(family: str) -> None:
    blocks, _, y = make_blocks(40)
    y = y if family == "gaussian" else (y > 0).astype(float)
    state: dict[str, Any] = {"beta": [np.zeros(2)] * 3, "eta": np.zeros(40), "gamma": np.zeros(40)}
    for number in (1, 2, 3):
        state = naive_round(blocks, y, state, family, 0.1, 0.3)
        found = solve_printed(blocks, y, find_family(family), SCAD, 0.1, rho=0.3, tolerance=1e-12, max_rounds=number)
        assert (found.rounds, found.converged) == (number, False)
        np.testing.assert_allclose(np.concatenate(found.coef), np.concatenate(state["beta"]), atol=2e-4)


def test_a_partys_update_meets_its_optimality_conditions() -> None:
    rng = np.random.default_rng(2)
    block, linear, weights = rng.normal(size=(50, 4)), rng.normal(size=50), np.array([0.5, 3.0, 0.0, 40.0])
    gram = 0.7 * block.T @ block
    found = update_block(block, gram, np.zeros(4), linear, weights)
    gradient = block.T @ linear + gram @ found
    inside = found != 0.0
    np.testing.assert_allclose(gradient[inside], -weights[inside] * np.sign(found[inside]), atol=1e-6)
    assert np.all(np.abs(gradient[~inside]) <= weights[~inside] + 1e-6)
    assert not inside[3]


def test_it_stops_by_the_printed_rule_and_not_before() -> None:
    blocks, _, y = make_blocks()
    gaussian = find_family("gaussian")
    settings = {"rho": 0.1, "tolerance": 1e-3}
    done = solve_printed(blocks, y, gaussian, LASSO, 0.05, max_rounds=5_000, **settings)
    assert done.converged
    before = solve_printed(blocks, y, gaussian, LASSO, 0.05, max_rounds=done.rounds - 1, **settings)
    assert not before.converged


def test_a_long_run_comes_to_the_minimum() -> None:
    blocks, _, y = make_blocks()
    x, n = np.column_stack(blocks), y.size
    found = solve_printed(blocks, y, find_family("gaussian"), LASSO, 0.1, rho=0.1, tolerance=1e-9, max_rounds=20_000)
    coef = np.concatenate(found.coef)
    gradient = x.T @ (x @ coef - y) / n
    np.testing.assert_allclose(gradient[coef != 0], -0.1 * np.sign(coef[coef != 0]), atol=1e-4)
    assert np.all(np.abs(gradient[coef == 0]) <= 0.1 + 1e-4)


def test_a_small_rho_diverges_and_says_so() -> None:
    blocks, _, y = make_blocks()
    found = solve_printed(
        [*blocks, *blocks], y, find_family("gaussian"), LASSO, 0.01, rho=1e-6, tolerance=1e-3, max_rounds=500
    )
    assert not found.converged
    assert np.isfinite(np.concatenate(found.coef)).all()


def test_the_two_criteria() -> None:
    assert printed_bic(0.7, 3, 100.0) == pytest.approx(0.7 + 3 * np.log(100.0))
    assert summed_bic(0.7, 3, 100.0) == pytest.approx(140.0 + 3 * np.log(100.0))


# ---- behind the front door ---------------------------------------------------------------


def fitted(select: str | float = "bic", **settings: Any) -> VerticalGLM:
    blocks, _, y = make_blocks(400)
    given = {"fit_intercept": False, "variant": "as-printed", "rho": 0.05, "n_strengths": 15, **settings}
    return VerticalGLM("gaussian", select=select, **given).fit(dict(zip("abc", blocks, strict=True)), y)


def test_it_finds_the_columns() -> None:
    model, (_, truth, _) = fitted(), make_blocks(400)
    coef = np.concatenate(list(model.coef_.values()))
    np.testing.assert_array_equal(coef != 0, truth != 0)
    np.testing.assert_allclose(coef, truth, atol=0.2)
    assert model.intercept_ == 0.0
    assert model.converged_
    assert model.path_.traffic.rounds > 0
    assert all(point.refit is None for point in model.path_.points)


def test_the_printed_criterion_selects_the_sparsest_model_of_the_path() -> None:
    model = fitted("bic-as-printed")
    fewest = min(point.degrees_of_freedom for point in model.path_.points)
    assert fewest <= 1 < fitted().path_.points[-1].degrees_of_freedom
    assert np.count_nonzero(np.concatenate(list(model.coef_.values()))) == fewest
    assert model.strength_ == model.path_.points[0].strength


def test_a_strength_of_ones_own() -> None:
    model = fitted(0.1)
    assert (model.strength_, len(model.path_.points), model.scores_) == (0.1, 1, [])


def test_what_does_not_come_to_rest_is_said() -> None:
    with pytest.warns(ConvergenceWarning, match="did not converge"):
        model = fitted(max_rounds=2)
    assert not model.converged_


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"variant": "as-printed"}, "no intercept"),
        ({"variant": "as-printed", "fit_intercept": False, "select": "bayes"}, "selects by"),
        ({"variant": "as-printed", "fit_intercept": False, "select": "cv"}, "selects by"),
        ({"variant": "printed"}, "unknown variant"),
        ({"rho": 0.0}, "rho must be a positive number"),
        ({"select": "bic-as-printed"}, "select must be"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], words: str) -> None:
    blocks, _, y = make_blocks()
    with pytest.raises(SettingsError, match=words):
        VerticalGLM(**settings).fit(blocks[0], y)


def test_it_is_for_tables_in_this_process() -> None:
    model = VerticalGLM("binomial", fit_intercept=False, variant="as-printed")
    members = make_members(federation(), tables())
    with pytest.raises(SettingsError, match="in this process"):
        model.fit_transport(InProcessTransport(members), federation())
    assert clone(model).variant == "as-printed"


def test_our_solver_is_not_touched_by_it() -> None:
    blocks, _, y = make_blocks(400)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, two = (VerticalGLM(rho=rho).fit(blocks[0], y) for rho in (1.0, 5.0))
    assert one.scores_ == two.scores_
