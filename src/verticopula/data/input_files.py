"""The files that a study starts from: the federation file and one table per party."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from verticopula.schema.federation import Federation


def write_inputs(federation: Federation, tables: Mapping[str, pl.DataFrame], folder: Path) -> None:
    """Write `federation.toml` and `data/PARTY.csv` below a folder, for `verticopula check` and `run`."""
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    federation.to_toml(folder / "federation.toml")
    for name, table in tables.items():
        table.write_csv(data / f"{name}.csv")
