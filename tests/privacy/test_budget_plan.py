"""The plan spends what was asked, at every unit, and the ledger's own arithmetic agrees."""

from __future__ import annotations

from typing import Any

import pytest

from tests.builders import CONTINUOUS, make_federation
from verticopula.errors import SettingsError
from verticopula.privacy.accounting import Coins, composed_epsilon
from verticopula.privacy.budget import (
    LARGEST_EPSILON,
    ColumnBudget,
    StudyBudget,
    coins_per_comparison,
    plan_budget,
    rank_coins,
)
from verticopula.schema.columns import Column, ColumnKey
from verticopula.schema.federation import Federation

DELTA = 1e-6


def federation(**own: float) -> Federation:
    return make_federation(
        {
            "left": {"a": CONTINUOUS, "b": {**CONTINUOUS, "weight": 3.0}, "c": {"kind": "binary"}},
            "right": {"d": {"kind": "nominal", "categories": ["x", "y", "z"]}, "e": {**CONTINUOUS, "weight": 0.5}},
        },
        **own,
    )


COUNTS = dict(
    zip(
        [ColumnKey("left", c) for c in "abc"] + [ColumnKey("right", c) for c in "de"],
        (500, 500, 500, 300, 280),
        strict=True,
    )
)


def plan(unit: str, study: Federation | None = None, **settings: Any) -> dict[ColumnKey, ColumnBudget]:
    study = federation() if study is None else study
    request = StudyBudget.build(study, unit=unit, **{"epsilon": 2.0, "delta": DELTA, **settings})
    return plan_budget(study, request, COUNTS, max(COUNTS.values()))


def spent(budgets: dict[ColumnKey, ColumnBudget], keys: list[ColumnKey], sampler: str, part: str = "both") -> float:
    """Epsilon for replacing one person's values in these columns, from the coins themselves."""
    study = federation()
    ranks = [rank_coins(study.column(k), sampler, budgets[k].epsilon_ranks, COUNTS[k]) for k in keys]
    margins = [Coins(budgets[k].epsilon_marginal, 1) for k in keys]
    return composed_epsilon({"ranks": ranks, "both": ranks + margins}[part], DELTA)


def of_party(name: str) -> list[ColumnKey]:
    return [key for key in COUNTS if key.party == name]


def test_variable_gives_every_column_everything() -> None:
    assert set(plan("variable").values()) == {ColumnBudget(1.0, 1.0)}
    assert set(plan("variable", epsilon_ranks=0.5, epsilon_marginals=0.25).values()) == {ColumnBudget(0.5, 0.25)}


def test_client_adds_up_to_the_party_s_epsilon() -> None:
    budgets = plan("client", epsilon_ranks=1.5, epsilon_marginals=0.5)
    for name in ("left", "right"):
        assert sum(budgets[k].epsilon_ranks for k in of_party(name)) == pytest.approx(1.5, rel=1e-12)
        assert sum(budgets[k].epsilon_marginal for k in of_party(name)) == pytest.approx(0.5, rel=1e-12)
    assert budgets[ColumnKey("left", "b")].epsilon_ranks == pytest.approx(
        3 * budgets[ColumnKey("left", "a")].epsilon_ranks
    )


@pytest.mark.parametrize(("sampler", "epsilon"), [("exact", 0.5), ("binomial", 8.0)])
def test_block_uses_each_party_s_budget_up_and_no_more(sampler: str, epsilon: float) -> None:
    budgets = plan("block", epsilon=epsilon, sampler=sampler)
    for name in ("left", "right"):
        assert spent(budgets, of_party(name), sampler) <= epsilon
        assert 0.98 * epsilon / 2 <= spent(budgets, of_party(name), sampler, "ranks") <= epsilon / 2
        assert sum(budgets[k].epsilon_marginal for k in of_party(name)) == pytest.approx(epsilon / 2)


@pytest.mark.parametrize("sampler", ["exact", "binomial"])
def test_person_covers_all_parties_together(sampler: str) -> None:
    budgets = plan("person", epsilon=3.0, sampler=sampler)
    everything = list(COUNTS)
    assert spent(budgets, everything, sampler) <= 3.0
    assert 0.98 * 1.5 <= spent(budgets, everything, sampler, "ranks") <= 1.5
    weights = {"a": 1.0, "b": 3.0, "c": 1.0, "d": 1.0, "e": 0.5}
    base = budgets[ColumnKey("left", "a")]
    for key, budget in budgets.items():
        assert budget.epsilon_ranks == pytest.approx(weights[key.column] * base.epsilon_ranks)
        assert budget.epsilon_marginal == pytest.approx(weights[key.column] * base.epsilon_marginal)


def test_a_party_s_own_epsilon_replaces_the_study_s() -> None:
    study = federation(right=0.6)
    variable = plan("variable", study, epsilon_ranks=3.0, epsilon_marginals=1.0)
    assert variable[ColumnKey("left", "a")] == ColumnBudget(3.0, 1.0)
    assert variable[ColumnKey("right", "d")].epsilon_ranks == pytest.approx(0.45)
    assert variable[ColumnKey("right", "d")].epsilon_marginal == pytest.approx(0.15)
    client = plan("client", study)
    assert sum(client[k].epsilon_ranks + client[k].epsilon_marginal for k in of_party("right")) == pytest.approx(0.6)
    block = plan("block", study)
    assert spent(block, of_party("right"), "exact") <= 0.6
    assert spent(block, of_party("left"), "exact") > 1.0


def test_one_person_has_one_epsilon() -> None:
    with pytest.raises(SettingsError, match="right"):
        plan("person", federation(right=0.6))


@pytest.mark.parametrize(
    ("kind", "categories", "sampler", "coins"),
    [
        ("nominal", ("x", "y", "z"), "exact", 2),
        ("nominal", ("x", "y"), "exact", 1),
        ("ordinal", ("x", "y", "z"), "exact", 1),
        ("nominal", ("x", "y", "z"), "binomial", 4),
        ("binary", None, "binomial", 2),
    ],
)
def test_coins_behind_a_comparison(kind: Any, categories: Any, sampler: str, coins: int) -> None:
    column = Column(name="c", kind=kind, categories=categories)
    assert coins_per_comparison(column, sampler) == coins
    assert rank_coins(column, sampler, 1.0, 101) == Coins(1.0 / coins, 100 * coins)
    assert rank_coins(column, sampler, 1.0, 0).count == 0


def test_settings_that_make_no_sense_are_refused() -> None:
    nonsense: list[dict[str, Any]] = [
        {"unit": "household"},
        {"unit": "block", "delta": None},
        {"delta": 0.0},
        {"delta": float("nan")},
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"epsilon": float("nan")},
        {"epsilon": float("inf")},
        {"epsilon": 2.1 * LARGEST_EPSILON},
        {"epsilon": None},
        {"epsilon_ranks": 1.0},
        {"epsilon_ranks": 1.0, "epsilon_marginals": -1.0},
        {"sampler": "quick"},
    ]
    for settings in nonsense:
        with pytest.raises(SettingsError):
            plan(**{"unit": "client", **settings})


@pytest.mark.parametrize("unit", ["variable", "client", "block"])
def test_an_epsilon_too_small_to_learn_anything_is_refused(unit: str) -> None:
    with pytest.raises(SettingsError, match="too small"):
        plan(unit, epsilon=1e-13)
