"""Scores as integers: within the bound whatever comes in, and sums that fit."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from verticopula.errors import SettingsError
from verticopula.mpc.fixed_point import (
    MOST_BITS,
    ROOM,
    TAIL,
    bound_of,
    check_norms,
    check_room,
    choose_bits,
    decode_sums,
    encode_scores,
    needed_room,
)
from verticopula.mpc.gram_noise import gram_scales, share_scale
from verticopula.privacy.gaussian_dp import mu_of

ANY_SCORE = st.floats(-1.7e308, 1.7e308) | st.floats(-5.0, 5.0) | st.sampled_from([0.0, -0.0, np.inf, -np.inf, 5e-324])


def exact_norm(row: np.ndarray) -> int:
    return sum(int(value) ** 2 for value in row)


@given(arrays(np.float64, (4, 3), elements=ANY_SCORE), st.integers(0, 20), st.floats(0.0, 50.0))
def test_no_record_is_longer_than_its_bound(scores: np.ndarray, bits: int, bound: float) -> None:
    limit = bound_of(bound, bits)
    coded = encode_scores(scores, bits, limit)
    assert coded.dtype == np.int64
    for row in coded:
        assert exact_norm(row) <= limit <= Fraction(bound) * 4**bits
    np.testing.assert_array_equal(coded, encode_scores(scores, bits, limit))  # no randomness in it


@given(arrays(np.float64, (5, 4), elements=st.floats(-3.0, 3.0)), st.integers(8, 20))
def test_what_is_within_the_bound_is_only_rounded(scores: np.ndarray, bits: int) -> None:
    coded = encode_scores(scores, bits, bound_of(40.0, bits))
    assert np.abs(coded / 2.0**bits - scores).max() <= 0.5 / 2**bits


@given(arrays(np.float64, (3, 4), elements=st.floats(-100.0, 100.0)), st.integers(10, 20))
def test_what_is_longer_keeps_its_direction_and_nearly_its_length(scores: np.ndarray, bits: int) -> None:
    coded = encode_scores(scores, bits, bound_of(2.0, bits)) / 2.0**bits
    inner = np.clip(scores, -math.sqrt(2.0), math.sqrt(2.0))  # a far-off score is cut before the record is shrunk
    for row, clipped in zip(inner, coded, strict=True):
        length = math.sqrt(float(row @ row))
        expected = row * min(1.0, math.sqrt(2.0) / length) if length > 0.0 else row
        assert np.abs(expected - clipped).max() <= 1.0 / 2**bits


def test_a_record_depends_on_nobody_else() -> None:
    scores = np.random.default_rng(1).standard_normal((50, 6)) * 3.0
    together = encode_scores(scores, 16, bound_of(9.0, 16))
    apart = np.vstack([encode_scores(row[None], 16, bound_of(9.0, 16)) for row in scores])
    np.testing.assert_array_equal(together, apart)


def test_rows_on_the_very_edge_are_verified_in_integers() -> None:
    rng = np.random.default_rng(2)
    for bits in (0, 1, 8, 20):
        for limit in (0, 1, 2, 3, 4**bits, 4**bits + 1, bound_of(84.0, bits)):
            scores = rng.standard_normal((2_000, 5))
            scores *= (np.sqrt(limit) / np.linalg.norm(scores, axis=1) / 2.0**bits)[:, None]
            coded = encode_scores(scores, bits, limit)
            assert max(exact_norm(row) for row in coded) <= limit


def test_bounds_may_differ_by_row() -> None:
    scores = np.full((3, 2), 2.0)
    coded = encode_scores(scores, 8, np.array([0, bound_of(1.0, 8), bound_of(100.0, 8)]))
    assert coded[0].tolist() == [0, 0]
    assert exact_norm(coded[1]) <= 4**8
    assert coded[2].tolist() == [512, 512]


def test_bad_input_is_refused() -> None:
    for scores, bits, bound in (
        (np.array([[np.nan]]), 8, 1),
        (np.zeros(3), 8, 1),
        (np.zeros((1, 1)), MOST_BITS + 1, 1),
        (np.zeros((1, 1)), 8, -1),
        (np.zeros((1, 4)), 8, 2**61),
    ):
        with pytest.raises(SettingsError):
            encode_scores(scores, bits, bound)
    for bound in (-1.0, math.inf, math.nan):
        with pytest.raises(SettingsError):
            bound_of(bound, 8)
    with pytest.raises(SettingsError, match="longer"):
        check_norms(np.array([[3, 4]]), np.array([24]))
    with pytest.raises(SettingsError, match="longer"):
        check_norms(np.array([[2**32, 2**32]]), np.array([2**62]))  # its square wraps around to 0
    with pytest.raises(SettingsError, match="longer"):
        check_norms(np.array([[-(2**63)]]), np.array([2**62]))  # and so does its absolute value


# ---- room ------------------------------------------------------------------------------------


def test_the_bits_are_the_most_that_fit() -> None:
    mu = mu_of(1.0, 1e-6)
    bits = choose_bits(71_827, 84.0, mu)
    assert bits == 19
    check_room(71_827, bound_of(84.0, bits), mu)
    with pytest.raises(SettingsError, match="64 bits"):
        check_room(71_827, bound_of(84.0, bits + 1), mu)
    assert choose_bits(10, 2.0, 1.0) == MOST_BITS
    with pytest.raises(SettingsError, match="fewer than 8"):
        choose_bits(10**9, 1e6, 1e-3)
    for mu in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(SettingsError):
            check_room(1, 1, mu)


def test_the_largest_sums_and_noise_stay_within_the_room() -> None:
    mu, bound = 0.2, bound_of(7.0, 18)
    needed = needed_room(1_000_000, bound, mu)
    noise = TAIL * math.sqrt(3.0) * share_scale(gram_scales(bound, mu)[1])
    assert noise <= needed - 1_000_000 * bound <= noise + 1.0
    assert needed < ROOM
    worst = np.array([needed], dtype=np.int64)
    assert decode_sums(worst, 18)[0] == pytest.approx(needed / 4**18)
    assert decode_sums(-worst, 18)[0] == pytest.approx(-needed / 4**18)
