"""Products of two parties' columns from masked ones: exact, and uniform to whoever lacks a seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import kstest

from verticopula.errors import ProtocolError, SettingsError
from verticopula.mpc.limb_products import cross_product
from verticopula.mpc.masked_products import (
    mask_columns,
    open_pair,
    own_products,
    pair_term,
    product_bits,
    round_columns,
)
from verticopula.mpc.prime_field import HALF, PRIME, encode_signed, subtract, weighted_gram

Ints = NDArray[np.int64]
SEEDS, KEY = (b"first seed 16 by", b"second seed 16 b"), b"the common key 1"


def view_of(first: Ints, second: Ints, parts: Sequence[Ints]) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    """What the coordinator gets of two parties: masked columns and terms."""
    masked = mask_columns(first, SEEDS[0]), mask_columns(second, SEEDS[1])
    terms = (
        pair_term(first, SEEDS, second.shape[1], KEY, parts, is_first=True),
        pair_term(second, SEEDS[::-1], first.shape[1], KEY, parts, is_first=False),
    )
    return masked, terms


@given(st.integers(1, 40), st.integers(0, 4), st.integers(1, 4), st.integers(0, 2**32))
def test_opened_products_are_the_plain_ones(rows: int, left: int, right: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = (rng.integers(-(2**24), 2**24, (rows, width)) for width in (left, right))
    parts = [np.arange(rows)[: rows // 2], np.arange(rows)[rows // 2 :]]
    found = open_pair(*view_of(first, second, parts), parts)
    np.testing.assert_array_equal(found, np.array([first[p].T @ second[p] for p in parts]))


def test_products_of_any_elements_are_exact_over_many_blocks() -> None:
    rng = np.random.default_rng(1)
    first, second = (rng.integers(0, PRIME, (5000, width), dtype=np.uint64) for width in (2, 3))
    found = cross_product(first, second)
    for i in range(2):
        for j in range(3):
            plain = sum(a * b for a, b in zip(first[:, i].tolist(), second[:, j].tolist(), strict=True)) % PRIME
            assert int(found[i, j]) == plain
    np.testing.assert_array_equal(cross_product(first, first), weighted_gram(first, np.ones(5000, dtype=np.uint64)))


def test_what_leaves_is_uniform_whatever_the_columns_are() -> None:
    """Each message by itself, of columns that are all alike."""
    columns = np.full((4000, 3), 2**20)
    masked, terms = view_of(columns, columns, [np.arange(i, i + 5) for i in range(0, 4000, 5)])
    for message in (*masked, *terms):
        assert kstest(message.reshape(-1) / PRIME, "uniform").pvalue > 1e-6


def test_every_table_of_the_same_products_explains_what_leaves_equally_well() -> None:
    """For any such table there are masks and a pad under which the coordinator sees exactly these messages."""
    first, second = np.array([[3, 1], [5, 2], [0, 7]]), np.array([[1], [4], [2]])
    parts = [np.arange(3)]
    (left, right), (of_first, of_second) = view_of(first, second, parts)
    order = [2, 0, 1]  # other rows, the same products
    other_first, other_second = encode_signed(first[order]), encode_signed(second[order])
    mask_first, mask_second = (
        subtract(seen.astype(np.uint64), values) for seen, values in ((left, other_first), (right, other_second))
    )
    pad = subtract(of_first[0].astype(np.uint64), cross_product(left.astype(np.uint64), mask_second))
    explained = subtract(cross_product(mask_first, other_second), pad)
    np.testing.assert_array_equal(explained, of_second[0].astype(np.uint64))


@pytest.mark.parametrize("changed", ["seed", "key", "other seed"])
def test_terms_for_other_masks_or_pads_open_nothing(changed: str) -> None:
    rng = np.random.default_rng(2)
    first, second = (rng.integers(-9, 9, (30, 2)) for _ in range(2))
    parts = [np.arange(30)]
    masked, (_, right) = view_of(first, second, parts)
    seeds = {"seed": (bytes(16), SEEDS[1]), "other seed": (SEEDS[0], bytes(16))}.get(changed, SEEDS)
    left = pair_term(first, seeds, 2, bytes(16) if changed == "key" else KEY, parts, is_first=True)
    assert np.abs(open_pair(masked, (left, right), parts)).min() > 2**40


@pytest.mark.parametrize("n_rows", [1, 2, 1000, 5000, 10**6, 10**8])
def test_sums_of_products_fit(n_rows: int) -> None:
    """Of columns with mean square 1, also where one row has all of it."""
    bits = product_bits(n_rows)
    largest = np.rint(np.sqrt(n_rows) * 2.0**bits)
    assert largest**2 < HALF
    assert n_rows * (2.0**bits + 0.5) ** 2 < HALF


def test_so_many_rows_that_nothing_is_left_of_a_number_are_refused() -> None:
    with pytest.raises(SettingsError, match="do not fit"):
        product_bits(2**45)


def test_a_party_s_own_products_are_those_of_the_columns_that_others_multiply() -> None:
    columns = np.random.default_rng(3).standard_normal((200, 3))
    rounded = round_columns(columns, 20)
    (found,) = own_products(rounded, 20, [np.arange(200)])
    np.testing.assert_allclose(found, rounded.T @ rounded / 4.0**20, rtol=1e-15)
    np.testing.assert_allclose(found, columns.T @ columns, atol=1e-3)


@pytest.mark.parametrize("spoil", [lambda t: t[:, :1], lambda t: t - PRIME, lambda t: t + PRIME])
def test_terms_that_are_none_are_refused(spoil: object) -> None:
    columns, parts = np.arange(8).reshape(4, 2), [np.arange(4)]
    masked, (left, right) = view_of(columns, columns, parts)
    with pytest.raises(ProtocolError):
        open_pair(masked, (spoil(left), right), parts)  # type: ignore[operator]
