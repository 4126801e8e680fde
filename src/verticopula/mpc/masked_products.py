"""Sums of products of columns that different parties hold, opened to a coordinator that sees no row.

Party k's columns are whole numbers X_k modulo p = 2^61 - 1. It draws a mask B_k from a seed, sends V_k = X_k + B_k to
the coordinator, and the seed, sealed, to every other party. For j before k

    X_j'X_k = V_j'V_k - V_j'B_k - B_j'X_k.

The coordinator has V_j'V_k. Party j knows V_j and both masks, party k knows X_k and both masks: they send the other two
terms, the one with a pad added and the other with the same pad subtracted. The pad is from a key that the two have in
common, so the coordinator learns the sum of the terms and nothing else.

**What is seen.** The coordinator: X_j'X_k, exact. A party: seeds of the others, which do not depend on their columns.
Parties that work together without the coordinator see no more. Whoever has both V_k and the seed has X_k, so
the coordinator must not work together with a party. Noise is not added.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from verticopula.errors import ProtocolError, SettingsError
from verticopula.mpc.limb_products import cross_product
from verticopula.mpc.prime_field import (
    HALF,
    PRIME,
    Field,
    Ints,
    add,
    decode_signed,
    encode_signed,
    expand_field,
    subtract,
)

Floats = NDArray[np.float64]

_MOST_BITS, _FEWEST_BITS = 24, 8


def product_bits(n_rows: int) -> int:
    """The most fractional bits with which sums of products of `n_rows` rows fit, where columns have mean square 1.

    By Cauchy-Schwarz no such sum exceeds the number of rows; half a bit is left for what rounding adds.
    """
    bits = min(math.floor((math.log2(HALF) - math.log2(max(n_rows, 1)) - 0.5) / 2.0), _MOST_BITS)
    if bits < _FEWEST_BITS:
        raise SettingsError(f"sums of products over {n_rows} rows do not fit in 61 bits")
    return bits


def round_columns(columns: Floats, bits: int) -> Ints:
    """Columns in units of 2^-bits, as whole numbers."""
    return np.rint(columns * 2.0**bits).astype(np.int64)


def mask_columns(values: Ints, seed: bytes) -> Ints:
    """V = X + B: uniform, whatever the columns are, to whoever lacks the seed."""
    return add(encode_signed(values), expand_field(seed, values.shape)).astype(np.int64)


def pair_term(
    own: Ints, seeds: tuple[bytes, bytes], other_width: int, key: bytes, parts: Sequence[Ints], *, is_first: bool
) -> Ints:
    """One party's padded term of X_j'X_k for each part of the rows: (parts, q_j, q_k).

    Parameters
    ----------
    own : (n, q) this party's columns
    seeds : of its own mask and of the other party's
    key : what the two parties have in common and nobody else has, for these columns only
    parts : the rows of each sum
    is_first : whether this party is j of the formula above
    """
    here, there = encode_signed(own), expand_field(seeds[1], (own.shape[0], other_width))
    left, right = (add(here, expand_field(seeds[0], own.shape)), there) if is_first else (there, here)
    term = np.array([cross_product(left[rows], right[rows]) for rows in parts])
    pad = expand_field(key, term.shape)
    return (add(term, pad) if is_first else subtract(term, pad)).astype(np.int64)


def open_pair(masked: tuple[Ints, Ints], terms: tuple[Ints, Ints], parts: Sequence[Ints]) -> Ints:
    """X_j'X_k for each part of the rows, from both parties' masked columns and terms."""
    first, second = (_elements(values) for values in masked)
    products = np.array([cross_product(first[rows], second[rows]) for rows in parts])
    if any(term.shape != products.shape for term in terms):
        raise ProtocolError("a term of the products does not have the shape of their columns")
    return decode_signed(subtract(subtract(products, _elements(terms[0])), _elements(terms[1])))


def own_products(values: Ints, bits: int, parts: Sequence[Ints]) -> Floats:
    """X'X of one party's own columns for each part of the rows, in units of the columns."""
    columns = values / 2.0**bits
    return np.array([columns[rows].T @ columns[rows] for rows in parts])


def _elements(values: Ints) -> Field:
    if values.dtype != np.int64 or (values.size and not 0 <= int(values.min()) <= int(values.max()) < PRIME):
        raise ProtocolError("a number is not an element of the field")
    return values.astype(np.uint64)
