"""Small regression problems for tests."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tests.builders import CONTINUOUS, make_federation
from verticopula import Federation, VerticalGLM

Floats = NDArray[np.float64]

N = 120
FAMILIES = ["gaussian", "binomial", "poisson"]
SECRET = "zq-secret-4711"
SECRET_NUMBER = 6417.825
TIGHT = 1e-9


def blocks(n: int = N, seed: int = 1) -> dict[str, Floats]:
    x = np.random.default_rng(seed).standard_normal((n, 4))
    return {"left": x[:, :2], "right": x[:, 2:]}


def columns_of(tables: Mapping[str, Floats]) -> Floats:
    return np.column_stack(list(tables.values()))


def response(family: str = "gaussian", n: int = N, seed: int = 1) -> Floats:
    """Depends on the first column of either block."""
    rng = np.random.default_rng(seed + 1000)
    eta = columns_of(blocks(n, seed)) @ [1.0, 0.0, -1.0, 0.0]
    if family == "gaussian":
        return np.asarray(eta + 0.5 * rng.standard_normal(n))
    if family == "binomial":
        return (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(np.float64)
    return rng.poisson(np.exp(0.5 * eta + 0.5)).astype(np.float64)


def named(tables: Mapping[str, Floats]) -> dict[str, pl.DataFrame]:
    return {name: pl.DataFrame({f"{name}{j}": v for j, v in enumerate(t.T)}) for name, t in tables.items()}


def all_coef(model: VerticalGLM) -> Floats:
    return np.concatenate(list(model.coef_.values()))


def categories(n: int = 200) -> tuple[pl.DataFrame, Floats]:
    """A number, a text column that matters and one that does not."""
    rng = np.random.default_rng(3)
    x, g, h = rng.standard_normal(n), rng.integers(0, 4, n), rng.integers(0, 3, n)
    y = x + np.array([0.0, 1.5, -1.0, 0.1])[g] + 0.7 * rng.standard_normal(n)
    return pl.DataFrame({"x": x, "g": np.array(list("abcd"))[g], "h": np.array(list("uvw"))[h]}), y


def schema(order: list[str] | None = None) -> Federation:
    """Columns of all kinds but counts."""
    return make_federation(
        {
            "hub": {"y": CONTINUOUS, "flag": {"kind": "binary", "categories": ["no", "yes"]}},
            "side": {
                "g": {"kind": "nominal", "categories": order or ["a", "b", "c"]},
                "o": {"kind": "ordinal", "categories": ["low", "mid", "high"]},
            },
        }
    )


def coded(n: int = 300) -> tuple[dict[str, pl.DataFrame], Floats]:
    """Tables of that schema, and the columns that a regression of `hub.y` should see in them."""
    rng = np.random.default_rng(4)
    g, o, flag = rng.integers(0, 3, n), rng.integers(0, 3, n), rng.integers(0, 2, n)
    y = np.array([0.0, 1.0, -1.0])[g] + 0.8 * o + flag + 0.5 * rng.standard_normal(n)
    tables = {
        "hub": pl.DataFrame({"y": y, "flag": np.array(["no", "yes"])[flag]}),
        "side": pl.DataFrame({"g": np.array(list("abc"))[g], "o": np.array(["low", "mid", "high"])[o]}),
    }
    return tables, np.column_stack([flag, g == 1, g == 2, o]).astype(np.float64)
