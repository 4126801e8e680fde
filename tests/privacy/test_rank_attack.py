"""What an attacker learns from one released rank: more than epsilon per comparison, no more than accounted for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from verticopula.privacy.accounting import Coins, composed_epsilon
from verticopula.privacy.noise import SeededNoise
from verticopula.stats.ranks import flip_comparisons

N = 200
TRIALS = 1_500
DELTA = 1e-6
CONFIDENCE = 0.999  # of each of the two bounds


def share_in_upper_half(highest: bool, epsilon: float) -> int:
    """How often the record that is highest (or lowest) has a noisy rank in the upper half."""
    values = np.arange(1.0, N + 1)
    values[0] = N + 1.0 if highest else 0.0
    keystream = SeededNoise(60).stream("attack", str(highest), str(epsilon))
    return sum(int(flip_comparisons(values, epsilon, keystream)[0]) > N // 2 for _ in range(TRIALS))


def lower_bound_on_epsilon(hits_if_highest: int, hits_if_lowest: int) -> float:
    """(eps, delta)-privacy means P(hit | highest) <= exp(eps) P(hit | lowest) + delta."""
    likely = stats.beta.ppf(1 - CONFIDENCE, hits_if_highest, TRIALS - hits_if_highest + 1)
    unlikely = stats.beta.ppf(CONFIDENCE, hits_if_lowest + 1, TRIALS - hits_if_lowest)
    return math.log((likely - DELTA) / unlikely)


@pytest.mark.parametrize("epsilon", [0.0248, 0.25, 0.5, 1.0])
def test_moving_a_record_from_lowest_to_highest_is_seen(epsilon: float) -> None:
    bound = lower_bound_on_epsilon(share_in_upper_half(True, epsilon), share_in_upper_half(False, epsilon))
    assert bound > epsilon  # so epsilon per comparison is not epsilon per person
    assert bound <= composed_epsilon([Coins(epsilon, N - 1)], DELTA)


def test_the_attack_finds_nothing_where_nothing_moved() -> None:
    hits = share_in_upper_half(True, 0.0248)
    assert lower_bound_on_epsilon(hits, hits) <= 0.0
