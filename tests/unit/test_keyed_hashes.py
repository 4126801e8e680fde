"""Keyed hashes in place of ids, and places in place of rows."""

from __future__ import annotations

import time
import tracemalloc

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verticopula.data.id_checks import hash_ids, normalise_ids
from verticopula.errors import SettingsError
from verticopula.matching.keyed_hashes import (
    UNMATCHED,
    cohort_digest,
    count_repeats,
    hash_order,
    key_check,
    place,
    study_key,
)
from verticopula.schema.federation import IdRule

KEY = bytes(range(32))


def hashes(*ids: str, key: bytes = KEY) -> np.ndarray:
    return hash_ids(pl.Series(list(ids), dtype=pl.String), key)


def test_equal_ids_have_equal_hashes_and_others_others() -> None:
    first, second = hashes("a", "b", "a"), hashes("b")
    assert first.shape == (3, 16)
    assert first.dtype == np.uint8
    np.testing.assert_array_equal(first[0], first[2])
    np.testing.assert_array_equal(first[1], second[0])
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first, hashes("a", "b", "a", key=bytes(32)))


def test_the_hash_is_the_standard_one() -> None:
    # RFC 4231, test case 2, cut to 128 bits
    assert hashes("what do ya want for nothing?", key=b"Jefe").tobytes().hex() == "5bdcc146bf60754e6a042426089575c7"


@pytest.mark.parametrize(
    ("rules", "first", "second"),
    [
        (("strip",), " A1 ", "A1"),
        (("upper",), "a1", "A1"),
        (("lower",), "A1", "a1"),
        (("zfill:5",), "42", "00042"),
        (("strip", "zfill:5"), " 42", "00042"),
        ((), 42, "42"),
        ((), 42.0, "42"),
    ],
)
def test_id_rules_make_spellings_alike(rules: tuple[str, ...], first: object, second: object) -> None:
    rule = IdRule(rules=rules)
    one, other = (hash_ids(normalise_ids(pl.Series([spelling]), rule), KEY) for spelling in (first, second))
    np.testing.assert_array_equal(one, other)
    if rules:
        assert not np.array_equal(hashes(str(first)), hashes(str(second)))


def test_ids_in_any_script() -> None:
    assert count_repeats(hashes("Å", "A", "Ä", "号", "")) == 0


def test_the_check_shows_equal_keys_and_differs_between_studies() -> None:
    check = key_check(KEY, "one")
    assert check.shape == (32,)
    assert check.dtype == np.uint8
    np.testing.assert_array_equal(check, key_check(bytes(KEY), "one"))
    assert not np.array_equal(check, key_check(KEY, "two"))
    assert not np.array_equal(check, key_check(KEY[:-1] + b"x", "one"))
    assert study_key(KEY, "one") != study_key(KEY, "two")


def test_a_short_key_is_refused_without_being_quoted() -> None:
    with pytest.raises(SettingsError, match="6 bytes") as caught:
        key_check(b"secret", "one")
    assert "secret" not in str(caught.value)


def test_places_are_the_response_partys_order() -> None:
    found = place({"b": hashes("z", "x", "stranger"), "a": hashes("x", "y", "z")}, "a")
    assert found.n_subjects == 3
    assert found.positions["a"].tolist() == [0, 1, 2]
    assert found.positions["b"].tolist() == [2, 0, UNMATCHED]
    assert found.positions["b"].dtype == np.int64
    assert (found.unmatched("a"), found.unmatched("b")) == (0, 1)


def test_hashes_that_share_one_half_are_still_told_apart() -> None:
    rows = np.zeros((3, 16), dtype=np.uint8)
    rows[1, 0], rows[2, 15] = 1, 1
    assert count_repeats(rows) == 0
    assert count_repeats(np.vstack([rows, rows[:1]])) == 1
    assert count_repeats(np.vstack([rows, rows])) == rows.shape[0]
    assert place({"a": rows, "b": rows[::-1]}, "a").positions["b"].tolist() == [2, 1, 0]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40))
def test_repeats_are_counted_as_in_a_set(words: list[tuple[int, int]]) -> None:
    rows = np.array(words, dtype=np.uint64).reshape(-1, 2).view(np.uint8)
    assert count_repeats(rows) == len(words) - len(set(words))


@pytest.mark.parametrize(("alike", "times"), [(0, 1), (8, 4)])
def test_a_long_list_is_looked_through_in_a_few_times_its_own_memory(alike: int, times: int) -> None:
    """Also where the first bytes of all hashes are the same."""
    rows = np.random.default_rng(0).integers(0, 256, (200_000, 16), dtype=np.uint8)
    rows[:, :alike] = 1
    tracemalloc.start()
    try:
        assert count_repeats(rows) == 0
        assert tracemalloc.get_traced_memory()[1] < times * rows.nbytes
    finally:
        tracemalloc.stop()


def test_a_cohort_s_digest_depends_on_its_order() -> None:
    rows = hashes("a", "b", "c")
    assert cohort_digest(rows) == cohort_digest(rows.copy())
    assert len({cohort_digest(rows), cohort_digest(rows[::-1]), cohort_digest(rows[:2])}) == 3


def test_hash_order_is_the_order_of_the_bytes() -> None:
    rows = hashes(*map(str, range(500)))
    ordered = rows[hash_order(rows)]
    assert [bytes(row) for row in ordered] == sorted(bytes(row) for row in rows)


def test_a_large_cohort_is_placed_rightly_with_little_work() -> None:
    n = 72_000
    rng = np.random.default_rng(0)
    ids = np.arange(n).astype(str)
    own = rng.permutation(n)[: n // 2]
    start = time.process_time()
    found = place({"a": hash_ids(pl.Series(ids), KEY), "b": hash_ids(pl.Series(ids[own]), KEY)}, "a")
    assert time.process_time() - start < 10.0
    np.testing.assert_array_equal(found.positions["b"], own)
