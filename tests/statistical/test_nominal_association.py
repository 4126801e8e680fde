"""Nominal columns through the whole pipeline: association survives, labels do not matter."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from scipy import stats

from tests.builders import CONTINUOUS, fit_seeded, make_federation, make_tables
from verticopula import Federation

SHARES = {3: np.array([0.5, 0.3, 0.2]), 5: np.array([0.4, 0.3, 0.18, 0.1, 0.02])}
MEANS = {3: np.array([0.2, 1.0, -1.0]), 5: np.array([-0.3, 0.9, 0.0, -0.9, 0.6])}
N = 3_000
ROWS = 60_000


def nominal(count: int) -> dict[str, Any]:
    return {"kind": "nominal", "categories": [f"k{i}" for i in range(count)]}


def labels(codes: NDArray[np.int64]) -> list[str]:
    return [f"k{code}" for code in codes]


def federation_of(count: int) -> Federation:
    return make_federation({"left": {"y": CONTINUOUS}, "middle": {"g": nominal(count)}, "right": {"h": nominal(count)}})


def study(count: int, same: float, rng: np.random.Generator) -> dict[str, Any]:
    """y depends on the group g; h repeats g with probability `same`."""
    g = rng.choice(count, N, p=SHARES[count])
    h = np.where(rng.random(N) < same, g, rng.choice(count, N, p=SHARES[count]))
    return {"y": MEANS[count][g] + rng.standard_normal(N), "g": labels(g), "h": labels(h)}


def table_of(g: list[str], h: list[str], count: int) -> NDArray[np.int64]:
    table = np.zeros((count, count), dtype=np.int64)
    np.add.at(table, ([int(c[1:]) for c in g], [int(c[1:]) for c in h]), 1)
    return table


def cramers_v(table: NDArray[np.int64]) -> float:
    return float(stats.contingency.association(table, method="cramer"))


def synthesize(
    federation: Federation, tables: dict[str, pl.DataFrame], seed: int, epsilon: float, rows_wanted: int = ROWS
) -> dict[str, Any]:
    rows = fit_seeded(federation, tables, seed, epsilon=epsilon, unit="variable").sample(rows_wanted)
    return {name: frame[name].to_numpy() for frame in rows.values() for name in frame.columns}


@pytest.mark.parametrize("count", [3, 5])
def test_group_means_survive(count: int) -> None:
    values = study(count, 0.2, np.random.default_rng(count))
    federation = federation_of(count)
    rows = synthesize(federation, make_tables(federation, values), 1, 12.0)
    spread = float(np.std(values["y"]))
    for code in range(count):
        inside = np.array(values["g"]) == f"k{code}"
        original = float(np.mean(values["y"][inside]))
        synthetic = float(np.mean(rows["y"][rows["g"] == f"k{code}"]))
        # Monte-Carlo error of both means and of the fit, and a tenth of a deviation for the copula's form.
        error = spread * math.sqrt(2 / inside.sum() + 1 / (ROWS * inside.mean()))
        assert abs(original - synthetic) < 0.1 * spread + 4 * error
    assert np.std([np.mean(rows["y"][rows["g"] == f"k{c}"]) for c in range(count)]) > 0.4


@pytest.mark.parametrize("count", [3, 5])
def test_contingency_of_two_nominal_columns_survives(count: int) -> None:
    values = study(count, 0.3, np.random.default_rng(10 + count))
    federation = federation_of(count)
    rows = synthesize(federation, make_tables(federation, values), 2, 12.0)
    original = cramers_v(table_of(values["g"], values["h"], count))
    synthetic = cramers_v(table_of(list(rows["g"]), list(rows["h"]), count))
    assert original > 0.25
    assert 0.9 * original < synthetic < 1.1 * original
    shares = table_of(list(rows["g"]), list(rows["h"]), count) / ROWS
    assert np.all(np.diag(shares) > 1.1 * SHARES[count] ** 2)  # agreement beyond chance in every category


@pytest.mark.parametrize("count", [3, 5])
def test_contingency_of_two_nominal_columns_is_not_exaggerated(count: int) -> None:
    values = study(count, 0.4, np.random.default_rng(10 + count))
    federation = federation_of(count)
    rows = synthesize(federation, make_tables(federation, values), 2, 12.0)
    original = cramers_v(table_of(values["g"], values["h"], count))
    synthetic = cramers_v(table_of(list(rows["g"]), list(rows["h"]), count))
    assert synthetic < 1.1 * original


@pytest.mark.parametrize(("count", "same"), [(3, 0.9), (5, 0.8)])
def test_sharp_contingency_of_two_nominal_columns_does_not_fade(count: int, same: float) -> None:
    values = study(count, same, np.random.default_rng(10 + count))
    federation = federation_of(count)
    rows = synthesize(federation, make_tables(federation, values), 2, 12.0)
    original = cramers_v(table_of(values["g"], values["h"], count))
    synthetic = cramers_v(table_of(list(rows["g"]), list(rows["h"]), count))
    assert synthetic > 0.8 * original


@pytest.mark.parametrize(
    ("count", "same"),
    [
        (3, 0.2),
        (5, 0.2),
        (3, 0.9),
    ],
)
def test_category_shares_survive(count: int, same: float) -> None:
    values = study(count, same, np.random.default_rng(20 + count))
    federation = federation_of(count)
    rows = synthesize(federation, make_tables(federation, values), 3, 12.0, rows_wanted=4 * ROWS)
    for code in range(count):
        original = float(np.mean(np.array(values["g"]) == f"k{code}"))
        synthetic = float(np.mean(rows["g"] == f"k{code}"))
        # Laplace noise of scale 1/3 on a count of 3,000, and the sampling of the synthetic rows.
        assert abs(original - synthetic) < 5 * math.sqrt(original / (4 * ROWS) + (0.5 / N) ** 2) + 5e-4


def test_relabelling_changes_nothing_in_distribution() -> None:
    """The same people with permuted category lists: correlations agree up to the noise of the coins."""
    count, order = 5, [3, 0, 4, 2, 1]
    values = study(count, 0.3, np.random.default_rng(30))
    federation = federation_of(count)
    shuffled = make_federation(
        {
            "left": {"y": CONTINUOUS},
            "middle": {"g": {"kind": "nominal", "categories": [f"k{i}" for i in order]}},
            "right": {"h": nominal(count)},
        }
    )
    tables = make_tables(federation, values)
    names = [f"middle.g=k{i}" for i in range(count)]
    found = {
        name: np.array(
            [
                fit_seeded(f, tables, seed, epsilon=4.0, unit="variable").correlation_.loc["left.y", names].to_numpy()
                for seed in range(start, start + 6)
            ]
        )
        for name, f, start in (("listed", federation, 0), ("shuffled", shuffled, 100))
    }
    assert np.min(stats.ttest_ind(found["listed"], found["shuffled"]).pvalue) > 1e-5
    assert np.max(np.abs(found["listed"].mean(axis=0))) > 0.2  # there is something to compare


def test_a_random_order_of_categories_would_not_pass() -> None:
    """Group means are not monotone in any order of the list, and each category keeps its own."""
    values = study(5, 0.0, np.random.default_rng(31))
    federation = federation_of(5)
    rows = synthesize(federation, make_tables(federation, values), 4, 12.0)
    means = np.array([np.mean(rows["y"][rows["g"] == f"k{c}"]) for c in range(5)])
    assert np.corrcoef(means, MEANS[5])[0, 1] > 0.98
