"""Generated tables with a rare response: the same ones for a seed, and as they are said to be."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.generated_responses import generate_responses
from benchmarks.response_tuning import CHANGES, measure_one, split_people
from verticopula.stats.tilting.tuning_tilted import TILTED_TUNING


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_rare_response_that_columns_with_a_spike_at_zero_decide(seed: int) -> None:
    table = generate_responses(seed, 8_000)
    response = table.codes[:, -1]
    assert 11 <= len(table.columns) <= 21
    assert 0.08 < response.mean() < 0.22
    zeros = (table.numbers[:, :-1] == 0.0).mean(axis=0)
    spiked = [j for j in np.flatnonzero((zeros > 0.6) & (zeros < 0.95)) if table.columns[j].ends is not None]
    lifts = [response[table.numbers[:, j] > 0].mean() - response[table.numbers[:, j] == 0].mean() for j in spiked]
    assert max(lifts) > 0.1
    for column, codes in zip(table.columns, table.codes.T, strict=True):
        assert 0 <= codes.min() <= codes.max() < column.n_cells


def test_a_seed_makes_the_same_table_and_the_same_split() -> None:
    first, second = generate_responses(7, 2_000), generate_responses(7, 2_000)
    np.testing.assert_array_equal(first.codes, second.codes)
    assert not np.array_equal(first.codes, generate_responses(8, 2_000).codes)
    test, study = split_people(2_000, 7)
    assert test.size == 600
    assert np.array_equal(np.sort(np.concatenate([test, study])), np.arange(2_000))


def test_areas_of_a_study_lie_between_chance_and_one() -> None:
    assert all(hasattr(TILTED_TUNING, name) for change in CHANGES.values() for name in change)
    boosted, own = measure_one(1, CHANGES["as it is"])
    assert 0.5 < boosted < 1.0
    assert 0.5 < own < 1.0
