"""Rows under conditions against rejection: unconditional rows of which only those that meet the conditions are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.builders import make_federation
from verticopula import Federation
from verticopula.errors import SettingsError
from verticopula.schema.conditions import parse_conditions, read_conditions
from verticopula.stats import conditional_draws
from verticopula.stats.conditional_draws import ConditionTuning, RegionBuilder, draw_in_region
from verticopula.stats.copula import FittedCopula, Layout
from verticopula.stats.margin_cells import cell_count
from verticopula.stats.marginals import Marginal
from verticopula.stats.tilting.pooling import PooledColumn
from verticopula.stats.tilting.tilted_model import TiltedCopula
from verticopula.stats.tilting.tilted_study import TiltedStudyCopula

COLUMNS = {
    "bank": {
        "default": {"kind": "binary"},
        "income": {"kind": "continuous", "bounds": [1, 1e4], "scale": "log", "decimals": 0},
    },
    "clinic": {
        "visits": {"kind": "count", "bounds": [0, 200]},
        "sector": {"kind": "nominal", "categories": ["farm", "shop", "bank"]},
        "grade": {"kind": "ordinal", "categories": ["low", "mid", "high"]},
    },
}
ASKED: list[dict[str, Any]] = [
    {"bank.default": 1},
    {"clinic.sector": "shop"},
    {"bank.income": (100, 1000), "clinic.visits": (0, 3)},
    {"bank.default": 0, "clinic.sector": "bank", "clinic.grade": ("mid", "high")},
]


def schema() -> Federation:
    return make_federation(COLUMNS)


def margins(federation: Federation) -> dict[Any, Marginal]:
    found = {}
    for key in federation.keys:
        column = federation.column(key)
        size = 16 if column.kind == "continuous" else cell_count(column, 100, 1.0)
        weights = 1.0 / (1.0 + np.arange(size)) if column.kind == "count" else 1.0 + np.arange(size) % 3
        found[key] = Marginal(column, weights / weights.sum(), 0.0)
    return found


def plain() -> FittedCopula:
    """Every column has to do with every other; the nominal column's latents are independent of each other."""
    federation = schema()
    layout = Layout.of({key: federation.column(key) for key in federation.keys})
    r = np.full((7, 7), 0.5)
    r[3:6, 3:6] = np.eye(3)
    r[3:6, [0, 1, 2, 6]] = np.array([0.4, -0.4, 0.0])[:, None]
    r[[0, 1, 2, 6], 3:6] = np.array([0.4, -0.4, 0.0])
    np.fill_diagonal(r, 1.0)
    return FittedCopula(layout, margins(federation), r)


def tilted() -> TiltedStudyCopula:
    """The same columns with pooled cells, empty values in two of them, and tables."""
    federation, rng = schema(), np.random.default_rng(0)
    layout = Layout.of({key: federation.column(key) for key in federation.keys})
    shares = margins(federation)
    empties = {"income": 0.3, "sector": 0.02}
    columns = []
    for key in federation.keys:
        own = shares[key].probabilities
        groups = np.minimum(np.arange(own.size) * 4 // own.size, 3) if own.size > 4 else np.arange(own.size)
        empty = empties.get(key.column)
        if empty is not None:  # common ones are a cell of their own, rare ones are pooled with the first
            groups, own = np.append(groups, 4 if empty > 0.1 else 0), np.append((1.0 - empty) * own, empty)
        columns.append(PooledColumn(groups, own, key.column != "sector", empty is not None and empty > 0.1))
    model = TiltedCopula(
        tuple(columns),
        np.array([0, 1, -1, -1, 2]),  # nothing is learnt of the latent of visits
        np.array([[1.0, 0.5, 0.3], [0.5, 1.0, -0.4], [0.3, -0.4, 1.0]]),
        tuple(np.zeros(column.n_cells) for column in columns),
        {
            (a, b): rng.normal(0.0, 0.7, (columns[a].n_cells, columns[b].n_cells))
            for a, b in ((0, 1), (1, 2), (2, 3), (1, 4))
        },
        {3: np.array([[0.05, -0.05, 0.0], [-0.05, 0.05, 0.0], [0.0, 0.0, 0.0]])},
    )
    return TiltedStudyCopula(layout, shares, np.eye(7), model, {})


def numbers(rows: dict[Any, np.ndarray]) -> np.ndarray:
    """(n, 8) every column, how often it is empty, and indicators of the nominal one, as plain numbers."""
    found = []
    for key, values in rows.items():
        found += [values == 0.0, values == 1.0] if key.column == "sector" else [np.log1p(np.nan_to_num(values))]
        found += [np.isnan(values)] if key.column in ("income", "sector") else []
    return np.column_stack(found).astype(np.float64)


@pytest.mark.statistics
@pytest.mark.parametrize("make", [plain, tilted])
@pytest.mark.parametrize("asked", ASKED, ids=str)
def test_rows_under_conditions_are_those_that_rejection_would_keep(make: Any, asked: dict[str, Any]) -> None:
    copula, conditions = make(), read_conditions(schema(), asked)
    everybody = copula.draw_people(120_000, np.random.default_rng(1))
    met = np.logical_and.reduce([(everybody[k] >= c.low) & (everybody[k] <= c.high) for k, c in conditions.items()])
    expected = numbers({key: values[met] for key, values in everybody.items()})
    drawn = copula.sample(20_000, np.random.default_rng(2), conditions)
    for key, condition in conditions.items():
        assert ((drawn[key] >= condition.low) & (drawn[key] <= condition.high)).all()
    found = numbers(drawn)
    error = np.sqrt(expected.var(axis=0) / len(expected) + found.var(axis=0) / len(found))
    assert len(expected) > 500
    assert np.all(np.abs(found.mean(axis=0) - expected.mean(axis=0)) <= 5.0 * error + 1e-9)


def test_one_value_of_a_continuum_is_regressed_on() -> None:
    """Against rows that come close to the value."""
    copula = plain()
    conditions = read_conditions(schema(), {"bank.income": 300})
    key = next(iter(conditions))
    everybody = copula.draw_people(200_000, np.random.default_rng(4))
    near = np.abs(np.log(everybody[key] / 300.0)) < 0.05
    drawn = copula.sample(20_000, np.random.default_rng(5), conditions)
    assert (drawn[key] == 300.0).all()
    for other in set(drawn) - {key}:
        expected, found = everybody[other][near], drawn[other]
        error = np.sqrt(expected.var() / near.sum() + found.var() / found.size)
        assert abs(found.mean() - expected.mean()) < 5.0 * error


@pytest.mark.parametrize("n_latents", [1, 3])
def test_sweeps_and_rejection_give_the_same_truncated_normal(n_latents: int, monkeypatch: pytest.MonkeyPatch) -> None:
    covariance = np.full((n_latents, n_latents), 0.6) + 0.4 * np.eye(n_latents)
    region, mean = RegionBuilder(), np.linspace(0.2, -0.3, n_latents)
    region.bound_or_fix(0, 0.1, 0.9)
    if n_latents > 1:
        region.bound_or_fix(1, -9.0, 0.3)
        region.bound_or_fix(2, -0.5, 9.0)
    exact = draw_in_region(mean, covariance, region.build(), 40_000, np.random.default_rng(6))
    monkeypatch.setattr(conditional_draws, "CONDITION_TUNING", ConditionTuning(proposals=0))
    swept = draw_in_region(mean, covariance, region.build(), 40_000, np.random.default_rng(7))
    error = np.sqrt(2.0 * exact.var(axis=0) / 40_000)
    assert np.all(np.abs(swept.mean(axis=0) - exact.mean(axis=0)) < 5.0 * error)
    np.testing.assert_allclose(np.cov(swept.T), np.cov(exact.T), atol=0.01)


def test_a_rare_region_is_reached_where_rejection_finds_nobody() -> None:
    copula = plain()
    conditions = read_conditions(
        schema(), {"bank.income": (7_000, 1e4), "clinic.visits": (195, 200), "bank.default": 0}
    )
    drawn = copula.sample(500, np.random.default_rng(8), conditions)
    for key, condition in conditions.items():
        assert ((drawn[key] >= condition.low) & (drawn[key] <= condition.high)).all()


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"bank.defalt": 1}, "did you mean 'bank.default'"),
        ({"default": 1}, "no such column"),
        ({"bank.default": 2}, "not one of its categories"),
        ({"clinic.sector": ("farm", "shop")}, "have no range"),
        ({"bank.income": 0.5}, "outside its public bounds"),
        ({"bank.income": "much"}, "expected a number"),
        ({"bank.income": (500, 100)}, "nothing lies in that range"),
        ({"clinic.visits": (0.2, 0.8)}, "no whole number"),
        ({"clinic.visits": (0, 1, 2)}, "two ends"),
    ],
)
def test_conditions_that_no_row_can_meet_are_errors(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        read_conditions(schema(), asked)


@pytest.mark.parametrize("make", [plain, tilted])
def test_a_condition_that_the_fitted_margin_excludes_is_an_error(make: Any) -> None:
    copula = make()
    for name, value, cells in (("bank.default", 1, [1.0, 0.0]), ("clinic.sector", "shop", [0.5, 0.0, 0.5])):
        conditions = read_conditions(schema(), {name: value})
        key = next(iter(conditions))
        copula.margins[key] = Marginal(schema().column(key), np.array(cells), 0.0)
        with pytest.raises(SettingsError, match="nobody has such a value"):
            copula.sample(10, np.random.default_rng(9), conditions)


def test_text_of_a_command_line_is_read_as_values_and_ranges() -> None:
    given = parse_conditions(["bank.default=1", "bank.income=100..1000", "clinic.sector=farm"])
    found = {str(key): (own.low, own.high) for key, own in read_conditions(schema(), given).items()}
    assert found == {"bank.default": (1, 1), "bank.income": (100, 1000), "clinic.sector": (0, 0)}
    for wrong in (["bank.default"], ["bank.default="], ["bank.default=1", "bank.default=0"]):
        with pytest.raises(SettingsError):
            parse_conditions(wrong)


def test_dates_are_conditions_too() -> None:
    dated = make_federation({"bank": {"since": {"kind": "count", "bounds": ["2000-01-01", "2020-12-31"]}}})
    [found] = read_conditions(dated, {"bank.since": "2010-01-01..2010-01-03"}).values()
    assert found.high - found.low == 2
