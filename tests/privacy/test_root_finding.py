"""The one bisection: near the root, and never on the wrong side of it. The one step of Newton's method."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verticopula.privacy.root_finding import bisect, newton_step

ROOTS = st.floats(1e-9, 1e9)


@given(root=ROOTS, above=st.booleans(), geometric=st.booleans())
def test_the_answer_is_near_the_root_and_on_the_true_side(root: float, above: bool, geometric: bool) -> None:
    low, high = 0.0, 4e9

    def holds(x: float) -> bool:
        return x >= root if above else x <= root

    found = bisect(holds, *((high, low) if above else (low, high)), relative=1e-9, geometric=geometric)
    assert holds(found)
    assert found == pytest.approx(root, rel=1e-9)


@given(root=ROOTS)
def test_without_a_tolerance_no_float_lies_between_the_answer_and_the_root(root: float) -> None:
    assert bisect(lambda x: x * x <= root, 0.0, 1e9) == pytest.approx(math.sqrt(root), rel=1e-15)


@pytest.mark.parametrize("geometric", [False, True])
def test_a_condition_that_is_true_nowhere_inside_gives_the_true_end(geometric: bool) -> None:
    assert bisect(lambda x: False, 1.0, 8.0, geometric=geometric) == 1.0


def test_no_more_than_the_given_number_of_evaluations() -> None:
    asked: list[float] = []

    def holds(x: float) -> bool:
        asked.append(x)
        return x < 0.3

    assert bisect(holds, 0.0, 1.0, steps=3) == 0.25
    assert asked == [0.5, 0.25, 0.375]


def test_equal_ends_are_the_answer() -> None:
    assert bisect(lambda x: False, 2.0, 2.0) == 2.0


def test_newtons_step_is_taken_inside_the_bracket_only_and_where_it_is_short() -> None:
    assert newton_step(1.0, 1.0, 2.0, 0.0, 1.0) == (0.5, True)
    assert newton_step(1.0, 4.0, 2.0, 0.0, 1.0) == (0.5, False)  # -1 is outside
    assert newton_step(1.0, 1.6, 2.0, 0.0, 1.0, 0.5) == (0.5, False)  # 0.2 is too far
    assert newton_step(1.0, 1.6, 2.0, 0.0, 1.0, 0.8) == (pytest.approx(0.2), True)
    assert newton_step(1.0, 1.0, 0.0, 0.0, 3.0) == (1.5, False)  # flat


@pytest.mark.parametrize("root", [-0.97, -1e-3, 0.0, 0.4, 0.97])
def test_a_root_of_a_steep_or_flat_function_is_found_in_few_dozen_steps(root: float) -> None:
    """tanh(40 (x - root)): Newton alone leaves the bracket from nearly every start."""
    low, high, x, moved = -1.0, 1.0, 0.9, math.inf
    for _ in range(60):
        value = math.tanh(40.0 * (x - root))
        low, high = (low, x) if value > 0.0 else (x, high)
        target, _newton = newton_step(x, value, 40.0 * (1.0 - value**2), low, high, 0.5 * moved)
        moved, x = abs(target - x), target
        if moved == 0.0:
            break
    assert x == pytest.approx(root, abs=1e-12)
