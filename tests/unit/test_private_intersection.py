"""Ids as points that every party masks, in any order."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import polars as pl
import pytest

from verticopula.matching.private_intersection import mask_points, new_mask, points_of, shorten_points

IDS = pl.Series([f"s{i}" for i in range(40)])
PRIME = 2**255 - 19


def test_the_order_of_masks_does_not_matter() -> None:
    masks = [new_mask() for _ in range(3)]
    found = []
    for order in permutations(masks):
        points = points_of(IDS, "study")
        for mask in order:
            points = mask_points(points, mask)
        found.append(points.tobytes())
    assert len(set(found)) == 1


def test_equal_ids_end_equal_and_others_do_not() -> None:
    a, b = new_mask(), new_mask()
    one = shorten_points(mask_points(mask_points(points_of(IDS, "s"), a), b))
    other = shorten_points(mask_points(mask_points(points_of(IDS[::-1], "s"), b), a))
    np.testing.assert_array_equal(one, other[::-1])
    assert one.shape == (40, 16)
    assert len({bytes(row) for row in one}) == 40


def test_masking_is_the_standard_multiplication() -> None:
    # RFC 7748, section 5.2, first vector
    scalar = bytes.fromhex("a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4")
    point = bytes.fromhex("e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c")
    masked = mask_points(np.frombuffer(point, dtype=np.uint8).reshape(1, 32), scalar)
    assert masked.tobytes().hex() == "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552"


def on_curve(point: bytes) -> bool:
    u = int.from_bytes(point, "little")
    return pow(u**3 + 486_662 * u**2 + u, (PRIME - 1) // 2, PRIME) == 1


def test_every_point_lies_on_the_curve_before_and_after() -> None:
    points = points_of(IDS, "study")
    assert points.shape == (40, 32)
    assert points.dtype == np.uint8
    assert all(on_curve(bytes(row)) for row in points)
    assert all(on_curve(bytes(row)) for row in mask_points(points, new_mask()))


def test_points_differ_between_studies_and_masks_between_calls() -> None:
    assert not np.array_equal(points_of(IDS, "one"), points_of(IDS, "two"))
    assert new_mask() != new_mask()


@pytest.mark.parametrize("low", [0, 1, PRIME - 1, PRIME])
def test_points_of_small_order_are_refused(low: int) -> None:
    point = np.frombuffer(low.to_bytes(32, "little"), dtype=np.uint8).reshape(1, 32)
    with pytest.raises(ValueError, match=r".*"):
        mask_points(point, new_mask())
