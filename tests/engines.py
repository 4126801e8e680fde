"""A study whose tables are folders of Parquet files, and an engine that runs in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from verticopula import Federation

FEDERATION = Federation.from_dict(
    {
        "name": "loans",
        "response": "agency.default",
        "id": "customer",
        "party": [
            {
                "name": "bank",
                "column": [
                    {"name": "income", "kind": "continuous", "bounds": [1, 1e6], "scale": "log"},
                    {"name": "spent", "kind": "continuous", "bounds": [-1e6, 1e6], "relation": "income"},
                    {"name": "age", "kind": "count", "bounds": [18, 100]},
                    {"name": "region", "kind": "nominal", "categories": ["north", "south", "west"]},
                ],
            },
            {"name": "agency", "column": [{"name": "default", "kind": "binary"}]},
        ],
    }
)


class RunHere:
    """An engine that runs functions at once, in this process."""

    def submit(self, function: Callable[..., Any], *given: Any) -> Any:
        return function(*given)

    def fetch(self, handles: Sequence[Any]) -> list[Any]:
        return list(handles)

    def close(self) -> None:
        """Nothing is kept."""


def make_tables(rows: int, seed: int = 0) -> dict[str, pl.DataFrame]:
    """Two tables with gaps, a missing block, cells that cannot be read, ties, and values outside their bounds."""
    rng = np.random.default_rng(seed)
    ids = [f"c{number:07d}" for number in rng.permutation(rows)]
    known = np.flatnonzero(rng.random(rows) < 0.8)
    income = np.round(np.exp(rng.normal(8.0, 1.5, rows)), 2)
    text = [f"{value:.2f}" for value in income]
    for row in rng.choice(rows, rows // 50, replace=False):
        text[row] = rng.choice(["", "unknown", "NA"])
    age = rng.integers(10, 95, rows)
    region = rng.choice(["north", "south", "west", "abroad", ""], rows, p=[0.4, 0.3, 0.2, 0.05, 0.05])
    bank = pl.DataFrame(
        {
            "customer": ids,
            "income": text,
            "spent": np.where(rng.random(rows) < 0.9, income * rng.random(rows), np.nan),
            "age": age,
            "region": region,
        }
    )[rng.permutation(known)]
    default = (rng.random(rows) < 1.0 / (1.0 + income / 3000.0)).astype(int)
    return {"bank": bank, "agency": pl.DataFrame({"customer": ids, "default": default})}


def write_folders(tables: Mapping[str, pl.DataFrame], folder: Path, rows_of_file: int) -> dict[str, Path]:
    """The same tables as folders of Parquet files with so many rows each."""
    paths = {}
    for name, table in tables.items():
        paths[name] = folder / f"{name}.parquet"
        paths[name].mkdir(parents=True)
        for start in range(0, len(table), rows_of_file):
            table[start : start + rows_of_file].write_parquet(paths[name] / f"part-{start:08d}.parquet")
    return paths
