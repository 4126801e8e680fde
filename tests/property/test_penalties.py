"""The penalties of Eq. (3) for every strength and concavity: value, slope and proximal step agree with each other."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.integrate import fixed_quad

from verticopula.errors import SettingsError
from verticopula.glm.penalties import Penalty

Floats = NDArray[np.float64]

EPS = float(np.finfo(np.float64).eps)
STRENGTHS = st.floats(1e-3, 1e3)
SHARES = st.floats(0.0, 1.0)
# Near their lower bounds the concave pieces are at their steepest, and the proximal steps at their longest.
CASES = [
    ("none", None),
    ("lasso", None),
    ("scad", 2.001),
    ("scad", 3.7),
    ("scad", 50.0),
    ("mcp", 1.001),
    ("mcp", 3.0),
    ("mcp", 50.0),
]
every_penalty = pytest.mark.parametrize(("name", "concavity"), CASES)


def knots(penalty: Penalty, strength: float) -> list[float]:
    """Where the formula changes."""
    if penalty.name == "scad":
        return [strength, penalty.concavity * strength]
    return [penalty.concavity * strength] if penalty.name == "mcp" else []


def steepest_bend(penalty: Penalty) -> float:
    """The largest |P''| away from the knots, which bounds how fast the slope can change."""
    return {"scad": 1.0 / (penalty.concavity - 1.0), "mcp": 1.0 / penalty.concavity}.get(penalty.name, 0.0)


def pick_norm(penalty: Penalty, strength: float, share: float) -> float:
    """From 0 to well beyond the last knot."""
    return share * 1.5 * max([strength, *knots(penalty, strength)])


@every_penalty
@given(strength=STRENGTHS, share=SHARES)
@example(strength=1.0, share=1.0)
def test_the_value_is_the_area_under_the_slope(
    name: str, concavity: float | None, strength: float, share: float
) -> None:
    penalty = Penalty.build(name, concavity)
    norm = pick_norm(penalty, strength, share)
    pieces = [0.0, *(knot for knot in knots(penalty, strength) if knot < norm), norm]
    # The slope is linear between knots, where Gauss's quadrature is exact up to rounding.
    area = sum(fixed_quad(penalty.slope, low, high, (strength,))[0] for low, high in pairwise(pieces))
    # SCAD's middle piece cancels terms a / (a - 1) times as large as itself; rounding is relative to those.
    size = strength * max(norm, strength)
    assert float(penalty.value(norm, strength)) == pytest.approx(area, rel=1e-12, abs=64 * EPS * size)


@every_penalty
@given(strength=STRENGTHS, share=SHARES)
@example(strength=1.0, share=1.0)
def test_the_slope_is_the_derivative_of_the_value(
    name: str, concavity: float | None, strength: float, share: float
) -> None:
    penalty = Penalty.build(name, concavity)
    step = 1e-5 * strength
    norm = pick_norm(penalty, strength, share) + step
    ends = penalty.value([norm + step, norm - step], strength)
    # Quadratic pieces have no truncation error; across a knot it is at most the bend times the step.
    # Rounding: a few units in the last place of the terms of the value, over the step.
    slack = steepest_bend(penalty) * step + 32 * EPS * strength * (norm + strength) / step
    assert abs((ends[0] - ends[1]) / (2.0 * step) - float(penalty.slope(norm, strength))) <= slack


@every_penalty
@given(strength=STRENGTHS)
def test_value_and_slope_do_not_jump_at_the_knots(name: str, concavity: float | None, strength: float) -> None:
    penalty = Penalty.build(name, concavity)
    for knot in [0.0, *knots(penalty, strength)]:
        gap = 1e-9 * strength
        ends = np.array([max(knot - gap, 0.0), knot + gap])
        # The slope is at most the strength, and the bend at most its bound, over a stretch of two gaps.
        rounding = 64 * EPS * strength * (knot + strength)
        assert abs(np.diff(penalty.value(ends, strength))[0]) <= 2.0 * gap * strength + rounding
        bend = steepest_bend(penalty)
        slope_rounding = 64 * EPS * strength * (1.0 + bend * (1.0 + knot / strength))
        assert abs(np.diff(penalty.slope(ends, strength))[0]) <= 2.0 * gap * bend + slope_rounding


@pytest.mark.parametrize("name", ["scad", "mcp"])
@given(strength=STRENGTHS, share=SHARES)
@example(strength=1.0, share=1.0)
def test_a_huge_concavity_gives_the_lasso(name: str, strength: float, share: float) -> None:
    concavity = 1e6
    penalty, lasso = Penalty.build(name, concavity), Penalty.build("lasso")
    norm = 10.0 * strength * share
    # The slope falls by no more than norm / (a - 1), and the value misses its integral.
    short = norm / (concavity - 1.0)
    rounding = 64 * EPS * (norm + strength)
    assert abs(float(penalty.slope(norm, strength) - lasso.slope(norm, strength))) <= short + rounding
    gap = float(lasso.value(norm, strength) - penalty.value(norm, strength))
    assert -rounding * strength <= gap <= short * norm / 2.0 + rounding * strength


@every_penalty
def test_strengths_and_norms_go_together_elementwise(name: str, concavity: float | None) -> None:
    penalty = Penalty.build(name, concavity)
    norms, strengths = np.array([[0.0, 0.4, 1.0], [2.0, 5.0, 80.0]]), np.array([0.5, 1.0, 0.0])
    for function in (penalty.value, penalty.slope):
        one_by_one = [[float(function(t, s)) for t, s in zip(row, strengths, strict=True)] for row in norms]
        np.testing.assert_array_equal(function(norms, strengths), one_by_one)
        assert function(1.0, strengths).shape == (3,)


@every_penalty
def test_no_strength_is_no_penalty(name: str, concavity: float | None) -> None:
    penalty = Penalty.build(name, concavity)
    norms = np.array([0.0, 1e-9, 1.0, 1e6])
    np.testing.assert_array_equal(penalty.value(norms, 0.0), np.zeros(4))
    np.testing.assert_array_equal(penalty.slope(norms, 0.0), np.zeros(4))


def test_the_usual_concavities_are_those_of_the_paper() -> None:
    assert Penalty.build("scad").concavity == 3.7
    assert Penalty.build("mcp").concavity == 3.0
    assert [Penalty.build(name).is_concave for name in ("scad", "mcp", "lasso", "none")] == [True, True, False, False]


@pytest.mark.parametrize("name", ["ridge", "SCAD", "", "l1"])
def test_an_unknown_penalty_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(SettingsError, match="known: scad, mcp, lasso, none"):
        Penalty.build(name)


@pytest.mark.parametrize(
    ("name", "concavity"),
    [("scad", a) for a in (2.0, 0.0, -3.7, np.nan, np.inf)] + [("mcp", a) for a in (1.0, -1.0, np.nan, np.inf)],
)
def test_a_concavity_without_a_formula_or_a_unique_proximal_step_is_refused(name: str, concavity: float) -> None:
    with pytest.raises(SettingsError, match=f"concavity of {name} must be a number above"):
        Penalty.build(name, concavity)
