"""Replicated shares: exact in Z_2^64, refused where they do not fit, and the same to look at whatever they hide."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from scipy.stats import chi2, kstest

from verticopula.errors import ProtocolError
from verticopula.mpc.secret_sharing import (
    COMPUTE,
    SEED_BYTES,
    expand_seed,
    from_bytes,
    gram_share,
    held_shares,
    open_shares,
    public_share,
    seeds_for,
    third_share,
    to_bytes,
    zero_share,
)

ANY_MATRIX = arrays(
    np.int64,
    array_shapes(min_dims=2, max_dims=2, max_side=6),
    elements=st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5),
)
SEEDS = (bytes(range(16)), bytes(range(16, 32)))


def dealt(values: np.ndarray, seeds: tuple[bytes, bytes] = SEEDS) -> list[tuple[np.ndarray, np.ndarray]]:
    """What every compute party holds."""
    body = to_bytes(third_share(values, seeds))
    return [
        held_shares(i, values.shape, seeds_for(i, seeds), b"" if i == 0 else body)  # type: ignore[arg-type]
        for i in range(COMPUTE)
    ]


def exact_gram(values: np.ndarray) -> np.ndarray:
    """With Python's integers, then taken modulo 2^64."""
    whole = values.astype(object)
    gram = whole.T @ whole
    flat = [int(gram[a, b]) for a, b in zip(*np.triu_indices(values.shape[1]), strict=True)]
    return np.array([(value + 2**63) % 2**64 - 2**63 for value in flat], dtype=np.int64)


@given(ANY_MATRIX)
def test_sums_of_products_are_exact_modulo_2_64(values: np.ndarray) -> None:
    held = dealt(values)
    np.testing.assert_array_equal(open_shares([gram_share(*pair) for pair in held]), exact_gram(values))


@given(ANY_MATRIX)
def test_any_two_compute_parties_together_have_the_matrix_and_agree(values: np.ndarray) -> None:
    held = dealt(values)
    for i in range(COMPUTE):
        after = (i + 1) % COMPUTE
        np.testing.assert_array_equal(held[i][1], held[after][0])
        total = held[i][0] + held[i][1] + held[after][1]
        np.testing.assert_array_equal(total.view(np.int64), values)


@given(ANY_MATRIX, st.integers(1, 2**20))
def test_a_public_column_needs_no_sharing(values: np.ndarray, unit: int) -> None:
    held = dealt(values)
    shares = []
    for i, (first, second) in enumerate(held):
        ones = public_share(i, (values.shape[0], 1), unit)
        shares.append(gram_share(np.hstack([first, ones[0]]), np.hstack([second, ones[1]])))
    whole = np.column_stack([values, np.full(values.shape[0], unit)])
    np.testing.assert_array_equal(open_shares(shares), exact_gram(whole))


def test_shares_of_zero_cancel_and_nobody_misses_a_key() -> None:
    keys = {(0, 1): bytes(16), (0, 2): bytes(range(16)), (1, 2): bytes(15) + b"\x01"}
    common = [{j: keys[min(i, j), max(i, j)] for j in range(COMPUTE) if j != i} for i in range(COMPUTE)]
    zeros = [zero_share(i, common[i], 1_000) for i in range(COMPUTE)]
    assert not open_shares(zeros).any()
    assert all(zero.any() for zero in zeros)
    # whoever knows two of the keys still misses the third in the others' shares
    known = zero_share(1, {0: keys[0, 1], 2: bytes(16)}, 1_000)
    assert not np.array_equal(known, zeros[1])
    with pytest.raises(ProtocolError, match="each of the two others"):
        zero_share(0, {1: keys[0, 1]}, 10)


def test_what_has_the_wrong_shape_or_type_is_refused() -> None:
    shares = np.zeros((3, 2), dtype=np.uint64)
    with pytest.raises(ProtocolError):
        third_share(np.zeros((3, 2)), SEEDS)  # type: ignore[arg-type]
    with pytest.raises(ProtocolError):
        third_share(np.zeros(3, dtype=np.int64), SEEDS)
    with pytest.raises(ProtocolError):
        gram_share(shares, shares[:2])
    with pytest.raises(ProtocolError):
        gram_share(shares.view(np.int64), shares)  # type: ignore[arg-type]
    with pytest.raises(ProtocolError):
        from_bytes(bytes(7), (1, 1))
    with pytest.raises(ProtocolError):
        expand_seed(bytes(SEED_BYTES - 1), (1, 1))
    with pytest.raises(ProtocolError):
        open_shares([shares, shares])
    with pytest.raises(ProtocolError):
        open_shares([shares, shares, shares[:1]])
    for index, seeds, body in ((0, SEEDS[:1], b""), (1, SEEDS, bytes(48)), (0, SEEDS, bytes(48)), (1, SEEDS[:1], b"")):
        with pytest.raises(ProtocolError):
            held_shares(index, (3, 2), seeds, body)


# ---- what a compute party sees ------------------------------------------------------------------


def chi_square_of_bytes(data: bytes) -> float:
    """The probability of byte counts as uneven as these, if all bytes are equally likely."""
    counts = np.bincount(np.frombuffer(data, dtype=np.uint8), minlength=256)
    expected = len(data) / 256
    return float(chi2.sf(((counts - expected) ** 2 / expected).sum(), 255))


EXTREMES = [np.zeros((400, 50), dtype=np.int64), np.full((400, 50), 2**40, dtype=np.int64)]


@pytest.mark.parametrize("values", EXTREMES, ids=["zeros", "large"])
@pytest.mark.parametrize("index", range(COMPUTE))
def test_one_view_is_uniform_whatever_is_shared(values: np.ndarray, index: int) -> None:
    """Each share by itself, and the two of a view together. Over many keys, because one key in 300,000 looks odd."""
    pvalues: list[list[float]] = [[], [], [], []]
    for repeat in range(60):
        seeds = tuple(bytes([repeat, k, index, *range(13)]) for k in (1, 2))
        first, second = dealt(values, seeds)[index]  # type: ignore[arg-type]
        for found, looked_at in zip(pvalues, (first, second, first + second, first - second), strict=True):
            found.append(chi_square_of_bytes(looked_at.tobytes()))
    for found in pvalues:
        assert kstest(found, "uniform").pvalue > 1e-4


def test_a_term_with_its_share_of_zero_is_uniform_too() -> None:
    """Two of the three terms say nothing: here those of a matrix of zeros, whose sums are all 0."""
    keys = [{j: os.urandom(16) for j in range(COMPUTE) if j != i} for i in range(COMPUTE)]
    values = np.zeros((3, 200), dtype=np.int64)
    for i, pair in enumerate(dealt(values)):
        term = gram_share(*pair)
        assert chi_square_of_bytes((term + zero_share(i, keys[i], term.size)).tobytes()) > 1e-6


@pytest.mark.slow
def test_a_large_study_takes_a_compute_party_less_than_a_second() -> None:
    rng = np.random.default_rng(0)
    first, second = (rng.integers(0, 2**64, (70_000, 56), dtype=np.uint64) for _ in range(2))
    gram_share(first[:2], second[:2])
    start = time.process_time()
    gram_share(first, second)
    assert time.process_time() - start < 1.0
