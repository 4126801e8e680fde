"""Numbered masks against numpy's own."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from verticopula.data.missingness import unique_masks


@given(hnp.arrays(np.bool_, st.tuples(st.integers(1, 40), st.integers(1, 100)), elements=st.booleans()))
def test_as_numpy_has_it(masks: np.ndarray) -> None:
    patterns, numbers, counts = unique_masks(masks)
    expected = np.unique(masks, axis=0, return_inverse=True, return_counts=True)
    np.testing.assert_array_equal(patterns, expected[0])
    np.testing.assert_array_equal(numbers, expected[1].reshape(-1))
    np.testing.assert_array_equal(counts, expected[2])


def test_wide_masks_with_equal_beginnings() -> None:
    masks = np.random.default_rng(0).random((5_000, 97)) < 0.5
    masks[:, :64] = masks[:50, :64].repeat(100, axis=0)
    masks[:, 64:90] = False
    np.testing.assert_array_equal(unique_masks(masks)[0], np.unique(masks, axis=0))
