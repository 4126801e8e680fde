"""Small regression problems for tests."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from verticopula.glm import VerticalGLM

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
