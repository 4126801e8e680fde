"""Small studies that reports are about."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from tests.builders import correlated_normals, make_federation
from verticopula import Federation, NotPrivateWarning, Synthesizer
from verticopula.report.report_data import ReportData

N = 600


def federation(**bounds: Any) -> Federation:
    """Three parties, every kind of column."""
    return make_federation(
        {
            "bank": {
                "default": {"kind": "binary"},
                "income": {"kind": "continuous", "bounds": bounds.get("income", [-6, 6]), "clamp": True},
            },
            "court": {
                "suits": {"kind": "count", "bounds": [0, 40]},
                "grade": {"kind": "ordinal", "categories": ["low", "middle", "high"]},
            },
            "shop": {
                "sector": {"kind": "nominal", "categories": ["a", "b", "c"]},
                "spent": {"kind": "continuous", "bounds": [0.01, 1000], "scale": "log"},
            },
        }
    )


def tables(n: int = N, *, missing: bool = True, seed: int = 5) -> dict[str, pl.DataFrame]:
    """Correlated columns; the court knows who has little, the shop who has much."""
    rng = np.random.default_rng(seed)
    z = correlated_normals(0.5 * np.eye(6) + 0.5, n, rng)
    ids = np.array([f"s{i}" for i in range(n)])
    whole = {
        "bank": pl.DataFrame({"subject_id": ids, "default": (z[:, 0] > 0.8).astype(int), "income": z[:, 1]}),
        "court": pl.DataFrame(
            {
                "subject_id": ids,
                "suits": np.clip(np.floor(np.exp(z[:, 2] + 0.5)), 0, 40).astype(int),
                "grade": np.array(["low", "middle", "high"])[np.digitize(z[:, 3], [-0.4, 0.7])],
            }
        ),
        "shop": pl.DataFrame(
            {
                "subject_id": ids,
                "sector": np.array(["a", "b", "c"])[np.digitize(z[:, 4], [-0.2, 0.9])],
                "spent": np.clip(np.exp(z[:, 5]), 0.02, 900),
            }
        ),
    }
    if not missing:
        return whole
    known = {"court": rng.random(n) < 1 / (1 + np.exp(2 * z[:, 1])), "shop": rng.random(n) < 0.8}
    return {name: frame.filter(pl.Series(known[name])) if name in known else frame for name, frame in whole.items()}


def fit(method: str = "refined", data: Mapping[str, pl.DataFrame] | None = None, **settings: Any) -> Synthesizer:
    """A study on them; cryptographic noise unless a seed is given."""
    chosen: dict[str, Any] = {"epsilon": 8.0, "unit": "client", **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotPrivateWarning)
        whose = chosen.pop("federation", None) or federation()
        return Synthesizer(whose, method, **chosen).fit(tables() if data is None else data)


@cache
def fitted() -> Synthesizer:
    """One study that many tests only look at."""
    return fit()


def subject(**more: Any) -> ReportData:
    return ReportData(fitted().study_, **more)
