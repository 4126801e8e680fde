"""Vertigan: what its critics see, what it costs, and that it learns margins and associations."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from experiments.baselines import vertigan
from experiments.designs import Model
from experiments.draws import Cell, draw
from experiments.person.person_methods import METHODS
from experiments.runner import SMALL_DESIGN, Settings
from experiments.study import MethodFailure
from verticopula.privacy.gaussian_dp import compose
from verticopula.schema.columns import Column, ColumnKey
from verticopula.schema.federation import Federation

pytestmark = [pytest.mark.gan, pytest.mark.filterwarnings("default")]


SMALL = Settings(design=SMALL_DESIGN)
NO_NOISE = vertigan.Budget({"a": math.inf, "b": math.inf, "s": math.inf}, math.inf, 2)


def make_small(model: Model) -> Federation:
    cell = Cell(model, "complete", 50)
    return draw(cell, 0, SMALL.make_design(cell)).data.federation()


def make_codings(federation: Federation) -> list[vertigan.ColumnCoding]:
    return [vertigan.ColumnCoding(key, federation.column(key)) for key in federation.keys]


def test_every_party_with_covariates_has_a_critic_of_its_own_columns() -> None:
    federation = make_small("linear")
    places = vertigan.split_columns(federation)
    assert [places[f"client{k}"] for k in range(1, 6)] == [[3 * k, 3 * k + 1, 3 * k + 2] for k in range(5)]
    features = vertigan.CodedFeatures(make_codings(federation), federation.response)
    assert {party: len(mine) for party, mine in features.product_places.items()} == dict.fromkeys(places, 3)
    assert [*features.margin_places] == [*places, "server"]


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
    coding = vertigan.ColumnCoding(ColumnKey("p", "c"), column)
    numbers = coding.encode(pl.Series("c", values))
    assert numbers.shape == (3, width)
    assert np.abs(numbers).max() <= vertigan.REACH
    assert coding.decode(numbers).to_list() == values


def test_no_block_spends_more_than_its_budget() -> None:
    budget = vertigan.Budget.split(make_small("linear"), 0.7)
    assert compose([budget.margins["server"], *[budget.products] * 5]) == pytest.approx(0.7)
    for k in range(1, 6):
        assert compose([budget.margins[f"client{k}"], budget.products]) == pytest.approx(0.7)
    assert 0.7 < budget.person < 0.7 * math.sqrt(6.0)


@pytest.mark.parametrize("model", ["linear", "logistic"])
def test_a_replaced_block_moves_no_critic_further_than_it_is_charged_for(model: Model) -> None:
    federation = make_small(model)
    codings = make_codings(federation)
    features = vertigan.CodedFeatures(codings, federation.response)
    rng = np.random.default_rng(0)
    blocks = [
        np.eye(c.width)[rng.integers(c.width, size=200)]
        if c.categories
        else rng.choice([-vertigan.REACH, 0.1, vertigan.REACH], size=(200, 1))
        for c in codings
    ]
    import torch  # only where these tests are meant to run

    rows = torch.tensor(np.hstack(blocks), dtype=torch.float32)
    scale = vertigan.Scale.of(features, 0.01 * rows)  # so small that every value is far out
    for seen, places, norms in (
        (features.margins(rows), features.margin_places, features.margin_norms),
        (features.products(rows, scale), features.product_places, features.product_norms),
    ):
        for party, mine in places.items():
            assert float(seen[:, mine].norm(dim=1).max()) <= norms[party] * (1.0 + 1e-5)
    # A party's critics see nothing of another party's covariates.
    changed = rows.clone()
    changed[:, features.spans[0]] = rows[:, features.spans[0]].flip(0)
    scale = vertigan.Scale.of(features, rows)
    moved = (features.products(changed, scale) != features.products(rows, scale)).any(dim=0)
    assert moved.any()
    assert set(moved.nonzero()[:, 0].tolist()) <= set(features.product_places["client1"].tolist())


def test_the_noise_has_the_size_it_is_said_to_have() -> None:
    import torch

    dice = torch.Generator().manual_seed(0)
    mine = torch.arange(20_000)
    answer, squares = vertigan._ask(torch.zeros(1_000, 20_000), {"a": mine}, {"a": 3.0}, {"a": 0.2}, dice)
    assert float(answer.std()) == pytest.approx(2.0 * 3.0 / 0.2 / 1_000, rel=0.03)
    assert float(answer @ answer) == pytest.approx(squares, rel=0.05)


@pytest.mark.parametrize("binary", [False, True])
def test_without_noise_it_learns_margins_and_the_signs_of_associations(binary: bool) -> None:
    rng = np.random.default_rng(0)
    n = 2_000
    columns = {
        "a.up": rng.normal(1.0, 1.0, n),
        "a.idle": rng.normal(-2.0, 0.5, n),
        "b.down": (rng.random(n) < 0.7).astype(float),
    }
    signal = columns["a.up"] - 1.0 - 2.0 * (columns["b.down"] - 0.7) + rng.standard_normal(n)
    columns["s.y"] = (signal > 0.0).astype(float) if binary else signal
    codings = [
        vertigan.ColumnCoding(
            ColumnKey.parse(name),
            Column(name=name, kind="binary")
            if set(values) == {0.0, 1.0}
            else Column(name=name, kind="continuous", bounds=(-6.0, 6.0), clamp=True),
        )
        for name, values in columns.items()
    ]
    real = [
        coding.encode(pl.Series(values.astype(int) if coding.categories else values))
        for coding, values in zip(codings, columns.values(), strict=True)
    ]
    made = vertigan.train_and_generate(
        codings, real, ColumnKey("s", "y"), NO_NOISE, steps=vertigan.STEPS, n_rows=5_000, seed=1
    )
    rows = np.column_stack([c.decode(cells).to_numpy() for c, cells in zip(codings, made, strict=True)])
    truth = np.column_stack([*columns.values()])
    np.testing.assert_allclose(rows.mean(axis=0), truth.mean(axis=0), atol=0.15)
    np.testing.assert_allclose(rows.std(axis=0), truth.std(axis=0), rtol=0.25)
    up, idle, down = np.corrcoef(rows.T)[3, :3]
    assert up > 0.25
    assert abs(idle) < 0.1
    assert down < -0.15


def test_the_same_seed_gives_the_same_tables_and_a_whole_study_runs() -> None:
    cell = Cell("logistic", "complete", 120)
    study = draw(cell, 0, SMALL.make_design(cell)).study(3.0, 5, 1)
    first, again = vertigan.fit(study, steps=10), vertigan.fit(study, steps=10)
    assert first.tables["client1"].equals(again.tables["client1"])
    assert first.tables["server"]["y"].is_in([0, 1]).all()
    assert first.spent.block == 3.0 < first.spent.person


def test_no_complete_case_is_a_failure_with_a_reason() -> None:
    cell = Cell("linear", "MAR-simple", 60)
    drawn = draw(cell, 0, SMALL.make_design(cell))
    study = drawn.study(1.0, 0, 1)
    party = next(p.name for p in study.federation.parties if p.name != study.federation.response.party)
    nobody = replace(study, tables={**study.tables, party: study.tables[party].head(3)})
    with pytest.raises(MethodFailure, match="complete cases, 10 are needed"):
        vertigan.fit(nobody)


def test_equal_epsilon_for_a_person_is_not_overspent() -> None:
    cell = Cell("linear", "complete", 80)
    study = draw(cell, 0, SMALL.make_design(cell)).study(1.0, 0, 1)
    answer = METHODS["Vertigan"](study, 30.0, 1e-6)
    assert answer.outcome.spent.person == pytest.approx(30.0, rel=1e-6)
