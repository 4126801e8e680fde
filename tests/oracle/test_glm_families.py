"""The families against the likelihoods of scipy and scikit-learn, and their solvers against root finders."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import brentq, minimize_scalar
from scipy.special import gammaln
from sklearn.metrics import log_loss, mean_poisson_deviance, mean_squared_error

from verticopula.errors import SettingsError
from verticopula.glm.families import FAMILIES, Family, find_family

Floats = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
NAMES = ["gaussian", "binomial", "poisson"]
every_family = pytest.mark.parametrize("name", NAMES)

LOG_LIKELIHOODS: dict[str, Callable[[Floats, Floats], Floats]] = {
    "gaussian": lambda y, eta: stats.norm.logpdf(y, eta) + 0.5 * np.log(2.0 * np.pi),
    "binomial": lambda y, eta: stats.bernoulli.logpmf(y, 1.0 / (1.0 + np.exp(-eta))),
    "poisson": lambda y, eta: stats.poisson.logpmf(y, np.exp(eta)) + gammaln(y + 1.0),
}


def draw_response(name: str, n: int, rng: np.random.Generator) -> Floats:
    if name == "gaussian":
        return np.asarray(3.0 * rng.standard_normal(n))
    if name == "binomial":
        return (rng.random(n) < 0.4).astype(np.float64)
    return rng.poisson(2.0, n).astype(np.float64)


# ---- likelihoods -------------------------------------------------------------------------


@every_family
def test_a_loss_is_the_negative_log_likelihood_up_to_what_eta_does_not_change(name: str) -> None:
    rng = np.random.default_rng(1)
    eta, y = rng.uniform(-6.0, 4.0, 500), draw_response(name, 500, rng)
    expected = -LOG_LIKELIHOODS[name](y, eta)
    # scipy goes through the mean, whose rounding a rare event magnifies by exp(6).
    np.testing.assert_allclose(FAMILIES[name].losses(eta, y), expected, rtol=1e-12, atol=1e-12)
    assert FAMILIES[name].loss(eta, y) == pytest.approx(float(np.mean(expected)), rel=1e-12)


@every_family
def test_residual_and_curvature_are_the_derivatives_of_the_loss(name: str) -> None:
    family = FAMILIES[name]
    rng = np.random.default_rng(2)
    eta, y = rng.uniform(-8.0, 5.0, 500), draw_response(name, 500, rng)
    step = 1e-4
    slope = (family.losses(eta + step, y) - family.losses(eta - step, y)) / (2.0 * step)
    bend = (family.residual(eta + step, y) - family.residual(eta - step, y)) / (2.0 * step)
    # Central differences: the third derivative times step^2 / 6, at most exp(eta) for all three (the gaussian's is 0,
    # and the logistic function's derivatives are below it), and rounding over the step.
    higher = step**2 / 3.0 * np.exp(eta + step)
    assert (
        np.abs(slope - family.residual(eta, y)) <= higher + 8 * EPS * (1.0 + np.abs(family.losses(eta, y))) / step
    ).all()
    size = 1.0 + np.abs(family.mean(eta)) + np.abs(y)
    assert (np.abs(bend - family.curvature(eta)) <= higher + 8 * EPS * size / step).all()


def test_the_deviance_is_scikit_learns() -> None:
    rng = np.random.default_rng(3)
    eta = rng.uniform(-3.0, 3.0, 400)
    y = {name: draw_response(name, 400, rng) for name in NAMES}
    expected = {
        "gaussian": mean_squared_error(y["gaussian"], eta),
        "binomial": 2.0 * log_loss(y["binomial"], 1.0 / (1.0 + np.exp(-eta))),
        "poisson": mean_poisson_deviance(y["poisson"], np.exp(eta)),
    }
    assert (y["poisson"] == 0.0).any()  # where y log y needs care
    for name in NAMES:
        assert FAMILIES[name].deviance(eta, y[name]) == pytest.approx(expected[name], rel=1e-12)


def test_a_perfect_fit_has_no_deviance() -> None:
    counts = np.array([1.0, 2.0, 7.0, 1e6])
    # Rounding: eps times the terms that cancel, here y log y.
    assert FAMILIES["poisson"].deviance(np.log(counts), counts) == pytest.approx(0.0, abs=8 * EPS * 1.4e7)
    assert FAMILIES["gaussian"].deviance(counts, counts) == 0.0
    signs = np.array([-800.0, 800.0])
    assert FAMILIES["binomial"].deviance(signs, np.array([0.0, 1.0])) == 0.0


@every_family
@pytest.mark.parametrize("mean", [0.03, 0.5, 0.97])
def test_the_link_undoes_the_mean(name: str, mean: float) -> None:
    family = FAMILIES[name]
    assert float(family.mean(np.array([family.link(mean)]))[0]) == pytest.approx(mean, rel=1e-14)


@every_family
def test_nothing_overflows_where_a_fit_has_run_off(name: str) -> None:
    """Warnings are errors here: an overflow would show. The losses stay convex, so that solvers find back."""
    family = FAMILIES[name]
    eta = np.array([-1e4, -1e3, -50.0, 0.0, 29.0, 30.0, 31.0, 50.0, 1e3, 1e4])
    y = np.ones_like(eta)
    for found in (family.losses(eta, y), family.residual(eta, y), family.curvature(eta)):
        assert np.isfinite(found).all()
    slopes = np.diff(family.losses(eta, y)) / np.diff(eta)
    assert (np.diff(slopes) >= -8 * EPS * np.abs(slopes[1:])).all()
    residual = family.residual(eta, y)
    assert (
        (residual[:-1] <= slopes * (1 + 8 * EPS) + 8 * EPS) & (slopes <= residual[1:] * (1 + 8 * EPS) + 8 * EPS)
    ).all()


# ---- Eq. (6-2), row by row ---------------------------------------------------------------


def find_root(family: Family, centre: float, y: float, rho: float) -> float:
    """The root of Eq. (6-2)'s gradient, from a bracket that doubles until it holds one."""

    def gradient(eta: float) -> float:
        return float(family.residual(np.array([eta]), np.array([y]))[0]) + rho * (eta - centre)

    width = 1.0
    while gradient(centre - width) > 0.0 or gradient(centre + width) < 0.0:
        width *= 2.0
    return float(brentq(gradient, centre - width, centre + width, xtol=1e-300, rtol=4 * EPS, maxiter=1000))


RESPONSES = {"gaussian": [-1e6, -3.0, 0.0, 2.5], "binomial": [0.0, 1.0], "poisson": [0.0, 0.3, 1.0, 40.0, 1e6]}
STARTS = {
    "centre": lambda centre, root: centre,
    "zero": lambda centre, root: np.zeros_like(centre),
    "the solution": lambda centre, root: root,
    "far above": lambda centre, root: centre + 1e6,
    "far below": lambda centre, root: centre - 1e6,
}


def check_step(family: Family, centre: Floats, y: Floats, rho: float, starts: list[str]) -> None:
    """Every named start leads to the root, as exactly as it can be known."""
    root = np.array([find_root(family, c, response, rho) for c, response in zip(centre, y, strict=True)])
    terms = np.abs(family.mean(root)) + np.abs(y) + rho * (np.abs(root) + np.abs(centre))
    # After a Newton step of 1e-7 (relative) the error is its square times a ratio of derivatives of at most 1;
    # and no method sees more than the gradient's own rounding.
    rounding = 16 * EPS * (terms / (family.curvature(root) + rho) + np.abs(root))
    for start in starts:
        found = family.minimise_near(centre, y, rho, np.asarray(STARTS[start](centre, root)))
        assert (np.abs(found - root) <= 1e-14 * (1.0 + np.abs(root)) ** 2 + rounding).all(), start


@every_family
@pytest.mark.parametrize("rho", [1e-3, 1e-1, 1.0, 30.0, 1e3])
def test_the_coordinators_step_finds_the_root_from_any_start(name: str, rho: float) -> None:
    pairs = [(c, y) for c in (-300.0, -50.0, -4.0, 0.0, 0.7, 6.0, 50.0, 300.0) for y in RESPONSES[name]]
    centre, y = np.array(pairs).T.copy()
    check_step(FAMILIES[name], centre, y, rho, list(STARTS))


@pytest.mark.parametrize("count", [300.0, 1e3, 1e6])
def test_a_count_far_above_the_others_is_fitted_from_an_ordinary_start(count: float) -> None:
    """Counts with mean 1 have curvature 1, hence rho of about 1; one row may still hold a large count."""
    check_step(FAMILIES["poisson"], np.zeros(2), np.array([1.0, count]), 0.8, ["zero"])


@every_family
def test_the_coordinators_step_minimises_what_it_says(name: str) -> None:
    """The root is of our own residual; here the objective is scipy's likelihood, and so is the minimiser."""
    rng = np.random.default_rng(4)
    centre, y = rng.uniform(-3.0, 3.0, 20), draw_response(name, 20, rng)
    for rho in (0.05, 2.0):
        found = FAMILIES[name].minimise_near(centre, y, rho, np.zeros(20))
        for c, response, eta in zip(centre, y, found, strict=True):

            def objective(t: float, c: float = c, response: float = response, rho: float = rho) -> float:
                return float(-LOG_LIKELIHOODS[name](np.array(response), np.array(t)) + rho * (t - c) ** 2 / 2.0)

            best = minimize_scalar(objective, bounds=(-40.0, 40.0), method="bounded", options={"xatol": 1e-9})
            # A minimiser that only compares values is blind below the root of their rounding.
            blind = np.sqrt(EPS * (1.0 + abs(best.fun)) / rho) * 4.0
            assert abs(eta - best.x) <= blind + 1e-8
            assert objective(float(eta)) <= best.fun + 64 * EPS * (1.0 + abs(best.fun))


# ---- the intercept -----------------------------------------------------------------------


@every_family
@pytest.mark.parametrize("start", [0.0, -20.0, 20.0])
@pytest.mark.parametrize("spread", [0.1, 1.0, 6.0])
def test_the_best_intercept_is_the_root_of_the_mean_residual(name: str, start: float, spread: float) -> None:
    family = FAMILIES[name]
    rng = np.random.default_rng(5)
    offset, y = spread * rng.standard_normal(200) - 1.0, draw_response(name, 200, rng)

    def gradient(b: float) -> float:
        return float(np.mean(family.residual(offset + b, y)))

    root = brentq(gradient, -60.0, 60.0, xtol=1e-15, rtol=4 * EPS)
    found = family.best_intercept(offset, y, start)
    # After a Newton step of 1e-7 the error is about its square.
    # The mean residual is known to its rounding, over the curvature.
    noise = EPS * float(np.mean(np.abs(family.mean(offset + root)) + np.abs(y)))
    bend = float(np.mean(family.curvature(offset + root)))
    assert abs(found - root) <= 4e-13 * (1.0 + abs(root)) + 16 * noise / bend


@every_family
def test_the_best_intercept_survives_starts_where_the_loss_is_flat(name: str) -> None:
    family = FAMILIES[name]
    y = draw_response(name, 100, np.random.default_rng(6))
    for start in (-45.0, 45.0):
        found = family.best_intercept(np.zeros(100), y, start)
        assert found == pytest.approx(family.link(float(y.mean())), rel=1e-11, abs=1e-11)


def test_the_best_intercept_does_not_depend_on_the_units_of_the_response() -> None:
    y = np.array([9_000.0, 10_000.0, 11_000.0])
    assert FAMILIES["gaussian"].best_intercept(np.zeros(3), y) == pytest.approx(10_000.0, rel=1e-12)


# ---- responses ---------------------------------------------------------------------------


@every_family
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_unfinished_response_is_refused(name: str, bad: float) -> None:
    with pytest.raises(SettingsError, match="empty, NaN or infinite"):
        FAMILIES[name].check(np.array([0.0, 1.0, bad]))


@pytest.mark.parametrize(
    ("name", "bad", "message"),
    [
        ("binomial", 2.0, "a binomial response must be 0 or 1"),
        ("binomial", -1.0, "a binomial response must be 0 or 1"),
        ("binomial", 0.5, "a binomial response must be 0 or 1"),
        ("poisson", -1.0, "a poisson response must be numbers of at least 0"),
    ],
)
def test_a_response_of_another_kind_is_refused(name: str, bad: float, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        FAMILIES[name].check(np.array([0.0, 1.0, bad]))


@every_family
@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_constant_response_is_refused(name: str, value: float) -> None:
    with pytest.raises(SettingsError, match="constant"):
        FAMILIES[name].check(np.full(5, value))


@every_family
def test_a_response_that_suits_the_family_passes(name: str) -> None:
    FAMILIES[name].check(draw_response(name, 50, np.random.default_rng(7)))


def test_an_unknown_family_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SettingsError, match="known: gaussian, binomial, poisson"):
        find_family("gamma")
    assert [find_family(name).name for name in NAMES] == NAMES
