"""Rows of subjects by hashes of their ids, against a dictionary."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verticopula.data import id_places
from verticopula.data.id_places import count_unmatched, find_rows, mark_repeated


@given(
    own=st.lists(st.text(max_size=3), unique=True, max_size=30),
    cohort=st.lists(st.text(max_size=3), max_size=30),
    at_once=st.integers(1, 40),
)
def test_rows_and_strangers_are_those_of_a_dictionary(own: list[str], cohort: list[str], at_once: int) -> None:
    places = {name: row for row, name in enumerate(own)}
    ids, asked = pl.Series(own, dtype=pl.String), pl.Series(cohort, dtype=pl.String)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(id_places, "ROWS_IN_MEMORY", at_once)
        rows = find_rows(ids, asked)
    assert rows.tolist() == [places.get(name, -1) for name in cohort]
    strangers = len(set(own) - set(cohort))
    assert count_unmatched(ids, asked, rows) == count_unmatched(ids, asked, None) == strangers


@given(ids=st.lists(st.sampled_from(["a", "b", "c", None]), max_size=12))
def test_repeated_ids_are_those_that_an_earlier_row_has(ids: list[str | None]) -> None:
    expected = [name in ids[:row] for row, name in enumerate(ids)]
    assert mark_repeated(pl.Series(ids, dtype=pl.String)).tolist() == expected


def test_ids_with_the_same_hash_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pl.Series, "hash", lambda ids: pl.Series([7] * len(ids), dtype=pl.UInt64))
    own, cohort = pl.Series(["a", "b", "c"]), pl.Series(["c", "x", "a"])
    assert find_rows(own, cohort).tolist() == [2, -1, 0]
    assert not mark_repeated(own).any()
    np.testing.assert_array_equal(mark_repeated(pl.Series(["a", "b", "a"])), [False, False, True])


def test_a_table_in_the_order_of_the_cohort_is_found_row_by_row() -> None:
    ids = pl.Series(["b", "a", "c"])
    assert find_rows(ids, ids).tolist() == find_rows(ids, pl.Series(["b", "a", "c"])).tolist() == [0, 1, 2]
    assert find_rows(ids, ids.sort()).tolist() == [1, 0, 2]
