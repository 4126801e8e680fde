"""A small study on disk, and people who were left out of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from tests.builders import CONTINUOUS, make_federation, make_tables
from verticopula import Federation

N = 240


def federation() -> Federation:
    return make_federation(
        {
            "bank": {"y": CONTINUOUS, "late": {"kind": "binary"}, "a": CONTINUOUS},
            "clinic": {
                "visits": {"kind": "count", "bounds": [0, 30]},
                "g": {"kind": "nominal", "categories": ["u", "v", "w"]},
                "b": CONTINUOUS,
            },
        }
    )


def people(first: int, count: int, seed: int) -> dict[str, pl.DataFrame]:
    """Tables of `count` people; the clinic lacks a fifth of them."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((count, 4))
    values = {
        "y": (z[:, 0] + z[:, 1]).clip(-7, 7),
        "late": (z[:, 0] > 0.3).astype(int),
        "a": z[:, 1].clip(-7, 7),
        "visits": rng.poisson(np.exp(0.5 * z[:, 2])).clip(0, 30),
        "g": [["u", "v", "w"][k] for k in rng.integers(0, 3, count)],
        "b": (z[:, 3] + 0.5 * z[:, 0]).clip(-7, 7),
    }
    tables = make_tables(federation(), values)
    ids = pl.Series("subject_id", [f"p{first + i}" for i in range(count)])
    tables = {name: table.with_columns(ids) for name, table in tables.items()}
    tables["clinic"] = tables["clinic"].filter(pl.Series(rng.random(count) < 0.8))
    return tables


def write_tables(tables: dict[str, pl.DataFrame], folder: Path) -> Path:
    """One CSV each."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        table.write_csv(folder / f"{name}.csv")
    return folder
