"""A nominal column takes nothing from the others' correlations, however many of its categories are rare or unused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import spearmanr

from tests.builders import CONTINUOUS, fit_seeded, make_federation, make_tables

N = 6_000
NAMES = [f"x{j}" for j in range(6)]
# A mean of 15 absolute errors of Spearman's correlation has a standard deviation of about 0.002 at this size, and two
# runs on the same people differ by less.
FIVE_DEVIATIONS = 0.01
SETTINGS: dict[str, dict[str, Any]] = {
    "vcds": {"epsilon": 20.0, "unit": "variable"},
    "refined": {"epsilon": 20.0, "unit": "variable"},
    "strict": {"epsilon": 1000.0, "delta": 1e-6},
}


def people(seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    loadings = rng.standard_normal((6, 2))
    return np.clip(rng.standard_normal((N, 2)) @ loadings.T + rng.standard_normal((N, 6)), -6.0, 6.0)


def error_beside(codes: NDArray[np.int64], n_categories: int, method: str, seed: int) -> float:
    """Mean absolute error of the correlations of six columns beside a nominal one with so many public categories."""
    x = people(seed)
    nominal = {"kind": "nominal", "categories": [f"k{c}" for c in range(n_categories)]}
    federation = make_federation(
        {
            "left": dict.fromkeys(NAMES[:3], CONTINUOUS) | {"g": nominal},
            "middle": dict.fromkeys(NAMES[3:5], CONTINUOUS),
            "right": {NAMES[5]: CONTINUOUS},
        }
    )
    values: dict[str, Any] = {name: x[:, j] for j, name in enumerate(NAMES)}
    tables = make_tables(federation, values | {"g": [f"k{c}" for c in codes]})
    rows = fit_seeded(federation, tables, seed, method=method, **SETTINGS[method]).sample(20_000)
    found = {name: frame[name].to_numpy() for frame in rows.values() for name in frame.columns if name in NAMES}
    made = spearmanr(np.column_stack([found[name] for name in NAMES])).statistic
    pairs = np.triu_indices(len(NAMES), 1)
    return float(np.mean(np.abs(made - spearmanr(x).statistic)[pairs]))


@pytest.mark.parametrize("method", SETTINGS)
@pytest.mark.parametrize("unused", [1, 20])
def test_unused_categories_cost_the_other_columns_nothing(method: str, unused: int) -> None:
    codes = np.random.default_rng(7).choice(3, N, p=[0.5, 0.3, 0.2])
    without = error_beside(codes, 3, method, 1)
    assert error_beside(codes, 3 + unused, method, 1) <= without + FIVE_DEVIATIONS


@pytest.mark.parametrize(
    "method", ["vcds", *(pytest.param(name, marks=pytest.mark.slow) for name in ("refined", "strict"))]
)
def test_two_hundred_categories_are_fine(method: str) -> None:
    rng = np.random.default_rng(8)
    shares = rng.dirichlet(np.full(200, 0.3))  # most are rare
    few, many = np.zeros(N, dtype=np.int64), rng.choice(200, N, p=shares)
    few[: N // 2] = 1
    assert error_beside(many, 200, method, 2) <= error_beside(few, 3, method, 2) + FIVE_DEVIATIONS


def test_a_rare_category_does_not_blur_what_the_others_say() -> None:
    """A group that decides a column's mean still does when five rare categories are listed beside it."""
    rng = np.random.default_rng(9)
    codes = np.where(rng.random(N) < 0.002, rng.integers(3, 8, N), rng.choice(3, N, p=[0.5, 0.3, 0.2]))
    means = np.array([0.0, 1.5, -1.5, 0.0, 0.0, 0.0, 0.0, 0.0])
    federation = make_federation(
        {
            "left": {"g": {"kind": "nominal", "categories": [f"k{c}" for c in range(8)]}},
            "middle": {"y": CONTINUOUS},
            "right": {"z": CONTINUOUS},
        }
    )
    y = np.clip(means[codes] + rng.standard_normal(N), -6, 6)
    values = {"g": [f"k{c}" for c in codes], "y": y, "z": rng.uniform(-2, 2, N)}
    rows = fit_seeded(federation, make_tables(federation, values), 3, epsilon=20.0, unit="variable").sample(20_000)
    made, groups = rows["middle"]["y"].to_numpy(), rows["left"]["g"].to_numpy()
    found = [made[groups == f"k{c}"].mean() for c in range(3)]
    wanted = [y[codes == c].mean() for c in range(3)]
    # Half of a column's variance between groups is at the edge of what the nominal model carries: within a third.
    assert np.allclose(found, wanted, atol=0.5)
    assert found[1] - found[2] > 2.0
