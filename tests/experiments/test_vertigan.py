"""Vertigan: what its critics see, what it costs, and that it learns margins."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from experiments.baselines import vertigan
from experiments.draws import Cell, draw
from experiments.runner import Settings
from verticopula.schema import Column, ColumnKey

pytestmark = [pytest.mark.gan, pytest.mark.filterwarnings("default")]

SMALL = Settings(design={"kind_counts": (4, 4, 4, 3)})


def test_the_response_goes_to_the_last_party_with_covariates() -> None:
    drawn = draw(Cell("linear", "complete", 50), 0, SMALL.make_design(Cell("linear", "complete", 50)))
    blocks = vertigan.split_columns(drawn.data.federation())
    assert [block.tolist() for block in blocks] == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11], [12, 13, 14, 15]]


@pytest.mark.parametrize(
    ("column", "values", "width"),
    [
        (Column(name="c", kind="continuous", bounds=(-2.0, 6.0)), [-2.0, 0.5, 6.0], 1),
        (Column(name="c", kind="count", bounds=(0, 9)), [0, 4, 9], 10),
        (Column(name="c", kind="count", bounds=(0, 90)), [0, 4, 90], 1),
        (Column(name="c", kind="ordinal", categories=("a", "b", "c")), ["a", "c", "b"], 3),
    ],
)
def test_coding_there_and_back(column: Column, values: list, width: int) -> None:
    coding = vertigan.Coding(ColumnKey("p", "c"), column)
    numbers = coding.encode(pl.Series("c", values))
    assert numbers.shape == (3, width)
    assert np.abs(numbers).max() <= 1.0
    assert coding.decode(numbers).to_list() == values


def test_noise_is_calibrated_for_a_replaced_block() -> None:
    sigma = vertigan.calibrate(2.0, 1e-6, 0.1, 50)
    assert vertigan.replaced_epsilon(sigma, 0.1, 50, 1e-6) <= 2.0
    assert vertigan.replaced_epsilon(sigma / 1.02, 0.1, 50, 1e-6) > 2.0
    # One step on everybody is the Gaussian mechanism with twice the sensitivity: sigma / 2 = 4.2247 at (1, 1e-6).
    assert vertigan.replaced_epsilon(2 * 4.2247, 1.0, 1, 1e-6) >= 1.0


def test_without_noise_it_learns_where_the_columns_lie() -> None:
    rng = np.random.default_rng(0)
    shared = rng.standard_normal(1_000)
    real = [np.clip(where + 0.1 * shared, -1.0, 1.0)[:, None] for where in (0.5, -0.5)]
    real.append(np.eye(2)[(rng.random(1_000) < 0.8).astype(int)])
    blocks = [np.array([0]), np.array([1, 2])]
    made = vertigan.train_and_generate(real, blocks, 0.0, steps=600, batch=128, n_rows=2_000, seed=1)
    np.testing.assert_allclose([made[0].mean(), made[1].mean()], [0.5, -0.5], atol=0.15)
    assert 0.65 < (made[2].argmax(axis=1) == 1).mean() < 0.95


def test_the_same_seed_gives_the_same_tables_and_a_whole_study_runs() -> None:
    cell = Cell("logistic", "complete", 120)
    study = draw(cell, 0, SMALL.make_design(cell)).study(3.0, 5, 1)
    first, again = vertigan.fit(study, steps=10), vertigan.fit(study, steps=10)
    assert first.tables["client1"].equals(again.tables["client1"])
    assert first.tables["server"]["y"].is_in([0, 1]).all()
    assert first.spent.block == 3.0 < first.spent.person
