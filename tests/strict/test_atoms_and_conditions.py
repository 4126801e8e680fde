"""A strict study of a column with a spike and of one with gaps: atoms, conditions and filled values come out."""

from __future__ import annotations

import numpy as np
import pytest

from tests.builders import make_federation, make_tables
from tests.strict.simulated_studies import fit_simulated
from verticopula.schema.columns import ColumnKey
from verticopula.schema.conditions import read_conditions
from verticopula.schema.federation import Federation
from verticopula.stats.strict.strict_fit import StrictFit

N = 6_000
SPIKE = 0.4
X, Y, S, W = (ColumnKey(*name.split(".")) for name in ("a.x", "a.y", "b.s", "b.w"))


def schema() -> Federation:
    return make_federation(
        {
            "a": {"y": {"kind": "binary"}, "x": {"kind": "continuous", "bounds": [0, 6], "atoms": [0]}},
            "b": {
                "s": {"kind": "nominal", "categories": ["p", "q", "r"]},
                "w": {"kind": "continuous", "bounds": [-6, 6]},
            },
        }
    )


@pytest.fixture(scope="module")
def study() -> tuple[StrictFit, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    z = rng.multivariate_normal(np.zeros(3), np.full((3, 3), 0.6) + 0.4 * np.eye(3), N)
    values = {
        "y": (z[:, 0] > 0.5).astype(int),
        "x": np.maximum(z[:, 1] - np.quantile(z[:, 1], SPIKE), 0.0),
        "s": np.array(["p", "q", "r"])[np.digitize(z[:, 0] + rng.standard_normal(N), [-1.0, 1.0])],
        "w": z[:, 2],
    }
    federation = schema()
    fit, _ = fit_simulated(federation, make_tables(federation, values), epsilon=100.0)
    return fit, values


def test_the_spike_comes_out_exactly_and_depends_on_others(study: tuple[StrictFit, dict[str, np.ndarray]]) -> None:
    fit, values = study
    rows = fit.copula.sample(N, np.random.default_rng(1))
    assert abs(np.mean(rows[X] == 0.0) - SPIKE) < 0.02
    for y in (0, 1):
        real = np.mean(values["x"][values["y"] == y] == 0.0)
        assert abs(np.mean(rows[X][rows[Y] == y] == 0.0) - real) < 0.05


@pytest.mark.parametrize("asked", [{"a.x": 0}, {"a.y": 1}, {"b.s": "r", "a.x": (0.5, 6)}], ids=str)
def test_conditions_agree_with_rejection(study: tuple[StrictFit, dict[str, np.ndarray]], asked: dict) -> None:  # type: ignore[type-arg]
    fit, _ = study
    conditions = read_conditions(schema(), asked)
    everybody = fit.copula.draw_people(60_000, np.random.default_rng(2))
    met = np.logical_and.reduce([(everybody[k] >= c.low) & (everybody[k] <= c.high) for k, c in conditions.items()])
    drawn = fit.copula.sample(8_000, np.random.default_rng(3), conditions)
    for key in (X, Y, W):
        found, expected = drawn[key], everybody[key][met]
        assert key not in conditions or ((found >= conditions[key].low) & (found <= conditions[key].high)).all()
        error = np.sqrt(found.var() / found.size + expected.var() / expected.size)
        assert abs(found.mean() - expected.mean()) <= 5.0 * error + 1e-9
