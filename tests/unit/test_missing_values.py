"""Gaps in synthetic tables: reproduced by public patterns, or filled."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from tests.oracle.test_conditional_draws import schema, tilted
from tests.unit.test_synthesizer import fitted
from verticopula.data.missingness import Missingness, summarise_missingness
from verticopula.errors import SettingsError
from verticopula.schema.columns import ColumnKey
from verticopula.stats.tilting.conditional_rows import fill_rows
from verticopula.stats.tilting.table_prior import latent_cuts
from verticopula.stats.tilting.tilted_model import start_rows
from verticopula.study.missing_values import empty_as_observed

KEYS = (ColumnKey("bank", "a"), ColumnKey("bank", "b"), ColumnKey("clinic", "c"))


def public(n: int = 4_000) -> tuple[Missingness, dict[ColumnKey, np.ndarray]]:
    """The clinic knows 40 %, never those with b empty; b is empty for 30 % of whom the bank knows."""
    rng = np.random.default_rng(0)
    bank = rng.random(n) < 0.8
    b = bank & (rng.random(n) < 0.7)
    clinic = ~bank | (rng.random(n) < 0.3)
    masks = dict(zip(KEYS, (bank, b, clinic), strict=True))
    return summarise_missingness(masks), masks


def test_blocks_and_single_values_are_missing_as_often_as_they_are() -> None:
    missingness, masks = public()
    n = 50_000
    rows = {key: np.arange(n, dtype=np.float64) for key in KEYS}
    found = empty_as_observed(rows, missingness, np.random.default_rng(1))
    error = 5.0 * np.sqrt(0.25 / n)
    for first in KEYS[::2]:
        for second in KEYS:
            seen = np.mean(~np.isnan(found[first]) & ~np.isnan(found[second]))
            together = masks[first] & masks[second]
            if first.party == second.party or KEYS[1] not in (first, second):
                assert abs(seen - together.mean()) < error
    for key in KEYS:
        filled = ~np.isnan(found[key])
        np.testing.assert_array_equal(found[key][filled], rows[key][filled])


def test_required_columns_are_empty_only_where_the_whole_block_is_missing() -> None:
    missingness, _ = public()
    rows = {key: np.ones(5_000) for key in KEYS}
    found = empty_as_observed(rows, missingness, np.random.default_rng(1), required=[KEYS[1]])
    gone = np.isnan(found[KEYS[0]])  # everybody whom the bank knows has a value of a
    np.testing.assert_array_equal(np.isnan(found[KEYS[1]]), gone)
    assert 0 < gone.sum() < 5_000


def test_columns_under_conditions_keep_their_values() -> None:
    missingness, masks = public()
    rows = {key: np.ones(5_000) for key in KEYS}
    found = empty_as_observed(rows, missingness, np.random.default_rng(2), filled=[KEYS[1]])
    assert not np.isnan(found[KEYS[1]]).any()
    share = masks[KEYS[2]][masks[KEYS[0]]].mean()  # among those whom the bank knows
    assert abs(np.mean(~np.isnan(found[KEYS[2]])) - share) < 5.0 * np.sqrt(0.25 / 5_000)
    apart = summarise_missingness({KEYS[0]: np.arange(10) < 5, KEYS[2]: np.arange(10) >= 5})
    with pytest.raises(SettingsError, match="nobody is known to all of bank, clinic"):
        empty_as_observed({key: rows[key] for key in KEYS[::2]}, apart, np.random.default_rng(3), KEYS[::2])


def test_complete_rows_of_a_tilted_copula_have_no_gaps_and_keep_the_rest() -> None:
    copula = tilted()
    as_they_are = copula.sample(3_000, np.random.default_rng(4))
    complete = copula.sample(3_000, np.random.default_rng(4), complete=True)
    income, sector = (next(k for k in as_they_are if k.column == name) for name in ("income", "sector"))
    assert np.isnan(as_they_are[income]).mean() > 0.1
    assert np.isnan(as_they_are[sector]).any()
    assert not any(np.isnan(values).any() for values in complete.values())
    low, high = schema().column(income).bounds or (0.0, 0.0)
    assert ((complete[income] >= low) & (complete[income] <= high)).all()
    default = next(k for k in complete if k.column == "default")
    np.testing.assert_array_equal(complete[default], as_they_are[default])  # what was filled stays


def test_an_empty_value_is_filled_by_its_conditional() -> None:
    """Cells that were empty against the model's chances of the other cells, row by row."""
    model = tilted().model
    rows = start_rows(model, 40_000, np.random.default_rng(5))
    for _ in range(10):
        rows.sweep(model.compile())
    empty = rows.y[:, 1] == model.columns[1].n_filled
    before = rows.y.copy()
    fill_rows(model, rows, np.random.default_rng(6))
    np.testing.assert_array_equal(np.delete(rows.y, 1, axis=1), np.delete(before, 1, axis=1))
    compiled = model.compile()
    mean = rows.z.astype(np.float64) @ compiled.slopes[1].astype(np.float64)
    mean += compiled.mean_shifts[1][compiled.discriminant_of[3] + before[:, 3]]
    edges = ndtr((latent_cuts(model.columns[1]) - mean[:, None]) / compiled.deviations[1])
    chances = np.diff(edges, axis=1) * np.exp(model.tables[0, 1][before[:, 0], :4])
    chances *= np.exp(model.tables[1, 2].T[before[:, 2]][:, :4] + model.tables[1, 4].T[before[:, 4]][:, :4])
    expected = (chances / chances.sum(axis=1, keepdims=True))[empty].mean(axis=0)
    counted = np.bincount(rows.y[empty, 1], minlength=4) / empty.sum()
    assert np.abs(counted - expected).max() < 5.0 * np.sqrt(0.25 / empty.sum())


def test_the_front_door_takes_both_words_and_no_other() -> None:
    study = fitted()
    gaps = study.sample(2_000, missing="as-observed")["registry"]["turnover"].null_count() / 2_000
    assert abs(gaps - study.missingness_.rate("registry")) < 5.0 * np.sqrt(0.25 / 2_000)
    assert study.sample(50, missing="complete")["registry"]["turnover"].null_count() == 0
    conditional = study.sample(50, missing="as-observed", conditions={"registry.sector": "farm"})["registry"]
    assert conditional["sector"].to_list() == ["farm"] * 50
    with pytest.raises(SettingsError, match="as-observed"):
        study.sample(5, missing="some")
    with pytest.raises(SettingsError, match="as they are"):
        study.sample(aligned=True, missing="complete")
