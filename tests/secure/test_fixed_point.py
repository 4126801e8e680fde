"""Scores in fixed point: exact bounds, and room for every sum."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verticopula.errors import SettingsError
from verticopula.mpc.fixed_point import MOST_BITS, TAIL, bound_of, decode_sums, needed_room
from verticopula.mpc.gram_noise import gram_scales, share_scale
from verticopula.mpc.prime_field import HALF


@given(st.floats(0.0, 1e6), st.integers(0, MOST_BITS))
def test_a_bound_is_rounded_down_exactly(bound: float, bits: int) -> None:
    exact = Fraction(bound) * 4**bits
    assert bound_of(bound, bits) <= exact < bound_of(bound, bits) + 1


def test_bounds_that_are_none_are_refused() -> None:
    for bound in (-1.0, math.inf, math.nan):
        with pytest.raises(SettingsError):
            bound_of(bound, 8)


def test_the_largest_sums_and_noise_stay_within_the_room() -> None:
    mu, bound = 0.2, bound_of(7.0, 18)
    needed = needed_room(1_000_000, bound, mu)
    noise = TAIL * math.sqrt(3.0) * share_scale(gram_scales(bound, mu)[1])
    assert noise <= needed - 1_000_000 * bound <= noise + 1.0
    assert needed < HALF
    worst = np.array([needed], dtype=np.int64)
    assert decode_sums(worst, 18)[0] == pytest.approx(needed / 4**18)
    assert decode_sums(-worst, 18)[0] == pytest.approx(-needed / 4**18)
