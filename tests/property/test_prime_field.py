"""Arithmetic modulo 2^61 - 1 is that of Python's integers, at the extremes too."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.stats import chi2

from verticopula.errors import ProtocolError
from verticopula.mpc import limb_products
from verticopula.mpc.limb_products import GramSum, cross_product
from verticopula.mpc.prime_field import (
    HALF,
    PRIME,
    FieldStream,
    add,
    decode_signed,
    draw_field,
    element,
    encode_signed,
    expand_field,
    inner_product,
    multiply,
    pack_field,
    subtract,
    total_of,
    unpack_field,
    weighted_gram,
)
from verticopula.privacy.noise import Keystream

EDGES = [0, 1, 2, 2**20 - 1, 2**20, 2**40 - 1, 2**40, 2**60 - 1, 2**60, 2**60 + 1, PRIME - 2, PRIME - 1]
ELEMENTS = st.sampled_from(EDGES) | st.integers(0, PRIME - 1)
VECTORS = st.lists(ELEMENTS, min_size=1, max_size=20)
MATRICES = arrays(np.uint64, array_shapes(min_dims=2, max_dims=2, max_side=7), elements=ELEMENTS)


def as_field(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


def gram(matrix: np.ndarray) -> np.ndarray:
    """X'X."""
    found = GramSum(matrix.shape[1])
    found.add(matrix, np.arange(matrix.shape[1]))
    return found.total()


def exact_gram(matrix: np.ndarray) -> np.ndarray:
    whole = matrix.astype(object)
    return (whole.T @ whole) % PRIME


@given(VECTORS, VECTORS)
def test_sums_differences_and_products_are_those_of_integers(first: list[int], second: list[int]) -> None:
    a, b = as_field(first)[:, None], as_field(second)[None, :]
    for ours, exact in (
        (add, lambda x, y: (x + y) % PRIME),
        (subtract, lambda x, y: (x - y) % PRIME),
        (multiply, lambda x, y: x * y % PRIME),
    ):
        assert ours(a, b).tolist() == [[exact(x, y) for y in second] for x in first]


def test_every_pair_of_edges() -> None:
    a, b = as_field(EDGES)[:, None], as_field(EDGES)[None, :]
    assert multiply(a, b).tolist() == [[x * y % PRIME for y in EDGES] for x in EDGES]
    assert add(a, b).tolist() == [[(x + y) % PRIME for y in EDGES] for x in EDGES]
    assert subtract(a, b).tolist() == [[(x - y) % PRIME for y in EDGES] for x in EDGES]


@given(VECTORS)
def test_totals_and_inner_products(values: list[int]) -> None:
    assert total_of(as_field(values)) == sum(values) % PRIME
    assert inner_product(as_field(values), as_field(values[::-1])) == (
        sum(x * y for x, y in zip(values, values[::-1], strict=True)) % PRIME
    )


@given(MATRICES)
def test_gram_matrices_are_exact(matrix: np.ndarray) -> None:
    assert gram(matrix).tolist() == exact_gram(matrix).tolist()


@given(MATRICES, st.data())
def test_weighted_gram_matrices_are_exact(matrix: np.ndarray, data: st.DataObject) -> None:
    weights = as_field(data.draw(st.lists(ELEMENTS, min_size=len(matrix), max_size=len(matrix))))
    exact = (matrix.astype(object).T * weights.astype(object)) @ matrix.astype(object) % PRIME
    assert weighted_gram(matrix, weights).tolist() == exact.tolist()


@given(MATRICES, st.integers(1, 9), st.integers(0, 2**32))
def test_products_of_two_matrices_are_exact(first: np.ndarray, width: int, seed: int) -> None:
    second = np.random.default_rng(seed).integers(0, PRIME, (len(first), width), dtype=np.uint64)
    exact = (first.astype(object).T @ second.astype(object)) % PRIME
    assert cross_product(first, second).tolist() == exact.tolist()


EXTREMES = [
    PRIME - 1,
    HALF - 1,  # the highest limb is largest
    HALF,
    2**59 + 2**39 + 2**19,
    PRIME - (2**39 + 2**19),  # limbs of one sign, and of different ones
    2**39 - 2**19,
    HALF - 2**39 - 2**19,
    PRIME - (HALF - 2**39 - 2**19),
]


@pytest.mark.parametrize("rows", [511, 512, 513, 1200])
def test_long_gram_matrices_of_the_largest_planes_are_exact(rows: int) -> None:
    matrix = np.tile(as_field(EXTREMES), (rows, 1))
    assert gram(matrix).tolist() == exact_gram(matrix).tolist()
    assert cross_product(matrix[:, ::-1], matrix).tolist() == exact_gram(matrix)[::-1].tolist()


def test_sums_of_half_a_million_rows_are_exact() -> None:
    """More blocks than add up below 2^63."""
    rows = limb_products.PLANE_ROWS * (2 * limb_products.BLOCKS_AT_ONCE + 3)
    assert gram(np.full((rows, 1), HALF - 1, dtype=np.uint64)).tolist() == [[rows * (HALF - 1) ** 2 % PRIME]]


def test_block_sizes_leave_no_room_for_rounding() -> None:
    largest = 4 * 2**19 + 2 * 2**19 + 2**20  # of a plane: 4A + 2B + C
    assert limb_products.PLANE_ROWS * largest**2 <= 2**53
    assert limb_products.BLOCKS_AT_ONCE * 2**53 + PRIME < 2**63


@given(st.integers(1, 6), st.integers(0, 2**32))
def test_blocks_with_some_of_the_columns_add_up(n_blocks: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    found, expected = GramSum(4), np.zeros((4, 4), dtype=object)
    for _ in range(n_blocks):
        columns = np.flatnonzero(rng.random(4) < 0.7)
        block = rng.integers(0, PRIME, (5, columns.size), dtype=np.uint64)
        found.add(block, columns)
        expected[np.ix_(columns, columns)] += block.astype(object).T @ block.astype(object)
    assert found.total().tolist() == (expected % PRIME).tolist()


@given(st.lists(st.integers(-(HALF - 1), HALF - 1) | st.sampled_from([-(HALF - 1), HALF - 1]), max_size=20))
def test_signed_numbers_come_back(values: list[int]) -> None:
    coded = encode_signed(np.array(values, dtype=np.int64))
    assert coded.tolist() == [value % PRIME for value in values]
    assert decode_signed(coded).tolist() == values


def test_any_64_bit_integer_is_taken_modulo_p() -> None:
    values = [-(2**63), 2**63 - 1, PRIME, -PRIME, 0]
    assert encode_signed(np.array(values, dtype=np.int64)).tolist() == [value % PRIME for value in values]
    assert [int(element(value)) for value in values] == [value % PRIME for value in values]
    with pytest.raises(ProtocolError):
        encode_signed(np.zeros(2))  # type: ignore[arg-type]


@given(MATRICES)
def test_bytes_come_back(matrix: np.ndarray) -> None:
    np.testing.assert_array_equal(unpack_field(pack_field(matrix), matrix.shape), matrix)


def test_bytes_that_are_no_elements_are_refused() -> None:
    for value in (PRIME, 2**61, 2**64 - 1):
        with pytest.raises(ProtocolError, match="not an element"):
            unpack_field(np.array([1, value], dtype="<u8").tobytes(), (2,))
    with pytest.raises(ProtocolError, match="shape"):
        unpack_field(bytes(15), (2,))
    with pytest.raises(ProtocolError, match="16 bytes"):
        expand_field(bytes(15), (2,))


@settings(max_examples=10)
@given(st.sampled_from([1, 5, 16_384, 16_385, 40_000]), st.integers(0, 3))
def test_what_a_seed_stands_for_does_not_depend_on_how_it_is_cut(size: int, count: int) -> None:
    seed = bytes([9]).ljust(16)
    values, stream, back = expand_field(seed, (size,)), FieldStream(seed, size), FieldStream(seed, size)
    found = np.zeros(size, dtype=np.uint64)
    for part in np.array_split(found, 3 * count + 1):
        stream.add_to(part)
    np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(expand_field(seed, (size, 1))[:, 0], values)
    back.subtract_from(found)
    assert not found.any()


class Scripted(Keystream):
    """A keystream whose words are given."""

    def __init__(self, words: list[int]) -> None:
        self._left = words

    def words(self, count: int, room: np.ndarray | None = None) -> np.ndarray:
        taken, self._left = self._left[:count], self._left[count:]
        return np.array(taken, dtype=np.uint64)


def test_the_one_value_that_is_too_large_is_drawn_again() -> None:
    stream = Scripted([2**64 - 1, 7, PRIME, 2**61 + 3, PRIME, 11, 13])
    # the first and third of four are p: they take the next two words, of which the first is p once more
    assert draw_field(stream, 4).tolist() == [13, 7, 11, 3]


@settings(max_examples=5)
@given(st.binary(min_size=16, max_size=16))
def test_a_seed_is_a_stream_of_bits_that_look_fair(seed: bytes) -> None:
    drawn = expand_field(seed, (200, 100))
    assert int(drawn.max()) < PRIME
    np.testing.assert_array_equal(drawn, expand_field(seed, (200, 100)))
    ones = np.array([(drawn >> np.uint64(bit) & np.uint64(1)).sum() for bit in range(61)], dtype=float)
    assert chi2.sf(((ones - 10_000) ** 2 / 5_000).sum(), 61) > 1e-9
