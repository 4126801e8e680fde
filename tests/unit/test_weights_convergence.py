"""When the weights of the local linear approximation rest, and how exactly the last one is solved."""

from __future__ import annotations

import pytest

from verticopula.glm.families import find_family
from verticopula.glm.strength_path import ConvergenceMonitor

GAUSSIAN, BINOMIAL = find_family("gaussian"), find_family("binomial")
TOLERANCE = 1e-3  # gaussian weights may move by ten times that


def steps_until_rest(rate: float) -> int:
    """Changes of the weights that become smaller by one rate, from 1."""
    watch, change = ConvergenceMonitor(TOLERANCE, GAUSSIAN), 1.0
    for step in range(1, 1000):
        if watch.has_converged(change):
            return step
        change *= rate
    raise AssertionError("the weights never rested")


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8, 0.95])
def test_weights_rest_when_what_is_left_to_go_is_small(rate: float) -> None:
    last = rate ** (steps_until_rest(rate) - 1)
    assert last <= 10 * TOLERANCE
    assert last * rate / (1.0 - rate) <= 10 * TOLERANCE  # the sum of all changes that would follow
    one_earlier = last / rate
    assert max(one_earlier, one_earlier * rate / (1.0 - rate)) > 10 * TOLERANCE


def test_small_changes_that_grow_are_no_rest() -> None:
    watch = ConvergenceMonitor(TOLERANCE, GAUSSIAN)
    assert not any(watch.has_converged(change) for change in (1.05e-2, 9.90e-3, 9.95e-3, 9.99e-3))


def test_next_to_nothing_is_rest_whatever_came_before() -> None:
    watch = ConvergenceMonitor(TOLERANCE, GAUSSIAN)
    assert not watch.has_converged(5e-2)
    assert watch.has_converged(0.0)


def test_where_the_loss_is_flat_they_rest_once_more_at_a_tenth_of_the_tolerance() -> None:
    watch = ConvergenceMonitor(TOLERANCE, BINOMIAL)
    assert watch.tolerance == TOLERANCE
    assert not watch.has_converged(0.0)
    assert watch.tolerance == pytest.approx(TOLERANCE / 10)
    assert not watch.has_converged(5e-2)  # a column came in
    assert watch.tolerance == pytest.approx(TOLERANCE / 10)
    assert watch.has_converged(0.0)
