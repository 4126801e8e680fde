"""Packed coins against comparing 64-bit numbers one at a time."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit
from numpy.typing import NDArray
from scipy import stats

from tests.oracle.naive import exact_flip_probability
from verticopula.privacy.coins import (
    CoinStream,
    decide_last,
    deposit_answers,
    deposit_bits,
    deposit_bits_portable,
    first_planes,
    flip_probability,
    flip_threshold,
    popcount,
    second_planes,
)
from verticopula.privacy.noise import SeededNoise

Words = NDArray[np.uint64]

ALPHA = 1e-6
WORD = st.integers(0, 2**64 - 1)


def unpack(words: Words) -> NDArray[np.uint8]:
    """(words, 64) bits, lane 0 first."""
    return np.unpackbits(words.view(np.uint8), bitorder="little").reshape(words.size, 64)


def random_words(count: int, seed: int) -> Words:
    return np.random.default_rng(seed).integers(0, 2**64, count, dtype=np.uint64)


def planes(threshold: int) -> Words:
    return np.array([2**64 - 1 if threshold >> (63 - k) & 1 else 0 for k in range(12)], dtype=np.uint64)


# ---- thresholds --------------------------------------------------------------------------


@given(st.floats(1e-12, 40.0))
def test_a_coin_never_flips_less_often_than_its_epsilon_needs(epsilon: float) -> None:
    exact = exact_flip_probability(epsilon) * 2**64
    threshold = flip_threshold(epsilon)
    assert threshold >= exact
    assert threshold <= min(exact * (1 + Decimal(2) ** -48) + 1, 2**63)


@pytest.mark.parametrize("epsilon", [1e-300, 1e-17, 44.0, 60.0, 700.0])
def test_thresholds_stay_in_range_at_the_ends(epsilon: float) -> None:
    assert 1 <= flip_threshold(epsilon) <= 2**63
    assert flip_threshold(epsilon) >= min(exact_flip_probability(epsilon) * 2**64, 2**63)


def test_a_very_large_epsilon_still_has_a_coin() -> None:
    assert flip_threshold(800.0) == 1


@pytest.mark.parametrize("threshold", [0, -1, 2**63 + 1])
def test_a_threshold_outside_its_range_is_refused(threshold: int) -> None:
    with pytest.raises(ValueError, match="threshold"):
        CoinStream(SeededNoise(0).stream("x"), threshold)


# ---- bit tricks --------------------------------------------------------------------------


@njit
def call_deposit(source: np.uint64, mask: np.uint64) -> np.uint64:
    return deposit_bits(source, mask)


@njit
def call_popcount(word: np.uint64) -> np.uint64:
    return popcount(word)


def naive_deposit(source: int, mask: int) -> int:
    result, taken = 0, 0
    for place in range(64):
        if mask >> place & 1:
            result |= (source >> taken & 1) << place
            taken += 1
    return result


@given(WORD, WORD)
def test_deposit_and_popcount_agree_with_a_loop(source: int, mask: int) -> None:
    wanted = naive_deposit(source, mask)
    assert int(call_deposit(np.uint64(source), np.uint64(mask))) == wanted
    assert int(deposit_bits_portable(np.uint64(source), np.uint64(mask))) == wanted
    assert int(call_popcount(np.uint64(mask))) == mask.bit_count()


# ---- comparing planes --------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1e-6, 0.3, 1.0, 2.5, 9.0])
def test_planes_answer_as_whole_numbers_do(epsilon: float) -> None:
    """Gather every coin's bits, plane by plane, into one number and compare that with the threshold."""
    threshold = flip_threshold(epsilon)
    count, second = 40, 40
    first = random_words(4 * count, 1)
    below, undecided = np.empty(count, dtype=np.uint64), np.empty(count, dtype=np.uint64)
    first_planes(first, planes(threshold), below, undecided)
    top = sum(unpack(first[k * count : (k + 1) * count]).astype(np.int64) << (3 - k) for k in range(4))
    np.testing.assert_array_equal(unpack(below), top < threshold >> 60)
    np.testing.assert_array_equal(unpack(undecided), top == threshold >> 60)

    more, last = random_words(8 * second, 2), random_words(second, 3)
    middle = sum(unpack(more[k * second : (k + 1) * second]).astype(np.int64) << (7 - k) for k in range(8)).ravel()
    wanted_middle, wanted_rest = threshold >> 52 & 255, threshold & (2**52 - 1)
    answers = middle < wanted_middle
    for used, place in enumerate(np.flatnonzero(middle == wanted_middle)):
        answers[place] = int(last[used]) >> 12 < wanted_rest
    expected = top < threshold >> 60
    places = np.argwhere(top == threshold >> 60)  # word by word, lane by lane: the order answers are given in
    for position, (word, lane) in enumerate(places):
        expected[word, lane] = answers[position]
    heads, equal = second_planes(more, planes(threshold))
    decide_last(heads, equal, last, np.uint64(wanted_rest))
    deposit_answers(below, undecided, heads)
    np.testing.assert_array_equal(unpack(below), expected)


class Adversarial:
    """The worst keystream there is: every coin equals the threshold in all of its 64 bits."""

    def __init__(self, threshold: int) -> None:
        self._threshold = threshold
        self.asked: list[int] = []

    def words(self, size: int) -> Words:
        self.asked.append(size)
        return np.full(size, (self._threshold & (2**52 - 1)) << 12, dtype=np.uint64)

    def fill(self, out: NDArray[np.uint8], size: int) -> None:
        compared = planes(self._threshold)[4:] if self.asked else planes(self._threshold)[:4]
        self.asked.append(size // 8)
        out[:size] = np.repeat(compared, size // 8 // compared.size).view(np.uint8)


@pytest.mark.parametrize("count", [1, 2, 16, 700])
def test_every_coin_may_be_undecided_to_the_end(count: int) -> None:
    """Random words never run out, and a number equal to the threshold is not below it."""
    keystream = Adversarial(flip_threshold(1.0))
    assert not CoinStream(keystream, flip_threshold(1.0)).draw(count).any()  # type: ignore[arg-type]
    assert keystream.asked == [4 * count, 8 * (count + 2), 64 * (count + 2)]


@pytest.mark.slow
def test_rare_heads_are_as_likely_in_small_draws() -> None:
    """Rare heads need all 12 first bits equal; a draw with too many of those must not be thrown away."""
    threshold = 2**51  # theta = 2^-13
    stream = CoinStream(SeededNoise(6).stream("small"), threshold)
    n_draws = 4_000_000
    heads = sum(int(np.bitwise_count(stream.draw(16)).sum()) for _ in range(n_draws))
    expected = n_draws * 1024 * threshold / 2**64
    assert abs(heads - expected) < 5 * math.sqrt(expected)


# ---- frequencies and independence --------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 0.5, 1.0, 3.0])
def test_every_lane_shows_heads_equally_often_and_on_its_own(epsilon: float) -> None:
    stream = CoinStream(SeededNoise(1).stream("lanes", str(epsilon)), flip_threshold(epsilon))
    theta = flip_probability(epsilon)
    bits = np.concatenate([unpack(stream.draw(size)) for size in (1, 16, 64, 1_000, 20_000, 3, 40_000)]).astype(float)
    rows = bits.shape[0]
    assert stats.binomtest(int(bits.sum()), bits.size, theta).pvalue > ALPHA
    per_lane = (bits.sum(axis=0) - rows * theta) ** 2 / (rows * theta * (1 - theta))
    assert stats.chi2.sf(per_lane.sum(), 64) > ALPHA
    standard = (bits - theta) / math.sqrt(theta * (1 - theta))
    between_lanes = standard.T @ standard / math.sqrt(rows)
    pairs = between_lanes[np.triu_indices(64, 1)]
    assert np.max(np.abs(pairs)) < stats.norm.isf(ALPHA / pairs.size / 2)
    assert stats.chi2.sf(np.sum(pairs**2), pairs.size) > ALPHA
    for gap in (1, 2, 4, 16):  # words answered after each other
        product = np.sum(standard[gap:] * standard[:-gap])
        assert abs(product) / math.sqrt(standard[gap:].size) < stats.norm.isf(ALPHA / 2)
    per_word = (bits.sum(axis=1) - 64 * theta) ** 2 / (64 * theta * (1 - theta))
    kurtosis = (1 - 6 * theta * (1 - theta)) / (64 * theta * (1 - theta))
    assert abs(per_word.mean() - 1) < 5 * math.sqrt((2 + kurtosis) / rows)


def test_a_large_epsilon_hardly_ever_flips() -> None:
    stream = CoinStream(SeededNoise(2).stream("rare"), flip_threshold(20.0))
    heads = sum(int(np.bitwise_count(stream.draw(50_000)).sum()) for _ in range(10))
    assert stats.poisson.sf(heads - 1, 32e6 * flip_probability(20.0)) > ALPHA


def test_a_moderately_large_epsilon_flips_as_often_as_it_says() -> None:
    stream = CoinStream(SeededNoise(2).stream("seldom"), flip_threshold(9.0))
    heads = sum(int(np.bitwise_count(stream.draw(50_000)).sum()) for _ in range(10))
    expected = 32e6 * flip_probability(9.0)
    assert abs(heads - expected) < 5 * math.sqrt(expected)
