"""Interpolation against `np.interp`."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from verticopula.stats.interpolation import interpolate


@given(
    n=st.integers(0, 60), points=st.integers(2, 40), even=st.booleans(), crowded=st.booleans(), seed=st.integers(0, 999)
)
def test_heights_are_those_of_numpy(n: int, points: int, even: bool, crowded: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    grid = np.linspace(-1.0, 2.0, points) if even else np.sort(rng.uniform(-1.0, 2.0, points))
    if crowded:  # nearly flat stretches, as a distribution function has where there is no mass
        grid = 1e-9 * grid + (np.arange(points) > points // 2)
    heights = rng.standard_normal(points)
    at = np.concatenate([rng.uniform(-2.0, 3.0, n), grid, np.nextafter(grid, 9.0), np.nextafter(grid, -9.0)])
    expected = np.interp(at, grid, heights)
    np.testing.assert_allclose(interpolate(at, grid, heights), expected, rtol=1e-13, atol=1e-13)
    np.testing.assert_array_equal(interpolate(at[:, None], grid, heights)[:, 0], interpolate(at, grid, heights))
